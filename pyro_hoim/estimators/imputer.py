"""Missing cells filled from a model of all columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from ..core.words import plural
from ..errors import DataWarning, caller_level, check_choice, check_whole, conflict
from ..families import impute
from .base import InteractionEstimator, OneToOneFeatureMixin, TransformerMixin, array_like
from .columns import Unknown

__all__ = ["InteractionImputer"]


class InteractionImputer(OneToOneFeatureMixin, TransformerMixin, InteractionEstimator):
    r"""Fills missing cells given the known cells of their rows, by the joint distribution of all columns.

    .. math:: x_M \sim q(x_M \mid x_O) \qquad \text{or} \qquad x_M = \arg\max q(x_M \mid x_O)

    The table that is fitted may have missing cells itself, where its family sums over them. Known cells stay as they
    are. Columns are read as by :class:`InteractionDensity`: where numbers were cut into bins, a cell is filled with the
    median of a bin.

    Args:
        family: as of :class:`InteractionDensity`, of those with levels.
        order: likewise.
        edges: likewise.
        prior: likewise.
        options: likewise.
        bins: likewise.
        handle_unknown: likewise; with ``missing`` a level that the fit did not meet is not filled, either.
        random_state: of the draws.
        strategy: ``draw`` cells together, which keeps spread and dependence, or the ``most_probable`` ones (of a
            log-linear model).

    Attributes:
        result_: the result of the fit, a model of the library.
        domain_: its variables.
        n_features_in_: number of columns.
        feature_names_in_: their names, where the table had any.

    Raises:
        InputError: as :class:`InteractionDensity`; a family of numbers, or one that has no such strategy.
        MissingDataError: missing cells in a fit of a family that does not sum over them.

    Warns:
        DataWarning: rows whose known cells have probability zero together, under a maximum-likelihood estimate; they
            are not filled.

    Example:
        >>> frame = pd.DataFrame({"rain": ["no", "no", "yes", "yes", None], "wet": [0, 0, 1, 1, 1]})
        >>> InteractionImputer(strategy="most_probable").fit_transform(frame).tail(2)
          rain  wet
        3  yes    1
        4  yes    1
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
        strategy: Literal["draw", "most_probable"] = "draw",
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
        self.strategy = strategy

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002 (scikit-learn's)
        """Fit the model to rows (N, d), with weights (N,); ``y`` is ignored."""
        check_choice(self.strategy, ("draw", "most_probable"), "strategy")
        frame = self._frame(X, reset=True)
        self._fit_labels(frame, self._weights(sample_weight, frame))
        return self

    def transform(self, X: Any) -> Any:
        """The rows (N, d) with their missing cells filled, as a data frame where ``X`` is one."""
        return self.impute(X)[0]

    def impute(self, X: Any, number: int = 1) -> list[Any]:
        """Several completions of the rows, each as of :meth:`transform`; for multiple imputation.

        Args:
            X: rows (N, d).
            number: of completions; 1 of the most probable one.
        """
        check_whole(number, "number")
        if number > 1 and self.strategy != "draw":
            raise conflict("number", "there is one most probable completion", 'give strategy="draw"')
        frame, rows = self._rows(X)
        if not rows.has_missing:
            return [self._filled(X, frame, rows.codes.numpy()) for _ in range(number)]
        options = {"most_probable": True} if self.strategy == "most_probable" else {}
        found = impute(self.result_, rows, number, seed=self._seed(), **options)
        labels = found if number == 1 else found.drop(columns="imputation")
        codes = self._columns.codes_of(
            labels.set_axis([column.variable.name for column in self._columns.columns], axis=1)
        )
        if lost := int((codes < 0).any(1).sum()) // number:
            told = f"not filled: {plural(lost, 'row')} whose known cells have probability zero together"
            warnings.warn(f'{told}; fit with prior="unit"', DataWarning, stacklevel=caller_level())
        return [self._filled(X, frame, part) for part in np.split(codes, number)]

    def _filled(self, X: Any, frame: pd.DataFrame, codes: np.ndarray) -> Any:
        """A table with codes (N, d) in its missing cells."""
        pairs = zip(frame.columns, self._columns.columns, strict=True)
        held = {name: column.fill(frame.iloc[:, i], codes[:, i]) for i, (name, column) in enumerate(pairs)}
        return array_like(X, pd.DataFrame(held, index=frame.index))
