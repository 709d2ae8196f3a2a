"""States drawn from the mini-buckets of an upper bound, what they prove by being possible, and for how long."""

import math
import time
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from ...structure.hypergraph import InteractionHypergraph, cell_index
from ._join_graph import tables_of
from ._sweeps import Sweeps

Floats = NDArray[np.float64]

CHUNK = 2**12
"""Draws made at once, and particles of a run."""
_PIECE = 2**9  # independent draws that one thread makes together
_THRESHOLD = 0.5  # share of effective particles below which they are drawn anew
_EPS = float(np.finfo(np.float64).eps)  # twice the error of one addition
_LOG_SUM = 1e-13  # error of the logarithm of a sum of exponentials, relative


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


class Met(NamedTuple):
    """Distinct possible states (n, d), log q of them (n,), and the log of their sum, rounded downward."""

    states: NDArray[np.int64]
    logs: NDArray[np.float64]
    bound: float

    def slopes(self, hypergraph: InteractionHypergraph) -> torch.Tensor:
        """Gradient of the bound in the tables (num_terms,): means over the states, by their shares of the sum."""
        slopes = torch.zeros(hypergraph.num_terms, dtype=torch.float64)
        if len(self.logs):
            where = cell_index(hypergraph).flat(torch.from_numpy(self.states))
            shares = torch.from_numpy(self.logs).softmax(0)
            slopes.index_add_(0, where.reshape(-1), shares[:, None].expand(where.shape).reshape(-1))
        return slopes


def met(hypergraph: InteractionHypergraph, tables: torch.Tensor, states: NDArray[np.integer]) -> Met:
    """What states (n, d) prove of the model with tables (num_terms,), float64. Each counts once, impossible ones not.

    A sum of k entries is wrong by less than k - 1 roundings of the sum of their sizes.
    """
    rows = np.ascontiguousarray(states)
    if rows.shape[1]:  # equal rows have equal bytes
        first = np.unique(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0], return_index=True)[1]
        rows = rows[np.sort(first)]
    else:
        rows = rows[:1]
    codes = torch.from_numpy(rows.astype(np.int64))
    logs = log_q(hypergraph, tables, codes)
    is_possible = logs > -math.inf
    codes, logs = codes[is_possible], logs[is_possible].numpy()
    if not len(logs):
        return Met(codes.numpy(), logs, -math.inf)
    sizes = log_q(hypergraph, tables.abs(), codes).numpy()
    total = float(np.logaddexp.reduce(logs - _EPS * len(hypergraph) * sizes))
    return Met(codes.numpy(), logs, total - _LOG_SUM * (1.0 + abs(total)))


def log_q(hypergraph: InteractionHypergraph, tables: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Log unnormalised probabilities (n,) of states (n, d) under tables (num_terms,)."""
    from ...compute.lanes import run_threads
    from ._kernels import LANES, look_up

    codes, values = np.ascontiguousarray(states.numpy()), np.ascontiguousarray(tables.numpy())
    arrays, logs = tables_of(hypergraph), np.zeros(len(codes))
    run_threads(lambda first, step: look_up(codes, values, arrays, logs, first, step), -(-len(codes) // LANES))
    return torch.from_numpy(logs)


class Watch:
    """Ends the work on one model at a time limit, and shows the bounds so far in a line on standard error.

    Args:
        time_limit: seconds, of which every part of the work has the same share; None for no limit.
        progress: whether a line is shown.
        parts: number of parts, which follow each other.
    """

    def __init__(self, time_limit: float | None, progress: bool, parts: int) -> None:
        self._begin, self._limit, self._parts = time.monotonic(), time_limit, parts
        self._ended, self._low, self._high = list[str](), -math.inf, math.inf
        self._bar = tqdm(desc="log Z", bar_format="{desc} [{elapsed}]", leave=False, disable=not progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()

    def is_over(self, part: int, what: str) -> bool:
        """Whether the time of the first so many parts is over, of which the note will say that it ended some work."""
        if self._limit is None or time.monotonic() - self._begin < self._limit * part / self._parts:
            return False
        self._ended.append(what)
        return True

    def show(self, low: float = -math.inf, high: float = math.inf) -> None:
        """Show bounds of log Z where they are tighter than those before."""
        self._low, self._high = max(self._low, low), min(self._high, high)
        self._bar.set_description_str(f"log Z between {self._low:.7g} and {self._high:.7g}")

    def count(self, drawn: int, wanted: int, proposals: int) -> None:
        """Show how many states were drawn so far."""
        self._bar.set_description_str(f"{drawn} of {wanted} states, from {proposals} draws")

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on what the time limit ended, if anything."""
        if not self._ended:
            return ()
        return (f"the time limit of {self._limit:g} s ended {', '.join(dict.fromkeys(self._ended))}",)
