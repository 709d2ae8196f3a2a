"""Linear-by-linear association, symmetry and diagonals against published analyses and Poisson regressions."""

import itertools

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy.stats import chi2

from pyro_hoim import Domain, InputError, InteractionHypergraph, NonexistentEstimateWarning, Observations, load, save
from pyro_hoim.log_linear import (
    L2,
    Enumeration,
    LogLinearEnergy,
    RestrictedInteractions,
    Stopping,
    cell_table,
    coefficient_table,
    fit,
    fit_incomplete,
    goodness_of_fit,
    likelihood_ratio_test,
    midranks,
    odds_ratio_table,
    restricted_interactions,
    row_log_likelihood,
    term_tests,
)
from pyro_hoim.testing import raises

VISION = [[1520, 266, 124, 66], [234, 1512, 432, 78], [117, 362, 1772, 205], [36, 82, 179, 492]]
"""Unaided vision of 7,477 women, right and left eye; Alan Stuart, 1955, Biometrika 42, table 1."""

TEENAGE = [[81, 68, 60, 38], [24, 26, 29, 14], [18, 41, 74, 42], [36, 57, 161, 157]]
"""Opinions on premarital sex and on birth control for teenagers, General Social Survey 1991; Alan Agresti, Categorical
Data Analysis, second edition, 2002, table 9.3."""

MENTAL = [[64, 94, 58, 46], [57, 94, 54, 40], [57, 105, 65, 60], [72, 141, 77, 94], [36, 97, 54, 78], [21, 71, 54, 71]]
"""Socioeconomic status and mental health, midtown Manhattan; Leo Goodman, 1979, table 1."""

PARTY = [[143, 156, 100], [119, 210, 141], [15, 72, 127]]
"""Party and ideology, Ronald Hedlund, 1978; Agresti, 2002, table 9.5."""


def _data(table):
    shape = np.shape(table)
    return Observations.from_table(Domain.from_cardinalities(dict(zip("abcd", shape, strict=False))), table)


def _fit(table, formula, scores=None, **options):
    data = _data(table)
    return fit(restricted_interactions(data.domain, formula, scores=scores), data, **options)


@pytest.mark.parametrize(
    ("table", "formula", "deviance", "digits", "df"),
    [
        (VISION, "tied(a, b)", 19.25, 2, 6),  # Agresti, 2002, section 10.4
        (VISION, "symmetric(a, b)", 7.27, 2, 3),
        (VISION, "diagonal(a, b)", 199.1, 1, 5),
        (TEENAGE, "a + b", 127.6, 1, 9),  # section 9.4.2
        (TEENAGE, "linear(a):linear(b)", 11.5, 1, 8),
        (MENTAL, "a + b", 47.42, 2, 15),  # Goodman, 1979, table 2
        (MENTAL, "linear(a):linear(b)", 9.90, 2, 14),
        (MENTAL, "linear(a):b", 6.28, 2, 12),
        (MENTAL, "a:linear(b)", 6.83, 2, 10),
        (MENTAL, "linear(a):b + a:linear(b)", 3.04, 2, 8),
        (PARTY, "a:linear(b)", 2.81, 2, 2),  # Agresti, 2002, section 9.5.2
    ],
)
def test_deviances_are_the_published_ones(table, formula, deviance, digits, df):
    quality = goodness_of_fit(_fit(table, formula))
    assert abs(quality.deviance - deviance) <= 0.5 * 10**-digits + 0.005  # some were rounded twice
    assert quality.df == df
    plain = goodness_of_fit(_fit(table, "a + b"))  # control: independence has none of the other deviances
    assert formula == "a + b" or abs(plain.deviance - deviance) > 10


def test_published_coefficients_and_errors():
    frame = coefficient_table(_fit(TEENAGE, "linear(a):linear(b)")).set_index("interaction")
    found = frame.loc["linear(a):linear(b)"]
    assert (round(found["estimate"], 3), round(found["std_error"], 3)) == (0.286, 0.028)
    effects = coefficient_table(_fit(PARTY, "a:linear(b)")).set_index("interaction").loc["a:linear(b)"]
    np.testing.assert_allclose(effects["estimate"], [-0.224 + 0.495, 0.719 + 0.495], atol=0.0011)


def test_marginal_homogeneity_is_the_difference_of_symmetry_and_quasi_symmetry():
    stopping = Stopping(tolerance=1e-12)
    symmetry, quasi = (_fit(VISION, formula, stopping=stopping) for formula in ("tied(a, b)", "symmetric(a, b)"))
    test = likelihood_ratio_test(symmetry, quasi)
    assert (round(test.statistic, 2), test.df, test.p_value_method) == (11.98, 3, "chi-square")  # section 10.4.3
    table = np.array(VISION, dtype=float)
    fitted = symmetry.num_rows * symmetry.probs.numpy().reshape(4, 4)
    np.testing.assert_allclose(fitted, (table + table.T) / 2, rtol=1e-9)  # closed form
    fitted = quasi.num_rows * quasi.probs.numpy().reshape(4, 4)
    np.testing.assert_allclose(fitted + fitted.T, table + table.T, rtol=1e-8)
    np.testing.assert_allclose(fitted.sum(0), table.sum(0), rtol=1e-8)
    assert np.abs(fitted - fitted.T).max() > 10


def _glm(table, columns):
    levels = [np.eye(n)[:, 1:] for n in np.shape(table)]
    a, b = (m.ravel() for m in np.indices(np.shape(table)))
    design = np.column_stack([np.ones(a.size), levels[0][a], levels[1][b], *(column(a, b) for column in columns)])
    return sm.GLM(np.ravel(table), design, sm.families.Poisson()).fit(tol=1e-14, maxiter=200)


@pytest.mark.parametrize(
    ("formula", "columns"),
    [
        ("linear(a, 1, 3, 4, 8):linear(b)", [lambda a, b: np.array([1.0, 3, 4, 8])[a] * b]),
        ("linear(a, -2, 0.5, 1.25, 9):b", [lambda a, b: np.array([-2, 0.5, 1.25, 9])[a, None] * np.eye(4)[b][:, 1:]]),
        ("diagonal(a, b)", [lambda a, b: np.eye(4)[a] * (a == b)[:, None]]),
        ("diagonal(a, b) + linear(a):linear(b)", [lambda a, b: np.eye(4)[a] * (a == b)[:, None], lambda a, b: a * b]),
    ],
)
def test_fits_are_those_of_a_poisson_regression(formula, columns):
    result, peer = _fit(VISION, formula, stopping=Stopping(tolerance=1e-12)), _glm(VISION, columns)
    np.testing.assert_allclose(result.num_rows * result.probs.numpy(), peer.fittedvalues, rtol=1e-8)
    assert result.num_parameters == len(peer.params) - 1
    assert goodness_of_fit(result).deviance == pytest.approx(peer.deviance, rel=1e-8)
    frame = coefficient_table(result)
    own = frame[frame["interaction"].str.contains("(", regex=False)]
    np.testing.assert_allclose(own["estimate"], peer.params[7:], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(own["std_error"], peer.bse[7:], rtol=1e-7)
    np.testing.assert_allclose(cell_table(result)["expected"], peer.fittedvalues, rtol=1e-8)


def test_local_odds_ratios_are_products_of_score_differences():
    scores = {"a": [0, 1, 5, 6], "b": [1, 2, 4, 7]}
    result = _fit(TEENAGE, "linear(a):linear(b)", scores)
    beta = coefficient_table(result)["estimate"].iloc[-1]
    probs = result.probs.numpy().reshape(4, 4)
    for i, j in itertools.product(range(3), range(3)):
        ratio = np.log(probs[i, j] * probs[i + 1, j + 1] / (probs[i, j + 1] * probs[i + 1, j]))
        steps = (scores["a"][i + 1] - scores["a"][i]) * (scores["b"][j + 1] - scores["b"][j])
        assert ratio == pytest.approx(beta * steps, abs=1e-10)
    table = odds_ratio_table(result, "a", "b")
    wide = table[(table["a"] == "0 -> 3") & (table["b"] == "0 -> 3")].iloc[0]
    assert wide["log_odds_ratio"] == pytest.approx(beta * 36, rel=1e-9)
    assert wide["std_error"] == pytest.approx(36 * coefficient_table(result)["std_error"].iloc[-1], rel=1e-9)


def test_association_may_be_homogeneous_over_a_third_variable():
    table = np.random.default_rng(0).integers(20, 60, size=(3, 4, 2))
    result = _fit(table, "linear(a):linear(b) + a:c + b:c")
    probs = np.log(result.probs.numpy().reshape(3, 4, 2))
    curvature = np.diff(np.diff(probs, axis=0), axis=1)
    beta = coefficient_table(result).set_index("interaction").loc["linear(a):linear(b)", "estimate"]
    np.testing.assert_allclose(curvature, beta, atol=1e-9)
    assert goodness_of_fit(result).df == 24 - 1 - (2 + 3 + 1 + 2 + 3 + 1)
    threefold = _fit(table, "linear(a):linear(b):c")
    assert threefold.num_parameters == 23 - 6 + 1


def test_single_variables_may_be_linear_too():
    result = _fit(TEENAGE, "linear(a)*linear(b)")
    assert result.restriction.terms == ("linear(a)", "linear(b)", "linear(a):linear(b)")
    logs = np.log(result.probs.numpy().reshape(4, 4))
    np.testing.assert_allclose(np.diff(logs, 2, axis=0), 0, atol=1e-10)
    assert np.abs(np.diff(np.log(_fit(TEENAGE, "linear(a):linear(b)").probs.numpy().reshape(4, 4)), 2, 0)).max() > 0.1


def test_scores_of_labels_and_midranks():
    domain = Domain.from_labels({"dose": ("0", "1", "2.5", "10"), "b": ("no", "yes")})
    data = Observations.from_table(domain, [[9, 4], [8, 6], [5, 7], [2, 11]])
    by_label, given = (
        fit(restricted_interactions(domain, formula, scores=scores), data)
        for formula, scores in (("linear(dose, labels):b", None), ("linear(dose):b", {"dose": [0, 1, 2.5, 10]}))
    )
    assert torch.equal(by_label.theta, given.theta)
    logit = sm.GLM([[4, 9], [6, 8], [7, 5], [11, 2]], sm.add_constant([0, 1, 2.5, 10]), sm.families.Binomial()).fit(
        tol=1e-14
    )
    slope = coefficient_table(given).iloc[-1]
    assert (slope["interaction"], slope["levels"]) == ("linear(dose):b", "yes")
    assert slope["estimate"] == pytest.approx(logit.params[1], rel=1e-8)
    assert slope["std_error"] == pytest.approx(logit.bse[1], rel=1e-7)
    assert midranks(data, "dose") == [7.0, 20.5, 33.5, 46.0]
    with raises("invalid-value", "scores of 'b'"):
        restricted_interactions(domain, "linear(b, labels)")


def test_a_backend_agrees_and_robust_errors_are_those_of_the_regression():
    random = np.random.default_rng(1)
    domain = Domain.from_cardinalities({"a": 3, "b": 2})
    codes = random.integers(0, [3, 2], size=(300, 2))
    weights = random.uniform(0.2, 3, 300)
    data = Observations.from_tensor(codes, domain, weights=weights)
    structure = restricted_interactions(domain, "linear(a):b")
    dense, other = (fit(structure, data, partition=p) for p in (None, Enumeration()))
    torch.testing.assert_close(dense.theta, other.theta, atol=1e-5, rtol=0)
    assert other.existence.exists is None
    for kind in ("model", "robust"):
        one, two = (coefficient_table(r, covariance=kind)["std_error"] for r in (dense, other))
        np.testing.assert_allclose(one, two, rtol=1e-4)
    logit = sm.GLM(codes[:, 1], sm.add_constant(codes[:, 0]), sm.families.Binomial(), var_weights=weights)
    peer = logit.fit(tol=1e-14, cov_type="HC0")
    last = coefficient_table(dense, covariance="robust").iloc[-1]
    assert last["estimate"] == pytest.approx(peer.params[1], rel=1e-7)
    assert last["std_error"] == pytest.approx(peer.bse[1] * (300 / 299) ** 0.5, rel=1e-7)


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
def test_estimates_are_finite_where_scores_tie_empty_cells_to_others():
    holed = [[5, 3, 0], [2, 6, 3], [0, 4, 7]]
    assert fit(InteractionHypergraph.saturated(_data(holed).domain), _data(holed)).status == "infinite"
    result = _fit(holed, "linear(a):linear(b)")
    assert result.status == "converged"
    assert result.existence.exists
    peer = _glm(holed, [lambda a, b: a * b])
    np.testing.assert_allclose(result.num_rows * result.probs.numpy(), peer.fittedvalues, rtol=1e-7)
    steep = _fit([[5, 0, 0], [0, 6, 0], [0, 0, 7]], "linear(a):linear(b)")
    assert (steep.status, steep.num_cells_fitted) == ("infinite", 3)
    assert np.isinf(coefficient_table(steep)["std_error"].iloc[-1])
    assert steep.num_parameters_fitted == 2


def test_structural_zeros_make_quasi_independence_too():
    table = np.array(VISION) * (1 - np.eye(4, dtype=int))
    data = _data(table)
    without = fit(InteractionHypergraph.from_order(data.domain, 1), data, structural_zeros=np.eye(4, dtype=bool))
    diagonal = _fit(VISION, "diagonal(a, b)")
    fitted = [r.num_rows * r.probs.numpy().reshape(4, 4) * (1 - np.eye(4)) for r in (without, diagonal)]
    np.testing.assert_allclose(fitted[0], fitted[1], rtol=1e-7)
    sloped = fit(
        restricted_interactions(data.domain, "linear(a):linear(b)"), data, structural_zeros=np.eye(4, dtype=bool)
    )
    assert goodness_of_fit(sloped).df == 12 - 1 - 7


def test_nested_tests_and_removal_of_terms():
    data = _data(TEENAGE)
    alone, uniform, whole = _fit(TEENAGE, "a + b"), _fit(TEENAGE, "linear(a):linear(b)"), _fit(TEENAGE, "a*b")
    assert likelihood_ratio_test(alone, uniform).df == 1
    assert likelihood_ratio_test(uniform, whole).df == 8
    plain = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    assert likelihood_ratio_test(uniform, plain).statistic == pytest.approx(11.534, abs=0.001)
    with raises("other-domain", "small"):
        likelihood_ratio_test(_fit(TEENAGE, "linear(a, 1, 2, 4, 5):linear(b)"), _fit(TEENAGE, "linear(a):b"))
    with raises("conflict", "big"):
        likelihood_ratio_test(plain, whole)
    frame = term_tests(uniform)
    assert frame[["term", "df", "removal"]].iloc[0].tolist() == ["a:b", 1, "alone"]
    assert frame["statistic"].item() == pytest.approx(127.653 - 11.534, abs=0.001)
    wald = term_tests(uniform, method="wald")
    last = coefficient_table(uniform).iloc[-1]
    assert wald["statistic"].item() == pytest.approx(last["z"] ** 2, rel=1e-9)
    robust = term_tests(uniform, covariance="robust")
    assert robust["design_effect"].item() == pytest.approx(1, abs=0.2)


def test_corrected_tests_of_restricted_models_take_what_the_larger_one_adds():
    uniform, slopes, whole = (_fit(TEENAGE, f) for f in ("linear(a):linear(b)", "linear(a):b", "a*b"))
    plain = fit(InteractionHypergraph.saturated(whole.hypergraph.domain), whole.data)
    for small, big in ((uniform, slopes), (uniform, whole), (slopes, plain), (_fit(TEENAGE, "a + b"), uniform)):
        usual = likelihood_ratio_test(small, big, "chi-square")
        same, wide = (likelihood_ratio_test(small, big, covariance=c * big.covariance) for c in (1, 3))
        assert (same.p_value, same.p_value_method) == (pytest.approx(usual.p_value, rel=1e-6), "rao-scott")
        assert wide.design_effect == pytest.approx(3, rel=1e-8)
        assert wide.p_value == pytest.approx(float(chi2.sf(usual.statistic / 3, usual.df)), rel=1e-6)
    with raises("unknown-choice", "p_value"):
        likelihood_ratio_test(uniform, whole, "bootstrap", covariance="robust")


def test_sparse_tables_have_no_p_value_by_refits_of_whole_tables():
    corrected = goodness_of_fit(_fit([[3, 1, 1], [1, 4, 2], [1, 2, 5]], "linear(a):linear(b)"))
    plain = chi2.sf(corrected.deviance, corrected.df)
    assert corrected.p_value_method == "bartlett" and plain < corrected.p_value < plain + 0.2
    result = _fit([[2, 0, 1], [0, 2, 1], [1, 1, 2]], "linear(a):linear(b)")
    quality = goodness_of_fit(result)
    assert quality.p_value_method is None
    assert "restricted" in quality.p_value_note
    assert goodness_of_fit(result, "chi-square").p_value_method == "chi-square"
    with raises("no-method", "p_value"):
        goodness_of_fit(result, "bootstrap")


def test_the_result_is_that_of_the_whole_collection_elsewhere(tmp_path):
    result = _fit(TEENAGE, "linear(a):linear(b)")
    whole = fit(InteractionHypergraph.saturated(result.hypergraph.domain), result.data)
    assert result.theta.shape == whole.theta.shape
    assert (result.num_parameters, whole.num_parameters) == (7, 15)
    assert result.num_parameters_fitted == 7
    quality = goodness_of_fit(result)
    assert quality.aic == pytest.approx(-2 * result.log_likelihood + 14)
    save(result, tmp_path / "model.safetensors")
    torch.testing.assert_close(load(tmp_path / "model.safetensors").model.theta, result.theta)


def test_rows_with_missing_cells_are_summed_over():
    data = _data(PARTY)
    codes, counts = data.codes.repeat(2, 1), torch.cat([data.counts, data.counts / 4])
    codes[9:, 0] = -1  # a quarter as many people more, of unknown party
    holed = Observations(data.domain, codes, counts)
    structure = restricted_interactions(data.domain, "linear(a):linear(b)")
    result = fit_incomplete(structure, holed)
    assert result.num_parameters == 5
    for direction in structure.directions.T:
        for step in (-0.01, 0.01):
            near = LogLinearEnergy.from_theta(result.hypergraph, result.theta + step * torch.from_numpy(direction))
            assert float(holed.counts @ row_log_likelihood(near, holed)) < result.log_likelihood
    full = fit_incomplete(structure.hypergraph, holed)
    assert full.log_likelihood > result.log_likelihood + 1
    complete = coefficient_table(fit(structure, data))["std_error"]
    errors = coefficient_table(result, covariance="model")["std_error"]  # quarters of people are no survey weights
    assert (errors[2:4] < complete[2:4]).all()  # of the ideology, which is known of all
    assert errors.iloc[-1] == pytest.approx(complete.iloc[-1], rel=0.05)


def test_summaries_show_the_coefficients_of_terms():
    frame = _fit(TEENAGE, "linear(a):linear(b)").summary()
    assert frame["term"].tolist() == ["linear(a):linear(b)"] + ["a"] * 3 + ["b"] * 3
    assert frame["odds_ratio"].iloc[0] == pytest.approx(np.exp(frame["estimate"].iloc[0]))
    assert frame["odds_ratio"].iloc[1:].isna().all()
    with pytest.warns(NonexistentEstimateWarning):
        steep = _fit([[5, 0, 0], [0, 6, 0], [0, 0, 7]], "linear(a):linear(b)")
    assert steep.summary()["estimate"].iloc[0] == np.inf


def test_terms_have_no_other_reference_and_no_other_errors(tmp_path):
    """What a table cannot give is refused, of a fit and of its file, and never answered without it."""
    result = _fit(TEENAGE, "linear(a):linear(b)")
    save(result, tmp_path / "model.safetensors")
    for model in (result, load(tmp_path / "model.safetensors")):
        for table in (model.summary, model.odds_ratios):
            with pytest.raises(InputError, match="restricted interactions have the odds ratios of their terms"):
                table(reference={"a": "1"})
    for table in (result.summary, result.odds_ratios):
        with pytest.raises(InputError, match="covariance: expected 'model' or 'robust', received 'foo'"):
            table(covariance="foo")


def test_summaries_and_comparisons_of_weighted_rows_say_and_mind_it():
    random = np.random.default_rng(2)
    domain, codes = Domain.from_cardinalities({"a": 3, "b": 3}), random.integers(0, 3, size=(200, 2))
    data = Observations.from_tensor(codes, domain, weights=random.uniform(0.1, 4, 200))
    small, big = (fit(restricted_interactions(domain, f), data) for f in ("a + b", "linear(a):linear(b)"))
    table = big.summary(covariance="robust")
    expected = coefficient_table(big, covariance="robust")["std_error"].to_numpy()
    np.testing.assert_allclose(table["std_error"].to_numpy(), [expected[-1], *expected[:-1]])  # the interaction first
    size = f"effective rows (Kish): {big.effective_num_rows:.0f}"
    assert any(size in note for note in table.attrs["notes"])
    assert not any("Kish" in note for note in _fit(PARTY, "a + b").summary().attrs["notes"])
    tests = big.compare(small)
    corrected = likelihood_ratio_test(small, big, "chi-square", covariance="robust").p_value
    assert tests["p_value"].dropna().tolist() == [pytest.approx(corrected)]
    counted = likelihood_ratio_test(small, big, "chi-square", covariance="model")
    assert corrected != pytest.approx(counted.p_value, rel=0.01)


def test_dependent_columns_are_left_out():
    domain = Domain.from_cardinalities({"a": 3, "b": 3})
    both = restricted_interactions(domain, "linear(a):b + a:linear(b)")
    assert both.num_parameters == 2 + 2 + 3
    assert restricted_interactions(Domain.from_cardinalities({"a": 2, "b": 2}), "diagonal(a, b)").num_parameters == 3
    whole = restricted_interactions(domain, "a*b + linear(a):linear(b)")
    assert whole.num_parameters == whole.hypergraph.num_parameters
    assert RestrictedInteractions.whole(whole.hypergraph).holds(both)
    assert not both.holds(whole)


def test_refusals():
    domain = Domain.from_cardinalities({"a": 3, "b": 3, "c": 2})
    for formula, code, argument in (
        ("linear(a, 1, 2)", "wrong-shape", "scores of 'a'"),
        ("linear(a, 2, 2, 2)", "invalid-value", "scores of 'a'"),
        ("linear(a, ranks)", "unknown-choice", "scores of 'a'"),
        ("linear(a):a", "conflict", "formula 'linear(a):a'"),
        ("liner(a)", "unknown-name", "formula 'liner(a)'"),
        ("linear(d)", "unknown-name", "formula 'linear(d)'"),
        ("symmetric(a, c)", "other-domain", "symmetric(a, c)"),
        ("symmetric(a, b, 1)", "invalid-value", "symmetric(a, b)"),
        ("symmetric(a)", "invalid-value", "formula 'symmetric(a)'"),
        ("tied(a, b):c", "conflict", "formula 'tied(a, b):c'"),
        ("linear(a, 1, x, 2)", "invalid-value", "formula 'linear(a, 1, x, 2)'"),
        ("linear(a", "invalid-value", "formula 'linear(a'"),
    ):
        with raises(code, argument):
            restricted_interactions(domain, formula)
    with raises("unknown-name", "scores"):
        restricted_interactions(domain, "a", scores={"z": [1, 2, 3]})
    with raises("no-method", "formula 'linear(a):b'"):
        InteractionHypergraph.from_formula(domain, "linear(a):b", closure=True)
    data = _data(np.ones((3, 3, 2), dtype=int))
    with raises("conflict", "penalty"):
        fit(restricted_interactions(domain, "linear(a):b"), data, penalty=L2(1.0))
    with raises("conflict", "objective"):
        fit(restricted_interactions(domain, "linear(a):b"), data, objective="pseudo-likelihood")
    with raises("no-method", "hypergraph"):
        graph = InteractionHypergraph(domain, [("a", "b")], hierarchical=False)
        RestrictedInteractions(graph, ("x",), ("",), np.ones((4, 1)))
