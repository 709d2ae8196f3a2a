r"""The upper bound of mini-buckets as a function of all that it holds for: tables, shifted costs and weights.

.. math:: U(\theta, \lambda, w) = \sum_{\mathrm{roots}} m_k, \qquad
    m_k = w_k \log \sum_{x_k} \exp \frac{\theta_k + \lambda_k + \sum_j m_j}{w_k}

summed from the first mini-bucket to the last. Every step is the perspective of a convex function that rises in what it
is given, so that U is convex in its three arguments together. Qiang Liu and Alexander Ihler, Bounding the partition
function using Hölder's inequality, ICML 2011, section 3.
"""

from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ...structure.hypergraph import InteractionHypergraph
from ._join_graph import MESSAGE, compiled
from ._sweeps import Sweeps
from .mini_buckets import MiniBuckets

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

_SCALE = 3.0  # of logarithms of weights, by which few steps of a solver go as far as with costs

_LEAST_WEIGHT = 1e-30  # by whose inverse logarithms stay finite; weights that sum to more than one bound log Z, too


class _Index(NamedTuple):
    """Where costs and weights of one bucket, and the numbers of one table or message, stand.

    ``cells`` are, of every cost, the cells that the mini-buckets of its bucket share, ``sharing`` how many these are.
    ``nodes`` are mini-buckets of divided buckets, which begin at ``starts`` and have the number ``bucket``. Tables and
    messages begin at ``firsts``. ``message`` is which of them a mini-bucket passes on; those with the numbers
    ``inputs`` are summed by the mini-buckets ``summed_by``.
    """

    cells: Places
    sharing: Floats
    nodes: Places
    starts: Places
    bucket: Places
    firsts: Places
    message: Places
    inputs: Places
    summed_by: Places


def _index(sweeps: Sweeps) -> _Index:
    graph, sizes = sweeps.graph, sweeps.compiled
    cells, sharing = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    nodes, starts, bucket = list[int](), list[int](), list[int]()
    number = 0
    for members in graph.buckets:
        if len(members) == 1:
            continue
        # Costs of one bucket follow each other, and all its mini-buckets have as many.
        size = graph.size(graph.nodes[members.start].inputs[-1].scope)
        cells.append(np.tile(np.arange(number, number + size), len(members)))
        sharing.append(np.full(size, float(len(members))))
        number += size
        bucket += [len(starts)] * len(members)
        starts.append(len(nodes))
        nodes += members
    # Every number of the buffer is one of a table that meets others, or of the last message of a component.
    message = sizes.starts[MESSAGE].tolist()
    summed = [(sizes.place(item), k) for k, node in enumerate(graph.nodes) for item in node.inputs]
    firsts = np.unique(np.array([*message, *(start for start, _ in summed)], dtype=np.int64))
    return _Index(
        np.concatenate(cells),
        np.concatenate(sharing),
        np.array(nodes, dtype=np.int64),
        np.array(starts, dtype=np.int64),
        np.array(bucket, dtype=np.int64),
        firsts,
        np.searchsorted(firsts, message),
        np.searchsorted(firsts, [start for start, _ in summed]),
        np.array([k for _, k in summed], dtype=np.int64),
    )


class VariationalBound:
    """An upper bound of log Z as a differentiable function of tables and of the bound's own parameters.

    These, ``free`` (num_shifts + mini-buckets of divided buckets,), are costs, of which only what differs between the
    mini-buckets of a bucket counts, and logarithms of weights over 3, of which likewise differences count: any numbers
    give a bound.

    Args:
        sweeps: mini-buckets of an upper bound.
    """

    def __init__(self, sweeps: Sweeps) -> None:
        self.sweeps = sweeps
        self._index = _index(sweeps)

    @classmethod
    def search(cls, backend: MiniBuckets, hypergraph: InteractionHypergraph, tables: Floats) -> Self:
        """With the order whose bound for tables (num_terms,) is the tightest, all passes of the backend made."""
        return cls(backend._upper(hypergraph, torch.from_numpy(tables)))

    @classmethod
    def of_order(cls, backend: MiniBuckets, hypergraph: InteractionHypergraph, number: int) -> Self:
        """With one of the orders of the backend; IndexError where it has fewer."""
        return cls(Sweeps(backend._graphs(hypergraph)[number], np.zeros(hypergraph.num_terms), True))

    def order(self, backend: MiniBuckets) -> int:
        """Which of the orders of the backend it has."""
        graph = self.sweeps.graph
        # Caches forget join graphs, so that an equal order tells them and not the object.
        graphs = backend._graphs(graph.hypergraph)
        return next(k for k, other in enumerate(graphs) if np.array_equal(other.order, graph.order))

    @property
    def num_free(self) -> int:
        """How many parameters the bound has of its own."""
        return len(self._index.cells) + len(self._index.nodes)

    @property
    def tightest(self) -> Floats:
        """Those of the tightest bound that passes found."""
        shifts, weights = self.sweeps.tightest
        return np.concatenate([shifts, np.log(weights[self._index.nodes]) / _SCALE])

    def tightened(self, tables: Floats, free: Floats, passes: int) -> float:
        """The bound of tables (num_terms,) after further passes from ``free`` on, rounded outward."""
        self.sweeps.start_from(tables, *self.parts(free))
        for _ in self.sweeps.passes(1 + passes):
            pass
        return self.sweeps.bound

    def parts(self, free: Floats) -> tuple[Floats, Floats]:
        """Costs (num_shifts,) that sum to zero within buckets, and weights (mini-buckets,) that sum to one."""
        index = self._index
        shifts, logs = self._centred(free[: len(index.cells)]), _SCALE * free[len(index.cells) :]
        weights = np.ones(len(self.sweeps.graph.nodes))
        if len(logs):
            powers = np.exp(logs - np.maximum.reduceat(logs, index.starts)[index.bucket])
            weights[index.nodes] = powers / np.add.reduceat(powers, index.starts)[index.bucket]
        return shifts, np.maximum(weights, _LEAST_WEIGHT)

    def _centred(self, numbers: Floats) -> Floats:
        index = self._index
        return numbers - (np.bincount(index.cells, numbers, len(index.sharing)) / index.sharing)[index.cells]

    def evaluate(self, tables: Floats, free: Floats) -> tuple[float, Floats, Floats]:
        r"""The bound, and its gradients in tables (num_terms,) and in ``free``.

        Bounds are homogeneous of degree one in tables, costs and weights together, and so is every message. Hence
        :math:`\partial m_k / \partial w_k` is the rest of Euler's sum, an entropy.
        """
        index, sweeps, sizes = self._index, self.sweeps, self.sweeps.compiled
        bound = sweeps.evaluate(tables, *self.parts(free))
        first, last = sizes.num_terms, sizes.num_terms + sizes.num_shifts
        eta, slopes = sweeps.beliefs[:first].copy(), self._centred(sweeps.beliefs[first:last])
        if not len(index.nodes):
            return bound, eta, slopes
        products = np.where(sweeps.beliefs > 0.0, sweeps.values, 0.0) * sweeps.beliefs
        sums = np.add.reduceat(products, index.firsts)
        entropies = sums[index.message] - np.bincount(index.summed_by, sums[index.inputs], len(index.message))
        # Products of weights and entropies, then the gradient in logarithms whose weights sum to one.
        parts, weights = entropies[index.nodes], sweeps.weights[index.nodes]
        parts = parts - weights * np.add.reduceat(parts, index.starts)[index.bucket]
        return bound, eta, np.concatenate([slopes, _SCALE * parts]).astype(np.float64, copy=False)


def num_costs(backend: MiniBuckets, hypergraph: InteractionHypergraph) -> int:
    """Most costs that are shifted in one of the orders of a backend; 0 where no bucket is divided, exactly then."""
    return max(compiled(graph).num_shifts for graph in backend._graphs(hypergraph))
