"""Divergence of a fitted model from a law, split at the projection of the law (paper 1, appendix C.4)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

from ..core.law import Law
from ..data.frames import DataLike
from ..errors import wrong_type
from ..log_linear.auto import Auto
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.fitting.result import FitResult
from ..log_linear.given import check_energy, check_single
from .bias_variance import bias_variance
from .projection import Projection, Projections, as_projections

__all__ = ["DivergenceSplit", "split_divergence"]


@dataclass(frozen=True, eq=False)
class DivergenceSplit:
    r"""Divergence of a model from a law p in nats, in two parts.

    Attributes:
        inestimable: :math:`D(p; p_{\mathcal I})`, which no parameters of the collection can remove.
        estimable: :math:`D(p_{\mathcal I}; \hat q)`, which other parameters would remove; infinite where the model
            excludes a cell that the projection allows.
        total: :math:`D(p; \hat q)`, computed by itself.
        projection: the projection :math:`p_{\mathcal I}`.

    Example:
        >>> from pyro_hoim import InteractionHypergraph, fit, load_table
        >>> rows = load_table("ucb_admissions")
        >>> split = split_divergence(rows, fit(InteractionHypergraph.from_order(rows.domain, 2), rows))
        >>> round(2 * rows.total_count * split.inestimable, 3), round(split.estimable, 9)  # the first is G2
        (20.204, 0.0)
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
    known = as_projections(law)
    graph, log_q = _of(model)
    projection = known.project(graph)
    p, projected = known.law.probs.log(), projection.probs.log()
    found = bias_variance(p, projected, log_q, validate=False)
    return DivergenceSplit(projection.divergence, max(0.0, float(found.variance)), float(found.total), projection)


def split_of_rows(law: Law | Projections, model: LogLinearEnergy | FitResult) -> DivergenceSplit | None:
    """The split for a page; None where the projection has not converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = split_divergence(law, model)
    return found if found.projection.is_converged else None


def _of(model: Any) -> tuple[Any, torch.Tensor]:
    """Collection of a model and log-probabilities of all cells, minus infinity where an infinite estimate has none."""
    if isinstance(model, FitResult):
        if model.restriction is not None:
            raise wrong_type("model", "a fit of whole interactions", received="one of restricted interactions")
        if model.impossible is not None and model.is_listed:
            return model.hypergraph, model.probs.log().reshape(model.hypergraph.domain.cardinalities)
        model = model.model
    check_energy(model)
    check_single(model)
    model = model.to(dtype=torch.float64, device="cpu")
    return model.hypergraph, Auto().log_marginal(model, model.domain.names).detach()
