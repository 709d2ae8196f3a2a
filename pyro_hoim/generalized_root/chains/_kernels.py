"""Compiled Gibbs sweeps of generalized root models (Numba, CPU). Imported when first needed.

A tile has the chains that a worker moves together: states [variable, chain], and their roots T_j [j - 1, variable,
chain], from which all natural parameters and scores are computed. The program of a model is that of
:class:`~.draws.RootProgram`. A chain's bits do not depend on the tile it is in.
"""

# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...compute.jit import njit
from ..nodes.columns import NodeFamilies
from ..nodes.families import IndicatorFamily
from ..nodes.integrability_kernels import is_integrable
from ..nodes.user_family import UserFamily, user_draws
from ._draw_kernels import (
    FACTORIAL,
    LINEAR,
    LOGARITHMIC,
    MAX_PIECES,
    NUM_FIELDS,
    QUADRATIC,
    TABLE_SIZE,
    add_side,
    draw_small,
    draw_under_hat,
    finish_hat,
    normal,
    side_parameters,
    uniform,
    uniforms,
)

Floats = NDArray[np.float64]

POISSON, TRUNCATED, EXPONENTIAL, GAUSSIAN, INDICATOR = range(5)


def workspace(order: int, num_chains: int) -> tuple[Any, ...]:
    """Scratch memory of one worker."""
    return (
        np.empty((num_chains, order)),  # natural parameters
        np.empty(num_chains),  # products
        np.empty(num_chains),  # draws
        np.empty((MAX_PIECES, NUM_FIELDS)),
        np.empty(max(MAX_PIECES, TABLE_SIZE)),  # cumulative sums
        np.empty((2, 8)),  # sides of a hat
        np.empty(order),  # their coefficients
        np.empty(order),  # and powers
        np.empty((2, order)),
        np.empty(2),
    )


@njit
def _draw_from_hat(code, maximum, eta, work, words, b):
    """A draw from the hat of any family; NaN if the law is not integrable or its mode is beyond 2^53."""
    _, _, _, pieces, cumulative, sides, coefficients, powers, anchored, offsets = work
    order = eta.shape[0]
    for j in range(order):
        if not math.isfinite(eta[j]):
            return math.nan
    # Each side of 0 is linear, quadratic and logarithmic terms, and powers below one.
    is_discrete, is_real = code <= TRUNCATED, code == GAUSSIAN
    highest = maximum if code == TRUNCATED else math.inf
    first = 3 if is_real else 2  # the smallest j of a root whose power is below one
    exponent = 2.0 if is_real else 1.0  # T_j = |x|^(exponent / j)
    sides[:] = 0.0
    sides[:, FACTORIAL] = 1.0 if is_discrete else 0.0
    stretch = 1.0  # x = u^stretch
    if is_real:
        sides[:, QUADRATIC] = eta[0]
        if order > 1:
            sides[0, LINEAR], sides[1, LINEAR] = eta[1], -eta[1]
    else:
        sides[:, LINEAR] = eta[0]
    # Without a falling linear term the highest power present takes the place of u.
    if not is_discrete and not eta[0] < 0.0:
        if not is_integrable(code, eta):
            return math.nan
        leading = first
        while eta[leading - 1] == 0.0:
            leading += 1
        stretch = leading / exponent
        sides[:, QUADRATIC] = 0.0
        sides[:, LINEAR], sides[:, LOGARITHMIC] = eta[leading - 1], stretch - 1.0
        first, exponent = leading + 1, float(leading)
    for j in range(order):
        is_root = j + 1 >= first
        coefficients[j] = eta[j] if is_root else 0.0
        powers[j] = exponent / (j + 1) if is_root else 0.5
    # Anchors, and values of f there relative to the larger one.
    num_sides = 2 if is_real else 1
    for s in range(num_sides):
        offsets[s] = side_parameters(sides[s], coefficients, powers, anchored[s], highest)
        if math.isnan(offsets[s]):
            return math.nan
    reference = offsets[0] if num_sides == 1 else max(offsets[0], offsets[1])
    # The hat over both sides, and a draw under it.
    count = np.int64(0)  # a bare 0 would be a type of its own, for which all that is called compiles anew
    for s in range(num_sides):
        offsets[s] -= reference
        count = add_side(
            pieces, count, s, sides[s], coefficients, powers, anchored[s], offsets[s], highest, is_discrete
        )
    count = finish_hat(pieces, count, sides, coefficients, powers, anchored, offsets, is_discrete, cumulative)
    s, u = draw_under_hat(
        pieces, count, sides, coefficients, powers, anchored, offsets, is_discrete, cumulative, words, b
    )
    if stretch != 1.0:
        u = math.pow(u, stretch)
    return -u if s == 1 else u


@njit(cache=True)
def draw_nodes(code, maximum, natural, small, work, words, drawn):
    """One draw (chains,) from every row of natural parameters (chains, k); NaN where there is no law."""
    num_chains, order = natural.shape
    # Small counts by inversion, others under a hat.
    if code <= TRUNCATED:
        draw_small(natural, maximum, small, work[4], words, drawn)
        for b in range(num_chains):
            if drawn[b] < 0.0:
                drawn[b] = _draw_from_hat(code, maximum, natural[b], work, words, b)
        return
    # Reals without roots have closed forms.
    first = 2 if code == GAUSSIAN else 1
    for b in range(num_chains):
        has_roots = False
        for j in range(first, order):
            has_roots = has_roots or natural[b, j] != 0.0
        if has_roots or not natural[b, 0] < 0.0:
            drawn[b] = _draw_from_hat(code, maximum, natural[b], work, words, b)
        elif code == EXPONENTIAL:
            drawn[b] = -math.log(uniform(words, b)) / -natural[b, 0]
        else:
            mean = -0.5 * natural[b, 1] / natural[b, 0] if order > 1 else 0.0
            drawn[b] = mean + normal(words, b) / math.sqrt(-2.0 * natural[b, 0])


@njit(forceinline=True)
def _set_roots(code, small, roots, s, b, x):
    if code <= TRUNCATED and x < TABLE_SIZE:
        for j in range(roots.shape[0]):
            roots[j, s, b] = small[0][j, np.int64(x)]
        return
    for j in range(roots.shape[0]):
        if code == GAUSSIAN:
            if j == 0:
                roots[j, s, b] = x * x
            elif j == 1:
                roots[j, s, b] = x
            else:
                roots[j, s, b] = math.pow(abs(x), 2.0 / (j + 1))
        else:
            roots[j, s, b] = x if j == 0 else (math.sqrt(x) if j == 1 else math.pow(x, 1.0 / (j + 1)))


@njit(cache=True)
def fill_roots(codes, small, states, roots):
    """Roots (k, d, chains) of all states (d, chains)."""
    for s in range(states.shape[0]):
        for b in range(states.shape[1]):
            _set_roots(codes[s], small, roots, s, b, states[s, b])


@njit(cache=True)
def add_natural(program, beta, s, roots, natural, product):
    """Natural parameters (chains, k) of variable s in all chains."""
    linear, first, root, coefficient, first_other, other = program
    for b in range(natural.shape[0]):
        for j in range(natural.shape[1]):
            natural[b, j] = linear[s, j]
    if beta == 0.0:
        return
    for e in range(first[s], first[s + 1]):
        j, start, end = root[e], first_other[e], first_other[e + 1]
        a = beta * coefficient[e]
        if end == start + 1:
            t = other[start]
            for b in range(natural.shape[0]):
                natural[b, j] += a * roots[j, t, b]
            continue
        for b in range(natural.shape[0]):
            product[b] = a
        for m in range(start, end):
            t = other[m]
            for b in range(natural.shape[0]):
                product[b] *= roots[j, t, b]
        for b in range(natural.shape[0]):
            natural[b, j] += product[b]


@njit(cache=True)
def draw_category(members, program, beta, natural, product, words, states, roots):
    """Set one of the indicators of a category (none where there are no members) in all chains, given all others.

    Returns the number of a chain where there is no law, or -1.
    """
    size, num_chains = members.shape[0], natural.shape[0]
    if size == 0:
        return -1
    scores = np.empty((size, num_chains))
    for m in range(size):
        add_natural(program, beta, members[m], roots, natural, product)
        for b in range(num_chains):
            scores[m, b] = natural[b].sum()  # all roots of 1 are 1
    # By inversion, relative to the largest.
    for b in range(num_chains):
        top, total = scores[:, b].max(), 0.0
        if not math.isfinite(top):
            return b
        for m in range(size):
            total += math.exp(scores[m, b] - top)
            scores[m, b] = total
        target, chosen = uniform(words, b) * total, 0
        while chosen < size - 1 and scores[chosen, b] <= target:
            chosen += 1
        for m in range(size):
            value = 1.0 if m == chosen else 0.0
            states[members[m], b] = value
            roots[:, members[m], b] = value
    return -1


@njit(cache=True)
def sweep(laws, program, beta, order, num_sweeps, small, work, words, states, roots):
    """Draw the variables in ``order`` (positions), one after the other, ``num_sweeps`` times in all chains of a tile.

    Returns:
        The position of a variable whose conditional has no law, plus its size times the chain's number; or -1.
    """
    codes, maxima, first_of_block, block = laws
    natural, product, drawn = work[0], work[1], work[2]
    for _ in range(num_sweeps):
        for s in order:
            if codes[s] == INDICATOR:  # all of a category at its first one
                members = block[first_of_block[s] : first_of_block[s + 1]]
                failed = draw_category(members, program, beta, natural, product, words, states, roots)
                if failed >= 0:
                    return s + failed * states.shape[0]
                continue
            add_natural(program, beta, s, roots, natural, product)
            draw_nodes(codes[s], maxima[s], natural, small, work, words, drawn)
            for b in range(states.shape[1]):
                x = drawn[b]
                if math.isnan(x):
                    return s + b * states.shape[0]
                states[s, b] = x
                _set_roots(codes[s], small, roots, s, b, x)
    return -1


@njit(cache=True)
def score(codes, linear, terms, states, roots, single, joint):
    """Log base measures and terms of single variables, and terms of several (chains,), from the cached roots."""
    root, coefficient, first, member = terms
    single[:], joint[:] = 0.0, 0.0
    for s in range(states.shape[0]):
        for b in range(states.shape[1]):
            value = -math.lgamma(states[s, b] + 1.0) if codes[s] <= TRUNCATED else 0.0
            for j in range(roots.shape[0]):
                value += linear[s, j] * roots[j, s, b]
            single[b] += value
    for e in range(root.shape[0]):
        j = root[e]
        for b in range(states.shape[1]):
            value = coefficient[e]
            for m in range(first[e], first[e + 1]):
                value *= roots[j, member[m], b]
            joint[b] += value


# The same where some family is a user's: the program and the random numbers are compiled, that family is NumPy's.


def user_node_draws(family: UserFamily, natural: Floats, words: Any) -> Floats:
    """One draw (chains,) from every row of natural parameters (chains, k); NaN where there is no law."""

    def numbers(rows: NDArray[np.int64]) -> Floats:
        drawn = np.empty(len(rows))
        uniforms(words, rows, drawn)
        return drawn

    return user_draws(family, natural, numbers)


def fill_user_roots(families: NodeFamilies, states: Floats, roots: Floats) -> None:
    """Roots (k, d, chains) of all states (d, chains)."""
    for family, places in families.groups:
        for j in range(len(roots)):
            roots[j, places] = _numbers(family.root, states[places], j + 1)


def _numbers(function: Callable[..., torch.Tensor], values: Floats, *arguments: int) -> Floats:
    """A function of tensors, of an array."""
    return function(torch.from_numpy(values), *arguments).numpy()


def user_sweep(
    families: NodeFamilies,
    laws: tuple[Any, ...],
    program: tuple[Any, ...],
    beta: float,
    order: NDArray[np.int64],
    num_sweeps: int,
    small: tuple[Any, ...],
    work: tuple[Any, ...],
    words: Any,
    states: Floats,
    roots: Floats,
) -> int:
    """Draw the variables in ``order``, as :func:`sweep` does; the same answer."""
    # Natural parameters by compiled code, draws by the functions of the family unless it is the library's.
    natural, product, drawn = work[0], work[1], work[2]
    for _ in range(num_sweeps):
        for s in order:
            family = families[s]
            if isinstance(family, IndicatorFamily):
                members = laws[3][laws[2][s] : laws[2][s + 1]]
                failed = int(draw_category(members, program, beta, natural, product, words, states, roots))
                if failed >= 0:
                    return int(s) + failed * len(states)
                continue
            add_natural(program, beta, s, roots, natural, product)
            if isinstance(family, UserFamily):
                drawn[:] = user_node_draws(family, natural, words)
            else:
                draw_nodes(family.code, family.largest_value, natural, small, work, words, drawn)
            if np.isnan(drawn).any():
                return int(s) + int(np.isnan(drawn).argmax()) * len(states)
            states[s] = drawn
            for j in range(len(roots)):
                roots[j, s] = _numbers(family.root, drawn, j + 1)
    return -1


def user_score(
    families: NodeFamilies,
    linear: Floats,
    terms: tuple[Any, ...],
    states: Floats,
    roots: Floats,
    single: Floats,
    joint: Floats,
) -> None:
    """Log base measures and terms of single variables, and terms of several (chains,), from the cached roots."""
    # Terms of single variables with the base measure, then products of roots.
    root, coefficient, first, member = terms
    single[:] = np.einsum("sj,jsb->b", linear, roots)
    for family, places in families.groups:
        single += _numbers(family.log_base, states[places]).sum(0)
    joint[:] = 0.0
    for e in range(len(root)):
        joint += coefficient[e] * math.prod(roots[root[e], m] for m in member[first[e] : first[e + 1]])
