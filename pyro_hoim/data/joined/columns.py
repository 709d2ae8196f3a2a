"""Groups of columns as one variable each: joins rows, splits them again, and goes into a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ...errors import InputError, check_names, check_type, check_unique, conflict, other_domain, refused, unexpected
from ...schema import Domain, Kind, Variable
from ..observations import Observations

__all__ = ["ColumnGroup", "JoinedColumns", "JoinedRows"]

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
        found = {"name": self.name, "columns": list(self.columns), "levels": levels, "labels": list(self.labels)}
        return {**found, "kind": self.kind}


def _label(columns: tuple[str, ...], level: tuple[int, ...]) -> str:
    held = [name for name, code in zip(columns, level, strict=True) if code]
    if not held:
        return "none"
    if len(held) == 1 and max(level) == 1:
        return held[0]
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
        codes = torch.full((len(rows.codes), len(self.joined_domain)), -1, dtype=torch.long)
        for name in self.domain.names:
            if name not in self._group_of:
                codes[:, self.joined_domain.index(name)] = rows.codes[:, self.domain.index(name)]
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
        found = self.read(rows)
        for is_bad, what in ((found.is_broken, "break"), (found.is_open, "do not say the level of")):
            is_bad = is_bad & (rows.counts > 0)[:, None]
            if bool(is_bad.any()):
                group = self.groups[int(is_bad.any(0).nonzero()[0])]
                problem = f"{int(is_bad.any(1).sum())} rows {what} a group of joined columns, such as {group.name!r}"
                raise refused("rows", problem, "JoinedColumns.read tells which rows", code="impossible")
        return found.rows

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
        found = (tuple(sorted({self.variable_of(name) for name in edge})) for edge in edges)
        return [edge for edge in dict.fromkeys(found) if len(edge) > 1]

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
    patterns, place = np.unique(codes, axis=0, return_inverse=True)
    found = np.empty((len(patterns), len(levels)), dtype=bool)
    step = max(1, _PORTION // max(1, levels.size))
    for start in range(0, len(patterns), step):
        part = patterns[start : start + step, None, :]
        found[start : start + step] = ((part < 0) | (part == levels[None])).all(2)
    return torch.from_numpy(found[place.reshape(-1)])
