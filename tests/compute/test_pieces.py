"""Compiled runs are cut into pieces, so that Ctrl-C is answered soon, and every piece size gives the same bits."""

import itertools
import math
import threading

import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.compute import lanes
from pyro_hoim.compute.engine import Wanted
from pyro_hoim.compute.lanes import PIECE, pieces, run_threads
from pyro_hoim.log_linear.chains import products_engine, tables_engine
from pyro_hoim.log_linear.chains.products_engine import ProductsEngine
from pyro_hoim.log_linear.chains.tables_engine import TablesEngine


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

    calls = [0]
    real = lanes.run_threads

    def counted(*arguments, **options):
        calls[0] += 1
        return real(*arguments, **options)

    monkeypatch.setattr(tables_engine, "run_threads", counted)
    monkeypatch.setattr(products_engine, "run_threads", counted)
    whole = everything()
    before, calls[0] = calls[0], 0
    monkeypatch.setattr(lanes, "PIECE", 50_000.0)
    cut = everything()
    assert calls[0] > before + 5
    assert len(whole) == len(cut)
    assert all(torch.equal(a, b) for a, b in zip(whole, cut, strict=True))
    assert any(not torch.equal(a, b) for a, b in itertools.pairwise(whole[:2]))
