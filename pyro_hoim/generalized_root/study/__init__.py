"""One study of one table of counts: fits, scores, simpler laws and dependence."""

from __future__ import annotations

__all__: list[str] = []
