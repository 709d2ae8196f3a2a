"""Model files of Boltzmann machines: theta as a tensor; variables, hidden units, edges and information as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from typing_extensions import override

from ..checks import check_shape
from ..core.partition import LogPartition, PartitionBackend
from ..errors import check_type, refused
from ..runs.container import BOLTZMANN, ModelRecord, keep_contents, stored, take_parameters
from ..runs.rules import DOMAIN, NAME, NAMES, Either, Items, Leaf, Row, Rule, one_of, optional
from ..schema import Domain
from .law import BoltzmannMachine, as_machine
from .structure import MachineStructure, MarginalEnergy

_DTYPES = (torch.float32, torch.float64)
_SHARE = Leaf("a number between 0 and 1", (float,), lambda value: 0 < value < 1)
_INFO = {"independent": optional(Items(_SHARE))}
"""Entries of the information that commands read."""


@dataclass(frozen=True, eq=False)
class MachineFile(ModelRecord):
    """What the model file of a Boltzmann machine holds; equal machines give equal bytes.

    Args:
        structure: visible and hidden variables and edges.
        theta: biases and weights (num_parameters,); copied to the CPU, without gradient, as float32 or else float64.
        info: free-form JSON object of strings, finite numbers, booleans, None, lists and such objects.
        tensors: further tensors by name, stored as they are.

    Raises:
        InputError: wrong length of theta, NaN or infinite entries, information that is not JSON, or a further tensor
            named "theta".
        InputTypeError: an argument of another type.
    """

    model_kind: ClassVar[str] = BOLTZMANN
    parameters: ClassVar[str] = "theta"
    contents: ClassVar[Mapping[str, Rule]] = {
        "domain": DOMAIN,
        "hidden": NAMES,
        "edges": Either(one_of("restricted"), Items(Row(NAME, NAME))),
    }

    structure: MachineStructure
    theta: torch.Tensor
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def __post_init__(self) -> None:
        MarginalEnergy(self.structure, self.theta)
        dtype = self.theta.dtype if self.theta.dtype in _DTYPES else torch.float64
        keep_contents(self, _INFO, theta=stored(self.theta).to(dtype))
        shares = self.info.get("independent")
        if shares is not None and len(shares) != len(self.structure.domain):
            raise refused("info['independent']", "has not one number for every variable", code="wrong-shape")
        if self.info.get("log_partition") is not None:
            LogPartition.from_json(self.info["log_partition"])

    @property
    def domain(self) -> Domain:
        """The visible columns."""
        return self.structure.domain

    @override
    def packed(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        structure = self.structure
        edges = "restricted" if structure.is_restricted else [list(edge) for edge in structure.edges]
        contents = {"domain": structure.domain.to_json(), "hidden": list(structure.hidden), "edges": edges}
        return contents, {"theta": self.theta, **self.tensors}

    @classmethod
    @override
    def unpacked(cls, header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Self:
        theta = take_parameters(tensors, "theta", *_DTYPES)
        domain, hidden, edges = Domain.from_json(header["domain"]), header["hidden"], header["edges"]
        is_restricted = edges == "restricted"
        # The size is compared with that of theta before the edges, which the header need not list, are made.
        size = len(domain) + len(hidden) + (len(domain) * len(hidden) if is_restricted else len(edges))
        check_shape(theta, (size,), "theta")
        restricted = MachineStructure.restricted
        structure = restricted(domain, hidden) if is_restricted else MachineStructure(domain, hidden, edges)
        return cls(structure, theta, header["info"], tensors)

    def law(self, partition: PartitionBackend | None = None) -> BoltzmannMachine:
        """The machine as a distribution, in float64; a restricted one as such."""
        return as_machine(self.structure, self.theta.double(), partition=partition)


def save_machine(path: str | os.PathLike[str], file: MachineFile) -> None:
    """Write the model file of a machine, in a folder that exists, replacing an existing one in a step.

    Example:
        >>> import tempfile
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2}), 1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_machine(folder + "/machine.safetensors", MachineFile(structure, torch.ones(3)))
        ...     load_machine(folder + "/machine.safetensors").theta
        tensor([1., 1., 1.])
    """
    check_type(file, MachineFile, "file")
    file.save(path)


def load_machine(path: str | os.PathLike[str]) -> MachineFile:
    """Read the model file of a machine; everything comes back exactly as it was written.

    Reading never executes code from the file. Raises :class:`~pyro_hoim.errors.ModelFileError` for no such file, one
    that is damaged, of another program, format version or kind of model, or with contents that do not fit together.

    Example:
        >>> import tempfile
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), ["mood"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_machine(folder + "/machine.safetensors", MachineFile(structure, torch.zeros(5), {"rows": 40}))
        ...     file = load_machine(folder + "/machine.safetensors")
        >>> file.structure.hidden, file.info
        (('mood',), {'rows': 40})
    """
    return MachineFile.load(path)
