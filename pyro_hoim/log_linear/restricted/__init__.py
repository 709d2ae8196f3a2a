"""Interactions restricted to subspaces: scores of ordered categories, symmetry, diagonals."""
