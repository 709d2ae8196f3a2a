"""What the estimators share: parameters, rows of scikit-learn's kinds, and a model of any family by the registry."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..core.family import Family, family_named
from ..core.operations import READING
from ..core.scores import RowLogLikelihood
from ..data.counts import CountTable
from ..data.frames import as_frame, is_frame
from ..errors import (
    InputError,
    check_choice,
    check_names,
    check_type,
    check_whole,
    conflict,
    none_received,
    refused,
    unexpected,
)
from ..families import sample
from ..schema import Variable
from .columns import Columns, Unknown

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, DensityMixin, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("the estimators need scikit-learn 1.6 or later: pip install 'pyro-hoim[sklearn]'") from error

__all__ = [
    "ClassifierMixin",
    "DensityMixin",
    "InteractionEstimator",
    "OneToOneFeatureMixin",
    "TransformerMixin",
    "array_like",
    "as_given",
    "check_classification_targets",
    "check_is_fitted",
    "checked_target",
    "named",
]


class InteractionEstimator(BaseEstimator):
    """Parameters and rows of the estimators; see these."""

    def __init__(
        self,
        *,
        family: str = "log-linear",
        order: int | None = None,
        edges: Any = None,
        prior: str | None = None,
        options: Mapping[str, Any] | None = None,
        bins: int | None = 5,
        handle_unknown: Unknown = "error",
        random_state: Any = None,
    ) -> None:
        self.family = family
        self.order = order
        self.edges = edges
        self.prior = prior
        self.options = options
        self.bins = bins
        self.handle_unknown = handle_unknown
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _family(self) -> Family:
        """The family, once the parameters have been checked."""
        family = family_named(self.family)
        if family.estimate is None:
            raise refused("family", f"a {family.name} is fitted from files alone", code="no-method")
        check_choice(self.handle_unknown, ("error", "missing"), "handle_unknown")
        if self.bins is not None:
            check_whole(self.bins, "bins", 2)
        if self.options is not None:
            check_type(self.options, Mapping, "options", "a mapping of options to values")
        return family

    def _estimate(self, family: Family, rows: Any) -> Any:
        """A fit of rows with the parameters that were given."""
        assert family.estimate is not None
        given = {name: getattr(self, name) for name in ("order", "edges", "prior") if getattr(self, name) is not None}
        for name in set(given) & set(self.options or ()):
            raise conflict("options", f"{name!r} is a parameter of its own")
        given |= dict(self.options or {})
        parameters = inspect.signature(family.estimate).parameters.values()
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "seed"]
            for name in given:
                if name not in known and (hint := family.hint(name)) is not None:
                    raise refused(name, f"not for a {family.name}", hint, code="conflict")
            check_names(given, known, "options", noun=f"option of a {family.name}")
        return family.estimate(rows, seed=self._seed(), **given)

    def _seed(self) -> int:
        """A seed from ``random_state``."""
        try:
            random = check_random_state(self.random_state)
        except ValueError as error:
            expected = "None, a whole number from 0 to 4294967295, or a numpy RandomState"
            raise unexpected("random_state", expected, self.random_state) from error
        return int(random.randint(2**31 - 1))

    def _frame(self, X: Any, *, reset: bool) -> pd.DataFrame:
        """Rows as a data frame, their columns checked, or remembered where this is a fit."""
        if is_frame(X):
            frame: Any = as_frame(X, "X")
            validate_data(self, frame, reset=reset, skip_check_array=True)
            if not len(frame) or not frame.shape[1]:
                raise none_received("X", "at least one row and one column")
            return frame
        array: Any = validate_data(self, X, dtype=None, ensure_all_finite="allow-nan", reset=reset)
        return pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])

    def _weights(self, sample_weight: Any, frame: pd.DataFrame) -> np.ndarray:
        """Weights (N,) of rows, positive in sum; ones where none are given."""
        weights: Any = _check_sample_weight(sample_weight, frame, dtype=np.float64, ensure_non_negative=True)
        if not weights.sum() > 0:
            raise none_received("sample_weight", "at least one positive weight")
        return weights

    def _fit_labels(self, frame: pd.DataFrame, weights: np.ndarray, more: Any = None) -> None:
        """Learn levels and a model from the rows of positive weight; ``more`` is a further variable with codes."""
        family = self._family
        if family.data_type != "labels":
            problem = f"a {family.name} has numbers, and this estimator needs levels"
            raise refused("family", problem, "InteractionDensity takes it", code="conflict")
        kept = weights > 0
        frame, weights = frame.loc[kept], weights[kept]
        self._columns = Columns.learn(frame, weights, self.bins)
        codes, variable = self._columns.read(frame, "error"), None
        if more is not None:
            variable, target = more
            if variable.name in [str(name) for name in frame.columns]:
                raise refused("target", f"X has a column {variable.name!r}", "give another name", code="repeated-name")
            codes = np.column_stack([codes, target[kept]])
        rows = self._columns.observations(codes, weights, variable)
        self.result_ = self._estimate(family, rows)
        object.__setattr__(self.result_, READING, self._columns.reading())  # so that its file reads numbers, too
        self.domain_ = rows.domain

    def _rows(self, X: Any, more: Variable | None = None) -> tuple[pd.DataFrame, Any]:
        """Rows of another table with the columns of the fit, and the same as observations; ``more`` is missing."""
        check_is_fitted(self, "result_")
        frame = self._frame(X, reset=False)
        if not hasattr(self, "_columns"):
            return frame, CountTable(self.domain_, named(frame).to_numpy(dtype=float))
        unknown: Any = self.handle_unknown
        codes = self._columns.read(frame, unknown)
        if more is not None:
            codes = np.column_stack([codes, np.full(len(codes), -1)])
        return frame, self._columns.observations(codes, more=more)

    def _score_each(self, X: Any) -> RowLogLikelihood:
        """Log-likelihood of every row."""
        _, rows = self._rows(X)
        family = self._family
        stored = family.stored(self.result_)
        assert stored is not None
        if family.row_log_likelihood is None:
            raise refused("family", f"a {family.name} has no likelihood of rows", code="no-method")
        return family.row_log_likelihood(stored, rows)

    def _draw(self, number: int) -> pd.DataFrame:
        """Rows of the model, with values as those of the table that was fitted."""
        check_is_fitted(self, "result_")
        drawn = sample(self.result_, number, seed=self._seed())
        if not hasattr(self, "_columns"):
            return drawn
        codes = self._columns.codes_of(drawn)
        held = {c.variable.name: c.give(codes[:, i]) for i, c in enumerate(self._columns.columns)}
        return pd.DataFrame(held)


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """The data frame with names of text."""
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def as_given(found: pd.DataFrame, estimator: InteractionEstimator) -> Any:
    """A data frame where the estimator was fitted on one with names, else an array."""
    return found if hasattr(estimator, "feature_names_in_") else _as_array(found)


def array_like(X: Any, found: pd.DataFrame) -> Any:
    """A data frame where the rows are one, else an array."""
    return found if is_frame(X) else _as_array(found)


def _as_array(found: pd.DataFrame) -> np.ndarray:
    """One array of columns that all have one type, or hold objects."""
    return found.to_numpy() if len(set(found.dtypes)) == 1 else found.astype(object).to_numpy()


def checked_target(estimator: InteractionEstimator, y: Any, frame: pd.DataFrame) -> np.ndarray:
    """Classes (N,) of rows, none of them missing."""
    if y is None:
        name = type(estimator).__name__
        raise InputError(f"This {name} estimator requires y to be passed, but the target y is None", argument="y")
    kept: Any = None  # the type
    target: Any = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=kept, input_name="y")
    check_consistent_length(frame, target)
    return target
