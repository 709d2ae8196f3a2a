"""Scores of the parts of a table of labels, and what held-out rows say of interactions and of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.law import Law
from ..core.page import Section, cell
from ..core.scores import Scores
from ..core.studies import Part
from ..data.observations import Observations
from ..information.projection import DivergenceSplit, Projections, split_of_rows
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.fitting.result import FitResult

MAX_TABLE_CELLS = 2**16
"""Cells of the largest table of which a study lists every cell."""
_MAX_SWEEPS = 1000


@dataclass(frozen=True)
class PredictivePart:
    """Scores of the richer model on one part of the rows.

    Attributes:
        model: its scores.
        accuracy: of the prediction of the target, where one was named.
        advantage: NLL of the structure less that of the richer model, in nats a row.
        advantage_std_error: its sampling error over rows; errors of log Z are not part of it.
    """

    model: Scores
    accuracy: dict[str, Any] | None
    advantage: float
    advantage_std_error: float


@dataclass(frozen=True, eq=False)
class TablePart(Part):
    """Scores of one part of the rows of a table of labels, with the attributes of every part.

    Attributes:
        predictive: scores of the richer model that predicts; None where there is no other.
        split: of rows held out, the divergence of the model from them in its two parts; None where the table is
            too large, cells are missing or interactions are restricted.
    """

    predictive: PredictivePart | None = None
    split: DivergenceSplit | None = None


def held_out(parts: Mapping[str, Observations | None]) -> dict[str, Projections]:
    """Projections of the parts that no parameter is fitted to, where their cells can be listed."""
    found = {name: rows for name, rows in parts.items() if name != "train" and rows is not None}
    return {
        name: Projections(Law.from_observations(rows), tolerance=1e-9, max_iterations=_MAX_SWEEPS)
        for name, rows in found.items()
        if rows.total_count > 0 and not rows.has_missing and rows.domain.num_states <= MAX_TABLE_CELLS
    }


def split_of_part(law: Projections | None, model: LogLinearEnergy | FitResult) -> DivergenceSplit | None:
    """The divergence of a model from held-out rows in two parts, where it has them."""
    is_restricted = isinstance(model, FitResult) and model.restriction is not None
    if law is None or is_restricted or not model.hypergraph.is_hierarchical:
        return None
    return split_of_rows(law, model)


def split_section(models: Mapping[str, Mapping[str, TablePart | None]], chosen: int = -1) -> Section | None:
    """What of the divergence from held-out rows is for want of interactions, and what of well-estimated parameters."""
    rows: list[list[object]] = []
    marked = -1
    for number, (name, parts) in enumerate(models.items()):
        for part, entry in parts.items():
            if entry is not None and entry.split is not None:
                marked = len(rows) if number == chosen and marked < 0 else marked
                split, size = entry.split, entry.split.projection.hypergraph.num_parameters
                rows.append([name, part, size, *map(cell, (split.total, split.inestimable, split.estimable))])
    # Of rows that were fitted there is nothing to divide.
    if not rows:
        return None
    section = Section("What limits the fit: missing interactions or too few rows?", is_folded=True)
    section.table(["model", "part", "parameters", "KL", "inestimable", "estimable"], rows, chosen=marked)
    section.note(
        "KL says how far the model is from the frequencies of rows that it was not fitted to, in nats a row. Its "
        "parts are two. The inestimable one would be left with the best parameters for those very rows, and only more "
        "interactions lower it. The estimable one would be saved by better parameters: it grows with their number and "
        "shrinks with more rows. The scatter of the held-out rows themselves is in both."
    )
    return section
