"""Compiled exact sums beside settings of fixed variables, of products and not of logarithms (Numba, CPU).

Every table is divided by its largest cell, and messages by powers of two, so that no factor is above one. What falls
below 1e-250 on the way counts as zero: sums are never too large by more than the rounding of products of normal
numbers. Imported when first needed.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

import math

import numpy as np

from ...compute.jit import njit

_LEAST = 1e-250  # numbers that count; all steps to one that is as large are of normal numbers
_LOW = 2.0**-30  # messages whose largest cell is below are scaled
_LN2 = math.log(2.0)
_FAST = {"contract", "nsz", "reassoc", "nnan"}


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _multiply(x, start, values, offset, form, index, where, count, is_first):
    """Multiply a row of a block by the cells of one input, or write them if it is the first."""
    if is_first and form == 1:
        for j in range(count):
            x[start + j] = values[offset + j]
    elif is_first:
        for j in range(count):
            x[start + j] = values[offset + np.uint64(index[where + j])]
    elif form == 1:
        for j in range(count):
            x[start + j] *= values[offset + j]
    else:
        for j in range(count):
            x[start + j] *= values[offset + np.uint64(index[where + j])]


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _summed(x, coefficients, levels, block, values, start):
    """Write sums over levels of products, and return the largest."""
    high = 0.0
    for j in range(block):
        values[start + j] = coefficients[0] * x[j]
    for level in range(1, levels):
        for j in range(block):
            values[start + j] += coefficients[level] * x[level * block + j]
    for j in range(block):
        value = values[start + j]
        value = value if value >= _LEAST else 0.0
        values[start + j] = value
        high = max(high, value)
    return high


@njit(nogil=True, cache=True, error_model="numpy")
def _message(number, values, places, program, x):
    """Find the message of one mini-bucket; the power of two it was divided by, and whether any of it is above zero."""
    row, inputs, loops, strides, index = (
        program.nodes[number],
        program.inputs,
        program.loops,
        program.strides,
        program.places,
    )
    levels, cells, block, message, first, last = row[0], row[1], row[2], row[3], row[4], row[5]
    begin, depth = row[6], row[7] - row[6]
    turn, offsets = np.zeros(depth + 1, dtype=np.int64), places[first:last].copy()
    # Sums of as many products of factors up to one as there are levels stay below one.
    power = 0
    while 1 << power < levels:
        power += 1
    scale, coefficients, high = 0.5**power, np.empty(levels), 0.0
    for start in range(message, message + cells, block):
        coefficients[:] = scale
        is_first = True
        for i in range(last - first):
            form, where, step = inputs[first + i, 2], inputs[first + i, 3], inputs[first + i, 1]
            if form == 0:
                for level in range(levels):
                    coefficients[level] *= values[offsets[i] + level * step]
                continue
            for level in range(levels):
                _multiply(x, level * block, values, offsets[i] + level * step, form, index, where, block, is_first)
            is_first = False
        if is_first:
            x[: levels * block] = 1.0
        high = max(high, _summed(x, coefficients, levels, block, values, start))
        # The next turn of the outer loops.
        k = depth - 1
        while k >= 0:
            turn[k] += 1
            for i in range(last - first):
                offsets[i] += strides[first + i, k]
            if turn[k] < loops[begin + k]:
                break
            for i in range(last - first):
                offsets[i] -= strides[first + i, k] * loops[begin + k]
            turn[k] = 0
            k -= 1
    if 0.0 < high < _LOW:
        exponent = math.frexp(high)[1]
        factor = math.ldexp(1.0, -exponent)
        for j in range(message, message + cells):
            values[j] *= factor
        power += exponent
    return power, high > 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def log_sums(settings, values, pointer, slices, program, x, sums):
    """Write the log sums beside settings (n, fixed variables), less the logs by which tables were divided.

    ``pointer`` leads from a table to its rows (fixed variable, stride) in ``slices``. Messages that no changed table
    is behind stay from one setting to the next.
    """
    nodes, inputs = program.nodes, program.inputs
    places, powers = np.full(len(inputs), -1, dtype=np.int64), np.zeros(len(nodes), dtype=np.int64)
    is_new, is_possible = np.zeros(len(nodes), dtype=np.bool_), np.ones(len(nodes), dtype=np.bool_)
    for n in range(len(settings)):
        for k in range(len(nodes)):
            is_new[k] = n == 0
            for i in range(nodes[k, 4], nodes[k, 5]):
                place, number = inputs[i, 0], inputs[i, 6]
                if inputs[i, 4] == 0:
                    for j in range(pointer[number], pointer[number + 1]):
                        place += slices[j, 1] * settings[n, slices[j, 0]]
                else:
                    is_new[k] |= is_new[number]
                is_new[k] |= place != places[i]
                places[i] = place
            if is_new[k]:
                powers[k], is_possible[k] = _message(k, values, places, program, x)
        total, power = 0.0, 0
        for k in range(len(nodes)):
            power += powers[k]
        for k in program.roots:
            total += math.log(values[nodes[k, 3]]) if is_possible[k] else -np.inf
        sums[n] = total + power * _LN2
