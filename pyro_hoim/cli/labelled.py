"""Options and rows of ``fit`` that all families of labelled columns share."""

from __future__ import annotations

from ..core.family import Asked, Option
from ..errors import check_names
from .reading import Missing, Table

__all__ = ["JOBS", "LABELLED", "ORDER", "read_labelled"]

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
    """The table that was asked for with the levels that were asked for, and what to do with its missing cells.

    Raises:
        InputError: a bad table, file of levels or policy.
        UnknownNameError: no such target.
    """
    missing = Missing.parse(asked["missing"])
    table = Table.read(asked.source, asked.columns, missing.labels)
    table = table.with_levels(asked["levels"], asked["levels_from"], missing.labels)
    if asked["target"] is not None:
        check_names([asked["target"]], table.rows.domain.names, "--target")
    return table, missing
