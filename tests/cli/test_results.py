"""``compare`` and ``report``: what they print agrees with fits of the library."""

from pathlib import Path

import pytest

from pyro_hoim import InteractionHypergraph, fit, load_table
from pyro_hoim.log_linear import goodness_of_fit, likelihood_ratio_test


def test_models_of_files_are_compared_as_fits_are(shell):
    shell("fit", "hair_eye_color", "--order", "1", "--order", "2", "--out", "o")
    files = [f"o/model-order-{k}.safetensors" for k in (1, 2)]
    found = shell.json("compare", *files, "--on", "hair_eye_color")
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compare", "o", "o"], "MODEL: o is given twice; name every model once"),
        (["compare", "o", "nowhere"], "nowhere: no such file"),
        (["compare", "o", "other"], "models of the same columns"),
        (["compare", "o", "--on", "nowhere.csv"], "nowhere.csv"),
        (["compare", "o", "--on", "titanic"], "titanic: the table lacks column 'Hair'"),
        (["compare"], "MODEL"),
        (["report", "nowhere"], "nowhere: no such file"),
        (["report", "o", "--out", "o"], "--out: folder o exists and is not empty; choose another"),
    ],
)
def test_wrong_models_are_refused(words, told, shell):
    shell("fit", "hair_eye_color", "--order", "1", "--out", "o")
    if "other" in words:
        shell("fit", "titanic", "--order", "1", "--out", "other")
    assert told in shell.refused(*words)
