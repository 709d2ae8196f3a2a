"""Tests of nested models by their files: the p-values that rows give, or a line that says what is lacking."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import pyro_hoim as hoim

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")

CYCLE = "a*b + b*c + c*d + a*d"


def columns(num_rows, levels, seed, *, lost=()):
    """Rows of columns that depend on each other, without those that hold all of the lost levels; written to t.csv."""
    random = np.random.default_rng(seed)
    shared = random.normal(size=num_rows)
    frame = pd.DataFrame(
        {
            name: pd.qcut(0.6 * shared + random.normal(size=num_rows), size, labels=False)
            for name, size in zip("abcd", levels, strict=False)
        }
    )
    if lost:
        frame = frame[~(frame[list(lost)] == 1).all(axis=1)]
    frame.astype(str).to_csv("t.csv", index=False)
    return frame.astype(str)


def compared(shell, formulas, *options):
    """What ``compare`` says of the files of two models, the smaller first: its record of the larger, and notes."""
    shell("fit", "t.csv", *(word for formula in formulas for word in ("--edges", formula)), *options, "--out", "o")
    files = [next(path for path in Path("o").glob("model-*") if hoim.load(path).info["name"] == f) for f in formulas]
    for name, file in zip(("small", "big"), files, strict=True):
        file.rename(f"{name}.safetensors")
    found = shell.json("compare", "small.safetensors", "big.safetensors")
    return found["models"][1], found["notes"]


@pytest.mark.parametrize(
    ("num_rows", "levels", "lost", "formulas", "method"),
    [
        (400, (2, 2, 3), "", ("a*b + c", "a*b + b*c"), "chi-square"),
        (120, (2, 2, 3, 4), "", (CYCLE, f"{CYCLE} + a*c + b*d"), "bartlett"),
        (1500, (2, 3, 2), "ab", ("a*b + c", "a*b + b*c + a*c"), "chi-square"),  # no row has both
        (200, (3, 4, 3), "", ("a*c + linear(b):c", "a*c + b*c"), "chi-square"),
        (1500, (2, 3, 2), "ab", ("a*b + b*c + a*c", "a*b*c"), "chi-square"),  # one of two degrees is not estimable
    ],
)
def test_files_have_the_p_values_of_the_rows(shell, num_rows, levels, lost, formulas, method):
    frame = columns(num_rows, levels, 4, lost=lost)
    record, notes = compared(shell, formulas)
    fits = [hoim.fit(formula, frame) for formula in formulas]
    with_rows = fits[0].compare(fits[1])
    test = hoim.log_linear.likelihood_ratio_test(*fits)
    assert test.p_value_method == method and (test.df != test.df_adjusted) == ("a*b*c" in formulas)
    own = with_rows.iloc[1]
    assert record["test_df"] == own["test_df"] == test.df_adjusted
    assert record["p_value"] == pytest.approx(own["p_value"], rel=1e-5)
    names = [("model 1", "small"), ("model 2", "big")]
    assert notes == [n.replace(*names[0]).replace(*names[1]) for n in with_rows.attrs["notes"]]


@pytest.mark.parametrize(("levels", "is_rough"), [((5, 4, 4), False), ((3, 4, 3), True)])
def test_where_the_rows_are_needed_a_line_says_so(shell, levels, is_rough):
    frame, formulas = columns(48, levels, 4), ("a*c + b*c", "a*b + a*c + b*c")
    record, (note,) = compared(shell, formulas)
    test = hoim.log_linear.likelihood_ratio_test(*(hoim.fit(formula, frame) for formula in formulas))
    assert test.p_value_method == "exact" and record["statistic"] == pytest.approx(test.statistic)
    assert note.endswith("exact tests and drawn tables take the rows")
    if is_rough:
        assert note.startswith("big against small, p-value: bartlett; rough: small expected counts")
        assert record["p_value"] == pytest.approx(test.p_value, abs=0.1)
        assert record["p_value"] != pytest.approx(chi2.sf(test.statistic, test.df_adjusted), rel=0.01)  # control
    else:
        assert record.get("p_value") is None
        assert note.startswith("big against small, p-value: none; small expected counts move the mean")


def test_rows_with_missing_cells_have_no_p_value_by_files_either(shell):
    Path("t.csv").write_text("a,b\n" + "x,0\nx,1\ny,1\ny,0\ny,1\n" * 20 + "x,\ny,\n,1\n" * 3, encoding="utf-8")
    record, notes = compared(shell, ("a + b", "a*b"), "--missing", "marginalise")
    assert "p_value" not in record and "of rows with missing cells it is not known" in " ".join(notes)
    Path("o").rename("other")
    assert math.isfinite(compared(shell, ("a + b", "a*b"), "--missing", "drop")[0]["p_value"])  # control
