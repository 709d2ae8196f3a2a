"""Gibbs chains of log-linear models and their engines."""

from __future__ import annotations

__all__: list[str] = []
