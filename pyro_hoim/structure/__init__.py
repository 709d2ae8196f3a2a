"""Interaction structure: hyperedges, closure, graphs and elimination orders."""

from .elimination_order import elimination_order
from .hypergraph import InteractionHypergraph

__all__ = ["InteractionHypergraph", "elimination_order"]
