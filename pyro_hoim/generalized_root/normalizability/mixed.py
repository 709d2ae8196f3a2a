"""Normalisability where variables have families of their own: bounded variables, and parts that are independent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from ..nodes.columns import root_range
from ..nodes.families import NodeFamily
from ..nodes.user_family import UserFamily
from ..structure import TermGroup, terms_where
from .form import Array, Form, Index, Mask, connected, settle
from .growth import HOPELESS, Kinds, Outcome, Work, judge, said_once

_LARGEST_LISTED = 1024


Choice = dict[int, float]
"""Values of one variable, or of the indicators of one category that are not zero."""


class Nodes(NamedTuple):
    """What is asked of the variables: names, families, which are Gaussian (d,), and the largest root."""

    names: tuple[str, ...]
    families: tuple[NodeFamily, ...]
    is_real: Mask
    order: int
    groups: tuple[tuple[int, ...], ...] = ()
    """Indicators of which exactly one is 1."""

    @property
    def largest(self) -> Array:
        """Largest values (d,), infinity where there is none or the values are not whole."""
        return np.array([f.largest_value if f.is_discrete else math.inf for f in self.families])

    def values(self, s: int, is_short: bool) -> list[float]:
        """Values of a bounded count that have a mass: all, or where these are many the least and the largest."""
        family, top = self.families[s], int(self.families[s].largest_value)
        listed = sorted({0, 1, top}) if is_short else range(top + 1)
        x = torch.tensor(listed, dtype=torch.float64)
        return x[torch.isfinite(family.log_base(x))].tolist()


@lru_cache(4096)
def _root(family: NodeFamily, value: float, j: int) -> float:
    """The j-th root of the statistic of a count."""
    return float(family.root(torch.tensor([value], dtype=torch.float64), j))


def examine_mixed(nodes: Nodes, terms: list[TermGroup]) -> Outcome:
    """Verdict on a model whose variables have several families: the worst of its independent parts.

    Parts are those of the unbounded variables, since bounded ones have finitely many joint values: the constant is
    finite if it is at each of them.
    """
    largest = nodes.largest
    is_bounded = np.isfinite(largest)
    is_user = np.array([isinstance(f, UserFamily) for f in nodes.families]) & ~is_bounded
    is_count = np.array([f.is_discrete for f in nodes.families]) & ~is_bounded & ~is_user
    kinds = Kinds(nodes.names, nodes.is_real, is_count)
    # Parts of the unbounded variables
    d = len(nodes.names)
    free = list(_split(terms, is_bounded))
    undecided: Outcome | None = None
    ways: list[str] = []
    work = Work()
    for part in connected(d, [np.array([row]) for _, row, _, _ in free]):
        if is_bounded[part].all():
            continue
        if is_user[part].any():
            outcome = _of_user(nodes, part, is_user)
        elif is_count[part].all():
            outcome = Outcome("proven", "the factorial of a count outweighs every root product")
        else:
            outcome = _examine_part(nodes, terms, part, is_bounded, kinds, work)
        if outcome.verdict == "disproven":
            return outcome
        if outcome.verdict == "undecided":
            undecided = undecided or outcome
        else:
            ways.append(outcome.reason)
    return undecided or Outcome("proven", said_once(ways) or "the domain is finite")


def _of_user(nodes: Nodes, part: Index, is_user: Mask) -> Outcome:
    """Verdict on a part with unbounded variables of user families: what the user says of all of them."""
    name = nodes.families[part[is_user[part]][0]].name
    said_always = [isinstance(f := nodes.families[s], UserFamily) and f.is_normalizable for s in part]
    if all(said_always):
        return Outcome("proven", f"the {name} family is said to be normalisable always")
    if all(is_user[part]):
        reason = f"the {name} family is a user's, and does not say that it is normalisable always"
    else:
        reason = f"the {name} family is a user's, and meets variables of unbounded families of the library"
    return Outcome("undecided", reason)


def _examine_part(
    nodes: Nodes, terms: list[TermGroup], part: Index, is_bounded: Mask, kinds: Kinds, work: Work
) -> Outcome:
    """Verdict on a connected part of exponential, Gaussian and Poisson variables."""
    d = len(nodes.names)
    # Terms of power 1 of the numbers: no other variable enters them.
    numbers = part[~kinds.is_count[part]]
    leading = [t for t in terms if t.power == 1]
    form = Form.of_terms(leading, nodes.is_real).restricted(numbers)
    if (form.linear < 0).all() and (verdict := settle(form)).sign == "negative":
        return Outcome("proven", f"the terms of power 1 are negative in every direction, by {verdict.how}")
    # The bounded variables that terms of the part hold.
    inside = np.zeros(d, dtype=bool)
    inside[part] = True
    mine = terms_where(terms, lambda rows: inside[rows].any(1))
    near = sorted({int(s) for t in mine for s in t.rows[is_bounded[t.rows]]})
    if not near:
        return judge(mine, part, kinds, work)
    # All their values at once, by the largest coefficients.
    above = judge(_upper(mine, is_bounded, nodes), part, kinds, work, is_bound=True)
    if above.verdict == "proven":
        return above
    # Their values one by one.
    levels, is_whole = _levels(nodes, near)
    undecided = above if work.unknown or not is_whole else None
    seen: set[bytes] = set()
    for state in itertools.islice(levels, HOPELESS if work.unknown else None):
        folded = _fold(mine, is_bounded, state, nodes)
        key = b"".join(t.rows.tobytes() + t.values.tobytes() for t in folded)
        if key in seen:
            continue
        seen.add(key)
        outcome = judge(folded, part, kinds, work)
        if outcome.verdict == "disproven":
            return _at(outcome, state, near, nodes)
        if outcome.verdict == "undecided":
            undecided = undecided or outcome
    return undecided or Outcome("proven", f"all values of {len(near)} bounded variables, one by one")


def _at(outcome: Outcome, state: Array, near: Sequence[int], nodes: Nodes) -> Outcome:
    """The verdict with the values of the bounded variables, which do not move along the curve."""
    fixed = [s for s in near if state[s]]
    if not fixed:
        return outcome
    assert outcome.values is not None
    growth = np.ones(len(state)) if outcome.growth is None else outcome.growth.copy()
    values = outcome.values.copy()
    values[fixed] = state[fixed]
    growth[fixed] = 0.0
    shown = ", ".join(f"{nodes.names[s]} = {state[s]:g}" for s in fixed)
    return Outcome("disproven", f"{outcome.reason}, at {shown}", values, growth)


def _levels(nodes: Nodes, near: Sequence[int]) -> tuple[Iterator[Array], bool]:
    """Joint values (d,) of bounded variables, and whether these are all."""
    # One choice per group of indicators, one per other variable.
    d = len(nodes.names)
    largest = nodes.largest
    grouped = [group for group in nodes.groups if set(group) & set(near)]
    in_group = {s for group in grouped for s in group}
    choices: list[list[Choice]] = [[{s: 1.0} for s in group] for group in grouped]
    alone = [s for s in near if s not in in_group]
    size = math.prod(len(choice) for choice in choices) * math.prod(largest[s] + 1 for s in alone)
    is_whole = size <= _LARGEST_LISTED
    choices += [[{s: value} for value in nodes.values(s, not is_whole)] for s in alone]

    chosen = itertools.product(*choices) if is_whole else _some(choices)
    return (_joined(values, d) for values in chosen), is_whole


def _joined(choices: Sequence[Choice], d: int) -> Array:
    """A state (d,), zero where nothing is chosen."""
    state = np.zeros(d)
    for values in choices:
        for s, value in values.items():
            state[s] = value
    return state


def _some(choices: list[list[Choice]]) -> Iterator[tuple[Choice, ...]]:
    """Some of many joint choices: the first, those that change one, the last, and random ones."""
    start = tuple(choice[0] for choice in choices)
    yield start
    for i, choice in enumerate(choices):
        for value in choice[1:]:
            yield (*start[:i], value, *start[i + 1 :])
    yield tuple(choice[-1] for choice in choices)
    rng = np.random.default_rng(0)
    for _ in range(_LARGEST_LISTED // 4):
        yield tuple(choice[rng.integers(len(choice))] for choice in choices)


def _fold(terms: list[TermGroup], is_bounded: Mask, state: Array, nodes: Nodes) -> list[TermGroup]:
    """Terms of the unbounded variables, at some values (d,) of the bounded ones; equal terms are added."""
    sums: dict[tuple[int, tuple[int, ...]], float] = {}
    for j, row, c, bounded in _split(terms, is_bounded):
        factors = [_root(nodes.families[s], float(state[s]), j) for s in bounded]
        sums[j, row] = sums.get((j, row), 0.0) + c * math.prod(factors)
    return _grouped(sums)


def _upper(terms: list[TermGroup], is_bounded: Mask, nodes: Nodes) -> list[TermGroup]:
    """Terms of the unbounded variables with the largest coefficients that values of the bounded ones give.

    Where signs of Gaussian variables may turn a term, the largest modulus.
    """
    sums: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
    for j, row, c, bounded in _split(terms, is_bounded):
        ends = (c, c)
        for s in bounded:
            products = [end * root for end in ends for root in root_range(nodes.families[s], j)]
            ends = (min(products), max(products))
        low, high = sums.get((j, row), (0.0, 0.0))
        sums[j, row] = (low + ends[0], high + ends[1])
    # A known coefficient keeps its sign, which the form of its power may use.
    is_odd = {(j, row): j == 2 and bool(nodes.is_real[list(row)].any()) for j, row in sums}
    ends = {key: max(high, -low) if is_odd[key] and low < high else high for key, (low, high) in sums.items()}
    return _grouped(ends)


def _split(terms: list[TermGroup], is_bounded: Mask) -> Iterator[tuple[int, tuple[int, ...], float, list[int]]]:
    """Root, unbounded members, coefficient and bounded members of every term that has unbounded ones."""
    for t in terms:
        for row, c in zip(t.rows, t.values, strict=True):
            bounded = is_bounded[row]
            if not bounded.all():
                yield t.root, tuple(row[~bounded].tolist()), float(c), row[bounded].tolist()


def _grouped(sums: dict[tuple[int, tuple[int, ...]], float]) -> list[TermGroup]:
    """Terms by root and size, without zeros."""
    groups: dict[tuple[int, int], tuple[list[tuple[int, ...]], list[float]]] = {}
    for (j, row), c in sorted(sums.items()):
        if c != 0:
            rows, values = groups.setdefault((j, len(row)), ([], []))
            rows.append(row)
            values.append(c)
    return [TermGroup(j, np.array(rows, dtype=np.int64), np.array(c)) for (j, _), (rows, c) in groups.items()]
