"""Posterior draws of theta by NUTS from sufficient statistics: a plain Pyro model, a good metric, several chains."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pyro
import torch
from pyro.distributions import Normal
from pyro.infer import MCMC
from pyro.util import set_rng_seed

from ..checks import check_exact_shape, check_finite
from ..core.laws.pseudo_likelihood import PseudoLikelihood
from ..core.partition import PartitionBackend
from ..data.frames import DataLike, as_observations, is_frame
from ..data.observations import Observations
from ..errors import check_choice, check_type, conflict, is_real, out_of_range, out_of_reach, refused, wrong_type
from ..log_linear.auto import Auto
from ..log_linear.coding import parametrization
from ..log_linear.fitting.existence import check_data_possible
from ..log_linear.fitting.pseudo_likelihood import LogLinearPseudoLikelihood
from ..log_linear.impossible import PossibleStates
from ..log_linear.laws.natural_parameters import MAX_DENSE_PARAMETERS, fisher_information, solve_natural_parameters
from ..log_linear.laws.normal import normal_prior
from ..log_linear.laws.priors import DiaconisYlvisaker, known_potential
from ..log_linear.laws.statistics import LogLinearStatistics, statistics_of
from ..runs.arguments import checked_seed
from ..structure.hypergraph import InteractionHypergraph
from .calibration import Calibration, draw_calibrated, is_normal, normal_in_double
from .kernels import (
    FixedMassMatrix,
    NUTSSettings,
    PosteriorDraws,
    PotentialNUTS,
    RecordingNUTS,
    check_prior_shape,
    checked_settings,
)
from .runner import MCMCRun, random_state

Metric = Literal["laplace", "adapt"]


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

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import normal_prior
        >>> pair = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> counts = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
        >>> trace = pyro.poutine.trace(log_linear_model).get_trace(pair, normal_prior(pair, 1.0), counts, 40)
        >>> trace.nodes["theta"]["value"].shape
        torch.Size([2])
    """
    theta = pyro.sample("theta", prior)
    law = LogLinearStatistics(hypergraph, theta, total_count, partition=partition)
    pyro.sample("counts", law, obs=counts)
    return theta


class ThetaDraws(PosteriorDraws):
    """Draws of theta of a log-linear model; a dataclass of its own for every law they have."""

    hypergraph: InteractionHypergraph
    theta: torch.Tensor

    @property
    def parameters(self) -> torch.Tensor:
        """The draws of theta."""
        return self.theta

    @property
    def tables(self) -> torch.Tensor:
        """Balanced interaction tables of every draw, (num_chains, num_draws, num_terms)."""
        return parametrization(self.hypergraph).to_tables(self.theta)


@dataclass(frozen=True, eq=False)
class PosteriorSamples(ThetaDraws):
    """Draws of theta and what is needed to judge and to use them.

    Attributes:
        hypergraph: the interactions.
        prior: the prior distribution.
        counts: marginal counts of every hyperedge, (num_terms,).
        total_count: number of rows N.
        theta: draws (num_chains, num_draws, num_parameters) in the free coding, or in the corner coding of a family of
            corner tables.
        seed: seed of the run.
        run: Pyro's MCMC object after its run, with ``theta`` as its site.
        status: "converged", or "unconverged" when some split R-hat exceeds
            :func:`~pyro_hoim.inference.r_hat_limit` or a transition diverged.
    """

    hypergraph: InteractionHypergraph
    prior: Any
    counts: torch.Tensor
    total_count: float
    theta: torch.Tensor
    seed: int
    run: MCMC = field(repr=False)
    status: Literal["converged", "unconverged"]


def sample_posterior(
    hypergraph: InteractionHypergraph,
    data: DataLike | torch.Tensor,
    prior: Any = 1.0,
    settings: NUTSSettings | None = None,
    *,
    total_count: float | None = None,
    metric: Metric | None = None,
    seed: int = 0,
    partition: PartitionBackend | None = None,
    progress: bool = True,
) -> PosteriorSamples:
    """Draw from the posterior of theta with Pyro's NUTS; the cost of a step does not depend on the number of rows.

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
            theta in the coding of the family, such as the result of ``normal_prior`` or
            :class:`~pyro_hoim.log_linear.DiaconisYlvisaker`.
        settings: numbers of chains and draws, and how NUTS moves; a burn-in of None is 200 (metric laplace) or 500.
        total_count: number of rows N; needed with counts only.
        metric: "laplace" (default for normal and conjugate priors and at most 2,000 parameters) or "adapt".
        seed: seed of everything random; the global generators are left as they were.
        partition: exact backend for log Z; when None that of a conjugate prior, else ``Auto()``.
        progress: show Pyro's progress bars on standard error.

    Shape:
        counts (num_terms,); the draws are (num_chains, num_draws, num_parameters), float64.

    Raises:
        InputError: another domain, inconsistent counts, a prior of the wrong event shape, numbers out of range, or
            rows that hold what ``partition`` says is impossible.
        MissingDataError: the observations have missing cells.
        IntractableError: log Z exceeds the backend's budget; found before anything is drawn.

    Warns:
        ConvergenceWarning: a split R-hat above :func:`~pyro_hoim.inference.r_hat_limit` or divergent transitions;
            ``status`` says so too.

    References:
        Matthew D. Hoffman and Andrew Gelman, The No-U-Turn sampler, JMLR 15, 2014.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> counts = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
        >>> settings = NUTSSettings(num_chains=2, num_draws=200)
        >>> result = sample_posterior(hypergraph, counts, 1.0, settings, total_count=40, seed=1, progress=False)
        >>> result.theta.shape, result.num_divergences
        (torch.Size([2, 200, 2]), 0)
    """
    settings = checked_settings(settings)
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    if not hypergraph.num_parameters:
        raise refused("hypergraph", "it has no parameters to draw", code="empty")
    # Rows and prior, and a backend that log Z is within reach of.
    data = as_observations(data, domain=hypergraph.domain) if is_frame(data) else data
    counts, total = _counts(hypergraph, data, total_count)
    if isinstance(partition, PossibleStates):
        rows = data if isinstance(data, Observations) else counts
        check_data_possible(partition.impossible, hypergraph, rows, "partition")
    law = prior_of(hypergraph, prior)
    if isinstance(law, DiaconisYlvisaker):
        law = law if partition is None else law.with_partition(partition)
        backend = law.partition
    else:
        backend = Auto() if partition is None else partition
    backend.plan(hypergraph).check()
    check_choice(metric, ("laplace", "adapt", None), "metric")
    # What moves the chains: a known curvature, or a metric that warm-up learns.
    has_curvature = isinstance(law, DiaconisYlvisaker) or is_normal(law)
    if metric == "laplace" and not has_curvature:
        raise conflict("metric", "'laplace' needs a normal or conjugate prior", "use 'adapt'")
    if metric is None:
        metric = "laplace" if has_curvature and hypergraph.num_parameters <= MAX_DENSE_PARAMETERS else "adapt"
    # With "laplace" the curvature at the mode is the mass matrix, and chains start around the mode.
    with random_state(seed):
        set_rng_seed(int(seed))
        if isinstance(law, DiaconisYlvisaker):
            # One log Z per step instead of two: the posterior is known and needs no likelihood.
            model = partial(pyro.sample, "theta", law.posterior(counts, total))
        else:
            model = partial(log_linear_model, hypergraph, law, counts, total, backend)
        make = partial(PotentialNUTS, potential=known_potential(hypergraph, law, counts, total, backend))
        if metric == "laplace":
            if isinstance(law, DiaconisYlvisaker):
                posterior = law.posterior(counts, total)
                mode = posterior.mode.double()
                curvature = float(posterior.prior_sample_size) * fisher_information(hypergraph, mode, backend)
            else:
                normal = law.base_dist
                precision = normal.scale.double().reciprocal().square()
                mode = normal.loc.double()
                curvature = torch.diag(precision)
                if total > 0:
                    mode = solve_natural_parameters(
                        hypergraph, counts / total, backend, precision=precision / total, centre=normal.loc
                    )
                    curvature = curvature + total * fisher_information(hypergraph, mode, backend)
            covariance = torch.linalg.inv(curvature) if curvature.numel() else curvature
            kernel = make(model, full_mass=True, adapt_mass_matrix=False, **settings.options)
            kernel.mass_matrix_adapter = FixedMassMatrix(covariance)
            noise = torch.randn(settings.num_chains, len(mode), dtype=torch.float64)
            start = mode + 2 * noise @ torch.linalg.cholesky(covariance).mT
        else:
            kernel = make(model, **settings.options)
            start = law.sample((settings.num_chains,)).to(torch.float64)
        burn_in = (200 if metric == "laplace" else 500) if settings.burn_in is None else settings.burn_in
        mcmc = _SequentialMCMC(kernel, settings.num_draws, burn_in, {"theta": start}, disable_progbar=not progress)
        mcmc.run()
    theta = mcmc.get_samples(group_by_chain=True)["theta"]
    return PosteriorSamples(hypergraph, law, counts, total, theta, seed, mcmc, "converged").judged()


class _SequentialMCMC(MCMC):
    """Pyro's MCMC with its chains one after the other in this process, whatever the number of cores."""

    def __init__(
        self, kernel: RecordingNUTS, num_draws: int, burn_in: int, start: dict[str, torch.Tensor], **options: Any
    ) -> None:
        # Built for one chain, which is what selects the sampler without processes, then told the real number.
        super().__init__(kernel, num_draws, burn_in, **options)
        self.num_chains = len(next(iter(start.values())))
        self._diagnostics = [None] * self.num_chains
        self.sampler.num_chains = self.num_chains
        self.sampler.initial_params = start


def prior_of(hypergraph: InteractionHypergraph, prior: Any) -> Any:
    """The prior as a distribution in double precision over the free coordinates."""
    if is_real(prior):
        return normal_prior(hypergraph, float(prior), dtype=torch.float64)
    if not isinstance(prior, torch.distributions.Distribution):
        raise wrong_type("prior", "a positive number or a distribution", prior)
    return prior_in_double(hypergraph, prior)


def prior_in_double(hypergraph: InteractionHypergraph, prior: Any) -> Any:
    """A distribution over the free coordinates of a collection, of its shape and hypergraph, in double precision."""
    check_prior_shape(prior, hypergraph.num_parameters)
    if isinstance(prior, DiaconisYlvisaker):
        if prior.hypergraph != hypergraph:
            raise refused("prior", "it belongs to another hypergraph than the one given", code="other-domain")
        return prior.to(dtype=torch.float64)
    if is_normal(prior):
        return Normal(prior.base_dist.loc.double(), prior.base_dist.scale.double()).to_event(1)
    return prior


def _counts(hypergraph: InteractionHypergraph, data: Any, total_count: float | None) -> tuple[torch.Tensor, float]:
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


# Pseudo-posterior of theta of a log-linear model: NUTS without log Z, and draws calibrated to the sampling error.


def pseudo_model(prior: Any, likelihood: PseudoLikelihood) -> torch.Tensor:
    r"""The Pyro model :math:`\theta \sim \text{prior}` with the log pseudo-likelihood of rows as the factor ``rows``.

    Args:
        prior: distribution over theta, event shape (num_parameters,).
        likelihood: of the rows, such as a :class:`~pyro_hoim.log_linear.LogLinearPseudoLikelihood`.

    Example:
        >>> from pyro_hoim import load_table
        >>> rows = load_table("ucb_admissions")
        >>> pairs = InteractionHypergraph.from_order(rows.domain, 2)
        >>> prior = normal_prior(pairs, 1.0, dtype=torch.float64)
        >>> trace = pyro.poutine.trace(pseudo_model).get_trace(prior, LogLinearPseudoLikelihood(pairs, rows))
        >>> trace.nodes["theta"]["value"].shape, trace.nodes["rows"]["is_observed"]
        (torch.Size([18]), True)
    """
    theta = pyro.sample("theta", prior)
    pyro.factor("rows", likelihood(theta))
    return theta


@dataclass(frozen=True, eq=False)
class PseudoPosterior(ThetaDraws):
    """Draws of theta from a pseudo-posterior and what is needed to judge and to use them.

    Attributes:
        hypergraph: the interactions.
        prior: independent normals over theta.
        theta: draws in the free coding, in the corner coding of a corner family, (num_chains, num_draws,
            num_parameters), moved as ``calibrate`` says.
        mode: of the pseudo-posterior, (num_parameters,).
        covariance: normal approximation of that of theta at the mode; calibrated as theta is.
        plain_covariance: the one without calibration, the inverse curvature of the pseudo-posterior at its mode.
        calibrate: "curvature", "magnitude" or "none".
        seed: seed of the run.
        run: the draws, as ``theta``, with NUTS's statistics, which are those of the draws before they were moved;
            :func:`pyro_hoim.interop.to_arviz` takes it.
        status: "converged", or "unconverged" when some split R-hat exceeds
            :func:`~pyro_hoim.inference.r_hat_limit` or a transition diverged.
        is_exact: False: even in the limit of infinitely many draws this is not the posterior.
    """

    hypergraph: InteractionHypergraph
    prior: Any
    theta: torch.Tensor
    mode: torch.Tensor
    covariance: torch.Tensor
    plain_covariance: torch.Tensor
    calibrate: Calibration
    seed: int
    run: MCMCRun = field(repr=False)
    status: Literal["converged", "unconverged"]
    is_exact: Literal[False] = False


def sample_pseudo_posterior(
    hypergraph: InteractionHypergraph,
    data: DataLike,
    prior: Any = 1.0,
    settings: NUTSSettings | None = None,
    *,
    calibrate: Calibration = "curvature",
    seed: int = 0,
    progress: bool = True,
) -> PseudoPosterior:
    r"""Draw theta from its pseudo-posterior with NUTS; no partition function is needed, at any number of columns.

    The model is :func:`pseudo_model`. Its mode is found by a trust-region Newton method and the mass matrix is the
    curvature there; warm-up only tunes the step size. A pseudo-likelihood counts what an interaction tells once for
    each of its variables, so its posterior is too narrow, by about the root of 2 for a pair. Draws are moved by the
    linear map

    .. math:: \theta \mapsto \theta^* + \Omega (\theta - \theta^*), \qquad
              \Omega (H + \Lambda)^{-1} \Omega^\top = (G + \Lambda)^{-1}

    that takes the normal approximation of the pseudo-posterior at its mode to one with the sampling error of the
    estimate; of all such maps it is the one that moves draws least, in units of their spread. H is minus the Hessian of
    the log pseudo-likelihood, :math:`\Lambda` the precision of the prior, and J the covariance of the rows' scores:

    * "curvature": :math:`G = H J^{-1} H`, whose inverse is the sandwich: every direction gets its own factor;
    * "magnitude": :math:`G = k H` with :math:`k = P / \operatorname{tr}(H^{-1} J)`, which under a flat prior is one
      factor :math:`k^{-1/2}` for all P coordinates: right on average, not for single variables and for pairs alike;
    * "none": the draws as they are.

    None of them is the posterior (``is_exact`` is False): calibration is an approximation for many rows, needs more
    rows than parameters, and leaves the mode where it is. Where log Z is within reach take
    :func:`~pyro_hoim.inference.sample_posterior`; where it is not, :class:`~pyro_hoim.inference.Exchange` costs more
    and is exact, or nearly so.

    Args:
        hypergraph: the interactions.
        data: complete rows with whole counts; without any the draws are those of the prior.
        prior: a positive number, the scale of :func:`~pyro_hoim.log_linear.normal_prior`; or a
            ``Normal(...).to_event(1)`` over the free coordinates, such as
            :func:`~pyro_hoim.log_linear.unit_information_prior` makes.
        settings: numbers of chains and draws, and how NUTS moves; a burn-in of None is 200.
        calibrate: see above.
        seed: seed of everything random; the global generators are left as they were.
        progress: show a progress bar on standard error.

    Shape:
        the draws are (num_chains, num_draws, num_parameters), float64.

    Raises:
        InputError: another domain, fractional counts, no parameters, numbers out of range, a prior of the wrong event
            shape, or calibration with too few rows to tell the parameters apart.
        InputTypeError: arguments of another type, or another prior.
        MissingDataError: missing cells.
        IntractableError: more than 2,000 parameters.

    Warns:
        ConvergenceWarning: a split R-hat above :func:`~pyro_hoim.inference.r_hat_limit`, divergent transitions, or a
            mode that was not found; ``status`` says so too.

    References:
        Mathieu Ribatet, Daniel Cooley and Anthony Davison, Bayesian inference from composite likelihoods, Statistica
        Sinica 22, 2012, for both kinds; Benjamin Shaby, The open-faced sandwich adjustment for MCMC using estimating
        functions, Journal of Computational and Graphical Statistics 23, 2014, for moving the draws.

    Example:
        >>> from pyro_hoim import load_table
        >>> data = load_table("czech_autoworkers")
        >>> pairs = InteractionHypergraph.from_order(data.domain, 2)
        >>> settings = NUTSSettings(num_chains=1, num_draws=50, burn_in=30)
        >>> found = sample_pseudo_posterior(pairs, data, 1.0, settings, seed=1, progress=False)
        >>> wider = (found.covariance.diagonal() / found.plain_covariance.diagonal()).sqrt()
        >>> found.theta.shape, [round(float(factor), 1) for factor in wider[[0, 6]]]  # of a variable and of a pair
        (torch.Size([1, 50, 21]), [1.2, 1.5])
    """
    settings = checked_settings(settings)
    seed = checked_seed(seed)
    check_choice(calibrate, get_args(Calibration), "calibrate")
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    # A dense Hessian needs few parameters, and calibration whole rows.
    size = hypergraph.num_parameters
    if not size:
        raise refused("hypergraph", "it has no parameters to draw", code="empty")
    if size > MAX_DENSE_PARAMETERS:
        raise out_of_reach("hypergraph", f"{size} parameters, the limit of a dense Hessian is {MAX_DENSE_PARAMETERS}")
    law = normal_in_double(prior, torch.ones(size))
    data = as_observations(data, domain=hypergraph.domain)
    likelihood = LogLinearPseudoLikelihood(hypergraph, data)
    if not data.has_whole_counts:
        hint = "give whole counts, or write a program with pseudo_model, whose likelihood takes weights"
        raise conflict("data", "fractional counts do not tell how many rows there are", hint)
    options: dict[str, Any] = {"calibrate": calibrate, "seed": seed, "progress": progress}
    arguments = pseudo_model, "theta", law, likelihood, np.zeros(size), settings
    theta, mode, covariance, plain, run, fault = draw_calibrated(*arguments, **options)
    result = PseudoPosterior(hypergraph, law, theta, mode, covariance, plain, calibrate, seed, run, "converged")
    return result.judged(fault)
