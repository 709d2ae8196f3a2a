"""Training of collections that grow and shrink: exact, by weighted chains, or by pseudo-likelihood."""

from __future__ import annotations

__all__: list[str] = []
