"""Pseudo-Gibbs chains of dependency networks, their engines and their ergodicity."""

from __future__ import annotations

__all__: list[str] = []
