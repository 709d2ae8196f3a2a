"""Selection probabilities of the random scan: c_i, one per variable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..schema import Domain

__all__ = ["selection_probs"]


def selection_probs(
    domain: Domain,
    free: Sequence[str],
    selection: Mapping[str, float] | Sequence[float] | None,
    argument: str = "selection",
) -> NDArray[Any]:
    """Selection probabilities (num_free,) of the free variables, divided by their sum.

    Args:
        domain: all variables.
        free: those that are not clamped.
        selection: one positive number per variable by name, or in schema order, that sum to one; default all equal.
            Those of clamped variables may be left out where they are given by name.
        argument: name for messages.

    Raises:
        InputError: a number that is missing, not positive or not finite, or another sum.
        UnknownNameError: a name is not in the domain.
    """
    if selection is None:
        return np.full(len(free), 1.0 / max(1, len(free)))
    if isinstance(selection, Mapping):
        domain.indices(selection)
        given = dict(selection)
    else:
        if len(selection) != len(domain):
            raise InputError(f"{argument}: expected {len(domain)} probabilities, received {len(selection)}")
        given = dict(zip(domain.names, selection, strict=True))
    for name in free:
        value = float(given.get(name, 0.0))
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{argument}: expected a positive probability for {name!r}, received {given.get(name)!r}")
    total = math.fsum(float(value) for value in given.values())
    if abs(total - 1) > 1e-6:
        raise InputError(f"{argument}: expected probabilities that sum to 1, received a sum of {total:.9g}")
    chosen = np.array([float(given[name]) for name in free])
    return chosen / chosen.sum()
