"""Projection of a law on a hierarchical family, and divergences of estimates split at it, such as bias and variance."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch.distributions import Distribution, kl_divergence

from .._modes import plain_mode
from ..core.law import Law
from ..data.frames import DataLike, is_frame
from ..data.observations import Observations
from ..errors import (
    ConvergenceWarning,
    NonexistentEstimateWarning,
    check_choice,
    check_positive,
    check_type,
    check_whole,
    none_received,
    other_domain,
    out_of_range,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ..log_linear.auto import Auto
from ..log_linear.energy import LogLinearEnergy, check_energy
from ..log_linear.fitting.fit import fit
from ..log_linear.fitting.result import FitResult
from ..log_linear.given import check_single
from ..structure.hypergraph import InteractionHypergraph

ProjectionMethod = Literal["auto", "newton", "ipf"]

_MAX_NEWTON_PARAMETERS = 600
_MAX_DESIGN_ENTRIES = 2**23
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Projection:
    r"""The member of a hierarchical family that is closest to a law.

    Attributes:
        law: the law p that was projected.
        hypergraph: the collection of interactions of the family.
        probs: the projection (\*cardinalities), float64; a limit of the family's members where it has zeros.
        divergence: D(p; projection) in nats.
        method: ``closed form`` (uniform, decomposable or saturated), ``newton`` or ``ipf``.
        is_converged: whether the criterion was met.
        num_iterations: Newton steps, or sweeps over the margins.
        margin_error: largest difference between a marginal probability of the law and of the projection.
    """

    law: Law = field(repr=False)
    hypergraph: InteractionHypergraph
    probs: torch.Tensor = field(repr=False)
    divergence: float
    method: str
    is_converged: bool
    num_iterations: int
    margin_error: float


def project(
    law: Law | DataLike,
    hypergraph: InteractionHypergraph,
    *,
    method: ProjectionMethod = "auto",
    tolerance: float = 1e-12,
    max_iterations: int = 10_000,
) -> Projection:
    r"""Project a law on the hierarchical family of a collection of interactions (paper 1, equation 4; Csiszar, 1975).

    .. math:: p_{\mathcal I} = \operatorname{argmin}_{q \in \mathcal M_{\mathcal I}} D(p; q)

    It is the only law in the (closed) family that has p's margins over the sets of the collection. Decomposable
    collections have a closed form. Otherwise Newton's method needs O(cells x parameters^2) per step and some ten
    steps; iterative proportional fitting O(cells x maximal sets) per sweep, and more sweeps the closer p is to zero
    cells. Where p has zeros the projection may lie on the boundary; Newton's method finds its support first by a
    linear program, and proportional fitting gets there only in the limit.

    Args:
        law: the law p, or observations, whose empirical law is taken.
        hypergraph: a hierarchical collection over the same domain.
        method: ``auto`` takes Newton's method up to 600 parameters and 2^23 cells times parameters, else proportional
            fitting; the other two take what they say unless a closed form exists.
        tolerance: of proportional fitting: largest allowed change of a marginal probability within a sweep. Newton's
            method ends when the gradient is below 1e-9, which also bounds the error of the divergence in practice.
        max_iterations: most sweeps of proportional fitting.

    Raises:
        InputError, InputTypeError: a collection that is not hierarchical or has another domain, or bad options.

    Warns:
        ConvergenceWarning: the criterion was not met; the divergence is then too high.

    Example:
        >>> from pyro_hoim import Domain
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.5, 0.0], [0.0, 0.5]])
        >>> result = project(law, InteractionHypergraph.from_order(law.domain, 1))
        >>> result.probs.tolist(), round(result.divergence, 6)
        ([[0.25, 0.25], [0.25, 0.25]], 0.693147)
    """
    law = _as_law(law)
    check_hypergraph(hypergraph, law, "hypergraph")
    check_choice(method, get_args(ProjectionMethod), "method")
    check_positive(tolerance, "tolerance")
    check_whole(max_iterations, "max_iterations")
    # Closed forms: the uniform law, and one sweep along a junction tree.
    p = law.probs.numpy()
    if not len(hypergraph):
        return _finished(law, hypergraph, np.full(p.shape, 1 / p.size), "closed form", 0, True)
    if hypergraph.is_decomposable:
        cliques = [law.domain.indices(node.clique) for node in hypergraph.junction_tree()]
        q, _, _ = scale_margins(p, cliques, tolerance, 1)
        return _finished(law, hypergraph, q, "closed form", 1, True)
    # Newton's method, as the fit to the law taken as observations of total weight 1.
    size = hypergraph.num_parameters
    is_small = size <= _MAX_NEWTON_PARAMETERS and size * hypergraph.domain.num_states <= _MAX_DESIGN_ENTRIES
    if method == "newton" or (method == "auto" and is_small):
        with warnings.catch_warnings(action="ignore", category=NonexistentEstimateWarning):
            # An estimate at infinity is a projection on the boundary; what did not converge is said below.
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = fit(hypergraph, law.cells, method="newton")
        q = fitted.probs.numpy().reshape(p.shape)
        result = _finished(law, hypergraph, q, "newton", fitted.num_iterations, fitted.is_converged)
        if result.is_converged or method == "newton":
            return _warned(result)
    # Proportional fitting of the largest margins.
    cliques = [law.domain.indices(edge) for edge in hypergraph.maximal_edges]
    q, num_sweeps, is_converged = scale_margins(p, cliques, tolerance, max_iterations)
    return _warned(_finished(law, hypergraph, q, "ipf", num_sweeps, is_converged))


class Projections:
    """Projections of one law, each computed once: what every quantity of this package is made from.

    Arguments are those of :func:`project`; observations stand for their empirical law, :attr:`law`.

    Example:
        >>> from pyro_hoim import Domain
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.5, 0.0], [0.0, 0.5]])
        >>> known = Projections(law)
        >>> graph = InteractionHypergraph.from_order(law.domain, 1)
        >>> known.project(graph) is known.project(graph), len(known)
        (True, 1)
    """

    def __init__(self, law: Law | DataLike, **options: Any) -> None:
        self.law = _as_law(law)
        self._options = options
        self._known: dict[InteractionHypergraph, Projection] = {}
        self._margins: dict[tuple[str, ...], Projections] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"Projections({self.law!r}, {len(self)} known)"

    def project(self, hypergraph: InteractionHypergraph) -> Projection:
        """Projection on the family of a hierarchical collection, from memory if it was asked for before."""
        if hypergraph not in self._known:
            with plain_mode():
                self._known[hypergraph] = project(self.law, hypergraph, **self._options)
        return self._known[hypergraph]

    def marginal(self, names: tuple[str, ...]) -> Projections:
        """Projections of a marginal law, kept as well."""
        with plain_mode():
            law = self.law.marginal(names)
        return self._margins.setdefault(law.domain.names, Projections(law, **self._options))


def _as_law(law: Law | DataLike) -> Law:
    if isinstance(law, Law):
        return law
    if isinstance(law, Observations) or is_frame(law):
        return Law.from_observations(law)
    raise wrong_type("law", "a Law or Observations", law)


def as_projections(law: Law | DataLike | Projections) -> Projections:
    """Projections of a law, the given ones if they are some already."""
    return law if isinstance(law, Projections) else Projections(law)


def check_hypergraph(hypergraph: InteractionHypergraph, law: Law, argument: str) -> None:
    """Raise unless this is a hierarchical collection over the law's domain."""
    check_type(hypergraph, InteractionHypergraph, argument)
    if hypergraph.domain != law.domain:
        expected = f"a collection over the law's variables {law.domain.names}"
        raise other_domain(argument, expected, received=f"one over {hypergraph.domain.names}")
    if not hypergraph.is_hierarchical:
        raise unexpected(argument, "a collection closed under subsets", hypergraph, "closure()", code="missing-part")


def scale_margins(
    p: np.ndarray,
    cliques: Sequence[Sequence[int]],
    tolerance: float,
    max_iterations: int,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, int, bool]:
    """Iterative proportional fitting, by default from the uniform law; one sweep is exact along a junction tree."""
    # Margins of the law, which one factor each brings about.
    others = [tuple(i for i in range(p.ndim) if i not in clique) for clique in cliques]
    targets = [p.sum(other, keepdims=True) for other in others]
    q = np.full(p.shape, 1 / p.size) if start is None else start.copy()
    ratio = [np.empty_like(target) for target in targets]
    for sweep in range(1, max_iterations + 1):
        change = 0.0
        for other, target, factor in zip(others, targets, ratio, strict=True):
            margin = q.sum(other, keepdims=True)
            change = max(change, float(np.abs(margin - target).max()))
            factor[...] = target > 0  # margins below the normal range of numbers stay: a quotient could overflow
            np.divide(target, margin, out=factor, where=margin > _TINY)
            q *= factor
        if change <= tolerance:
            return q, sweep, True
    return q, max_iterations, False


def _finished(
    law: Law, hypergraph: InteractionHypergraph, q: np.ndarray, method: str, num_iterations: int, is_converged: bool
) -> Projection:
    """Projection with its divergence and its worst margin."""
    # The divergence over the support, and the worst margin.
    p = law.probs.numpy()
    support = p > 0
    with np.errstate(divide="ignore"):
        divergence = float((p[support] * (np.log(p[support]) - np.log(q[support]))).sum())
    error = abs(float(q.sum()) - 1)
    for edge in hypergraph.maximal_edges:
        margin = law.domain.indices(edge)
        other = tuple(i for i in range(p.ndim) if i not in margin)
        error = max(error, float(np.abs(p.sum(other) - q.sum(other)).max()))
    return Projection(
        law,
        hypergraph,
        torch.from_numpy(q),
        max(divergence, 0.0),  # in this order NaN is not hidden
        method,
        is_converged,
        num_iterations,
        error,
    )


def _warned(result: Projection) -> Projection:
    """The projection, with a warning unless it converged."""
    if not result.is_converged:
        warnings.warn(
            f"project: {result.method} stopped after {result.num_iterations} iterations with a margin "
            f"{result.margin_error:.2g} off; raise max_iterations or tolerance, or take the other method",
            ConvergenceWarning,
            stacklevel=3,
        )
    return result


# Total error of an estimated law, split into bias and variance at the projection (paper 4, 3.1).

_PARTS = ("total", "bias", "variance", "remainder")
_SUM_TOLERANCE = 1e-4


class Average(NamedTuple):
    """Mean over data sets, in nats, and its standard error: infinite for one data set, NaN where one is infinite."""

    mean: float
    std_error: float


@dataclass(frozen=True)
class BiasVariance:
    r"""Divergences in nats between the true law, its projection and estimates from data sets.

    Attributes:
        total: :math:`D(P^*; \hat P_B)` of every data set.
        bias: :math:`D(P^*; P^*_B)`, one number.
        variance: :math:`D(P^*_B; \hat P_B)` of every data set.
        remainder: total - bias - variance of every data set, computed as
            :math:`\sum_x (P^*(x) - P^*_B(x)) (\log P^*_B(x) - \log \hat P_B(x))` where cells are listed; zero up to
            rounding for members of an exponential family and its projection. NaN (infinity minus infinity) where an
            estimate excludes a state whose probability the projection changed.

    Shape:
        total, variance and remainder (*batch of the estimates); bias ().
    """

    total: torch.Tensor
    bias: torch.Tensor
    variance: torch.Tensor
    remainder: torch.Tensor

    def average(self, part: str) -> Average:
        """Mean and standard error over all data sets of "total", "bias", "variance" or "remainder"."""
        check_choice(part, _PARTS, "part")
        values = getattr(self, part).to(torch.float64).reshape(-1)
        if part == "bias":
            return Average(float(values), 0.0)
        error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
        return Average(float(values.mean()), error)

    @property
    def num_infinite(self) -> int:
        """Number of data sets whose variance is infinite."""
        return int(torch.isinf(self.variance).sum())

    @property
    def note(self) -> str | None:
        """What infinite values mean, None where there are none."""
        if self.num_infinite:
            return (
                f"{self.num_infinite} of {self.variance.numel()} estimates give probability zero to a state that the "
                "projection allows (a margin that the family fits was zero in the data), so their variance, and its "
                "expectation at any number of rows, is infinite; estimates after finitely many steps, or under a "
                "prior, stay positive and have a finite variance that depends on the number of steps or the prior"
            )
        if bool(torch.isinf(self.bias)):
            return "the projection gives probability zero to a state that the true law allows: the bias is infinite"
        return None


def bias_variance(truth: Any, projection: Any, fits: Any, *, validate: bool = True) -> BiasVariance:
    r"""Split the error of estimates into the bias of their family and the variance of the estimation.

    .. math::
        \underbrace{D(P^*; \hat P_B)}_{\text{total}} = \underbrace{D(P^*; P^*_B)}_{\text{bias}}
        + \underbrace{D(P^*_B; \hat P_B)}_{\text{variance}} + \underbrace{\textstyle\sum_x
        (P^* - P^*_B)(\log P^*_B - \log \hat P_B)}_{\text{remainder}}

    In an exponential family :math:`\log P^*_B - \log \hat P_B` is a sum of its statistics, of which the m-projection
    :math:`P^*_B` has the means of :math:`P^*`: the remainder is zero (generalised Pythagorean theorem). A family that
    is not e-flat, such as a mixture or a machine with hidden units, has a remainder, of either sign. It also shows a
    projection that has not converged. Nothing is estimated here but the average over data sets.

    Costs O(cells) per data set where one of the arguments is a table. Where all are distributions with a registered
    divergence (:func:`torch.distributions.kl_divergence`), that is taken: log-linear laws and root models then need
    log Z and expectations only, and no list of cells. It is as exact as their backends are.

    Args:
        truth: the law P*: a :class:`~pyro_hoim.core.Law`, a distribution with ``log_prob_table``, or a tensor of
            log-probabilities of all cells.
        projection: P*_B, the law closest to it in the family, :math:`\operatorname{argmin}_Q D(P^*; Q)`.
        fits: estimates: a tensor or a distribution with leading batch dimensions, one for each data set, or a sequence
            of what ``truth`` may be.
        validate: refuse tables that do not sum to 1. Without it log-probabilities by an estimated log Z are taken as
            they are, and the error of the estimate is part of total and variance, alike, and not of the remainder.

    Shape:
        truth and projection (*cells) as tensors, fits (*batch, *cells); a sequence gives the batch (len,).

    Returns:
        Per data set in nats, infinite where an estimate excludes a state; see :attr:`BiasVariance.note`.

    Raises:
        InputError: shapes or variables that do not agree, or tensors that do not sum to 1.
        InputTypeError: something without probabilities of its cells.

    References:
        Paper 4, section "Bias-variance decomposition"; Amari (2001), Information geometry on hierarchy.

    Example:
        >>> truth = torch.tensor([[0.4, 0.1], [0.1, 0.4]], dtype=torch.float64)
        >>> projection = torch.full((2, 2), 0.25, dtype=torch.float64)  # independent columns with the same margins
        >>> fit = torch.tensor([[0.36, 0.24], [0.24, 0.16]], dtype=torch.float64)
        >>> result = bias_variance(truth.log(), projection.log(), fit.log())
        >>> round(float(result.total - result.bias - result.variance), 12)
        0.0
    """
    if isinstance(fits, Sequence) and not fits:
        raise none_received("fits", "at least one estimate")
    # Laws over variables have the same ones, in the order of the truth.
    laws = [("truth", truth), ("projection", projection)]
    laws += [("fits", law) for law in (fits if isinstance(fits, Sequence) else [fits])]
    known = [(name, law.domain) for name, law in laws if hasattr(law, "domain")]
    for argument, domain in known[1:]:
        if domain.names != known[0][1].names:
            raise other_domain(argument, f"the variables {known[0][1].names}, in this order", domain.names)
    # Of distributions Pyro knows the divergences, else all cells are listed.
    divided = _by_expectations(truth, projection, fits)
    if divided is not None:
        return divided
    log_p, log_q = _log_table(truth, "truth"), _log_table(projection, "projection")
    if log_p.shape != log_q.shape:
        raise wrong_shape("projection", tuple(log_p.shape), log_q)
    if isinstance(fits, Sequence):
        tables = [_log_table(fit, "fits") for fit in fits]
        for table in tables:
            if table.shape != log_p.shape:
                raise wrong_shape("fits", tuple(log_p.shape), table)
        log_fits = torch.stack(tables)
    else:
        log_fits = _log_table(fits, "fits")
    ndim = log_p.dim()
    if ndim == 0 or log_fits.shape[log_fits.dim() - ndim :] != log_p.shape:
        raise wrong_shape("fits", f"(*batch, {', '.join(map(str, log_p.shape))})", log_fits)
    if not log_fits.numel():
        raise none_received("fits", "at least one estimate")
    for table, argument in ((log_p, "truth"), (log_q, "projection"), (log_fits, "fits")):
        if validate:
            sums = table.flatten(-ndim).logsumexp(-1)
            worst = float(sums.abs().max()) if sums.numel() else 0.0
            if not worst <= _SUM_TOLERANCE:
                expected = "log-probabilities whose exponentials sum to 1"
                hint = "take the logarithm of probabilities"
                raise out_of_range(argument, expected, hint=hint, received=f"a log of their sum of up to {worst:.3g}")
    # The remainder vanishes cell by cell where the fit equals the projection, whatever the truth is.
    p, q, fitted = (table.flatten(-ndim) for table in (log_p, log_q, log_fits))
    weights, least = p.exp() - q.exp(), 0.0 if validate else -math.inf
    change = torch.where((weights == 0) | (q == fitted), 0.0, q - fitted)
    return BiasVariance(
        total=_divergence(p, fitted, least),
        bias=_divergence(p, q, 0.0),
        variance=_divergence(q, fitted, least),
        remainder=torch.where(torch.isinf(fitted) & (weights != 0), math.nan, weights * change).sum(-1),
    )


def _divergence(log_p: torch.Tensor, log_q: torch.Tensor, least: float) -> torch.Tensor:
    """D(p; q) over the last dimension, at least some number; cells of probability zero count nothing."""
    terms = torch.where(torch.isneginf(log_p), 0.0, log_p.exp() * (log_p - log_q))
    return terms.sum(-1).clamp(min=least)


def _by_expectations(truth: Any, projection: Any, fits: Any) -> BiasVariance | None:
    """By the divergences of distributions, or None where these are not distributions or have none."""
    estimates = list(fits) if isinstance(fits, Sequence) else [fits]
    if not all(isinstance(law, Distribution) for law in (truth, projection, *estimates)):
        return None
    try:
        bias = kl_divergence(truth, projection)
        divergences = [(kl_divergence(truth, fit), kl_divergence(projection, fit)) for fit in estimates]
    except NotImplementedError:
        return None
    if bias.dim():
        raise wrong_shape("truth", "() of its batch, as of the projection's", bias)
    total, variance = (
        torch.stack(part) if isinstance(fits, Sequence) else part[0] for part in zip(*divergences, strict=True)
    )
    return BiasVariance(total, bias, variance, total - bias - variance)


def _log_table(law: Any, argument: str) -> torch.Tensor:
    """Log-probabilities of all cells."""
    table = law.probs.log() if isinstance(law, Law) else getattr(law, "log_prob_table", law)
    if not isinstance(table, torch.Tensor) or not table.is_floating_point():
        raise wrong_type(argument, "a Law, a distribution over cells or log-probabilities of all cells", law)
    return table.detach().to(torch.float64)


# Divergence of a fitted model from a law, split at the projection of the law (paper 1, appendix C.4).


@dataclass(frozen=True, eq=False)
class DivergenceSplit:
    r"""Divergence of a model from a law p in nats, in two parts.

    Attributes:
        inestimable: :math:`D(p; p_{\mathcal I})`, which no parameters of the collection can remove.
        estimable: :math:`D(p_{\mathcal I}; \hat q)`, which other parameters would remove; infinite where the model
            excludes a cell that the projection allows.
        total: :math:`D(p; \hat q)`, computed by itself.
        projection: the projection :math:`p_{\mathcal I}`.
    """

    inestimable: float
    estimable: float
    total: float
    projection: Projection = field(repr=False)

    @property
    def gap(self) -> float:
        """Total less both parts: zero up to the tolerance of the projection, NaN where the total is infinite."""
        return self.total - self.inestimable - self.estimable


def split_divergence(law: Law | DataLike | Projections, model: LogLinearEnergy | FitResult) -> DivergenceSplit:
    r"""Split the divergence of a model from a law into an inestimable and an estimable part (paper 1, C.4).

    .. math:: D(p; \hat q) = \underbrace{D(p; p_{\mathcal I})}_{\text{inestimable}}
        + \underbrace{D(p_{\mathcal I}; \hat q)}_{\text{estimable}}

    with the projection :math:`p_{\mathcal I}` of p on the model's collection. More interactions lower the first part
    and leave more to estimate. Of the law that rows came from these are the parts of the error; of N held-out rows,
    whose empirical law is taken, the first part also holds what of their own sampling no model of the collection
    follows, about (cells - 1 - parameters) / 2N, and the second that which it would, about parameters / 2N. Exact up to
    the tolerance of :func:`project`, whose cost it has; all cells are listed.

    Args:
        law: the law p, complete observations, or :class:`Projections` of one, which keep what they compute.
        model: a single model of a hierarchical collection over the same variables. Where a fit's estimate is infinite,
            the limit is taken, with its zeros.

    Raises:
        InputError, InputTypeError: no single model, other variables, a collection that is not hierarchical, or
            restricted interactions.
        IntractableError: too many cells to list.

    Warns:
        ConvergenceWarning: the projection has not converged; the parts then do not add up, see
            :attr:`DivergenceSplit.gap`.

    References:
        Joseph Enouen and Mahito Sugiyama, A complete decomposition of KL error using refined information and mode
        interaction selection, 2024, appendix C.4.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.4, 0.1], [0.1, 0.4]])
        >>> singles = InteractionHypergraph.from_order(law.domain, 1)
        >>> model = LogLinearEnergy.from_theta(singles, torch.tensor([0.0, 0.5], dtype=torch.float64))
        >>> split = split_divergence(law, model)
        >>> round(split.inestimable, 4), round(split.estimable, 4), abs(split.gap) < 1e-12
        (0.1927, 0.0612, True)
    """
    # Both parts from the tables of all cells.
    known = as_projections(law)
    graph, log_q = _log_probs(model)
    projection = known.project(graph)
    p, projected = known.law.probs.log(), projection.probs.log()
    parts = bias_variance(p, projected, log_q, validate=False)
    return DivergenceSplit(projection.divergence, max(0.0, float(parts.variance)), float(parts.total), projection)


def split_of_rows(law: Law | Projections, model: LogLinearEnergy | FitResult) -> DivergenceSplit | None:
    """The split for a page; None where the projection has not converged."""
    with warnings.catch_warnings(action="ignore"):
        split = split_divergence(law, model)
    return split if split.projection.is_converged else None


def _log_probs(model: Any) -> tuple[Any, torch.Tensor]:
    """Collection of a model and log-probabilities of all cells, minus infinity where an infinite estimate has none."""
    if isinstance(model, FitResult):
        if model.restriction is not None:
            raise wrong_type("model", "a fit of whole interactions", received="one of restricted interactions")
        model = model.model
    check_energy(model)
    check_single(model)
    model = model.to(dtype=torch.float64, device="cpu")
    return model.hypergraph, Auto().log_marginal(model, model.domain.names).detach()
