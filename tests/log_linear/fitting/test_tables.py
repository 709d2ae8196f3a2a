"""Coefficients, odds ratios and residuals against closed forms and identities."""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest
import torch

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.errors import ConvergenceWarning, IntractableError, UnknownNameError
from pyro_hoim.log_linear import (
    L2,
    Enumeration,
    Stopping,
    cell_table,
    coefficient_table,
    fit,
    odds_ratio_table,
    parametrization,
)
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

QUIET = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")


@pytest.fixture
def two_by_two():
    domain = Domain.from_labels({"drug": ("old", "new"), "cured": ("no", "yes")})
    data = Observations.from_table(domain, [[30, 10], [20, 40]])
    return fit(InteractionHypergraph.saturated(domain), data)


def test_odds_ratio_of_a_two_by_two_table(two_by_two):
    frame = odds_ratio_table(two_by_two, "drug", "cured")
    assert frame.loc[0, "drug"] == "old -> new"
    assert frame.loc[0, "odds_ratio"] == pytest.approx(6.0, rel=1e-9)
    assert frame.loc[0, "std_error"] == pytest.approx((1 / 30 + 1 / 10 + 1 / 20 + 1 / 40) ** 0.5, rel=1e-9)
    assert np.log(frame.loc[0, "upper"]) - frame.loc[0, "log_odds_ratio"] == pytest.approx(
        1.959963984540054 * frame.loc[0, "std_error"]
    )
    swapped = odds_ratio_table(two_by_two, "drug", "cured", first_levels=("new", "old"))
    assert swapped.loc[0, "log_odds_ratio"] == pytest.approx(-np.log(6.0))


def test_odds_ratios_are_those_of_the_fitted_cells():
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(data.domain, 3), data)
    probs = result.probs.reshape(data.domain.cardinalities).numpy()
    frame = odds_ratio_table(result, "Hair", "Eye", first_levels=(1, 3), second_levels=("Blue", "Green"))
    b, g = (data.domain["Eye"].code(v) for v in ("Blue", "Green"))
    for sex, row in frame.iterrows():
        expected = np.log(probs[3, g, sex] * probs[1, b, sex] / (probs[3, b, sex] * probs[1, g, sex]))
        assert row["log_odds_ratio"] == pytest.approx(expected, abs=1e-8)
    assert frame["Sex"].tolist() == list(data.domain["Sex"].labels)
    one = odds_ratio_table(result, "Hair", "Eye", given={"Sex": "Female"})
    assert set(one["Sex"]) == {"Female"}
    assert len(one) == 9


def test_without_three_way_interaction_the_odds_ratio_has_no_modifier():
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    assert len(odds_ratio_table(result, "Hair", "Eye")) == 9
    with pytest.raises(UnknownNameError, match="did you mean 'Hair'"):
        odds_ratio_table(result, "hair", "Eye")
    for code, argument, options in (
        ("conflict", "given", {"given": {"Sex": "Male"}}),
        ("repeated-name", "levels of 'Hair'", {"first_levels": (1, 1)}),
        ("out-of-range", "level", {"level": 95}),
    ):
        with raises(code, argument):
            odds_ratio_table(result, "Hair", "Eye", **options)


def test_an_absent_interaction_has_odds_ratio_one():
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(data.domain, 1), data)
    frame = odds_ratio_table(result, "Hair", "Eye")
    assert (frame["log_odds_ratio"] == 0).all()
    assert (frame["std_error"] == 0).all()
    assert frame["p_value"].isna().all()


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
def test_standard_errors_transform_with_the_coding(coding):
    data = load_table("ucb_admissions")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    result = fit(hypergraph, data)
    frame = coefficient_table(result, coding=coding)
    matrix = parametrization(hypergraph).matrix("free", coding)
    covariance = matrix @ torch.linalg.inv(result.information) @ matrix.T
    np.testing.assert_allclose(frame["std_error"], covariance.diagonal().sqrt(), rtol=1e-9)
    assert len(frame) == parametrization(hypergraph).num(coding)
    if coding == "balanced":
        assert abs(frame.groupby("interaction")["estimate"].sum()).max() < 1e-10


def test_information_of_a_backend_equals_the_dense_one():
    data = load_table("ucb_admissions")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    dense = fit(hypergraph, data, penalty=L2(2.0))
    backend = fit(
        hypergraph, data, penalty=L2(2.0), method="lbfgs", partition=Enumeration(), stopping=Stopping(tolerance=1e-8)
    )
    here = dataclasses.replace(dense, theta=backend.theta)
    np.testing.assert_allclose(backend.information, here.information, rtol=1e-10, atol=1e-9)
    # Between the two estimates: gradients below 1e-8 and 1e-9 per row move theta by at most delta, and the information
    # of a log-linear model changes by at most a factor exp(diameter * delta) along the way.
    curvature = float(torch.linalg.eigvalsh(dense.information)[0]) / data.total_count
    delta = 2 * (1e-8 + 1e-9) * hypergraph.num_parameters**0.5 / curvature
    diameter = 2 * sum(np.prod([1 - 1 / n for n in shape]) for shape in hypergraph.edge_shapes) ** 0.5
    scale = dense.information.diagonal().sqrt()
    gap = ((backend.information - dense.information).abs() / torch.outer(scale, scale)).max()
    assert float(gap) <= np.expm1(diameter * delta) < 1e-3
    plain = fit(hypergraph, data)
    assert float(plain.covariance.trace()) > float(dense.covariance.trace())


@QUIET
def test_infinite_coefficients_have_infinite_standard_errors():
    data = load_table("titanic")
    result = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    frame = coefficient_table(result)
    infinite = frame[np.isinf(frame["std_error"])]
    names = (infinite["interaction"] + " " + infinite["levels"]).tolist()
    assert names == ["Class Crew", "Class:Age Crew, Adult"]
    assert infinite["p_value"].isna().all()
    odds = odds_ratio_table(result, "Class", "Age", first_levels=("1st", "Crew"))
    assert np.isinf(odds.loc[0, "std_error"])
    assert (odds.loc[0, "lower"], odds.loc[0, "upper"]) == (0, np.inf)


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
@QUIET
def test_infinite_coefficients_of_a_backend_are_those_of_the_dense_fit(coding):
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    data = Observations.from_table(domain, [[30, 0], [20, 40]])
    hypergraph = InteractionHypergraph.saturated(domain)
    dense = fit(hypergraph, data)
    fits = [
        fit(hypergraph, data, partition=Enumeration()),
        fit(hypergraph, data.marginal_counts(hypergraph.edges), method="lbfgs"),
        fit(hypergraph, data.marginal_counts(hypergraph.edges), partition=Enumeration()),
    ]
    expected = dense.standard_errors(coding)
    if coding == "corner":
        assert expected.tolist() == [pytest.approx((1 / 30 + 1 / 20) ** 0.5, rel=1e-9), float("inf"), float("inf")]
    for other in fits:
        assert other.status == "infinite"
        # The probability of the forced zero is that of the last gradient, below 1e-6.
        torch.testing.assert_close(other.standard_errors(coding), expected, rtol=1e-4, atol=0)


@QUIET
def test_empty_margins_of_a_decomposable_model_are_all_there_is():
    # a - b - c with one empty cell of (a, b) and one empty level of c: the linear program is the oracle.
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 3})
    counts = np.arange(1.0, 19).reshape(2, 3, 3)
    counts[0, 1] = 0
    counts[:, :, 2] = 0
    data = Observations.from_table(domain, counts)
    hypergraph = InteractionHypergraph.from_formula(domain, "a*b + b*c")
    dense = fit(hypergraph, data)
    margins = fit(
        hypergraph,
        data.marginal_counts(hypergraph.edges),
        partition=Enumeration(),
        stopping=Stopping(tolerance=1e-7),
    )
    for coding in ("free", "corner", "balanced"):
        expected = dense.standard_errors(coding)
        torch.testing.assert_close(margins.standard_errors(coding), expected, rtol=1e-4, atol=0)
    expected = dense.standard_errors("corner")
    assert 0 < int(torch.isinf(expected).sum()) < len(expected)


@QUIET
def test_errors_are_refused_where_what_is_identified_is_unknown():
    data = load_table("titanic")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    dense = fit(hypergraph, data)
    margins = fit(hypergraph, data.marginal_counts(hypergraph.edges), partition=Enumeration())
    with pytest.raises(IntractableError, match="the estimate is infinite, and beyond the empty margins"):
        coefficient_table(margins)
    contrasts = parametrization(hypergraph).matrix("free", "corner")
    assert torch.equal(margins.is_identified(contrasts), dense.is_identified(contrasts))
    # Not decided, and infinite all the same: margins without zeros that force two cells to zero.
    counts = np.arange(3, 11).reshape(2, 2, 2).astype(float)
    counts[0, 0, 0] = counts[1, 1, 1] = 0
    facial = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}), counts)
    pairs = InteractionHypergraph.from_order(facial.domain, 2)
    for options in ({"partition": Enumeration()}, {"method": "lbfgs"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            open_fit = fit(pairs, facial.marginal_counts(pairs.edges), **options)
        assert open_fit.existence.exists is None
        with pytest.raises(IntractableError, match="whether the estimate is finite was not decided"):
            coefficient_table(open_fit)


def test_a_small_gradient_proves_that_an_undecided_estimate_is_finite():
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    exact = fit(hypergraph, data)
    open_fit = fit(
        hypergraph, data.marginal_counts(hypergraph.edges), partition=Enumeration(), stopping=Stopping(tolerance=1e-8)
    )
    assert (exact.existence.exists, open_fit.existence.exists) == (True, None)
    torch.testing.assert_close(open_fit.standard_errors("corner"), exact.standard_errors("corner"), rtol=1e-5, atol=0)


def test_balanced_errors_of_a_large_saturated_model_stay_small():
    domain = Domain.from_cardinalities([2] * 8)
    counts = torch.randint(1, 20, domain.cardinalities, generator=torch.Generator().manual_seed(0))
    result = fit(InteractionHypergraph.saturated(domain), Observations.from_table(domain, weights=counts.double()))
    # A binary balanced entry is a free parameter over sqrt(2)^|S|.
    errors, free = result.standard_errors("balanced"), result.standard_errors("free")
    for edge, where in result.hypergraph.term_slices.items():
        position = result.hypergraph.parameter_slices[edge].start
        expected = free[position] / 2 ** (len(edge) / 2)
        torch.testing.assert_close(errors[where], expected.expand(2 ** len(edge)), rtol=1e-10, atol=0)


def test_residuals_of_independence_have_their_closed_form():
    domain = Domain.from_cardinalities({"a": 2, "b": 3})
    counts = np.array([[12.0, 7.0, 9.0], [5.0, 16.0, 3.0]])
    frame = cell_table(fit(InteractionHypergraph.from_order(domain, 1), Observations.from_table(domain, counts)))
    total, rows, columns = counts.sum(), counts.sum(1), counts.sum(0)
    for (i, j), row in zip(itertools.product(range(2), range(3)), frame.itertuples(), strict=True):
        expected = rows[i] * columns[j] / total
        scale = np.sqrt(expected * (1 - rows[i] / total) * (1 - columns[j] / total))
        assert row.expected == pytest.approx(expected)
        assert row.residual == pytest.approx((counts[i, j] - expected) / np.sqrt(expected))
        assert row.adjusted_residual == pytest.approx((counts[i, j] - expected) / scale)
    assert frame.columns.tolist() == ["a", "b", "observed", "expected", "residual", "adjusted_residual"]


def test_saturated_cells_have_no_adjusted_residual(two_by_two):
    frame = cell_table(two_by_two)
    np.testing.assert_allclose(frame["observed"], frame["expected"], rtol=1e-9)
    assert frame["adjusted_residual"].isna().all()


def test_tables_refuse_what_they_cannot_use(two_by_two):
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    with raises("no-method", "result"):
        cell_table(fit(hypergraph, data, penalty=L2(1.0)))
    with raises("no-method", "covariance"):
        coefficient_table(fit(hypergraph, data, objective="pseudo-likelihood"))
    with pytest.raises(IntractableError, match="64 cells"):
        cell_table(fit(hypergraph, data, method="lbfgs", partition=Enumeration()))
    with raises("missing-part", "result"):
        cell_table(fit(hypergraph, data.marginal_counts(hypergraph.edges)))
    with raises("unknown-choice", "target"):
        coefficient_table(two_by_two, coding="dummy")
