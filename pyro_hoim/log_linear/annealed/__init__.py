"""Log Z of log-linear models by annealed importance sampling."""

from __future__ import annotations

__all__: list[str] = []
