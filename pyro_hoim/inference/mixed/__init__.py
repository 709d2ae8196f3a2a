"""Gibbs for the discrete sites of a program and HMC or NUTS for the continuous ones."""

from __future__ import annotations

__all__: list[str] = []
