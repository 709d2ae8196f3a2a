"""Minus the log posterior of theta with its gradient, without a trace of the Pyro program."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pyro.distributions import Independent, Normal

from ...core.partition import PartitionBackend
from ...structure.hypergraph import InteractionHypergraph
from ..coding import parametrization
from ..energy import LogLinearEnergy
from .backends import is_exact_for
from .priors import DiaconisYlvisaker

__all__ = ["NormalPotential", "known_potential"]

_LOG_ROOT = math.log(math.sqrt(2 * math.pi))


class NormalPotential:
    r"""Potential of the free coordinates under independent normal priors and marginal counts t of N rows.

    .. math:: U(\theta) = -\log p(\theta) - t \cdot \theta + N \log Z(\theta), \qquad
        \nabla U = \Sigma^{-1} (\theta - \mu) - P^\top (t - N \eta(\theta))

    with the balanced tables :math:`P \theta` in the inner product. It is what Pyro makes of
    :func:`~pyro_hoim.inference.posterior.log_linear_model`, bit for bit, at less than half the cost: no program is
    traced. The gradient is that of PyTorch.
    """

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        prior: Independent,
        counts: torch.Tensor,
        total: float,
        partition: PartitionBackend,
    ) -> None:
        self._hypergraph, self._counts, self._total, self._partition = hypergraph, counts, total, partition
        normal: Any = prior.base_dist
        self._mean, self._twice_variance = normal.loc, 2 * normal.scale.square()
        self._log_scale = normal.scale.log()
        self._codings = parametrization(hypergraph)
        self._largest = torch.finfo(counts.dtype).max ** 0.5

    def __call__(self, values: dict[str, torch.Tensor]) -> torch.Tensor:
        """Potential () of ``{"theta": (num_parameters,)}`` in nats, differentiable; NaN where theta diverged."""
        theta = values["theta"]
        if not bool((theta.detach().abs() < self._largest).all()):
            return theta.sum() * torch.nan
        tables = self._codings.to_tables(theta)
        log_z = self._partition.log_partition(LogLinearEnergy(self._hypergraph, tables, validate=False)).value
        log_likelihood = (tables * self._counts).sum(-1) - self._total * log_z
        away = -((theta - self._mean) ** 2) / self._twice_variance
        return -((away - self._log_scale - _LOG_ROOT).sum(-1) + log_likelihood)


def _conjugate_potential(posterior: DiaconisYlvisaker, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """Minus the log density of a conjugate posterior, up to its constant."""
    return -posterior.log_prob(values["theta"])


def known_potential(
    hypergraph: InteractionHypergraph, prior: Any, counts: torch.Tensor, total: float, partition: PartitionBackend
) -> Callable[[dict[str, torch.Tensor]], torch.Tensor] | None:
    """The potential of theta where it is written down here; None leaves it to Pyro, which also watches estimates."""
    if not is_exact_for(partition, hypergraph):
        return None
    if isinstance(prior, DiaconisYlvisaker):
        return partial(_conjugate_potential, prior.posterior(counts, total))
    if isinstance(prior, Independent) and isinstance(prior.base_dist, Normal):
        return NormalPotential(hypergraph, prior, counts, total, partition)
    return None
