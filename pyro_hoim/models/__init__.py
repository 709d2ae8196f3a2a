"""Unnormalised models: energies, conditionals and the coordinates of their parameters."""

from .adapted_conditionals import ClampedConditional, ModelConditional
from .base import ConditionalModel, EnergyModel
from .decision_graph import CompiledGraph, DecisionGraph, Merge, Split
from .dependency_network import DependencyConditionals
from .generalized_root import GeneralizedRootEnergy
from .log_linear import LogLinearEnergy
from .node_bounds import NodeBounds, node_bounds
from .node_conditionals import LeafConditional, NodeConditional, TableConditional
from .node_families import (
    ExponentialFamily,
    GaussianFamily,
    NodeFamily,
    PoissonFamily,
    TruncatedPoissonFamily,
    node_family,
)
from .node_log_partition import NodeMoments, node_log_partition, node_moments
from .normalizability import Normalizability, check_normalizable
from .parametrization import Coding, Parametrization, parametrization
from .root_pseudo_likelihood import RootPseudoLikelihood
from .root_structure import RootStructure

__all__ = [
    "ClampedConditional",
    "Coding",
    "CompiledGraph",
    "ConditionalModel",
    "DecisionGraph",
    "DependencyConditionals",
    "EnergyModel",
    "ExponentialFamily",
    "GaussianFamily",
    "GeneralizedRootEnergy",
    "LeafConditional",
    "LogLinearEnergy",
    "Merge",
    "ModelConditional",
    "NodeBounds",
    "NodeConditional",
    "NodeFamily",
    "NodeMoments",
    "Normalizability",
    "Parametrization",
    "PoissonFamily",
    "RootPseudoLikelihood",
    "RootStructure",
    "Split",
    "TableConditional",
    "TruncatedPoissonFamily",
    "check_normalizable",
    "node_bounds",
    "node_family",
    "node_log_partition",
    "node_moments",
    "parametrization",
]
