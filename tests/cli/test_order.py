"""The order of levels at the command line: told in full, refused where unknown, said by ``--levels``, unmarked.

Oracle of the slopes: the logit of b on 0, 1, 2 by statsmodels.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from command_line import messages

from pyro_hoim import load

from support.verbs import verb_first

COUNTS = [(20, 80), (50, 40), (81, 20)]
SLOPE = sm.GLM(COUNTS, sm.add_constant([0.0, 1.0, 2.0]), sm.families.Binomial()).fit(tol=1e-14).params[1]


def table_of(levels, name="t.csv"):
    rows = [(a, b, n) for a, counts in zip(levels, COUNTS, strict=True) for b, n in zip("yn", counts, strict=True)]
    pd.DataFrame(rows[::-1], columns=["a", "b", "count"]).to_csv(name, index=False)
    return name


def slope_of(found):
    (line,) = [line for line in found["coefficients"] if line["term"].startswith("linear")]
    return line["estimate"]


@pytest.mark.parametrize(
    ("levels", "source"),
    [
        (["low", "medium", "high"], "a common scale"),
        (["under 5", "5-9", "10 or more"], "ranges of numbers"),
        (["(-inf, 3]", "(3, 6]", "(6, inf]"], "ranges of numbers"),
        (["2", "10", "18"], "numbers"),
    ],
)
def test_the_known_order_is_used_and_told(levels, source, shell):
    found = shell.json("fit", table_of(levels), "--edges", "linear(a):b", "--out", "o")
    assert slope_of(found) == pytest.approx(SLOPE, abs=1e-6)
    assert found["orders"] == {"a": levels} and found["ordinal_columns"] == ["a"]
    told = f"Taken as ordered: a: {' < '.join(levels)} ({source})."
    assert told.replace("<", "&lt;") in Path("o/report.html").read_text(encoding="utf-8")
    assert told in shell("fit", "t.csv", "--edges", "linear(a):b", "--out", "p").out


@pytest.mark.parametrize("levels", [["x", "z", "y"], ["medium", "high", "low"]])  # what is said wins over a scale
def test_an_order_is_said_by_levels(levels, shell):
    source = table_of(levels)
    Path("l.json").write_text(json.dumps({"a": levels}))
    pd.DataFrame({"column": "a", "level": levels}).to_csv("l.csv", index=False)
    for file in ("l.json", "l.csv"):
        found = shell.json("fit", source, "--edges", "linear(a):b", "--levels", file, "--out", file[2:])
        assert slope_of(found) == pytest.approx(SLOPE, abs=1e-6)
    Path("l.json").write_text(json.dumps({"a": levels[::-1]}))
    other = shell.json("fit", source, "--edges", "linear(a):b", "--levels", "l.json", "--out", "other")
    assert slope_of(other) == pytest.approx(-SLOPE, abs=1e-6)  # control


def test_an_unknown_order_is_refused_with_a_file_that_says_it(shell):
    source = table_of(["x", "z", "y"])
    for words in (["--edges", "linear(a):b"], ["--edges", "a*b + linear(a, 1, 2, 5):b"], ["learn", "--ordinal", "a"]):
        shown = shell.refused(*verb_first(source, *words), says=["would be x < y < z; say it by --levels FILE"])
    file = json.loads(shown.partition("as JSON: ")[2])
    assert file == {"a": ["x", "y", "z"]}
    Path("l.json").write_text(json.dumps({"a": ["x", "z", "y"]}))
    shell("learn", source, "--ordinal", "a", "--levels", "l.json", "--out", "o")
    assert (load("o").domain["a"].labels, load("o").domain["a"].kind) == (("x", "z", "y"), "ordinal")
    shell("learn", source, "--levels", "l.json", "--out", "p")
    assert load("p").domain["a"].kind == "nominal"  # control: a list of levels alone ties no neighbours


def test_ranks_of_numbers_are_said_once(shell):
    shown = shell("fit", table_of(["1", "2", "5"]), "--edges", "linear(a):b", "--out", "o")
    (warning,) = messages(shown.err)
    assert "the levels 1, 2, 5 of 'a' are not equally far apart, and linear(a) takes their ranks" in warning
    assert "Taken as ordered: a: 1 < 2 < 5 (numbers; the ranks 1 to 3 are used, not the numbers)." in shown.out


def test_ordinal_none_unmarks_what_a_file_declares(shell):
    rng = np.random.default_rng(0)
    declared = pd.Categorical.from_codes(rng.integers(0, 4, 200), ["b", "a", "d", "c"], ordered=True)
    ages = rng.choice(["10-19", "20-29", "5-9", "30-39"], 200)
    frame = pd.DataFrame({"a": declared, "words": rng.choice(["low", "mid", "high"], 200), "age": ages})
    frame.to_parquet("t.parquet")
    kinds = {}
    for said in ("auto", "none", "words", "a"):
        found = shell.json("learn", "t.parquet", "--ordinal", said, "--out", said)
        domain = load(said).domain
        kinds[said] = [variable.kind for variable in domain]
        assert domain["a"].labels == ("b", "a", "d", "c")
        assert list(found["orders"]) == [v.name for v in domain if v.kind == "ordinal"]
        assert all(order == list(domain[name].labels) for name, order in found["orders"].items())
    o, n = "ordinal", "nominal"
    assert kinds == {"auto": [o, o, o], "none": [n, n, n], "words": [o, o, n], "a": [o, n, n]}
    assert load("auto").domain["age"].labels == ("5-9", "10-19", "20-29", "30-39")
    page = Path("auto/report.html").read_text(encoding="utf-8")
    assert "words: low &lt; mid &lt; high (a common scale); age: 5-9 &lt; 10-19 &lt; 20-29 &lt; 30-39 (ranges" in page
    assert "Neighbouring levels of age are taken to be alike: 5-9 &lt; 10-19" in page
    assert "Taken as ordered" not in Path("none/report.html").read_text(encoding="utf-8")  # control
