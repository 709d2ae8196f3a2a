"""Tests of every interaction against statsmodels, identities and simulated error rates."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from fitted import DIAGONAL, of_table, order_fit
from scipy.stats import binom, chi2
from statsmodels.stats.multitest import multipletests

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.log_linear import (
    L2,
    VariableElimination,
    adjust_p_values,
    fit,
    goodness_of_fit,
    likelihood_ratio_test,
    term_tests,
)
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

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
    assert chosen["term"].tolist() == ["Hair:Sex", "Sex"]
    assert chosen["p_value"][0] == frame["p_value"][1]
    with raises("unknown-name", "edges"):
        term_tests(order_fit("hair_eye_color", 1), terms=[("Hair", "Sex")])
    alone = InteractionHypergraph(result.hypergraph.domain, [("Hair", "Eye"), ("Hair",)], hierarchical=False)
    assert term_tests(fit(alone, result.data), p_value="chi-square")["removal"].tolist() == ["alone"]


def test_sparse_tables_have_the_p_values_of_the_house():
    result = order_fit(of_table([[3, 1, 1], [1, 4, 2], [1, 2, 5]]))
    frame = term_tests(result, num_tables=99)
    small = order_fit(result.data, 1)
    expected = likelihood_ratio_test(small, result, num_tables=99)
    assert frame["p_value_method"].tolist() == ["exact"]
    assert frame["p_value"].item() == expected.p_value
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
