"""The checksum of files of tensors with a JSON header: SHA-256 of all they hold, the last entry of the header. Private.

What is hashed is the text of the header without its entry ``sha256``, then for every tensor in the order of the names
``[name, dtype, shape]`` as JSON and the bytes, little-endian, last axis fastest. The text is hashed as it stands in the
file, so that no program needs to write numbers as this one does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

import torch

__all__ = ["bytes_of", "checksum", "is_intact", "sealed"]

_ENTRY = "sha256"


def sealed(header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """The JSON text (ASCII) of a non-empty header, with the checksum of text and tensors as its last entry.

    ValueError for what has no JSON form, NaN and infinities included.

    Example:
        >>> text = sealed({"rows": 12}, {"theta": torch.zeros(2)})
        >>> text[:24], is_intact(text, {"theta": torch.zeros(2)}), is_intact(text, {"theta": torch.ones(2)})
        ('{"rows": 12, "sha256": "', True, False)
    """
    text = json.dumps(header, allow_nan=False)
    return f"{text[:-1]}{_written(checksum(tensors, text))}}}"


def is_intact(text: str, tensors: Mapping[str, torch.Tensor]) -> bool:
    """Whether the text of a header ends with the checksum of itself and of the tensors.

    Example:
        >>> is_intact('{"rows": 12}', {})
        False
    """
    found = text[-66:-2]
    ending = f"{_written(found)}}}"
    return text.endswith(ending) and checksum(tensors, f"{text.removesuffix(ending)}}}") == found


def checksum(tensors: Mapping[str, torch.Tensor], text: str = "") -> str:
    """SHA-256 of a text and of tensors, in 64 hexadecimal digits.

    Example:
        >>> checksum({"a": torch.zeros(2)}) == checksum({"a": torch.tensor([0.0, -0.0])})
        False
    """
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


def _written(checksum: str) -> str:
    return f', "{_ENTRY}": "{checksum}"'
