"""A plan before work: how the columns of a table are read, which routes are open at what cost, and which is advised.

Nothing is fitted. Costs are formulas of the numbers of rows, columns and levels. Their constants were measured on 29
November 2026 with one thread of two cores shared with others, on tables of 3 to 300 columns of 2 to 10 levels and 300
to 100,000 rows: once with ten planted pairs, and once with four latent classes, so that all columns depend on each
other. Where a route took more than a second the seconds were right within a factor of 3 for exact fits of all pairs,
with and without missing cells, for dependency networks, root models, posteriors of structures and pseudo-likelihoods.
Learning takes as long as it finds interactions: a formula of sizes lies between tables of few and of many, which differ
by a factor of 10 to 20, and so within a factor of 5 of both. What took more than 200 seconds was ended, and fits that
are sampled or by bounds were not measured. The seconds leave out starting Python, compiling, reading a table and
writing a report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from typing_extensions import Unpack

from .budgets import MAX_NETWORK_WORK, MAX_SAMPLED_ENTRIES, NETWORK_BITS_AT_ONCE, num_entries
from .core.words import listed, num_states_text, option, plural, possible_rows
from .data.columns import ColumnReading, ColumnRules, left_out_of_numbers, read_columns, whole_numbers
from .data.encoding import to_numbers
from .data.frames import DataLike, as_frame, is_frame
from .data.observations import Observations
from .data.readers import Source
from .data.sources import RowBatch, RowSource
from .data.wide import long_table
from .errors import check_choice, check_names, conflict, visible, wrong_type
from .inference.structure.kernel import MAX_CELLS, is_dense
from .log_linear.auto import Auto
from .log_linear.bounds.mini_buckets import MiniBuckets
from .log_linear.fitting.duration import bound_seconds, duration_words, exact_seconds, pair_reads, pseudo_seconds
from .log_linear.fitting.fit import uses_design
from .log_linear.fitting.identified import num_identified
from .log_linear.impossible import ImpossibleStates, StructuralZeros, structural_states
from .results.table import html_of
from .schema import Domain, Variable
from .structure.hypergraph import InteractionHypergraph

__all__ = [
    "PATIENCE",
    "PlannedColumn",
    "Route",
    "RouteName",
    "TablePlan",
    "TableSize",
    "advise",
    "counted",
    "counts_in_frame",
    "gaps_of",
    "plan",
    "plan_of",
    "plan_of_counts",
    "plan_of_readings",
    "routes_of",
    "size_of",
    "size_of_counts",
    "with_assumed",
    "words_of",
]


RouteName = Literal["pairs", "pseudo-likelihood", "bound", "sampled", "learn", "structures", "network", "roots"]

PATIENCE = 60.0
"""Seconds that an advised route may take where another one is faster."""
_MOST_SECONDS = 300.0  # of exact sums: as check_duration of a fit
_MOST_STATES = 2**40  # from which on exact sums over all pairs need no closer look
_LEARN_ALL, _EXACT_STATES = 1500, 2**21  # pairs that learning takes at once; states up to which it is exact
_LISTED = {2: 2, 3: 9, 4: 114, 5: 6894}  # hierarchical collections, by columns, where these are listed
_BUCKET_SHARE, _BUCKET_BYTES = 1 / 14, 30.0  # cells of mini-buckets by pair, as a share of the largest; bytes of a cell
_MB = 2.0**20

# The routes: what they are called, and how one asks for them in Python, and by a verb and its options at a shell. In a
# call braces stand for what :func:`words_of` writes in their place.
_ROUTES: dict[RouteName, tuple[str, str, str, dict[str, Any]]] = {
    "pairs": ("all pairs, exact", "hoim.fit({data}, order=2{fit_options})", "fit", {"order": 2}),
    "pseudo-likelihood": (
        "all pairs, pseudo-likelihood",
        "hoim.fit({data}, order=2, objective='pseudo-likelihood'{fit_options})",
        "",
        {},
    ),
    "bound": (
        "all pairs, bound of the likelihood",
        "hoim.fit({data}, order=2, objective='bound'{fit_options})",
        "",
        {},
    ),
    "sampled": (
        "all pairs, sampled",
        "hoim.log_linear.fit_collection(rows := {rows}, hoim.InteractionHypergraph.from_order(rows.domain, 2))",
        "fit",
        {"order": 2},
    ),
    "learn": (
        "learned interactions",
        "hoim.learn({data}, search=hoim.log_linear.SelectionOptions(max_order=2){options})",
        "learn",
        {"max_order": 2},
    ),
    "structures": ("probable structures", "hoim.inference.sample_structures({rows})", "structures", {}),
    "network": (
        "dependency network",
        "hoim.learn_network({data}, penalty='ebic'{options})",
        "fit",
        {"model": "dependency-network", "penalty": "ebic"},
    ),
    "roots": (
        "root model of counts",
        "hoim.fit_roots({numbers}, order=2, l1=0.1, refit='all')",
        "fit",
        {
            "model": "grm",
            "order": 2,
            "l1": 0.1,
        },  # of a smaller penalty most pairs are noise, and tests of all take long
    ),
}


@dataclass(frozen=True)
class TableSize:
    """The numbers that costs depend on.

    Attributes:
        levels: numbers of levels of the columns, by name.
        num_rows: rows, not counts.
        total: what the counts of the rows add up to; None where these are not counted.
        has_missing: whether cells are missing.
        is_weighted: whether rows bear weights.
        counts: where all columns hold counts, how many pairs of cells above zero stand in one row, over all rows; None
            for other tables.
        left_out: columns of a table of counts that hold none, such as names of rows.
        no_counts: why a table is none of counts.
        zeros: what is impossible, states of the columns of ``levels``; None for nothing.
    """

    levels: dict[str, int]
    num_rows: int
    total: float | None = None
    has_missing: bool = False
    is_weighted: bool = False
    counts: float | None = None
    left_out: Mapping[str, ColumnReading] = field(default_factory=dict[str, ColumnReading])
    no_counts: str = "the columns hold labels, and not counts"
    zeros: ImpossibleStates | None = None

    @property
    def num_states(self) -> int:
        """How many rows there may be."""
        return math.prod(self.levels.values())

    @property
    def num_seen(self) -> float:
        """How many rows were seen, with those that are counted together."""
        return self.num_rows if self.total is None else self.total

    @property
    def num_varying(self) -> int:
        """Columns with two levels or more."""
        return sum(size > 1 for size in self.levels.values())


@dataclass(frozen=True)
class Route:
    """One way from a table to a model.

    Attributes:
        name: one word.
        title: in a table.
        call: of Python; ``data`` stands for the table.
        verb: command of the shell; empty where there is none.
        options: of that command, by name.
        seconds: predicted, of the estimation alone; None for a closed route.
        memory_mb: predicted, MiB, beside the program itself; None for a closed route.
        reason: in one line, why the route is closed, or what it does where it is open.
    """

    name: RouteName
    title: str
    call: str
    verb: str
    options: Mapping[str, Any]
    seconds: float | None
    memory_mb: float | None
    reason: str

    @property
    def is_open(self) -> bool:
        """Whether the route may be taken."""
        return self.seconds is not None

    @property
    def words(self) -> str:
        """How long it takes, in words."""
        if self.seconds is None:
            return "closed"
        return "under a second" if self.seconds < 1 else f"about {duration_words(self.seconds)}"


_Cost = tuple[float | None, float | None, str]  # seconds, MiB, reason


def _closed(reason: str) -> _Cost:
    return None, None, reason


def _pairs(size: TableSize) -> _Cost:
    """Newton's steps on a dense design, or sums over all states, some thirty times."""
    states = size.num_states
    too_many = f"exact sums over the {possible_rows(states)} are out of reach"
    if states > _MOST_STATES:
        return _closed(too_many)
    graph = _graph(size, 2)
    cost = Auto().plan(graph)
    if not cost.feasible:
        return _closed(too_many)
    parameters = num_identified(graph, size.zeros, uses_design(graph))
    seconds = exact_seconds(graph, cost, size.num_rows, has_missing=size.has_missing)
    memory = 16.0 * states * parameters if uses_design(graph) else 3.0 * cost.memory_bytes
    if seconds > _MOST_SECONDS:
        return _closed(f"exact sums over {possible_rows(states)} take about {duration_words(seconds)}")
    fewer = f", more than the {plural(size.num_seen, 'row')}" if parameters > size.num_seen else ""
    if size.zeros is not None:
        fewer += f", {num_states_text(size.zeros.num_possible)} of {num_states_text(states)} rows possible"
    return seconds, memory / _MB, f"{plural(parameters, 'parameter')}{fewer}, with tests and odds ratios"


def _pseudo(size: TableSize) -> _Cost:
    """Gradients of every column given all others."""
    if size.has_missing:
        return _closed("needs rows without missing cells")
    entries, widest = num_entries(size.levels.values(), 2), max(size.levels.values())
    levels = list(size.levels.values())
    num_rows = min(size.num_rows, size.num_states)
    seconds = pseudo_seconds(pair_reads(levels), num_entries([number - 1 for number in levels], 2), num_rows)
    if seconds > 12 * _MOST_SECONDS:
        return _closed(f"{plural(entries, 'entry', 'entries')} of pair tables take about {duration_words(seconds)}")
    memory = 8.0 * size.num_rows * len(size.levels) * (widest + 2) + 200.0 * entries
    return seconds, memory / _MB, "approximate, without a likelihood and its tests"


def _bound(size: TableSize) -> _Cost:
    """Mini-buckets of the default size, of which every pair adds about a fourteenth."""
    if size.has_missing:
        return _closed("needs rows without missing cells")
    levels, pairs = sorted(size.levels.values()), math.comb(size.num_varying, 2)
    largest, most = MiniBuckets().max_cells, MiniBuckets().max_memory_bytes
    if levels[-1] * levels[-2] > largest:
        return _closed(f"a pair has {plural(levels[-1] * levels[-2], 'cell')}, mini-buckets have at most {largest}")
    cells = float(min(_BUCKET_SHARE * largest * pairs, size.num_varying * size.num_states))
    memory, seconds = _BUCKET_BYTES * cells, bound_seconds(cells)
    if memory > most or seconds > 12 * _MOST_SECONDS:
        return _closed(f"mini-buckets of {plural(pairs, 'pair')} need about {memory / 2**30:.1f} GiB")
    return seconds, memory / _MB, "approximate, with a number that the likelihood is certainly not below"


def _sampled(size: TableSize) -> _Cost:
    """Gradients from Markov chains."""
    if size.has_missing:
        return _closed("needs rows without missing cells")
    entries = num_entries(size.levels.values(), 2)
    seconds = 5 + 0.05 * entries
    if entries > MAX_SAMPLED_ENTRIES or seconds > 24 * _MOST_SECONDS:
        return _closed(f"{plural(entries, 'entry', 'entries')} of pair tables take hours")
    return seconds, 100 + 400 * entries / _MB, "approximate, log Z with an error bar"


def _learn(size: TableSize) -> _Cost:
    """Single variables, all pairs or the best of them, larger sets; the last fits and tests."""
    if size.has_missing:
        return _closed("needs rows without missing cells")
    if size.num_seen < 8:
        return _closed(f"needs more than {plural(size.num_seen, 'row')} to fit and to judge by")
    columns, pairs = size.num_varying, math.comb(size.num_varying, 2)
    if size.num_states <= _EXACT_STATES:
        seconds = 1 + 5e-6 * size.num_states
    elif pairs <= _LEARN_ALL:
        seconds = 2 + 0.04 * num_entries(size.levels.values(), 2)
    else:
        seconds = columns * max(1.0, size.num_rows / 2000) ** 0.5
    if seconds > 24 * _MOST_SECONDS:
        return _closed(f"{plural(columns, 'column')} take about {duration_words(seconds)}")
    return seconds, 100 + 24 * size.num_rows * columns / _MB, "finds which interactions there are, and tests them"


def _structures(size: TableSize) -> _Cost:
    """Evidence of every collection in a list, or of those that chains visit."""
    if size.has_missing:
        return _closed("needs rows without missing cells")
    states = size.num_states
    largest = None if states > MAX_CELLS else _graph(size, len(size.levels))
    if largest is None or not is_dense(largest):
        return _closed(f"needs a table of a few thousand cells at most, and this one has {possible_rows(states)}")
    columns, parameters = len(size.levels), largest.num_parameters
    if columns in _LISTED:
        seconds = 1 + _LISTED[columns] * (3e-5 + 1e-9 * states * parameters**2)
    else:
        seconds = 1 + 9e-6 * states * parameters**2
    if seconds > 24 * _MOST_SECONDS:
        return _closed(f"chains over collections of {plural(columns, 'column')} take about {duration_words(seconds)}")
    return seconds, 50 + 64 * states * parameters / _MB, "says how probable every interaction is"


def _network(size: TableSize) -> _Cost:
    """Counts of all levels of all columns, for every column."""
    columns = len(size.levels)
    levels = sum(size.levels.values())
    work = size.num_rows * columns * (columns - 1)
    if work // NETWORK_BITS_AT_ONCE > MAX_NETWORK_WORK:
        return _closed(f"{plural(columns, 'column')} of {plural(size.num_rows, 'row')} take more than an hour")
    # Rows that are counted, weighted or not whole are not held as bits.
    is_held_as_bits = not size.has_missing and not size.is_weighted and size.num_seen == size.num_rows
    seconds = 0.1 + (1.6e-9 if is_held_as_bits else 5e-9) * size.num_rows * columns * levels
    memory = 16.0 * size.num_rows * columns + 16.0 * levels * max(size.levels.values()) * 1000
    return seconds, memory / _MB, "predicts every column from others; edges are sorted by their information"


def _roots(size: TableSize) -> _Cost:
    """Regressions of every column on all others, with a refit."""
    if size.counts is None:
        return _closed(size.no_counts)
    if size.has_missing or size.is_weighted:
        return _closed(f"needs rows without {'missing cells' if size.has_missing else 'weights'}")
    seconds = 0.1 + 2.5e-6 * size.counts
    if seconds > 24 * _MOST_SECONDS:
        return _closed(f"{plural(len(size.levels), 'column')} of counts take about {duration_words(seconds)}")
    return seconds, 50 + 100 * size.counts / _MB, "finds which counts rise and fall together"


_COSTS: dict[RouteName, Callable[[TableSize], _Cost]] = {
    "pairs": _pairs,
    "pseudo-likelihood": _pseudo,
    "bound": _bound,
    "sampled": _sampled,
    "learn": _learn,
    "structures": _structures,
    "network": _network,
    "roots": _roots,
}


_DEFAULTS = {"weights": None, "count": "count", "bins": "refuse", "exclude": (), "allow": (), "missing": None}
_FRAME_OPTIONS = {**_DEFAULTS, "missing_values": ("",)}


def words_of(options: Mapping[str, Any], data: object = None) -> dict[str, str]:
    """What stands in the calls of routes for the table and for what was said of its columns.

    Args:
        options: of a data frame, as of :func:`plan`; those that are not given have their defaults.
        data: the table; a data frame of pandas when None.

    Example:
        >>> words_of({"bins": "auto", "weights": "w", "missing": None})["options"]
        ", weights='w', bins='auto'"
    """
    given = {
        name: options[name] for name in _FRAME_OPTIONS if options.get(name, ...) not in (..., _FRAME_OPTIONS[name])
    }
    given |= {name: [str(v) for v in given[name]] for name in ("exclude", "allow", "missing_values") if name in given}
    given = {name: value for name, value in given.items() if value != [] or name == "missing_values"}
    # Rows that are read already keep what was said of them, but for missing cells.
    if data is not None and not is_frame(data) and not isinstance(data, pd.Series):
        summed = ", missing='marginalise'" if given.get("missing") == "marginalise" else ""
        summed += _zeros_argument(options)
        rows = "data.drop_missing()" if given.get("missing") == "drop" else "data"
        return {"data": rows, "rows": rows, "numbers": rows, "options": "", "fit_options": summed}
    text = _arguments(given)
    read = {name: value for name, value in given.items() if name != "missing"}
    complete = ".drop_missing()" if given.get("missing") == "drop" else ""
    rows = f"hoim.Observations.from_pandas(data{_arguments(read)}){complete}"
    # Numbers are neither cut nor taken as labels.
    columns = "columns=" if data is None or isinstance(data, pd.DataFrame) else ""
    numbers = f"data.drop({columns}{given['exclude']!r})" if "exclude" in given else "data"
    if "count" in given:
        numbers = f"hoim.data.CountTable.from_pandas({numbers}, count={given['count']!r})"
    fit_options = text + _zeros_argument(options)
    return {"data": "data", "rows": rows, "numbers": numbers, "options": text, "fit_options": fit_options}


def _zeros_argument(options: Mapping[str, Any]) -> str:
    """Structural zeros as an argument; what is no list of levels is called by a name."""
    zeros = options.get("structural_zeros")
    if zeros is None:
        return ""
    is_written = isinstance(zeros, Mapping) or (isinstance(zeros, list) and all(isinstance(z, Mapping) for z in zeros))
    return f", structural_zeros={zeros!r}" if is_written else ", structural_zeros=structural_zeros"


def _arguments(options: Mapping[str, Any]) -> str:
    """Options as the last arguments of a call."""
    return "".join(f", {name}={value!r}" for name, value in options.items())


def _graph(size: TableSize, order: int) -> InteractionHypergraph:
    domain = Domain.from_cardinalities(size.levels) if size.zeros is None else size.zeros.structure.domain
    return InteractionHypergraph.from_order(domain, min(order, len(size.levels)))


def routes_of(size: TableSize, words: Mapping[str, str] | None = None) -> tuple[Route, ...]:
    """All routes of a table, open or closed, with what each takes; ``words`` are those of :func:`words_of`.

    Example:
        >>> wide = routes_of(TableSize({f"v{i}": 2 for i in range(300)}, 2000))
        >>> [route.name for route in wide if route.is_open]
        ['pseudo-likelihood', 'learn', 'network']
        >>> wide[0].reason
        'exact sums over the 2.0e90 possible rows are out of reach'
    """
    routes: list[Route] = []
    words = words_of({}) if words is None else words
    for name, cost_of in _COSTS.items():
        if not size.num_rows:
            cost = _closed("there are no rows")
        elif not size.num_varying:
            cost = _closed("no column has two levels")
        elif size.num_varying == 1 and name not in ("pairs", "network"):
            cost = _closed("one column varies, so that there are no pairs")
        elif size.zeros is not None and name not in ("pairs", "pseudo-likelihood"):
            cost = _closed("takes no structural zeros")
        else:
            cost = cost_of(size)
        title, call, verb, options = _ROUTES[name]
        routes.append(Route(name, title, call.format_map(words), verb, options, *cost))
    return tuple(routes)


def advise(routes: Sequence[Route]) -> tuple[Route | None, str]:
    """The route that is advised, None where all are closed, and why, in one sentence.

    Counts go to root models, tables that exact sums reach to all pairs, wider ones to learning where that takes a
    minute at most, and the rest to a dependency network.

    Example:
        >>> advise(routes_of(TableSize({f"v{i}": 2 for i in range(300)}, 2000)))[0].name
        'network'
    """
    by_name = {route.name: route for route in routes}
    exact, learn, network, roots = (by_name[name] for name in ("pairs", "learn", "network", "roots"))
    far = exact.reason if "out of reach" in exact.reason else f"all pairs cannot be fitted exactly ({exact.reason})"
    if exact.seconds is not None and exact.seconds > PATIENCE:
        far = f"an exact fit of all pairs takes {exact.words}"
    # The first that applies.
    if roots.is_open:
        return roots, "the columns hold counts, whose sizes a model of unordered levels would lose"
    if exact.is_open and exact.seconds is not None and exact.seconds <= PATIENCE:
        return exact, "all pairs can be fitted exactly, with tests and odds ratios"
    if learn.seconds is not None and learn.seconds <= PATIENCE:
        return learn, f"{far}, and learning finds in {learn.words} which interactions there are"
    if network.is_open:
        slow = f", learning takes {learn.words}," if learn.is_open else ""
        return network, f"{far}{slow} and a dependency network is learned in {network.words}"
    rest = sorted((route for route in routes if route.seconds is not None), key=lambda route: route.seconds or 0.0)
    if rest:
        return rest[0], f"{far}, and this is the fastest route that is open"
    reasons = dict.fromkeys(route.reason for route in routes)
    return None, f"every route is closed: {'; '.join(reasons)}"


# From a table to its size.

_LEAST_COUNTS = 3  # columns of a table of counts
_LARGEST = 5  # a count that such a table has somewhere; levels coded by numbers seldom go so far from zero on
_MOSTLY = 0.9  # of the columns


def gaps_of(rows: Observations | RowSource) -> dict[str, int]:
    """Missing cells by column; of rows that need not be in memory it costs a pass.

    Example:
        >>> from pyro_hoim import load_table
        >>> gaps_of(load_table("ucb_admissions"))
        {'Admit': 0, 'Gender': 0, 'Dept': 0}
    """
    gaps = np.array(rows.missing_by_column) if isinstance(rows, Observations) else rows.fold(_gaps_in)
    return dict(zip(rows.domain.names, gaps.tolist(), strict=True))


def _gaps_in(batch: RowBatch) -> np.ndarray:
    """Missing cells of every column of a batch."""
    return (batch.codes < 0).sum(1)


def size_of(rows: Observations | RowSource) -> TableSize:
    """The size of rows of labels.

    Example:
        >>> from pyro_hoim import load_table
        >>> size_of(load_table("ucb_admissions")).levels
        {'Admit': 2, 'Gender': 2, 'Dept': 6}
    """
    levels = {variable.name: variable.cardinality for variable in rows.domain}
    has_missing = any(gaps_of(rows).values())
    is_weighted = isinstance(rows, Observations) and not rows.has_whole_counts
    return TableSize(levels, rows.num_rows, None if is_weighted else rows.total_count, has_missing, is_weighted)


def counts_in_frame(
    frame: pd.DataFrame, weights: str | None, count: str | None, rules: ColumnRules
) -> tuple[pd.DataFrame, TableSize] | None:
    """A table of counts without the columns to exclude, and its size; None for another, and where labels are meant."""
    if any(value for name, value in rules.items() if name != "exclude"):
        return None
    exclude = rules.get("exclude", ())
    rest = frame.loc[:, [str(name) not in exclude for name in frame.columns]]
    size = size_of_counts(rest, weights, count)
    return None if size is None else (rest, size)


def size_of_counts(frame: pd.DataFrame, weights: str | None = None, count: str | None = "count") -> TableSize | None:
    """The size of a table of counts; None for another table.

    A table is one of counts where it has three columns or more, all of whole numbers from 0 and nearly all with a zero,
    with means below half of the largest count, which differs between columns and is five or more somewhere. So 0 and 1,
    genotypes and answers from 1 to 5 are levels. A column of weights, or of how often rows were seen, is none of them,
    and neither are those that every reading leaves out, such as names of rows and free text.

    Example:
        >>> words = pd.DataFrame({"sea": [0, 1, 7, 0], "sun": [3, 0, 0, 1], "sand": [0, 0, 2, 0]})
        >>> size_of_counts(words).counts, size_of_counts(words.clip(upper=1))
        (7.0, None)
    """
    columns = {str(name): frame.iloc[:, i] for i, name in enumerate(frame.columns) if str(name) not in (weights, count)}
    if len(columns) < _LEAST_COUNTS or not len(frame):
        return None
    numbers: dict[str, np.ndarray] = {}
    left_out: dict[str, ColumnReading] = {}
    for name, cells in columns.items():
        values = whole_numbers(cells)
        if values is None:
            reading = left_out_of_numbers(Source.of_frame(cells.to_frame(name)), [name])
            # Most tables are told from counts by their first column that is a variable.
            if not reading:
                return None
            left_out |= reading
        else:
            numbers[name] = values
    # Whole numbers may name rows, too.
    left_out |= left_out_of_numbers(Source.of_frame(pd.DataFrame(numbers)), numbers)
    numbers = {name: values for name, values in numbers.items() if name not in left_out}
    if len(numbers) < _LEAST_COUNTS:
        return None
    matrix = np.stack(list(numbers.values()), axis=1)
    largest = matrix.max(0)
    is_sparse = (matrix.min(0) == 0) & (2 * matrix.mean(0) < np.maximum(largest, 1))
    if is_sparse.mean() < _MOSTLY or largest.max() < _LARGEST or len(np.unique(largest)) < 2:
        return None
    work = float(((matrix > 0).sum(1).astype(float) ** 2).sum())
    levels = {name: len(np.unique(values)) for name, values in numbers.items()}
    return TableSize(levels, len(frame), is_weighted=weights is not None, counts=work, left_out=left_out)


# The plan of a table, for a person and for a program.

_SHOWN, _LEVELS_SHOWN = 40, 6  # lines on columns, and levels of a column, that are printed


@dataclass(frozen=True)
class PlannedColumn:
    """How one column is read.

    Attributes:
        name: of the column.
        kind: as of :class:`~pyro_hoim.data.ColumnReading`; ``counts`` in a table of counts.
        levels: of labels, in their order.
        is_ordered: whether the levels are ordered, by a type that says so or by cut points.
        num_missing: cells that hold nothing.
        reason: why the column is no variable of a model; empty for one that is.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    is_ordered: bool = False
    num_missing: int = 0
    reason: str = ""

    @property
    def words(self) -> str:
        """The levels in their order, or why the column is left out."""
        if self.reason or self.kind == "counts":
            return self.reason or "whole numbers from 0"
        shown = (" < " if self.is_ordered else ", ").join(self.levels[:_LEVELS_SHOWN])
        return shown + (f" and {len(self.levels) - _LEVELS_SHOWN} more" if len(self.levels) > _LEVELS_SHOWN else "")


@dataclass(frozen=True)
class TablePlan:
    """How a table is read, the routes to a model of it, and which one is advised.

    Printed it is a text, and in a notebook two tables.

    Attributes:
        num_rows: rows, not counts.
        num_seen: rows with those that are counted together.
        columns: how each is read.
        routes: all of them, open or closed.
        advised: the route that ``fit`` takes without a structure; None where all are closed.
        why: in one sentence, without a full stop.
        notes: what has to be said before a fit, in sentences.
        assumed: options on the reading of the table that nothing was said of and at which a fit would stop, as the plan
            takes them; the calls of its routes say them.

    Example:
        >>> from pyro_hoim import load_table
        >>> table = plan(load_table("ucb_admissions"))
        >>> table.advised.name, table["network"].is_open, table["roots"].reason
        ('pairs', True, 'the columns hold labels, and not counts')
    """

    num_rows: int
    num_seen: float
    columns: tuple[PlannedColumn, ...]
    routes: tuple[Route, ...]
    advised: Route | None
    why: str
    notes: tuple[str, ...] = ()
    assumed: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __getitem__(self, name: str) -> Route:
        """The route of a name; UnknownNameError for another."""
        check_names([name], [route.name for route in self.routes], "name", noun="route")
        return next(route for route in self.routes if route.name == name)

    def text(self, call_of: Callable[[Route], str]) -> str:
        """The plan for a reader, with what ``call_of`` says of a route as what to call."""
        advised = "No route is advised" if self.advised is None else f"Advised: {call_of(self.advised)}"
        columns = self._column_table()
        lines = [
            f"{self._rows}, {plural(len(self.columns), 'column')}",
            "",
            *_aligned(columns.head(_SHOWN)),
            *([f"... {len(columns) - _SHOWN} more"] if len(columns) > _SHOWN else []),
            "",
            *_aligned(self._route_table()),
            "",
            f"{advised}, because {self.why}.",
            *self.notes,
        ]
        return "\n".join(map(visible, lines))

    @property
    def _rows(self) -> str:
        rows = plural(self.num_rows, "row")
        return rows if self.num_seen == self.num_rows else f"{rows} that count {self.num_seen:,g}"

    def _column_table(self) -> pd.DataFrame:
        """Columns that are read alike in one line."""
        alike: dict[tuple[Any, ...], list[str]] = {}
        for c in self.columns:
            alike.setdefault((c.kind, len(c.levels) or "", c.words, c.num_missing or ""), []).append(c.name)
        lines = [(listed(names, 3), *words) for words, names in alike.items()]
        return pd.DataFrame(lines, columns=["column", "read as", "levels", "which", "missing"])

    def _route_table(self) -> pd.DataFrame:
        rows = [
            (r.title, r.words, "" if r.memory_mb is None else f"{math.ceil(r.memory_mb):,} MB", r.reason)
            for r in self.routes
        ]
        return pd.DataFrame(rows, columns=["route", "time", "memory", "what it does, or why it is closed"])

    def __str__(self) -> str:
        return self.text(lambda route: route.call)

    def _repr_html_(self) -> str:
        advised = "no route" if self.advised is None else self.advised.call
        heading = f"Advised: {advised}, because {self.why}."
        return html_of(self._route_table(), heading) + html_of(self._column_table())

    def to_json(self) -> dict[str, Any]:
        """Numbers and words that JSON can hold."""
        routes = [{**vars(route), "options": dict(route.options), "is_open": route.is_open} for route in self.routes]
        return {
            "rows": self.num_rows,
            "rows_seen": self.num_seen,
            "columns": [{**vars(column), "levels": list(column.levels)} for column in self.columns],
            "routes": routes,
            "advised": None if self.advised is None else self.advised.name,
            "why": self.why,
            "notes": list(self.notes),
            "assumed": dict(self.assumed),
        }


def _aligned(table: pd.DataFrame) -> list[str]:
    """Lines of a table of words, its columns side by side."""
    rows = [list(table.columns), *table.astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def plan(
    data: DataLike,
    *,
    weights: str | None = None,
    count: str | None = "count",
    missing: str | None = None,
    missing_values: Collection[str] = ("",),
    structural_zeros: StructuralZeros | None = None,
    **rules: Unpack[ColumnRules],
) -> TablePlan:
    """How a table will be read, which routes to a model are open at what cost, and which is advised; nothing is fitted.

    :func:`pyro_hoim.fit` takes the advised route where no structure is given. Costs are predictions from the size of
    the table (:mod:`pyro_hoim.planning` says how good they are).

    Args:
        data: a data frame of pandas or polars, one row per observation or per cell with its count;
            :class:`~pyro_hoim.Observations`; or rows that need not be in memory (:func:`~pyro_hoim.data.open_rows`),
            which are read twice.
        weights: column of weights of a data frame.
        count: column of whole counts of a data frame; the default may be absent.
        missing: ``"drop"`` plans without the rows that have missing cells, ``"marginalise"`` with them.
        missing_values: labels of a data frame that mean "missing", besides None and NaN.
        structural_zeros: what is impossible, such as ``[{"sex": "male", "pregnant": "yes"}]``. Parameters and cells are
            counted without it, and routes that take no structural zeros are closed. Rows are not looked at.
        rules: ``bins``, ``exclude`` and ``allow`` of a data frame, as of :func:`~pyro_hoim.data.read_columns`.

    Raises:
        InputTypeError: neither observations nor a data frame.
        UnknownNameError: a column that does not exist, or an option such as those of a fit, which no plan depends on.
        InputError: no rows, or bad counts.

    Example:
        >>> frame = pd.DataFrame({"wet": list("ynyn") * 25, "sky": ["blue", "grey"] * 50, "month": [1, 2, 3, 4] * 25})
        >>> print(plan(frame))  # doctest: +ELLIPSIS
        100 rows, 3 columns
        <BLANKLINE>
        column  read as  levels  which          missing
        wet     labels   2       n, y
        sky     labels   2       blue, grey
        month   labels   4       1, 2, 3, 4
        <BLANKLINE>
        route                         time            memory  what it does, or why it is closed
        all pairs, exact              under a second  1 MB    12 parameters, with tests and odds ratios
        ...
        Advised: hoim.fit(data, order=2), because all pairs can be fitted exactly, with tests and odds ratios.
    """
    known = [*ColumnRules.__annotations__, "weights", "count", "missing", "structural_zeros"]
    check_names(rules, known, "plan", noun="option")
    if missing is not None:
        check_choice(missing, ("drop", "marginalise"), "missing")
    data = long_table(data) if isinstance(data, pd.Series) else data
    if isinstance(data, Observations | RowSource):
        if rules or (weights, count, missing_values) != (None, "count", ("",)):
            problem = "weights, count, missing_values and rules describe a data frame"
            raise conflict("plan", problem, "observations hold their own counts and missing cells")
        return plan_of(data, missing, zeros=structural_zeros)
    if not is_frame(data):
        raise wrong_type("data", "a data frame, Observations or rows of open_rows", data)
    options = {"weights": weights, "count": count, "missing": missing, "missing_values": missing_values, **rules}
    frame = as_frame(data)
    how: dict[str, Any] = {"weights": weights, "count": count, "missing_values": missing_values, **rules}
    # Counts are told from labels before they are read as such; what is said of labels says that there are some.
    numbers = counts_in_frame(frame, weights, count, rules) if structural_zeros is None else None
    no_counts = TableSize.no_counts
    if numbers is not None:
        table = plan_of_counts(numbers[1], words_of(with_assumed(options, {"exclude": numbers[1].left_out}), data))
        if table["roots"].is_open:
            return table
        no_counts = table["roots"].reason
    if (weights, count) == (None, "count"):
        frame = long_table(frame)
    readings = read_columns(frame, **how)
    total = counted(readings, lambda name: frame.loc[:, [str(column) == name for column in frame.columns]].iloc[:, 0])
    size = TableSize({}, len(frame), total, is_weighted=weights is not None, no_counts=no_counts)
    options["structural_zeros"] = structural_zeros
    words = partial(_words, options, data)
    table = plan_of_readings(readings, size, missing, words, structural_zeros)
    if weights is None and total is None and any(reading.kind == "numbers" for reading in readings):
        note = "Numbers need not be cut: hoim.learn(data, numbers='families') gives every column a family of its own."
        return replace(table, notes=(*table.notes, note))
    return table


def _words(said: Mapping[str, Any], data: object, assumed: Mapping[str, Any]) -> dict[str, str]:
    return words_of(with_assumed(said, assumed), data)


def counted(readings: Sequence[ColumnReading], column: Callable[[str], Sequence[Any]]) -> float | None:
    """What the column of counts adds up to; None without one, also one that nothing was said of."""
    name = next((reading.name for reading in readings if reading.kind == "count" and not reading.is_refused), None)
    return None if name is None else float(to_numbers(pd.Series(column(name))).sum())


def with_assumed(said: Mapping[str, Any], assumed: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a data frame with those that a plan takes where nothing was said."""
    options = {**said, **assumed}
    if "bins" in assumed and isinstance(said.get("bins"), Mapping):
        options["bins"] = {**said["bins"], "*": assumed["bins"]}
    if "exclude" in assumed:
        options["exclude"] = [*said.get("exclude", ()), *assumed["exclude"]]
    return options


def plan_of_readings(
    readings: Sequence[ColumnReading],
    size: TableSize,
    missing: str | None = None,
    words: Callable[[Mapping[str, Any]], Mapping[str, str]] = words_of,
    zeros: StructuralZeros | Callable[[Domain], StructuralZeros] | None = None,
) -> TablePlan:
    """The plan of columns that are read so; numbers at which a fit stops count as they would be cut.

    Args:
        readings: how each column is read.
        size: rows, counts and weights of the table; its levels and missing cells are those of ``readings``.
        missing: as of :func:`plan`.
        words: what :func:`words_of` gives for the options that the plan takes where nothing was said.
        zeros: what is impossible, as of :func:`plan`, or what says it of the columns as they are read.
    """
    columns: list[PlannedColumn] = []
    levels, gaps = dict[str, int](), 0
    for reading in readings:
        labels = reading.levels
        if reading.is_refused and reading.cuts is not None:
            labels = reading.cuts.labels
        if reading.is_used or labels:
            levels[reading.name] = max(1, len(labels))
            gaps += reading.num_missing
        how = (reading.name, str(reading.kind), labels, reading.is_ordered, reading.num_missing, reading.reason)
        columns.append(PlannedColumn(*how))
    # What stops a fit, and what becomes of missing cells.
    notes = [f"A fit stops at {r.name!r}, which {r.reason}{_remedy(r)}." for r in readings if r.is_refused]
    if gaps and missing is None:
        ways = f"{option('missing', 'drop')} leaves their rows out, {option('missing', 'marginalise')} sums over them"
        notes.append(f"A fit asks what to do with {plural(gaps, 'missing cell')}: {ways}.")
    elif gaps and missing == "drop":
        notes.append(f"Rows with one of the {plural(gaps, 'missing cell')} are left out.")
    # The calls say what the plan takes for granted, so that they run as they stand.
    # Options without which a fit stops, as a plan takes them where nothing was said of them.
    assumed: dict[str, Any] = {}
    left_out: list[str] = []
    for reading in readings:
        if not reading.is_refused:
            continue
        if reading.cuts is not None:
            assumed["bins"] = "auto"
        elif reading.kind in ("count", "weights") and not assumed.keys() & {"count", "weights"}:
            assumed[reading.kind] = reading.name
        else:
            left_out.append(reading.name)
    assumed |= {"exclude": left_out} if left_out else {}
    assumed |= {"missing": "marginalise"} if gaps and missing is None else {}
    if assumed:
        taken = " and ".join(option(name, value) for name, value in assumed.items())
        notes.append(f"Nothing was said of this yet, and the plan takes {taken}.")
    impossible = None
    if zeros is not None:
        labels_of = {column.name: column.levels for column in columns if column.name in levels}
        domain = Domain([Variable(name, labels or ("",)) for name, labels in labels_of.items()])
        impossible = structural_states(domain, zeros(domain) if callable(zeros) else zeros, option("structural_zeros"))
    size = replace(size, levels=levels, has_missing=bool(gaps) and missing != "drop", zeros=impossible)
    routes = routes_of(size, words(assumed))
    return TablePlan(size.num_rows, size.num_seen, tuple(columns), routes, *advise(routes), tuple(notes), assumed)


def _remedy(reading: ColumnReading) -> str:
    """What to say of a column at which a fit stops."""
    if reading.kind in ("count", "weights"):
        return ""
    cut = "" if reading.cuts is None else f"; {option('bins', 'auto')} cuts it at {reading.cut_text}"
    return f"{cut}; {option('exclude', [reading.name])} leaves it out"


def plan_of_counts(size: TableSize, words: Mapping[str, str] | None = None) -> TablePlan:
    """The plan of a table of counts."""
    routes = routes_of(size, words)
    columns = [PlannedColumn(name, "counts" if levels > 1 else "constant") for name, levels in size.levels.items()]
    columns += [
        PlannedColumn(c.name, c.kind, num_missing=c.num_missing, reason=c.reason) for c in size.left_out.values()
    ]
    return TablePlan(size.num_rows, size.num_seen, tuple(columns), routes, *advise(routes))


def plan_of(
    rows: Observations | RowSource,
    missing: str | None = None,
    *,
    is_weighted: bool = False,
    zeros: StructuralZeros | None = None,
) -> TablePlan:
    """The plan of rows of labels."""
    gaps = gaps_of(rows)
    readings = [
        ColumnReading(
            variable.name,
            "labels" if variable.cardinality > 1 else "constant",
            variable.cardinality,
            gaps[variable.name],
            levels=variable.labels,
            order="declared" if variable.kind == "ordinal" else "none",
        )
        for variable in rows.domain
    ]
    size = TableSize({}, rows.num_rows, None if is_weighted else rows.total_count, is_weighted=is_weighted)
    words = partial(_words, {"missing": missing, "structural_zeros": zeros}, rows)
    return plan_of_readings(readings, size, missing, words, zeros)
