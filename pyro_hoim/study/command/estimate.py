"""A log-linear model from rows in memory, and the log-likelihood of rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ...core.command.guards import warn_of_ranks
from ...core.family import Stored
from ...core.scores import RowLogLikelihood
from ...data.observations import Observations
from ...errors import check_choice, conflict, out_of_reach, size_text
from ...log_linear.auto import Auto
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.exact.elimination import VariableElimination
from ...log_linear.fitting.duration import check_duration
from ...log_linear.fitting.fit import fit
from ...log_linear.fitting.incomplete import fit_incomplete, row_log_likelihood
from ...log_linear.fitting.result import FitResult
from ...log_linear.named_priors import Prior
from ...log_linear.restricted.interactions import RestrictedInteractions, graph_of
from ...log_linear.restricted.terms import interactions_of
from ...log_linear.scores import row_log_pseudo_prob
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["estimate", "score_each_row"]

_MOST_FLOPS, _MOST_SUMS = 2**20, 2**24
_QUICK = Auto(elimination=VariableElimination(max_operations=2**28))
"""Log Z where it takes about a second."""


def estimate(
    rows: Observations,
    *,
    order: int | None = None,
    edges: str | Iterable[Iterable[str]] | None = None,
    prior: str = "unit",
    objective: Literal["auto", "likelihood", "pseudo-likelihood"] = "auto",
    seed: int = 0,  # noqa: ARG001 (nothing is random)
) -> FitResult:
    """Given interactions: all of up to ``order`` variables (2), or ``edges`` as a formula or sets of names, closed.

    A formula may hold functions such as ``linear(a)`` (:func:`~pyro_hoim.log_linear.restricted_interactions`).
    With the objective ``auto`` complete rows are fitted by likelihood where log Z takes up to 2^20 operations, else by
    pseudo-likelihood; missing cells are summed over, which needs an exact likelihood. Unlike a fit for its tests, the
    estimate is finite by default: ``prior`` is ``unit``, and ``none`` is maximum likelihood.
    """
    check_choice(objective, ("auto", "likelihood", "pseudo-likelihood"), "objective")
    domain = rows.domain
    if edges is None:
        structure = InteractionHypergraph.from_order(domain, min(2, len(domain)) if order is None else order)
    elif order is not None:
        raise conflict("order, edges", "at most one of them says the interactions")
    elif isinstance(edges, str):
        structure = interactions_of(domain, edges)
        if isinstance(structure, RestrictedInteractions):
            warn_of_ranks(structure.orders)
    else:
        structure = InteractionHypergraph(domain, edges, closure=True)
    graph = graph_of(structure)
    cost, penalty = Auto().plan(graph), Prior.parse(prior).penalty(graph)
    if rows.has_missing:
        if objective == "pseudo-likelihood":
            raise conflict("objective", "a pseudo-likelihood needs complete rows", 'give "likelihood" or "auto"')
        if cost.feasible and cost.flops > _MOST_SUMS:
            problem = f"to sum over them needs log Z of {size_text(int(cost.flops), 'operations')} at every step"
            raise out_of_reach("missing cells", problem, "leave out their rows, or use fewer interactions or levels")
        return fit_incomplete(structure, rows, penalty=penalty)
    if objective == "auto":
        objective = "likelihood" if cost.feasible and cost.flops <= _MOST_FLOPS else "pseudo-likelihood"
    elif objective == "likelihood":
        check_duration(graph)
    quick = _QUICK if objective == "pseudo-likelihood" else None
    return fit(structure, rows, penalty=penalty, objective=objective, partition=quick)


def score_each_row(stored: Stored, rows: Observations, pseudo: bool = False) -> RowLogLikelihood:
    """Log-likelihood of every row; log pseudo-likelihood on demand and where log Z takes longer than about a second."""
    energy: LogLinearEnergy = stored.model.energy
    if not pseudo and _QUICK.plan(energy.hypergraph).feasible:
        return RowLogLikelihood(row_log_likelihood(energy, rows))
    return RowLogLikelihood(row_log_pseudo_prob(energy, rows), "pseudo-likelihood")
