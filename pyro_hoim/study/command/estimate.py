"""A log-linear model from rows in memory, and the log-likelihood of rows."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.family import Stored
from ...core.scores import RowLogLikelihood
from ...data.observations import Observations
from ...errors import conflict
from ...log_linear.auto import Auto
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.fitting.fit import fit
from ...log_linear.fitting.incomplete import fit_incomplete, row_log_likelihood
from ...log_linear.fitting.result import FitResult
from ...log_linear.named_priors import Prior
from ...log_linear.restricted.interactions import RestrictedInteractions
from ...log_linear.restricted.terms import interactions_of
from ...log_linear.scores import row_log_pseudo_prob
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["estimate", "score_each_row"]


def estimate(
    rows: Observations,
    *,
    order: int | None = None,
    edges: str | Iterable[Iterable[str]] | None = None,
    prior: str | None = None,
    seed: int = 0,  # noqa: ARG001 (nothing is random)
) -> FitResult:
    """Given interactions: all of up to ``order`` variables (2), or ``edges`` as a formula or sets of names, closed.

    A formula may hold functions such as ``linear(a)`` (:func:`~pyro_hoim.log_linear.restricted_interactions`).
    By likelihood where that is exact, missing cells summed over, else by pseudo-likelihood of complete rows.
    """
    domain = rows.domain
    if edges is None:
        structure = InteractionHypergraph.from_order(domain, min(2, len(domain)) if order is None else order)
    elif order is not None:
        raise conflict("order, edges", "at most one of them says the interactions")
    elif isinstance(edges, str):
        structure = interactions_of(domain, edges)
    else:
        structure = InteractionHypergraph(domain, edges, closure=True)
    graph = structure.hypergraph if isinstance(structure, RestrictedInteractions) else structure
    penalty = None if prior is None else Prior.parse(prior).penalty(graph)
    if rows.has_missing:
        return fit_incomplete(structure, rows, penalty=penalty)
    objective = "likelihood" if Auto().plan(graph).feasible else "pseudo-likelihood"
    return fit(structure, rows, penalty=penalty, objective=objective)


def score_each_row(stored: Stored, rows: Observations, pseudo: bool = False) -> RowLogLikelihood:
    """Log-likelihood of every row; log pseudo-likelihood on demand and where log Z is out of reach."""
    model = stored.model
    energy = LogLinearEnergy.from_theta(model.hypergraph, model.theta, model.coding)
    if not pseudo and Auto().plan(energy.hypergraph).feasible:
        return RowLogLikelihood(row_log_likelihood(energy, rows))
    return RowLogLikelihood(row_log_pseudo_prob(energy, rows), "pseudo-likelihood")
