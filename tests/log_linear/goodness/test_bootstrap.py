"""P-values of sparse tables: refits against Newton's, exact tests against enumeration, sizes with controls."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from fitted import DIAGONAL, of_table, order_fit
from scipy.special import betaln, xlogy
from scipy.stats import binom, chi2

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.errors import InputError
from pyro_hoim.log_linear import L2, fit, goodness_of_fit, likelihood_ratio_test
from pyro_hoim.log_linear.goodness.bootstrap import MIN_TABLES, bootstrap_cost, drawn_statistics, multinomial_tables
from pyro_hoim.log_linear.goodness.p_values import MAX_MEAN_EXCESS, PValue, _in_two_rounds
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

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


def drawn_from(law, total, margins, df, num_tables, seed, budget=math.inf):
    tables = multinomial_tables(total * law, total, seed)
    return drawn_statistics(tables, total * law, total * law, margins, None, df, num_tables=num_tables, budget=budget)


def statistics_of(cards, order, law, total, num_tables, seed=1):
    """G2 and X2 of tables drawn from a law, and their degrees of freedom."""
    df = law.size - 1 - order_model(cards, order).num_parameters
    found = drawn_from(law, total, margins_of(cards, order), df, num_tables, seed)
    return found.deviance[1:], found.pearson[1:], df


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
@pytest.mark.parametrize(("cards", "order", "total"), [((2, 3, 4), 1, 40), ((2, 2, 3, 2), 2, 200), ((3, 3, 2), 2, 60)])
def test_refits_are_those_of_newton(cards, order, total):
    law = independent_law(cards, 0.6)
    deviances, pearsons, df = statistics_of(cards, order, law, total, 25)
    tables = np.random.default_rng(1).multinomial(total, law, size=25)
    graph = order_model(cards, order)
    zero_margins = 0
    for table, deviance, pearson in zip(tables, deviances, pearsons, strict=True):
        result = fit(graph, Observations.from_table(graph.domain, table.reshape(cards)))
        zero_margins += result.status == "infinite"
        exact = goodness_of_fit(result, None)
        assert exact.deviance - 1e-6 <= deviance <= exact.deviance + 5e-3 * math.sqrt(2 * df)
        if result.status == "converged":
            assert pearson == pytest.approx(exact.pearson, abs=0.02 * math.sqrt(2 * df))
    assert zero_margins < 25 and (order == 1 or zero_margins > 0 or total > 60)


def test_tables_come_in_the_same_order_and_within_the_budget():
    law, margins = independent_law((4, 4), 0.5), margins_of((4, 4), 1)
    few, more = (drawn_from(law, 30, margins, 9, num, 3) for num in (50, 120))
    np.testing.assert_allclose(few.deviance, more.deviance[:51], rtol=1e-12)
    assert few.deviance[0] == pytest.approx(0, abs=1e-9) and len(few) == 50
    other = drawn_from(law, 30, margins, 9, 50, 4)
    assert np.abs(few.deviance - other.deviance).max() > 1
    budget = 200 * bootstrap_cost(16, 2)
    assert MIN_TABLES <= len(drawn_from(law, 30, margins, 9, 10**5, 3, budget)) < 400


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


@pytest.mark.fixed_seed  # of the skewed laws, on which the size of the lax rule depends
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
        deviance, _, df = statistics_of(cards, order, law, total, num)
        sizes.append(int((chi2.sf(deviance, df) <= 0.05).sum()))
    assert sizes[0] <= binom.isf(FALSE_ALARM_RATE, num, 0.06)
    assert sizes[1] > binom.isf(FALSE_ALARM_RATE, num, 0.06)  # control: a rule eight times as lax


def test_chi_square_is_used_where_counts_are_large():
    test = goodness_of_fit(order_fit("ucb_admissions"))
    assert test.p_value_method == "chi-square" and test.num_tables == 0 and test.p_value_std_error == 0
    assert test.p_value == chi2.sf(test.deviance, 5)
    assert "raise the mean of G² by up to 0.022 standard deviations (limit 0.05)" in test.p_value_note


def hypergeometric(row, column, total, corner):
    return math.comb(row, corner) * math.comb(total - row, column - corner) / math.comb(total, column)


def test_the_exact_test_is_that_of_the_enumerated_tables_of_a_chain():
    # Given b, a and c are independent 2 x 2 tables with fixed margins: two hypergeometric laws.
    counts = np.array([[[4, 1], [0, 3]], [[1, 3], [5, 2]]])  # a, b, c
    data = of_table(counts)
    result = fit(InteractionHypergraph.from_formula(data.domain, "a*b + b*c"), data)
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


def test_bootstraps_are_of_pearson_s_statistic_and_only_where_they_are_asked_for():
    random = np.random.default_rng(2)
    result = order_fit(of_table(1 + random.multinomial(30, np.full(64, 1 / 64)).reshape(4, 4, 4)))
    test = goodness_of_fit(result)
    assert (test.p_value_method, test.p_value_statistic) == ("conditional", "deviance")
    asked = goodness_of_fit(result, "bootstrap", num_tables=199)
    assert (asked.p_value_method, asked.p_value_statistic) == ("bootstrap", "pearson")
    assert asked.p_value == asked.p_value_pearson
    with pytest.raises(InputError, match="no method 'exact', because the model is not decomposable"):
        goodness_of_fit(result, "exact")


def test_the_bootstrap_depends_on_its_seed_by_its_stated_error():
    result = order_fit("czech_autoworkers")
    first, second = (goodness_of_fit(result, "bootstrap", seed=seed) for seed in (0, 1))
    assert first.p_value_method == "bootstrap" and first.num_tables == 999
    assert first.p_value_std_error == pytest.approx(math.sqrt(first.p_value * (1 - first.p_value) / 999))
    assert first.p_value != second.p_value
    assert abs(first.p_value - second.p_value) < 5 * math.hypot(first.p_value_std_error, second.p_value_std_error)
    assert goodness_of_fit(result, "bootstrap", seed=1) == second


def test_structural_zeros_are_drawn_by_nobody():
    data = of_table(DIAGONAL)
    possible = order_fit(data, 1, structural_zeros=np.eye(3, dtype=bool))
    dense = goodness_of_fit(possible, "chi-square").p_value_pearson
    assert goodness_of_fit(possible, "bootstrap").p_value == pytest.approx(dense, abs=0.08)
    assert goodness_of_fit(order_fit(data, 1), "bootstrap").p_value == 0.001  # control: zeros taken as observed


def test_no_p_value_without_a_method_and_the_reason_is_given():
    weights = np.full((3, 3), 1.5) + np.eye(3)
    data = Observations.from_table(of_table(DIAGONAL).domain, weights=weights)
    weighted = order_fit(data, 1)
    for result, method, reason in (
        (order_fit(of_table(np.ones((3, 3)) + np.eye(3)), 1), None, "none was asked for"),
        (weighted, "auto", "and the counts are not whole numbers"),
        (order_fit(data, 1, penalty=L2(1.0)), "bootstrap", "the fit is penalised"),
        (order_fit(data, 1, objective="pseudo-likelihood"), "auto", "the fit is one of the pseudo-likelihood"),
        (order_fit(data), "auto", "no degrees of freedom are left"),
    ):
        test = goodness_of_fit(result, method)
        assert test.p_value_method is None and math.isnan(test.p_value) and math.isnan(test.p_value_pearson)
        assert reason in test.p_value_note
    with pytest.raises(InputError, match="p_value: no method 'bootstrap', because the counts are not whole numbers"):
        goodness_of_fit(weighted, "bootstrap")


def test_tests_that_would_take_long_are_not_begun(monkeypatch):
    result = order_fit(of_table(np.ones((3, 3)) + np.eye(3)), 1)
    monkeypatch.setattr("pyro_hoim.log_linear.goodness.p_values._BUDGET", 99.0)
    assert goodness_of_fit(result).p_value_method == "conditional"
    nested = likelihood_ratio_test(result, order_fit(result.data, 2), "auto")
    assert nested.p_value_method == "conditional"
    assert goodness_of_fit(result, "exact", num_tables=99).num_tables == 99
    pairs = order_fit(of_table(np.full((2, 2, 2), 3) + np.eye(2, dtype=int)))
    assert goodness_of_fit(pairs).p_value_method == "conditional"
    assert goodness_of_fit(pairs, "bootstrap", num_tables=99).num_tables == 99


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"p_value": "g2"},
            "p_value: expected 'auto', 'chi-square', 'exact', 'conditional', 'bootstrap' or None, received 'g2'",
        ),
        ({"num_tables": 98}, "num_tables: expected a whole number from 99 to 1000000, received 98"),
        ({"seed": -1}, "seed: expected a whole number from 0"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(InputError, match=message):
        goodness_of_fit(order_fit("hair_eye_color"), **options)


CYCLE = "a*b + b*c + c*d + d*a"


def nested(cards, small, big):
    domain = Domain.from_cardinalities(dict(zip("abcd", cards, strict=False)))
    return [InteractionHypergraph.from_formula(domain, formula) for formula in (small, big)]


def nested_p_values(cards, small, big, law, total, how, num, num_tables=99):
    """Of tables from a law of the small model: by the method, by chi-square, and by that of too few degrees of freedom.

    The last leaves out what the larger model sends to infinity.
    """
    graphs, random, found = nested(cards, small, big), np.random.default_rng(12), []
    for number in range(num):
        data = Observations.from_table(graphs[0].domain, random.multinomial(total, law).reshape(cards))
        fits = [fit(graph, data) for graph in graphs]
        test = likelihood_ratio_test(*fits, "auto" if how == "exact" else how, num_tables=num_tables, seed=number)
        finer = how == "exact" and test.p_value < 10 / (num_tables + 1)  # a second round of tables
        assert test.p_value_method == how and (test.num_tables > 50 * num_tables if finer else test.num_tables == 99)
        assert test.p_value_resolution == 1 / (test.num_tables + 1) <= test.p_value
        identified = fits[1].num_parameters_fitted - fits[0].num_parameters_fitted
        by_chi_square = likelihood_ratio_test(*fits, "chi-square").p_value
        found.append((test.p_value, by_chi_square, chi2.sf(test.statistic, identified)))
    return np.array(found).T


def test_the_rule_of_two_rounds_keeps_every_level():
    """Exactly: the observed table has any rank among all tables, and those of the first round are any of the others."""
    num, ranks, cases = 999, np.arange(1, 4001), []
    log_choose = lambda of, size: -betaln(of - size + 1.0, size + 1.0) - np.log(of + 1.0)  # noqa: E731
    by = lambda rank, size: PValue(p_value_note="", p_value=rank / (size + 1), p_value_method="exact", num_tables=size)  # noqa: E731
    for early in range(1, num + 2):
        first, later = by(early, num), [(0, 1 / (num + 1))]
        if early < 10:
            above = log_choose(ranks - 1, early - 1) + log_choose(100_000 - ranks, num + 1 - early)
            later = zip(ranks, np.exp(above - log_choose(99_999, num)) / 100_000, strict=True)
        for rank, chance in later:
            found = _in_two_rounds(first, lambda size, rank=rank: by(rank, size), lambda: None, num)
            cases.append((found.p_value, min(first.p_value, found.p_value), chance))
    *values, chance = np.array(cases).T
    assert chance.sum() == pytest.approx(1, abs=1e-9)

    def levels(of):
        at, where = np.unique(of, return_inverse=True)
        return at, np.cumsum(np.bincount(where, chance))

    at, rejected = levels(values[0])
    assert (rejected <= at + 1e-9).all()
    for level in (0.0001, 0.001, 0.01, 0.05):
        assert rejected[np.isclose(at, level)] > 0.9 * level
    at, rejected = levels(values[1])  # control: the smaller p-value of both rounds
    assert rejected[np.isclose(at, 0.001)] > 0.0013


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
@pytest.mark.parametrize("how", ["exact", "bootstrap"])
def test_likelihood_ratios_of_sparse_tables_keep_their_level_where_chi_square_does_not(how):
    cards, num = (2, 20, 3), 60
    law = independent_law(cards, 0.3)
    drawn, by_chi_square, control = nested_p_values(cards, "a + b + c", "a*b + b*c", law, 200, how, num)
    most = binom.isf(FALSE_ALARM_RATE, num, 0.05)
    limit = math.sqrt(math.log(2 / FALSE_ALARM_RATE) / (2 * num)) + 1 / 100
    assert (drawn <= 0.05).sum() <= most and distance_from_uniform(drawn) < limit
    assert (by_chi_square <= 0.05).sum() <= most
    assert (control <= 0.05).sum() > most and distance_from_uniform(control) > limit


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
def test_likelihood_ratios_of_cycles_keep_their_level_in_a_bootstrap():
    num = 60
    drawn, *_ = nested_p_values((2,) * 4, CYCLE, CYCLE + "+ a*c", np.full(16, 1 / 16), 100, "bootstrap", num)
    assert (drawn <= 0.05).sum() <= binom.isf(FALSE_ALARM_RATE, num, 0.05)
    power = independent_law((2,) * 4, 0.0).reshape((2,) * 4).copy()
    power[[0, 1], :, [0, 1]] *= 3
    control, *_ = nested_p_values(
        (2,) * 4, CYCLE, CYCLE + "+ a*c", (power / power.sum()).ravel(), 100, "bootstrap", num
    )
    assert (control <= 0.05).sum() > binom.isf(FALSE_ALARM_RATE, num, 0.05)


def test_likelihood_ratios_of_dense_tables_are_those_of_chi_square():
    data = load_table("ucb_admissions")
    pairs = InteractionHypergraph.from_order(data.domain, 2)
    for edge in pairs.edges:
        if len(edge) == 2:
            test = likelihood_ratio_test(fit(pairs.remove_edges([edge]), data), fit(pairs, data))
            assert test.p_value_method == "chi-square" and test.num_tables == test.p_value_resolution == 0
            assert test.p_value == pytest.approx(chi2.sf(test.statistic, test.df_adjusted), rel=1e-12)


def test_against_the_saturated_model_the_test_is_one_of_goodness_of_fit():
    data = of_table(1 + np.random.default_rng(5).poisson(1.0, (3, 4)))
    small, big = (order_fit(data, k) for k in (1, 2))
    test, quality = likelihood_ratio_test(small, big), goodness_of_fit(small)
    assert test.p_value_note == quality.p_value_note and test.p_value_method == quality.p_value_method == "exact"
    assert (test.p_value, test.p_value_std_error) == (quality.p_value, quality.p_value_std_error)
    assert test != likelihood_ratio_test(small, big, seed=1)


def test_the_exact_likelihood_ratio_is_that_of_the_enumerated_tables():
    # Given the margins of a, b and c, the table of a and b is hypergeometric whatever c does.
    counts = np.array([[[3, 4], [0, 1]], [[1, 1], [2, 4]]])
    small, big = nested((2, 2, 2), "a + b + c", "a*b + c")
    data = Observations.from_table(small.domain, counts)
    found = likelihood_ratio_test(fit(small, data), fit(big, data), "exact", num_tables=5000)
    pair = counts.sum(2)
    row, column, total = pair[0].sum(), pair[:, 0].sum(), pair.sum()
    expected = np.outer(pair.sum(1), pair.sum(0)) / total
    truth = 0.0
    for corner in range(max(0, row + column - total), min(row, column) + 1):
        table = np.array([[corner, row - corner], [column - corner, total - row - column + corner]])
        if 2 * xlogy(table, table / expected).sum() >= found.statistic - 1e-9:
            truth += hypergeometric(row, column, total, corner)
    assert abs(found.p_value - truth) < 5 * math.sqrt(truth * (1 - truth) / 5000) + 1e-3
    control = likelihood_ratio_test(fit(small, data), fit(big, data), "chi-square").p_value
    assert abs(control - truth) > 10 * math.sqrt(truth * (1 - truth) / 5000)


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
def test_likelihood_ratios_without_a_p_value_give_the_reason():
    small, big = nested((2,) * 4, CYCLE, CYCLE + "+ a*c")
    random = np.random.default_rng(3)
    forty = Observations.from_table(small.domain, 2 + random.multinomial(8, np.full(16, 1 / 16)).reshape((2,) * 4))
    few = [fit(graph, forty) for graph in (small, big)]
    margins = [fit(graph, forty.marginal_counts(graph.edges)) for graph in (small, big)]
    test = likelihood_ratio_test(*few, None)
    assert test.p_value_method is None and math.isnan(test.p_value) and math.isnan(test.p_value_resolution)
    assert test.p_value_note == "none was asked for"
    corrected = likelihood_ratio_test(*few)
    assert corrected.p_value_method == "bartlett" and 0 < corrected.p_value < 1
    assert likelihood_ratio_test(*margins).p_value == pytest.approx(corrected.p_value, rel=1e-6)
    with pytest.raises(InputError, match="no method 'exact', because the model is not decomposable"):
        likelihood_ratio_test(*few, "exact")


def test_tables_of_huge_counts_are_drawn_as_tables_and_never_row_by_row():
    """With 10^12 rows and some rare cells: the bootstrap is that of the same rare cells, an exact test is refused."""
    domain = Domain.from_cardinalities({"a": 2, "b": 3})
    data = Observations.from_table(domain, [[10**12, 4, 1], [2 * 10**12, 9, 3]])
    result = fit(InteractionHypergraph.from_order(domain, 1), data)
    tracemalloc.start()
    assert goodness_of_fit(result).p_value_method in ("chi-square", "conditional")
    found = goodness_of_fit(result, "bootstrap", num_tables=999)
    with raises("over-budget", "p_value"):
        goodness_of_fit(result, "exact")
    assert tracemalloc.get_traced_memory()[1] < 30e6
    tracemalloc.stop()
    same = Observations.from_table(domain, [[10**6, 4, 1], [2 * 10**6, 9, 3]])
    other = goodness_of_fit(fit(result.hypergraph, same), "bootstrap", num_tables=999)
    assert found.deviance == pytest.approx(other.deviance, rel=1e-3)
    assert abs(found.p_value - other.p_value) < 5 * math.hypot(found.p_value_std_error, other.p_value_std_error)
