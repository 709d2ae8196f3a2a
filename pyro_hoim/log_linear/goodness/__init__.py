"""Goodness of fit: deviance, Pearson's statistic, and p-values."""

from __future__ import annotations

__all__: list[str] = []
