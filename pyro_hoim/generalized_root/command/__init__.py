"""What the commands ask of a generalized root model."""
