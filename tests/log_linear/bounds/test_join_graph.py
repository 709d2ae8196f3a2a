"""Join graphs and sums beside fixed variables: against buckets divided by hand, enumeration, and their definitions."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_hoim import LogLinearEnergy
from pyro_hoim.log_linear import MiniBuckets, VariableElimination
from pyro_hoim.log_linear.bounds import _fixed, _kernels
from pyro_hoim.log_linear.bounds._fixed import FixedSums
from pyro_hoim.log_linear.bounds._join_graph import BANDED, MESSAGE, SHIFT, TABLE, compiled, join_graph
from pyro_hoim.structure.hypergraph import row_strides

from support.bounded import enumerated, log_q_table, model_of, random_model
from support.hard_models import log_linear_energy

# The division of buckets


def divided_by_hand(hypergraph, order, max_cells):
    """Mini-buckets (variables, inputs) of an order, and how many each bucket has, by sets and lists."""
    cards = hypergraph.domain.cardinalities
    rank = {v: k for k, v in enumerate(order)}

    def cells(scope):
        return math.prod(cards[v] for v in scope)

    waiting = {v: [] for v in order}
    for number, edge in enumerate(hypergraph.edge_indices):
        scope = tuple(v for v in edge if v in rank)
        if scope:
            waiting[min(scope, key=rank.get)].append((TABLE, number, scope))
    nodes, counts, shifts = [], [], itertools.count()
    for v in order:
        # The largest tables first, each where it multiplies cells the least.
        groups = []
        for item in sorted(waiting[v], key=lambda item: -cells(item[2])):
            growth = {
                k: cells(scope | set(item[2])) / cells(scope)
                for k, (scope, _) in enumerate(groups)
                if cells(scope | set(item[2])) <= max_cells
            }
            if growth:
                scope, items = groups[min(growth, key=growth.get)]
                scope |= set(item[2])
                items.append(item)
            else:
                groups.append((set(item[2]), [item]))
        groups = groups or [({v}, [])]
        shared = tuple(sorted(set.intersection(*(scope for scope, _ in groups)), key=rank.get))
        for scope, items in groups:
            more = [(SHIFT, next(shifts), shared)] if len(groups) > 1 else []
            rest = tuple(sorted(scope - {v}, key=rank.get))
            if rest:
                waiting[rest[0]].append((MESSAGE, len(nodes), rest))
            nodes.append(((v, *rest), tuple(items + more)))
        counts.append(len(groups))
    return nodes, counts


CASES = [(case, cells) for case in range(12) for cells in (8, 40, 10**6)]


@pytest.mark.parametrize(("case", "cells"), CASES)
def test_buckets_are_divided_as_by_hand(case, cells):
    graph = random_model(case, is_divided=case % 2 == 1).hypergraph
    size = len(graph.domain)
    for number, fixed in ((0, ()), (1, ()), (BANDED, ()), (0, tuple(range(0, size, 3))), (BANDED, (1,))):
        found = join_graph(graph, cells, number, fixed)
        assert sorted(found.order.tolist()) == [v for v in range(size) if v not in fixed]
        nodes, counts = divided_by_hand(graph, found.order.tolist(), cells)
        assert [(n.scope, tuple(tuple(item) for item in n.inputs)) for n in found.nodes] == nodes
        assert [len(bucket) for bucket in found.buckets] == counts
        sizes = [found.size(scope) for scope, _ in nodes]
        assert (found.largest_cells, found.total_cells) == (max(sizes), sum(sizes))
        assert found.message_cells == sum(found.size(scope[1:]) for scope, _ in nodes)
        assert found.is_exact == (max(counts) == 1)


@pytest.mark.parametrize(("case", "cells"), CASES[::4])
def test_programs_lead_every_cell_to_its_tables(case, cells):
    """Blocks, loops and places as :class:`Program` says them, against positions by levels and strides."""
    hypergraph = random_model(case, is_divided=case % 2 == 1).hypergraph
    cards, fixed = hypergraph.domain.cardinalities, (0,) if case % 2 else ()
    graph = join_graph(hypergraph, cells, fixed=fixed)
    size = compiled(graph)
    program, used = size.program, np.zeros(size.num_values, dtype=int)
    used[: size.num_terms] = 1
    for number, node in enumerate(graph.nodes):
        levels, many, block, message, first, last, begin, end, passed = program.nodes[number]
        shape = [cards[v] for v in node.scope[1:]]
        assert (levels, many, last - first) == (cards[node.scope[0]], math.prod(shape), len(node.inputs))
        assert (passed >= 0) == any(item.kind == SHIFT for item in node.inputs)
        used[message : message + many] += 1
        codes = np.indices(shape).reshape(len(shape), math.prod(shape))
        outer = program.loops[begin:end]
        turns = np.indices(outer).reshape(len(outer), outer.prod())
        for i, item in zip(range(first, last), node.inputs, strict=True):
            start, step, form, where, kind, length, _ = program.inputs[i]
            whole = hypergraph.edge_indices[item.number] if kind == TABLE else item.scope
            stride = dict(zip(whole, row_strides([cards[v] for v in whole]), strict=True))
            assert (kind, start, length) == (item.kind, size.place(item), graph.size(item.scope))
            if kind == SHIFT:
                used[start : start + length] += 1
            inside = {0: np.zeros(block, int), 1: np.arange(block), 2: program.places[where : where + block]}[form]
            places = (program.strides[i, : end - begin] @ turns)[:, None] + inside
            expected = sum((stride.get(v, 0) * c for v, c in zip(node.scope[1:], codes, strict=True)), np.zeros(many))
            assert np.array_equal(places.reshape(-1), expected)
            assert step == (stride[node.scope[0]] if node.scope[0] in item.scope else 0)
            rows = program.walk[program.pointer[i] : program.pointer[i + 1]].tolist()
            assert rows == [[v, stride[v]] for v in item.scope if v != node.scope[0]]
    assert (used == 1).all()


# Orders


def grid(side, seed):
    rng = np.random.default_rng(seed)
    pairs = [((i, j), (i + a, j + b)) for i in range(side) for j in range(side) for a, b in ((0, 1), (1, 0))]
    return log_linear_energy(
        [2] * side**2,
        {(i * side + j, k * side + m): rng.normal(size=(2, 2)) for (i, j), (k, m) in pairs if max(k, m) < side},
    )


def test_a_grid_that_only_a_banded_order_sums_exactly_is_summed_exactly(monkeypatch):
    model, calls, forward = grid(13, 0), [], _kernels.forward
    assert not any(join_graph(model.hypergraph, 2**14, number).is_exact for number in range(8))
    monkeypatch.setattr(_kernels, "forward", lambda *arguments: calls.append(1) or forward(*arguments))
    result = MiniBuckets(max_cells=2**14).log_partition(model)
    exact = float(VariableElimination().log_partition(model).value)
    assert result.kind == "exact"
    assert float(result.value) == pytest.approx(exact, rel=1e-12)
    assert float(result.lower) <= exact <= float(result.upper)
    assert len(calls) == 1  # nothing is left to tighten


# Sums beside fixed variables


def beside(model, fixed, settings):
    """Log sums over the states that agree with each setting, with 64 bits of precision or more."""
    logs = log_q_table(model).numpy().reshape(-1).astype(np.longdouble)
    codes = np.indices(model.domain.cardinalities).reshape(len(model.domain), -1).T[:, list(fixed)]
    sums = []
    for setting in settings:
        some = logs[(codes == setting).all(1)]
        top = some.max(initial=-np.inf)
        sums.append(top + np.log(np.exp(some - top).sum()) if top > -np.inf else -np.inf)
    return np.array(sums, dtype=np.longdouble)


def fixed_sums(model, fixed, monkeypatch):
    """Sums beside chosen variables."""
    monkeypatch.setattr(_fixed, "cutset", lambda *_: fixed)
    _fixed.fixed_plan.cache_clear()
    return FixedSums(model, 10**6)


@pytest.mark.parametrize("scale", [1.0, 30.0, 400.0])
@pytest.mark.parametrize("case", range(8))
def test_sums_beside_settings_are_those_of_the_listed_states(case, scale, monkeypatch):
    """Also where products of tables leave the range of numbers, and impossible settings."""
    model = random_model(case, is_divided=True)
    model = LogLinearEnergy(model.hypergraph, scale * model.tables)
    cards, size = model.domain.cardinalities, len(model.domain)
    fixed = tuple(range(case % 3, size, 3))
    sums = fixed_sums(model, fixed, monkeypatch)
    every = list(itertools.product(*(range(cards[v]) for v in fixed)))
    settings = [every[k] for k in np.random.default_rng(case).permutation(len(every))[:20]]
    exact, products = beside(model, fixed, settings), _fixed._Products(sums.plan, model.tables.numpy())
    sums._sum(products, model.tables.numpy(), settings)
    found = np.array([sums._sums[c] for c in settings])
    assert np.array_equal(np.isneginf(found), np.isneginf(exact))
    finite = np.isfinite(found)
    assert np.abs(found[finite] - exact[finite]).max(initial=0.0) <= sums._slack < 1e-9 * (1 + scale)
    if finite.any():
        total = exact[finite].max() + np.log(np.exp(exact[finite] - exact[finite].max()).sum())
        assert total - 1e-8 * (1 + scale) <= sums.bound <= total
    # The control: messages that stay from one setting to the next are found as if each setting were the first.
    alone = fixed_sums(model, fixed, monkeypatch)
    for setting in settings:
        alone._sum(_fixed._Products(sums.plan, model.tables.numpy()), model.tables.numpy(), [setting])
    assert alone._sums == sums._sums
    _fixed.fixed_plan.cache_clear()


def test_where_products_underflow_logarithms_are_summed(monkeypatch):
    """Two tables whose likely cells exclude each other: no product is within the range of the loops."""
    tables = {(0, 1): np.array([[0.0, -700.0], [-700.0, 0.0]]), (1, 2): np.array([[-700.0, 0.0], [0.0, -700.0]])}
    tables[0, 2] = np.array([[0.0, -700.0], [-700.0, 0.0]])
    model = model_of([2, 2, 2], tables)
    sums = fixed_sums(model, (0,), monkeypatch)
    assert np.isnan(_fixed._Products(sums.plan, model.tables.numpy()).log_sums(np.array([[0], [1]]))).all()
    low = sums.raise_bound(model, torch.tensor([[0, 0, 0], [1, 0, 0]]), torch.zeros(2))
    assert low == pytest.approx(enumerated(model), rel=1e-12)
    assert low <= enumerated(model)
    _fixed.fixed_plan.cache_clear()


def test_sums_end_where_they_gain_little(monkeypatch):
    """As many sums as a small distance to the upper bound wants, and all of them where nothing is known of it."""
    model = random_model(1, is_divided=True)
    fixed = tuple(range(1, len(model.domain)))
    states = torch.from_numpy(
        np.random.default_rng(0).integers(0, model.domain.cardinalities, (200, len(model.domain)))
    )
    order = log_q_table(model)[tuple(states.T)]
    counts = []
    for margin in (math.inf, 1e-3, 1e6):
        sums = fixed_sums(model, fixed, monkeypatch)
        sums.raise_bound(model, states, order, enumerated(model) + margin)
        counts.append(len(sums._sums))
    assert counts[0] >= counts[1] > counts[2]
    _fixed.fixed_plan.cache_clear()


def test_a_banded_order_is_left_out_where_memory_does_not_hold_it():
    """On a square it takes more memory than the others, which are then tried alone."""
    size = 12
    sides = [(i * size + j, i * size + j + 1) for i in range(size) for j in range(size - 1)]
    pairs = [*sides, *((i, i + size) for i in range(size * (size - 1)))]
    graph = log_linear_energy([2] * size**2, dict.fromkeys(pairs, np.zeros((2, 2)))).hypergraph
    backend = MiniBuckets(max_cells=2**6)
    graphs = backend._graphs(graph)
    assert len(graphs) == backend.orders + 1
    needed = [backend._memory_bytes(graph, some) for some in (graphs[:-1], graphs)]
    assert needed[0] < needed[1]
    for budget, number in ((needed[0], backend.orders), (needed[1], backend.orders + 1)):
        limited = replace(backend, max_memory_bytes=budget)
        assert len(limited._graphs(graph)) == number
        assert limited.plan(graph).feasible
    assert not replace(backend, max_memory_bytes=needed[0] - 1).plan(graph).feasible
