"""Gibbs chains of generalized root models."""

from __future__ import annotations

__all__: list[str] = []
