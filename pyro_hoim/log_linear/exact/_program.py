"""Bucket plans compiled to a straight line of two-operand contractions over one flat buffer.

A bucket becomes the products f1 f2, (f1 f2) f3, ... and, last, a contraction that sums its variable out. Each step
Z = sum X Y has two adjoints, gX = sum gZ Y and gY = sum gZ X, contractions as well: nests of loops with a stride per
operand, the inner loop long and contiguous.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...structure.elimination_order import elimination_order, first_fit
from ...structure.hypergraph import InteractionHypergraph, row_strides

# Bucket plans: which tables meet when a variable is summed out, and what to condition on if that is too big.
#
# Factors are numbered: the T interaction tables first, then the messages of the buckets, from T on.


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
    # Which factors hold each variable, tables first.
    holders: list[set[int]] = [set() for _ in cards]
    for f, scope in enumerate(scopes):
        for v in scope:
            holders[v].add(f)
    # Buckets in order: their factors go, their message comes.
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
    # One more variable at a time, that of most weight in the tables that are too large.
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
    # With these fixed another order may be better.
    again = bucket_plan(hypergraph, keep, order, plan.slices)
    plan = min(plan, again, key=lambda p: (p.largest_cells > max_cells, p.total_cells))
    return plan if plan.largest_cells <= max_cells and plan.num_slices <= max_slices else plain


Ints = NDArray[np.int64]
_Loop = tuple[int, int, int, int]  # length and strides of x, y, z

_INNER = 4096  # longest inner loop: three rows of it fit the first-level cache
_FAST = 32  # cells of the fastest axes that should stay untouched by the next steps
_ACCUMULATOR = 256  # largest result that is summed in a private float64 accumulator


class Contraction(NamedTuple):
    """Loops, outermost first; ``by_rows``: over the result, then ``num_reduced`` for each, then the inner one."""

    loops: tuple[_Loop, ...]
    swapped: bool
    by_rows: bool
    num_reduced: int


class Arrays(NamedTuple):
    """What the compiled loops read. Contraction 3 i + r of step i is the step itself (r = 0) and its two adjoints."""

    table_start: Ints
    steps: Ints  # (n, 3): nodes x, y, z
    size: Ints
    gradient: Ints  # places in the buffer of adjoints
    pointer: Ints  # (3 n + 1)
    loops: Ints  # (4, total): length, strides of x, y, z
    form: Ints  # (3 n, 3): swapped, by_rows, num_reduced
    roots: Ints
    work: Ints  # (n,) multiplications of each step


class Program(NamedTuple):
    """What the executors read.

    Nodes are the constant one (0), the tables, then the results of the steps, at ``offset`` in the buffer of values,
    at ``reused`` where log Z alone is found.
    """

    arrays: Arrays
    num_terms: int
    offset: Ints
    reused: Ints
    buffers: tuple[int, int, int]
    log_constant: float
    layouts: tuple[tuple[int, ...], ...]  # variables of every node, the last fastest
    operands: tuple[tuple[int, int], ...]  # the two nodes whose product each bucket sums over its variable


def _merged(loops: list[_Loop]) -> list[_Loop]:
    """Loops with every pair joined that walks all three operands like one longer loop."""
    loops = sorted((loop for loop in loops if loop[0] > 1), key=lambda w: -max(w[1:]))
    changed = True
    while changed:
        changed = False
        for i, outer in enumerate(loops):
            for j, inner in enumerate(loops):
                if i != j and all(outer[k] == inner[k] * inner[0] for k in (1, 2, 3)):
                    loops[j] = (outer[0] * inner[0], *inner[1:])
                    del loops[i]
                    changed = True
                    break
            if changed:
                break
    return loops


def _inner_cost(loop: _Loop, total: int) -> float:
    """Estimated time of a contraction in nanoseconds with this loop innermost."""
    length, x, y, z = loop
    contiguous = (x, y) in ((1, 0), (0, 1), (1, 1)) and z in (0, 1)
    return total / length * (5 + length * (0.15 if contiguous else 1.0))


def contraction(loops: list[_Loop], sizes: tuple[int, int, int]) -> Contraction:
    """Order the loops of a contraction of operands of the given sizes (x, y, z)."""
    total = math.prod(loop[0] for loop in loops)
    loops = _merged(loops) or [(1, 0, 0, 0)]
    inner = min(loops, key=lambda w: _inner_cost(w, total))
    loops.remove(inner)
    # Small results are summed in private; others are written row by row.
    by_rows = not (sizes[2] <= _ACCUMULATOR and 4 * sizes[2] <= max(sizes))
    big = 1 + max(range(3), key=lambda i: sizes[i])
    loops.sort(key=lambda w: (-w[big], -max(w[1:])))
    # Very long inner loops are cut, so that their rows stay in the cache.
    length = inner[0]
    if length > _INNER:
        block = max(b for b in range(1, _INNER + 1) if length % b == 0)
        if block >= _FAST:
            loops.append((length // block, inner[1] * block, inner[2] * block, inner[3] * block))
            inner = (block, *inner[1:])
    num_reduced = 1
    if by_rows:
        rows = [w for w in loops if w[3]]
        summed = [w for w in loops if not w[3]]
        num_reduced = math.prod(w[0] for w in summed)
        loops = rows + summed
    loops.append(inner)
    swapped = inner[1] != 1 and inner[2] == 1
    if swapped:
        loops = [(n, y, x, z) for n, x, y, z in loops]
    return Contraction(tuple(loops), swapped, by_rows, num_reduced)


class _Compiler:
    """Collects nodes and steps of one plan."""

    def __init__(self, plan: BucketPlan) -> None:
        self.plan = plan
        self.layouts: list[tuple[int, ...]] = [(), *plan.hypergraph.edge_indices]
        self.steps: list[tuple[int, int, int]] = []
        self.operands: list[tuple[int, int]] = []
        self.num_tables = len(plan.hypergraph.edge_indices)
        self.rank = {v: i for i, v in enumerate(plan.order)}
        self.consumers = {f: number for number, bucket in enumerate(plan.buckets) for f in bucket.factors}

    def size(self, node: int) -> int:
        return self.plan.size(self.layouts[node])

    def step(self, x: int, y: int, layout: tuple[int, ...]) -> int:
        self.layouts.append(layout)
        self.steps.append((x, y, len(self.layouts) - 1))
        return len(self.layouts) - 1

    def product(self, x: int, y: int) -> int:
        """Product of two nodes: the larger one's layout, the other variables in front."""
        if self.size(x) < self.size(y):
            x, y = y, x
        mine = self.layouts[x]
        new = [v for v in self.layouts[y] if v not in mine]
        return self.step(x, y, (*sorted(new, key=self.rank.__getitem__), *mine))

    def cheapest_pair(self, nodes: list[int]) -> tuple[int, int]:
        """The two nodes whose product is smallest; the two smallest nodes if there are many."""
        nodes = sorted(nodes, key=self.size)[:24]

        def joined(pair: tuple[int, int]) -> int:
            return self.plan.size({*self.layouts[pair[0]], *self.layouts[pair[1]]})

        return min(itertools.combinations(nodes, 2), key=joined)

    def message_layout(self, factor: int, x: int, y: int, variable: int) -> tuple[int, ...]:
        """The larger operand's layout, new variables in the place of the old; sorted if its fast axes go soon."""
        scope = self.plan.scopes[factor]
        ordered = tuple(sorted(scope, key=self.rank.__getitem__))
        big = self.layouts[x] if self.size(x) >= self.size(y) else self.layouts[y]
        if self.plan.size(scope) < 2**10:
            return ordered
        # The larger operand's order needs no transposition.
        new = [v for v in ordered if v not in big]
        lazy: list[int] = []
        for v in big:
            if v == variable:
                lazy.extend(new)
                new = []
            elif v in scope:
                lazy.append(v)
        lazy = [*new, *lazy]
        # Unless the next step would walk its fastest axes with long strides.
        parent = self.consumers.get(factor)
        if parent is None:
            return tuple(lazy)
        bucket = self.plan.buckets[parent]
        active = {bucket.variable}.union(*(self.plan.scopes[f] for f in bucket.factors if f < self.num_tables))
        cells = 1
        for v in reversed(lazy):
            if v in active:
                return ordered
            cells *= self.plan.cards[v]
            if cells >= _FAST:
                break
        return tuple(lazy)

    def run(self) -> tuple[list[int], float]:
        """Make the steps; returns the root nodes and the log of the states of variables without any factor."""
        plan = self.plan
        nodes = list(range(1, self.num_tables + 1))
        log_constant = 0.0
        for number, bucket in enumerate(plan.buckets):
            factor = self.num_tables + number
            if not bucket.factors:
                log_constant += math.log(plan.cards[bucket.variable])
                nodes.append(0)
                self.operands.append((0, 0))
                continue
            # Products of two until two are left, which are summed over the variable.
            pending = _absorbed([nodes[f] for f in bucket.factors], self)
            while len(pending) > 2:
                x, y = self.cheapest_pair(pending)
                pending = [*(n for n in pending if n not in (x, y)), self.product(x, y)]
            x, y = (*pending, 0)[:2]
            self.operands.append((x, y))
            nodes.append(self.step(x, y, self.message_layout(factor, x, y, bucket.variable)))
        return [nodes[f] for f in plan.roots if nodes[f]], log_constant


def _absorbed(nodes: list[int], compiler: _Compiler) -> list[int]:
    """Multiply every node whose variables all belong to another one into the smallest such node."""
    nodes = sorted(nodes, key=lambda n: (compiler.size(n), len(compiler.layouts[n])))
    nodes_left: list[int] = []
    left = len(nodes)
    for i, node in enumerate(nodes):
        mine = set(compiler.layouts[node])
        for j in range(i + 1, len(nodes)):
            if left > 2 and mine <= set(compiler.layouts[nodes[j]]):
                nodes[j] = compiler.product(nodes[j], node)
                left -= 1
                break
        else:
            nodes_left.append(node)
    return nodes_left


@lru_cache(maxsize=128)
def compiled(plan: BucketPlan) -> Program:
    """Program of a plan that keeps no variables."""
    compiler = _Compiler(plan)
    roots, log_constant = compiler.run()
    layouts, steps, cards = compiler.layouts, compiler.steps, plan.cards
    size = [plan.size(layout) for layout in layouts]
    strides = [dict(zip(layout, row_strides([cards[v] for v in layout]), strict=True)) for layout in layouts]
    num_steps, first = len(steps), compiler.num_tables + 1
    # Values: the constant one, the tables, then the results, each in cells of its own as gradients need them.
    table_start = np.cumsum([0, *size[1:first]])
    num_terms = int(table_start[-1])
    base = np.zeros(len(size), dtype=np.int64)
    base[1:first] = 1 + table_start[:-1]
    offset, reused, gradient = base.copy(), base.copy(), base.copy()
    offset[first:] = 1 + num_terms + np.cumsum([0, *size[first:-1]])[: len(size) - first]
    # Log Z alone lets a result take cells that are free again; adjoints live in reverse order.
    used = {n: i for i, (x, y, _) in enumerate(steps) for n in (x, y)}
    made = {z: i for i, (_, _, z) in enumerate(steps)}
    births = [made.get(n, -1) for n in range(len(size))]
    deaths = [used.get(n, num_steps) for n in range(len(size))]
    reused_top = first_fit(births, deaths, size, 1 + num_terms, reused)
    back_births = [num_steps - used.get(n, num_steps) if n in made else -1 for n in range(len(size))]
    back_deaths = [num_steps - made.get(n, 0) for n in range(len(size))]
    gradient_top = first_fit(back_births, back_deaths, size, 1 + num_terms, gradient)
    # Every step with its two adjoints: the loops are the same, the operands change roles.
    contractions: list[Contraction] = []
    work: list[int] = []
    for x, y, z in steps:
        union = sorted({*layouts[x], *layouts[y]})
        rows = [(cards[v], strides[x].get(v, 0), strides[y].get(v, 0), strides[z].get(v, 0)) for v in union]
        work.append(math.prod(r[0] for r in rows))
        contractions.append(contraction(rows, (size[x], size[y], size[z])))
        contractions.append(contraction([(n, c, b, a) for n, a, b, c in rows], (size[z], size[y], size[x])))
        if y:
            contractions.append(contraction([(n, c, a, b) for n, a, b, c in rows], (size[z], size[x], size[y])))
        else:
            contractions.append(Contraction((), False, False, 1))
    flat = [loop for c in contractions for loop in c.loops]
    arrays = Arrays(
        table_start=table_start.astype(np.int64),
        steps=np.array(steps, dtype=np.int64).reshape(-1, 3),
        size=np.array(size, dtype=np.int64),
        gradient=gradient,
        pointer=np.cumsum([0, *(len(c.loops) for c in contractions)], dtype=np.int64),
        loops=np.ascontiguousarray(np.array(flat, dtype=np.int64).reshape(-1, 4).T),
        form=np.array([(c.swapped, c.by_rows, c.num_reduced) for c in contractions], dtype=np.int64).reshape(-1, 3),
        roots=np.array(roots, dtype=np.int64),
        work=np.array(work, dtype=np.int64),
    )
    buffers = (1 + sum(size[1:]), reused_top, gradient_top)
    return Program(arrays, num_terms, offset, reused, buffers, log_constant, tuple(layouts), tuple(compiler.operands))


def memory_cells(plan: BucketPlan) -> tuple[int, int]:
    """Cells of the buffers of log Z alone, and of log Z with all marginals."""
    values, reused, gradient = compiled(plan).buffers
    return reused, values + gradient
