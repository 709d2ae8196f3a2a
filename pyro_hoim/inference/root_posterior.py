"""Pseudo-posterior of the entries of a generalized root model: a Pyro model, its draws and their calibration."""

from __future__ import annotations

import numbers
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from pyro.distributions import Independent, Normal
from scipy import linalg, optimize

from ..errors import ConvergenceWarning, check_type, out_of_range, refused, wrong_type
from ..generalized_root.energy import GeneralizedRootEnergy
from ..generalized_root.nodes.families import NodeFamily
from ..generalized_root.pseudo_likelihood import RootPseudoLikelihood
from ..generalized_root.structure import RootStructure
from ..runs.arguments import checked_seed
from .kernels import FixedMassMatrix, NUTSSettings, PosteriorDraws, PotentialNUTS, check_prior_shape
from .runner import MCMCRun, run_mcmc

__all__ = ["RootPosterior", "root_pseudo_model", "sample_root_posterior"]

Floats = NDArray[np.float64]

_MOST_TERMS = 2000
_SMALLEST_SHARE = 1e-10  # of the largest eigenvalue of the scores' correlations, below which they count as singular
_SCALES = 1e-100, 1e100  # standard deviations of priors whose precisions are numbers
_HALVINGS = 60


def root_pseudo_model(prior: Any, likelihood: RootPseudoLikelihood) -> torch.Tensor:
    r"""The Pyro model :math:`\psi \sim \text{prior}` with the log pseudo-likelihood of rows as the factor ``rows``.

    Args:
        prior: distribution over psi, event shape (num_terms,).
        likelihood: of the rows.
    """
    psi = pyro.sample("psi", prior)
    pyro.factor("rows", likelihood(psi))
    return psi


@dataclass(frozen=True, eq=False)
class RootPosterior(PosteriorDraws):
    """Draws of psi and what is needed to judge and to use them.

    Attributes:
        structure: the terms.
        family: base family.
        psi: draws, (num_chains, num_draws, num_terms); calibrated where ``is_calibrated``.
        mode: of the pseudo-posterior, (num_terms,).
        covariance: normal approximation of that of psi at the mode, (num_terms, num_terms); calibrated as psi is.
        plain_covariance: the one without calibration, the inverse curvature of the pseudo-posterior at its mode.
        is_calibrated: whether the draws were spread to the sampling error of the estimate.
        num_lawless: calibrated draws at which the conditional of some observed cell has no law (reals only).
        run: the draws, as ``psi``, with NUTS's statistics, which are those of the draws before calibration;
            :func:`pyro_hoim.interop.to_arviz` takes it.
        status: "converged", or "unconverged" when some split R-hat exceeds
            :func:`~pyro_hoim.inference.r_hat_limit` or a transition diverged.
    """

    structure: RootStructure
    family: NodeFamily
    psi: torch.Tensor
    mode: torch.Tensor
    covariance: torch.Tensor
    plain_covariance: torch.Tensor
    is_calibrated: bool
    num_lawless: int
    run: MCMCRun = field(repr=False)
    status: Literal["converged", "unconverged"]

    @property
    def coefficients(self) -> torch.Tensor:
        """Coefficients l! psi of the products of roots, (num_chains, num_draws, num_terms)."""
        return self.psi * self.structure.multiplicity.to(self.psi)

    @property
    def term_names(self) -> list[str]:
        """A name of every entry, such as ``a:b``; with its root, ``a:b^(1/3)``, where that is not the usual one."""
        return [
            ":".join(names) + ("" if root == length else f"^(1/{root})")
            for (root, length), names in self.structure.names
        ]

    @property
    def energy(self) -> GeneralizedRootEnergy:
        """The models of all draws, batch shape (num_chains, num_draws).

        Conditionals that have a law do not make a joint law of reals: ask
        :func:`~pyro_hoim.generalized_root.check_normalizable` of a draw before it is used as one.
        """
        return GeneralizedRootEnergy(self.structure, self.psi, self.family)

    @property
    def parameters(self) -> torch.Tensor:
        """The draws of psi."""
        return self.psi

    def __repr__(self) -> str:
        spread = "calibrated" if self.is_calibrated else "not calibrated"
        chains, draws, terms = self.psi.shape
        return f"RootPosterior({chains} chains, {draws} draws, {terms} terms, {spread}, {self.status})"


def sample_root_posterior(
    structure: RootStructure,
    rows: torch.Tensor,
    family: NodeFamily,
    prior: Any = 3.0,
    settings: NUTSSettings | None = None,
    *,
    weights: torch.Tensor | None = None,
    calibrate: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> RootPosterior:
    r"""Draw psi from its pseudo-posterior with Pyro's NUTS; no partition function is needed, at any number of columns.

    The model is :func:`root_pseudo_model`. Its mode is found by a trust-region Newton method and the mass matrix is the
    curvature there; warm-up only tunes the step size. A pseudo-likelihood counts what a tuple tells once for each of
    its members, so its posterior is too narrow, by about the root of 2 for a pair. With ``calibrate`` the draws are
    moved by the linear map that takes the normal approximation of the pseudo-posterior to one with the sampling error
    of the estimate,

    .. math:: \psi \mapsto \hat\psi + \Omega (\psi - \hat\psi), \qquad
              \Omega (H + \Lambda)^{-1} \Omega^\top = (H J^{-1} H + \Lambda)^{-1}

    with H minus the Hessian of the log pseudo-likelihood, J the covariance of the rows' scores and :math:`\Lambda` the
    precision of the prior; of all such maps it is the one that moves draws least, in units of their spread. That is an
    approximation for many rows; it needs more rows than terms, and may move draws of a model of reals to where there
    is no law (``num_lawless``). Where log Z is exact, observing
    :class:`~pyro_hoim.generalized_root.GeneralizedRoot` gives the true posterior instead.

    Args:
        structure: the terms.
        rows: states.
        family: base family.
        prior: a positive number, the standard deviation of independent normal priors with mean zero of the
            *coefficients* l! psi; or a ``Normal(...).to_event(1)`` over psi.
        settings: numbers of chains and draws, and how NUTS moves; a burn-in of None is 200.
        weights: how often each row was seen; each once when None.
        calibrate: see above.
        seed: seed of everything random; the global generators are left as they were.
        progress: show a progress bar on standard error.

    Shape:
        rows (n, d); weights (n,); the draws are (num_chains, num_draws, num_terms), float64.

    Raises:
        InputError: values outside the support, wrong shapes, numbers out of range, no terms or more than 2,000, terms
            that leave a real column without a law at the start, or ``calibrate`` with too few rows to tell the terms
            apart.
        InputTypeError: arguments of another type, or another prior.

    Warns:
        ConvergenceWarning: a split R-hat above :func:`~pyro_hoim.inference.r_hat_limit`, divergent transitions, or a
            mode that was not found, which ``status`` says too; calibrated draws without conditional laws.

    References:
        Inouye, Ravikumar and Dhillon, Generalized Root Models, 2016, section 4, for the pseudo-likelihood; Benjamin
        Shaby, The open-faced sandwich adjustment for MCMC using estimating functions, Journal of Computational and
        Graphical Statistics 23, 2014, for moving the draws.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
        >>> rows = torch.tensor([[3.0], [5.0], [4.0], [4.0], [1.0], [7.0]])
        >>> settings = NUTSSettings(num_draws=99, burn_in=50)
        >>> found = sample_root_posterior(structure, rows, PoissonFamily(), 3.0, settings, progress=False)
        >>> found.psi.shape, round(found.mode.exp().item(), 1)
        (torch.Size([4, 99, 1]), 4.0)
    """
    settings = NUTSSettings() if settings is None else settings
    check_type(settings, NUTSSettings, "settings")
    seed = checked_seed(seed)
    check_type(calibrate, bool, "calibrate", "True or False")
    check_type(structure, RootStructure, "structure")
    if not 0 < structure.num_terms <= _MOST_TERMS:
        raise out_of_range("structure", f"1 to {_MOST_TERMS} terms", received=structure.num_terms)
    law = _prior(structure, prior)
    likelihood = RootPseudoLikelihood(structure, rows, family, weights)
    mode, is_mode = _mode(likelihood, law, rows)
    precision = law.base_dist.scale.reciprocal().square().numpy()
    covariance = _inverse(-likelihood.hessian(mode) + np.diag(precision))
    target = _calibrated(likelihood, mode, precision) if calibrate else covariance
    kernel = PotentialNUTS(
        root_pseudo_model,
        lambda values: -(law.log_prob(values["psi"]) + likelihood(values["psi"])),
        full_mass=True,
        adapt_mass_matrix=False,
        **settings.options,
    )
    kernel.mass_matrix_adapter = FixedMassMatrix(torch.from_numpy(covariance))
    run = run_mcmc(
        kernel,
        settings.num_draws,
        burn_in=200 if settings.burn_in is None else settings.burn_in,
        num_chains=settings.num_chains,
        seed=seed,
        model_args=(law, likelihood),
        initial_params={"psi": _starts(likelihood, mode, covariance, settings.num_chains, seed)},
        progress=progress,
    )
    centre = torch.from_numpy(mode)
    draws = run.samples["psi"]
    if calibrate:
        draws = centre + (draws - centre) @ torch.from_numpy(_transport(covariance, target)).T
        run = replace(run, samples={"psi": draws})
    spread = torch.from_numpy(target), torch.from_numpy(covariance)
    # Draws that were moved may be where a conditional has no law; those that were not, cannot.
    moved = draws.flatten(0, 1).numpy() if calibrate and not family.is_discrete else ()
    num_lawless = sum(not np.isfinite(likelihood.log_prob(psi)) for psi in moved)
    result = RootPosterior(structure, family, draws, centre, *spread, calibrate, num_lawless, run, "converged")
    if num_lawless:
        warnings.warn(
            f"posterior: {num_lawless} of {draws[..., 0].numel()} calibrated draws are where the conditional of an "
            "observed cell has no law; take more rows or a narrower prior, or calibrate=False",
            ConvergenceWarning,
            stacklevel=2,
        )
    return result.judged("" if is_mode else "the mode was not found, ")


def _prior(structure: RootStructure, prior: Any) -> Independent:
    """Independent normal priors of psi (num_terms,), float64."""
    if isinstance(prior, numbers.Real) and not isinstance(prior, bool):
        if not _SCALES[0] <= float(prior) <= _SCALES[1]:
            raise out_of_range("prior", "a standard deviation from 1e-100 to 1e100", prior)
        scale = float(prior) / structure.multiplicity.double()
        return Normal(torch.zeros_like(scale), scale).to_event(1)
    if not (isinstance(prior, Independent) and isinstance(prior.base_dist, Normal)):
        expected = "a positive number or Normal(...).to_event(1)"
        raise wrong_type("prior", expected, prior, "for another one write a program with root_pseudo_model's factor")
    check_prior_shape(prior, structure.num_terms)
    if not bool(((prior.base_dist.scale >= _SCALES[0]) & (prior.base_dist.scale <= _SCALES[1])).all()):
        raise out_of_range("prior", "standard deviations from 1e-100 to 1e100")
    loc, scale = (value.detach().double().cpu() for value in (prior.base_dist.loc, prior.base_dist.scale))
    return Normal(loc, scale).to_event(1)


def _mode(likelihood: RootPseudoLikelihood, prior: Independent, rows: torch.Tensor) -> tuple[Floats, bool]:
    """Mode of the pseudo-posterior (num_terms,), and whether its gradient vanishes."""
    structure = likelihood.structure
    loc, precision = prior.base_dist.loc.numpy(), prior.base_dist.scale.reciprocal().square().numpy()
    start = np.where(_is_base(structure), _independent(likelihood, rows), 0.0)
    if not np.isfinite(likelihood.log_prob(start)):
        likelihood.gradient(start)  # raises with the name of the column
    scale = 1 / np.sqrt(np.diag(-likelihood.hessian(start)) + precision)  # unknowns of about unit curvature

    def loss(z: Floats) -> tuple[float, Floats]:
        psi = scale * z
        value, gradient = likelihood.value_and_gradient(psi)
        return 0.5 * float(precision @ (psi - loc) ** 2) - value, scale * (precision * (psi - loc) - gradient)

    def curvature(z: Floats) -> Floats:
        return scale[:, None] * (np.diag(precision) - likelihood.hessian(scale * z)) * scale

    found = optimize.minimize(
        loss, start / scale, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-6, "maxiter": 500}
    )
    return scale * found.x, bool(np.abs(loss(found.x)[1]).max() <= 1e-4)


def _is_base(structure: RootStructure) -> NDArray[np.bool_]:
    """Which terms are the base statistics of single columns, of key (1, 1)."""
    found = np.zeros(structure.num_terms, dtype=bool)
    if (1, 1) in structure.slices:
        found[structure.slices[1, 1]] = True
    return found


def _independent(likelihood: RootPseudoLikelihood, rows: torch.Tensor) -> Floats:
    """Entries (num_terms,) of the base member that has the columns' means, half a row of mean one added to each."""
    structure, family = likelihood.structure, likelihood.family
    found = np.zeros(structure.num_terms)
    if (1, 1) in structure.slices:
        columns = structure.positions((1, 1))[:, 0]
        statistic = family.root(rows.detach().cpu().double(), 1)[:, columns]
        top = family.largest_value
        mean = (statistic.sum(0) + 0.5 * min(1.0, top / 2)) / (len(rows) + 0.5)
        found[structure.slices[1, 1]] = family.base_natural(mean.clamp(max=0.99 * top)).numpy()
    return found


def _calibrated(likelihood: RootPseudoLikelihood, mode: Floats, precision: Floats) -> Floats:
    """Covariance with the sampling error of the estimate, (num_terms, num_terms)."""
    weights, total = likelihood.weights, float(likelihood.weights.sum())
    if total > max(1, len(mode)):
        scores = likelihood.row_scores(mode)
        scores = scores - weights @ scores / total
        spread = total / (total - 1) * (scores.T * weights) @ scores
        scale = np.sqrt(np.diag(spread))
        if scale.all():
            values, vectors = linalg.eigh(spread / scale[:, None] / scale)
            if values[0] > _SMALLEST_SHARE * values[-1]:
                turned = vectors.T @ (likelihood.hessian(mode) / scale[:, None])
                return _inverse((turned.T / values) @ turned + np.diag(precision))
    hint = "take fewer terms or more rows, or calibrate=False for the plain pseudo-posterior"
    raise refused(
        "calibrate",
        f"the {total:g} rows do not tell {likelihood.structure.num_terms} terms apart",
        hint,
        code="conflict",
    )


def _inverse(matrix: Floats) -> Floats:
    """Inverse of a positive definite matrix, whatever the units of its unknowns."""
    scale = 1 / np.sqrt(np.diag(matrix))
    found = linalg.inv(scale[:, None] * matrix * scale)
    return scale[:, None] * (found + found.T) / 2 * scale


def _transport(source: Floats, target: Floats) -> Floats:
    """The matrix O with O source O' = target that is symmetric and positive in units of the source's spread."""
    scale = np.sqrt(np.diag(source))
    source, target = source / scale[:, None] / scale, target / scale[:, None] / scale

    def root(matrix: Floats, power: float) -> Floats:
        values, vectors = linalg.eigh(matrix)
        return (vectors * np.maximum(values, 0.0) ** power) @ vectors.T

    half, back = root(source, 0.5), root(source, -0.5)
    return scale[:, None] * (back @ root(half @ target @ half, 0.5) @ back) / scale


def _starts(
    likelihood: RootPseudoLikelihood, mode: Floats, covariance: Floats, num_chains: int, seed: int
) -> torch.Tensor:
    """Starts of the chains, twice the spread around the mode, pulled towards it where there is no law."""
    random = np.random.default_rng([seed, 0])
    steps = 2 * random.standard_normal((num_chains, len(mode))) @ linalg.cholesky(covariance)
    for step in steps:
        for _ in range(_HALVINGS):
            if np.isfinite(likelihood.log_prob(mode + step)):
                break
            step /= 2
    return torch.from_numpy(mode + steps)
