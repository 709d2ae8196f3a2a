"""A whole model learned from rows."""

from __future__ import annotations

__all__: list[str] = []
