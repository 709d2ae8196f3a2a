"""Mode interaction selection: add the best-scored interactions, fit, and stop when validation rows say so."""

from __future__ import annotations

import math
from typing import Any

from ...core.trainer import Trainer
from ...data.observations import Observations
from ...errors import out_of_range
from ...runs.options import RunOptions, checked_run
from ...structure.hypergraph import InteractionHypergraph
from .options import SelectionOptions
from .result import SelectionResult, SelectionStatus
from .rounds import Proposal, RoundRunner, StopRule, check_rows, checked_start, run_file, singles
from .scores import ScoreContext, checked_score

__all__ = ["select"]

_PER_ROUND = 10


def select(
    train: Observations,
    validation: Observations,
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
        Paper 1, section 4.1, appendix B.4, equation (7), algorithms 1 and 2. Line 5 of algorithm 2 must read "at
        least", line 12 must sort in descending order.

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
    begin = singles(train.domain) if init is None else checked_start(init, trainer)
    if isinstance(min_score, bool) or not isinstance(min_score, int | float) or math.isnan(min_score):
        raise out_of_range("min_score", "a number", min_score)
    settings: dict[str, Any] = {
        **search.settings(train.domain),
        "min_score": repr(float(min_score)),
        "start": [list(edge) for edge in begin.edge_indices],
    }
    run = checked_run(run)
    rule = StopRule(search.patience, search.max_rounds)
    label = "selection" if run.progress else None
    runner = RoundRunner(trainer, train, validation, rule, settings, run_file(run), label)
    context = ScoreContext(train, trainer)

    def propose(hypergraph: InteractionHypergraph) -> Proposal | SelectionStatus:
        pool.add(hypergraph.edges)
        return Proposal.of_best(pool.available(), scored, context, per_round, min_score)

    return runner.run(begin, propose)
