"""Mode interaction selection: add the best-scored interactions, fit, and stop when validation rows say so."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...checks import check_exact_shape
from ...core.trainer import Trainer
from ...data.observations import Observations
from ...errors import other_domain, out_of_range, wrong_type
from ...structure.hypergraph import Edge, InteractionHypergraph
from .candidates import CandidatePool, Heredity
from .result import Selection, SelectionStatus
from .rounds import Proposal, RoundRunner, StopRule, check_rows, count_argument, run_file
from .scores import Score, ScoreContext, ScoreName, checked_score

__all__ = ["select"]


def select(
    train: Observations,
    validation: Observations,
    trainer: Trainer,
    *,
    heredity: Heredity | None = 0.3,
    score: ScoreName | Score = "gain",
    per_round: int = 10,
    max_order: int | None = None,
    candidates: Iterable[Sequence[str]] | None = None,
    patience: int = 1,
    max_interactions: int | None = None,
    max_rounds: int | None = None,
    min_score: float = 0.0,
    start: InteractionHypergraph | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Selection:
    r"""Select interactions greedily under heredity, with early stopping on validation rows.

    .. math:: \min_{\mathcal I} D(\hat p_{\mathrm{validation}} \| \hat q_{\mathcal I}), \qquad
        \hat q_{\mathcal I} = \arg\min_{q \in \mathcal M_{\mathcal I}} D(\hat p_{\mathrm{train}} \| q)

    Every round scores the sets that heredity admits, adds the best ``per_round`` of them, trains from where the
    parameters are, and takes the loss of the validation rows; :class:`~pyro_hoim.log_linear.StopRule`
    says how losses with an error are compared. The collection and tables of the best round are returned, while the
    paper's algorithm returns those of the round after it. The cost is that of the trainer, plus one pass over the
    data and one margin of the model for every candidate. With a threshold below 1 collections may lack subsets.

    Args:
        train: the rows that the trainer was made with.
        validation: further rows over the same domain.
        trainer: how a collection is fitted. It is taken over: at the end it holds the last round, not the best.
        heredity: share of the facets of a candidate that must be in the collection, such as 0.3, 0.5 or 1.0;
            ``"semi-strong"`` for all but one; None only together with ``candidates``.
        score: ``"gain"`` (leave-one-out gain at the present model), ``"J"`` (the paper's), each with
            ``"-per-parameter"``; ``"refined"`` (a fit of every candidate); or a function of candidates and a
            :class:`~pyro_hoim.log_linear.ScoreContext`.
        per_round: interactions added in a round.
        max_order: variables of the largest interaction; default no limit.
        candidates: add none but these sets, such as known pathways.
        patience: rounds without a better validation loss after which the search stops.
        max_interactions: most sets of two and more variables in a collection.
        max_rounds: rounds after the first; a resumed search may have a larger one.
        min_score: only candidates with a score above it are added.
        start: collection to start from; default all single variables of two levels or more. The paper starts from
            the empty one, ``InteractionHypergraph(domain)``; a variable with an even margin then scores nothing,
            and under strong heredity nor does what contains it.
        checkpoint: file that is rewritten after every round. Ctrl-C or a kill costs the round that was under way.
        resume: continue from ``checkpoint`` if that file exists; the arguments must be the same.
        progress: show rounds, interactions and validation loss on standard error.

    Returns:
        :class:`~pyro_hoim.log_linear.Selection`.

    Raises:
        InputError: arguments out of range, rows that are not the trainer's, no observations, a start with a
            variable that is not the domain's, a score that is not one number per candidate, or a checkpoint of
            another run.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.

    Randomness:
        None but the trainer's.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, section 4.1, appendix B.4, equation (7), algorithms 1 and 2. Line 5 of algorithm 2
        must read "at least", line 12 must sort in descending order.

    Example:
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> from pyro_hoim.schema import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.from_order(domain, 1))
        >>> selection = select(rows, rows, trainer)
        >>> selection.hypergraph.edges, selection.status
        ((('a',), ('b',), ('c',), ('a', 'b')), 'exhausted')
    """
    check_rows(train, validation, trainer)
    domain = train.domain
    given = None if candidates is None else _listed(candidates)
    pool = CandidatePool(domain, heredity, max_order, given)
    name, scored = checked_score(score)
    begin = _checked_start(domain.cardinalities, trainer, start)
    limit = None if max_interactions is None else count_argument(max_interactions, "max_interactions")
    if isinstance(min_score, bool) or not isinstance(min_score, int | float) or math.isnan(min_score):
        raise out_of_range("min_score", "a number", min_score)
    settings: dict[str, Any] = {
        "heredity": heredity,
        "score": name,
        "per_round": count_argument(per_round, "per_round"),
        "max_order": max_order,
        "candidates": None if given is None else sorted([sorted(domain.indices(e)) for e in given]),
        "patience": count_argument(patience, "patience"),
        "max_interactions": limit,
        "min_score": repr(float(min_score)),
        "start": [list(edge) for edge in begin.edge_indices],
    }
    rule = StopRule(patience, None if max_rounds is None else count_argument(max_rounds, "max_rounds", 0))
    runner = RoundRunner(
        trainer, train, validation, rule, settings, file=run_file(checkpoint, resume), progress=progress
    )
    context = ScoreContext(train, trainer)

    def propose(hypergraph: InteractionHypergraph) -> Proposal | SelectionStatus:
        room = per_round if limit is None else min(per_round, limit - hypergraph.num_interactions)
        if room < 1:
            return "max_interactions"
        pool.add(hypergraph.edges)
        found = pool.available()
        values = _values(scored, found, context)
        order = np.argsort(-values, kind="stable")[:room]  # of equal scores the earlier edge comes first
        chosen = [int(i) for i in order if values[i] > min_score]
        if not chosen:
            return "exhausted"
        edges = tuple(found[i] for i in chosen)
        larger = hypergraph.add_edges(edges, hierarchical=False)
        return Proposal(larger, edges, tuple(float(values[i]) for i in chosen), len(found))

    return runner.run(begin, propose)


def _listed(candidates: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    if isinstance(candidates, str):
        raise wrong_type("candidates", "sets of names", received=f"the string {candidates!r}")
    return list(candidates)


def _checked_start(
    cardinalities: Sequence[int], trainer: Trainer, start: InteractionHypergraph | None
) -> InteractionHypergraph:
    """The collection to start from, over the trainer's domain."""
    domain = trainer.rows.domain
    if start is None:
        return InteractionHypergraph(domain, [(v,) for v, n in zip(domain.names, cardinalities, strict=True) if n > 1])
    if not isinstance(start, InteractionHypergraph):
        raise wrong_type("start", "an InteractionHypergraph", start)
    if start.domain != domain:
        raise other_domain("start", "a collection over the domain of the rows", received="one over another domain")
    return start


def _values(score: Score, candidates: Sequence[Edge], context: ScoreContext) -> np.ndarray:
    """Scores (num_candidates,), checked; NaN is refused."""
    if not candidates:
        return np.empty(0)
    values = np.asarray(score(candidates, context), dtype=np.float64)
    check_exact_shape(values, (len(candidates),), "score")
    if bool(np.isnan(values).any()):
        edge = ":".join(candidates[int(np.isnan(values).argmax())])
        raise out_of_range("score", "numbers", received=f"NaN for {edge}")
    return values
