"""Stationary and cyclic laws of pseudo-Gibbs sampling."""

from __future__ import annotations

__all__: list[str] = []
