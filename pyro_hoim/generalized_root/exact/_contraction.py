"""Sums over grids, one variable after the other, in logarithms and differentiable."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

Scope = tuple[int, ...]

_DRAW_CELLS = 2**22


class Contraction(NamedTuple):
    """Order of elimination, cells of the largest table and of all tables together."""

    order: tuple[int, ...]
    largest: int
    total: int


class _Step(NamedTuple):
    """Joint log table over a variable (last axis) and those that it was tied to when it was summed out."""

    variable: int
    others: Scope
    table: torch.Tensor


def elimination(scopes: Sequence[Scope], sizes: Sequence[int], limit: int | None = None) -> Contraction:
    """A greedy order: always the variable whose table is smallest; it ends early at a table above the limit."""
    neighbours: dict[int, set[int]] = {v: set() for v in range(len(sizes))}
    for scope in scopes:
        for v in scope:
            neighbours[v].update({*scope} - {v})
    order: list[int] = []
    largest, total = 1, 0

    def cells(v: int) -> int:
        return math.prod(sizes[w] for w in neighbours[v]) * sizes[v]

    costs = {v: cells(v) for v in neighbours}
    while costs:
        v = min(costs, key=lambda w: (costs[w], w))
        found = costs.pop(v)
        largest, total = max(largest, found), total + found
        if limit is not None and found > limit:
            break
        near = neighbours.pop(v)
        for w in near:
            neighbours[w] = (neighbours[w] | near) - {v, w}
        costs.update({w: cells(w) for w in near})
        order.append(v)
    return Contraction(tuple(order), largest, total)


def contract(
    factors: Sequence[tuple[Scope, torch.Tensor]], order: Sequence[int], keep: bool = False
) -> tuple[torch.Tensor, list[_Step]]:
    """Log of the sum of exp of the sum of log tables (axes by scope), and with ``keep`` the tables that draws need."""
    live = list(factors)
    steps: list[_Step] = []
    for v in order:
        inside = [factor for factor in live if v in factor[0]]
        live = [factor for factor in live if v not in factor[0]]
        others = tuple(sorted({w for scope, _ in inside for w in scope if w != v}))
        axes = (*others, v)
        parts: list[torch.Tensor] = []
        for scope, values in inside:
            shape = [values.shape[scope.index(w)] if w in scope else 1 for w in axes]
            parts.append(values.permute([scope.index(w) for w in axes if w in scope]).reshape(shape))
        table = functools.reduce(torch.add, parts)
        if keep:
            steps.append(_Step(v, others, table))
        live.append((others, torch.logsumexp(table, -1)))
    return sum((values for _, values in live), torch.zeros((), dtype=torch.float64)), steps


def draw(steps: Sequence[_Step], num_draws: int, size: int, generator: torch.Generator | None) -> torch.Tensor:
    """Independent places on the grids, long (num_draws, size), from the last variable summed out to the first."""
    places = torch.zeros(num_draws, size, dtype=torch.long)
    for variable, others, table in reversed(steps):
        length = table.shape[-1]
        chunk = max(1, _DRAW_CELLS // length)
        uniform = torch.rand(num_draws, dtype=torch.float64, generator=generator)
        for first in range(0, num_draws, chunk):
            part = slice(first, min(first + chunk, num_draws))
            rows = table[tuple(places[part, w] for w in others)].expand(part.stop - part.start, length)
            weights = torch.softmax(rows, -1).cumsum(-1)
            target = (uniform[part] * weights[:, -1]).unsqueeze(-1)
            places[part, variable] = torch.searchsorted(weights, target, right=True).clamp_(max=length - 1)[:, 0]
    return places
