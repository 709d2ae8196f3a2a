"""Backward selection: remove interactions as long as validation rows do not miss them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np

from ...core.trainer import Trainer
from ...data.observations import Observations
from ...errors import unexpected, wrong_type
from ...runs.options import RunOptions
from ...structure.hypergraph import Edge, InteractionHypergraph
from .candidates import CandidatePool, Heredity
from .greedy import checked_start
from .result import SelectionResult, SelectionStatus
from .rounds import Proposal, RoundRunner, StopRule, check_rows, count_argument, run_file
from .scores import Score, ScoreContext

__all__ = ["loss_of_refit", "prune", "table_variance"]

Ranking = Literal["variance", "refit"]


def table_variance(edges: Sequence[Edge], context: ScoreContext) -> np.ndarray:
    r"""Half the variance of interaction tables under the model, (num_edges,), nats per row.

    .. math:: \tfrac12 \operatorname{Var}_q\big[\theta^S_{x_S}\big] \approx D(q \| q_{\theta^S = 0})

    To second order the divergence that setting the table to zero causes before anything else is fitted again, so an
    upper bound on the loss after a fit. Costs one margin of the model per edge.
    """
    names = context.train.domain.names
    edges = [tuple(names[i] for i in sorted(context.train.domain.indices(edge))) for edge in edges]
    margins = context.trainer.margins(edges).probs.numpy()
    tables, where = context.trainer.tables.numpy(), context.hypergraph.term_slices
    values = np.empty(len(edges))
    begin = 0
    for i, edge in enumerate(edges):
        table = tables[where[edge]]
        probs = margins[begin : begin + table.size]
        begin += table.size
        values[i] = 0.5 * float(probs @ np.square(table - probs @ table))
    return values


def loss_of_refit(edges: Sequence[Edge], context: ScoreContext) -> np.ndarray:
    """Rise of the training loss when an edge is removed and a copy of the trainer is fitted, (num_edges,)."""
    before = context.trainer.loss(context.train).value
    values = np.empty(len(edges))
    for i, edge in enumerate(edges):
        trial = copy.deepcopy(context.trainer)
        trial.restructure(context.hypergraph.remove_edges([edge], hierarchical=False))
        trial.train()
        values[i] = trial.loss(context.train).value - before
    return values


_RANKINGS: dict[str, Score] = {"variance": table_variance, "refit": loss_of_refit}


def prune(
    train: Observations,
    validation: Observations,
    trainer: Trainer,
    *,
    heredity: Heredity | None = 1.0,
    ranking: Ranking | Score = "variance",
    per_round: int = 1,
    min_order: int = 2,
    stop: StopRule | None = None,
    init: InteractionHypergraph | None = None,
    run: RunOptions | None = None,
) -> SelectionResult:
    """Remove the least important interactions, fit again, and stop when the validation loss gets worse.

    The mirror image of :func:`~pyro_hoim.log_linear.select`, and a second look at what it found: an
    interaction that was useful early may have become idle. A round counts as improved unless its validation loss is
    above the lowest one so far by more than the tolerance plus twice the standard error of their difference; so the
    smallest collection that is not worse is returned.

    Args:
        train: the rows that the trainer was made with.
        validation: further rows over the same domain.
        trainer: how a collection is fitted, taken over.
        heredity: an interaction is removed only if every larger one keeps the share of its facets that this rule asks
            for, where it had it. 1.0 keeps a hierarchical collection hierarchical, None allows any removal.
        ranking: ``"variance"`` (:func:`table_variance`), ``"refit"`` (:func:`loss_of_refit`), or a function that gives
            every edge a number; the smallest go first.
        per_round: interactions removed in a round.
        min_order: smaller interactions are never removed; 2 keeps single variables.
        stop: patience, most rounds, and the tolerance, a loss in nats per row that still counts as not worse.
        init: collection to start from; default the trainer's.
        run: checkpoint, rewritten after every round, and progress.

    Returns:
        :class:`~pyro_hoim.log_linear.SelectionResult`; ``changed`` of a round are the removed interactions.

    Raises:
        InputError: arguments out of range, rows that are not the trainer's, or a checkpoint of another run.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.

    Example:
        >>> from pyro_hoim import load_table
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> rows = load_table("hair_eye_color")
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.saturated(rows.domain))
        >>> len(prune(rows, rows, trainer, stop=StopRule(tolerance=0.01, max_rounds=1)).hypergraph.edges)
        6
    """
    check_rows(train, validation, trainer)
    begin = trainer.hypergraph if init is None else checked_start(init, trainer)
    name, rank = _checked_ranking(ranking)
    rule = replace(StopRule() if stop is None else stop, keeps_equal=True)
    run = run or RunOptions()
    pool = None if heredity is None else CandidatePool(train.domain, heredity)
    settings: dict[str, Any] = {
        "heredity": heredity,
        "ranking": name,
        "per_round": count_argument(per_round, "per_round"),
        "min_order": count_argument(min_order, "min_order"),
        "patience": rule.patience,
        "tolerance": float(rule.tolerance),
        "start": [list(edge) for edge in begin.edge_indices],
    }
    file, shown = run_file(run), run.progress
    runner = RoundRunner(trainer, train, validation, rule, settings, file=file, progress=shown, label="pruning")
    context = ScoreContext(train, trainer)

    def propose(hypergraph: InteractionHypergraph) -> Proposal | SelectionStatus:
        edges = [edge for edge in hypergraph.edges if len(edge) >= min_order]
        values = np.asarray(rank(edges, context), dtype=np.float64) if edges else np.empty(0)
        if values.shape != (len(edges),) or bool(np.isnan(values).any()):
            found = f"shape {values.shape} or NaN"
            raise unexpected("ranking", f"{len(edges)} numbers", received=found, code="wrong-shape")
        guard = None if pool is None else _Guard(pool, hypergraph)
        removed: list[int] = []
        for i in np.argsort(values, kind="stable"):
            if len(removed) == per_round:
                break
            if guard is None or guard.remove(edges[i]):
                removed.append(int(i))
        if not removed:
            return "exhausted"
        gone = tuple(edges[i] for i in removed)
        smaller = hypergraph.remove_edges(gone, hierarchical=False)
        return Proposal(smaller, gone, tuple(float(values[i]) for i in removed), len(edges))

    return runner.run(begin, propose)


class _Guard:
    """Removes edges one at a time as long as heredity holds for those that stay as well as it did before."""

    def __init__(self, pool: CandidatePool, hypergraph: InteractionHypergraph) -> None:
        self._pool = pool
        pool.replace(hypergraph.edges)
        self._violating = set(pool.violating())

    def remove(self, edge: Edge) -> bool:
        """Remove an edge if none that stays is thereby left without its facets."""
        self._pool.remove([edge])
        if set(self._pool.violating()) <= self._violating:
            return True
        self._pool.add([edge])
        return False


def _checked_ranking(ranking: object) -> tuple[str, Score]:
    if isinstance(ranking, str):
        if ranking not in _RANKINGS:
            raise unexpected("ranking", "'variance', 'refit' or a function", ranking, code="unknown-choice")
        return ranking, _RANKINGS[ranking]
    if not callable(ranking):
        raise wrong_type("ranking", "a name or a function", ranking)
    return str(getattr(ranking, "__qualname__", type(ranking).__qualname__)), cast(Score, ranking)
