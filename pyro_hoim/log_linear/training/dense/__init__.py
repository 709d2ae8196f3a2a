"""Exact log Z and margins of small domains for training."""
