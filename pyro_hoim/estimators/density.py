"""Densities of rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..core.scores import RowLogLikelihood
from ..errors import check_whole, refused
from .base import DensityMixin, InteractionEstimator, as_given, named

__all__ = ["InteractionDensity"]


class InteractionDensity(DensityMixin, InteractionEstimator):
    r"""The joint distribution of all columns of a table, as an estimator of scikit-learn.

    Columns of text, truth values, categories and whole numbers are levels as they are. Numbers with fractions, or of
    more than ten distinct values, are cut at their quantiles into ``bins`` levels: the log-likelihood is then that of
    the bins, not a density per unit, and a drawn number is the median of its bin. Missing cells are summed over.

    Args:
        family: ``log-linear``, ``dependency-network``, ``rbm`` (binary columns), ``grm`` (counts or real numbers, which
            are not cut) or another that is registered.
        order: interactions of up to so many columns; default of the family: 2.
        edges: of a log-linear model a formula such as ``"smoke*lung + ."``, or sets of names, in place of ``order``.
            Columns of arrays are named x0, x1, ...
        prior: of a log-linear model: ``unit`` (default), ``none`` for maximum likelihood, ``normal:S``, ...; see
            :class:`~pyro_hoim.log_linear.named_priors.Prior`.
        options: further options of the family by name: ``alpha``, ``max_leaves`` and ``lossless`` of a dependency
            network; ``hidden``, ``method``, ``iterations``, ... of an rbm; ``family``, ``l1``, ... of a grm;
            ``objective`` of a log-linear model.
        bins: levels of numbers; None refuses fractions.
        handle_unknown: what a level is that the fit did not meet: an ``error``, or a ``missing`` cell.
        random_state: of draws, and of families that learn by chance.

    Attributes:
        result_: the result of the fit, a model of the library.
        domain_: its variables.
        n_features_in_: number of columns.
        feature_names_in_: their names, where the table had any.

    Raises:
        InputError: parameters that are out of range or not of the family, or a column without a level.
        UnknownNameError: a family, an option or, with ``handle_unknown="error"``, a level that is not known.
        IntractableError: a table whose missing cells cannot be summed over.

    Example:
        >>> rows = np.array([["no", "dry"], ["no", "dry"], ["yes", "wet"], ["yes", "wet"], ["no", "wet"]])
        >>> density = InteractionDensity(random_state=0).fit(rows)
        >>> density.score_samples(rows).round(3).tolist()
        [-0.995, -0.995, -0.995, -0.995, -1.608]
        >>> density.sample(2).tolist()
        [['no', 'wet'], ['no', 'dry']]
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002 (scikit-learn's)
        """Fit the model to rows (N, d), with weights (N,); ``y`` is ignored."""
        family = self._family
        frame = self._frame(X, reset=True)
        if family.data_type == "labels":
            self._fit_labels(frame, self._weights(sample_weight, frame))
            return self
        if sample_weight is not None:
            raise refused("sample_weight", f"a {family.name} takes no weights", code="conflict")
        self.result_ = self._estimate(family, named(frame))
        stored = family.stored(self.result_)
        assert stored is not None
        self.domain_ = stored.domain
        return self

    def score_rows(self, X: Any) -> RowLogLikelihood:
        """As :meth:`score_samples`, with whether the values are likelihoods or pseudo-likelihoods, and exact."""
        return self._score_each(X)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-likelihood of every row, (N,), nats; the pseudo-likelihood where log Z is out of reach (`score_rows`)."""
        return self._score_each(X).values.double().numpy()

    def score(self, X: Any, y: Any = None) -> Any:  # noqa: ARG002 (scikit-learn's)
        """Mean of :meth:`score_samples`; ``y`` is ignored."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> Any:
        """Independent rows of the model, (n_samples, d), as a data frame where it was fitted on one."""
        check_whole(n_samples, "n_samples")
        return as_given(self._draw(n_samples), self)
