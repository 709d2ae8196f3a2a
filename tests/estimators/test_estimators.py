"""Estimators of every family agree with enumeration and scikit-learn's models, and keep scikit-learn's contract."""

import importlib
import itertools
import math
import pickle
import sys
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import pyro_hoim as hoim
from pyro_hoim import CountTable, InteractionHypergraph, LogLinearEnergy, Observations, fit
from pyro_hoim.data.bins import parse_bins
from pyro_hoim.errors import CostWarning, DataWarning, InputError, NonexistentEstimateWarning, UnknownNameError
from pyro_hoim.estimators import InteractionClassifier, InteractionDensity, InteractionImputer
from pyro_hoim.families import families
from pyro_hoim.log_linear.scores import row_log_pseudo_prob
from pyro_hoim.testing import FALSE_ALARM_RATE

ROWS = np.array([(a, b, a * (1 - b)) for a, b in itertools.product((0, 1), repeat=2) for _ in range(3 + 4 * a + 2 * b)])
FRAME = pd.DataFrame(np.vstack([ROWS, [[0, 0, 1], [0, 1, 1], [1, 1, 1], [1, 0, 0]]]), columns=["a", "b", "c"])
SETTINGS = {
    "log-linear": {"order": 2},
    "dependency-network": {"alpha": 1.0},
    "grm": {"family": "truncated-poisson", "maximum": 1, "order": 2},
    "rbm": {"hidden": 2, "method": "exact", "iterations": 500, "decay": 0.01},
}


def _rows(family, frame):
    return Observations.from_pandas(frame) if family.data_type == "labels" else CountTable.from_pandas(frame)


def _all_rows(family):
    return _rows(family, pd.DataFrame(itertools.product((0, 1), repeat=3), columns=list("abc")))


@pytest.mark.parametrize("family", families(), ids=lambda family: family.short)
def test_rows_in_memory_are_fitted_and_their_probabilities_sum_to_one(family):
    rows = FRAME if family.data_type == "numbers" else _rows(family, FRAME)
    stored = family.stored(family.estimate(rows, seed=0, **SETTINGS[family.short]))
    assert stored is not None and stored.domain.names == ("a", "b", "c")
    found = family.row_log_likelihood(stored, _all_rows(family), pseudo=False)
    assert (found.kind, found.is_exact) == ("likelihood", True)
    assert float(found.values.exp().sum()) == pytest.approx(1, abs=1e-9)
    assert len(set(found.values.numpy().round(6))) > 2  # control: no uniform distribution


def test_missing_cells_are_summed_over():
    (family,) = (family for family in families() if family.short == "dependency-network")
    stored = family.stored(family.estimate(_rows(family, FRAME), seed=0))
    found = family.row_log_likelihood(stored, _all_rows(family), pseudo=False).values
    part = _rows(family, pd.DataFrame({"a": [1, 0], "b": [None, 1.0], "c": [0, 1]})).codes
    part = Observations.from_tensor(part, stored.domain)
    both = family.row_log_likelihood(stored, part, pseudo=False).values
    assert float(both[0].exp()) == pytest.approx(float(found[[4, 6]].exp().sum()), abs=1e-12)


def test_the_pseudo_likelihood_of_a_row_with_a_gap_sums_over_it():
    graph = InteractionHypergraph.saturated(_rows(families()[0], FRAME).domain)
    model = LogLinearEnergy(graph, fit(graph, Observations.from_pandas(FRAME)).tables)
    probs = torch.stack([-model.energy(torch.tensor(x)) for x in itertools.product((0, 1), repeat=3)])
    probs = probs.softmax(0).reshape(2, 2, 2)
    gap = Observations.from_tensor(torch.tensor([[1, -1, 0]]), graph.domain)
    pair = probs.sum(1)
    expected = math.log(pair[1, 0] / pair[:, 0].sum()) + math.log(pair[1, 0] / pair[1].sum())
    assert float(row_log_pseudo_prob(model, gap)) == pytest.approx(expected, abs=1e-12)


def test_options_are_checked():
    log_linear, _, _, machine = families()
    rows = _rows(log_linear, FRAME)
    with pytest.raises(InputError, match="order, edges: at most one"):
        log_linear.estimate(rows, seed=0, order=2, edges="a*b")
    with pytest.raises(UnknownNameError, match=r"unknown option of a Boltzmann machine 'iteration'.*'iterations'"):
        machine.estimate(rows, seed=0, iteration=3)
    by_name, by_sets = (log_linear.estimate(rows, seed=0, edges=edges) for edges in ("a*b + c", [("a", "b"), ("c",)]))
    assert by_name.hypergraph == by_sets.hypergraph


# Against enumeration and scikit-learn's models


OPTIONS = {
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
    density = InteractionDensity(family=family.short, random_state=0, **OPTIONS[family.short]).fit(X)
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
    named = InteractionDensity(family=family.short, random_state=0, **OPTIONS[family.short]).fit(frame)
    assert list(named.sample(2).columns) == list("abc") and named.score(frame) == pytest.approx(density.score(X))


@pytest.mark.parametrize("family", [f for f in families() if f.data_type == "labels"], ids=lambda family: family.short)
def test_classifiers_and_imputers_of_every_family(family):
    rng = np.random.default_rng(2)
    y = rng.integers(2, size=400)
    X = (y[:, None] ^ rng.binomial(1, 0.15, (400, 3))).astype(bool)
    settings = {"family": family.short, "random_state": 0, **OPTIONS[family.short]}
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
    with pytest.warns(NonexistentEstimateWarning, match="a=u, b=v"):  # no row holds it, nor needs to
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
        InteractionDensity(order=2).fit(gaps)
    with pytest.warns(CostWarning, match="sums over missing cells of all pairs are out of reach, so this is family="):
        density = InteractionDensity().fit(gaps)
    assert density.score_rows(X).values.isfinite().all()


# Numbers are cut again; the oracle is pandas.cut at the cut points of the estimator
#
# Oracle: pandas.cut at the cut points of the estimator.


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


# Columns are read by the rule of every function that takes a data frame; the oracle is that rule


@pytest.mark.parametrize(
    "options",
    [
        {"bins": "auto", "exclude": ["height"]},
        {"bins": {"age": "edges:30,60"}, "allow": ["id"]},
        {"bins": {"*": "quantile:3", "age": "width:20"}},
        {"missing_values": ("", "f")},
    ],
    ids=["exclude", "allow", "bins", "missing"],
)
def test_columns_are_read_by_the_rule_of_every_door(options):
    frame = TABLE.assign(id=np.arange(300) + 1000, day=pd.date_range("2020-01-01", periods=300))
    rule = {"bins": "auto", **options}
    rule["bins"] = rule["bins"] if isinstance(rule["bins"], str) else {"*": "auto", **rule["bins"]}
    readings = {r.name: r for r in hoim.data.read_columns(frame, count=None, **rule) if r.reason != "excluded"}
    used = {name: r.levels for name, r in readings.items() if r.is_used}
    with pytest.warns(DataWarning, match="columns were left out: .*'day' holds 300 dates"):
        density = InteractionDensity(**options, order=1, random_state=0).fit(frame)
    assert {r.name: r for r in density.columns_} == readings
    assert {v.name: v.labels for v in density.domain_} == used
    with pytest.warns(DataWarning, match="columns were left out"):
        rows = hoim.Observations.from_pandas(frame, count=None, **rule)
    assert hoim.score(density.result_, rows)["nll"] == pytest.approx(-density.score(frame), abs=1e-9)
    drawn = density.sample(5)
    assert list(drawn.columns) == list(frame.columns)
    assert drawn.columns[drawn.isna().all()].tolist() == [name for name in frame if name not in used]


def test_columns_of_classifiers_and_imputers_may_be_left_out():
    frame = TABLE.assign(id=np.arange(300) + 1000)
    gaps = frame.mask(RANDOM.random(frame.shape) < 0.1)
    with pytest.warns(DataWarning, match="columns were left out: 'id' .* like an identifier"):
        classifier = InteractionClassifier().fit(frame.drop(columns="sex"), frame["sex"])
    with pytest.warns(DataWarning, match="columns were left out: 'id' .* like an identifier"):
        imputer = InteractionImputer(random_state=0).fit(frame)
    assert classifier.domain_.names == ("age", "height", "y")
    one = classifier.predict_proba(frame.drop(columns="sex")[:1])
    assert one == pytest.approx(classifier.predict_proba(frame.drop(columns="sex"))[:1], abs=1e-12)
    filled = imputer.transform(gaps)
    assert filled["id"].equals(gaps["id"]) and not filled.drop(columns="id").isna().to_numpy().any()
    plain = InteractionClassifier().fit(frame[["age", "height"]], frame["sex"])
    assert plain.predict_proba(frame[["age", "height"]]) == pytest.approx(
        classifier.predict_proba(frame.drop(columns="sex")), abs=1e-12
    )


def test_words_among_numbers_and_dates_are_read_again():
    frame = TABLE.assign(age=TABLE["age"].astype(object), day=pd.date_range("2020-01-01", periods=300))
    frame.loc[:9, "age"] = "refused"
    with pytest.raises(InputError, match=r"write missing_values=\['', 'refused'\] if these words"):
        InteractionClassifier().fit(frame.drop(columns="sex"), frame["sex"])
    options = {"missing_values": ("", "refused"), "bins": {"day": "width:month"}}
    model = InteractionClassifier(**options).fit(frame.drop(columns="sex"), frame["sex"])
    assert model.domain_["day"].cardinality == 10
    known = frame.assign(age=pd.to_numeric(frame["age"], errors="coerce"))
    every = model.predict_proba(known.drop(columns="sex"))
    for rows in (slice(None), slice(0, 3), slice(20, 40)):
        assert model.predict_proba(frame.drop(columns="sex")[rows]) == pytest.approx(every[rows], abs=1e-12)
    assert abs(every[0] - every[20]).max() > 1e-6  # control


@pytest.mark.parametrize("rows", [3, 60])
def test_other_numbers_are_read_as_the_level_below_and_other_labels_as_missing_with_one_warning(rows):
    late, city = np.array([0, 1, 2, 5, 9] * 40), np.array(list("abcb") * 50)
    frame = pd.DataFrame({"late": late, "city": city, "flag": [True, False] * 100})
    model = InteractionClassifier().fit(frame, late + 3 * (city == "b") > 4)
    other = pd.DataFrame({"late": [13, -2, 4] * (rows // 3), "city": ["a", "z", "b"] * (rows // 3), "flag": "maybe"})
    parts = (f"{rows // 3} cells? of 'city', all {rows} cells of 'flag'", f"all {rows} cells of 'late'")
    with pytest.warns(DataWarning, match=f"labels .* missing: {parts[0]}; numbers .* lowest one: {parts[1]}") as caught:
        probs = model.predict_proba(other)
    assert len(caught) == 1
    nearest = other.assign(late=[9, 0, 2] * (rows // 3), flag=None).replace({"city": {"z": None}})
    assert np.array_equal(probs, model.predict_proba(nearest))
    assert abs(probs[0] - model.predict_proba(nearest.assign(late=None))[0]).max() > 0.01  # control
    # Texts and numbers as floats are numbers, too, and codes written as text are labels.
    for values in ([13.5, -2.0, 4.25], ["13", "-2", "4.5"]):
        with pytest.warns(DataWarning, match=parts[1]):
            again = model.predict_proba(other.assign(late=values * (rows // 3)))
        assert np.array_equal(again, probs)
    codes = InteractionClassifier().fit(frame.astype({"late": str}), late > 4)
    with pytest.warns(DataWarning, match=f"missing: all {rows} cells of 'late'"):
        codes.predict_proba(nearest.assign(late=7))
    with pytest.raises(UnknownNameError, match=r"row 0 .*, column 'late': unknown label '13'"):
        InteractionClassifier(handle_unknown="error").fit(frame, late > 4).predict(other)


def test_a_number_between_cut_points_that_no_row_lies_between_has_the_level_below():
    frame = pd.DataFrame({"age": [1, 2, 3, 20, 21, 30] * 10, "other": list("ab") * 30})
    model = InteractionClassifier(bins={"age": "edges:5,10,15"}).fit(frame, frame["age"] > 2)
    assert model.domain_["age"].labels == ("<5", ">=15")
    with pytest.warns(DataWarning, match="lowest one: all 2 cells of 'age'"):
        probs = model.predict_proba(pd.DataFrame({"age": [7, 12], "other": "a"}))
    assert np.array_equal(probs, model.predict_proba(pd.DataFrame({"age": [2, 4], "other": "a"})))


@pytest.mark.parametrize("kind", [InteractionClassifier, InteractionDensity, InteractionImputer])
def test_dates_of_every_type_are_cut_alike_in_fits_and_predictions(kind):
    days, more = pd.Series(pd.date_range("2015-01-01", periods=120, freq="13D")), np.arange(120) % 2
    types = [days, days.astype(str), days.astype(object), days.dt.date, days.dt.to_period("D")]
    types += [days.astype("date32[pyarrow]"), days.astype("datetime64[s]"), days.astype("timestamp[us][pyarrow]")]
    frames = [pd.DataFrame({"opened": column, "more": more}) for column in types]
    y = days.dt.year < 2017

    def answer(model, frame):
        if kind is InteractionImputer:
            return model.transform(frame.assign(more=None))["more"].tolist()
        return (model.predict_proba if kind is InteractionClassifier else model.score_samples)(frame).tolist()

    options = {"strategy": "most_probable"} if kind is InteractionImputer else {}
    models = [kind(bins={"opened": "width:year"}, **options).fit(frame, y) for frame in frames]
    expected = answer(models[1], frames[1][:3])
    assert all(answer(model, frame[:3]) == expected for model in models for frame in frames)
    expected = answer(models[1], frames[1])  # many rows, each of the types before or after another
    assert all(answer(models[i - k], frame) == expected for i, frame in enumerate(frames) for k in (0, 1))
    assert models[0].domain_["opened"].cardinality == 5
    if kind is InteractionImputer:  # gaps are filled with dates
        filled = [
            m.transform(f.assign(opened=f["opened"].mask(more == 1))) for m, f in zip(models, frames, strict=True)
        ]
        assert all(column["opened"].notna().all() for column in filled)


def test_a_rule_is_that_of_all_columns_at_every_door():
    frame = pd.DataFrame({"age": np.arange(300) % 60, "late": np.arange(300) % 50 + 0.0, "sex": list("fm") * 150})
    for rule in ("quantile:5", "spread:32", "width:10", "edges:20,30,40"):
        every = {"*": rule}
        first, second = (InteractionClassifier(bins=bins).fit(frame, frame["sex"]) for bins in (rule, every))
        assert first.columns_ == second.columns_ == hoim.data.read_columns(frame, bins=rule)
        assert first.columns_ == hoim.data.read_columns(frame, bins=every)
        assert hoim.plan(frame, bins=rule).columns == hoim.plan(frame, bins=every).columns
        with pytest.warns(DataWarning, match="numbers were cut into levels: age at .* and late at"):
            first, second, opened = [
                Observations.from_pandas(frame, bins=rule).domain,
                Observations.from_pandas(frame, bins=every).domain,
                hoim.data.open_rows(frame, bins=rule).domain,
            ]
        assert first == second == opened
    with pytest.warns(DataWarning, match="numbers were cut into levels: age at"):
        fitted = hoim.fit("age*sex", frame[["age", "sex"]], bins="quantile:3")
    assert fitted.hypergraph.domain["age"].cardinality == 3
    assert parse_bins(["spread:32", "age=width:5"]) == {"*": "spread:32", "age": "width:5"}
    with pytest.raises(InputError, match="auto and spread:32 cannot both be the rule of all columns"):
        parse_bins(["auto", "spread:32"])
    for call in (hoim.plan, hoim.data.read_columns, lambda f, bins: InteractionDensity(bins=bins).fit(f)):
        for wrong in ("many", "halves:2"):
            with pytest.raises(InputError, match=f"bins: expected .*a rule such as 'quantile:4'.* received '{wrong}'"):
                call(frame, bins=wrong)


@pytest.mark.parametrize("unknown", ["missing", "error"])
@pytest.mark.parametrize("kind", [InteractionClassifier, InteractionDensity, InteractionImputer])
def test_truth_values_and_their_numbers_are_read_alike(kind, unknown):
    flag = np.array([True, False, True, True] * 30)
    spellings = [flag, flag.astype(int), flag.astype(float), flag.astype(object), flag.astype(str), flag.astype("i1")]
    spellings += [pd.array(flag, dtype="boolean"), pd.array(flag.astype(int), dtype="Int64")]
    city = np.array(list("abca") * 30)  # no level ties with another

    def answers(model, column, rows):
        frame = pd.DataFrame({"city": city, "flag": column})[:rows]
        if kind is InteractionImputer:
            frame["city"] = None
            return model.transform(frame)["city"].tolist()
        return (model.predict_proba if kind is InteractionClassifier else model.score_samples)(frame).tolist()

    for i, fitted in enumerate(spellings):
        options = {"strategy": "most_probable"} if kind is InteractionImputer else {}
        model = kind(handle_unknown=unknown, **options).fit(pd.DataFrame({"city": city, "flag": fitted}), flag ^ True)
        expected = answers(model, fitted, 3)
        assert all(answers(model, other, 3) == expected for other in spellings)
        expected = answers(model, fitted, 120)
        assert answers(model, spellings[i - 1], 120) == expected
    assert len({str(answer) for answer in expected}) > 1  # control


@pytest.mark.parametrize("unknown", ["missing", "error"])
def test_words_for_missing_are_missing_in_other_rows_too(unknown):
    frame = TABLE.assign(score=RANDOM.choice([1, 2, 3, -9], 300))
    marked, real = (frame.mask(frame == -9, other) if other is None else frame for other in (-9, None))
    options = {"handle_unknown": unknown, "missing_values": ("", "-9")}
    first = InteractionClassifier(**options).fit(marked.drop(columns="sex"), frame["sex"])
    second = InteractionClassifier(handle_unknown=unknown).fit(real.drop(columns="sex"), frame["sex"])
    for rows in (slice(None), slice(0, 3)):
        cells = (table.drop(columns="sex")[rows] for table in (marked, real))
        one, other = (model.predict_proba(part) for model, part in zip((first, second), cells, strict=True))
        assert one == pytest.approx(other, abs=1e-12)


# The contract of scikit-learn, and its tools


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


@pytest.mark.parametrize("gap", [None, math.nan, pd.NA, pd.NaT])
def test_rows_without_a_class_are_refused_alike(gap):
    X = np.array([["a", "b"], ["a", "c"], ["b", "b"]] * 2)
    texts = ["well", gap, "ill"] * 2
    targets = [texts, np.array(texts, dtype=object), pd.Series(texts), pd.Series(texts, dtype="string")]
    targets += [pd.Series(pd.Categorical(texts)), pd.DataFrame({"y": texts})]
    if gap is None:
        days = pd.Series(pd.to_datetime(["2020-01-01", None, "2020-01-02"] * 2))
        targets += [[1, gap, 0] * 2, [1.0, math.nan, 0.0] * 2, np.array([1.0, math.nan, 0.0] * 2), days]
        targets += [pd.array([1, None, 0] * 2, dtype="Int64"), pd.array([True, None, False] * 2, dtype="boolean")]
    for target in targets:
        for options in ({}, {"order": 2}):
            with pytest.raises(InputError, match=r"y: 2 rows without a class .* leave these rows out of X and y"):
                InteractionClassifier(**options).fit(X, target)
    assert InteractionClassifier().fit(X, ["well", "", "ill"] * 2).classes_.tolist() == ["", "ill", "well"]


def _wide_gaps(number=400):
    rng = np.random.default_rng(0)
    first = rng.integers(6, size=number)
    columns = {f"v{i}": np.where(rng.random(number) < 0.5, first, rng.integers(6, size=number)) for i in range(8)}
    return pd.DataFrame(columns).mask(rng.random((number, 8)) < 0.1)


@pytest.mark.parametrize("kind", [InteractionDensity, InteractionImputer])
def test_sums_over_missing_cells_that_take_minutes_give_way_to_a_network(kind):
    frame = _wide_gaps()
    with pytest.warns(CostWarning, match=r"take very roughly .*this is family='dependency-network'.*order=2 asks"):
        model = kind(random_state=0).fit(frame)
    network = kind(family="dependency-network", random_state=0).fit(frame)
    if kind is InteractionDensity:
        assert np.array_equal(model.score_samples(frame[:50]), network.score_samples(frame[:50]))
        assert model.sample(5).equals(network.sample(5))
    else:
        assert model.transform(frame).equals(network.transform(frame)) and not model.transform(frame).isna().any().any()
    # Tables of which the sums are short, and what was asked for, stay as they are.
    assert type(kind().fit(frame[["v0", "v1", "v2"]]).result_) is not type(model.result_)


@pytest.mark.parametrize("kind", [InteractionDensity, InteractionImputer, InteractionClassifier])
def test_long_sums_that_were_asked_for_say_their_time_before(kind, monkeypatch):
    monkeypatch.setattr("pyro_hoim.study.command.family.fit_incomplete", Mock(side_effect=KeyboardInterrupt))
    frame = _wide_gaps()
    words = r"the fit takes very roughly \d+ (seconds|minutes) .*family='dependency-network'"
    with pytest.warns(CostWarning, match=words), pytest.raises(KeyboardInterrupt):
        kind(order=2).fit(frame[list(frame)[:7]], frame.index % 2)


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "pyro_hoim.estimators.joint")
    with pytest.raises(ImportError, match=r"pip install 'pyro-hoim\[sklearn\]'"):
        importlib.import_module("pyro_hoim.estimators.joint")
