"""Blocks drawn by elimination: their laws, impossible states, strong couplings, lanes, and models of one block."""

import itertools
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from numba import njit

from pyro_hoim import Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy, MixedGibbs, sample_chains
from pyro_hoim.compute.vectors import load_few, log, store
from pyro_hoim.log_linear import AnnealedImportance, HierarchicalLogLinear
from pyro_hoim.log_linear.chains.products_engine import ProductsEngine
from pyro_hoim.log_linear.chains.tables_engine import TablesEngine
from pyro_hoim.log_linear.chains.torch_engine import TorchEngine
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import (
    assert_close,
    assert_exact_law,
    assert_stationary,
    count_states,
    enumerate_codes,
    exact_log_partition,
    exact_table,
    raises,
    random_tables,
    required_draws,
    standard_hypergraphs,
)

from support.engines import ENGINE_CHECKS, EngineCase, binary_hypergraphs, check_engine
from support.supports import log_weights, one_hot, positions, random_model
from support.transitions import block_update_matrix, sweep_matrix, tempered_law

ENGINES = ("tables", "torch")
ELIMINATING = {"tables": partial(TablesEngine, max_listed=1), "torch": partial(TorchEngine, max_listed=1)}
FORESTS = ("products", *ENGINES)
TREES = GibbsSchedule("trees")
each = pytest.mark.parametrize("engine", ENGINES)
forests = pytest.mark.parametrize("engine", FORESTS)


# The conformance suite, every block drawn by elimination, also single variables


@each
def test_engines_that_eliminate_every_block_obey_the_contract(engine):
    check_engine(ELIMINATING[engine], separate_streams=engine != "torch")


def test_products_that_eliminate_trees_obey_the_contract():
    """Of structures whose interactions are pairs; those of more variables are tested on random hypergraphs."""
    graphs = {name: graph for name, graph in binary_hypergraphs().items() if graph.order <= 2}
    assert len(graphs) > 5
    check_engine(partial(ProductsEngine, max_listed=1), hypergraphs=graphs)


MIXED = InteractionHypergraph(
    Domain.from_cardinalities([2, 3, 1, 5, 2]),
    [("x0",), ("x3",), ("x0", "x1"), ("x0", "x2"), ("x3", "x4"), ("x0", "x1", "x3"), ("x1", "x2", "x3", "x4")],
    hierarchical=False,
)
LAWS = [check for check in ENGINE_CHECKS if check.__name__ in ("check_sweep_law", "check_exact_start")]


@pytest.mark.parametrize("check", LAWS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("scale", "dtype"), [(0.8, torch.float32), (0.8, torch.float64), (30.0, torch.float32)])
@each
def test_laws_of_interactions_of_all_orders(engine, scale, dtype, check):
    check(EngineCase(ELIMINATING[engine], MIXED, scale, dtype=dtype, tv=0.03, separate_streams=False))


def _half_blocks(hypergraph, blocks, *arguments):
    """Blocks that lost a member: what is left of them is drawn, but not from the law of the whole."""
    return TablesEngine(hypergraph, tuple(b[:1] for b in blocks), *arguments, max_listed=1)


@pytest.mark.fixed_seed  # of a model that shows the fault
def test_control_blocks_that_lose_members_are_refused():
    with pytest.raises(AssertionError):
        LAWS[0](EngineCase(_half_blocks, standard_hypergraphs()["cycle"], separate_streams=False))


# Transitions of chains with the schedules of low treewidth, on random hypergraphs


def _counts(chains, graph):
    return count_states(chains.states, graph.domain.cardinalities)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("engine", "kind"), [("products", "trees"), *itertools.product(ENGINES, ("trees", "width:2", "all"))]
)
def test_one_sweep_has_the_law_of_its_transition_matrix(engine, kind, seed, monkeypatch):
    """Every visit is stationary and reversible; chains from one state have the law of its row, at two temperatures."""
    monkeypatch.setattr("pyro_hoim.runs.schedule._FEW_STATES", 1)
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, (2 if engine == "products" else 3) + 1, 5)
    sets = [rng.choice(5, size=rng.integers(1, 4), replace=False) for _ in range(5)]
    domain = Domain.from_cardinalities(cards.tolist())
    graph = InteractionHypergraph(domain, [[domain.names[i] for i in members] for members in sets], hierarchical=False)
    names = graph.domain.names
    schedule = GibbsSchedule("width:4" if kind == "all" else kind)
    tables, reference = random_tables(graph, rng), rng.normal(size=sum(graph.domain.cardinalities))
    size, codes = graph.domain.num_states, enumerate_codes(graph.domain.cardinalities)
    count = required_draws(size, 0.05)
    for beta, where in ((1.0, size // 3), (0.4, size - 1)):
        chains = GibbsChains(
            LogLinearEnergy(graph, torch.as_tensor(tables)),
            count,
            schedule=schedule,
            init=torch.as_tensor(codes[where]),
            reference=torch.as_tensor(reference),
            seed=seed,
            engine=engine,
        )
        blocks = chains.blocks
        assert any(len(block) > 1 for block in blocks)
        law = tempered_law(graph, tables, beta=beta, reference=reference)
        for block in blocks:
            visit = block_update_matrix(graph, tables, block, beta=beta, reference=reference)
            flow = law[:, None] * visit
            assert_close(flow, flow.T, relative=1e-9, absolute=1e-15, what="flow between two states")
        matrix = sweep_matrix(graph, tables, blocks, beta=beta, reference=reference)
        assert_stationary(matrix, law)
        chains.sweep(1, beta)
        assert_exact_law(_counts(chains, graph), matrix[where], what="states after a sweep from one")
        sites = sweep_matrix(graph, tables, [(n,) for n in names], beta=beta, reference=reference)
        with pytest.raises(AssertionError):  # control: a sweep of single variables
            assert_exact_law(_counts(chains, graph), sites[where])


@pytest.mark.fixed_seed  # of models that have both, supports of which the most states are possible
@each
def test_impossible_states_are_never_drawn_and_the_others_by_their_law(engine, monkeypatch):
    monkeypatch.setattr("pyro_hoim.runs.schedule._FEW_STATES", 1)
    rng, tried = np.random.default_rng(11), 0
    while tried < 8:
        model = random_model(rng)
        codes, logs = log_weights(model)
        possible = torch.isfinite(logs)
        if possible.all() or possible.sum() < 2:
            continue
        size = len(codes)
        one = GibbsSchedule("width:5")
        chains = GibbsChains(
            model, required_draws(size, 0.1), schedule=one, init=codes[possible][0], engine=engine, seed=tried
        )
        chains.sweep(1)
        counts = torch.bincount(positions(chains.states, codes), minlength=size)
        assert not counts[~possible].any()
        assert_exact_law(counts[possible].numpy(), logs[possible].softmax(-1).numpy(), what="possible states")
        tried += 1


@each
def test_a_group_of_which_one_is_set_is_drawn_as_a_whole(engine):
    """Thirteen binary columns, more than are listed, of which exactly one is set; at any temperature."""
    model = one_hot(13)
    chains = GibbsChains(model, 400, schedule=GibbsSchedule([model.domain.names]), engine=engine, seed=3)
    assert chains.connectedness == "proved"
    for beta in (0.0, 0.3, 1.0):
        chains.sweep(1, beta)
        states = chains.states
        assert (states.sum(-1) == 1).all()
        _, logs = log_weights(model)
        codes = torch.as_tensor(enumerate_codes(model.domain.cardinalities))
        inside = torch.isfinite(logs)
        law = (beta * logs[inside]).softmax(-1).numpy()
        cells = torch.full((len(codes),), -1).masked_scatter(inside, torch.arange(int(inside.sum())))
        counts = torch.bincount(cells[positions(states, codes)], minlength=len(law))
        assert_exact_law(counts.numpy(), law, what=f"one of thirteen at beta {beta}")


# A model that is one tree: independent draws


def _path(size, coupling, cards=2):
    domain = Domain.from_cardinalities([cards] * size)
    graph = InteractionHypergraph(domain, itertools.pairwise(domain.names), hierarchical=False)
    return LogLinearEnergy(graph, torch.as_tensor(coupling * np.tile(np.eye(cards).reshape(-1), size - 1)))


@forests
def test_sweeps_over_one_tree_are_independent_draws(engine):
    """Numbers of equal neighbours of a path of copies are binomial, and those of two sweeps have no correlation."""
    size, coupling, count = 30, 4.0, 4000
    share = 1 / (1 + np.exp(-coupling))

    def pairs(schedule):
        chains = GibbsChains(_path(size, coupling), count, schedule=schedule, engine=engine, seed=1)
        record = chains.sweep(2, thin=1, energies=True)
        return (-record.energies / coupling).round().long().numpy()

    numbers = pairs(TREES)
    law = dist.Binomial(size - 1, torch.tensor(share)).log_prob(torch.arange(size).float()).exp().double().numpy()
    counts = np.stack([np.bincount(row, minlength=size) for row in numbers])
    assert_exact_law(counts, np.stack([law / law.sum()] * 2) / 2, what="equal neighbours after one and two sweeps")
    bound = 5.0 / np.sqrt(count)  # five standard errors of a correlation of zero
    assert abs(np.corrcoef(numbers)[0, 1]) < bound
    assert abs(np.corrcoef(pairs(GibbsSchedule()))[0, 1]) > bound  # control: single variables


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize(("engine", "cards"), [("products", 2), *itertools.product(ENGINES, (2, 3))])
def test_strong_couplings_neither_overflow_nor_lose_a_state(engine, cards, precision):
    """Copies of 200 variables at 300 nats: all are equal, and every level is drawn equally often."""
    chains = GibbsChains(_path(200, 300.0, cards), 3000, schedule=TREES, engine=engine, precision=precision, seed=2)
    chains.sweep(1)
    states = chains.states
    assert (states == states[:, :1]).all()
    assert_exact_law(torch.bincount(states[:, 0], minlength=cards).numpy(), np.full(cards, 1 / cards))


@pytest.mark.parametrize(("engine", "cards"), [("products", 2), ("tables", 2), ("tables", 3)])
def test_states_do_not_depend_on_how_many_lanes_are_drawn_together(engine, cards):
    """Blocks of so many cells that the lanes of a tile take turns; chains are those of a smaller run."""
    model, few, many = _path(900, 1.0, cards), 20, 300
    options = {"schedule": TREES, "init": torch.zeros(900, dtype=torch.long), "engine": engine}
    runs = [GibbsChains(model, n, **options) for n in (few, many)]
    for chains in runs:
        chains.sweep(2)
    assert torch.equal(runs[0].states, runs[1].states[:few])
    assert (runs[1].states[few:] != runs[1].states[:1]).any()


@forests
def test_batches_and_clamped_variables(engine):
    """Two models with two values of a clamped variable: four laws of what is free, after one sweep of one block."""
    rng = np.random.default_rng(5)
    domain = Domain.from_cardinalities([2] * 5 if engine == "products" else [3, 2, 2, 3, 2])
    graph = InteractionHypergraph(domain, [*itertools.pairwise(domain.names), ("x0", "x4")], hierarchical=False)
    tables = random_tables(graph, rng, batch_shape=(2,))
    count = required_draws(36, 0.05)
    model = LogLinearEnergy(graph, torch.as_tensor(tables))
    clamped = {"x4": torch.arange(2 * count) % 2}
    chains = GibbsChains(model, 2 * count, schedule=TREES, clamped=clamped, engine=engine, seed=4)
    assert chains.blocks == (("x0", "x1", "x2", "x3"),)
    chains.sweep(1)
    for g, value in itertools.product(range(2), range(2)):
        law = tempered_law(graph, tables[g], clamped={"x4": value})
        assert_exact_law(_counts_of(chains.states[g, value::2], graph)[law > 0], law[law > 0], what="free variables")
        other = tempered_law(graph, tables[g], clamped={"x4": 1 - value}).reshape(-1, 2)[:, ::-1].reshape(-1)
        with pytest.raises(AssertionError):  # control: the law given the other value
            assert_exact_law(_counts_of(chains.states[g, value::2], graph)[other > 0], other[other > 0])


def _counts_of(states, graph):
    return count_states(states, graph.domain.cardinalities)


def test_products_refuse_what_is_wider_than_a_tree():
    model = _grid(5, np.random.default_rng(0))
    with raises("conflict", "engine"):
        GibbsChains(model, 2, schedule=GibbsSchedule("width:2"), engine="products")
    kinds = ("trees", "width:2")
    made = [type(GibbsChains(model, 2, schedule=GibbsSchedule(kind))._engine).__name__ for kind in kinds]
    assert made == ["ProductsEngine", "TablesEngine"]


# What else takes a schedule


def _grid(side, rng, scale=1.0):
    domain = Domain.from_cardinalities([2] * side**2)
    names = np.array(domain.names).reshape(side, side)
    pairs = [*zip(names[:, :-1].ravel(), names[:, 1:].ravel(), strict=True)]
    pairs += zip(names[:-1].ravel(), names[1:].ravel(), strict=True)
    graph = InteractionHypergraph(domain, pairs, hierarchical=False)
    return LogLinearEnergy(graph, torch.as_tensor(random_tables(graph, rng, scale=scale)))


@pytest.mark.parametrize(("engine", "kind"), [("auto", "trees"), *itertools.product(ENGINES, ("trees", "width:2"))])
def test_annealed_weights_and_recorded_chains(engine, kind):
    """Log Z of a grid of 4 x 4 within six standard errors, and its mean energy within six of batch means."""
    model = _grid(4, np.random.default_rng(8))
    exact = float(exact_log_partition(model.hypergraph, model.tables.numpy()))
    options = {"num_temperatures": 60, "num_chains": 600, "schedule": GibbsSchedule(kind), "engine": engine, "seed": 3}
    estimate = AnnealedImportance(**options).log_partition(model)
    assert abs(float(estimate.value) - exact) < 6 * float(estimate.std_error) + 1e-6
    logs = exact_table(model.hypergraph, model.tables.numpy()).reshape(-1)
    mean = -float((np.exp(logs) * (logs + exact)).sum())
    chains = GibbsChains(model, 2500, schedule=GibbsSchedule(kind), engine=engine, seed=6)
    energies = sample_chains(chains, 40, burn_in=20, record="energies").energies.mean(0)
    assert abs(float(energies.mean()) - mean) < 6 * float(energies.std()) / np.sqrt(2500)


@pytest.mark.parametrize("schedule", [TREES, GibbsSchedule("auto")], ids=["trees", "auto"])
def test_mixed_gibbs_draws_a_law_alone_by_elimination_and_others_site_by_site(schedule):
    """A path of 30 copies that nothing depends on is redrawn at every sweep; the other is right, but moves slowly."""
    path = _path(30, 6.0)
    law = HierarchicalLogLinear(path.hypergraph, torch.full((29,), 3.0), coding="free")  # 6 nats for equal neighbours

    def alone():
        pyro.sample("z", law)

    def observed():
        z = pyro.sample("z", law)
        pyro.sample("y", dist.Normal(z.float().mean(-1), 0.5), obs=torch.tensor(0.4))

    moved = []
    for model in (alone, observed):
        pyro.set_rng_seed(0)
        kernel = MixedGibbs(model, schedule=schedule)
        kernel.setup(0)
        params = {"z": torch.zeros(30)}
        draws = []
        for _ in range(30):
            params = kernel.sample(params)
            draws.append(int(params["z"].sum()))
        moved.append(np.abs(np.diff(draws)).mean())
    assert moved[0] > 3 * moved[1]


# The logarithm of compiled code


@njit(error_model="numpy")
def _logs(values, out):
    for at in range(0, values.shape[0], 8):
        store(out, at, log(load_few(values, at)))


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2e-7), (np.float64, 1e-15)])
def test_logarithms_of_vectors_are_those_of_numpy(dtype, error):
    values = np.concatenate([np.geomspace(1e-37, 1e38, 4000), np.linspace(0.5, 2, 4000)]).astype(dtype)
    out = np.empty_like(values)
    _logs(values, out)
    exact = np.log(values.astype(np.longdouble))
    assert (np.abs(out - exact) <= error * np.maximum(1, np.abs(exact))).all()
    assert not (np.abs(out - exact) <= error / 50).all()  # control
