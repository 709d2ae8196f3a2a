"""What a person who brings a first data frame gets wrong: one clear answer each, before any work."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import InputError
from pyro_hoim.errors import DataWarning, InputTypeError, NonexistentEstimateWarning, UnknownNameError

CELLS = pd.DataFrame({"wet": list("yynn"), "cold": list("ynyn"), "Freq": [30, 10, 20, 40]})


@pytest.fixture
def rows():
    return CELLS.loc[CELLS.index.repeat(CELLS["Freq"])].drop(columns="Freq").reset_index(drop=True)


@pytest.mark.parametrize("say", ["wet*cold", ".^2", 2, [("wet", "cold")]])
def test_counts_that_were_not_named_stop_a_fit(say):
    with pytest.raises(InputError, match="column 'Freq' seems to hold how often each row was seen; say count='Freq'"):
        hoim.fit(say, CELLS)


def test_what_the_message_says_to_say_is_right(rows):
    expected = hoim.fit("wet*cold", rows).log_likelihood
    assert hoim.fit("wet*cold", CELLS, count="Freq").log_likelihood == pytest.approx(expected, rel=1e-12)
    weighted = CELLS.rename(columns={"Freq": "weight"})
    assert hoim.fit("wet*cold", weighted, weights="weight").log_likelihood == pytest.approx(expected, rel=1e-12)
    assert hoim.fit("wet*cold", CELLS, count=None).num_rows == 4


def test_variables_of_such_names_are_taken_where_they_are_meant(rows):
    """Spelled out, not whole, with labels, or of a vague name while rows repeat."""
    assert hoim.fit("n*wet", rows.assign(n=[1, 2] * 50)).num_rows == 100
    assert hoim.fit(".^2", rows.assign(n=[1, 2] * 50)).hypergraph.domain.names == ("wet", "cold", "n")
    assert hoim.fit(".^2", rows.assign(Freq=["often", "never"] * 50)).num_rows == 100
    assert hoim.fit(".^2", rows.assign(weight=pd.Categorical([1, 2] * 50))).num_rows == 100
    assert hoim.fit(rows.assign(weight=[1, 2] * 50), edges=["wet:weight"]).num_rows == 100


def test_the_data_may_be_named_as_an_argument(rows):
    expected = hoim.fit("wet*cold", rows)
    for found in (hoim.fit(data=rows, order=2), hoim.fit(order=2, data=rows), hoim.fit(data=rows, edges=["wet:cold"])):
        torch.testing.assert_close(found.theta, expected.theta, rtol=0, atol=0)
    for call in (lambda: hoim.fit("wet*cold"), lambda: hoim.fit(order=2)):
        with pytest.raises(InputError, match=r"data: expected a data frame or observations, received none"):
            call()


def test_fits_with_a_prior_are_shown_shortly_whatever_their_columns():
    rows = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (100, 30)), columns=[f"x{i}" for i in range(30)])
    shown = repr(hoim.fit(rows, order=2, prior="unit", objective="pseudo-likelihood"))
    assert len(shown) < 400 and "(465 sets)" in shown


def test_learners_refuse_counts_that_were_not_named():
    for learn in (hoim.learn, hoim.learn_network):
        with pytest.raises(InputError, match=r"from_pandas\(frame, count='Freq'\)"):
            learn(CELLS)
    assert hoim.learn_network(CELLS.rename(columns={"Freq": "count"})).num_observations == 100


def test_constant_columns_and_too_many_parameters_warn_at_the_line_that_called(rows):
    with pytest.warns(DataWarning, match="constant column.*place") as told:
        hoim.fit(".^2", rows.assign(place="here"))
    assert [Path(warning.filename).name for warning in told] == [Path(__file__).name]
    few = pd.DataFrame(np.random.default_rng(1).integers(0, 3, (12, 4)), columns=list("abcd"))
    with pytest.warns() as told:
        hoim.fit(".^2", few)
    assert {warning.category for warning in told} == {DataWarning, NonexistentEstimateWarning}
    assert {Path(warning.filename).name for warning in told} == {Path(__file__).name}
    assert "32 parameters for 12 rows" in str(told[0].message) and "prior='unit'" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hoim.fit(".^2", few, prior="unit")
        hoim.fit(".", rows.assign(w=1e-3), weights="w")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda f: hoim.fit(f, "wet*cold"), InputError, "the data frame comes second"),
        (lambda f: hoim.fit("wet*cold", f["wet"]), InputTypeError, "expected Observations or a data frame"),
        (lambda f: hoim.fit("wet*cold", f, weights=np.ones(100)), InputTypeError, "weights: expected the name of a"),
        (lambda f: hoim.fit("wet*cold", f, count=f["wet"]), InputTypeError, "count: expected the name of a column"),
        (lambda f: hoim.fit("wet*cold", f, weight="w"), UnknownNameError, "did you mean 'weights'"),
        (lambda f: hoim.fit("WET*cold", f), UnknownNameError, "did you mean 'wet'"),
        (lambda f: hoim.fit("wet*count", f.assign(count=1)), UnknownNameError, "say count=None"),
        (lambda f: hoim.fit("wet*cold", f).predict(f, ["wet"]), InputTypeError, "target: expected the name of a"),
        (
            lambda f: hoim.fit("wet*cold", f).sample(1, given=["wet"]),
            InputTypeError,
            "given: expected values by column",
        ),
        (lambda f: hoim.fit("wet*cold", f).report(__file__), InputError, "is a file; name a folder"),
    ],
)
def test_wrong_arguments_are_named(rows, call, error, words):
    with pytest.raises(error) as caught:
        call(rows)
    assert words in str(caught.value)


@pytest.mark.parametrize("given", [CELLS, None, "wet*cold"], ids=["frame", "none", "formula"])
def test_what_is_no_fit_is_refused_where_one_is_tested(given):
    for call in (hoim.goodness_of_fit, lambda one: hoim.log_linear.likelihood_ratio_test(one, one)):
        with pytest.raises(InputTypeError, match=r"(result|small): expected the result of fit, received "):
            call(given)
