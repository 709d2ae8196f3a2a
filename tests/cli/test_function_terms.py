"""``--edges`` with scores of ordered levels, symmetry and diagonals: fitted and compared as the library does it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pyro_hoim import InteractionHypergraph, fit, load, load_table
from pyro_hoim.data.order import relabelled
from pyro_hoim.log_linear import goodness_of_fit, likelihood_ratio_test, load_model, restricted_interactions, save_model

LINEAR, NONE, WHOLE = "linear(Class):Sex", "Class + Sex", "Class*Sex"
EDGES = [word for formula in (LINEAR, NONE, WHOLE) for word in ("--edges", formula)]
COLUMNS = ("--columns", "Class,Sex")
LEVELS = ("--levels", "class.json")


@pytest.fixture(autouse=True)
def order_of_class(shell):
    """A file with the order of the classes, which their labels do not say."""
    Path("class.json").write_text('{"Class": ["1st", "2nd", "3rd", "Crew"]}')


def test_a_formula_with_functions_is_fitted_and_compared_as_in_the_library(shell):
    found = shell.json("fit", "titanic", *COLUMNS, *EDGES, *LEVELS, "--out", "o")
    data = load_table("titanic").project(["Class", "Sex"])
    data = relabelled(data, [replace(data.domain["Class"], kind="ordinal")])
    structures = {
        LINEAR: restricted_interactions(data.domain, LINEAR),
        NONE: InteractionHypergraph.from_formula(data.domain, NONE),
        WHOLE: InteractionHypergraph.from_formula(data.domain, WHOLE),
    }
    fits = {name: fit(structure, data) for name, structure in structures.items()}
    for record in found["models"]:
        test = goodness_of_fit(fits[record["name"]], p_value=None)
        assert (record["g2"], record["df"]) == (pytest.approx(test.deviance, abs=1e-6), test.df_adjusted)
    assert {record["name"]: record["df"] for record in found["models"]} == {LINEAR: 2, NONE: 3, WHOLE: 0}
    nested = {(test["small"], test["big"]): test["statistic"] for test in found["nested_tests"]}
    assert set(nested) == {(NONE, LINEAR), (LINEAR, WHOLE)}  # the linear model is between the others
    for (small, big), statistic in nested.items():
        assert statistic == pytest.approx(likelihood_ratio_test(fits[small], fits[big]).statistic, abs=1e-6)
    (file,) = Path("o").glob("model-linear-*")
    kept = load(file)
    assert torch.allclose(kept.model.theta, fits[LINEAR].theta, atol=1e-6) and kept.info["is_restricted"]
    assert not torch.allclose(kept.model.theta, fits[WHOLE].theta, atol=1e-2)  # control: another model


def test_files_of_restricted_models_are_not_taken_for_whole_ones(shell):
    for name, formula in (("small", "Class + Sex + Age"), ("whole", "Class*Sex + Age"), ("big", LINEAR + " + Age")):
        shell("fit", "titanic", "--edges", formula, *LEVELS, "--out", name)
    file = load_model("big/model.safetensors")
    save_model("big/model.safetensors", replace(file, tensors={}))  # as of an earlier version
    found = shell.json("compare", "small", "big")
    assert found["notes"] == [
        "big is not tested against small: its file does not say which tables the functions of its formula allow"
    ]
    assert "p_value" not in found["models"][1]
    control = shell.json("compare", "small", "whole")
    assert control["notes"] == [] and control["models"][1]["test_df"] == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--edges", "linear(Class:Sex"], "expected ), received ':'"),
        (["--edges", "linear(Clas):Sex"], "did you mean 'Class'"),
        (["--edges", "cubic(Class):Sex"], "cubic"),
        (["--edges", "symmetric(Class, Sex)"], "must be two variables with the same levels"),
        (["--edges", LINEAR, "--prior", "unit"], "fitted by maximum likelihood, received --prior"),
        (["--edges", LINEAR, "--posterior"], "fitted by maximum likelihood, received --posterior"),
        (["--edges", LINEAR, "--edges", "linear(Class, 2, 4, 6, 8):Sex"], "has the same interactions as"),
        (["--edges", "Class:Sex"], "not closed under subsets"),
    ],
)
def test_wrong_formulas_are_refused(words, told, shell):
    shell.refused("fit", "titanic", *LEVELS, *words, says=[told])
