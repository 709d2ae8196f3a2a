"""Models of any family: load, save and use them.

A model is what :func:`load` returns, or an energy, a law or the result of a fit, whose class names its kind. Families
are those of the library and those of installed packages, which name theirs by an entry point of the group
``pyro_hoim.families``; see :doc:`/add_a_family`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .atomic import draft_of
from .core.family import families, family_of
from .core.operations import impute, predict, sample, save, score
from .data.files.uai import is_uai
from .errors import ModelFileError, refused
from .results.fitted import LoadedModel
from .runs.container import read_kind, with_info

__all__ = ["DEFAULT", "add_info", "families", "impute", "load", "predict", "sample", "save", "score"]

DEFAULT = "log-linear"
"""The family that is fitted where none is named."""


def load(path: str | os.PathLike[str]) -> LoadedModel:
    """The model of a file of any family, or of the file ``model.safetensors`` in a folder that ``fit`` left.

    Raises:
        ModelFileError: no such file, damaged, or of a kind that is not registered.

    Example:
        >>> import tempfile
        >>> from pyro_hoim import fit, load_table
        >>> result = fit("Admit * Gender", load_table("ucb_admissions"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.save(folder + "/model.safetensors")
        ...     model = load(folder)
        >>> model.interactions()["term"].tolist()
        ['Admit:Gender', 'Admit', 'Gender']
    """
    file = Path(path)
    file = file / "model.safetensors" if os.path.isdir(file) else file
    if is_uai(file):
        raise ModelFileError("is a file in the UAI format", argument=file, hint="read_uai reads it")
    family = family_of(read_kind(file), file)
    stored = family.read(file)
    return LoadedModel(stored.kind, stored.model, stored.domain, stored.info)


def add_info(path: str | os.PathLike[str], info: Mapping[str, Any]) -> None:
    """Add JSON values to the free-form information of a model file of any family; those of the same name are replaced.

    The file is left as it was unless its family can load it with them.

    Raises:
        InputError: information that is not JSON, or an entry of other values than the family writes under its name.
        ModelFileError: a file that cannot be read or written.
    """
    kind, content = with_info(path, info)
    family = family_of(kind, path)
    with draft_of(path, ModelFileError) as draft:
        draft.write_bytes(content)
        try:
            family.read(draft)
        except ModelFileError as error:
            raise refused("info", f"with it {path} could not be loaded: {error.problem}") from error
