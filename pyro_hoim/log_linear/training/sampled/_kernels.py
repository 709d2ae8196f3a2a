"""Compiled loops of sampled training (Numba, CPU): margins of many sets, parents in a network. Imported when needed."""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

import math

import numpy as np

from ....compute.jit import njit

_LANES = 2048  # states whose cells are looked up together


@njit(cache=True)
def add_margins(codes, weights, first, members, variables, strides, begin, step, total):
    """Add the weights (N,) of states, codes (d, N), to their cells of every ``step``-th set from ``begin``.

    Sets are laid out as for chains: first cell and first member (one more than sets), positions and strides.
    """
    num = codes.shape[1]
    index = np.empty(_LANES, dtype=np.int64)
    for start in range(0, num, _LANES):
        size = min(_LANES, num - start)
        for e in range(begin, first.shape[0], step):
            index[:size] = first[e]
            for j in range(members[e], members[e + 1]):
                column, stride = codes[variables[j]], strides[j]
                for b in range(size):
                    index[b] += stride * np.int64(column[start + b])
            for b in range(size):
                total[index[b]] += weights[start + b]


@njit(cache=True)
def parent_scores(columns, cards, counts, child, cells, fitted, prior, parents, max_cells):
    """Log-likelihood (parents,) of a variable when each row is left out, with one more parent each.

    Minus infinity where the table of the family would be larger than ``max_cells``. One pass over the rows and one over
    the cells for every parent.

    Shapes: columns (d, U) codes, cards (d,), counts (U,), cells (U,) states of the parents so far, fitted (states of
    these, levels) their law, parents (m,).
    """
    size, levels = fitted.shape
    scores = np.full(parents.shape[0], -np.inf)
    table = np.empty(max_cells)
    levels_of = columns[child]
    for k in range(parents.shape[0]):
        n = cards[parents[k]]
        length = size * n * levels
        if n < 2 or length > max_cells:
            continue
        # Count the family in one pass over the rows.
        other = columns[parents[k]]
        table[:length] = 0.0
        for r in range(counts.shape[0]):
            table[(cells[r] * n + other[r]) * levels + levels_of[r]] += counts[r]
        # Then every row is predicted by the others, shrunken towards the law without this parent.
        score = 0.0
        for cell in range(size * n):
            first = cell * levels
            total = 0.0
            for x in range(levels):
                total += table[first + x]
            rest = max(total - 1, 0.0) + prior
            for x in range(levels):
                c = table[first + x]
                if c > 0:
                    score += c * math.log((max(c - 1, 0.0) + prior * fitted[cell // n, x]) / rest)
        scores[k] = score
    return scores
