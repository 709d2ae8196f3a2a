"""Models compared: several of one ``fit``, and files by ``compare``, as the library compares their fits."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2

import pyro_hoim as hoim
from pyro_hoim import InteractionHypergraph, Observations, fit, load_table
from pyro_hoim.log_linear import goodness_of_fit, likelihood_ratio_test

from support.verbs import verb_first

EDGES = "Hair*Eye + Sex"
HOLES = "a,b\n" + "x,0\n" * 9 + "x,1\n" * 3 + "y,0\n" * 2 + "y,1\n" * 8 + "x,\ny,\n,1\n"


def test_several_models_are_compared_as_the_library_does(shell):
    found = shell.json("fit", "hair_eye_color", "--order", "1", "--order", "2", "--edges", EDGES, "--out", "o")
    data = load_table("hair_eye_color")
    graphs = {f"order {k}": InteractionHypergraph.from_order(data.domain, k) for k in (1, 2)}
    graphs[EDGES] = InteractionHypergraph.from_formula(data.domain, EDGES)
    fits = {name: fit(graph, data) for name, graph in graphs.items()}
    assert [record["name"] for record in found["models"]] == list(graphs)
    for record in found["models"]:
        test = goodness_of_fit(fits[record["name"]], p_value=None)
        assert record["g2"] == pytest.approx(test.deviance) and record["df"] == test.df_adjusted
        assert (record["aic"], record["bic"]) == pytest.approx((test.aic, test.bic))
    pairs = [("order 1", EDGES), (EDGES, "order 2")]  # order 1 against order 2 has a model between
    assert sorted((t["small"], t["big"]) for t in found["nested_tests"]) == sorted(pairs)
    for test in found["nested_tests"]:
        own = likelihood_ratio_test(fits[test["small"]], fits[test["big"]])
        assert (test["statistic"], test["df"]) == (pytest.approx(own.statistic), own.df_adjusted)
        assert test["p_value"] == pytest.approx(own.p_value)
    best = min(found["models"], key=lambda record: record["aic"])
    assert found["num_parameters"] == best["num_parameters"]
    assert {path.name for path in Path("o").glob("model-*")} == {
        "model-order-1.safetensors",
        "model-order-2.safetensors",
        *(path.name for path in Path("o").glob("model-*Hair*")),
    }


def test_models_that_are_not_nested_have_no_likelihood_ratio(shell):
    found = shell.json("fit", "hair_eye_color", "--edges", EDGES, "--edges", "Hair + Eye*Sex", "--out", "o")
    assert found["nested_tests"] == [] and len(found["models"]) == 2


def test_with_missing_cells_criteria_are_of_the_known_cells_and_their_number_is_told(shell):
    Path("h.csv").write_text(HOLES, encoding="utf-8")
    found = shell.json("fit", "h.csv", "--order", "1", "--order", "2", "--missing", "marginalise", "--out", "o")
    assert found["goodness_of_fit"] is None and "missing cells" in found["goodness_of_fit_reason"]
    assert found["summed_cells"] == 3
    domain = Observations.from_csv("h.csv").domain
    # Cells of two binary columns by EM, from the counts of complete rows and of rows with one known cell.
    complete = torch.tensor([[9.0, 3.0], [2.0, 8.0]], dtype=torch.float64)
    first, second = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0])
    p = complete / complete.sum()
    for _ in range(10_000):
        p = complete + first[:, None] * p / p.sum(1, keepdim=True) + second * p / p.sum(0)
        p = p / p.sum()
    value = (complete * p.log()).sum() + (first * p.sum(1).log()).sum() + (second * p.sum(0).log()).sum()
    record = found["models"][1]
    assert domain.names == ("a", "b") and record["log_likelihood"] == pytest.approx(float(value), abs=1e-6)
    assert record["aic"] == pytest.approx(-2 * float(value) + 2 * 3, abs=1e-5)
    text = shell("fit", "h.csv", "--order", "2", "--missing", "marginalise", "--out", "p").out
    assert "3 missing cells were summed over (--missing marginalise)." in text
    assert "Whether the model misses something was not tested: with missing cells" in text
    control = shell.json("fit", "h.csv", "--order", "2", "--missing", "drop", "--out", "q")
    assert control["goodness_of_fit_reason"] is None and control["summed_cells"] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--order", "1", "--order", "1"], "--order: given twice; give every model once"),
        (["--edges", "Hair", "--edges", "Hair"], "--edges: given twice; give every model once"),
        (["--order", "1", "--edges", "Hair + Eye + Sex"], "Hair + Eye + Sex has the same interactions as order 1"),
        (["--order", "1", "--order", "9"], "--order: expected 1 to 3 (the number of variables), received 9"),
        (["--order", "2", "--edges", "Hair*Height"], "unknown variable 'Height'"),
        (["learn", "--max-order", "2", "--max-order", "3"], "--max-order: several are compared for given interactions"),
        (["structures", "--max-order", "2", "--max-order", "3"], "--max-order: several are compared"),
        (["learn", "--edges", "Hair*Eye"], "--edges: belongs to pyro-hoim fit"),
    ],
)
def test_wrong_models_are_refused(words, told, shell):
    assert told in shell.refused(*verb_first("hair_eye_color", *words))


def test_other_families_take_one_order(shell):
    Path("c.csv").write_text("a,b\n1,0\n0,2\n3,1\n", encoding="utf-8")
    line = shell.refused("fit", "c.csv", "--model", "grm", "--order", "1", "--order", "2")
    assert line.startswith("--order: several are compared for given interactions of a log-linear model only")


def test_models_of_files_are_compared_as_fits_are(shell):
    shell("fit", "hair_eye_color", "--order", "1", "--order", "2", "--out", "o")
    files = [f"o/model-order-{k}.safetensors" for k in (1, 2)]
    found = shell.json("compare", *files, "--data", "hair_eye_color")
    data = load_table("hair_eye_color")
    fits = [fit(InteractionHypergraph.from_order(data.domain, k), data) for k in (1, 2)]
    for record, own in zip(found["models"], fits, strict=True):
        test = goodness_of_fit(own, p_value=None)
        assert (record["AIC"], record["BIC"]) == pytest.approx((test.aic, test.bic))
        assert record["mean_log_likelihood"] == pytest.approx(own.log_likelihood / 592)
    ratio = likelihood_ratio_test(*fits, "chi-square")
    small, big = found["models"]
    assert (big["against"], big["test_df"]) == (small["model"], ratio.df) and small["statistic"] is None
    assert (big["statistic"], big["p_value"]) == pytest.approx((ratio.statistic, ratio.p_value))
    assert [record["model"] for record in found["models"]] == ["model-order-1", "model-order-2"]
    assert big["gain"] == pytest.approx((fits[1].log_likelihood - fits[0].log_likelihood) / 592)
    shown = shell("compare", *files)
    assert shown.out.splitlines()[0].split()[:3] == ["model", "family", "parameters"]
    assert "mean_log_likelihood" not in shown.out


def test_estimates_that_maximise_nothing_or_saw_other_rows_are_not_tested(shell):
    for name, options in [("a", ["--prior", "unit"]), ("b", []), ("c", ["--split", "0.8,0,0.2"])]:
        shell("fit", "hair_eye_color", "--order", "1" if name == "b" else "2", *options, "--out", name)
    found = shell.json("compare", "a", "b", "c")
    records = {record["model"]: record for record in found["models"]}
    assert records["a"]["AIC"] is None and records["b"]["AIC"] is not None
    assert all("statistic" not in record for record in found["models"])
    notes = " ".join(found["notes"])
    assert "the files do not tell that the rows were the same" in notes and "which these are not: a" in notes


def test_a_page_of_a_model_file_is_written(shell):
    shell("fit", "hair_eye_color", "--order", "2", "--out", "o")
    assert shell("report", "o/model.safetensors", "--out", "page").out == "report: page/report.html\n"
    html = Path("page/report.html").read_text(encoding="utf-8")
    assert "Hair:Eye" in html and str(Path.cwd()) not in html
    assert shell("report", "o").out == "report: pyro-hoim-report-o/report.html\n"


def test_wrong_files_are_refused(shell):
    shell("fit", "hair_eye_color", "--order", "1", "--out", "o")
    shell("fit", "titanic", "--order", "1", "--out", "other")
    for words, told in (
        ("compare o o", "MODEL: o is given twice; name every model once"),
        ("compare o nowhere", "nowhere: no such file"),
        ("compare o other", "models of the same columns"),
        ("compare o --data nowhere.csv", "nowhere.csv"),
        ("compare o --data titanic", "titanic: the table lacks column 'Hair'"),
        ("compare", "MODEL"),
        ("report nowhere", "nowhere: no such file"),
        ("report o --out o", "--out: folder o exists and is not empty; choose another"),
    ):
        shell.refused(*words.split(), says=[told])


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
