"""Checks of what users hand to pseudo-Gibbs samplers. Private to :mod:`pyro_hoim.dependency_network.chains`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ...errors import check_names, check_type, unexpected, wrong_shape, wrong_type
from ...runs.arguments import check_levels
from ...schema import Domain
from ..conditionals import DependencyConditionals

__all__ = ["checked_clamps", "checked_conditionals", "drawn_variables"]


def checked_conditionals(conditionals: object, *, single: bool = True) -> DependencyConditionals:
    """The conditionals, or those of a law that holds some; a batch of networks is refused where one is needed."""
    found = getattr(conditionals, "conditionals", conditionals)
    if not isinstance(found, DependencyConditionals):
        hint = "make them of a model by DependencyConditionals.from_model"
        raise wrong_type("conditionals", "DependencyConditionals", conditionals, hint)
    if single:
        found.require_single("conditionals")
    return found


def checked_clamps(domain: Domain, clamped: Mapping[str, Any], num_chains: int | None) -> dict[int, torch.Tensor | int]:
    """Positions of the clamped variables with their codes, in schema order; codes per chain are (num_chains,)."""
    check_type(clamped, Mapping, "clamped", "a mapping from names to values")
    check_names(clamped, domain.names, "clamped")
    found: dict[int, torch.Tensor | int] = {}
    for name, given in clamped.items():
        i, value = domain.index(name), torch.as_tensor(given) if isinstance(given, list | tuple | np.ndarray) else given
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
        raise unexpected("clamped", "values for one number of chains", received=sorted(sizes), code="wrong-shape")
    return dict(sorted(found.items()))


def drawn_variables(domain: Domain, fixed: Mapping[int, object]) -> tuple[str, ...]:
    """Names of the variables that are drawn: not clamped, with more than one level."""
    return tuple(v.name for i, v in enumerate(domain.variables) if v.cardinality > 1 and i not in fixed)
