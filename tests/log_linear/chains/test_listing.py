"""Blocks that are drawn from the list of their possible joint states: lists, laws, groups of columns, new models."""

import itertools

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_hoim import Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy, MixedGibbs
from pyro_hoim.log_linear import AnnealedImportance, HierarchicalLogLinear, VariableElimination
from pyro_hoim.log_linear.chains.inside import Listing
from pyro_hoim.log_linear.impossible import support_of
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import assert_exact_law, enumerate_codes, raises, required_draws

from support.supports import log_weights, positions, random_model

ENGINES = ("tables", "torch")
each = pytest.mark.parametrize("engine", ENGINES)


def _group(size, outside=0, seed=0, batch=()):
    """Binary columns of which at most one is set, each with a column outside in turn; random tables."""
    domain = Domain.from_cardinalities([2] * (size + outside))
    names, rng = domain.names, np.random.default_rng(seed)
    walls = list(itertools.combinations(names[:size], 2))
    links = [(names[k], names[size + k % outside]) for k in range(size)] if outside else []
    graph = InteractionHypergraph(domain, [*((n,) for n in names), *walls, *links], hierarchical=False)
    tables = torch.as_tensor(rng.normal(size=(*batch, graph.num_terms)))
    for pair in walls:
        tables[..., graph.term_slices[pair].stop - 1] = -torch.inf
    return LogLinearEnergy(graph, tables)


def _sweep_law(model, blocks, start):
    """Law over all states of a sweep from one, by enumeration."""
    codes, logs = log_weights(model)
    weights, names = (logs - logs.max()).exp().numpy(), model.domain.names
    law = np.zeros(len(codes))
    law[start] = 1.0
    for block in blocks:
        outside = [k for k, name in enumerate(names) if name not in block]
        group = np.unique(codes[:, outside].numpy(), axis=0, return_inverse=True)[1].reshape(-1)
        total, before = np.bincount(group, weights), np.bincount(group, law)
        law = before[group] * np.divide(weights, total[group], where=total[group] > 0, out=np.zeros_like(weights))
    return law


def test_lists_are_the_states_that_some_values_of_the_others_and_some_model_allow():
    """Against enumeration: no state that is possible is left out, and what every table alone excludes is."""
    rng, shorter = np.random.default_rng(4), 0
    for _ in range(200):
        model = random_model(rng, (2,) if rng.random() < 0.3 else ())
        support, names = support_of(model), model.domain.names
        if support is None or len(names) < 2:
            continue
        block = tuple(sorted(rng.choice(len(names), rng.integers(2, len(names) + 1), replace=False).tolist()))
        listed = Listing(support).states([names[v] for v in block])
        codes, logs = log_weights(model)
        inside = torch.isfinite(logs.reshape(-1, len(codes))).any(0)
        possible = {tuple(row) for row in codes[inside][:, block].tolist()}
        every = {tuple(row) for row in codes[:, block].tolist()}
        assert listed is None or (list(listed) == sorted(listed) and possible <= set(listed) < every)
        # What one table within the block excludes in all models is left out.
        for members, where in zip(
            support.hypergraph.edge_indices, support.hypergraph.term_slices.values(), strict=True
        ):
            if listed is not None and set(members) <= set(block):
                shape = [model.domain.cardinalities[v] for v in members]
                always = torch.isneginf(support.tables[..., where]).reshape(-1, *shape).all(0)
                assert not any(always[tuple(state[block.index(v)] for v in members)] for state in listed)
                shorter += bool(always.any())
    assert shorter > 50


@pytest.mark.fixed_seed  # of models whose start is possible and leads somewhere
@each
def test_a_sweep_of_listed_blocks_has_its_law(engine):
    """Random supports and blocks; the control is the law of single variables."""
    rng, seen, controls = np.random.default_rng(5), 0, 0
    while seen < 12:
        model = random_model(rng)
        names = model.domain.names
        codes, logs = log_weights(model)
        possible = torch.isfinite(logs)
        if len(names) < 3 or possible.all() or possible.sum() < 3:
            continue
        size = int(rng.integers(2, len(names)))
        blocks = [tuple(names[v] for v in rng.permutation(len(names))[:size]), *((name,) for name in names)]
        start = int(possible.nonzero()[0])
        schedule, count = GibbsSchedule(blocks), required_draws(len(codes), 0.1)
        chains = GibbsChains(model, count, schedule=schedule, init=codes[start], engine=engine, seed=seen)
        if chains._lists is None:
            continue
        chains.sweep(1)
        counts = torch.bincount(positions(chains.states, codes), minlength=len(codes)).numpy()
        law = _sweep_law(model, chains.blocks, start)
        assert not counts[law == 0].any()
        assert_exact_law(counts[law > 0], law[law > 0], what="states after a sweep")
        other = _sweep_law(model, [b for b in chains.blocks if len(b) == 1], start)
        if np.abs(other - law).sum() > 0.4:
            controls += 1
            with pytest.raises(AssertionError):
                assert_exact_law(np.append(counts[other > 0], counts[other == 0].sum()), np.append(other[other > 0], 0))
        seen += 1
    assert controls


@pytest.mark.parametrize("beta", [1.0, 0.3])
@each
def test_a_group_of_thirty_columns_is_drawn_from_its_thirty_one_states(engine, beta):
    """Given two columns outside; no list of 2^30 states, and no elimination of a clique of thirty, would do."""
    model = _group(30, outside=2)
    names = model.domain.names
    reference = torch.as_tensor(np.random.default_rng(1).normal(size=64))
    count = required_draws(31, 0.1)
    start = torch.zeros(32, dtype=torch.long)
    start[30] = 1
    options = {"schedule": GibbsSchedule([names[:30], *((n,) for n in names[30:])]), "reference": reference}
    chains = GibbsChains(model, count, init=start, engine=engine, seed=2, **options)
    assert [None if states is None else len(states) for states in chains._lists] == [31, None, None]
    chains.sweep(1, beta)
    states = torch.cat([torch.zeros(1, 30, dtype=torch.long), torch.eye(30, dtype=torch.long)])
    given = torch.cat([states, start[30:].expand(31, -1)], 1)
    single = reference.reshape(32, 2).gather(1, given.T).sum(0)
    law = (-beta * model.energy(given) + (1 - beta) * single).softmax(-1).numpy()
    drawn = chains.states[:, :30]
    counts = torch.bincount(torch.where(drawn.any(-1), drawn.argmax(-1) + 1, 0), minlength=31).numpy()
    assert (drawn.sum(-1) <= 1).all()
    assert_exact_law(counts, law, what="the group given the others")
    other = (-model.energy(torch.cat([states, 1 - start[30:].expand(31, -1)], 1))).softmax(-1).numpy()
    with pytest.raises(AssertionError):  # control: given other values of the columns outside
        assert_exact_law(counts, other)


def test_groups_are_refused_where_all_states_are_possible():
    names = _group(30).domain.names
    free = LogLinearEnergy(_group(30).hypergraph, torch.zeros(_group(30).hypergraph.num_terms).double())
    with raises("over-budget", "blocks"):
        GibbsChains(free, 2, schedule=GibbsSchedule([names]))
    # A later model in which all are possible, too; the chains stay as they were.
    chains = GibbsChains(_group(30), 2, schedule=GibbsSchedule([names]), init=torch.zeros(30).long(), seed=1)
    with raises("over-budget", "blocks"):
        chains.set_model(free)
    chains.sweep(3)
    assert (chains.states.sum(-1) <= 1).all()


@each
def test_new_models_bring_their_own_lists(engine):
    """States that become possible are drawn from then on, and those that no longer are, no more; as by new chains."""
    graph = _group(3).hypergraph
    rng = np.random.default_rng(3)
    finite = torch.as_tensor(rng.normal(size=graph.num_terms))
    one = _group(3, seed=2).tables
    schedule, count = GibbsSchedule([graph.domain.names]), required_draws(8, 0.1)
    chains = GibbsChains(LogLinearEnergy(graph, one), count, schedule=schedule, engine=engine, seed=7)
    for tables, number in ((finite, 8), (finite.where(one.isfinite(), -torch.inf), 4)):
        model = LogLinearEnergy(graph, tables)
        if number == 4:
            chains.set_states(torch.zeros(3, dtype=torch.long))
        chains.set_model(model)
        chains.sweep(1)
        codes, logs = log_weights(model)
        counts = torch.bincount(positions(chains.states, codes), minlength=8).numpy()
        law = logs.softmax(-1).numpy()
        assert int((law > 0).sum()) == number and not counts[law == 0].any()
        assert_exact_law(counts[law > 0], law[law > 0], what="states under the new model")


def test_lists_change_no_draw_of_blocks_that_were_listed_before(monkeypatch):
    """A state of no weight takes no part in an inversion: chains with all 16 states draw the same."""
    model = _group(4, outside=2, seed=1)
    schedule = GibbsSchedule([model.domain.names[:4], *((n,) for n in model.domain.names[4:])])
    few = GibbsChains(model, 50, schedule=schedule, precision=torch.float64, seed=3)
    assert few._lists is not None
    monkeypatch.setattr("pyro_hoim.log_linear.chains.gibbs.listed_states", lambda *_: None)
    many = GibbsChains(model, 50, schedule=schedule, precision=torch.float64, seed=3)
    for chains in (few, many):
        chains.sweep(30)
    assert torch.equal(few.states, many.states)


def test_clamped_columns_shorten_lists_and_models_of_a_batch_share_them():
    model = _group(6, outside=1, batch=(2,))
    names = model.domain.names
    chains = GibbsChains(model, 300, schedule=GibbsSchedule([names[:6], names[6:]]), clamped={names[0]: 1}, seed=1)
    chains.sweep(2)
    assert (chains.states[..., 1:6] == 0).all()
    chains.set_states(torch.zeros(7, dtype=torch.long))  # clamps the column to 0
    chains.sweep(5)
    assert (chains.states[..., 1:6].sum(-1) <= 1).all() and chains.states[..., 1:6].any()
    assert (chains.states[..., 0] == 0).all()


def test_annealed_log_z_by_a_group_drawn_as_a_whole():
    """Of 20 columns of which at most one is set, a clique beyond elimination within a block; and two outside."""
    model = _group(20, outside=2, seed=4)
    exact = float(VariableElimination(max_cells=2**24).log_partition(model).value)
    schedule = GibbsSchedule([model.domain.names[:20], *((n,) for n in model.domain.names[20:])])
    backend = AnnealedImportance(num_chains=200, num_temperatures=40, schedule=schedule, seed=1)
    result = backend.log_partition(model)
    assert abs(float(result.value) - exact) < 6 * float(result.std_error) + 1e-6
    assert float(result.std_error) < 0.2


@pytest.mark.parametrize("size", [4, 14])
def test_mixed_gibbs_draws_groups_from_their_possible_states(size):
    """A program that depends on a group of columns of which at most one is set: the law of which one, given a datum.

    The control is the law without the datum.
    """
    model = _group(size, seed=6)
    law = HierarchicalLogLinear.from_tables(model.hypergraph, model.tables)
    value = torch.linspace(-1, 1, size).double()

    def program():
        z = pyro.sample("z", law)
        pyro.sample("y", dist.Normal((z * value).sum(-1), 0.4), obs=torch.tensor(0.8).double())

    pyro.set_rng_seed(0)
    kernel = MixedGibbs(program, schedule=GibbsSchedule([model.domain.names]))
    kernel.setup(0)
    params, counts = {"z": torch.zeros(size)}, np.zeros(size + 1, dtype=int)
    for _ in range(400):
        params = kernel.sample(params)
        z = params["z"]
        counts[int(z.argmax()) + 1 if z.any() else 0] += 1
    states = torch.cat([torch.zeros(1, size, dtype=torch.long), torch.eye(size, dtype=torch.long)])
    alone = -model.energy(states)
    seen = dist.Normal(torch.cat([torch.zeros(1).double(), value]), 0.4).log_prob(torch.tensor(0.8).double())
    assert_exact_law(counts, (alone + seen).softmax(-1).numpy(), what="the column that is set")
    with pytest.raises(AssertionError):
        assert_exact_law(counts, alone.softmax(-1).numpy())


@each
def test_all_states_of_small_models_are_listed_one_by_one(engine):
    """One possible state, and one variable."""
    graph = InteractionHypergraph(Domain.from_cardinalities([2, 2]), [("x0", "x1")], hierarchical=False)
    only = LogLinearEnergy(graph, torch.tensor([-torch.inf, -torch.inf, 0.5, -torch.inf]).double())
    chains = GibbsChains(only, 9, schedule=GibbsSchedule([("x0", "x1")]), engine=engine)
    chains.sweep(4)
    assert (chains.states == torch.tensor([1, 0])).all()
    assert len(enumerate_codes(graph.domain.cardinalities)) == 4
