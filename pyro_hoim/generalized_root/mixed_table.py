"""Tables of several kinds of columns at the command line: what was said of families, files, and labels of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typing_extensions import override

from ..core.command.reading import Reading, read_cells
from ..core.command.rows import about_source
from ..core.family import Source
from ..core.words import listed, option, plural, rows_text
from ..data.counts import CountTable, kind_of_table, repeated_rows
from ..data.encoding import parse_counts, select_columns, to_numbers
from ..data.files.table_file import CsvColumns
from ..datasets.embedded import tables
from ..errors import InputError, MissingDataError, check_names, conflict, none_received, refused, unexpected
from ..schema import Domain, Variable
from .frames import EVERY, RootColumns, choose_families
from .nodes.families import NodeFamily, node_family

AUTO = "auto"
ONE_FOR_ALL = ("poisson", "truncated-poisson", "exponential", "gaussian")
_SHOWN = 40  # columns whose families are said


@dataclass(frozen=True)
class FamilyWords:
    """What was said of the families of columns.

    Attributes:
        default: of all columns that nothing else was said of, one of :data:`ONE_FOR_ALL`, or ``auto``.
        by_column: of others, as :func:`~pyro_hoim.generalized_root.choose_families` takes them.
        maximum: largest count of the truncated Poisson family.
    """

    default: str
    by_column: Mapping[str, str]
    maximum: int | None = None

    @classmethod
    def parse(cls, words: Sequence[str], maximum: int | None, unsaid: str = ONE_FOR_ALL[0]) -> FamilyWords:
        """From ``FAMILY``, ``auto`` and ``COL=FAMILY``; ``unsaid`` where nothing was said.

        Raises:
            InputError: other words, two families of all columns, a column twice, or a maximum without its family.

        Example:
            >>> FamilyWords.parse(["region=category", "age=real"], None).default
            'auto'
        """
        default, by_column = "", dict[str, str]()
        for text in words:
            name, equals, word = text.rpartition("=")
            if not equals and text not in (*ONE_FOR_ALL, AUTO):
                expected = f"{listed(ONE_FOR_ALL)}, {AUTO}, or COL=FAMILY such as {option('family', 'region=category')}"
                raise unexpected("family", expected, text, code="unknown-choice")
            if not equals:
                if default not in ("", text):
                    raise conflict("family", f"{default} and {text} cannot both be the family of all columns")
                default = text
            elif name.strip() in by_column:
                raise refused("family", f"column {name.strip()!r} has two families", code="repeated-name")
            else:
                by_column[name.strip()] = word.strip()
        default = default or (AUTO if by_column else unsaid)
        # A maximum belongs to one family of all columns; that of a single one is a part of its word.
        truncated = ONE_FOR_ALL[1]
        if default == truncated and maximum is None:
            raise conflict("maximum", f"{option('family', default)} needs its largest count")
        if default != truncated and maximum is not None:
            hint = f"write {option('family', f'COL=bounded:{maximum}')} for one column" if by_column else None
            problem = f"belongs to {option('family', truncated)}, received {option('family', default)}"
            raise conflict("maximum", problem, hint)
        return cls(default, by_column, maximum)

    @property
    def one(self) -> NodeFamily | None:
        """The family of all columns; None where each has its own."""
        return None if self.default == AUTO or self.by_column else node_family(self.default, self.maximum)

    def of(self, names: Sequence[str]) -> dict[str, str]:
        """What was said of some columns; ``*`` stands for those whose values do not say it."""
        check_names(self.by_column.keys() - {EVERY}, names, "family", noun="column")
        if self.default == AUTO:
            return dict(self.by_column)
        word = f"bounded:{self.maximum}" if self.default == ONE_FOR_ALL[1] else self.default
        return {**dict.fromkeys(names, word), **self.by_column}


@dataclass(frozen=True)
class MixedSource(Source):
    """Rows of a table whose columns have families of their own, as the variables of a root model."""

    rows: CountTable
    columns: RootColumns = field(kw_only=True)

    @classmethod
    def read(
        cls, source: str, chosen: Any, words: FamilyWords, reading: Reading, cells: CsvColumns | None = None
    ) -> MixedSource:
        """A table of text by its path, whose ``cells`` may have been read already.

        Raises:
            InputError: no file of text, columns whose family has to be said, or values that a family does not take.
            MissingDataError: missing cells.
        """
        # The file and its columns, without those that count rows.
        path = Path(source)
        if path.suffix == ".npz":
            raise conflict(source, "families by column belong to a table of text")
        if not path.exists() and source not in (embedded := [info.name for info in tables()]):
            problem = f"no such file, nor one of the data sets {', '.join(embedded)}"
            raise refused(source, problem, code="no-file")
        if cells is None:
            cells = read_cells(source, reading.sep, reading.encoding)
        check_names(reading.exclude, cells.header, "exclude", noun="column")
        count = None if reading.count_column == "none" else reading.count_column
        check_names([] if count is None else [count], cells.header, "count", noun="column")
        if reading.count_column is None and "count" in cells.header and "count" not in reading.exclude:
            count = "count"
        reading.check_chosen(chosen)
        without = [*reading.exclude, *([] if count is None else [count])]
        names = select_columns(cells.header, chosen, exclude=without, source=source)
        # Families of the columns, then rows of their variables.
        frame = frame_of(cells, [name for name in cells.header if name in (*names, *reading.exclude)])
        counts = None if count is None else _counts(cells, count)
        try:
            columns = choose_families(frame, words.of(names), exclude=reading.exclude, counts=counts)
        except MissingDataError as error:
            hint = f"fill them, leave these rows out of the file, or leave columns out by {option('exclude')}"
            raise error.replace(argument=source, hint=hint) from None
        except InputError as error:
            raise error.replace(argument=(error.argument or "").replace("families", "family")) from None
        rows = table_of(columns, frame, source, lines=cells.lines)
        if counts is not None:
            rows = rows.rows(repeated_rows(counts, rows.matrix, rows.source))
        if not rows.num_rows:
            raise none_received(source, "at least one observation")
        notes = (*cells.note, *_choice(columns))
        reread = {} if count is None else {"reading": {"count_column": count}}
        return cls(path.stem, rows, tuple(about_source(source, source)), notes, reread, columns=columns)

    @override
    def size(self) -> str:
        """Rows and columns, a category being one."""
        return f"{rows_text(self.rows)}, {plural(len(self.columns.columns), 'column')}"

    @override
    def told(self) -> tuple[str, ...]:
        return tuple(f"Column {name!r} is left out, as it {why}." for name, why in self.columns.left_out.items())


def _choice(columns: RootColumns) -> list[str]:
    """The family of every column and why, a sentence each."""
    lines = repr(columns).split("\n  ")[1:]
    said = [f"column {line}" for line in lines[:_SHOWN]]
    rest = len(lines) - len(said)
    return [*said, *([f"{plural(rest, 'further column')} likewise; the report lists all"] if rest else [])]


def frame_of(cells: CsvColumns, names: Sequence[str]) -> pd.DataFrame:
    """Columns of a file: of numbers where all their cells are numbers, categories where the file declares them."""
    frame = dict[str, Any]()
    for name in names:
        column, dtype = cells.column(name), cells.categories.get(name)
        frame[name] = pd.Series(
            list(column) if dtype is None else pd.Categorical([cell or None for cell in column], dtype=dtype),
            dtype=object if dtype is None else None,
        )
        if dtype is None:
            frame[name] = _as_numbers(frame[name])
    return pd.DataFrame(frame)


def _as_numbers(column: pd.Series) -> pd.Series:
    """A column of text as numbers, whole ones where all are; as it is where a cell is none, or a code such as 007."""
    cells: Any = column
    filled = cells[cells != ""].astype(str).str.strip()
    if not len(filled) or filled.str.fullmatch(r"[+-]?0\d+").any():
        return column
    numbers = to_numbers(filled).to_numpy(dtype=float, na_value=np.nan)
    if not np.isfinite(numbers).all():
        return column
    is_whole = len(filled) == len(column) and not filled.str.contains(r"[.eE]", regex=True).any()
    values = pd.Series(np.nan, index=column.index)
    values[filled.index] = numbers
    return values.astype(np.int64) if is_whole and np.abs(numbers).max() < 2**53 else values


def table_of(columns: RootColumns, frame: pd.DataFrame, source: str, lines: Sequence[int] | None = None) -> CountTable:
    """Rows of the variables of a model from a data frame.

    Raises:
        InputError, UnknownNameError, MissingDataError: as :meth:`RootColumns.encode`, which name the file.
    """
    try:
        values = columns.encode(frame)
    except InputError as error:
        where = "" if error.argument in (None, "data") else f", {error.argument}"
        raise error.replace(argument=f"{source}{where}") from None
    kind = kind_of_table(columns.domain)
    domain = Domain(Variable(name, kind=kind) for name in columns.domain.names)
    return CountTable(domain, values, source, lines)


def _counts(cells: CsvColumns, count: str) -> np.ndarray:
    """How often each row was seen."""
    return parse_counts(cells.column(count), name=f"column {count!r}", where=cells.where, fractional=False)
