"""Log Z of generalized root models by annealed importance sampling."""

from __future__ import annotations

__all__: list[str] = []
