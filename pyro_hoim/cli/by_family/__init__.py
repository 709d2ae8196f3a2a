"""What the commands do for one family."""

from __future__ import annotations

__all__: list[str] = []
