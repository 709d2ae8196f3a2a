"""One run of learning: its fits and their files, the lines it prints, and the time of its stages."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ...core.partition import LogPartition
from ...core.trainer import RidgeTrainer, TrainingReport
from ...data.observations import Observations
from ...runs.checkpoint import check_equal, packed, unpacked
from ...runs.options import RunOptions
from ...runs.time_limit import TimeUp, check_time, ending_at
from ...structure.hypergraph import InteractionHypergraph
from ..energy import LogLinearEnergy
from ..search.confirmation import Confirmation, InteractionTest, confirm
from ..search.options import SelectionOptions
from ..search.result import SelectionResult, SelectionRound
from ..search.rounds import rows_digest, run_file, trained
from ..training.exact import ExactTrainer
from ..training.ridge import InteractionRidge
from ..training.sampled.trainer import SampledTrainer
from ..training.tables import RowMargins, initial_tables
from ._trainers import Recipe


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
        found = self.trainer.log_partition()
        if found is not None:
            return found
        other = SampledTrainer(self.trainer.rows, self.trainer.hypergraph, settings=recipe.final_settings())
        other.load_state_dict({**other.state_dict(), "tables": self.trainer.tables})
        return other.log_partition()


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
        self._independent = _independent_loss(train, rows) if run.progress else math.nan
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
        recipe, file = self.recipe, run_file(self.run, f"{stage}.safetensors")
        found = None
        if file is not None:
            found = file.start({**self._settings(hypergraph, ridge, rows), "strengths of the rows": chosen})
        if file is not None and found is not None:
            with file.taking_up():
                kept: dict[str, Any] = unpacked(found.pop("report"))
                notes = tuple(kept["report"].pop("notes"))
                ridge = InteractionRidge.from_json(kept["ridge"])
                trainer = recipe.trainer(rows, hypergraph, ridge, is_final=True, is_chosen=chosen)
                trainer.load_state_dict(found)
                check_equal(found, trainer.state_dict())
                return FinalFit(trainer, TrainingReport(**kept["report"], notes=notes))
        check_time()
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
        file, found = run_file(self.run, "structure.safetensors"), None
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
            found = file.start(settings)
        if file is not None and found is not None:
            with file.taking_up():
                kept = unpacked(found["confirmation"])
                graph = InteractionHypergraph(train.domain, kept["edges"], hierarchical=False)
                result = Confirmation(graph, tuple(InteractionTest.from_json(test) for test in kept["tests"]), rate)
                check_equal(found, _kept(result))
                return result
        check_time()
        result = confirm(
            train, validation, hypergraph, false_discovery_rate=rate, max_order=order, candidates=candidates
        )
        if file is not None:
            file.write(_kept(result))
        return result

    def _settings(
        self, hypergraph: InteractionHypergraph, ridge: InteractionRidge, rows: Observations
    ) -> dict[str, Any]:
        """What a continued fit must repeat."""
        return {
            "trainer": repr(self.recipe),
            "edges digest": [list(edge) for edge in hypergraph.edges],
            "ridge digest": ridge.to_json(),
            "rows digest": rows_digest(rows),
        }

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


def _kept(result: Confirmation) -> dict[str, torch.Tensor]:
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


def _independent_loss(train: Observations, rows: Observations) -> float:
    """Mean negative log-likelihood of rows under the frequencies of the training rows."""
    model = frequency_model(train)
    log_z = sum(float(model.tables[where].logsumexp(0)) for where in model.hypergraph.term_slices.values())
    return log_z - float(model.tables.numpy() @ RowMargins(rows)(model.hypergraph))


def one_body_model(rows: Observations, ridge: InteractionRidge) -> LogLinearEnergy:
    """Single variables trained under a penalty, exactly."""
    trainer = ExactTrainer(rows, frequency_model(rows).hypergraph, penalty=ridge)
    trainer.train()
    return LogLinearEnergy(trainer.hypergraph, trainer.tables)
