"""The mean negative log pseudo-likelihood of rows and its gradient, without autograd."""

from __future__ import annotations

import math

import numpy as np

from ...data.observations import Observations
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["ConditionalLayout", "PseudoRows"]


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
        flat_pairs = [entry for found in pairs for entry in found]
        flat_others = [entry for found in others for entry in found]
        members = [member for _, found in flat_others for member in found]
        self.reads = 2.0 * (len(flat_pairs) + len(members)) * max(cards, default=0)  # for a row and its gradient
        self.arrays = (
            np.array(cards, dtype=np.int64),
            _ends([len(found) for found in pairs]),
            _ends([len(found) for found in others]),
            np.array([base for base, _ in flat_pairs], dtype=np.int64),
            np.array([variable for _, variable in flat_pairs], dtype=np.int64),
            np.array([base for base, _ in flat_others], dtype=np.int64),
            _ends([len(found) for _, found in flat_others]),
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

        own = tables[layout.source]
        loss = 0.0
        for first, end in pieces(len(self._codes), len(self._codes) * layout.reads, BLOCK):
            rows = self._codes[first:end], self._weights[first:end]
            loss = float(conditionals(*rows, layout.arrays, own, gradient, with_gradient, loss))
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
