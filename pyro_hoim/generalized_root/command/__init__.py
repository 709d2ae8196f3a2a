"""What the commands ask of a generalized root model."""

from __future__ import annotations

__all__: list[str] = []
