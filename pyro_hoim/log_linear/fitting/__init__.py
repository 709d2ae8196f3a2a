"""Fits of one collection: objectives, penalties, solvers, existence and results."""

from __future__ import annotations

__all__: list[str] = []
