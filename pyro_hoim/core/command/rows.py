"""The rows that a fit works on, what was left out of them, and what stops a fit before any work."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from ...data.bins import Bins
from ...data.columns import encode_columns, judged_levels
from ...data.encoding import label_of, level_order
from ...data.files.table_file import CsvColumns, read_table_file
from ...data.files.text_format import read_text
from ...data.frames import identifier_columns, rows_seen
from ...data.observations import Observations
from ...data.order import Order, ordered_columns, ordinal_orders, relabelled, required_order, with_ordinal
from ...data.readers import Source as CellSource
from ...data.wide import long_cells
from ...datasets.embedded import load_table, table_info, tables
from ...datasets.public import load_adult, load_breast_cancer, load_mushroom
from ...errors import (
    DataWarning,
    MissingDataError,
    caller_level,
    check_names,
    check_unique,
    conflict,
    other_domain,
    out_of_range,
    refused,
    unexpected,
)
from ...schema import Variable
from ...structure.hypergraph import InteractionHypergraph
from ..family import Asked, Source
from ..words import listed, option, plural, possible_rows, rows_text, whole
from .reading import Reading, cells_of, missing_words, read_cells

# Judging rows before any work: what is only worth a warning. What stops a fit is said where columns are read.

_SHOWN = 6


def warn_of_columns(rows: Observations) -> None:
    """Warn of constant columns.

    Warns:
        DataWarning: columns with one level.
    """
    constant = [name for name in rows.domain.names if len(_held(rows, name)) < 2]
    if constant:
        noun = "constant column" + "s" * (len(constant) > 1)
        warnings.warn(
            DataWarning(f"{noun}, which no interaction can hold: {listed(constant)}"), stacklevel=caller_level()
        )


def _held(rows: Observations, name: str) -> np.ndarray:
    codes = rows.narrow[:, rows.domain.index(name)].numpy()
    return np.unique(codes[(codes >= 0) & (rows.counts.numpy() > 0)])


def warn_of_ranks(orders: Mapping[str, Order]) -> None:
    """Warn of levels that are numbers not equally far apart, of which scores are the ranks."""
    for name, order in orders.items():
        if order.has_gaps:
            told = f"the levels {listed(order.labels)} of {name!r} are not equally far apart, and linear({name}) takes"
            told += f" their ranks; linear({name}, labels) takes the numbers"
            warnings.warn(DataWarning(told), stacklevel=caller_level())


def warn_of_size(rows: Observations, num_parameters: int, hint: str = "") -> None:
    """Warn where a model has more parameters than there are rows; ``hint`` says what to use.

    Warns:
        DataWarning: with both numbers.
    """
    if num_parameters > (rows.total_count if rows.has_whole_counts else rows.num_rows):
        hint = hint or f"{option('prior', 'unit')}, a lower {option('order')} or fewer {option('columns')}"
        sizes = f"{plural(num_parameters, 'parameter')} for {rows_text(rows)}"
        told = f"{sizes}: estimates will be poor or infinite; use {hint}"
        warnings.warn(DataWarning(told), stacklevel=caller_level())


def warn_of_uniform(graph: InteractionHypergraph, name: str) -> None:
    """Warn of the columns that a model, known by a name, has no term of.

    Warns:
        DataWarning: with these columns.
    """
    absent = [column for column in graph.domain.names if (column,) not in graph]
    if absent:
        told = f"{name} has no term of {listed(absent, _SHOWN)}: their levels are taken as equally frequent; add the"
        told += f" terms, or leave the columns out by {option('columns')}"
        warnings.warn(DataWarning(told), stacklevel=caller_level())


# The rows that a fit works on: an embedded table, a public data set or a CSV file, and what was left out of it.

_MAIN_TABLE = "czech_autoworkers"

Fractions = tuple[float, float, float]

ALL_TRAIN: Fractions = (1.0, 0.0, 0.0)
"""All rows are fitted."""

_LEAST_HELD_OUT = 20

_POLICIES = ("drop", "marginalise")
_LEVEL_COLUMNS = ["column", "level"]
_LOADERS: dict[str, Callable[[], Observations]] = {
    "adult": load_adult,
    "breast_cancer": load_breast_cancer,
    "mushroom": load_mushroom,
}


@dataclass(frozen=True)
class Missing:
    """Which labels mean missing, and what to do with such cells."""

    labels: tuple[str, ...]
    policy: str | None

    @classmethod
    def parse(cls, words: tuple[str, ...]) -> Missing:
        """Split the words into a policy (drop, marginalise) and labels that mean missing."""
        policies = {w for w in words if w in _POLICIES}
        if len(policies) > 1:
            raise conflict("missing", "give one of drop and marginalise, not both")
        return cls(tuple(w for w in words if w not in _POLICIES), next(iter(policies), None))


@dataclass(frozen=True)
class Table(Source):
    """A table and what was done to it.

    Attributes:
        dropped_rows: observations left out because of missing cells.
        summed_cells: missing cells of the rows that stayed, which are summed over.
        orders: by column taken as ordered, or whose levels have scores, the order that is used.
        num_possible: rows that structural zeros leave possible; None where there are none.
        has_ordinal_option: whether the option of ordered columns was asked for these.
        said_levels: columns whose levels a file of levels says, in its order.
        empty_levels: levels that were given and that no row has, as ``column=level``.
        num_read: number of rows that were read where only the different ones are held.
    """

    rows: Observations
    dropped_rows: float = 0.0
    summed_cells: int = 0
    orders: Mapping[str, Order] = field(default_factory=dict[str, Order])
    num_possible: int | None = None
    has_ordinal_option: bool = False
    said_levels: tuple[str, ...] = ()
    empty_levels: tuple[str, ...] = ()
    num_read: int | None = None

    @classmethod
    def read(
        cls,
        source: str | None,
        columns: str | None,
        labels: tuple[str, ...],
        reading: Reading,
        spelled: Callable[[Sequence[str]], Collection[str]] = lambda _: (),
        cells: CsvColumns | None = None,
    ) -> Table:
        """A table by name or path, by default the main one; cells with one of ``labels`` are missing.

        Of the names of columns ``spelled`` gives those that are asked for elsewhere; ``cells`` are those of a file that
        was read already.
        """
        source = source or _MAIN_TABLE
        name = Path(source).stem if Path(source).exists() else source
        rows, notes, kept, num_read = _read_source(source, parse_columns(columns), labels, reading, spelled, cells)
        cut = [Bins.from_json(held).sentence(column) for column, held in kept.get("bins", {}).items()]
        about = [*about_source(name, source), *(f"{sentence}." for sentence in cut)]
        return cls(name, rows, tuple(about), tuple(notes), {"reading": kept} if kept else {}, num_read=num_read)

    @property
    def is_weighted(self) -> bool:
        """Whether what the rows bear are weights."""
        reading = self.kept.get("reading") or {}
        return reading.get("weight_column") not in (None, "none")

    @property
    def constant_columns(self) -> tuple[str, ...]:
        """Columns with one level among the rows."""
        rows = self.rows
        return tuple(name for name in rows.domain.names if len(_held(rows, name)) < 2)

    @override
    def told(self) -> tuple[str, ...]:
        sentences: list[str] = []
        # What became of missing cells.
        if self.dropped_rows:
            verb = "was" if self.dropped_rows == 1 else "were"
            left = rows_text(self.rows)
            is_counted = self.rows.has_whole_counts
            dropped = plural(self.dropped_rows, "row") if is_counted else f"Weights of {self.dropped_rows:g}"
            sentences.append(
                f"{dropped} with missing cells {verb} left out ({option('missing', 'drop')}); {left} stayed."
            )
        if self.summed_cells:
            cells, policy = plural(self.summed_cells, "missing cell"), option("missing", "marginalise")
            sentences.append(f"{cells} {'was' if self.summed_cells == 1 else 'were'} summed over ({policy}).")
        # Columns and levels from which nothing can be learned.
        if self.constant_columns:
            noun = "Constant column" + "s" * (len(self.constant_columns) > 1)
            sentences.append(f"{noun}, which no interaction can hold: {listed(self.constant_columns)}.")
        named = identifier_columns(self.rows, weighted=self.is_weighted)
        if identifiers := [f"{name} ({levels:,} levels)" for name, levels in named]:
            verb = "is" if len(identifiers) == 1 else "are"
            sentences.append(
                f"{listed(identifiers)} {verb} (almost) unique per row, like an identifier, so that nothing can be "
                f"learned about the levels; {option('columns')} takes the other columns only."
            )
        if self.empty_levels:
            noun = "Level" + "s" * (len(self.empty_levels) > 1)
            sentences.append(
                f"{noun} that no row has: {listed(self.empty_levels)}. Maximum likelihood gives such rows probability "
                f"zero; {option('prior')}, learn and the {option('alpha')} of a dependency network do not."
            )
        if self.orders:
            shown = "; ".join(f"{name}: {order}" for name, order in self.orders.items())
            none = f"; {option('ordinal', 'none')} takes no column so" if self.has_ordinal_option else ""
            sentences.append(f"Taken as ordered: {shown}{none}.")
        return tuple(sentences)

    @override
    def size(self) -> str:
        number = self.rows.domain.num_states if self.num_possible is None else self.num_possible
        return f"{super().size()}, {possible_rows(number)}"

    @override
    def warn(self) -> None:
        warn_of_columns(self.rows)

    @override
    def facts(self) -> dict[str, Any]:
        return {
            "dropped_rows": whole(self.dropped_rows),
            "summed_cells": self.summed_cells,
            "constant_columns": list(self.constant_columns),
            "ordinal_columns": list(self.orders),
            "orders": {name: list(order.labels) for name, order in self.orders.items()},
        }

    def complete(self, missing: Missing, reason: str | None) -> Table:
        """The table with missing cells dealt with; ``reason`` says why they cannot be summed over, if they cannot."""
        rows, table = self.rows, self
        if rows.has_missing:
            cells = plural(rows.num_missing_cells, "cell")
            complete = rows.drop_missing()
            left_out = rows.total_count - complete.total_count
            policy = option("missing", "drop")
            drop = f"{policy} to leave out {left_out:,g} of {plural(rows.total_count, 'row')}"
            if not rows.has_whole_counts:
                drop = f"{policy} to leave out weights of {left_out:g} of {rows.total_count:g}"
            # Nothing is left out or summed over unless that was asked for.
            if missing.policy is None:
                other = "" if reason else f", or {option('missing', 'marginalise')} to sum over them"
                verb = "is" if rows.num_missing_cells == 1 else "are"
                raise MissingDataError(f"{cells} {verb} missing", argument=self.name, hint=f"pass {drop}{other}")
            if missing.policy == "drop":
                if not complete.total_count > 0:
                    problem = f"no complete row is left after {policy}; {self._gaps()}"
                    raise refused(self.name, problem, code="missing-part")
                table = replace(self, rows=complete, dropped_rows=rows.total_count - complete.total_count)
            elif reason:
                problem = f"not together with {reason}"
                raise conflict(option("missing", "marginalise"), problem, f"pass {drop}, or {self._gaps()}")
            else:
                table = replace(self, summed_cells=int(rows.num_missing_cells))
        if not table.rows.total_count > 0:
            raise unexpected(self.name, "at least one observation", received="counts that sum to zero", code="empty")
        return table

    def with_levels(self, levels: Path | None, levels_from: Path | None, missing: Sequence[str]) -> Table:
        """The table over the levels of a file, and those of the rows of another."""
        rows, from_file = self.rows, dict[str, list[str]]()
        if levels is not None:
            from_file = _read_levels(levels)
            rows = _with_levels(rows, from_file, "levels")
        if levels_from is not None:
            # Levels of the columns of some rows together with those of the same columns of a file, in
            # the order of labels
            table = read_table_file(levels_from)
            shared = [variable for variable in rows.domain if variable.name in table.header]
            if not shared:
                raise other_domain(
                    "levels_from", f"columns of the table in {levels_from}", received=listed(table.header)
                )
            rows = _with_levels(
                rows,
                {v.name: sorted({*v.labels, *table.column(v.name)} - {"", *missing}, key=level_order) for v in shared},
                "levels_from",
            )
        if levels is None and levels_from is None:
            return self
        empty = [
            f"{v.name}={label}"
            for v, old in zip(rows.domain, self.rows.domain, strict=True)
            for label in v.labels
            if label not in old.labels
        ]
        return replace(self, rows=rows, said_levels=tuple(from_file), empty_levels=tuple(empty))

    def with_ordinal(self, text: str) -> Table:
        """The table with ordinal columns marked: ``auto``, ``none`` or names separated by commas.

        Those that the source declares stay ordinal, but with ``none``.
        """
        if text == "none":
            nominal = [replace(variable, kind="nominal") for variable in self.rows.domain]
            return replace(self, rows=relabelled(self.rows, nominal))
        if text == "auto":
            names = ordered_columns(self.rows)
        else:
            names = tuple(name.strip() for name in text.split(","))
            check_names(list(names), self.rows.domain.names, "ordinal", noun="column")
        before = self.in_said_order(names).rows
        rows = with_ordinal(before, names)
        orders = {name: required_order(before.domain[name], name) for name in ordinal_orders(rows.domain)}
        return replace(self, rows=rows, orders=orders, has_ordinal_option=True)

    def in_said_order(self, names: Collection[str]) -> Table:
        """The table with those of some columns ordinal whose levels were said in an order."""
        domain = self.rows.domain
        ordinal = [replace(domain[name], kind="ordinal") for name in self.said_levels if name in names]
        return replace(self, rows=relabelled(self.rows, ordinal))

    def _gaps(self) -> str:
        """Advice with the columns that miss most."""
        gaps = self.rows.missing_by_column
        order = sorted((c for c, gap in enumerate(gaps) if gap), key=lambda c: -gaps[c])
        names = [self.rows.domain.names[c] for c in order]
        return f"leave out the columns that miss most by {option('columns')} (missing cells are in {listed(names, 3)})"


def _read_source(
    source: str,
    chosen: list[str] | int | None,
    missing: tuple[str, ...],
    reading: Reading,
    spelled: Callable[[Sequence[str]], Collection[str]],
    cells: CsvColumns | None,
) -> tuple[Observations, list[str], dict[str, Any], int | None]:
    """Observations of an embedded table, a public data set or a file, with notes and what a model keeps of the reading.

    The number of rows that were read comes last, where only the different ones are held.

    A file of that name wins.
    """
    embedded = [info.name for info in tables()]
    reading.check_chosen(chosen)
    # A folder, or a file that is read piece by piece.
    if Path(source).exists() and reading.pieces.wanted(source):
        rows, note, cuts, num_read = reading.in_pieces(source, chosen, missing)
        how = reading.columns(chosen=chosen, named=spelled(rows.domain.names))
        is_weighted = reading.weight_column not in (None, "none")
        total = rows_seen(rows, weighted=is_weighted) if num_read is None else num_read
        levels = {v: [v.labels[code] for code in _held(rows, v.name)] for v in rows.domain}
        names, left_out = judged_levels(levels, lambda: total, how, source)
        rows = rows if len(names) == len(rows.domain) else rows.project(names).unique()
        return rows, [note, *_noted(source, left_out)], _kept(cuts, reading), num_read
    if Path(source).exists():
        table = read_cells(source, reading.sep, reading.encoding) if cells is None else cells
        if (chosen, reading.count_column, reading.weight_column) == (None, None, None):
            table = long_cells(table, option("count", "none"))
        count, weights = reading.counting(table, chosen if isinstance(chosen, list) else ())
    elif source in embedded or source in _LOADERS:
        reading.check_unused(source)
        data = load_table(source) if source in embedded else _LOADERS[source]()
        if not reading.bins:
            check_names(reading.exclude, data.domain.names, "exclude", noun="column")
            others = [name for name in data.domain.names if name not in reading.exclude]
            return _known_table(data.project(others) if reading.exclude else data, chosen, missing), [], {}, None
        table, weights = cells_of(data, source), None
        count = "count" if "count" in table.header else None
    else:
        problem = f"no such file, nor one of the data sets {', '.join([*embedded, *_LOADERS])}"
        raise refused(source, problem, code="no-file")
    # Cells become levels here, after numbers were cut.
    how = reading.columns(missing, count=count, weights=weights, chosen=chosen, named=spelled(table.header))
    domain, codes, counts, readings, note, _ = encode_columns(CellSource.of_csv(table), None, how)
    rows = Observations(domain, codes, counts, is_weighted=weights is not None)
    cuts = {column.name: column.cuts for column in readings if column.cuts is not None}
    return rows, [*table.note, *_noted(source, note)], _kept(cuts, reading), None


def _kept(cuts: Mapping[str, Bins], reading: Reading) -> dict[str, Any]:
    """What a model keeps of how its rows were read."""
    kept: dict[str, Any] = {"bins": {name: cut.to_json() for name, cut in cuts.items()}} if cuts else {}
    for name in ("count_column", "weight_column"):
        if getattr(reading, name) is not None:
            kept[name] = getattr(reading, name)
    return kept


def _noted(source: str, note: str) -> list[str]:
    """A note on the columns of a source, where there is one."""
    return [f"{source}: {note}"] if note else []


def _known_table(data: Observations, chosen: list[str] | int | None, missing: tuple[str, ...]) -> Observations:
    """Columns of an embedded table or a public data set."""
    if isinstance(chosen, int):
        if not 1 <= chosen <= len(data.domain):
            raise out_of_range("columns", f"1 to {len(data.domain)} columns", received=chosen)
        chosen = list(data.domain.names[:chosen])
    if chosen is not None:
        check_names(chosen, data.domain.names, "columns", noun="column")
    # Levels with these labels become missing cells, as where a file is read with them as missing values.
    data = data if chosen is None else data.project(chosen)
    variables: list[Variable] = []
    for variable in data.domain:
        levels = tuple(label for label in variable.labels if label not in missing)
        if not levels:
            raise refused("missing", f"column {variable.name!r} would have no level left", code="empty")
        variables.append(replace(variable, labels=levels))
    return relabelled(data, variables)


def _read_levels(path: Path) -> dict[str, list[str]]:
    """Levels by column from a JSON object ``{column: [level, ...]}`` or a CSV file with columns ``column,level``."""
    if path.suffix.lower() == ".json":
        text = read_text(path, "a JSON object")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:  # also of numbers of many digits, and of nested lists
            raise refused("levels", f"{path} is not JSON ({error})", code="damaged-file") from None
        if not isinstance(content, dict) or not all(isinstance(v, list) and v for v in content.values()):
            raise unexpected("levels", f'{{"column": ["level", ...]}} in {path}', received="something else")
        levels = {str(name): [label_of(value) for value in values] for name, values in content.items()}
    else:
        table = read_table_file(path)
        if list(table.header) != _LEVEL_COLUMNS:
            raise unexpected("levels", f"columns column, level in {path}", received=listed(table.header))
        levels = {}
        for name, level in zip(table.column("column"), table.column("level"), strict=True):
            levels.setdefault(name, []).append(level)
    for name, labels in levels.items():
        check_unique(labels, f"levels column {name!r}")
    return levels


def _with_levels(rows: Observations, levels: Mapping[str, Sequence[str]], argument: str) -> Observations:
    """The same rows over a domain with the given levels of some columns."""
    check_names(list(levels), rows.domain.names, argument, noun="column")
    variables = [replace(rows.domain[name], labels=tuple(labels)) for name, labels in levels.items()]
    for variable in variables:
        if lost := [label for label in rows.domain[variable.name].labels if label not in variable.labels]:
            problem = f"expected all labels of column {variable.name!r}, but {listed(lost)} of the rows is missing"
            raise refused(argument, problem, code="missing-part")
    return relabelled(rows, variables)


def about_source(name: str, source: str) -> list[str]:
    """What is known of the data: title, source and note of an embedded table, the path of a file."""
    if Path(source).exists():
        return [f"Read from {Path(source).name}."]
    if name in _LOADERS:
        return [f"The public data set {name}."]
    info = table_info(name)
    return [f"{info.title}. Source: {info.source}.", *([f"Note: {info.note}"] if info.note else [])]


def parse_columns(text: str | None) -> list[str] | int | None:
    """A number of leading columns, or names separated by commas."""
    if text is None:
        return None
    if text.strip().lstrip("-").isdigit():
        return int(text)
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise out_of_range("columns", "a number or names separated by commas", text)
    return names


def held_out_split(num_rows: float, validates: bool = False) -> Fractions:
    """The default of dependency networks and root models: parts to score and, where one is needed, to choose on."""
    if validates:
        return (0.6, 0.2, 0.2)
    return ALL_TRAIN if num_rows < _LEAST_HELD_OUT else (0.8, 0.0, 0.2)


@dataclass(frozen=True)
class LabelledPlan:
    """What plans of tables of labels share.

    Attributes:
        asked: what the command was asked.
        shares: fractions of training, validation and test rows; None holds out a fifth.
    """

    asked: Asked
    shares: ClassVar[Fractions | None] = None

    def read(self) -> Table:
        """The table, missing cells and all."""
        # The table that was asked for with the levels that were asked for.
        missing = Missing.parse(self.asked["missing"])
        reading = Reading.of(self.asked.values)
        # Columns that the model or a question names are not left out.
        words = [self.asked["target"] or "", *(str(text) for text in self.asked.values.get("edges") or ())]

        def spelled(names: Sequence[str]) -> Collection[str]:
            return {name for name in names for text in words if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)}

        table = Table.read(self.asked.source, self.asked.columns, missing.labels, reading, spelled, self.asked.cells)
        if note := missing_words(table.rows):
            table = replace(table, notes=(*table.notes, f"{table.name}: {note}"))
        table = table.with_levels(self.asked["levels"], self.asked["levels_from"], missing.labels)
        if self.asked["target"] is not None:
            check_names([self.asked["target"]], table.rows.domain.names, "target")
        return table

    def split(self, source: Table) -> Fractions:
        """Fractions of training, validation and test rows where none were asked for."""
        return held_out_split(source.rows.total_count) if self.shares is None else self.shares
