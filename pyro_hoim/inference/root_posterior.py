"""Pseudo-posterior of the entries of a generalized root model: a Pyro model, its draws and their calibration."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyro
import torch
from numpy.typing import NDArray

from ..errors import ConvergenceWarning, check_type, out_of_range
from ..generalized_root.energy import GeneralizedRootEnergy, RootPseudoLikelihood
from ..generalized_root.nodes.columns import Families
from ..generalized_root.structure import RootStructure
from ..runs.arguments import checked_seed
from .calibration import Calibration, draw_calibrated, normal_in_double
from .kernels import NUTSSettings, PosteriorDraws, checked_settings
from .runner import MCMCRun

Floats = NDArray[np.float64]

_MOST_TERMS = 2000


def root_pseudo_model(prior: Any, likelihood: RootPseudoLikelihood) -> torch.Tensor:
    r"""The Pyro model :math:`\psi \sim \text{prior}` with the log pseudo-likelihood of rows as the factor ``rows``.

    Args:
        prior: distribution over psi, event shape (num_terms,).
        likelihood: of the rows.

    Example:
        >>> import pyro.distributions as dist
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily, RootPseudoLikelihood
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
        >>> rows = RootPseudoLikelihood(structure, torch.tensor([[1.0], [2.0]]), PoissonFamily())
        >>> prior = dist.Normal(torch.zeros(1, dtype=torch.float64), 1.0).to_event(1)
        >>> trace = pyro.poutine.trace(root_pseudo_model).get_trace(prior, rows)
        >>> [name for name in trace.nodes if not name.startswith("_")]
        ['psi', 'rows']
    """
    psi = pyro.sample("psi", prior)
    pyro.factor("rows", likelihood(psi))
    return psi


@dataclass(frozen=True, eq=False)
class RootPosterior(PosteriorDraws):
    """Draws of psi and what is needed to judge and to use them.

    Attributes:
        structure: the terms.
        family: base family of all variables, or the family of every one.
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
        is_exact: False: even in the limit of infinitely many draws this is not the posterior.
    """

    structure: RootStructure
    family: Families
    psi: torch.Tensor
    mode: torch.Tensor
    covariance: torch.Tensor
    plain_covariance: torch.Tensor
    is_calibrated: bool
    num_lawless: int
    run: MCMCRun = field(repr=False)
    status: Literal["converged", "unconverged"]
    is_exact: Literal[False] = False

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
    family: Families,
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
        rows: states; without any the draws are those of the prior.
        family: base family of all variables, or one for every variable.
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
    settings = checked_settings(settings)
    seed = checked_seed(seed)
    check_type(calibrate, bool, "calibrate", "True or False")
    check_type(structure, RootStructure, "structure")
    if not 0 < structure.num_terms <= _MOST_TERMS:
        raise out_of_range("structure", f"1 to {_MOST_TERMS} terms", received=structure.num_terms)
    # The mode is looked for from independent columns, where every conditional has a law.
    law = normal_in_double(prior, structure.multiplicity)
    likelihood = RootPseudoLikelihood(structure, rows, family, weights)
    start = _independent(likelihood, rows)
    if not np.isfinite(likelihood.log_prob(start)):
        likelihood.gradient(start)  # raises with the name of the column
    how: Calibration = "curvature" if calibrate else "none"
    draws, mode, covariance, plain, run, fault = draw_calibrated(
        root_pseudo_model, "psi", law, likelihood, start, settings, calibrate=how, seed=seed, progress=progress
    )
    # Draws that were moved may be where a conditional has no law; those that were not, cannot.
    moved = draws.flatten(0, 1).numpy() if calibrate and not likelihood.families.is_discrete else ()
    num_lawless = sum(not np.isfinite(likelihood.log_prob(psi)) for psi in moved)
    if num_lawless:
        warnings.warn(
            f"posterior: {num_lawless} of {draws[..., 0].numel()} calibrated draws are where the conditional of an "
            "observed cell has no law; take more rows or a narrower prior, or calibrate=False",
            ConvergenceWarning,
            stacklevel=2,
        )
    parts = structure, family, draws, mode, covariance, plain, calibrate, num_lawless, run
    return RootPosterior(*parts, "converged").judged(fault)


def _independent(likelihood: RootPseudoLikelihood, rows: torch.Tensor) -> Floats:
    """Entries (num_terms,) of the base member that has the columns' means, half a row of mean one added to each."""
    structure = likelihood.structure
    psi, statistic = np.zeros(structure.num_terms), likelihood.families.root(rows.detach().cpu().double(), 1)
    first = structure.slices.get((1, 1), slice(0)).start
    for place, column in enumerate(structure.rows((1, 1))[:, 0].tolist()):
        family = likelihood.families[column]
        top = family.largest_value
        mean = (statistic[:, column].sum() + 0.5 * min(1.0, top / 2)) / (len(rows) + 0.5)
        psi[first + place] = float(family.base_natural(mean.clamp(max=0.99 * top)))
    return psi
