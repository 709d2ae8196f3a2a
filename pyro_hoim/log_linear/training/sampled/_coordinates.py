"""Coordinates in which sampled training makes its steps, with the ridge there. Private to training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from ....structure.hypergraph import InteractionHypergraph
from ...coding import parametrization
from ..ridge import InteractionRidge

Floats = NDArray[np.float64]


class Coordinates:
    """Raw tables of a hierarchical collection, or the free coordinates of balanced tables of another.

    Raw tables are many coordinates of one law. Adam is faster in them, and the ridge is on them: on the same law it is
    weaker than on balanced tables.
    """

    def __init__(self, hypergraph: InteractionHypergraph, ridge: InteractionRidge | None, total: float) -> None:
        self._codings = parametrization(hypergraph)
        self._hypergraph = hypergraph
        self._total = total
        self.is_raw = hypergraph.is_hierarchical
        self.size = hypergraph.num_terms if self.is_raw else hypergraph.num_parameters
        self._smooth = None if ridge is None or ridge.is_zero else ridge
        self._ridge = np.zeros(self.size)
        if self._smooth is not None:
            self._ridge = self._majorant(self._smooth) / total

    def _majorant(self, ridge: InteractionRidge) -> Floats:
        r"""A diagonal (size,) that is nowhere below the Hessian of the ridge.

        Along a smooth axis with correlation r no eigenvalue of the precision is above :math:`(1 + r) / (1 - r)`.
        """
        strengths = (ridge.terms if self.is_raw else ridge.parameters)(self._hypergraph)
        if ridge.is_diagonal(self._hypergraph):
            return strengths
        slices = self._hypergraph.term_slices if self.is_raw else self._hypergraph.parameter_slices
        largest = (1 + ridge.smoothness) / (1 - ridge.smoothness)
        for edge, where in slices.items():
            strengths[where] *= largest ** sum(ridge.is_smooth(edge, self._hypergraph.domain[name]) for name in edge)
        return strengths

    def _mapped(self, function: Callable[[torch.Tensor], torch.Tensor], values: Floats) -> Floats:
        return function(torch.from_numpy(values)).numpy()

    def of_tables(self, tables: Floats) -> Floats:
        """Coordinates (size,) of balanced tables (num_terms,)."""
        return tables.copy() if self.is_raw else self._mapped(self._codings.from_tables, tables)

    def tables(self, x: Floats) -> Floats:
        """Tables (num_terms,) of coordinates, balanced unless these are raw."""
        return x if self.is_raw else self._mapped(self._codings.to_tables, x)

    def balanced(self, x: Floats) -> Floats:
        """Balanced tables (num_terms,) of coordinates."""
        if not self.is_raw:
            return self.tables(x)
        return self._mapped(lambda tables: self._codings.purify(tables)[0], x)

    def gradient(self, eta: Floats) -> Floats:
        """Gradient (size,) of the sum of tables times eta (num_terms,)."""
        return eta if self.is_raw else self._mapped(self._codings.free_statistics, eta)

    def _pull(self, x: Floats) -> Floats | float:
        """Gradient of the ridge per row."""
        return 0.0 if self._smooth is None else self._smooth.gradient(x, self._hypergraph) / self._total

    def step(self, x: Floats, direction: Floats, step: Floats) -> Floats:
        r"""Coordinates after a step with step sizes s (size,) and the proximal map of the ridge in the metric 1/s.

        The ridge acts by a diagonal above its precision at the new coordinates, which divides by
        :math:`1 + s \lambda`, and by the rest of it at the old ones.
        """
        new = x + step * direction
        if self._smooth is not None:
            new -= step * (self._pull(x) - self._ridge * x)
        return new / (1 + step * self._ridge)

    def residual(self, x: Floats, gradient: Floats) -> float:
        """Largest absolute entry of the gradient with the ridge."""
        return float(np.abs(gradient - self._pull(x)).max(initial=0.0))
