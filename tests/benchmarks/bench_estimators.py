"""The classifier without advice beside classifiers of scikit-learn, on public tables.

Adult has its published test rows; other tables have five folds, stratified and shuffled with seed 0, whose predictions
are scored together. Adult, mushroom and breast cancer are found as the data sets of the library are; the others come
with scikit-learn and statsmodels.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_estimators.py [--append] [PART] [OPTIONS]
"""

import pickle
import time
import warnings

import numpy as np
import pandas as pd
import statsmodels.api as sm
from harness import main, markdown, median, part
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, StandardScaler

from pyro_hoim.datasets import data_file
from pyro_hoim.estimators import InteractionClassifier

NUMBERS, LABELS = make_column_selector(dtype_include="number"), make_column_selector(dtype_exclude="number")
FILES = {"mushroom": "class", "breast_cancer": "class"}
TABLES = ("adult", "mushroom", "breast_cancer", "wdbc", "wine", "digits", "fair", "anes96")


def table(name):
    """Columns and classes of the rows of a table, and of test rows where it has some."""
    if name == "adult":
        frames = [pd.read_csv(data_file(file)) for file in ("adult", "adult_test")]
        return [cells for frame in frames for cells in (frame.drop(columns="income"), frame["income"])]
    if name in FILES:
        frame = pd.read_csv(data_file(name))
        return frame.drop(columns=FILES[name]), frame[FILES[name]]
    if name == "fair":
        frame = sm.datasets.fair.load_pandas().data
        return frame.drop(columns="affairs"), frame["affairs"] > 0
    if name == "anes96":
        frame = sm.datasets.anes96.load_pandas().data
        return frame.drop(columns="vote"), frame["vote"].astype(int)
    loader = {"wdbc": datasets.load_breast_cancer, "wine": datasets.load_wine, "digits": datasets.load_digits}[name]
    return loader(return_X_y=True, as_frame=True)


def models():
    """Classifiers by name; columns of text are labels, others numbers."""
    indicators = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    scaled = make_column_transformer((make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS), (indicators, LABELS))
    unknown = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
    bins = make_pipeline(
        SimpleImputer(), KBinsDiscretizer(5, encode="ordinal", quantile_method="averaged_inverted_cdf")
    )
    codes = make_pipeline(SimpleImputer(strategy="most_frequent"), OrdinalEncoder(**unknown))
    levels = make_column_transformer((bins, NUMBERS), (codes, LABELS))
    plain = make_column_transformer((OrdinalEncoder(**unknown), LABELS), remainder="passthrough")
    return {
        "InteractionClassifier": InteractionClassifier(),
        "LogisticRegression, one-hot": make_pipeline(indicators, LogisticRegression(max_iter=1000)),
        "LogisticRegression, scaled": make_pipeline(scaled, LogisticRegression(max_iter=1000)),
        "CategoricalNB": make_pipeline(levels, _NaiveBayes()),
        "HistGradientBoosting": make_pipeline(plain, HistGradientBoostingClassifier(random_state=0)),
    }


class _NaiveBayes(CategoricalNB):
    """Levels that the fit did not meet count as the first one, for it knows no others."""

    def predict_proba(self, X):
        return super().predict_proba(np.where((X < 0) | (self.n_categories_ <= X), 0, X))


def judged(model, cells):
    """Predictions of rows that a model did not see, their classes, and seconds of processor time by fit."""
    X, y, *test = cells
    if test:
        start = time.process_time()
        model.fit(X, y)
        return model.predict_proba(test[0]), test[1], time.process_time() - start
    probs, seconds = np.zeros((len(y), y.nunique())), []
    for train, held_out in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        start = time.process_time()
        model.fit(X.iloc[train], y.iloc[train])
        seconds.append(time.process_time() - start)
        probs[held_out] = model.predict_proba(X.iloc[held_out])
    return probs, y, float(np.mean(seconds))


def scores(probs, y):
    """Area under the curve (one class against the rest), log loss, Brier score and error of calibration.

    The last one is the mean distance of predicted from observed shares over fifteen groups of equal size, in which
    the predictions of all classes are sorted.
    """
    area = roc_auc_score(y, probs[:, 1] if probs.shape[1] == 2 else probs, multi_class="ovr")
    answers = np.eye(probs.shape[1])[np.unique(y, return_inverse=True)[1]]
    order = np.argsort(probs.ravel(), kind="stable")
    groups = np.array_split((probs - answers).ravel()[order], 15)
    error = sum(abs(group.sum()) for group in groups) / probs.size
    return area, log_loss(y, probs), ((probs - answers) ** 2).sum(1).mean(), error


@part("A classifier without advice")
def classifiers(names=TABLES, missing=0.0):
    """Scores (see :func:`scores`) and seconds; ``missing`` is the share of cells that are lost."""
    rows = []
    for name in names:
        cells = [*table(name)]
        rng = np.random.default_rng(0)
        if missing:
            cells[::2] = [X.mask(rng.random(X.shape) < missing) for X in cells[::2]]
        for label, model in models().items():
            with warnings.catch_warnings(action="ignore"):
                probs, y, seconds = judged(model, cells)
            rows.append((name, label, *(f"{score:.4f}" for score in scores(probs, y)), f"{seconds:.2f}"))
            print(*rows[-1], flush=True)
    return markdown(("table", "classifier", "AUC", "log loss", "Brier", "calibration", "s a fit"), rows)


@part("A single row, and a pickle")
def rows_and_pickles(repeats=200):
    """Milliseconds that a row takes, and the size of the pickled classifier."""
    rows = []
    for name in ("breast_cancer", "adult"):
        X, y, *_ = table(name)
        with warnings.catch_warnings(action="ignore"):
            model = InteractionClassifier().fit(X, y)
        middle, least = median(lambda model=model, X=X: model.predict_proba(X[:1]), repeats)
        rows.append((name, X.shape[1], f"{1e3 * middle:.1f}", f"{1e3 * least:.1f}", f"{len(pickle.dumps(model)):,}"))
    return markdown(("table", "columns", "ms a row", "fastest", "bytes of the pickle"), rows)


if __name__ == "__main__":
    main(__doc__)
