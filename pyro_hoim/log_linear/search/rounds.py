"""Rounds of a search: its options, the fit and judgement of each collection, and the result with its file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from tqdm import tqdm
from typing_extensions import override

from ...core.family import family_of_model
from ...core.prediction import check_count
from ...core.trainer import DoubtingTrainer, Loss, MaskedTrainer, Trainer, TrainingReport
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations, check_complete, rows_digest
from ...data.sources.sourced import SourcedRows
from ...errors import (
    check_not_negative,
    check_positive,
    check_type,
    check_whole,
    none_received,
    other_domain,
    refused,
    wrong_type,
)
from ...results.fitted import Fitted
from ...runs.checkpoint import (
    DeferredInterrupt,
    RunFile,
    TimeUp,
    check_alike,
    check_equal,
    check_time,
    ending_at,
    packed,
    part_of,
    unpacked,
)
from ...schema import Domain
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..energy import LogLinearEnergy
from .candidates import CandidatePool, Heredity
from .scores import Score, ScoreContext, ScoreName, checked_score, checked_values

if TYPE_CHECKING:
    import pandas as pd

    from ..file import ModelFile
from ...runs.container import LOG_LINEAR

# Options that all searches for interactions share.

_HEREDITY: Heredity = 0.3


@dataclass(frozen=True)
class SelectionOptions:
    """Which interactions a search may add, how it ranks them, and when it ends.

    Attributes:
        heredity: share of the facets of a candidate that must be in the collection, such as 0.3, 0.5 or 1.0;
            ``"semi-strong"`` for all but one; None for 0.3, or no condition where ``candidates`` are given.
        score: ``"gain"`` (leave-one-out gain at the present model), ``"J"`` (the paper's), each with
            ``"-per-parameter"``; ``"refined"`` (a fit of every candidate); or a function of candidates and a
            :class:`~pyro_hoim.log_linear.ScoreContext`.
        candidates: add no sets of two variables or more but these, such as known pathways; None for all.
        max_order: variables of the largest interaction; None for the default of the search.
        per_round: interactions added in a round; None for the default of the search.
        patience: rounds without a better validation loss after which the search stops.
        least_gain: nats, over all validation rows together, that every interaction added by a round must bring on
            average for the search to go on; None for the default of the search, which is 0, no such end, but for
            :func:`~pyro_hoim.log_linear.learn` of 50 columns or more.
        max_rounds: rounds after the first; a resumed search may have a larger number.
        time_limit: seconds after which the search ends with its best model so far; None for no limit. A round that is
            under way is given up. A resumed search has its time anew, and may have another limit.

    Raises:
        InputError: a number out of range.
        InputTypeError: numbers that are not whole, or candidates that are strings.

    Example:
        >>> from pyro_hoim import Domain
        >>> options = SelectionOptions(candidates=[("a", "b"), ("b", "c")], max_order=2)
        >>> pool = options.pool(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}))
        >>> pool.add([("a",), ("b",), ("c",)])
        >>> pool.available()
        (('a', 'b'), ('b', 'c'))
    """

    heredity: Heredity | None = None
    score: ScoreName | Score = "gain"
    candidates: Iterable[Sequence[str]] | None = None
    max_order: int | None = None
    per_round: int | None = None
    patience: int = 1
    least_gain: float | None = None
    max_rounds: int | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        if self.candidates is not None:
            given = [self.candidates] if isinstance(self.candidates, str) else list(self.candidates)
            for edge in given:
                if isinstance(edge, str):
                    raise wrong_type("candidates", "sets of names", hint=f"write ({edge!r},)", received=repr(edge))
            object.__setattr__(self, "candidates", tuple(tuple(edge) for edge in given))
        check_count(self.patience, "patience")
        if self.per_round is not None:
            check_count(self.per_round, "per_round")
        if self.max_rounds is not None:
            check_count(self.max_rounds, "max_rounds", 0)
        if self.least_gain is not None:
            check_not_negative(self.least_gain, "least_gain")
        if self.time_limit is not None:
            check_positive(self.time_limit, "time_limit")

    def filled(self, per_round: int, max_order: int | None = None) -> Self:
        """These options with what is None replaced by the defaults of a search."""
        heredity = _HEREDITY if self.heredity is None and self.candidates is None else self.heredity
        order = max_order if self.max_order is None else self.max_order
        return replace(self, heredity=heredity, per_round=self.per_round or per_round, max_order=order)

    def pool(self, domain: Domain) -> CandidatePool:
        """What may be added beside a collection."""
        return CandidatePool(domain, self.heredity, self.max_order, self.candidates)

    def settings(self, domain: Domain) -> dict[str, Any]:
        """What a resumed search must repeat, JSON-ready."""
        sets = self.candidates
        return {
            "heredity": self.heredity,
            "score": checked_score(self.score)[0],
            "per_round": self.per_round,
            "max_order": self.max_order,
            "candidates": None if sets is None else sorted(sorted(domain.indices(edge)) for edge in sets),
            "patience": self.patience,
        }


# What a search of interactions found, round by round, and its file.

Verdict = Literal["start", "improved", "worse", "undecided"]
SelectionStatus = Literal[
    "stopped early", "exhausted", "little gain", "max_rounds", "undecided", "diverged", "time limit", "unfinished"
]


@dataclass(frozen=True)
class SelectionRound:
    """One collection of the search, fitted.

    Attributes:
        number: 0 for the collection that the search starts from.
        changed: interactions added (or removed, by :func:`~pyro_hoim.log_linear.prune`) in this round, best
            first.
        scores: their scores.
        num_candidates: interactions that were scored.
        num_interactions: sets of two and more variables in the collection.
        num_parameters: free parameters of the collection.
        train_loss, validation_loss: mean losses of the rows, in nats; what kind of loss says ``loss_kind``.
        train_std_error, validation_std_error: their standard errors from log Z.
        loss_kind: ``exact``, ``estimated`` or ``pseudo-likelihood``.
        train_kl, validation_kl: divergences of the model from the empirical laws of the rows, in nats, whatever the
            trainer's loss; None where log Z is out of reach.
        training_status: how training of this collection ended.
        verdict: what the validation loss says against the best round before.
        seconds: time of scores, training and losses.
    """

    number: int
    changed: tuple[Edge, ...]
    scores: tuple[float, ...]
    num_candidates: int
    num_interactions: int
    num_parameters: int
    train_loss: float
    train_std_error: float
    validation_loss: float
    validation_std_error: float
    loss_kind: str
    train_kl: float | None
    validation_kl: float | None
    training_status: str
    verdict: Verdict
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description; numbers that are not finite become strings."""
        values = asdict(self)
        values["scores"] = [_plain(score) for score in self.scores]
        values["changed"] = [list(edge) for edge in self.changed]
        return {name: _plain(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SelectionRound:
        """Inverse of :meth:`to_json`."""
        texts = ("loss_kind", "training_status", "verdict")
        values = dict[str, Any](value)
        values |= {name: float(v) for name, v in value.items() if isinstance(v, str) and name not in texts}
        values["changed"] = tuple(tuple(edge) for edge in value["changed"])
        values["scores"] = tuple(float(score) for score in value["scores"])
        return cls(**values)


def _plain(value: Any) -> Any:
    """A float that is not finite as a string, which JSON has no number for."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, eq=False, repr=False)
class SelectionResult(Fitted):
    """Interactions selected on validation rows, and the path that led to them.

    Attributes:
        rounds: every collection that was fitted, the start first.
        best_round: number of the round whose collection and tables these are.
        hypergraph: the collection of that round; it need not be hierarchical.
        tables: its balanced tables (num_terms,), float64, in the layout of ``hypergraph.term_slices``.
        status: why the search ended: ``stopped early`` (the validation loss did not improve), ``exhausted`` (no
            candidate scores above the minimum, or nothing can be removed), ``little gain`` (the interactions of the
            last round brought less than ``least_gain`` each), ``max_rounds``, ``undecided`` (many rounds that the error
            of log Z leaves open), ``diverged``, ``time limit``, or ``unfinished``.
        settings: arguments of the search.
        excluded: entries of the tables (num_terms,) that a masked trainer leaves out: combinations that no training
            row has, to which the selected model gives probability zero whatever the tables say; None where there is
            none. Losses and divergences of the rounds are those of the model with the mask.
    """

    model_kind: ClassVar[str] = LOG_LINEAR

    rounds: tuple[SelectionRound, ...]
    best_round: int
    hypergraph: InteractionHypergraph
    tables: torch.Tensor
    status: SelectionStatus
    settings: Mapping[str, Any]
    excluded: torch.Tensor | None = None

    @override
    def __repr__(self) -> str:
        best, variables = self.best, len(self.hypergraph.domain)
        kl = "" if best.validation_kl is None else f", validation KL {best.validation_kl:.4f}"
        return (
            f"SelectionResult: log-linear model, {variables} variables, {best.num_interactions} interactions, "
            f"{best.num_parameters} parameters\n"
            f"  {self.status}, best of {len(self.rounds)} rounds is {self.best_round}{kl}"
        )

    @property
    def best(self) -> SelectionRound:
        """The best round."""
        return self.rounds[self.best_round]

    def capacity_curve(self) -> pd.DataFrame:
        """Numbers and words of every round in a row each, and ``is_best`` (paper 1, figures 4 to 6)."""
        import pandas as pd

        frame = pd.DataFrame([asdict(entry) for entry in self.rounds]).drop(columns=["changed", "scores"])
        for name in ("train_kl", "validation_kl"):
            frame[name] = frame[name].astype(float)
        frame["is_best"] = frame["number"] == self.best_round
        return frame.set_index("number")

    def log_linear(self) -> LogLinearEnergy:
        """The selected model, on the closure of its collection, where added tables are zero.

        Raises:
            InputError: the trainer was masked, and the model excludes combinations, which finite tables cannot.
        """
        if self.excluded is not None:
            problem = (
                f"expected a model of finite tables, but masking gives probability zero to {int(self.excluded.sum())} "
                "combinations without a training row; select with masked=False, or take "
                "LogLinearEnergy(selection.hypergraph, selection.tables), another law, in which all can occur"
            )
            raise refused("log_linear", problem, code="impossible")
        return LogLinearEnergy(self.hypergraph, self.tables).on_closure()

    def file(self) -> ModelFile:
        """What a model file holds: that of :meth:`log_linear`."""
        energy = self.log_linear()
        return family_of_model(energy).record_of(energy)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description without collection, tables and times, so that equal searches have equal ones."""
        rounds = [entry.to_json() for entry in self.rounds]
        for entry in rounds:
            del entry["seconds"]
        return {
            "status": self.status,
            "best_round": self.best_round,
            "settings": dict(self.settings),
            "rounds": rounds,
        }


# Rounds of a search: fit a collection, judge it on validation rows, keep the best, leave a checkpoint.

_STANDARD_ERRORS = 2.0
_UNDECIDED_PER_PATIENCE = 5


class Proposal(NamedTuple):
    """The next collection to fit, and how it came about."""

    hypergraph: InteractionHypergraph
    changed: tuple[Edge, ...] = ()
    scores: tuple[float, ...] = ()
    num_candidates: int = 0

    @classmethod
    def of_best(
        cls, candidates: Sequence[Edge], score: Score, context: ScoreContext, room: int, least: float | None
    ) -> Self | Literal["exhausted"]:
        """The present collection with the best ``room`` candidates of a score above ``least``, ties in their order."""
        values = checked_values(score, candidates, context)
        order = np.argsort(-values, kind="stable")[:room]
        order = [int(i) for i in order if least is None or values[i] > least]
        if not order:
            return "exhausted"
        edges = tuple(candidates[i] for i in order)
        larger = context.hypergraph.add_edges(edges, hierarchical=False)
        return cls(larger, edges, tuple(float(values[i]) for i in order), len(candidates))


@dataclass(frozen=True)
class StopRule:
    """When a search ends.

    A round is ``improved`` when its validation loss is below that of the best round so far by more than twice the
    standard error of their difference, taken as independent; ``worse`` when it is above by more than that, or equal to
    or above it where both are exact; else ``undecided``. The search stops after ``patience`` rounds that were worse
    since the best, or after five times as many that were worse or undecided, or with a round that improved by little
    for its size. The best round is the last one that improved, so of two collections that the error of log Z cannot
    tell apart the earlier is kept.

    Attributes:
        patience: see above.
        max_rounds: rounds after the first.
        keeps_equal: an equal or undecided round counts as improved, for searches that make a collection smaller.
        tolerance: with ``keeps_equal``, loss in nats that still counts as equal.
        least_gain: nats a row that an interaction added since the round before must bring on average; the search ends
            with a round of less.

    Raises:
        InputError: a patience below 1, fewer than no rounds, or a tolerance or least gain that is not finite and
            non-negative.
        InputTypeError: a patience or rounds that are no whole number.
    """

    patience: int = 1
    max_rounds: int | None = None
    keeps_equal: bool = False
    tolerance: float = 0.0
    least_gain: float = 0.0

    def __post_init__(self) -> None:
        check_count(self.patience, "patience")
        if self.max_rounds is not None:
            check_count(self.max_rounds, "max_rounds", 0)
        check_not_negative(self.tolerance, "tolerance")
        check_not_negative(self.least_gain, "least_gain")

    def verdict(self, best: SelectionRound | None, loss: Loss) -> Verdict:
        """What a validation loss says against a round, see :meth:`reference`."""
        if best is None:
            return "start"
        noise = _STANDARD_ERRORS * math.hypot(best.validation_std_error, loss.std_error)
        if math.isnan(loss.value):
            return "worse"
        if self.keeps_equal:
            return "improved" if loss.value <= best.validation_loss + noise + self.tolerance else "worse"
        if loss.value < best.validation_loss - noise:
            return "improved"
        return "undecided" if noise > 0 and loss.value <= best.validation_loss + noise else "worse"

    def reference(self, rounds: Sequence[SelectionRound], best: int) -> SelectionRound | None:
        """The round that the next one is compared with.

        Where equal rounds are kept it is that of the lowest loss, so that small losses do not add up unseen.
        """
        if not rounds or not self.keeps_equal:
            return rounds[best] if rounds else None
        return min((entry for entry in rounds if entry.verdict != "worse"), key=lambda entry: entry.validation_loss)

    def status(self, rounds: Sequence[SelectionRound], best: int) -> SelectionStatus | None:
        """Why a search that has made these rounds ends now, None if it goes on."""
        if rounds[-1].training_status == "diverged":
            return "diverged"
        later = [entry.verdict for entry in rounds[best + 1 :]]
        if later.count("worse") >= self.patience:
            return "stopped early"
        if len(later) >= _UNDECIDED_PER_PATIENCE * self.patience:
            return "undecided"
        if self.gained_little(rounds, best):
            return "little gain"
        if self.max_rounds is not None and len(rounds) > self.max_rounds:
            return "max_rounds"
        return None

    def gained_little(self, rounds: Sequence[SelectionRound], best: int) -> bool:
        """Whether the last round is the best, but its interactions brought less than the least gain each."""
        if not self.least_gain or best == 0 or best < len(rounds) - 1:
            return False
        last, before = rounds[-1], min(rounds[:-1], key=lambda entry: entry.validation_loss)
        added = last.num_interactions - before.num_interactions
        return before.validation_loss - last.validation_loss < self.least_gain * added


class RoundRunner:
    """Runs rounds with one trainer, from a start or from a checkpoint."""

    def __init__(
        self,
        trainer: Trainer,
        train: Observations,
        validation: Observations,
        rule: StopRule,
        settings: Mapping[str, Any],
        file: RunFile | None,
        label: str | None = None,
        until: float = math.inf,
    ) -> None:
        self.trainer = trainer
        self.rounds: list[SelectionRound] = []
        self.best = 0
        self._train, self._validation = train, validation
        self._entropies = (_entropy(train), _entropy(validation))
        self._rule = rule
        self._settings = dict(settings)
        self._file = file
        self._label = label
        self._until = until  # of the monotonic clock, after which the search ends with the best round
        self._best_hypergraph = trainer.hypergraph
        self._best_tables = trainer.tables

    def run(
        self,
        start: InteractionHypergraph,
        propose: Callable[[InteractionHypergraph], Proposal | SelectionStatus],
    ) -> SelectionResult:
        """Fit ``start``, then what ``propose`` makes of each collection, until the rule or ``propose`` ends it."""
        # What an earlier run had made, or the start.
        stored = None
        if self._file is not None:
            settings = {
                **self._settings,
                "trainer": type(self.trainer).__name__,
                **_trainer_settings(self.trainer),
                "training data digest": rows_digest(self._train),
                "validation data digest": rows_digest(self._validation),
            }
            if (stored := self._file.start(settings)) is not None:
                with self._file.taking_up():
                    self._restore(stored)
                    check_equal(stored, self._state())
        # Rounds, the first of them that of the start.
        limit, is_hidden = self._rule.max_rounds, self._label is None
        with tqdm(total=limit, unit="round", desc=self._label, leave=False, disable=is_hidden) as bar:
            if stored is None:
                self._fit(Proposal(start), time.monotonic())
            while True:
                last, best = self.rounds[-1], self.rounds[self.best]
                bar.n = len(self.rounds) - 1
                bar.set_postfix_str(
                    f"{last.num_interactions} interactions, validation {last.validation_loss:.4f}, "
                    f"best {best.validation_loss:.4f}"
                )
                # One more round, unless the rule, the proposals or the clock end the search.
                begin = time.monotonic()
                proposal = self._rule.status(self.rounds, self.best)
                try:
                    with ending_at(self._until):
                        check_time()
                        proposal = proposal or propose(self.trainer.hypergraph)
                        if not isinstance(proposal, str):
                            self._fit(proposal, begin)
                            continue
                except TimeUp:
                    proposal = proposal if isinstance(proposal, str) else "time limit"
                tables, excluded = self._best_tables.clone(), self._excluded()
                rounds, graph = tuple(self.rounds), self._best_hypergraph
                return SelectionResult(rounds, self.best, graph, tables, proposal, self._settings, excluded)

    def _excluded(self) -> torch.Tensor | None:
        """Table entries of the best collection that a masked trainer leaves out, None where there is none."""
        if not isinstance(self.trainer, MaskedTrainer):
            return None
        excluded = self.trainer.excluded(self._best_hypergraph)
        return excluded if bool(excluded.any()) else None

    def _fit(self, proposal: Proposal, begin: float) -> None:
        """Train one collection, judge it and keep a checkpoint of everything."""
        # Train from where the parameters are.
        trainer = self.trainer
        trainer.restructure(proposal.hypergraph)
        report = trained(trainer)
        train, validation = trainer.loss(self._train), trainer.loss(self._validation)
        train_kl, validation_kl = self._divergences(train, validation)
        # Judged on validation rows; the best collection is kept with its tables.
        verdict = self._rule.verdict(self._rule.reference(self.rounds, self.best), validation)
        self.rounds.append(
            SelectionRound(
                number=len(self.rounds),
                changed=proposal.changed,
                scores=proposal.scores,
                num_candidates=proposal.num_candidates,
                num_interactions=proposal.hypergraph.num_interactions,
                num_parameters=proposal.hypergraph.num_parameters,
                train_loss=train.value,
                train_std_error=train.std_error,
                validation_loss=validation.value,
                validation_std_error=validation.std_error,
                loss_kind=validation.kind,
                train_kl=train_kl,
                validation_kl=validation_kl,
                training_status=report.status,
                verdict=verdict,
                seconds=time.monotonic() - begin,
            )
        )
        if verdict in ("start", "improved"):
            self.best = len(self.rounds) - 1
            self._best_hypergraph, self._best_tables = trainer.hypergraph, trainer.tables.detach().clone()
        # A round that is over is not lost.
        if self._file is not None:
            with DeferredInterrupt():
                self._file.write(self._state())

    def _divergences(self, train: Loss, validation: Loss) -> tuple[float | None, float | None]:
        """KL of both parts, from the likelihood even where the trainer's loss is another one."""
        first, second = self._entropies
        if first is None or second is None:
            return None, None
        if validation.kind != "pseudo-likelihood":
            return train.value - first, validation.value - second
        log_partition = self.trainer.log_partition()
        if log_partition is None:
            return None, None
        model = LogLinearEnergy(self.trainer.hypergraph, self.trainer.tables)
        log_z = float(log_partition.value)

        def divergence(rows: Observations, loss: Loss, entropy: float) -> float:
            if loss.value == math.inf:
                return math.inf
            return log_z + float(rows.counts @ model.energy(rows.codes)) / rows.total_count - entropy

        return divergence(self._train, train, first), divergence(self._validation, validation, second)

    def _state(self) -> dict[str, torch.Tensor]:
        """Everything to continue from."""
        hypergraph = self.trainer.hypergraph
        path = {
            "rounds": [entry.to_json() for entry in self.rounds],
            "best": self.best,
            "edges": hypergraph.edge_indices,
            "best edges": self._best_hypergraph.edge_indices,
        }
        # The trainer goes on from its own state.
        tensors = {f"trainer.{name}": tensor for name, tensor in self.trainer.state_dict().items()}
        tensors["best tables"] = self._best_tables
        tensors["path"] = packed(path)
        return tensors

    def _restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        path = unpacked(tensors["path"])
        domain = self._train.domain

        def collection(edges: list[list[int]]) -> InteractionHypergraph:
            return InteractionHypergraph(domain, ([domain.names[i] for i in e] for e in edges), hierarchical=False)

        self.rounds = [SelectionRound.from_json(entry) for entry in path["rounds"]]
        self.best = path["best"]
        self._best_hypergraph, self._best_tables = collection(path["best edges"]), tensors["best tables"]
        check_whole(self.best, "best", 0, len(self.rounds) - 1)
        check_alike({"": self._best_tables}, {"": torch.zeros(self._best_hypergraph.num_terms, dtype=torch.float64)})
        self.trainer.restructure(collection(path["edges"]))
        self.trainer.load_state_dict(part_of(tensors, "trainer."))


def trained(trainer: Trainer) -> TrainingReport:
    """Train, and on where the trainer doubts its loss and time is left; the report of both."""
    report, again = trainer.train(), None
    if isinstance(trainer, DoubtingTrainer):
        with suppress(TimeUp):  # the trainer is as it was before
            again = trainer.retrained()
    if again is None:
        return report
    num_iterations = report.num_iterations + again.num_iterations
    return replace(again, num_iterations=num_iterations, notes=(*report.notes, *again.notes))


def _entropy(rows: Observations) -> float | None:
    """Entropy of the law of rows, None where they are not in memory."""
    return None if isinstance(rows, SourcedRows) else rows.entropy()


def _trainer_settings(trainer: Trainer) -> dict[str, str]:
    """Records and switches that a trainer shows as attributes, such as its penalty, its rows, and whether it masks."""
    settings: dict[str, str] = {}
    for name, value in sorted(vars(trainer).items()):
        if isinstance(value, Observations):
            settings[f"trainer {name} digest"] = rows_digest(value)
        elif not name.startswith("_") and (is_dataclass(value) or isinstance(value, bool)):
            settings[f"trainer {name}"] = repr(value)
    return settings


def checked_rows(train: DataLike, validation: DataLike, trainer: Trainer) -> tuple[Observations, Observations]:
    """Both parts, refused unless complete, over one domain, not empty, and the first is the trainer's."""
    check_type(trainer, Trainer, "trainer", "a trainer such as ExactTrainer")
    parts = checked_pair(train, validation, trainer.rows.domain, "rows over the trainer's variables and levels")
    if parts[0] is not trainer.rows and rows_digest(parts[0]) != rows_digest(trainer.rows):
        raise other_domain("train", "the rows that the trainer was made with", hint="make the trainer with these rows")
    return parts


def checked_pair(
    train: DataLike,
    validation: DataLike,
    domain: Domain | None = None,
    expected: str = "rows over the variables and levels of train",
) -> tuple[Observations, Observations]:
    """Both parts, refused unless complete, over one domain and not empty."""
    parts: list[Observations] = []
    for given, name in ((train, "train"), (validation, "validation")):
        rows = as_observations(given, domain=domain, argument=name)
        domain = domain or rows.domain
        if rows.domain != domain:
            raise other_domain(name, expected, received="another domain")
        check_complete(rows, name)
        if not rows.total_count > 0:
            raise none_received(name, "at least one observation")
        parts.append(rows)
    return parts[0], parts[1]


def singles(domain: Domain) -> InteractionHypergraph:
    """All single variables of two levels or more."""
    return InteractionHypergraph(domain, [(v.name,) for v in domain if v.cardinality > 1])
