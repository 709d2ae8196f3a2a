"""Families of one variable, the log partition of a node and its certified bounds."""

from __future__ import annotations

__all__: list[str] = []
