"""Interaction structure: hyperedges, closure, graphs and elimination orders."""

from .elimination_order import EliminationOrder, elimination_order
from .hypergraph import InteractionHypergraph

__all__ = ["EliminationOrder", "InteractionHypergraph", "elimination_order"]
