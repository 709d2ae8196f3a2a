"""Mode interaction selection: add the best-scored interactions, or remove idle ones, until validation rows object."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.prediction import check_count
from ...core.trainer import Trainer
from ...data.frames import DataLike
from ...errors import check_type, is_real, other_domain, out_of_range
from ...runs.checkpoint import RunOptions, checked_run
from ...structure.hypergraph import Edge, InteractionHypergraph
from .candidates import Heredity, checked_heredity, is_admitted
from .rounds import (
    Proposal,
    RoundRunner,
    SelectionOptions,
    SelectionResult,
    SelectionStatus,
    StopRule,
    checked_rows,
    singles,
)
from .scores import Score, ScoreContext, checked_score, checked_values

_PER_ROUND = 10


def select(
    train: DataLike,
    validation: DataLike,
    trainer: Trainer,
    search: SelectionOptions | None = None,
    *,
    min_score: float = 0.0,
    init: InteractionHypergraph | None = None,
    run: RunOptions | None = None,
) -> SelectionResult:
    r"""Select interactions greedily under heredity, with early stopping on validation rows.

    .. math:: \min_{\mathcal I} D(\hat p_{\mathrm{validation}} \| \hat q_{\mathcal I}), \qquad
        \hat q_{\mathcal I} = \arg\min_{q \in \mathcal M_{\mathcal I}} D(\hat p_{\mathrm{train}} \| q)

    Every round scores the sets that heredity admits, adds the best ``per_round`` of them (10), trains from where the
    parameters are, and takes the loss of the validation rows; :class:`~pyro_hoim.log_linear.StopRule`
    says how losses with an error are compared. The collection and tables of the best round are returned, while the
    paper's algorithm returns those of the round after it. The cost is that of the trainer, plus one pass over the
    data and one margin of the model for every candidate. With a threshold below 1 collections may lack subsets.

    Args:
        train: the rows that the trainer was made with.
        validation: further rows over the same domain.
        trainer: how a collection is fitted. It is taken over: at the end it holds the last round, not the best.
        search: heredity, score, candidates, rounds and patience.
        min_score: only candidates with a score above it are added.
        init: collection to start from; default all single variables of two levels or more. The paper starts from
            the empty one, ``InteractionHypergraph(domain)``; a variable with an even margin then scores nothing,
            and under strong heredity nor does what contains it.
        run: checkpoint, rewritten after every round, and progress. Ctrl-C or a kill costs the round that was under way,
            and so does the time limit of the search.

    Returns:
        :class:`~pyro_hoim.log_linear.SelectionResult`.

    Raises:
        InputError: arguments out of range, rows that are not the trainer's, no observations, a start with a
            variable that is not the domain's, a score that is not one number per candidate, or a checkpoint of
            another run.
        MissingDataError: missing cells.

    Randomness:
        None but the trainer's.

    References:
        Paper 1, section 4.1, appendix B.4, equation (7), algorithms 1 and 2. Line 5 of algorithm 2 must read "at
        least", line 12 must sort in descending order.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.from_order(domain, 1))
        >>> selection = select(rows, rows, trainer)
        >>> selection.hypergraph.edges, selection.status
        ((('a',), ('b',), ('c',), ('a', 'b')), 'exhausted')
    """
    # All arguments are looked at before any work.
    train, validation = checked_rows(train, validation, trainer)
    search = (search or SelectionOptions()).filled(_PER_ROUND)
    per_round = search.per_round or _PER_ROUND
    pool = search.pool(train.domain)
    scored = checked_score(search.score)[1]
    begin = singles(train.domain) if init is None else init
    check_type(begin, InteractionHypergraph, "init")
    if begin.domain != train.domain:
        raise other_domain("init", "a collection over the domain of the rows", received="one over another domain")
    if not is_real(min_score) or math.isnan(min_score):
        raise out_of_range("min_score", "a number", min_score)
    settings: dict[str, Any] = {
        **search.settings(train.domain),
        "min_score": repr(float(min_score)),
        "start": [list(edge) for edge in begin.edge_indices],
    }
    # Rounds that stop on validation rows.
    run = checked_run(run)
    least_gain = (search.least_gain or 0.0) / validation.total_count
    rule = StopRule(search.patience, search.max_rounds, least_gain=least_gain)
    label = "selection" if run.progress else None
    until = math.inf if search.time_limit is None else time.monotonic() + search.time_limit
    runner = RoundRunner(trainer, train, validation, rule, settings, run.file(), label, until)
    context = ScoreContext(train, trainer)

    def propose(hypergraph: InteractionHypergraph) -> Proposal | SelectionStatus:
        pool.add(hypergraph.edges)
        return Proposal.of_best(pool.available(), scored, context, per_round, min_score)

    return runner.run(begin, propose)


def table_variance(edges: Sequence[Edge], context: ScoreContext) -> np.ndarray:
    r"""Half the variance of interaction tables under the model, (num_edges,), nats per row.

    .. math:: \tfrac12 \operatorname{Var}_q\big[\theta^S_{x_S}\big] \approx D(q \| q_{\theta^S = 0})

    To second order the divergence that setting the table to zero causes before anything else is fitted again, so an
    upper bound on the loss after a fit. Costs one margin of the model per edge.
    """
    edges = context.in_order(edges)
    whole = context.trainer.tables.numpy()  # every call makes a copy
    tables = [whole[context.hypergraph.term_slices[edge]] for edge in edges]
    ends = np.cumsum([table.size for table in tables])[:-1]
    margins = np.split(context.trainer.margins(edges).probs.numpy(), ends)
    pairs = zip(tables, margins, strict=True)
    return np.array([0.5 * float(probs @ np.square(table - probs @ table)) for table, probs in pairs])


def prune(
    train: DataLike,
    validation: DataLike,
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
    # All arguments are looked at before any work.
    train, validation = checked_rows(train, validation, trainer)
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
    # Rounds that take the least important sets away, as far as no larger set loses its heredity.
    runner = RoundRunner(trainer, train, validation, rule, settings, run.file(), "pruning" if run.progress else None)
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
