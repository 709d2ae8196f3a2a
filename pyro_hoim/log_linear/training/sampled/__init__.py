"""Training by chains with importance weights that follow the parameters."""

from __future__ import annotations

__all__: list[str] = []
