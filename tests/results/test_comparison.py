"""Comparisons of models against closed forms, and what is refused."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import xlogy
from scipy.stats import binomtest, chi2

import pyro_hoim as hoim
from pyro_hoim import Domain, InteractionHypergraph, Observations, fit, learn_network, load_table
from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.log_linear import L2, goodness_of_fit, likelihood_ratio_test


@pytest.fixture(scope="module")
def czech():
    data = load_table("czech_autoworkers")
    return data, {k: fit(InteractionHypergraph.from_order(data.domain, k), data) for k in (1, 2, 3)}


def test_criteria_tests_and_gains(czech):
    data, fits = czech
    table = hoim.compare({f"order {k}": result for k, result in fits.items()}, data)
    for k, result in fits.items():
        row, quality = table.loc[f"order {k}"], goodness_of_fit(result, p_value=None)
        assert row[["AIC", "BIC", "deviance", "df"]].tolist() == pytest.approx(
            [quality.aic, quality.bic, quality.deviance, quality.df_adjusted], rel=1e-10
        )
        assert row["mean_log_likelihood"] == pytest.approx(result.log_likelihood / data.total_count, rel=1e-10)
    test = likelihood_ratio_test(fits[1], fits[2], "chi-square")
    found = table.loc["order 2", ["statistic", "test_df", "p_value"]].tolist()
    assert found == pytest.approx([test.statistic, test.df_adjusted, test.p_value])
    assert table["against"].fillna("").tolist() == ["", "order 1", "order 2"]
    assert ">order 2</td>" in table._repr_html_()  # names stand in the index
    # The gain over the first model and its error, paired row by row.
    values = [fits[k].row_log_likelihood(data).to_numpy() for k in (1, 2)]
    change = np.repeat(values[1] - values[0], data.counts.numpy().astype(int))
    gain, error = table.loc["order 2", ["gain", "gain_std_error"]]
    assert gain == pytest.approx(change.mean(), rel=1e-9)
    assert error == pytest.approx(change.std() / math.sqrt(len(change)), rel=1e-9)
    unpaired = math.sqrt(sum(np.repeat(v, data.counts.numpy().astype(int)).var() for v in values) / len(change))
    assert unpaired > 1.5 * error  # control


def test_digits_tell_models_of_many_rows_apart():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    rows = Observations.from_table(domain, [[101_000, 100_000], [100_000, 101_000]])
    fits = {str(k): fit(InteractionHypergraph.from_order(domain, k), rows) for k in (1, 2)}
    table = hoim.compare(fits)
    shown = str(table).split()
    for name in ("log_likelihood", "AIC", "BIC"):
        one, two = (f"{value:.2f}" for value in table[name])
        assert one != two and {one, two} <= set(shown)
        assert f"{table[name].iloc[0]:.4g}" == f"{table[name].iloc[1]:.4g}"  # control: four digits do not


def test_what_cannot_be_compared_is_said(czech):
    data, fits = czech
    network = learn_network(data)
    ridge = fit(fits[2].hypergraph, data, penalty=L2(1.0))
    half = fit(fits[1].hypergraph, data.rows(torch.arange(len(data.codes)) % 3 > 0))
    table = fits[2].compare(network, ridge, half)
    assert table["AIC"].isna().tolist() == [False, True, True, False]
    notes = " ".join(table.attrs["notes"])
    assert "different numbers of rows" in notes and "which these are not: model 2, model 3" in notes
    assert "model 1 is not tested against model 4: " in notes and "same observations" in notes
    held = hoim.compare({"network": network, "loglinear": fits[2]}, data)
    assert "mean log likelihood" in str(held)  # the network is small enough for its distribution
    wide = Domain.from_cardinalities(dict.fromkeys("abcdefghijklmnopqrst", 2))
    rows = Observations.from_tensor(torch.randint(2, (60, 20), generator=torch.Generator().manual_seed(0)), wide)
    pair = {"net": learn_network(rows), "single": fit(InteractionHypergraph.from_order(wide, 1), rows)}
    table = hoim.compare(pair, rows)
    assert "mean log pseudo-likelihood" in str(table)
    expected = pair["single"].row_log_likelihood(rows, pseudo=True).mean()
    assert table.loc["single", "mean_log_likelihood"] == pytest.approx(expected)


def test_bad_input_is_refused_in_one_line(czech):
    data, fits = czech
    other = Observations.from_table(Domain.from_cardinalities({"a": 2}), [3, 4])
    with pytest.raises(InputError, match="same columns"):
        fits[1].compare(fit(InteractionHypergraph.from_order(other.domain, 1), other))
    with pytest.raises(InputError, match="one model at least"):
        hoim.compare({})
    with pytest.raises(InputTypeError, match="models by name"):
        hoim.compare([fits[1]])
    with pytest.raises(InputTypeError):
        hoim.compare({"a": pd.DataFrame()})
    assert len(data.domain) == 6


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
def test_p_values_hold_their_size_where_the_chi_square_distribution_does_not():
    """Independent columns of eight levels and sixty rows: the exact test keeps its level, too few df do not."""
    generator = torch.Generator().manual_seed(7)
    domain = Domain.from_cardinalities({"a": 8, "b": 8})
    found, naive = [], []
    for _ in range(12):
        rows = Observations.from_tensor(torch.randint(8, (60, 2), generator=generator), domain)
        fits = [fit(InteractionHypergraph.from_order(domain, k), rows) for k in (1, 2)]
        table = fits[1].compare(fits[0])
        found.append(float(table["p_value"].iloc[0]))
        naive.append(chi2.sf(table["statistic"].iloc[0], fits[1].num_parameters_fitted - fits[0].num_parameters_fitted))
        assert "p-value: exact; small expected counts" in table.attrs["notes"][-1]
    assert binomtest(sum(p <= 0.05 for p in found), 12, 0.05, alternative="greater").pvalue > 1e-6
    assert binomtest(sum(p <= 0.05 for p in naive), 12, 0.05, alternative="greater").pvalue < 1e-6  # control


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
def test_models_are_tested_that_have_as_many_finite_parameters():
    """Oracle: the margins of all pairs leave one table, the observed one, and those of two pairs have a closed form."""
    counts = np.array([[[165.0, 0], [153, 16]], [[20, 171], [0, 175]]])
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    rows = Observations.from_table(domain, counts)
    big, small = hoim.fit(".^2", rows), hoim.fit("a*c + b*c", rows)
    assert big.num_parameters_fitted == small.num_parameters_fitted
    law = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / counts.sum((0, 1))
    statistic = 2 * float(xlogy(counts, counts / law).sum())
    for table in (big.compare(small), small.compare(big)):
        (tested,) = table.dropna(subset="p_value").to_dict("records")
        assert tested["statistic"] == pytest.approx(statistic, abs=1e-6) and tested["test_df"] == 1
        assert tested["p_value"] == pytest.approx(chi2.sf(statistic, 1), rel=1e-6)


def test_criteria_stand_empty_under_weights_and_tests_do_not_change_with_their_unit():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({name: rng.choice(list("xyz"), 400) for name in "abc"}).assign(w=rng.gamma(2.0, 1.0, 400))
    found = []
    for factor in (1.0, 10.0):
        scaled = frame.assign(w=factor * frame["w"])
        small, big = (hoim.fit(formula, scaled, weights="w") for formula in ("a + b + c", "a*b + c"))
        table = big.compare(small)
        assert not {"AIC", "BIC", "deviance"} & set(table.columns)
        assert "from whole counts, which these are not: model 1, model 2" in table.attrs["notes"][0]
        assert math.isnan(goodness_of_fit(small).aic) and math.isnan(goodness_of_fit(small).bic)
        found.append(table["p_value"].iloc[0])
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    counted = hoim.fit("a + b + c", frame.assign(w=1.0), weights="w")
    assert "AIC" in counted.compare(hoim.fit("a*b + c", frame.drop(columns="w")))  # control: weights of one are counts


def test_weighted_rows_with_missing_cells_have_the_p_value_of_their_design_effect():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({name: rng.choice(list("xy"), 300) for name in "ab"}).assign(w=rng.gamma(2.0, 1.0, 300))
    frame["a"] = frame["a"].where(rng.random(300) > 0.2)
    small, big = (hoim.fit(f, frame, weights="w", missing="marginalise") for f in ("a + b", "a*b"))
    table = big.compare(small)
    statistic = 2 * (big.log_likelihood - small.log_likelihood)
    assert table["statistic"].dropna().tolist() == pytest.approx([statistic])
    # Of one degree of freedom the effect of the design is a ratio of variances.
    robust, model = (float(big.standard_errors("corner", kind)[-1]) for kind in ("robust", "model"))
    expected = chi2.sf(statistic * (model / robust) ** 2, 1)
    assert table["p_value"].dropna().tolist() == pytest.approx([expected], rel=1e-6)
    assert abs(expected - chi2.sf(statistic, 1)) > 0.01  # control: weights for numbers of observations
