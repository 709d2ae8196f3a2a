"""Compiled loops that draw states from mini-buckets, many at once (Numba, CPU). Imported when first needed.

A *particle* is a state that is drawn variable by variable, with a weight. Arrays are [variable, particle], so that the
innermost loops run over particles. The functions release the interpreter lock.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportConstantRedefinition=false

import math

import numpy as np

from ...compute.jit import ALONE, njit, write
from ...compute.lanes import fill_uniform64
from ._kernels import PLAIN, SUMS, exp, log, powers

_WIDTH = 512  # particles whose levels of a variable are drawn together


@njit(**ALONE, fastmath=PLAIN)
def _look_up(law, values, program, number, states, begin, index):
    """The sum of the tables of a mini-bucket at some particles' levels of the other variables, [level, particle]."""
    nodes, inputs, pointer, walk = program.nodes, program.inputs, program.pointer, program.walk
    levels, count = nodes[number, 0], len(index)
    law[: levels * count] = 0.0
    for i in range(nodes[number, 4], nodes[number, 5]):
        # Unsigned positions in a view, since those that might be negative would not be vectorised.
        index[:] = np.uint64(0)
        for j in range(pointer[i], pointer[i + 1]):
            row, stride = states[walk[j, 0]][begin : begin + count], np.uint64(walk[j, 1])
            for n in range(count):
                index[n] += np.uint64(row[n]) * stride
        for level in range(levels):
            row, cells = law[level * count : (level + 1) * count], values[inputs[i, 0] + level * inputs[i, 1] :]
            for n in range(count):
                row[n] += cells[index[n]]


@njit(**ALONE, fastmath=PLAIN, forceinline=True)
def _log_sums(work, logs, count):
    """Logarithms of the sums that :func:`~._kernels.powers` left, zeros where nothing is possible."""
    _, _, shifted, _, mark, sums, _, _ = work
    for n in range(count):
        logs[n] = 1.0 if mark[n] else sums[n]
    log(logs, logs.view(np.int64), shifted, shifted.view(np.int64), count)


@njit(**ALONE, fastmath=PLAIN, forceinline=True)
def _choose(work, levels, uniforms, passed, row):
    """Levels in proportion to the exponentials of ``work``, by inversion; the first one where none is possible.

    Sums are added up in the order of their total, and no uniform number is one, so that the level is always possible.
    """
    x, _, _, _, mark, sums, chosen, _ = work
    count = len(row)
    for n in range(count):
        uniforms[n] = -1.0 if mark[n] else uniforms[n] * sums[n]
        passed[n], chosen[n] = 0.0, 0.0
    for level in range(levels - 1):
        share = x[level * count : (level + 1) * count]
        for n in range(count):
            passed[n] += share[n]
            chosen[n] += 1.0 if uniforms[n] >= passed[n] else 0.0
    for n in range(count):
        row[n] = np.int32(chosen[n])


@njit(**ALONE, fastmath=PLAIN)
def _draw_variable(values, weights, program, b, states, begin, uniforms, log_weights, buffers):
    """Draw the variable of one bucket of the particles from ``begin`` on that ``uniforms`` and weights belong to."""
    mixed, index, passed, work = buffers
    x, top, _, less, mark, _, logs, _ = work
    first, last, count = program.buckets[b], program.buckets[b + 1], len(uniforms)
    levels, row = program.nodes[first, 0], states[program.variables[first]][begin : begin + count]
    is_one = last - first == 1  # of one mini-bucket the mean is what this says, and no weight changes
    mixed[: 0 if is_one else levels * count] = 0.0
    # What every mini-bucket says, then their mean: one turn more, since code in two places is compiled twice.
    for k in range(first, last if is_one else last + 1):
        weight = weights[k] if k < last else 1.0
        if k < last:
            _look_up(x, values, program, k, states, begin, index[:count])
        else:
            for n in range(levels * count):
                x[n] = mixed[n]
        powers(1.0 / weight, levels, count, work)
        if is_one:
            break
        _log_sums(work, logs, count)
        for level in range(levels if k < last else 0):
            part, rest = mixed[level * count : (level + 1) * count], less[level * count : (level + 1) * count]
            for n in range(count):
                part[n] += weight * (rest[n] - logs[n])
    for n in range(count):
        if is_one:
            log_weights[n] = -np.inf if mark[n] else log_weights[n]
        else:
            log_weights[n] += -np.inf if mark[n] else min(top[n] + logs[n], 0.0)
    _choose(work, levels, uniforms, passed, row)


@njit(**ALONE, fastmath=SUMS)
def _sums(x, count):
    """The sums of numbers and of their squares."""
    total, squares = 0.0, 0.0
    for n in range(count):
        total += x[n]
        squares += x[n] * x[n]
    return total, squares


@njit(**ALONE, fastmath=PLAIN)
def _resample(states, variables, log_weights, threshold, offset, spare, space):
    """Draw particles anew by their weights, systematically, where too few carry these; the log mean weight then.

    Only rows ``variables`` of ``states`` are looked at. Nothing changes, and the result is zero, while the effective
    number of particles is at least ``threshold``. The last arguments are room for levels and numbers of particles.
    """
    count, top = len(log_weights), log_weights.max()
    if top == -np.inf:
        return top
    shares, shifted = space
    for n in range(count):
        shares[n] = log_weights[n] - top
    exp(shares, shares.view(np.int64), shifted, shifted.view(np.int64), count)
    total, squares = _sums(shares, count)
    if total * total >= threshold * squares:
        return 0.0
    # Particle n is copied once for every point (k + offset) / count in its part of the cumulated shares.
    ancestors, passed, n = np.empty(count, dtype=np.int64), shares[0], 0
    for k in range(count):
        while passed * count <= (k + offset) * total and n < count - 1:
            n += 1
            passed += shares[n]
        ancestors[k] = n
    for v in variables:
        row = states[v]
        for k in range(count):
            spare[k] = row[ancestors[k]]
        write(row, spare)
    log_weights[:] = 0.0
    return top + math.log(total / count)


@njit(cache=True)
def draw(values, weights, program, seeds, threshold, states, log_weights):
    r"""Draw all variables of particles against the order of the program, after a forward pass.

    A variable is drawn from the normalised geometric mean of what its mini-buckets say, by their weights. What the
    normalisation takes off is multiplied into the weights:

    .. math:: p(x_v) = \frac{1}{C_v} \prod_r p_r(x_v)^{w_r}, \qquad C_v = \sum_{x_v} \prod_r p_r(x_v)^{w_r} \le 1

    ``values``, ``weights`` and ``program`` are those of the upper bound, ``seeds`` (4, particles) the states of the
    generators, which are moved on, and ``states`` (variables, particles) are overwritten. Particles are drawn anew by
    their weights where fewer than ``threshold`` of them carry these; never if it is zero. The result is the log of the
    product of the mean weights then, and how often it was. ``log_weights`` (particles,), zeros at first, are those
    since then.
    """
    buckets, count = program.buckets, len(log_weights)
    most, width = max(1, program.nodes[:, 0].max()) if len(program.nodes) else 1, max(1, min(count, _WIDTH))
    work = (
        np.empty(most * width),
        np.empty(width),
        np.empty(most * width),
        np.empty(most * width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(0),
    )
    buffers = np.empty(most * width), np.empty(width, dtype=np.uint64), np.empty(width), work
    uniforms, spare = np.empty(count), (np.empty(count, dtype=states.dtype), (np.empty(count), np.empty(count)))
    scale, times = 0.0, 0
    for b in range(len(buckets) - 2, -1, -1):
        fill_uniform64(seeds[0], seeds[1], seeds[2], seeds[3], uniforms)
        for begin in range(0, count, width):
            end = min(begin + width, count)
            part, some = uniforms[begin:end], log_weights[begin:end]
            _draw_variable(values, weights, program, b, states, begin, part, some, buffers)
        if threshold > 0.0 and buckets[b + 1] - buckets[b] > 1:
            fill_uniform64(seeds[0], seeds[1], seeds[2], seeds[3], uniforms)
            part = _resample(states, program.variables[buckets[b:-1]], log_weights, threshold, uniforms[0], *spare)
            if part == -np.inf:
                return part, times
            scale += part
            times += log_weights[0] == 0.0 and part != 0.0
    return scale, times
