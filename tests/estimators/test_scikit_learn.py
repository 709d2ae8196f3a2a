"""The estimators keep scikit-learn's contract, and work with its tools."""

import importlib
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from pyro_hoim.estimators import InteractionClassifier, InteractionDensity, InteractionImputer

EXPECTED_FAILED_CHECKS = {}
"""Checks of scikit-learn that fail, with reasons: none. Numbers are binned where they are no levels."""


@parametrize_with_checks(
    [
        InteractionDensity(),
        InteractionClassifier(),
        InteractionImputer(),
        InteractionClassifier(family="dependency-network"),
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILED_CHECKS,
)
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
def test_checks(estimator, check):
    check(estimator)


def _table(number=200, seed=0):
    """Rows of three columns that depend on one another through a pair and a triple, and a class."""
    rng = np.random.default_rng(seed)
    smoke, work = rng.integers(2, size=(2, number))
    lung = rng.binomial(1, np.where(smoke == work, 0.85, 0.15))
    frame = pd.DataFrame({"smoke": np.array(["no", "yes"])[smoke], "work": work.astype(bool), "lung": lung})
    frame["city"] = pd.Categorical(rng.choice(["b", "a"], number), categories=["b", "a", "c"])
    return frame.set_index(np.arange(number) + 100)


def test_a_search_over_the_order_finds_the_interaction_of_three_columns():
    frame = _table(300)
    folds = GridSearchCV(InteractionDensity(), {"order": [1, 2, 3]}, cv=3).fit(frame)
    assert folds.best_params_ == {"order": 3}
    X, y = frame[["smoke", "work"]], frame["lung"]
    by_order = [cross_val_score(InteractionClassifier(order=k), X, y, cv=3).mean() for k in (2, 3)]
    assert by_order[1] > 0.75 > 0.65 > by_order[0]  # control: pairs alone do not tell
    probs = cross_val_predict(InteractionClassifier(order=3), X, y, cv=3, method="predict_proba")
    assert probs.shape == (300, 2) and np.allclose(probs.sum(1), 1)


def test_pipelines_and_column_transformers():
    frame = _table()
    frame.loc[100:119, "smoke"] = None
    frame["age"] = np.random.default_rng(1).normal(50, 9, len(frame))
    X, y = frame.drop(columns="lung"), frame["lung"].map({0: "well", 1: "ill"})
    steps = make_pipeline(InteractionImputer(random_state=0), InteractionClassifier(edges="y*smoke*work + age + city"))
    fitted = steps.set_output(transform="pandas").fit(X, y)
    assert fitted.score(X, y) > 0.75
    assert fitted.classes_.tolist() == ["ill", "well"]
    filled = fitted[0].transform(X)
    assert filled.dtypes.to_dict() == X.dtypes.to_dict() and not filled.isna().to_numpy().any()
    assert filled.index.equals(X.index) and filled[20:].equals(X[20:])
    encoder = ColumnTransformer([("codes", OrdinalEncoder(), ["smoke", "city"])], remainder="drop")
    both = make_pipeline(encoder, InteractionClassifier(edges="y*x0*x1"))
    assert cross_val_score(both, X[20:], y[20:], cv=3).shape == (3,)


@pytest.mark.parametrize("kind", [InteractionDensity, InteractionClassifier, InteractionImputer])
def test_clones_and_pickles(kind):
    frame = _table()
    X, y = frame[["smoke", "work", "city"]], frame["lung"]
    first = kind(order=2, random_state=3).fit(X, y)
    again = pickle.loads(pickle.dumps(first))
    copy = clone(first).fit(X, y)
    assert copy.get_params() == first.get_params() and copy.feature_names_in_.tolist() == list(X.columns)
    gaps = X.mask(np.random.default_rng(0).random(X.shape) < 0.2)
    if kind is InteractionClassifier:
        found = [model.predict_proba(gaps).tobytes() for model in (first, again, copy)]
    elif kind is InteractionDensity:
        found = [model.score_samples(gaps).tobytes() for model in (first, again, copy)]
        assert first.sample(50).equals(again.sample(50))
    else:
        found = [model.transform(gaps).to_csv() for model in (first, again, copy)]
    assert len(set(found)) == 1


def test_parameters_are_checked_by_the_fit():
    X = np.array([["a", "b"], ["a", "c"], ["b", "b"]])
    for parameters, message in (
        ({"family": "log_linear"}, "unknown family 'log_linear'; did you mean 'log-linear'"),
        ({"family": "dependency-network", "prior": "unit"}, "prior: not for a dependency network.*Dirichlet"),
        ({"options": {"order": 2}, "order": 1}, "options: 'order' is a parameter of its own"),
        ({"options": {"objectiv": "likelihood"}}, "unknown option of a log-linear model 'objectiv'.*objective"),
        ({"bins": 1}, "bins: expected a whole number from 2"),
        ({"options": 5}, "options: expected a mapping of options to values, received"),
        ({"edges": 5}, "edges: expected sets of names, received"),
        ({"handle_unknown": "ignore"}, "handle_unknown: expected 'error' or 'missing'"),
        ({"edges": "x0*x7"}, "unknown variable 'x7'"),
        ({"random_state": "x"}, "random_state: expected None, a whole number .* RandomState, received 'x'"),
        ({"random_state": -1}, "random_state: expected .* from 0 to 4294967295, .* received -1"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            InteractionDensity(**parameters).fit(X)
    with pytest.raises(ValueError, match="a generalized root model has numbers, and this estimator needs levels"):
        InteractionClassifier(family="grm").fit(X, [0, 1, 1])
    with pytest.raises(ValueError, match="target: X has a column 'x1'"):
        InteractionClassifier(target="x1").fit(X, [0, 1, 1])
    with pytest.raises(ValueError, match="there is one most probable completion"):
        InteractionImputer(strategy="most_probable").fit(X).impute(X, 2)


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "pyro_hoim.estimators.joint")
    with pytest.raises(ImportError, match=r"pip install 'pyro-hoim\[sklearn\]'"):
        importlib.import_module("pyro_hoim.estimators.joint")
