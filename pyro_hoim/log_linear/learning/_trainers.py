"""Which trainer learns a model, with what penalty and how long. Private to the package."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from typing_extensions import override

from ...core.trainer import Loss, RidgeTrainer, TrainingReport
from ...data.observations import Observations
from ...errors import check_choice
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..fitting.solvers import Stopping
from ..training.evidence import EvidenceRounds
from ..training.exact import ExactTrainer
from ..training.pseudo import PseudoTrainer
from ..training.ridge import InteractionRidge
from ..training.sampled.trainer import SampledTrainer, SampledTraining

TrainerName = Literal["auto", "exact", "sampled", "pseudo-likelihood"]

_MAX_EXACT_STATES = 2**21
_MAX_EXACT_WORK = 5e8  # states times interactions, of one evaluation: about two seconds
_SEARCH_STOPPING, _FINAL_STOPPING = Stopping(1e-4, 150), Stopping(1e-5, 300)
_WIDE = 100  # variables from which on the last fit has no more chains than the others
_MANY = 50  # variables from which on fits of a search go on from one another: several times faster, a little worse
_LOSS_ERROR = 0.01  # of log Z, with 100 variables; it grows as the spread of their log-likelihood does
# Adam's damping. Where strengths are weak, parameters of rare cells had better be slow; else the strengths hold them.
_SEARCH_DAMPING, _FINAL_DAMPING, _CHOSEN_DAMPING = 3e-3, 1e-3, 5e-4
_FINAL_BUDGET = 2**26  # sweeps of a run of the last estimate of log Z
_CELLS_PER_ROUND = 4e9  # look-ups of all candidates of a round


@dataclass(frozen=True)
class Recipe:
    """How collections are trained while searching and at the end."""

    name: Literal["exact", "sampled", "pseudo-likelihood"]
    evidence_rounds: tuple[int, int]
    seed: int = 0
    margin_states: int = 1_000_000
    progress: bool = False
    sampling: SampledTraining | None = None
    chains_factor: int = 4
    loss_error: float = _LOSS_ERROR
    goes_on: bool = False

    def trainer(
        self,
        rows: Observations,
        graph: InteractionHypergraph,
        ridge: InteractionRidge,
        rounds: int = 0,
        *,
        is_final: bool = False,
        is_chosen: bool = False,
    ) -> RidgeTrainer:
        """A trainer of the search or, longer, of the last fit; ``is_chosen`` strengths come from the rows."""
        if self.name == "sampled":
            settings = self.final_settings() if is_final else self._search_settings()
            if self.sampling is None:
                unchosen = _FINAL_DAMPING if is_final else _SEARCH_DAMPING
                settings = replace(settings, damping=_CHOSEN_DAMPING if is_chosen else unchosen)
            evidence = EvidenceRounds(rounds)
            if is_final:
                return SampledTrainer(rows, graph, penalty=ridge, settings=settings, evidence=evidence)
            chosen = settings.damping if self.sampling is not None else _CHOSEN_DAMPING
            return _SearchTrainer(rows, graph, ridge, settings, evidence, chosen)
        make = ExactTrainer if self.name == "exact" else PseudoTrainer
        return make(
            rows,
            graph,
            penalty=ridge,
            stopping=_FINAL_STOPPING if is_final else _SEARCH_STOPPING,
            evidence=EvidenceRounds(rounds),
        )

    def _search_settings(self) -> SampledTraining:
        given = self.sampling
        if given is None:
            given = SampledTraining(
                restart="doubt" if self.goes_on else True,
                margin_states=self.margin_states,
                loss_standard_error=self.loss_error,
                progress=self.progress,
            )
        return replace(given, seed=self.seed)

    def final_settings(self) -> SampledTraining:
        """Settings of chains in the last fit."""
        settings = self._search_settings()
        if self.sampling is not None:
            return settings
        return replace(settings, num_chains=self.chains_factor * settings.num_chains, loss_budget=_FINAL_BUDGET)


class _SearchTrainer(SampledTrainer):
    """Sampled training with another damping under chosen strengths, and without chains for single variables."""

    def __init__(
        self,
        rows: Observations,
        hypergraph: InteractionHypergraph,
        penalty: InteractionRidge,
        settings: SampledTraining,
        evidence: EvidenceRounds,
        chosen_damping: float,
    ) -> None:
        super().__init__(rows, hypergraph, penalty=penalty, settings=settings, evidence=evidence)
        self._dampings = (settings.damping, chosen_damping)

    @override
    def use_ridge(self, ridge: InteractionRidge, evidence_rounds: int) -> None:
        self.settings = replace(self.settings, damping=self._dampings[evidence_rounds > 0])
        super().use_ridge(ridge, evidence_rounds)

    @override
    def loss(self, rows: Observations) -> Loss:
        if self.hypergraph.order > 1:
            return super().loss(rows)
        exact = ExactTrainer(self.rows, self.hypergraph)
        exact.load_state_dict({"tables": self.tables})
        return exact.loss(rows)

    @override
    def train(self) -> TrainingReport:
        if self.hypergraph.order > 1:
            return super().train()
        exact = ExactTrainer(self.rows, self.hypergraph, penalty=self.penalty)
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
    """The trainer that serves; ``largest`` is the largest collection that can come up, None where all sets may."""
    check_choice(trainer, get_args(TrainerName), "trainer")
    if trainer == "auto":
        trainer = "exact" if _is_exact_cheap(rows, largest) else "sampled"
    rounds = (2, 2 if trainer == "sampled" else 4)
    if evidence_rounds is not None:
        rounds = (evidence_rounds, evidence_rounds)
    states = _margin_states(rows.domain.cardinalities, max_order)
    width = len(rows.domain) / _WIDE
    factor, error = max(1, min(4, int(1 / max(width, 0.1)))), _LOSS_ERROR * math.sqrt(max(1.0, width))
    goes_on = len(rows.domain) >= _MANY
    return Recipe(trainer, rounds, seed, states, progress, sampling, factor, error, goes_on)


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
