"""A whole model learned from rows."""
