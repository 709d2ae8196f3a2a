"""Undirected, higher-order models of discrete data as ordinary Pyro distributions.

The public names of the packages are re-exported here, at this one level, and imported on first use, so that
``import pyro_hoim`` costs nothing and has no side effects.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "errors": (
        "ConvergenceWarning",
        "HoimError",
        "InputError",
        "InputTypeError",
        "IntractableError",
        "MissingDataError",
        "ModelFileError",
        "NonexistentEstimateWarning",
        "UnknownNameError",
    ),
    "schema": ("Domain", "Variable"),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = list(_HOME)
__all__ += ["__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
