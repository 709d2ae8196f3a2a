"""Learning of dependency networks: decision graphs by greedy splits and merges, one per variable."""

from __future__ import annotations

__all__: list[str] = []
