"""Columns that say one thing together: groups that are one variable each, and how they are found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
import torch
from scipy.special import gammaln

from ..errors import (
    InputError,
    check_choice,
    check_fraction,
    check_names,
    check_type,
    check_unique,
    conflict,
    other_domain,
    refused,
    unexpected,
)
from ..schema import Domain, Kind, Variable
from .observations import Observations
from .order import known_order

__all__ = [
    "ColumnGroup",
    "JoinedColumns",
    "JoinedRows",
    "find_determined_groups",
    "find_exclusive_groups",
    "join_columns",
]


# Groups of columns as one variable each: joins rows, splits them again, and goes into a file.

_SHOWN = 3
_PORTION = 2**22  # comparisons of patterns with levels at once
_SEPARATORS = "=_.:- /|["


@dataclass(frozen=True)
class ColumnGroup:
    """Some columns of a domain as one variable, whose levels are combinations of codes of the columns.

    Args:
        columns: names, two at least.
        levels: for every level the code of each column, all different; combinations that are not listed cannot occur.
        name: of the joined variable; by default what the names of the columns begin with, or these joined by bars.
        labels: of its levels; by default the one column whose code is not 0, ``none`` of them, or ``a=1, b=0``.
        kind: of the joined variable, ``nominal`` or ``ordinal``.

    Raises:
        InputError: fewer than two columns or levels, repeated ones, or a level of another length.

    Example:
        >>> group = ColumnGroup(("odor=a", "odor=n"), ((1, 0), (0, 1)))
        >>> group.name, group.labels, group.kind
        ('odor', ('odor=a', 'odor=n'), 'nominal')
    """

    columns: tuple[str, ...]
    levels: tuple[tuple[int, ...], ...]
    name: str = ""
    labels: tuple[str, ...] = ()
    kind: Kind = "nominal"

    def __post_init__(self) -> None:
        columns, levels = tuple(self.columns), tuple(tuple(int(code) for code in level) for level in self.levels)
        check_unique(columns, "ColumnGroup columns")
        for what, entries in (("columns", columns), ("levels", levels)):
            if len(entries) < 2:
                raise unexpected(f"ColumnGroup {what}", "two at least", received=len(entries), code="out-of-range")
        if len(set(levels)) < len(levels):
            raise refused("ColumnGroup levels", "two levels are the same combination", code="repeated-name")
        if any(len(level) != len(columns) or min(level) < 0 for level in levels):
            raise unexpected("ColumnGroup levels", f"{len(columns)} codes from 0 each", code="wrong-shape")
        # Labels that are not given say which columns are set.
        labels = tuple(self.labels) or tuple(_label(columns, level) for level in levels)
        if len(labels) != len(levels):
            raise unexpected("ColumnGroup labels", f"{len(levels)} labels", received=len(labels), code="wrong-shape")
        for field, value in (("columns", columns), ("levels", levels), ("labels", labels)):
            object.__setattr__(self, field, value)
        object.__setattr__(self, "name", self.name or _common_name(columns))

    @classmethod
    def exclusive(cls, columns: Sequence[str], *, may_be_none: bool = False) -> ColumnGroup:
        """Binary columns of which exactly one is set, or none, too; a column is set at its second level.

        Example:
            >>> ColumnGroup.exclusive(["a", "b"], may_be_none=True).labels
            ('a', 'b', 'none')
        """
        size = len(columns)
        levels = [tuple(int(i == j) for i in range(size)) for j in range(size)]
        return cls(tuple(columns), (*levels, *([(0,) * size] if may_be_none else [])))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description."""
        levels = [list(level) for level in self.levels]
        entries = {"name": self.name, "columns": list(self.columns), "levels": levels, "labels": list(self.labels)}
        return entries | {"kind": self.kind}


def _label(columns: tuple[str, ...], level: tuple[int, ...]) -> str:
    set_columns = [name for name, code in zip(columns, level, strict=True) if code]
    if not set_columns:
        return "none"
    if len(set_columns) == 1 and max(level) == 1:
        return set_columns[0]
    return ", ".join(f"{name}={code}" for name, code in zip(columns, level, strict=True))


def common_start(names: Sequence[str]) -> str:
    """What all names begin with."""
    first, last = min(names), max(names)
    size = next((i for i in range(min(len(first), len(last))) if first[i] != last[i]), min(len(first), len(last)))
    return first[:size]


def prefix_of(columns: Sequence[str]) -> str:
    """What the names begin with, up to and with a separator; empty where there is none."""
    prefix = common_start(columns)
    return prefix[: max(prefix.rfind(sign) for sign in _SEPARATORS) + 1]


def _common_name(columns: tuple[str, ...]) -> str:
    """What the names begin with, without the separator; else the names, of which long lists are cut."""
    name = prefix_of(columns).rstrip(_SEPARATORS)
    if name:
        return name
    return "|".join(columns[:_SHOWN]) + ("|..." if len(columns) > _SHOWN else "")


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """Rows over joined columns, and where their cells did not say a level.

    Attributes:
        rows: over the joined domain; a group whose cells say no single level is missing.
        is_broken: rows and groups (N, G) whose known cells are no level of the group.
        is_open: rows and groups (N, G) of which some cells are known and leave several levels.
        allowed: for every group (N, levels), the levels that the known cells leave.
    """

    rows: Observations
    is_broken: torch.Tensor
    is_open: torch.Tensor
    allowed: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class JoinedColumns:
    r"""Some columns of a domain joined to one variable a group; the others stay as they are.

    A group stands where its first column stood. Rows are joined and split without loss: ``split(join(rows))`` are the
    same rows. Rows that no level of a group describes *break* it: they have probability zero under a model of the
    joined variables.

    Args:
        domain: the columns.
        groups: disjoint groups of them.

    Raises:
        UnknownNameError: a column that is not in the domain.
        InputError: groups that overlap, codes beyond the levels of a column, or a name that another variable has.

    Example:
        >>> columns = Domain.from_cardinalities({"odor=a": 2, "odor=n": 2, "wet": 2})
        >>> joined = JoinedColumns(columns, (ColumnGroup.exclusive(["odor=a", "odor=n"]),))
        >>> [(v.name, v.labels) for v in joined.joined_domain]
        [('odor', ('odor=a', 'odor=n')), ('wet', ('0', '1'))]
        >>> rows = Observations.from_tensor(torch.tensor([[1, 0, 0], [0, 1, 1]]), columns)
        >>> joined.join(rows).codes.tolist(), joined.split(joined.join(rows)).codes.tolist()
        ([[0, 0], [1, 1]], [[1, 0, 0], [0, 1, 1]])
    """

    domain: Domain
    groups: tuple[ColumnGroup, ...]

    def __post_init__(self) -> None:
        check_type(self.domain, Domain, "JoinedColumns domain")
        object.__setattr__(self, "groups", tuple(self.groups))
        names = [name for group in self.groups for name in group.columns]
        check_names(names, self.domain.names, "JoinedColumns groups", noun="column")
        check_unique(names, "JoinedColumns groups")
        # Every level has to be possible, and every name to be free.
        for group in self.groups:
            sizes = [self.domain[name].cardinality for name in group.columns]
            for level in group.levels:
                if any(code >= size for code, size in zip(level, sizes, strict=True)):
                    problem = f"group {group.name!r} has a level {level}, and its columns have {sizes} levels"
                    raise refused("JoinedColumns groups", problem, code="out-of-range")
        taken = set(self.domain.names) - set(names)
        for group in self.groups:
            if group.name in taken:
                hint = "give the group another name"
                raise conflict("JoinedColumns groups", f"{group.name!r} is a column beside the groups", hint)
            taken.add(group.name)

    def __bool__(self) -> bool:
        return bool(self.groups)

    @cached_property
    def _group_of(self) -> dict[str, ColumnGroup]:
        return {name: group for group in self.groups for name in group.columns}

    def group_of(self, name: str) -> ColumnGroup | None:
        """The group that holds a column; None for a column that stays as it is."""
        self.domain.index(name)
        return self._group_of.get(name)

    def variable_of(self, name: str) -> str:
        """The name of the joined variable that says a column."""
        group = self.group_of(name)
        return name if group is None else group.name

    @cached_property
    def joined_domain(self) -> Domain:
        """The joined variables and the others, in the order of their first columns."""
        variables: list[Variable] = []
        for variable in self.domain:
            group = self._group_of.get(variable.name)
            if group is None:
                variables.append(variable)
            elif variable.name == group.columns[0]:
                variables.append(Variable(group.name, group.labels, group.kind))
        return Domain(variables)

    def read(self, rows: Observations) -> JoinedRows:
        """Rows over the joined domain, with what their cells leave open or break.

        Raises:
            InputError: rows of another domain.
        """
        if rows.domain != self.domain:
            raise other_domain("rows", "the columns that were joined", received="others")
        # Columns that stay are copied.
        codes = torch.full((len(rows.codes), len(self.joined_domain)), -1, dtype=torch.long)
        for name in self.domain.names:
            if name not in self._group_of:
                codes[:, self.joined_domain.index(name)] = rows.codes[:, self.domain.index(name)]
        # Of a group the cells that are known may leave one level, several or none.
        flags = torch.zeros((2, len(codes), len(self.groups)), dtype=torch.bool)
        every: list[torch.Tensor] = []
        for g, group in enumerate(self.groups):
            part = rows.codes[:, list(self.domain.indices(group.columns))]
            allowed = _allowed(part.numpy(), np.array(group.levels))
            number, is_known = allowed.sum(1), (part >= 0).any(1)
            codes[number == 1, self.joined_domain.index(group.name)] = allowed[number == 1].long().argmax(1)
            flags[0, :, g], flags[1, :, g] = number == 0, (number > 1) & is_known
            every.append(allowed)
        return JoinedRows(rows.replaced(domain=self.joined_domain, codes=codes), flags[0], flags[1], tuple(every))

    def join(self, rows: Observations) -> Observations:
        """Rows over the joined domain; a group all of whose cells are missing is missing.

        Raises:
            InputError: rows of another domain, that break a group, or some of whose cells in a group are missing so
                that several levels are left.
        """
        read = self.read(rows)
        for is_bad, what in ((read.is_broken, "break"), (read.is_open, "do not say the level of")):
            is_bad = is_bad & (rows.counts > 0)[:, None]
            if bool(is_bad.any()):
                group = self.groups[int(is_bad.any(0).nonzero()[0])]
                problem = f"{int(is_bad.any(1).sum())} rows {what} a group of joined columns, such as {group.name!r}"
                raise refused("rows", problem, "JoinedColumns.read tells which rows", code="impossible")
        return read.rows

    def split(self, rows: Observations) -> Observations:
        """Rows of the joined variables over the columns; the cells of a missing group are missing.

        Raises:
            InputError: rows of another domain.
        """
        if rows.domain != self.joined_domain:
            raise other_domain("rows", "the joined variables", received="others")
        codes = torch.empty((len(rows.codes), len(self.domain)), dtype=torch.long)
        for group in self.groups:
            table = torch.tensor([*group.levels, (-1,) * len(group.columns)])
            codes[:, list(self.domain.indices(group.columns))] = table[rows.codes[:, rows.domain.index(group.name)]]
        for name in self.domain.names:
            if name not in self._group_of:
                codes[:, self.domain.index(name)] = rows.codes[:, rows.domain.index(name)]
        return rows.replaced(domain=self.domain, codes=codes)

    def sets(self, edges: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
        """Sets of columns as sets of joined variables; those within one group are left out."""
        joined_sets = (tuple(sorted({self.variable_of(name) for name in edge})) for edge in edges)
        return [edge for edge in dict.fromkeys(joined_sets) if len(edge) > 1]

    def sentence(self) -> str:
        """What was joined, for a reader."""
        columns = sum(len(group.columns) for group in self.groups)
        sizes = [f"{group.name} ({len(group.columns)})" for group in self.groups[:_SHOWN]]
        more = f", ... ({len(self.groups)} groups)" if len(self.groups) > _SHOWN else ""
        noun = "one variable" if len(self.groups) == 1 else f"{len(self.groups)} variables"
        return f"{columns} columns that say one thing together were joined to {noun}: {', '.join(sizes)}{more}."

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description, inverse of :meth:`from_json`."""
        return {"domain": self.domain.to_json(), "groups": [group.to_json() for group in self.groups]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JoinedColumns:
        """Rebuild from :meth:`to_json`; InputError for anything else."""
        try:
            groups = [
                ColumnGroup(
                    tuple(g["columns"]), tuple(map(tuple, g["levels"])), g["name"], tuple(g["labels"]), g["kind"]
                )
                for g in value["groups"]
            ]
            return cls(Domain.from_json(value["domain"]), tuple(groups))
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise unexpected("joined columns", "an object with domain and groups", value) from error


def _allowed(codes: np.ndarray, levels: np.ndarray) -> torch.Tensor:
    """Levels (N, K) that agree with the known cells of rows (N, k), all where none is known."""
    patterns, pattern_of_row = np.unique(codes, axis=0, return_inverse=True)
    agrees = np.empty((len(patterns), len(levels)), dtype=bool)
    step = max(1, _PORTION // max(1, levels.size))
    for start in range(0, len(patterns), step):
        part = patterns[start : start + step, None, :]
        agrees[start : start + step] = ((part < 0) | (part == levels[None])).all(2)
    return torch.from_numpy(agrees[pattern_of_row.reshape(-1)])


# Which columns say one thing together: exactly one, or at most one, is set, or one says nearly all of another.

Join = Literal["exact", "exclusive", "determined", "none"]
"""Which columns are joined: those of which exactly one is set; of which at most one is; also those that say nearly
all of another; none."""

_ERROR = 1e-3
_MOST_STEPS = 2_000  # of one search for an exact cover
_FEW = 1.25  # combinations of a determined pair, times the levels of the larger column
_SCREENED = 512  # rows on which a pair must have few combinations before all are looked at


@dataclass(frozen=True, eq=False)
class _Marks:
    """Columns of two levels, both of which occur: where they are set, and how often."""

    names: tuple[str, ...]  # of the columns, in schema order
    never_set: Mapping[str, str]  # columns that are set in no row, each with its unset label
    single: frozenset[str]  # those of them that have that level alone
    is_set: np.ndarray  # distinct rows and columns (U, b)
    counts: np.ndarray  # of the rows (U,)
    totals: np.ndarray  # observations in which each column is set (b,)

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    def only(self, places: Sequence[int]) -> _Marks:
        """Some of the columns."""
        names = tuple(self.names[place] for place in places)
        return _Marks(names, self.never_set, self.single, self.is_set[:, places], self.counts, self.totals[places])

    def groups(self, blocks: Sequence[tuple[Sequence[int], bool]], unset: Mapping[str, str]) -> Iterator[ColumnGroup]:
        """Groups, each with the columns that are never set and whose names begin as those of the group do."""
        # A column that is never set joins the group with the longest start in common.
        members = [[self.names[position] for position in places] for places, _ in blocks]
        prefixes = [prefix_of(names) for names in members]
        joined: dict[str, list[str]] = {}
        for name, label in self.never_set.items():
            firsts = [(prefix, names[0]) for prefix, names in zip(prefixes, members, strict=True)]
            fits = [p for p, first in firsts if p and name.startswith(p) and unset[first] == label]
            if fits:
                joined.setdefault(max(fits, key=len), []).append(name)
        for names, prefix, (_, may_be_none) in zip(members, prefixes, blocks, strict=True):
            more = joined.pop(prefix, [])
            group = ColumnGroup.exclusive([*names, *(n for n in more if n not in self.single)], may_be_none=may_be_none)
            single = [name for name in more if name in self.single]
            levels = tuple((*level, *(0,) * len(single)) for level in group.levels)
            yield replace(group, columns=(*group.columns, *single), levels=levels)


def _rows(data: Observations) -> tuple[np.ndarray, np.ndarray]:
    """Distinct complete rows and their counts; rows with weights that are not whole count once."""
    check_type(data, Observations, "rows")
    rows = data.drop_missing()
    if not rows.has_whole_counts:
        rows = Observations(rows.domain, rows.codes[rows.counts > 0])
    rows = rows.unique()
    return rows.codes.numpy(), rows.counts.numpy()


def _marks(data: Observations) -> _Marks:
    codes, counts = _rows(data)
    binary = [i for i, variable in enumerate(data.domain) if variable.cardinality == 2]
    is_set = np.asfortranarray(codes[:, binary] == 1)
    totals = counts @ is_set
    used = np.flatnonzero((totals > 0) & (totals < counts.sum()))
    names = [data.domain.names[i] for i in binary]
    single = [variable.name for variable in data.domain if variable.cardinality == 1]
    never = [*(name for name, total in zip(names, totals.tolist(), strict=True) if not total), *single]
    unset = {name: data.domain[name].labels[0] for name in never}
    return _Marks(tuple(names), unset, frozenset(single), is_set, counts, totals).only(used.tolist())


def _log_choose(n: np.ndarray | float, k: np.ndarray | float) -> np.ndarray:
    return gammaln(np.add(n, 1)) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n, k) + 1)


def find_exclusive_groups(
    rows: Observations, *, at_most_one: bool = False, error: float = _ERROR
) -> tuple[ColumnGroup, ...]:
    r"""Columns of two levels of which every row has exactly one set, as indicator (one-hot) columns of a category are.

    .. math:: -\log \Pr = \sum_{i} \log \binom{N}{n_i} - \log \frac{N!}{\prod_i n_i!} \ge k \log b - \log \alpha

    A column is set at its second level. A group must be more than chance: the left side is minus the log-probability
    that k independent columns, set in :math:`n_i` of N rows, make a partition of the rows, and b is the number of
    columns. Columns side by side are tried first, then all columns that never meet, by an exact search of bounded
    length, in which columns whose names begin alike go first. Where categories depend on each other strongly, other
    partitions than theirs may be found among columns in mixed order, or some be missed. Memory and time grow with
    distinct rows times columns, and with the square of columns where some are left over.

    Args:
        rows: complete rows; those with a missing cell are left out. Weights that are not whole play no role.
        at_most_one: then, among the columns that are left, also groups of which at most one is set: columns join the
            largest one after another, each where it never meets the group and, set at random in as many rows, would
            not have missed it but with probability :math:`\alpha / b^2`.
        error: :math:`\alpha`, the chance of a false group among independent columns.

    Returns:
        The groups in the order of their first columns; those of which none may be set have a last level ``none``.
        Columns that are set in no row belong to the group whose names begin as theirs, such as ``odor=``.

    Raises:
        InputError: an error that is not between 0 and 1.
    """
    check_fraction(error, "error")
    marks = _marks(rows)
    groups = [(group, False) for group in _exact_groups(marks, error)]
    if at_most_one:
        used = {position for group, _ in groups for position in group}
        left = [position for position in range(len(marks.names)) if position not in used]
        groups += [([left[i] for i in group], True) for group in _loose_groups(marks.only(left), error)]
    groups.sort(key=lambda entry: entry[0][0])
    return tuple(marks.groups(groups, {variable.name: variable.labels[0] for variable in rows.domain}))


def _exact_groups(marks: _Marks, error: float) -> list[list[int]]:
    """Places of columns that make exact covers of the rows, each sorted."""
    size, total = len(marks.names), marks.total
    groups: list[list[int]] = []

    def is_sure(group: list[int]) -> bool:
        sums = marks.totals[group]
        partitions = gammaln(total + 1) - gammaln(sums + 1).sum()
        surprise = float(_log_choose(total, sums).sum() - partitions)
        return surprise >= len(group) * math.log(size) - math.log(error)

    # Columns side by side first: one-hot columns mostly stand so.
    start = 0
    while start < size:
        group = _run(marks, start)
        if group and is_sure(group):
            groups.append(group)
            start = group[-1]
        start += 1
    # Then covers of columns that stand apart.
    used = {column for group in groups for column in group}
    left = [column for column in range(size) if column not in used]
    for cover in _covers(marks.only(left)):
        group = sorted(left[i] for i in cover)
        if is_sure(group):
            groups.append(group)
    return groups


def _run(marks: _Marks, start: int) -> list[int]:
    """Columns side by side from ``start`` that cover every row once; none where there are no such."""
    is_covered = marks.is_set[:, start].copy()
    for position in range(start + 1, len(marks.names)):
        column = marks.is_set[:, position]
        if bool((is_covered & column).any()):
            return []
        is_covered |= column
        if bool(is_covered.all()):
            return list(range(start, position + 1))
    return []


def _covers(marks: _Marks) -> Iterator[list[int]]:
    """Disjoint exact covers of the rows by columns, each found by a search of bounded length."""
    size = len(marks.names)
    if size < 2:
        return
    is_set = marks.is_set.astype(np.float32)
    # Columns that meet in a row are in no group together.
    is_free, never_meets = np.ones(size, dtype=bool), is_set.T @ is_set == 0
    for first in range(size):
        candidates = np.flatnonzero(never_meets[first] & is_free)
        reached = marks.is_set[:, candidates].any(1) | marks.is_set[:, first]
        if not is_free[first] or not reached.all():
            continue
        steps = iter(range(_MOST_STEPS))
        group = _cover(marks, [first], marks.is_set[:, first], candidates, never_meets, steps)
        if group:
            is_free[group] = False
            yield group


def _cover(
    marks: _Marks,
    group: list[int],
    is_covered: np.ndarray,
    candidates: np.ndarray,
    never_meets: np.ndarray,
    steps: Iterator[int],
) -> list[int]:
    """The group with columns that cover every other row once; none where there are no such, or after many steps."""
    open_rows = np.flatnonzero(~is_covered)
    if not len(open_rows):
        return group
    if next(steps, None) is None:
        return []
    # The row that fewest columns cover leaves the fewest ways to go on.
    choices = marks.is_set[np.ix_(open_rows, candidates)]
    scarcest = choices[int(choices.sum(1).argmin())]
    first = marks.names[group[0]]

    def rank(position: int) -> tuple[int, int]:
        return -len(common_start((first, marks.names[position]))), abs(position - group[-1])

    for column in sorted(candidates[scarcest].tolist(), key=rank):
        left = candidates[never_meets[column][candidates]]
        cover = _cover(marks, [*group, column], is_covered | marks.is_set[:, column], left, never_meets, steps)
        if cover:
            return cover
    return []


def _loose_groups(marks: _Marks, error: float) -> list[list[int]]:
    """Places of columns of which at most one is set, the largest columns first."""
    size, total = len(marks.names), marks.total
    groups: list[list[int]] = []
    # The largest column that is left begins a group, others join it one after another.
    order = np.argsort(-marks.totals, kind="stable").tolist()
    while order:
        first = order.pop(0)
        group, is_covered, covered = [first], marks.is_set[:, first].copy(), float(marks.totals[first])
        for column in list(order):
            number = float(marks.totals[column])
            if covered + number > total or bool((is_covered & marks.is_set[:, column]).any()):
                continue
            chance = float(_log_choose(total - covered, number) - _log_choose(total, number))
            if -chance >= 2 * math.log(size) - math.log(error):
                group.append(column)
                is_covered |= marks.is_set[:, column]
                covered += number
        if len(group) > 1:
            groups.append(sorted(group))
            order = [column for column in order if column not in group]
    return groups


def find_determined_groups(rows: Observations, *, error: float = _ERROR) -> tuple[ColumnGroup, ...]:
    r"""Columns of which one says nearly all of another: few of their combinations occur.

    .. math:: N \sum_{(x, y) \text{ unseen}} \hat p(x) \hat p(y) \ge m \log(K L) + 2 \log b - \log \alpha

    Two columns of K and L levels that occur belong together when m, the number of combinations that occur, is at most
    5/4 of the larger of K and L, and the unseen ones would hold rows if the columns were independent; a pair may then
    take in further columns in the same way. Levels of a group are the combinations that occur. Costs a pass over the
    rows for every pair of columns with few combinations among the first 512 rows.

    Args:
        rows: complete rows, as of :func:`find_exclusive_groups`.
        error: :math:`\alpha`, the chance of a false group among independent columns.

    Raises:
        InputError: an error that is not between 0 and 1.
    """
    check_fraction(error, "error")
    codes, counts = _rows(rows)
    # Pairs join, the surest first; what they become may join others.
    parts = [_Part((i,), _numbered(codes[:, i])) for i in range(codes.shape[1])]
    parts = [part for part in parts if len(part.codes) and part.num_levels > 1]
    slack = 2 * math.log(max(2, len(parts))) - math.log(error)
    is_free = [True] * len(parts)
    pairs = list(combinations(range(len(parts)), 2))
    while pairs:
        alike = [(share, pair) for pair in pairs if (share := _share(parts[pair[0]], parts[pair[1]], counts, slack))]
        first_new = len(parts)
        for _, (one, two) in sorted(alike):
            if is_free[one] and is_free[two]:
                is_free[one] = is_free[two] = False
                both = np.stack([parts[one].codes, parts[two].codes], 1)
                parts.append(_Part(parts[one].columns + parts[two].columns, _numbered(both)))
                is_free.append(True)
        pairs = [(i, j) for j in range(first_new, len(parts)) for i in range(j) if is_free[i]]
    joined = [part for part, free in zip(parts, is_free, strict=True) if free and len(part.columns) > 1]
    columns = sorted(sorted(part.columns) for part in joined)
    return tuple(_determined(rows, places, np.unique(codes[:, places], axis=0).tolist()) for places in columns)


@dataclass(frozen=True, eq=False)
class _Part:
    """Columns by their places, and the number of their combination in every distinct row."""

    columns: tuple[int, ...]
    codes: np.ndarray

    @property
    def num_levels(self) -> int:
        return int(self.codes.max()) + 1


def _numbered(codes: np.ndarray) -> np.ndarray:
    """Numbers from 0 of the distinct rows."""
    return np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)


def _share(one: _Part, two: _Part, counts: np.ndarray, slack: float) -> float:
    """Combinations that occur over levels of the larger one where they are few beyond chance, else 0."""
    levels = one.num_levels, two.num_levels
    most = _FEW * max(levels)
    combination = one.codes.astype(np.int64) * levels[1] + two.codes
    if len(np.unique(combination[:_SCREENED])) > most or len(seen := np.unique(combination)) > most:
        return 0.0
    total = float(counts.sum())
    first, second = (np.bincount(part.codes, weights=counts) / total for part in (one, two))
    expected = total * (1.0 - float((first[seen // levels[1]] * second[seen % levels[1]]).sum()))
    is_sure = expected >= len(seen) * math.log(levels[0] * levels[1]) + slack
    return len(seen) / max(levels) if is_sure else 0.0


def _determined(rows: Observations, columns: Sequence[int], levels: Sequence[Sequence[int]]) -> ColumnGroup:
    """A group with the labels of its columns."""
    variables = [rows.domain.variables[i] for i in columns]
    labels = [", ".join(f"{v.name}={v.labels[k]}" for v, k in zip(variables, level, strict=True)) for level in levels]
    return ColumnGroup(tuple(v.name for v in variables), tuple(map(tuple, levels)), labels=tuple(labels))


def join_columns(rows: Observations, how: Join = "exact", *, error: float = _ERROR) -> JoinedColumns:
    """The columns of some rows that say one thing together, joined.

    Where exactly one column is set, and their names end in labels whose order is known
    (:func:`~pyro_hoim.data.order.known_order`), such as ``age=20-29``, the joined variable is ordinal and has its
    levels in that order.

    Args:
        rows: from which the groups are found.
        how: ``exact``: columns of which every row has exactly one set; ``exclusive``: also those of which at most one
            is; ``determined``: also columns that say nearly all of another; ``none``.
        error: as of :func:`find_exclusive_groups`.

    Raises:
        InputError: another word, or an error that is not between 0 and 1.
    """
    check_choice(how, get_args(Join), "join")
    groups: list[ColumnGroup] = []
    if how != "none":
        groups += find_exclusive_groups(rows, at_most_one=how != "exact", error=error)
    # Columns that nothing says together yet may still determine each other.
    used = {name for group in groups for name in group.columns}
    left = [name for name in rows.domain.names if name not in used]
    if how == "determined" and left:
        groups += find_determined_groups(rows.project(left), error=error)
        used = {name for group in groups for name in group.columns}
    # Names of groups must not be those of columns that stay.
    taken = {name for name in rows.domain.names if name not in used}
    named: list[ColumnGroup] = []
    for group in sorted(groups, key=lambda group: rows.domain.index(group.columns[0])):
        name, number = group.name, 2
        while name in taken:
            name, number = f"{group.name} ({number})", number + 1
        taken.add(name)
        named.append(replace(_ordered(group), name=name))
    return JoinedColumns(rows.domain, tuple(named))


def _ordered(group: ColumnGroup) -> ColumnGroup:
    """The group with its levels in their order, where the names of its columns say one."""
    prefix = prefix_of(group.columns)
    names = [name.removeprefix(prefix) for name in group.columns]
    if prefix.endswith("["):  # age[5-9], or age_[5, 10)
        names = [name.removesuffix("]") if name.endswith("]") else f"[{name}" for name in names]
    known = known_order(Variable(group.name, tuple(names)))
    if len(group.levels) != len(names) or len(names) < 3 or known is None:
        return group
    order = [names.index(label) for label in known.labels]
    levels, labels = ([parts[i] for i in order] for parts in (group.levels, group.labels))
    return replace(group, levels=tuple(levels), labels=tuple(labels), kind="ordinal")
