"""Compiled exact sums beside settings of fixed variables, of products and not of logarithms (Numba, CPU).

Every table is divided by its largest cell, and messages by powers of two, so that no factor is above one. What falls
below 1e-250 on the way counts as zero: sums are never too large by more than the rounding of products of normal
numbers. Where that may have happened they may be too small, and are not given. Imported when first needed.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

import math

import numpy as np

from ...compute.jit import njit

_LEAST = 1e-250  # numbers that count; all steps to one that is as large are of normal numbers
_LOW = 2.0**-30  # messages whose largest cell is below are scaled
_LN2 = math.log(2.0)
_FAST = {"contract", "nsz", "reassoc", "nnan"}


@njit(fastmath=_FAST)
def _multiply(x, start, source, values, offset, form, index, where, count):
    """Write a row of a block: the cells of one input, times the row at ``source`` if that is not negative."""
    # Views, since positions that might be negative would not be vectorised.
    target, factors, cells = x[start : start + count], values[offset:], index[where : where + count]
    before = x[max(source, 0) : max(source, 0) + count]
    if form == 1 and source < 0:
        for j in range(count):
            target[j] = factors[j]
    elif form == 1 and source == start:
        for j in range(count):
            target[j] *= factors[j]
    elif form == 1:
        for j in range(count):
            target[j] = before[j] * factors[j]
    elif source < 0:
        for j in range(count):
            target[j] = factors[cells[j]]
    elif source == start:
        for j in range(count):
            target[j] *= factors[cells[j]]
    else:
        for j in range(count):
            target[j] = before[j] * factors[cells[j]]


@njit(fastmath=_FAST)
def _summed(x, source, coefficients, levels, block, values, start, highs, lows):
    """Write sums over levels of products, which are one if ``source`` is negative; the largest and least but zero."""
    message = values[start : start + block]
    if source < 0:
        message[:] = coefficients.sum()
    else:
        row, first = x[source : source + block], coefficients[0]
        for j in range(block):
            message[j] = first * row[j]
        for level in range(1, levels):
            row, factor = x[source + level * block : source + (level + 1) * block], coefficients[level]
            for j in range(block):
                message[j] += factor * row[j]
    for j in range(block):
        value = message[j] if message[j] >= _LEAST else 0.0
        message[j] = value
        highs[j] = max(highs[j], value)
        lows[j] = min(lows[j], value if value > 0.0 else 1.0)


@njit
def _stages(row, inputs, strides, loops):
    """Inputs of a mini-bucket, those of outer loops before those of inner ones, and where each loop's begin and end.

    An input belongs to the innermost loop that moves it, or to none. Those of one cell for a whole block are left out.
    """
    first, last, begin, depth = row[4], row[5], row[6], row[7] - row[6]
    inner, ends = np.full(last - first, -1, dtype=np.int64), np.zeros(depth + 2, dtype=np.int64)
    for i in range(last - first):
        for k in range(depth):
            if strides[first + i, k] and loops[begin + k] > 1:
                inner[i] = k
        if inputs[first + i, 2]:
            ends[inner[i] + 2] += 1
    ends = np.cumsum(ends)
    members, filled = np.empty(ends[-1], dtype=np.int64), ends.copy()
    for i in range(last - first):
        if inputs[first + i, 2]:
            members[filled[inner[i] + 1]] = i
            filled[inner[i] + 1] += 1
    return members, ends


@njit
def _message(number, values, places, program):
    """Find the message of one mini-bucket; the power of two it was divided by, and its least cell above zero.

    Products of the inputs of outer loops stay while inner ones turn.
    """
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
    members, ends = _stages(row, inputs, strides, loops)
    many = levels * block
    x, sources = np.empty((depth + 1) * many), np.full(depth + 2, -1, dtype=np.int64)
    # Sums of as many products of factors up to one as there are levels stay below one.
    power = 0
    while 1 << power < levels:
        power += 1
    scale, coefficients, highs, changed = 0.5**power, np.empty(levels), np.zeros(block), -1
    lows = np.ones(block)
    for start in range(message, message + cells, block):
        coefficients[:] = scale
        for i in range(last - first):
            if inputs[first + i, 2] == 0:
                for level in range(levels):
                    coefficients[level] *= values[offsets[i] + level * inputs[first + i, 1]]
        for stage in range(changed + 1, depth + 1):
            source = sources[stage]
            for member in range(ends[stage], ends[stage + 1]):
                i = members[member]
                form, where, step = inputs[first + i, 2], inputs[first + i, 3], inputs[first + i, 1]
                for level in range(levels):
                    target, before = stage * many + level * block, -1 if source < 0 else source + level * block
                    _multiply(x, target, before, values, offsets[i] + level * step, form, index, where, block)
                source = stage * many
            sources[stage + 1] = source
        _summed(x, sources[depth + 1], coefficients, levels, block, values, start, highs, lows)
        # The next turn of the outer loops.
        changed = depth - 1
        while changed >= 0:
            turn[changed] += 1
            for i in range(last - first):
                offsets[i] += strides[first + i, changed]
            if turn[changed] < loops[begin + changed]:
                break
            for i in range(last - first):
                offsets[i] -= strides[first + i, changed] * loops[begin + changed]
            turn[changed] = 0
            changed -= 1
    high, low = highs.max(), lows.min()
    if 0.0 < high < _LOW:
        exponent = math.frexp(high)[1]
        factor = math.ldexp(1.0, -exponent)
        for j in range(message, message + cells):
            values[j] *= factor
        power, low = power + exponent, low * factor
    return power, low


@njit(cache=True)
def log_sums(settings, values, pointer, slices, program, least, places, powers, lows):
    """Log sums beside settings (n, fixed variables), less the logs by which tables were divided, (n,).

    Not a number where terms may be missing. ``pointer`` leads from a table to its rows (fixed variable, stride) in
    ``slices``; ``least`` are the least cells of tables above zero. Messages stay from one setting, and call, to the
    next, unless a changed table is behind them: with them the ``places`` of inputs, -1 before the first call,
    ``powers`` of two by which messages were divided, and their ``lows``, the least cells above zero: zero before the
    first call, negative where terms of the message may be missing.
    """
    nodes, inputs = program.nodes, program.inputs
    is_new, sums = np.zeros(len(nodes), dtype=np.bool_), np.zeros(len(settings))
    for n in range(len(settings)):
        is_whole, power = True, 0
        for k in range(len(nodes)):
            is_new[k], product = lows[k] == 0.0, 1.0 / nodes[k, 0]
            for i in range(nodes[k, 4], nodes[k, 5]):
                start, number = inputs[i, 0], inputs[i, 6]
                if inputs[i, 4] == 0:
                    for j in range(pointer[number], pointer[number + 1]):
                        start += slices[j, 1] * settings[n, slices[j, 0]]
                    product *= least[number]
                else:
                    is_new[k] |= is_new[number]
                    product *= abs(lows[number])
                is_new[k] |= start != places[i]
                places[i] = start
            if is_new[k]:
                powers[k], low = _message(k, values, places, program)
                lows[k] = low if product > 2.0 * _LEAST else -low
            is_whole &= lows[k] > 0.0
            power += powers[k]
        for k in program.roots:
            value = values[nodes[k, 3]]
            sums[n] += math.log(value) if value > 0.0 else -np.inf
        sums[n] = sums[n] + power * _LN2 if is_whole else np.nan
    return sums
