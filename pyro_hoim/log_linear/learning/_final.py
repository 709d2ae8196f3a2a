"""The last, longer fit of a collection, kept in a file, and its log Z. Private to the analysis."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core.partition import LogPartition
from ...core.trainer import Trainer, TrainingReport
from ...data.observations import Observations
from ...structure.hypergraph import InteractionHypergraph
from ..search.rounds import run_file
from ..training.ridge import InteractionRidge
from ..training.sampled.trainer import SampledTrainer
from ._trainers import Recipe


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
    stage: str,
    folder: Path | None,
    resume: bool,
    *,
    settled: bool = False,
    chosen: bool = True,
) -> FinalFit:
    """Train a collection, or read the training of an interrupted run that had come so far.

    Args:
        recipe: how.
        rows: what to fit.
        hypergraph: the collection.
        ridge: strengths to begin with.
        stage: name of the file.
        folder: of checkpoints.
        resume: read the file if it is there.
        settled: whether the strengths stay.
        chosen: whether they are, or will be, those that the rows choose.
    """
    file = None if folder is None else run_file(folder / f"{stage}.safetensors", resume)
    settings = {
        "trainer": repr(recipe),
        "edges digest": [list(edge) for edge in hypergraph.edges],
        "ridge digest": ridge.to_json(),
        "rows digest": rows_digest(rows),
        "strengths of the rows": chosen,
    }
    found = None if file is None else file.start(settings)
    if found is not None:
        report, kept = _unpacked(found.pop("report"))
        trainer = recipe.final_trainer(rows, hypergraph, kept, settled=True, chosen=chosen)
        trainer.load_state_dict(found)
        return FinalFit(trainer, kept, report, recipe)
    if not settled and recipe.name == "sampled":  # strengths need fewer chains than tables
        rough = recipe.strengths_trainer(rows, hypergraph, ridge)
        rough.train()
        ridge, settled = _penalty(rough), True
    trainer = recipe.final_trainer(rows, hypergraph, ridge, settled=settled, chosen=chosen)
    report = trainer.train()
    kept = _penalty(trainer)
    if file is not None:
        file.write({**trainer.state_dict(), "report": _packed(report, kept)})
    return FinalFit(trainer, kept, report, recipe)


def _penalty(trainer: Trainer) -> InteractionRidge:
    """The present penalty of a trainer of ours."""
    ridge = getattr(trainer, "penalty", None)
    assert isinstance(ridge, InteractionRidge)
    return ridge


def rows_digest(rows: Observations) -> str:
    """Digest of the law and the number of observations, whatever the order of the rows."""
    merged = rows.unique()
    content = hashlib.sha256(json.dumps(rows.domain.to_json()).encode())
    content.update(merged.codes.numpy().tobytes())
    content.update(merged.counts.numpy().tobytes())
    return content.hexdigest()[:32]


def _packed(report: TrainingReport, ridge: InteractionRidge) -> torch.Tensor:
    text = json.dumps({"report": asdict(report), "ridge": ridge.to_json()})
    return torch.from_numpy(np.frombuffer(text.encode(), dtype=np.uint8).copy())


def _unpacked(tensor: torch.Tensor) -> tuple[TrainingReport, InteractionRidge]:
    found: dict[str, Any] = json.loads(tensor.numpy().tobytes().decode())
    report: dict[str, Any] = found["report"]
    notes = tuple(report.pop("notes"))
    return TrainingReport(**report, notes=notes), InteractionRidge.from_json(found["ridge"])
