"""P-values of sparse tables: refits against Newton's, exact tests against enumeration, sizes with controls."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, chi2

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.errors import InputError
from pyro_hoim.learning import L2, fit, goodness_of_fit
from pyro_hoim.learning.bootstrap import MIN_TABLES, bootstrap_cost, bootstrap_statistics
from pyro_hoim.learning.p_values import MAX_MEAN_EXCESS
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE

SMALL = (2, 60, 3)  # with 600 rows most cells expect fewer than two


def margins_of(cards, order):
    codes = np.indices(cards).reshape(len(cards), -1)
    return [
        np.ravel_multi_index(tuple(codes[list(edge)]), [cards[i] for i in edge])
        for edge in itertools.combinations(range(len(cards)), order)
    ]


def order_model(cards, order):
    return InteractionHypergraph.from_order(Domain.from_cardinalities(list(cards)), order)


def independent_law(cards, skew):
    random = np.random.default_rng(7)
    law = np.ones(cards)
    for axis, size in enumerate(cards):
        law *= np.exp(skew * random.normal(size=size)).reshape([-1 if i == axis else 1 for i in range(len(cards))])
    return law.ravel() / law.sum()


def statistics_of(cards, order, law, total, num_tables, seed=1):
    graph = order_model(cards, order)
    df = law.size - 1 - graph.num_parameters
    found = bootstrap_statistics(
        law, total, margins_of(cards, order), df, num_tables=num_tables, budget=math.inf, seed=seed
    )
    return found, df


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
@pytest.mark.parametrize(("cards", "order", "total"), [((2, 3, 4), 1, 40), ((2, 2, 3, 2), 2, 200), ((3, 3, 2), 2, 60)])
def test_refits_are_those_of_newton(cards, order, total):
    law = independent_law(cards, 0.6)
    found, df = statistics_of(cards, order, law, total, 25)
    tables = np.random.default_rng(1).multinomial(total, law, size=25)
    graph = order_model(cards, order)
    zero_margins = 0
    for table, deviance, pearson in zip(tables, found.deviance, found.pearson, strict=True):
        result = fit(graph, Observations.from_table(graph.domain, table.reshape(cards)))
        zero_margins += result.status == "infinite"
        exact = goodness_of_fit(result, None)
        assert exact.deviance - 1e-6 <= deviance <= exact.deviance + 5e-3 * math.sqrt(2 * df)
        if result.status == "converged":
            assert pearson == pytest.approx(exact.pearson, abs=0.02 * math.sqrt(2 * df))
    assert zero_margins < 25 and (order == 1 or zero_margins > 0 or total > 60)


def test_tables_come_in_the_same_order_and_within_the_budget():
    law, margins = independent_law((4, 4), 0.5), margins_of((4, 4), 1)
    few, more = (bootstrap_statistics(law, 30, margins, 9, num_tables=n, budget=math.inf, seed=3) for n in (50, 120))
    np.testing.assert_allclose(few.deviance, more.deviance[:50], rtol=1e-12)
    other = bootstrap_statistics(law, 30, margins, 9, num_tables=50, budget=math.inf, seed=4)
    assert np.abs(few.deviance - other.deviance).max() > 1
    budget = 200 * bootstrap_cost(16, 2)
    assert MIN_TABLES <= len(bootstrap_statistics(law, 30, margins, 9, num_tables=10**5, budget=budget, seed=3)) < 400


def p_values(num_replications):
    """Of independent tables: the exact test's for G2 and X2, chi-square's for G2."""
    graph = order_model(SMALL, 1)
    random = np.random.default_rng(11)
    law = independent_law(SMALL, 0.3)
    found = []
    for number in range(num_replications):
        data = Observations.from_table(graph.domain, random.multinomial(600, law).reshape(SMALL))
        result = fit(graph, data)
        sparse = goodness_of_fit(result, num_tables=199, seed=number)
        assert (sparse.p_value_method, sparse.p_value_statistic) == ("exact", "deviance")
        dense = goodness_of_fit(result, "chi-square")
        found.append((sparse.p_value, sparse.p_value_pearson, dense.p_value))
    return np.array(found).T


def distance_from_uniform(values):
    ordered = np.sort(values)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return max(np.abs(ordered - steps[1:]).max(), np.abs(ordered - steps[:-1]).max())


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
def test_p_values_of_sparse_tables_are_uniform_and_those_of_chi_square_are_not():
    num = 160
    deviance, pearson, control = p_values(num)
    limit = math.sqrt(math.log(2 / FALSE_ALARM_RATE) / (2 * num)) + 1 / 200  # Dvoretzky, Kiefer, Wolfowitz; one table
    most = binom.isf(FALSE_ALARM_RATE, num, 0.05)
    for values in (deviance, pearson):
        assert distance_from_uniform(values) < limit
        assert (values <= 0.05).sum() <= most
    assert distance_from_uniform(control) > limit
    assert (control <= 0.05).sum() > most


@pytest.mark.parametrize("skew", [0.0, 0.7])
@pytest.mark.parametrize(
    ("cards", "order"), [((4, 4), 1), ((10, 10), 1), (SMALL, 1), ((2,) * 5, 2), ((4, 3, 3), 2), ((3, 3), 1)]
)
def test_size_of_chi_square_at_the_limit_of_the_rule(cards, order, skew):
    law = independent_law(cards, skew)
    num = 4000
    sizes = []
    for excess in (MAX_MEAN_EXCESS, 8 * MAX_MEAN_EXCESS):
        df = law.size - 1 - order_model(cards, order).num_parameters
        total = math.ceil((1 / law).sum() / (6 * excess * math.sqrt(2 * df)))
        found, df = statistics_of(cards, order, law, total, num)
        sizes.append(int((chi2.sf(found.deviance, df) <= 0.05).sum()))
    assert sizes[0] <= binom.isf(FALSE_ALARM_RATE, num, 0.06)
    assert sizes[1] > binom.isf(FALSE_ALARM_RATE, num, 0.06)  # control: a rule eight times as lax


def test_chi_square_is_used_where_counts_are_large():
    data = load_table("ucb_admissions")
    test = goodness_of_fit(fit(InteractionHypergraph.from_order(data.domain, 2), data))
    assert test.p_value_method == "chi-square" and test.num_tables == 0 and test.p_value_std_error == 0
    assert test.p_value == chi2.sf(test.deviance, 5)
    assert "raise the mean of G² by up to 0.022 standard deviations (limit 0.05)" in test.p_value_note


def hypergeometric(row, column, total, corner):
    return math.comb(row, corner) * math.comb(total - row, column - corner) / math.comb(total, column)


def test_the_exact_test_is_that_of_the_enumerated_tables_of_a_chain():
    # Given b, a and c are independent 2 x 2 tables with fixed margins: two hypergeometric laws.
    counts = np.array([[[4, 1], [0, 3]], [[1, 3], [5, 2]]])  # a, b, c
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    graph = InteractionHypergraph.from_formula(domain, "a*b + b*c")
    result = fit(graph, Observations.from_table(domain, counts))
    found = goodness_of_fit(result, "exact", num_tables=20_000)
    expected = result.probs.numpy().reshape(2, 2, 2) * counts.sum()
    exact = np.zeros(2)
    for corners in itertools.product(range(10), repeat=2):
        table, chance = np.zeros((2, 2, 2)), 1.0
        for b, corner in enumerate(corners):
            row, column, total = counts[0, b].sum(), counts[:, b, 0].sum(), counts[:, b].sum()
            table[:, b] = [[corner, row - corner], [column - corner, total - row - column + corner]]
            chance *= hypergeometric(row, column, total, corner) if table[:, b].min() >= 0 else 0.0
        if chance:
            positive = table > 0
            deviance = 2 * (table[positive] * np.log(table[positive] / expected[positive])).sum()
            pearson = ((table - expected) ** 2 / expected).sum()
            exact += chance * (np.array([deviance, pearson]) >= np.array([found.deviance, found.pearson]) - 1e-9)
    assert found.p_value_method == "exact" and found.num_tables == 20_000
    for value, truth in ((found.p_value, exact[0]), (found.p_value_pearson, exact[1])):
        assert abs(value - truth) < 5 * math.sqrt(truth * (1 - truth) / 20_000) + 1e-4
    control = goodness_of_fit(result, "chi-square").p_value
    assert abs(control - exact[0]) > 10 * math.sqrt(exact[0] * (1 - exact[0]) / 20_000)


def test_sparse_margins_have_no_bootstrap_unless_it_is_asked_for():
    random = np.random.default_rng(2)
    graph = order_model((4, 4, 4), 2)
    counts = 1 + random.multinomial(30, np.full(64, 1 / 64)).reshape(4, 4, 4)
    result = fit(graph, Observations.from_table(graph.domain, counts))
    test = goodness_of_fit(result)
    assert test.p_value_method is None and "some fitted margins hold fewer than 5 rows" in test.p_value_note
    asked = goodness_of_fit(result, "bootstrap", num_tables=199)
    assert (asked.p_value_method, asked.p_value_statistic) == ("bootstrap", "pearson")
    assert asked.p_value == asked.p_value_pearson
    with pytest.raises(InputError, match="no method 'exact', because the model is not decomposable"):
        goodness_of_fit(result, "exact")


def test_the_bootstrap_depends_on_its_seed_by_its_stated_error():
    data = load_table("czech_autoworkers")
    result = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    first, second = (goodness_of_fit(result, seed=seed) for seed in (0, 1))
    assert first.p_value_method == "bootstrap" and first.num_tables == 999
    assert first.p_value_std_error == pytest.approx(math.sqrt(first.p_value * (1 - first.p_value) / 999))
    assert first.p_value != second.p_value
    assert abs(first.p_value - second.p_value) < 5 * math.hypot(first.p_value_std_error, second.p_value_std_error)
    assert goodness_of_fit(result, seed=1) == second


def test_structural_zeros_are_drawn_by_nobody():
    domain = Domain.from_cardinalities({"a": 3, "b": 3})
    data = Observations.from_table(domain, np.array([[0, 5, 9], [7, 0, 4], [6, 8, 0]]))
    graph = InteractionHypergraph.from_order(domain, 1)
    possible = fit(graph, data, structural_zeros=np.eye(3, dtype=bool))
    assert goodness_of_fit(possible, "bootstrap").p_value == pytest.approx(
        goodness_of_fit(possible, "chi-square").p_value_pearson, abs=0.08
    )
    assert goodness_of_fit(fit(graph, data), "bootstrap").p_value == 0.001  # control: zeros taken as observed


def test_no_p_value_without_a_method_and_the_reason_is_given():
    domain = Domain.from_cardinalities({"a": 3, "b": 3})
    graph = InteractionHypergraph.from_order(domain, 1)
    weights = np.full((3, 3), 1.5) + np.eye(3)
    weighted = fit(graph, Observations.from_table(domain, weights=weights))
    for result, method, reason in (
        (fit(graph, Observations.from_table(domain, np.ones((3, 3)) + np.eye(3))), None, "none was asked for"),
        (weighted, "auto", "and the counts are not whole numbers"),
        (fit(graph, weighted.data, penalty=L2(1.0)), "bootstrap", "the fit is penalised"),
        (fit(graph, weighted.data, objective="pseudo-likelihood"), "auto", "the fit is one of the pseudo-likelihood"),
        (fit(InteractionHypergraph.saturated(domain), weighted.data), "auto", "no degrees of freedom are left"),
    ):
        test = goodness_of_fit(result, method)
        assert test.p_value_method is None and math.isnan(test.p_value) and math.isnan(test.p_value_pearson)
        assert reason in test.p_value_note
    with pytest.raises(InputError, match="p_value: no method 'bootstrap', because the counts are not whole numbers"):
        goodness_of_fit(weighted, "bootstrap")


def test_tests_that_would_take_long_are_not_begun(monkeypatch):
    domain = Domain.from_cardinalities({"a": 3, "b": 3})
    data = Observations.from_table(domain, np.ones((3, 3)) + np.eye(3))
    result = fit(InteractionHypergraph.from_order(domain, 1), data)
    monkeypatch.setattr("pyro_hoim.learning.p_values._CONDITIONAL_BUDGET", 99.0)
    test = goodness_of_fit(result)
    assert test.p_value_method is None and "an exact test with 99 tables would take longer" in test.p_value_note
    assert goodness_of_fit(result, "exact", num_tables=99).num_tables == 99
    monkeypatch.setattr("pyro_hoim.learning.p_values._BUDGET", 1.0)
    cube = Observations.from_table(order_model((2, 2, 2), 2).domain, np.full((2, 2, 2), 3) + np.eye(2, dtype=int))
    pairs = fit(order_model((2, 2, 2), 2), cube)
    assert "a bootstrap with 99 tables would take longer" in goodness_of_fit(pairs).p_value_note
    assert goodness_of_fit(pairs, "bootstrap", num_tables=99).num_tables == 99


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p_value": "g2"}, "p_value: expected 'auto', 'chi-square', 'exact', 'bootstrap' or None, received 'g2'"),
        ({"num_tables": 98}, "num_tables: expected a whole number from 99 to 1000000, received 98"),
        ({"seed": -1}, "seed: expected a whole number from 0"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    data = load_table("hair_eye_color")
    with pytest.raises(InputError, match=message):
        goodness_of_fit(fit(InteractionHypergraph.from_order(data.domain, 2), data), **options)
