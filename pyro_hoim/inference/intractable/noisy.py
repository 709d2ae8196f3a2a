"""The exchange algorithm with ratios averaged over several auxiliary data sets: more acceptance, no exactness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from typing_extensions import override

from ...errors import check_whole
from ._auxiliary import Kind
from ._program import Evaluation, Values
from ._proposals import ProposalName
from .exchange import Exchange

__all__ = ["NoisyExchange"]


class NoisyExchange(Exchange):
    r"""Metropolis moves with the ratio of constants replaced by an average over M auxiliary data sets.

    .. math:: \log r = \log \frac{\pi(\theta')\, f(x \mid \theta')}{\pi(\theta)\, f(x \mid \theta)}
        + \log \frac1M \sum_{m=1}^M \frac{f(w_m \mid \theta)}{f(w_m \mid \theta')},
        \qquad w_m \sim p(\cdot \mid \theta')

    With M = 1 this is :class:`Exchange`, which is exact; for M above 1 it is not, since the average is not what the
    reversed move would see, and :attr:`is_exact` is False. Its acceptance rises to that of the exact ratio, and its
    stationary law approaches the posterior, with an error of O(1 / M). Bridges raise the acceptance of the exact kernel
    at the same cost.

    Args:
        program: the Pyro program.
        num_auxiliary: auxiliary data sets M.
        sites: as of :class:`Exchange`, and so are the others.
        auxiliary: how auxiliary data are drawn.
        num_bridges: steps of the path of each data set.
        num_sweeps: sweeps of Gibbs chains.
        proposal: the proposal.
        num_chains: the dimension of chains.

    References:
        Pierre Alquier, Nial Friel, Richard Everitt and Aidan Boland, Noisy Monte Carlo: convergence of Markov
        chains with approximate transition kernels, Statistics and Computing 26, 2016, algorithm 2.

    Example:
        >>> from functools import partial
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> from pyro_hoim.inference import log_linear_model, run_mcmc
        >>> from pyro_hoim.log_linear import normal_prior
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> counts = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
        >>> program = partial(log_linear_model, hypergraph, normal_prior(hypergraph, dtype=torch.float64), counts, 40)
        >>> run = run_mcmc(NoisyExchange(program, 3), 5, burn_in=5, num_chains=8, seed=1, progress=False)
        >>> run.samples["theta"].shape, bool(run.sample_stats["is_exact"].any())
        (torch.Size([8, 5, 2]), False)
    """

    def __init__(
        self,
        program: Callable[..., Any],
        num_auxiliary: int = 10,
        *,
        sites: Sequence[str] | None = None,
        auxiliary: Kind = "auto",
        num_bridges: int = 0,
        num_sweeps: int = 200,
        proposal: ProposalName = "pseudo-likelihood",
        num_chains: int | None = None,
    ) -> None:
        super().__init__(
            program,
            sites=sites,
            auxiliary=auxiliary,
            num_bridges=num_bridges,
            num_sweeps=num_sweeps,
            proposal=proposal,
            num_chains=num_chains,
        )
        self.num_auxiliary = check_whole(num_auxiliary, "num_auxiliary")

    @override
    def _judge(self, is_perfect: Sequence[bool]) -> bool:
        return self.num_auxiliary == 1 and super()._judge(is_perfect)

    @override
    def _log_exchange(self, chain: Any, present: Evaluation, naturals: Values) -> torch.Tensor:
        ratios = torch.zeros(self.num_auxiliary, len(present.log_density), dtype=torch.float64)
        data_part = torch.zeros(len(present.log_density), dtype=torch.float64)
        for name, auxiliary in chain.auxiliary.items():
            start, end, data = naturals[name], present.naturals[name], present.data[name]
            data_part = data_part + ((start - end) * data.statistics).sum((-1, -2))
            ratios = ratios + auxiliary.log_weights(
                start, end, data, copies=self.num_auxiliary, num_sweeps=self.num_sweeps
            )
        return data_part + ratios.logsumexp(0) - math.log(self.num_auxiliary)
