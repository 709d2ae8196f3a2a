"""Goodness of fit and tests of every interaction against published numbers, statsmodels and simulated rates."""

import dataclasses
import itertools
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from fitted import DIAGONAL, of_table, order_fit
from scipy.stats import binom, chi2, hypergeom
from statsmodels.stats.multitest import multipletests

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.datasets import load_table, tables
from pyro_hoim.errors import InputError, IntractableError, MissingDataError, NonexistentEstimateWarning
from pyro_hoim.log_linear import (
    L2,
    Enumeration,
    LogLinearEnergy,
    VariableElimination,
    adjust_p_values,
    cell_table,
    coefficient_table,
    fit,
    fit_incomplete,
    goodness_of_fit,
    likelihood_ratio_test,
    parametrization,
    row_log_likelihood,
    term_tests,
)
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "log_linear_fits.json").read_text())["entries"]
NAMES = [entry["table"] + " " + entry["formula"] for entry in GOLDEN]


def quiet_fit(hypergraph, data, **options):
    with warnings.catch_warnings(action="ignore", category=NonexistentEstimateWarning):
        return fit(hypergraph, data, **options)


def model_of(entry):
    data = load_table(entry["table"])
    return InteractionHypergraph.from_formula(data.domain, entry["formula"]), data


def half_unit(printed):
    return 0.5 * 10.0 ** -len(printed.partition(".")[2]) * (1 + 1e-9)


@pytest.mark.parametrize("entry", GOLDEN, ids=NAMES)
def test_published_deviances_and_others_of_one_interaction_fewer(entry):
    hypergraph, data = model_of(entry)
    quality = goodness_of_fit(quiet_fit(hypergraph, data), "chi-square")  # no p-value is read
    for name in ("deviance", "pearson"):
        if name in entry:
            assert abs(getattr(quality, name) - float(entry[name])) <= half_unit(entry[name])
    assert (quality.df, quality.df_adjusted) == (entry["df"], entry["df_adjusted"])
    assert quality.num_cells_zero == entry.get("num_cells_zero", 0)
    smaller = hypergraph.remove_edges([hypergraph.maximal_edges[-1]])
    quality = goodness_of_fit(quiet_fit(smaller, data), "chi-square")  # no p-value is read
    assert abs(quality.deviance - float(entry["deviance"])) > 100 * half_unit(entry["deviance"])
    assert quality.df > entry["df"]


def test_titanic_estimate_is_infinite_and_says_so():
    data = load_table("titanic")
    with pytest.warns(NonexistentEstimateWarning, match="Class=Crew, Age=Child"):
        result = order_fit(data)
    assert result.status == "infinite"
    assert result.existence is not None
    assert [str(c) for c in result.existence.offending] == ["Class=Crew, Age=Child"]
    quality = goodness_of_fit(result, "chi-square")  # no p-value is read
    assert quality.num_parameters_fitted == quality.num_parameters - 1


def corner_design(hypergraph):
    to_free = parametrization(hypergraph).matrix("corner", "free").numpy()
    design = design_matrix(hypergraph) @ to_free
    return np.column_stack([np.ones(len(design)), design])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", [t.name for t in tables()])
def test_equals_the_poisson_regression_of_statsmodels(name, order):
    data = load_table(name)
    hypergraph = InteractionHypergraph.from_order(data.domain, order)
    counts = data.table().numpy().ravel()
    peer = sm.GLM(counts, corner_design(hypergraph), family=sm.families.Poisson()).fit(tol=1e-13, maxiter=200)
    result = quiet_fit(hypergraph, data)
    quality = goodness_of_fit(result, "chi-square")  # no p-value is read
    assert abs(quality.deviance - peer.deviance) < 1e-6
    assert abs(quality.pearson - peer.pearson_chi2) < 1e-4
    if result.status == "converged":
        frame = coefficient_table(result)
        np.testing.assert_allclose(frame["estimate"], peer.params[1:], atol=1e-6)
        np.testing.assert_allclose(frame["std_error"], peer.bse[1:], atol=1e-6)
        cells = cell_table(result)
        np.testing.assert_allclose(cells["expected"], peer.mu, atol=1e-5)
        influence = peer.get_influence(observed=False)
        np.testing.assert_allclose(cells["adjusted_residual"], influence.resid_studentized, atol=1e-5)


def test_control_another_coding_has_other_coefficients():
    result = order_fit("ucb_admissions")
    corner, free = (coefficient_table(result, coding=c)["estimate"] for c in ("corner", "free"))
    assert np.abs(corner - free).max() > 0.1


def test_information_criteria_and_likelihood_ratios():
    data = load_table("czech_autoworkers")
    result = order_fit(data)
    quality = goodness_of_fit(result, "chi-square")
    assert quality.aic == pytest.approx(-2 * quality.log_likelihood + 2 * 21, rel=1e-14)
    assert quality.bic == pytest.approx(-2 * quality.log_likelihood + math.log(1841) * 21, rel=1e-14)
    assert quality.log_likelihood == pytest.approx(float(data.table().ravel() @ result.probs.log()), rel=1e-12)
    small, big = (order_fit("czech_autoworkers", k) for k in (1, 2))
    test = likelihood_ratio_test(small, big)
    deviances = [goodness_of_fit(result, "chi-square").deviance for result in (small, big)]
    assert test.statistic == pytest.approx(deviances[0] - deviances[1], abs=1e-9)
    assert (test.df, test.df_adjusted) == (15, 15)
    assert test.p_value < 1e-100


def test_likelihood_ratio_refuses_what_is_not_nested_or_has_other_structural_zeros():
    data = load_table("czech_autoworkers")
    formulas = ". + smoke*mental", ". + phys*systol + mental*phys"
    one, two = (fit(InteractionHypergraph.from_formula(data.domain, formula), data) for formula in formulas)
    double = Observations.from_table(data.domain, data.table() * 2)
    for big, message in (
        (two, "smoke:mental is in small alone"),
        (one, "same model twice"),
        (order_fit(data, penalty=L2(1.0)), "without penalty"),
        (order_fit(double), "same observations"),
    ):
        with pytest.raises(InputError, match=message):
            likelihood_ratio_test(one, big)
    data, mask = of_table(np.array([[0, 5, 9], [7, 6, 4], [6, 8, 3]])), np.zeros((3, 3), dtype=bool)
    mask[0, 0] = True
    big = order_fit(data, 2, structural_zeros=mask)
    with pytest.raises(InputError, match="same structural zeros"):
        likelihood_ratio_test(order_fit(data, 1), big)
    assert likelihood_ratio_test(order_fit(data, 1, structural_zeros=mask), big).df == 3


def test_saturated_model_fits_exactly_and_has_no_p_value():
    quality = goodness_of_fit(order_fit(of_table([[3, 4, 5], [6, 7, 8]])))
    assert quality.deviance == pytest.approx(0, abs=1e-9)
    assert quality.df == quality.df_adjusted == 0
    assert math.isnan(quality.p_value)


@pytest.mark.parametrize("zero", [None, (0, 1)])
def test_degrees_of_freedom_count_possible_cells(zero):
    # The saturated model of a 3 x 3 table with an impossible row has 6 cells and no degree of freedom, sampled or not.
    counts = np.array([[4, 5, 9], [7, 3, 4], [0, 0, 0]])
    if zero is not None:
        counts[zero] = 0
    mask = np.zeros((3, 3), dtype=bool)
    mask[2] = True
    data = of_table(counts)
    result = quiet_fit(InteractionHypergraph.saturated(data.domain), data, structural_zeros=mask)
    quality = goodness_of_fit(result)
    assert (quality.num_cells, quality.num_cells_zero) == (6, 0 if zero is None else 1)
    assert (quality.df, quality.df_adjusted) == (0, 0)
    main = quiet_fit(InteractionHypergraph.from_order(data.domain, 1), data, structural_zeros=mask)
    assert goodness_of_fit(main).df == (2 - 1) * (3 - 1)
    test = likelihood_ratio_test(main, result)
    assert (test.df, test.df_adjusted) == (2, goodness_of_fit(main).df_adjusted) == (2, 2)  # of the same statistic
    assert test.statistic == pytest.approx(goodness_of_fit(main).deviance, abs=1e-8)


def test_statistics_alone_have_likelihood_ratios_and_no_goodness_of_fit():
    data = load_table("hair_eye_color")
    one, two = (InteractionHypergraph.from_order(data.domain, k) for k in (1, 2))
    by_rows = [fit(graph, data) for graph in (one, two)]
    by_counts = [fit(graph, data.marginal_counts(graph.edges)) for graph in (one, two)]
    expected = likelihood_ratio_test(*by_rows).statistic
    for pair in (by_counts, (by_rows[0], by_counts[1]), (by_counts[0], by_rows[1])):
        assert likelihood_ratio_test(*pair).statistic == pytest.approx(expected, rel=1e-9)
    moved = data.table()
    moved[0, 0, 0] += 1
    moved[1, 0, 0] -= 1
    other = Observations.from_table(data.domain, moved)
    for changed in (other, Observations.from_table(data.domain, 2 * data.table())):
        with pytest.raises(InputError, match="same observations"):
            likelihood_ratio_test(by_counts[0], fit(two, changed.marginal_counts(two.edges)))
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    result = fit(hypergraph, data.marginal_counts(hypergraph.edges))
    with pytest.raises(InputError, match="sufficient statistics"):
        goodness_of_fit(result)
    assert result.log_likelihood == pytest.approx(fit(hypergraph, data).log_likelihood, rel=1e-12)


def incomplete_fit():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    codes = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [0, -1], [1, -1], [-1, 0], [-1, -1]])
    weights = torch.tensor([30.0, 10, 20, 40, 7, 11, 5, 3])
    data = Observations.from_tensor(codes, domain, weights=weights)
    graph = InteractionHypergraph.saturated(domain)
    result = fit_incomplete(graph, data, tolerance=1e-15, max_iterations=5000)
    return dataclasses.replace(result, data=data)


def test_rows_with_missing_cells_have_an_observed_information_and_no_table_tests():
    result = incomplete_fit()
    for function in (goodness_of_fit, cell_table):
        with pytest.raises(MissingDataError, match="5 missing cells; fit with missing='drop'"):
            function(result)

    def loss(theta):
        model = LogLinearEnergy.from_theta(result.hypergraph, theta)
        return -(result.data.counts * row_log_likelihood(model, result.data)).sum()

    hessian = torch.autograd.functional.hessian(loss, result.theta)
    torch.testing.assert_close(result.information, hessian, rtol=1e-9, atol=1e-9)
    # Control: the information of complete rows is larger.
    complete = dataclasses.replace(result, data=result.data.drop_missing())
    assert float(complete.information.trace()) > float(hessian.trace()) + 0.5
    domain = result.hypergraph.domain
    apart = Observations.from_tensor(torch.tensor([[0, -1], [1, -1], [-1, 0], [-1, 1]]), domain)  # never together
    unknown = dataclasses.replace(fit_incomplete(result.hypergraph, apart), data=apart)  # nothing of the association
    with pytest.raises(IntractableError, match="information is singular"):
        _ = unknown.covariance
    backend = dataclasses.replace(result, _design=None, partition=Enumeration())
    with pytest.raises(MissingDataError, match="missing cells and a table without a dense design"):
        _ = backend.information


def test_p_values_exist_only_for_maximum_likelihood():
    data = load_table("czech_autoworkers")
    assert goodness_of_fit(order_fit(data), "chi-square").p_value == pytest.approx(0.263, abs=5e-4)
    quality = goodness_of_fit(order_fit(data, penalty=L2(1.0)))
    assert np.isnan(quality.p_value) and np.isnan(quality.p_value_pearson) and quality.df == 42
    assert np.isnan(goodness_of_fit(order_fit(data, objective="pseudo-likelihood")).p_value)


@pytest.mark.parametrize("cards", [(2, 3, 2), (4, 5, 7), (5, 5, 3)])
def test_rows_in_one_cell_of_the_fitted_margins_identify_no_parameter(cards):
    """The statistics are equal in all facial cells; what their mean leaves of them is rounding."""
    domain = Domain.from_cardinalities(cards)
    hypergraph = InteractionHypergraph(domain, [("x0", "x1")], closure=True)
    for first in range(cards[0]):
        for second in range(cards[1]):
            codes = torch.tensor([[first, second, third] for third in range(cards[2])])
            result = quiet_fit(hypergraph, Observations(domain, codes, torch.arange(1, cards[2] + 1)))
            assert result.num_parameters_fitted == 0
    codes = torch.tensor([[first, 0, 0] for first in range(cards[0])])  # the control: one main effect is identified
    result = quiet_fit(hypergraph, Observations(domain, codes, torch.arange(1, cards[0] + 1)))
    assert result.num_parameters_fitted == cards[0] - 1


def test_infinite_estimates_of_the_larger_model_count_in_its_degrees_of_freedom():
    """Independence against the saturated model: the same test as the goodness of fit, and of Fisher where exact."""
    data = of_table([[10, 0], [20, 30]])
    small, big = (quiet_fit(InteractionHypergraph.from_order(data.domain, k), data) for k in (1, 2))
    test, quality = likelihood_ratio_test(small, big), goodness_of_fit(small)
    assert big.status == "infinite" and test.df_adjusted == quality.df_adjusted == 1
    exact = likelihood_ratio_test(small, big, "exact", num_tables=9999)
    tables = range(11)  # the first cell, given the margins
    chance = hypergeom.pmf(tables, 60, 30, 10)
    expected = chance[[0, 10]].sum()  # the two tables with an empty cell in the row of ten are the extreme ones
    assert abs(exact.p_value - expected) < 5 * np.sqrt(expected / 9999) + 1e-4
    assert likelihood_ratio_test(small, big, "chi-square").p_value == pytest.approx(chi2.sf(quality.deviance, 1))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_counts_times_a_number_have_the_same_estimates_and_statistics_times_it(order):
    counts = torch.from_numpy(np.random.default_rng(1).integers(1, 21, (2, 3, 2, 2)))
    domain = Domain.from_cardinalities([2, 3, 2, 2])
    graph = InteractionHypergraph.from_order(domain, order)
    one = fit(graph, Observations.from_table(domain, counts))
    expected = goodness_of_fit(one, "chi-square")
    for factor in (10**9, 10**13):
        many = fit(graph, Observations.from_table(domain, counts * factor))
        found = goodness_of_fit(many, "chi-square")
        torch.testing.assert_close(many.theta, one.theta, rtol=0, atol=1e-9)  # the tolerance
        assert found.deviance == pytest.approx(expected.deviance * factor, rel=1e-10)
        assert (found.pearson, found.df) == (pytest.approx(expected.pearson * factor, rel=1e-10), expected.df)


@pytest.mark.parametrize("common", [10**6, 10**9, 10**12, 10**14])
def test_rare_cells_beside_huge_ones_are_fitted_to_a_fraction_of_a_row(common):
    """Independence of two columns: expected counts are products of margins, in whole numbers."""
    table = [[common, 4, 1], [2 * common, 9, 3]]
    domain = Domain.from_cardinalities([2, 3])
    result = fit(InteractionHypergraph.from_order(domain, 1), Observations.from_table(domain, table))
    rows, columns = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    total, deviance = sum(rows), 0.0
    for i, j in itertools.product(range(2), range(3)):
        product = rows[i] * columns[j]
        gap = (table[i][j] * total - product) / product  # exact in whole numbers before the division
        deviance += 2 * product / total * ((1 + gap) * math.log1p(gap) - gap)
    found = goodness_of_fit(result, "chi-square")
    assert found.deviance == pytest.approx(deviance, rel=1e-3)
    # The control: the difference of log-likelihoods loses it in rounding.
    counts = result.data.counts
    saturated = float(torch.special.xlogy(counts, counts / total).sum())
    assert common < 10**12 or abs(2 * (saturated - result.log_likelihood) - deviance) > 0.001


# Tests of every interaction


PEERS = {"benjamini-hochberg": "fdr_bh", "benjamini-yekutieli": "fdr_by", "holm": "holm"}


@pytest.mark.parametrize("method", PEERS)
def test_adjusted_p_values_are_those_of_statsmodels(method):
    values = np.concatenate([np.random.default_rng(0).random(40) ** 3, [0.0, 1.0, 0.2, 0.2]])
    expected = multipletests(values, method=PEERS[method])[1]
    np.testing.assert_allclose(adjust_p_values(values, method), expected, rtol=1e-12)
    holed = np.insert(values, [0, 7, 44], np.nan)
    found = adjust_p_values(holed, method)
    assert np.isnan(found[[0, 8, 46]]).all()
    np.testing.assert_allclose(found[~np.isnan(holed)], expected, rtol=1e-12)
    assert not np.allclose(found[~np.isnan(holed)] * 47 / 44, expected)  # control: as if those without counted
    assert adjust_p_values([], method).shape == (0,)
    assert np.isnan(adjust_p_values([math.nan], method)).all()


def test_adjusting_refuses_what_is_no_p_value():
    with raises("out-of-range", "p_values"):
        adjust_p_values([0.1, 1.5])
    with raises("wrong-shape", "p_values"):
        adjust_p_values(np.ones((2, 2)))
    with raises("unknown-choice", "method"):
        adjust_p_values([0.1], "bonferroni")


def _glm(graph, counts):
    design = sm.add_constant(design_matrix(graph, "corner"), has_constant="add")
    return sm.GLM(counts, design, sm.families.Poisson()).fit(tol=1e-14, maxiter=100)


def test_both_tests_are_those_of_a_poisson_regression():
    result = order_fit("hair_eye_color")
    data = result.data
    counts = data.table().numpy().reshape(-1)
    full = _glm(result.hypergraph, counts)
    ratio, wald = (term_tests(result, method=method, p_value="chi-square") for method in ("likelihood-ratio", "wald"))
    assert ratio["term"].tolist() == ["Hair:Eye", "Hair:Sex", "Eye:Sex"]
    for row, edge in enumerate([("Hair", "Eye"), ("Hair", "Sex"), ("Eye", "Sex")]):
        small = result.hypergraph.remove_edges([edge])
        assert ratio["statistic"][row] == pytest.approx(2 * (full.llf - _glm(small, counts).llf), rel=1e-7)
        where = result.hypergraph.parameter_slices[edge]
        chosen = np.eye(len(full.params))[1 + where.start : 1 + where.stop]
        peer = full.wald_test(chosen, scalar=True)
        assert wald["statistic"][row] == pytest.approx(float(peer.statistic), rel=1e-6)
        assert ratio["df"][row] == wald["df"][row] == len(chosen)
        assert wald["p_value"][row] == pytest.approx(float(peer.pvalue), rel=1e-5)
    assert set(wald["p_value_method"]) == {"chi-square"}


def test_removal_says_what_goes_along():
    result = order_fit("hair_eye_color", 3)
    frame = term_tests(result, p_value="chi-square", correction=None)
    assert frame["removal"].tolist()[-2:] == ["with Hair:Eye:Sex", "alone"]
    assert "p_value_adjusted" not in frame
    smaller = fit(result.hypergraph.remove_edges([("Hair", "Sex")]), result.data)
    whole = likelihood_ratio_test(smaller, result, "chi-square")
    assert frame["p_value"][1] == pytest.approx(whole.p_value, rel=1e-9)
    assert frame["df"][1] == whole.df == 12
    chosen = term_tests(result, terms=[("Sex", "Hair"), "Sex"], p_value="chi-square")
    assert (chosen["term"].tolist(), chosen["p_value"][0]) == (["Hair:Sex", "Sex"], frame["p_value"][1])
    with raises("unknown-name", "edges"):
        term_tests(order_fit("hair_eye_color", 1), terms=[("Hair", "Sex")])
    alone = InteractionHypergraph(result.hypergraph.domain, [("Hair", "Eye"), ("Hair",)], hierarchical=False)
    assert term_tests(fit(alone, result.data), p_value="chi-square")["removal"].tolist() == ["alone"]


def test_sparse_tables_have_the_p_values_of_the_house():
    result = order_fit(of_table([[3, 1, 1], [1, 4, 2], [1, 2, 5]]))
    frame = term_tests(result, num_tables=99)
    small = order_fit(result.data, 1)
    expected = likelihood_ratio_test(small, result, num_tables=99)
    assert (frame["p_value_method"].tolist(), frame["p_value"].item()) == (["exact"], expected.p_value)
    assert frame["note"].item() == expected.p_value_note
    wald = term_tests(result, method="wald", p_value="auto")
    assert wald["p_value"].item() == pytest.approx(chi2.sf(wald["statistic"].item(), 4), rel=1e-12)
    assert wald["note"].item().startswith("rough: small expected counts")


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
def test_infinite_estimates_keep_the_likelihood_ratio_alone():
    result = order_fit(of_table([[30, 0], [25, 60]]))
    assert term_tests(result, method="wald")["note"].item().startswith("the estimate of the interaction is infinite")
    frame = term_tests(result, p_value="chi-square")
    assert frame["statistic"].item() > 20
    assert math.isfinite(frame["p_value"].item()) == (frame["df"].item() > 0)


def test_structural_zeros_stay():
    quasi = order_fit(of_table(DIAGONAL + 20 * (DIAGONAL > 0)), structural_zeros=DIAGONAL == 0)
    frame = term_tests(quasi, p_value="chi-square")
    small = order_fit(quasi.data, 1, structural_zeros=DIAGONAL == 0)
    assert frame["statistic"].item() == pytest.approx(goodness_of_fit(small).deviance, rel=1e-6)


def test_a_backend_serves_the_smaller_models_too():
    data = load_table("czech_autoworkers")
    dense, other = (order_fit(data, 2, partition=p) for p in (None, VariableElimination()))
    terms = [("smoke", "mental"), ("phys", "systol")]
    one, two = (term_tests(r, terms=terms, p_value="chi-square") for r in (dense, other))
    np.testing.assert_allclose(one["statistic"], two["statistic"], rtol=1e-4)
    walds = [term_tests(r, terms=terms, method="wald") for r in (dense, other)]  # of one the cells are not listed
    assert [wald["p_value_method"].tolist() for wald in walds] == [["chi-square"] * 2] * 2
    np.testing.assert_allclose(walds[0]["p_value"], walds[1]["p_value"], rtol=1e-3)


def _survey(num_rows, seed):
    random = np.random.default_rng(seed)
    codes = random.integers(0, [2, 3], size=(num_rows, 2))
    return Observations.from_tensor(codes, Domain.from_cardinalities({"a": 2, "b": 3})), random


def test_the_correction_of_rao_and_scott_in_closed_cases():
    data, random = _survey(300, 1)
    weighted = Observations.from_tensor(data.codes, data.domain, weights=random.uniform(0.3, 3, 300))
    result = order_fit(weighted)
    options = {"p_value": "chi-square"}
    plain = term_tests(result, covariance="model", **options)
    same = term_tests(result, covariance=result.covariance, **options)
    assert same["design_effect"].item() == pytest.approx(1, rel=1e-9)
    assert same["p_value"].item() == pytest.approx(plain["p_value"].item(), rel=1e-9)
    wide = term_tests(result, covariance=4 * result.covariance, **options)
    assert wide["p_value"].item() == pytest.approx(float(chi2.sf(plain["statistic"].item() / 4, 2)), rel=1e-9)
    assert wide["p_value_method"].item() == "rao-scott"
    unequal = result.covariance.clone()
    where = result.hypergraph.parameter_slices["a", "b"]
    own = torch.linalg.cholesky(unequal[where, where])
    unequal[where, where] = own @ torch.diag(torch.tensor([1.0, 5.0], dtype=torch.float64)) @ own.T
    mixed = term_tests(result, covariance=unequal, **options)
    draws = np.random.default_rng(2).chisquare(1, size=(400_000, 2)) @ [1, 5]
    share = float((draws >= plain["statistic"].item()).mean())
    assert mixed["design_effect"].item() == pytest.approx(3, rel=1e-9)
    assert mixed["p_value"].item() == pytest.approx(share, abs=0.02)  # the mixture by two moments


def test_weights_that_are_not_whole_have_no_p_value_of_counts():
    data, random = _survey(300, 2)
    weights = random.uniform(0.3, 3, 300)
    one, two = (Observations.from_tensor(data.codes, data.domain, weights=c * weights) for c in (1, 20))
    assert goodness_of_fit(order_fit(one, 1)).p_value_method is None
    found, scaled = (likelihood_ratio_test(order_fit(d, 1), order_fit(d), covariance="robust") for d in (one, two))
    assert found.p_value == pytest.approx(scaled.p_value, rel=1e-6)
    usual = likelihood_ratio_test(order_fit(one, 1), order_fit(one))  # robust where nothing else is said
    assert repr(usual) == repr(found)  # NaN is a part of both
    options = {"p_value": "chi-square", "covariance": "model"}
    naive = [likelihood_ratio_test(order_fit(d, 1), order_fit(d), **options).p_value for d in (one, two)]
    assert naive[1] < 0.5 * naive[0]  # control
    assert math.isnan(likelihood_ratio_test(order_fit(one, 1), order_fit(one), None, covariance="robust").p_value)


def test_copies_of_rows_in_clusters_change_no_corrected_p_value():
    data, random = _survey(200, 3)
    one = Observations.from_tensor(data.codes, data.domain, weights=random.uniform(0.3, 3, 200))
    two = Observations.from_tensor(data.codes.repeat(3, 1), data.domain, weights=one.counts.repeat(3))
    clusters = np.tile(np.arange(200), 3)
    for method in ("likelihood-ratio", "wald"):
        first = term_tests(order_fit(one), method=method)  # weights are not whole: robust by default
        result = order_fit(two)
        robust = result.robust_covariance(clusters=clusters)
        second, naive = (term_tests(result, method=method, covariance=c) for c in (robust, "robust"))
        assert first["p_value"].item() == pytest.approx(second["p_value"].item(), rel=1e-6)
        assert naive["p_value"].item() < 0.5 * second["p_value"].item()  # control: copies taken for new rows


def test_corrected_tests_keep_their_level_in_clusters_and_model_based_ones_do_not():
    domain, random, p_values = Domain.from_cardinalities({"a": 2, "b": 2}), np.random.default_rng(4), []
    graph, clusters = InteractionHypergraph.saturated(domain), np.repeat(np.arange(60), 15)
    for _ in range(100):
        tendency = random.beta(0.5, 0.5, size=(60, 2))  # of either column in a cluster, independently
        codes = (random.random((900, 2)) < tendency[clusters]).astype(int)
        result = fit(graph, Observations.from_tensor(codes, domain))
        robust = result.robust_covariance(clusters=clusters)
        p_values.append([term_tests(result, covariance=c)["p_value"].item() for c in (robust, "model")])
    corrected, plain = (np.array(p_values) < 0.05).sum(0)
    assert corrected <= binom.isf(FALSE_ALARM_RATE, 100, 0.07)
    assert plain > binom.isf(FALSE_ALARM_RATE, 100, 0.07)


def test_adjusting_controls_the_false_discoveries_among_independent_columns():
    """All interactions are false, so that the share of false discoveries is 1 wherever anything is found."""
    domain, random = Domain.from_cardinalities([2] * 7), np.random.default_rng(5)
    graph, number, found = InteractionHypergraph.from_order(domain, 2), 60, []
    for _ in range(number):
        data = Observations.from_tensor(random.integers(0, 2, size=(1500, 7)), domain)
        frame = term_tests(fit(graph, data), method="wald", p_value="chi-square")
        found.append([(frame[c] < 0.05).any() for c in ("p_value_adjusted", "p_value")])
    adjusted, plain = np.sum(found, 0)
    assert adjusted <= binom.isf(FALSE_ALARM_RATE, number, 0.05)
    assert plain > binom.isf(FALSE_ALARM_RATE, number, 0.05)
    assert plain > number / 2  # of 21 tests at 5 %, one or more is expected in two thirds of the tables


def test_fits_without_tests_are_refused():
    data, _ = _survey(50, 6)
    with raises("no-method", "result"):
        term_tests(order_fit(data, penalty=L2(1.0)))
    with raises("missing-part", "result"):
        graph = InteractionHypergraph.from_order(data.domain, 2)
        term_tests(fit(graph, data.marginal_counts(graph.edges)))
    with raises("unknown-choice", "method"):
        term_tests(order_fit(data), method="score")
    with raises("unknown-choice", "correction"):
        term_tests(order_fit(data), correction="bonferroni")
    assert term_tests(order_fit(data, 1)).empty
