"""Backward selection: remove interactions as long as validation rows do not miss them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.rows import check_count
from ...core.trainer import Trainer
from ...data.observations import Observations
from ...runs.options import RunOptions, checked_run
from ...structure.hypergraph import Edge, InteractionHypergraph
from .candidates import Heredity, checked_heredity, is_admitted
from .result import SelectionResult, SelectionStatus
from .rounds import Proposal, RoundRunner, StopRule, check_rows, run_file
from .scores import Score, ScoreContext, checked_score, checked_values

__all__ = ["prune", "table_variance"]


def table_variance(edges: Sequence[Edge], context: ScoreContext) -> np.ndarray:
    r"""Half the variance of interaction tables under the model, (num_edges,), nats per row.

    .. math:: \tfrac12 \operatorname{Var}_q\big[\theta^S_{x_S}\big] \approx D(q \| q_{\theta^S = 0})

    To second order the divergence that setting the table to zero causes before anything else is fitted again, so an
    upper bound on the loss after a fit. Costs one margin of the model per edge.
    """
    edges = context.in_order(edges)
    tables = [context.trainer.tables.numpy()[context.hypergraph.term_slices[edge]] for edge in edges]
    ends = np.cumsum([table.size for table in tables])[:-1]
    margins = np.split(context.trainer.margins(edges).probs.numpy(), ends)
    pairs = zip(tables, margins, strict=True)
    return np.array([0.5 * float(probs @ np.square(table - probs @ table)) for table, probs in pairs])


def prune(
    train: Observations,
    validation: Observations,
    trainer: Trainer,
    *,
    heredity: Heredity | None = 1.0,
    ranking: Score = table_variance,
    per_round: int = 1,
    stop: StopRule | None = None,
    run: RunOptions | None = None,
) -> SelectionResult:
    """Remove the least important interactions, fit again, and stop when the validation loss gets worse.

    The mirror image of :func:`~pyro_hoim.log_linear.select`, and a second look at what it found: an
    interaction that was useful early may have become idle. Single variables stay. A round counts as improved unless its
    validation loss is above the lowest one so far by more than the tolerance plus twice the standard error of their
    difference; so the smallest collection that is not worse is returned.

    Args:
        train: the rows that the trainer was made with.
        validation: further rows over the same domain.
        trainer: how a collection is fitted, taken over.
        heredity: an interaction is removed only if every larger one keeps the share of its facets that this rule asks
            for, where it had it. 1.0 keeps a hierarchical collection hierarchical, None allows any removal.
        ranking: gives every edge a number; the smallest go first.
        per_round: interactions removed in a round.
        stop: patience, most rounds, and the tolerance, a loss in nats per row that still counts as not worse.
        run: checkpoint, rewritten after every round, and progress.

    Returns:
        :class:`~pyro_hoim.log_linear.SelectionResult`; ``changed`` of a round are the removed interactions.

    Raises:
        InputError: as of :func:`~pyro_hoim.log_linear.select`, and so its other errors.

    Example:
        >>> from pyro_hoim import load_table
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> rows = load_table("hair_eye_color")
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.saturated(rows.domain))
        >>> len(prune(rows, rows, trainer, stop=StopRule(tolerance=0.01, max_rounds=1)).hypergraph.edges)
        6
    """
    check_rows(train, validation, trainer)
    name, rank = checked_score(ranking, "ranking")
    check_count(per_round, "per_round")
    rule = replace(StopRule() if stop is None else stop, keeps_equal=True)
    run = checked_run(run)
    heredity = checked_heredity(heredity, True)
    settings: dict[str, Any] = {
        "heredity": heredity,
        "ranking": name,
        "per_round": int(per_round),
        "patience": rule.patience,
        "tolerance": float(rule.tolerance),
        "start": [list(edge) for edge in trainer.hypergraph.edge_indices],
    }
    runner = RoundRunner(trainer, train, validation, rule, settings, run_file(run), "pruning" if run.progress else None)
    context = ScoreContext(train, trainer)

    def propose(hypergraph: InteractionHypergraph) -> Proposal | SelectionStatus:
        edges = [edge for edge in hypergraph.edges if len(edge) > 1]
        values = checked_values(rank, edges, context, "ranking")
        present = set(map(frozenset, hypergraph.edges))
        removed: list[int] = []
        for i in np.argsort(values, kind="stable"):
            if len(removed) == per_round:
                break
            if heredity is None or _is_free(edges[i], present, heredity):
                removed.append(int(i))
                present.remove(frozenset(edges[i]))
        if not removed:
            return "exhausted"
        gone = tuple(edges[i] for i in removed)
        smaller = hypergraph.remove_edges(gone, hierarchical=False)
        return Proposal(smaller, gone, tuple(float(values[i]) for i in removed), len(edges))

    return runner.run(trainer.hypergraph, propose)


def _is_free(edge: Edge, present: set[frozenset[str]], heredity: Heredity) -> bool:
    """Whether no larger set loses, with this edge, the share of its facets that heredity asks for."""
    size = len(edge) + 1
    for larger in present:
        if len(larger) == size and larger.issuperset(edge):
            facets = sum(larger - {name} in present for name in larger)
            if is_admitted(heredity, size, facets) > is_admitted(heredity, size, facets - 1):
                return False
    return True
