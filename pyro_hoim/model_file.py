"""Model files: one ``.safetensors`` file with the parameters, and everything that gives them meaning, as JSON.

The file holds the tensor ``theta`` (float64) and one metadata entry, ``pyro-hoim``: a JSON object with the format's
name and version, the library's version, the kind of model, the domain, the hyperedges, the coding and free-form
information. Reading never executes code from the file, and another program can read it with the safetensors library
alone. Equal models give equal bytes.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch

from . import __version__
from .errors import HoimError, InputError, InputTypeError, ModelFileError, check_finite
from .models.parametrization import Coding, parametrization
from .structure.hypergraph import InteractionHypergraph

__all__ = ["FORMAT_VERSION", "ModelFile", "load_model", "save_model"]

FORMAT_VERSION = 1
"""Version of the format written here; a file of a higher version is refused."""

_FORMAT = "pyro-hoim"
_KIND = "hierarchical-log-linear"


@dataclass(frozen=True, eq=False)
class ModelFile:
    """What a model file holds.

    Args:
        hypergraph: the interaction structure with its domain.
        theta: parameters, one vector or a batch of them; kept as float64 on the CPU, without gradient.
        coding: the coding of ``theta``.
        info: free-form JSON object (strings, finite numbers, booleans, None, lists, objects with string keys);
            tuples become lists.
        tensors: further tensors by name, stored as they are.

    Shape:
        theta (*batch, num(coding)).

    Raises:
        InputError: wrong length or coding of theta, NaN or infinite entries, information that is not JSON, a further
            tensor named "theta".
        InputTypeError: theta is not a floating-point tensor, or a further tensor is no tensor.

    Example:
        >>> from pyro_hoim.schema import Domain
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = ModelFile(hypergraph, torch.zeros(3), info={"rows": 12})
        >>> model.theta.dtype, model.info
        (torch.float64, {'rows': 12})
    """

    hypergraph: InteractionHypergraph
    theta: torch.Tensor
    coding: Coding = "free"
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def __post_init__(self) -> None:
        size = parametrization(self.hypergraph).num(self.coding)
        if not isinstance(self.theta, torch.Tensor) or not self.theta.is_floating_point():
            raise InputTypeError(f"theta: expected a floating-point tensor, received {_describe(self.theta)}")
        if self.theta.ndim == 0 or self.theta.shape[-1] != size:
            raise InputError(f"theta: expected shape (..., {size}), received {tuple(self.theta.shape)}")
        check_finite(self.theta, "theta")
        if not isinstance(self.info, Mapping):
            raise InputTypeError(f"info: expected a mapping, received {_describe(self.info)}")
        for name, tensor in self.tensors.items():
            if not isinstance(tensor, torch.Tensor):
                raise InputTypeError(f"tensors[{name!r}]: expected a tensor, received {_describe(tensor)}")
            if name == "theta":
                raise InputError("tensors: the name 'theta' is taken by the parameters; choose another one")
        object.__setattr__(self, "theta", _stored(self.theta).to(torch.float64))
        object.__setattr__(self, "tensors", {name: _stored(tensor) for name, tensor in self.tensors.items()})
        object.__setattr__(self, "info", _plain(self.info, "info"))


def _describe(value: object) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    """A compact copy on the CPU that shares no memory with the argument."""
    return tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)


def _plain(value: object, where: str) -> Any:
    """The JSON form of a value, or an :class:`InputError` that says which part has none."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, (list, tuple)):
        items = cast("list[object] | tuple[object, ...]", value)
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(items)]
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        for key in entries:
            if not isinstance(key, str):
                raise InputError(f"{where}: expected string keys, received {key!r}")
        return {str(key): _plain(item, f"{where}[{key!r}]") for key, item in entries.items()}
    raise InputError(
        f"{where}: expected a JSON value, received {value!r} of type {type(value).__name__}; "
        "convert it to a number, string, list or None"
    )


def save_model(path: str | os.PathLike[str], model: ModelFile) -> None:
    """Write a model file, replacing an existing one in a single step, so that no half-written file is ever seen.

    Args:
        path: the file; its folder must exist.
        model: what to write.

    Raises:
        ModelFileError: the folder does not exist, or the file cannot be written.

    Example:
        >>> import tempfile
        >>> from pyro_hoim.schema import Domain
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_model(folder + "/model.safetensors", ModelFile(hypergraph, torch.ones(3)))
        ...     load_model(folder + "/model.safetensors").theta.tolist()
        [1.0, 1.0, 1.0]
    """
    if not isinstance(model, ModelFile):
        raise InputTypeError(f"model: expected a ModelFile, received {type(model).__name__}")
    target = Path(path)
    if not target.parent.is_dir():
        raise ModelFileError(f"{target}: the folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise ModelFileError(f"{target}: is a folder; give the name of a file in it")
    header = {
        "format": _FORMAT,
        "format_version": FORMAT_VERSION,
        "library_version": __version__,
        "kind": _KIND,
        **model.hypergraph.to_json(),
        "coding": model.coding,
        "info": model.info,
    }
    # One entry, because safetensors writes several in a random order.
    metadata = {_FORMAT: json.dumps(header, allow_nan=False, ensure_ascii=False)}
    data = safetensors.torch.save({"theta": model.theta, **model.tensors}, metadata)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise ModelFileError(f"{target}: cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)


def load_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model file; parameters and structure come back exactly as they were written.

    Args:
        path: the file.

    Raises:
        ModelFileError: no such file, not a readable safetensors file (damaged or truncated), written by another
            program, of a newer format, or with contents that do not fit together.

    Example:
        >>> load_model("absent.safetensors")
        Traceback (most recent call last):
        ...
        pyro_hoim.errors.ModelFileError: absent.safetensors: no such file
    """
    target = Path(path)
    if not target.is_file():
        raise ModelFileError(f"{target}: {'is not a file' if target.exists() else 'no such file'}")
    try:
        with safetensors.safe_open(str(target), framework="pt", device="cpu") as file:
            header = _read_header(target, file.metadata() or {})
            # A copy, because the tensors of an open file are views of it.
            tensors: dict[str, torch.Tensor] = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ModelFileError(f"{target}: not a readable safetensors file, perhaps damaged or truncated") from error
    except OSError as error:
        raise ModelFileError(f"{target}: cannot be read ({error.strerror or error})") from error
    theta = tensors.pop("theta", None)
    if theta is None or theta.dtype != torch.float64:
        received = "none" if theta is None else str(theta.dtype)
        raise ModelFileError(f"{target}: expected a float64 tensor 'theta', found {received}")
    try:
        hypergraph = InteractionHypergraph.from_json(header)
        if list(hypergraph.edges) != [tuple(edge) for edge in header["edges"]]:
            raise ModelFileError("the hyperedges are not in the order of the parameters")
        return ModelFile(hypergraph, theta, header["coding"], header["info"], tensors)
    except (HoimError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ModelFileError(f"{target}: the contents do not fit together ({reason[:300]})") from error


def _read_header(target: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The JSON header; refuses files of other programs, of newer formats and of other kinds of model."""
    if _FORMAT not in metadata:
        raise ModelFileError(f"{target}: is a safetensors file, but not a {_FORMAT} model")
    try:
        header: object = json.loads(metadata[_FORMAT])
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{target}: the metadata entry {_FORMAT!r} is not readable JSON") from error
    if not isinstance(header, dict):
        raise ModelFileError(f"{target}: the metadata entry {_FORMAT!r} is not a JSON object")
    entries = cast("dict[str, Any]", header)
    if entries.get("format") != _FORMAT:
        raise ModelFileError(f"{target}: has format {str(entries.get('format'))[:40]!r}, expected {_FORMAT!r}")
    found = entries.get("format_version")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= FORMAT_VERSION:
        raise ModelFileError(
            f"{target}: has format version {str(found)[:20]!r} (written by {_FORMAT} "
            f"{str(entries.get('library_version', 'unknown'))[:20]}), but this library reads versions 1 to "
            f"{FORMAT_VERSION}; a newer release may read it"
        )
    if entries.get("kind") != _KIND:
        raise ModelFileError(f"{target}: holds a model of kind {str(entries.get('kind'))[:40]!r}, expected {_KIND!r}")
    return entries
