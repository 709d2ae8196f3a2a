"""Lower bounds of log Z from a few states of a few variables, beside which the others are summed exactly."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from ..._modes import plain_mode
from ...structure.elimination_order import least_fill, neighbour_pairs
from ...structure.hypergraph import InteractionHypergraph
from ..energy import LogLinearEnergy
from ._join_graph import TABLE, JoinGraph, compiled, join_graph
from ._sweeps import Sweeps

Floats = NDArray[np.float64]

_ROUNDS = 3
_MOST = 64  # settings of the fixed variables that are summed in one round
_BATCH = 8  # of which at once, before the gain is looked at
_LEAST_GAIN, _LEAST_STEP = 0.002, 0.0005  # of a batch drawn or of neighbours, as a share of the distance to above
_CELLS = 2**26  # of all tables of one round, about a tenth of a second
_WIDER, _WIDEST = 2**4, 2**20  # fewer variables are fixed for larger tables, which are cheap up to here
_ROUNDING = 1e-13  # of the sum of what the fixed variables add, relative
_EPS = float(np.finfo(np.float64).eps)
_LEAST = math.log(1e-250)  # of logs of cells over the largest of a table that the loops count


class FixedPlan(NamedTuple):
    """The variables that are fixed, the exact sum beside one of their settings, and how many sums a round has.

    ``pointer`` leads from a table to its rows (number of the fixed variable, stride) in ``slices``.
    """

    fixed: tuple[int, ...]
    graph: JoinGraph
    most: int
    pointer: NDArray[np.int64]
    slices: NDArray[np.int64]

    @property
    def memory_bytes(self) -> int:
        """Of the sums, one after the other, with their gradients, and of all settings."""
        if not self.graph.is_exact:
            return 0
        size = compiled(self.graph)
        return 8 * (3 * size.num_values + 9 * size.num_block + _ROUNDS * self.most * len(self.fixed))


@lru_cache(maxsize=64)
@plain_mode()
def fixed_plan(hypergraph: InteractionHypergraph, max_cells: int) -> FixedPlan:
    """How lower bounds by few fixed variables are found, known from the structure."""
    max_cells = max(max_cells, min(_WIDER * max_cells, _WIDEST))
    fixed = cutset(hypergraph, max_cells)
    graph = join_graph(hypergraph, max_cells, fixed=fixed)
    cards, number = hypergraph.domain.cardinalities, {v: k for k, v in enumerate(fixed)}
    pointer, slices = [0], list[tuple[int, int]]()
    for edge in hypergraph.edge_indices:
        slices += [(number[v], math.prod(cards[u] for u in edge[k + 1 :])) for k, v in enumerate(edge) if v in number]
        pointer.append(len(slices))
    rows = np.array(slices, dtype=np.int64).reshape(-1, 2)
    most = max(1, min(_MOST, int(_CELLS / max(1.0, graph.total_cells))))
    return FixedPlan(fixed, graph, most, np.array(pointer, dtype=np.int64), rows)


class FixedSums:
    r"""The sum of q over the states that agree with one of some settings of a few variables.

    .. math:: \log Z \ge \log \sum_{c \in S} \sum_{x : x_C = c} \prod_E \exp \theta^E_{x_E}

    The variables C are separators of the graph, so that the inner sums are exact. Settings come from states that are
    likely; where few of them hold most of the probability the bound is tight.

    Args:
        model: one model, without a batch.
        max_cells: tables of mini-buckets; those of exact sums may have 16 times as many cells, up to 2^20.
    """

    def __init__(self, model: LogLinearEnergy, max_cells: int) -> None:
        self.plan = fixed_plan(model.hypergraph, max_cells)
        self._sums: dict[tuple[int, ...], float] = {}
        self._slack = 0.0

    @property
    def is_feasible(self) -> bool:
        """Whether tables are small enough beside the fixed variables."""
        return self.plan.graph.is_exact

    @property
    def bound(self) -> float:
        """The log of the sum so far, rounded downward."""
        if not self._sums:
            return -math.inf
        total = float(np.logaddexp.reduce(list(self._sums.values())))
        return total - self._slack - _ROUNDING * (1.0 + abs(total)) if total > -math.inf else total

    @property
    def settings(self) -> torch.Tensor:
        """Settings that were summed and are possible, long (n, fixed variables), the largest sum first."""
        ranked = sorted((c for c in self._sums if self._sums[c] > -math.inf), key=lambda c: -self._sums[c])
        return torch.tensor(ranked, dtype=torch.long).reshape(len(ranked), len(self.plan.fixed))

    def _offsets(self, settings: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the slices of tables beside settings (n, fixed variables) begin in them, (n, tables)."""
        pointer, slices = self.plan.pointer, self.plan.slices
        steps = np.zeros((len(settings), len(slices) + 1), dtype=np.int64)
        np.cumsum(settings[:, slices[:, 0]] * slices[:, 1], axis=1, out=steps[:, 1:])
        return steps[:, pointer[1:]] - steps[:, pointer[:-1]]

    def _constants(self, tables: Floats, settings: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
        """Cells of tables whose variables are all fixed, beside settings: the tables' values and places (n, cells)."""
        is_left = self.plan.graph.division.items[: len(self.plan.pointer) - 1, 3] > 0
        starts = compiled(self.plan.graph).starts[TABLE][~is_left]
        places = starts + self._offsets(settings)[:, ~is_left]
        return tables[places], places

    def _sweeps(self, tables: Floats, setting: NDArray[np.int64]) -> Sweeps:
        """The sum beside one setting in log space, with its gradient."""
        sweeps = Sweeps(self.plan.graph, tables, True)
        inputs = sweeps.compiled.program.inputs.copy()
        is_table = inputs[:, 4] == TABLE
        inputs[is_table, 0] += self._offsets(setting[None])[0, inputs[is_table, 6]]
        sweeps.compiled = replace(sweeps.compiled, program=sweeps.compiled.program._replace(inputs=inputs))
        next(sweeps.passes(1))
        return sweeps

    def slopes(self, model: LogLinearEnergy) -> torch.Tensor:
        """Gradient of the bound in the tables, (num_terms,): means beside the settings, by their shares of the sum."""
        settings, tables = self.settings, model.tables.detach().numpy()
        slopes, codes = np.zeros_like(tables), settings.numpy()
        shares = torch.tensor([self._sums[tuple(row)] for row in settings.tolist()], dtype=torch.float64).softmax(0)
        for setting, share in zip(codes, shares.tolist(), strict=True):
            slopes += share * self._sweeps(tables, setting).eta
            slopes[self._constants(tables, setting[None])[1][0]] += share
        return torch.from_numpy(slopes)

    @torch.no_grad()
    def raise_bound(
        self, model: LogLinearEnergy, states: torch.Tensor, log_probs: torch.Tensor, high: float = math.inf
    ) -> float:
        """Sum beside the settings of the likeliest of some states (n, d), then beside neighbours of the best one.

        Ends when sums change little of the distance to an upper bound.
        """
        tables, cards = model.tables.numpy(), [model.domain.cardinalities[v] for v in self.plan.fixed]
        codes, best = states[:, list(self.plan.fixed)], dict[tuple[int, ...], float]()
        for row, value in zip(codes.tolist(), log_probs.tolist(), strict=True):
            best[tuple(row)] = max(value, best.get(tuple(row), -math.inf))
        wanted, products = sorted(best, key=lambda c: -best[c]), _Products(self.plan, tables)
        # Neighbours whose level was drawn often come first.
        counts = [np.bincount(column, minlength=n).tolist() for column, n in zip(codes.numpy().T, cards, strict=True)]
        changes = sorted(
            ((k, level) for k, n in enumerate(cards) for level in range(n)), key=lambda c: -counts[c[0]][c[1]]
        )
        is_drawn = True
        while len(self._sums) < _ROUNDS * self.plan.most:
            new, before = [c for c in wanted if c not in self._sums][:_BATCH], self.bound
            if new:
                self._sum(products, tables, sorted(new))
            gain = self.bound - before if before > -math.inf else math.inf if is_drawn or self.bound > before else 0.0
            share = _LEAST_GAIN if is_drawn else _LEAST_STEP
            is_small = not new or gain == 0.0 or gain < share * (high - self.bound) < math.inf
            if is_small and not is_drawn:
                break
            is_drawn = is_drawn and not is_small and len(self._sums) < self.plan.most
            if not is_drawn:
                top = max(self._sums, key=self._sums.__getitem__)
                wanted = [(*top[:k], level, *top[k + 1 :]) for k, level in changes if level != top[k]]
        return self.bound

    def _sum(self, products: _Products, tables: Floats, new: list[tuple[int, ...]]) -> None:
        """Sum beside new settings; those that follow each other have most of their messages in common."""
        settings = np.array(new, dtype=np.int64).reshape(len(new), len(self.plan.fixed))
        constants = self._constants(tables, settings)[0]
        is_possible = np.isfinite(constants).all(1)
        added, sums = np.where(is_possible, constants.sum(1), -np.inf), np.full(len(new), -np.inf)
        size = np.abs(constants[is_possible]).sum(1).max(initial=0.0)
        sums[is_possible] = products.log_sums(settings[is_possible])
        slack = products.slack
        for n in np.flatnonzero(is_possible & np.isnan(sums)):  # where products leave their range, logarithms do not
            sweeps = self._sweeps(tables, settings[n])
            sums[n], slack = sweeps.best, max(slack, sweeps.slack)
        size += np.abs(sums[np.isfinite(sums)]).max(initial=0.0)
        self._slack = max(self._slack, slack + _EPS * (1 + constants.shape[1]) * size)
        self._sums.update(zip(new, (sums + added).tolist(), strict=True))


class _Products:
    """Exact sums of one model beside settings of fixed variables, by products of tables over their largest cells.

    Every term of a sum is a product of one cell of each table. It is rounded once for each factor and each addition on
    its way, of which there are at most as many as there are inputs and levels of mini-buckets; the logarithm of a cell
    of a table was wrong by as many units as it is large.
    """

    def __init__(self, plan: FixedPlan, tables: Floats) -> None:
        size = self._size = compiled(plan.graph)
        self._plan, nodes, first = plan, size.program.nodes, size.starts[TABLE]
        is_left = plan.graph.division.items[: len(first), 3] > 0
        logs, tops, spans = tables.copy(), np.zeros(len(first)), np.zeros(len(first))
        is_low = np.zeros(len(logs), dtype=bool)
        if len(first):
            tops = np.maximum.reduceat(logs, first)
            tops[np.isneginf(tops)] = 0.0
            logs -= np.repeat(tops, np.diff([*first, len(logs)]))
            is_low = (logs < _LEAST) & (logs > -np.inf)
            logs[is_low] = -np.inf
            spans = -np.minimum.reduceat(np.where(np.isfinite(logs), logs, 0.0), first)
        self._values = np.zeros(size.num_values)
        np.exp(logs, out=self._values[: len(logs)])
        self._top = math.fsum(tops[is_left])
        self._steps = float((nodes[:, 5] - nodes[:, 4] + nodes[:, 0]).sum() + (10.0 + spans).sum())
        self._places, self._powers = np.full(len(size.program.inputs), -1), np.zeros(len(nodes), dtype=np.int64)
        # Cells that are left out make a table, and with it every sum, incomplete.
        is_cut = np.logical_or.reduceat(is_low, first) if len(first) else np.zeros(0)
        self._least, self._lows, self.slack = np.where(is_cut, 0.0, np.exp(-spans)), np.zeros(len(nodes)), 0.0

    def log_sums(self, settings: NDArray[np.int64]) -> Floats:
        """Logs of the sums over free variables beside settings (n, fixed variables), (n,), and ``slack`` of them.

        Cells of tables without a free variable are left out. Not a number where products may leave the range of the
        loops.
        """
        from ._fixed_kernels import log_sums

        program, pointer, slices = self._size.program, self._plan.pointer, self._plan.slices
        state = self._least, self._places, self._powers, self._lows
        sums = log_sums(settings, self._values, pointer, slices, program, *state)
        size = np.abs(sums[np.isfinite(sums)]).max(initial=0.0) + abs(self._top)
        self.slack = max(self.slack, _EPS * (self._steps + (8 + len(program.roots)) * size))
        return sums + self._top


# Few variables that, once they are fixed, leave a model that elimination can sum.

_SHIFT = 1e-3  # makes the Laplacian of a graph definite
_EQUAL = 1.05  # eigenvalues within this factor count as one, of which several vectors are tried
_TRIES = 4
_DENSE = 12  # variables from which on a sparse eigensolver is used
_MOST_TRIES = 24  # attempts to let variables free


def _fits(pairs: NDArray[np.int64], cards: tuple[int, ...], variables: list[int], max_cells: int) -> bool:
    """Whether these variables alone can be summed out by tables of at most so many cells."""
    return least_fill(pairs, cards, variables, most=max_cells)[1] <= max_cells


def _edges(pairs: NDArray[np.int64], variables: list[int], size: int) -> sparse.csr_array:
    """Adjacency of some variables, in their order."""
    position = np.full(size, -1, dtype=np.int64)
    position[variables] = np.arange(len(variables))
    inside = position[pairs]
    rows, columns = inside[(inside >= 0).all(1)].T
    ends = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    return sparse.csr_array((np.ones(len(ends[0])), ends), shape=(len(variables), len(variables)))


def _separator(edges: sparse.csr_array, is_left: NDArray[np.bool_]) -> list[int]:
    """Fewest nodes that meet all edges between two sides: a vertex cover, by matching (König's theorem)."""
    left, right = np.flatnonzero(is_left), np.flatnonzero(~is_left)
    position = np.empty(len(is_left), dtype=np.int64)
    position[left], position[right] = np.arange(len(left)), np.arange(len(right))
    rows, columns = np.repeat(np.arange(len(is_left)), np.diff(edges.indptr)), edges.indices
    crosses = is_left[rows] & ~is_left[columns]
    ends = position[rows[crosses]], position[columns[crosses]]
    between = sparse.csr_array((np.ones(len(ends[0])), ends), shape=(len(left), len(right)))
    partner = sparse.csgraph.maximum_bipartite_matching(between, perm_type="column")
    back = {int(j): i for i, j in enumerate(partner) if j >= 0}
    crossing = [i for i in range(len(left)) if between.indptr[i + 1] > between.indptr[i]]
    # What alternating paths from unmatched nodes reach.
    open_ = [i for i in crossing if partner[i] < 0]
    seen, met = set(open_), set[int]()
    while open_:
        i = open_.pop()
        for j in between.indices[between.indptr[i] : between.indptr[i + 1]].tolist():
            if j not in met:
                met.add(j)
                if back[j] not in seen:
                    seen.add(back[j])
                    open_.append(back[j])
    return [int(left[i]) for i in crossing if i not in seen] + [int(right[j]) for j in sorted(met)]


def _halves(edges: sparse.csr_array, random: np.random.Generator) -> tuple[NDArray[np.bool_], list[int]]:
    """Two sides of a connected graph that few nodes separate, and these nodes.

    The sides are those of the median of the Laplacian's second eigenvector; where several belong to one eigenvalue, as
    of squares and tori, mixtures of these are tried.
    """
    degrees = np.asarray(edges.sum(1)).ravel()
    size = len(degrees)
    laplacian = (sparse.diags_array(degrees + _SHIFT) - edges).tocsc()
    wanted = min(4, size - 1)
    if size < _DENSE:
        values, vectors = np.linalg.eigh(laplacian.toarray())
    else:
        values, vectors = sparse.linalg.eigsh(laplacian, k=wanted, sigma=0, v0=random.standard_normal(size))
    order = np.argsort(values)
    values, vectors = values[order][:wanted] - _SHIFT, vectors[:, order][:, :wanted]
    equal = [k for k in range(1, wanted) if values[k] <= _EQUAL * values[1]]
    candidates = list[tuple[NDArray[np.bool_], list[int]]]()
    for _ in range(_TRIES if len(equal) > 1 else 1):
        mixed = vectors[:, equal] @ random.standard_normal(len(equal))
        is_left = np.zeros(size, dtype=bool)
        is_left[np.argsort(mixed, kind="stable")[: size // 2]] = True
        candidates.append((is_left, _separator(edges, is_left)))
    return min(candidates, key=lambda sides: len(sides[1]))


def _along(edges: sparse.csr_array, variables: list[int]) -> list[int]:
    """Variables so that those near each other in the graph follow each other."""
    near = sparse.csr_array(edges[variables] @ edges[:, variables] + edges[variables][:, variables])
    left, order = set(range(len(variables))), list[int]()
    while left:
        reached = sparse.csgraph.breadth_first_order(
            near, min(left), directed=False, return_predecessors=False
        ).tolist()
        order += reached
        left -= set(reached)
    return [variables[k] for k in order]


@lru_cache(maxsize=64)
@plain_mode()
def cutset(hypergraph: InteractionHypergraph, max_cells: int) -> tuple[int, ...]:
    """Positions of few variables without which the others can be summed within ``max_cells``. Deterministic."""
    pairs, cards = neighbour_pairs(hypergraph), hypergraph.domain.cardinalities
    every = list(range(len(cards)))
    # Variables that divide the graph into pieces each of which can be summed within max_cells.
    random, fixed = np.random.default_rng(0), list[int]()
    waiting = [list(range(len(cards)))]
    while waiting:
        variables = waiting.pop()
        edges = _edges(pairs, variables, len(cards))
        count, component = sparse.csgraph.connected_components(edges, directed=False)
        if count > 1:
            waiting.extend([v for v, c in zip(variables, component, strict=True) if c == k] for k in range(count))
        elif not _fits(pairs, cards, variables, max_cells):
            is_left, between = _halves(edges, random)
            rest = set(range(len(variables))) - set(between)
            sides = [[variables[i] for i in sorted(rest) if is_left[i] == side] for side in (True, False)]
            waiting.extend(side for side in sides if side)
            fixed += [variables[i] for i in between]
    fixed = sorted(fixed)
    fixed = _along(_edges(pairs, every, len(cards)), fixed)
    free = sorted(set(every) - set(fixed))
    # Halves of the separators are let free, then halves of these, as long as the others can be summed.
    waiting, tries, needed = [fixed] if fixed else [], 0, list[int]()
    while waiting:
        some = waiting.pop()
        tries += 1
        if tries <= _MOST_TRIES and _fits(pairs, cards, sorted([*free, *some]), max_cells):
            free += some
        elif len(some) > 1 and tries <= _MOST_TRIES:
            half = len(some) // 2
            waiting += [some[half:], some[:half]]
        else:
            needed += some
    return tuple(sorted(needed))
