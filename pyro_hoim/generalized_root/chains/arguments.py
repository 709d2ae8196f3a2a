"""Checks of what users hand to samplers of generalized root models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...checks import check_finite
from ...errors import check_names, check_type, out_of_range, unexpected, wrong_shape, wrong_type
from ...runs.arguments import checked_states
from ..energy import GeneralizedRootEnergy
from ..nodes.families import NodeFamily

__all__ = ["checked_beta", "checked_clamps", "checked_energy", "checked_values", "first_not_integrable"]


def checked_energy(energy: object) -> GeneralizedRootEnergy:
    """The energy, that of a law that holds one, or an error unless it has no batch and finite entries."""
    found = getattr(energy, "energy_model", energy)
    if not isinstance(found, GeneralizedRootEnergy):
        raise wrong_type("energy", "a GeneralizedRootEnergy, or a law that holds one", energy)
    if found.batch_shape:
        raise unexpected("energy", "no batch", received=f"one of shape {tuple(found.batch_shape)}", code="wrong-shape")
    check_finite(found.psi.detach(), "energy")
    return found


def checked_beta(beta: float) -> float:
    """The inverse temperature, or an error unless it is in [0, 1]."""
    if not 0.0 <= float(beta) <= 1.0:
        raise out_of_range("beta", "an inverse temperature in [0, 1]", beta)
    return float(beta)


def checked_clamps(
    energy: GeneralizedRootEnergy, clamped: Mapping[str, float | torch.Tensor], num_chains: int
) -> dict[int, NDArray[np.float64]]:
    """Values of the clamped variables in every chain, (num_chains,) by position."""
    check_type(clamped, Mapping, "clamped", "a mapping from names to values")
    check_names(clamped, energy.domain.names, "clamped")
    found: dict[int, NDArray[np.float64]] = {}
    for name, value in clamped.items():
        numbers = torch.as_tensor(value).detach().cpu().double()
        if numbers.ndim > 1 or (numbers.ndim == 1 and len(numbers) != num_chains):
            raise wrong_shape(f"clamped[{name!r}]", f"() or ({num_chains},)", numbers)
        energy.family.check_values(numbers, f"clamped[{name!r}]")
        found[energy.domain.index(name)] = numbers.expand(num_chains).numpy()
    return dict(sorted(found.items()))


def checked_values(energy: GeneralizedRootEnergy, states: Any, num_chains: int, argument: str) -> NDArray[np.float64]:
    """States of all chains, (d, num_chains)."""
    values = checked_states(states, (num_chains, len(energy.domain)), argument).detach().cpu().double()
    energy.family.check_values(values, argument)
    return values.T.contiguous().numpy().copy()


def first_not_integrable(family: NodeFamily, natural: NDArray[np.float64]) -> int | None:
    """The first row (k,) whose law cannot be normalised; counts always can."""
    from ..nodes.integrability_kernels import is_integrable

    if family.is_discrete:
        return None
    return next((i for i, row in enumerate(natural) if not is_integrable(family.code, row)), None)
