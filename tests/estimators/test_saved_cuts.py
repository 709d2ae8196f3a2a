"""Models of estimators that cut numbers read the same numbers again, also from their files.

Oracle: pandas.cut at the cut points of the estimator.
"""

import pickle

import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim
from pyro_hoim.estimators import InteractionClassifier, InteractionDensity, InteractionImputer

RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RANDOM.integers(18, 90, 300),
        "height": RANDOM.normal(170, 10, 300).round(1),
        "sex": RANDOM.choice(["f", "m"], 300),
    }
)


def cut(model):
    """The table with labels in place of numbers, by pandas."""
    found = TABLE.copy()
    for name, held in model.info["reading"]["bins"].items():
        edges = [-np.inf, *held["cuts"], np.inf]
        labels = model.domain[name].labels
        found[name] = pd.cut(TABLE[name], edges, right=False, labels=labels).astype(str)
    return found


@pytest.mark.parametrize("family", ["log-linear", "dependency-network"])
@pytest.mark.parametrize("kind", [InteractionDensity, InteractionImputer])
def test_numbers_are_read_by_results_and_files(kind, family, tmp_path):
    estimator = kind(family=family, random_state=0).fit(TABLE)
    estimator.result_.save(tmp_path / "m.safetensors")
    loaded = hoim.load(tmp_path / "m.safetensors")
    expected = hoim.score(loaded, cut(loaded))["nll"]
    for model in (estimator.result_, loaded, pickle.loads(pickle.dumps(estimator)).result_):
        assert hoim.score(model, TABLE)["nll"] == pytest.approx(expected, abs=1e-9)
    predicted = hoim.predict(loaded, TABLE.drop(columns="sex"), "sex")
    assert predicted["p(f)"].tolist() == pytest.approx(hoim.predict(loaded, cut(loaded), "sex")["p(f)"].tolist())


def test_classifiers_and_tables_without_numbers(tmp_path):
    classifier = InteractionClassifier().fit(TABLE[["age", "height"]], TABLE["sex"])
    again = pickle.loads(pickle.dumps(classifier))
    assert (again.predict(TABLE[["age", "height"]]) == classifier.predict(TABLE[["age", "height"]])).all()
    density = InteractionDensity().fit(TABLE[["sex"]])  # control: nothing is cut
    density.result_.save(tmp_path / "m.safetensors")
    assert "reading" not in hoim.load(tmp_path / "m.safetensors").info
