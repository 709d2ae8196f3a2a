"""Compiled search for the next parent of a variable in a directed network (Numba, CPU). Imported when first needed."""
# pyright: reportUntypedFunctionDecorator=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np

from ....compute.jit import njit


@njit(nogil=True, cache=True, error_model="numpy")
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
    own = columns[child]
    for k in range(parents.shape[0]):
        n = cards[parents[k]]
        length = size * n * levels
        if n < 2 or length > max_cells:
            continue
        other = columns[parents[k]]
        table[:length] = 0.0
        for r in range(counts.shape[0]):
            table[(cells[r] * n + other[r]) * levels + own[r]] += counts[r]
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
