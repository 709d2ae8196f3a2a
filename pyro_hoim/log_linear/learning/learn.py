"""A whole model learned from rows: which interactions, how strongly each is held back, its tables and its log Z."""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypedDict

import numpy as np
import torch
from typing_extensions import Unpack

from ...core.partition import Verdict as LogZVerdict
from ...core.trainer import Loss, RidgeTrainer
from ...data.columns import FrameOptions
from ...data.frames import DataLike, as_observations, is_frame, rows_of_frame
from ...data.joined import ColumnGroup, Join, JoinedColumns, find_exclusive_groups, join_columns
from ...data.observations import Observations
from ...data.sources import MemoryRows, RowSource
from ...data.sources.sourced import SourcedRows, rows_of
from ...errors import (
    DataWarning,
    caller_level,
    check_fraction,
    check_names,
    check_type,
    check_whole,
    conflict,
    is_whole,
    none_received,
    other_domain,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
)
from ...runs.arguments import checked_seed
from ...runs.checkpoint import RunOptions, check_equal, checked_run, packed, unpacked
from ...schema import Domain
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..search.confirmation import Confirmation
from ..search.rounds import (
    Proposal,
    RoundRunner,
    SelectionOptions,
    SelectionResult,
    SelectionRound,
    SelectionStatus,
    StopRule,
    Verdict,
    checked_rows,
    singles,
)
from ..search.scores import Gain, ScoreContext, Screened, checked_score
from ..training.ridge import InteractionRidge
from ..training.sampled.trainer import SampledTraining
from ._session import (
    FinalFit,
    Session,
    TrainerName,
    checked_recipe,
    frequency_model,
    interactions,
    one_body_model,
    run_file,
    told,
)
from .model import LearnResult

__all__ = ["LearnOptions", "LearnResult", "Regularisation", "fit_collection", "learn", "learn_variables"]


# The search that learns a model: single variables, pairs, then larger sets.

_MAX_ALL_PAIRS = 1500
_FEW = 0.125  # of the sets of a round: so few with a score may be all that is left, or may not be worth a round
_PROMISING = 0.01  # of the candidates
_SEARCH, _STRENGTHS = "search.safetensors", "strengths.safetensors"


@dataclass(frozen=True)
class _Rule(StopRule):
    """A round improved when its loss is lower by more than one standard error of the difference, else it was worse.

    Larger collections under a strong penalty are nearly harmless, so there is little to lose by taking one and much
    time to lose by rounds that decide nothing. The first rounds, up to ``num_trials``, are trials of the same
    collection under different strengths; the search goes on after them, because pairs may be worth nothing without the
    larger sets that hold them.
    """

    num_trials: int = 0

    def verdict(self, best: SelectionRound | None, loss: Loss) -> Verdict:
        """What a validation loss says against the best round."""
        if best is None:
            return "start"
        noise = math.hypot(best.validation_std_error, loss.std_error)
        return "improved" if loss.value < best.validation_loss - noise else "worse"

    def status(self, rounds: Sequence[SelectionRound], best: int) -> SelectionStatus | None:
        """Why a search that has made these rounds ends now, None if it goes on."""
        last = len(rounds) - 1
        if rounds[-1].training_status == "diverged" and last > self.num_trials:
            return "diverged"
        since = max(best, self.num_trials)
        if sum(entry.verdict == "worse" for entry in rounds[since + 1 :]) >= self.patience:
            return "stopped early"
        if last > self.num_trials and self.gained_little(rounds, best):
            return "little gain"
        if self.max_rounds is not None and last >= self.max_rounds:
            return "max_rounds"
        return None


class StagedSearch:
    """Rounds of a search: single variables, pairs under weak strengths and under chosen ones, then larger sets.

    The training rows choose strengths, beginning with the ``strong`` ones, by so many rounds of evidence in every fit;
    the validation rows say whether these are used after the trials. The trainer, at the single variables, with weak
    strengths and without evidence, is taken over; ``announce`` receives every round once it is known.
    """

    def __init__(
        self,
        train: Observations,
        validation: Observations,
        trainer: RidgeTrainer,
        search: SelectionOptions,
        strong: InteractionRidge,
        evidence_rounds: int,
        run: RunOptions,
        announce: Callable[[SelectionRound], None],
        until: float = math.inf,
    ) -> None:
        # What may join, and by which score.
        train, validation = checked_rows(train, validation, trainer)
        self._pool = search.pool(train.domain)
        self._score = checked_score(search.score)[1]
        self._pays = isinstance(self._score, Gain) and self._score.search_cost and not self._score.per_parameter
        if isinstance(self._score, Gain):  # hundreds of variables have hundreds of thousands of triples
            self._score = Screened(self._score)
        assert search.per_round is not None
        self._per_round = search.per_round
        self._trainer = trainer
        self._weak, self._strong = trainer.penalty, strong
        self._evidence_rounds = evidence_rounds
        self._context = ScoreContext(train, trainer)
        self._announce = announce
        self._announced = 0
        self._ridges: dict[int, InteractionRidge] = {}
        settings: dict[str, Any] = {
            **search.settings(train.domain),
            "all pairs up to": _MAX_ALL_PAIRS,
            "rounds": "doubling",
            "evidence rounds": evidence_rounds,
            "penalty of evidence digest": strong.to_json(),
        }
        # Strengths of an interrupted run, round by round.
        self._file = run_file(run, _STRENGTHS)
        if self._file is not None and (stored := self._file.start(settings)) is not None:
            with self._file.taking_up():
                strengths = unpacked(stored["strengths"])
                self._ridges = {int(number): InteractionRidge.from_json(value) for number, value in strengths.items()}
                check_equal(stored, self._state())
        # With evidence the pairs are tried twice, so that the rule waits for both.
        self._num_trials = 2 if evidence_rounds else 1
        rule = _Rule(
            search.patience,
            search.max_rounds,
            least_gain=(search.least_gain or 0.0) / validation.total_count,
            num_trials=2 if evidence_rounds else 0,
        )
        self._runner = RoundRunner(trainer, train, validation, rule, settings, run_file(run, _SEARCH), until=until)

    def run(self) -> tuple[SelectionResult, InteractionRidge, bool]:
        """The selection, the penalty of its best round, and whether the rows chose the strengths in it."""
        selection = self._runner.run(self._trainer.hypergraph, self._propose)
        self._note_round()
        best = selection.best_round
        return selection, self._ridges[best], best == 2 or (best > 2 and self._rows_choose)

    @property
    def _rows_choose(self) -> bool:
        """Whether the validation rows liked the strengths that the training rows chose better than the weak ones."""
        rounds = self._runner.rounds
        return self._evidence_rounds > 0 and rounds[2].validation_loss < rounds[1].validation_loss

    def _propose(self, hypergraph: InteractionHypergraph) -> Proposal | SelectionStatus:
        self._note_round()
        # After the pairs under weak strengths, the same pairs under strengths that the rows choose.
        last = len(self._runner.rounds) - 1
        if last == 1 and self._evidence_rounds and hypergraph.order > 1:
            self._trainer.use_ridge(self._strong, self._evidence_rounds)
            return Proposal(hypergraph)
        # From there on the ones that the validation rows liked better.
        if last > 1 and self._evidence_rounds:
            if self._rows_choose:  # the same in a continued run, whose trainer has another default
                found_before = replace(self._strong, by_edge=self._ridges[last].by_edge)
                self._trainer.use_ridge(found_before, self._evidence_rounds)
            else:
                self._trainer.use_ridge(self._weak, 0)
        # Twice as many sets every round; all pairs at once where they are not too many.
        self._pool.add(hypergraph.edges)
        candidates = self._pool.available()
        room, least = self._per_round << max(0, last - self._num_trials), 0.0
        if last > 1 and self._rows_choose:
            least = -math.inf  # a set of no use is held back by its strength, and the validation rows judge the round
        pairs = tuple(edge for edge in candidates if len(edge) <= 2)
        if hypergraph.order <= 1 and pairs:
            candidates = pairs
            most = max(_MAX_ALL_PAIRS // 3, len(self._context.train.domain))
            rows = self._context.train.total_count  # no fewer than parameters
            room, least = (len(pairs), None) if len(pairs) <= min(_MAX_ALL_PAIRS, rows) else (most, least)
        return Proposal.of_best(candidates, partial(self._scored, room=room), self._context, room, least)

    def _scored(self, candidates: Sequence[Edge], context: ScoreContext, *, room: int) -> np.ndarray:
        """Scores, without the cost of the search where few are left that pay it but many that promise something.

        Of candidates of no use hardly any gains a nat over all rows; where the law has no sparse model, many do. So it
        is as long as there are two rows for every interaction; beyond, rounds cost more than they bring.
        """
        values, total = self._score(candidates, context), context.train.total_count
        is_large = context.hypergraph.num_interactions + room > total / 2
        if not self._pays or is_large or (values > 0).sum() >= _FEW * room:
            return values
        gains = values + math.log(max(1, np.isfinite(values).sum())) / total
        return gains if (gains > 1 / total).mean() > _PROMISING else values

    def _note_round(self) -> None:
        """Keep the strengths of a new round, which the trainer holds, and tell of rounds not told of."""
        rounds = self._runner.rounds
        last = len(rounds) - 1
        is_chosen = last == 2 or (last > 2 and self._rows_choose)
        if last in self._ridges:
            pass
        elif self._evidence_rounds and is_chosen:
            penalty = self._trainer.penalty
            edges = [edge for edge in self._trainer.hypergraph.edges if len(edge) > 1]
            self._ridges[last] = replace(self._strong, by_edge={edge: penalty.strength(edge) for edge in edges})
        else:
            self._ridges[last] = self._weak
        if self._file is not None:
            self._file.write(self._state())
        for entry in rounds[self._announced :]:
            self._announce(entry)
        self._announced = len(rounds)

    def _state(self) -> dict[str, torch.Tensor]:
        return {"strengths": packed({str(number): ridge.to_json() for number, ridge in self._ridges.items()})}


# How strongly a learned model holds its interactions back.

_SINGLES = 0.05
_WEAK = (0.05, 5.0)  # strengths of pairs and of larger sets where the rows do not choose them
_STRONG = (1.0, 20.0)  # those that the rows begin to choose from


@dataclass(frozen=True)
class Regularisation:
    """The ridge of a learned model, and how often the training rows move its strengths.

    Attributes:
        penalty: strengths to begin with, in place of 0.05 for single variables, 0.05 for pairs and 5 beyond (weak), or
            1 for pairs and 20 beyond (where the rows choose from there).
        smoothness: correlation of neighbouring levels of ordinal variables that the penalty assumes; not used with
            ``penalty``.
        evidence_rounds: times that a fit moves the strengths; by default 2 in the search, none (sampled) or 4 at its
            end, 4 without a search; 0 leaves the strengths as they are.

    Raises:
        InputError: numbers out of range, or strengths of zero, which cannot be moved.
        InputTypeError: a penalty that is no InteractionRidge.

    Example:
        >>> options = Regularisation(smoothness=0.5)
        >>> [ridge.strength(edge) for ridge in (options.weak, options.strong) for edge in (("a", "b"), ("a", "b", "c"))]
        [0.05, 5.0, 1.0, 20.0]
    """

    penalty: InteractionRidge | None = None
    smoothness: float = 0.9
    evidence_rounds: int | None = None

    def __post_init__(self) -> None:
        rounds = self.evidence_rounds
        if rounds is not None and (not is_whole(rounds) or rounds < 0):
            raise out_of_range("evidence_rounds", "a whole number from 0 or None", rounds)
        check_type(self.penalty, InteractionRidge | None, "penalty", "InteractionRidge or None")
        if self.strong.is_zero and rounds != 0:
            raise conflict("penalty", "strengths of zero cannot be updated", "pass positive ones, or evidence_rounds=0")

    @property
    def strong(self) -> InteractionRidge:
        """The strengths that the rows begin to choose from."""
        return self._ridge(*_STRONG)

    @property
    def weak(self) -> InteractionRidge:
        """The strengths where the rows do not choose."""
        return self._ridge(*_WEAK)

    def _ridge(self, pairs: float, larger: float) -> InteractionRidge:
        if self.penalty is not None:
            return self.penalty
        return InteractionRidge(larger, by_order={1: _SINGLES, 2: pairs}, smoothness=self.smoothness)


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


def learn_variables(
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

    The recipe: single variables first; then all pairs at once (where they are more than 1,500, or than the rows, the
    best 500 by their score, or one per column where that is more); then rounds of the best sets that heredity admits,
    twice as many every time, until the validation loss gets worse. Pairs are tried twice: under weak strengths
    :math:`\lambda_S`, and under strengths that the training rows choose for every interaction (the fixed point of the
    evidence), which hold interactions of no use at zero. The validation rows say which is used from there; under weak
    strengths only sets with a positive score are added, or, once few have one but many of the others promise something,
    sets with a positive gain, up to one for every two rows. The best collection is trained once more, longer, and log Z
    is found exactly or estimated on chains of its own.

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
            takes seconds at most (about 2 million states), else sampled, and without settings of ``sampling`` the last
            fit of interactions that elimination sums in milliseconds is exact all the same, and so is its log Z.
        sampling: settings of sampled training; by default those of :class:`SampledTraining`, with up to four
            times the chains in the last fit, and a smaller damping there (1e-3) and where the rows choose the
            strengths (5e-4), which then hold parameters of rare cells back.
        regularisation: the strengths to begin with, and how often the rows move them.
        refit: train the collection found, with the strengths found, on both parts together.
        false_discovery_rate: share of the interactions of ``structure`` that are absent from the law of the rows, on
            average at most; None for no structure. Its tests take long where a model has many large sets of columns of
            many levels; ``SelectionOptions(time_limit=...)`` ends them, too.
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
        >>> learned = learn_variables(rows, rows)
        >>> learned.hypergraph.order, round(learned.gain(rows), 2)
        (2, 0.19)
        >>> learned.structure.hypergraph.edges, round(learned.structure.gain(rows), 2)
        ((('a',), ('b',), ('c',), ('a', 'b')), 0.19)
    """
    # The rows, and what their number and the width of the table ask for.
    if validation is None:
        shares = [1 - _HELD_OUT, _HELD_OUT]
        train, validation = _observed(train, None, "train", {}).split(shares, checked_seed(seed))
    given_parts = checked_parts(train, validation)
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
    if search.least_gain is None and recipe.is_wide:
        search = replace(search, least_gain=_LEAST_GAIN)
    # The search, stopped on validation rows.
    session = Session(recipe, run, train, validation, search.time_limit)
    first = recipe.trainer(train, start, ridges.weak)
    rounds, until = recipe.evidence_rounds[0], session.until(_SEARCH_SHARE)
    staged = StagedSearch(train, validation, first, search, ridges.strong, rounds, run, session.tell_round, until)
    selection, ridge, chosen = staged.run()
    count = interactions(selection.hypergraph.num_interactions)
    if selection.status == "time limit":
        session.late("the search; a resumed one goes on")
    if selection.best_round == 0 and any(math.isinf(entry.validation_std_error) for entry in selection.rounds):
        session.note(_UNJUDGED)
    session.tell(f"kept round {selection.best_round}: {count}; training them longer")
    session.clock("search")
    # A longer fit of the best collection. A sampled search has moved the strengths in every round: that is enough.
    settled, final = recipe.name == "sampled" or not chosen, None
    with session.giving_up("the last, longer fit: the tables are those of the search", _FIT_SHARE):
        final = session.fit(train, selection.hypergraph, ridge, "final", settled=settled, chosen=chosen)
    if final is None:
        final = FinalFit.of_round(recipe.trainer(train, selection.hypergraph, ridge, is_chosen=chosen), selection)
    session.clock("training")
    # The tests of single interactions, on all rows.
    confirmation = None
    if false_discovery_rate is not None:
        session.tell("testing interactions on all rows")
        with session.giving_up("the tests of single interactions: there is no structure", _TESTS_SHARE):
            confirmation = session.confirm(selection.hypergraph, train, validation, false_discovery_rate, search)
        session.clock("tests")
    # One more fit, to all rows, where it is asked for.
    rows, again, amount = train, None, given_parts[0].total_count
    if refit:
        session.tell("training once more, on training and validation rows together")
        together = joint_rows(train, validation)
        with session.giving_up("the fit to training and validation rows together", _REFIT_SHARE):
            again = session.fit(together, selection.hypergraph, final.trainer.penalty, "refit", chosen=chosen)
        if again is not None:
            final, rows, amount = again, together, sum(part.total_count for part in given_parts)
        session.clock("refit")
    # The result, with the confirmed structure beside it.
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
    confirmed, structure = confirmation.hypergraph, learned
    session.tell(f"training the structure of {interactions(confirmed.num_interactions)}")
    # Another collection is fitted alike, unless it is the same.
    if confirmed != learned.hypergraph:
        stage, fitted = "structure-refit" if learned.refit else "structure-fit", None
        with session.giving_up("the fit of the structure", 1.0):
            ridge = final.trainer.penalty
            if chosen:  # none stronger than at first: others may have stood in for an interaction and held it at zero
                at_most = {edge: made["ridge"].strength(edge) for edge in confirmed.edges}
                ridge = ridge.updated({edge: min(ridge.strength(edge), most) for edge, most in at_most.items()})
            settled = session.recipe.name == "sampled" or not chosen
            fitted = session.fit(rows, confirmed, ridge, stage, settled=settled, chosen=chosen)
        session.clock("structure")
        if fitted is None:
            notes = tuple(dict.fromkeys((*session.notes, *learned.notes)))
            return replace(learned, notes=notes, seconds=session.seconds)
        structure = _learned(session, fitted, rows, **made)
    structure = replace(structure, confirmation=confirmation, seconds=session.seconds)
    return replace(learned, structure=structure, seconds=session.seconds)


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
    """The last part of :func:`learn_variables` alone: strengths and tables of a collection that is given.

    Args:
        train: complete rows.
        hypergraph: the collection.
        trainer: as in :func:`learn_variables`, and so the following.
        sampling: of chains.
        regularisation: of the strengths.
        seed: of everything random.
        run: a checkpoint (a folder; a fit that was completed is read from it) and progress.

    Returns:
        The model, without a selection.

    Raises:
        InputError: as of :func:`learn_variables`, and so its other errors.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> learned = fit_collection(rows, InteractionHypergraph.saturated(rows.domain))
        >>> learned.trainer, learned.selection, round(learned.gain(rows), 3)  # the mutual information
        ('exact', None, 0.086)
    """
    # Nothing is searched, so the largest collection is this one.
    (given,) = checked_parts(train)
    train = given.in_effective_rows()
    ridges, run = regularisation or Regularisation(), checked_run(run)
    is_shown = run.progress and sys.stderr.isatty()
    rounds, order = ridges.evidence_rounds, hypergraph.order
    recipe = checked_recipe(train, trainer, rounds, hypergraph, order, seed, is_shown, sampling)
    _check_held(recipe.name, train)
    if rounds is None:
        recipe = replace(recipe, evidence_rounds=(_EVIDENCE_ALONE, _EVIDENCE_ALONE))
    # One fit, whose strengths the rows choose.
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
        trainer=trainer.name,
        training=final.report,
        selection=selection,
        independent=frequency_model(rows),
        one_body=one_body_model(rows, ridge),
        num_rows=num_rows,
        effective_num_rows=None if math.isclose(rows.total_count, num_rows, rel_tol=1e-9) else rows.total_count,
        refit=refit,
        notes=tuple(dict.fromkeys((*session.notes, *final.report.notes, *log_z.notes))),
    )
    session.clock("log_z")
    return learned


def _observed(part: DataLike, domain: Domain | None, name: str, options: FrameOptions) -> Observations:
    """Rows of a part, or margins and a sample of those that do not fit into memory."""
    part = rows_of_frame(part, options if domain is None or is_frame(part) else {}, argument=name, domain=domain)
    if isinstance(part, RowSource):
        return rows_of(part)
    return as_observations(part, domain=domain, argument=name)


def checked_parts(*parts: DataLike, options: FrameOptions | None = None) -> list[Observations]:
    """Rows of the parts over one domain, none of them empty; ``options`` say how data frames are read."""
    parts_read: list[Observations] = []
    for name, part in zip(("train", "validation"), parts, strict=False):
        rows = _observed(part, parts_read[0].domain if parts_read else None, name, options or {})
        parts_read.append(rows)
        if rows.domain != parts_read[0].domain:
            raise other_domain(name, "rows over the variables and levels of train", received="others")
        if not rows.total_count > 0:
            raise none_received(name, "at least one observation")
    return parts_read


def _check_score(trainer: str, search: SelectionOptions, rows: Observations) -> None:
    """Refuse gains where the trainer has no marginal laws to compute them from."""
    score = search.score
    is_gain = isinstance(score, Gain) or (isinstance(score, str) and score.startswith("gain"))
    if is_gain and trainer == "pseudo-likelihood" and rows.domain.num_states > _MAX_PSEUDO_STATES:
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


# Learning from columns that say one thing together, such as the indicators of a category.

_RARELY_NONE = 0.01
_SHOWN = 3


class RecipeOptions(TypedDict, total=False):
    """Options of :func:`learn`, as :func:`pyro_hoim.log_linear.learning.learn.learn_variables` describes them."""

    trainer: TrainerName
    sampling: SampledTraining | None
    regularisation: Regularisation | None
    refit: bool
    false_discovery_rate: float | None
    seed: int
    run: RunOptions | None


class LearnOptions(RecipeOptions, FrameOptions, total=False):
    """Options of :func:`learn`: those of the recipe, and how data frames are read, as :func:`pyro_hoim.fit` does."""


def learn(
    train: DataLike,
    validation: DataLike | None = None,
    search: SelectionOptions | None = None,
    *,
    join: Join | JoinedColumns = "exact",
    **options: Unpack[LearnOptions],
) -> LearnResult:
    r"""Learn interactions and their strengths, after columns that say one thing together were joined to one variable.

    Of the indicator (one-hot) columns of a category exactly one is set. Chains that change one column at a time never
    leave such a level, so that nothing that rests on them would be right. By default such columns are found and joined
    (:func:`~pyro_hoim.data.join_columns`), the model is learned of the joined variables by
    :func:`~pyro_hoim.log_linear.learning.learn.learn_variables`, and ``score``, ``predict``, ``sample`` and ``impute``
    of the result and of its file speak of the columns. Interactions are those of the joined variables.

    Args:
        train: complete rows.
        validation: complete rows that decide when the search ends, as of the recipe; a quarter of ``train`` when None.
        search: as of the recipe; names in ``candidates`` are those of columns.
        join: ``exact``; ``exclusive``, which joins columns of which at most one is set, too; ``determined``, also
            columns that say nearly all of another; ``none``; or the groups. They are found from all rows given. That
            none of these N rows breaks a group, as by two of its columns set, is an estimate: a new row does with
            probability 1 / (N + 2), by Laplace's rule (:meth:`~pyro_hoim.data.JoinedColumns.with_breaks`). With
            ``hard``, which is ``exact`` otherwise, and in groups that are given without a law of broken rows, such rows
            are impossible. Of rows beyond memory none are joined.
        options: ``trainer``, ``sampling``, ``regularisation``, ``refit``, ``false_discovery_rate``, ``seed`` and
            ``run`` of the recipe. Of data frames ``weights``, ``count``, ``missing`` (``"drop"``) and
            ``missing_values`` as :func:`pyro_hoim.fit` has them, and ``bins``, ``exclude`` and ``allow``, which say how
            columns are cut, left out and taken as they are (:func:`~pyro_hoim.data.read_columns`).

    Returns:
        The model that predicts best, with ``structure`` beside it, and with ``joined`` where columns were joined.

    Raises:
        UnknownNameError: an option that does not exist.
        InputError: as of the recipe; groups of other columns, or that rows do not keep to.
        MissingDataError: missing cells.
        IntractableError: exact training was asked for and is out of reach, or joined columns of rows beyond memory.

    Warns:
        DataWarning: columns that exclude each other are left apart and log Z is estimated; its verdict is then
            ``unreliable``.

    Example:
        >>> import torch
        >>> from pyro_hoim import Domain
        >>> code, wet = torch.arange(120) % 3, (torch.arange(120) % 3 == 0).long()
        >>> table = torch.cat([torch.eye(3, dtype=torch.long)[code], wet[:, None]], 1)
        >>> names = Domain.from_cardinalities({"sky=blue": 2, "sky=grey": 2, "sky=dark": 2, "dry": 2})
        >>> rows = Observations.from_tensor(table, names)
        >>> learned = learn(rows, rows)
        >>> learned.hypergraph.edges, learned.joined.groups[0].columns
        ((('sky',), ('dry',), ('sky', 'dry')), ('sky=blue', 'sky=grey', 'sky=dark'))
        >>> learned.sample(2, given={"dry": 1}, seed=0).values.tolist()
        [['1', '0', '0', '1'], ['1', '0', '0', '1']]
    """
    # The rows, and which of their columns say one thing together.
    recipe_names = list(RecipeOptions.__annotations__)
    check_names(options, [*recipe_names, *FrameOptions.__annotations__], "learn", noun="option")
    recipe: Any = {name: value for name, value in options.items() if name in recipe_names}
    frame_options: Any = {name: value for name, value in options.items() if name not in recipe_names}
    if frame_options.get("missing") == "marginalise":
        raise conflict("missing", "learn needs complete rows", "pass missing='drop', or use pyro_hoim.learn_network")
    parts = [train] if validation is None else [train, validation]
    parts_read = checked_parts(*parts, options=frame_options)
    if any(isinstance(rows, SourcedRows) for rows in parts_read):
        if join not in ("exact", "none"):
            problem = "columns are joined in rows in memory alone, and there are more than 2^25 cells of different ones"
            raise out_of_reach("join", problem, "learn from rows.distinct(), or from some, rows.sample(10**6, seed=0)")
        join = "none"
    if isinstance(join, JoinedColumns):
        joined = join
    else:
        joined = join_columns(parts_read[0] if len(parts_read) == 1 else joint_rows(*parts_read), join)
    if joined.domain != parts_read[0].domain:
        raise other_domain("join", "groups of the columns of train", received="others")
    parts_joined = parts_read
    if joined:
        told(checked_run(options.get("run")), joined.sentence())
        # Missing cells are left for the recipe to refuse.
        parts_joined = [joined.read(rows).rows if rows.has_missing else joined.join(rows) for rows in parts_read]
        if search is not None and search.candidates is not None:
            search = replace(search, candidates=joined.sets(search.candidates))
    # The recipe learns the joined variables.
    learned = learn_variables(parts_joined[0], None if validation is None else parts_joined[1], search, **recipe)
    return columns_joined(learned, joined, parts_joined[0])


def columns_joined(learned: LearnResult, joined: JoinedColumns, rows: Observations) -> LearnResult:
    """A model of joined variables that knows the columns, and that says what columns left apart do to its log Z.

    The model was learned from ``rows`` over the joined variables.
    """
    frozen = _frozen(rows) if learned.log_partition.kind != "exact" else ()
    if frozen:
        names = ", ".join(group.name for group in frozen[:_SHOWN]) + (", ..." if len(frozen) > _SHOWN else "")
        columns = sum(len(group.columns) for group in frozen)
        problem = (
            f"{columns} columns exclude each other and are left apart ({names}): chains that change one column at a "
            "time do not move between their levels, and the checks of log Z rest on such chains"
        )
        warnings.warn(DataWarning(f"{problem}; join='exclusive' joins them"), stacklevel=caller_level())
        learned = _changed(learned, lambda model: _doubted(model, problem))
    if not joined:
        return learned
    return _changed(learned, lambda model: replace(model, joined=joined, notes=(*model.notes, joined.sentence())))


def _frozen(rows: Observations) -> tuple[ColumnGroup, ...]:
    """Groups of columns of which at most one is set, and nearly always one is."""
    groups: list[ColumnGroup] = []
    for group in find_exclusive_groups(rows, at_most_one=True):
        is_none = (rows.project(group.columns).narrow == 0).all(1)
        if float(rows.counts[is_none].sum()) <= _RARELY_NONE * rows.total_count:
            groups.append(group)
    return tuple(groups)


def _changed(learned: LearnResult, change: Callable[[LearnResult], LearnResult]) -> LearnResult:
    """A model changed, and its structure likewise."""
    structure = None if learned.structure is None else _changed(learned.structure, change)
    return replace(change(learned), structure=structure)


def _doubted(learned: LearnResult, problem: str) -> LearnResult:
    """The model with a log Z that is not reliable for a reason."""
    log_z = learned.log_partition
    verdicts = torch.full_like(log_z.verdicts, int(LogZVerdict.UNRELIABLE))
    log_z = replace(log_z, verdicts=verdicts, notes=(*log_z.notes, problem))
    return replace(learned, log_partition=log_z, notes=(*learned.notes, problem))
