"""Full conditional manifolds, FC divergence and FC-limit."""

from __future__ import annotations

__all__: list[str] = []
