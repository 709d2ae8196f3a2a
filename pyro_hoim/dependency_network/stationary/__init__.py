"""Stationary and cyclic laws of pseudo-Gibbs sampling."""
