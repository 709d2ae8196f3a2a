"""Checks of what users hand to samplers of generalized root models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...checks import check_shape
from ...errors import check_names, check_type, out_of_range, unexpected, wrong_shape, wrong_type
from ...runs.arguments import received
from ..energy import GeneralizedRootEnergy
from ..nodes.families import NodeFamily

__all__ = ["checked_beta", "checked_energy", "checked_given", "checked_states", "first_not_integrable", "seed_from"]


def seed_from(generator: torch.Generator | None) -> int:
    """A seed from a generator of any device, or from the global one."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**63 - 1, (), dtype=torch.int64, device=device, generator=generator))


def checked_energy(energy: object) -> GeneralizedRootEnergy:
    """The energy, that of a law that holds one, or an error unless it has no batch and finite entries."""
    received_type = type(energy).__name__
    energy = getattr(energy, "energy_model", energy)
    if not isinstance(energy, GeneralizedRootEnergy):
        raise wrong_type("energy", "a GeneralizedRootEnergy, or a law that holds one", received=received_type)
    if energy.batch_shape:
        raise unexpected("energy", "no batch", received=f"one of shape {tuple(energy.batch_shape)}", code="wrong-shape")
    if not bool(torch.isfinite(energy.psi.detach()).all()):
        raise unexpected("energy", "finite psi", received="NaN or an infinity", code="not-finite")
    return energy


def checked_beta(beta: float) -> float:
    """The inverse temperature, or an error unless it is in [0, 1]."""
    value = float(beta)
    if not 0.0 <= value <= 1.0:
        raise out_of_range("beta", "an inverse temperature in [0, 1]", beta)
    return value


def checked_given(
    energy: GeneralizedRootEnergy, given: Mapping[str, float | torch.Tensor], num_chains: int
) -> dict[int, NDArray[np.float64]]:
    """Values of the given variables in every chain, (num_chains,) by position."""
    check_type(given, Mapping, "given", "a mapping from names to values")
    check_names(given, energy.domain.names, "given")
    found: dict[int, NDArray[np.float64]] = {}
    for name, value in given.items():
        numbers = torch.as_tensor(value).detach().cpu().double()
        if numbers.ndim > 1 or (numbers.ndim == 1 and len(numbers) != num_chains):
            raise wrong_shape(f"given[{name!r}]", f"() or ({num_chains},)", numbers)
        energy.family.check_values(numbers, f"given[{name!r}]")
        found[energy.domain.index(name)] = numbers.expand(num_chains).numpy()
    return dict(sorted(found.items()))


def checked_states(energy: GeneralizedRootEnergy, states: Any, num_chains: int, argument: str) -> NDArray[np.float64]:
    """States of all chains, (d, num_chains)."""
    size = len(energy.domain)
    if not isinstance(states, torch.Tensor) or states.is_complex() or states.dtype == torch.bool:
        raise wrong_type(argument, "a tensor of values", received=received(states))
    check_shape(states, (size,), argument)
    try:
        values = states.detach().cpu().double().expand(num_chains, size)
    except RuntimeError:
        expected = f"a shape that broadcasts to {(num_chains, size)}"
        raise unexpected(argument, expected, received=tuple(states.shape), code="wrong-shape") from None
    energy.family.check_values(values, argument)
    return values.T.contiguous().numpy().copy()


def first_not_integrable(family: NodeFamily, natural: NDArray[np.float64]) -> int | None:
    """The first row (k,) whose law cannot be normalised; counts always can."""
    from ..nodes.integrability_kernels import is_integrable

    if family.is_discrete:
        return None
    return next((i for i, row in enumerate(natural) if not is_integrable(family.code, row)), None)
