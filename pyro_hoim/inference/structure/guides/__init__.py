"""Guides over structure, for stochastic variational inference."""
