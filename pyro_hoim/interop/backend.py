"""The two generations of ArviZ behind one small face: ``InferenceData`` before 1.0, ``DataTree`` from then on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any, Literal

from ..errors import refused, unexpected

BackendName = Literal["arviz", "arviz_base"]


@dataclass(frozen=True)
class Backend:
    """One generation of ArviZ.

    Attributes:
        is_tree: whether data are ``DataTree`` (ArviZ 1.x, arviz-base) rather than ``InferenceData``.
        data: the module that holds ``from_dict`` and ``dict_to_dataset``.
        stats: the module that holds ``loo``, ``compare``, ``summary`` and ``ELPDData``.
    """

    is_tree: bool
    data: Any
    stats: Any

    def from_dict(self, groups: Mapping[str, Mapping[str, Any]], coords: Any, dims: Any) -> Any:
        """Build the data object: keyword groups in ArviZ 0.2x, one nested dict from 1.0."""
        filled = {name: dict(group) for name, group in groups.items() if group}
        if self.is_tree:
            return self.data.from_dict(filled, coords=coords, dims=dims)
        return self.data.from_dict(**filled, coords=coords, dims=dims)

    def dataset(self, arrays: Mapping[str, Any], coords: Any, dims: Any) -> Any:
        """One xarray Dataset with the sample dimensions (chain, draw)."""
        # The older generation guesses from a lone leading dimension; a named one is never guessed about.
        return self.data.dict_to_dataset(dict(arrays), coords=coords, dims=dims)

    def bundle(self, groups: Mapping[str, Any]) -> Any:
        """A data object from finished Datasets."""
        if not self.is_tree:
            return self.data.InferenceData(**groups)
        from xarray import DataTree

        return DataTree.from_dict(dict(groups))


def choose_backend(name: BackendName | None = None, data: Any = None) -> Backend:
    """The generation of ArviZ to work with.

    Args:
        name: "arviz" for the package ``arviz`` whatever its version, "arviz_base" for ``arviz-base`` with
            ``arviz-stats``; None takes ``arviz`` if it is installed and ``arviz_base`` otherwise.
        data: an existing data object; its own generation is taken and ``name`` is ignored.

    Example:
        >>> choose_backend("stan")
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: backend: expected 'arviz', 'arviz_base' or None, received 'stan'
    """
    if data is not None:
        name = "arviz_base" if type(data).__name__ == "DataTree" else "arviz"
    if name not in (None, "arviz", "arviz_base"):
        raise unexpected("backend", "'arviz', 'arviz_base' or None", name, code="unknown-choice")
    version = installed_version("arviz")
    if name is None:
        name = "arviz" if version is not None else "arviz_base"
    if name == "arviz" and version is None:
        problem = "the package arviz is not installed"
        raise refused("backend", problem, "install it or use backend='arviz_base'", code="missing-part")
    if name == "arviz" and version is not None and int(version.split(".")[0]) < 1:
        module = _quiet_import("arviz")
        return Backend(False, module, module)
    if installed_version("arviz-base") is None:
        problem = "arviz-base is not installed"
        raise refused("backend", problem, "install arviz-base and arviz-stats", code="missing-part")
    stats = "arviz_stats" if installed_version("arviz-stats") is not None else "arviz_base"
    return Backend(True, _quiet_import("arviz_base"), _quiet_import(stats))


def get_group(data: Any, group: str) -> Any:
    """A group's Dataset, None if there is no such group.

    Example:
        >>> import numpy as np
        >>> from pyro_hoim import to_arviz
        >>> data = to_arviz({"mu": np.zeros((2, 50))})
        >>> dict(get_group(data, "posterior").sizes), get_group(data, "prior")
        ({'chain': 2, 'draw': 50}, None)
    """
    if type(data).__name__ == "DataTree":
        return data[group].to_dataset() if group in data.children else None
    return data[group] if group in data.groups() else None


def set_group(data: Any, group: str, dataset: Any) -> None:
    """Put a Dataset in a new or existing group, in place."""
    if type(data).__name__ == "DataTree":
        from xarray import DataTree

        data[group] = DataTree(dataset)
    elif group in data.groups():
        setattr(data, group, dataset)
    else:
        data.add_groups({group: dataset})


def installed_version(distribution: str) -> str | None:
    """Version of an installed package, None for one that is not."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _quiet_import(name: str) -> Any:
    """Import a module without the announcement that ArviZ 0.23 makes once a day."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor", category=FutureWarning)
        try:
            return import_module(name)
        except FileNotFoundError:
            # Of two processes that make the first import of a day, one renames the stamp that both have written; the
            # other fails, and finds the stamp when it imports once more.
            return import_module(name)
