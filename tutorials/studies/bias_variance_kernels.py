"""Compiled gradient steps over all cells, for machines of few binary variables (Numba, CPU).

Cell x of 2^n has variable i at level (x >> i) & 1. Sums over subsets and supersets are made in place, one variable
after the other; the weights of hidden units are products, one factor for every variable, so that a step needs no
exponential but those of the parameters themselves.
"""

import numpy as np
from numba import njit

__all__ = ["hidden_steps", "interaction_steps"]

_SUMS = {"reassoc", "contract", "arcp", "nsz"}  # orders of sums are free; NaN and infinity are kept


@njit(cache=True, fastmath=_SUMS, nogil=True)
def _over_subsets(values):
    """Zeta transform in place: every entry becomes the sum over its subsets."""
    half = 1
    while half < values.shape[0]:
        for start in range(0, values.shape[0], 2 * half):
            for x in range(start, start + half):
                values[x + half] += values[x]
        half *= 2


@njit(cache=True, fastmath=_SUMS, nogil=True)
def _over_supersets(values):
    """Its transpose: every entry becomes the sum over its supersets, probabilities become mean coordinates eta."""
    half = 1
    while half < values.shape[0]:
        for start in range(0, values.shape[0], 2 * half):
            for x in range(start, start + half):
                values[x] += values[x + half]
        half *= 2


@njit(cache=True, fastmath=_SUMS, nogil=True)
def interaction_steps(target, rate, steps, theta):
    """Plain gradient steps of a log-linear model from ``theta`` (2^n,), in place; returns the last log probabilities.

    ``target`` (2^n,) is a law; ``rate`` (2^n,) is the step of every coordinate of theta, zero where it stays. The
    gradient is the difference of the two etas (paper 4, after equation 7).
    """
    size = theta.shape[0]
    eta = target.copy()
    _over_supersets(eta)
    log_probs, model = np.empty(size), np.empty(size)
    for step in range(steps + 1):
        log_probs[:] = theta
        _over_subsets(log_probs)
        top = log_probs.max()
        total = 0.0
        for x in range(size):
            model[x] = np.exp(log_probs[x] - top)
            total += model[x]
        if step == steps:
            break
        for x in range(size):
            model[x] /= total
        _over_supersets(model)
        for x in range(1, size):
            theta[x] += rate[x] * (eta[x] - model[x])
    return log_probs - (top + np.log(total))


@njit(cache=True, fastmath=_SUMS, nogil=True)
def _products(first, factors, out):
    """``out`` (2^n,) is ``first`` times the exponentials of the factors of the variables that are 1."""
    out[0] = np.exp(first)
    half = 1
    for i in range(factors.shape[0]):
        factor = np.exp(factors[i])
        for x in range(half):
            out[half + x] = out[x] * factor
        half *= 2


@njit(cache=True, fastmath=_SUMS, nogil=True)
def _add_margins(values, out):
    """Adds to ``out`` (n,) the sum of ``values`` (2^n,) where a variable is 1; returns the sum; destroys ``values``."""
    half = values.shape[0] // 2
    for i in range(out.shape[0] - 1, -1, -1):
        found = 0.0
        for x in range(half):
            found += values[half + x]
            values[x] += values[half + x]
        out[i] += found
        half //= 2
    return values[0]


@njit(cache=True, fastmath=_SUMS, nogil=True)
def hidden_steps(target, rate, steps, weights, visible, hidden):
    """Plain gradient steps of a restricted Boltzmann machine, in place; returns the last log probabilities (2^n,).

    ``weights`` (m, n), ``visible`` (n,) and ``hidden`` (m,) are the biases; ``target`` (2^n,) is a law. The
    unnormalised marginal is the product of exp(visible . x) and, for every hidden unit, one plus its odds; it
    overflows, and the result is not finite, beyond 700 nats.
    """
    size, m = target.shape[0], weights.shape[0]
    odds, model = np.empty((m, size)), np.empty(size)
    for step in range(steps + 1):
        _products(0.0, visible, model)
        for j in range(m):
            _products(hidden[j], weights[j], odds[j])
            for x in range(size):
                model[x] *= 1.0 + odds[j, x]
        total = model.sum()
        if step == steps:
            break
        for x in range(size):
            model[x] = rate * (target[x] - model[x] / total)
        for j in range(m):
            for x in range(size):
                odds[j, x] = model[x] * odds[j, x] / (1.0 + odds[j, x])
            hidden[j] += _add_margins(odds[j], weights[j])
        _add_margins(model, visible)
    return np.log(model / total)
