"""P-values of sparse tables: against enumeration, published values and simulated sizes; means of likelihood ratios."""

import itertools
import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from fitted import DIAGONAL, of_table, order_fit
from scipy.special import betaln, gammaln, xlogy
from scipy.stats import binom, chi2, kstest

from pyro_hoim import Domain, InputError, InteractionHypergraph, NonexistentEstimateWarning, Observations, load_table
from pyro_hoim.log_linear import L2, fit, goodness_of_fit, likelihood_ratio_test, term_tests
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.log_linear.goodness import fibre as module
from pyro_hoim.log_linear.goodness.bootstrap import (
    MIN_TABLES,
    PValue,
    bootstrap_cost,
    drawn_statistics,
    multinomial_tables,
)
from pyro_hoim.log_linear.goodness.fibre import Fibre, conditional_p_value, listed_tables
from pyro_hoim.log_linear.goodness.p_values import (
    MAX_MEAN_EXCESS,
    _in_two_rounds,
    mean_shift,
    mean_shifts,
    saturated_shift,
)
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
    num = 100
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
    data = load_table("ucb_admissions")
    pairs = InteractionHypergraph.from_order(data.domain, 2)
    for edge in pairs.edges:
        if len(edge) == 2:
            test = likelihood_ratio_test(fit(pairs.remove_edges([edge]), data), fit(pairs, data))
            assert test.p_value_method == "chi-square" and test.num_tables == test.p_value_resolution == 0
            assert test.p_value == pytest.approx(chi2.sf(test.statistic, test.df_adjusted), rel=1e-12)


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
        # A second round of tables comes where the p-value of the first is below a tenth.
        finer, tenth = test.num_tables > 50 * num_tables, 10 / (num_tables + 1)
        assert test.p_value_method == how and (finer or test.num_tables == 99)
        assert how == "exact" or not finer
        assert how != "exact" or (test.p_value < 2 * tenth if finer else test.p_value >= tenth)
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


# Conditional tests


pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")

# Fisher (1935), The design of experiments, chapter 2; births and deaths by month of 82 descendants of Queen Victoria,
# Andrews and Herzberg (1985), page 429, as in Diaconis and Sturmfels (1998), table 1.
# Convictions of twins of criminals, Fisher (1962), and rabbits injected with penicillin, Mantel (1963), with p-values
# of the pages of fisher.test and mantelhaen.test of R 4.
TEA = [[3, 1], [1, 3]]
TWINS = [[2, 15], [10, 3]]
RABBITS = [[[0, 3, 6, 5, 2], [6, 3, 0, 1, 0]], [[0, 0, 2, 6, 5], [5, 6, 4, 0, 0]]]  # delay, cured, penicillin
MONTHS = [
    [1, 0, 0, 0, 1, 2, 0, 0, 1, 0, 1, 0],
    [1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 2],
    [1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 1],
    [3, 0, 2, 0, 0, 0, 1, 0, 1, 3, 1, 1],
    [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0],
    [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    [2, 0, 2, 1, 0, 0, 0, 0, 1, 1, 1, 2],
    [0, 0, 0, 3, 0, 0, 1, 0, 0, 1, 0, 2],
    [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0],
    [1, 1, 0, 2, 0, 0, 1, 0, 0, 1, 1, 0],
    [0, 1, 1, 1, 2, 0, 0, 2, 0, 1, 1, 0],
    [0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
]
SHAPES = {  # of small fibres: cardinalities, model, rows
    "independence": ((3, 3), "a + b", 9),
    "one level fitted": ((3, 2), "a", 5),
    "chain": ((2, 2, 3), "a*b + b*c", 12),
    "pairs": ((2, 3, 3), "a*b + b*c + a*c", 40),
    "pairs of three": ((3, 3, 3), "a*b + b*c + a*c", 20),
    "a pair apart": ((2, 2, 3), "a*b + c", 7),
    "cycle": ((2, 2, 2, 2), "a*b + b*c + c*d + d*a", 10),
    "pairs of four": ((2, 2, 2, 2), "a*b + a*c + a*d + b*c + b*d + c*d", 22),
    "triples": ((2, 2, 3, 2), "a*b*c + a*b*d + a*c*d + b*c*d", 150),
    "glued": ((2, 2, 2, 2), "a*b + b*c + a*c + c*d", 14),
}


def model(cards, formula):
    return InteractionHypergraph.from_formula(
        Domain.from_cardinalities(dict(zip("abcde", cards, strict=False))), formula
    )


def fitted_margins(graph):
    cards, codes = graph.domain.cardinalities, np.indices(graph.domain.cardinalities).reshape(len(graph.domain), -1)
    where = [graph.domain.indices(edge) for edge in graph.maximal_edges]
    return [np.ravel_multi_index(tuple(codes[list(i)]), [cards[k] for k in i]) for i in where]


def enumerated(graph, counts):
    """All tables of a fibre: those margins that are not fitted take any values, and fix the table (Moebius inversion).

    A product of differences from the first level raises one such margin at one combination of other levels and leaves
    those alone that no smaller product raises.
    """
    cards, facets = graph.domain.cardinalities, [set(graph.domain.indices(edge)) for edge in graph.maximal_edges]
    moves, ranges = [], []
    for size in range(1, len(cards) + 1):
        for which in itertools.combinations(range(len(cards)), size):
            if any(set(which) <= facet for facet in facets):
                continue
            bounds = [
                counts.sum(tuple(set(range(len(cards))) - (facet & set(which))), keepdims=True) for facet in facets
            ]
            margin = counts.sum(tuple(set(range(len(cards))) - set(which)), keepdims=True)
            highest = np.broadcast_to(np.minimum.reduce(np.broadcast_arrays(*bounds)), counts.shape)
            for levels in itertools.product(*(range(1, cards[i]) for i in which)):
                at = tuple(levels[which.index(i)] if i in which else 0 for i in range(len(cards)))
                now = np.broadcast_to(margin, counts.shape)[at]
                move = np.ones(())
                for i, card in enumerate(cards):
                    line = np.zeros(card)
                    line[0] = -1.0 if i in which else 1.0
                    line[at[i]] = 1.0
                    move = np.multiply.outer(move, line)
                moves.append(move.ravel())
                ranges.append(np.arange(-now, highest[at] - now + 1))
    assert math.prod(map(len, ranges)) < 3e6
    tables = counts.ravel()[None]
    for number, (move, steps) in enumerate(zip(moves, ranges, strict=True)):
        tables = (tables[:, None] + steps[None, :, None] * move).reshape(-1, counts.size)
        fixed = np.all(
            [np.array(later)[None] == 0 for later in moves[number + 1 :]] or [np.ones((1, counts.size), bool)], 0
        )
        tables = tables[(tables[:, fixed[0]] >= 0).all(1)]
    weights = -gammaln(tables + 1).sum(1)
    weights = np.exp(weights - weights.max())
    return tables, weights / weights.sum()


def small_fibre(name, number):
    """A table with a fibre of 2 to 3,000 tables."""
    cards, formula, total = SHAPES[name]
    graph, random = model(cards, formula), np.random.default_rng([number, *map(ord, name)])
    while True:
        law = random.dirichlet(np.full(math.prod(cards), 2.0))
        counts = random.multinomial(total, law).reshape(cards)
        listed = listed_tables(counts.ravel(), np.ones(counts.size, bool), fitted_margins(graph))
        if listed is not None and 2 <= len(listed[0]) <= 3000:
            return graph, counts


def expected_of(graph, counts):
    """Expected counts, 0 in cells that no table of the fibre fills."""
    result = fit(graph, Observations.from_table(graph.domain, counts))
    return result.num_rows * result.probs.numpy()


def truth_of(graph, counts):
    """P-value of G2 by full enumeration."""
    tables, probs = enumerated(graph, counts)
    statistics, observed = xlogy(tables, tables).sum(1), xlogy(counts, counts).sum()
    return float(probs[statistics >= observed - 1e-9 * (1 + observed)].sum()), len(tables)


def by_chains(monkeypatch, graph, counts, num_tables, seed=0):
    with monkeypatch.context() as patched:
        patched.setattr(module, "listed_tables", lambda *_: None)
        means = expected_of(graph, counts)
        return conditional_p_value(graph, None, counts.ravel(), means, 5, num_tables=num_tables, seed=seed)[0]


@pytest.mark.parametrize("name", SHAPES)
def test_listed_and_drawn_tables_are_those_of_another_enumeration(name, monkeypatch):
    graph, counts = small_fibre(name, 1)
    truth, size = truth_of(graph, counts)
    result = fit(graph, Observations.from_table(graph.domain, counts))
    listed = goodness_of_fit(result, "conditional")
    assert f"over all {size:,} tables" in listed.p_value_note and listed.p_value_std_error == 0
    assert listed.p_value == pytest.approx(truth, rel=1e-9)
    drawn = by_chains(monkeypatch, graph, counts, 1500)
    error = math.sqrt(max(truth * (1 - truth), 0.0) / 1500)  # a truth of one may be rounded up
    assert abs(drawn.p_value - truth) < 5 * error + 1 / 1501
    assert drawn.p_value_std_error == pytest.approx(math.sqrt(drawn.p_value * (1 - drawn.p_value) / 1500))
    assert by_chains(monkeypatch, graph, counts, 99, 1) == by_chains(monkeypatch, graph, counts, 99, 1)


@pytest.mark.parametrize("name", ["chain", "pairs", "pairs of four", "triples"])  # two to four blocks, circuits
def test_moves_found_among_the_rows_keep_the_law_of_the_fibre(name):
    graph, counts = small_fibre(name, 1)
    tables, probs = enumerated(graph, counts)
    numbers = {table.tobytes(): number for number, table in enumerate(tables.astype(np.int64))}
    fibre = Fibre(graph, np.ones(counts.size, dtype=bool))
    drawn = fibre.chains(counts.ravel(), 1500, 2, is_sparse=True).draw(1000)
    found = np.bincount([numbers[table.tobytes()] for table in drawn], minlength=len(tables))
    for law, is_true in ((probs, True), (np.full(len(probs), 1 / len(probs)), False)):  # the latter is a control
        means = 1000 * law
        often, rest = means >= 5, means < 5
        statistic = np.square(found[often] - means[often]) @ (1 / means[often])
        statistic += (found[rest].sum() - means[rest].sum()) ** 2 / max(means[rest].sum(), 1)
        assert (chi2.sf(statistic, often.sum()) > FALSE_ALARM_RATE) == is_true


def test_published_p_values():
    tea = goodness_of_fit(order_fit(of_table(TEA), 1), "conditional")
    assert (tea.p_value, tea.p_value_pearson) == (pytest.approx(34 / 70), pytest.approx(34 / 70))  # 0.486, two-sided
    twins = goodness_of_fit(order_fit(of_table(TWINS), 1), "conditional")
    assert (twins.p_value, twins.p_value_pearson) == (pytest.approx(0.0005367241), pytest.approx(0.0005367241))
    rabbits, pairs = of_table(RABBITS), InteractionHypergraph.from_formula
    small, big = (fit(pairs(rabbits.domain, text), rabbits) for text in ("a*c + b*c", "a*b + a*c + b*c"))
    found = likelihood_ratio_test(small, big, "conditional")
    assert found.p_value == pytest.approx(0.0399449, rel=1e-6)
    months = goodness_of_fit(order_fit(of_table(MONTHS), 1), "conditional", num_tables=4999)
    assert months.pearson == pytest.approx(115.56, abs=0.005) and months.df == 121
    error = 5 * math.sqrt(0.32 * 0.68 / 4999)
    assert abs(1 - months.p_value_pearson - 0.3208) < error  # theirs is the share of smaller statistics
    assert abs(chi2.cdf(months.pearson, 121) - 0.3208) > error  # control


def randomised(how, cards, formula, total, num, interaction=0.0):
    """P-values of tables from a law of the model, with ties broken at random, or by chi-square."""
    graph, random, found = model(cards, formula), np.random.default_rng(5), []
    logits = sum(
        random.normal(0, 0.4, [card if i in graph.domain.indices(edge) else 1 for i, card in enumerate(cards)])
        for edge in graph.maximal_edges
    )
    logits = logits + interaction * random.normal(size=cards)
    law = np.exp(logits).ravel() / np.exp(logits).sum()
    for number in range(num):
        counts = random.multinomial(total, law)
        result = fit(graph, Observations.from_table(graph.domain, counts.reshape(cards)))
        quality = goodness_of_fit(result, "chi-square")
        if how == "chi-square":
            found.append(quality.p_value)
            continue
        means = result.num_rows * result.probs.numpy()
        test, larger = conditional_p_value(graph, None, counts, means, quality.df, num_tables=99, seed=number)
        found.append(larger + random.random() * (test.p_value - larger))
    return np.array(found)


def test_p_values_are_uniform_under_the_model_and_those_of_chi_square_are_not():
    case = ((3, 4, 4), "a*b + b*c + a*c", 90)
    assert kstest(randomised("conditional", *case, 40), "uniform").pvalue > FALSE_ALARM_RATE
    assert kstest(randomised("conditional", *case, 40, interaction=1.0), "uniform").pvalue < FALSE_ALARM_RATE
    assert kstest(randomised("chi-square", *case, 120), "uniform").pvalue < FALSE_ALARM_RATE


def test_structural_zeros_stay_zero_and_are_drawn_by_nobody():
    data = of_table(DIAGONAL)
    possible = order_fit(data, 1, structural_zeros=np.eye(3, dtype=bool))
    found = goodness_of_fit(possible, "conditional")
    counts, step = np.asarray(DIAGONAL), np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0]])  # the only move
    tables = np.array([counts + k * step for k in range(-counts.max(), counts.max() + 1)])
    tables = tables[(tables >= 0).all((1, 2))]
    weights = np.exp(-gammaln(tables + 1).sum((1, 2)) + gammaln(counts + 1).sum())
    large = xlogy(tables, tables).sum((1, 2)) >= xlogy(counts, counts).sum() - 1e-9
    assert found.p_value == pytest.approx(weights[large].sum() / weights.sum(), rel=1e-9)
    zeros = ~np.eye(4, dtype=bool).ravel()
    start = np.where(zeros, 3, 0)
    drawn = Fibre(order_fit(of_table(start.reshape(4, 4) + np.eye(4, dtype=int)), 1).hypergraph, zeros)
    tables = drawn.chains(start, 500, 1).draw(50).reshape(50, 4, 4)
    assert (
        not drawn.is_connected and tables[:, np.eye(4, dtype=bool)].max() == 0 and len(np.unique(tables, axis=0)) > 40
    )
    for axis in (1, 2):
        assert (tables.sum(axis) == 9).all()
    dense = goodness_of_fit(possible, "chi-square").p_value_pearson
    assert goodness_of_fit(possible, "bootstrap").p_value == pytest.approx(dense, abs=0.08)
    assert goodness_of_fit(order_fit(data, 1), "bootstrap").p_value == 0.001  # control: zeros taken as observed


def test_every_table_of_whole_counts_has_a_p_value(monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.goodness.p_values._BUDGET", 1e7)
    random = np.random.default_rng(3)
    for cards, order, total in (((3, 4, 5), 2, 200), ((20,) * 3, 2, 500), ((7,) * 4, 2, 150), ((2, 3, 3, 3), 3, 400)):
        counts = random.multinomial(total, np.full(math.prod(cards), 1 / math.prod(cards))).reshape(cards)
        test = goodness_of_fit(order_fit(of_table(counts), order))
        assert test.p_value_method == "conditional" and 0.001 <= test.p_value <= 1 and test.num_tables >= 99
        assert "found no other table" not in test.p_value_note and test.p_value < 1


def test_nested_models_are_compared_among_the_tables_of_the_smaller():
    counts = np.array([[[2, 1], [0, 3]], [[1, 0], [4, 1]]])
    small, big = model((2, 2, 2), "a*b + c"), model((2, 2, 2), "a*b + b*c")
    data = Observations.from_table(small.domain, counts)
    found = likelihood_ratio_test(fit(small, data), fit(big, data), "conditional")
    tables, probs = enumerated(small, counts)
    pairs = tables.reshape(-1, 2, 2, 2).sum(1)  # given its margins only the table of b and c moves the statistic
    statistics, observed = xlogy(pairs, pairs).sum((1, 2)), xlogy(counts.sum(0), counts.sum(0)).sum()
    assert found.p_value_method == "conditional"
    assert found.p_value == pytest.approx(probs[statistics >= observed - 1e-9].sum(), rel=1e-9)


# The mean of likelihood ratios of few rows


def graphs(cards, tested=("a", "b")):
    """All pairs, and all but one."""
    whole = InteractionHypergraph.from_order(Domain.from_cardinalities(dict(zip("abcdefgh", cards, strict=False))), 2)
    return whole.remove_edges([tested]), whole


def drawn(graph, rows, seed, scale=0.5):
    """A table of the model without the pair that is tested."""
    random = np.random.default_rng(seed)
    logs = design_matrix(graph) @ random.normal(0, scale, graph.num_parameters)
    probs = np.exp(logs - logs.max())
    counts = random.multinomial(rows, probs / probs.sum())
    return Observations.from_table(graph.domain, counts.reshape(graph.domain.cardinalities))


@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (2, 7)])
def test_of_two_way_tables_the_shift_is_that_of_williams(shape):
    random = np.random.default_rng(0)
    rows, columns = (random.dirichlet(np.ones(k)) * 40 for k in shape)
    small = np.array([[*np.eye(shape[0])[i], *np.eye(shape[1])[j]] for i, j in itertools.product(*map(range, shape))])
    found = mean_shift(small, np.eye(len(small)), np.outer(rows, columns).ravel() / 40)
    assert found == pytest.approx(((40 / rows).sum() - 1) * ((40 / columns).sum() - 1) / 240, rel=1e-9)


def test_the_shift_is_the_difference_of_the_sums_over_pairs_of_cells():
    """Lawley's sums, written out for each model; nested models of three variables, with a column too many."""
    small, large = (np.column_stack([np.ones(24), design_matrix(graph)]) for graph in graphs((3, 4, 2)))
    means = np.random.default_rng(1).uniform(1, 9, 24)

    def whole(design):
        z = design @ np.linalg.solve(design.T @ (means[:, None] * design), design.T)
        own = means * np.diag(z)
        return (3 * own @ z @ own + 2 * means @ z**3 @ means - 3 * own @ np.diag(z)) / 12

    found = mean_shift(small, np.column_stack([large, large[:, :2].sum(1)]), means)
    assert found == pytest.approx(whole(large) - whole(small), rel=1e-9)
    assert mean_shift(small, small, means) == pytest.approx(0, abs=1e-12)
    for part in (small, small[:, :3]):  # summed over cells, and over columns
        assert saturated_shift(part, means) == pytest.approx(mean_shift(part, np.eye(24), means), rel=1e-9)
    without = np.eye(large.shape[1])[[i for i in range(large.shape[1]) if not (small == large[:, [i]]).all(0).any()]]
    (by_contrasts,) = mean_shifts(large, [without], means)
    assert by_contrasts == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize(("rows", "method"), [(2000, "chi-square"), (70, "bartlett")])
def test_likelihood_ratios_keep_their_level_by_either_method(rows, method):
    """Tables without one pair of 3 x 3 x 2 x 2; the control has it."""
    graphs_of, num, rejected = graphs((3, 3, 2, 2)), 120, [0, 0]
    for planted, seed in [*itertools.product((False,), range(num)), *itertools.product((True,), range(num // 3))]:
        data = drawn(graphs_of[planted], rows, seed, 0.8 if planted else 0.3)
        how = "chi-square" if planted else "auto"  # of what is plain, drawn tables would say no more
        test = likelihood_ratio_test(*(fit(graph, data) for graph in graphs_of), how)
        if not planted:
            assert test.p_value_method == method and test.num_tables == 0
        rejected[planted] += test.p_value <= 0.05
    least, most = binom.ppf(FALSE_ALARM_RATE, num, 0.05), binom.isf(FALSE_ALARM_RATE, num, 0.05)
    assert least <= rejected[False] <= most < rejected[True]


@pytest.mark.parametrize(("cards", "rows"), [((2,) * 4, 300), ((2,) * 8, 300), ((2,) * 8, 3000), ((3, 4, 2, 5), 1500)])
def test_every_pair_of_ordinary_tables_has_a_p_value_by_chi_square(cards, rows):
    _, whole = graphs(cards)
    result = fit(whole, drawn(whole, rows, 5, 0.25))
    terms = [edge for edge in whole.edges if len(edge) == 2][:6]
    ratios, walds = (term_tests(result, terms=terms, method=how) for how in ("likelihood-ratio", "wald"))
    assert set(walds["p_value_method"]) == {"chi-square"}
    assert set(ratios["p_value_method"]) <= {"chi-square", "bartlett"}
    if max(cards) == 2:
        plain = chi2.sf(ratios["statistic"], ratios["df"].astype(float))
        assert ratios["p_value_method"].eq("chi-square").all() and np.allclose(ratios["p_value"], plain, rtol=1e-9)


def test_strong_interactions_have_no_floor_beneath_their_p_values():
    table = np.array([[[40, 3], [2, 30]], [[35, 2], [4, 28]]])
    data = of_table(table)
    strong = term_tests(fit(InteractionHypergraph.from_order(data.domain, 2), data)).iloc[-1]
    assert strong["statistic"] > 60 and strong["p_value"] < 1e-12
    assert strong["p_value_method"] in ("chi-square", "bartlett")


TAILS = {  # tables, and by which method they have a p-value
    "listed": ([[10, 0], [0, 10]], "conditional"),
    "a tail": ([[30, 9, 5, 2], [12, 20, 18, 6], [3, 8, 24, 45]], "chi-square"),
    "a corrected tail": ([[30, 2, 1, 1], [6, 12, 9, 2], [2, 3, 9, 18], [2, 2, 4, 9]], "bartlett"),
    "more draws": ([[65, 15, 33, 9], [9, 12, 28, 6], [2, 2, 0, 1]], "exact"),
    "drawn alone": ([[9, 0, 0, 1, 0], [0, 8, 1, 0, 0], [0, 0, 7, 0, 1], [1, 0, 0, 9, 0]], "exact"),
}


@pytest.mark.parametrize("name", TAILS)
def test_against_the_saturated_model_there_is_no_floor_where_finer_p_values_can_be_had(name, monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.goodness.p_values._BUDGET", 2e8 if name == "more draws" else 2e7)
    table, method = TAILS[name]
    data = of_table(table)
    small, big = (fit(InteractionHypergraph.from_order(data.domain, k), data) for k in (1, 2))
    found, other = goodness_of_fit(small), likelihood_ratio_test(small, big)
    assert found.p_value_method == other.p_value_method == method
    assert found.p_value == pytest.approx(other.p_value, rel=1e-6)
    drawn = goodness_of_fit(small, "exact")
    assert drawn.p_value == 1 / (drawn.num_tables + 1) == 0.001  # control: no drawn table has as large a statistic
    plain = chi2.sf(found.deviance, found.df_adjusted)
    if name == "listed":
        weights = np.array([1 / math.prod(math.factorial(c) for c in (a, 10 - a, 10 - a, a)) for a in range(11)])
        assert found.p_value == pytest.approx(2 * weights[0] / weights.sum(), rel=1e-9)
    elif name == "more draws":  # 200,000 tables of another seed: 0.000075, with a standard error of 0.00002
        assert found.num_tables > 20_000 and abs(found.p_value - 0.000075) < 4 * math.hypot(
            2e-5, found.p_value_std_error
        )
    elif name == "drawn alone":
        assert found.num_tables > 2000 and found.p_value == 1 / (found.num_tables + 1) > plain
        assert "p is smaller than can be told from tables drawn" in found.p_value_note
    else:
        assert plain <= found.p_value < 10 * plain < 1e-5


def test_one_empty_combination_leaves_the_tests_of_the_other_pairs():
    _, whole = graphs((2, 3, 2, 2))
    counts = drawn(whole, 800, 3, 0.2).table().numpy().copy()
    counts[1, 2] = 0  # no row has both
    data = Observations.from_table(whole.domain, counts)
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(whole, data)
    for how in ("likelihood-ratio", "wald"):
        frame = term_tests(result, method=how).set_index("term")
        others = frame.drop(index="a:b")
        assert others["p_value"].notna().all(), how
    assert math.isnan(frame.loc["a:b", "p_value"]) and "infinite" in frame.loc["a:b", "note"]


def test_a_pair_has_one_p_value_in_every_table():
    """Wald's test of a pair of two levels each is that of its coefficient, whatever the counts are."""
    _, whole = graphs((2,) * 5)
    for rows in (30, 1000):
        result = fit(whole, drawn(whole, rows, 2, 0.2))
        summary: pd.DataFrame = result.summary().set_index("term")
        walds = term_tests(result, method="wald").set_index("term")
        np.testing.assert_allclose(walds["p_value"], summary.loc[walds.index, "p_value"].astype(float), rtol=1e-6)
        rough = walds.index[walds["note"].str.startswith("rough")].tolist()
        told = f"p-values are rough, because the expected counts are small: {', '.join(rough)}"
        assert (told in summary.attrs["notes"]) == bool(rough) == (rows == 30)
