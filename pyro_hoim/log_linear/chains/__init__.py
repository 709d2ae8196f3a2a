"""Gibbs chains of log-linear models, their engines, and parallel tempering."""

from __future__ import annotations

__all__: list[str] = []
