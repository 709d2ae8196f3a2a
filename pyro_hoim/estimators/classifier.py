"""Classes from the joint distribution of class and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ..data.encoding import label_of
from ..errors import check_type, refused
from ..families import predict
from ..schema import Variable
from .base import (
    ClassifierMixin,
    InteractionEstimator,
    check_classification_targets,
    check_is_fitted,
    checked_target,
)
from .columns import Unknown

__all__ = ["InteractionClassifier"]


class InteractionClassifier(ClassifierMixin, InteractionEstimator):
    r"""A classifier by the joint distribution of the class and all columns of a table.

    .. math:: p(y \mid x) = q(x, y) / \sum_{y'} q(x, y')

    Log Z is not needed to predict. With ``edges="y*(a + b + c)"`` a log-linear model is naive Bayes; with all
    interactions of the columns and the pairs of each with a binary class, ``edges="a*b*c + y*(a + b + c)"``, it is
    logistic regression. Missing cells are summed over. Columns are read as by :class:`InteractionDensity`.

    Args:
        family: as of :class:`InteractionDensity`, of those with levels.
        order: likewise; the class is one of the columns.
        edges: likewise; the class has the name ``target``.
        prior: likewise.
        options: likewise.
        bins: likewise.
        handle_unknown: likewise.
        random_state: of families that learn by chance, and of averages over chains for missing cells.
        target: name of the class in the model.

    Attributes:
        classes_: the classes, sorted.
        result_: the result of the fit, a model of the library.
        domain_: its variables, the class last.
        n_features_in_: number of columns.
        feature_names_in_: their names, where the table had any.

    Raises:
        InputError: as :class:`InteractionDensity`; a family of numbers; a column with the name of the class.

    Example:
        >>> X = np.array([["no", "dry"], ["no", "dry"], ["yes", "wet"], ["yes", "wet"], ["no", "wet"]])
        >>> model = InteractionClassifier(edges="y*(x0 + x1)").fit(X, ["well", "well", "ill", "ill", "ill"])
        >>> model.predict([["yes", "wet"], ["no", "dry"]]).tolist()
        ['ill', 'well']
        >>> model.predict_proba(np.array([["yes", None]], dtype=object)).round(3).tolist()
        [[0.867, 0.133]]
    """

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
        target: str = "y",
    ) -> None:
        super().__init__(
            family=family,
            order=order,
            edges=edges,
            prior=prior,
            options=options,
            bins=bins,
            handle_unknown=handle_unknown,
            random_state=random_state,
        )
        self.target = target

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to rows (N, d) and their classes (N,), with weights (N,)."""
        check_type(self.target, str, "target")
        frame = self._frame(X, reset=True)
        target = checked_target(self, y, frame)
        check_classification_targets(target)
        weights = self._weights(sample_weight, frame)
        self.classes_ = np.unique(target[weights > 0])
        codes = np.searchsorted(self.classes_, np.where(weights > 0, target, self.classes_[0]))
        variable = Variable(self.target, tuple(label_of(value) for value in self.classes_))
        self._fit_labels(frame, weights, (variable, codes))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (N, number of classes) of ``classes_``, in this order.

        Raises:
            InputError: rows whose cells have probability zero together, under a maximum-likelihood estimate.
        """
        check_is_fitted(self, "result_")
        variable = self.domain_.variables[-1]
        _, rows = self._rows(X, variable)
        found = predict(self.result_, rows, variable.name)
        probs = found[[f"p({label})" for label in variable.labels]].to_numpy()
        lost = np.isnan(probs).any(1)
        if lost.any():
            problem = (
                f"row {int(lost.argmax())}: its cells have probability zero together ({int(lost.sum())} such rows)"
            )
            raise refused("X", problem, 'fit with prior="unit"', code="impossible")
        return probs

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row, (N,)."""
        probs = self.predict_proba(X)
        return self.classes_[probs.argmax(1)]
