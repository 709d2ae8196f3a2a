"""What a person who brings a first data frame gets wrong: one clear answer each, before any work."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim
from pyro_hoim import InputError
from pyro_hoim.errors import DataWarning, InputTypeError, NonexistentEstimateWarning, UnknownNameError

CELLS = pd.DataFrame({"wet": list("yynn"), "cold": list("ynyn"), "Freq": [30, 10, 20, 40]})


@pytest.fixture
def rows():
    return CELLS.loc[CELLS.index.repeat(CELLS["Freq"])].drop(columns="Freq").reset_index(drop=True)


@pytest.mark.parametrize("name", ["Freq", "FREQUENCY", "n", "cases", "weight", "wt"])
@pytest.mark.parametrize("say", ["wet*cold", ".^2", 2, [("wet", "cold")]])
def test_counts_and_weights_that_were_not_named_stop_a_fit(name, say):
    role = "weights" if name.startswith("w") else "count"
    with pytest.raises(InputError, match=f"column '{name}' seems to hold") as caught:
        hoim.fit(say, CELLS.rename(columns={"Freq": name}))
    assert f"{role}='{name}'" in str(caught.value) and "count=None" in str(caught.value)


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
