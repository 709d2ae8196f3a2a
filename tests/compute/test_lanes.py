"""Tiles, random numbers, exponentials and threads that the compiled samplers share."""

import math
import multiprocessing
import threading

import numpy as np
import pytest
import torch
from numba import njit

from pyro_hoim.compute.lanes import (
    LANES,
    fill_uniform,
    fill_uniform64,
    from_tiles,
    lane_seeds,
    run_threads,
    tile_width,
    to_tiles,
)


@njit(nogil=True)
def draw(r, u):
    fill_uniform(r[0], r[1], r[2], r[3], u)


@njit(nogil=True)
def draw64(r, u):
    fill_uniform64(r[0], r[1], r[2], r[3], u)


def test_width_lets_two_threads_share_the_chains():
    widths = [tile_width(n) for n in range(1, 300)]
    assert set(widths) == {16, 32, 64}
    assert all(w % LANES == 0 for w in widths)
    assert all(-(-n // w) >= 2 for n, w in enumerate(widths, 1) if n > LANES)


@pytest.mark.parametrize(("groups", "chains", "size"), [(1, 1, 3), (3, 77, 5), (2, 64, 1), (2, 5, 0)])
@pytest.mark.parametrize("width", [16, 64])
def test_tiles_hold_every_chain_once(groups, chains, size, width):
    codes = np.random.default_rng(0).integers(0, 9, (groups, chains, size))
    tiles = to_tiles(codes, width)
    assert tiles.shape == (groups * -(-chains // width), size, width)
    assert tiles.flags.c_contiguous
    np.testing.assert_array_equal(from_tiles(tiles, groups, chains), codes)
    last = tiles.reshape(groups, len(tiles) // groups, size, width)[:, -1, :, -1]
    np.testing.assert_array_equal(last, codes[:, -1])


def test_seeds_depend_on_seed_group_and_chain_only():
    few, many = lane_seeds(7, 2, 5, 16), lane_seeds(7, 3, 200, 64)
    np.testing.assert_array_equal(few[:, 1, :5], many.reshape(4, 3, -1)[:, 1, :5])
    words = many.reshape(4, -1).T
    assert len(np.unique(words, axis=0)) == len(words)
    assert words.any(axis=1).all()
    assert not np.array_equal(lane_seeds(8, 1, 16, 16), lane_seeds(7, 1, 16, 16))
    assert np.abs(words.mean(axis=0) / 2**32 - 0.5).max() < 0.06
    assert lane_seeds(-1, 1, 1, 16).dtype == np.uint32


def reference_generator(words):
    """xoshiro128+ as published, in Python integers."""
    s = list(words)
    while True:
        yield (s[0] + s[3]) % 2**32
        t = s[1] << 9 & 0xFFFFFFFF
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = (s[3] << 11 | s[3] >> 21) & 0xFFFFFFFF


def test_uniform_numbers_follow_the_published_generator():
    words = lane_seeds(1, 1, 16, 16)[:, 0].copy()
    generators = [reference_generator(words[:, lane].tolist()) for lane in range(16)]
    u = np.empty(16, np.float32)
    for _ in range(20):
        draw(words, u)
        np.testing.assert_array_equal(u, [(2 * (next(g) >> 9) + 1) / 2**24 for g in generators])
    v = np.empty(16)
    for _ in range(20):
        draw64(words, v)
        pairs = [(next(g), next(g)) for g in generators]
        np.testing.assert_array_equal(v, [(2 * ((a >> 6 << 26) + (b >> 6)) + 1) / 2**53 for a, b in pairs])


@pytest.mark.parametrize(("fill", "dtype"), [(draw, np.float32), (draw64, np.float64)])
def test_uniform_numbers_are_uniform(fill, dtype):
    words = lane_seeds(0, 1, 2**14, 2**14)[:, 0].copy()
    u = np.empty(2**14, dtype)
    cells = np.zeros((64, 64))
    last = None
    for _ in range(64):
        fill(words, u)
        assert u.min() > 0 and u.max() < 1
        cell = (u * 64).astype(int)
        if last is not None:
            np.add.at(cells, (last, cell), 1)
        last = cell
    mean = cells.sum() / cells.size
    excess = ((cells - mean) ** 2 / mean).sum() - (cells.size - 1)
    assert abs(excess) < 6 * math.sqrt(2 * cells.size)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_threads_share_the_items(workers):
    seen = []
    run_threads(lambda first, step: seen.extend(range(first, 7, step)), 7, workers)
    assert sorted(seen) == list(range(7))


def test_no_more_threads_than_items():
    steps = []
    run_threads(lambda first, step: steps.append((first, step, threading.current_thread())), 1, 8)
    assert steps == [(0, 1, threading.main_thread())]
    run_threads(lambda first, step: steps.append((first, step)), 0, 8)
    assert steps[1:] == [(0, 1)]


def test_threads_default_to_those_of_torch():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        steps = []
        run_threads(lambda first, step: steps.append(step), 10)
        assert steps == [3, 3, 3]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("failing", [0, 1])
def test_errors_of_workers_are_raised(failing):
    def work(first, step):
        if first == failing:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_threads(work, 4, 2)
    run_threads(lambda first, step: None, 4, 2)


def _count_in_child(queue):
    seen = []
    run_threads(lambda first, step: seen.append(first), 4, 2)
    queue.put(sorted(seen))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_forked_process_starts_its_own_threads():
    run_threads(lambda first, step: None, 4, 2)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_count_in_child, args=(queue,))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert queue.get() == [0, 1]
