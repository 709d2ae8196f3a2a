"""What the Pyro distributions of all families share."""

from __future__ import annotations

__all__: list[str] = []
