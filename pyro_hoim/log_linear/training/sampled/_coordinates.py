"""Coordinates in which sampled training makes its steps, with the penalty there. Private to training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from ....errors import InputTypeError, check_names
from ....schema import Domain
from ....structure.hypergraph import InteractionHypergraph
from ...coding import parametrization
from ...fitting.penalties import L1, L2, GroupL2
from ..ordinal import is_smooth_axis
from ..ridge import InteractionRidge

Floats = NDArray[np.float64]
SampledPenalty = InteractionRidge | L2 | L1 | GroupL2


def check_penalty(penalty: SampledPenalty | None, domain: Domain) -> None:
    """Refuse penalties whose proximal map has no closed form in Adam's metric, and strengths of unknown variables."""
    if penalty is not None and not isinstance(penalty, SampledPenalty):
        problem = (
            f"sampled training supports InteractionRidge, L2, L1, GroupL2 and None, received {type(penalty).__name__}; "
            "its steps need a ridge, or a norm that is a sum over interactions"
        )
        raise InputTypeError(problem, argument="penalty", code="invalid-value")
    if isinstance(penalty, InteractionRidge):
        for edge in penalty.by_edge:
            check_names(edge, domain.names, "penalty by_edge")


class Coordinates:
    """Raw tables of a hierarchical collection, or free coordinates where a table must stay pure.

    Raw tables are many coordinates of one law. Adam is faster in them, and the ridge is on them: on the same law it is
    weaker than on balanced tables. Collections that are not hierarchical, and penalties that set interactions to zero,
    use the free coordinates of the balanced tables.
    """

    def __init__(self, hypergraph: InteractionHypergraph, penalty: SampledPenalty | None, total: float) -> None:
        self._codings = parametrization(hypergraph)
        self._hypergraph = hypergraph
        self._penalty = penalty if isinstance(penalty, L1 | GroupL2) else None
        self._total = total
        self.is_raw = hypergraph.is_hierarchical and self._penalty is None
        self.size = hypergraph.num_terms if self.is_raw else hypergraph.num_parameters
        self.groups = None if self._penalty is None else self._interaction_of_coordinates()
        ridge = InteractionRidge(penalty.strength) if isinstance(penalty, L2) else penalty
        self._smooth = ridge if isinstance(ridge, InteractionRidge) and not ridge.is_zero else None
        self._ridge = np.zeros(self.size)
        if self._smooth is not None:
            self._ridge = self._majorant(self._smooth) / total

    def _interaction_of_coordinates(self) -> NDArray[np.int64]:
        slices = self._hypergraph.parameter_slices.values()
        return np.repeat(np.arange(len(slices)), [where.stop - where.start for where in slices])

    def _majorant(self, ridge: InteractionRidge) -> Floats:
        r"""A diagonal (size,) that is nowhere below the Hessian of the ridge.

        Along a smooth axis with correlation r no eigenvalue of the precision is above :math:`(1 + r) / (1 - r)`.
        """
        strengths = (ridge.terms if self.is_raw else ridge.parameters)(self._hypergraph).copy()
        if ridge.is_diagonal(self._hypergraph):
            return strengths
        slices = self._hypergraph.term_slices if self.is_raw else self._hypergraph.parameter_slices
        largest = (1 + ridge.smoothness) / (1 - ridge.smoothness)
        for edge, where in slices.items():
            if len(edge) > 1 or ridge.smooth_singles:
                strengths[where] *= largest ** sum(is_smooth_axis(self._hypergraph.domain[name]) for name in edge)
        return strengths

    @property
    def is_sparse(self) -> bool:
        """Whether the penalty sets coordinates to zero."""
        return self._penalty is not None

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

    def step(self, x: Floats, direction: Floats, step: Floats) -> Floats:
        r"""Coordinates after a step with step sizes s (size,), the penalty by its proximal map in the metric 1/s.

        A norm is positively homogeneous, so that :math:`\mathrm{prox}_{s f}(x) = s\, \mathrm{prox}_f(x / s)` for step
        sizes that are equal within an interaction. A ridge acts by a diagonal above its precision at the
        new coordinates, which divides by :math:`1 + s \lambda`, and by the rest of it at the old ones.
        """
        new = x + step * direction
        if self._smooth is not None:
            new -= step * (self._smooth.gradient(x, self._hypergraph) / self._total - self._ridge * x)
        if self._penalty is not None:
            new = step * self._penalty.prox(new / step, 1 / self._total, self._hypergraph)
        return new / (1 + step * self._ridge)

    def residual(self, x: Floats, gradient: Floats) -> float:
        """Largest absolute entry of the gradient with the penalty; under a norm, of a unit step by its proximal map."""
        if not x.size:
            return 0.0
        if self._penalty is None:
            pull = 0.0 if self._smooth is None else self._smooth.gradient(x, self._hypergraph) / self._total
            return float(np.abs(gradient - pull).max())
        return float(np.abs(self.step(x, gradient, np.ones_like(x)) - x).max())
