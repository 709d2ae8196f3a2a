"""Priors of theta given the collection, however they are written, as distributions in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pyro.distributions import Independent, Normal

from ...errors import conflict, is_real, wrong_type
from ...log_linear.laws.normal import normal_prior, unit_information_prior
from ...log_linear.laws.priors import DiaconisYlvisaker
from ...log_linear.named_priors import Prior
from ...structure.hypergraph import InteractionHypergraph
from ..posterior import prior_in_double

__all__ = ["ThetaPrior", "checked_prior", "normal_parts", "resolved_prior"]

ThetaPrior: TypeAlias = (
    "float | str | Prior | torch.distributions.Distribution | Callable[[InteractionHypergraph], Any]"
)
"""A scale, a :class:`~pyro_hoim.log_linear.Prior` or its text, a distribution, or a function of the collection."""


def checked_prior(prior: Any) -> Any:
    """A prior with texts and numbers made a named one; refuses what is none."""
    if isinstance(prior, str):
        prior = Prior.parse(prior)
    elif is_real(prior):
        prior = Prior.parse(f"normal:{float(prior)!r}")
    elif not isinstance(prior, Prior | torch.distributions.Distribution) and not callable(prior):
        expected = "a number, a text such as 'unit', a Prior, a distribution or a function of the hypergraph"
        raise wrong_type("prior", expected, prior)
    if isinstance(prior, Prior) and prior.is_flat:
        raise conflict("prior", "the evidence needs a proper prior, received none", "use unit, normal:S or conjugate:N")
    return prior


def resolved_prior(prior: Any, hypergraph: InteractionHypergraph) -> Any:
    """The distribution of a checked prior over the free coordinates of a collection, float64."""
    if isinstance(prior, Prior):
        match prior.kind:
            case "unit":
                return unit_information_prior(hypergraph, prior.rows, dtype=torch.float64)
            case "conjugate":
                return DiaconisYlvisaker.uniform(hypergraph, prior.number or 1.0, dtype=torch.float64)
            case _:
                return normal_prior(hypergraph, prior.scale, dtype=torch.float64)
    law = prior if isinstance(prior, torch.distributions.Distribution) else prior(hypergraph)
    if not isinstance(law, torch.distributions.Distribution):
        raise wrong_type("prior", "a function that returns a distribution", law)
    return prior_in_double(hypergraph, law)


def normal_parts(law: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Precision and centre of independent normals, (P,) each; None for another law."""
    if not (isinstance(law, Independent) and isinstance(law.base_dist, Normal)):
        return None
    loc, scale = law.base_dist.loc.detach(), law.base_dist.scale.detach()
    return scale.reciprocal().square().numpy(), np.broadcast_to(loc.numpy(), scale.shape)
