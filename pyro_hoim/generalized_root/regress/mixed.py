"""Data frames at the door of root regressions: families chosen by column, and interactions stated by columns."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import pandas as pd

from ...data.columns import left_out_of_numbers, whole_numbers
from ...data.counts import CountTable
from ...data.encoding import parse_counts
from ...data.frames import FrameLike, as_counts, as_frame
from ...data.readers import Source, row_position
from ...errors import InputError, check_names, conflict, refused, wrong_type
from ...structure.formula import parse_formula, split_formula
from ..frames import FamilyWord, RootColumns, choose_families
from ..nodes.families import IndicatorFamily
from .options import Candidates, ColumnReading, FamilyChoice, RootSettings, checked_families
from .rows import kind_of_numbers

_COUNT = "count"


class RootTable(NamedTuple):
    """What regressions take of a data frame.

    Attributes:
        data: rows of numbers.
        family: of the variables.
        names: of the variables; None where the data have them.
        counts: how often each row was seen, (n,); None for once.
        columns: how columns became variables; None where each is one as it is.
    """

    data: Any
    family: FamilyChoice
    names: Sequence[str] | None = None
    counts: Any = None
    columns: RootColumns | None = None


def read_table(
    data: FrameLike, family: FamilyChoice, options: ColumnReading, names: Sequence[str] | None, counts: Any
) -> RootTable:
    """Rows of a data frame: of one family, or of a sequence of them, as they are; else by families chosen."""
    frame, exclude = as_frame(data), options.get("exclude", ())
    families = family if isinstance(family, Mapping) else None
    is_said = family != "auto" if families is None else _are_indicators(families)
    if is_said or (families is None and not options.get("centre") and are_counts(frame, exclude)):
        family = "poisson" if family == "auto" else family
        table = as_counts(frame, kind=kind_of_numbers(checked_families(family)), exclude=exclude)
        return RootTable(table, family, names, counts)
    if names is not None:
        raise conflict("names", "a data frame has names of its own", "rename its columns")
    # A column named count says how often each row was seen, unless something else is said of it.
    header = [str(name) for name in frame.columns]
    if _COUNT in header and counts is None and _COUNT not in (*exclude, *(families or {})):
        cells = frame.iloc[:, header.index(_COUNT)]
        counts = parse_counts(cells, name=f"column {_COUNT!r}", where=row_position, fractional=False)
        frame = frame.iloc[:, [i for i, name in enumerate(header) if name != _COUNT]]
    try:
        centre = options.get("centre", True)
        columns = choose_families(frame, families, exclude=exclude, centre=centre, counts=counts)
    except InputError as error:
        raise error.replace(argument="family" if error.argument == "families" else error.argument) from None
    return RootTable(columns.encode(frame), columns.families, columns.domain.names, counts, columns)


def _are_indicators(families: Mapping[str, FamilyWord]) -> bool:
    """Whether some columns are indicators of a category already, and no columns of labels."""
    return any(isinstance(one, IndicatorFamily) and one.category != name for name, one in families.items())


def are_counts(frame: pd.DataFrame, exclude: Iterable[str] = ()) -> bool:
    """Whether all columns that are not left out hold whole numbers from 0, and no type makes them labels."""
    source = Source.of_frame(frame)
    names = [name for name in source.header if name not in exclude]
    left_out = left_out_of_numbers(source, names) if len(frame) else {}
    return all(whole_numbers(pd.Series(source.column(name))) is not None for name in names if name not in left_out)


def with_stated(table: RootTable, interactions: Any, settings: RootSettings) -> tuple[RootSettings, int]:
    """Settings under which the stated sets are fitted and nothing is searched or tested, and the largest size."""
    if settings.candidates is not None or settings.stagewise:
        raise conflict("interactions", "stated interactions are fitted, and none is searched by candidates or stages")
    columns = table.columns
    if columns is not None:
        names: Sequence[str] = columns.names
    elif isinstance(table.data, CountTable):
        names = table.data.domain.names
    else:
        raise conflict("interactions", "are stated by the columns of a data frame or of a CountTable")
    # Sets of columns of a formula, or as they are listed, each in the order of the columns.
    argument = "interactions"
    if isinstance(interactions, str):
        left, text = split_formula(interactions)
        if left is not None:
            problem = f"a root model has no response, and {left!r} stands on the left of ~"
            raise refused(argument, problem, "write the right side alone")
        sets = [set(term) for term in parse_formula(text, names)]
    else:
        if not isinstance(interactions, Iterable):
            raise wrong_type(argument, "a formula such as 'a*b + c:d', or sets of columns", interactions)
        sets = [set(one.split(":") if isinstance(one, str) else one) for one in cast("Iterable[Any]", interactions)]
        check_names(itertools.chain.from_iterable(sets), names, argument, noun="column")
    position_of = {name: position for position, name in enumerate(names)}
    ordered = {tuple(sorted(one, key=position_of.__getitem__)) for one in sets if one}
    sets = tuple(sorted(ordered, key=lambda one: (len(one), [position_of[name] for name in one])))
    order = max(map(len, sets), default=1)
    listed: dict[int, list[tuple[str, ...]]] = {size: [] for size in range(2, order + 1)}
    for one in sets:
        if len(one) > 1:
            listed[len(one)].append(one)
    candidates = cast(Candidates, listed)
    return replace(settings, candidates=candidates, false_discovery_rate=None), order
