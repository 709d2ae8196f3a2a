"""Checks of what users hand to pseudo-Gibbs samplers. Private to :mod:`pyro_hoim.dependency_network.chains`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import check_names, check_type, check_unique, refused, unexpected, wrong_shape, wrong_type
from ...runs.arguments import check_levels
from ...schema import Domain
from ..conditionals import DependencyConditionals
from ..scan import selection_probs

__all__ = [
    "Scan",
    "checked_clamps",
    "checked_conditionals",
    "checked_scan",
    "drawn_variables",
]

Scan = Literal["random", "sequential"]


def checked_conditionals(conditionals: object) -> DependencyConditionals:
    """The conditionals, or those of a law that holds some."""
    found = getattr(conditionals, "conditionals", conditionals)
    if not isinstance(found, DependencyConditionals):
        hint = "make them of a model by DependencyConditionals.from_model"
        raise wrong_type("conditionals", "DependencyConditionals", conditionals, hint)
    found.require_single("conditionals")
    return found


def checked_clamps(domain: Domain, clamped: Mapping[str, Any], num_chains: int | None) -> dict[int, torch.Tensor | int]:
    """Positions of the clamped variables with their codes, in schema order; codes per chain are (num_chains,)."""
    check_type(clamped, Mapping, "clamped", "a mapping from names to values")
    check_names(clamped, domain.names, "clamped")
    values = {
        name: torch.as_tensor(value) if isinstance(value, list | tuple | np.ndarray) else value
        for name, value in clamped.items()
    }
    found: dict[int, torch.Tensor | int] = {}
    for name, value in values.items():
        i = domain.index(name)
        if not isinstance(value, torch.Tensor):
            found[i] = domain.encode_state({name: value})[name]
            continue
        if value.dim() > 1 or (num_chains is not None and value.dim() == 1 and len(value) not in (1, num_chains)):
            wanted = "chains" if num_chains is None else num_chains
            raise wrong_shape(f"clamped[{name!r}]", f"() or ({wanted},)", value)
        check_levels(value, torch.tensor(domain.cardinalities[i], device=value.device), f"clamped[{name!r}]")
        found[i] = value.long().cpu()
    sizes = {v.numel() for v in found.values() if isinstance(v, torch.Tensor) and v.numel() > 1}
    if len(sizes) > 1:
        raise unexpected("clamped", "values for one number of chains", received=sorted(sizes))
    return dict(sorted(found.items()))


def drawn_variables(domain: Domain, fixed: Mapping[int, object]) -> tuple[int, ...]:
    """Positions of the variables that are drawn: not clamped, with more than one level."""
    return tuple(i for i, levels in enumerate(domain.cardinalities) if levels > 1 and i not in fixed)


def checked_scan(
    domain: Domain, free: Sequence[int], scan: object
) -> tuple[Scan, list[int], NDArray[np.float64] | None]:
    r"""Kind of scan, positions in its order, and of a random one the probabilities :math:`c_i / \sum_{j free} c_j`."""
    names = [domain.names[i] for i in free]
    if scan == "random" or isinstance(scan, Mapping):
        wanted = cast("Mapping[str, float]", scan) if isinstance(scan, Mapping) else None
        return "random", list(free), selection_probs(domain, names, wanted, "scan")
    if scan == "sequential":
        return "sequential", list(free), None
    if isinstance(scan, str) or not isinstance(scan, Sequence):
        expected = "'random', probabilities by name, 'sequential' or a sequence of names"
        raise unexpected("scan", expected, scan, code="unknown-choice")
    order = cast("Sequence[str]", scan)
    check_names(order, domain.names, "scan")
    check_unique(order, "scan")
    places = [i for i in domain.indices(order) if i in set(free)]
    if missing := [name for name in names if name not in order]:
        problem = f"expected every free variable, but {', '.join(map(repr, missing))} is left out"
        raise refused("scan", problem, code="missing-part")
    return "sequential", places, None
