"""Selection of interactions: candidates under heredity, their scores, greedy search and pruning."""

from __future__ import annotations

__all__: list[str] = []
