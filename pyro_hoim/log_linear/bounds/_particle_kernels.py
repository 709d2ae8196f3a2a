"""Compiled loops that draw states from mini-buckets, many at once (Numba, CPU). Imported when first needed.

A *particle* is a state that is drawn variable by variable, with a weight. Arrays are [variable, particle], so that the
innermost loops run over particles. The functions release the interpreter lock.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportConstantRedefinition=false

import math

import numpy as np

from ...compute.jit import njit
from ...compute.lanes import fill_uniform64


@njit(nogil=True, cache=True, error_model="numpy")
def _look_up(law, values, program, number, states, index):
    """The sum of the tables of a mini-bucket at the particles' levels of the other variables, [level, particle]."""
    nodes, inputs, pointer, walk = program.nodes, program.inputs, program.pointer, program.walk
    levels, count = nodes[number, 0], law.shape[1]
    law[:levels] = 0.0
    for i in range(nodes[number, 4], nodes[number, 5]):
        index[:] = inputs[i, 0]
        for j in range(pointer[i], pointer[i + 1]):
            row, stride = states[walk[j, 0]], walk[j, 1]
            for n in range(count):
                index[n] += np.int64(row[n]) * stride
        for level in range(levels):
            step = level * inputs[i, 1]
            for n in range(count):
                law[level, n] += values[index[n] + step]


@njit(nogil=True, cache=True, error_model="numpy")
def _log_sums(law, levels, power, sums):
    """Logarithms of sums over levels of exponentials of ``law / power``, times ``power``; -inf where all terms are."""
    for n in range(len(sums)):
        top = law[0, n]
        for level in range(1, levels):
            top = max(top, law[level, n])
        total = 0.0
        for level in range(levels):
            total += math.exp((law[level, n] - top) / power) if top > -np.inf else 0.0
        sums[n] = power * math.log(total) + top if top > -np.inf else -np.inf


@njit(nogil=True, cache=True, error_model="numpy")
def _choose(mixed, levels, sums, uniforms, row):
    """Levels with probabilities ``exp(mixed - sums)``, by inversion; the first one where none is possible."""
    for n in range(len(sums)):
        code, total = 0, 0.0
        if sums[n] > -np.inf:
            for level in range(levels - 1):
                total += math.exp(mixed[level, n] - sums[n])
                code += uniforms[n] >= total
            while mixed[code, n] == -np.inf:  # a sum that rounding left below one
                code -= 1
        row[n] = code


@njit(nogil=True, cache=True, error_model="numpy")
def _resample(states, variables, log_weights, threshold, offset, spare):
    """Draw particles anew by their weights, systematically, where too few carry these; the log mean weight then.

    Only rows ``variables`` of ``states`` are looked at. Nothing changes, and the result is zero, while the effective
    number of particles is at least ``threshold``.
    """
    count, top = len(log_weights), -np.inf
    for n in range(count):
        top = max(top, log_weights[n])
    if top == -np.inf:
        return top
    total, squares = 0.0, 0.0
    for n in range(count):
        weight = math.exp(log_weights[n] - top)
        total += weight
        squares += weight * weight
    if total * total >= threshold * squares:
        return 0.0
    # Particle n is copied once for every point (k + offset) / count in its part of the cumulated shares.
    ancestors, passed, n = np.empty(count, dtype=np.int64), math.exp(log_weights[0] - top), 0
    for k in range(count):
        while passed * count <= (k + offset) * total and n < count - 1:
            n += 1
            passed += math.exp(log_weights[n] - top)
        ancestors[k] = n
    for v in variables:
        row = states[v]
        for k in range(count):
            spare[k] = row[ancestors[k]]
        row[:] = spare
    log_weights[:] = 0.0
    return top + math.log(total / count)


@njit(nogil=True, cache=True, error_model="numpy")
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
    nodes, buckets, count = program.nodes, program.buckets, len(log_weights)
    most = 1
    for k in range(len(nodes)):
        most = max(most, nodes[k, 0])
    law, mixed, index = np.empty((most, count)), np.empty((most, count)), np.empty(count, dtype=np.int64)
    sums, uniforms, spare = np.empty(count), np.empty(count), np.empty(count, dtype=states.dtype)
    scale, times = 0.0, 0
    for b in range(len(buckets) - 2, -1, -1):
        first, last = buckets[b], buckets[b + 1]
        levels = nodes[first, 0]
        # Logarithms of the geometric mean; of one mini-bucket it is what this says, and no weight changes.
        for k in range(first, last):
            _look_up(law, values, program, k, states, index)
            _log_sums(law, levels, weights[k], sums)
            for level in range(levels):
                for n in range(count):
                    share = law[level, n] - sums[n] if sums[n] > -np.inf else -np.inf
                    mixed[level, n] = share if k == first else mixed[level, n] + share
        _log_sums(mixed, levels, 1.0, sums)
        fill_uniform64(seeds[0], seeds[1], seeds[2], seeds[3], uniforms)
        _choose(mixed, levels, sums, uniforms, states[program.variables[first]])
        for n in range(count):
            if last - first > 1 or sums[n] == -np.inf:
                log_weights[n] += min(sums[n], 0.0)
        if threshold > 0.0 and last - first > 1:
            fill_uniform64(seeds[0], seeds[1], seeds[2], seeds[3], uniforms)
            part = _resample(states, program.variables[buckets[b:-1]], log_weights, threshold, uniforms[0], spare)
            if part == -np.inf:
                return part, times
            scale += part
            times += log_weights[0] == 0.0 and part != 0.0
    return scale, times
