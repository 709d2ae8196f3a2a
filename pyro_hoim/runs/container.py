"""Reading and writing of safetensors files with a JSON header: models of all kinds and checkpoints. Private."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar, cast

import safetensors
import safetensors.torch
import torch

from .._version import __version__
from ..atomic import write_file
from ..errors import HoimError, IntractableError, ModelFileError, refused, size_text, unexpected, wrong_type
from .rules import COMMON, MOST_DEPTH, TEXT, WHOLE, Fields, Rule, check_size, parsed, too_deep

# The checksum of files of tensors with a JSON header: SHA-256 of all they hold, the last entry of the header.
#
# What is hashed is the text of the header without its entry ``sha256``, then for every tensor in the order of the names
# ``[name, dtype, shape]`` as JSON and the bytes, little-endian, last axis fastest. The text is hashed as it stands in
# the file, so that no program needs to write numbers as this one does.

_LAST_ENTRY = ', "sha256": "{}"}}'


def sealed(header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """The JSON text (ASCII) of a non-empty header, with the checksum of text and tensors as its last entry.

    ValueError for what has no JSON form, NaN and infinities included.
    """
    text = json.dumps(header, allow_nan=False)
    return text[:-1] + _LAST_ENTRY.format(checksum(tensors, text))


def is_intact(text: str, tensors: Mapping[str, torch.Tensor]) -> bool:
    """Whether the text of a header ends with the checksum of itself and of the tensors."""
    digits = text[-66:-2]
    ending = _LAST_ENTRY.format(digits)
    return text.endswith(ending) and checksum(tensors, f"{text.removesuffix(ending)}}}") == digits


def checksum(tensors: Mapping[str, torch.Tensor], text: str = "") -> str:
    """SHA-256 of a text and of tensors, in 64 hexadecimal digits."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        tensor = tensors[name]
        dtype = str(tensor.dtype).removeprefix("torch.")
        digest.update(json.dumps([name, dtype, list(tensor.shape)]).encode())
        if tensor.numel():
            digest.update(cast(Any, bytes_of(tensor).numpy()))
    return digest.hexdigest()


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, last axis fastest, in which NaN equals itself and 0 differs from -0.

    Example:
        >>> bytes_of(torch.tensor([1, 256], dtype=torch.int16))
        tensor([1, 0, 0, 1], dtype=torch.uint8)
        >>> bytes_of(torch.tensor(256, dtype=torch.int16).expand(1))
        tensor([0, 1], dtype=torch.uint8)
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.stride() != (1,):  # of a single value, which any stride leaves contiguous
        flat = torch.empty(flat.shape, dtype=flat.dtype).copy_(flat)
    return flat.view(torch.uint8) if len(flat) else flat.to(torch.uint8)  # an empty one may have no stride


FORMAT_VERSION = 3
"""Version of the format written here, the only one read: 1 had another basis of the free coding, 2 had no checksum."""

LOG_LINEAR = "hierarchical-log-linear"
DEPENDENCY_NETWORK = "dependency-network"
GENERALIZED_ROOT = "generalized-root"
BOLTZMANN = "boltzmann-machine"
STRUCTURE_POSTERIOR = "structure-posterior"

_FORMAT = "pyro-hoim"
_TABLES = {
    ".csv",
    ".tsv",
    ".tab",
    ".xlsx",
    ".parquet",
    ".feather",
    ".sav",
    ".dta",
    ".sas7bdat",
    ".xpt",
    ".rds",
    ".arff",
}
_START, _LINES = 2**14, 20  # bytes and lines that tell a table of text
_WRITTEN: dict[str, Rule] = {"format": TEXT, "format_version": WHOLE, "library_version": TEXT, "kind": TEXT}
_CHECKSUM = {"sha256": TEXT}
_MOST_BYTES = 90_000_000  # of a header; safetensors reads none above 100 MB, and quotes take two bytes there
_READERS = {
    LOG_LINEAR: "load_model",
    DEPENDENCY_NETWORK: "load_network",
    GENERALIZED_ROOT: "load_roots",
    BOLTZMANN: "load_machine",
    STRUCTURE_POSTERIOR: "load_structure_posterior",
}

T = TypeVar("T")


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """A compact copy on the CPU that shares no memory with the argument."""
    return tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)


def plain(value: object, where: str, depth: int = 2) -> Any:
    """The JSON form of a value so many levels below the header, or an :class:`InputError` about a part without one."""
    if depth > MOST_DEPTH:
        raise too_deep(where[:80])
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, (list, tuple)):
        items = cast("list[object] | tuple[object, ...]", value)
        return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(items)]
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        for key in entries:
            if not isinstance(key, str):
                raise unexpected(where, "string keys", key, code="wrong-type")
        return {str(key): plain(item, f"{where}[{key!r}]", depth + 1) for key, item in entries.items()}
    hint = "convert it to a number, string, list or None"
    received = f"{value!r} of type {type(value).__name__}"
    raise unexpected(where, "a JSON value", hint=hint, received=received)


def keep_contents(
    file: Any, rules: Mapping[str, Rule] | None = None, prefix: str | None = None, **parameters: object
) -> None:
    """Put copies of the further tensors, the JSON form of the information and parameters into a frozen object.

    Tensors that are none or have the name of a parameter, or one with a prefix, and odd information are refused;
    ``rules`` are those of the entries of the information that the family reads, besides those that all do.
    """
    tensors: Mapping[str, object] = file.tensors
    if not isinstance(file.info, Mapping):
        raise wrong_type("info", "a mapping", file.info)
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise wrong_type(f"tensors[{name!r}]", "a tensor", tensor)
        if name in parameters if prefix is None else name.startswith(prefix):
            problem = f"the name {name!r} is taken by the parameters"
            raise refused("tensors", problem, "choose another one", code="repeated-name")
    # Copies, so that later changes of the arguments do not reach the file.
    copies = {name: stored(tensor) for name, tensor in file.tensors.items()}
    info = plain(file.info, "info")
    Fields({}, {**COMMON, **(rules or {})}, others=True).check(info, "info")
    for name, value in {**parameters, "tensors": copies, "info": info}.items():
        object.__setattr__(file, name, value)


def write_container(
    path: str | os.PathLike[str], kind: str, contents: Mapping[str, Any], tensors: dict[str, torch.Tensor]
) -> None:
    """Write a file in one step, so that no half-written file is ever seen; ModelFileError where that cannot be."""
    target = Path(path)
    write_file(target, _written(target, kind, contents, tensors), ModelFileError)


def _written(target: Path, kind: str, contents: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> bytes:
    """The bytes of a file; ModelFileError for a header that no reader would take."""
    versions = {"format": _FORMAT, "format_version": FORMAT_VERSION, "library_version": __version__}
    text = sealed({**versions, "kind": kind, **contents}, tensors)
    # What no reader would take is not written.
    size = len(text) + text.count('"') + text.count("\\")
    if size > _MOST_BYTES:
        problem = f"its header would take {size_text(size, 'bytes')}, the limit is {_MOST_BYTES}"
        raise ModelFileError(problem, argument=target, hint="keep large contents as tensors", code="over-budget")
    try:
        check_size(text, "header")
    except IntractableError as error:
        raise unfit(error, target) from error
    # One entry, because safetensors writes several in a random order.
    return safetensors.torch.save(dict(tensors), {_FORMAT: text})


def take_parameters(tensors: dict[str, torch.Tensor], name: str, *dtypes: torch.dtype) -> torch.Tensor:
    """Take the parameters out of the tensors of a file; ModelFileError for none, or of another type."""
    tensor = tensors.pop(name, None)
    if tensor is None or tensor.dtype not in dtypes:
        expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        received = "none" if tensor is None else str(tensor.dtype)
        raise ModelFileError(f"expected a {expected} tensor {name!r}, found {received}")
    return tensor


def unfit(error: Exception, target: Path) -> ModelFileError:
    """The error about contents from which nothing can be built."""
    reason = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
    is_large = isinstance(error, IntractableError)
    problem = "the model is too large" if is_large else "the contents do not fit together"
    code = "over-budget" if is_large else None
    return ModelFileError(f"{problem} ({reason[:300]})", argument=target, code=code)


def with_info(path: str | os.PathLike[str], info: Mapping[str, Any]) -> tuple[str, bytes]:
    """Kind and bytes of a model file with JSON values added to its information, which its family has yet to check.

    InputError for information that is not JSON, ModelFileError for a file that cannot be read.
    """
    added = plain(info, "info")
    kind = read_kind(path)
    header, tensors = read_container(path, kind)
    contents = {name: value for name, value in header.items() if name not in (*_WRITTEN, *_CHECKSUM)}
    return kind, _written(Path(path), kind, {**contents, "info": {**header["info"], **added}}, tensors)


def read_kind(path: str | os.PathLike[str]) -> str:
    """The kind of model that a file holds, errors as :func:`read_container`; the tensors are not read."""
    return str(read_container(path, None)[0]["kind"])


def read_model(
    path: str | os.PathLike[str],
    kind: str,
    contents: Mapping[str, Rule],
    build: Callable[[dict[str, Any], dict[str, torch.Tensor]], T],
) -> T:
    """What is built of the header and the tensors of a model file; errors as :func:`read_container`.

    Nothing is built before the rules of ``contents`` are kept, the entries that the kind adds to the header. Whatever
    does not fit together is a ModelFileError.
    """
    header, tensors = read_container(path, kind)
    try:
        Fields({**_WRITTEN, **_CHECKSUM, **contents, "info": Fields(others=True)}).check(header)
        return build(header, tensors)
    except (HoimError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise unfit(error, Path(path)) from error


def read_container(path: str | os.PathLike[str], kind: str | None) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Header and tensors of a file of one kind, the checksum verified; without a kind the header only, of any kind.

    ModelFileError for no such file, one that is damaged, and one of another program, version or kind.
    """
    target = Path(path)
    header, tensors = read_sealed(target, _FORMAT, "model", FORMAT_VERSION, has_tensors=kind is not None)
    received = header.get("kind")
    if not isinstance(received, str) or received != (received if kind is None else kind):
        hint = f"read it with {_READERS[received]}" if isinstance(received, str) and received in _READERS else None
        expected = "a name" if kind is None else repr(kind)
        problem = f"holds a model of kind {str(received)[:40]!r}, expected {expected}"
        raise ModelFileError(problem, argument=target, hint=hint, code="unknown-choice")
    return header, tensors


def _is_table(target: Path) -> bool:
    """Whether the name of a file is that of a table, or its first lines are text with equally many separators."""
    suffixes = [suffix.lower() for suffix in target.suffixes]
    if _TABLES & {*suffixes[-2:]}:  # also packed
        return True
    with target.open("rb") as file:
        start = file.read(_START)
    try:
        lines = start.decode("utf-8-sig").splitlines()[: _LINES + 1]
    except UnicodeDecodeError:
        return False
    # The last line read may be cut.
    lines = [line for line in lines[: -1 if len(start) == _START else None] if line.strip()]
    counts = [{line.count(mark) for line in lines} for mark in ",;\t"]
    return len(lines) > 1 and any(len(number) == 1 and 0 not in number for number in counts)


def read_sealed(
    target: Path, entry: str, noun: str, version: int, *, has_tensors: bool = True
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Header, of an entry of the metadata, and tensors of a file, the checksum verified; or the header alone.

    ModelFileError for no such file, one that is damaged, and one of another program or version.
    """
    try:
        if not target.is_file():
            problem = "is not a file" if target.exists() else "no such file"
            raise ModelFileError(problem, argument=target, code="no-file")
        with safetensors.safe_open(str(target), framework="pt", device="cpu") as file:
            text = (file.metadata() or {}).get(entry)
            # A copy, because the tensors of an open file are views of it.
            names = file.keys() if has_tensors else []
            tensors = {name: cast("torch.Tensor", file.get_tensor(name)).clone() for name in names}
    except safetensors.SafetensorError as error:
        if _is_table(target):
            hint = f"fit a model to it first: pyro-hoim fit {shlex.quote(str(target))}, or fit(data) in Python"
            raise ModelFileError("looks like a table of rows, and no model", argument=target, hint=hint) from error
        problem = "is not a readable safetensors file, perhaps damaged or truncated"
        raise ModelFileError(problem, argument=target) from error
    except OSError as error:
        raise ModelFileError(f"cannot be read ({error.strerror or error})", argument=target, code="no-file") from error
    # The header as JSON, before anything that it says is believed.
    if text is None:
        raise ModelFileError(f"is a safetensors file, but not a {_FORMAT} {noun}", argument=target)
    where = f"the metadata entry {entry!r}"
    try:
        content = parsed(text, where)
    except HoimError as error:
        raise ModelFileError(f"{where} {error.problem}", argument=target, code=error.code) from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{where} is not a JSON object", argument=target)
    # Other programs and versions are told apart first: their checksums may be made of other bytes.
    header = cast("dict[str, Any]", content)
    if header.get("format", entry) != entry:
        raise ModelFileError(f"has format {str(header['format'])[:40]!r}, expected {entry!r}", argument=target)
    number = header.get("format_version")
    if type(number) is not int or number != version:
        writer = f"{_FORMAT} {str(header.get('library_version', 'unknown'))[:20]}"
        received = f"has format version {str(number)[:20]!r} (written by {writer})"
        problem = f"{received}, but this library reads version {version}"
        is_newer = type(number) is int and number > version
        hint = "a newer release may read it" if is_newer else "fit the model again"
        raise ModelFileError(problem, argument=target, hint=hint, code="file-version")
    if has_tensors and not is_intact(text, tensors):
        problem = "is damaged: its contents are not those that its checksum was made of"
        raise ModelFileError(problem, argument=target, hint="take a copy of the file, or fit the model again")
    return header, tensors


class ModelRecord(ABC):
    """What a model file holds, as its family knows it; a family packs and unpacks, and this class writes and reads.

    Attributes:
        model_kind: of the family.
        contents: rules of the entries that the kind adds to the header.
        parameters: name of the parameters, whose axes before the last are a batch of models; empty for one model alone.
        domain: all columns, a field or a property.
        info: free-form JSON object.
    """

    model_kind: ClassVar[str]
    contents: ClassVar[Mapping[str, Rule]] = MappingProxyType({})
    parameters: ClassVar[str] = ""
    info: dict[str, Any]

    @abstractmethod
    def packed(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Entries of the header as JSON values, the information among them where it is not ``info``, and tensors."""

    @classmethod
    @abstractmethod
    def unpacked(cls, header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Self:
        """The record of a header that keeps the rules, and tensors."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, in a folder that exists, replacing an existing one in a step."""
        contents, tensors = self.packed()
        write_container(path, self.model_kind, {**contents, "info": contents.get("info", self.info)}, tensors)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the file; errors as :func:`read_model`."""
        return read_model(path, cls.model_kind, cls.contents, cls.unpacked)

    @classmethod
    def load_single(cls, path: str | os.PathLike[str]) -> Self:
        """The same for one model; ModelFileError for a batch."""
        record = cls.load(path)
        shape = tuple(getattr(record, cls.parameters).shape[:-1]) if cls.parameters else ()
        if shape:
            problem = f"holds a batch of models of shape {shape}, expected one model"
            hint = f"read it with {_READERS[cls.model_kind]}"
            raise ModelFileError(problem, argument=path, hint=hint, code="wrong-shape")
        return record
