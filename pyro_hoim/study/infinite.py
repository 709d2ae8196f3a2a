"""Tables of interactions, with what is finite of those that are infinite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.page import Section, cell
from ..core.words import fixed, number, short_edge
from ..log_linear.scores import CoefficientInterval
from .analysis import ModelAnalysis

__all__ = ["add_interactions", "coefficient_rows", "finite_contrast_lines"]

_EDGE = 48  # characters
_INTERVAL = 1.959963984540054
_SHOWN, _BRIEF = 10, 12
_OF_ONE = 3


def coefficient_rows(model: ModelAnalysis) -> list[CoefficientInterval]:
    """Largest coefficients with intervals, of interactions of two variables or more where there are any.

    Infinite ones come first, unless there is a posterior, whose coefficients are finite.
    """
    joint = [row for row in model.intervals if len(row.edge) > 1]
    infinite: list[CoefficientInterval] = []
    if model.posterior is None:
        for row in model.interactions:
            if row["is_infinite"] and len(row["edge"]) > 1:
                end = row["coefficient"]
                infinite.append(
                    CoefficientInterval(
                        tuple(row["edge"]), tuple(row["levels"]), row["position"], end, end, end, level=0.9
                    )
                )
    found = {row.edge for row in infinite}
    return [*infinite, *(row for row in joint if row.edge not in found)] or model.intervals


def finite_contrast_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The largest finite contrasts of infinite interactions of two variables or more, for a terminal."""
    lines = [
        f"{short_edge(edge, _EDGE)}  {_words(edge, found)}: {fixed(found['estimate'], sign=True)}"
        + ("" if found["std_error"] is None else f" +- {fixed(found['std_error'])}")
        for edge, found in _contrasts(rows, _OF_ONE)
    ]
    return ["", "largest finite contrasts of the infinite interactions, in nats:", *lines[:_SHOWN]] if lines else []


def _contrasts(rows: Sequence[Mapping[str, Any]], most: int) -> list[tuple[list[str], dict[str, Any]]]:
    """The first finite contrasts of every infinite interaction of two variables or more."""
    joint = [row for row in rows if row["is_infinite"] and len(row["edge"]) > 1]
    return [(row["edge"], found) for row in joint for found in row["finite_contrasts"][:most]]


def _words(edge: Sequence[str], contrast: Mapping[str, Any]) -> str:
    """The levels that a contrast compares: ``Class 3rd to 1st, Age Child to Adult``."""
    steps = zip(edge, contrast["before"], contrast["after"], strict=True)
    return ", ".join(f"{name} {before} to {after}" for name, before, after in steps)


def _coefficients(row: dict[str, Any], some_infinite: bool) -> list[Any]:
    """Strength and coefficient of a row, and where the table has that column the directions in which it is finite."""
    shown: list[Any] = ["infinite" if row["is_infinite"] else row["value"], cell(row["coefficient"], _signed)]
    if some_infinite:
        known = row["num_identified"]
        shown.append("not computed" if known is None else f"{known} of {row['num_parameters']}")
    return shown


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def add_interactions(section: Section, model: ModelAnalysis, folded: str) -> None:
    """Add all interactions, behind a label where there is one, and the finite contrasts of infinite ones."""
    some = any(row["is_infinite"] for row in model.interactions)
    section.table(
        ["interaction", "strength", "coefficient", *(["finite directions"] if some else []), "levels"],
        [[":".join(r["edge"]), *_coefficients(r, some), ", ".join(r["levels"])] for r in model.interactions],
        folded=folded,
        brief=_BRIEF,
    )
    section.note(
        "Strength: root mean square of the coefficients of an interaction, in nats. Coefficient: the largest of them, "
        "at the levels named; where it is positive this combination is more frequent than smaller interactions imply, "
        "where it is negative less frequent."
    )
    contrasts = [
        [":".join(edge), _words(edge, found), found["estimate"], *_interval(found)]
        for edge, found in _contrasts(model.interactions, _SHOWN)
    ]
    if contrasts:
        section.heading("Finite contrasts of infinite interactions", brief=True)
        section.table(["interaction", "levels", "contrast", "lower", "upper"], contrasts, brief=_BRIEF)
        section.note(
            "Differences of infinite coefficients that stay finite, in nats, with 95 % large-sample intervals. For a "
            "pair in no larger interaction such a contrast is the log odds ratio given all other variables; otherwise "
            "it is averaged over the levels of the variables that modify it."
        )


def _interval(contrast: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Limits of a contrast, None without a standard error."""
    if contrast["std_error"] is None:
        return None, None
    width = _INTERVAL * contrast["std_error"]
    return contrast["estimate"] - width, contrast["estimate"] + width
