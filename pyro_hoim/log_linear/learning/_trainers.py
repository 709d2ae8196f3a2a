"""Which trainer learns a model, with what penalty and how long. Private to the package."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...core.trainer import Trainer, TrainingReport
from ...data.observations import Observations
from ...errors import is_whole, out_of_range, unexpected
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..training.exact import ExactTrainer
from ..training.pseudo import PseudoTrainer
from ..training.ridge import InteractionRidge
from ..training.sampled.trainer import SampledTrainer, SampledTraining

TrainerName = Literal["auto", "exact", "sampled", "pseudo-likelihood"]

_MAX_EXACT_STATES = 2**21
_MAX_EXACT_WORK = 5e8  # states times interactions, of one evaluation: about two seconds
_SINGLES = 0.05
_WEAK = (0.05, 5.0)  # strengths of pairs and of larger sets where the rows do not choose them
_STRONG = (1.0, 20.0)  # those that the rows begin to choose from
_SEARCH_STEPS, _FINAL_STEPS = 150, 300
_SEARCH_TOLERANCE, _FINAL_TOLERANCE = 1e-4, 1e-5
_WIDE = 100  # variables from which on the last fit has no more chains than the others
_LOSS_ERROR = 0.01  # of log Z
# Adam's damping. Where strengths are weak, parameters of rare cells had better be slow; else the strengths hold them.
_SEARCH_DAMPING, _FINAL_DAMPING, _CHOSEN_DAMPING = 3e-3, 1e-3, 5e-4
_FINAL_BUDGET = 2**26  # sweeps of a run of the last estimate of log Z
_CELLS_PER_ROUND = 4e9  # look-ups of all candidates of a round


def singles(rows: Observations) -> InteractionHypergraph:
    """All single variables of two levels or more."""
    return InteractionHypergraph(rows.domain, [(v.name,) for v in rows.domain if v.cardinality > 1])


def default_ridge(smoothness: float, *, weak: bool = False) -> InteractionRidge:
    """Strengths before the data have spoken: weak for single variables, strong from three variables on."""
    pairs, larger = _WEAK if weak else _STRONG
    return InteractionRidge(larger, by_order={1: _SINGLES, 2: pairs}, smoothness=smoothness)


@dataclass(frozen=True)
class Recipe:
    """How collections are trained while searching and at the end.

    Attributes:
        name: kind of trainer.
        evidence_rounds: of every fit of the search, and of the last one.
        seed: of everything random.
        margin_states: states that margins of candidates are counted in.
        progress: show bars of sampled training.
        sampling: settings of sampled training in the search, in place of the usual ones.
        chains_factor: how many times more chains the last fit has.
    """

    name: Literal["exact", "sampled", "pseudo-likelihood"]
    evidence_rounds: tuple[int, int]
    seed: int = 0
    margin_states: int = 1_000_000
    progress: bool = False
    sampling: SampledTraining | None = None
    chains_factor: int = 4

    def search_trainer(self, rows: Observations, hypergraph: InteractionHypergraph, ridge: InteractionRidge) -> Trainer:
        """The trainer of the search, without evidence."""
        return self._trainer(rows, hypergraph, ridge, 0, is_final=False, is_chosen=False)

    def strengths_trainer(
        self, rows: Observations, hypergraph: InteractionHypergraph, ridge: InteractionRidge
    ) -> Trainer:
        """A trainer whose rows choose the strengths, as short as that of the search."""
        return self._trainer(rows, hypergraph, ridge, self.evidence_rounds[1], is_final=False, is_chosen=True)

    @property
    def chosen_damping(self) -> float | None:
        """Adam's damping in the search under strengths that the rows choose; None where it is the same for all."""
        return _CHOSEN_DAMPING if self.sampling is None else None

    def final_trainer(
        self,
        rows: Observations,
        hypergraph: InteractionHypergraph,
        ridge: InteractionRidge,
        *,
        settled: bool = False,
        chosen: bool = True,
    ) -> Trainer:
        """The trainer of the last fit: longer; ``settled`` strengths stay, ``chosen`` ones come from the rows."""
        rounds = 0 if settled else self.evidence_rounds[1]
        return self._trainer(rows, hypergraph, ridge, rounds, is_final=True, is_chosen=chosen)

    def elimination_trainer(
        self, rows: Observations, hypergraph: InteractionHypergraph, ridge: InteractionRidge, *, chosen: bool
    ) -> Trainer:
        """The trainer that interactions are removed with: exact ones are precise, sampled ones as short as a search."""
        return self._trainer(rows, hypergraph, ridge, 0, is_final=self.name != "sampled", is_chosen=chosen)

    def _trainer(
        self,
        rows: Observations,
        graph: InteractionHypergraph,
        ridge: InteractionRidge,
        rounds: int,
        *,
        is_final: bool,
        is_chosen: bool,
    ) -> Trainer:
        if self.name == "sampled":
            settings = self.final_settings() if is_final else self._search_settings()
            if self.sampling is None:
                unchosen = _FINAL_DAMPING if is_final else _SEARCH_DAMPING
                settings = replace(settings, damping=_CHOSEN_DAMPING if is_chosen else unchosen)
            make_sampled = SampledTrainer if is_final else _FromFrequencies
            return make_sampled(rows, graph, penalty=ridge, settings=replace(settings, evidence_rounds=rounds))
        make = ExactTrainer if self.name == "exact" else PseudoTrainer
        return make(
            rows,
            graph,
            penalty=ridge,
            evidence_rounds=rounds,
            max_iterations=_FINAL_STEPS if is_final else _SEARCH_STEPS,
            tolerance=_FINAL_TOLERANCE if is_final else _SEARCH_TOLERANCE,
        )

    def _search_settings(self) -> SampledTraining:
        given = self.sampling
        if given is None:
            given = SampledTraining(
                margin_states=self.margin_states, loss_standard_error=_LOSS_ERROR, progress=self.progress
            )
        return replace(given, seed=self.seed, evidence_rounds=0)

    def final_settings(self) -> SampledTraining:
        """Settings of chains in the last fit."""
        settings = self._search_settings()
        if self.sampling is not None:
            return settings
        return replace(settings, num_chains=self.chains_factor * settings.num_chains, loss_budget=_FINAL_BUDGET)


class _FromFrequencies(SampledTrainer):
    """Sampled training that needs no chains where there are single variables only."""

    def train(self) -> TrainingReport:
        """Fit the present collection; single variables exactly."""
        if self.hypergraph.order > 1:
            return super().train()
        ridge = self.penalty
        assert ridge is None or isinstance(ridge, InteractionRidge)
        exact = ExactTrainer(self.rows, self.hypergraph, penalty=ridge)
        report = exact.train()
        state = dict(self.state_dict())
        no_chains = {name: state[name][:0] for name in ("codes", "log_weights")}
        self.load_state_dict({**state, **no_chains, "tables": exact.tables})
        return report


def checked_recipe(
    rows: Observations,
    trainer: TrainerName,
    evidence_rounds: int | None,
    largest: InteractionHypergraph | None,
    max_order: int,
    seed: int,
    progress: bool,
    sampling: SampledTraining | None = None,
) -> Recipe:
    """The trainer that serves, and its settings.

    Args:
        rows: training rows.
        trainer: what was asked for.
        evidence_rounds: of every fit; None for the default.
        largest: the largest collection that can come up, where candidates are given; else all sets may.
        max_order: largest set.
        seed: of everything random.
        progress: show bars.
        sampling: settings of sampled training.

    Raises:
        InputError: an unknown trainer, or evidence rounds that are no number from 0.
    """
    names = ("auto", "exact", "sampled", "pseudo-likelihood")
    if trainer not in names:
        raise unexpected("trainer", f"one of {', '.join(map(repr, names))}", trainer, code="unknown-choice")
    if evidence_rounds is not None and (not is_whole(evidence_rounds) or evidence_rounds < 0):
        raise out_of_range("evidence_rounds", "a whole number from 0 or None", evidence_rounds)
    if trainer == "auto":
        trainer = "exact" if _is_exact_cheap(rows, largest) else "sampled"
    rounds = (2, 2 if trainer == "sampled" else 4)
    if evidence_rounds is not None:
        rounds = (evidence_rounds, evidence_rounds)
    states = _margin_states(rows.domain.cardinalities, max_order)
    factor = max(1, min(4, _WIDE // max(1, len(rows.domain))))
    return Recipe(trainer, rounds, seed, states, progress, sampling, factor)


def _is_exact_cheap(rows: Observations, largest: InteractionHypergraph | None) -> bool:
    """Whether an evaluation of the largest collection takes seconds at most."""
    domain = rows.domain
    pairs = math.comb(sum(n > 1 for n in domain.cardinalities), 2)
    if domain.num_states <= _MAX_EXACT_STATES and domain.num_states * max(pairs, 1) <= _MAX_EXACT_WORK:
        return True
    if largest is None:
        return False
    cost = Auto().plan(largest.closure())
    return cost.feasible and cost.flops <= _MAX_EXACT_WORK


def _margin_states(cardinalities: Sequence[int], max_order: int) -> int:
    """As many states as the number of candidates allows."""
    d = sum(n > 1 for n in cardinalities)
    sets: Iterable[int] = (math.comb(d, k) for k in range(2, min(3, max_order) + 1))
    return int(min(1_000_000, max(20_000, _CELLS_PER_ROUND / max(1, sum(sets)))))
