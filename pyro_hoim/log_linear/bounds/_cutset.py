"""Few variables that, once they are fixed, leave a model that elimination can sum.

They are separators of the graph of interactions, found by its spectrum. As many of them as possible are then let free
again.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..._modes import plain_mode
from ...structure.elimination_order import least_fill, neighbour_pairs
from ...structure.hypergraph import InteractionHypergraph

_SHIFT = 1e-3  # makes the Laplacian of a graph definite
_EQUAL = 1.05  # eigenvalues within this factor count as one, of which several vectors are tried
_TRIES = 4
_DENSE = 12  # variables from which on a sparse eigensolver is used
_MOST = 24  # attempts to let variables free


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


def _separators(pairs: NDArray[np.int64], cards: tuple[int, ...], max_cells: int) -> list[int]:
    """Variables that divide the graph into pieces each of which can be summed within ``max_cells``."""
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
    return fixed


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
    fixed = sorted(_separators(pairs, cards, max_cells))
    fixed = _along(_edges(pairs, every, len(cards)), fixed)
    free = sorted(set(every) - set(fixed))
    # Halves of the separators are let free, then halves of these, as long as the others can be summed.
    waiting, tries, needed = [fixed] if fixed else [], 0, list[int]()
    while waiting:
        some = waiting.pop()
        tries += 1
        if tries <= _MOST and _fits(pairs, cards, sorted([*free, *some]), max_cells):
            free += some
        elif len(some) > 1 and tries <= _MOST:
            half = len(some) // 2
            waiting += [some[half:], some[:half]]
        else:
            needed += some
    return tuple(sorted(needed))
