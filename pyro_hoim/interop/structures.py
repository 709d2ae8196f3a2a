"""Posteriors over structure as draws with named interactions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..errors import IntractableError
from .samples import to_array

__all__ = ["INTERACTION_DIM", "NamedDraws", "Structures", "structure_draws"]

INTERACTION_DIM = "interaction"
"""Name of the dimension that runs over the interactions that may be present."""


@runtime_checkable
class Structures(Protocol):
    """What is read of a :class:`~pyro_hoim.inference.StructurePosterior`."""

    @property
    def structure_prior(self) -> Any:
        """The prior over collections."""
        ...

    @property
    def status(self) -> str:
        """What is known of the draws."""
        ...

    def chains(self, num_chains: int | None = None) -> Any:
        """The draws by chain."""
        ...


class NamedDraws(NamedTuple):
    """Draws by site, statistics of the draws, constants, and what is to be known of them."""

    sites: Mapping[str, np.ndarray]
    sample_stats: Mapping[str, np.ndarray]
    constant_data: Mapping[str, np.ndarray]
    coords: Mapping[str, list[str]]
    attributes: Mapping[str, Any]


def structure_draws(posterior: Structures, num_chains: int | None) -> NamedDraws:
    """Indicators, and theta where it is not too large, by chain; the draws are those of temperature 1."""
    found = posterior.chains(num_chains)
    prior = posterior.structure_prior
    sites = {"inclusion": to_array(found.gamma).astype(np.int64)}
    if found.theta is not None:
        sites["theta"] = to_array(found.theta)
    log_evidence = to_array(found.log_evidence)
    constants: dict[str, np.ndarray] = {}
    with suppress(IntractableError):  # a sum over a space that is not listed
        constants["prior_inclusion"] = to_array(prior.marginal_inclusion)
    stats = {"log_evidence": log_evidence, "temperature": np.ones_like(log_evidence)}
    names = [":".join(edge) for edge in prior.space.candidates]
    about = {"status": posterior.status, "independent_draws": found.is_independent}
    return NamedDraws(sites, stats, constants, {INTERACTION_DIM: names}, about)
