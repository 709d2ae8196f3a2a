"""Constrained and penalised estimation in corner coordinates: losses, balls, Frank-Wolfe, proximal steps and paths."""
