"""Log-linear models as Pyro distributions: rows, sufficient statistics and priors."""

from __future__ import annotations

from . import kl as kl  # registers the divergences

__all__: list[str] = []
