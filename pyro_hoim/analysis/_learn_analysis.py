"""Everything that one report on a learned model shows. Private; :mod:`pyro_hoim.analysis.learn` exports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..data import Observations
from .interaction_values import RemovalValue, removal_values
from .scores import RowScores, interaction_table, prediction_accuracy, score_rows

if TYPE_CHECKING:
    from .learn import LearnedModel

__all__ = ["LearnedAnalysis", "PartOfLearned", "analyse_learned"]

_VALUED = 400
_SAMPLES = 4096


@dataclass(frozen=True)
class PartOfLearned:
    """Scores of one part of the rows.

    Attributes:
        model: of the learned model.
        independent: of smoothed single frequencies.
        one_body: of trained single variables.
        accuracy: of the prediction of the target, where one was named.
    """

    model: RowScores
    independent: RowScores
    one_body: RowScores
    accuracy: dict[str, Any] | None

    @property
    def gain(self) -> float:
        """Log-likelihood above that of the independent model, in nats a row."""
        return self.independent.nll - self.model.nll


@dataclass(frozen=True)
class LearnedAnalysis:
    """A learned model with its scores and interactions.

    Attributes:
        title: name of the data.
        about: provenance of the data, in sentences.
        learned: the model.
        parts: scores of train, validation and test; None for an empty part.
        interactions: sets of two variables or more: ``edge``, ``strength`` (root mean square of the table),
            ``coefficient`` with its ``levels``, the penalty's ``ridge`` and what the model loses without it
            (``removal``), most valuable first.
        target: the column predicted.
        seed: of everything random.
    """

    title: str
    about: tuple[str, ...]
    learned: LearnedModel
    parts: dict[str, PartOfLearned | None]
    interactions: tuple[dict[str, Any], ...]
    target: str | None
    seed: int

    @property
    def judged_on(self) -> str:
        """The part whose scores say how good the model is: the last that holds rows."""
        return [name for name, part in self.parts.items() if part is not None][-1]


def analyse_learned(
    learned: LearnedModel,
    parts: Mapping[str, Observations | None],
    *,
    target: str | None = None,
    title: str = "table",
    about: Sequence[str] = (),
    seed: int = 0,
) -> LearnedAnalysis:
    """Score the parts of the rows, and value the interactions.

    Args:
        learned: the model.
        parts: train, validation and test rows by name; None or empty where there are none.
        target: also measure how well this variable is predicted.
        title: name of the data.
        about: sentences on the data.
        seed: of the states that removal values of large models are estimated from.

    Returns:
        What a report shows.

    Raises:
        UnknownNameError: ``target`` is no variable.
        InputError: rows over other variables.
    """
    energy = learned.energy
    found: dict[str, PartOfLearned | None] = {}
    for name, rows in parts.items():
        if rows is None or not rows.total_count > 0:
            found[name] = None
            continue
        found[name] = PartOfLearned(
            learned.score(rows),
            score_rows(learned.independent, rows),
            score_rows(learned.one_body, rows),
            None if target is None else prediction_accuracy(energy, rows, target),
        )
    return LearnedAnalysis(title, tuple(about), learned, found, _interactions(learned, seed), target, seed)


def _interactions(learned: LearnedModel, seed: int) -> tuple[dict[str, Any], ...]:
    """The learned sets of two variables or more; the strongest are valued, the others follow by strength."""
    energy = learned.energy
    present = set(learned.hypergraph.edges)
    rows = [row for row in interaction_table(energy) if len(row["edge"]) > 1 and tuple(row["edge"]) in present]
    wanted = [tuple(row["edge"]) for row in rows[:_VALUED]]
    values = removal_values(energy, wanted, num_samples=_SAMPLES, seed=seed) if wanted else []
    by_edge: dict[tuple[str, ...], RemovalValue] = dict(zip(wanted, values, strict=True))
    lines = [
        {
            "edge": list(row["edge"]),
            "strength": row["value"],
            "coefficient": row["coefficient"],
            "levels": row["levels"],
            "ridge": learned.ridge.strength(row["edge"]),
            "removal": by_edge.get(tuple(row["edge"])),
        }
        for row in rows
    ]
    valued, rest = lines[: len(wanted)], lines[len(wanted) :]
    return (*sorted(valued, key=lambda line: -line["removal"].value), *rest)
