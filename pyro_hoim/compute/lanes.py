r"""Shared parts of the compiled samplers: tiles of chains, random numbers per lane, threads.

A *tile* holds the chains of one group that a kernel moves together, one chain per *lane*, as an array [variable,
lane]. Innermost loops run over lanes, which makes them vector instructions, and a whole tile stays in the cache.
Every operation of a lane is written so that its result is the same in any lane of any tile: fused products are
explicit and no fast-math flag lets the compiler reorder sums.

References:
    David Blackman and Sebastiano Vigna, Scrambled linear pseudorandom number generators, 2021 (xoshiro128+); Guy
    Steele, Doug Lea and Christine Flood, Fast splittable pseudorandom number generators, 2014 (splitmix64).
"""

# ruff: noqa: ARG001 (hooks of the compiler have fixed signatures)
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportUnusedFunction=false
# pyright: reportCallIssue=false

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numba import types
from numba.extending import overload
from numpy.typing import NDArray
from typing_extensions import override

from .jit import ALONE, njit

LANES = 16
"""The width of every tile is a multiple of this, so that inner loops of this length need no remainder."""

_MAX_WIDTH = 64

SMALL = 2000
"""Visits of tiles below which starting threads costs more than it saves."""

PIECE = 2.0**29
"""Reads of single numbers by compiled code, at most, after which it returns to answer a Ctrl-C: about 0.1 s."""

Array = NDArray[Any]


def tile_width(num_chains: int) -> int:
    """Lanes per tile: 64 for many chains, fewer when the chains of a group would not fill two tiles."""
    width = _MAX_WIDTH
    while width > LANES and num_chains < 2 * width:
        width //= 2
    return width


def balanced_width(num_groups: int, num_chains: int, num_threads: int) -> int:
    """Lanes per tile, a multiple of 16 up to 256 with which all threads are done soonest.

    A tile takes about as long as its lanes and 32 more.

    Example:
        >>> [balanced_width(1, n, 2) for n in (1, 40, 512, 600)], balanced_width(100, 600, 2)
        ([16, 32, 256, 160], 208)
    """
    fewest = -(-num_chains // 256)
    best, width = math.inf, 16
    for tiles in range(fewest, fewest + num_threads):
        lanes = -(-num_chains // tiles // 16) * 16
        rounds = -(-num_groups * tiles // num_threads)
        if rounds * (lanes + 32) < best:
            best, width = rounds * (lanes + 32), lanes
    return width


def to_tiles(codes: Array, width: int) -> Array:
    """States (groups, chains, d) as tiles (groups * tiles per group, d, width); padded lanes repeat the last chain."""
    num_groups, num_chains, size = codes.shape
    per_group = -(-num_chains // width)
    padding = per_group * width - num_chains
    if padding:
        codes = np.concatenate([codes, np.repeat(codes[:, -1:], padding, axis=1)], axis=1)
    tiles = codes.reshape(num_groups * per_group, width, size)
    return np.ascontiguousarray(tiles.transpose(0, 2, 1))


def from_tiles(tiles: Array, num_groups: int, num_chains: int) -> Array:
    """States (groups, chains, d) from tiles, the inverse of :func:`to_tiles`."""
    size = tiles.shape[1]
    codes = tiles.transpose(0, 2, 1).reshape(num_groups, len(tiles) // num_groups * tiles.shape[2], size)
    return np.ascontiguousarray(codes[:, :num_chains])


def aligned(values: Array) -> Array:
    """A copy that starts at a cache line; vectors across two lines would cost a fifth of the speed."""
    space = np.empty(values.nbytes + 64, dtype=np.uint8)
    start = -space.ctypes.data % 64
    copy = space[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finaliser of splitmix64; sums and products wrap around."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def lane_seeds(seed: int, num_groups: int, num_chains: int, width: int) -> NDArray[np.uint32]:
    """States of xoshiro128 (4, tiles, width); a function of seed, group and chain alone, never all zero."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    per_group = -(-num_chains // width)
    key = mix(np.array([seed % 2**64], dtype=np.uint64) + golden)  # arrays wrap around without a warning
    groups = mix((key ^ np.arange(num_groups, dtype=np.uint64)) + golden)
    lanes = mix((groups[:, None] ^ np.arange(per_group * width, dtype=np.uint64)) + golden)
    # Four words of 32 bits from two hashes.
    low, high = mix(lanes + golden), mix(lanes - golden)
    words = np.stack([low, low >> np.uint64(32), high, high >> np.uint64(32)]).astype(np.uint32)
    words[0] |= np.uint32((words == 0).all(axis=0))
    return np.ascontiguousarray(words.reshape(4, num_groups * per_group, width))


@njit(forceinline=True)
def fill_uniform(r0, r1, r2, r3, u):
    """One draw of xoshiro128+ per lane: u (lanes,) float32 in (0, 1), the middles of 2^23 equal intervals."""
    for b in range(u.shape[0]):
        s0, s1, s2, s3 = r0[b], r1[b], r2[b], r3[b]
        r = np.uint32(s0 + s3)
        t = np.uint32(s1 << np.uint32(9))
        s2 = np.uint32(s2 ^ s0)
        s3 = np.uint32(s3 ^ s1)
        r1[b] = np.uint32(s1 ^ s2)
        r0[b] = np.uint32(s0 ^ s3)
        r2[b] = np.uint32(s2 ^ t)
        r3[b] = np.uint32((s3 << np.uint32(11)) | (s3 >> np.uint32(21)))
        u[b] = np.float32(np.int32(r >> np.uint32(9))) * np.float32(2.0**-23) + np.float32(2.0**-24)


@njit(forceinline=True)
def fill_uniform64(r0, r1, r2, r3, u):
    """Two draws of xoshiro128+ per lane: u (lanes,) float64 in (0, 1), the middles of 2^52 equal intervals."""
    # Two steps of the generator: the high and the low bits of the number.
    for b in range(u.shape[0]):
        s0, s1, s2, s3 = r0[b], r1[b], r2[b], r3[b]
        high = np.uint32(s0 + s3)
        t = np.uint32(s1 << np.uint32(9))
        s2 = np.uint32(s2 ^ s0)
        s3 = np.uint32(s3 ^ s1)
        s1 = np.uint32(s1 ^ s2)
        s0 = np.uint32(s0 ^ s3)
        s2 = np.uint32(s2 ^ t)
        s3 = np.uint32((s3 << np.uint32(11)) | (s3 >> np.uint32(21)))
        low = np.uint32(s0 + s3)
        t = np.uint32(s1 << np.uint32(9))
        s2 = np.uint32(s2 ^ s0)
        s3 = np.uint32(s3 ^ s1)
        r1[b] = np.uint32(s1 ^ s2)
        r0[b] = np.uint32(s0 ^ s3)
        r2[b] = np.uint32(s2 ^ t)
        r3[b] = np.uint32((s3 << np.uint32(11)) | (s3 >> np.uint32(21)))
        u[b] = (
            np.float64(np.int32(high >> np.uint32(6))) * 2.0**-26
            + np.float64(np.int32(low >> np.uint32(6))) * 2.0**-52
            + 2.0**-53
        )


def fill(r0, r1, r2, r3, u):
    """Uniform numbers in the precision of u, for compiled callers: :func:`fill_uniform` or :func:`fill_uniform64`."""
    raise NotImplementedError


@overload(fill, jit_options=ALONE | {"forceinline": True})
def _fill(r0, r1, r2, r3, u):
    return (fill_uniform if u.dtype == types.float32 else fill_uniform64).py_func


_pools: dict[int, ThreadPoolExecutor] = {}  # of a process: threads of a parent do not survive a fork


def run_threads(
    function: Callable[[int, int], object], num_items: int, num_threads: int | None = None, cost: float = 0.0
) -> None:
    """Call ``function(first, step)``, which is to handle items first, first + step, and so on, until all were handled.

    Worker w handles items w, w + (number of workers), and so on, in as many calls as keep each below :data:`PIECE`,
    where ``cost`` is that of all items: compiled code answers no Ctrl-C before it returns. The remainder of first by
    the number of workers is the worker.

    The caller is worker 0, so one worker needs no other thread. Threads stay for later calls; a forked process, which
    has none of its parent's, starts its own. The first error of a worker is raised after all have ended; the others
    leave out what they have not begun.
    """
    workers = max(1, min(torch.get_num_threads() if num_threads is None else num_threads, num_items))
    parts = max(1, min(-(-num_items // workers), math.ceil(cost / workers / PIECE)))
    stop = threading.Event()

    def handle(worker: int) -> None:
        try:
            for part in range(parts):
                if stop.is_set():
                    return
                function(worker + part * workers, parts * workers)
        except BaseException:
            stop.set()
            raise

    if workers == 1:
        handle(0)
        return
    process, most = os.getpid(), os.cpu_count() or 1
    pool = _pools.get(process) or _pools.setdefault(process, ThreadPoolExecutor(most, "pyro-hoim-lanes"))
    others = [pool.submit(handle, worker) for worker in range(1, workers)]
    # Wait for all, also after an interrupt: they write into arrays that the caller will free.
    errors: list[BaseException] = []
    try:
        handle(0)
    finally:
        while others:
            try:
                error = others[-1].exception()
                others.pop()
            except KeyboardInterrupt as interrupt:
                stop.set()
                error = interrupt
            errors += [] if error is None else [error]
    if errors:
        raise errors[0]


def pieces(num_steps: int, cost: float, multiple: int = 1) -> list[tuple[int, int]]:
    """Bounds of parts of a run of some steps, each of at most about :data:`PIECE` where ``cost`` is that of all.

    All parts but the last have a multiple of some number of steps, at least one.
    """
    least = max(1, math.floor(num_steps * PIECE / max(cost, 1.0)))
    length = num_steps if cost <= PIECE else max(multiple, least // multiple * multiple)
    return [(first, min(num_steps, first + length)) for first in range(0, num_steps, max(1, length))] or [(0, 0)]


def later(order: NDArray[np.int32], sweep: int) -> NDArray[np.int32]:
    """The order (sweeps, visits) in which blocks are visited from a later sweep on; it begins again at its end."""
    return np.require(np.roll(order, -(sweep % len(order)), axis=0), np.int32, ["C", "W"])


class LaneChains:
    """What engines with a generator per lane share: everything but how the chains move; see ``Engine``.

    An engine says what its tiles hold (:meth:`_written`, :meth:`_codes`). Chains of one model are one group.
    """

    def __init__(self, shape: tuple[int, int], seed: int, width: int, code: type[np.integer[Any]]) -> None:
        num_groups, num_chains = self._shape = shape
        self._width, self._code = width, code
        self._per_group = -(-num_chains // width)
        self._random = lane_seeds(seed, num_groups, num_chains, width)
        chain = np.arange(num_chains)
        self._tile, self._lane = np.arange(num_groups)[:, None] * self._per_group + chain // width, chain % width
        self._tiles: Array | None = None

    def _written(self, codes: Array) -> Array:
        """Tiles that hold states (groups, chains, d)."""
        return to_tiles(codes.astype(self._code), self._width)

    def _codes(self) -> Array:
        """States (groups, chains, d) that the tiles hold."""
        return from_tiles(self._states, *self._shape).astype(self._code, copy=False)

    @property
    def _states(self) -> Array:
        if self._tiles is None:
            raise RuntimeError("engine: no states yet; set_codes comes first")
        return self._tiles

    def set_codes(self, codes: torch.Tensor) -> None:
        """Take states, whole numbers (groups, chains, d)."""
        self._tiles = self._written(codes.cpu().numpy())

    def get_codes(self) -> torch.Tensor:
        """States, long (groups, chains, d), a copy."""
        return torch.from_numpy(self._codes().astype(np.int64))

    def gather(self, index: torch.Tensor) -> None:
        """Chain c of group g takes the state of chain ``index[g, c]`` of its group; random numbers stay."""
        chain, tiles = index.cpu().numpy(), self._states
        tile = np.arange(self._shape[0])[:, None] * self._per_group + chain // self._width
        tiles[self._tile, :, self._lane] = tiles[tile, :, chain % self._width]

    def state(self) -> dict[str, torch.Tensor]:
        """States (groups, chains, d) and words of the generators (4, groups, chains)."""
        random = np.ascontiguousarray(self._random[:, self._tile, self._lane]).view(np.int32)  # a type of safetensors
        return {"codes": torch.from_numpy(self._codes()), "random": torch.from_numpy(random)}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from :meth:`state` with equal bits."""
        self._random[:, self._tile, self._lane] = state["random"].cpu().numpy().view(np.uint32)
        self.set_codes(state["codes"])


class EnergyChains(LaneChains, ABC):
    """Chains whose engine keeps their energies; new weights and states mark them, since not every one is asked for."""

    _is_stale = True

    @abstractmethod
    def _look_up(self) -> None:
        """Look the energies of all states up."""

    def _look(self) -> None:
        """Bring the energies up to date."""
        if self._is_stale:
            self._look_up()
        self._is_stale = False

    @override
    def set_codes(self, codes: torch.Tensor) -> None:
        super().set_codes(codes)
        self._is_stale = True

    @override
    def gather(self, index: torch.Tensor) -> None:
        super().gather(index)
        self._is_stale = True
