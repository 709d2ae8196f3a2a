"""NUTS on a pseudo-posterior, and the linear maps that give its draws the sampling error of the estimate."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from pyro.distributions import Independent, Normal
from scipy import linalg, optimize
from typing_extensions import override

from ..core.laws.pseudo_likelihood import PseudoLikelihood
from ..errors import is_real, out_of_range, refused, wrong_type
from .kernels import FixedMassMatrix, NUTSSettings, PotentialNUTS, check_prior_shape
from .runner import MCMCRun, run_mcmc

Floats = NDArray[np.float64]
Calibration = Literal["curvature", "magnitude", "none"]

_SMALLEST_SHARE = 1e-10  # of the largest eigenvalue of the scores' correlations, below which they count as singular
_SCALES = 1e-100, 1e100  # standard deviations of priors whose precisions are numbers
_HALVINGS = 60
_BURN_IN = 200


class CalibratedDraws(NamedTuple):
    """Draws of one site from a pseudo-posterior, moved or not, with normal approximations at its mode.

    ``fault`` says in words that the mode was not found.
    """

    draws: torch.Tensor
    mode: torch.Tensor
    covariance: torch.Tensor
    plain_covariance: torch.Tensor
    run: MCMCRun
    fault: str


def draw_calibrated(
    program: Callable[..., Any],
    site: str,
    prior: Independent,
    likelihood: PseudoLikelihood,
    start: Floats,
    settings: NUTSSettings,
    *,
    calibrate: Calibration,
    seed: int,
    progress: bool,
) -> CalibratedDraws:
    """Draws (num_chains, num_draws, P) of a program's one site with a normal prior and the likelihood as a factor.

    The program takes the prior and the likelihood. The mode is looked for from ``start``, the mass matrix is the
    curvature there, and the warm-up, of 200 transitions unless the settings say another number, tunes the step size.
    """
    # Normal approximations at the mode: of the pseudo-posterior, and with the sampling error.
    mode, is_mode = find_mode(likelihood, prior, start)
    precision = _precision(prior)
    covariance = inverse_of(np.diag(precision) - likelihood.hessian(mode))
    target = calibrated_covariance(likelihood, mode, precision, calibrate)
    # The curvature is the mass matrix, so that warm-up has only the step size to find.
    kernel = _PseudoNUTS(
        program,
        lambda values: -(prior.log_prob(values[site]) + likelihood(values[site])),
        full_mass=True,
        adapt_mass_matrix=False,
        **settings.options,
    )
    kernel.mass_matrix_adapter = FixedMassMatrix(torch.from_numpy(covariance))
    run = run_mcmc(
        kernel,
        settings.num_draws,
        burn_in=_BURN_IN if settings.burn_in is None else settings.burn_in,
        num_chains=settings.num_chains,
        seed=seed,
        model_args=(prior, likelihood),
        initial_params={site: _starts(likelihood, mode, covariance, settings.num_chains, seed)},
        progress=progress,
    )
    # The map from one normal law to the other moves the draws.
    centre, draws = torch.from_numpy(mode), run.samples[site]
    if calibrate != "none":
        draws = centre + (draws - centre) @ torch.from_numpy(transport(covariance, target)).T
        run = replace(run, samples={site: draws})
    fault = "" if is_mode else "the mode was not found, "
    return CalibratedDraws(draws, centre, torch.from_numpy(target), torch.from_numpy(covariance), run, fault)


class _PseudoNUTS(PotentialNUTS):
    """NUTS whose statistics say, as those of the exchange algorithm do, that no posterior is left invariant."""

    @override
    def diagnostics(self) -> dict[str, Any]:
        report = super().diagnostics()
        record = report["sample_stats"]
        return {**report, "sample_stats": {**record, "is_exact": [0.0] * len(record["lp"])}, "is_exact": False}


def is_normal(prior: object) -> TypeGuard[Independent]:
    """Whether a prior is one of independent normals."""
    return isinstance(prior, Independent) and isinstance(prior.base_dist, Normal)


def normal_in_double(prior: Any, units: torch.Tensor) -> Independent:
    """Independent normals over unknowns (P,) in double precision; other distributions are refused.

    A number is the standard deviation, around zero, of every unknown times its unit.
    """
    if is_real(prior):
        if not _SCALES[0] <= float(prior) <= _SCALES[1]:
            raise out_of_range("prior", "a standard deviation from 1e-100 to 1e100", float(prior))
        scale = float(prior) / units.double()
        return Normal(torch.zeros_like(scale), scale).to_event(1)
    if not is_normal(prior):
        expected = "a positive number or Normal(...).to_event(1)"
        raise wrong_type("prior", expected, prior, "for another one write a program with the likelihood as a factor")
    check_prior_shape(prior, len(units))
    if not bool(((prior.base_dist.scale >= _SCALES[0]) & (prior.base_dist.scale <= _SCALES[1])).all()):
        raise out_of_range("prior", "standard deviations from 1e-100 to 1e100")
    loc, scale = (value.detach().double().cpu() for value in (prior.base_dist.loc, prior.base_dist.scale))
    return Normal(loc, scale).to_event(1)


def find_mode(likelihood: PseudoLikelihood, prior: Independent, start: Floats) -> tuple[Floats, bool]:
    """Mode of the pseudo-posterior (P,) by a trust-region Newton method, and whether its gradient vanishes."""
    # In units of the curvature at the start, in which a trust region is round.
    loc, precision = prior.base_dist.loc.numpy(), _precision(prior)
    scale = 1 / np.sqrt(np.diag(-likelihood.hessian(start)) + precision)  # unknowns of about unit curvature

    def loss(z: Floats) -> tuple[float, Floats]:
        vector = scale * z
        value, gradient = likelihood.value_and_gradient(vector)
        return 0.5 * float(precision @ (vector - loc) ** 2) - value, scale * (precision * (vector - loc) - gradient)

    def curvature(z: Floats) -> Floats:
        return scale[:, None] * (np.diag(precision) - likelihood.hessian(scale * z)) * scale

    solution = optimize.minimize(
        loss, start / scale, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-6, "maxiter": 500}
    )
    return scale * solution.x, bool(np.abs(loss(solution.x)[1]).max() <= 1e-4)


def calibrated_covariance(
    likelihood: PseudoLikelihood, mode: Floats, precision: Floats, calibrate: Calibration = "curvature"
) -> Floats:
    r"""Covariance (P, P) of the normal approximation at the mode, by how the pseudo-likelihood is calibrated.

    .. math:: (G + \Lambda)^{-1}, \qquad G = \begin{cases} H & \text{none} \\ H J^{-1} H & \text{curvature} \\
              k H, \quad k = P / \operatorname{tr}(H^{-1} J) & \text{magnitude} \end{cases}

    with H minus the Hessian of the log pseudo-likelihood, J the covariance of the scores of its rows times their
    number, and :math:`\Lambda` the diagonal ``precision`` of the prior. Without rows there is nothing to calibrate.
    """
    curvature, prior = -likelihood.hessian(mode), np.diag(precision)
    weights, total = likelihood.weights, float(likelihood.weights.sum())
    if calibrate == "none" or total == 0:
        return inverse_of(curvature + prior)
    # The spread of the scores must tell every direction from the others.
    if total > max(1, len(mode)):
        scores = likelihood.row_scores(mode)
        scores = scores - weights @ scores / total
        spread = total / (total - 1) * (scores.T * weights) @ scores
        scale = np.sqrt(np.diag(spread))
        if scale.all():
            values, vectors = linalg.eigh(spread / scale[:, None] / scale)
            if values[0] > _SMALLEST_SHARE * values[-1]:
                if calibrate == "magnitude":
                    return inverse_of(len(mode) / np.trace(inverse_of(curvature) @ spread) * curvature + prior)
                turned = vectors.T @ (curvature / scale[:, None])
                return inverse_of((turned.T / values) @ turned + prior)
    problem = f"the {total:g} rows do not tell {likelihood.num_unknowns} terms apart"
    raise refused("calibrate", problem, "take fewer terms or more rows, or do not calibrate", code="conflict")


def inverse_of(matrix: Floats) -> Floats:
    """Inverse of a positive definite matrix, whatever the units of its unknowns."""
    scale = 1 / np.sqrt(np.diag(matrix))
    inverse = linalg.inv(scale[:, None] * matrix * scale)
    return scale[:, None] * (inverse + inverse.T) / 2 * scale


def transport(source: Floats, target: Floats) -> Floats:
    """The matrix O with O source O' = target that is symmetric and positive in units of the source's spread.

    Of all such maps it moves draws least, in these units.
    """
    # In units of the source's spread, so that the map does not depend on those of the parameters.
    scale = np.sqrt(np.diag(source))
    source, target = source / scale[:, None] / scale, target / scale[:, None] / scale

    def root(matrix: Floats, power: float) -> Floats:
        values, vectors = linalg.eigh(matrix)
        return (vectors * np.maximum(values, 0.0) ** power) @ vectors.T

    half, back = root(source, 0.5), root(source, -0.5)
    return scale[:, None] * (back @ root(half @ target @ half, 0.5) @ back) / scale


def _precision(prior: Independent) -> Floats:
    return prior.base_dist.scale.reciprocal().square().numpy()


def _starts(likelihood: PseudoLikelihood, mode: Floats, covariance: Floats, num_chains: int, seed: int) -> torch.Tensor:
    """Starts of the chains, twice the spread around the mode, pulled towards it where there is no law."""
    random = np.random.default_rng([seed, 0])
    steps = 2 * random.standard_normal((num_chains, len(mode))) @ linalg.cholesky(covariance)
    for step in steps:
        for _ in range(_HALVINGS):
            if np.isfinite(likelihood.log_prob(mode + step)):
                break
            step /= 2
    return torch.from_numpy(mode + steps)
