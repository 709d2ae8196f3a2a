"""States drawn from the mini-buckets of an upper bound, independently or in runs that draw the likely ones anew."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._sweeps import Sweeps

Floats = NDArray[np.float64]

CHUNK = 2**12
"""Draws made at once, and particles of a run."""
_PIECE = 2**9  # independent draws that one thread makes together
_THRESHOLD = 0.5  # share of effective particles below which they are drawn anew


class Run(NamedTuple):
    """States (n, d), weights of them whose mean is an unbiased estimate of Z, and how often they were drawn anew."""

    states: NDArray[np.uint8 | np.int32]
    log_weights: Floats
    times: int


def code_type(cards: tuple[int, ...]) -> type[np.uint8 | np.int32]:
    """The smallest type of levels."""
    return np.uint8 if max(cards, default=1) <= 2**8 else np.int32


def independent(sweeps: Sweeps, number: int, seed: int) -> Run:
    """States drawn independently; weights q / p are at most e^U."""
    runs = _runs(sweeps, -(-number // _PIECE), min(number, _PIECE), seed, 0.0)
    states = np.concatenate([run.states for run in runs])[:number]
    return Run(states, np.concatenate([run.log_weights for run in runs])[:number], 0)


def resampled(sweeps: Sweeps, number: int, size: int, seed: int) -> list[Run]:
    """Independent runs of ``size`` particles each, which are drawn anew by their weights where few carry these."""
    return _runs(sweeps, number, size, seed, _THRESHOLD)


def _runs(sweeps: Sweeps, number: int, size: int, seed: int, threshold: float) -> list[Run]:
    """Runs on all threads, each with random numbers of its own."""
    from ...compute.lanes import lane_seeds, run_threads
    from ._particle_kernels import draw

    sweeps.make_current()
    cards = sweeps.graph.hypergraph.domain.cardinalities
    seeds = lane_seeds(seed, number, size, size)
    states = np.zeros((number, len(cards), size), dtype=code_type(cards))
    log_weights, scales, times = np.zeros((number, size)), np.zeros(number), np.zeros(number, dtype=np.int64)
    buffers, few = (sweeps.values, sweeps.weights, sweeps.compiled.program), threshold * size

    def part(first: int, step: int) -> None:
        for k in range(first, number, step):
            start = np.ascontiguousarray(seeds[:, k])
            scales[k], times[k] = draw(*buffers, start, few, states[k], log_weights[k])

    reads = float(sweeps.graph.division.nodes[:, 1].sum()) * size * number
    run_threads(part, number, cost=16.0 * reads)
    log_weights += (scales + sweeps.best)[:, None]
    return [Run(states[k].T, log_weights[k], int(times[k])) for k in range(number)]
