r"""Standard errors of joint root models: the sandwich covariance of the maximum of a pseudo-likelihood."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from scipy import sparse

from ...checks import check_exact_shape
from ...errors import InputError, IntractableError, check_type, refused
from ..energy import GeneralizedRootEnergy, RootPseudoLikelihood

Floats = NDArray[np.float64]

MOST_TERMS = 1000
"""Terms of a model up to which it has standard errors: the covariance is dense, and stands in the model file."""
_STEPS, _SMALLEST = 14, 1e-6  # Newton steps, and the least share of one
_RANK = 1e-11  # of a Hessian with a unit diagonal
_FLAT = 1e-3  # of the information at the start: a direction of an infinite estimate has less after the steps
_DONE = 1e-6  # standard errors of a step
_NOISE = 1e-10
_CLEAN_RANK, _CLEAN_FLAT = 1e-6, 1e-2  # of the largest entry of a direction that is not identified
_CANCELS = 1e-3
_SILENT = 1e-20  # of the inverse information: a variance that rounding makes


_NOTHING = torch.zeros(0, 0)
_STORED = ("errors.unpenalised", "errors.covariance", "errors.unknown")


@dataclass(frozen=True, eq=False)
class RootErrors:
    r"""How far the coefficients of a joint model are known, given its terms.

    .. math:: \operatorname{Cov}(\hat c) = H^{-1} J H^{-1}, \qquad H = -\sum_i w_i \nabla^2 \log p_i, \quad
        J = \sum_i w_i (s_i - \bar s)(s_i - \bar s)^T

    with :math:`\log p_i = \sum_s \log p(x_{is} \mid x_{i,-s})` of row i, :math:`w_i` how often it was seen, and
    :math:`s_i` its gradient in the coefficients (Godambe's information). Both are taken at the maximum of the
    pseudo-likelihood of the same terms *without a penalty*, for a penalty moves estimates by an amount that no
    covariance shows. The terms count as known before the rows: selection is not accounted for.

    Attributes:
        unpenalised: that maximum, as coefficients :math:`l!\,\psi` (num_terms,), float64; NaN without errors.
        covariance: of it (num_terms, num_terms), float64; where some directions are not identified, of the others
            alone. None where there are no errors.
        unknown: directions (num_terms, u) in which the rows do not tell the coefficients, or in which they are
            infinite.
        reason: why there are no errors; empty where there are.

    References:
        V. P. Godambe, An optimum property of regular maximum likelihood estimation, 1960. Cristiano Varin, Nancy Reid
        and David Firth, An overview of composite likelihood methods, Statistica Sinica 21, 2011, section 2.3.
    """

    unpenalised: torch.Tensor
    covariance: torch.Tensor | None
    unknown: torch.Tensor
    reason: str = ""

    @classmethod
    def none(cls, num_terms: int, reason: str) -> RootErrors:
        """No errors, for a reason."""
        empty = torch.zeros(num_terms, 0, dtype=torch.float64)
        return cls(torch.full((num_terms,), math.nan, dtype=torch.float64), None, empty, reason)

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a model file keeps beside the reason, inverse of :meth:`from_tensors`."""
        if self.covariance is None:
            return {}
        parts = (self.unpenalised, self.covariance, self.unknown)
        return dict(zip(_STORED, parts, strict=True)) if len(self.unpenalised) else {}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor], num_terms: int, reason: str) -> RootErrors:
        """Errors as a model file keeps them; none, for a reason, where it does not."""
        if not all(name in tensors for name in _STORED):
            return cls.none(num_terms, reason)
        unpenalised, covariance, unknown = (tensors[name].double() for name in _STORED)
        return cls(unpenalised, covariance, unknown)

    @property
    def std_error(self) -> torch.Tensor:
        """Of every coefficient, (num_terms,); NaN where the rows do not identify it, and without errors."""
        if self.covariance is None:
            return torch.full_like(self.unpenalised, math.nan)
        variance = self.covariance.diagonal().clamp(min=0.0)
        return variance.sqrt().masked_fill((self.unknown != 0).any(1), math.nan)

    def of(self, weights: Any) -> tuple[Floats, Floats]:
        """Sums of coefficients without a penalty and their standard errors, both (m,), by weights (m, num_terms).

        Weights are an array or a sparse one. Both are NaN where the rows do not identify a sum.
        """
        weights = sparse.csr_array(weights)
        if self.covariance is None:
            nothing = np.full(weights.shape[0], math.nan)
            return nothing, nothing
        # A sum is identified where it stays the same along every direction that is not.
        directions = self.unknown.numpy()
        moved, most = np.abs(weights @ directions), abs(weights) @ np.abs(directions)
        is_known = (moved <= _CANCELS * most).all(1)
        variance = np.asarray(weights.multiply(weights @ self.covariance.numpy()).sum(1)).reshape(-1)
        values = np.where(is_known, weights @ self.unpenalised.numpy(), math.nan)
        return values, np.where(is_known, np.sqrt(np.maximum(variance, 0.0)), math.nan)


def check_errors(tensors: Mapping[str, torch.Tensor], num_terms: int) -> None:
    """Refuse tensors of a model file that are no errors of so many coefficients."""
    there = [name for name in _STORED if name in tensors]
    if there and len(there) < len(_STORED):
        raise refused("tensors", f"a part of the standard errors: {', '.join(there)} alone", code="missing-part")
    tails = {_STORED[0]: (), _STORED[1]: (num_terms,), _STORED[2]: tuple(tensors.get(_STORED[2], _NOTHING).shape[-1:])}
    for name in there:
        check_exact_shape(tensors[name], (num_terms, *tails[name]), f"tensors[{name!r}]")


def centred_directions(energy: GeneralizedRootEnergy, shares: Floats) -> Floats | None:
    """Directions (num_terms, f) of coefficients whose means over the levels of every category are zero, as in fits.

    None without categories. Means have the shares (d,) of the levels in the rows as weights.
    """
    structure, families = energy.structure, energy.families
    if not families.blocks:
        return None
    level_of = {s: (number, level) for number, block in enumerate(families.blocks) for level, s in enumerate(block)}
    # Terms of the same key and columns, with their levels.
    groups: dict[tuple[Any, ...], dict[tuple[int, ...], int]] = {}
    places = ((key, s) for key in structure.keys for s in structure.positions(key).tolist())
    for term, (key, positions) in enumerate(places):
        names = [(1, level_of[s][0]) if s in level_of else (0, s) for s in positions]
        order = sorted(range(len(names)), key=names.__getitem__)
        levels = tuple(level_of[positions[i]][1] for i in order if names[i][0])
        groups.setdefault((key, *(names[i] for i in order)), {})[levels] = term
    # Contrasts of all of its categories at once; of a group that lacks levels every coefficient is free.
    columns: list[Floats] = []
    for (_, *names), terms in groups.items():
        blocks = [families.blocks[number] for is_level, number in names if is_level]
        inside = np.eye(len(terms))
        if len(terms) == math.prod(map(len, blocks)):
            inside = np.ones((1, 1))
            for block in blocks:
                inside = np.kron(inside, scipy.linalg.null_space(shares[block][None]))
        part = np.zeros((structure.num_terms, inside.shape[1]))
        part[[terms[levels] for levels in sorted(terms)]] = inside
        columns.append(part)
    return np.hstack(columns)


class _Maximum(NamedTuple):
    """The maximum along some directions, its Hessian's eigenvalues and eigenvectors there, and the last step."""

    psi: Floats
    information: Floats
    axes: Floats
    last: Floats


def sandwich_errors(
    energy: GeneralizedRootEnergy,
    rows: torch.Tensor,
    weights: torch.Tensor | None = None,
    directions: Floats | None = None,
) -> RootErrors:
    """Standard errors of the coefficients of a joint model fitted to rows, from its pseudo-likelihood.

    Takes Newton steps from the model to the maximum of the pseudo-likelihood of its terms, each of which costs a node
    law for every row and variable and a Hessian.

    Args:
        energy: the model, without a batch; its coefficients are the start, and its terms count as given.
        rows: states (n, d) that it was fitted to.
        weights: how often each row was seen, (n,); each once when None.
        directions: (num_terms, f), coefficients vary from those of the model along these alone, as where they have to
            sum to zero over the levels of a category; any way when None.

    Returns:
        The errors; without any and with the reason where the model has more than 1,000 terms, where the scores of the
        rows need more memory than the limit, or where the steps do not end.

    Raises:
        InputError: wrong shapes, or values outside the support.
        InputTypeError: no energy, or rows that are no tensor.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily, RootStructure
        >>> alone = RootStructure.independent(Domain([Variable("visits", kind="count")]))
        >>> model = GeneralizedRootEnergy(alone, torch.zeros(1), PoissonFamily())
        >>> found = sandwich_errors(model, torch.tensor([[1.0], [2.0], [0.0], [5.0]]))
        >>> found.unpenalised, found.std_error  # log of the mean 2, and root of the variance 3.5 over 4, over the mean
        (tensor([0.6931], dtype=torch.float64), tensor([0.4677], dtype=torch.float64))
    """
    check_type(energy, GeneralizedRootEnergy, "energy")
    structure, count = energy.structure, energy.structure.num_terms
    if count > MOST_TERMS:
        return RootErrors.none(
            count, f"the model has {count:,} terms, and errors are computed for at most {MOST_TERMS:,}"
        )
    try:
        law = RootPseudoLikelihood(structure, rows, energy.families, weights)
    except IntractableError:
        return RootErrors.none(count, "the scores of the rows need more memory than the limit")
    start = energy.psi.detach().cpu().double().numpy()
    try:
        multiplicity = structure.multiplicity.double().numpy()
        free = None if directions is None else directions / multiplicity[:, None]
        return _errors(law, start, multiplicity, free)
    except InputError:
        return RootErrors.none(count, "some row has no conditional law")


def _errors(law: RootPseudoLikelihood, start: Floats, multiplicity: Floats, free: Floats | None) -> RootErrors:
    """Errors of the coefficients, from a start where every row has its laws, along directions (num_terms, f)."""
    count = len(start)
    if not count:
        empty = torch.zeros(0, 0, dtype=torch.float64)
        return RootErrors(torch.zeros(0, dtype=torch.float64), empty, empty)
    # Directions in which the pseudo-likelihood is not flat, in units of the information at the start.
    first = -law.hessian(start)
    first = first if free is None else free.T @ first @ free
    scale = 1.0 / np.sqrt(np.where(first.diagonal() > 0, first.diagonal(), 1.0))
    values, vectors = np.linalg.eigh(first * scale[:, None] * scale)
    is_flat = values <= _RANK
    vectors = scale[:, None] * vectors if free is None else free @ (scale[:, None] * vectors)
    basis = vectors[:, ~is_flat] / np.sqrt(values[~is_flat])
    end = _maximum(law, start, basis)
    # Infinite estimates: their information vanishes on the way, while their steps go on.
    is_infinite = end.information < _FLAT
    if not (np.abs(end.axes.T @ end.last)[~is_infinite] <= 1e3 * _DONE).all():
        return RootErrors.none(count, "the maximum of the pseudo-likelihood without a penalty was not reached")
    axes = basis @ end.axes[:, ~is_infinite]
    scores = law.row_scores(end.psi) @ axes
    centred = scores - np.average(scores, axis=0, weights=law.weights)
    root = (axes / end.information[~is_infinite]) @ (centred * np.sqrt(law.weights)[:, None]).T
    # Scores that no rows tell apart, as of two rows or of equal ones, say nothing of an error.
    most = (axes**2 / end.information[~is_infinite]).sum(1)
    is_silent = (most > 0) & ((root**2).sum(1) < _SILENT * most)
    unknown = [
        _cleaned(vectors[:, is_flat], _CLEAN_RANK),
        _cleaned(basis @ end.axes[:, is_infinite], _CLEAN_FLAT),
        np.eye(count)[:, is_silent],
    ]
    root, directions = multiplicity[:, None] * root, multiplicity[:, None] * np.hstack(unknown)
    return RootErrors(
        torch.from_numpy(multiplicity * end.psi), torch.from_numpy(root @ root.T), torch.from_numpy(directions)
    )


def _cleaned(directions: Floats, least: float) -> Floats:
    """Directions (num_terms, u) without what rounding, or a limit that was not reached, has left in them."""
    size = np.abs(directions).max(0, initial=0.0)
    return np.where(np.abs(directions) > least * size, directions, 0.0)


def _maximum(law: RootPseudoLikelihood, start: Floats, basis: Floats) -> _Maximum:
    """Newton steps to the largest pseudo-likelihood on the span of a basis (num_terms, r)."""
    psi, num_steps = start, 0
    value, gradient = law.value_and_gradient(psi)
    while True:
        # The step in units of the standard errors at the start.
        information, axes = np.linalg.eigh(basis.T @ -law.hessian(psi) @ basis)
        is_moving = information > _NOISE
        slopes = axes.T @ (basis.T @ gradient)
        step = axes @ np.where(is_moving, slopes / np.where(is_moving, information, 1.0), 0.0)
        end = _Maximum(psi, information, axes, step)
        if np.abs(step).max(initial=0.0) < _DONE or num_steps == _STEPS:
            return end
        # Halves of it until the pseudo-likelihood rises, but for rounding.
        size = 1.0
        new, slope = law.value_and_gradient(psi + basis @ step)
        while new < value - _NOISE * abs(value):
            size /= 2
            if size < _SMALLEST:
                return end
            new, slope = law.value_and_gradient(psi + basis @ (size * step))
        psi, value, gradient, num_steps = psi + basis @ (size * step), new, slope, num_steps + 1
