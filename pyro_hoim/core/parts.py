"""The parts of a table that a study divides into."""

from __future__ import annotations

__all__ = [
    "PARTS",
]

PARTS = ("train", "validation", "test")
