"""Mode interaction selection: add the best-scored interactions, fit, and stop when validation rows say so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.trainer import Trainer
from ...data.observations import Observations
from ...errors import check_type, other_domain, out_of_range
from ...runs.options import RunOptions
from ...structure.hypergraph import InteractionHypergraph
from .options import SelectionOptions
from .result import SelectionResult, SelectionStatus
from .rounds import Proposal, RoundRunner, StopRule, check_rows, count_argument, run_file
from .scores import ScoreContext, checked_score, checked_values

__all__ = ["checked_start", "select"]

_PER_ROUND = 10


def select(
    train: Observations,
    validation: Observations,
    trainer: Trainer,
    search: SelectionOptions | None = None,
    *,
    max_interactions: int | None = None,
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
        max_interactions: most sets of two and more variables in a collection.
        min_score: only candidates with a score above it are added.
        init: collection to start from; default all single variables of two levels or more. The paper starts from
            the empty one, ``InteractionHypergraph(domain)``; a variable with an even margin then scores nothing,
            and under strong heredity nor does what contains it.
        run: checkpoint, rewritten after every round, and progress. Ctrl-C or a kill costs the round that was under way.

    Returns:
        :class:`~pyro_hoim.log_linear.SelectionResult`.

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
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.from_order(domain, 1))
        >>> selection = select(rows, rows, trainer)
        >>> selection.hypergraph.edges, selection.status
        ((('a',), ('b',), ('c',), ('a', 'b')), 'exhausted')
    """
    check_rows(train, validation, trainer)
    search = (search or SelectionOptions()).filled(_PER_ROUND)
    per_round = search.per_round or _PER_ROUND
    pool = search.pool(train.domain)
    scored = checked_score(search.score)[1]
    begin = _singles(trainer) if init is None else checked_start(init, trainer)
    limit = None if max_interactions is None else count_argument(max_interactions, "max_interactions")
    if isinstance(min_score, bool) or not isinstance(min_score, int | float) or math.isnan(min_score):
        raise out_of_range("min_score", "a number", min_score)
    settings: dict[str, Any] = {
        **search.settings(train.domain),
        "max_interactions": limit,
        "min_score": repr(float(min_score)),
        "start": [list(edge) for edge in begin.edge_indices],
    }
    run = run or RunOptions()
    rule = StopRule(search.patience, search.max_rounds)
    runner = RoundRunner(trainer, train, validation, rule, settings, file=run_file(run), progress=run.progress)
    context = ScoreContext(train, trainer)

    def propose(hypergraph: InteractionHypergraph) -> Proposal | SelectionStatus:
        room = per_round if limit is None else min(per_round, limit - hypergraph.num_interactions)
        if room < 1:
            return "max_interactions"
        pool.add(hypergraph.edges)
        found = pool.available()
        values = checked_values(scored, found, context)
        order = np.argsort(-values, kind="stable")[:room]  # of equal scores the earlier edge comes first
        chosen = [int(i) for i in order if values[i] > min_score]
        if not chosen:
            return "exhausted"
        edges = tuple(found[i] for i in chosen)
        larger = hypergraph.add_edges(edges, hierarchical=False)
        return Proposal(larger, edges, tuple(float(values[i]) for i in chosen), len(found))

    return runner.run(begin, propose)


def _singles(trainer: Trainer) -> InteractionHypergraph:
    """All single variables of two levels or more."""
    domain = trainer.rows.domain
    return InteractionHypergraph(domain, [(v.name,) for v in domain if v.cardinality > 1])


def checked_start(init: InteractionHypergraph, trainer: Trainer) -> InteractionHypergraph:
    """A collection to start from, refused unless it is over the trainer's domain."""
    check_type(init, InteractionHypergraph, "init")
    if init.domain != trainer.rows.domain:
        raise other_domain("init", "a collection over the domain of the rows", received="one over another domain")
    return init
