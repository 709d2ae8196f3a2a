"""Gibbs chains of log-linear models and their engines."""
