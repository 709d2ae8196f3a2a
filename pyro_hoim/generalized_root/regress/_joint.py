"""The pseudo-likelihood of one joint root model as one regression, and that of a column's own terms alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import joblib
import numpy as np
import torch

from ...errors import out_of_reach, size_text
from ..nodes.kernels import evaluate_nodes
from ._regression import Floats, Integers, Regression
from ._working_set import WorkingSet
from .rows import RootRows

MOST_BYTES = 2**33
"""Most memory of the rows and features of one joint regression."""
_ROWS_AT_A_TIME = 2**16


class JointTerm(NamedTuple):
    """One term of a joint model: its key (j, l) and the sorted positions of its columns in the rows."""

    key: tuple[int, int]
    positions: tuple[int, ...]


def base_measure(rows: RootRows, nodes: Sequence[int]) -> float:
    """Mean over rows of minus the log base measure of some columns, nats."""
    total = 0.0
    for node in nodes:
        total -= float(rows.counted(rows.family.log_base(torch.from_numpy(rows.column(node))).numpy()).sum())
    return total / rows.total


def interactions(rows: RootRows, node: int, terms: Sequence[JointTerm], singles: Sequence[int]) -> WorkingSet:
    """Rows of one node with constants of some roots and the features of tuples that hold the node."""
    width = max([1, *(len(term.positions) - 1 for term in terms)])
    orders = np.array([j - 1 for j in singles], dtype=np.int64)
    working = WorkingSet(rows, node, orders, np.zeros(len(orders)), width)
    if terms:
        others = np.full((len(terms), width), -1, np.int64)
        for i, term in enumerate(terms):
            others[i, : len(term.positions) - 1] = [t for t in term.positions if t != node]
        working.add(
            np.arange(len(orders), len(orders) + len(terms)),
            np.array([term.key[0] - 1 for term in terms], dtype=np.int64),
            np.array([term.key[1] - 1 for term in terms], dtype=np.int64),
            others,
            np.zeros(len(terms)),
        )
    return working


class ColumnRegression(Regression):
    """A column's own terms, with the coefficients of all tuples that hold it fixed."""

    def __init__(
        self,
        rows: RootRows,
        node: int,
        singles: Sequence[int],
        l1: Floats,
        terms: Sequence[JointTerm],
        coefficients: Floats,
    ) -> None:
        working = interactions(rows, node, terms, singles)
        count = len(singles)
        self.family, self.order, self.weights = rows.family, rows.order, working.weights
        self.offset = working.natural(np.concatenate([np.zeros(count), coefficients]))
        self.starts = working.starts[: count + 1]
        self.places, self.values = working.places[: self.starts[-1]], working.values[: self.starts[-1]]
        self.orders, self.linear, self.l1 = working.orders[:count], working.linear[:count], l1
        self.constant = float(working.linear[count:] @ coefficients)


class JointRegression(Regression):
    """All columns at once: the rows of all nodes below each other, and one feature for every term of the model."""

    def __init__(self, rows: RootRows, terms: Sequence[JointTerm], l1: Floats, jobs: int | None) -> None:
        self.family, self.order, self.l1 = rows.family, rows.order, l1
        self.orders = np.array([term.key[0] - 1 for term in terms], dtype=np.int64)
        self.linear = np.zeros(len(terms))
        self._jobs = jobs
        members: dict[int, list[int]] = {}
        for m, term in enumerate(terms):
            for node in term.positions:
                members.setdefault(node, []).append(m)
        weights: list[Floats] = []
        features: list[Integers] = []
        places: list[Integers] = []
        values: list[Floats] = []
        num_rows = num_entries = 0
        for node, terms_of_node in members.items():
            singles = [m for m in terms_of_node if terms[m].key[1] == 1]
            tuples = [m for m in terms_of_node if terms[m].key[1] > 1]
            working = interactions(rows, node, [terms[m] for m in tuples], [terms[m].key[0] for m in singles])
            index = np.array([*singles, *tuples], dtype=np.int64)
            self.linear[index] += working.linear
            features.append(np.repeat(index, np.diff(working.starts)))
            places.append(working.places + num_rows)
            values.append(working.values)
            weights.append(working.weights)
            num_rows += len(working.weights)
            num_entries += len(working.places)
            needed = 8 * (num_rows * (2 * self.order**2 + 4 * self.order) + 6 * num_entries)
            if needed > MOST_BYTES:
                raise out_of_reach(
                    "refit 'all'",
                    f"the rows of the columns' conditionals need more than {size_text(needed, 'bytes')}; the limit is "
                    f"{MOST_BYTES}. Refit 'singles', raise l1, or take fewer rows or columns",
                )
        self.weights = np.concatenate(weights)
        feature = np.concatenate(features)
        order = np.argsort(feature, kind="stable")
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(feature, minlength=len(terms)))]).astype(np.int64)
        self.places, self.values = np.concatenate(places)[order], np.concatenate(values)[order]

    def _evaluate(self, eta: Floats, derivatives: int, value: Floats, mean: Floats, covariance: Floats) -> None:
        parts = [slice(first, first + _ROWS_AT_A_TIME) for first in range(0, len(eta), _ROWS_AT_A_TIME)]
        joblib.Parallel(n_jobs=self._jobs, require="sharedmem")(
            joblib.delayed(evaluate_nodes)(self.family, eta[p], derivatives, value[p], mean[p], covariance[p])
            for p in parts
        )
