"""What all families of labelled columns share: options and rows of ``fit``, and what ``predict`` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..core.family import Answer, Asked, Option, Question
from ..core.prediction import Prediction
from ..core.words import against_majority, plural
from ..data.observations import Observations
from ..errors import check_names
from .methods import number_text
from .options import LARGEST_SEED
from .output import whole
from .reading import Missing, Table

__all__ = ["JOBS", "LABELLED", "ORDER", "PREDICT_METHOD", "PREDICT_SEED", "prediction_answer", "read_labelled"]

ORDER = Option(
    "order",
    "All interactions of up to K variables [default: 2]; with --select or --model grm the largest that may be learned "
    "[default: 3].",
    kind="whole",
    metavar="K",
)
JOBS = Option(
    "jobs",
    "With --posterior: chains drawn at a time, each in a process; with a dependency network or grm: columns learned at "
    "a time.  [default: one per core]",
    kind="whole",
    low=1,
    metavar="N",
)
LABELLED = (
    Option("target", "Also report how well this column is predicted from the others.", metavar="COL"),
    Option(
        "missing",
        "drop: leave out rows with missing cells; marginalise: sum over them (a dependency network sends such a row to "
        "all answers of a question, in proportion); LABEL: cells with this label are missing too. May be given several "
        "times. Empty cells are always missing.",
        multiple=True,
        metavar="drop|marginalise|LABEL",
    ),
    Option(
        "levels",
        'Levels of columns, with those that no row has: JSON {"column": ["level", ...]}, or a CSV file column,level.',
        kind="path",
        metavar="FILE",
    ),
    Option(
        "levels_from",
        "Add the labels of these rows, which are not fitted, to the levels of the columns.",
        kind="path",
        metavar="FILE.csv",
    ),
)
"""Options of families whose columns have levels."""


def read_labelled(asked: Asked) -> tuple[Table, Missing]:
    """The table that was asked for with the levels that were asked for, and what to do with its missing cells."""
    missing = Missing.parse(asked["missing"])
    table = Table.read(asked.source, asked.columns, missing.labels)
    table = table.with_levels(asked["levels"], asked["levels_from"], missing.labels)
    if asked["target"] is not None:
        check_names([asked["target"]], table.rows.domain.names, "--target")
    return table, missing


PREDICT_METHOD = Option(
    "method",
    "How to sum over other cells that are missing. exact: exactly or not at all; gibbs: averages over Markov chains; "
    "auto: exact where a row takes about a tenth of a second at most, else gibbs, and says so.",
    choices=("auto", "exact", "gibbs"),
    default="auto",
)
PREDICT_SEED = Option("seed", "Seed of gibbs.", kind="whole", low=0, high=LARGEST_SEED, default=0)


def prediction_answer(
    question: Question,
    found: Prediction,
    predicted: Callable[[Observations], Prediction],
    approximate: int = 0,
    notes: Sequence[str] = (),
) -> Answer:
    """What ``predict`` says of a column with levels.

    Args:
        question: that was asked.
        found: prediction of all rows.
        predicted: prediction of other rows.
        approximate: number of rows with a Monte Carlo error.
        notes: sentences on these.
    """
    json = {
        "target": found.target,
        "accuracy": found.accuracy,
        "majority_accuracy": found.majority_accuracy,
        "majority_p_value": found.majority_p_value,
        "rows": whole(found.rows),
        "log_loss": found.log_loss,
        "class_accuracy": found.class_accuracy,
        "predicted_rows": int(found.is_predicted.sum()),
        "impossible_rows": int((~found.is_predicted).sum()),
        "approximate_rows": approximate,
        "kind": found.kind,
    }
    told = question.left_out("they have no prediction, and none of the figures holds for them")
    return Answer(
        json=json,
        lines=[*_describe_prediction(found, json), *told],
        notes=notes,
        frame=found.to_pandas(),
        of_part=lambda part: {"accuracy": predicted(part).accuracy},
        shown=["accuracy"],
    )


def _describe_prediction(found: Prediction, figures: Mapping[str, Any]) -> list[str]:
    """Lines for a reader."""
    lines = [f"target             {found.target}", f"rows               {found.rows:g}"]
    if not bool(found.is_predicted.all()):
        number = plural(figures["impossible_rows"], "row")
        lines.append(f"not predicted      {number} whose other cells have probability zero together")
    if not found.rows:
        shares = torch.bincount(found.codes[found.is_predicted], minlength=len(found.labels)).tolist()
        return [
            *lines,
            "accuracy           not available (no row has a known value of the target)",
            *(f"predicted          {label}: {plural(n, 'row')}" for label, n in zip(found.labels, shares, strict=True)),
        ]
    words = against_majority(figures)
    lines += [
        f"accuracy           {found.accuracy:.4f}",
        f"majority accuracy  {found.majority_accuracy:.4f}" + (f" (the accuracy is {words})" if words else ""),
        f"log loss           {number_text(found.log_loss)} nats",
    ]
    totals = found.confusion.sum(1).tolist()
    for (label, share), total in zip(found.class_accuracy.items(), totals, strict=True):
        if total:
            lines.append(f"  {label}: {share:.4f} of {total:g} recognised")
    return lines
