"""The compiled engines against enumeration: what the conformance suite does not ask, or asks of small models."""

import itertools
import math
import time
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from pyro_hoim.compute.engine import Wanted
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.log_linear.chains.products_engine import ProductsEngine
from pyro_hoim.log_linear.chains.tables_engine import TablesEngine, tables_structure
from pyro_hoim.log_linear.chains.torch_engine import TorchEngine
from pyro_hoim.schema import Domain
from pyro_hoim.structure.hypergraph import InteractionHypergraph
from pyro_hoim.testing import assert_close, assert_exact_law
from pyro_hoim.testing.oracles import count_states, enumerate_codes, exact_table, random_tables

from support.engines import ENGINE_CHECKS, EngineCase
from support.transitions import recompute_counts, tempered_law

ENGINES = {"products": ProductsEngine, "tables": TablesEngine, "torch": TorchEngine}
SITES = {"products": ((0,), (1,), (2,), (3,), (4,)), "tables": ((0,), (1,), (3,), (4,))}
both = pytest.mark.parametrize("name", SITES)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def structure(cardinalities, *edges):
    names = [[f"x{i}" for i in edge] for edge in edges]
    return InteractionHypergraph(Domain.from_cardinalities(cardinalities), names, hierarchical=False)


# orders 1 to 4, some without their subsets, with a variable of one state and one in no large edge
LARGE = {
    "products": structure((2,) * 5, (0,), (3,), (0, 1), (3, 4), (0, 1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "tables": structure((2, 3, 1, 5, 2), (0,), (3,), (0, 1), (0, 2), (3, 4), (0, 1, 3), (1, 2, 3, 4)),
}
# blocks of unequal size that have no interaction with each other, and a variable in no edge
APART = {"products": structure((2, 2, 1, 2, 2), (0, 1), (3,)), "tables": structure((2, 3, 1, 2, 2), (0, 1), (3,))}
NONE = {"products": structure((2, 2, 1, 2)), "tables": structure((2, 3, 1, 2))}


class Model(NamedTuple):
    """A structure with tables and reference log weights, one row or one per group."""

    hypergraph: InteractionHypergraph
    tables: Any
    reference: Any

    @property
    def cards(self):
        return self.hypergraph.domain.cardinalities

    def law(self):
        return tempered_law(self.hypergraph, self.tables)

    def energy(self, codes):
        return LogLinearEnergy(self.hypergraph, torch.as_tensor(self.tables)).energy(codes.long())

    def engine(self, name, blocks=None, chains=64, groups=1, *, dtype=torch.float32, seed=0, start=None):
        blocks = SITES[name] if blocks is None else blocks
        engine = ENGINES[name](self.hypergraph, blocks, groups, chains, seed, dtype)
        engine.set_weights(*(torch.as_tensor(np.atleast_2d(part)) for part in (self.tables, self.reference)))
        if start is None:
            drawn = [
                np.random.default_rng((seed, c)).integers(0, self.cards, (groups, len(self.cards)))
                for c in range(chains)
            ]
            start = torch.from_numpy(np.stack(drawn, axis=1))
        engine.set_codes(torch.as_tensor(start).expand(groups, chains, -1))
        return engine

    def exact_start(self, law, num, seed=4):
        index = np.random.default_rng(seed).choice(len(law), size=num, p=law)
        return torch.from_numpy(enumerate_codes(self.cards)[index])[None]

    def histogram(self, engine, group=0):
        return count_states(engine.get_codes()[group], self.cards)


def make(name):
    rng = np.random.default_rng(0)
    tables = random_tables(LARGE[name], rng, scale=0.8, balanced=False)
    return Model(LARGE[name], tables, rng.normal(size=sum(LARGE[name].domain.cardinalities)))


def in_order(blocks):
    return np.arange(len(blocks), dtype=np.int32)[None]


# The conformance suite on more interactions, with smaller errors to be found


SCALES = [(0.8, torch.float32), (0.8, torch.float64), (0.0, torch.float32), (30.0, torch.float32)]
CASES = [
    *((name, LARGE[name], *scale, tv) for name, tv in (("products", 0.02), ("tables", 0.03)) for scale in SCALES),
    *((name, graphs[name], *SCALES[0], 0.03) for name in SITES for graphs in (APART, NONE)),
    *(("torch", APART["tables"], *scale, 0.03) for scale in SCALES[::3]),
    *(pytest.param("torch", APART["tables"], *scale, 0.03, marks=pytest.mark.slow) for scale in SCALES[1:3]),
]


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("name", "graph", "scale", "dtype", "tv"), CASES)
def test_suite_on_interactions_of_all_orders_and_on_few(name, graph, scale, dtype, tv, check):
    check(EngineCase(ENGINES[name], graph, scale, dtype=dtype, tv=tv, separate_streams=name != "torch"))


# Energies and records


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_recorded_energies_are_those_of_float64_for_many_products(scale):
    """Over a thousand products of orders 1 to 5, in groups of which one lacks the pairs; rounding is relative."""
    size = 12
    edges = [e for k in (1, 2, 3, 4) for e in itertools.combinations(range(size), k)]
    hypergraph = structure([2] * size, *edges, tuple(range(5)))
    tables = scale * random_tables(hypergraph, np.random.default_rng(5), batch_shape=(2,))
    for edge in itertools.combinations(hypergraph.domain.names, 2):
        tables[1, hypergraph.term_slices[edge]] = 0
    blocks = tuple((i,) for i in range(size))
    engine = Model(hypergraph, tables, np.zeros(2 * size)).engine("products", blocks, 70, 2)
    record = engine.sweep(in_order(blocks), 3, np.zeros(2), Wanted(1, energies=True, states=True))
    tolerance = 1e-14 * float(np.abs(tables).sum(axis=1).max())
    for group in range(2):
        energy = Model(hypergraph, tables[group], None).energy(record.states[:, group])
        assert_close(record.energies[:, group], energy, relative=0.0, absolute=tolerance)
        with pytest.raises(AssertionError):  # single precision would show
            assert_close(energy.float().double(), energy, relative=0.0, absolute=tolerance)
    assert len(engine._kept.chunks) > 4  # more than one chunk of a size


@both
def test_energies_stay_exact_over_many_sweeps(name):
    model = make(name)
    order = in_order(SITES[name])
    engine = model.engine(name, dtype=torch.float64)
    record = engine.sweep(order, 400, np.ones(1), Wanted(1, energies=True, states=True))
    assert record.states.dtype == torch.uint8
    assert_close(record.energies, model.energy(record.states), absolute=1e-9)


@both
@dtypes
@pytest.mark.parametrize("chains", [1, 20, 40, 200])
def test_counts_and_statistics_equal_those_of_recorded_states(name, dtype, chains):
    model = make(name)
    engine = model._replace(tables=np.stack([model.tables, -model.tables])).engine(name, None, chains, 2, dtype=dtype)
    order = in_order(SITES[name])
    record = engine.sweep(order, 12, np.array([1.0, 0.5]), Wanted(3, counts=True, states=True))
    assert record.states.shape == (4, 2, chains, 5)
    weights = torch.rand(2, chains, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    weighted = engine.statistics(weights)
    for group in range(2):
        states, last = record.states[:, group], record.states[-1, group]
        np.testing.assert_array_equal(record.counts[group], recompute_counts(model.hypergraph, states))
        np.testing.assert_array_equal(engine.statistics()[group], recompute_counts(model.hypergraph, last))
        expected = recompute_counts(model.hypergraph, last, weights[group])
        assert_close(weighted[group], expected, absolute=1e-10)


# Laws


@dtypes
def test_rare_values_are_drawn_as_often_as_they_should(dtype):
    """Both tails of a single site; probabilities far below the spacing of floats near one stay unbiased."""
    odds = 14.0
    model = Model(structure([2] * 3, (0,), (1,), (2,)), np.array([0.0, odds, odds, 0.0, 0.0, 1e4]), np.zeros(6))
    engine = model.engine("products", ((0,), (1,), (2,)), 1024, dtype=dtype)
    record = engine.sweep(in_order("abc"), 10_000, np.ones(1), Wanted(1, counts=True))
    mean = 1024 * 10_000 / (1 + math.exp(odds))
    for rare in (record.counts[0, 0].item(), record.counts[0, 3].item()):
        assert abs(rare - mean) < 5 * math.sqrt(mean)
    assert record.counts[0, 4] == 0


@pytest.mark.parametrize("name", ["tables", pytest.param("torch", marks=pytest.mark.slow)])
@pytest.mark.parametrize("blocks", [((0,), (1,)), ((0, 1),)])
def test_a_variable_of_300_levels(name, blocks):
    """Codes need more than a byte, and the pair has more joint states than are drawn with all lanes at once."""
    hypergraph, num = structure((300, 3), (0,), (0, 1)), 30_000
    tables = random_tables(hypergraph, np.random.default_rng(8), scale=0.7, balanced=False)
    model = Model(hypergraph, tables, np.zeros(303))
    engine = model.engine(name, blocks, num, seed=9, start=model.exact_start(model.law(), num))
    record = engine.sweep(in_order(blocks), 1, np.ones(1), Wanted(1, states=True, counts=True))
    counts = model.histogram(engine)
    assert record.states.dtype == torch.int32 and int(record.states.max()) > 256
    assert_exact_law(counts, model.law())
    assert_exact_law(counts.reshape(300, 3).sum(1), model.law().reshape(300, 3).sum(1))
    assert torch.equal(record.counts[0, hypergraph.term_slices["x0", "x1"]], torch.from_numpy(counts).double())


@both
@dtypes
def test_large_tables_do_not_overflow(name, dtype):
    model = make(name)
    for blocks in (SITES[name], (tuple(itertools.chain(*SITES[name])),)):
        engine = model._replace(tables=1000 * model.tables).engine(name, blocks, 20, dtype=dtype)
        engine.sweep(in_order(blocks), 30, np.ones(1))
        if len(blocks) == 1:
            best = int(np.argmax(exact_table(model.hypergraph, model.tables, normalised=False)))
            assert (engine.get_codes()[0].numpy() == enumerate_codes(model.cards)[best]).all()
        assert torch.isfinite(engine.energies()[0]).all()


def test_large_blocks():
    """Twelve binary variables at once, by their first and second moments."""
    size = 12
    hypergraph = structure([2] * size, *[(i, (i + 1) % size) for i in range(size)])
    tables = random_tables(hypergraph, np.random.default_rng(0), scale=0.7, balanced=False)
    model = Model(hypergraph, tables, np.zeros(2 * size))
    engine = model.engine("products", (tuple(range(size)),), 4000)
    engine.sweep(in_order("a"), 1, np.ones(1))
    codes, found = enumerate_codes([2] * size), engine.get_codes()[0].numpy()
    expected = codes.T @ (codes * model.law()[:, None])
    error = found.T @ found / 4000 - expected
    assert (np.abs(error) < 5.5 * np.sqrt(expected * (1 - expected) / 4000)).all()


# Annealed importance sampling


@both
def test_annealing_adds_the_gains_of_the_states_it_visits(name):
    model, order, betas = make(name), in_order(SITES[name]), np.linspace(0, 1, 301)
    one, two = (model.engine(name, dtype=torch.float64) for _ in range(2))
    for path in (betas, np.array([0.0, 1.0]), np.array([1.0, 0.25])):
        found = one.anneal(order, path, 1)
        expected = torch.zeros_like(found)
        for low, high in itertools.pairwise(path):
            by_model, by_reference = two.energies()
            expected += (high - low) * (by_reference - by_model)
            two.sweep(order, 1, np.array([high]))
        assert torch.equal(one.get_codes(), two.get_codes())
        assert_close(found, expected, absolute=1e-9 if len(path) > 2 else 1e-12)


@dtypes
def test_annealing_between_equal_laws_has_constant_weights(dtype):
    reference = np.array([0.3, -0.2, 1.0, 0.0, 0.5, 0.7])
    tables = np.concatenate([reference + 0.1, np.full(4, 1.5)])
    model = Model(structure([2] * 3, (0,), (1,), (2,), (0, 1)), tables, reference)
    engine = model.engine("products", ((0,), (1,), (2,)), 37, dtype=dtype)
    found = engine.anneal(in_order("abc"), np.linspace(0, 1, 50), 1)
    assert_close(found, torch.full_like(found, 1.8), absolute=1e-6 if dtype == torch.float32 else 1e-12)


# Structure


def test_large_structures_are_laid_out_quickly():
    rng = np.random.default_rng(14)
    edges = {tuple(sorted(rng.choice(300, k, replace=False).tolist())) for k in (2, 3) for _ in range(1000)}
    hypergraph, sites = structure([4] * 300, *edges), tuple((i,) for i in range(300))
    began = time.process_time()
    found = tables_structure(hypergraph, sites)
    assert time.process_time() - began < 2
    assert tables_structure(hypergraph, sites) is found
    assert found.num_cells <= hypergraph.num_terms + 4 * 300


def test_smaller_edges_are_folded_into_larger_ones():
    hypergraph = structure((2, 3, 4), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    assert tables_structure(hypergraph, ((0,), (1,), (2,))).num_cells == 24
