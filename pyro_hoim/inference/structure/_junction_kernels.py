"""Compiled sums over rooted junction trees and draws from them (Numba, CPU). Imported when first needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit
def _log_total(values: Floats, size: int) -> float:
    """Log of the sum of the exponentials of the first values; minus infinity for none."""
    top = -np.inf
    for i in range(size):
        if values[i] > top:
            top = values[i]
    if top == -np.inf:
        return top
    total = 0.0
    for i in range(size):
        total += np.exp(values[i] - top)
    return top + np.log(total)


@njit
def _terms_of_tree(place: Ints, cliques: Floats, rests: Floats, s: int, r: int, values: Floats, chosen: Ints) -> int:
    """Log weights of the trees of S and R by their root clique C, with S < C <= S + R; their number."""
    size = 0
    part = r
    while part > 0:
        values[size] = cliques[s | part] + rests[place[s | part] + 2 * place[r ^ part]]
        chosen[size] = s | part
        size += 1
        part = (part - 1) & r
    return size


@njit
def _terms_of_branch(
    place: Ints, separators: Floats, trees: Floats, c: int, r: int, values: Floats, chosen: Ints
) -> int:
    """Log weights of one branch of clique C over R by its separator S, with S < C; their number."""
    size = 0
    part = c
    while part > 0:
        part = (part - 1) & c
        values[size] = trees[place[part] + 2 * place[r]] - separators[part]
        chosen[size] = part
        size += 1
    return size


@njit
def _terms_of_rest(index: Ints, branches: Floats, rests: Floats, c: int, u: int, values: Floats, chosen: Ints) -> int:
    """Log weights of the branches of clique C over U by the branch that holds the first variable of U; their number."""
    first = u & -u
    others = u ^ first
    size = 0
    part = others
    while True:
        values[size] = branches[index[c] + 2 * index[first | part]] + rests[index[c] + 2 * index[others ^ part]]
        chosen[size] = first | part
        size += 1
        if part == 0:
            return size
        part = (part - 1) & others


@njit(cache=True)
def sum_trees(index: Ints, cliques: Floats, separators: Floats) -> tuple[Floats, Floats, Floats]:
    """Log sums over rooted junction trees, indexed by ``index[S] + 2 index[R]`` with ``index`` in base 3.

    Returns those of the trees over R that hang from S, of the branches of a clique over R, and of all branches of a
    clique over what is left. The sums of a set ask for those of its subsets only, whose masks are smaller numbers.
    """
    num_sets = len(index)
    full = num_sets - 1
    size = 2 * index[full] + 1
    trees = np.full(size, -np.inf)
    branches = np.full(size, -np.inf)
    rests = np.full(size, -np.inf)
    values = np.empty(num_sets)
    chosen = np.empty(num_sets, dtype=np.int64)
    for c in range(num_sets):
        rests[index[c]] = 0.0
    # Sets of variables by rising masks, so that all subsets of a set come before it.
    for r in range(1, num_sets):
        outside = full ^ r
        # Trees over R below every separator outside of it.
        s = outside
        while True:
            count = _terms_of_tree(index, cliques, rests, s, r, values, chosen)
            trees[index[s] + 2 * index[r]] = _log_total(values, count)
            if s == 0:
                break
            s = (s - 1) & outside
        # Branches and what is left of R below every clique outside of it.
        c = outside
        while c > 0:
            count = _terms_of_branch(index, separators, trees, c, r, values, chosen)
            branches[index[c] + 2 * index[r]] = _log_total(values, count)
            count = _terms_of_rest(index, branches, rests, c, r, values, chosen)
            rests[index[c] + 2 * index[r]] = _log_total(values, count)
            c = (c - 1) & outside
    return trees, branches, rests


@njit
def _pick(values: Floats, size: int, uniform: float) -> int:
    """Place drawn in proportion to the exponentials of the values; the last possible one where rounding asks for it."""
    top = -np.inf
    for i in range(size):
        if values[i] > top:
            top = values[i]
    total = 0.0
    for i in range(size):
        total += np.exp(values[i] - top)
    left = uniform * total
    last = 0
    for i in range(size):
        weight = np.exp(values[i] - top)
        if weight > 0.0:
            last = i
            left -= weight
            if left < 0.0:
                break
    return last


@njit
def _draw_tree(
    index: Ints,
    cliques: Floats,
    separators: Floats,
    sums: tuple[Floats, Floats, Floats],
    uniforms: Floats,
    nodes: Ints,
    parents: Ints,
    links: Ints,
) -> int:
    """One rooted junction tree: its cliques, the place of each one's parent and its separator; their number."""
    trees, branches, rests = sums
    num_sets = len(index)
    values = np.empty(num_sets)
    chosen = np.empty(num_sets, dtype=np.int64)
    # Branches that wait for their cliques: (parent, separator, variables), at most one a variable.
    waiting = np.empty((len(nodes), 3), dtype=np.int64)
    waiting[0, 0], waiting[0, 1], waiting[0, 2] = -1, 0, num_sets - 1
    num_waiting, num_nodes, used = 1, 0, 0
    while num_waiting > 0:
        num_waiting -= 1
        # The clique on top of a branch, in proportion to the sums over what may hang from it.
        parent, s, r = waiting[num_waiting]
        count = _terms_of_tree(index, cliques, rests, s, r, values, chosen)
        c = chosen[_pick(values, count, uniforms[used])]
        used += 1
        nodes[num_nodes], parents[num_nodes], links[num_nodes] = c, parent, s
        u = (s | r) ^ c
        # What it leaves is cut into branches, each with a separator of its own.
        while u > 0:
            count = _terms_of_rest(index, branches, rests, c, u, values, chosen)
            part = chosen[_pick(values, count, uniforms[used])]
            count = _terms_of_branch(index, separators, trees, c, part, values, chosen)
            separator = chosen[_pick(values, count, uniforms[used + 1])]
            used += 2
            waiting[num_waiting, 0], waiting[num_waiting, 1], waiting[num_waiting, 2] = num_nodes, separator, part
            num_waiting += 1
            u ^= part
        num_nodes += 1
    return num_nodes


@njit
def log_num_trees(nodes: Ints, parents: Ints, links: Ints, size: int) -> float:
    """Log of the number of junction trees of the graph that has this one.

    The edges of one separator S can be set anew in t^(m - 1) prod f ways, with t cliques that hold S, m edges of S and
    the sizes f of the m + 1 pieces of those cliques without these edges, independently of other separators.
    """
    result = 0.0
    piece = np.empty(size, dtype=np.int64)
    for e in range(1, size):
        s = links[e]
        # Every separator once, whatever the number of its edges.
        is_seen = False
        for before in range(1, e):
            is_seen = is_seen or links[before] == s
        if is_seen:
            continue
        num_holding, num_edges = 0, 0
        # Parents stand before their children, so that one pass names every piece by its first clique.
        for i in range(size):
            piece[i] = -1
            if nodes[i] & s == s:
                num_holding += 1
                if i > 0 and links[i] == s:
                    num_edges += 1
                is_joined = i > 0 and links[i] != s and nodes[parents[i]] & s == s
                piece[i] = piece[parents[i]] if is_joined else i
        result += (num_edges - 1) * np.log(num_holding)
        for i in range(size):
            if piece[i] == i:
                length = 0
                for j in range(size):
                    length += piece[j] == i
                result += np.log(length)
    return result


@njit(cache=True)
def draw_graphs(
    index: Ints,
    cliques: Floats,
    separators: Floats,
    sums: tuple[Floats, Floats, Floats],
    uniforms: Floats,
    neighbours: Ints,
    log_scores: Floats,
    log_copies: Floats,
) -> None:
    """Graphs of rooted junction trees drawn in proportion to their weights, one a row of ``uniforms``.

    Fills the neighbours of every variable (bit masks that hold the variable itself), the log weight of the graph, and
    the log of the number of its rooted junction trees, which is how many times too often it is drawn.
    """
    num_variables = neighbours.shape[1]
    nodes = np.empty(num_variables, dtype=np.int64)
    parents = np.empty(num_variables, dtype=np.int64)
    links = np.empty(num_variables, dtype=np.int64)
    for k in range(len(uniforms)):
        size = _draw_tree(index, cliques, separators, sums, uniforms[k], nodes, parents, links)
        # Cliques less separators are the weight; members of a clique are neighbours of each other.
        score = 0.0
        neighbours[k] = 0
        for i in range(size):
            score += cliques[nodes[i]]
            if i > 0:
                score -= separators[links[i]]
            for v in range(num_variables):
                if nodes[i] >> v & 1:
                    neighbours[k, v] |= nodes[i]
        log_scores[k] = score
        log_copies[k] = log_num_trees(nodes, parents, links, size) + np.log(size)
