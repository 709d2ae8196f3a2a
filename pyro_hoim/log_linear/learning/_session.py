"""One run of learning: its fits and their files, the lines it prints, and the time of its stages."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from typing_extensions import override

from ...core.partition import LogPartition
from ...core.trainer import Loss, RidgeTrainer, TrainingReport
from ...data.observations import Observations
from ...errors import check_choice
from ...runs.checkpoint import RunFile, RunOptions, TimeUp, check_equal, check_time, ending_at, packed, unpacked
from ...structure.elimination_order import least_fill, neighbour_pairs
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..energy import LogLinearEnergy
from ..fitting.solvers import Stopping
from ..search.confirmation import Confirmation, InteractionTest, confirm
from ..search.rounds import SelectionOptions, SelectionResult, SelectionRound, rows_digest, trained
from ..training.exact import ExactTrainer
from ..training.pseudo import PseudoTrainer
from ..training.ridge import EvidenceRounds, InteractionRidge
from ..training.sampled.trainer import SampledTrainer, SampledTraining
from ..training.table_trainer import RowMargins, initial_tables

# Which trainer learns a model, with what penalty and how long.

TrainerName = Literal["auto", "exact", "sampled", "pseudo-likelihood"]

_MAX_EXACT_STATES = 2**21
_MAX_EXACT_WORK = 5e8  # states times interactions, of one evaluation: about two seconds
_MAX_FINAL_WORK = 1e7  # of one of a last fit in place of chains, which take as long for all of it as a hundred of these
_SEARCH_STOPPING, _FINAL_STOPPING = Stopping(1e-4, 150), Stopping(1e-5, 300)
_WIDE = 100  # variables from which on the last fit has no more chains than the others
_MANY = 50  # variables from which on fits of a search go on from one another in any case: faster, a little worse
_EVEN = 0.9  # effective share of annealed chains from which on they do with fewer variables
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
    is_wide: bool = False
    is_auto: bool = False

    def last(self, graph: InteractionHypergraph) -> Recipe:
        """That of the last fit of a collection: exact, where the library chose the trainer and this takes no longer."""
        if self.name != "sampled" or not self.is_auto or self.sampling is not None:
            return self
        # An order of elimination that ends early shows most collections to be too large, which plans take long for.
        cards = graph.domain.cardinalities
        _, largest = least_fill(neighbour_pairs(graph), cards, list(range(len(cards))), most=_MAX_FINAL_WORK)
        is_cheap = largest <= _MAX_FINAL_WORK and Auto().plan(graph.closure()).flops <= _MAX_FINAL_WORK
        return replace(self, name="exact") if is_cheap else self

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
            # Chains: their damping goes with who chose the strengths.
            settings = self.final_settings() if is_final else self._search_settings()
            if self.sampling is None:
                unchosen = _FINAL_DAMPING if is_final else _SEARCH_DAMPING
                settings = replace(settings, damping=_CHOSEN_DAMPING if is_chosen else unchosen)
            evidence = EvidenceRounds(rounds)
            if is_final:
                return SampledTrainer(rows, graph, penalty=ridge, settings=settings, evidence=evidence)
            chosen = settings.damping if self.sampling is not None else _CHOSEN_DAMPING
            evenness = 0.0 if self.is_wide or self.sampling is not None else _EVEN
            return _SearchTrainer(rows, graph, ridge, settings, evidence, chosen, evenness)
        # Exact gradients or pseudo-likelihoods, longer in the last fit.
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
                restart="doubt",
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
    """Sampled training with another damping under chosen strengths, and without chains for single variables.

    It goes on from the fit before only where annealed chains had weights of some evenness: where they have not, there
    are modes that shorter training does not find.
    """

    def __init__(
        self,
        rows: Observations,
        hypergraph: InteractionHypergraph,
        penalty: InteractionRidge,
        settings: SampledTraining,
        evidence: EvidenceRounds,
        chosen_damping: float,
        least_evenness: float,
    ) -> None:
        super().__init__(rows, hypergraph, penalty=penalty, settings=settings, evidence=evidence)
        self._dampings, self._least_evenness = (settings.damping, chosen_damping), least_evenness

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
    is_auto = trainer == "auto"
    if is_auto:
        trainer = "exact" if _is_exact_cheap(rows, largest) else "sampled"
    rounds = (2, 2 if trainer == "sampled" else 4)
    if evidence_rounds is not None:
        rounds = (evidence_rounds, evidence_rounds)
    # As many states as the number of candidates allows, fewer chains and larger errors for wide rows.
    varying = sum(n > 1 for n in rows.domain.cardinalities)
    candidates = sum(math.comb(varying, k) for k in range(2, min(3, max_order) + 1))
    states = int(min(1_000_000, max(20_000, _CELLS_PER_ROUND / max(1, candidates))))
    width = len(rows.domain) / _WIDE
    factor, error = max(1, min(4, int(1 / max(width, 0.1)))), _LOSS_ERROR * math.sqrt(max(1.0, width))
    is_wide = len(rows.domain) >= _MANY
    return Recipe(trainer, rounds, seed, states, progress, sampling, factor, error, is_wide, is_auto)


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


@dataclass(frozen=True, eq=False)
class FinalFit:
    """The last, longer fit of a collection."""

    trainer: RidgeTrainer
    report: TrainingReport

    @classmethod
    def of_round(cls, trainer: RidgeTrainer, selection: SelectionResult) -> FinalFit:
        """The tables of the best round of a search, for a trainer of its collection, as they are."""
        trainer.load_state_dict({**trainer.state_dict(), "tables": selection.tables})
        status = "diverged" if selection.best.training_status == "diverged" else "max_iterations"
        return cls(trainer, TrainingReport(status, 0, math.nan))

    def log_partition(self, recipe: Recipe) -> LogPartition:
        """Log Z, exact where the trainer can, else by annealed runs on chains of their own."""
        log_z = self.trainer.log_partition()
        if log_z is not None:
            return log_z
        other = SampledTrainer(self.trainer.rows, self.trainer.hypergraph, settings=recipe.final_settings())
        other.load_state_dict({**other.state_dict(), "tables": self.trainer.tables})
        return other.log_partition()


def run_file(run: RunOptions, name: str) -> RunFile | None:
    """The checkpoint of this name in the folder of a run; None without one."""
    return None if run.checkpoint is None else RunFile(Path(run.checkpoint) / name, run.resume)


class Session:
    """Fits by a recipe, in the folder of the run; rounds are told of with their gain over independence on ``rows``."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunOptions,
        train: Observations,
        rows: Observations,
        time_limit: float | None = None,
    ) -> None:
        self.recipe = recipe
        self.run = run
        self.notes: list[str] = []
        self._time_limit, self._start = time_limit, time.monotonic()
        self.seconds: dict[str, float] = {}
        self._begin = time.perf_counter()
        self._independent = math.nan  # loss of the rows under the frequencies of the training rows
        if run.progress:
            model = frequency_model(train)
            log_z = sum(float(model.tables[where].logsumexp(0)) for where in model.hypergraph.term_slices.values())
            self._independent = log_z - float(model.tables.numpy() @ RowMargins(rows)(model.hypergraph))
        run.folder()

    def fit(
        self,
        rows: Observations,
        hypergraph: InteractionHypergraph,
        ridge: InteractionRidge,
        stage: str,
        *,
        settled: bool = True,
        chosen: bool = True,
    ) -> FinalFit:
        """Train a collection, or read its training from the file of a stage.

        ``settled`` strengths stay, ``chosen`` ones are those of the rows.
        """
        recipe, file = self.recipe.last(hypergraph), run_file(self.run, f"{stage}.safetensors")
        if file is not None:
            settings = {
                "trainer": repr(recipe),
                "edges digest": [list(edge) for edge in hypergraph.edges],
                "ridge digest": ridge.to_json(),
                "rows digest": rows_digest(rows),
                "strengths of the rows": chosen,
            }
            # A fit that was completed is read as it was.
            if (stored := file.start(settings)) is not None:
                with file.taking_up():
                    record: dict[str, Any] = unpacked(stored.pop("report"))
                    notes = tuple(record["report"].pop("notes"))
                    ridge = InteractionRidge.from_json(record["ridge"])
                    trainer = recipe.trainer(rows, hypergraph, ridge, is_final=True, is_chosen=chosen)
                    trainer.load_state_dict(stored)
                    check_equal(stored, trainer.state_dict())
                    return FinalFit(trainer, TrainingReport(**record["report"], notes=notes))
        check_time()
        # Else train, the strengths first where they are not settled.
        if not settled and recipe.name == "sampled":  # strengths need fewer chains than tables
            rough = recipe.trainer(rows, hypergraph, ridge, recipe.evidence_rounds[1], is_chosen=True)
            rough.train()
            ridge, settled = rough.penalty, True
        rounds = 0 if settled else recipe.evidence_rounds[1]
        trainer = recipe.trainer(rows, hypergraph, ridge, rounds, is_final=True, is_chosen=chosen)
        report = trained(trainer)
        if file is not None:
            text = {"report": asdict(report), "ridge": trainer.penalty.to_json()}
            file.write({**trainer.state_dict(), "report": packed(text)})
        return FinalFit(trainer, report)

    def confirm(
        self,
        hypergraph: InteractionHypergraph,
        train: Observations,
        validation: Observations,
        rate: float,
        search: SelectionOptions,
    ) -> Confirmation:
        """Confirm interactions by all rows, or read what an interrupted run had found."""
        # What an interrupted run had found is read as it was.
        file = run_file(self.run, "structure.safetensors")
        order, candidates = search.max_order or 2, search.candidates
        if file is not None:
            allowed = None if candidates is None else sorted(sorted(edge) for edge in candidates)
            settings = {
                "edges digest": [list(edge) for edge in hypergraph.edges],
                "false discovery rate": rate,
                "largest set": order,
                "allowed sets digest": allowed,
                "rows digest": rows_digest(train),
                "validation rows digest": rows_digest(validation),
            }
            if (stored := file.start(settings)) is not None:
                with file.taking_up():
                    record = unpacked(stored["confirmation"])
                    graph = InteractionHypergraph(train.domain, record["edges"], hierarchical=False)
                    tests = tuple(InteractionTest.from_json(test) for test in record["tests"])
                    result = Confirmation(graph, tests, rate)
                    check_equal(stored, _packed(result))
                    return result
        check_time()
        # Tests of all hypotheses, kept for a run that goes on.
        result = confirm(
            train,
            validation,
            hypergraph,
            false_discovery_rate=rate,
            max_order=order,
            candidates=candidates,
            progress=self.recipe.progress,
        )
        if file is not None:
            file.write(_packed(result))
        return result

    def until(self, share: float) -> float:
        """Reading of the monotonic clock when a share of the time is used up; infinite without a limit."""
        return math.inf if self._time_limit is None else self._start + share * self._time_limit

    @contextmanager
    def giving_up(self, what: str, share: float) -> Generator[None]:
        """Work that is given up, with a note of what is lost, once a share of the time is used up."""
        try:
            with ending_at(self.until(share)):
                yield
        except TimeUp:
            self.late(what)

    def late(self, what: str) -> None:
        """Note what the time limit ended."""
        self.note(f"the time limit of {self._time_limit:g} s ended {what}")

    def note(self, words: str) -> None:
        """Keep and tell what users should know of the result."""
        self.notes.append(words)
        self.tell(words)

    def clock(self, stage: str) -> None:
        """Count the time that no stage has yet as that of this one."""
        rest = time.perf_counter() - self._begin - sum(self.seconds.values())
        self.seconds[stage] = self.seconds.get(stage, 0.0) + rest

    def tell(self, words: str) -> None:
        """One line on standard error with the time so far."""
        told(self.run, words, time.perf_counter() - self._begin)

    def tell_round(self, entry: SelectionRound) -> None:
        """A round of the search."""
        loss = f"validation loss {entry.validation_loss:.4f}"
        if entry.validation_std_error > 0:
            loss += f" ± {entry.validation_std_error:.2g} of log Z"
        if entry.loss_kind != "pseudo-likelihood":
            gain = round(self._independent - entry.validation_loss, 4) + 0.0  # no minus before a zero
            loss += f", gain over independence {gain:.4f}"
        self.tell(f"round {entry.number}: {interactions(entry.num_interactions)}, {loss} ({entry.verdict})")


def told(run: RunOptions, words: str, seconds: float = 0.0) -> None:
    """Write a line on standard error with the time so far, where progress is asked for."""
    if run.progress:
        sys.stderr.write(f"[{seconds:6.1f} s] {words}\n")
        sys.stderr.flush()


def _packed(result: Confirmation) -> dict[str, torch.Tensor]:
    """A confirmation as a checkpoint holds it."""
    edges, tests = [list(edge) for edge in result.hypergraph.edges], [test.to_json() for test in result.tests]
    return {"confirmation": packed({"edges": edges, "tests": tests})}


def interactions(count: int) -> str:
    """A number of interactions, the sets of two variables or more, in words."""
    return f"{count:,} interaction{'' if count == 1 else 's'}"


def frequency_model(rows: Observations) -> LogLinearEnergy:
    """Single variables with their frequencies, half a count added to every level."""
    graph = InteractionHypergraph(rows.domain, [(name,) for name in rows.domain.names])
    return LogLinearEnergy(graph, initial_tables(rows, graph))


def one_body_model(rows: Observations, ridge: InteractionRidge) -> LogLinearEnergy:
    """Single variables trained under a penalty, exactly."""
    trainer = ExactTrainer(rows, frequency_model(rows).hypergraph, penalty=ridge)
    trainer.train()
    return LogLinearEnergy(trainer.hypergraph, trainer.tables)
