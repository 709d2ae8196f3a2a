"""The search that learns a model: single variables, pairs, then larger sets. Private to the analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...core.trainer import Loss, RidgeTrainer
from ...data.observations import Observations
from ...runs.checkpoint import check_equal, packed, unpacked
from ...runs.options import RunOptions
from ...structure.hypergraph import InteractionHypergraph
from ..search.options import SelectionOptions
from ..search.result import SelectionResult, SelectionRound, SelectionStatus, Verdict
from ..search.rounds import Proposal, RoundRunner, StopRule, checked_rows, run_file
from ..search.scores import Gain, ScoreContext, Screened, checked_score
from ..training.ridge import InteractionRidge

_MAX_ALL_PAIRS = 1500
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
        train, validation = checked_rows(train, validation, trainer)
        self._pool = search.pool(train.domain)
        self._score = checked_score(search.score)[1]
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
        self._file = run_file(run, _STRENGTHS)
        found = None if self._file is None else self._file.start(settings)
        if self._file is not None and found is not None:
            with self._file.taking_up():
                kept = unpacked(found["strengths"])
                self._ridges = {int(number): InteractionRidge.from_json(value) for number, value in kept.items()}
                check_equal(found, self._state())
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
        found = self._runner.run(self._trainer.hypergraph, self._propose)
        self._note_round()
        best = found.best_round
        return found, self._ridges[best], best == 2 or (best > 2 and self._rows_choose)

    @property
    def _rows_choose(self) -> bool:
        """Whether the validation rows liked the strengths that the training rows chose better than the weak ones."""
        rounds = self._runner.rounds
        return self._evidence_rounds > 0 and rounds[2].validation_loss < rounds[1].validation_loss

    def _propose(self, hypergraph: InteractionHypergraph) -> Proposal | SelectionStatus:
        self._note_round()
        last = len(self._runner.rounds) - 1
        if last == 1 and self._evidence_rounds and hypergraph.order > 1:
            self._trainer.use_ridge(self._strong, self._evidence_rounds)
            return Proposal(hypergraph)
        if last > 1 and self._evidence_rounds:
            if self._rows_choose:  # the same in a continued run, whose trainer has another default
                found_before = replace(self._strong, by_edge=self._ridges[last].by_edge)
                self._trainer.use_ridge(found_before, self._evidence_rounds)
            else:
                self._trainer.use_ridge(self._weak, 0)
        self._pool.add(hypergraph.edges)
        found = self._pool.available()
        room, least = self._per_round << max(0, last - self._num_trials), 0.0
        if last > 1 and self._rows_choose:
            least = -math.inf  # a set of no use is held back by its strength, and the validation rows judge the round
        pairs = tuple(edge for edge in found if len(edge) <= 2)
        if hypergraph.order <= 1 and pairs:
            found = pairs
            most = max(_MAX_ALL_PAIRS // 3, len(self._context.train.domain))
            room, least = (len(pairs), None) if len(pairs) <= _MAX_ALL_PAIRS else (most, least)
        return Proposal.of_best(found, self._score, self._context, room, least)

    def _note_round(self) -> None:
        """Keep the strengths of a new round, which the trainer holds, and tell of rounds not told of."""
        rounds = self._runner.rounds
        last = len(rounds) - 1
        is_chosen = last == 2 or (last > 2 and self._rows_choose)
        if last in self._ridges:
            pass
        elif self._evidence_rounds and is_chosen:
            found = self._trainer.penalty
            edges = [edge for edge in self._trainer.hypergraph.edges if len(edge) > 1]
            self._ridges[last] = replace(self._strong, by_edge={edge: found.strength(edge) for edge in edges})
        else:
            self._ridges[last] = self._weak
        if self._file is not None:
            self._file.write(self._state())
        for entry in rounds[self._announced :]:
            self._announce(entry)
        self._announced = len(rounds)

    def _state(self) -> dict[str, torch.Tensor]:
        return {"strengths": packed({str(number): ridge.to_json() for number, ridge in self._ridges.items()})}
