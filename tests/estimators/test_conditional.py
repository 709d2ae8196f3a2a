"""A class that is fitted alone: against logistic regression, enumeration of its joint distribution, and pandas."""

import itertools
import math
import pickle
import re
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import pyro_hoim as hoim
from pyro_hoim.core.words import plural
from pyro_hoim.errors import CostWarning, DataWarning, HoimError, InputError, UnknownNameError
from pyro_hoim.estimators import InteractionClassifier, InteractionDensity
from pyro_hoim.log_linear.conditional import fit_conditional, number_prior
from pyro_hoim.results.answer import odds_answer


def _table(num_classes, number=300):
    rng = np.random.default_rng(num_classes)
    X = np.column_stack([rng.choice(list(levels), number) for levels in ("abc", "de", "fghi")])
    y = np.where(rng.random(number) < 0.5, (X[:, 0] == "a") + (X[:, 1] == "d"), rng.integers(3, size=number))
    return X, y % num_classes


def _with_gaps(X):
    return np.where(np.random.default_rng(5).random(X.shape) < 0.3, None, X.astype(object))


# Against logistic regression


@pytest.mark.parametrize(("num_classes", "strength"), [(2, 1.0), (2, 0.1), (3, 1.0), (3, 5.0)])
def test_a_class_alone_is_logistic_regression_on_indicators(num_classes, strength):
    X, y = _table(num_classes)
    model = InteractionClassifier(prior=f"ridge:{strength}").fit(X, y)
    # One column of coefficients stands for the difference of two classes, whose squares are half as large together.
    inverse = {2: 2.0, 3: 1.0}[num_classes] / strength
    logistic, other = (
        make_pipeline(OneHotEncoder(), LogisticRegression(C=c, tol=1e-10, max_iter=10_000)).fit(X, y)
        for c in (inverse, inverse / 4)
    )
    assert model.predict_proba(X) == pytest.approx(logistic.predict_proba(X), abs=1e-5)
    assert abs(model.predict_proba(X) - other.predict_proba(X)).max() > 1e-3  # control: another strength


@pytest.mark.parametrize(("num_classes", "prior"), [(2, "ridge:2"), (3, "ridge:1")])
def test_the_default_prior_is_that_of_logistic_regression(num_classes, prior):
    X, y = _table(num_classes)
    default, ridge, wide = (InteractionClassifier(prior=p).fit(X, y).predict_proba(X) for p in (None, prior, "unit"))
    assert default.tolist() == ridge.tolist() and abs(default - wide).max() > 1e-3
    logistic = make_pipeline(OneHotEncoder(), LogisticRegression(tol=1e-10, max_iter=10_000)).fit(X, y)
    assert default == pytest.approx(logistic.predict_proba(X), abs=1e-5)


def test_weights_are_rows_that_are_repeated():
    X, y = _table(3)
    number = np.random.default_rng(3).integers(3, size=len(X))
    number[:20] = 1  # every level counts
    weighted = InteractionClassifier().fit(X, y, sample_weight=number).predict_proba(X)
    repeated = InteractionClassifier().fit(np.repeat(X, number, axis=0), np.repeat(y, number)).predict_proba(X)
    assert weighted == pytest.approx(repeated, abs=1e-5)
    assert abs(weighted - InteractionClassifier().fit(X, y).predict_proba(X)).max() > 0.01  # control: no weights


# Numbers: a prior that ties levels to a line and to their neighbours


def test_the_prior_of_numbers_is_a_line_a_walk_and_levels_by_themselves():
    numbers, shares = np.array([0.0, 1.0, 2.0, 5.0]), np.array([0.1, 0.2, 0.3, 0.4])
    factor = number_prior(numbers, shares, walk=2.0, spread=0.5)
    contrasts = np.diff(np.eye(4), axis=0)
    line = np.diff(numbers) / np.sqrt(shares @ (numbers - shares @ numbers) ** 2)
    expected = np.outer(line, line) + 4 / 3 * np.eye(3) + 0.25 * contrasts @ contrasts.T
    assert contrasts @ factor @ factor.T @ contrasts.T == pytest.approx(expected, abs=1e-12)
    assert number_prior(np.ones(3), np.ones(3) / 3, 2.0, 0.5).tolist() == (0.5 * np.eye(3)).tolist()


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_factor_of_a_prior_is_logistic_regression_on_its_columns(num_classes):
    rng = np.random.default_rng(0)
    codes, factor = rng.integers(6, size=(300, 1)), number_prior(np.arange(6.0), np.full(6, 1 / 6), 1.0, 0.3)
    classes = (codes[:, 0] + rng.integers(4, size=300)) // 2 % num_classes
    strength = {2: 2.0, 3: 1.0}[num_classes]
    ours = fit_conditional(codes, classes, (6, num_classes), np.ones(300), [factor / np.sqrt(strength)])
    logistic = LogisticRegression(tol=1e-10, max_iter=10_000).fit(factor[codes[:, 0]], classes)
    assert np.exp(ours.log_probs(codes)) == pytest.approx(logistic.predict_proba(factor[codes[:, 0]]), abs=1e-5)
    plain = fit_conditional(codes, classes, (6, num_classes), np.ones(300), [strength])
    assert abs(np.exp(plain.log_probs(codes)) - np.exp(ours.log_probs(codes))).max() > 1e-3  # control


@pytest.mark.parametrize("shape", ["line", "hill", "teeth"])
def test_numbers_are_as_free_as_rows_that_are_left_out_say(shape):
    rng = np.random.default_rng(3)
    x = rng.integers(20, size=(4000, 3)) / 20
    logits = {"line": 4 * x - 2, "hill": 2 * np.sin(7 * x), "teeth": np.where(20 * x % 2 > 0.5, 1.0, -1.0)}[shape]
    y = rng.random(4000) < 1 / (1 + np.exp(-logits.sum(1)))
    train, test = slice(0, 2000), slice(2000, 4000)
    probs = InteractionClassifier().fit(x[train], y[train]).predict_proba(x[test])[:, 1]
    truth = 1 / (1 + np.exp(-logits.sum(1)[test]))
    losses = {"default": probs, "truth": truth}
    for name, prior in {"line": (0.5, 0.1), "hill": (2.0, 0.1), "teeth": (1.0, 1.0)}.items():
        factor = number_prior(np.arange(20) / 20, np.full(20, 1 / 20), *prior) / np.sqrt(2)
        codes = np.round(20 * x).astype(int)
        fitted = fit_conditional(codes[train], y[train].astype(int), (20, 20, 20, 2), np.ones(2000), [factor] * 3)
        losses[name] = np.exp(fitted.log_probs(codes[test]))[:, 1]
    losses = {name: log_loss(y[test], loss) for name, loss in losses.items()}
    assert losses["default"] == pytest.approx(losses[shape], abs=1e-3)
    assert losses["default"] < min(
        max(losses[name] for name in ("line", "hill", "teeth")) - 2e-3, losses["truth"] + 0.02
    )


TABLES = {"breast cancer": load_breast_cancer, "iris": load_iris, "wine": load_wine}


@pytest.mark.parametrize("name", TABLES)
def test_the_default_competes_with_logistic_regression(name):
    X, y = TABLES[name](return_X_y=True, as_frame=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    models = InteractionClassifier(), make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    ours, theirs = (cross_val_predict(model, X, y, cv=folds, method="predict_proba") for model in models)
    areas = [roc_auc_score(y, p[:, 1] if p.shape[1] == 2 else p, multi_class="ovr") for p in (ours, theirs)]
    assert areas[0] > areas[1] - 0.01
    assert log_loss(y, ours) < log_loss(y, theirs) + 0.01
    shuffled = np.random.default_rng(0).permutation(len(y))
    assert log_loss(y, ours) < 0.5 * log_loss(y, ours[shuffled])  # control: probabilities of other rows


def test_a_class_that_depends_on_nothing_is_not_predicted():
    rng = np.random.default_rng(0)
    X, y = rng.integers(4, size=(4000, 6)), rng.integers(2, size=4000)
    probs = InteractionClassifier().fit(X[:2000], y[:2000]).predict_proba(X[2000:])[:, 1]
    error = math.sqrt((4000 // 2 + 1) / (12 * 1000**2))  # of the area under the curve, 1,000 rows each
    assert abs(roc_auc_score(y[2000:], probs) - 0.5) < 5 * error


# Against enumeration of the joint distribution


def _joint(model):
    """Probabilities of all states of the model behind a fit, by enumeration."""
    states = torch.cartesian_prod(*(torch.arange(size) for size in model.domain_.cardinalities))
    return (-model.result_.model.energy.energy(states)).softmax(0).reshape(model.domain_.cardinalities).numpy()


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("has_gaps", [False, True])
def test_probabilities_are_the_conditional_of_the_joint_distribution(num_classes, has_gaps):
    X, y = _table(num_classes)
    model = InteractionClassifier().fit(_with_gaps(X) if has_gaps else X, y)
    joint, levels = _joint(model), [[*word, None] for word in ("abc", "de", "fghi")]
    for row in itertools.product(*levels):
        cells = tuple(slice(None) if cell is None else word.index(cell) for cell, word in zip(row, levels, strict=True))
        counts = joint[cells].reshape(-1, num_classes).sum(0)
        probs = model.predict_proba(np.array([row], dtype=object))[0]
        assert probs == pytest.approx(counts / counts.sum(), abs=1e-10)


def test_a_fit_with_missing_cells_is_a_maximum_of_what_sums_over_them():
    rng = np.random.default_rng(0)
    codes, classes = rng.integers(-1, 3, size=(200, 2)), rng.integers(3, size=200)
    classes = np.where(rng.random(200) < 0.5, np.maximum(codes[:, 0], 0), classes)
    fitted = fit_conditional(codes, classes, (3, 3, 3), np.ones(200), [0.5, 2.0])
    shares = [np.exp(part) for part in fitted.log_shares]
    assert shares[0] == pytest.approx(
        [((codes[:, 0] == k).sum() + 1 / 3) / ((codes[:, 0] >= 0).sum() + 1) for k in range(3)]
    )

    def loss(vector):
        intercept, first, second = vector[:3], vector[3:12].reshape(3, 3), vector[12:].reshape(3, 3)
        joint = np.exp(intercept + first[:, None] + second[None]) * (shares[0][:, None] * shares[1])[..., None]
        cells = [tuple(slice(None) if code < 0 else code for code in row) for row in codes]
        laws = np.array([joint[cell].reshape(-1, 3).sum(0) for cell in cells])
        chosen = laws[np.arange(200), classes] / laws.sum(1)
        return -np.log(chosen).sum() + 0.25 * (first**2).sum() + (second**2).sum()

    # Tables sum to zero over the classes, so that slopes count along such directions alone.
    best = np.concatenate([fitted.intercept, *(table.ravel() for table in fitted.tables)])
    assert best.reshape(-1, 3).sum(1) == pytest.approx(np.zeros(7), abs=1e-12)

    def slopes(point):
        sides = [(loss(point + 1e-4 * unit), loss(point - 1e-4 * unit)) for unit in np.eye(len(point))]
        by_class = np.array([above - below for above, below in sides]).reshape(-1, 3) / 2e-4
        return np.abs(by_class - by_class.mean(1, keepdims=True)).max()

    assert fitted.is_converged and slopes(best) < 1e-3
    assert slopes(best + 0.1 * np.eye(len(best))[5]) > 0.1  # control: another point


# Columns: levels that the fit did not meet, numbers, and rows that are read cell by cell


def test_a_level_that_the_fit_did_not_meet_is_a_missing_cell():
    X, y = _table(2)
    model = InteractionClassifier().fit(X, y)
    new, gap = (np.array([["a", cell, "f"]], dtype=object) for cell in ("z", None))
    with pytest.warns(DataWarning, match="taken for missing: 1 cell of 'x1'$"):
        probs = model.predict_proba(new)
    assert probs.tolist() == model.predict_proba(gap).tolist()
    with pytest.raises(UnknownNameError, match="unknown label 'z'"):
        InteractionClassifier(handle_unknown="error").fit(X, y).predict_proba(new)


MIXED = pd.DataFrame(
    {
        "text": ["a", "b", "a", None, "b", "a"] * 5,
        "truth": [True, False, False, True, True, False] * 5,
        "whole": [1, 2, 3, 1, 2, 3] * 5,
        "number": np.linspace(0, 1, 30).round(3),
        "kind": pd.Categorical(["u", "v", "u", "v", "u", "w"] * 5),
        "object": np.array([1, "x", 2.5, None, "x", 1] * 5, dtype=object),
        "gaps": [1.0, math.nan, 2.0, 3.0, 1.0, 2.0] * 5,
        "nullable": pd.array([1, 2, None, 1, 2, 2] * 5, dtype="Int64"),
        "date": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"] * 10),
    }
)


@pytest.mark.parametrize(
    "change", [{}, {"whole": float}, {"truth": int}, {"text": object}, {"whole": str}, {"gaps": object}]
)
def test_few_rows_are_read_as_many_are(change):
    y = [0, 1, 1] * 10
    model = InteractionClassifier().fit(MIXED, y)
    rows = MIXED.astype(change)
    try:
        every = model.predict_proba(rows)
    except InputError as error:
        with pytest.raises(type(error)):
            model.predict_proba(rows[:1])
        return
    for i in range(len(rows)):
        assert model.predict_proba(rows[i : i + 1]).tolist() == [pytest.approx(every[i].tolist(), abs=1e-12)]


def test_saved_models_keep_their_cuts(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 90, 400), "sex": rng.choice(["f", "m"], 400)})
    y = np.where(rng.random(400) < frame["age"] / 100, "ill", "well")
    model = InteractionClassifier(target="state").fit(frame, y)
    model.result_.save(tmp_path / "m.safetensors")
    loaded = hoim.load(tmp_path / "m.safetensors")
    predicted = loaded.predict(frame, "state")
    assert predicted["p(ill)"].to_numpy() == pytest.approx(model.predict_proba(frame)[:, 0], abs=1e-10)
    assert len(loaded.domain["age"].labels) == 32
    assert {*model.predict(frame)} == {"ill", "well"}


def test_odds_ratios_of_a_class_say_why_they_have_no_intervals_and_what_gives_them(tmp_path):
    X, y = _table(2)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = InteractionClassifier().fit(frame, y).result_
    fitted.save(tmp_path / "m.safetensors")
    way = r"pyro_hoim.fit\('y\*\(a \+ b \+ c\)', ...\) gives intervals and tests, and the estimator with edges="
    for model in (fitted, hoim.load(tmp_path / "m.safetensors")):
        odds = model.odds_ratios()
        assert odds["lower"].isna().all()
        for table in (odds, model.summary()):
            assert re.match(
                f"no standard errors: y was fitted given the other columns .*; {way}", table.attrs["notes"][-1]
            )
        with pytest.raises(HoimError, match=f"test_terms: y was fitted given .*; {way}"):
            model.test_terms()
        limit = odds_answer(odds, plural(len(X), "row")).limits[0]
        assert re.match(f"The odds ratios have no intervals. The reason is that y was fitted given .*; {way}", limit)
    # What is named gives them.
    assert hoim.fit("y*(a + b + c)", frame.assign(y=y)).test_terms()["p_value"].notna().any()
    edges = InteractionClassifier(edges="y*(a + b + c)").fit(frame, y).result_
    assert edges.odds_ratios()["lower"].notna().all()
    wide = InteractionClassifier().fit(np.hstack([X, X[:, :2]]), y).result_
    assert "'y*(x0 + x1 + x2 + ...)'" in wide.odds_ratios().attrs["notes"][-1]


def test_thousands_of_numbers_as_levels_say_their_time_before(monkeypatch):
    monkeypatch.setattr("pyro_hoim.estimators.joint.fit_scored", Mock(side_effect=KeyboardInterrupt))
    rows = np.arange(4000)
    frame, y = pd.DataFrame({"n": rows % 2500, "text": (rows % 3000).astype(str)}), rows % 2
    words = (
        r"seconds, because 'n' has 2,500 levels of numbers; bins=\{'n': 'spread:32'\} cuts them, and exclude=\['n'\]"
    )
    with pytest.warns(CostWarning, match=words), pytest.raises(KeyboardInterrupt):
        InteractionClassifier(allow=["n", "text"]).fit(frame, y)
    # Labels are sums of few terms each: thousands take no more than others.
    with pytest.raises(KeyboardInterrupt):
        InteractionClassifier(allow=["text"], exclude=["n"]).fit(frame, y)


def test_what_does_not_go_together_is_refused():
    X, y = _table(2)
    for parameters, message in (
        ({"prior": "conjugate:1"}, "prior: a conditional likelihood has no conjugate prior"),
        ({"prior": "flat"}, "prior: expected none, unit"),
        (
            {"bins": "many"},
            "bins: expected auto, refuse, a whole number of levels, a rule .*, or rules by column, received 'many'",
        ),
        ({"bins": 1}, "bins: expected a whole number from 2"),
        ({"target": "x1"}, "target: X has a column 'x1'"),
    ):
        with pytest.raises(InputError, match=message):
            InteractionClassifier(**parameters).fit(X, y)


# Pickles


@pytest.mark.parametrize("parameters", [{}, {"order": 2}])
def test_pickles_are_small(parameters):
    rng = np.random.default_rng(0)
    X, y = rng.integers(3, size=(500, 9)), rng.integers(2, size=500)
    model = InteractionClassifier(**parameters).fit(X, y)
    content = pickle.dumps(model)
    again = pickle.loads(content)
    assert len(content) < 1_000_000
    assert again.predict_proba(X).tolist() == model.predict_proba(X).tolist()


def test_a_pickled_fit_makes_its_design_again():
    X = np.random.default_rng(0).integers(2, size=(100, 3))
    result = InteractionDensity(order=2).fit(X).result_
    again = pickle.loads(pickle.dumps(result))
    assert again.is_listed and again._design.tolist() == result._design.tolist()
    assert again.covariance.tolist() == result.covariance.tolist()
