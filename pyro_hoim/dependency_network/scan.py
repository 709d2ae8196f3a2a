"""Which variable a chain of pseudo-Gibbs sampling updates next, and how often each."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import check_names, check_unique, out_of_range, refused, unexpected, wrong_type
from ..schema import Domain


@dataclass(frozen=True)
class Scan:
    r"""Which variable a chain updates next: one picked at random, or each in turn.

    Attributes:
        order: names of the variables that are updated; in a sequential scan in this order.
        selection: probability :math:`c_i` with which a random scan picks each of them; None for a sequential scan.
    """

    order: tuple[str, ...]
    selection: Mapping[str, float] | None = None

    @property
    def kind(self) -> Literal["random", "sequential"]:
        """``random`` or ``sequential``."""
        return "sequential" if self.selection is None else "random"


ScanLike = Scan | Literal["random", "sequential"] | Mapping[str, float] | Sequence[str]
"""A scan or what makes one: a kind, probabilities of a random scan by name, names of a sequential one in order."""


def drawn_variables(domain: Domain, fixed: Mapping[int, object]) -> tuple[str, ...]:
    """Names of the variables that are drawn: not clamped, with more than one level."""
    return tuple(v.name for i, v in enumerate(domain.variables) if v.cardinality > 1 and i not in fixed)


def checked_scan(domain: Domain, free: Sequence[str], scan: ScanLike) -> Scan:
    r"""The scan of some variables: with probabilities :math:`c_i / \sum_{j free} c_j`, or its order without the others.

    Refused are other kinds, what :func:`selection_probs` refuses, names that are unknown or repeated, and an order
    without one of the variables.
    """
    if isinstance(scan, Scan):
        scan = scan.order if scan.selection is None else scan.selection or "random"
    # A random scan: probabilities of the free variables in proportion.
    if scan == "random" or isinstance(scan, Mapping):
        wanted = scan if isinstance(scan, Mapping) else None
        weights = selection_probs(domain, free, wanted, "scan")
        return Scan(tuple(free), dict(zip(free, weights.tolist(), strict=True)))
    if scan == "sequential":
        return Scan(tuple(free))
    if isinstance(scan, str) or not isinstance(scan, Sequence):
        expected = "'random', probabilities by name, 'sequential' or a sequence of names"
        raise unexpected("scan", expected, scan, code="unknown-choice")
    # An order by names, without the variables that are held fixed.
    check_names(scan, domain.names, "scan")
    check_unique(scan, "scan")
    if missing := [name for name in free if name not in scan]:
        problem = f"expected every free variable, but {', '.join(map(repr, missing))} is left out"
        raise refused("scan", problem, code="missing-part")
    return Scan(tuple(name for name in scan if name in free))


def selection_probs(
    domain: Domain, free: Sequence[str], selection: Mapping[str, float] | Sequence[float] | None, argument: str
) -> NDArray[Any]:
    """Selection probabilities (num_free,) of the variables that are not clamped, divided by their sum.

    ``selection`` has one positive number per variable by name, or in schema order, that sum to one; by default all are
    equal. Those of variables that are clamped or have one level may be zero, or left out where they are given by name:
    an update changes neither. ``argument`` is their name for messages.
    """
    if selection is None:
        return np.full(len(free), 1.0 / max(1, len(free)))
    if isinstance(selection, Mapping):
        check_names(selection, domain.names, argument)
        given: dict[str, Any] = dict(selection)
    elif isinstance(selection, Sequence | torch.Tensor | np.ndarray) and not isinstance(selection, str):
        if len(selection) != len(domain):
            raise unexpected(argument, f"{len(domain)} probabilities", received=len(selection), code="wrong-shape")
        given = dict(zip(domain.names, selection, strict=True))
    else:
        raise wrong_type(argument, "probabilities by name, or a sequence of them", selection)
    # Every variable that can change has to be picked, and the numbers are probabilities.
    values = {name: _checked(value, name, argument) for name, value in given.items()}
    for name in free:
        if domain[name].cardinality > 1 and not values.get(name, 0.0) > 0:
            hint = "a variable that is never updated keeps its first value"
            raise out_of_range(argument, f"a positive probability for {name!r}", given.get(name), hint)
    total = math.fsum(values.values())
    if abs(total - 1) > 1e-6:
        raise out_of_range(argument, "probabilities that sum to 1", received=f"a sum of {total:.9g}")
    # Those of the free variables in proportion.
    chosen = np.array([values.get(name, 0.0) for name in free], dtype=np.float64)
    mass = chosen.sum()
    return chosen / mass if mass > 0 else np.full(len(free), 1.0 / max(1, len(free)))


def _checked(value: Any, name: str, argument: str) -> float:
    """A finite number from 0 on."""
    number = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
    if not isinstance(number, numbers.Real) or isinstance(number, bool) or not 0 <= float(number) < math.inf:
        raise out_of_range(argument, f"a positive probability for {name!r}", value)
    return float(number)
