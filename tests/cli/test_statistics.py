"""Statistics of a fit are the same on every page of every command, and those of the library and of statsmodels."""

import json
import re
from math import log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.stats import chi2, norm
from statsmodels.stats.multitest import multipletests

import pyro_hoim as hoim
from pyro_hoim import load_table


def table(path, empty):
    """Three columns: b follows a, c follows b; with ``empty`` no row has a = 2 and b = 1 together."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 2000)
    b = np.where(rng.random(2000) < 0.2, 1 - a % 2, a % 2)
    b[(a == 2) & empty] = 0
    c = np.where(rng.random(2000) < 0.2, 1 - b, b)
    path.write_text("a,b,c\n" + "".join(f"{x},{y},{z}\n" for x, y, z in zip(a, b, c, strict=True)), encoding="utf-8")
    return str(path)


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
@pytest.mark.parametrize("empty", [True, False])
def test_every_command_counts_the_parameters_that_the_rows_identify(shell, empty):
    file = table(Path("rows.csv"), empty)
    # 2 + 1 + 1 single variables, 2 of a:b and 1 of b:c; the empty combination of a and b takes one away, and two cells.
    family, identified, cells = 7, 7 - empty, 12 - 2 * empty

    shell("fit", file, "--edges", "a*b + b*c", "--out", "fit")
    shell("learn", file, "--out", "learned")
    fitted, learned = (json.loads(Path(name, "fit.json").read_text(encoding="utf-8")) for name in ("fit", "learned"))
    (record,) = fitted["models"]
    assert fitted["num_parameters"] == record["num_parameters"] == identified
    assert fitted["goodness_of_fit"]["df"] == record["df"] == cells - 1 - identified
    assert record["aic"] == pytest.approx(2 * identified - 2 * record["log_likelihood"], rel=1e-12)
    assert record["bic"] == pytest.approx(log(2000) * identified - 2 * record["log_likelihood"], rel=1e-12)

    assert [edge for edge in learned["edges"] if len(edge) > 1] == [["a", "b"], ["b", "c"]]
    assert (learned["num_parameters"], learned["num_parameters_family"]) == (identified, family)
    assert all("num_parameters" not in entry for entry in learned["selection"]["rounds"])
    words = "6 parameters that the rows identify (7 of the family), estimated" if empty else "7 parameters, estimated"
    for folder, shown in (("fit", f'class="number">{identified}</td>'), ("learned", words)):
        html = re.sub(r'src="data:[^"]*"', "", Path(folder, "report.html").read_text(encoding="utf-8"))
        assert shown in html
        assert "num_parameters" not in shell.json("score", folder, file)


def written(num_rows, levels, seed, *, has_weights=False):
    """Rows of columns that go with one hidden number, and weights w that are not whole."""
    random = np.random.default_rng(seed)
    hidden = random.normal(size=num_rows)
    columns = {
        name: pd.qcut(0.5 * hidden + random.normal(size=num_rows), size, labels=False)
        for name, size in zip("abcdefgh", levels, strict=False)
    }
    frame = pd.DataFrame(columns).astype(str)
    if has_weights:
        frame["w"] = random.gamma(2.0, 1.0, num_rows).round(3)
    frame.to_csv("rows.csv", index=False)
    return frame


def collected(shell, frame, pair, formula):
    """P-values of the same hypothesis, those of Wald's statistic and those of the likelihood ratio."""
    weights = {"weights": "w"} if "w" in frame else {}
    extra = ["--weights", "w"] if weights else []
    big = hoim.fit(".^2", frame, **weights)
    small = hoim.fit(formula, frame, **weights)
    found = {"wald": [], "likelihood-ratio": []}
    rows = {}
    for method, values in found.items():
        rows[method] = big.test_terms(method=method).set_index("term").loc[pair]
        values.append(rows[method]["p_value"])
        told = shell.json("fit", "rows.csv", "--order", "2", "--tests", method, "--out", method, *extra)
        values.append(next(row["p_value"] for row in told["tests"] if row["term"] == pair))
        if method == "wald":
            values += [row["p_value"] for row in told["coefficients"] if row["term"] == pair]
        kept = shell.json("interactions", method, "--no-information")["interactions"]
        values.append(next(row["p_value"] for row in kept if ":".join(row["edge"]) == pair))
        page = Path(method, "report.html").read_text(encoding="utf-8")
        assert "Is every interaction needed?" in page
    summary = big.summary()
    found["wald"] += summary.loc[summary["term"] == pair, "p_value"].tolist()
    found["likelihood-ratio"].append(big.compare(small)["p_value"].iloc[0])
    told = shell.json("fit", "rows.csv", "--edges", formula, "--order", "2", "--out", "two", *extra)
    found["likelihood-ratio"].append(told["nested_tests"][0]["p_value"])
    return found, rows


def without(columns, pair):
    pairs = [f"{a}:{b}" for i, a in enumerate(columns) for b in columns[i + 1 :] if f"{a}:{b}" != pair]
    return " + ".join([*columns, *pairs])


@pytest.mark.parametrize(("num_rows", "levels"), [(300, (2,) * 4), (300, (2,) * 6), (900, (2, 2, 3, 4))])
def test_every_table_gives_the_same(shell, num_rows, levels):
    frame = written(num_rows, levels, 1)
    found, rows = collected(shell, frame, "a:b", without(list(frame.columns), "a:b"))
    for method, values in found.items():
        assert values == pytest.approx([chi2.sf(rows[method]["statistic"], 1)] * len(values), rel=1e-6)
        assert len(values) >= 5
    assert not np.isclose(found["wald"][0], found["likelihood-ratio"][0], rtol=1e-9)  # two statistics


@pytest.mark.parametrize(("num_rows", "is_rough"), [(600, False), (60, True)])
def test_weighted_rows_have_the_same_everywhere_too(shell, num_rows, is_rough):
    frame = written(num_rows, (2, 2, 3), 1, has_weights=True)
    found, rows = collected(shell, frame, "a:b", without(list("abc"), "a:b"))
    for method, values in found.items():
        assert values == pytest.approx([rows[method]["p_value"]] * len(values), rel=1e-6) and len(values) >= 5
        assert rows[method]["note"].startswith("rough: small expected counts") == is_rough
    assert rows["wald"]["p_value_method"] == "chi-square" and rows["likelihood-ratio"]["p_value_method"] == "rao-scott"
    counted = hoim.fit(".^2", frame, weights="w").summary(covariance="model").set_index("term")
    assert found["wald"][0] != pytest.approx(counted.loc["a:b", "p_value"], rel=0.01)  # control: weights as counts


def test_where_chi_square_fails_every_table_has_the_exact_test_and_says_so(shell):
    frame = written(60, (3, 4, 3), 2)
    found, rows = collected(shell, frame, "a:b", without(list(frame.columns), "a:b"))
    ratio, wald = rows["likelihood-ratio"], rows["wald"]
    assert ratio["p_value_method"] == "exact" and found["likelihood-ratio"] == [ratio["p_value"]] * 5
    assert ratio["p_value"] != pytest.approx(chi2.sf(ratio["statistic"], 6), rel=1e-3)  # control
    assert wald["p_value"] == pytest.approx(chi2.sf(wald["statistic"], 6)) and wald["note"].startswith("rough: small")
    page = Path("wald/report.html").read_text(encoding="utf-8")
    assert re.search(r"In \d tests? p is rough", page)


EDGES = "Admit*Gender + Gender*Dept + Admit*Dept"


@pytest.fixture(scope="module")
def peer():
    """The same model by another program: treatment contrasts against the first level."""
    cells = load_table("ucb_admissions").to_pandas()
    domain = load_table("ucb_admissions").domain
    factors = {v.name: f"C({v.name}, levels={list(v.labels)})" for v in domain}
    formula = "count ~ (" + " + ".join(factors.values()) + ")**2"
    return smf.glm(formula, cells, family=sm.families.Poisson()).fit(tol=1e-12), list(factors.values())


def test_coefficients_and_tests_are_those_of_statsmodels(shell, peer):
    model, factors = peer
    found = shell.json("fit", "ucb_admissions", "--edges", EDGES, "--level", "0.9", "--out", "o")
    rows = [row for row in found["coefficients"] if row["term"] == "Admit:Dept"]
    names = [n for n in model.params.index if n.count(":") == 1 and "Gender" not in n]
    assert len(rows) == len(names) == 5 and found["level"] == 0.9
    for row in rows:
        (name,) = (name for name in names if f"[T.{row['levels'].split(', ')[1]}]" in name)
        assert row["estimate"] == pytest.approx(model.params[name], abs=1e-6)
        assert row["std_error"] == pytest.approx(model.bse[name], rel=1e-6)
        assert (row["lower"], row["upper"]) == pytest.approx(tuple(model.conf_int(0.1).loc[name]), abs=1e-5)
        assert row["p_value"] == pytest.approx(model.pvalues[name], rel=1e-4, abs=1e-12)
    wald = model.wald_test_terms(scalar=True).table
    tests = {row["term"]: row for row in found["tests"]}
    own = {f"{a}:{b}": wald.loc[f"{x}:{y}"] for (a, x), (b, y) in _pairs(factors)}
    for term, row in tests.items():
        assert (row["statistic"], row["df"]) == (
            pytest.approx(own[term]["statistic"], rel=1e-5),
            5 if "Dept" in term else 1,
        )
        assert row["p_value"] == pytest.approx(own[term]["pvalue"], rel=1e-3, abs=1e-15)
    adjusted = multipletests([row["p_value"] for row in tests.values()], method="fdr_bh")[1]
    assert [row["p_value_adjusted"] for row in tests.values()] == pytest.approx(adjusted.tolist())
    assert not np.allclose(adjusted, [row["p_value"] for row in tests.values()], rtol=0.1, atol=0)  # control


def _pairs(factors):
    names = ["Admit", "Gender", "Dept"]
    named = [(n, next(f for f in factors if f.startswith(f"C({n},"))) for n in names]
    return [(named[i], named[j]) for i in range(3) for j in range(i + 1, 3)]


def test_the_model_file_keeps_them_for_the_command_interactions(shell):
    fitted = shell.json("fit", "ucb_admissions", "--edges", EDGES, "--out", "o")
    wide, narrow = (
        shell.json("interactions", "o", "--level", level, "--no-information")["interactions"]
        for level in ("0.95", "0.5")
    )
    tests = {row["term"]: row for row in fitted["tests"]}
    for row, other in zip(wide, narrow, strict=True):
        width = norm.ppf(0.975) * row["std_error"]
        assert (row["lower"], row["upper"]) == pytest.approx((row["coefficient"] - width, row["coefficient"] + width))
        assert other["upper"] - other["lower"] < row["upper"] - row["lower"]
        test = tests.get(":".join(row["edge"]))
        assert row["p_value"] == (None if test is None else test["p_value"])
    signed = next(row for row in wide if row["edge"] == ["Admit", "Gender"])
    corner = next(row for row in fitted["coefficients"] if row["term"] == "Admit:Gender")
    assert 4 * signed["std_error"] == pytest.approx(corner["std_error"])  # balanced entries are a quarter of log odds
    text = shell("interactions", "o").out.splitlines()
    assert text[0].split()[:7] == ["interaction", "strength", "coefficient", "SE", "lower", "upper", "p"]


def test_the_page_and_the_text_show_them(shell):
    text = shell("fit", "ucb_admissions", "--edges", EDGES, "--tests", "likelihood-ratio", "--out", "o").out
    assert "Is every interaction needed?" in text and "likelihood ratio" in text and "adjusted p" in text
    page = Path("o/report.html").read_text(encoding="utf-8")
    assert "All coefficients" in page and "Intervals: 95 %." in page and "Benjamini and Hochberg" in page
    found = json.loads(Path("o/fit.json").read_text(encoding="utf-8"))
    assert found["tests_method"] == "likelihood-ratio"
    assert found["tests"][0]["statistic"] == pytest.approx(1.53, abs=0.005)  # Agresti's G2 of no effect of gender


def test_what_has_none_says_nothing_of_them(shell):
    shell("fit", "ucb_admissions", "--model", "dependency-network", "--out", "n")
    assert "All coefficients" not in Path("n/report.html").read_text(encoding="utf-8")
    finite = shell.json("fit", "ucb_admissions", "--order", "2", "--prior", "unit", "--out", "p")
    assert finite["tests"] is None and finite["coefficients"][0]["std_error"] > 0
    shell.refused("fit", "ucb_admissions", "--level", "1", says=["--level: expected a number between 0 and 1"])
    shell.refused("learn", "ucb_admissions", "--level", "0.9", says=["--level: belongs to pyro-hoim fit"])
    shell.refused("interactions", "n", "--level", "0.9", says=["--level: not for a dependency network"])
