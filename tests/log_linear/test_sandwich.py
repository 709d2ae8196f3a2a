"""Robust covariances against statsmodels, expanded counts, closed forms and the bootstrap."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from scipy.stats import binom

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.log_linear import L2, Enumeration, Stopping, coefficient_table, fit, fit_incomplete, odds_ratio_table
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.log_linear.scores import coefficient_intervals
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

ABC = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
AB = Domain.from_cardinalities({"a": 2, "b": 2})
PAIRS = InteractionHypergraph.from_order(ABC, 2)

WEIGHTED = pytest.mark.filterwarnings("ignore:cov_type not fully supported")  # statsmodels uses them as we do


def _survey(num_rows, seed, domain=ABC, low=0.2):
    """Rows of dependent variables with weights from ``low`` to 5."""
    random = np.random.default_rng(seed)
    latent = random.normal(size=num_rows)
    columns = [(latent[:, None] + random.normal(size=(num_rows, n - 1)) > 0).sum(1) for n in domain.cardinalities]
    return Observations.from_tensor(np.stack(columns, 1), domain, weights=random.uniform(low, 5, num_rows))


@WEIGHTED
def test_a_saturated_binary_model_has_the_errors_of_a_weighted_logit():
    """The corner parameters of b and a:b are those of the logistic regression of b on a."""
    data, clusters = _survey(200, 0, AB), np.arange(200) // 8
    codes, weights = data.codes.numpy(), data.counts.numpy()
    result = fit(InteractionHypergraph.saturated(AB), data)
    logit = sm.GLM(codes[:, 1], sm.add_constant(codes[:, 0]), sm.families.Binomial(), var_weights=weights)
    plain = logit.fit(tol=1e-13)
    rows = logit.fit(tol=1e-13, cov_type="HC0")
    groups = logit.fit(tol=1e-13, cov_type="cluster", cov_kwds={"groups": clusters, "use_correction": False})
    np.testing.assert_allclose(result.coefficients("corner")[1:], plain.params, rtol=1e-8)
    for covariance, peer, factor in (
        ("model", plain, 1),
        ("robust", rows, 200 / 199),
        (result.robust_covariance(clusters=clusters), groups, 25 / 24),
    ):
        own = result.standard_errors("corner", covariance)[1:].numpy()
        np.testing.assert_allclose(own, peer.bse * factor**0.5, rtol=1e-7)
    robust, model = (result.standard_errors("corner", kind) for kind in ("robust", "model"))
    assert bool(((robust - model).abs() > 0.1 * model).any())  # control: weights from 0.2 to 5 are far from equal


@WEIGHTED
@pytest.mark.parametrize("partition", [None, Enumeration()])
def test_pairs_of_three_variables_have_the_errors_of_a_poisson_regression_of_all_rows_and_cells(partition):
    """A row is a cluster of Poisson counts, one for every cell, with one intercept."""
    data, clusters = _survey(90, 1), np.arange(90) % 15
    cells = np.ravel_multi_index(tuple(data.codes.numpy().T), ABC.cardinalities)
    counts = np.eye(12)[cells]
    design = np.tile(np.column_stack([np.ones(12), design_matrix(PAIRS, "corner")]), (90, 1))
    weights, unit = np.repeat(data.counts.numpy(), 12), np.repeat(np.arange(90), 12)
    poisson = sm.GLM(counts.reshape(-1), design, sm.families.Poisson(), var_weights=weights)
    result = fit(PAIRS, data, partition=partition)
    for groups, covariance, factor in (
        (unit, "robust", 90 / 89),
        (np.repeat(clusters, 12), result.robust_covariance(clusters=clusters), 15 / 14),
    ):
        kwds = {"groups": groups, "use_correction": False}
        peer = poisson.fit(tol=1e-13, maxiter=200, cov_type="cluster", cov_kwds=kwds)
        own = result.standard_errors("corner", covariance).numpy()
        np.testing.assert_allclose(own, peer.bse[1:] * factor**0.5, rtol=1e-8 if partition is None else 1e-4)


def test_whole_counts_are_expanded_rows():
    random = np.random.default_rng(2)
    table = random.integers(1, 9, ABC.cardinalities)
    merged = Observations.from_table(ABC, table)
    expanded = Observations.from_tensor(np.repeat(merged.codes.numpy(), merged.counts.numpy().astype(int), axis=0), ABC)
    results = [fit(PAIRS, rows) for rows in (merged, expanded)]
    one, two = (result.robust_covariance() for result in results)
    torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)
    strata = merged.codes[:, 0].numpy()
    by_stratum = np.repeat(strata, merged.counts.numpy().astype(int))
    one, two = (r.robust_covariance(strata=s) for r, s in zip(results, (strata, by_stratum), strict=True))
    torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)
    sampled = results[0].robust_covariance(weights="sampling")  # control: twelve rows of unequal weight
    assert float((sampled - results[0].robust_covariance()).abs().max()) > 0.01
    assert results[0].effective_num_rows == merged.total_count


def test_sampling_weights_have_no_unit_in_robust_errors_alone():
    data = _survey(150, 3)
    scaled = Observations(ABC, data.codes, 7.5 * data.counts)
    one, two = (fit(PAIRS, rows) for rows in (data, scaled))
    torch.testing.assert_close(one.robust_covariance(), two.robust_covariance(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(one.covariance, 7.5 * two.covariance, rtol=1e-9, atol=1e-12)
    weights = data.counts
    assert one.effective_num_rows == pytest.approx(float(weights.sum() ** 2 / (weights**2).sum()), rel=1e-12)
    assert one.effective_num_rows == pytest.approx(two.effective_num_rows, rel=1e-12)


def test_strata_are_those_of_a_stratified_mean():
    """One binary variable: the log odds of a weighted mean, linearised, stratum by stratum."""
    random = np.random.default_rng(4)
    domain = Domain.from_cardinalities({"a": 2})
    strata = np.repeat(["north", "south", "west"], [20, 30, 50])
    values = (random.random(100) < np.repeat([0.2, 0.5, 0.8], [20, 30, 50])).astype(int)
    weights, clusters = random.uniform(0.5, 4, 100), np.arange(100) // 5
    result = fit(
        InteractionHypergraph.from_order(domain, 1), Observations.from_tensor(values[:, None], domain, weights=weights)
    )
    mean = np.average(values, weights=weights)
    frame = pd.DataFrame({"z": weights * (values - mean), "stratum": strata, "cluster": clusters})
    for columns, options in (
        (["stratum"], {"strata": strata}),
        (["stratum", "cluster"], {"strata": pd.Series(strata), "clusters": list(clusters)}),
    ):
        sums = frame.groupby(columns)["z"].sum().reset_index() if len(columns) > 1 else frame
        total = sum(len(z) * z.var(ddof=1) for _, z in sums.groupby("stratum")["z"])
        expected = total / (weights.sum() * mean * (1 - mean)) ** 2
        error = result.standard_errors("corner", result.robust_covariance(**options))
        assert float(error) ** 2 == pytest.approx(expected, rel=1e-9)
    assert abs(float(result.standard_errors("corner", "robust")) ** 2 / expected - 1) > 0.05  # control


def test_the_bootstrap_of_rows_agrees():
    data = _survey(600, 5, AB)
    result = fit(InteractionHypergraph.saturated(AB), data)
    cell = data.codes[:, 0].numpy() * 2 + data.codes[:, 1].numpy()
    weighted = np.eye(4)[cell] * data.counts.numpy()[:, None]
    draws = np.random.default_rng(6).multinomial(600, np.full(600, 1 / 600), size=4000) @ weighted
    spread = (np.log(draws) @ [1, -1, -1, 1]).std()
    robust, model = (float(result.standard_errors("corner", kind)[-1]) for kind in ("robust", "model"))
    assert robust == pytest.approx(spread, rel=0.06)  # of the bootstrap: sampling error 1.1 %, curvature 2 %
    assert abs(model / spread - 1) > 0.1


def test_robust_intervals_cover_under_unequal_weights_and_model_based_ones_do_not():
    graph, random, covered = InteractionHypergraph.saturated(AB), np.random.default_rng(7), []
    probs, number = np.array([0.35, 0.15, 0.2, 0.3]), 250
    truth = float(np.log(probs) @ [1, -1, -1, 1])
    for _ in range(number):
        cell = random.choice(4, size=300, p=probs)
        weights = random.choice([0.05, 1.01], size=300, p=[0.8, 0.2])  # a fifth of the rows stands for most others
        data = Observations.from_tensor(np.stack([cell // 2, cell % 2], 1), AB, weights=weights * 300 / weights.sum())
        result = fit(graph, data)
        distance = abs(float(result.coefficients("corner")[-1]) - truth)
        covered.append([distance <= 1.96 * float(result.standard_errors("corner", kind)[-1]) for kind in KINDS])
    robust, model = np.sum(covered, 0)
    assert robust >= binom.ppf(FALSE_ALARM_RATE, number, 0.92)  # 3 % less than the level, for some sixty effective rows
    assert model < binom.ppf(FALSE_ALARM_RATE, number, 0.92)


KINDS = ("robust", "model")


def test_tables_take_either_covariance():
    data = _survey(200, 8)
    result = fit(PAIRS, data)
    robust = result.standard_errors("corner", "robust").numpy()
    np.testing.assert_allclose(coefficient_table(result, covariance="robust")["std_error"], robust, rtol=1e-12)
    given = odds_ratio_table(result, "a", "c", covariance=result.robust_covariance())
    assert given["std_error"].item() == pytest.approx(robust[list(_names(result)).index("a:c")], rel=1e-9)
    balanced = coefficient_table(result, coding="balanced", covariance="robust")
    assert balanced["std_error"].iloc[0] == pytest.approx(balanced["std_error"].iloc[1], rel=1e-9)
    assert balanced.equals(coefficient_table(result, coding="balanced"))  # weights are not whole
    model = coefficient_table(result, coding="balanced", covariance="model")
    assert balanced["std_error"].iloc[0] != model["std_error"].iloc[0]


def _names(result):
    return coefficient_table(result)["interaction"]


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
def test_what_is_not_identified_has_an_infinite_error():
    data = Observations.from_tensor([[0, 0], [1, 0], [1, 1], [0, 0], [1, 1]], AB, weights=[0.5, 1.5, 2, 1, 0.25])
    result = fit(InteractionHypergraph.saturated(AB), data)
    errors = result.standard_errors("corner", "robust")
    assert torch.isinf(errors[-1])
    assert torch.isfinite(errors[0])


def test_a_penalty_takes_part_in_the_slope():
    data = _survey(100, 9)
    free, tied = fit(PAIRS, data), fit(PAIRS, data, penalty=L2(5.0))
    assert bool((tied.standard_errors(None, "robust") < free.standard_errors(None, "robust")).all())


def test_refusals():
    data = _survey(40, 10)
    result = fit(PAIRS, data)
    for code, argument, call in (
        ("wrong-shape", "clusters", lambda: result.robust_covariance(clusters=[1, 2, 3])),
        ("missing-cells", "clusters", lambda: result.robust_covariance(clusters=[None, *range(39)])),
        (
            "conflict",
            "clusters",
            lambda: result.robust_covariance(clusters=np.arange(40) % 4, strata=np.arange(40) // 20),
        ),
        ("empty", "strata", lambda: result.robust_covariance(strata=[0] * 39 + [1])),
        ("empty", "clusters", lambda: result.robust_covariance(clusters=[0] * 40)),
        ("unknown-choice", "weights", lambda: result.robust_covariance(weights="survey")),
        ("unknown-choice", "covariance", lambda: result.standard_errors("corner", "sandwich")),
        ("wrong-shape", "covariance", lambda: result.standard_errors("corner", torch.eye(3))),
        ("missing-part", "result", lambda: fit(PAIRS, data.marginal_counts(PAIRS.edges)).robust_covariance()),
    ):
        with raises(code, argument):
            call()
    pseudo = fit(PAIRS, _survey(60, 11), objective="pseudo-likelihood")
    with raises("no-method", "covariance"):  # the inverse Hessian is no covariance
        pseudo.standard_errors("corner", "model")


def _sandwich(loss_of, theta, weights):
    """A^-1 B A^-1 of weighted rows, with the derivatives of the negative log-likelihoods of rows by autograd."""
    scores = torch.autograd.functional.jacobian(loss_of, theta)
    hessian = torch.autograd.functional.hessian(lambda t: (weights * loss_of(t)).sum(), theta)
    middle = (weights[:, None] * scores).T @ (weights[:, None] * scores) * len(weights) / (len(weights) - 1)
    return torch.linalg.inv(hessian) @ middle @ torch.linalg.inv(hessian)


def test_weighted_rows_with_missing_cells_have_robust_errors_by_default():
    data = _survey(80, 12)
    codes = data.codes.masked_fill(torch.rand(data.codes.shape, generator=torch.Generator().manual_seed(1)) < 0.2, -1)
    rows = data.replaced(codes=codes)
    result = fit_incomplete(PAIRS, rows)
    design = torch.from_numpy(np.array(design_matrix(PAIRS)))
    cells = torch.cartesian_prod(*(torch.arange(n) for n in ABC.cardinalities))
    agree = ((cells[None] == codes[:, None]) | (codes[:, None] < 0)).all(-1)

    def loss(theta):
        logits = design @ theta
        return torch.logsumexp(logits, 0) - torch.logsumexp(logits.masked_fill(~agree, -torch.inf), 1)

    expected = _sandwich(loss, result.theta, rows.counts.double())
    torch.testing.assert_close(result.robust_covariance(), expected, rtol=1e-6, atol=1e-9)
    default = result.standard_errors("corner")
    torch.testing.assert_close(default, result.standard_errors("corner", "robust"))
    assert bool(((default / result.standard_errors("corner", "model") - 1).abs() > 0.05).any())  # control


@pytest.mark.parametrize("is_weighted", [True, False])
def test_errors_of_a_pseudo_likelihood_are_those_of_its_estimating_equation(is_weighted):
    data = _survey(70, 13)
    data = data if is_weighted else Observations.from_tensor(data.codes, ABC)
    result = fit(PAIRS, data, objective="pseudo-likelihood", stopping=Stopping(tolerance=1e-10))
    design = torch.from_numpy(np.array(design_matrix(PAIRS)))
    cells = torch.cartesian_prod(*(torch.arange(n) for n in ABC.cardinalities))
    own = (cells[None] == data.codes[:, None]).all(-1).double() @ design

    def loss(theta):
        total = torch.zeros(len(data.codes), dtype=torch.float64)
        for column in range(len(ABC)):
            others = [k for k in range(len(ABC)) if k != column]
            is_near = (cells[None, :, others] == data.codes[:, None, others]).all(-1)
            logits = (design @ theta).expand(len(total), -1).masked_fill(~is_near, -torch.inf)
            total = total + torch.logsumexp(logits, 1) - own @ theta
        return total

    expected = _sandwich(loss, result.theta, data.counts.double())
    torch.testing.assert_close(result.robust_covariance(), expected, rtol=1e-5, atol=1e-8)
    why = "because the rows have weights" if is_weighted else "as a pseudo-likelihood needs"
    assert result.usual_covariance == "robust" and why in str(result.odds_ratios())
    inverse = torch.linalg.inv(result.information)  # control: the inverse Hessian is another matrix
    assert float((inverse / expected - 1).abs().max()) > 0.1


@WEIGHTED
def test_odds_ratios_of_weighted_rows_are_those_of_a_weighted_logit_with_robust_errors():
    """With b and c crossed, the log odds ratios of a are the coefficients of its logistic regression on both."""
    data = _survey(300, 14)
    result = fit(PAIRS, data)
    frame = pd.DataFrame(data.codes.numpy(), columns=list("abc"))
    formula = sm.GLM.from_formula(
        "a ~ C(b) + C(c)", frame, family=sm.families.Binomial(), var_weights=data.counts.numpy()
    )
    peer, plain = formula.fit(tol=1e-14, cov_type="HC0"), formula.fit(tol=1e-14)
    names = {"a=1 vs 0, b=1 vs 0": "C(b)[T.1]", "a=1 vs 0, b=2 vs 0": "C(b)[T.2]", "a=1 vs 0, c=1 vs 0": "C(c)[T.1]"}
    table, model = (t.set_index("levels") for t in (result.odds_ratios(), result.odds_ratios(covariance="model")))
    for levels, name in names.items():
        width = 1.959963984540054 * peer.bse[name] * (300 / 299) ** 0.5
        expected = np.exp([peer.params[name], peer.params[name] - width, peer.params[name] + width])
        assert table.loc[levels, ["odds_ratio", "lower", "upper"]].tolist() == pytest.approx(expected, rel=1e-7)
        assert model.loc[levels, "lower"] == pytest.approx(math.exp(plain.conf_int().loc[name, 0]), rel=1e-7)
        assert abs(model.loc[levels, "lower"] / table.loc[levels, "lower"] - 1) > 1e-3  # control


def test_whole_counts_have_errors_of_the_model_and_every_table_of_weights_says_that_its_errors_are_robust():
    said, data = "from robust (sandwich) standard errors, because the rows have weights", _survey(200, 15)
    whole = Observations(ABC, data.codes, torch.ones(200, dtype=torch.float64).mul(3))
    for rows, is_robust in ((data, True), (whole, False)):
        result = fit(PAIRS, rows)
        for table in (result.summary(), result.odds_ratios()):
            assert (said in str(table)) == is_robust
            assert (said in table._repr_html_()) == is_robust
        kind = "robust" if is_robust else "model"
        torch.testing.assert_close(result.standard_errors("corner"), result.standard_errors("corner", kind))
        intervals = coefficient_intervals(result, level=0.95)
        balanced = coefficient_table(result, coding="balanced", covariance=kind)
        for interval in intervals:
            rows_of = balanced[(balanced["interaction"] == ":".join(interval.edge))]
            row = rows_of[rows_of["levels"] == ", ".join(interval.levels)].iloc[0]
            assert [interval.lower, interval.upper] == pytest.approx([row["lower"], row["upper"]], rel=1e-9)
