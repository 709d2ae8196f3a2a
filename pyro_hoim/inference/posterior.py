"""Posterior draws of theta by NUTS from sufficient statistics: a plain Pyro model, a good metric, several chains."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeGuard

import pyro
import torch
from pyro.distributions import Independent, Normal
from pyro.infer import MCMC
from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from pyro.util import get_rng_state, set_rng_seed, set_rng_state

from ..checks import check_exact_shape, check_finite
from ..core.partition import PartitionBackend
from ..data.observations import Observations
from ..errors import ConvergenceWarning, check_type, conflict, out_of_range, refused, unexpected, wrong_type
from ..log_linear.auto import Auto
from ..log_linear.coding import parametrization
from ..log_linear.laws.natural_parameters import MAX_DENSE_PARAMETERS, fisher_information, solve_natural_parameters
from ..log_linear.laws.normal import normal_prior
from ..log_linear.laws.priors import DiaconisYlvisaker
from ..log_linear.laws.statistics import LogLinearStatistics, statistics_of
from ..structure.hypergraph import InteractionHypergraph
from ._potential import PotentialNUTS, known_potential
from .kernels import FixedMassMatrix, RecordingNUTS, check_sampler_settings

__all__ = ["R_HAT_LIMIT", "Metric", "PosteriorSamples", "log_linear_model", "r_hat_limit", "sample_posterior"]

Metric = Literal["laplace", "adapt"]
R_HAT_LIMIT = 1.01
"""Largest R-hat of long chains that have converged, the one limit of the library; see :func:`r_hat_limit`."""
_R_HAT_NOISE = 1e-4


def r_hat_limit(num_chains: int, num_draws: int) -> float:
    r"""Largest split R-hat that is not held against chains of finite length: :data:`R_HAT_LIMIT` and its noise.

    .. math:: \hat R^2 = \frac{h - 1 + F}{h}, \qquad F \sim F_{2m - 1,\, 2m (h - 1)}

    for 2m half chains of h independent normal draws each; the limit is :data:`R_HAT_LIMIT` plus the excess over 1 of
    the value that one parameter in 10,000 passes. Four chains of 1,000 draws have 1.013.

    Args:
        num_chains: chains m.
        num_draws: draws per chain, 2h, at least 4.

    Returns:
        The limit, above 1.01.

    References:
        Vehtari et al., Rank-normalization, folding, and localization: an improved R-hat for assessing convergence of
        MCMC, Bayesian Analysis 16, 2021, for the value 1.01. The R-hat here is split but not rank-normalised, which
        the normal tails of these posteriors do not ask for.

    Example:
        >>> round(r_hat_limit(4, 1000), 4), round(r_hat_limit(2, 20), 2)
        (1.0133, 1.37)
    """
    from scipy import stats  # takes a second to import

    half = num_draws // 2
    excess = float(stats.f.isf(_R_HAT_NOISE, 2 * num_chains - 1, 2 * num_chains * (half - 1)))
    return R_HAT_LIMIT - 1 + math.sqrt((half - 1 + excess) / half)


def log_linear_model(
    hypergraph: InteractionHypergraph,
    prior: Any,
    counts: torch.Tensor | None,
    total_count: float,
    partition: PartitionBackend | None = None,
) -> torch.Tensor:
    r"""The Pyro model :math:`\theta \sim \text{prior}`, counts of N rows given theta; one log Z per evaluation.

    Sites are ``theta`` (free coordinates) and ``counts`` (marginal counts of every hyperedge), the latter observed
    unless ``counts`` is None.

    Args:
        hypergraph: the interactions.
        prior: distribution over the free coordinates, event shape (num_parameters,).
        counts: marginal counts t of shape (num_terms,), or None to simulate them.
        total_count: number of rows N.
        partition: exact backend; ``Auto()`` when None.

    Returns:
        theta (num_parameters,).

    Example:
        >>> from pyro_hoim.schema import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 2)
        >>> trace = pyro.poutine.trace(log_linear_model).get_trace(hypergraph, normal_prior(hypergraph), None, 10)
        >>> float(trace.nodes["counts"]["value"][:2].sum())
        10.0
    """
    theta = pyro.sample("theta", prior)
    law = LogLinearStatistics(hypergraph, theta, total_count, partition=partition)
    pyro.sample("counts", law, obs=counts)
    return theta


@dataclass(frozen=True, eq=False)
class PosteriorSamples:
    """Draws of theta and what is needed to judge and to use them.

    Attributes:
        hypergraph: the interactions.
        prior: the prior distribution.
        counts: marginal counts of every hyperedge, (num_terms,).
        total_count: number of rows N.
        theta: draws in the free coding, (num_chains, num_draws, num_parameters).
        seed: seed of the run.
        mcmc: Pyro's MCMC object after its run, with ``theta`` as its site.
        status: "converged", or "unconverged" when some split R-hat exceeds :func:`r_hat_limit` or a transition
            diverged.
    """

    hypergraph: InteractionHypergraph
    prior: Any
    counts: torch.Tensor
    total_count: float
    theta: torch.Tensor
    seed: int
    mcmc: MCMC = field(repr=False)
    status: Literal["converged", "unconverged"]

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.theta.shape[0]

    @property
    def num_draws(self) -> int:
        """Draws per chain."""
        return self.theta.shape[1]

    @property
    def flat_theta(self) -> torch.Tensor:
        """All draws, chain after chain, (num_chains * num_draws, num_parameters)."""
        return self.theta.flatten(0, 1)

    @property
    def tables(self) -> torch.Tensor:
        """Balanced interaction tables of every draw, (num_chains, num_draws, num_terms)."""
        return parametrization(self.hypergraph).to_tables(self.theta)

    @property
    def num_divergences(self) -> int:
        """Divergent transitions after warm-up, over all chains."""
        return sum(len(where) for where in self.mcmc.diagnostics()["divergences"].values())

    @property
    def r_hat(self) -> torch.Tensor:
        """Split R-hat of every free parameter, (num_parameters,)."""
        return split_gelman_rubin(self.theta, chain_dim=0, sample_dim=1)

    @property
    def ess(self) -> torch.Tensor:
        """Effective sample size of the mean of every free parameter over all chains, (num_parameters,)."""
        return effective_sample_size(self.theta, chain_dim=0, sample_dim=1)


def sample_posterior(
    hypergraph: InteractionHypergraph,
    data: Observations | torch.Tensor,
    prior: Any = 1.0,
    *,
    total_count: float | None = None,
    num_draws: int = 1000,
    num_warmup: int | None = None,
    num_chains: int = 4,
    seed: int = 0,
    metric: Metric | None = None,
    target_accept: float = 0.8,
    max_tree_depth: int = 10,
    partition: PartitionBackend | None = None,
    progress: bool = True,
) -> PosteriorSamples:
    r"""Draw from the posterior of theta with Pyro's NUTS; the cost of a step does not depend on the number of rows.

    The model is :func:`log_linear_model`; a conjugate prior is first updated in closed form, which leaves its
    posterior as the only site. With an exact backend and a normal or conjugate prior the program is traced once per
    chain, and NUTS then evaluates its potential directly: the same draws in less than half the time.

    The chains run one after the other in this process, on any machine, so that a seed gives the same draws everywhere
    and nothing is forked. With the ``laplace`` metric the mass matrix is the posterior's curvature at its mode, found
    by Newton's method, and chains start from draws of twice its spread around the mode; warm-up then only tunes the
    step size. With ``adapt`` chains start from the prior and Pyro's warm-up learns a diagonal metric.

    Args:
        hypergraph: the interactions.
        data: complete observations, or their marginal counts over every hyperedge.
        prior: a positive number (scale of :func:`~pyro_hoim.log_linear.normal_prior`), or a Pyro distribution over
            the free coordinates, such as the result of ``normal_prior`` or
            :class:`~pyro_hoim.log_linear.DiaconisYlvisaker`.
        total_count: number of rows N; needed with counts only.
        num_draws: draws kept per chain, at least 4.
        num_warmup: transitions before them; 200 with the laplace metric, else 500, when None.
        num_chains: number of chains.
        seed: seed of everything random; the global generators are left as they were.
        metric: "laplace" (default for normal and conjugate priors and at most 2,000 parameters) or "adapt".
        target_accept: acceptance probability that the step size is tuned to.
        max_tree_depth: largest number of doublings of a trajectory.
        partition: exact backend for log Z; when None that of a conjugate prior, else ``Auto()``.
        progress: show Pyro's progress bars on standard error.

    Shape:
        counts (num_terms,); the draws are (num_chains, num_draws, num_parameters), float64.

    Returns:
        The draws with their diagnostics: a Monte Carlo sample, exact in the limit of long chains.

    Raises:
        InputError: another domain, inconsistent counts, a prior of the wrong event shape, or numbers out of range.
        InputTypeError: arguments of the wrong type.
        MissingDataError: the observations have missing cells.
        IntractableError: log Z exceeds the backend's budget; found before anything is drawn.

    Warns:
        ConvergenceWarning: a split R-hat above :func:`r_hat_limit` or divergent transitions; ``status`` says so too.

    References:
        Matthew D. Hoffman and Andrew Gelman, The No-U-Turn sampler, JMLR 15, 2014.

    Example:
        >>> from pyro_hoim.schema import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> counts = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
        >>> result = sample_posterior(
        ...     hypergraph, counts, total_count=40, num_draws=200, num_chains=2, seed=1, progress=False
        ... )
        >>> result.theta.shape, result.num_divergences
        (torch.Size([2, 200, 2]), 0)
    """
    check_sampler_settings(num_draws, num_warmup, num_chains, target_accept, max_tree_depth)
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    if not hypergraph.num_parameters:
        raise refused("hypergraph", "it has no parameters to draw")
    counts, total = _counts(hypergraph, data, total_count)
    law = _prior(hypergraph, prior)
    if isinstance(law, DiaconisYlvisaker):
        law = law if partition is None else law.with_partition(partition)
        backend = law.partition
    else:
        backend = Auto() if partition is None else partition
    backend.plan(hypergraph).check()
    if metric not in (None, "laplace", "adapt"):
        raise unexpected("metric", "'laplace' or 'adapt'", metric, code="unknown-choice")
    has_curvature = isinstance(law, DiaconisYlvisaker) or _is_normal(law)
    if metric == "laplace" and not has_curvature:
        raise conflict("metric", "'laplace' needs a normal or conjugate prior", "use 'adapt'")
    if metric is None:
        metric = "laplace" if has_curvature and hypergraph.num_parameters <= MAX_DENSE_PARAMETERS else "adapt"
    state = get_rng_state()
    try:
        set_rng_seed(seed)
        options: dict[str, Any] = {"target_accept_prob": target_accept, "max_tree_depth": max_tree_depth}
        if isinstance(law, DiaconisYlvisaker):
            # One log Z per step instead of two: the posterior is known and needs no likelihood.
            model = partial(pyro.sample, "theta", law.posterior(counts, total))
        else:
            model = partial(log_linear_model, hypergraph, law, counts, total, backend)
        make = partial(PotentialNUTS, potential=known_potential(hypergraph, law, counts, total, backend))
        if metric == "laplace":
            mode, covariance = _laplace(hypergraph, law, counts, total, backend)
            kernel = make(model, full_mass=True, adapt_mass_matrix=False, **options)
            kernel.mass_matrix_adapter = FixedMassMatrix(covariance)
            noise = torch.randn(num_chains, len(mode), dtype=torch.float64)
            start = mode + 2 * noise @ torch.linalg.cholesky(covariance).mT
        else:
            kernel = make(model, **options)
            start = law.sample((num_chains,)).to(torch.float64)
        warmup = (200 if metric == "laplace" else 500) if num_warmup is None else num_warmup
        mcmc = _SequentialMCMC(kernel, num_draws, warmup, {"theta": start}, disable_progbar=not progress)
        mcmc.run()
    finally:
        set_rng_state(state)
    theta = mcmc.get_samples(group_by_chain=True)["theta"]
    result = PosteriorSamples(hypergraph, law, counts, total, theta, seed, mcmc, "converged")
    return _judged(result)


def _judged(result: PosteriorSamples) -> PosteriorSamples:
    """The same result with its status; warns when it is not converged."""
    r_hat = float(result.r_hat.max()) if result.theta.shape[-1] else 1.0
    divergences = result.num_divergences
    limit = r_hat_limit(result.num_chains, result.num_draws)
    if r_hat <= limit and not divergences:
        return result
    warnings.warn(
        f"posterior: largest R-hat {r_hat:.3f} (limit {limit:.3g}), {divergences} divergent transitions; take more "
        "warm-up or draws, or raise target_accept",
        ConvergenceWarning,
        stacklevel=3,
    )
    return replace(result, status="unconverged")


class _SequentialMCMC(MCMC):
    """Pyro's MCMC with its chains one after the other in this process, whatever the number of cores."""

    def __init__(
        self, kernel: RecordingNUTS, num_draws: int, num_warmup: int, start: dict[str, torch.Tensor], **options: Any
    ) -> None:
        # Built for one chain, which is what selects the sampler without processes, then told the real number.
        super().__init__(kernel, num_draws, num_warmup, **options)
        self.num_chains = len(next(iter(start.values())))
        self._diagnostics = [None] * self.num_chains
        self.sampler.num_chains = self.num_chains
        self.sampler.initial_params = start


def _laplace(
    hypergraph: InteractionHypergraph, prior: Any, counts: torch.Tensor, total: float, partition: PartitionBackend
) -> tuple[torch.Tensor, torch.Tensor]:
    """Posterior mode (P,) and inverse curvature (P, P) there, float64."""
    if isinstance(prior, DiaconisYlvisaker):
        posterior = prior.posterior(counts, total)
        mode = posterior.mode.double()
        curvature = float(posterior.prior_sample_size) * fisher_information(hypergraph, mode, partition)
    else:
        normal = prior.base_dist
        precision = normal.scale.double().reciprocal().square()
        mode = normal.loc.double()
        curvature = torch.diag(precision)
        if total > 0:
            mode = solve_natural_parameters(
                hypergraph, counts / total, partition, precision=precision / total, centre=normal.loc
            )
            curvature = curvature + total * fisher_information(hypergraph, mode, partition)
    return mode, torch.linalg.inv(curvature) if curvature.numel() else curvature


def _is_normal(prior: object) -> TypeGuard[Independent]:
    return isinstance(prior, Independent) and isinstance(prior.base_dist, Normal)


def _prior(hypergraph: InteractionHypergraph, prior: Any) -> Any:
    """The prior as a distribution in double precision over the free coordinates."""
    if isinstance(prior, int | float) and not isinstance(prior, bool):
        return normal_prior(hypergraph, float(prior), dtype=torch.float64)
    if not isinstance(prior, torch.distributions.Distribution):
        raise wrong_type("prior", "a positive number or a distribution", prior)
    if tuple(prior.event_shape) != (hypergraph.num_parameters,) or prior.batch_shape:
        expected = f"event shape ({hypergraph.num_parameters},) and no batch"
        found = f"event shape {tuple(prior.event_shape)} and batch shape {tuple(prior.batch_shape)}"
        raise unexpected("prior", expected, received=found, code="wrong-shape")
    if isinstance(prior, DiaconisYlvisaker):
        if prior.hypergraph != hypergraph:
            raise refused("prior", "it belongs to another hypergraph than the one given", code="other-domain")
        return prior.to(dtype=torch.float64)
    if _is_normal(prior):
        return Normal(prior.base_dist.loc.double(), prior.base_dist.scale.double()).to_event(1)
    return prior


def _counts(
    hypergraph: InteractionHypergraph, data: Observations | torch.Tensor, total_count: float | None
) -> tuple[torch.Tensor, float]:
    """Checked marginal counts (num_terms,), float64, and the number of rows."""
    if isinstance(data, Observations):
        if total_count is not None:
            raise conflict("total_count", "observations carry their own number of rows", "leave it out")
        return statistics_of(data, hypergraph), data.total_count
    if not isinstance(data, torch.Tensor):
        raise wrong_type("data", "Observations or a tensor of counts", data)
    if total_count is None:
        raise out_of_range("total_count", "the number of rows when data are marginal counts")
    counts = data.detach().double()
    check_exact_shape(counts, (hypergraph.num_terms,), "data")
    check_finite(counts, "data")
    flat = torch.zeros(hypergraph.num_parameters, dtype=torch.float64)
    LogLinearStatistics(hypergraph, flat, total_count, validate_args=True)._validate_sample(counts)
    return counts, float(total_count)
