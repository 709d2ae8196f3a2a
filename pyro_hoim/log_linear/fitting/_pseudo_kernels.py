"""Compiled loops of the pseudo-likelihood of rows (Numba, CPU). Imported when first needed."""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

import math

import numpy as np

from ...compute.jit import njit

_FLAGS = {"reassoc", "contract", "nsz"}
BLOCK = 256  # rows of a block: their codes and the slices of one variable stay in the cache


@njit(cache=True, fastmath=_FLAGS)
def conditionals(codes, weights, layout, tables, gradient, with_gradient, loss):
    """``loss`` plus the weighted sum of minus log q(x_i | x_-i); its gradient is added to ``gradient``.

    Rows in pieces of whole blocks, one after the other, give the bits of all in one go.

    ``tables`` has the table of every interaction once for each of its variables, with that variable's axis last, so
    that the entries of a conditional are neighbours. A pair contributes the slice at ``pair_base + code * card``,
    another interaction that at ``other_base`` plus codes times strides.
    """
    cards, first_pair, first_other, pair_base, pair_variable, other_base, other_start, variables, strides = layout
    num_rows, num_variables = codes.shape
    widest = 1
    deepest = 1
    for i in range(num_variables):
        widest = max(widest, cards[i])
        deepest = max(deepest, first_pair[i + 1] - first_pair[i])
        deepest = max(deepest, first_other[i + 1] - first_other[i])
    # Where the slices of a row begin, so that its gradient goes to the same entries.
    logits = np.empty(widest)
    pair_at = np.empty(deepest, dtype=np.int64)
    other_at = np.empty(deepest, dtype=np.int64)
    for block in range(0, num_rows, BLOCK):
        end = min(block + BLOCK, num_rows)
        for i in range(num_variables):
            card = cards[i]
            if card == 1:
                continue
            pairs, pairs_end = first_pair[i], first_pair[i + 1]
            others, others_end = first_other[i], first_other[i + 1]
            for n in range(block, end):
                weight = weights[n]
                observed = codes[n, i]
                # Two levels need no loops over them.
                if card == 2:
                    zero, one = 0.0, 0.0
                    for e in range(pairs, pairs_end):
                        at = pair_base[e] + 2 * codes[n, pair_variable[e]]
                        pair_at[e - pairs] = at
                        zero += tables[at]
                        one += tables[at + 1]
                    for e in range(others, others_end):
                        at = other_base[e]
                        for m in range(other_start[e], other_start[e + 1]):
                            at += codes[n, variables[m]] * strides[m]
                        other_at[e - others] = at
                        zero += tables[at]
                        one += tables[at + 1]
                    top = max(zero, one)
                    if top == -np.inf:
                        return np.inf
                    total = 1.0 + math.exp(min(zero, one) - top)
                    rest = top + math.log(total)
                    loss += weight * (rest - (one if observed else zero))
                    if with_gradient:
                        share = weight * (math.exp(one - rest) - observed)
                        for e in range(pairs_end - pairs):
                            gradient[pair_at[e]] -= share
                            gradient[pair_at[e] + 1] += share
                        for e in range(others_end - others):
                            gradient[other_at[e]] -= share
                            gradient[other_at[e] + 1] += share
                    continue
                # Any number of levels: energies, then the conditional, then its gradient.
                for level in range(card):
                    logits[level] = 0.0
                for e in range(pairs, pairs_end):
                    at = pair_base[e] + card * codes[n, pair_variable[e]]
                    pair_at[e - pairs] = at
                    for level in range(card):
                        logits[level] += tables[at + level]
                for e in range(others, others_end):
                    at = other_base[e]
                    for m in range(other_start[e], other_start[e + 1]):
                        at += codes[n, variables[m]] * strides[m]
                    other_at[e - others] = at
                    for level in range(card):
                        logits[level] += tables[at + level]
                top = -np.inf
                for level in range(card):
                    top = max(top, logits[level])
                if top == -np.inf:
                    return np.inf
                chosen = logits[observed] - top
                total = 0.0
                for level in range(card):
                    logits[level] = math.exp(logits[level] - top)
                    total += logits[level]
                loss += weight * (math.log(total) - chosen)
                # The conditional less what was seen.
                if with_gradient:
                    for level in range(card):
                        logits[level] *= weight / total
                    logits[observed] -= weight
                    for e in range(pairs_end - pairs):
                        at = pair_at[e]
                        for level in range(card):
                            gradient[at + level] += logits[level]
                    for e in range(others_end - others):
                        at = other_at[e]
                        for level in range(card):
                            gradient[at + level] += logits[level]
    return loss
