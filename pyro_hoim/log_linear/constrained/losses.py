r"""Convex losses of binary rows as functions of corner theta, in nats per row, and their restrictions to directions.

Corner theta of order K over n binary variables is flat in the order of ``InteractionHypergraph.from_order(domain, K)``.
The losses depend on it through the node logits alone, which are linear:

.. math:: \eta_{r,i} = \log\frac{q(x_i = 1 \mid x_{r,-i})}{q(x_i = 0 \mid x_{r,-i})}
    = \sum_{T \not\ni i,\ |T| < K} \theta_{T \cup \{i\}} \prod_{j \in T} x_{r,j}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ...checks import check_exact_shape
from ...data.frames import DataLike, as_observations
from ...errors import check_type, check_whole, out_of_reach, size_text, unexpected
from ...structure.hypergraph import InteractionHypergraph
from ..coding import Coding
from ..fitting.design import check_data
from ..fitting.pseudo_likelihood import LogLinearPseudoLikelihood
from ..tensors.layout import check_binary

__all__ = ["CategoricalLoss", "InteractionScreeningLoss", "PseudoLikelihoodLoss"]


Floats = NDArray[np.float64]
_BLOCK_ENTRIES = 2**22
_KEPT_ENTRIES = 2**24
_MOST_ENTRIES = 2**28


class Derivatives(NamedTuple):
    """Value, gradient (k,) and Hessian (k, k) of a loss in k step lengths."""

    value: float
    gradient: Floats
    hessian: Floats


class NodeTerms(NamedTuple):
    """A loss of single logits with its first and second derivative, all of the logits' shape."""

    value: Floats
    first: Floats
    second: Floats


@runtime_checkable
class Restriction(Protocol):
    """A loss on a line or plane: a convex function of the lengths (k,) of steps along k directions."""

    def value(self, steps: NDArray[Any]) -> float:
        """The loss."""
        ...

    def derivatives(self, steps: NDArray[Any]) -> Derivatives:
        """The loss with its gradient and Hessian in the step lengths."""
        ...


@runtime_checkable
class Loss(Protocol):
    """A smooth convex function of theta (num_parameters,), in nats per row."""

    hypergraph: InteractionHypergraph
    num_parameters: int
    coding: Coding

    def value(self, theta: NDArray[Any]) -> float:
        """The loss."""
        ...

    def value_and_gradient(self, theta: NDArray[Any]) -> tuple[float, Floats]:
        """The loss and its gradient (num_parameters,)."""
        ...

    def product(self, theta: NDArray[Any], direction: NDArray[Any]) -> Floats:
        """Hessian at theta times a direction (num_parameters,)."""
        ...

    def reduced_hessian(self, theta: NDArray[Any], basis: NDArray[Any]) -> Floats:
        """Hessian (d, d) in the coefficients of the columns of a basis (num_parameters, d)."""
        ...

    def restrict(self, theta: NDArray[Any], directions: NDArray[Any]) -> Restriction:
        """The loss at theta plus steps along directions (k, num_parameters)."""
        ...


class BinaryLoss(ABC):
    r"""A loss of rows of binary variables that is a weighted mean of convex functions of the node logits.

    .. math:: f(\theta) = \frac1N \sum_r n_r \sum_i \varphi(\eta_{r,i}, x_{r,i})

    over the distinct rows, seen :math:`n_r` times, :math:`N = \sum_r n_r`. A subclass gives :math:`\varphi` with its
    two derivatives. An evaluation is one product of the monomials of fewer than ``order`` variables with theta by node:
    O(distinct rows x num_parameters x order) operations, for ``order`` 2 the product of the rows with the
    matrix Q; rows are taken in blocks that need at most 32 MiB each. Double precision on the processor.

    Args:
        data: complete rows of binary variables with their counts or weights.
        order: the most variables of an interaction, from 2 to their number.

    Attributes:
        hypergraph: all sets of one to ``order`` variables.
        num_parameters: length of corner theta.
        coding: "corner".
        num_rows: sum of the counts.

    Raises:
        InputError: a variable that is not binary, fewer than two variables, an order out of range, no rows; of every
            method, theta of another shape.
        InputTypeError: data that are no observations.
        MissingDataError: missing cells.
        IntractableError: more than 2^28 entries of theta over the nodes.
    """

    coding: Coding = "corner"

    def __init__(self, data: DataLike, order: int) -> None:
        data = as_observations(data)
        check_binary(data.domain, "data")
        if len(data.domain) < 2:
            raise unexpected("data", "two variables or more", received=str(len(data.domain)), code="out-of-range")
        self.order = check_whole(order, "order", 2, len(data.domain))
        self.hypergraph = InteractionHypergraph.from_order(data.domain, self.order)
        check_data(self.hypergraph, data, "data")
        self.num_parameters = self.hypergraph.num_parameters
        distinct = data.unique()
        self.num_rows = float(distinct.counts.sum())
        self._states: Floats = distinct.codes.numpy().astype(np.float64)
        self._weights: Floats = (distinct.counts.numpy() / self.num_rows)[:, None]
        self._parents, self._positions = _layout(self.hypergraph, self.order)
        size = len(self._positions)
        self._block = max(1, _BLOCK_ENTRIES // size)
        self._kept = self._monomials(self._states) if len(self._states) * size <= _KEPT_ENTRIES else None

    @abstractmethod
    def _terms(self, logits: Floats, states: Floats, derivatives: int) -> NodeTerms:
        """The functions of logits (m, n) at rows (m, n), with derivatives up to 0, 1 or 2; others are empty."""

    def _checked(self, theta: NDArray[Any], argument: str = "theta") -> Floats:
        values = np.ascontiguousarray(theta, dtype=np.float64)
        check_exact_shape(values, (self.num_parameters,), argument)
        return values

    def _monomials(self, states: Floats) -> Floats:
        """Products of the rows over the sets of fewer than ``order`` variables, (m, sets), the empty set first."""
        pieces = [np.ones((len(states), 1)), states]
        for parent, last in self._parents:
            pieces.append(pieces[-1][:, parent] * states[:, last])
        return np.concatenate(pieces, 1)

    def _blocks(self) -> Iterator[tuple[slice, Floats]]:
        if self._kept is not None:
            yield slice(0, len(self._states)), self._kept
            return
        for start in range(0, len(self._states), self._block):
            where = slice(start, start + self._block)
            yield where, self._monomials(self._states[where])

    def logits(self, theta: NDArray[Any]) -> Floats:
        """Node logits of the distinct rows, (m, n)."""
        matrix = np.append(self._checked(theta), 0.0)[self._positions]
        logits = np.empty_like(self._states)
        for where, monomials in self._blocks():
            np.matmul(monomials, matrix, out=logits[where])
        return logits

    def _pull_back(self, slopes: Floats) -> Floats:
        """The transpose of :meth:`logits`: that of its products, then that of :meth:`_by_node`."""
        products = np.zeros(self._positions.shape)
        for where, monomials in self._blocks():
            products += monomials.T @ slopes[where]
        sums = np.bincount(self._positions.ravel(), weights=products.ravel(), minlength=self.num_parameters + 1)
        return sums[: self.num_parameters].astype(np.float64, copy=False)

    def value(self, theta: NDArray[Any]) -> float:
        """The loss in nats per row."""
        return self.of_logits(self.logits(theta))

    def of_logits(self, logits: Floats) -> float:
        """The loss at node logits (m, n)."""
        return float((self._weights * self._terms(logits, self._states, 0).value).sum())

    def value_and_gradient(self, theta: NDArray[Any]) -> tuple[float, Floats]:
        """The loss and its gradient (num_parameters,), nats per row and unit of theta."""
        terms = self._terms(self.logits(theta), self._states, 1)
        return float((self._weights * terms.value).sum()), self._pull_back(self._weights * terms.first)

    def product(self, theta: NDArray[Any], direction: NDArray[Any]) -> Floats:
        """Hessian at theta times a direction (num_parameters,)."""
        second = self._terms(self.logits(theta), self._states, 2).second
        return self._pull_back(self._weights * second * self.logits(self._checked(direction, "direction")))

    def reduced_hessian(self, theta: NDArray[Any], basis: NDArray[Any]) -> Floats:
        """Hessian (d, d) in the coefficients of the columns of a basis (num_parameters, d).

        For every node it takes the weighted products of the monomials that the basis moves, O(m sets^2), and their
        products with the basis.
        """
        second = self._weights * self._terms(self.logits(theta), self._states, 2).second
        moved = np.append(np.asarray(basis, dtype=np.float64).any(1), False)[self._positions]
        padded = np.concatenate([basis, np.zeros((1, basis.shape[1]))])
        hessian = np.zeros((basis.shape[1],) * 2)
        for node in range(len(self.hypergraph.domain)):
            sets = np.flatnonzero(moved[:, node])
            local = padded[self._positions[sets, node]]
            columns = np.flatnonzero(local.any(0))
            products = np.zeros((len(sets),) * 2)
            for where, monomials in self._blocks():
                features = monomials[:, sets]
                products += (features * second[where, node, None]).T @ features
            local = local[:, columns]
            hessian[np.ix_(columns, columns)] += local.T @ products @ local
        return hessian

    def restrict(self, theta: NDArray[Any], directions: NDArray[Any]) -> Restriction:
        """The loss at theta plus steps along directions (k, num_parameters), which then costs O(k m n)."""
        moves = np.ascontiguousarray(directions, dtype=np.float64)
        check_exact_shape(moves, (len(moves), self.num_parameters), "directions")
        return _LogitPlane(self, self.logits(theta), np.stack([self.logits(move) for move in moves]))


class _LogitPlane:
    """A binary loss where the logits are a base (m, n) plus multiples of moves (k, m, n)."""

    def __init__(self, loss: BinaryLoss, base: Floats, moves: Floats) -> None:
        self._loss, self._base = loss, base
        self._flat = moves.reshape(len(moves), -1)

    def _logits(self, steps: NDArray[Any]) -> Floats:
        return self._base + np.dot(np.asarray(steps, dtype=np.float64)[None], self._flat).reshape(self._base.shape)

    def value(self, steps: NDArray[Any]) -> float:
        """The loss."""
        return self._loss.of_logits(self._logits(steps))

    def derivatives(self, steps: NDArray[Any]) -> Derivatives:
        """The loss with its gradient and Hessian in the step lengths."""
        terms = self._loss._terms(self._logits(steps), self._loss._states, 2)
        weights = self._loss._weights
        first, second = (weights * terms.first).ravel(), (weights * terms.second).ravel()
        gradient, hessian = self._flat @ first, (self._flat * second) @ self._flat.T
        return Derivatives(float((weights * terms.value).sum()), gradient, hessian)


class PseudoLikelihoodLoss(BinaryLoss):
    r"""Negative log pseudo-likelihood of binary rows per row, in nats, as a function of corner theta.

    .. math:: -\ell_p(\theta) / N, \qquad \ell_p(\theta) = \sum_r n_r \sum_i \log q_\theta(x_{r,i} \mid x_{r,-i}),
        \qquad \varphi(\eta, x) = \log(1 + e^\eta) - x \eta

    References:
        Paper 3, section 1.2.2, and section 3.2 for orders above 2.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> loss = PseudoLikelihoodLoss(data, 2)
        >>> round(loss.value(np.zeros(3)), 4)  # two variables, each with probability one half: 2 log 2
        1.3863
        >>> loss.value_and_gradient(np.zeros(3))[1].round(4).tolist()  # of a, b and their pair
        [-0.1, 0.0, -0.25]
    """

    def _terms(self, logits: Floats, states: Floats, derivatives: int) -> NodeTerms:
        signs = 1.0 - 2.0 * states
        against = signs * logits  # for the level that was not observed
        decay = np.exp(-np.abs(against))
        value = np.log1p(decay) + np.maximum(against, 0.0)
        none = np.empty(0)
        if derivatives == 0:
            return NodeTerms(value, none, none)
        small = decay / (1.0 + decay)  # the smaller of the two probabilities
        first = signs * np.where(against >= 0, 1.0 - small, small)
        return NodeTerms(value, first, small * (1.0 - small) if derivatives == 2 else none)


def _layout(
    hypergraph: InteractionHypergraph, order: int
) -> tuple[list[tuple[NDArray[np.int64], NDArray[np.int64]]], NDArray[np.int64]]:
    """How monomials of 2 to ``order`` - 1 variables arise from smaller ones, and positions (sets, n) in theta."""
    num = len(hypergraph.domain)
    number = {edge: index for index, edge in enumerate(hypergraph.edge_indices)}
    small: list[tuple[int, ...]] = [(), *(edge for edge in hypergraph.edge_indices if len(edge) < order)]
    if len(small) * num > _MOST_ENTRIES:
        problem = f"theta over the nodes has {size_text(len(small) * num, 'entries')}, the limit is {_MOST_ENTRIES}"
        raise out_of_reach("order", problem, "take a smaller order or fewer variables")
    # A monomial is that of all members but the last, times the last one.
    parents: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for size in range(2, order):
        first = next(index for index, edge in enumerate(hypergraph.edge_indices) if len(edge) == size - 1)
        sets = [edge for edge in small if len(edge) == size]
        parent = np.array([number[edge[:-1]] - first for edge in sets], dtype=np.int64)
        parents.append((parent, np.array([edge[-1] for edge in sets], dtype=np.int64)))
    # Theta of an interaction enters the logit of each of its members.
    positions = np.full((len(small), num), len(number), dtype=np.int64)
    row = {edge: index for index, edge in enumerate(small)}
    for edge, index in number.items():
        for k, variable in enumerate(edge):
            positions[row[edge[:k] + edge[k + 1 :]], variable] = index
    return parents, positions


# The negative log pseudo-likelihood of rows with any numbers of levels, in free coordinates, as a convex loss.


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
            # Of a softmax: means and covariances of the moves under the conditional law.
            means = np.einsum("rl,rlk->rk", probs, moves)
            gradient += self._weights @ (means - moves[self._rows, observed])
            centred = moves - means[:, None]
            hessian += np.einsum("r,rl,rlj,rlk->jk", self._weights, probs, centred, centred, optimize=True)
        return Derivatives(value, gradient, hessian)


# Interaction screening of binary variables with interactions of any order: an exponential loss of the node logits.


class InteractionScreeningLoss(BinaryLoss):
    r"""Interaction screening objective of binary rows, summed over the nodes, as a function of corner theta.

    .. math:: f(\theta) = \frac1N \sum_r n_r \sum_i e^{-h_i(x_r)}, \qquad
        h_i(x) = E_\theta(\bar x_i, x_{-i}) / 2 - E_\theta(x) / 2 = (x_i - \tfrac12)\, \eta_i(x_{-i})

    :math:`h_i` is the sum of all terms of the log-probability that have variable i, centred over the two levels of i
    with equal weights. Centring takes out every coordinate system: monomials of zeros and ones give half the node logit
    with the sign of the observed level, and so do products of signs -1 and 1, in which Vuffray, Misra and Lokhov write
    binary models. So nothing is converted; theta is that of the corner coding as in every loss here, and what an l1
    norm penalises are corner coordinates, not their couplings of signs.

    Under the law of theta, :math:`e^{-h_i}` weighs the levels of i equally whatever the other variables are: the
    interactions of i are screened, every centred term has mean zero, and the expected gradient vanishes. The loss is
    convex and not negative, but it is no log-likelihood: it has no unit, and a value is not comparable with that of
    :class:`~pyro_hoim.log_linear.constrained.losses.PseudoLikelihoodLoss`. The original minimises the term of every
    node over parameters of its own; here, as in the pseudo-likelihood, an interaction has one parameter for all of its
    nodes. Rows that theta makes improbable weigh exponentially.

    Cost, arguments and errors are those of :class:`~pyro_hoim.log_linear.constrained.losses.BinaryLoss`. Beyond logits
    of some 1,400 values overflow to infinity, which the searches here take for steps that are too long.

    References:
        Marc Vuffray, Sidhant Misra and Andrey Lokhov, Efficient learning of discrete graphical models, 2020, the
        generalised interaction screening objective; Vuffray, Misra, Lokhov and Michael Chertkov, Interaction screening:
        efficient and sample-optimal learning of Ising models, 2016.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> loss = InteractionScreeningLoss(data, 2)
        >>> theta = np.log([0.25, 0.25, 16.0])  # of the table itself: log(10 / 40) twice, log(40 * 40 / (10 * 10))
        >>> bool(np.abs(loss.value_and_gradient(theta)[1]).max() < 1e-15)
        True
    """

    @override
    def _terms(self, logits: Floats, states: Floats, derivatives: int) -> NodeTerms:
        half = 0.5 - states
        with np.errstate(over="ignore"):
            value = np.exp(half * logits)
        none = np.empty(0)
        return NodeTerms(value, half * value if derivatives else none, 0.25 * value if derivatives == 2 else none)
