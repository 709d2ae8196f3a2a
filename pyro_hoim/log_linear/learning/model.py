"""A model learned from rows: its collection, tables, penalty and log Z. Exported by ``learn``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from typing_extensions import override

from ...core.partition import LogPartition
from ...core.scores import Scores, scores_of
from ...core.trainer import TrainingReport
from ...data.frames import DataLike, as_observations
from ...data.joined import JoinedColumns
from ...data.observations import Observations
from ...results.fitted import Fitted
from ...runs.container import LOG_LINEAR
from ...structure.hypergraph import InteractionHypergraph
from ..energy import LogLinearEnergy
from ..file import ModelFile, save_model
from ..joined import JoinedLaw
from ..search.confirmation import Confirmation
from ..search.rounds import SelectionResult
from ..training.ridge import InteractionRidge

__all__ = ["LearnResult"]


@dataclass(frozen=True, eq=False, repr=False)
class LearnResult(Fitted):
    """A model learned from rows, and how it came about.

    Attributes:
        hypergraph: the collection of interactions; it need not be hierarchical.
        tables: its balanced tables (num_terms,), float64.
        ridge: the penalty that they were trained with; its strengths are those that the rows support.
        log_partition: log Z of the tables, exact or estimated with an error and a sandwich.
        trainer: of the last fit: ``exact``, ``sampled`` or ``pseudo-likelihood``.
        training: report of the last fit.
        selection: the search, with its capacity curve; None where the collection was given.
        independent, one_body: single variables with their smoothed frequencies, and trained as the model is.
        num_rows: observations that the tables were fitted to, or the sum of their weights.
        effective_num_rows: Kish's effective number of them, in which weights counted; None where it is the same.
        refit: whether those were the training and the validation rows together.
        notes: sentences on what was estimated and what happened on the way.
        seconds: time by stage of the whole run, which found the structure too.
        structure: the model of the interactions that all rows confirm; None where none was asked for, and where
            this is it.
        confirmation: of a structure, the tests of its interactions and of those of the richer model.
        joined: the columns that were joined, where there are any: then the model is one of joined variables.

    Shape:
        tables (num_terms,).
    """

    model_kind: ClassVar[str] = LOG_LINEAR

    hypergraph: InteractionHypergraph
    tables: torch.Tensor
    ridge: InteractionRidge
    log_partition: LogPartition
    trainer: str
    training: TrainingReport
    selection: SelectionResult | None
    independent: LogLinearEnergy
    one_body: LogLinearEnergy
    num_rows: float
    refit: bool = False
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    structure: LearnResult | None = None
    confirmation: Confirmation | None = None
    joined: JoinedColumns | None = None
    effective_num_rows: float | None = None

    @property
    def energy(self) -> LogLinearEnergy:
        """The model. A collection that lacks subsets is lifted to its closure; the added tables are zero."""
        return LogLinearEnergy(self.hypergraph, self.tables).on_closure()

    def row_scores(self, rows: DataLike) -> Scores:
        """Scores of complete rows in nats, with the gain over independence; without the error of log Z.

        Rows are over the columns, or over the joined variables, whose law does not say how often groups are broken.
        """
        energy, joined = self.energy, self.joined or JoinedColumns(self.hypergraph.domain, ())
        if isinstance(rows, Observations) and rows.domain == energy.domain:
            joined = JoinedColumns(energy.domain, ())
        rows, law = as_observations(rows, domain=joined.domain, argument="rows"), JoinedLaw(energy, joined)
        log_probs = law.log_prob(rows, float(self.log_partition.value))
        return scores_of(rows, log_probs, law.log_prob_of_columns(rows, self._shares), law.log_pseudo_prob)

    @property
    def _shares(self) -> dict[str, list[float]]:
        """Smoothed frequencies of the levels of every variable."""
        slices = self.independent.hypergraph.term_slices
        return {edge[0]: self.independent.tables[at].softmax(0).tolist() for edge, at in slices.items()}

    def gain(self, rows: DataLike) -> float:
        """Log-likelihood above that of the independent model, in nats a row."""
        gain = self.row_scores(rows).gain
        return math.nan if gain is None else gain

    def file(self, info: Mapping[str, Any] | None = None) -> ModelFile:
        """What a model file holds: the closure's tables, the penalty, log Z and the path of the search."""
        # What every learned model has, then what some have beside it.
        energy = self.energy
        content: dict[str, Any] = {
            "rows": self.num_rows,
            "trainer": self.trainer,
            "ridge": self.ridge.to_json(),
            "learned_edges": [list(edge) for edge in self.hypergraph.edges],
            "log_partition": self.log_partition.to_json(),
            "independent": self._shares,
            "refit": self.refit,
            "role": "structure" if self.confirmation is not None else "predictive",
            **({} if info is None else info),
        }
        if self.effective_num_rows is not None:
            content["effective_rows"] = self.effective_num_rows
        if self.joined is not None:
            content["joined"] = self.joined.to_json()
        if self.confirmation is not None:
            content["false_discovery_rate"] = self.confirmation.false_discovery_rate
            content["tests"] = [test.to_json() for test in self.confirmation.tests]
        if self.selection is not None:
            content["selection"] = self.selection.to_json()
        return ModelFile(energy.hypergraph, energy.tables, coding="balanced", info=content)

    @override
    def report(self, folder: str | os.PathLike[str], *, safe_csv: bool = False) -> Path:
        """Write the page of :meth:`Fitted.report`: of the structure, where there is one, for that is what holds."""
        if self.structure is not None:
            return self.structure.report(folder, safe_csv=safe_csv)
        return super().report(folder, safe_csv=safe_csv)

    def save(self, path: str | os.PathLike[str], info: Mapping[str, Any] | None = None) -> None:
        """Write the model file."""
        save_model(path, self.file(info))
