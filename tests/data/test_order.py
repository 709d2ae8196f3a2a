"""Which order of levels is known, and that scores go by it through every door, as in a Poisson regression.

Oracle of the slopes: statsmodels, on the columns u, v and u*v with u = 0, 1, ... in the order in which the levels of a
table below are written, whatever the order of their text.
"""

import math
import random
import re
import shlex
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import pyro_hoim as hoim
from pyro_hoim.data import Observations, open_rows
from pyro_hoim.data.encoding import level_order
from pyro_hoim.data.frames import as_observations
from pyro_hoim.data.order import known_order, ordered_columns, place_of, with_ordinal
from pyro_hoim.errors import DataWarning, InputError
from pyro_hoim.log_linear import midranks, restricted_interactions
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import raises

from .test_roles import run

pytestmark = pytest.mark.usefixtures("words_alone")

KNOWN = {
    "numbers": [
        "1|2|10", "-1|0|1.5", "0.10|0.25|1.00", "01|02|10", "1,000|2,000|10,000", "5%|10%|100%", "9 km|10 km|100 km",
        "$9|$10|$100", "2k|10k|100k", "1st|2nd|3rd|10th", "stage 2|stage 3|stage 10", "Q1|Q2|Q3|Q4",
        "week 9|week 10|week 11",
    ],
    "ranges of numbers": [
        "5-9|10-14|15+", "<18|18-64|65+", "(0, 3]|(3, 10]|(10, 20]", "(-inf, 3]|(3, 6]|(6, inf]",
        "(-Inf,3]|(3,6]|(6, Inf]", "[0,18)|[18,65)|[65, ∞)", "(0,100]|(100,1e+03]|(1e+03,2e+04]",
        "]0; 3]|]3; 10]|]10; 20]", "<=5|6 to 9|>=10", "≤5|6–9|≥10", "less than 5|5 to 9|10 or more",
        "under 18|18 through 64|65 and over", "0 - 17|18 - 64|over 65", "fewer than 2|2..9|at least 10",
        "up to 9|10-19|more than 19", "Under $10,000|$10,000-19,999|$20,000 – $99,999|$100,000 or more",
        "<10k|10-20k|20k-100k|100k+", "<$1 million|$1-2 million|>$2 million", "0-9%|10-49%|50-100%",
        "0-4 years|5 to 9 years|10 years or older", "<1 year|1-4|5 years and over", "age 5-9|age 10-14|age 15+",
        "aged <18|18 <= age < 65|65+", "between 5 and 9|between 10 and 14|above 14",
        "<30 min|30-59 min|60 min|>60 min", "<5|5-<10|10-<20", "-10--5|-5-0|0-5", "0|1-5|6-10|11+", "9|10|11+",
        "<5|<10|<20|20+", "0-10|10-20|20-30", "18.5-24.9|25-29.9|30+", "1'000-1'999|2'000-9'999|10'000+",
        "5 or less|6-9|10 and more", "17 and younger|18-64|65 & older", "0|1-2 times|3 or more times",
        "<$500k|$500k-$1M|$1M+",
    ],
    "dates": [
        "2019-12|2020-01|2020-11", "2020-01-09|2020-01-10|2020-02-01", "2019Q4|2020Q1|2020Q2", "08:30|09:15|17:00",
    ],
    "a common scale": [
        "low|medium|high", "Low|Moderate|High", "very low|low|medium|high|very high", "VERY_LOW|LOW|HIGH",
        "none|low|high", "never|rarely|sometimes|often|always", "Never|Almost never|Seldom|Frequently",
        "strongly disagree|disagree|neither|agree|strongly agree", "Disagree|Neither agree nor disagree|Agree",
        "StronglyDisagree|Undecided|StronglyAgree", "disagree|somewhat disagree|neutral|somewhat agree|agree",
        "very dissatisfied|neutral|satisfied|very satisfied", "none|mild|moderate|severe",
        "poor|fair|good|very good|excellent", "bad|ok|good", "small|medium|large", "S|M|L|XL",
        "extra small|small|extra large", "first|second|third", "I|II|III|IV", "Stage I|Stage II|Stage III",
        "low risk|medium risk|high risk", "zero|one|two|three", "Mon|Tue|Wed|Sun", "Monday|Wednesday|Saturday",
        "January|April|August|December", "jan|feb|apr",
        "not at all|several days|more than half the days|nearly every day", "very unlikely|unlikely|likely",
        "worse|same|better", "cool|mild|hot", "young|middle-aged|old", "negative|neutral|positive", "low|high",
        "no|yes",
    ],
}  # fmt: skip
UNKNOWN = [
    "north|south|west",
    "a|b|c",
    "primary|secondary|tertiary",  # education
    "1|2|many",
    "low|medium|huge",
    "5-9|5 to 9|10+",  # twice the same range
    "0-17|18+|0-100",  # one within another
    "1 km|500 m|2 km",  # two units
    "500k|1m|2m",  # million, metres, months?
    "500|1.000|2.000",  # thousands?
    "3.8|3.9|3.10",  # versions
    "region 1|region 2|region 3",
    "often|frequently|never",  # two words for one place
    "strongly agree|agree|don't know",
    "9-5|10-14|15+",  # no range
    "low|Low|high",
]
_CELLS = [(20, 80), (50, 40), (81, 20), (60, 30), (95, 9)]


def sets(known):
    return [(source, text.split("|")) for source, texts in known.items() for text in texts]


def frame_of(levels):
    """Counts of two columns, the levels of the first in a shuffled order of rows."""
    rows = [(a, b, n) for a, counts in zip(levels, _CELLS, strict=False) for b, n in zip("yn", counts, strict=True)]
    random.Random(0).shuffle(rows)
    return pd.DataFrame(rows, columns=["a", "b", "count"])


@cache
def slope_of(number):
    """The slope of u in the log odds of b, a step, of a Poisson regression; of two levels the log odds ratio."""
    if number == 2:
        return math.log(_CELLS[1][0] * _CELLS[0][1] / (_CELLS[1][1] * _CELLS[0][0]))
    u, is_y = np.repeat(np.arange(number), 2), np.tile([1.0, 0.0], number)
    levels = np.eye(number)[u][:, 1:]
    design = np.column_stack([np.ones(2 * number), levels, is_y, u * is_y])
    return sm.GLM(np.ravel(_CELLS[:number]), design, sm.families.Poisson()).fit(tol=1e-14, maxiter=200).params[-1]


def fitted(data, formula="linear(a):b"):
    with warnings.catch_warnings(action="ignore", category=DataWarning):  # of ranks, which have a test of their own
        result = hoim.fit(formula, data)
    return result.summary()


def slope(data, formula="linear(a):b"):
    return fitted(data, formula)["estimate"].iloc[0]


@pytest.mark.parametrize(
    ("source", "levels"), sets(KNOWN), ids=lambda value: value if isinstance(value, str) else value[0]
)
def test_scores_go_by_the_known_order_through_every_door(source, levels):
    shuffled = random.Random(1).sample(levels, len(levels))
    found = known_order(Variable("a", tuple(shuffled)))
    assert (found.labels, found.source) == (tuple(levels), source)
    frame, steps = frame_of(levels), slope_of(len(levels))
    unordered = frame.assign(a=pd.Categorical(frame["a"], shuffled))
    backwards = frame.assign(a=pd.Categorical(frame["a"], levels[::-1], ordered=True))
    table = fitted(frame)
    assert table["estimate"].iloc[0] == pytest.approx(steps, abs=1e-6)
    quote = "'" if {"<", ">"} & set("".join(levels)) else ""
    shown = " < ".join(f"{quote}{label}{quote}" for label in levels)
    assert f"order of a: {shown} ({source}" in " ".join(table.attrs["notes"])
    assert slope(unordered) == pytest.approx(steps, abs=1e-6)
    assert slope(backwards) == pytest.approx(-steps, abs=1e-6)  # what is declared wins
    assert abs(steps) > 0.5  # control: the other direction is another slope


@pytest.mark.filterwarnings("ignore:.*look alike")
@pytest.mark.parametrize("levels", [text.split("|") for text in UNKNOWN], ids=lambda levels: levels[0])
def test_an_order_that_nothing_says_is_refused_until_it_is_said(levels):
    frame, steps = frame_of(levels), slope_of(len(levels))
    assert known_order(Variable("a", tuple(levels))) is None
    shuffled = random.Random(1).sample(levels, len(levels))
    unordered = frame.assign(a=pd.Categorical(frame["a"], shuffled))
    for formula in ("linear(a):b", "linear(a, 1, 2, 4):b", "linear(a)*b"):
        with pytest.raises(InputError) as error:
            hoim.fit(formula, frame)
        assert (error.value.code, error.value.argument) == ("unknown-order", "linear(a)")
        assert f"it would be {' < '.join(sorted(levels, key=level_order))};" in str(error.value)
        with pytest.raises(InputError, match=re.escape(f"it would be {' < '.join(shuffled)};")):
            hoim.fit(formula, unordered)
    ordered = frame.assign(a=pd.Categorical(frame["a"], levels, ordered=True))
    assert slope(ordered) == pytest.approx(steps, abs=1e-6)
    other = frame.assign(a=pd.Categorical(frame["a"], [levels[1], levels[0], *levels[2:]], ordered=True))
    assert abs(slope(other) - steps) > 0.05  # control: another declared order has another slope
    rows = as_observations(frame, count="count")
    mapping = {"a": {label: 3.0 + rank for rank, label in enumerate(levels)}}
    result = hoim.log_linear.fit(restricted_interactions(rows.domain, "linear(a):b", scores=mapping), rows)
    assert result.summary()["estimate"].iloc[0] == pytest.approx(steps, abs=1e-6)


def test_the_advice_of_the_refusal_works_when_it_is_pasted():
    levels = ["lo", "mid", "hi"]
    frame = frame_of(levels)
    with pytest.raises(InputError) as error:
        hoim.fit("linear(a):b", frame)
    said = error.value.hint.partition(": ")[2].replace("['hi', 'lo', 'mid']", repr(levels))
    assert slope(frame.assign(a=eval(said, {"pd": pd, "frame": frame}))) == pytest.approx(slope_of(3), abs=1e-6)


def test_scores_that_are_given_go_by_the_known_order():
    """Oracle: the logit of b on the scores, by statsmodels."""
    frame = frame_of(["5-9", "10-14", "15+"])
    logit = sm.GLM(_CELLS[:3], sm.add_constant([1.0, 2.0, 4.0]), sm.families.Binomial()).fit(tol=1e-14)
    assert slope(frame, "linear(a, 1, 2, 4):b") == pytest.approx(logit.params[1], abs=1e-6)
    rows = as_observations(frame, count="count")
    assert rows.domain["a"].labels == ("10-14", "15+", "5-9")
    assert midranks(rows, "a") == [50.5, 145.5, 241.0]  # of 100, 90 and 101 rows
    with raises("unknown-order", "midranks"):
        midranks(as_observations(frame_of(["x", "y", "z"]), count="count"), "a")
    with raises("unknown-name"):
        restricted_interactions(rows.domain, "linear(a):b", scores={"a": {"5-8": 1.0}})
    with raises("wrong-shape"):
        restricted_interactions(rows.domain, "linear(a):b", scores={"a": {"5-9": 1.0}})


@pytest.mark.parametrize("as_text", [False, True])
def test_numbers_that_are_not_equally_far_apart_say_that_ranks_are_used(as_text):
    levels = [1, 2, 4, 5]
    frame = frame_of(list(map(str, levels)) if as_text else levels)
    with pytest.warns(DataWarning, match="levels 1, 2, 4, 5 of 'a' are not equally far apart, and linear"):
        result = hoim.fit("linear(a):b", frame)
    table = result.summary()
    assert table["estimate"].iloc[0] == pytest.approx(slope_of(4), abs=1e-6)
    assert any("the ranks 1 to 4 are used, not the numbers" in note for note in table.attrs["notes"])
    logit = sm.GLM(_CELLS[:4], sm.add_constant(np.array(levels, float)), sm.families.Binomial()).fit(tol=1e-14)
    with warnings.catch_warnings(action="error"):
        numbers = hoim.fit("linear(a, labels):b", frame).summary()
        hoim.fit("linear(a):b", frame_of([2, 4, 6, 8]))  # control: there ranks and numbers are the same model
    assert numbers["estimate"].iloc[0] == pytest.approx(logit.params[1], abs=1e-6)


def test_rows_in_pieces_go_by_the_same_order(tmp_path):
    frame = frame_of(["never", "sometimes", "always"])
    frame.loc[frame.index.repeat(frame["count"]), ["a", "b"]].to_csv(tmp_path / "rows.csv", index=False)
    assert slope(open_rows(tmp_path / "rows.csv")) == pytest.approx(slope_of(3), abs=1e-6)


def test_columns_are_marked_and_sorted():
    domain = Domain.from_labels(
        {"size": ["10-14", "15-19", "5-9"], "age": ["30+", "<20", "20-29"], "how": ["high", "low", "medium"]}
        | {"name": ["a", "b", "c"], "yes": ["0", "1"]}
    )
    rows = Observations.from_tensor(np.array([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [2, 2, 2, 2, 0]]), domain)
    assert ordered_columns(rows) == ("size", "age", "how")
    marked = with_ordinal(rows, ("size", "age", "how"))
    assert marked.domain["size"].labels == ("5-9", "10-14", "15-19")
    assert marked.domain["age"].labels == ("<20", "20-29", "30+")
    assert marked.domain["how"].labels == ("low", "medium", "high")
    assert [v.kind for v in marked.domain] == ["ordinal"] * 3 + ["nominal"] * 2
    assert marked.to_pandas().astype(str).equals(rows.to_pandas().astype(str))
    with raises("unknown-order", "ordinal"):
        with_ordinal(rows, ("size", "name"))


def test_two_levels_stand_as_they_are_and_learned_models_say_their_orders():
    assert known_order(Variable("a", ("right", "left"))).labels == ("right", "left")
    assert place_of("over 65").high == math.inf and place_of("up") is None
    rng = np.random.default_rng(0)
    u = rng.integers(0, 3, 2000)
    words = pd.Categorical.from_codes(u, ["lo", "mid", "hi"], ordered=True)
    learned = hoim.learn(pd.DataFrame({"a": words, "b": rng.random(2000) < 0.2 + 0.3 * u}))
    assert any(note.endswith("alike: lo < mid < hi") for note in learned.summary().attrs["notes"])
    plain = hoim.learn(pd.DataFrame({"a": words.astype(str), "b": rng.random(2000) < 0.2 + 0.3 * u}))
    assert not any("alike" in note for note in plain.summary().attrs["notes"])  # control


# Words that mostly mean missing stay levels, and are told of wherever rows are read.

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
    with warnings.catch_warnings(action="error"):
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
    with warnings.catch_warnings(action="error"):
        assert set(as_observations(pd.DataFrame({"a": levels * 10})).domain["a"].labels) == set(levels)
