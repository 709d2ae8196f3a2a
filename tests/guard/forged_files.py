"""Model files with any contents whose checksum is right, so that tests reach what is checked after it.

The checksum is made here from its description in ``docs/files.md`` alone, without the library.
"""

import hashlib
import json
import re
from pathlib import Path

import safetensors.torch
import torch

ENTRY = "pyro-hoim"
_CHECKSUM = re.compile(r', "sha256": "[0-9a-f]{64}"\}$')


def checksum(text, tensors):
    """SHA-256 of the text of a header without a checksum, and of tensors."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype)[6:], list(tensor.shape)]).encode())
        digest.update(bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b"")
    return digest.hexdigest()


def forged(tensors, metadata):
    """The bytes of a file; the header in the metadata gets its checksum if it is an object."""
    metadata = dict(metadata) if metadata else metadata
    if metadata and metadata.get(ENTRY, "").endswith("}"):
        text = _CHECKSUM.sub("}", metadata[ENTRY])
        comma = "" if text == "{}" else ", "
        metadata[ENTRY] = f'{text[:-1]}{comma}"sha256": "{checksum(text, tensors)}"}}'
    return safetensors.torch.save({name: value.contiguous() for name, value in tensors.items()}, metadata)


def contents(path):
    """Header, without its checksum, and tensors of a file."""
    with safetensors.safe_open(str(path), framework="pt") as file:
        header = json.loads(file.metadata()[ENTRY])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    del header["sha256"]
    return header, tensors


def change(path, edit):
    """Rewrite a file after a function has edited its header and its tensors in place."""
    header, tensors = contents(path)
    edit(header, tensors)
    Path(path).write_bytes(forged(tensors, {ENTRY: json.dumps(header)}))
