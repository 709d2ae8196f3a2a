"""Pictures of a report, drawn from plain arrays."""

from __future__ import annotations

__all__: list[str] = []
