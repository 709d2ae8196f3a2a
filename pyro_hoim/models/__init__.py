"""Unnormalised models: energies, conditionals and the coordinates of their parameters."""

from .adapted_conditionals import ClampedConditional, ModelConditional
from .base import ConditionalModel, EnergyModel
from .decision_graph import CompiledGraph, DecisionGraph, Merge, Split
from .dependency_network import DependencyConditionals
from .log_linear import LogLinearEnergy
from .node_conditionals import LeafConditional, NodeConditional, TableConditional
from .parametrization import Coding, Parametrization, parametrization

__all__ = [
    "ClampedConditional",
    "Coding",
    "CompiledGraph",
    "ConditionalModel",
    "DecisionGraph",
    "DependencyConditionals",
    "EnergyModel",
    "LeafConditional",
    "LogLinearEnergy",
    "Merge",
    "ModelConditional",
    "NodeConditional",
    "Parametrization",
    "Split",
    "TableConditional",
    "parametrization",
]
