"""Whether a generalized root model can be normalised."""

from __future__ import annotations

__all__: list[str] = []
