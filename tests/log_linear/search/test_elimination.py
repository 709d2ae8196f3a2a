"""Backward elimination: its statistic against enumeration, its size where nothing is there, and what it recovers."""

import itertools
import json
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import binom

from pyro_hoim import Auto, InputError, LogLinearEnergy, Observations
from pyro_hoim.log_linear import (
    ExactTrainer,
    InteractionRidge,
    InteractionTest,
    Stopping,
    eliminate,
)
from pyro_hoim.log_linear.search.elimination import _Search
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE

from studies.complexity import structure_recovery

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})


def draw(table, number, rng, domain=DOMAIN):
    """Independent rows of a table of probabilities."""
    cells = rng.choice(table.size, size=number, p=table.ravel() / table.sum())
    return Observations.from_tensor(torch.from_numpy(np.stack(np.unravel_index(cells, table.shape), 1)), domain)


def trained(rows, graph, strength=1.0, *, tolerance=1e-10):
    trainer = ExactTrainer(
        rows, graph, penalty=InteractionRidge(strength), stopping=Stopping(max_iterations=500, tolerance=tolerance)
    )
    trainer.train()
    return trainer


def table_of(trainer):
    model = LogLinearEnergy(trainer.hypergraph, trainer.tables)
    return Auto().marginal(model, model.domain.names).numpy()


def dependent(strength=0.5):
    """A chain a - b - c over 2 x 3 x 2 cells."""
    table = np.full((2, 3, 2), 1.0) * np.array([0.7, 0.3])[:, None, None]
    table[1, 2] *= np.exp(3 * strength)
    table[:, 0, 1] *= np.exp(3 * strength)
    return table / table.sum()


def test_statistic_with_a_refit_against_enumeration():
    rng = np.random.default_rng(0)
    train, validation = draw(dependent(), 400, rng), draw(dependent(), 200, rng)
    pairs = InteractionHypergraph.from_order(DOMAIN, 2)
    q = table_of(trained(train, pairs))
    found = {test.edge: test for test in eliminate(train, validation, trained(train, pairs)).tests}
    assert {e for e, test in found.items() if test.is_kept} == {("a", "b"), ("b", "c")}
    test = found["a", "b"]
    assert test.is_refitted and found["a", "c"].is_refitted is False
    q = table_of(trained(train, pairs.remove_edges([("a", "c")], hierarchical=False)))
    without = table_of(trained(train, pairs.remove_edges([("a", "c"), ("a", "b")], hierarchical=False)))
    ratio = np.log(q / without)
    at = [ratio[tuple(part.codes.numpy().T)] for part in (validation, train)]
    assert test.gain == pytest.approx(at[0].mean(), rel=1e-6)
    assert test.gain_std_error == pytest.approx(at[0].std() / np.sqrt(200), rel=1e-6)
    variance = max(np.concatenate(at).var(), at[0].var())
    z = (at[0].mean() - (without * ratio).sum()) / np.sqrt(variance / 200)
    assert test.z == pytest.approx(z, rel=1e-5)


def test_a_column_that_is_another_one_stays_tied_to_it():
    """Every row gains the same, so that the statistic has no error; independent columns are the control."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    pair = InteractionHypergraph.from_order(domain, 2)
    for cells, is_kept in ([[0, 0], [1, 1]], True), ([[0, 0], [0, 1], [1, 0], [1, 1]], False):
        rows = Observations.from_tensor(torch.tensor(cells).repeat(40, 1), domain)
        (test,) = eliminate(rows, rows, trained(rows, pair)).tests
        assert test.is_kept is is_kept, test
        assert InteractionTest.from_json(json.loads(json.dumps(test.to_json(), allow_nan=False))) == test


def test_statistic_without_a_refit_against_enumeration():
    """The table less its projection on the singles, by weighted least squares over the cells."""
    rng = np.random.default_rng(1)
    train, validation = draw(dependent(0.0), 400, rng), draw(dependent(0.0), 200, rng)
    graph = InteractionHypergraph(DOMAIN, [("a",), ("b",), ("c",), ("a", "b")])
    trainer = trained(train, graph)
    q, table = table_of(trainer).sum(2), trainer.tables.numpy()[graph.term_slices["a", "b"]].reshape(2, 3)
    (test,) = eliminate(train, validation, trainer).tests
    assert not test.is_kept and not test.is_refitted
    design = np.array([[1.0, i == 1, j == 1, j == 2] for i in range(2) for j in range(3)])
    root = np.sqrt(q.ravel())[:, None]
    own = table.ravel() - design @ np.linalg.lstsq(root * design, (root[:, 0] * table.ravel()), rcond=None)[0]
    without = q.ravel() * np.exp(-own)
    ratio = own + np.log(without.sum())
    without /= without.sum()
    counts = [np.bincount(part.codes[:, 0] * 3 + part.codes[:, 1], minlength=6) for part in (validation, train)]
    gain = counts[0] @ ratio / 200
    variance = max(np.cov(ratio, fweights=counts[0] + counts[1], ddof=0), np.cov(ratio, fweights=counts[0], ddof=0))
    assert test.gain == pytest.approx(gain, rel=1e-6)
    assert test.z == pytest.approx((gain - without @ ratio) / np.sqrt(variance * (1 / 200 + 1 / 400)), rel=1e-6)


def numbers_with_findings(num_repeats):
    """How often independent skewed columns yield any interaction, judged on held-out rows and on those fitted to."""
    rng = np.random.default_rng(2)
    domain = Domain.from_cardinalities(dict.fromkeys("abcd", 3))
    margins = np.array([[0.8, 0.15, 0.05], [0.6, 0.3, 0.1], [0.34, 0.33, 0.33], [0.9, 0.05, 0.05]])
    pairs = InteractionHypergraph.from_order(domain, 2)
    counts = np.zeros(2, int)
    for _ in range(num_repeats):
        codes = np.stack([rng.choice(3, size=450, p=p) for p in margins], 1)
        rows = Observations.from_tensor(torch.from_numpy(codes), domain)
        train, validation = rows.split([0.7, 0.3], 0)
        trainer = trained(train, pairs, 0.1, tolerance=1e-6)
        found = (eliminate(train, judges, deepcopy(trainer)).tests for judges in (validation, train))
        counts += [any(test.is_kept for test in tests) for tests in found]
    return counts


def test_independent_columns_yield_no_more_than_the_rate():
    """Where nothing is there, the false discovery rate is the probability of any finding."""
    num_repeats = 40
    limit = binom.isf(FALSE_ALARM_RATE, num_repeats, 0.1)
    held_out, fitted_to = numbers_with_findings(num_repeats)
    assert held_out <= limit
    assert fitted_to > limit  # the control


def test_what_the_bisection_leaves_is_tested_anew(monkeypatch):
    """Beside their neighbours in a strong chain, absent pairs pass the first test too often, and fewer the second."""
    domain, law = Domain.from_cardinalities([2] * 7), np.array([0.5, 0.5])
    for k in range(6):
        law = law[..., None] * np.array([[0.9, 0.1], [0.1, 0.9]]).reshape((1,) * k + (2, 2))
    pairs, neighbours = InteractionHypergraph.from_order(domain, 2), set(itertools.pairwise(domain.names))
    monkeypatch.setattr(_Search, "_is_missed", lambda *_: True)  # the bisection finds that nothing more can go

    def kept():
        found = []
        for seed in range(8):
            rng = np.random.default_rng(seed)
            train, validation = draw(law, 3000, rng, domain), draw(law, 1000, rng, domain)
            tests = eliminate(train, validation, trained(train, pairs, tolerance=1e-7), max_refits=0).tests
            found += [test.edge in neighbours for test in tests if test.is_kept]
        return found.count(True), found.count(False)

    present, absent = kept()
    monkeypatch.setattr(_Search, "remove_in_halves", lambda _: None)  # the control
    before, more = kept()
    assert present == before == 8 * len(neighbours)
    assert 2 * absent < more


def redundant(num_noise=6):
    """A chain a - b - c with near-equal a and b, so that a explains c almost as well, and coins beside it."""
    names = ["a", "b", "c", *(f"n{i}" for i in range(num_noise))]
    chain = np.einsum("ab,bc->abc", np.array([[0.46, 0.04], [0.04, 0.46]]), np.array([[0.8, 0.2], [0.2, 0.8]]))
    return Domain.from_cardinalities(dict.fromkeys(names, 2)), chain


@pytest.mark.parametrize("max_refits", [0, 200])
def test_interactions_that_others_stand_in_for_go(max_refits):
    """One by one with refits, and together by bisection; the control removes nothing."""
    domain, chain = redundant()
    graph = InteractionHypergraph.from_order(domain, 2)
    planted = InteractionHypergraph(domain, [("a", "b"), ("b", "c")], closure=True)
    wrong = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        parts = []
        for _ in range(2):
            first = np.stack(np.unravel_index(rng.choice(8, size=1500, p=chain.ravel()), (2, 2, 2)), 1)
            codes = np.concatenate([first, rng.integers(0, 2, (1500, 6))], 1)
            parts.append(Observations.from_tensor(torch.from_numpy(codes), domain))
        found = eliminate(*parts, trained(parts[0], graph, 0.01, tolerance=1e-6), max_refits=max_refits)
        recovery = structure_recovery(found.hypergraph, planted)
        assert recovery.recall == 1.0
        kept = sum(test.is_kept for test in found.tests)
        wrong += kept - 2
        assert len(found.tests) == 36 and found.num_fits > 0
    assert wrong <= binom.isf(FALSE_ALARM_RATE, 4 * 34, 0.1 * 3 / 36)  # absent pairs, at the level of the third of 36
    assert structure_recovery(graph, planted).precision < 0.1  # control: nothing removed


@pytest.mark.parametrize("level", [0.01, 0.1, 0.5])
def test_confirmed_interactions_are_those_of_the_step_up_procedure(level):
    """Against its definition; hypotheses that are not at hand count as not rejected."""
    rng = np.random.default_rng(3)
    for size, others in itertools.product((0, 1, 7, 40), (0, 20)):
        p = rng.random(size) ** 3
        search = SimpleNamespace(_num_tests=size + others, level=level)
        found = _Search._confirmed(search, [SimpleNamespace(p_value=value) for value in p])
        ranked = enumerate(np.sort(p), 1)
        largest = max((value for j, value in ranked if value <= j * level / (size + others)), default=-1.0)
        assert found.tolist() == (p <= largest).tolist()


def test_nothing_to_test():
    rng = np.random.default_rng(4)
    rows = draw(dependent(), 50, rng)
    graph = InteractionHypergraph.from_order(DOMAIN, 1)
    found = eliminate(rows, rows, trained(rows, graph))
    assert found.hypergraph == graph and found.tests == () and found.num_fits == 0


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0, float("nan"), True])
def test_rates_out_of_range(rate):
    rows = draw(dependent(), 50, np.random.default_rng(5))
    trainer = trained(rows, InteractionHypergraph.from_order(DOMAIN, 1))
    with pytest.raises(InputError, match="false_discovery_rate: expected a number between 0 and 1"):
        eliminate(rows, rows, trainer, false_discovery_rate=rate)


@pytest.mark.parametrize("max_refits", [0, 200])
@pytest.mark.parametrize("departures", [2, 20])
def test_rows_that_gain_apart_are_counted(departures, max_refits):
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    table = [[501, departures], [departures, 499]]  # the first cells of a row gain not quite alike
    rows = Observations.from_table(domain, table)
    trainer = ExactTrainer(rows, InteractionHypergraph.saturated(domain))
    trainer.train()
    (test,) = eliminate(rows, rows, trainer, max_refits=max_refits).tests
    assert test.is_kept and test.num_apart == 2 * departures
    assert test.has_normal_law == (2 * departures >= 10)
    assert InteractionTest.from_json(test.to_json()) == test
    old = {name: value for name, value in test.to_json().items() if name != "num_apart"}
    assert InteractionTest.from_json(old).has_normal_law
