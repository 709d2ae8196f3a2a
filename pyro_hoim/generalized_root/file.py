"""Model files of generalized root models: tensor entries as a tensor; family, domain and terms as JSON.

The file holds the tensor ``psi`` in its precision and one metadata entry, ``pyro-hoim``, as other model files do: the
family, the domain, for every key (root, size) the schema positions of its sets, and free-form information. Reading
never executes code from the file. Equal models give equal bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from ..errors import HoimError, ModelFileError, check_type, refused
from ..runs.container import (
    GENERALIZED_ROOT,
    check_tensors,
    fitting,
    keep_contents,
    read_container,
    stored,
    take_parameters,
    write_container,
)
from .energy import GeneralizedRootEnergy
from .nodes.families import NodeFamily, TruncatedPoissonFamily, node_family
from .structure import RootStructure

__all__ = ["RootFile", "load_roots", "save_roots"]

_DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class RootFile:
    """What the model file of a generalized root model holds.

    A column that is always zero has no finite maximum-likelihood estimate; a fit leaves such columns out of the
    structure, and names them in ``info`` where a reader needs them.

    Args:
        structure: the terms with their domain.
        psi: tensor entries (*batch, num_terms); copied to the CPU, without gradient, float32 and float64 as they are,
            other precisions as float64.
        family: base family, one that :func:`~pyro_hoim.generalized_root.node_family` knows.
        info: free-form JSON object (strings, finite numbers, booleans, None, lists, objects with string keys);
            tuples become lists.
        tensors: further tensors by name, stored as they are.

    Raises:
        InputError: wrong length of psi, NaN or infinite entries, variables of another kind than the family's, a family
            of somebody else's, information that is not JSON, or a further tensor named "psi".
        InputTypeError: an argument of another type.
    """

    structure: RootStructure
    psi: torch.Tensor
    family: NodeFamily
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def __post_init__(self) -> None:
        GeneralizedRootEnergy(self.structure, self.psi, self.family)
        _describe(self.family)
        check_tensors(self.tensors, self.info, "psi")
        dtype = self.psi.dtype if self.psi.dtype in _DTYPES else torch.float64
        keep_contents(self, self.tensors, self.info, psi=stored(self.psi).to(dtype))

    def energy(self, dtype: torch.dtype | None = None) -> GeneralizedRootEnergy:
        """The model, in the precision of the file or another one."""
        return GeneralizedRootEnergy(self.structure, self.psi, self.family).to(dtype=dtype)


def save_roots(path: str | os.PathLike[str], file: RootFile) -> None:
    """Write the model file of a generalized root model, in a folder that exists, replacing an existing one in a step.

    Raises:
        InputTypeError: ``file`` is no :class:`RootFile`.
        ModelFileError: the folder does not exist, or the file cannot be written.

    Example:
        >>> import tempfile
        >>> from pyro_hoim import Domain, Variable
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_roots(folder + "/roots.safetensors", RootFile(structure, torch.ones(1), node_family("poisson")))
        ...     load_roots(folder + "/roots.safetensors").psi
        tensor([1.])
    """
    check_type(file, RootFile, "file")
    contents = {"family": _describe(file.family), **file.structure.to_json(), "info": file.info}
    write_container(path, GENERALIZED_ROOT, contents, {"psi": file.psi, **file.tensors})


def load_roots(path: str | os.PathLike[str]) -> RootFile:
    """Read the model file of a generalized root model; everything comes back exactly as it was written.

    Raises:
        ModelFileError: no such file, not a readable safetensors file (damaged or truncated), written by another
            program, of another format version, of another kind of model, or with contents that do not fit together.

    Example:
        >>> load_roots("absent.safetensors")
        Traceback (most recent call last):
        ...
        pyro_hoim.errors.ModelFileError: absent.safetensors: no such file
    """
    target = Path(path)
    header, tensors = read_container(target, GENERALIZED_ROOT)
    psi = take_parameters(target, tensors, "psi", *_DTYPES)
    with fitting(target):
        family = _family(header["family"])
        if family.kind == "positive":  # files of version 0.1 call positive numbers real
            for variable in header["domain"]:
                variable["kind"] = variable["kind"].replace("real", family.kind)
        return RootFile(RootStructure.from_json(header), psi, family, header["info"], tensors)


def _describe(family: NodeFamily) -> dict[str, Any]:
    """JSON of a family; refuses one that would not come back the same."""
    value = {"name": family.name, "maximum": family.maximum if isinstance(family, TruncatedPoissonFamily) else None}
    try:
        found = _family(value)
    except HoimError:
        found = None
    if found != family:
        problem = f"files hold the families that node_family knows, received {family!r}"
        raise refused("family", problem, "keep its psi and structure yourself")
    return value


def _family(value: object) -> NodeFamily:
    """Family of a description."""
    if not isinstance(value, Mapping):
        raise ModelFileError(f"expected a family with name and maximum, found {str(value)[:40]!r}")
    entries = cast("Mapping[str, Any]", value)
    return node_family(entries["name"], entries["maximum"])
