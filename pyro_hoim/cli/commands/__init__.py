"""The commands, whatever the family."""

from __future__ import annotations

__all__: list[str] = []
