"""Scores of the parts of a table, and the section of a page that shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.page import Section, cell
from ..core.scores import rows_are_distinct
from ..log_linear.scores import RowScores

__all__ = [
    "KL_EXPLAINED",
    "SCORES_EXPLAINED",
    "PartScores",
    "PredictivePart",
    "distinct_parts",
    "num_rows",
    "score_section",
]

SCORES_EXPLAINED = (
    "In nats a row. NLL: mean of minus the log-probability of a row. Gain: by how much it is lower than that of "
    "independent columns; SE: standard error of the gain over rows. Pseudo-NLL: sum over the columns of minus the "
    "log-probability of a cell given the rest of its row."
)
"""What the columns of :func:`score_section` are."""
KL_EXPLAINED = "KL: Kullback-Leibler divergence of the model from the observed frequencies of the part."
"""What KL is."""


@dataclass(frozen=True)
class PredictivePart:
    """Scores of the richer model on one part of the rows.

    Attributes:
        model: its scores.
        accuracy: of the prediction of the target, where one was named.
        advantage: NLL of the structure less that of the richer model, in nats a row.
        advantage_std_error: its sampling error over rows; errors of log Z are not part of it.
    """

    model: RowScores
    accuracy: dict[str, Any] | None
    advantage: float
    advantage_std_error: float


@dataclass(frozen=True)
class PartScores:
    """Scores of one part of the rows.

    Attributes:
        model: of the model; infinite where a row is impossible under an infinite estimate.
        independent: of independent columns, likewise: smoothed frequencies beside a learned model.
        accuracy: of the prediction of the target, where one was named.
        impossible_rows: rows to which an infinite estimate gives probability zero.
        one_body: of trained single variables, beside a learned model.
        predictive: the same of the richer model that predicts, None where there is no other.

    Example:
        >>> from pyro_hoim import InteractionHypergraph, load_table
        >>> from pyro_hoim.study import analyse
        >>> rows = load_table("ucb_admissions")
        >>> found = analyse({"train": rows}, {"pairs": InteractionHypergraph.from_order(rows.domain, 2)})
        >>> round(found.chosen.parts["train"].gain, 4)
        0.2295
    """

    model: RowScores
    independent: RowScores
    accuracy: dict[str, Any] | None
    impossible_rows: float = 0.0
    one_body: RowScores | None = None
    predictive: PredictivePart | None = None

    @property
    def gain(self) -> float | None:
        """Log-likelihood above that of independent columns, in nats a row; None where both are impossible."""
        gain = self.independent.nll - self.model.nll
        return None if math.isnan(gain) else gain

    @property
    def gain_std_error(self) -> float | None:
        """Its standard error over rows, of paired differences; None where it is infinite and for one row."""
        return self.model.gain_std_error


def num_rows(parts: Mapping[str, PartScores | None]) -> dict[str, float]:
    """Rows of every part."""
    return {name: 0.0 if part is None else part.model.rows for name, part in parts.items()}


def distinct_parts(held: Mapping[str, PartScores]) -> list[str]:
    """The parts whose rows are all distinct."""
    return [n for n, p in held.items() if rows_are_distinct(p.model.rows, p.model.nll, p.model.kl)]


def score_section(
    title: str, held: Mapping[str, PartScores], laws: Mapping[str, str], explained: str, notes: list[str]
) -> Section:
    """A line of scores for every part, with the KL of some laws: attributes of the part by column."""
    rows = [
        [
            name,
            part.model.rows,
            *map(cell, (part.gain, part.gain_std_error, part.model.nll, part.model.pseudo_nll)),
            *(cell(getattr(part, law).kl) for law in laws.values()),
        ]
        for name, part in held.items()
    ]
    section = Section(title)
    section.table(["part", "rows", "gain", "SE", "NLL", "pseudo-NLL", *laws], rows, brief=len(rows))
    section.note(explained)
    for sentence in notes:
        section.note(sentence, brief=True)
    section.accuracy_table({name: part.accuracy for name, part in held.items()})
    return section
