"""Gibbs chains of generalized root models."""
