"""Coefficients, odds ratios and residuals against closed forms and identities."""

import itertools
import warnings

import numpy as np
import pytest
import torch

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.errors import InputError, IntractableError, NonexistentEstimateWarning, UnknownNameError
from pyro_hoim.learning import L2, cell_table, coefficient_table, fit, odds_ratio_table
from pyro_hoim.models import parametrization
from pyro_hoim.partition import Enumeration
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph


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
    assert frame.loc[0, "upper"] - frame.loc[0, "estimate"] == pytest.approx(
        1.959963984540054 * frame.loc[0, "std_error"]
    )
    swapped = odds_ratio_table(two_by_two, "drug", "cured", first_levels=("new", "old"))
    assert swapped.loc[0, "estimate"] == pytest.approx(-np.log(6.0))


def test_odds_ratios_are_those_of_the_fitted_cells():
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(data.domain, 3), data)
    probs = result.probs.reshape(data.domain.cardinalities).numpy()
    frame = odds_ratio_table(result, "Hair", "Eye", first_levels=(1, 3), second_levels=("Blue", "Green"))
    b, g = (data.domain["Eye"].code(v) for v in ("Blue", "Green"))
    for sex, row in frame.iterrows():
        expected = np.log(probs[3, g, sex] * probs[1, b, sex] / (probs[3, b, sex] * probs[1, g, sex]))
        assert row["estimate"] == pytest.approx(expected, abs=1e-8)
    assert frame["Sex"].tolist() == list(data.domain["Sex"].labels)
    one = odds_ratio_table(result, "Hair", "Eye", given={"Sex": "Female"})
    assert set(one["Sex"]) == {"Female"}
    assert len(one) == 9


def test_without_three_way_interaction_the_odds_ratio_has_no_modifier():
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    assert len(odds_ratio_table(result, "Hair", "Eye")) == 9
    with pytest.raises(InputError, match="does not modify"):
        odds_ratio_table(result, "Hair", "Eye", given={"Sex": "Male"})
    with pytest.raises(UnknownNameError, match="did you mean 'Hair'"):
        odds_ratio_table(result, "hair", "Eye")
    with pytest.raises(InputError, match="two different levels"):
        odds_ratio_table(result, "Hair", "Eye", first_levels=(1, 1))
    with pytest.raises(InputError, match="level: expected a number between 0 and 1"):
        odds_ratio_table(result, "Hair", "Eye", level=95)


def test_an_absent_interaction_has_odds_ratio_one():
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(data.domain, 1), data)
    frame = odds_ratio_table(result, "Hair", "Eye")
    assert (frame["estimate"] == 0).all()
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
    backend = fit(hypergraph, data, penalty=L2(2.0), method="lbfgs", partition=Enumeration(), tolerance=1e-8)
    np.testing.assert_allclose(backend.information, dense.information, rtol=1e-4, atol=1e-3)
    plain = fit(hypergraph, data)
    assert float(plain.covariance.trace()) > float(dense.covariance.trace())


def test_infinite_coefficients_have_infinite_standard_errors():
    data = load_table("titanic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonexistentEstimateWarning)
        result = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    frame = coefficient_table(result)
    infinite = frame[np.isinf(frame["std_error"])]
    names = (infinite["interaction"] + " " + infinite["levels"]).tolist()
    assert names == ["Class Crew", "Class:Age Crew, Adult"]
    assert infinite["p_value"].isna().all()
    odds = odds_ratio_table(result, "Class", "Age", first_levels=("1st", "Crew"))
    assert np.isinf(odds.loc[0, "std_error"])


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
    with pytest.raises(InputError, match="without penalty"):
        cell_table(fit(hypergraph, data, penalty=L2(1.0)))
    pseudo = fit(hypergraph, data, objective="pseudo-likelihood")
    with pytest.raises(InputError, match="expected a fit of the likelihood"):
        coefficient_table(pseudo)
    backend = fit(hypergraph, data, method="lbfgs", partition=Enumeration())
    with pytest.raises(IntractableError, match="64 cells"):
        cell_table(backend)
    with pytest.raises(InputError, match="sufficient statistics"):
        cell_table(fit(hypergraph, data.marginal_counts(hypergraph.edges)))
    with pytest.raises(InputError, match="expected one of 'free', 'corner', 'balanced'"):
        coefficient_table(two_by_two, coding="dummy")
