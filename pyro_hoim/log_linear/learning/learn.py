"""A whole model learned from rows: which interactions, how strongly each is held back, its tables and its log Z."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from typing import Any

from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...data.sources import MemoryRows, RowSource
from ...data.sources.sourced import SourcedRows, rows_of
from ...errors import check_fraction, check_whole, none_received, other_domain, out_of_reach, refused, size_text
from ...runs.arguments import checked_seed
from ...runs.options import RunOptions, checked_run
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..search.confirmation import Confirmation
from ..search.options import SelectionOptions
from ..search.result import SelectionResult
from ..search.rounds import singles
from ..search.scores import Gain
from ..training.ridge import InteractionRidge
from ..training.sampled.trainer import SampledTraining
from ._search import StagedSearch
from ._session import FinalFit, Session, frequency_model, interactions, one_body_model
from ._trainers import TrainerName, checked_recipe
from .model import LearnResult
from .regularisation import Regularisation

__all__ = ["LearnResult", "checked_parts", "fit_collection", "joint_rows", "learn"]

_EVIDENCE_ALONE = 4  # rounds of evidence where no search has moved the strengths before
_PER_ROUND, _WIDE, _MAX_ORDER = 60, 4, 3  # sets of a round: 60, or one per four columns
_SEARCH_SHARE, _FIT_SHARE, _TESTS_SHARE, _REFIT_SHARE = 0.5, 0.7, 0.85, 0.9  # of the time, when a stage must be over
_LEAST_GAIN = 0.1  # nats over all validation rows; an interaction that their test confirms brings two or more
_HELD_OUT = 0.25  # of rows that come without validation rows
_MAX_PSEUDO_STATES = 2**22
_UNJUDGED = (
    "log Z of larger collections was estimated without an error bar, so that they could not be judged and none was "
    "kept; give sampling more chains, or take fewer columns"
)


def learn(
    train: DataLike,
    validation: DataLike | None = None,
    search: SelectionOptions | None = None,
    *,
    trainer: TrainerName = "auto",
    sampling: SampledTraining | None = None,
    regularisation: Regularisation | None = None,
    refit: bool = False,
    false_discovery_rate: float | None = 0.1,
    seed: int = 0,
    run: RunOptions | None = None,
) -> LearnResult:
    r"""Learn interactions and their strengths: all pairs, then what promises most, while held-out rows gain.

    .. math:: \min_\theta \; -\sum_n \log q_\theta(x_n)
        + \tfrac12 \sum_{S \in \mathcal I} \lambda_S (\theta^S)^\top K_S \theta^S

    The recipe: single variables first; then all pairs at once (beyond 1,500 of them the best 500 by their score, or one
    per column where that is more); then rounds of the best sets that heredity admits, twice as many every time, until
    the validation loss gets worse. Pairs are tried twice: under weak strengths :math:`\lambda_S`, and under strengths
    that the training rows choose for every interaction (the fixed point of the evidence), which hold interactions of no
    use at zero. The validation rows say which is used from there; under weak strengths only sets with a positive score
    are added. The best collection is trained once more, longer, and log Z is found exactly or estimated on chains of
    its own.

    Interactions of no use do little harm in that model. Which interactions there are is another question:
    ``structure`` holds the model of those that training and validation rows together confirm
    (:func:`~pyro_hoim.log_linear.confirm`), trained alike with the same strengths. The tests choose among all sets and
    need no rows of their own; the validation rows measure by how much either model predicts.

    Of rows of a source (:func:`~pyro_hoim.data.open_rows`) whose distinct ones have more than 2^25 cells, fits, losses,
    and gains come from the margins of all of them, a pass over the rows for all sets of a round. A sample of up to 2^20
    of them stands in elsewhere: it screens candidates by J, begins annealed runs, bounds log Z from below, and confirms
    interactions.

    Args:
        train: complete rows.
        validation: complete rows that decide when the search ends; they set no parameter, unless ``refit``, and are
            tested on together with the others. When None, a quarter of ``train``, drawn with ``seed``, is set aside.
        search: heredity, score, candidates, the largest interaction (3, at least 2), the sets added in the first round
            after that of the pairs (60, or a quarter of the columns; every further round may add twice as many),
            patience, the least gain of the interactions of a round (0.1 nats each, over all validation rows, from 50
            columns on, where each thousand pairs of words would bring a little), and a time limit for the whole: what
            is under way after half of it is given up, and the stages that follow are cut or left out, as the notes say.
        trainer: ``exact`` gradients, ``sampled`` ones, or ``pseudo-likelihood``; ``auto`` is exact where one evaluation
            takes seconds at most (about 2 million states), else sampled.
        sampling: settings of sampled training; by default those of :class:`SampledTraining`, with up to four
            times the chains in the last fit, and a smaller damping there (1e-3) and where the rows choose the
            strengths (5e-4), which then hold parameters of rare cells back.
        regularisation: the strengths to begin with, and how often the rows move them.
        refit: train the collection found, with the strengths found, on both parts together.
        false_discovery_rate: share of the interactions of ``structure`` that are absent from the law of the rows, on
            average at most; None for no structure.
        seed: of everything random.
        run: a checkpoint (a folder, made if missing) and progress: a line for every round, and bars where standard
            error is a terminal. Ctrl-C or a kill costs the round or fit that was under way.

    Returns:
        The model that predicts best, with ``structure`` beside it.

    Raises:
        InputError: arguments out of range, rows over different variables, no rows, or a checkpoint of another run.
        MissingDataError: missing cells.
        IntractableError: exact training was asked for and is out of reach, or pseudo-likelihoods of rows beyond memory.

    Randomness:
        From ``seed`` only.

    References:
        Paper 1, section 4.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> learned = learn(rows, rows)
        >>> learned.hypergraph.order, round(learned.gain(rows), 2)
        (2, 0.19)
        >>> learned.structure.hypergraph.edges, round(learned.structure.gain(rows), 2)
        ((('a',), ('b',), ('c',), ('a', 'b')), 0.19)
    """
    given_parts = checked_parts(*_parts(train, validation, seed))
    train, validation = (rows.in_effective_rows() for rows in given_parts)
    if false_discovery_rate is not None:
        check_fraction(false_discovery_rate, "false_discovery_rate")
    search = (search or SelectionOptions()).filled(max(_PER_ROUND, len(train.domain) // _WIDE), _MAX_ORDER)
    order = search.max_order or _MAX_ORDER
    check_whole(order, "max_order", 2)
    ridges, run = regularisation or Regularisation(), checked_run(run)
    start, given = singles(train.domain), search.candidates
    largest = None if given is None else start.add_edges([edge for edge in given if edge], hierarchical=False)
    is_shown = run.progress and sys.stderr.isatty()
    recipe = checked_recipe(train, trainer, ridges.evidence_rounds, largest, order, seed, is_shown, sampling)
    _check_score(recipe.name, search, train)
    _check_held(recipe.name, train, validation)
    if search.least_gain is None and recipe.goes_on:
        search = replace(search, least_gain=_LEAST_GAIN)
    session = Session(recipe, run, train, validation, search.time_limit)
    first = recipe.trainer(train, start, ridges.weak)
    rounds, until = recipe.evidence_rounds[0], session.until(_SEARCH_SHARE)
    staged = StagedSearch(train, validation, first, search, ridges.strong, rounds, run, session.tell_round, until)
    selection, found, chosen = staged.run()
    count = interactions(selection.hypergraph.num_interactions)
    if selection.status == "time limit":
        session.late("the search; a resumed one goes on")
    if selection.best_round == 0 and any(math.isinf(entry.validation_std_error) for entry in selection.rounds):
        session.note(_UNJUDGED)
    session.tell(f"kept round {selection.best_round}: {count}; training them longer")
    session.clock("search")
    # Every round of a sampled search has moved the strengths; moving them once more has not been seen to pay.
    settled, final = recipe.name == "sampled" or not chosen, None
    with session.giving_up("the last, longer fit: the tables are those of the search", _FIT_SHARE):
        final = session.fit(train, selection.hypergraph, found, "final", settled=settled, chosen=chosen)
    if final is None:
        final = FinalFit.of_round(recipe.trainer(train, selection.hypergraph, found, is_chosen=chosen), selection)
    session.clock("training")
    confirmation = None
    if false_discovery_rate is not None:
        session.tell("testing interactions on all rows")
        with session.giving_up("the tests of single interactions: there is no structure", _TESTS_SHARE):
            confirmation = session.confirm(selection.hypergraph, train, validation, false_discovery_rate, search)
        session.clock("tests")
    rows, again, amount = train, None, given_parts[0].total_count
    if refit:
        session.tell("training once more, on training and validation rows together")
        together = joint_rows(train, validation)
        with session.giving_up("the fit to training and validation rows together", _REFIT_SHARE):
            again = session.fit(together, selection.hypergraph, final.trainer.penalty, "refit", chosen=chosen)
        if again is not None:
            final, rows, amount = again, together, sum(part.total_count for part in given_parts)
        session.clock("refit")
    made: dict[str, Any] = {"selection": selection, "ridge": ridges.strong, "refit": again is not None}
    made["num_rows"] = amount
    learned = _learned(session, final, rows, **made)
    if confirmation is None:
        return replace(learned, seconds=session.seconds)
    return _with_structure(session, learned, final, confirmation, rows, chosen=chosen, made=made)


def _with_structure(
    session: Session,
    learned: LearnResult,
    final: FinalFit,
    confirmation: Confirmation,
    rows: Observations,
    *,
    chosen: bool,
    made: dict[str, Any],
) -> LearnResult:
    """The model with its structure, trained alike; without one where the time is over."""
    kept, structure = confirmation.hypergraph, learned
    session.tell(f"training the structure of {interactions(kept.num_interactions)}")
    if kept != learned.hypergraph:
        stage, fitted = "structure-refit" if learned.refit else "structure-fit", None
        with session.giving_up("the fit of the structure", 1.0):
            ridge = _released(final.trainer.penalty, made["ridge"], kept) if chosen else final.trainer.penalty
            settled = session.recipe.name == "sampled" or not chosen
            fitted = session.fit(rows, kept, ridge, stage, settled=settled, chosen=chosen)
        session.clock("structure")
        if fitted is None:
            notes = tuple(dict.fromkeys((*session.notes, *learned.notes)))
            return replace(learned, notes=notes, seconds=session.seconds)
        structure = _learned(session, fitted, rows, **made)
    structure = replace(structure, confirmation=confirmation, seconds=session.seconds)
    return replace(learned, structure=structure, seconds=session.seconds)


def _released(ridge: InteractionRidge, first: InteractionRidge, hypergraph: InteractionHypergraph) -> InteractionRidge:
    """Strengths for the interactions that the rows confirmed: none stronger than those that they began to choose from.

    In the larger model others may have stood in for one of them, and its strength have held it at zero.
    """
    return ridge.updated({edge: min(ridge.strength(edge), first.strength(edge)) for edge in hypergraph.edges})


def fit_collection(
    train: DataLike,
    hypergraph: InteractionHypergraph,
    *,
    trainer: TrainerName = "auto",
    sampling: SampledTraining | None = None,
    regularisation: Regularisation | None = None,
    seed: int = 0,
    run: RunOptions | None = None,
) -> LearnResult:
    """The last part of :func:`learn` alone: strengths and tables of a collection that is given.

    Args:
        train: complete rows.
        hypergraph: the collection.
        trainer: as in :func:`learn`, and so the following.
        sampling: of chains.
        regularisation: of the strengths.
        seed: of everything random.
        run: a checkpoint (a folder; a fit that was completed is read from it) and progress.

    Returns:
        The model, without a selection.

    Raises:
        InputError: as of :func:`learn`, and so its other errors.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> learned = fit_collection(rows, InteractionHypergraph.saturated(rows.domain))
        >>> learned.trainer, learned.selection, round(learned.gain(rows), 3)  # the mutual information
        ('exact', None, 0.086)
    """
    (given,) = checked_parts(train)
    train = given.in_effective_rows()
    ridges, run = regularisation or Regularisation(), checked_run(run)
    is_shown = run.progress and sys.stderr.isatty()
    rounds, order = ridges.evidence_rounds, hypergraph.order
    recipe = checked_recipe(train, trainer, rounds, hypergraph, order, seed, is_shown, sampling)
    _check_held(recipe.name, train)
    if rounds is None:
        recipe = replace(recipe, evidence_rounds=(_EVIDENCE_ALONE, _EVIDENCE_ALONE))
    session = Session(recipe, run, train, train)
    session.tell(f"training {interactions(hypergraph.num_interactions)}")
    chosen = recipe.evidence_rounds[1] > 0
    final = session.fit(train, hypergraph, ridges.strong, "final", settled=False, chosen=chosen)
    session.clock("training")
    learned = _learned(
        session, final, train, selection=None, ridge=ridges.strong, refit=False, num_rows=given.total_count
    )
    return replace(learned, seconds=session.seconds)


def _learned(
    session: Session,
    final: FinalFit,
    rows: Observations,
    *,
    selection: SelectionResult | None,
    ridge: InteractionRidge,
    refit: bool,
    num_rows: float,
) -> LearnResult:
    """The model of a fit, with log Z."""
    session.tell("finding log Z")
    log_z, trainer = final.log_partition(session.recipe), final.trainer
    learned = LearnResult(
        hypergraph=trainer.hypergraph,
        tables=trainer.tables,
        ridge=trainer.penalty,
        log_partition=log_z,
        trainer=session.recipe.name,
        training=final.report,
        selection=selection,
        independent=frequency_model(rows),
        one_body=one_body_model(rows, ridge),
        num_rows=num_rows,
        refit=refit,
        notes=tuple(dict.fromkeys((*session.notes, *final.report.notes, *log_z.notes))),
    )
    session.clock("log_z")
    return learned


def _has_margins(trainer: str, rows: Observations) -> bool:
    """Whether a trainer knows marginal laws of its model, which gains and tests are computed from."""
    return trainer != "pseudo-likelihood" or rows.domain.num_states <= _MAX_PSEUDO_STATES


def _parts(train: DataLike, validation: DataLike | None, seed: int) -> tuple[DataLike, DataLike]:
    """Both parts, or three quarters and a quarter of one."""
    if validation is not None:
        return train, validation
    first, second = _observed(train, None, "train").split([1 - _HELD_OUT, _HELD_OUT], checked_seed(seed))
    return first, second


def _observed(part: DataLike, domain: Domain | None, name: str) -> Observations:
    """Rows of a part, or margins and a sample of those that do not fit into memory."""
    if isinstance(part, RowSource):
        return rows_of(part)
    return as_observations(part, domain=domain, argument=name)


def checked_parts(*parts: DataLike) -> list[Observations]:
    """Rows of the parts over one domain, none of them empty."""
    found: list[Observations] = []
    for name, part in zip(("train", "validation"), parts, strict=False):
        rows = _observed(part, found[0].domain if found else None, name)
        found.append(rows)
        if rows.domain != found[0].domain:
            raise other_domain(name, "rows over the variables and levels of train", received="others")
        if not rows.total_count > 0:
            raise none_received(name, "at least one observation")
    return found


def _check_score(trainer: str, search: SelectionOptions, rows: Observations) -> None:
    """Refuse gains where the trainer has no marginal laws to compute them from."""
    score = search.score
    is_gain = isinstance(score, Gain) or (isinstance(score, str) and score.startswith("gain"))
    if is_gain and not _has_margins(trainer, rows):
        problem = (
            f"'pseudo-likelihood' has no marginal laws beyond {_MAX_PSEUDO_STATES:,} states, which gains are computed "
            f"from, and there are {size_text(rows.domain.num_states)}"
        )
        raise refused("trainer", problem, "use the trainer 'sampled' or the score 'J'", code="over-budget")


def _check_held(trainer: str, *parts: Observations) -> None:
    """Refuse pseudo-likelihoods of rows that are not in memory."""
    if trainer == "pseudo-likelihood" and any(isinstance(rows, SourcedRows) for rows in parts):
        problem = "'pseudo-likelihood' needs the rows in memory, and there are more than 2^25 cells of different ones"
        raise out_of_reach("trainer", problem, "use the trainer 'sampled', or pass rows.distinct()")


def joint_rows(first: Observations, second: Observations) -> Observations:
    """The rows of both."""
    parts = (first, second)
    if any(isinstance(rows, SourcedRows) for rows in parts):
        sources = [rows.sources if isinstance(rows, SourcedRows) else (MemoryRows.of(rows),) for rows in parts]
        return SourcedRows.of(*itertools.chain(*sources))
    return Observations.concatenated(parts).unique()
