"""The last, longer fit of a collection, kept in a file, and its log Z."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from ...core.partition import LogPartition
from ...core.trainer import Trainer, TrainingReport
from ...data.observations import Observations
from ...runs.checkpoint import RunFile, packed, unpacked
from ...structure.hypergraph import InteractionHypergraph
from ..search.elimination import EliminationResult, InteractionTest, eliminate
from ..search.rounds import rows_digest
from ..training.ridge import InteractionRidge
from ..training.sampled.trainer import SampledTrainer
from ._trainers import Recipe

_MAX_REFITS = 200


@dataclass(frozen=True, eq=False)
class FinalFit:
    """A trained trainer."""

    trainer: Trainer
    ridge: InteractionRidge
    report: TrainingReport
    recipe: Recipe

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The collection."""
        return self.trainer.hypergraph

    @property
    def tables(self) -> torch.Tensor:
        """Balanced tables."""
        return self.trainer.tables

    def log_partition(self) -> LogPartition:
        """Log Z, exact where the trainer can, else by annealed runs on chains of their own."""
        found = self.trainer.log_partition()
        if found is not None:
            return found
        other = SampledTrainer(self.trainer.rows, self.hypergraph, settings=self.recipe.final_settings())
        other.load_state_dict({**other.state_dict(), "tables": self.tables})
        return other.log_partition()


def final_fit(
    recipe: Recipe,
    rows: Observations,
    hypergraph: InteractionHypergraph,
    ridge: InteractionRidge,
    file: RunFile | None,
    *,
    settled: bool,
    chosen: bool,
) -> FinalFit:
    """Train a collection, or read its training; ``settled`` strengths stay, ``chosen`` ones are those of the rows."""
    settings = {
        "trainer": repr(recipe),
        "edges digest": [list(edge) for edge in hypergraph.edges],
        "ridge digest": ridge.to_json(),
        "rows digest": rows_digest(rows),
        "strengths of the rows": chosen,
    }
    found = None if file is None else file.start(settings)
    if found is not None:
        kept: dict[str, Any] = unpacked(found.pop("report"))
        notes = tuple(kept["report"].pop("notes"))
        report = TrainingReport(**kept["report"], notes=notes)
        ridge = InteractionRidge.from_json(kept["ridge"])
        trainer = recipe.trainer(rows, hypergraph, ridge, is_final=True, is_chosen=chosen)
        trainer.load_state_dict(found)
        return FinalFit(trainer, ridge, report, recipe)
    if not settled and recipe.name == "sampled":  # strengths need fewer chains than tables
        rough = recipe.trainer(rows, hypergraph, ridge, recipe.evidence_rounds[1], is_chosen=True)
        rough.train()
        ridge, settled = rough.penalty, True
    rounds = 0 if settled else recipe.evidence_rounds[1]
    trainer = recipe.trainer(rows, hypergraph, ridge, rounds, is_final=True, is_chosen=chosen)
    report = trainer.train()
    if file is not None:
        text = {"report": asdict(report), "ridge": trainer.penalty.to_json()}
        file.write({**trainer.state_dict(), "report": packed(text)})
    return FinalFit(trainer, trainer.penalty, report, recipe)


def structure_of(
    final: FinalFit,
    train: Observations,
    validation: Observations,
    rate: float,
    file: RunFile | None,
    *,
    chosen: bool,
) -> EliminationResult:
    """Eliminate interactions from a final fit, or read what an interrupted run had found.

    Fits keep the strengths, which the rows have ``chosen`` or not, and are as short as those of the search.
    """
    recipe = final.recipe
    settings = {
        "trainer": repr(recipe),
        "false discovery rate": rate,
        "edges digest": [list(edge) for edge in final.hypergraph.edges],
        "ridge digest": final.ridge.to_json(),
        "rows digest": rows_digest(train),
        "validation rows digest": rows_digest(validation),
    }
    found = None if file is None else file.start(settings)
    if found is not None:
        kept = unpacked(found["elimination"])
        return EliminationResult(
            InteractionHypergraph(train.domain, kept["edges"], hierarchical=False),
            tuple(InteractionTest.from_json(test) for test in kept["tests"]),
            rate,
            kept["num_fits"],
        )
    is_sampled = recipe.name == "sampled"
    trainer = recipe.trainer(train, final.hypergraph, final.ridge, is_final=not is_sampled, is_chosen=chosen)
    if is_sampled:
        trainer.train()  # margins are counted in chains of its own
    else:
        trainer.load_state_dict({"tables": final.tables})
    result = eliminate(train, validation, trainer, false_discovery_rate=rate, max_refits=_MAX_REFITS)
    if file is not None:
        edges, tests = [list(edge) for edge in result.hypergraph.edges], [test.to_json() for test in result.tests]
        file.write({"elimination": packed({"edges": edges, "tests": tests, "num_fits": result.num_fits})})
    return result
