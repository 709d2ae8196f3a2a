"""Working set of one root regression: its features, their columns on the rows they touch, and the objective there."""

from __future__ import annotations

import numpy as np

from ._kernels import feature_columns, feature_gradients
from ._regression import Floats, Integers, Point, Regression
from .rows import RootRows


class WorkingSet(Regression):
    """Features of one node that may be nonzero; rows that no feature touches are held once, with their number."""

    def __init__(self, rows: RootRows, node: int, orders: Integers, l1: Floats, width: int) -> None:
        self.rows, self.node = rows, node
        self.family, self.order = rows.family, rows.order
        self.num_constants = len(orders)
        self.targets = rows.column_roots(node)
        self.orders = orders
        self.sizes = np.zeros(len(orders), np.int64)
        self.others = np.full((len(orders), width), -1, np.int64)
        self.keys = np.arange(len(orders))
        self.l1 = l1
        self._counted = rows.counted(self.targets)
        self.means = self._counted.mean(0) * (rows.num_rows / rows.total)
        self.linear = self.means[orders]
        self._starts = np.zeros(1, np.int64)
        self._rows = np.empty(0, np.int64)
        self._values = np.empty(0)
        self.members: set[tuple[int, ...]] = set()
        self._compress()

    def columns(self, orders: Integers, sizes: Integers, others: Integers) -> tuple[Integers, Integers, Floats]:
        """Columns of further features."""
        rows = self.rows
        return feature_columns(rows.indptr, rows.rows, rows.roots, rows.num_rows, orders, sizes, others)

    def linear_terms(self, columns: tuple[Integers, Integers, Floats], orders: Integers) -> Floats:
        """Mean over rows of feature x root of the node, for each feature."""
        found = np.empty(len(orders))
        feature_gradients(*columns, orders, self._counted, found)
        return found / self.rows.total

    def add(self, keys: Integers, orders: Integers, sizes: Integers, others: Integers, l1: Floats) -> None:
        """Append features that are not members yet."""
        columns = self.columns(orders, sizes, others)
        self.linear = np.concatenate([self.linear, self.linear_terms(columns, orders)])
        self.keys = np.concatenate([self.keys, keys])
        self.orders = np.concatenate([self.orders, orders])
        self.sizes = np.concatenate([self.sizes, sizes])
        self.others = np.concatenate([self.others, others])
        self.l1 = np.concatenate([self.l1, l1])
        self._starts = np.concatenate([self._starts, self._starts[-1] + columns[0][1:]])
        self._rows = np.concatenate([self._rows, columns[1]])
        self._values = np.concatenate([self._values, columns[2]])
        self.members.update((int(k), *o) for k, o in zip(keys, others.tolist(), strict=True))
        self._compress()

    def _compress(self) -> None:
        n = self.rows.num_rows
        is_touched = np.zeros(n, dtype=bool)
        is_touched[self._rows] = True
        touched = int(is_touched.sum())
        count = touched + (touched < n)
        self.row_map = np.where(is_touched, np.cumsum(is_touched) - 1, touched)
        if self.rows.counts is not None:
            self.weights = np.bincount(self.row_map, self.rows.counts) / self.rows.total
        else:
            self.weights = np.full(count, 1.0 / n)
            if touched < n:
                self.weights[touched] = (n - touched) / n
        c = self.num_constants
        self.starts = np.concatenate([np.arange(c) * count, c * count + self._starts])
        self.places = np.concatenate([np.tile(np.arange(count), c), self.row_map[self._rows]])
        self.values = np.concatenate([np.ones(c * count), self._values])

    def log_density(self, coefficients: Floats) -> Floats:
        """Log density eta . T - A(eta) of the node in all rows, without the base measure, (n,)."""
        value, _, _ = self.moments(coefficients, 0)
        eta = self.natural(coefficients)
        return (eta[self.row_map] * self.targets).sum(1) - value[self.row_map]

    def residuals(self, point: Point) -> Floats:
        """(mean - root of the node) / n for all rows, times their counts, (n, k)."""
        return self.rows.counted(point.mean[self.row_map] - self.targets) / self.rows.total
