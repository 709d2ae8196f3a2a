"""Bucket plans: which tables meet when a variable is summed out, and what to condition on if that is too big.

Factors are numbered: the T interaction tables first, then the messages of the buckets, from T on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch

from ...structure.elimination_order import elimination_order
from ...structure.hypergraph import InteractionHypergraph


@dataclass(frozen=True)
class Bucket:
    """One step: multiply ``factors``, sum ``variable`` out; ``scope`` is the message's, the latest eliminated first."""

    variable: int
    factors: tuple[int, ...]
    scope: tuple[int, ...]


@dataclass(frozen=True)
class BucketPlan:
    """Elimination of all variables but ``keep``, after fixing those in ``slices``, all schema positions.

    ``order`` ends with the sliced variables, whose ``cards`` are one. ``scopes`` are the variables of every factor,
    kept ones first, then from the latest eliminated; ``roots`` the factors that are left.
    """

    hypergraph: InteractionHypergraph
    order: tuple[int, ...]
    keep: tuple[int, ...]
    slices: tuple[int, ...]
    cards: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    buckets: tuple[Bucket, ...]
    roots: tuple[int, ...]

    def __hash__(self) -> int:
        return hash((self.hypergraph, self.order, self.keep, self.slices))

    def size(self, scope: Iterable[int]) -> int:
        """Number of cells of a table over ``scope``."""
        return math.prod(self.cards[v] for v in scope)

    @cached_property
    def num_slices(self) -> int:
        """Number of joint states of the sliced variables."""
        return math.prod(self.hypergraph.domain.cardinalities[v] for v in self.slices)

    @cached_property
    def largest_cells(self) -> int:
        """Cells of the largest table formed, the result over ``keep`` included."""
        return max([self.size(b.scope) * self.cards[b.variable] for b in self.buckets] + [self.size(self.keep)])

    @cached_property
    def total_cells(self) -> int:
        """Cells of all tables formed in one slice."""
        return sum(self.size(b.scope) * self.cards[b.variable] for b in self.buckets) + self.size(self.keep)

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions of one slice, when every factor is multiplied in over the whole bucket."""
        work = sum(max(len(b.factors), 1) * self.size(b.scope) * self.cards[b.variable] for b in self.buckets)
        return work + max(len(self.roots), 1) * self.size(self.keep)

    @cached_property
    def message_cells(self) -> int:
        """Cells of all messages of one slice, which the downward pass needs."""
        return sum(self.size(b.scope) for b in self.buckets)

    def each_slice(self) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
        """Joint states of the sliced variables, the last fastest, and positions of the table entries that agree."""
        graph, tables = self.hypergraph, [torch.empty(0, dtype=torch.long)]
        for where, shape in zip(graph.term_slices.values(), graph.edge_shapes, strict=True):
            tables.append(torch.arange(where.start, where.stop).reshape(shape))
        for state in itertools.product(*(range(graph.domain.cardinalities[v]) for v in self.slices)):
            fixed = {v: slice(code, code + 1) for v, code in zip(self.slices, state, strict=True)}
            picks = [tuple(fixed.get(v, slice(None)) for v in edge) for edge in ((), *graph.edge_indices)]
            yield state, torch.cat([table[pick].reshape(-1) for table, pick in zip(tables, picks, strict=True)])


def _build(
    hypergraph: InteractionHypergraph, order: tuple[int, ...], keep: tuple[int, ...], slices: tuple[int, ...]
) -> BucketPlan:
    cards = tuple(1 if v in slices else n for v, n in enumerate(hypergraph.domain.cardinalities))
    rank = {v: i for i, v in enumerate((*keep, *reversed(order)))}
    scopes = [tuple(sorted(edge, key=rank.__getitem__)) for edge in hypergraph.edge_indices]
    holders: list[set[int]] = [set() for _ in cards]
    for f, scope in enumerate(scopes):
        for v in scope:
            holders[v].add(f)
    live = set(range(len(scopes)))
    buckets: list[Bucket] = []
    for v in order:
        factors = tuple(sorted(holders[v]))
        union = {u for f in factors for u in scopes[f]} - {v}
        scope = tuple(sorted(union, key=rank.__getitem__))
        for f in factors:
            live.discard(f)
            for u in scopes[f]:
                holders[u].discard(f)
        message = len(scopes)
        for u in scope:
            holders[u].add(message)
        scopes.append(scope)
        live.add(message)
        buckets.append(Bucket(v, factors, scope))
    return BucketPlan(hypergraph, order, keep, slices, cards, tuple(scopes), tuple(buckets), tuple(sorted(live)))


@lru_cache(maxsize=256)
def bucket_plan(
    hypergraph: InteractionHypergraph,
    keep: tuple[int, ...] = (),
    order: tuple[str, ...] | None = None,
    slices: tuple[int, ...] = (),
) -> BucketPlan:
    """Plan whose order begins with the names in ``order`` that are there, and goes on with the best order found."""
    names = hypergraph.domain.names
    there = {*names} - {names[v] for v in (*keep, *slices)}
    first = tuple(n for n in order or () if n in there)
    if len(first) < len(there):
        rest = hypergraph.restrict([names[v] for v in slices]) if slices else hypergraph
        first = elimination_order(rest, [names[v] for v in keep], first)
    return _build(hypergraph, (*(hypergraph.domain.index(n) for n in first), *slices), keep, slices)


@lru_cache(maxsize=256)
def sliced_plan(
    hypergraph: InteractionHypergraph,
    keep: tuple[int, ...],
    order: tuple[str, ...] | None,
    max_cells: int,
    max_slices: int,
) -> BucketPlan:
    """Plan whose tables have at most ``max_cells`` cells, conditioned on few variables; else the plain one."""
    plain = bucket_plan(hypergraph, keep, order)
    if plain.largest_cells <= max_cells or plain.size(keep) > max_cells or plain.largest_cells > max_cells * max_slices:
        return plain
    names = hypergraph.domain.names
    plan = plain
    while plan.largest_cells > max_cells and plan.num_slices < max_slices:
        tables = [(*b.scope, b.variable) for b in plan.buckets]
        big = [t for t in tables if plan.size(t) > max_cells]
        weight = dict.fromkeys(plan.order, 0.0)
        for table in big:
            for v in table:
                if v in weight:
                    weight[v] += math.log(plan.cards[v]) * math.log(plan.size(table))
        best = max(weight, key=lambda v: (weight[v], -v))
        if weight[best] == 0:
            return plain
        slices = tuple(sorted((*plan.slices, best)))
        plan = bucket_plan(hypergraph, keep, tuple(names[v] for v in plan.order), slices)
    again = bucket_plan(hypergraph, keep, order, plan.slices)
    plan = min(plan, again, key=lambda p: (p.largest_cells > max_cells, p.total_cells))
    return plan if plan.largest_cells <= max_cells and plan.num_slices <= max_slices else plain
