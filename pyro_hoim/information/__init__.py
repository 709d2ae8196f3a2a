"""Refined information of interactions, the lattice of collections, and the geometry of dependency networks."""

from .collections import addable_edges, hierarchical_collections, maximal_chains
from .conditional_inference import ConditionalInferenceError, conditional_inference_error
from .full_conditional import (
    FCLimit,
    fc_limit,
    full_conditional_divergence,
    full_conditionals,
    m_projection,
    node_divergence,
)
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
    "ConditionalInferenceError",
    "FCLimit",
    "Law",
    "Projection",
    "Projections",
    "RefinedInformation",
    "RefinedInformationTable",
    "addable_edges",
    "all_refined_information",
    "conditional_inference_error",
    "conditional_refined_information",
    "decompose",
    "fc_limit",
    "full_conditional_divergence",
    "full_conditionals",
    "hierarchical_collections",
    "m_projection",
    "marginal_refined_information",
    "maximal_chains",
    "node_divergence",
    "project",
    "random_dirichlet_law",
    "random_law",
    "refined_information",
]
