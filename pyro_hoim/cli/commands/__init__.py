"""The commands, whatever the family."""
