"""Pseudo-posterior of theta of a log-linear model: NUTS without log Z, and draws calibrated to the sampling error."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pyro
import torch

from ..core.laws.pseudo_likelihood import PseudoLikelihood
from ..data.frames import DataLike, as_observations
from ..errors import check_choice, check_type, conflict, out_of_reach, refused
from ..log_linear.fitting.pseudo_likelihood import LogLinearPseudoLikelihood
from ..log_linear.laws.natural_parameters import MAX_DENSE_PARAMETERS
from ..log_linear.laws.normal import normal_prior
from ..runs.arguments import checked_seed
from ..structure.hypergraph import InteractionHypergraph
from .calibration import Calibration, checked_scale, draw_calibrated, normal_in_double
from .kernels import NUTSSettings
from .posterior import ThetaDraws
from .runner import MCMCRun

__all__ = ["PseudoPosterior", "pseudo_model", "sample_pseudo_posterior"]


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

    Example:
        >>> from pyro_hoim import load_table
        >>> rows = load_table("ucb_admissions")
        >>> pairs = InteractionHypergraph.from_order(rows.domain, 2)
        >>> settings = NUTSSettings(num_chains=1, num_draws=20, burn_in=20)
        >>> found = sample_pseudo_posterior(pairs, rows, calibrate="none", settings=settings, seed=1, progress=False)
        >>> found.theta.shape, found.is_exact, bool((found.covariance == found.plain_covariance).all())
        (torch.Size([1, 20, 18]), False, True)
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
    settings = NUTSSettings() if settings is None else settings
    check_type(settings, NUTSSettings, "settings")
    seed = checked_seed(seed)
    check_choice(calibrate, get_args(Calibration), "calibrate")
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    size = hypergraph.num_parameters
    if not size:
        raise refused("hypergraph", "it has no parameters to draw", code="empty")
    if size > MAX_DENSE_PARAMETERS:
        raise out_of_reach("hypergraph", f"{size} parameters, the limit of a dense Hessian is {MAX_DENSE_PARAMETERS}")
    if isinstance(prior, numbers.Real) and not isinstance(prior, bool):
        prior = normal_prior(hypergraph, checked_scale(float(prior)), dtype=torch.float64)
    law = normal_in_double(prior, size)
    data = as_observations(data, domain=hypergraph.domain)
    likelihood = LogLinearPseudoLikelihood(hypergraph, data)
    if not data.has_whole_counts:
        hint = "give whole counts, or write a program with pseudo_model, whose likelihood takes weights"
        raise conflict("data", "fractional counts do not tell how many rows there are", hint)
    start = np.zeros(size)
    found = draw_calibrated(
        pseudo_model, "theta", law, likelihood, start, settings, calibrate=calibrate, seed=seed, progress=progress
    )
    result = PseudoPosterior(
        hypergraph,
        law,
        found.draws,
        found.mode,
        found.covariance,
        found.plain_covariance,
        calibrate,
        seed,
        found.run,
        "converged",
    )
    return result.judged("" if found.is_mode else "the mode was not found, ")
