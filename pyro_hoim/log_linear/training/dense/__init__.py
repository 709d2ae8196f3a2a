"""Exact log Z and margins of small domains for training."""

from __future__ import annotations

__all__: list[str] = []
