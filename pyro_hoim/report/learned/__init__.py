"""The report of a learned model."""

from __future__ import annotations

__all__: list[str] = []
