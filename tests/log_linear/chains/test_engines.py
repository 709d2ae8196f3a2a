"""Gibbs engines: the conformance suite on each, engines that it must refuse, large models, joined and kept visits."""

import itertools
import math
import time
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from other_device import AWAY, pretend
from torch.utils._python_dispatch import TorchDispatchMode

from pyro_hoim import Domain, GibbsChains, InputError, InteractionHypergraph, IntractableError, LogLinearEnergy
from pyro_hoim.compute.engine import NOTHING, Wanted
from pyro_hoim.log_linear.chains import torch_engine
from pyro_hoim.log_linear.chains.gibbs import make_engine, reference_draws
from pyro_hoim.log_linear.chains.products_engine import ProductsEngine
from pyro_hoim.log_linear.chains.tables_engine import TablesEngine, tables_structure
from pyro_hoim.log_linear.chains.torch_engine import Graphs, TorchEngine
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import (
    assert_close,
    assert_exact_law,
    count_states,
    enumerate_codes,
    exact_table,
    random_tables,
    required_draws,
    standard_hypergraphs,
)
from pyro_hoim.testing.conformance import run_cases

from support.engines import ENGINE_CHECKS, EngineCase, binary_hypergraphs, check_engine
from support.transitions import recompute_counts, tempered_law

CASES = [
    pytest.param(ProductsEngine, binary_hypergraphs(), id="products"),
    pytest.param(TablesEngine, standard_hypergraphs(), id="tables"),
    pytest.param(TorchEngine, standard_hypergraphs(), id="torch"),
]


@pytest.mark.parametrize(("engine", "graphs"), CASES)
def test_engine_obeys_the_contract(engine, graphs):
    check_engine(engine, hypergraphs=graphs, separate_streams=engine is not TorchEngine)


def test_tables_engine_has_many_levels():
    """Codes of 257 levels need more than a byte; the law of so many states is tested on chains."""
    domain = Domain.from_cardinalities({"a": 257, "b": 2})
    graph = {"wide": InteractionHypergraph(domain, [("a", "b")], closure=True)}
    skip = ("check_sweep_law", "check_exact_start", "check_independence", "check_annealing")
    check_engine(TablesEngine, hypergraphs=graph, skip=skip)
    check_engine(TorchEngine, hypergraphs=graph, separate_streams=False, skip=skip)


# Engines with one fault each


class _Identity(TorchEngine):
    """Never moves."""

    def _draw(self, batch, uniform, is_tempered):
        pass


class _Together(TorchEngine):
    """Draws all blocks of a sweep from the old state, neighbours too."""

    def _plan(self, row):
        return [tuple(dict.fromkeys(row))] if row else []


class _BetaOff(TorchEngine):
    """Runs at 0.95 times the inverse temperature."""

    def _set_beta(self, beta):
        return super()._set_beta(0.95 * beta)


class _NoReference(TorchEngine):
    """Forgets the reference law below beta 1."""

    def _draw(self, batch, uniform, is_tempered):
        kept, self._reference = self._reference, 0 * self._reference
        super()._draw(batch, uniform, is_tempered)
        self._reference = kept


class _OneGroup(TorchEngine):
    """Gives every group the conditionals of the first."""

    def _draw(self, batch, uniform, is_tempered):
        kept, self._tables = self._tables, self._tables[:1].expand_as(self._tables).contiguous()
        super()._draw(batch, uniform, is_tempered)
        self._tables = kept


class _Dropped(TorchEngine):
    """Its conditionals lack the last interaction."""

    def set_weights(self, tables, reference):
        super().set_weights(tables, reference)
        self._tables[:, list(self._hypergraph.term_slices.values())[-1]] = 0


class _Stale(TorchEngine):
    """Keeps the energies of the first weights."""

    def energies(self):
        kept, self._exact = self._exact, getattr(self, "_first", self._exact)
        energies = super().energies()
        self._exact = kept
        return energies

    def set_weights(self, tables, reference):
        super().set_weights(tables, reference)
        if not hasattr(self, "_first"):
            self._first = tuple(part.clone() for part in self._exact)


class _Drift(TorchEngine):
    """Its energies have the precision of the conditionals."""

    def _energies_of(self, tables):
        return super()._energies_of(tables.to(self._dtype)).to(self._dtype).double()


class _Shared(TorchEngine):
    """All groups use the same random numbers."""

    def _draw(self, batch, uniform, is_tempered):
        super()._draw(batch, uniform, is_tempered)
        self._codes[:, 1:] = self._codes[:, :1]  # with equal weights and states, what shared numbers come to


class _Twins(TorchEngine):
    """Chain c + 16 repeats chain c."""

    def _draw(self, batch, uniform, is_tempered):
        super()._draw(batch, uniform, is_tempered)
        n = self._codes.shape[2] // 32 * 32
        folded = self._codes[..., :n].unflatten(2, (-1, 2, 16))
        folded[..., 1, :] = folded[..., 0, :]


class _Repeats(TorchEngine):
    """Every call starts from the same random numbers."""

    def _sweep(self, row, is_tempered):
        self._generator.manual_seed(0)
        super()._sweep(row, is_tempered)


class _OneRow(TorchEngine):
    """Visits the first row of the order in every sweep."""

    def sweep(self, order, *args, **kwargs):
        return super().sweep(order[:1], *args, **kwargs)

    def anneal(self, order, *args):
        return super().anneal(order[:1], *args)


class _LateWeight(TorchEngine):
    """Adds to the annealed weight after the sweep instead of before."""

    def anneal(self, order, betas, sweeps_per_step):
        weights, row = torch.zeros_like(self._slope), 0
        for k in range(1, len(betas)):
            is_tempered = self._set_beta(np.full(self._shape[0], betas[k]))
            for _ in range(sweeps_per_step):
                self._sweep(tuple(order[row % len(order)].tolist()), is_tempered)
                row += 1
            self._set_slope()
            weights += (betas[k] - betas[k - 1]) * self._slope
        return weights


class _Counts(TorchEngine):
    """Counts the chains of the first group only."""

    def statistics(self, weights=None):
        total = super().statistics(weights)
        return total[:1].expand_as(total).clone()


class _Thin(TorchEngine):
    """Records before the sweep."""

    def sweep(self, order, num_sweeps, beta, wanted=NOTHING):
        before = self.get_codes().to(self._code)
        record = super().sweep(order, num_sweeps, beta, wanted)
        if record.states is not None and len(record.states):
            record.states[-1] = before
        return record


class _Forgets(TorchEngine):
    """Does not restore its random numbers."""

    def load_state(self, state):
        super().load_state({**state, "generator": self._generator.get_state()})


class _Gather(TorchEngine):
    """Resamples the states within the first group only."""

    def gather(self, index):
        super().gather(torch.cat([index[:1], torch.arange(index.shape[1]).expand_as(index[1:])]))


class _Global(TorchEngine):
    """Draws from the global generator."""

    def _draw_uniforms(self, count):
        self._generator.manual_seed(int(torch.randint(2**31, ())))
        super()._draw_uniforms(count)


FAULTS = {
    _Identity: ("check_sweep_law", "check_annealing"),
    _Together: ("check_sweep_law", "check_exact_start", "check_annealing"),
    _BetaOff: ("check_sweep_law", "check_exact_start"),
    _NoReference: ("check_sweep_law", "check_exact_start"),
    _OneGroup: ("check_sweep_law", "check_exact_start"),
    _Dropped: ("check_sweep_law", "check_exact_start"),
    _Stale: ("check_energies",),
    _Drift: ("check_energies", "check_records"),
    _Shared: ("check_independence",),
    _Twins: ("check_independence",),
    _Repeats: ("check_independence",),
    _OneRow: ("check_sweep_law", "check_annealing"),
    _LateWeight: ("check_annealing",),
    _Counts: ("check_statistics", "check_records"),
    _Thin: ("check_records",),
    _Forgets: ("check_determinism",),
    _Gather: ("check_energies",),
    _Global: ("check_determinism", "check_global_random_state"),
}


@pytest.mark.fixed_seed  # of a model that shows every fault
@pytest.mark.parametrize("engine", FAULTS, ids=lambda engine: engine.__name__)
def test_broken_engine_is_refused(engine):
    tv = 0.02 if engine is _BetaOff else 0.1
    case = EngineCase(engine, standard_hypergraphs()["cycle"], 1.0, tv=tv, separate_streams=False)
    for check in ENGINE_CHECKS:
        if check.__name__ in FAULTS[engine]:
            with pytest.raises(AssertionError):
                check(case)


def test_the_suite_itself():
    covered = {name for names in FAULTS.values() for name in names} | {"check_streams"}
    assert covered == {check.__name__ for check in ENGINE_CHECKS}
    case = EngineCase(TorchEngine, standard_hypergraphs()["cycle"])
    streams = next(check for check in ENGINE_CHECKS if check.__name__ == "check_streams")
    with pytest.raises(AssertionError, match="equal bits"):
        streams(case)
    graphs = {"cycle": standard_hypergraphs()["cycle"]}
    with pytest.raises(AssertionError, match=r"2 checks failed(.|\n)*cycle, scale 1: check_records"):
        check_engine(_Thin, hypergraphs=graphs, separate_streams=False)
    with pytest.raises(InputError, match="unknown check 'check_everything'"):
        check_engine(TorchEngine, hypergraphs=graphs, skip=["check_everything"])
    case = EngineCase(TorchEngine, standard_hypergraphs()["tree"])
    np.testing.assert_array_equal(case.tables(3)[:2], case.tables(2))
    np.testing.assert_array_equal(case.reference(3)[:2], case.reference(2))
    factory = case.factory
    assert factory is TorchEngine


# The compiled engines on what the suite does not ask, or asks of small models


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
LARGE_CASES = [
    *((name, LARGE[name], *scale, tv) for name, tv in (("products", 0.02), ("tables", 0.03)) for scale in SCALES),
    *((name, graphs[name], *SCALES[0], 0.03) for name in SITES for graphs in (APART, NONE)),
    *(("torch", APART["tables"], *scale, 0.03) for scale in SCALES[::3]),
    *(pytest.param("torch", APART["tables"], *scale, 0.03, marks=pytest.mark.slow) for scale in SCALES[1:3]),
]


@pytest.mark.parametrize(("name", "graph", "scale", "dtype", "tv"), LARGE_CASES)
def test_suite_on_interactions_of_all_orders_and_on_few(name, graph, scale, dtype, tv):
    case = EngineCase(ENGINES[name], graph, scale, dtype=dtype, tv=tv, separate_streams=name != "torch")
    run_cases(ENGINE_CHECKS, [(name, case)])


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
    record = engine.sweep(in_order(blocks), 11, np.zeros(2), Wanted(1, energies=True, states=True))
    tolerance = 1e-14 * float(np.abs(tables).sum(axis=1).max())
    for group in range(2):
        energy = Model(hypergraph, tables[group], None).energy(record.states[:, group])
        assert_close(record.energies[:, group], energy, relative=0.0, absolute=tolerance)
        with pytest.raises(AssertionError):  # single precision would show
            assert_close(energy.float().double(), energy, relative=0.0, absolute=tolerance)
    assert engine._whole()[2].shape[1] > 1  # more than one chunk


def test_recorded_energies_where_each_product_is_most_of_the_weight_of_some_model():
    """Such weights are cut into several, here into more than one sum of 16 bits can take."""
    size = 240
    hypergraph = structure([2] * size, *((i,) for i in range(size)))
    tables = random_tables(hypergraph, np.random.default_rng(6), batch_shape=(size,)).reshape(size, size, 2)
    tables[np.arange(size), np.arange(size)] += np.array([-1.8e3, 1.8e3])
    tables = tables.reshape(size, -1)
    blocks = tuple((i,) for i in range(size))
    engine = Model(hypergraph, tables, np.zeros(2 * size)).engine("products", blocks, 2, size)
    record = engine.sweep(in_order(blocks), 3, np.zeros(size), Wanted(1, energies=True, states=True))
    assert np.diff(engine._whole()[4]).max() > 256
    for group in range(size):
        energy = Model(hypergraph, tables[group], None).energy(record.states[:, group])
        tolerance = 1e-14 * float(np.abs(tables[group]).sum())
        assert_close(record.energies[:, group], energy, relative=0.0, absolute=tolerance)


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
    record = engine.sweep(order, 33, np.array([1.0, 0.5]), Wanted(3, counts=True, states=True))
    assert record.states.shape == (11, 2, chains, 5)  # more than the products engine sums up at once
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


def test_structures_are_laid_out_quickly_with_smaller_edges_in_larger_ones():
    rng = np.random.default_rng(14)
    edges = {tuple(sorted(rng.choice(300, k, replace=False).tolist())) for k in (2, 3) for _ in range(1000)}
    hypergraph, sites = structure([4] * 300, *edges), tuple((i,) for i in range(300))
    began = time.process_time()
    found = tables_structure(hypergraph, sites)
    assert time.process_time() - began < 2
    assert tables_structure(hypergraph, sites) is found
    assert found.num_cells <= hypergraph.num_terms + 4 * 300
    hypergraph = structure((2, 3, 4), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    assert tables_structure(hypergraph, ((0,), (1,), (2,))).num_cells == 24


# The PyTorch engine


CHAIN = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2, "e": 2}),
    [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")],
    closure=True,
)
ROW = np.arange(5, dtype=np.int32)


def _engine(blocks, num_groups=1, num_chains=8, seed=0, **options):
    engine = TorchEngine(CHAIN, blocks, num_groups, num_chains, seed, **options)
    engine.set_weights(_tables(num_groups), torch.zeros(1, 11))
    engine.set_codes(torch.zeros(num_groups, num_chains, 5, dtype=torch.long))
    return engine


def _tables(num):
    return torch.as_tensor(random_tables(CHAIN, np.random.default_rng(2), batch_shape=(num,), balanced=False))


def test_visits_without_a_common_interaction_are_joined():
    sites = tuple((i,) for i in range(5))
    assert _engine(sites)._planned((0, 1, 2, 3, 4)) == [(0,), (1,), (2,), (3,), (4,)]
    colours = GibbsSchedule("colours").resolve(CHAIN)
    batches = _engine(colours)._planned((0, 1, 2, 3, 4))
    assert [sorted(colours[b][0] for b in batch) for batch in batches] in ([[0, 2, 4], [1, 3]], [[1, 3], [0, 2, 4]])
    pairs = ((0, 1), (2, 3), (3, 4), (0,))
    assert _engine(pairs)._planned((0, 1, 2, 3)) == [(0,), (1, 3), (2,)]
    graph = InteractionHypergraph(CHAIN.domain, [("a", "b"), ("d",), ("e",)], closure=True)
    assert TorchEngine(graph, ((0, 1), (3,), (4,), (2,)), 1, 1, 4)._planned((0, 1, 2, 3)) == [(0, 1, 2, 3)]


def test_a_visit_waits_for_no_more_than_it_must():
    """A grid in schema order takes as many steps as it has diagonals; visits to one variable stay in order."""
    names = [f"x{i}{j}" for i in range(4) for j in range(4)]
    pairs = [(f"x{i}{j}", f"x{i}{j + 1}") for i in range(4) for j in range(3)]
    pairs += [(f"x{i}{j}", f"x{i + 1}{j}") for i in range(3) for j in range(4)]
    grid = InteractionHypergraph(Domain.from_cardinalities(dict.fromkeys(names, 2)), pairs, closure=True)
    sites = tuple((i,) for i in range(16))
    found = [sorted(step) for step in TorchEngine(grid, sites, 1, 1, 0)._planned(tuple(range(16)))]
    assert found == [[4 * i + j for i in range(4) for j in range(4) if i + j == k] for k in range(7)]
    assert _engine(tuple((i,) for i in range(5)))._planned((0, 0, 3, 3, 4)) == [(0, 3), (0, 3), (4,)]


def test_steps_in_parts_draw_the_same_states():
    """Blocks and chains are cut where a step would look up too many cells at once."""
    blocks = GibbsSchedule("colours").resolve(CHAIN)
    whole, parts = (_engine(blocks, 2, 2500, dtype=torch.float64) for _ in range(2))
    parts._max_cells = 2**14
    assert len(parts._planned((0, 1, 2, 3, 4))) == 5
    for engine in (whole, parts):
        engine.sweep(ROW[None], 3, np.full(2, 0.5))
    assert (whole.get_codes() != whole.get_codes()[:, :1]).any()
    torch.testing.assert_close(whole.energies()[0], parts.energies()[0], rtol=1e-12, atol=1e-12)
    assert torch.equal(whole.statistics(), parts.statistics())
    assert torch.equal(whole.get_codes(), parts.get_codes())


def test_copies_do_not_share_memory():
    engine = _engine(tuple((i,) for i in range(5)))
    codes, (energy, reference) = engine.get_codes(), engine.energies()
    kept = [codes.clone(), energy.clone(), reference.clone()]
    engine.sweep(ROW[None], 5, np.ones(1))
    for before, now in zip(kept, (codes, energy, reference), strict=True):
        assert torch.equal(before, now)
    codes += 1
    energy += 1
    assert (engine.get_codes() < torch.tensor([2, 3, 2, 2, 2])).all()


def test_many_different_orders_do_not_fill_the_memory():
    """Compiled orders are forgotten when there are too many; the law does not notice."""
    engine = _engine(tuple((i,) for i in range(5)))
    order = np.random.default_rng(0).integers(0, 5, (400, 5)).astype(np.int32)
    engine.sweep(order, 400, np.ones(1))
    assert engine._planned.cache_info().currsize == 64
    assert engine._update.cache_info().currsize <= engine._update.cache_info().maxsize == 4096


def test_code_type_follows_the_number_of_levels():
    assert _engine(((0,), (1,), (2,), (3,), (4,)))._code == torch.uint8
    graph = InteractionHypergraph(Domain.from_cardinalities([257]), [])
    assert TorchEngine(graph, ((0,),), 1, 1, 0)._code == torch.int32


def test_lowest_random_number_draws_no_impossible_state(monkeypatch):
    graph = InteractionHypergraph(Domain.from_cardinalities([3]), [("x0",)])
    engine = TorchEngine(graph, ((0,),), 1, 2, 0)
    engine.set_weights(torch.tensor([[-40.0, 0.0, 0.0]]), torch.zeros(1, 3))  # probability 2e-18 of the first state
    engine.set_codes(torch.full((1, 2, 1), 2))
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, **_: self.zero_())
    engine.sweep(np.zeros((1, 1), dtype=np.int32), 1, np.ones(1))
    assert engine.get_codes().flatten().tolist() == [1, 1]


def test_compiled_engines_refuse_tables_that_they_cannot_address():
    domain = Domain.from_cardinalities([2] * 31)
    graph = InteractionHypergraph(domain, [domain.names], hierarchical=False)
    with pytest.raises(IntractableError, match="compiled engines address 2147483647"):
        make_engine("auto", graph, ((0,),), (1, 1), 0, torch.float32, torch.device("cpu"))


# Captured kernels, on the CPU


class _Tape(TorchDispatchMode):
    """Notes operations with the memory they read and write, as a CUDA graph does; what lies outside stays as it is."""

    def __init__(self):
        super().__init__()
        self._kernels = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        changes = func._schema.is_mutable
        out = args[0] if changes else func(*args, **kwargs)
        self._kernels.append((func, args, kwargs, None if changes else out))
        return out

    def replay(self):
        for func, args, kwargs, out in self._kernels:
            found = func(*args, **kwargs)
            if isinstance(out, torch.Tensor) and not out._is_view():
                out.copy_(found)


def _taped(self, function):
    with _Tape() as tape:
        function()
    return tape.replay


def _moves(engine, order):
    """Everything that moves an engine or changes what it reads; what it comes to."""
    codes = torch.zeros(2, 30, 5, dtype=torch.long)
    found = []
    for k in range(4):
        engine.sweep(order, 7, np.ones(2))
        engine.sweep(order, 3, np.array([0.3, 0.3 + 0.1 * k]))
        engine.gather(torch.arange(30).flip(0).expand(2, 30))
        found.append(engine.anneal(order, np.linspace(0, 1, 6), 2))
        engine.set_weights(_tables(2) * (1 + k), torch.linspace(-1, 1, 11)[None])
        engine.sweep(order[:, ::-1], 6, np.full(2, 0.7))
        state = engine.state()
        found += [engine.statistics(), *engine.energies(), engine.get_codes()]
        engine.set_codes(codes + k % 2)
        engine.sweep(order, 1, np.full(2, 0.7))
        engine.load_state(state)
    return found


@pytest.mark.parametrize("stale", [None, "_codes", "_tables", "_beta", "_uniform"])
def test_captured_kernels_read_what_was_set_after_the_capture(stale):
    """A replayed sweep gives equal bits; and where one of the tensors moved to new memory, it would not."""
    blocks = GibbsSchedule("colours").resolve(CHAIN)
    order = np.stack([ROW, ROW[::-1]])
    plain, captured = (_engine(blocks, 2, 30) for _ in range(2))
    captured._graphs.is_on = True
    if stale == "_uniform":
        captured._draw_uniforms(50)  # enough for all
    with mock.patch.object(Graphs, "_recorded", _taped):
        captured.sweep(order, 10, np.array([0.3, 0.4]))
        plain.sweep(order, 10, np.array([0.3, 0.4]))
        if stale == "_uniform":
            captured.load_state(plain.state())
        assert len(captured._graphs._captured) == 2
        if stale is not None:
            setattr(captured, stale, getattr(captured, stale).clone())
        found, wanted = _moves(captured, order), _moves(plain, order)
    assert all(map(torch.equal, found, wanted)) == (stale is None)


def test_failed_capture_runs_as_before(caplog):
    def refuse(self, function):
        raise RuntimeError("operation not permitted when stream is capturing")

    plain, captured = (_engine(GibbsSchedule("colours").resolve(CHAIN), 2, 30) for _ in range(2))
    captured._graphs.is_on = True
    with mock.patch.object(Graphs, "_recorded", refuse), caplog.at_level("INFO", logger="pyro_hoim"):
        assert all(map(torch.equal, _moves(captured, ROW[None]), _moves(plain, ROW[None])))
    assert not captured._graphs.is_on and "operation not permitted" in caplog.text


def test_visits_in_random_order_are_not_captured():
    engine = _engine(GibbsSchedule("colours").resolve(CHAIN))
    engine._graphs.is_on = True
    order = np.random.default_rng(0).integers(0, 5, (1100, 5)).astype(np.int32)
    with mock.patch.object(Graphs, "_recorded", _taped):
        engine.sweep(order, 1100, np.ones(1))
    assert len(engine._graphs._captured) <= 16 and len(engine._graphs._uses) <= 1025


# On a device


GRAPH = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2}),
    [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")],
    closure=True,
)
TABLES = torch.as_tensor(random_tables(GRAPH, np.random.default_rng(3), batch_shape=(2,), balanced=False))
SCHEDULES = [GibbsSchedule("colours"), GibbsSchedule("interactions"), GibbsSchedule("sites", "random")]
SCHEDULES.append(GibbsSchedule("width:2"))  # one block, drawn by elimination


def _chains(device, schedule=None, **options):
    states = torch.arange(2 * 30 * 4).reshape(2, 30, 4) % 2
    model = LogLinearEnergy(GRAPH, TABLES.to(device))
    return GibbsChains(model, 30, schedule=schedule, init=states.to(device), seed=5, engine="torch", **options)


def _moved(chains, device):
    """What chains come to, by all that moves them."""
    record = chains.sweep(6, thin=2, counts=True, energies=True, states=True)
    found = [record.counts, record.energies, record.states]
    found.append(chains.anneal(torch.linspace(0, 1, 7), 2))
    chains.gather(torch.arange(30, device=device).flip(0).expand(2, 30))
    found += [chains.statistics(torch.linspace(0, 1, 30, device=device)), chains.states, chains.energy]
    chains.set_model(LogLinearEnergy(GRAPH, (2 * TABLES).to(device)))
    found.append(chains.anneal([1.0, 0.5, 0.0], reverse_order=True))
    chains.load_state_dict(chains.state_dict())
    chains.sweep(3, torch.tensor([0.3, 0.8]))
    return [*found, chains.states, chains.reference_energy, chains.energy_of(LogLinearEnergy(GRAPH, TABLES.to(device)))]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_chains_on_a_device_do_what_they_do_on_the_cpu(schedule):
    wanted = _moved(_chains("cpu", schedule), "cpu")
    with pretend():
        found = _moved(_chains(AWAY, schedule), AWAY)
        assert all(part.device == AWAY for part in found)
        found = [part.cpu() for part in found]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_sweeps_wait_for_nothing():
    """After the first sweep nothing is sent to the device or back, however much is recorded."""
    with pretend() as waits:
        chains = _chains(AWAY)
        for num_sweeps in (1, 20):
            waits.clear()
            chains.sweep(num_sweeps, 0.5, thin=1, counts=True, energies=True, states=True)
            chains.anneal(torch.linspace(0, 1, num_sweeps + 1))
            chains.statistics(chains.energy)
        assert not waits
        float(chains.energy[0, 0])  # control
        chains.statistics().cpu()
        assert sum(waits.values()) == 2


def test_counts_of_large_tables_take_little_memory(monkeypatch):
    """Cells have fewer buckets where all of them would be many; the counts are the same."""
    with pretend():
        chains = _chains(AWAY)
        wanted = chains.statistics().cpu()
        for limit in (1, 3 * 2 * (GRAPH.num_terms + 1)):
            monkeypatch.setattr(torch_engine, "_MAX_BUCKETS", limit)
            assert torch.equal(chains.statistics().cpu(), wanted)
    assert float(wanted[0, :2].sum()) == 30


def test_control_device_refuses_what_a_device_refuses():
    with pretend():
        away = torch.zeros(3, device=AWAY)
        with pytest.raises(RuntimeError, match="same device"):
            away + torch.ones(3)
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(3, generator=torch.Generator("cpu"), device=AWAY)
        with pytest.raises((TypeError, RuntimeError), match=r"numpy\(\)"):
            away.numpy()
        assert (away + 1 + torch.tensor(1.0)).tolist() == [2, 2, 2]


def test_default_schedule_of_a_device_is_by_colours():
    with pretend():
        assert repr(_chains(AWAY)._schedule) == repr(GibbsSchedule("colours"))
    assert repr(_chains("cpu")._schedule) == repr(GibbsSchedule("sites"))


@pytest.mark.cuda
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_captured_sweeps_of_cuda_equal_plain_ones(schedule):
    device = torch.device("cuda", 0)
    captured, plain = _chains(device, schedule), _chains(device, schedule)
    plain._engine._graphs.is_on = False
    for _ in range(3):
        for one, other in zip(_moved(captured, device), _moved(plain, device), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert captured._engine._graphs.is_on


def _counts_after_a_sweep(device, count, beta=1.0):
    """Numbers of chains (2, 24) in every state after one sweep from the exact law, and that law."""
    law = np.exp(exact_table(GRAPH, TABLES.numpy())).reshape(2, 24)
    states = np.stack([np.random.default_rng(g).choice(24, count, p=law[g]) for g in range(2)])
    codes = torch.as_tensor(np.stack(np.unravel_index(states, GRAPH.domain.cardinalities), -1)).to(device)
    chains = GibbsChains(LogLinearEnergy(GRAPH, TABLES.to(device)), count, init=codes, seed=8, engine="torch")
    chains.sweep(1, beta)
    cells = chains.states.cpu() @ torch.tensor([12, 4, 2, 1])
    return torch.stack([torch.bincount(row, minlength=24) for row in cells]).numpy(), law


@pytest.mark.parametrize("where", ["away", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_sweep_on_a_device_keeps_the_law(where):
    count = required_draws(24, 0.05)
    if where == "away":
        with pretend():
            (counts, law), (wrong, _) = (_counts_after_a_sweep(AWAY, count, beta) for beta in (1.0, 0.7))
    else:
        (counts, law), (wrong, _) = (_counts_after_a_sweep("cuda:0", count, beta) for beta in (1.0, 0.7))
    assert_exact_law(counts, law / 2, what="states after a sweep, of two models")
    with pytest.raises(AssertionError):
        assert_exact_law(wrong, law / 2, what="states after a sweep at another beta")


@pytest.mark.parametrize("is_wrong", [False, True])
def test_first_states_follow_the_reference_law(is_wrong):
    reference = torch.tensor([[0.0, 1.0, -1.0, 0.5, 0.0, 2.0, 0.0, -0.5, 0.5]], dtype=torch.float64)
    used = reference * 0.8 if is_wrong else reference
    states = reference_draws(GRAPH.domain, used, (1, 60_000), 4)[0]
    parts = [part.softmax(-1) for part in reference[0].split(GRAPH.domain.cardinalities)]
    law = torch.einsum("a,b,c,d->abcd", *parts).reshape(1, -1).numpy()
    cells = states @ torch.tensor([12, 4, 2, 1])
    counts = torch.bincount(cells, minlength=24)[None].numpy()
    if is_wrong:
        with pytest.raises(AssertionError):
            assert_exact_law(counts, law, what="first states")
        return
    assert_exact_law(counts, law, what="first states")
