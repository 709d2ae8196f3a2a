"""Golden numbers, statsmodels as an oracle, and their negative controls."""

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
from scipy.stats import chi2, hypergeom

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table, tables
from pyro_hoim.errors import InputError, IntractableError, MissingDataError, NonexistentEstimateWarning
from pyro_hoim.log_linear import (
    L2,
    Enumeration,
    LogLinearEnergy,
    cell_table,
    coefficient_table,
    fit,
    fit_incomplete,
    goodness_of_fit,
    likelihood_ratio_test,
    parametrization,
    row_log_likelihood,
)
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "log_linear_fits.json").read_text())["entries"]
NAMES = [entry["table"] + " " + entry["formula"] for entry in GOLDEN]


def quiet_fit(hypergraph, data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonexistentEstimateWarning)
        return fit(hypergraph, data, **options)


def model_of(entry):
    data = load_table(entry["table"])
    return InteractionHypergraph.from_formula(data.domain, entry["formula"]), data


def half_unit(printed):
    return 0.5 * 10.0 ** -len(printed.partition(".")[2]) * (1 + 1e-9)


@pytest.mark.parametrize("entry", GOLDEN, ids=NAMES)
def test_published_deviances(entry):
    hypergraph, data = model_of(entry)
    quality = goodness_of_fit(quiet_fit(hypergraph, data))
    for name in ("deviance", "pearson"):
        if name in entry:
            assert abs(getattr(quality, name) - float(entry[name])) <= half_unit(entry[name])
    assert (quality.df, quality.df_adjusted) == (entry["df"], entry["df_adjusted"])
    assert quality.num_cells_zero == entry.get("num_cells_zero", 0)


@pytest.mark.parametrize("entry", GOLDEN, ids=NAMES)
def test_control_one_interaction_fewer_is_seen(entry):
    hypergraph, data = model_of(entry)
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
    quality = goodness_of_fit(result)
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


def test_information_criteria():
    data = load_table("czech_autoworkers")
    result = order_fit(data)
    quality = goodness_of_fit(result)
    assert quality.aic == pytest.approx(-2 * quality.log_likelihood + 2 * 21, rel=1e-14)
    assert quality.bic == pytest.approx(-2 * quality.log_likelihood + math.log(1841) * 21, rel=1e-14)
    assert quality.log_likelihood == pytest.approx(float(data.table().ravel() @ result.probs.log()), rel=1e-12)


def test_likelihood_ratio_is_a_difference_of_deviances():
    small, big = (order_fit("czech_autoworkers", k) for k in (1, 2))
    test = likelihood_ratio_test(small, big)
    assert test.statistic == pytest.approx(goodness_of_fit(small).deviance - goodness_of_fit(big).deviance, abs=1e-9)
    assert (test.df, test.df_adjusted) == (15, 15)
    assert test.p_value < 1e-100


def test_likelihood_ratio_refuses_what_is_not_nested():
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


def test_saturated_model_fits_exactly_and_has_no_p_value():
    quality = goodness_of_fit(order_fit(of_table([[3, 4, 5], [6, 7, 8]])))
    assert quality.deviance == pytest.approx(0, abs=1e-9)
    assert quality.df == quality.df_adjusted == 0
    assert math.isnan(quality.p_value)


def test_structural_zeros_are_not_cells():
    # Quasi-independence of a 3 x 3 table whose diagonal is impossible: df = (3 - 1)(3 - 1) - 3 = 1.
    data, mask = of_table(DIAGONAL), np.eye(3, dtype=bool)
    quality = goodness_of_fit(order_fit(data, 1, structural_zeros=mask))
    assert (quality.df, quality.df_adjusted, quality.num_cells, quality.num_cells_zero) == (1, 1, 6, 0)
    design = corner_design(InteractionHypergraph.from_order(data.domain, 1))
    peer = sm.GLM(DIAGONAL[~mask], design[~mask.ravel()], family=sm.families.Poisson()).fit()
    assert abs(quality.deviance - peer.deviance) < 1e-6
    assert abs(goodness_of_fit(order_fit(data, 1)).deviance - peer.deviance) > 1  # control: zeros taken as observed
    with pytest.raises(InputError, match="6 observations of data lie in cells marked as impossible"):
        order_fit(of_table(DIAGONAL + 2 * np.eye(3)), 1, structural_zeros=mask)


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


def test_likelihood_ratio_of_sufficient_statistics_compares_their_margins():
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


def test_likelihood_ratio_needs_the_same_structural_zeros():
    data, mask = of_table(np.array([[0, 5, 9], [7, 6, 4], [6, 8, 3]])), np.zeros((3, 3), dtype=bool)
    mask[0, 0] = True
    big = order_fit(data, 2, structural_zeros=mask)
    with pytest.raises(InputError, match="same structural zeros"):
        likelihood_ratio_test(order_fit(data, 1), big)
    assert likelihood_ratio_test(order_fit(data, 1, structural_zeros=mask), big).df == 3


def incomplete_fit():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    codes = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [0, -1], [1, -1], [-1, 0], [-1, -1]])
    weights = torch.tensor([30.0, 10, 20, 40, 7, 11, 5, 3])
    data = Observations.from_tensor(codes, domain, weights=weights)
    graph = InteractionHypergraph.saturated(domain)
    result = fit_incomplete(graph, data, tolerance=1e-15, max_iterations=5000)
    return dataclasses.replace(result, data=data)


def test_rows_with_missing_cells_have_no_table_tests():
    result = incomplete_fit()
    for function in (goodness_of_fit, cell_table):
        with pytest.raises(MissingDataError, match=r"5 missing cells; refit to data\.drop_missing"):
            function(result)


def test_observed_information_is_the_curvature_of_the_observed_likelihood():
    result = incomplete_fit()

    def loss(theta):
        model = LogLinearEnergy.from_theta(result.hypergraph, theta)
        return -(result.data.counts * row_log_likelihood(model, result.data)).sum()

    hessian = torch.autograd.functional.hessian(loss, result.theta)
    torch.testing.assert_close(result.information, hessian, rtol=1e-9, atol=1e-9)
    # Control: the information of complete rows is larger.
    complete = dataclasses.replace(result, data=result.data.drop_missing())
    assert float(complete.information.trace()) > float(hessian.trace()) + 0.5


def test_observed_information_may_be_singular_or_out_of_reach():
    result = incomplete_fit()
    domain = result.hypergraph.domain
    apart = Observations.from_tensor(torch.tensor([[0, -1], [1, -1], [-1, 0], [-1, 1]]), domain)  # never together
    unknown = dataclasses.replace(fit_incomplete(result.hypergraph, apart), data=apart)  # nothing of the association
    with pytest.raises(IntractableError, match="information is singular"):
        _ = unknown.covariance
    backend = dataclasses.replace(result, _design=None, partition=Enumeration())
    with pytest.raises(MissingDataError, match="missing cells and a table without a dense design"):
        _ = backend.information


def test_statistics_alone_have_no_goodness_of_fit():
    data = load_table("hair_eye_color")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    result = fit(hypergraph, data.marginal_counts(hypergraph.edges))
    with pytest.raises(InputError, match="sufficient statistics"):
        goodness_of_fit(result)
    assert result.log_likelihood == pytest.approx(fit(hypergraph, data).log_likelihood, rel=1e-12)


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
        assert found.pearson == pytest.approx(expected.pearson * factor, rel=1e-10)
        assert found.df == expected.df


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
