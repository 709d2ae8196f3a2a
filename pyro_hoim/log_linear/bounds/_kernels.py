"""Compiled loops of weighted mini-bucket elimination in log space (Numba, CPU). Imported when first needed.

What these functions call a program are the arrays of :class:`~._join_graph.Program`; ``values`` and ``beliefs`` are
its buffers. A mini-bucket is gone through in blocks of its message: the logarithms of its tables are added up level by
level, divided by the weight, and their exponentials summed. The functions release the interpreter lock.

Exponentials are those of differences from the largest term, so that they never overflow; below exp(-708) they count as
zero, which moves no bound that is rounded outward by far more. Where all terms are impossible, or one is that has a
negative weight, a message is minus infinity.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportConstantRedefinition=false

import math

import numpy as np

from ...compute.jit import ALONE, njit

_LOG2E = math.log2(math.e)
_LN2 = math.log(2.0)
_LN2_HIGH = 0.693145751953125  # 20 bits, so that products with exponents are exact
_LN2_LOW = _LN2 - _LN2_HIGH
_SHIFTER = 1.5 * 2.0**52  # added to a number, the low bits of the sum hold the nearest integer
_SHIFTER_BITS = 0x4338000000000000
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD  # of the square root of one half
_TINY = 1e-290
LANES = 128
"""States that are looked up side by side."""
_ROOM = 300.0  # by which logarithms may pass a reference before it is raised
SUMS = {"contract", "nsz", "reassoc"}
"""What the compiler may do with sums, which it reorders."""
PLAIN = {"contract", "nsz"}
"""What the compiler may do with exponentials and logarithms, which must not be reordered."""


@njit(**ALONE, fastmath=PLAIN, forceinline=True)
def exp(x, bits, shifted, shifted_bits, count):
    """Exponentials of the first ``count`` non-positive numbers, in place; relative errors of 1e-15."""
    for j in range(count):
        z = max(x[j], -708.0)
        s = z * _LOG2E + _SHIFTER
        n = s - _SHIFTER
        r = (z - n * _LN2_HIGH) - n * _LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        shifted[j] = s
        x[j] = 0.0 if x[j] < -708.0 else p
    for j in range(count):
        bits[j] += 0 if bits[j] == 0 else shifted_bits[j] << 52


@njit(**ALONE, fastmath=PLAIN, forceinline=True)
def log(x, bits, shifted, shifted_bits, count):
    """Logarithms of the first ``count`` positive normal numbers, in place; errors of 3e-16."""
    for j in range(count):
        exponent = (bits[j] - _ROOT_HALF_BITS) >> 52
        bits[j] -= exponent << 52
        shifted_bits[j] = exponent + _SHIFTER_BITS
    for j in range(count):
        exponent = shifted[j] - _SHIFTER
        f = x[j] - 1.0
        s = f / (2.0 + f)
        z = s * s
        p = 1.0 / 19.0
        p = p * z + 1.0 / 17.0
        p = p * z + 1.0 / 15.0
        p = p * z + 1.0 / 13.0
        p = p * z + 1.0 / 11.0
        p = p * z + 1.0 / 9.0
        p = p * z + 1.0 / 7.0
        p = p * z + 1.0 / 5.0
        p = p * z + 1.0 / 3.0
        p = p * z + 1.0
        x[j] = (2.0 * s * p + exponent * _LN2_LOW) + exponent * _LN2_HIGH


@njit(**ALONE, fastmath=SUMS)
def _add(x, start, constant, values, offset, form, index, where, count, is_first):
    """Add the cells of one input to a row of a block, or write them and a constant if it is the first."""
    # Views, since positions that might be negative would not be vectorised.
    row, cells, places = x[start : start + count], values[offset:], index[where : where + count]
    if form == 1 and is_first:
        for j in range(count):
            row[j] = cells[j] + constant
    elif form == 1:
        for j in range(count):
            row[j] += cells[j]
    elif is_first:
        for j in range(count):
            row[j] = cells[places[j]] + constant
    else:
        for j in range(count):
            row[j] += cells[places[j]]


@njit(**ALONE, fastmath=SUMS)
def _total(x, start, count):
    """The sum of a row of a block."""
    total = 0.0
    for value in x[start : start + count]:
        total += value
    return total


@njit(**ALONE, fastmath=SUMS)
def _collect(x, start, sums, offset, form, index, where, count):
    """Add a row of a block to the cells of one input that it belongs to."""
    row, cells, places = x[start : start + count], sums[offset:], index[where : where + count]
    if form == 1:
        for j in range(count):
            cells[j] += row[j]
        return
    # Neighbours that belong to one cell, as many everywhere, are summed first: additions in memory wait for each other.
    width = 1
    while width < count and places[width] == places[0]:
        width += 1
    if width == 1:
        for j in range(count):
            cells[places[j]] += row[j]
        return
    for j in range(0, count, width):
        total = 0.0
        for value in row[j : j + width]:
            total += value
        cells[places[j]] += total


@njit(**ALONE, fastmath=SUMS)
def _dot(x, logs, count):
    """Sum of shares times their logarithms, which end at -708 where shares are zero."""
    total = 0.0
    for j in range(count):
        total += x[j] * min(max(logs[j], -708.0), 0.0)
    return total


@njit(**ALONE, fastmath=PLAIN, forceinline=True)
def _raise(highs, values, count):
    """Raise numbers to the absolute values of finite cells."""
    for j in range(count):
        value = abs(values[j])
        highs[j] = max(highs[j], value if value < np.inf else 0.0)


@njit(**ALONE, fastmath=PLAIN, forceinline=True)
def powers(inverse, levels, block, work):
    """Exponentials of a block's logarithms times ``inverse``, less the largest of every cell, and their sums.

    The logarithms of the exponentials are put in ``less``, the largest in ``top``. Where all terms are impossible
    nothing is taken off, and ``mark`` is one.
    """
    x, top, shifted, less, mark, sums, _, _ = work
    bits, shifted_bits = x.view(np.int64), shifted.view(np.int64)
    many = levels * block
    if inverse != 1.0:
        for j in range(many):
            x[j] *= inverse
    for j in range(block):
        top[j] = x[j]
    for level in range(1, levels):
        row = x[level * block : (level + 1) * block]
        for j in range(block):
            top[j] = max(top[j], row[j])
    for j in range(block):
        mark[j] = 0.0 if abs(top[j]) < np.inf else 1.0
        top[j] = top[j] if abs(top[j]) < np.inf else 0.0
    for level in range(levels):
        row, rest = x[level * block : (level + 1) * block], less[level * block : (level + 1) * block]
        for j in range(block):
            rest[j] = row[j] - top[j]
    if levels == 2:  # one of two exponentials is that of zero
        many, rest = block, less[block : 2 * block]
        for j in range(block):
            x[j] = min(less[j], rest[j])
    else:
        for j in range(many):
            x[j] = less[j]
    exp(x, bits, shifted, shifted_bits, many)
    if levels == 2:
        row, rest = x[block : 2 * block], less[block : 2 * block]
        for j in range(block):
            sums[j] = 1.0 + x[j]
            row[j] = x[j] if rest[j] < 0.0 else 1.0
            x[j] = x[j] if less[j] < 0.0 else 1.0
        return
    for j in range(block):
        sums[j] = x[j]
    for level in range(1, levels):
        row = x[level * block : (level + 1) * block]
        for j in range(block):
            sums[j] += row[j]


@njit(**ALONE, fastmath=PLAIN)
def run(task, number, values, beliefs, backward, weight, program, work):
    """Go through one mini-bucket.

    Task 0 finds its message. Task 1 finds, from beliefs of its message, those of all that it sums. Task 2 finds
    its message and, from what was passed back to it, beliefs of its shifts; it returns the entropy of its variable
    given the others. The largest absolute value of a message is put in the last array of ``work``.
    """
    x, top, shifted, less, mark, sums, logs, largest = work
    shifted_bits, log_bits, top_bits = shifted.view(np.int64), logs.view(np.int64), top.view(np.int64)
    row, inputs, loops, strides, index = (
        program.nodes[number],
        program.inputs,
        program.loops,
        program.strides,
        program.places,
    )
    levels, cells, block, message, first, last, begin, end, passed = (
        row[0],
        row[1],
        row[2],
        row[3],
        row[4],
        row[5],
        row[6],
        row[7],
        row[8],
    )
    depth, count = end - begin, last - first
    inverse = 1.0 / weight
    turn = np.zeros(depth + 1, dtype=np.int64)
    offsets, constants = np.empty(count, dtype=np.int64), np.empty(levels)
    for i in range(count):
        offsets[i] = inputs[first + i, 0]
    # Beliefs of task 2 are not normalised: they are the exponentials of differences from a reference.
    entropy, total, reference, shift, width = 0.0, 0.0, -np.inf, 0, 0
    highs = np.zeros(block)
    if task == 2:
        shift, width = inputs[last - 1, 0], inputs[last - 1, 5]
        beliefs[shift : shift + width] = 0.0
    for start in range(message, message + cells, block):
        # Logarithms of all tables, level by level.
        constants[:] = 0.0
        for i in range(count):
            if inputs[first + i, 2] == 0:
                for level in range(levels):
                    constants[level] += values[offsets[i] + level * inputs[first + i, 1]]
        is_first = True
        for i in range(count):
            form, where, step = inputs[first + i, 2], inputs[first + i, 3], inputs[first + i, 1]
            for level in range(levels if form else 0):
                cell = offsets[i] + level * step
                _add(x, level * block, constants[level], values, cell, form, index, where, block, is_first)
            is_first = is_first and form == 0
        for level in range(levels if is_first else 0):
            x[level * block : (level + 1) * block] = constants[level]
        powers(inverse, levels, block, work)
        sent = values[start : start + block]
        if task == 1:
            belief = beliefs[start : start + block]
            for j in range(block):
                sums[j] = belief[j] / sums[j]
        else:
            for j in range(block):
                logs[j] = 1.0 if mark[j] else sums[j]
            log(logs, log_bits, shifted, shifted_bits, block)
            for j in range(block):
                sent[j] = -np.inf if mark[j] else weight * (logs[j] + top[j])
            _raise(highs, sent, block)
        if task == 2:
            above, back, limit = 0.0, backward[passed + start - message :], reference + _ROOM
            for j in range(block):
                top[j] = (sent[j] + back[j]) * inverse if sent[j] > -np.inf else -np.inf
                above += 1.0 if top[j] > limit else 0.0
            if above > 0.0:
                high = top[:block].max()
                scale, reference = math.exp(reference - high), high
                for j in range(shift, shift + width):
                    beliefs[j] *= scale
                entropy, total = entropy * scale, total * scale
            for j in range(block):
                top[j] -= reference if reference > -np.inf else 0.0
            exp(top, top_bits, shifted, shifted_bits, block)
            gained, summed = 0.0, 0.0
            for j in range(block):
                summed += top[j]
                gained += top[j] * logs[j]
                sums[j] = top[j] / sums[j]
            entropy, total = entropy + gained, total + summed
        if task > 0:
            for level in range(levels):
                share = x[level * block : (level + 1) * block]
                for j in range(block):
                    share[j] = 0.0 if mark[j] else share[j] * sums[j]
                constants[level] = _total(x, level * block, block)
            for i in range(count):
                if task == 1 or inputs[first + i, 4] == 2:
                    form, where, step = inputs[first + i, 2], inputs[first + i, 3], inputs[first + i, 1]
                    for level in range(levels):
                        cell = offsets[i] + level * step
                        if form == 0:
                            beliefs[cell] += constants[level]
                        else:
                            _collect(x, level * block, beliefs, cell, form, index, where, block)
        if task == 2:
            entropy -= _dot(x, less, levels * block)
        # The next turn of the outer loops.
        k = depth - 1
        while k >= 0:
            turn[k] += 1
            for i in range(count):
                offsets[i] += strides[first + i, k]
            if turn[k] < loops[begin + k]:
                break
            for i in range(count):
                offsets[i] -= strides[first + i, k] * loops[begin + k]
            turn[k] = 0
            k -= 1
    if task != 1:
        largest[number] = highs.max()
    if task == 2 and total > 0.0:
        for j in range(shift, shift + width):
            beliefs[j] /= total
        entropy /= total
    return entropy


@njit(**ALONE)
def _match(values, beliefs, weights, program, first, last, step):
    """Shift costs so that the mini-buckets of a bucket agree about the variables they share."""
    nodes, inputs = program.nodes, program.inputs
    shared = inputs[nodes[first, 5] - 1, 5]
    total = 0.0
    for k in range(first, last):
        total += weights[k]
    for j in range(shared):
        mean, is_possible = 0.0, True
        for k in range(first, last):
            belief = beliefs[inputs[nodes[k, 5] - 1, 0] + j]
            if belief > _TINY:
                belief = math.log(belief)
                beliefs[inputs[nodes[k, 5] - 1, 0] + j] = belief
                mean += weights[k] * belief
            else:
                is_possible = False
        if is_possible:
            for k in range(first, last):
                cell = inputs[nodes[k, 5] - 1, 0] + j
                values[cell] += step * weights[k] * (mean / total - beliefs[cell])


@njit(**ALONE)
def _reweigh(weights, entropies, first, last, step):
    """Move weights to where entropies are small (upper bounds) or, of negative ones, large; they sum to one."""
    positive, is_lower, mean = first, False, 0.0
    for k in range(first, last):
        if weights[k] < 0.0:
            is_lower = True
        else:
            positive = k
        mean += weights[k] * entropies[k - first]
    total = 0.0
    if is_lower:
        mean = entropies[positive - first]
        for k in range(first, last):
            if k != positive:
                weights[k] *= math.exp(step * weights[k] * (entropies[k - first] - mean))
                total += weights[k]
        weights[positive] = 1.0 - total
    else:
        for k in range(first, last):
            weights[k] *= math.exp(-step * weights[k] * (entropies[k - first] - mean))
            total += weights[k]
        for k in range(first, last):
            weights[k] /= total


@njit(cache=True)
def forward(values, beliefs, backward, weights, program, step, weight_step, work):
    """The bound; with positive steps costs are shifted and weights moved on the way."""
    buckets, largest = program.buckets, 1
    for b in range(len(buckets) - 1):
        largest = max(largest, buckets[b + 1] - buckets[b])
    entropies = np.zeros(largest)
    for b in range(len(buckets) - 1):
        first, last = buckets[b], buckets[b + 1]
        if last - first > 1 and step > 0.0:
            for k in range(first, last):  # a bare number would be a type of its own, and compile all of it anew
                entropies[k - first] = run(np.int64(2), k, values, beliefs, backward, weights[k], program, work)
            _match(values, beliefs, weights, program, first, last, step)
            if weight_step > 0.0:
                _reweigh(weights, entropies, first, last, weight_step)
        for k in range(first, last):
            run(np.int64(0), k, values, beliefs, backward, weights[k], program, work)
    bound = 0.0
    for k in program.roots:
        bound += values[program.nodes[k, 3]]
    return bound


@njit(cache=True)
def backward_pass(values, beliefs, backward, weights, program, work):
    """Beliefs of all tables and messages, after :func:`forward`, and what is passed back to mini-buckets of one bucket.

    Beliefs of tables are the gradient of the bound.
    """
    nodes, buckets = program.nodes, program.buckets
    x, shifted = work[0], work[2]
    bits, shifted_bits = x.view(np.int64), shifted.view(np.int64)
    beliefs[:] = 0.0
    for k in program.roots:
        beliefs[nodes[k, 3]] = 1.0
    for b in range(len(buckets) - 2, -1, -1):
        first, last = buckets[b], buckets[b + 1]
        for k in range(first, last):
            run(np.int64(1), k, values, beliefs, backward, weights[k], program, work)
            if last - first == 1:
                continue
            message, cells, passed, size = nodes[k, 3], nodes[k, 1], nodes[k, 8], len(x)
            for start in range(0, cells, size):
                count, weight = min(size, cells - start), weights[k]
                belief, value = beliefs[message + start :], values[message + start :]
                back = backward[passed + start :]
                for j in range(count):
                    x[j] = max(belief[j], _TINY)
                log(x, bits, shifted, shifted_bits, count)
                for j in range(count):
                    back[j] = weight * x[j] - value[j] if value[j] > -np.inf else 0.0


@njit(cache=True, fastmath=SUMS)
def look_up(states, values, tables, logs, begin, step):
    """Add the cells of all tables that states (n, variables) select to ``logs`` (n,).

    Blocks ``begin``, ``begin + step``, ... of :data:`LANES` states are gone through. ``tables`` are those of
    :func:`~._join_graph.tables_of`.
    """
    codes, cells = np.zeros((states.shape[1], LANES), dtype=np.uint64), np.zeros(LANES, dtype=np.uint64)
    for start in range(begin * LANES, len(states), step * LANES):
        count = min(LANES, len(states) - start)
        for j in range(count):
            for v in range(states.shape[1]):
                codes[v, j] = np.uint64(states[start + j, v])
        total = logs[start : start + count]
        for i in range(len(tables.starts)):
            cells[:count] = np.uint64(0)
            for k in range(tables.pointer[i], tables.pointer[i + 1]):
                code, levels = codes[tables.members[k]], np.uint64(tables.cards[tables.members[k]])
                for j in range(count):
                    cells[j] = cells[j] * levels + code[j]
            table = values[tables.starts[i] :]
            for j in range(count):
                total[j] += table[cells[j]]


@njit(cache=True)
def rounding(values, weights, program, tables, largest):
    """Sums that :meth:`~._sweeps.Sweeps._rounding` weighs: over inputs, logarithms, and last messages.

    ``tables`` are the largest absolute cells of tables, ``largest`` those of messages.
    """
    nodes, inputs = program.nodes, program.inputs
    of_inputs, of_logs, of_levels, of_roots = 0.0, 0.0, 0.0, 0.0
    for k in range(len(nodes)):
        total = 0.0
        for i in range(nodes[k, 4], nodes[k, 5]):
            kind, number = inputs[i, 4], inputs[i, 6]
            if kind == 2:
                high = 0.0
                for j in range(inputs[i, 0], inputs[i, 0] + inputs[i, 5]):
                    value = abs(values[j])
                    high = value if high < value < np.inf else high
                total += high
            else:
                total += tables[number] if kind == 0 else largest[number]
        of_inputs += (nodes[k, 5] - nodes[k, 4] + 4) * total
        of_logs += abs(weights[k])
        of_levels += abs(weights[k]) * nodes[k, 0]
    for k in program.roots:
        of_roots += largest[k]
    return of_inputs, of_logs, of_levels, len(program.roots) * of_roots
