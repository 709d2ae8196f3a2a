"""Words that mostly mean missing stay levels, and are told of wherever rows are read.

Oracle: the same rows with pandas' missing cells in their place.
"""

import re
import shlex
import warnings

import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim
from pyro_hoim.data import open_rows
from pyro_hoim.data.frames import as_observations
from pyro_hoim.errors import DataWarning

from .test_roles import run

SHELL = ["NA", "<NA>", "?", ".", "..", "*", "--"]  # some of which a shell reads otherwise
WORDS = [
    "nan", "NaN", "None", "NaT", "N/A", "n/a", "#N/A", "null", "-", *SHELL,
]  # fmt: skip
PROGRAMS = [
    "#N/A N/A", "-1.#IND", "1.#QNAN", "#DIV/0!", "#VALUE!", "—", "–", ".a", "[NA]", "(missing)", "NULL ",
    "not available",
]  # fmt: skip
RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame({name: RANDOM.choice(["x", "y"], 200) for name in "ab"})
HOLES = ROWS.where(RANDOM.random(ROWS.shape) > 0.1)


def estimator(frame):
    from pyro_hoim.estimators import InteractionDensity

    return InteractionDensity().fit(frame)


DOORS = {
    "fit": lambda d: hoim.fit("a*b", d),
    "learn": hoim.learn,
    "network": hoim.learn_network,
    "as_observations": as_observations,
    "from_pandas": hoim.Observations.from_pandas,
    "from_numpy": lambda d: hoim.Observations.from_numpy(d.to_numpy().astype(str)),
    "open_rows": open_rows,
    "estimator": estimator,
}


@pytest.mark.parametrize("word", [*WORDS, *PROGRAMS])
def test_words_for_missing_are_told(word, tmp_path):
    frame = HOLES.fillna(word)
    for door in DOORS if word == "?" else ["as_observations"]:
        with pytest.warns(DataWarning, match="levels like others are") as told:
            DOORS[door](frame)
        (told,) = [str(one.message) for one in told if "levels like others" in str(one.message)]
        names = "'x0', 'x1'" if door == "from_numpy" else "'a', 'b'"
        first = f" (of {names[: len(names) // 2 - 1]}" if word < "x" else ""
        assert f"levels like others are {word!r} of {names}{first}" in told
        assert f"missing_values=('', {word!r})" in told or door == "estimator"
    frame.to_csv(tmp_path / "d.csv", index=False)
    with pytest.warns(DataWarning, match="levels like others"):
        assert hoim.Observations.from_csv(tmp_path / "d.csv").domain["a"].labels == (*sorted([word.strip(), "x", "y"]),)
    with pytest.warns(DataWarning, match="levels like others"):
        open_rows(tmp_path / "d.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hoim.fit("a*b", frame, missing="drop", missing_values=("", word))
    expected = hoim.fit("a*b", HOLES.dropna())
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-9)


@pytest.mark.parametrize("word", SHELL)
def test_the_advice_of_the_command_line_works_when_it_is_pasted(word, tmp_path):
    HOLES.fillna(word).to_csv(tmp_path / "d.csv", index=False)
    words = ["fit", tmp_path / "d.csv", "--order", "2", "--out"]
    status, told = run(*words, tmp_path / "one")
    (advice,) = re.findall(r"; (--missing .*) makes them missing", told)
    assert status == 0 and f"{word!r} of 'a', 'b'" in told
    status, told = run(*words, tmp_path / "two", "--missing", "drop", *shlex.split(advice))
    complete = len(HOLES.dropna())
    assert status == 0 and "4 possible rows" in told and f"{complete} rows stayed" in told.replace("\n", " ")


@pytest.mark.parametrize(
    "levels", [["none", "some"], ["+", "-"], ["+", "–"], ["x", "y"], ["na-na", "nano"], ["0", "-1"], ["(na", "a.b"]]
)
def test_control_other_words_are_not_told(levels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(as_observations(pd.DataFrame({"a": levels * 10})).domain["a"].labels) == set(levels)
