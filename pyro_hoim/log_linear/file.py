"""Model files: one ``.safetensors`` file with the parameters, and everything that gives them meaning, as JSON.

The file holds ``theta`` (float64) and one metadata entry, ``pyro-hoim``: a JSON object with the versions of format and
library, the kind of model, domain, hyperedges, coding and free-form information. Where states are impossible, the
information has an entry ``impossible``, the sets of variables that exclude combinations, and the tensor of that name
says which entries of their tables these are (uint8, 1 where excluded). Reading executes no code from the
file, any program can do it with safetensors alone, and equal models give equal bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from typing_extensions import override

from .._modes import plain_mode
from ..checks import check_finite, check_shape, checked_floating
from ..core.family import Stored
from ..core.partition import LogPartition
from ..data.joined import JoinedColumns
from ..errors import ModelFileError, check_type, other_domain, unexpected
from ..runs.container import LOG_LINEAR, ModelRecord, keep_contents, stored, take_parameters
from ..runs.rules import (
    COEFFICIENT,
    CONTRASTS,
    DOMAIN,
    FLAG,
    NAME,
    NAMES,
    NUMBER,
    SHARES,
    TEXT,
    WHOLE,
    Fields,
    Items,
    Leaf,
    Rule,
    check_known,
    check_shares,
    optional,
)
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .coding import Coding, family_of, parametrization
from .energy import LogLinearEnergy
from .impossible import ImpossibleStates

_CELLS = {"edge": NAMES, "levels": Items(TEXT)}
_CONTRAST = {"before": Items(TEXT), "after": Items(TEXT), "estimate": NUMBER, "std_error": optional(NUMBER)}
_SIZES = {"position": WHOLE, "num_parameters": WHOLE, "num_identified": optional(WHOLE)}
_SIGN = Leaf("-1 or 1", (int,), lambda value: abs(value) == 1)
_TESTED = ("std_error", "df", "statistic", "p_value", "p_value_adjusted")
GIVEN_COLUMNS = "given_columns"
"""Entry of a model of which one variable, whose name it holds, was fitted given all others."""
_INFO: dict[str, Rule] = {
    "independent": optional(SHARES),
    "infinite_combinations": Items(Fields(_CELLS)),
    "num_infinite_combinations": WHOLE,
    "infinite_interactions": Items(
        Fields({**_CELLS, **_SIZES, "sign": _SIGN, "finite_contrasts": Items(Fields(_CONTRAST))}, {"is_declared": FLAG})
    ),
    "uncertainty": Items(Fields({"edge": NAMES}, dict.fromkeys(_TESTED, optional(NUMBER)))),
    "odds_ratios": CONTRASTS,
    "coefficients": Fields(
        {
            "coding": NAME,
            "notes": Items(TEXT),
            "has_errors": FLAG,
            "has_tests": FLAG,
            "compared": optional(Items(TEXT)),
            "rows": Items(Fields(COEFFICIENT)),
        }
    ),
    GIVEN_COLUMNS: TEXT,
    "learned_edges": Items(NAMES),
    "effective_rows": optional(NUMBER),
    "num_parameters": optional(WHOLE),
    "log_likelihood": optional(NUMBER),
    "log_likelihood_bound": NUMBER,
    "status": TEXT,
    "is_maximum": FLAG,
    "is_restricted": FLAG,
}
"""Entries of the information that commands read."""
_STATES = ("impossible", "structural_zeros")


def conditional_words(file: ModelFile) -> str:
    """Why a variable that was fitted given all others has no standard errors; empty for another model."""
    target = file.info.get(GIVEN_COLUMNS)
    if target is None:
        return ""
    others = [name for name in file.domain.names if name != target]
    formula = f"{target}*({' + '.join(others[:3])}{' + ...' if len(others) > 3 else ''})"
    ways = (
        f"pyro_hoim.fit({formula!r}, ...) gives intervals and tests, and the estimator with edges={formula!r} intervals"
    )
    return f"{target} was fitted given the other columns under a prior, and the rows are not kept; {ways}"


@dataclass(frozen=True, eq=False)
class ModelFile(ModelRecord):
    """What a model file holds.

    Args:
        hypergraph: the interaction structure with its domain; with the family of corner tables where ``coding`` is
            "corner" and it lacks subsets.
        theta: parameters, one vector or a batch of them; kept as float64 on the CPU, without gradient.
        coding: the coding of ``theta``.
        info: free-form JSON object (strings, finite numbers, booleans, None, lists, objects with string keys);
            tuples become lists.
        tensors: further tensors by name, stored as they are.
        impossible: states of probability zero; None for none.
        structural_zeros: those of them that were declared; None for none.

    Shape:
        theta (*batch, num(coding)).

    Raises:
        InputError: wrong length or coding of theta, NaN or infinite entries, information that is not JSON, a further
            tensor named "theta", "impossible" or "structural_zeros", impossible states of other variables.
        InputTypeError: theta is not a floating-point tensor, or a further tensor is no tensor.
    """

    model_kind: ClassVar[str] = LOG_LINEAR
    parameters: ClassVar[str] = "theta"
    contents: ClassVar[Mapping[str, Rule]] = {"domain": DOMAIN, "edges": Items(Items(NAME, 1)), "coding": NAME}

    hypergraph: InteractionHypergraph
    theta: torch.Tensor
    coding: Coding = "free"
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    impossible: ImpossibleStates | None = None
    structural_zeros: ImpossibleStates | None = None

    def __post_init__(self) -> None:
        hypergraph, _ = family_of(self.hypergraph, self.coding)
        object.__setattr__(self, "hypergraph", hypergraph)
        size = parametrization(hypergraph).num(self.coding)
        check_shape(checked_floating(self.theta, "theta"), (size,), "theta")
        check_finite(self.theta, "theta")
        domain, given = hypergraph.domain, {name: getattr(self, name) for name in _STATES}
        for name, states in given.items():
            check_type(states, ImpossibleStates | None, name)
            if states is not None and states.structure.domain != domain:
                raise other_domain(name, "states of the model's variables")
        keep_contents(self, _INFO, theta=stored(self.theta).to(torch.float64), **given)
        # What the information says is of the variables, levels and interactions of the model.
        info = self.info
        if info.get("independent") is not None:
            check_shares(info["independent"], domain, "info['independent']")
        for name in ("infinite_combinations", "infinite_interactions"):
            for entry in info.get(name, ()):
                check_known(entry, domain, f"info[{name!r}]")
        if (coefficients := info.get("coefficients")) is not None:
            compared, where = coefficients["compared"], "info['coefficients']"
            size = parametrization(hypergraph).num(coefficients["coding"]) if compared is None else len(compared)
            if len(coefficients["rows"]) != size:
                raise unexpected(where, f"{size} rows", len(coefficients["rows"]), code="wrong-shape")
        if info.get("joined") is not None and JoinedColumns.from_json(info["joined"]).joined_domain != domain:
            raise other_domain("info['joined']", "groups whose joined variables are those of the model")
        if info.get("log_partition") is not None:
            LogPartition.from_json(info["log_partition"])
        if self.impossible is None and (combinations := info.get("infinite_combinations")):
            # Files of earlier versions name combinations.
            states = [dict(zip(cells["edge"], cells["levels"], strict=True)) for cells in combinations]
            object.__setattr__(self, "impossible", ImpossibleStates.of_combinations(domain, states))

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.hypergraph.domain

    @override
    def packed(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        info, tensors = self.info, {"theta": self.theta, **self.tensors}
        for name in _STATES:
            if (states := getattr(self, name)) is not None:
                info = {**info, name: [list(edge) for edge in states.structure.edges]}
                tensors[name] = states.excluded.to(torch.uint8)
        return {**self.hypergraph.to_json(), "coding": self.coding, "info": info}, tensors

    @classmethod
    @override
    def unpacked(cls, header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Self:
        theta = take_parameters(tensors, "theta", torch.float64)
        hypergraph = InteractionHypergraph.from_json(header)
        if list(map(list, hypergraph.edges)) != header["edges"]:
            raise ModelFileError("the hyperedges are not in the order of the parameters")
        info, states = dict(header["info"]), dict[str, ImpossibleStates]()
        for name in _STATES:
            edges = info.pop(name, None)
            if edges is None:
                continue
            Items(NAMES, 1).check(edges, f"info[{name!r}]")
            structure = InteractionHypergraph(hypergraph.domain, edges, hierarchical=False)
            excluded = take_parameters(tensors, name, torch.uint8)
            if list(map(list, structure.edges)) != edges or int(excluded.max()) > 1:
                raise ModelFileError("the impossible states do not fit their sets of variables")
            states[name] = ImpossibleStates(structure, excluded.bool())
        return cls(hypergraph, theta, header["coding"], info, tensors, **states)

    @cached_property
    @plain_mode()
    def finite(self) -> LogLinearEnergy:
        """The energy with finite tables, in which impossible states are improbable at most."""
        return LogLinearEnergy.from_theta(self.hypergraph, self.theta, self.coding)

    @cached_property
    @plain_mode()
    def energy(self) -> LogLinearEnergy:
        """The energy, with entries of minus infinity for impossible states."""
        return self.finite if self.impossible is None else self.impossible.applied(self.finite)

    @property
    def log_partition(self) -> LogPartition | None:
        """Log Z of the tables as found when the model was learned, ``info["log_partition"]``, if kept."""
        log_z = self.info.get("log_partition")
        return None if log_z is None else LogPartition.from_json(log_z)


@dataclass(frozen=True, eq=False)
class GivenTables:
    """In the place of a model file, an energy whose tables are taken as they stand, such as one that is conditioned.

    Attributes:
        energy: the model.
        info: free-form information, as of a file.
    """

    energy: LogLinearEnergy
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log_partition: ClassVar[None] = None

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The interaction structure."""
        return self.energy.hypergraph

    def as_stored(self) -> Stored:
        """What commands ask about."""
        return Stored(LOG_LINEAR, self, self.energy.domain, self.info)


def save_model(path: str | os.PathLike[str], model: ModelFile) -> None:
    """Write a model file, replacing an existing one in a single step, so that no half-written file is ever seen.

    Args:
        path: the file; its folder must exist.
        model: what to write.

    Raises:
        ModelFileError: the folder does not exist, or the file cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> with TemporaryDirectory() as folder:
        ...     save_model(f"{folder}/m.safetensors", ModelFile(graph, torch.tensor([0.25, -0.5, 1.0])))
        ...     load_model(f"{folder}/m.safetensors").theta.tolist()
        [0.25, -0.5, 1.0]
    """
    check_type(model, ModelFile, "model")
    model.save(path)


def load_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model file; parameters and structure come back exactly as they were written.

    Args:
        path: the file.

    Raises:
        ModelFileError: no such file, not a readable safetensors file (damaged or truncated), written by another
            program, of another format version, of another kind of model, or with contents that do not fit together.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> with TemporaryDirectory() as folder:
        ...     save_model(f"{folder}/m.safetensors", ModelFile(graph, torch.zeros(3), info={"rows": 100}))
        ...     model = load_model(f"{folder}/m.safetensors")
        >>> model.hypergraph.edges, model.info
        ((('a',), ('b',), ('a', 'b')), {'rows': 100})
    """
    return ModelFile.load(path)
