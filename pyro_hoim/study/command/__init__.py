"""What the commands ask of a log-linear model, given or learned."""

from __future__ import annotations

__all__: list[str] = []
