"""Elimination orders: in which sequence to sum variables out, and what the largest table then costs."""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import conflict
from .hypergraph import InteractionHypergraph

_Score = Callable[[int, int], tuple[float, ...]]


def members(mask: int) -> Iterator[int]:
    """Positions of the bits that are set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _eliminate(graph: list[int], v: int) -> int:
    """Join the neighbours of ``v`` pairwise, take it out, return them. Sets of variables are bit masks."""
    around = graph[v]
    for u in members(around):
        graph[u] = (graph[u] | around) & ~(1 << u | 1 << v)
    return around


def _fill(graph: list[int], v: int, clique: int = 0) -> int:
    """Pairs of neighbours of ``v`` that are not joined; ``clique`` is a set of variables known to be joined."""
    around = graph[v]
    outside = around & ~clique
    inside = around & clique
    pairs = across = 0
    for u in members(outside):
        missing = ~graph[u]
        across += (inside & missing).bit_count()
        pairs += (outside & missing).bit_count() - 1
    return across + pairs // 2


def _greedy(adjacency: list[int], cards: tuple[int, ...], left: list[int], score: _Score) -> list[int]:
    """Eliminate, one by one, the variable of the lowest score; ties go to the one of the most levels.

    A heap holds a score for every variable and, after each step, new ones for those whose score may have changed;
    entries that are no longer true are passed over. Fill-in is counted anew for the neighbours of the variable that
    goes, which then form a clique; any other variable only loses the pairs that the step has joined.
    """
    # Fill-in and table size of every variable, and a heap of scores from them.
    graph = list(adjacency)
    open_ = sum(1 << v for v in left)
    fill = {v: _fill(graph, v) for v in left}
    cells = {v: cards[v] * math.prod(cards[u] for u in members(graph[v])) for v in left}
    current = {v: (*score(fill[v], cells[v]), -cards[v], v) for v in left}
    heap = list(current.values())
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        entry = heapq.heappop(heap)
        best = int(entry[-1])
        if current.get(best) != entry:
            continue
        del current[best]
        order.append(best)
        open_ &= ~(1 << best)
        # What the step changes: sizes of the neighbours, and fill-in of what two of them that it joins have in common.
        around = graph[best]
        changed = around
        for u in members(around):
            joined = around & ~graph[u] & ~(1 << u)
            if u in cells:
                cells[u] = cells[u] // cards[best] * math.prod(cards[w] for w in members(joined))
            for w in members(joined >> u << u):
                common = graph[u] & graph[w] & ~around & open_
                changed |= common
                for x in members(common):
                    fill[x] -= 1
        # Neighbours are a clique now, and scores of all that changed are entered anew.
        _eliminate(graph, best)
        for u in members(around & open_):
            fill[u] = _fill(graph, u, around)
        for u in members(changed & open_):
            current[u] = (*score(fill[u], cells[u]), -cards[u], u)
            heapq.heappush(heap, current[u])
    return order


def table_cells(
    adjacency: list[int], cards: tuple[int, ...], order: list[int], most: float = math.inf
) -> tuple[float, int]:
    """Cells of all tables formed, infinitely many as soon as they exceed ``most``, and of the largest."""
    graph = list(adjacency)
    total = largest = 0
    for v in order:
        cells = cards[v] * math.prod(cards[u] for u in members(_eliminate(graph, v)))
        total, largest = total + cells, max(largest, cells)
        if total > most:
            return math.inf, 0
    return total, largest


def elimination_order(
    hypergraph: InteractionHypergraph, keep: Iterable[str] = (), first: Iterable[str] = ()
) -> tuple[str, ...]:
    """A good order in which to sum out all variables except ``keep``.

    Finding the best order is NP-hard. Candidates are three greedy rules (least fill-in, then smallest table; smallest
    table, then least fill-in; fill-in weighted by the logarithm of table size), the schema order and the reverse
    Cuthill-McKee order, which are good on grids and chains. The candidate that forms the fewest cells is returned,
    ties going to the smaller largest table. Deterministic; a grid of 900 variables takes a fifth of a second.

    Args:
        hypergraph: the interactions.
        keep: variables that stay; they are in no step's elimination but may be in its table.
        first: other variables than these, which are summed out first, in this order; the rest follow in a good one.
    """
    stay = frozenset(hypergraph.domain.indices(keep))
    leading = list(hypergraph.domain.indices(first))
    if not stay.isdisjoint(leading):
        raise conflict("first", "holds a variable that is kept")
    # The interaction graph as bit masks, without the variables that go first.
    size = len(hypergraph.domain)
    cards = hypergraph.domain.cardinalities
    # Bit masks of the variables that share an interaction with each variable.
    adjacency = [0] * size
    for edge in hypergraph.edge_indices:
        mask = sum(1 << v for v in edge)
        for v in edge:
            adjacency[v] |= mask & ~(1 << v)
    rest = list(adjacency)
    for v in leading:
        _eliminate(rest, v)
    left = [v for v in range(size) if v not in stay and v not in set(leading)]
    # Candidates by rules, and orders that are good on grids and chains.
    rules: tuple[_Score, ...] = (
        lambda fill, cells: (fill, cells),
        lambda fill, cells: (cells, fill),
        lambda fill, cells: ((fill + 1) * math.log(cells),),
    )
    candidates = [*(_greedy(rest, cards, left, rule) for rule in rules), left]
    if len(left) > 2:
        pairs = [(v, u) for v in left for u in (v, *members(rest[v]))]
        rows, columns = zip(*pairs, strict=True)
        # A banded order.
        graph = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
        order, wanted = sparse.csgraph.reverse_cuthill_mckee(graph, symmetric_mode=True), set(left)
        candidates.append([int(v) for v in order if v in wanted])
    # The one that forms the fewest cells.
    best, fewest = leading, (math.inf, 0)
    for candidate in candidates:
        cost = table_cells(adjacency, cards, leading + candidate, fewest[0])
        if cost < fewest:
            best, fewest = leading + candidate, cost
    return tuple(hypergraph.domain.names[v] for v in best)


def first_fit(
    births: Sequence[int], deaths: Sequence[int], size: Sequence[int], start: int, offset: NDArray[np.int64]
) -> int:
    """First-fit places for nodes alive from birth to death (inclusive); writes ``offset``, returns the length."""
    free: list[tuple[int, int]] = []  # start, length
    top = start
    ending: dict[int, list[int]] = {}
    for node in sorted((n for n in range(len(births)) if births[n] >= 0), key=lambda n: births[n]):
        # Nodes that nobody reads any more leave their places, which join those beside them.
        for time in [t for t in ending if t < births[node]]:
            free.extend((int(offset[n]), size[n]) for n in ending.pop(time))
        free.sort()
        joined: list[tuple[int, int]] = []
        for begin, length in free:
            if joined and sum(joined[-1]) == begin:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((begin, length))
        free = joined
        # The tightest gap that is large enough, else new cells at the end.
        fit = [gap for gap in free if gap[1] >= size[node]]
        if fit:
            gap = min(fit, key=lambda g: g[1])
            free.remove(gap)
            offset[node] = gap[0]
            if gap[1] > size[node]:
                free.append((gap[0] + size[node], gap[1] - size[node]))
        else:
            offset[node] = top
            top += size[node]
        ending.setdefault(deaths[node], []).append(node)
    return top


# Elimination orders of least fill-in by compiled code: bounds and cutsets try tens of them for one model.


@lru_cache(maxsize=64)
def neighbour_pairs(hypergraph: InteractionHypergraph) -> NDArray[np.int64]:
    """Pairs of variables (n, 2) that share an interaction, each once."""
    pairs = {pair for edge in hypergraph.edge_indices for pair in combinations(sorted(edge), 2)}
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def least_fill(
    pairs: NDArray[np.int64],
    cards: tuple[int, ...],
    variables: list[int],
    random: np.random.Generator | None = None,
    most: float = math.inf,
) -> tuple[list[int], float]:
    """Some variables in an order of least fill-in, then smallest table, and the cells of the largest table.

    Ties go to the variable of the most levels, then to the first in the list, or to any if ``random`` is given. With
    ``most`` the order ends as soon as a table has more cells.
    """
    from ._order_kernels import order_of_least_fill

    number = np.full(len(cards), -1, dtype=np.int64)
    number[variables] = np.arange(len(variables))
    inside = number[pairs]
    inside = inside[(inside >= 0).all(1)]
    ties = np.arange(len(variables)) if random is None else random.permutation(len(variables))
    order = np.zeros(len(variables), dtype=np.int64)
    levels = np.array([cards[v] for v in variables], dtype=np.int64)
    largest = float(order_of_least_fill(inside, levels, ties, float(most), order))
    return [variables[k] for k in order.tolist()], largest


# Sets of variables that are drawn by elimination: how their tables meet, and covers by sets of low treewidth.

Block = tuple[int, ...]
_MOST_ROUNDS = 8


class BlockBucket(NamedTuple):
    """One step of an elimination within a block: a variable, and those of the block that its message is about."""

    variable: int
    scope: Block


@lru_cache(maxsize=1024)
def block_buckets(hypergraph: InteractionHypergraph, block: Block) -> tuple[BlockBucket, ...]:
    """Buckets of the variables of a block in the order of a good elimination, all other variables given.

    Interactions lose their members outside of the block. Positions are those of the schema; scopes are sorted.
    """
    domain, members = hypergraph.domain, set(block)
    inside = {tuple(v for v in edge if v in members) for edge in hypergraph.edge_indices}
    names = domain.names
    part = InteractionHypergraph(
        domain.project([names[v] for v in block]),
        [tuple(names[v] for v in edge) for edge in inside if edge],
        hierarchical=False,
    )
    # A message meets what is left of the interactions and messages around its variable.
    around: dict[int, set[int]] = {v: set() for v in block}
    for edge in inside:
        for v in edge:
            around[v].update(edge)
    buckets: list[BlockBucket] = []
    for v in domain.indices(elimination_order(part)):
        scope = around.pop(v) - {v}
        for u in scope:
            around[u] = (around[u] | scope) - {v}
        buckets.append(BlockBucket(v, tuple(sorted(scope))))
    return tuple(buckets)


def bucket_cells(buckets: Iterable[BlockBucket], cards: Sequence[int]) -> int:
    """Cells of all tables that are formed when buckets are eliminated."""
    return sum(cards[v] * math.prod(cards[u] for u in scope) for v, scope in buckets)


def low_width_blocks(
    hypergraph: InteractionHypergraph, free: Iterable[int], width: int, max_cells: int
) -> tuple[Block, ...]:
    """Connected blocks that cover the free variables, with induced interaction graphs of treewidth at most ``width``.

    In a round variables of few neighbours are eliminated one by one; where all that are left have more than ``width``,
    the one of most neighbours is left out. The connected parts of what was eliminated are blocks, whose tables have at
    most ``max_cells`` cells together, but for variables without neighbours. Another round follows as long as variables
    are in no block; it leaves out those that are in one first, so that blocks of different rounds overlap: what no
    block moves together would mix as slowly as single variables do. Parts that lie in an earlier block are dropped.
    What is left after eight rounds are blocks of one variable.

    References:
        Bozhena Bidyuk and Rina Dechter, On finding minimal w-cutset, UAI 2004 (greedy choices); Firas Hamze and Nando
        de Freitas, From fields to trees, UAI 2004.
    """
    left = set(free)
    around: dict[int, set[int]] = {v: set() for v in left}
    for edge in hypergraph.edge_indices:
        members = left.intersection(edge)
        for v in members:
            around[v] |= members
    for v in left:
        around[v].discard(v)
    covered = set[int]()
    blocks: list[Block] = []
    blocks_with: dict[int, list[set[int]]] = {v: [] for v in left}
    for _ in range(_MOST_ROUNDS):
        graph = {v: set(others) for v, others in around.items()}
        chosen = _eliminated(graph, covered, hypergraph.domain.cardinalities, width, max_cells)
        parts = _connected({v: around[v] & chosen for v in chosen})
        new = [part for part in parts if not any(set(part) <= block for block in blocks_with[part[0]])]
        for part in new:
            members = set(part)
            for v in part:
                blocks_with[v].append(members)
        blocks += new
        covered |= chosen
        if covered == left:
            break
    return (*blocks, *((v,) for v in sorted(left - covered)))


def _eliminated(
    graph: dict[int, set[int]], covered: set[int], cards: Sequence[int], width: int, max_cells: int
) -> set[int]:
    """Variables that can be eliminated together; the graph is used up, and covered variables are left out first."""
    chosen, total = set[int](), 0

    beside = {v for v, others in graph.items() if not others <= covered}  # ties keep these with what is in no block

    def rank(v: int) -> tuple[bool, int, bool, int]:
        return v not in covered, -len(graph[v]), v in beside, v

    # Heaps of the variables of few neighbours, and of all; ranks in the latter are brought up to date at the top.
    few = [(len(others), v) for v, others in graph.items() if len(others) <= width]
    many = [rank(v) for v in graph]
    heapq.heapify(few)
    heapq.heapify(many)
    while graph:
        while few and (few[0][1] not in graph or len(graph[few[0][1]]) != few[0][0]):
            heapq.heappop(few)
        if few:
            # The variable of fewest neighbours, if its table is small enough; else it waits until a neighbour goes.
            number, v = heapq.heappop(few)
            cells = cards[v] * math.prod(cards[u] for u in graph[v])
            if number and total + cells > max_cells:
                continue
            total += cells
            chosen.add(v)
            around = graph.pop(v)
            added = around
        else:
            while (v := many[0][-1]) not in graph or rank(v) != many[0]:
                heapq.heappop(many)
                if v in graph:
                    heapq.heappush(many, rank(v))
            around, added = graph.pop(v), set[int]()
        for u in around:
            before = len(graph[u])
            graph[u] |= added
            graph[u] -= {u, v}
            if len(graph[u]) <= width:
                heapq.heappush(few, (len(graph[u]), u))
            if len(graph[u]) > before:
                heapq.heappush(many, rank(u))
    return chosen


def _connected(graph: dict[int, set[int]]) -> list[Block]:
    """Connected parts of a graph, each sorted, in the order of their first members."""
    seen, parts = set[int](), list[Block]()
    for first in sorted(graph):
        if first in seen:
            continue
        part, waiting = {first}, [first]
        while waiting:
            new = graph[waiting.pop()] - part
            part |= new
            waiting.extend(new)
        seen |= part
        parts.append(tuple(sorted(part)))
    return parts
