r"""The fibre of a hierarchical model: the tables of whole counts that share all margins that the model fits.

Given these margins a table has probability proportional to :math:`\prod_x 1 / n_x!` under the model, whatever its
parameters. Small fibres are listed whole, others walked through by moves that keep the margins; of decomposable models
tables are drawn independently. Conditional p-values are shares of these tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import networkx as nx
import numpy as np
from scipy.special import gammaln

from ...data.observations import Observations
from ...errors import out_of_reach, size_text
from ...structure.hypergraph import InteractionHypergraph
from ..fitting.design import cell_numbers
from ._fibre_kernels import MAX_LEVELS, chains, enumerate_tables, walk
from .bootstrap import MIN_TABLES, PValue, bootstrap_cost, drawn_statistics, marginal_cells

_MAX_NODES = 10**6
_MAX_TABLES = 5000
_MAX_ENTRIES = 2**22
_MAX_TOTAL = 10**7  # rows, up to which factorials are accurate to 1e-7
_MAX_SEPARATED = 10  # variables whose subsets are all tried as separators
_MAX_STRUCTURES = 400
_MAX_PARTS = 2**24  # blocks times cells

Blocks = tuple[tuple[int, ...], ...]


_Moves = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Moves as the kernels take them: of every structure how many blocks it has, the first one and the longest circuit; of
every block the part of each cell's number that comes from it (last, of none); where its offsets start, how many it has;
the offsets."""


class Fibre:
    """Walks through the tables that share the margins of a hierarchical model with an observed one.

    A move is a product of differences of two levels, one for each block of variables, where no interaction of the model
    meets every block; in the first two blocks a circuit of more levels may stand for the product of two differences.
    Blocks of several variables let one variable stay, or copy another.

    Args:
        hypergraph: a hierarchical collection.
        allowed: cells that may hold rows (num_states,), bool.

    Attributes:
        is_connected: whether the moves are known to connect every fibre.

    References:
        Adrian Dobra, Markov bases for decomposable graphical models, Bernoulli 9(6), 2003, theorem 4.4; Persi Diaconis
        and Bernd Sturmfels, Algebraic algorithms for sampling from conditional distributions, Annals of Statistics
        26(1), 1998, section 4, for two levels and circuits.
    """

    def __init__(self, hypergraph: InteractionHypergraph, allowed: np.ndarray) -> None:
        self._cards = hypergraph.domain.cardinalities
        self._allowed = np.ascontiguousarray(allowed, dtype=bool)
        free = [i for i, card in enumerate(self._cards) if card > 1]
        facets = {frozenset(hypergraph.domain.indices(edge)) & frozenset(free) for edge in hypergraph.maximal_edges}
        self._facets = [facet for facet in facets if not any(facet < other for other in facets)]
        self._free = free
        # Structures of blocks, first the minimal ones of single variables, then two sides of every separator.
        missing = list[tuple[int, ...]]()
        largest = max((len(facet) for facet in self._facets), default=0) + 1
        for size in range(1, min(largest, len(self._free)) + 1):
            for which in itertools.combinations(self._free, size):
                if len(missing) == _MAX_STRUCTURES:
                    break
                if not any(set(which) <= facet for facet in self._facets) and not any(
                    set(other) < set(which) for other in missing
                ):
                    missing.append(which)
        structures = [tuple((i,) for i in which) for which in missing]
        structures += [self._grown(blocks, first) for blocks in structures for first in (None, *blocks)]
        structures += self._sides()
        structures = list(dict.fromkeys(structures))
        most = _MAX_PARTS // len(allowed)
        sizes = np.cumsum([len(blocks) * max(1, math.comb(len(blocks), 2)) for blocks in structures])
        self._structures = structures[: max(1, int((sizes <= most).sum()))]
        is_whole = bool(allowed.all()) and len(structures) == len(self._structures)
        self.is_connected = is_whole and self._is_known(hypergraph)
        self._moves = self._compiled() if self._structures else None

    def _grown(self, blocks: Blocks, first: tuple[int, ...] | None) -> Blocks:
        """Blocks that take in all other variables that they can, one of them before others, else the smallest."""
        now = [list(block) for block in blocks]
        for i in self._free:
            if not any(i in block for block in now):
                for block in sorted(now, key=lambda b: (first is None or b[0] != first[0], len(b))):
                    block.append(i)
                    if not any(all(facet.intersection(part) for part in now) for facet in self._facets):
                        break
                    block.pop()
        return tuple(tuple(sorted(block)) for block in now)

    def _sides(self) -> list[Blocks]:
        """Both sides of every minimal separator of the graph in which variables of one interaction are joined."""
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(self._free)
        for facet in self._facets:
            graph.add_edges_from(itertools.combinations(sorted(facet), 2))
        sides = list[Blocks]()
        if len(self._free) > _MAX_SEPARATED:
            return sides
        for size in range(len(self._free) - 1):
            for separator in itertools.combinations(self._free, size):
                rest = [i for i in self._free if i not in separator]
                parts = [sorted(part) for part in nx.connected_components(graph.subgraph(rest))]
                borders = [{i for j in part for i in graph.neighbors(j)} - set(part) for part in parts]
                if sum(border == set(separator) for border in borders) < 2:
                    continue
                for part in parts[: len(parts) - (len(parts) == 2)]:
                    sides.append((tuple(part), tuple(i for i in rest if i not in part)))
        return sides[:_MAX_STRUCTURES]

    def _is_known(self, hypergraph: InteractionHypergraph) -> bool:
        """Decomposable models, and that of all pairs of three variables of which one has two levels."""
        if hypergraph.is_decomposable and len(self._free) <= _MAX_SEPARATED:
            return True
        cards = sorted(self._cards[i] for i in self._free)
        is_all_pairs = len(cards) == 3 and len(self._facets) == 3 and all(len(facet) == 2 for facet in self._facets)
        return is_all_pairs and cards[0] == 2 and cards[1] <= MAX_LEVELS

    def _compiled(self) -> _Moves:
        """Offsets of all levels of all blocks; every pair of blocks that has circuits comes first in turn."""
        # Blocks as parts of a cell's number.
        strides = np.cumprod([1, *self._cards[:0:-1]])[::-1]
        codes = np.indices(self._cards).reshape(len(self._cards), -1)
        shapes, of_block, sizes, offsets = list[list[int]](), list[np.ndarray](), list[list[int]](), list[np.ndarray]()
        start = 0
        for structure in self._structures:
            parts = [sum(codes[i] * strides[i] for i in block) for block in structure]
            levels = [np.unique(part) for part in parts]
            # Every pair of blocks that has circuits comes first in turn.
            orders = [
                (i, j)
                for i, j in itertools.combinations(range(len(structure)), 2)
                if min(len(levels[i]), len(levels[j])) > 2
            ] or [tuple(range(min(2, len(structure))))]
            for pair in orders:
                longest = min(MAX_LEVELS, *(len(levels[i]) for i in pair)) if len(structure) > 2 else 2
                shapes.append([len(structure), len(sizes), longest])
                for i in (*pair, *(k for k in range(len(structure)) if k not in pair)):
                    of_block.append(np.asarray(parts[i], dtype=np.int32))
                    sizes.append([start, len(levels[i])])
                    offsets.append(levels[i])
                    start += len(levels[i])
        of_block.append(np.zeros(codes.shape[1], dtype=np.int32))
        return np.array(shapes), np.array(of_block), np.array(sizes), np.concatenate(offsets).astype(np.int64)

    def chains(self, counts: np.ndarray, num_steps: int, seed: int, *, is_sparse: bool = False) -> ParallelChains:
        """Chains from a table of whole counts (num_states,).

        In sparse tables every other move is found among the rows, of which there are less than 2^31. Whether a table is
        sparse is a matter of its fitted margins, so that all tables that share them are walked alike.
        """
        assert self._moves is not None
        return ParallelChains(self._moves, self._allowed, counts, num_steps, seed, is_sparse)


class ParallelChains:
    r"""Tables exchangeable with an observed one, whatever the number of steps.

    One chain goes from the observed table to a hidden one, and from there one chain to each table drawn. Steps are
    reversible, so that under the model the observed table and those drawn could stand in any order.

    References:
        Julian Besag and Peter Clifford, Generalized Monte Carlo significance tests, Biometrika 76(4), 1989, section 2,
        the parallel method.
    """

    def __init__(
        self, moves: _Moves, allowed: np.ndarray, counts: np.ndarray, num_steps: int, seed: int, is_sparse: bool
    ) -> None:
        self._rest = (allowed, *moves, is_sparse)
        self._state = np.random.SeedSequence(seed).generate_state(1, np.uint64)
        self._num_steps = num_steps
        self._hidden = counts.astype(np.int64)
        self.num_moves: int = walk(self._hidden, num_steps, self._state, *self._rest)

    def draw(self, size: int) -> np.ndarray:
        """Tables (size, num_states)."""
        out = np.empty((size, len(self._hidden)), dtype=np.int64)
        self.num_moves += chains(self._hidden, self._num_steps, self._state, *self._rest, out)
        return out


def listed_tables(
    counts: np.ndarray, allowed: np.ndarray, margins: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray] | None:
    """All tables of a small fibre (num_tables, num_states) and their probabilities; None where it is too large to list.

    ``counts`` and ``allowed`` are (num_states,), each margin the number of the marginal cell of every cell.
    """
    # Margins as totals of numbered groups; cells of empty ones hold nothing.
    cells = np.flatnonzero(allowed)
    if not len(margins) or counts.sum() > _MAX_TOTAL or (most := min(_MAX_TABLES, _MAX_ENTRIES // len(counts))) < 1:
        return None
    members, left, start = list[np.ndarray](), list[np.ndarray](), 0
    for margin in margins:
        left.append(np.bincount(margin, counts))
        members.append(margin + start)
        start += len(left[-1])
    totals = np.concatenate(left).astype(np.int64)
    group = np.stack(members, axis=1)[cells]
    open_cells = (totals[group] > 0).all(1)
    cells, group = cells[open_cells], group[open_cells]
    # The last cell of a group takes what is left.
    is_last = np.zeros(group.shape, dtype=bool)
    for m in range(group.shape[1]):
        reversed_first = np.unique(group[::-1, m], return_index=True)[1]
        is_last[len(group) - 1 - reversed_first, m] = True
    out = np.empty((most, len(cells)), dtype=np.int64)
    number = enumerate_tables(totals, np.ascontiguousarray(group), is_last, out, _MAX_NODES)
    if number < 1:
        return None
    # Their law, whatever the parameters.
    tables = np.zeros((number, len(counts)), dtype=np.int64)
    tables[:, cells] = out[:number]
    logs = -gammaln(tables + 1.0).sum(1)
    probs = np.exp(logs - logs.max())
    return tables, probs / probs.sum()


# Tables of a decomposable model drawn given the margins that it fits, for exact tests of that model.

_MOST_VALUES = 2**26
_DEALT = 2**15  # rows


def conditional_cost(hypergraph: InteractionHypergraph, data: Observations) -> float:
    """Rows that are moved for one table, and cells that are read."""
    return data.total_count * len(hypergraph.junction_tree()) + hypergraph.domain.num_states / 8


def conditional_tables(
    hypergraph: InteractionHypergraph, data: Observations, cells: np.ndarray, seed: int
) -> Callable[[int], np.ndarray]:
    """Tables (cells in the mask, size) drawn given the observed margins of the cliques, by moving every row.

    IntractableError for more than 2^26 values of rows.

    References:
        Alan Agresti, A survey of exact inference for contingency tables, 1992, section 3; Steffen Lauritzen, Graphical
        Models, 1996, section 4.4.
    """
    domain = hypergraph.domain
    cards = domain.cardinalities
    if (values := int(data.total_count) * len(domain)) > _MOST_VALUES:
        problem = f"an exact test moves every row, {size_text(values, 'values')}, more than {_MOST_VALUES}"
        raise out_of_reach("p_value", problem, "use 'chi-square' or 'bootstrap'")
    # Every row moves with its clique: what a step deals anew is the rest of the clique given the separator.
    rows = data.unique()  # the same tables whatever the order of the rows
    codes = np.repeat(rows.codes.numpy(), rows.counts.numpy().astype(np.int64), axis=0)
    parts = codes * np.array([math.prod(cards[i + 1 :]) for i in range(len(cards))], dtype=np.int64)  # of cell numbers
    tree = hypergraph.junction_tree()
    asked = {i for node in tree for i in domain.indices(node.separator)}
    loose = set(range(len(cards)))
    steps: list[tuple[list[int], np.ndarray, dict[int, np.ndarray]]] = []
    for node in tree:
        separator = list(domain.indices(node.separator))
        added = [i for i in domain.indices(node.clique) if i not in separator]
        order = np.argsort(cell_numbers(codes, separator, cards), kind="stable")
        steps.append((separator, parts[order][:, added].sum(1), {i: codes[order, i] for i in asked & set(added)}))
        loose.difference_update(added)
    # Variables without an interaction are dealt on their own.
    random = np.random.default_rng(seed)
    most = max(1, _DEALT // max(1, len(codes)))  # tables at a time, such that what is dealt stays in a cache

    def dealt(size: int) -> np.ndarray:
        states, numbers = np.zeros((size, len(codes)), dtype=np.int64), np.empty((size, len(steps), len(codes)))
        for state, number in zip(states, numbers, strict=True):
            for i in loose:
                state += random.permutation(parts[:, i])
            random.random(out=number)
        values = {i: np.empty_like(states) for i in asked}
        for step, (separator, moved, passed) in enumerate(steps):
            keys = numbers[:, step]
            if separator:
                keys = keys + sum(values[i] * math.prod(cards[j] for j in separator if j > i) for i in separator)
            order = np.argsort(keys) + len(codes) * np.arange(size)[:, None]
            states.ravel()[order] += moved
            for i, column in passed.items():
                values[i].ravel()[order] = column
        states += len(cells) * np.arange(size)[:, None]
        return np.bincount(states.ravel(), minlength=size * len(cells)).reshape(size, -1)

    def draw(size: int) -> np.ndarray:
        tables = [dealt(min(most, size - start))[:, cells] for start in range(0, size, most)]
        return np.concatenate(tables).T.astype(float) if tables else np.empty((int(cells.sum()), 0))

    return draw


# A test among the tables of a fibre, listed or reached by moves.

_STEPS_PER_CELL = 10  # G2 forgets where it was in about one move a cell
_MIN_STEPS, _LEAST_BOUNDED = 200, 1000
_STEP = 25  # cost of a step, in cell updates of a refit
_SEARCH = 0.5  # cost of a step of sparse tables, for every cell that holds rows
_SPARSE = 0.25  # share of cells that hold rows, below which moves are found among the rows
_MOST_SPARSE = 2**31  # rows
_ROUNDING = 1e-9


def conditional_p_value(
    small: InteractionHypergraph,
    big: InteractionHypergraph | None,
    counts: np.ndarray,
    expected: np.ndarray,
    df: int,
    *,
    possible: np.ndarray | None = None,
    num_tables: int,
    seed: int,
    budget: float = math.inf,
) -> tuple[PValue, float]:
    r"""Conditional test of a hierarchical model against a larger one, or against the saturated model.

    .. math:: p = \sum_{n' \in F} \frac{[T(n') \ge T(n)]}{\prod_x n'_x!} \Big/ \sum_{n' \in F} \frac{1}{\prod_x n'_x!}

    The fibre F holds the tables with the margins that the small model fits, and T is G2 of the small model less that of
    the larger one. A small fibre is listed. Of others, tables are drawn by chains of moves, by the parallel method; the
    p-value is then valid whatever the number of steps, and it is conditional on the part of F that the moves connect.
    Beside it comes the share of tables whose G2 is larger than the observed one, without ties.

    Args:
        small: the null model, hierarchical.
        big: a hierarchical model that contains it; None for the saturated one.
        counts: whole numbers (num_states,).
        expected: expected counts of the small model (num_states,), 0 where it is known that no table has rows.
        df: degrees of freedom of the test, for the accuracy of refits.
        possible: cells that are no structural zeros (num_states,), bool; None for all.
        num_tables: tables to draw.
        seed: of the chains.
        budget: most cell updates; at least 99 tables are drawn whatever it is, by shorter chains.

    References:
        Julian Besag and Peter Clifford, Generalized Monte Carlo significance tests, Biometrika 76(4), 1989; Alan
        Agresti, A survey of exact inference for contingency tables, Statistical Science 7(1), 1992, section 3.
    """
    cells = expected > 0
    margins = marginal_cells(small, np.ones(len(cells), dtype=bool))
    larger = None if big is None else marginal_cells(big, cells)

    def compared(draw: Callable[[int], np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which tables, the observed one first, have as large a G2, a larger one, as large an X2."""
        # Statistics against the small model's expected counts, less those of the larger one's refit.
        statistics = drawn_statistics(
            draw, counts[cells], expected[cells], [], larger, df, num_tables=size, budget=math.inf, drawing=0
        )
        deviance, other = (values - values[0] for values in (statistics.deviance, statistics.pearson))
        slack, rough = (_ROUNDING * (1 + abs(values[0])) for values in (statistics.deviance, statistics.pearson))
        return deviance >= -slack, deviance > slack, other >= -rough

    # A small fibre is listed whole, and the p-value exact.
    listed = listed_tables(counts, cells, margins)
    if listed is not None:
        tables, probs = listed
        columns, done = tables[:, cells].T.astype(float), itertools.count()
        draw = lambda size: columns[:, list(itertools.islice(done, size))]  # noqa: E731
        shares = [float(probs @ which[1:]) for which in compared(draw, len(tables))]
        error, num_tables = 0.0, 0
        note = f"the p-value is over all {len(tables):,} tables with the fitted margins"
        note = note if len(tables) > 1 else "no other table has the fitted margins"
    else:
        # Of any other one chains reach as many tables as the budget allows, by at least so many steps each.
        fibre = Fibre(small, np.ones(len(cells), dtype=bool) if possible is None else possible)
        refit = bootstrap_cost(int(cells.sum()), len(larger or ()))
        num_occupied = -float(np.expm1(-expected).sum())
        is_sparse = bool(num_occupied < _SPARSE * cells.sum() and counts.sum() < _MOST_SPARSE)
        step = _STEP + is_sparse * _SEARCH * num_occupied
        steps = max(_MIN_STEPS, _STEPS_PER_CELL * int(cells.sum()))
        if budget < math.inf:
            least = min(steps, _LEAST_BOUNDED)
            steps = int(max(least, min(steps, budget / (2 * MIN_TABLES * step))))
            num_tables = int(np.clip(budget // (steps * step + refit), MIN_TABLES, num_tables))
        walked = fibre.chains(counts, steps, seed, is_sparse=is_sparse)
        shares = [
            float(which.mean())
            for which in compared(lambda size: walked.draw(size)[:, cells].T.astype(float), num_tables)
        ]
        error = math.sqrt(shares[0] * (1 - shares[0]) / num_tables)
        about = "reach all tables with the fitted margins"
        if not walked.num_moves:
            about = "found no other table with the fitted margins"
        elif not fibre.is_connected:
            about = "may not reach all tables with the fitted margins: the p-value is conditional on those they reach"
        note = f"chains of {steps:,} moves {about}"
    share, strict, pearson = shares
    value = PValue(
        p_value_note=note,
        p_value=min(1.0, share),
        p_value_pearson=min(1.0, pearson) if big is None else math.nan,
        p_value_method="conditional",
        p_value_std_error=error,
        num_tables=num_tables,
        p_value_statistic="deviance",
    )
    return value, strict
