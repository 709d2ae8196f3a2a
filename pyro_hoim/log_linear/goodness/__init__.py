"""Goodness of fit: deviance, Pearson's statistic, and p-values."""
