"""Gibbs sweeps of models of a user's family: the program and the random numbers are compiled, the family is NumPy's.

The functions are those of :mod:`._kernels`, with the family in the place of its code.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..nodes.user_family import UserFamily, user_draws
from ._draw_kernels import uniforms
from ._kernels import add_natural, workspace

Floats = NDArray[np.float64]


def user_node_draws(family: UserFamily, natural: Floats, words: Any) -> Floats:
    """One draw (chains,) from every row of natural parameters (chains, k); NaN where there is no law."""

    def numbers(rows: NDArray[np.int64]) -> Floats:
        found = np.empty(len(rows))
        uniforms(words, rows, found)
        return found

    return user_draws(family, natural, numbers)


def fill_user_roots(family: UserFamily, states: Floats, roots: Floats) -> None:
    """Roots (k, d, chains) of all states (d, chains)."""
    for j in range(len(roots)):
        roots[j] = family.rooted(states, j + 1)


def user_sweep(
    family: UserFamily,
    program: tuple[Any, ...],
    beta: float,
    order: NDArray[np.int64],
    num_sweeps: int,
    words: Any,
    states: Floats,
    roots: Floats,
) -> int:
    """Draw the variables in ``order``, as :func:`._kernels.sweep` does; the same answer."""
    # Natural parameters by compiled code, draws by the functions of the family.
    work = workspace(len(roots), states.shape[1])
    natural, product = work[0], work[1]
    for _ in range(num_sweeps):
        for s in order:
            add_natural(program, beta, s, roots, natural, product)
            drawn = user_node_draws(family, natural, words)
            if np.isnan(drawn).any():
                return int(s) + int(np.isnan(drawn).argmax()) * len(states)
            states[s] = drawn
            for j in range(len(roots)):
                roots[j, s] = family.rooted(drawn, j + 1)
    return -1


def user_score(
    family: UserFamily,
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
    single[:] = family.measured(states).sum(0) + np.einsum("sj,jsb->b", linear, roots)
    joint[:] = 0.0
    for e in range(len(root)):
        joint += coefficient[e] * math.prod(roots[root[e], m] for m in member[first[e] : first[e + 1]])
