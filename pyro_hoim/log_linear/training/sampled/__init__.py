"""Training by chains with importance weights that follow the parameters."""
