"""Divergences and projections of laws, written so that they share no code with the library."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def divergence(p: Any, q: Any) -> float:
    """D(p; q) cell by cell, infinite where q has a zero that p has not."""
    pairs = zip(np.asarray(p).ravel().tolist(), np.asarray(q).ravel().tolist(), strict=True)
    return math.fsum(a * math.log(a / b) if b else math.inf for a, b in pairs if a > 0)


def proportional_fit(p: np.ndarray, cliques: Sequence[Sequence[int]], sweeps: int = 20_000) -> np.ndarray:
    """Iterative proportional fitting from the uniform law to the margins of p over some sets of axes, with einsum."""
    letters = "abcdef"[: p.ndim]
    q = np.full(p.shape, 1 / p.size)
    for _ in range(sweeps):
        before = q.copy()
        for axes in cliques:
            margin = "".join(letters[i] for i in axes)
            wanted, have = np.einsum(f"{letters}->{margin}", p), np.einsum(f"{letters}->{margin}", q)
            factor = np.where(have > 0, wanted / np.where(have > 0, have, 1), 0)
            q = np.einsum(f"{letters},{margin}->{letters}", q, factor)
        if np.abs(q - before).max() < 1e-15:
            break
    return q
