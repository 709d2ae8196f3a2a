"""One hypothesis has one p-value: in summaries, tests, comparisons, the command and its report."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import pyro_hoim as hoim


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
        assert "Tests of interactions" in page
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
    assert re.search(r"Of \d tests? the p-values are rough", page)
