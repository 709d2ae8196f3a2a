"""The negative log pseudo-likelihood of rows with any numbers of levels, in free coordinates, as a convex loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import check_exact_shape
from ...data.frames import DataLike, as_observations
from ...errors import check_type
from ...structure.hypergraph import InteractionHypergraph
from ..coding import Coding
from ..fitting.arguments import check_data
from ..fitting.pseudo_likelihood import LogLinearPseudoLikelihood
from .losses import Derivatives, Restriction

__all__ = ["CategoricalLoss"]

Floats = NDArray[np.float64]


class CategoricalLoss:
    r"""Negative log pseudo-likelihood per row, in nats, as a function of free theta of any collection.

    With :class:`~pyro_hoim.log_linear.constrained.norms.GroupNorm`, Frank-Wolfe learns which interactions of variables
    with any number of levels there are. Value and gradient are those of
    :class:`~pyro_hoim.log_linear.LogLinearPseudoLikelihood`, with its cost.

    Args:
        hypergraph: the interactions.
        data: complete rows of its domain.

    Attributes:
        num_parameters: length of free theta.
        coding: "free".

    Raises:
        InputError: rows over another domain, or none; of every method, theta of another shape.
        MissingDataError: missing cells.

    References:
        Paper 3, chapter 5, asks for it.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 3}), [[10, 20, 30], [30, 20, 10]])
        >>> loss = CategoricalLoss(InteractionHypergraph.saturated(rows.domain), rows)
        >>> loss.num_parameters, round(loss.value(np.zeros(5)), 4)  # log 2 + log 3
        (5, 1.7918)
    """

    coding: Coding = "free"

    def __init__(self, hypergraph: InteractionHypergraph, data: DataLike) -> None:
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        data = as_observations(data, domain=hypergraph.domain)
        check_data(hypergraph, data, "data")
        self.hypergraph = hypergraph
        self.num_parameters = hypergraph.num_parameters
        self.num_rows = data.total_count
        self._likelihood = LogLinearPseudoLikelihood(hypergraph, data)
        self._codes = data.unique().codes.numpy()

    def value(self, theta: NDArray[Any]) -> float:
        """The loss in nats per row."""
        return -self._likelihood.log_prob(theta) / self.num_rows

    def value_and_gradient(self, theta: NDArray[Any]) -> tuple[float, Floats]:
        """The loss and its gradient (num_parameters,)."""
        value, gradient = self._likelihood.value_and_gradient(theta)
        return -value / self.num_rows, -gradient / self.num_rows

    def product(self, theta: NDArray[Any], direction: NDArray[Any]) -> Floats:
        """Hessian at theta times a direction (num_parameters,)."""
        return -self._likelihood.hessian(theta) @ np.asarray(direction, dtype=np.float64) / self.num_rows

    def reduced_hessian(self, theta: NDArray[Any], basis: NDArray[Any]) -> Floats:
        """Hessian (d, d) in the coefficients of the columns of a basis (num_parameters, d)."""
        return -basis.T @ self._likelihood.hessian(theta) @ basis / self.num_rows

    def restrict(self, theta: NDArray[Any], directions: NDArray[Any]) -> Restriction:
        """The loss at theta plus steps along directions (k, num_parameters)."""
        moves = np.ascontiguousarray(directions, dtype=np.float64)
        check_exact_shape(moves, (len(moves), self.num_parameters), "directions")
        return _ConditionalPlane(self, np.asarray(theta, dtype=np.float64), moves)


class _ConditionalPlane:
    """The conditionals' logits (m, levels) of every variable as a base plus multiples of moves (m, levels, k)."""

    def __init__(self, loss: CategoricalLoss, theta: Floats, moves: Floats) -> None:
        self._weights = loss._likelihood.weights / loss.num_rows
        self._rows = np.arange(len(self._weights))
        self._nodes = [
            (loss._codes[:, variable], features @ theta[where], features @ moves[:, where].T)
            for variable, where, features, _ in loss._likelihood._conditionals(theta)
        ]
        self._size = len(moves)

    def value(self, steps: NDArray[Any]) -> float:
        """The loss."""
        return self.derivatives(steps).value

    def derivatives(self, steps: NDArray[Any]) -> Derivatives:
        """The loss with its gradient and Hessian in the step lengths."""
        value, gradient, hessian = 0.0, np.zeros(self._size), np.zeros((self._size, self._size))
        for observed, base, moves in self._nodes:
            logits = base + moves @ steps
            shifted = logits - logits.max(1, keepdims=True)
            probs = np.exp(shifted)
            sums = probs.sum(1, keepdims=True)
            probs /= sums
            value += float(self._weights @ (np.log(sums[:, 0]) - shifted[self._rows, observed]))
            means = np.einsum("rl,rlk->rk", probs, moves)
            gradient += self._weights @ (means - moves[self._rows, observed])
            centred = moves - means[:, None]
            hessian += np.einsum("r,rl,rlj,rlk->jk", self._weights, probs, centred, centred, optimize=True)
        return Derivatives(value, gradient, hessian)
