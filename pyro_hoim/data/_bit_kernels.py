"""Compiled margins of rows held as bits (Numba, CPU). Imported when needed."""

# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportCallIssue=false

import numpy as np

from ..compute.jit import njit
from ..compute.vectors import bit_count


@njit(cache=True)
def count_bits(bits, counts, planes, first, members, variables, cards, begin, step, total):
    """Put the counts of the cells of every ``step``-th set from ``begin`` into total.

    bits (planes, words) say which rows have a level, from ``planes[v]`` on the levels of a variable v but the first;
    counts (digits, words) are the binary digits of the counts of rows, the lowest first. Sets are laid out by first
    cell and first member (one more than sets). A cell takes the rows at whatever first levels it has, and then gives
    back those at the other levels of these variables.
    """
    words = counts.shape[1]
    chosen = np.empty(3 + variables.shape[0], dtype=np.int64)
    for e in range(begin, first.shape[0], step):
        base, low, high = first[e], members[e], members[e + 1]
        size = 1
        for j in range(low, high):
            size *= cards[variables[j]]
        for cell in range(size):
            # The planes of levels that are not the first.
            rest, length = cell, 0
            for j in range(high - 1, low - 1, -1):
                level = rest % cards[variables[j]]
                rest //= cards[variables[j]]
                if level > 0:
                    chosen[length] = planes[variables[j]] + level - 1
                    length += 1
            # Rows that have them all; short lists repeat a plane, so that one loop of vectors serves.
            value, weight = 0, 1
            for k in range(counts.shape[0]):
                digit, count = counts[k], 0
                if length == 0:
                    for w in range(words):
                        count += bit_count(digit[w])
                elif length <= 3:
                    one, two, three = bits[chosen[0]], bits[chosen[length // 2]], bits[chosen[length - 1]]
                    for w in range(words):
                        count += bit_count(digit[w] & one[w] & two[w] & three[w])
                else:
                    for w in range(words):
                        word = digit[w]
                        for j in range(length):
                            word &= bits[chosen[j], w]
                        count += bit_count(word)
                value += weight * count
                weight *= 2
            total[base + cell] = value
        # First levels, variable by variable.
        stride = 1
        for j in range(high - 1, low - 1, -1):
            levels = cards[variables[j]]
            for start in range(0, size, stride * levels):
                for cell in range(base + start, base + start + stride):
                    for level in range(1, levels):
                        total[cell] -= total[cell + level * stride]
            stride *= levels
