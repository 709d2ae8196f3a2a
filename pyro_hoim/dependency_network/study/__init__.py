"""One study of one table with a dependency network: edges, predictions and scores."""

from __future__ import annotations

__all__: list[str] = []
