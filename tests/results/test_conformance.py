"""Every result of every family has every method, with data frames in and out; families of others, too."""

import importlib.util
import re
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import CountTable, InputError, InteractionHypergraph
from pyro_hoim.boltzmann import LearningOptions, fit_machine
from pyro_hoim.core import families, family, register
from pyro_hoim.core.operations import stored_model
from pyro_hoim.data.frames import as_observations
from pyro_hoim.log_linear import FitResult
from pyro_hoim.results import Fitted, LoadedModel
from pyro_hoim.testing import RESULT_CHECKS, ResultCase, check_result

SOURCE = Path(__file__).parents[1] / "toy_family" / "bernoulli_mixture.py"
spec = importlib.util.spec_from_file_location("toy_of_results", SOURCE)
toy = sys.modules["toy_of_results"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(toy)


class ToyResult(toy.Mixture, Fitted):
    """The mixture of the tests with the methods of results."""

    __repr__ = Fitted.__repr__


def frames():
    """People with three answers that belong together, and three counts; the index is no range."""
    rng = np.random.default_rng(5)
    kind = rng.random(240) < 0.5
    labels = {name: np.where(rng.random(240) < np.where(kind, 0.8, 0.3), "yes", "no") for name in ("a", "b", "c")}
    counts = {name: rng.poisson(np.where(kind, 3.0, 1.0)) for name in ("x", "y", "z")}
    index = pd.Index([f"row {i}" for i in range(240)])
    return pd.DataFrame(labels, index=index), pd.DataFrame(counts, index=index)


LABELS, COUNTS = frames()


def mixture(rows):
    """The toy family, fitted."""
    start = torch.tensor([[0.7, 0.6, 0.6], [0.3, 0.3, 0.4]], dtype=torch.float64)
    model = toy.Mixture(rows.domain, torch.full((2,), 0.5, dtype=torch.float64), start)
    for _ in range(20):
        model = model.step(rows)
    return ToyResult(model.domain, model.weights, model.probs)


def made(name):
    """A result by name."""
    rows = as_observations(LABELS)
    graph = InteractionHypergraph.from_order(rows.domain, 2)
    match name:
        case "log-linear":
            return hoim.fit(graph, rows)
        case "log-linear learned":
            return hoim.learn(rows.rows(torch.arange(160)), rows.rows(torch.arange(160, 240)))
        case "dependency-network":
            return hoim.learn_network(rows)
        case "grm":
            return hoim.fit_roots(CountTable.from_pandas(COUNTS), "poisson", order=2, l1=0.01)
        case "rbm":
            return fit_machine(rows, 2, LearningOptions("exact", iterations=300, decay=0.01))
        case _:
            return mixture(rows)


NAMES = ("log-linear", "log-linear learned", "dependency-network", "grm", "rbm", "mixture")


@pytest.fixture(autouse=True, scope="module")
def registered():
    """The toy family beside the others."""
    families()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family, "_FAMILIES", dict(family._FAMILIES))
        register(toy.FAMILY)
        yield


@pytest.fixture(scope="module")
def cases(registered, tmp_path_factory):
    """Every result, what comes back from its file, and a search of interactions."""
    folder, found = tmp_path_factory.mktemp("models"), {}
    for name in NAMES:
        result = made(name)
        rows, target = (COUNTS, "x") if name == "grm" else (LABELS, "a")
        result.save(folder / f"{name}.safetensors")
        found[name] = ResultCase(result, rows, target)
        found[f"{name}, loaded"] = ResultCase(hoim.load(folder / f"{name}.safetensors"), rows, target)
    found["selection"] = ResultCase(found["log-linear learned"].result.selection, LABELS, "a")
    return found


@pytest.mark.parametrize("check", RESULT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [*NAMES, *(f"{name}, loaded" for name in NAMES), "selection"])
def test_result(cases, name, check):
    check(cases[name])


def test_every_family_is_here(cases):
    assert {stored_model(case.result)[0].short for case in cases.values()} == {one.short for one in families()}
    assert all(isinstance(cases[f"{name}, loaded"].result, LoadedModel) for name in NAMES)


class Silent(FitResult):
    """A control: predictions lose the index, and comparisons say nothing."""

    def predict(self, data, target, **options):
        return super().predict(data, target, **options).reset_index(drop=True)

    def plot_fitted(self, ax=None, *, data=None):
        raise InputError("cannot")


def test_control_a_result_that_does_not_conform_fails_by_name(cases):
    own = cases["log-linear"]
    broken = Silent(**{field.name: getattr(own.result, field.name) for field in fields(own.result)})
    with pytest.raises(AssertionError) as caught:
        check_result(ResultCase(broken, own.rows, own.target))
    named = set(re.findall(r"^result: (check_\w+)", str(caught.value), re.MULTILINE))
    assert {"check_predict", "check_plots"} <= named and "check_summary" not in named
    check_result(own)
