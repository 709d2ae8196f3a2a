"""What the estimators say agrees with enumeration, with scikit-learn's models, and for every family alike."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.preprocessing import OneHotEncoder

from pyro_hoim import LogLinearEnergy
from pyro_hoim.estimators import InteractionClassifier, InteractionDensity, InteractionImputer
from pyro_hoim.families import families
from pyro_hoim.testing import FALSE_ALARM_RATE

SETTINGS = {
    "log-linear": {"order": 2},
    "dependency-network": {"options": {"alpha": 1.0}},
    "grm": {"options": {"family": "truncated-poisson", "maximum": 1}},
    "rbm": {"options": {"hidden": 2, "method": "exact", "iterations": 500, "decay": 0.01}},
}


@pytest.fixture(scope="module")
def rows():
    """Two hundred rows of three columns with 3, 2 and 2 levels, every combination among them, and their classes."""
    rng = np.random.default_rng(0)
    drawn = np.column_stack([rng.choice(list(levels), 188) for levels in ("abc", "de", "fg")])
    X = np.vstack([list(itertools.product("abc", "de", "fg")), drawn])
    y = rng.binomial(1, 0.2 + 0.3 * (X[:, 0] == "b") + 0.3 * (X[:, 1] == "e") - 0.2 * (X[:, 2] == "g"))
    y[:24] = np.arange(24) % 2
    return X, y


def _joint(model):
    """Probabilities of all states of the model behind a fit, by enumeration."""
    energy = LogLinearEnergy(model.result_.hypergraph, model.result_.tables)
    states = torch.cartesian_prod(*(torch.arange(size) for size in model.domain_.cardinalities))
    return (-energy.energy(states)).softmax(0).reshape(model.domain_.cardinalities).numpy()


@pytest.mark.parametrize("family", families(), ids=lambda family: family.short)
def test_densities_of_every_family_sum_to_one_and_are_drawn_from(family):
    rng = np.random.default_rng(1)
    first = rng.integers(2, size=(300, 1))
    X = np.hstack([first, first ^ rng.binomial(1, 0.2, (300, 2))])
    density = InteractionDensity(family=family.short, random_state=0, **SETTINGS[family.short]).fit(X)
    states = np.array(list(itertools.product((0, 1), repeat=3)))
    found = density.score_rows(states)
    assert (found.kind, found.is_exact) == ("likelihood", True)
    probs = np.exp(density.score_samples(states))
    assert probs.sum() == pytest.approx(1, abs=1e-9)
    assert density.score(X) == pytest.approx(np.log(probs[X @ [4, 2, 1]]).mean(), abs=1e-12)
    drawn = density.sample(4000)
    assert drawn.shape == (4000, 3) and drawn.dtype.kind in "if"
    counts = np.bincount(drawn.astype(int) @ [4, 2, 1], minlength=8)
    limit = chi2.isf(FALSE_ALARM_RATE, 7)
    assert (counts.min(), 4000 * probs.min()) > (0, 100)
    assert ((counts - 4000 * probs) ** 2 / (4000 * probs)).sum() < limit
    even = 4000 * np.outer(*[np.ones(n) for n in (2, 4)]).ravel() / 8
    assert ((counts - even) ** 2 / even).sum() > limit  # control: another distribution
    frame = pd.DataFrame(X, columns=list("abc"))
    named = InteractionDensity(family=family.short, random_state=0, **SETTINGS[family.short]).fit(frame)
    assert list(named.sample(2).columns) == list("abc") and named.score(frame) == pytest.approx(density.score(X))


@pytest.mark.parametrize("family", [f for f in families() if f.data_type == "labels"], ids=lambda family: family.short)
def test_classifiers_and_imputers_of_every_family(family):
    rng = np.random.default_rng(2)
    y = rng.integers(2, size=400)
    X = (y[:, None] ^ rng.binomial(1, 0.15, (400, 3))).astype(bool)
    settings = {"family": family.short, "random_state": 0, **SETTINGS[family.short]}
    model = InteractionClassifier(**settings).fit(X, y)
    states = np.array(list(itertools.product((False, True), repeat=3)))
    probs = model.predict_proba(states)
    assert probs.shape == (8, 2) and np.allclose(probs.sum(1), 1) and model.score(X, y) > 0.9
    assert (model.predict(states) == (states.sum(1) > 1)).all()
    gaps = states.astype(object)
    gaps[:, 0] = None
    filled = InteractionImputer(**settings).fit(X).transform(np.repeat(gaps, 100, axis=0))
    shares = filled[:, 0].reshape(8, 100).astype(float).mean(1)
    assert shares[[3, 7]].min() > 0.65 > 0.35 > shares[[0, 4]].max()


def test_probabilities_of_classes_are_the_conditional_by_enumeration(rows):
    X, y = rows
    model = InteractionClassifier(order=2).fit(X, y)
    joint = _joint(model)
    states = np.array(list(itertools.product("abc", "de", "fg")))
    expected = joint / joint.sum(-1, keepdims=True)
    assert model.predict_proba(states) == pytest.approx(expected.reshape(12, 2), abs=1e-10)
    part = np.array([["c", None, "g"]], dtype=object)
    expected = joint[2, :, 1].sum(0) / joint[2, :, 1].sum()
    assert model.predict_proba(part)[0] == pytest.approx(expected, abs=1e-10)


def test_all_interactions_of_the_columns_and_pairs_with_the_class_are_logistic_regression(rows):
    X, y = rows
    states = np.array(list(itertools.product("abc", "de", "fg")))
    encoder = OneHotEncoder(drop="first").fit(X)
    logistic = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(encoder.transform(X), y)
    expected = logistic.predict_proba(encoder.transform(states))
    model = InteractionClassifier(edges="x0*x1*x2 + y*(x0 + x1 + x2)", prior="none").fit(X, y)
    assert model.predict_proba(states) == pytest.approx(expected, abs=1e-6)
    other = InteractionClassifier(edges="x0*x1*x2 + y*(x0*x1 + x2)", prior="none").fit(X, y)
    assert abs(other.predict_proba(states) - expected).max() > 0.01  # control: one interaction more


def test_pairs_of_the_class_alone_are_naive_bayes(rows):
    X, y = rows
    codes = (X[:, :, None] == np.array([list("adf"), list("beg"), list("c??")]).T[None]).argmax(2)
    bayes = CategoricalNB(alpha=1e-12, force_alpha=True).fit(codes, y)
    model = InteractionClassifier(edges="y*(x0 + x1 + x2)", prior="none").fit(X, y)
    assert model.predict_proba(X) == pytest.approx(bayes.predict_proba(codes), abs=1e-8)
    other = InteractionClassifier(order=2, prior="none").fit(X, y)
    assert abs(other.predict_proba(X) - bayes.predict_proba(codes)).max() > 0.01  # control: columns that depend


def test_imputed_cells_follow_the_conditional_distribution(rows):
    X, y = rows
    table = np.column_stack([X, y.astype(str)])
    imputer = InteractionImputer(order=2, random_state=5).fit(table)
    joint = _joint(imputer)[1, :, 0]  # of columns 1 and 3 given the others
    probs = (joint / joint.sum()).ravel()
    gaps = np.tile(np.array(["b", None, "f", None], dtype=object), (3000, 1))
    filled = imputer.transform(gaps)
    assert (filled[:, [0, 2]] == ["b", "f"]).all()
    counts = np.bincount(2 * (filled[:, 1] == "e") + (filled[:, 3] == "1"), minlength=4)
    limit = chi2.isf(FALSE_ALARM_RATE, 3)
    assert 3000 * probs.min() > 100 and ((counts - 3000 * probs) ** 2 / (3000 * probs)).sum() < limit
    apart = np.outer(joint.sum(1), joint.sum(0)).ravel() / joint.sum() ** 2
    assert ((counts - 3000 * apart) ** 2 / (3000 * apart)).sum() > limit  # control: cells filled one by one
    best = InteractionImputer(order=2, strategy="most_probable").fit(table).transform(gaps[:1])
    assert (best[0, 1], best[0, 3]) == (("d", "e")[probs.argmax() // 2], "01"[probs.argmax() % 2])
    several = imputer.impute(gaps[:50], 3)
    assert len(several) == 3 and any((several[0] != other).any() for other in several[1:])


def test_weights_are_rows_that_are_repeated(rows):
    X, _ = rows
    number = np.random.default_rng(3).integers(3, size=len(X))
    weighted = InteractionDensity().fit(X, sample_weight=number).score_samples(X)
    repeated = InteractionDensity().fit(np.repeat(X, number, axis=0)).score_samples(X)
    assert weighted == pytest.approx(repeated, abs=1e-9)
    assert abs(weighted - InteractionDensity().fit(X).score_samples(X)).max() > 0.01  # control: no weights


def test_missing_cells_of_a_fit_are_summed_over():
    known = pd.DataFrame({"a": ["u", "u", "v", "v"], "b": ["u", "u", "v", "u"]})
    frame = pd.concat([*[known] * 10, *[pd.DataFrame({"a": [None, None], "b": ["u", "v"]})] * 10])
    density = InteractionDensity(order=2, prior="none").fit(frame)
    only = np.exp(density.score_samples(pd.DataFrame({"a": [None, None], "b": ["u", "v"]})))
    assert only == pytest.approx([40 / 60, 20 / 60], abs=1e-6)  # the shares of b in all rows
    both = np.exp(density.score_samples(pd.DataFrame({"a": ["u", "v"], "b": ["u", "u"]})))
    assert both == pytest.approx([40 / 60 * 20 / 30, 40 / 60 * 10 / 30], abs=1e-6)


def test_a_large_model_says_that_it_has_a_pseudo_likelihood():
    X = np.random.default_rng(4).integers(5, size=(60, 14))
    found = InteractionDensity().fit(X).score_rows(X)
    assert (found.kind, found.values.shape) == ("pseudo-likelihood", (60,))
    gaps = X.astype(float)
    gaps[0, 0] = math.nan
    with pytest.raises(ValueError, match="missing cells: to sum over them needs log Z of"):
        InteractionDensity().fit(gaps)
