r"""Objectives of a fit: mean losses over rows in nats, as functions of theta in the coordinates that the fit works in.

Solvers see their ``evaluate`` only, so objective, penalty and solver combine freely; what does not fit together is
refused by :func:`~pyro_hoim.log_linear.fitting.fit.choose_method`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import scipy
import torch

from ...core.partition import LogPartition, PartitionBackend
from ...data.observations import Observations
from ...structure.hypergraph import InteractionHypergraph
from ..coding import corner_embedding, level_contrasts
from ..energy import LogLinearEnergy
from ..impossible import ImpossibleStates, support_of_states
from .bound import LikelihoodBound
from .design import Coordinates, own_coordinates
from .penalties import SmoothPenalty
from .solvers import Point, Precondition

_MOST_IN_BLOCK, _MOST_IN_GROUP = 1024, 2**22  # parameters of a block that is inverted, and entries of all of a shape
_LEAST_CURVATURE = 1e-8  # of the largest, where levels are absent and no penalty holds them

# The mean negative log pseudo-likelihood of rows and its gradient, without autograd.


_LEAST_COLUMNS, _CELLS = 16, 2**20  # columns from which on products of matrices pay, and cells at a time


class ConditionalLayout:
    """Tables of a collection as conditionals read them: every table once for each variable, that axis last.

    ``source`` is the position in the flat tables of every entry of the layout.
    """

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        self.hypergraph = hypergraph
        cards = hypergraph.domain.cardinalities
        pairs: list[list[tuple[int, int]]] = [[] for _ in cards]
        others: list[list[tuple[int, list[tuple[int, int]]]]] = [[] for _ in cards]
        pieces: list[np.ndarray] = []
        size = 0
        # Every table once for each of its variables; pairs, which are many, need one look-up alone.
        layout = zip(hypergraph.edge_indices, hypergraph.edge_shapes, hypergraph.term_slices.values(), strict=True)
        for edge, shape, where in layout:
            table = np.arange(where.start, where.stop).reshape(shape)
            for k, i in enumerate(edge):
                rest = edge[:k] + edge[k + 1 :]
                if len(rest) == 1:
                    pairs[i].append((size, rest[0]))
                else:
                    lengths = [cards[v] for v in (*rest, i)]
                    strides = [math.prod(lengths[m + 1 :]) for m in range(len(rest))]
                    others[i].append((size, list(zip(rest, strides, strict=True))))
                pieces.append(np.moveaxis(table, k, -1).reshape(-1))
                size += table.size
        self.source = np.concatenate([np.zeros(0, dtype=np.int64), *pieces])
        # Flat arrays, as the kernel takes them.
        flat_pairs = [entry for entries in pairs for entry in entries]
        flat_others = [entry for entries in others for entry in entries]
        members = [member for _, entries in flat_others for member in entries]
        # Many binary columns with single columns and pairs alone are summed by products of matrices.
        self.is_ising = len(cards) >= _LEAST_COLUMNS and set(cards) == {2} and not members
        self.reads = 2.0 * (len(flat_pairs) + len(members)) * max(cards, default=0)  # for a row and its gradient
        self.arrays = (
            np.array(cards, dtype=np.int64),
            _ends([len(entries) for entries in pairs]),
            _ends([len(entries) for entries in others]),
            np.array([base for base, _ in flat_pairs], dtype=np.int64),
            np.array([variable for _, variable in flat_pairs], dtype=np.int64),
            np.array([base for base, _ in flat_others], dtype=np.int64),
            _ends([len(entries) for _, entries in flat_others]),
            np.array([variable for variable, _ in members], dtype=np.int64),
            np.array([stride for _, stride in members], dtype=np.int64),
        )


def _ends(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(lengths, dtype=np.int64))]).astype(np.int64)


class PseudoRows:
    r"""Mean negative log pseudo-likelihood, :math:`-\tfrac1N \sum_n \sum_i \log q(x_{n,i} \mid x_{n,-i})`.

    An evaluation costs O(distinct rows x sum of edge sizes x cardinality). Entries of minus infinity take the
    combinations that they belong to out of every conditional; a row that has one loses infinitely much.
    """

    def __init__(self, rows: Observations) -> None:
        distinct = rows.unique()
        self.rows = rows
        self._codes = np.ascontiguousarray(distinct.codes.numpy(), dtype=np.int32)
        self._weights = distinct.counts.numpy() / float(distinct.counts.sum())

    def _sum(self, layout: ConditionalLayout, tables: np.ndarray, gradient: np.ndarray, with_gradient: bool) -> float:
        from ...compute.lanes import pieces
        from ._pseudo_kernels import BLOCK, conditionals

        entries = tables[layout.source]
        if layout.is_ising and np.isfinite(entries).all():
            return self._sum_ising(layout, entries, gradient, with_gradient)
        loss = 0.0
        for first, end in pieces(len(self._codes), len(self._codes) * layout.reads, BLOCK):
            rows = self._codes[first:end], self._weights[first:end]
            loss = float(conditionals(*rows, layout.arrays, entries, gradient, with_gradient, loss))
        return loss

    def _sum_ising(
        self, layout: ConditionalLayout, entries: np.ndarray, gradient: np.ndarray, with_gradient: bool
    ) -> float:
        """The same of many binary columns with single columns and pairs alone, by products of matrices."""
        cards, first_pair, first_other, base, other, single = layout.arrays[:6]
        column, alone = (np.repeat(np.arange(len(cards)), np.diff(first)) for first in (first_pair, first_other))
        # Log odds of a column: a constant, and what every other one at its second level adds.
        at_zero, at_one = entries[base + 1] - entries[base], entries[base + 3] - entries[base + 2]
        constant = np.bincount(column, at_zero, len(cards)) + np.bincount(
            alone, entries[single + 1] - entries[single], len(cards)
        )
        slopes, products, sums = *np.zeros((2, len(cards), len(cards))), np.zeros(len(cards))
        slopes[other, column] = at_one - at_zero
        loss, step = 0.0, max(1, _CELLS // len(cards))
        for start in range(0, len(self._codes), step):
            x, weights = self._codes[start : start + step].astype(np.float64), self._weights[start : start + step, None]
            odds = x @ slopes + constant
            rarer = np.exp(-np.abs(odds))
            loss += float((weights * (np.maximum(odds, 0.0) + np.log1p(rarer) - x * odds)).sum())
            if with_gradient:
                shares = weights * (np.where(odds >= 0.0, 1.0, rarer) / (1.0 + rarer) - x)
                products += x.T @ shares
                sums += shares.sum(0)
        # Every entry's gradient; those of a first level are those of its second with the other sign.
        if with_gradient:
            ones, all_rows = products[other, column], sums[column]
            for place_of, values in ((base, all_rows - ones), (base + 2, ones), (single, sums[alone])):
                gradient[place_of] -= values
                gradient[place_of + 1] += values
        return loss

    def value(self, layout: ConditionalLayout, tables: np.ndarray) -> float:
        """The loss of tables (num_terms,), in nats per row."""
        return self._sum(layout, tables, np.empty(0), False)

    def evaluate(self, layout: ConditionalLayout, tables: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss of tables (num_terms,) and its gradient in them, which is not centred."""
        gradient = np.zeros(len(layout.source))
        loss = self._sum(layout, tables, gradient, True)
        total = np.bincount(layout.source, weights=gradient, minlength=len(tables))
        return loss, total.astype(np.float64, copy=False)  # without entries it has whole numbers


class DenseLikelihood:
    r"""Mean negative log-likelihood of a small table, with its exact Hessian.

    .. math:: f(\theta) = \log Z(\theta) - \theta \cdot t, \qquad
        \nabla f = \mathrm{E}_\theta[X] - t, \qquad \nabla^2 f = \mathrm{Cov}_\theta[X]

    with :math:`X` the statistics of a cell, ``design`` (cells, parameters), and t their empirical means,
    ``statistics`` (parameters,). An evaluation costs two products with the design, the Hessian O(cells x parameters^2).
    """

    name = "likelihood"

    def __init__(self, design: np.ndarray, statistics: np.ndarray) -> None:
        self.design = design
        self.statistics = statistics
        self._last = (np.empty(0), np.empty(0))

    def evaluate(self, theta: np.ndarray) -> Point:
        """Loss and gradient at parameters (parameters,)."""
        logits = self.design @ theta
        top = logits.max()
        weights = np.exp(logits - top)
        total = weights.sum()
        probs = weights / total
        mean = probs @ self.design
        self._last = (probs, mean)
        loss = float(top + np.log(total) - theta @ self.statistics)
        return Point(theta, loss, loss, mean - self.statistics)

    def hessian(self) -> np.ndarray:
        """Covariance of the statistics at the parameters evaluated last, its upper triangle."""
        return self.covariance(*self._last)

    def covariance(self, probs: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Covariance of the statistics under a law of the cells with these means, its upper triangle."""
        if not self.design.shape[1]:
            return np.zeros((0, 0))  # BLAS would complain about a matrix without rows on standard output
        scaled = self.design * np.sqrt(probs)[:, None]
        # The transposed C-ordered matrix is Fortran-ordered, as BLAS wants it; only the upper triangle is filled.
        covariance = scipy.linalg.blas.dsyrk(1.0, scaled.T, trans=0, lower=0)
        covariance -= mean[:, None] * mean
        return covariance


class BackendEngine:
    """Log Z and its derivatives by a partition backend and one sweep of autograd."""

    def __init__(self, hypergraph: InteractionHypergraph, backend: PartitionBackend) -> None:
        self.hypergraph = hypergraph
        self._backend = backend

    def _model(self, tables: np.ndarray) -> LogLinearEnergy:
        return LogLinearEnergy(self.hypergraph, torch.from_numpy(tables), validate=False)

    def evaluate(self, tables: np.ndarray) -> tuple[float, np.ndarray]:
        """Log Z in nats and eta (num_terms,) of tables (num_terms,)."""
        if not np.isfinite(tables).all():
            return math.nan, np.full(len(tables), math.nan)
        with torch.enable_grad():
            leaf = torch.from_numpy(tables.copy()).requires_grad_()
            value = self._backend.log_partition(LogLinearEnergy(self.hypergraph, leaf, validate=False)).value
            if not leaf.numel():
                return float(value.detach()), np.zeros(0)
            (eta,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), eta.numpy()

    def log_partition(self, tables: np.ndarray) -> LogPartition:
        """Log Z and what it cost."""
        return self._backend.log_partition(self._model(tables))

    def margins(self, tables: np.ndarray, edges: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Laws over sets of variables, given by increasing schema positions; axes in that order."""
        names = self.hypergraph.domain.names
        model = self._model(tables)
        return [self._backend.marginal(model, [names[v] for v in edge]).numpy() for edge in edges]


class Likelihood:
    """Mean negative log-likelihood through a partition backend: one log Z and one sweep of autograd, for any N.

    With the basis of a subspace of theta, parameters are coordinates along its columns.
    """

    name = "likelihood"

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        statistics: np.ndarray,
        partition: PartitionBackend,
        coordinates: Coordinates | None = None,
        space: np.ndarray | None = None,
    ) -> None:
        self.statistics = statistics
        self._engine = BackendEngine(hypergraph, partition)
        self._coordinates = coordinates or own_coordinates(hypergraph)
        self._space = space

    def evaluate(self, theta: np.ndarray) -> Point:
        """Loss and gradient at parameters (num_parameters,)."""
        whole = theta if self._space is None else self._space @ theta
        log_z, eta = self._engine.evaluate(self._coordinates.tables(whole))
        loss = log_z - float(whole @ self.statistics)
        gradient = self._coordinates.statistics(eta) - self.statistics
        return Point(theta, loss, loss, gradient if self._space is None else gradient @ self._space)


class PseudoLikelihood:
    r"""Mean negative log pseudo-likelihood, :math:`-\tfrac1N \sum_n \sum_i \log q(x_{n,i} \mid x_{n,-i})`.

    It needs no partition function. Its minimiser is consistent, and equals the maximum-likelihood estimate for
    independent and saturated models.
    """

    name = "pseudo-likelihood"

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        rows: Observations,
        coordinates: Coordinates | None = None,
        impossible: ImpossibleStates | None = None,
    ) -> None:
        self._rows = PseudoRows(rows)
        self._support = None if impossible is None else support_of_states(hypergraph, impossible)
        self._layout = ConditionalLayout(hypergraph if self._support is None else self._support.graph)
        self._coordinates = coordinates or own_coordinates(hypergraph)

    def _tables(self, theta: np.ndarray) -> np.ndarray:
        tables = self._coordinates.tables(theta)
        return tables if self._support is None else self._support.model(torch.from_numpy(tables)).tables.numpy()

    def evaluate(self, theta: np.ndarray) -> Point:
        """Loss and gradient at parameters (num_parameters,)."""
        loss, gradient = self._rows.evaluate(self._layout, self._tables(theta))
        if self._support is not None:
            gradient = self._support.finite_terms(torch.from_numpy(gradient)).numpy()
        return Point(theta, loss, loss, self._coordinates.statistics(gradient))

    def value(self, theta: np.ndarray) -> float:
        """The loss at parameters (num_parameters,), without a gradient."""
        return self._rows.value(self._layout, self._tables(theta))

    def preconditioner(self, precision: np.ndarray) -> Precondition:
        r"""Multiplies by the inverse of the Hessian's block of every interaction S, were the variables independent.

        .. math:: \sum_{i \in S} C_i \otimes \bigotimes_{j \in S \setminus i} A_j + \lambda, \qquad
            A_j = B_j^\top \mathrm{diag}(p_j) B_j, \quad C_i = A_i - B_i^\top p_i p_i^\top B_i

        with :math:`p_j` the shares of the levels of variable j and :math:`B_j` the contrasts of the coordinates. Rare
        levels have little curvature, by which the Hessian is else far from even.

        Args:
            precision: of the penalty per row (num_parameters,).
        """
        graph, rows = self._coordinates.hypergraph, self._rows.rows
        contrasts = corner_embedding if self._coordinates.coding == "corner" else level_contrasts
        weights = rows.counts.numpy() / rows.total_count
        second, covariance = list[np.ndarray](), list[np.ndarray]()
        for codes, variable in zip(rows.codes.numpy().T, graph.domain, strict=True):
            shares, basis = np.bincount(codes, weights, variable.cardinality), contrasts(variable.cardinality)
            second.append(basis.T @ (shares[:, None] * basis))
            covariance.append(second[-1] - np.outer(basis.T @ shares, basis.T @ shares))
        # Blocks of one shape are inverted and multiplied together; of large ones only the diagonal.
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for k, shape in enumerate(graph.edge_shapes):
            by_shape.setdefault(shape, []).append(k)
        slices, groups = list(graph.parameter_slices.values()), list[tuple[np.ndarray, np.ndarray]]()
        for members in by_shape.values():
            places = np.stack([np.arange(slices[k].start, slices[k].stop) for k in members])
            if not places.size:
                continue
            is_whole = places.shape[1] <= _MOST_IN_BLOCK and places.size * places.shape[1] <= _MOST_IN_GROUP
            blocks = list[np.ndarray]()
            for k in members:
                edge = graph.edge_indices[k]
                terms = ([covariance[j] if j == i else second[j] for j in edge] for i in edge)
                block = sum(reduce(np.kron, term if is_whole else map(np.diag, term)) for term in terms)
                blocks.append(block + (np.diag(precision[slices[k]]) if is_whole else precision[slices[k]]))
            stack = np.stack(blocks)
            least = _LEAST_CURVATURE * max(float(stack.max()), 1e-300)
            groups.append(
                (places, np.linalg.inv(stack + least * np.eye(len(stack[0]))) if is_whole else 1 / (stack + least))
            )

        def multiply(values: np.ndarray) -> np.ndarray:
            result = values.copy()
            for places, inverse in groups:
                part = values[places]
                result[places] = inverse * part if inverse.ndim == 2 else (inverse @ part[:, :, None])[:, :, 0]
            return result

        return multiply


Objective = DenseLikelihood | Likelihood | PseudoLikelihood | LikelihoodBound
"""What the rows alone say; its minimiser without a penalty is the estimate."""


class Penalised:
    """An objective plus a smooth penalty on all rows, divided by their number ``total_count``."""

    def __init__(
        self, objective: Objective, penalty: SmoothPenalty, hypergraph: InteractionHypergraph, total_count: float
    ) -> None:
        self._objective = objective
        self._penalty = penalty
        self._hypergraph = hypergraph
        self._weight = 1 / total_count
        self._theta = np.empty(0)

    def evaluate(self, theta: np.ndarray) -> Point:
        """Losses and gradient at parameters (num_parameters,)."""
        point = self._objective.evaluate(theta)
        self._theta = theta
        value = point.value + self._weight * self._penalty.value(theta, self._hypergraph)
        slope = self._weight * self._penalty.gradient(theta, self._hypergraph)
        return replace(point, value=value, gradient=point.gradient + slope)

    def hessian(self) -> np.ndarray:
        """Hessian at the parameters evaluated last."""
        assert isinstance(self._objective, DenseLikelihood)
        hessian = self._objective.hessian()
        diagonal = self._penalty.hessian_diagonal(self._theta, self._hypergraph)
        hessian[np.diag_indices_from(hessian)] += self._weight * diagonal
        return hessian


class WithFictiveRows:
    """A mean negative log-likelihood plus that of ``share`` fictive rows, spread evenly over the cells, per row."""

    def __init__(self, objective: DenseLikelihood | Likelihood, share: float) -> None:
        self._objective = objective
        self._share = share

    def evaluate(self, theta: np.ndarray) -> Point:
        """Losses and gradient at parameters (num_parameters,)."""
        point, statistics = self._objective.evaluate(theta), self._objective.statistics
        log_z = point.loss + float(theta @ statistics)
        gradient = point.gradient + self._share * (point.gradient + statistics)
        return replace(point, value=point.value + self._share * log_z, gradient=gradient)

    def hessian(self) -> np.ndarray:
        """Hessian at the parameters evaluated last."""
        assert isinstance(self._objective, DenseLikelihood)
        return (1 + self._share) * self._objective.hessian()
