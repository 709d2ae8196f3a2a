"""``--prior``: one grammar for every kind of fit, finite estimates, and one clear error where it has no meaning."""

import pytest

from pyro_hoim.datasets import load_table
from pyro_hoim.log_linear import Prior, fit, load_model
from pyro_hoim.structure import InteractionHypergraph

from support.verbs import verb_first


@pytest.mark.parametrize("text", ["unit", "normal:2", "ridge:0.25", "conjugate:1"])
def test_estimates_are_the_finite_mode_under_the_prior(text, shell):
    result = shell.json("fit", "titanic", "--order", "2", "--prior", text, "--out", "out")
    assert result["prior"] == text and result["status"] == "converged" and not result["infinite_combinations"]
    assert result["num_parameters"] == 18 and result["goodness_of_fit"]["p_value_method"] is None
    data = load_table("titanic")
    graph = InteractionHypergraph.from_order(data.domain, 2)
    stored = load_model("out/model.safetensors")
    expected = fit(graph, data, penalty=Prior.parse(text).penalty(graph))
    assert float((stored.theta - expected.theta).abs().max()) < 1e-9
    assert stored.info["prior"] == text and stored.info["infinite_interactions"] == []


def test_without_a_prior_estimates_are_those_of_maximum_likelihood(shell):
    for options in ((), ("--prior", "none")):
        result = shell.json("fit", "titanic", "--order", "2", *options, "--out", f"out{len(options)}")
        assert result["prior"] == "none" and result["status"] == "infinite"


def test_the_report_says_which_prior(shell):
    text = shell("fit", "titanic", "--order", "2", "--prior", "ridge:4", "--out", "out").out
    assert "independent normal priors with standard deviation 0.5 (prior ridge:4): they are finite" in text
    assert "there is no p-value, because the fit is penalised" in text and "infinite" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["titanic", "--prior", "flat"], "--prior: expected none, unit, normal:S, ridge:S or conjugate:N"),
        (["titanic", "--prior", "normal:0"], "--prior: expected none, unit, normal:S, ridge:S or conjugate:N"),
        (["titanic", "--posterior", "--prior", "none"], "--prior: a posterior needs a proper prior, received none"),
        (["titanic", "learn", "--prior", "conjugate:1"], "--prior: a search needs unit, normal:S or ridge:S"),
        (["titanic", "--model", "dependency-network", "--prior", "unit"], "the Dirichlet prior of --alpha"),
        (["titanic", "--model", "grm", "--prior", "unit"], "its coefficients are held back by --l1"),
    ],
)
def test_one_clear_error(options, message, shell):
    assert message in shell.refused(*verb_first(*options, "--out", "out"))


def test_a_search_keeps_the_strengths_of_the_prior(shell):
    options = ["titanic", "learn", "--order", "2", "--trainer", "exact", "--split", "0.6,0.4,0"]
    result = shell.json(*verb_first(*options, "--prior", "ridge:3", "--out", "out"))
    assert result["prior"] == "ridge:3"
    assert {row["ridge"] for row in result["interactions"]} == {3.0}
    free = shell.json(*verb_first(*options, "--out", "free"))
    assert free["prior"] is None and {row["ridge"] for row in free["interactions"]} != {3.0}  # control: the rows choose


def test_rows_with_missing_cells_have_a_mode_too(shell, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,count\nx,u,9\nx,,3\ny,v,6\ny,,5\n", encoding="utf-8")
    result = shell.json("fit", "rows.csv", "--order", "2", "--missing", "marginalise", "--prior", "normal:1")
    assert result["status"] == "converged" and result["prior"] == "normal:1"
