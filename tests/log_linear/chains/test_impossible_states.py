"""Chains of models in which states are impossible: starts, moves, walls at every temperature, connectedness."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components
from scipy.stats import chi2

from pyro_hoim import ConvergenceWarning, GibbsChains, IntractableError, LogLinearEnergy, sample_chains
from pyro_hoim.log_linear.chains.connected import connectedness, joined_blocks
from pyro_hoim.log_linear.impossible import ProductInside, support_of, walled
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import assert_close, raises

from support.supports import NO, forbidding, log_weights, one_hot, positions, random_model

ENGINES = ("tables", "torch")


# Supports: product laws on them, connectedness against all states


def test_product_laws_on_random_supports_are_those_of_enumeration():
    rng, exact = np.random.default_rng(1), 0
    for trial in range(60):
        model = random_model(rng, (2,) if trial % 3 == 0 else ())
        support, (codes, logs) = support_of(model), log_weights(model)
        if support is None:
            continue
        weights = torch.as_tensor(rng.normal(size=(*model.batch_shape, sum(model.domain.cardinalities))))
        first = np.cumsum([0, *model.domain.cardinalities[:-1]])
        law = ProductInside(support, weights)
        if bool(torch.isneginf(logs).all(-1).any()):
            with raises("impossible", "model"):
                _ = law.log_normaliser
            continue
        terms = torch.where(torch.isneginf(logs), NO, weights[..., codes + torch.as_tensor(first)].sum(-1))
        assert_close(law.log_normaliser, terms.logsumexp(-1), relative=1e-12, what="restricted normaliser")
        exact += 1
    assert exact > 30


def test_walls_are_higher_than_all_else():
    model = random_model(np.random.default_rng(7))
    logs = log_weights(model)[1]
    high = log_weights(walled(model))[1]
    is_possible = torch.isfinite(logs)
    assert torch.equal(high[is_possible], logs[is_possible]) and (~is_possible).any()
    assert float(high[~is_possible].max()) < float(logs[is_possible].min()) - 799


def _states_apart(states, blocks):
    """Number of the connected part of every state under moves within blocks."""
    differs = states[:, None] != states[None]
    near = np.zeros(differs.shape[:2], dtype=bool)
    for block in blocks:
        near |= ~np.delete(differs, list(block), axis=2).any(-1)
    return connected_components(near)[1]


def test_connectedness_is_that_of_all_states_and_blocks_that_are_added_connect():
    rng, verdicts = np.random.default_rng(2), []
    for trial in range(600):
        model = random_model(rng)
        support, (codes, logs) = support_of(model), log_weights(model)
        states = codes[torch.isfinite(logs)].numpy()
        if support is None or not len(states):
            continue
        names, number = model.domain.names, len(model.domain)
        blocks = [(i,) for i in range(number)]
        if trial % 3 == 0:
            blocks.append(tuple(sorted(rng.choice(number, 2, replace=False).tolist())))
        part = _states_apart(states, blocks)
        named = [tuple(names[i] for i in block) for block in blocks]
        result = connectedness(support, named)
        assert result.verdict == ("refuted" if part.any() else "proved")
        verdicts.append(result.verdict)
        if result.verdict == "proved":
            continue
        columns = list(model.domain.indices(result.names))
        first, second = (set(part[(states[:, columns] == row).all(1)]) for row in result.states)
        assert first and second and not first & second
        more = joined_blocks(support, GibbsSchedule(), named)
        assert not _states_apart(states, [*blocks, *map(model.domain.indices, more)]).any()
        assert connectedness(support, [*named, *more]).verdict == "proved"
        assert joined_blocks(support, GibbsSchedule(named), named) == []
    assert verdicts.count("refuted") > 10 and verdicts.count("proved") > 200


@pytest.mark.parametrize("size", [5, 6, 7, 8])
def test_single_columns_of_a_one_hot_group_do_not_connect_it_and_its_blocks_do(size):
    model = one_hot(size, more=1)
    sites = GibbsChains(model, 4, schedule=GibbsSchedule([(n,) for n in model.domain.names]))
    chains = GibbsChains(model, 4)
    assert (sites.connectedness, chains.connectedness) == ("refuted", "proved")
    assert len(sites.blocks) == size + 1 < len(chains.blocks)
    assert (chains.sweep(50, thin=1, states=True).states[..., :size].sum(-1) == 1).all()


_DIFFER = [(0, 0), (1, 1)]
_ONE = [(0, 0, 0), *(cell for cell in itertools.product((0, 1), repeat=3) if sum(cell) > 1)]
_SQUARE = np.arange(9).reshape(3, 3)
_LINES = [tuple(line) for line in [*_SQUARE.tolist(), *_SQUARE.T.tolist()]]
JOINED = {
    "equal columns": ([2] * 3, {(0, 1): [(0, 1), (1, 0)], (1, 2): [(0, 1), (1, 0)]}, 2),
    "a gate with two questions": ([2, 3, 3], {(0, k): [(0, 1), (0, 2), (1, 0)] for k in (1, 2)}, 5),
    "colours of a cycle": ([2] * 4, {(0, 1): _DIFFER, (1, 2): _DIFFER, (2, 3): _DIFFER, (0, 3): _DIFFER}, 2),
    "permutation matrices": ([2] * 9, dict.fromkeys(_LINES, _ONE), 6),
    "a gate beside a chain": ([2] * 16, {(0, 1): [(0, 1)], **{(k, k + 1): [(1, 1)] for k in range(1, 15)}}, None),
}


@pytest.mark.parametrize("case", JOINED)
def test_groups_of_few_joint_states_are_connected_by_the_blocks_that_are_added(case):
    cards, forbidden, number = JOINED[case]
    model = forbidding(cards, forbidden)
    chains = GibbsChains(model, 200, seed=1)
    assert chains.connectedness == "proved"
    if number is None:  # sites do
        assert len(chains.blocks) == len(cards)
        return
    codes, logs = log_weights(model)
    states = codes[torch.isfinite(logs)].numpy()
    assert len(states) == number
    blocks = [model.domain.indices(block) for block in chains.blocks]
    assert not _states_apart(states, blocks).any()
    assert _states_apart(states, blocks[: len(cards)]).any()
    seen = chains.sweep(40, thin=1, states=True).states.reshape(40, 200, -1)
    assert all(len(each.unique(dim=0)) > 1 for each in seen.unbind(1))


_OTHER_HALF = [(a, b) for a, b in itertools.product(range(4), repeat=2) if a // 2 != b // 2]


def test_large_supports_are_proved_where_a_look_at_each_variable_does_and_untested_else():
    steps = [(k, (k - 1) % 3) for k in range(3)]
    walk = forbidding([3] * 60, {(i, i + 1): steps for i in range(59)})
    assert GibbsChains(walk, 2).connectedness == "proved"
    halves = forbidding([4] * 60, {(i, i + 1): _OTHER_HALF for i in range(59)})
    chains = GibbsChains(halves, 64)
    assert chains.connectedness == "refuted" and set((chains.states // 2).sum(-1).reshape(-1).tolist()) == {0, 60}
    equal = forbidding([2] * 60, {(i, i + 1): [(0, 1), (1, 0)] for i in range(59)})  # one block of two possible states
    chains = GibbsChains(equal, 64)
    assert chains.connectedness == "proved" and max(map(len, chains.blocks)) == 60
    turns = {(i, (i + 1) % 40): [(a, a) for a in range(3)] for i in range(39)}
    ring = forbidding([3] * 40, {**turns, (0, 39): [(a, a) for a in range(3)]})
    assert GibbsChains(ring, 2).connectedness == "untested"


def test_a_run_that_no_length_would_mend_says_so_once_and_names_two_states():
    """Thirteen columns in one half of their levels have 16,384 possible joint states, too many for a block of a list.

    The control are three of them.
    """
    for size in (13, 3):
        chains = GibbsChains(forbidding([4] * size, {(i, i + 1): _OTHER_HALF for i in range(size - 1)}), 64, seed=1)
        with warnings.catch_warnings(record=True, action="always") as given:
            run = sample_chains(chains, 100)
        if size == 3:
            assert run.is_mixed and not given and chains.barrier == ""
            continue
        (warning,) = given
        message = str(warning.message)
        assert warning.category is ConvergenceWarning and warning.filename == __file__ and run.is_mixed is False
        assert (
            "none leads from (x0=0, " in message
            and "larger blocks (schedule=, a pyro_hoim.runs.GibbsSchedule)" in message
            and "longer" not in message
        )


# Chains: laws, transitions, starts


@pytest.mark.parametrize(("engine", "number"), [("tables", 400), ("torch", 80)])
def test_long_chains_have_the_exact_law_on_random_supports(engine, number):
    """Chi-square of the ends of many chains of connected models; control: against laws that forget what is impossible.

    Models with rare states are left out, through which chains may move slowly.
    """
    rng, surprises, controls = np.random.default_rng(3), [], 0
    for seed in range(number):
        model = random_model(rng, (2,) if seed % 4 == 0 else ())
        codes, logs = log_weights(model)
        if bool(torch.isneginf(logs).all(-1).any()):
            with raises("impossible", "model"):
                GibbsChains(model, 5, engine=engine)
            continue
        probs = torch.softmax(logs, -1).reshape(-1, len(codes))
        if float(probs[probs > 0].min()) < 0.005:
            continue
        chains = GibbsChains(model, 1000, engine=engine, seed=seed)
        if chains.connectedness != "proved":
            continue
        chains.sweep(5, 0.0)
        chains.anneal(torch.linspace(0, 1, 20, dtype=torch.float64))
        chains.sweep(60)
        assert bool(torch.isfinite(chains.energy).all())
        for law, ends in zip(probs, positions(chains.states, codes).reshape(-1, 1000), strict=True):
            counts, can_be = ends.bincount(minlength=len(codes)).double(), law > 0
            assert counts[~can_be].sum() == 0
            surprises.append(_p_value(counts[can_be], law[can_be]))
            if not bool(can_be.all()):
                forgetful = law.clamp(min=float(law[can_be].min()))
                controls += _p_value(counts, forgetful / forgetful.sum()) < 1e-4
    assert len(surprises) > number / 4 and min(surprises) > 1e-5 and 0.4 < np.mean(surprises) < 0.6
    assert controls > number / 10


def _p_value(counts, law):
    """Of the chi-square statistic of 1,000 draws."""
    statistic = float(((counts - 1000 * law) ** 2 / (1000 * law)).sum())
    return float(chi2.sf(statistic, len(law) - 1)) if len(law) > 1 else 0.5


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_transitions_leave_the_law_of_possible_states_in_place(beta):
    """The matrix of one sweep from every possible state, as frequencies of many chains, against the law at beta."""
    model = forbidding([2, 3, 2], {(0, 1): [(0, 0), (1, 2)], (1, 2): [(0, 1)]}, [(0, 2)])
    codes, logs = log_weights(model)
    is_possible = torch.isfinite(logs)
    law = torch.softmax((beta * logs[is_possible]), -1).numpy()
    starts, many = codes[is_possible], 4000
    chains = GibbsChains(model, len(starts) * many, init=starts.repeat_interleave(many, 0), seed=5)
    chains.sweep(1, beta)
    ends = positions(chains.states, codes).reshape(len(starts), many)
    matrix = np.stack([np.bincount(row, minlength=len(codes))[is_possible.numpy()] / many for row in ends.numpy()])
    assert np.allclose(matrix.sum(1), 1)
    noise = 5 * np.sqrt((law**2).sum() / many / 4)
    assert np.abs(law @ matrix - law).max() < noise
    other = torch.softmax((beta - 1.5) * logs[is_possible], -1).numpy()  # control: a law at another temperature
    assert np.abs(other @ matrix - other).max() > noise


def test_one_step_through_a_path_from_another_model_has_the_weights_of_both():
    """Log weights of a run between two models are unbiased for the ratio of their sums over the possible states."""
    forbidden = {(0, 1): [(0, 0), (1, 2)], (1, 2): [(0, 1)]}
    first, last = (forbidding([2, 3, 2], forbidden, [(0, 2)], seed) for seed in (1, 2))
    ratio = float(log_weights(last)[1].logsumexp(-1) - log_weights(first)[1].logsumexp(-1))
    finite = LogLinearEnergy(first.hypergraph, first.tables.masked_fill(torch.isneginf(first.tables), 3.0))
    codes, logs = log_weights(first)
    states = codes[torch.multinomial(logs.softmax(-1), 20_000, True, generator=torch.Generator().manual_seed(1))]
    for engine, start in itertools.product(ENGINES, (first, finite)):
        chains = GibbsChains(last, len(states), init=states, engine=engine, seed=2)
        weights = chains.anneal([0.0, 0.3, 1.0], start=start)
        assert bool(torch.isfinite(chains.energy).all())
        if start is first:
            error = float(weights.exp().std()) / math.exp(ratio) / math.sqrt(len(states))
            assert abs(float(weights.exp().mean()) / math.exp(ratio) - 1) < 4 * error < 0.1
    other = forbidding([2, 3, 2], {**forbidden, (0, 1): [(0, 1)]}, [(0, 2)])
    with raises("impossible", "start"):
        chains.anneal([0.0, 1.0], start=other)


@pytest.mark.parametrize("engine", ENGINES)
def test_first_states_are_drawn_from_the_reference_law_given_clamped_values(engine):
    model = one_hot(4, more=1)
    reference = torch.as_tensor(np.random.default_rng(4).normal(size=10))
    clamped = {"x1": torch.tensor([0, 1] * 10_000), "x4": 1}
    chains = GibbsChains(model, 20_000, clamped=clamped, reference=reference, engine=engine, seed=6)
    codes, logs = log_weights(model)
    weights = reference[codes + torch.arange(0, 10, 2)].sum(-1).masked_fill(torch.isneginf(logs), NO)
    at = positions(chains.states, codes)
    for value in (0, 1):
        agrees = (codes[:, 1] == value) & (codes[:, 4] == 1)
        probs = torch.softmax(weights.masked_fill(~agrees, NO), -1)
        counts = at[value::2].bincount(minlength=len(codes)) / 10_000
        assert counts[probs == 0].sum() == 0 and float((counts - probs).abs().max()) < 0.02
    chains.sweep(20)
    assert chains.connectedness == "proved" and bool(torch.isfinite(chains.energy).all())
    assert torch.equal(chains.states[:, 1], clamped["x1"]) and bool((chains.states[:, 4] == 1).all())


def test_a_million_draws_hold_no_impossible_state():
    """50 random models, 20,000 draws each; the control has walls of three nats."""
    rng, drawn, outside = np.random.default_rng(5), 0, 0
    while drawn < 10**6:
        model = random_model(rng)
        codes, logs = log_weights(model)
        if not bool(torch.isneginf(logs).any()) or bool(torch.isneginf(logs).all()):
            continue
        for each, control in ((model, False), (walled(model, 3.0), True)):
            chains = GibbsChains(each, 20_000, seed=drawn)
            chains.anneal([0.0, 0.2, 1.0])
            chains.sweep(3)
            lost = int(torch.isneginf(logs)[positions(chains.states, codes)].sum())
            outside, drawn = (outside + lost, drawn) if control else (outside, drawn + 20_000)
            assert control or not lost
    assert outside > 10_000


def test_states_outside_and_models_without_one_are_refused_and_change_nothing():
    model = one_hot(3)
    chains = GibbsChains(model, 2, seed=1)
    before = chains.states
    wrong = torch.tensor([[1, 1, 0]])
    with raises("impossible", "init"):
        GibbsChains(model, 2, init=wrong)
    with raises("impossible", "states"):
        chains.set_states(wrong)
    with raises("impossible", "clamped"):
        GibbsChains(model, 2, clamped={"x0": 1, "x1": torch.tensor([0, 1])})
    with raises("conflict", "engine"):
        GibbsChains(model, 2, engine="products")
    last = model.tables.clone()
    where = model.hypergraph.term_slices["x0", "x1", "x2"]
    last[where].reshape(2, 2, 2)[tuple(before[0].tolist())] = NO
    with raises("impossible", "model"):
        chains.set_model(LogLinearEnergy(model.hypergraph, last))
    assert torch.equal(chains.states, before) and bool(torch.isfinite(chains.energy).all())
    finite = GibbsChains(walled(model), 2)
    with raises("conflict", "model"):
        finite.set_model(model)
    chains.set_model(walled(model))  # where the states of the chains are possible, too
    assert chains.connectedness == "proved"
    with raises("impossible", "model"):
        GibbsChains(forbidding([2, 2], {(0,): [(0,)], (0, 1): [(1, 0)], (1,): [(1,)]}), 3)


def test_a_search_finds_states_where_exact_methods_do_not_reach(monkeypatch):
    model = one_hot(8, more=2)
    clamped = {"x9": torch.tensor([0, 1] * 50), "x2": torch.tensor([0] * 99 + [1])}
    exact = GibbsChains(model, 100, clamped=clamped, seed=1)
    monkeypatch.setattr(ProductInside, "is_exact", False)
    chains = GibbsChains(model, 100, clamped=clamped, seed=1)
    assert bool(torch.isfinite(chains.energy).all()) and not torch.equal(chains.states, exact.states)
    assert torch.equal(chains.states[:, [2, 9]], exact.states[:, [2, 9]])
    impossible = forbidding([2, 2], {(0,): [(0,)], (0, 1): [(1, 0)], (1,): [(1,)]})
    with pytest.raises(IntractableError, match="no possible state was found in 2200 sweeps"):
        GibbsChains(impossible, 3)


def test_models_without_impossible_states_move_as_before():
    """The same bits as those of a model whose only impossible level is one that no variable has."""
    model = forbidding([2, 3, 2], {}, [(0, 1), (1, 2)])
    wider = forbidding([2, 3, 2, 2], {(3,): [(1,)]}, [(0, 1), (1, 2)])
    wider.tables[wider.hypergraph.term_slices["x0", "x1"]] = model.tables[model.hypergraph.term_slices["x0", "x1"]]
    wider.tables[wider.hypergraph.term_slices["x1", "x2"]] = model.tables[model.hypergraph.term_slices["x1", "x2"]]
    blocks = GibbsSchedule([("x0",), ("x1",), ("x2",), ("x3",)])
    init = torch.zeros(20, 4, dtype=torch.long)
    first = GibbsChains(model, 20, init=init[:, :3], seed=3, engine="tables")
    second = GibbsChains(wider, 20, init=init, seed=3, engine="tables", schedule=blocks)
    first.sweep(1)
    second.sweep(1)
    assert torch.equal(first.states, second.states[:, :3]) and bool((second.states[:, 3] == 0).all())
