"""Exact log Z, marginals and samples of log-linear models."""
