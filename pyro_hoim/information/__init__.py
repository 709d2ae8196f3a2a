"""Refined information: projections of dense laws, what each interaction adds, and the lattice of collections."""

from .collections import addable_edges, hierarchical_collections, maximal_chains
from .laws import Law, random_dirichlet_law, random_law
from .projection import Projection, Projections, project
from .refined import (
    RefinedInformation,
    RefinedInformationTable,
    all_refined_information,
    conditional_refined_information,
    decompose,
    marginal_refined_information,
    refined_information,
)

__all__ = [
    "Law",
    "Projection",
    "Projections",
    "RefinedInformation",
    "RefinedInformationTable",
    "addable_edges",
    "all_refined_information",
    "conditional_refined_information",
    "decompose",
    "hierarchical_collections",
    "marginal_refined_information",
    "maximal_chains",
    "project",
    "random_dirichlet_law",
    "random_law",
    "refined_information",
]
