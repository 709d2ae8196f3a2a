"""Gibbs sweeps against enumeration: transition matrices, engines against their rows, starts from the exact law."""

import itertools

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import (
    assert_exact_law,
    assert_stationary,
    count_states,
    enumerate_codes,
    random_tables,
    required_draws,
    split_tables,
)

from support.transitions import (
    block_update_matrix,
    join_tables,
    random_scan_matrix,
    slice_states,
    sweep_matrix,
    tempered_law,
)

ENGINES = ("products", "tables", "torch")


def _graph(cardinalities, *edges, hierarchical=True):
    domain = Domain.from_cardinalities(cardinalities)
    return InteractionHypergraph(domain, [tuple(e) for e in edges], closure=hierarchical, hierarchical=hierarchical)


MIXED = {"a": 2, "b": 3, "c": 1, "d": 2, "e": 4}  # 48 states, one variable with a single one
BINARY = dict.fromkeys("abcde", 2)
GRAPHS = {
    "mixed": _graph(MIXED, "abd", "bc", "de"),
    "weak": _graph(MIXED, "a", "abd", "de", hierarchical=False),
    "binary": _graph(BINARY, "abcd", "cde"),
    "weak binary": _graph(BINARY, "b", "abc", "bcde", hierarchical=False),
}
SCHEDULES = {
    "sites": GibbsSchedule("sites"),
    "colours": GibbsSchedule("colours"),
    "interactions": GibbsSchedule("interactions"),
    "user": GibbsSchedule([("e", "a"), ("b",), ("d", "b"), ("c",)]),
    "random sites": GibbsSchedule("sites", "random"),
    "random interactions": GibbsSchedule("interactions", "random"),
    "emphasised": GibbsSchedule("sites", emphasised=[("d", "e")], emphasis=0.6),
    "random emphasised": GibbsSchedule("sites", "random", emphasised=[("d", "e")], emphasis=0.8),
}
CASES = [
    (engine, graph)
    for engine, graph in itertools.product(ENGINES, GRAPHS)
    if engine != "products" or max(GRAPHS[graph].domain.cardinalities) <= 2
]


def _tables(graph, num, seed=0):
    return random_tables(GRAPHS[graph], np.random.default_rng(seed), batch_shape=(num,), balanced=False)


def _reference(graph, seed=1):
    return np.random.default_rng(seed).standard_normal(sum(GRAPHS[graph].domain.cardinalities))


def _visits(schedule, graph, clamped, seed):
    """Names of the blocks of the first sweep."""
    blocks = schedule.resolve(graph, tuple(clamped))
    names = graph.domain.names
    return [tuple(names[i] for i in blocks[b]) for b in schedule.order(graph, blocks, 0, 1, seed)[0]]


# Transition matrices


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("name", GRAPHS)
def test_sweep_leaves_target_invariant_and_mixes(name, kind, beta):
    graph, schedule, clamped = GRAPHS[name], SCHEDULES[kind], {"b": 1}
    tables, reference = _tables(name, 1)[0], _reference(name)
    for fixed in ({}, clamped):
        law = tempered_law(graph, tables, beta=beta, reference=reference, clamped=fixed)
        kept = slice_states(graph, fixed)
        names = graph.domain.names
        blocks = [tuple(names[i] for i in block) for block in schedule.resolve(graph, tuple(fixed))]
        if schedule.scan == "random":
            new = np.array([bool(schedule.emphasised) and set(b) <= {"d", "e"} for b in blocks])
            share = schedule.emphasis if new.any() else 0.0
            probabilities = np.where(new, share / max(1, new.sum()), (1 - share) / (~new).sum())
            matrix = random_scan_matrix(
                graph, tables, blocks, probabilities=probabilities.tolist(), beta=beta, reference=reference
            )
        else:
            visits = _visits(schedule, graph, fixed, 0)
            if schedule.emphasised:  # a sweep need not visit every other block: take three
                row = schedule.order(graph, schedule.resolve(graph, tuple(fixed)), 0, 3, 0).reshape(-1)
                visits = [blocks[b] for b in row]
            matrix = sweep_matrix(graph, tables, visits, beta=beta, reference=reference)
        assert np.delete(matrix[kept], kept, axis=1).max(initial=0.0) == 0  # clamped variables stay
        second = assert_stationary(matrix[np.ix_(kept, kept)], law[kept])
        assert second < 0.99


def _together(graph, tables, blocks):
    """Transition matrix of variables that are all drawn given the old values of the others."""
    codes = enumerate_codes(graph.domain.cardinalities)
    total = np.ones((len(codes), len(codes)))
    names = graph.domain.names
    for name in blocks:
        single, i = block_update_matrix(graph, tables, [name]), names.index(name)
        target = codes.copy()
        for level in range(graph.domain.cardinalities[i]):
            target[:, i] = level
            where = np.ravel_multi_index(tuple(target.T), graph.domain.cardinalities)
            total[:, codes[:, i] == level] *= single[np.arange(len(codes)), where][:, None]
    others = [i for i, name in enumerate(names) if name not in blocks]
    return total * (codes[:, None, others] == codes[None, :, others]).all(-1)


def test_controls_of_the_transition_matrix_fail():
    graph, tables = GRAPHS["mixed"], _tables("mixed", 1)[0]
    law, names = tempered_law(graph, tables), graph.domain.names
    sites = [(n,) for n in names]
    right = sweep_matrix(graph, tables, sites)
    assert_stationary(right, law)
    with pytest.raises(AssertionError, match="does not mix"):
        assert_stationary(np.eye(len(law)), law)
    uniform = np.full(len(law), 1 / len(law))
    with pytest.raises(AssertionError, match="does not mix"):
        assert_stationary(np.roll(np.eye(len(law)), len(law) // 2, 1), uniform)
    together = _together(graph, tables, ["d", "e"])
    np.testing.assert_allclose(together.sum(1), 1.0, rtol=1e-12)
    together = together @ sweep_matrix(graph, tables, [("a",), ("b",)])
    with pytest.raises(AssertionError, match="law moves"):
        assert_stationary(together, law)
    apart = _together(graph, tables, ["a", "e"])  # no interaction between the two: right, and the same as in turns
    np.testing.assert_allclose(apart, sweep_matrix(graph, tables, [("a",), ("e",)]), atol=1e-14)
    for wrong in (_beta_off(graph, tables), _dropped(graph, tables), _transposed(graph, tables)):
        with pytest.raises(AssertionError, match="law moves"):
            assert_stationary(sweep_matrix(graph, wrong, sites), law)
    with pytest.raises(AssertionError, match="law moves"):
        assert_stationary(sweep_matrix(graph, tables, sites, beta=0.95), law)
    with pytest.raises(AssertionError, match="does not mix"):
        assert_stationary(sweep_matrix(graph, tables, sites[:-1]), law)  # one variable is never drawn


def _beta_off(_graph, tables):
    return 0.95 * tables


def _dropped(graph, tables):
    parts = split_tables(graph, tables)
    return join_tables(graph, {e: 0 * t if e == ("d", "e") else t for e, t in parts.items()})


def _transposed(graph, tables):
    """Tables read with their axes in the wrong order."""
    return join_tables(graph, {e: t.T.reshape(t.shape) for e, t in split_tables(graph, tables).items()})


# Engines against the rows of their matrices


def _sweep_from(engine, name, start, tables, schedule, *, clamped=None, beta=1.0, precision=torch.float32, seed=11):
    """Counts (groups, states) after one sweep from start (groups or 1, chains, d)."""
    chains = GibbsChains(
        LogLinearEnergy(GRAPHS[name], torch.as_tensor(tables)),
        start.shape[1],
        schedule=schedule,
        clamped=clamped,
        init=torch.as_tensor(start),
        reference=torch.as_tensor(_reference(name)),
        seed=seed,
        engine=engine,
        precision=precision,
    )
    chains.sweep(1, beta)
    return np.stack([count_states(codes, GRAPHS[name].domain.cardinalities) for codes in chains.states])


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize(("engine", "name"), CASES)
def test_sweep_from_a_fixed_state_follows_its_row(engine, name, kind):
    """A total variation of 0.03 in the law of one sweep is found; two tables, clamped b, beta 0.7."""
    graph, schedule, fixed, beta = GRAPHS[name], SCHEDULES[kind], {"b": 1}, 0.7
    tables, where = _tables(name, 2), int(slice_states(graph, fixed)[3])
    states = enumerate_codes(graph.domain.cardinalities)
    size = required_draws(len(states), 0.03)
    start = np.broadcast_to(states[where], (2, size, len(graph.domain))).copy()
    counts = _sweep_from(engine, name, start, tables, schedule, clamped=fixed, beta=beta)
    visits = _visits(schedule, graph, fixed, 11)
    rows = [sweep_matrix(graph, t, visits, beta=beta, reference=_reference(name))[where] for t in tables]
    assert_exact_law(counts, np.stack(rows) / 2, what=f"{kind} of {name} by {engine}")


@pytest.mark.parametrize("wrong", [_beta_off, _dropped, _transposed], ids=["beta off", "dropped", "transposed"])
@pytest.mark.parametrize("engine", ENGINES)
def test_controls_of_the_row_fail(engine, wrong):
    name = "binary" if engine == "products" else "mixed"
    graph, tables = GRAPHS[name], _tables(name, 1)
    parts = {e: t + 0.8 * np.arange(t.size).reshape(t.shape) for e, t in split_tables(graph, tables[0]).items()}
    tables = join_tables(graph, parts)[None]  # tables far from symmetric
    states = enumerate_codes(graph.domain.cardinalities)
    start = np.broadcast_to(states[5], (1, required_draws(len(states), 0.02), len(graph.domain))).copy()
    law = sweep_matrix(graph, tables[0], [(n,) for n in graph.domain.names])[5]
    assert_exact_law(_sweep_from(engine, name, start, tables, SCHEDULES["sites"])[0], law)
    mistaken = _sweep_from(engine, name, start, wrong(graph, tables[0])[None], SCHEDULES["sites"])
    with pytest.raises(AssertionError, match="chi-square"):
        assert_exact_law(mistaken[0], law)
    backwards = GibbsSchedule([(n,) for n in reversed(graph.domain.names)])
    with pytest.raises(AssertionError, match="chi-square"):
        assert_exact_law(_sweep_from(engine, name, start, tables, backwards)[0], law)


# From the exact law


@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("kind", ["colours", "interactions", "random sites", "emphasised"])
@pytest.mark.parametrize(("engine", "name"), [c for c in CASES if "weak" not in c[1]])
def test_exact_start_stays_exact(engine, name, kind, precision):
    """A total variation of 0.03 is found in the laws of two tables, tempered."""
    graph, tables, beta = GRAPHS[name], _tables(name, 2, seed=3), 0.8
    states = enumerate_codes(graph.domain.cardinalities)
    laws = np.stack([tempered_law(graph, t, beta=beta, reference=_reference(name)) for t in tables])
    size, rng = required_draws(len(states), 0.03), np.random.default_rng(5)
    start = np.stack([states[rng.choice(len(law), size, p=law)] for law in laws])
    counts = _sweep_from(engine, name, start, tables, SCHEDULES[kind], beta=beta, precision=precision)
    assert_exact_law(counts, laws / 2, what=f"{kind} of {name} by {engine}")


@pytest.mark.parametrize("engine", ENGINES)
def test_controls_of_the_exact_start_fail(engine):
    name = "binary" if engine == "products" else "mixed"
    graph, tables = GRAPHS[name], 2 * _tables(name, 1)
    states, law = enumerate_codes(graph.domain.cardinalities), tempered_law(graph, tables[0])
    size, rng = required_draws(len(states), 0.02), np.random.default_rng(6)
    start = states[rng.choice(len(law), size, p=law)][None]
    for wrong in (_beta_off, _dropped, _transposed):
        counts = _sweep_from(engine, name, start, wrong(graph, tables[0])[None], SCHEDULES["sites"])
        with pytest.raises(AssertionError, match="chi-square"):
            assert_exact_law(counts[0], law, what=wrong.__name__)
    parts = {e: 0 * t for e, t in split_tables(graph, tables[0]).items()}
    parts["d", "e"] = 1.4 * np.eye(*parts["d", "e"].shape)  # drawn together, the two agree less often than they should
    attracted = join_tables(graph, parts)
    law, together = tempered_law(graph, attracted), _together(graph, attracted, ["d", "e"])
    assert np.abs(law @ together - law).sum() / 2 > 0.05
    moved = rng.multinomial(1, together[rng.choice(len(law), size, p=law)]).sum(0)
    with pytest.raises(AssertionError, match="chi-square"):
        assert_exact_law(moved, law)
