"""The fit of a generalized root model of counts or of real numbers, with its rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from ...core.command.options import JOBS, ORDER, only
from ...core.command.reading import Reading
from ...core.command.rows import Fractions, held_out_split, parse_columns
from ...core.family import Asked, Option, Request, Source
from ...core.words import listed, option, plural
from ...data.counts import CountTable
from ...data.files.table_file import read_table_file
from ...datasets.classic3 import classic3_info, load_classic3
from ...errors import conflict, none_received, out_of_range, refused, unexpected
from ...runs.checkpoint import RunOptions
from ..nodes.families import NodeFamily, node_family
from ..regress.fit import fit_root_path
from ..regress.options import RootSettings
from ..regress.result import RootFitResult
from ..study.analysis import AUTO_L1, RootAnalysis, analyse_roots

__all__ = ["ROOT_OPTIONS", "VOCAB", "check_support", "parse_l1", "plan_roots"]

_MOST_L1 = 1e6
_LOADERS: dict[str, Callable[[], CountTable]] = {"classic3": load_classic3}

VOCAB = Option(
    "vocab",
    "Column names of a .npz file for a grm, one a line.  [default: the same name with _vocab.txt]",
    kind="path",
    metavar="FILE",
)
ROOT_OPTIONS = (
    Option(
        "family",
        "Law of a column given all others.",
        choices=("poisson", "truncated-poisson", "exponential", "gaussian"),
        default="poisson",
    ),
    Option(
        "l1",
        "Penalty of every coefficient, nats a row. Several (or auto: "
        f"{', '.join(f'{value:g}' for value in AUTO_L1)}) are compared on the validation rows.  [default: 0.01]",
        multiple=True,
        metavar="LAMBDA|auto",
    ),
    VOCAB,
    Option(
        "maximum",
        "Largest count of {family} truncated-poisson.",
        kind="whole",
        low=1,
        high=2**53,
        metavar="R",
    ),
    Option(
        "symmetrize",
        "How the coefficients of a tuple at its columns become one: their mean, absent ones as zero; and: "
        "zero where one is absent; or: the mean of those present.",
        choices=("mean", "and", "or"),
        default="mean",
    ),
    Option(
        "refit_terms",
        "Which coefficients are fitted again, together, once the columns' regressions are joined; none: the "
        "published way, which can predict worse than independent columns.",
        choices=("none", "singles", "all"),
        default="all",
    ),
    Option(
        "false_discovery_rate",
        "Share of absent sets among those that all training rows are said to confirm, on average at most; or none.",
        default="0.1",
        metavar="RATE|none",
    ),
    Option("stagewise", "Learn pairs first, then only triples of mutually tied columns.", kind="flag"),
    Option(
        "full",
        "Also lower roots: square and cube roots of single columns (which let counts spread more than "
        "Poisson ones do), cube roots of pairs. Of gaussian columns these hold the mean.  [default: gaussian only]",
        kind="switch",
    ),
    ORDER,
    JOBS,
)


@dataclass(frozen=True)
class _CountSource(Source):
    """A table of counts or real numbers."""

    rows: CountTable

    @classmethod
    def read(
        cls, source: str, columns: str | None, vocab: Path | None, family: NodeFamily, reading: Reading
    ) -> _CountSource:
        """A table by path or name; a file of that name wins."""
        path, chosen = Path(source), parse_columns(columns)
        reading.check_numbers()
        notes: tuple[str, ...] = ()
        if not path.exists() and source in _LOADERS:
            reading.check_unused(source)
            if vocab is not None:
                raise conflict("vocab", f"belongs to a .npz file, received the data set {source}")
            rows = _LOADERS[source]()
            rows = rows if chosen is None else rows.columns(chosen)
            table = cls(source, rows, (f"The public data set {source}. Source: {classic3_info().source}.",))
        elif not path.exists():
            problem = f"no such file, nor one of the data sets of counts {', '.join(_LOADERS)}"
            raise refused(source, problem, code="no-file")
        else:
            if path.suffix == ".npz":
                reading.check_unused(source)
                rows = CountTable.from_npz(path, vocab, kind=family.kind, columns=chosen)
            elif vocab is not None:
                raise conflict("vocab", f"belongs to a .npz file, received {source}, whose header names its columns")
            else:
                cells = read_table_file(path, sep=reading.sep, encoding=reading.encoding)
                count = None if reading.count_column == "none" else reading.count_column or "count"
                rows = CountTable.from_csv(cells, kind=family.kind, count=count, columns=chosen)
                notes = cells.note
            table = cls(path.stem, rows, (f"Read from {path.name}.",), notes)
        if not table.rows.num_rows:
            raise none_received(source, "at least one observation")
        check_support(table.rows, family)
        return table

    @override
    def told(self) -> tuple[str, ...]:
        found: list[str] = []
        zero, constant = self.rows.zero_columns, self.rows.constant_columns
        if zero:
            found.append(f"{plural(len(zero), 'column')} without a count, left out of the model: {listed(zero)}.")
        if constant:
            found.append(f"Constant column{'s' * (len(constant) > 1)}: {listed(constant)}.")
        return tuple(found)


def check_support(rows: CountTable, family: NodeFamily) -> None:
    """Refuse values that a family does not take, by their place."""
    if family.name == "truncated-poisson":
        what = f"{option('family', family.name)} with {option('maximum', int(family.largest_value))}"
        rows.check_range(0, family.largest_value, what)
    elif family.name != "gaussian":
        rows.check_range(0, np.inf, option("family", family.name))


@dataclass(frozen=True)
class _RootPlan:
    """Learning a generalized root model with falling penalties."""

    asked: Asked
    family: NodeFamily
    l1: tuple[float, ...]
    rate: float | None

    def read(self) -> _CountSource:
        """The counts or real numbers."""
        asked = self.asked
        reading = Reading.of(asked.values)
        return _CountSource.read(asked.source or "", asked.columns, asked["vocab"], self.family, reading)

    def complete(self, source: _CountSource) -> _CountSource:
        """The same rows, refused where they have fewer columns than the order asked for."""
        order, columns = only(self.asked, "order"), len(source.rows.domain)
        if order is not None and order > columns:
            raise out_of_range("order", f"1 to {columns} (the number of columns)", received=order)
        return source

    def split(self, source: _CountSource) -> Fractions:
        """A fifth of the rows is held out, and another one where several penalties are compared."""
        return held_out_split(source.rows.num_rows, len(self.l1) > 1)

    def run(self, request: Request) -> RootAnalysis:
        """Learn from the training rows."""
        asked, source = self.asked, request.source
        num_columns, order, full = len(source.rows.domain), only(asked, "order"), asked["full"]
        rows, columns = plural(request.parts["train"].num_rows, "row"), plural(num_columns, "column")
        request.begin(f"learning {columns} from {rows}")
        settings = RootSettings(
            stagewise=asked["stagewise"],
            symmetrize=asked["symmetrize"],
            false_discovery_rate=None,  # of the penalty kept alone
            jobs=-1 if asked["jobs"] is None else asked["jobs"],
        )

        def learn(*learned: Any, order: int) -> tuple[RootFitResult, ...]:
            return fit_root_path(
                *learned,
                order=order,
                full=self.family.name == "gaussian" if full is None else full,
                refit=asked["refit_terms"],
                settings=settings,
                run=RunOptions(request.checkpoint / f"roots-{order}.safetensors", request.resume, request.progress),
            )

        return analyse_roots(
            request.parts,
            self.family,
            order=min(3, num_columns) if order is None else order,
            l1=self.l1,
            false_discovery_rate=self.rate,
            learn=learn,
            seed=request.seed,
            title=source.name,
            about=request.about,
        )


def plan_roots(asked: Asked) -> _RootPlan:
    """Options checked against each other."""
    family, maximum, order = asked["family"], asked["maximum"], only(asked, "order")
    if asked.source is None:
        raise unexpected(
            option("model", "grm"), "a FILE of counts or numbers, or classic3", received="none", code="conflict"
        )
    if family == "truncated-poisson" and maximum is None:
        raise conflict("maximum", f"{option('family', family)} needs its largest count")
    if family != "truncated-poisson" and maximum is not None:
        belongs, received = (option("family", name) for name in ("truncated-poisson", family))
        raise conflict("maximum", f"belongs to {belongs}, received {received}")
    if order is not None and order < 1:
        raise out_of_range("order", "a whole number of at least 1", received=order)
    penalties = parse_l1(asked["l1"])
    if len(penalties) > 1 and asked.split is not None and not asked.split[1] > 0:
        problem = "several penalties are compared on validation rows"
        raise refused("l1", problem, f"pass {option('split')}, such as 0.7,0.1,0.2", code="conflict")
    return _RootPlan(asked, node_family(family, maximum), penalties, parse_rate(asked["false_discovery_rate"]))


def parse_rate(words: str) -> float | None:
    """A false discovery rate, None for ``none``."""
    if words == "none":
        return None
    try:
        rate = float(words)
    except ValueError:
        rate = math.nan
    if not 0 < rate < 1:
        raise out_of_range("false_discovery_rate", "a number between 0 and 1, or none", received=words)
    return rate


def parse_l1(words: tuple[str, ...]) -> tuple[float, ...]:
    """Penalties in falling order; 0.01 where none is given."""
    parts = [part.strip() for word in words for part in word.split(",")]
    if not parts:
        return (0.01,)
    if parts == ["auto"]:
        return AUTO_L1
    penalties: list[float] = []
    for part in parts:
        if part == "auto":
            several = ", ".join(f"{value:g}" for value in AUTO_L1)
            raise conflict("l1", f"auto stands for {several} and takes no other numbers beside it")
        try:
            value = float(part)
        except ValueError:
            what = repr(part) if part else "nothing between two commas"
            raise out_of_range("l1", "a number, or auto", received=what) from None
        if not 0 <= value <= _MOST_L1:
            raise out_of_range("l1", f"a number from 0 to {_MOST_L1:g} (nats a row)", received=part)
        if value in penalties:
            raise refused("l1", f"{part} is given twice", code="repeated-name")
        penalties.append(value)
    return tuple(sorted(penalties, reverse=True))
