"""Passes of weighted mini-bucket elimination over one model, of which the tightest bound is kept."""

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ._join_graph import TABLE, JoinGraph, compiled

Floats = NDArray[np.float64]

_ROUNDING = float(np.finfo(np.float64).eps)  # twice that of one operation
_LOG_SUM = 4e-15  # error of the logarithm of a sum of exponentials, as the loops find it
_LEAST_STEP = 1 / 64
_LEAST_GAIN = 1e-3  # of a pass, as a share of what all passes after the first have gained


class Sweeps:
    """A bound of log Z that passes over the join graph tighten: costs are shifted and weights moved.

    Args:
        graph: the mini-buckets.
        tables: (num_terms,), without NaN and plus infinity.
        is_upper: weights of a bucket are positive for an upper bound; for a lower one all but one are negative.
    """

    def __init__(self, graph: JoinGraph, tables: Floats, is_upper: bool) -> None:
        self.graph, self.compiled, self.is_upper = graph, compiled(graph), is_upper
        sizes = self.compiled
        self.values, self.beliefs = np.zeros(sizes.num_values), np.zeros(sizes.num_values)
        self.values[: sizes.num_terms] = tables
        self.backward = np.zeros(sizes.num_kept)
        ends = sizes.program.buckets
        counts = np.diff(ends)
        shares = np.repeat(1.0 / np.maximum(counts, 1), counts)
        self.weights = shares if is_upper else np.where(shares < 1.0, -shares, shares)
        if not is_upper:
            positive = ends[:-1][counts > 1]
            self.weights[positive] = 2.0 - shares[positive]
        self.work = *(np.zeros(sizes.num_block) for _ in range(7)), np.zeros(len(shares))
        self.best, self.slack, self.is_current = (math.inf if is_upper else -math.inf), 0.0, False
        self.num_passes, self._step, self._first = 0, 1.0, math.nan
        self._kept = self.shifts.copy(), self.weights.copy()

    @property
    def shifts(self) -> Floats:
        """The costs that are shifted between mini-buckets, a view."""
        first = self.compiled.num_terms
        return self.values[first : first + self.compiled.num_shifts]

    @property
    def bound(self) -> float:
        """The tightest bound so far, rounded outward."""
        return self.best + (self.slack if self.is_upper else -self.slack)

    def _rounding(self) -> float:
        """Most by which rounding can have moved the bound of the last pass, nats.

        A log-sum moves by no more than what it sums, whatever the signs of weights, so that the errors of all
        mini-buckets add up: of sums of tables, as large as these, and of the logarithm of a sum.
        """
        from ._kernels import rounding

        sizes, first = np.abs(self.values[: self.compiled.num_terms]), self.compiled.starts[TABLE]
        sizes[~np.isfinite(sizes)] = 0.0
        tables = np.maximum.reduceat(sizes, first) if len(first) else np.zeros(0)
        of_inputs, of_logs, of_levels, of_roots = rounding(
            self.values, self.weights, self.compiled.program, tables, self.work[-1]
        )
        return _ROUNDING * (of_inputs + of_levels + of_roots) + _LOG_SUM * of_logs

    def passes(self, number: int) -> Iterator[float]:
        """Tighten the bound once more at every turn until so many passes were made; ends when they change little.

        Where all mini-buckets of a bucket are changed at once, a full step may overshoot: steps are halved after a
        pass that loosened the bound, and the best costs and weights are taken up again.
        """
        from ._kernels import backward_pass, forward

        program = self.compiled.program
        most = min(number, 1) if self.graph.is_exact else number
        while self.num_passes < most and self._step >= _LEAST_STEP:
            if self.num_passes:
                backward_pass(self.values, self.beliefs, self.backward, self.weights, program, self.work)
            step, self.num_passes, self.is_current = self._step, self.num_passes + 1, False
            bound = float(
                forward(self.values, self.beliefs, self.backward, self.weights, program, step, 0.1 * step, self.work)
            )
            gain = self.best - bound if self.is_upper else bound - self.best
            self.is_current = gain > 0 or math.isinf(self.best)
            if self.is_current:
                self.best, self.slack = bound, self._rounding()
                self._kept = self.shifts.copy(), self.weights.copy()
            elif self.is_upper:
                self._restore()
                self._step /= 2
            if self.num_passes == 1:
                self._first = bound
            yield self.bound
            if math.isinf(bound):
                return
            if self.num_passes > 2 and 0 < gain < _LEAST_GAIN * abs(self.best - self._first):
                return

    def _restore(self) -> None:
        """Make the buffers those of the best bound."""
        from ._kernels import forward

        self.shifts[:], self.weights[:] = self._kept
        forward(self.values, self.beliefs, self.backward, self.weights, self.compiled.program, 0.0, 0.0, self.work)
        self.is_current = True

    @property
    def tightest(self) -> tuple[Floats, Floats]:
        """Shifted costs (num_shifts,) and weights (mini-buckets,) of the tightest bound."""
        return self._kept

    def start_from(self, tables: Floats, shifts: Floats, weights: Floats) -> None:
        """Begin with other tables, costs and weights, whose bound further passes tighten."""
        from ._kernels import forward

        self.values[: self.compiled.num_terms] = tables
        self.shifts[:], self.weights[:] = self._kept = shifts.copy(), weights.copy()
        program = self.compiled.program
        self.best = float(forward(self.values, self.beliefs, self.backward, self.weights, program, 0.0, 0.0, self.work))
        self.slack, self.is_current = self._rounding(), True
        self.num_passes, self._step, self._first = 1, 1.0, self.best
        vars(self).pop("eta", None)

    def evaluate(self, tables: Floats, shifts: Floats, weights: Floats) -> float:
        """The bound of tables, costs and weights as they are given; ``beliefs`` are then its gradient in the first two.

        Passes go on from here only after :meth:`start_from`.
        """
        from ._kernels import backward_pass, forward

        self.values[: self.compiled.num_terms], self.shifts[:], self.weights[:] = tables, shifts, weights
        self.is_current, program = False, self.compiled.program
        bound = float(forward(self.values, self.beliefs, self.backward, self.weights, program, 0.0, 0.0, self.work))
        backward_pass(self.values, self.beliefs, self.backward, self.weights, program, self.work)
        return bound

    def belief(self, names: tuple[int, ...]) -> Floats:
        """Joint probabilities of variables that one mini-bucket holds, at the best bound."""
        if not names:
            return np.ones(())
        graph, rows = self.graph, self.compiled.program.nodes
        _ = self.eta
        cards = graph.hypergraph.domain.cardinalities
        holding = [k for k, node in enumerate(graph.nodes) if set(names) <= set(node.scope)]
        number = min(holding, key=lambda k: graph.size(graph.nodes[k].scope))
        scope = graph.nodes[number].scope
        # The belief of a mini-bucket is that of its message times the law of its variable given the others.
        shape = [cards[v] for v in scope]
        log_table = np.zeros(shape)
        for item in graph.nodes[number].inputs:
            start = self.compiled.place(item)
            table = self.values[start : start + graph.size(item.scope)].reshape([cards[v] for v in item.scope])
            ranked = sorted(item.scope, key=scope.index)
            table = table.transpose([item.scope.index(v) for v in ranked])
            log_table = log_table + table.reshape([cards[v] if v in item.scope else 1 for v in scope])
        log_table /= self.weights[number]
        top = log_table.max(0)
        law = np.exp(log_table - np.where(np.isfinite(top), top, 0.0))
        message = rows[number, 3]
        sums = np.maximum(law.sum(0), np.finfo(np.float64).tiny)
        joint = law / sums * self.beliefs[message : message + rows[number, 1]].reshape(shape[1:])
        others = tuple(k for k, v in enumerate(scope) if v not in names)
        left = [v for v in scope if v in names]
        marginal = joint.sum(others) if others else joint
        marginal = marginal.transpose([left.index(v) for v in names])
        return marginal / marginal.sum()

    @cached_property
    def eta(self) -> Floats:
        """Beliefs of all tables at the best bound, (num_terms,): its gradient, zero where the bound is infinite."""
        from ._kernels import backward_pass

        if math.isinf(self.best):
            return np.zeros(self.compiled.num_terms)
        self._restore()
        backward_pass(self.values, self.beliefs, self.backward, self.weights, self.compiled.program, self.work)
        return self.beliefs[: self.compiled.num_terms].copy()

    def make_current(self) -> None:
        """Make the buffers those of the best bound unless they are."""
        if not self.is_current:
            self._restore()
