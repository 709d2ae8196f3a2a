"""Model files of dependency networks: the tables as tensors, decision graphs and domain as JSON.

Tensors ``probs.0``, ``probs.1``, ... in schema order and one metadata entry, ``pyro-hoim``, as in other model files.
Reading never executes code from the file. Equal networks give equal bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from typing_extensions import override

from ..checks import check_exact_shape, check_finite
from ..errors import InputTypeError, ModelFileError, check_type
from ..runs.container import DEPENDENCY_NETWORK, ModelRecord, keep_contents, stored
from ..runs.rules import (
    CONTRASTS,
    DOMAIN,
    NAME,
    NAMES,
    NUMBER,
    SHARES,
    WHOLE,
    Fields,
    Items,
    Leaf,
    Row,
    Rule,
    check_shares,
    one_of,
    optional,
)
from ..schema import Domain
from .conditionals import DependencyConditionals
from .decision_graph import DecisionGraph
from .node_conditionals import LeafConditional, NodeConditional, TableConditional

_PREFIX = "probs."
_OPERATION = Row(one_of("split", "merge"), WHOLE, Leaf("a name or the number of a leaf", (str, int)))
_NODE = Fields(
    {"type": one_of("leaves", "table"), "variable": NAME}, {"operations": Items(_OPERATION), "parents": NAMES}
)
_INFO = {"independent": optional(SHARES), "edges": Items(Row(NAME, NAME, NUMBER)), "odds_ratios": CONTRASTS}
"""Entries of the information that commands read."""


@dataclass(frozen=True, eq=False)
class NetworkFile(ModelRecord):
    """What the model file of a dependency network holds.

    Args:
        conditionals: the network, of decision graphs and plain tables; its tables are copied to the CPU, without
            gradient, and keep their precision.
        info: free-form JSON object (strings, finite numbers, booleans, None, lists, objects with string keys);
            tuples become lists.
        tensors: further tensors by name, stored as they are.

    Raises:
        InputTypeError, InputError: no network, a conditional that is neither (it is named), information that is no
            JSON, or a further tensor that is none or has a name that begins with "probs.".
    """

    model_kind: ClassVar[str] = DEPENDENCY_NETWORK
    contents: ClassVar[Mapping[str, Rule]] = {"domain": DOMAIN, "nodes": Items(_NODE)}

    conditionals: DependencyConditionals
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def __post_init__(self) -> None:
        check_type(self.conditionals, DependencyConditionals, "conditionals", "a DependencyConditionals")
        self.conditionals.require_single("conditionals")
        # Only what has a table can be stored, and only as a copy that nobody changes.
        copies: list[LeafConditional | TableConditional] = []
        for node in self.conditionals.nodes:
            if not isinstance(node, LeafConditional | TableConditional):
                problem = (
                    f"expected decision graphs and tables, but that of {node.variable!r} is a {type(node).__name__}; "
                    "the network's tabulated() makes tables of small ones"
                )
                raise InputTypeError(problem, argument="conditionals")
            copies.append(node.with_probs(stored(node.probs)))
        keep_contents(self, _INFO, _PREFIX, conditionals=DependencyConditionals(copies))
        # What goes with the tables has to fit them, also in files that somebody else wrote.
        for number, node in enumerate(copies):
            if (counts := self.tensors.get(f"counts.{number}")) is not None:
                check_exact_shape(counts, node.probs.shape, f"tensors['counts.{number}']")
                check_finite(counts, f"tensors['counts.{number}']")
        if self.info.get("independent") is not None:
            check_shares(self.info["independent"], self.conditionals.domain, "info['independent']")
        self.conditionals.domain.indices({name for *ends, _ in self.info.get("edges", ()) for name in ends})

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.conditionals.domain

    @override
    def packed(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        nodes: list[dict[str, Any]] = []
        tables: dict[str, torch.Tensor] = {}
        for i, node in enumerate(self.conditionals.nodes):
            assert isinstance(node, (LeafConditional, TableConditional))
            tables[f"{_PREFIX}{i}"] = node.probs
            if isinstance(node, LeafConditional):
                nodes.append({"type": "leaves", **node.graph.to_json()})
            else:
                nodes.append({"type": "table", "variable": node.variable, "parents": list(node.parents)})
        return {"domain": self.domain.to_json(), "nodes": nodes}, {**tables, **self.tensors}

    @classmethod
    @override
    def unpacked(cls, header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Self:
        domain, nodes = Domain.from_json(header["domain"]), list[NodeConditional]()
        for number, entry in enumerate(header["nodes"]):
            probs = tensors.pop(f"{_PREFIX}{number}")
            if entry["type"] == "leaves":
                nodes.append(LeafConditional(DecisionGraph.from_json(domain, entry), probs))
            else:
                nodes.append(TableConditional(domain, entry["variable"], entry["parents"], probs))
        if [node.variable for node in nodes] != list(domain.names):
            raise ModelFileError("the conditionals are not in the order of the variables")
        return cls(DependencyConditionals(nodes), header["info"], tensors)


def save_network(path: str | os.PathLike[str], file: NetworkFile) -> None:
    """Write the model file of a network in a single step; ModelFileError where that cannot be.

    Example:
        >>> import tempfile
        >>> node = TableConditional(Domain.from_cardinalities({"a": 2}), "a", [], torch.tensor([0.25, 0.75]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_network(folder + "/coin", NetworkFile(DependencyConditionals([node])))
        ...     load_network(folder + "/coin").conditionals.node("a").probs
        tensor([0.2500, 0.7500])
    """
    check_type(file, NetworkFile, "file")
    file.save(path)


def load_network(path: str | os.PathLike[str]) -> NetworkFile:
    """Read the model file of a network; tables and graphs come back exactly as they were written.

    ModelFileError for what is no such file, damaged, of another program, version or kind, or does not fit together.

    Example:
        >>> import tempfile
        >>> node = TableConditional(Domain.from_cardinalities({"a": 2}), "a", [], torch.tensor([0.25, 0.75]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_network(folder + "/coin", NetworkFile(DependencyConditionals([node]), {"rows": 40}))
        ...     load_network(folder + "/coin").info
        {'rows': 40}
    """
    return NetworkFile.load(path)
