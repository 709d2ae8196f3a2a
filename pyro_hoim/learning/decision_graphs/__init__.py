"""Learning of dependency networks: decision graphs by greedy splits and merges, one conditional per variable."""

from .network import LearnedNetwork, learn_network
from .node import NodeReport, leaf_probs, learn_node
from .penalties import AIC, MDL, SourcePenalty, TheoremConditions, check_theorem_conditions

__all__ = [
    "AIC",
    "MDL",
    "LearnedNetwork",
    "NodeReport",
    "SourcePenalty",
    "TheoremConditions",
    "check_theorem_conditions",
    "leaf_probs",
    "learn_network",
    "learn_node",
]
