"""Checks of what users hand to pseudo-Gibbs samplers. Private to :mod:`pyro_hoim.dependency_network.chains`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...checks import check_shape
from ...errors import check_names, check_type, check_unique, refused, unexpected, wrong_shape, wrong_type
from ...runs.arguments import check_levels, received
from ...schema import Domain
from ..conditionals import DependencyConditionals
from ..scan import selection_probs

__all__ = [
    "checked_clamps",
    "checked_codes",
    "checked_conditionals",
    "checked_order",
    "checked_selection",
    "drawn_variables",
]


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


def checked_order(domain: Domain, free: Sequence[int], order: Sequence[str] | None) -> list[int]:
    """Positions in the order of a sequential scan, clamped variables and those with one level left out."""
    if order is None:
        return list(free)
    if isinstance(order, str) or not isinstance(order, Sequence):
        raise wrong_type("order", "a sequence of names", received=repr(order))
    check_names(order, domain.names, "order")
    check_unique(order, "order")
    places = [i for i in domain.indices(order) if i in set(free)]
    if missing := [domain.names[i] for i in free if i not in set(places)]:
        problem = f"expected every free variable, but {', '.join(map(repr, missing))} is left out"
        raise refused("order", problem, code="missing-part")
    return places


def checked_selection(
    domain: Domain, free: Sequence[int], selection: Mapping[str, float] | None
) -> NDArray[np.float64]:
    r"""Probabilities with which a random scan picks the free variables, :math:`c_i / \sum_{j \text{ free}} c_j`."""
    check_type(selection, Mapping | None, "selection", "a mapping from names to probabilities")
    return selection_probs(domain, [domain.names[i] for i in free], selection)


def checked_codes(domain: Domain, codes: Any, num_chains: int, argument: str) -> torch.Tensor:
    """States of all chains, long (num_chains, d)."""
    d = len(domain)
    if not isinstance(codes, torch.Tensor) or codes.dtype == torch.bool or codes.is_complex():
        raise wrong_type(argument, "a tensor of level codes", received=received(codes))
    check_shape(codes, (d,), argument)
    try:
        codes = codes.expand(num_chains, d)
    except RuntimeError:
        expected = f"a shape that broadcasts to {(num_chains, d)}"
        raise unexpected(argument, expected, received=tuple(codes.shape), code="wrong-shape") from None
    check_levels(codes, torch.tensor(domain.cardinalities, device=codes.device), argument)
    return codes.long().clone()
