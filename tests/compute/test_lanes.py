"""Tiles, random numbers, threads and pieces of compiled runs."""

import itertools
import math
import multiprocessing
import threading

import numpy as np
import pytest
import torch
from numba import njit

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.compute import lanes
from pyro_hoim.compute.engine import Wanted
from pyro_hoim.compute.lanes import (
    LANES,
    PIECE,
    fill_uniform,
    fill_uniform64,
    from_tiles,
    lane_seeds,
    pieces,
    run_threads,
    tile_width,
    to_tiles,
)
from pyro_hoim.log_linear.chains import products_engine, tables_engine
from pyro_hoim.log_linear.chains.products_engine import ProductsEngine
from pyro_hoim.log_linear.chains.tables_engine import TablesEngine

from support.calls import noted


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


def test_threads_are_those_of_torch_and_no_more_than_items():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        steps = []
        run_threads(lambda first, step: steps.append(step), 10)
        assert steps == [3, 3, 3]
    finally:
        torch.set_num_threads(before)
    steps = []
    run_threads(lambda first, step: steps.append((first, step, threading.current_thread())), 1, 8)
    assert steps == [(0, 1, threading.main_thread())]
    run_threads(lambda first, step: steps.append((first, step)), 0, 8)
    assert steps[1:] == [(0, 1)]


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


# Pieces, so that Ctrl-C is answered soon


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("items", [1, 2, 7, 40])
@pytest.mark.parametrize("cost", [0.0, 3.5 * PIECE, 1e3 * PIECE])
def test_every_item_is_handled_once_by_its_worker_in_small_calls(threads, items, cost):
    seen, calls, lock = [], [], threading.Lock()

    def work(first, step):
        with lock:
            mine = list(range(first, items, step))
            calls.append(mine)
            seen.extend(mine)

    run_threads(work, items, threads, cost)
    assert sorted(seen) == list(range(items))
    workers = min(threads, items)
    most = max(1, math.floor(PIECE / (cost / items))) if cost else items
    assert all(len(mine) <= most for mine in calls)
    assert all(len({item % workers for item in mine}) <= 1 for mine in calls)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interrupt_leaves_out_what_was_not_begun(threads):
    calls = []

    def work(first, _):
        calls.append(first)
        if first % threads == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_threads(work, 3000, threads, 1000 * PIECE)
    assert calls.count(0) == 1 and sum(first % threads == 0 for first in calls) == 1
    run_threads(lambda first, _: calls.append(first), 3, threads)  # the workers go on


@pytest.mark.parametrize(("steps", "cost", "multiple"), [(1000, 40.0, 1), (1000, 40.0, 7), (5, 1e6, 1), (5, 0.5, 3)])
def test_pieces_cover_all_steps_and_are_small(steps, cost, multiple):
    bounds = pieces(steps, cost * PIECE, multiple)
    assert [bound[0] for bound in bounds] == [0, *(bound[1] for bound in bounds[:-1])] and bounds[-1][1] == steps
    assert all((last - first) % multiple == 0 for first, last in bounds[:-1])
    longest = max(last - first for first, last in bounds)
    assert longest * cost <= steps or longest <= multiple


def made(kind, blocks, chains=70):
    """An engine of random tables over variables with two or three levels."""
    levels = [2, 2, 2, 2, 2] if kind is ProductsEngine else [2, 3, 2, 4, 2]
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities(levels), 3)
    engine = kind(graph, blocks, 2, chains, 5, torch.float64)
    generator = torch.Generator().manual_seed(3)
    tables = torch.randn(2, graph.num_terms, generator=generator, dtype=torch.float64)
    engine.set_weights(tables, 0.3 * torch.randn(1, sum(levels), generator=generator, dtype=torch.float64))
    engine.set_codes(torch.zeros(2, chains, 5, dtype=torch.long))
    return engine, tables


BLOCKS = [((0,), (1,), (2,), (3,), (4,)), ((0, 1), (2,), (3, 4))]


@pytest.mark.parametrize("kind", [TablesEngine, ProductsEngine])
@pytest.mark.parametrize("blocks", BLOCKS, ids=["sites", "blocks"])
def test_equal_bits_whatever_the_size_of_the_pieces(kind, blocks, monkeypatch):
    def everything():
        engine, tables = made(kind, blocks)
        order = torch.stack([torch.randperm(len(blocks), generator=torch.Generator().manual_seed(k)) for k in range(3)])
        order = order.int().numpy()
        found = [engine.anneal(order, torch.linspace(0, 1, 301).double().numpy(), 2)]
        found.append(engine.anneal(order, torch.linspace(0, 1, 30).double().numpy(), 1, start=0.1 * tables))
        beta = torch.tensor([1.0, 0.7]).double().numpy()
        for thin, energies in ((2, True), (5, True), (0, False)):
            record = engine.sweep(order, 403, beta, Wanted(thin, True, energies, True))
            found += [part for part in record[1:] if part is not None]
        return [*found, *engine.energies(), *engine.state().values()]

    calls = noted(monkeypatch, tables_engine, "run_threads")
    monkeypatch.setattr(products_engine, "run_threads", tables_engine.run_threads)
    whole = everything()
    before = len(calls)
    monkeypatch.setattr(lanes, "PIECE", 50_000.0)
    cut = everything()
    assert len(calls) > 2 * before + 5
    assert len(whole) == len(cut)
    assert all(torch.equal(a, b) for a, b in zip(whole, cut, strict=True))
    assert any(not torch.equal(a, b) for a, b in itertools.pairwise(whole[:2]))
