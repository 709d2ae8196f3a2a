"""Exact log Z of generalized root models: closed forms, sums and quadrature."""

from __future__ import annotations

__all__: list[str] = []
