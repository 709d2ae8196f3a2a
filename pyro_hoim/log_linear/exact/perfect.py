"""Which exact backend draws perfect starts of reverse runs."""

from __future__ import annotations

from functools import lru_cache

from ..._modes import plain_mode
from ...structure.hypergraph import InteractionHypergraph
from .elimination import VariableElimination
from .enumeration import Enumeration

__all__ = ["perfect_backend"]


@lru_cache(maxsize=256)
@plain_mode()
def perfect_backend(hypergraph: InteractionHypergraph) -> VariableElimination | Enumeration | None:
    """The exact backend that draws independent states within about a second, or None."""
    elimination = VariableElimination(max_cells=2**20, max_slices=2**4, max_operations=2**30, max_memory_bytes=2**30)
    if elimination.plan(hypergraph).feasible:
        return elimination
    enumeration = Enumeration(max_states=2**20)
    return enumeration if enumeration.plan(hypergraph).feasible else None
