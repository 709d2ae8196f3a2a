"""Prior and posterior predictive checks: replicated tables, discrepancies with p values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..budgets import check_cells
from ..core.partition import PartitionBackend
from ..data.encoding import LARGEST_COUNT
from ..data.frames import DataLike, as_observations, is_frame
from ..data.observations import Observations
from ..errors import check_choice, check_whole, out_of_reach, refused, size_text, unexpected, wrong_type
from ..log_linear.laws.law import HierarchicalLogLinear
from ..log_linear.laws.statistics import LogLinearStatistics, multinomial_counts, statistics_of
from ..structure.hypergraph import InteractionHypergraph

Discrepancy = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Level = Literal["cells", "margins"]


@dataclass(frozen=True, eq=False)
class Replicates:
    """Data sets simulated from draws of theta, as counts.

    Attributes:
        hypergraph: the interactions of the model that simulated them.
        theta: the draws, (num_draws, num_parameters).
        total_count: rows per data set, that of the observed data.
        level: "cells" for counts of every joint cell, "margins" for the model's own sufficient statistics.
        counts: one data set per draw, (num_draws, size): joint cells in row-major order, or the flat layout of the
            hyperedges' tables.
        expected: their expectation given the draw, same shape.
    """

    hypergraph: InteractionHypergraph
    theta: torch.Tensor
    total_count: int
    level: Level
    counts: torch.Tensor
    expected: torch.Tensor


@dataclass(frozen=True, eq=False)
class PredictiveCheck:
    """A discrepancy of the observed data against replicated ones.

    Attributes:
        observed: discrepancy of the observed data under every draw, (num_draws,).
        replicated: discrepancy of that draw's replicate, (num_draws,).
        p_value: share of draws whose replicate is at least as discrepant, a tie counting one half. Near 0: the data
            are more discrepant than the model's; near 1: less.
        std_error: Monte Carlo standard error of ``p_value`` if draws were independent.
    """

    observed: torch.Tensor
    replicated: torch.Tensor
    p_value: float
    std_error: float


def posterior_predictive(
    hypergraph: InteractionHypergraph,
    theta: torch.Tensor,
    total_count: int,
    *,
    level: Level = "cells",
    seed: int = 0,
    max_cells: int = 2**26,
    partition: PartitionBackend | None = None,
) -> Replicates:
    """One replicated data set of N rows for every draw of theta: exact multinomial counts, in a time free of N.

    Args:
        hypergraph: the interactions.
        theta: draws in the free coding, from the posterior or elsewhere; leading dimensions are flattened.
        total_count: rows N per data set, usually that of the observed data.
        level: keep counts of "cells" or only of "margins" (every hyperedge), for tables too large to hold.
        seed: seed of the simulation; the global generator is left as it was.
        max_cells: largest number of cells held over all draws.
        partition: exact backend; ``Auto()`` when None.

    Shape:
        theta ``(*draws, num_parameters)``; counts (number of draws, number of cells or num_terms).

    Raises:
        InputError: wrong shapes, no draws, a bad ``level`` or ``total_count``.
        IntractableError: the cells exceed ``max_cells``, or the law exceeds the backend's budget.

    References:
        Gelman, Meng and Stern, Posterior predictive assessment of model fitness via realized discrepancies, 1996.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> replicates = posterior_predictive(hypergraph, torch.zeros(3, 2), 100)
        >>> observed = Observations.from_table(hypergraph.domain, [[50, 0], [0, 50]])
        >>> replicates.counts.shape, predictive_check(replicates, observed).p_value
        (torch.Size([3, 4]), 0.0)
    """
    if not isinstance(theta, torch.Tensor) or not theta.is_floating_point():
        raise wrong_type("theta", "a tensor of floating-point numbers")
    check_choice(level, ("cells", "margins"), "level")
    # What would be held is known before anything is drawn.
    count = check_whole(total_count, "total_count", most=LARGEST_COUNT)
    if theta.dim() < 1 or not theta.numel():
        expected = f"draws of shape (..., {hypergraph.num_parameters})"
        raise unexpected("theta", expected, received="none", code="wrong-shape")
    number = math.prod(theta.shape[:-1])
    size = number * (hypergraph.domain.num_states if level == "cells" else hypergraph.num_terms)
    if size > max_cells:
        problem = f"needs {size_text(size, 'counts')} over {number} draws, the budget is {max_cells}"
        raise out_of_reach(f"level {level!r}", problem, "raise max_cells, pass fewer draws, or use level='margins'")
    # Counts of cells, or of the margins that the model knows, each with its expectation.
    draws = theta.detach().reshape(-1, theta.shape[-1])
    law = HierarchicalLogLinear(hypergraph, draws, partition=partition)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if level == "cells":
            probs = law.probs.reshape(len(draws), -1)
            totals = torch.full((len(draws),), float(count), dtype=torch.float64)
            counts = multinomial_counts(totals, probs.double()).to(probs)
            return Replicates(hypergraph, draws, count, level, counts, count * probs)
        counts = LogLinearStatistics(hypergraph, draws, count, partition=partition).sample()
        return Replicates(hypergraph, draws, count, level, counts, count * law.eta)


def prior_predictive(
    hypergraph: InteractionHypergraph,
    prior: Any,
    total_count: int,
    *,
    num_draws: int = 1000,
    level: Level = "cells",
    seed: int = 0,
    max_cells: int = 2**26,
    partition: PartitionBackend | None = None,
) -> Replicates:
    """Data sets of N rows simulated from the prior: what the prior says before any data.

    Args:
        hypergraph: the interactions.
        prior: distribution over the free coordinates with exact draws.
        total_count: rows N per data set.
        num_draws: number of data sets.
        level: as in :func:`posterior_predictive`, like what follows.
        seed: likewise, of theta too.
        max_cells: likewise.
        partition: likewise.

    Raises:
        InputError: as in :func:`posterior_predictive`.
        IntractableError: the prior cannot be drawn from exactly (a conjugate prior that is not decomposable), or the
            budget is exceeded.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import normal_prior
        >>> pair = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 2)
        >>> found = prior_predictive(pair, normal_prior(pair, 1.0), 100, num_draws=5)
        >>> found.counts.shape, found.counts.sum(1).tolist()
        (torch.Size([5, 4]), [100.0, 100.0, 100.0, 100.0, 100.0])
    """
    if not getattr(prior, "sample_is_exact", True):
        problem = "its sample() is a proposal, not a draw from it (see sample_is_exact)"
        hint = (
            "draw theta by NUTS, for instance with sample_posterior on zero counts, and pass the draws to "
            "posterior_predictive"
        )
        raise out_of_reach("prior", problem, hint, code="no-method")
    check_cells(check_whole(num_draws, "num_draws"), hypergraph.num_parameters, "num_draws")
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        theta = prior.sample((num_draws,))
        fresh = int(torch.randint(2**62, ()))
    return posterior_predictive(
        hypergraph, theta, total_count, level=level, seed=fresh, max_cells=max_cells, partition=partition
    )


def _deviance(counts: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """G2 of counts from expected counts, over the last dimension."""
    counts, expected = torch.broadcast_tensors(counts, expected)
    return 2 * torch.xlogy(counts, torch.where(counts > 0, counts / expected, 1.0)).sum(-1)


def _pearson(counts: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """X2 of counts from expected counts, over the last dimension."""
    return ((counts - expected).square() / expected).sum(-1)


def predictive_check(
    replicates: Replicates,
    observed: DataLike | torch.Tensor,
    discrepancy: Literal["deviance", "pearson"] | Discrepancy = "deviance",
) -> PredictiveCheck:
    """Compare a discrepancy of the observed data with that of the replicates, draw by draw.

    Args:
        replicates: from :func:`posterior_predictive` or :func:`prior_predictive`.
        observed: complete observations, or their counts in the replicates' layout.
        discrepancy: "deviance" (G2), "pearson" (X2), or a function of counts and expected counts, both
            (num_draws, size), that returns (num_draws,). Any statistic of the counts alone will do.

    Raises:
        InputError: another domain, another number of rows, or a discrepancy of the wrong shape.
        MissingDataError: the observations have missing cells.

    Example:
        >>> from pyro_hoim import Domain
        >>> pair = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> found = posterior_predictive(pair, torch.zeros(3, 2), 100)
        >>> predictive_check(found, torch.tensor([25, 25, 25, 25])).p_value  # no table is closer to its expectation
        1.0
    """
    if isinstance(discrepancy, str):
        check_choice(discrepancy, ("deviance", "pearson"), "discrepancy")
    named: dict[str, Discrepancy] = {"deviance": _deviance, "pearson": _pearson}
    function = named[discrepancy] if isinstance(discrepancy, str) else discrepancy
    # Counts of the observed data in the replicates' layout, (size,).
    size = replicates.counts.shape[-1]
    if is_frame(observed):
        observed = as_observations(observed, domain=replicates.hypergraph.domain, argument="observed")
    # Rows are counted; counts are taken in either layout.
    if isinstance(observed, Observations):
        margins = statistics_of(observed, replicates.hypergraph)
        counts = observed.table().reshape(-1) if replicates.level == "cells" else margins
        total = observed.total_count
    elif isinstance(observed, torch.Tensor):
        counts = observed.detach()
        if replicates.level == "cells" and counts.shape == replicates.hypergraph.domain.cardinalities:
            counts = counts.reshape(-1)
        if counts.shape != (size,):
            raise unexpected("observed", f"counts of shape ({size},)", received=tuple(counts.shape), code="wrong-shape")
        edges = replicates.hypergraph.term_slices
        first = slice(None) if replicates.level == "cells" else next(iter(edges.values()), slice(0))
        total = float(counts[first].sum())
    else:
        raise wrong_type("observed", "Observations or counts", observed)
    # Replicates of another number of rows tell nothing of these.
    if abs(total - replicates.total_count) > 1e-6 * replicates.total_count and size:
        problem = f"it has {total:g} rows, the replicates have {replicates.total_count} each"
        raise refused("observed", problem, code="other-domain")
    # Both discrepancies are from the expectation under the same draw.
    counts = counts.to(replicates.counts).expand_as(replicates.counts)
    seen = function(counts, replicates.expected)
    simulated = function(replicates.counts, replicates.expected)
    for value in (seen, simulated):
        if value.shape != replicates.counts.shape[:1]:
            expected = f"one value per draw, shape {tuple(replicates.counts.shape[:1])}"
            raise unexpected("discrepancy", expected, received=tuple(value.shape), code="wrong-shape")
    # Values that agree up to rounding are ties.
    gap = simulated - seen
    is_tie = gap.abs() <= 1e-9 * (1 + seen.abs())
    p_value = float(torch.where(is_tie, 0.5, (gap > 0).double()).mean())
    return PredictiveCheck(seen, simulated, p_value, math.sqrt(p_value * (1 - p_value) / len(seen)))
