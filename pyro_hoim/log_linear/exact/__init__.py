"""Exact log Z, marginals and samples of log-linear models."""

from __future__ import annotations

__all__: list[str] = []
