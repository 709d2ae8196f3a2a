"""Standard errors, intervals and tests of interactions, as statsmodels has them for Poisson regression of the cells."""

import json
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.stats import norm
from statsmodels.stats.multitest import multipletests

from pyro_hoim import load_table

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
    for row, name in zip(rows, names, strict=True):
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
    assert "Tests of interactions" in text and "likelihood ratio" in text and "adjusted p" in text
    page = Path("o/report.html").read_text(encoding="utf-8")
    assert "Coefficients and tests" in page and "Intervals: 95 %." in page and "Benjamini and Hochberg" in page
    found = json.loads(Path("o/fit.json").read_text(encoding="utf-8"))
    assert found["tests_method"] == "likelihood-ratio"
    assert found["tests"][0]["statistic"] == pytest.approx(1.53, abs=0.005)  # Agresti's G2 of no effect of gender


def test_what_has_none_says_nothing_of_them(shell):
    shell("fit", "ucb_admissions", "--model", "dependency-network", "--out", "n")
    assert "Coefficients and tests" not in Path("n/report.html").read_text(encoding="utf-8")
    finite = shell.json("fit", "ucb_admissions", "--order", "2", "--prior", "unit", "--out", "p")
    assert finite["tests"] is None and finite["coefficients"][0]["std_error"] > 0
    shell.refused("fit", "ucb_admissions", "--level", "1", says=["--level: expected a number between 0 and 1"])
    shell.refused("learn", "ucb_admissions", "--level", "0.9", says=["--level: belongs to pyro-hoim fit"])
    shell.refused("interactions", "n", "--level", "0.9", says=["--level: not for a dependency network"])
