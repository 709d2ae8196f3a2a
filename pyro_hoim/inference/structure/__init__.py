"""Posteriors over which interactions exist: priors over collections, evidence, enumeration."""
