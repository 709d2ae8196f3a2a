"""Several orders and formulas in one call of ``fit``: the models are compared as the library compares them."""

from pathlib import Path

import pytest
import torch

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
    assert "G² against the saturated model is not given: with missing cells" in text
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
        (["learn", "--order", "2", "--order", "3"], "--order: several are compared for given interactions"),
        (["structures", "--order", "2", "--order", "3"], "--order: several are compared"),
        (["learn", "--edges", "Hair*Eye"], "--edges: belongs to pyro-hoim fit"),
    ],
)
def test_wrong_models_are_refused(words, told, shell):
    assert told in shell.refused(*verb_first("hair_eye_color", *words))


def test_other_families_take_one_order(shell):
    Path("c.csv").write_text("a,b\n1,0\n0,2\n3,1\n", encoding="utf-8")
    line = shell.refused("fit", "c.csv", "--model", "grm", "--order", "1", "--order", "2")
    assert line.startswith("--order: several are compared for given interactions of a log-linear model only")
