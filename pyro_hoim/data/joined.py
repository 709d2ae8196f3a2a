"""Columns that say one thing together: groups that are one variable each, and how they are found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from .readers import narrowed

# Groups of columns as one variable each: joins rows, splits them again, and goes into a file.

_SHOWN = 3
_PORTION = 2**22  # comparisons of patterns with levels, or values of their completions, at once
_SUM = 1e-6  # what a sum of probabilities may be off by
_SEPARATORS = "=_.:- /|["


@dataclass(frozen=True)
class BrokenLaw:
    r"""How often a row breaks a group, and what its columns then hold: independent values that are together no level.

    .. math:: u(x) = \prod_c s_c(x_c) \Big/ \Bigl(1 - \sum_l \prod_c s_c(x_c(l))\Bigr)

    Args:
        probability: that a row breaks the group, between 0 and 1.
        rows: observations that this was estimated from.
        shares: s, for every column the probabilities of its levels, all positive.

    Raises:
        InputError: numbers that are no such probabilities.
    """

    probability: float
    rows: float
    shares: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        check_fraction(self.probability, "BrokenLaw probability")
        for shares in self.shares:
            if not (min(shares, default=0.0) > 0 and abs(sum(shares) - 1) < _SUM):
                raise unexpected("BrokenLaw shares", "positive numbers that sum to one", code="out-of-range")


class _Breaks:
    """Sums over combinations of codes that are no level: column by column, along the beginnings that levels have.

    All terms are positive, so that nothing cancels where nearly every combination is a level.
    """

    def __init__(self, levels: np.ndarray, shares: Sequence[Sequence[float]]) -> None:
        self.shares = [np.array(share) for share in shares]
        self.after: list[np.ndarray] = []
        """Where every code of a column leads from every beginning; the last one stands for all that no level has."""
        here = np.zeros(len(levels), dtype=np.int64)
        for column, share in enumerate(shares):
            there = np.unique(here * len(share) + levels[:, column], return_inverse=True)[1]
            steps = np.full((here.max() + 2, len(share)), there.max() + 1)
            steps[here, levels[:, column]] = there
            self.after.append(steps)
            here = there
        self.size = sum(steps.size for steps in self.after)

    def terms(self, cells: np.ndarray, reduce: Callable[..., np.ndarray]) -> list[np.ndarray]:
        """For every column values (N, beginnings, codes) of a choice of its code, reduced over later columns.

        Known cells count as certain.
        """
        values = np.zeros((len(cells), self.after[-1].max() + 1))
        values[:, -1] = 1.0
        terms: list[np.ndarray] = []
        for column in reversed(range(len(self.after))):
            code, steps = cells[:, column, None], self.after[column]
            of_code = np.where(code < 0, self.shares[column], code == np.arange(steps.shape[1]))
            terms.insert(0, of_code[:, None] * values[:, steps])
            values = reduce(terms[0], axis=2)
        return terms


@dataclass(frozen=True)
class ColumnGroup:
    """Some columns of a domain as one variable, whose levels are combinations of codes of the columns.

    Args:
        columns: names, two at least.
        levels: for every level the code of each column, all different.
        name: of the joined variable; by default what the names of the columns begin with, or these joined by bars.
        labels: of its levels; by default the one column whose code is not 0, ``none`` of them, or ``a=1, b=0``.
        kind: of the joined variable, ``nominal`` or ``ordinal``.
        broken: the law of rows that no level describes; None where they are impossible.

    Raises:
        InputError: fewer than two columns or levels, repeated ones, a level of another length, or a law of broken rows
            for other columns or where every combination is a level.

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
    broken: BrokenLaw | None = None

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
        # A row can break a group only if some combination is no level.
        sizes = None if self.broken is None else [len(shares) for shares in self.broken.shares]
        if sizes is not None and (len(sizes) != len(columns) or math.prod(sizes) <= len(levels)):
            expected = "shares of every column, and combinations that are no level"
            raise unexpected("ColumnGroup broken", expected, code="wrong-shape")

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
        return entries | {"kind": self.kind} | ({} if self.broken is None else {"broken": asdict(self.broken)})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ColumnGroup:
        """Rebuild from :meth:`to_json`; of earlier versions, without a law of broken rows, these are impossible."""
        levels, law = tuple(map(tuple, value["levels"])), value.get("broken")
        if law is not None:
            law = BrokenLaw(float(law["probability"]), float(law["rows"]), tuple(map(tuple, law["shares"])))
        return cls(tuple(value["columns"]), levels, value["name"], tuple(value["labels"]), value["kind"], law)

    # What the known cells of rows (N, k), codes or -1, say of the level, and what the missing ones may hold.

    def agrees(self, cells: np.ndarray) -> np.ndarray:
        """Levels (N, L) that agree with the known cells, all where none is known."""
        levels = np.array(self.levels)
        agrees = np.empty((len(cells), len(levels)), dtype=bool)
        for part in _portions(len(cells), levels.size):
            agrees[part] = ((cells[part, None] < 0) | (cells[part, None] == levels)).all(2)
        return agrees

    @property
    def log_whole(self) -> float:
        """Log-probability that a row does not break the group."""
        return 0.0 if self.broken is None else math.log1p(-self.broken.probability)

    @cached_property
    def _breaks(self) -> _Breaks:
        assert self.broken is not None
        return _Breaks(np.array(self.levels), self.broken.shares)

    @cached_property
    def _log_scale(self) -> float:
        """Log of the probability of a broken row, less that of independent values that are no level."""
        assert self.broken is not None
        root = self._breaks.terms(np.full((1, len(self.columns)), -1), np.sum)[0]
        return math.log(self.broken.probability) - math.log(root[0, 0].sum())

    def log_broken(self, cells: np.ndarray, by: int = 0, *, most_probable: bool = False) -> np.ndarray:
        """Log-probability of a broken row with the known cells, (N, K): by codes of the column at position ``by``.

        Summed over other missing cells, or ``most_probable``: the largest over these.
        """
        if self.broken is None:
            return np.full((len(cells), 1), -math.inf)
        order = [by, *(column for column in range(len(self.columns)) if column != by)]
        breaks = self._breaks
        if by:
            breaks = _Breaks(np.array(self.levels)[:, order], [self.broken.shares[column] for column in order])
        values = np.empty((len(cells), len(self.broken.shares[by])))
        for part in _portions(len(cells), breaks.size):
            values[part] = breaks.terms(cells[part][:, order], np.max if most_probable else np.sum)[0][:, 0]
        known = [np.append(np.log(share), 0.0)[code] for share, code in zip(self.broken.shares, cells.T, strict=True)]
        with np.errstate(divide="ignore"):
            return np.log(values) + sum(known, np.zeros(len(cells)))[:, None] + self._log_scale

    def log_weights(self, cells: np.ndarray, agrees: np.ndarray, *, most_probable: bool = False) -> np.ndarray:
        """Log-probability (N, L) of the known cells given each level, the row broken or not; as :meth:`log_broken`."""
        reduce, join = (np.max, np.maximum) if most_probable else (np.logaddexp.reduce, np.logaddexp)
        weights = np.where(agrees, self.log_whole, -math.inf)
        # Complete levels are not broken, and rows without a known cell say nothing.
        left = ((cells < 0).any(1) | ~agrees.any(1)) & (cells >= 0).any(1)
        broken = reduce(self.log_broken(cells[left], most_probable=most_probable), axis=1)
        weights[left] = join(weights[left], broken[:, None])
        weights[(cells < 0).all(1)] = 0.0
        return weights

    def completed(self, cells: np.ndarray, level: np.ndarray, random: np.random.Generator | None = None) -> np.ndarray:
        """Cells with the missing ones filled, given levels (N,): drawn, or the most probable without ``random``."""
        of_level = np.array(self.levels)[level]
        filled = np.where(cells >= 0, cells, of_level)
        if self.broken is None:
            return filled
        # Rows that are broken, among those that may be.
        patterns, number = np.unique(cells, axis=0, return_inverse=True)
        broken = self.log_broken(patterns, most_probable=random is None)
        broken = (broken.max(1) if random is None else np.logaddexp.reduce(broken, axis=1))[number.reshape(-1)]
        whole = np.where(((cells < 0) | (cells == of_level)).all(1), self.log_whole, -math.inf)
        is_broken = broken > whole
        if random is not None:
            is_broken = broken > np.logaddexp(whole, broken) - random.exponential(size=len(cells))
        # Their columns, one after another.
        for rows in np.array_split(np.flatnonzero(is_broken), 1 + int(is_broken.sum()) * self._breaks.size // _PORTION):
            terms, each = self._breaks.terms(cells[rows], np.max if random is None else np.sum), np.arange(len(rows))
            here = np.zeros(len(rows), dtype=np.int64)
            for column, (values, steps) in enumerate(zip(terms, self._breaks.after, strict=True)):
                times = 1.0 if random is None else random.exponential(size=(len(rows), steps.shape[1]))
                code = (values[each, here] / times).argmax(1)  # of clocks of these rates the first to ring
                filled[rows, column], here = code, steps[here, code]
        return filled


def _portions(number: int, size: int) -> Iterator[slice]:
    """Rows in portions that hold a bounded number of values, ``size`` each."""
    step = max(1, _PORTION // max(1, size))
    yield from (slice(start, start + step) for start in range(0, number, step))


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
    """Rows over joined columns: what their cells say of every level.

    Attributes:
        rows: over the joined domain; a group whose cells say no single level is missing.
        log_factors: what the known cells add to the log-probability of these rows, (N,); minus infinity where they
            break a group that is never broken.
        evidence: of groups whose cells speak for some levels more than for others, by name: log-probabilities of the
            cells given each level (S, levels), of which the first are zero, and which of them holds in every row (N,).
        is_broken: rows and groups (N, G) whose known cells are no level of the group.
        is_open: rows and groups (N, G) of which some cells are known and leave several levels.
    """

    rows: Observations
    log_factors: torch.Tensor
    evidence: Mapping[str, tuple[torch.Tensor, torch.Tensor]]
    is_broken: torch.Tensor
    is_open: torch.Tensor


@dataclass(frozen=True)
class JoinedColumns:
    r"""Some columns of a domain joined to one variable a group; the others stay as they are.

    A group stands where its first column stood. Rows are joined and split without loss: ``split(join(rows))`` are the
    same rows. Rows that no level of a group describes *break* it, each group by itself with a probability of its own,
    :class:`BrokenLaw`; without one they have probability zero under a model of the joined variables.

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
            if group.broken is not None and [len(shares) for shares in group.broken.shares] != sizes:
                problem = f"group {group.name!r} has not one share for every level of its columns"
                raise refused("JoinedColumns groups", problem, code="wrong-shape")
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

    @cached_property
    def _single(self) -> tuple[str, ...]:
        """The columns that stay."""
        return tuple(name for name in self.domain.names if name not in self._group_of)

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
        if not self.groups:
            return self.domain
        variables: list[Variable] = []
        for variable in self.domain:
            group = self._group_of.get(variable.name)
            if group is None:
                variables.append(variable)
            elif variable.name == group.columns[0]:
                variables.append(Variable(group.name, group.labels, group.kind))
        return Domain(variables)

    def with_breaks(self, rows: Observations) -> JoinedColumns:
        r"""The groups with the law of rows that break them, by Laplace's rule of succession from some rows.

        .. math:: \epsilon_g = \frac{b_g + 1}{N + 2}, \qquad s_c(x) = \frac{n_c(x) + 1}{N + K_c}

        where b of N rows broke the group, and n of them have a value of a column with K levels. A group of which every
        combination is a level cannot be broken.

        Args:
            rows: complete rows; those with a missing cell are left out, weights that are not whole count once.

        Raises:
            InputError: rows of another domain.
        """
        codes, counts = _rows(rows)
        if rows.domain != self.domain:
            raise other_domain("rows", "the columns that were joined", received="others")
        total, groups = float(counts.sum()), list[ColumnGroup]()
        for group in self.groups:
            cells = codes[:, list(self.domain.indices(group.columns))]
            sizes = [self.domain[name].cardinality for name in group.columns]
            number = float(counts[~group.agrees(cells).any(1)].sum())
            tallies = [np.bincount(c, counts, size) + 1.0 for c, size in zip(cells.T, sizes, strict=True)]
            shares = tuple(tuple((tally / tally.sum()).tolist()) for tally in tallies)
            law = BrokenLaw((number + 1) / (total + 2), total, shares)
            groups.append(replace(group, broken=law if math.prod(sizes) > len(group.levels) else None))
        return replace(self, groups=tuple(groups))

    def never_broken(self) -> JoinedColumns:
        """The groups as declared ones, whose broken rows have probability zero."""
        return replace(self, groups=tuple(replace(group, broken=None) for group in self.groups))

    def _cells(self, group: ColumnGroup, codes: torch.Tensor) -> np.ndarray:
        return codes[..., list(self.domain.indices(group.columns))].numpy()

    def read(self, rows: Observations, *, most_probable: bool = False) -> JoinedRows:
        """Rows over the joined domain, with what their cells say of levels that they leave open.

        Args:
            rows: over the columns.
            most_probable: missing cells of broken rows are not summed over but take the most probable values.

        Raises:
            InputError: rows of another domain.
        """
        if rows.domain != self.domain:
            raise other_domain("rows", "the columns that were joined", received="others")
        domain = self.joined_domain
        codes = narrowed(torch.tensor(-1), domain.cardinalities).repeat(rows.num_rows, len(domain))
        codes[:, list(domain.indices(self._single))] = rows.narrow[:, list(self.domain.indices(self._single))]
        log_factors = torch.zeros(len(codes), dtype=torch.float64)
        flags = torch.zeros((2, len(codes), len(self.groups)), dtype=torch.bool)
        evidence: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for g, group in enumerate(self.groups):
            patterns, of_row = np.unique(self._cells(group, rows.narrow), axis=0, return_inverse=True)
            of_row = torch.from_numpy(of_row.reshape(-1))
            agrees = group.agrees(patterns)
            number, is_known = torch.from_numpy(agrees.sum(1)), torch.from_numpy((patterns >= 0).any(1))
            flags[0, :, g], flags[1, :, g] = (number == 0)[of_row], ((number > 1) & is_known)[of_row]
            # Cells say one level, or nothing of the levels, or something of each.
            weights = torch.from_numpy(group.log_weights(patterns, agrees, most_probable=most_probable))
            is_one, is_none = weights.isfinite().sum(1) == 1, (weights == weights[:, :1]).all(1)
            is_soft = ~is_one & ~is_none
            level = torch.where(is_one, weights.argmax(1), -1)
            codes[:, domain.index(group.name)] = level[of_row]
            log_factors += torch.where(is_soft, 0.0, weights.amax(1))[of_row]
            if bool(is_soft.any()):
                table = torch.cat([torch.zeros_like(weights[:1]), weights[is_soft]])
                evidence[group.name] = table, (is_soft.cumsum(0) * is_soft)[of_row]
        return JoinedRows(rows.replaced(domain=domain, codes=codes), log_factors, evidence, *flags)

    def join(self, rows: Observations) -> Observations:
        """Rows over the joined domain; a group all of whose cells are missing is missing.

        Raises:
            InputError: rows of another domain, that break a group, or some of whose cells in a group are missing so
                that several levels are left.
        """
        read = self.never_broken().read(rows)
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
        cells = torch.full((len(rows.codes), len(self.domain)), -1, dtype=torch.long)
        return rows.replaced(domain=self.domain, codes=self.never_broken().completed(cells, rows.codes))

    def completed(self, codes: torch.Tensor, levels: torch.Tensor, seed: int | None = None) -> torch.Tensor:
        """Rows (N, d) with their missing cells filled, given codes of the joined variables (N, d'), -1 for none.

        Rows may break groups: that, and what the cells then are, is drawn, or the most probable without a seed. Numbers
        are of another stream than those that draw levels by the seed.
        """
        random = None if seed is None else np.random.default_rng([seed, 1])
        filled, columns = codes.clone(), list(self.domain.indices(self._single))
        single = levels[:, list(self.joined_domain.indices(self._single))]
        filled[:, columns] = torch.where(codes[:, columns] < 0, single, codes[:, columns])
        for group in self.groups:
            level = levels[:, self.joined_domain.index(group.name)]
            some, columns = (level >= 0).nonzero(), torch.tensor(self.domain.indices(group.columns))
            cells = self._cells(group, codes)[level.numpy() >= 0]
            drawn = group.completed(cells, level[level >= 0].numpy(), random)
            filled[some, columns] = torch.from_numpy(drawn)
        return filled

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
        joined = f"{columns} columns that say one thing together were joined to {noun}: {', '.join(sizes)}{more}."
        laws = [group.broken for group in self.groups if group.broken is not None]
        if not laws:
            return f"{joined} Rows that break a group are impossible."
        broken = -math.expm1(sum(group.log_whole for group in self.groups))
        rule = f"Laplace's rule, {max(law.rows for law in laws):,.0f} rows"
        return f"{joined} A new row breaks a group with probability {broken:.2g} ({rule})."

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description, inverse of :meth:`from_json`."""
        return {"domain": self.domain.to_json(), "groups": [group.to_json() for group in self.groups]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JoinedColumns:
        """Rebuild from :meth:`to_json`; InputError for anything else."""
        try:
            groups = [ColumnGroup.from_json(group) for group in value["groups"]]
            return cls(Domain.from_json(value["domain"]), tuple(groups))
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise unexpected("joined columns", "an object with domain and groups", value) from error


# Which columns say one thing together: exactly one, or at most one, is set, or one says nearly all of another.

Join = Literal["exact", "exclusive", "determined", "none", "hard"]
"""Which columns are joined: those of which exactly one is set; of which at most one is; also those that say nearly
all of another; none; as ``exact``, and no row may break a group."""

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
        """Some of the columns, in their order."""
        if len(places) == len(self.names):
            return self
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
        rows = Observations(rows.domain, rows.narrow[rows.counts > 0])
    rows = rows.unique()
    return rows.narrow.numpy(), rows.counts.numpy()


def _marks(data: Observations) -> _Marks:
    codes, counts = _rows(data)
    binary = [i for i, variable in enumerate(data.domain) if variable.cardinality == 2]
    is_set = np.empty((len(codes), len(binary)), dtype=bool, order="F")
    for out, i in zip(is_set.T, binary, strict=True):
        np.equal(codes[:, i], 1, out=out)
    totals = np.array([counts @ column for column in is_set.T])
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

    Example:
        >>> import pandas as pd
        >>> from pyro_hoim import Observations
        >>> rows = {"red": "1001" * 9, "green": "0100" * 9, "blue": "0010" * 9, "wide": "0011" * 9}
        >>> table = pd.DataFrame({name: list(row) for name, row in rows.items()})
        >>> [group.columns for group in find_exclusive_groups(Observations.from_pandas(table))]
        [('red', 'green', 'blue')]
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
    # Columns that meet in a row are in no group together.
    is_free, never_meets = np.ones(size, dtype=bool), np.ones((size, size), dtype=bool)
    for part in _portions(len(marks.is_set), size):
        is_set = marks.is_set[part].astype(np.float32)
        never_meets &= is_set.T @ is_set == 0
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

    Example:
        >>> import pandas as pd
        >>> from pyro_hoim import Observations
        >>> table = pd.DataFrame({"town": list("aabbcc" * 9), "region": list("nnssss" * 9), "year": list("012" * 18)})
        >>> [group.columns for group in find_determined_groups(Observations.from_pandas(table))]
        [('town', 'region')]
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
            is; ``determined``: also columns that say nearly all of another; ``none``. That no row broke a group is an
            estimate, so that rows may break it (:meth:`JoinedColumns.with_breaks`), except with ``hard``: ``exact``,
            and such rows are declared impossible.
        error: as of :func:`find_exclusive_groups`.

    Raises:
        InputError: another word, or an error that is not between 0 and 1.

    Example:
        >>> import pandas as pd
        >>> from pyro_hoim import Observations
        >>> rows = {"red": "1001" * 9, "green": "0100" * 9, "blue": "0010" * 9, "wide": "0011" * 9}
        >>> table = pd.DataFrame({name: list(row) for name, row in rows.items()})
        >>> [group.columns for group in join_columns(Observations.from_pandas(table)).groups]
        [('red', 'green', 'blue')]
    """
    check_choice(how, get_args(Join), "join")
    groups: list[ColumnGroup] = []
    if how != "none":
        groups += find_exclusive_groups(rows, at_most_one=how in ("exclusive", "determined"), error=error)
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
    joined = JoinedColumns(rows.domain, tuple(named))
    return joined if how == "hard" else joined.with_breaks(rows)


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
