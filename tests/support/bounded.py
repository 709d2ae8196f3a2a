"""Random models for bounds of log Z, what the loops of mini-buckets are held to, and the Ising model on a torus."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from pyro_hoim import InteractionHypergraph, LogLinearEnergy
from pyro_hoim.log_linear.bounds._join_graph import MESSAGE, SHIFT, TABLE, JoinGraph
from pyro_hoim.log_linear.bounds._sweeps import Sweeps

from .hard_models import log_linear_energy
from .root_models import log_sum

# Random models


def random_model(case: int, most_states: int = 2**12, *, is_divided: bool = False) -> LogLinearEnergy:
    """A model of up to eleven variables of one to four levels, with interactions of orders 1 to 3 or none.

    Tables are normal with a scale of 0.1 to 5 nats; a third of the models have impossible combinations. With
    ``is_divided`` all pairs interact, so that small mini-buckets divide buckets.
    """
    rng = np.random.default_rng([case, is_divided])
    cards = list[int]()
    for card in rng.integers(2 if is_divided else 1, 5, int(rng.integers(5 if is_divided else 1, 12))).tolist():
        if math.prod(cards) * card <= most_states:
            cards.append(card)
    density = 1.0 if is_divided else float(rng.choice([0.0, 0.2, 0.5, 1.0]))
    shares = {1: 0.7, 2: density, 3: 0.1 * density * (case % 3)}
    scopes = [
        scope
        for order, share in shares.items()
        for scope in itertools.combinations(range(len(cards)), order)
        if rng.random() < share
    ]
    scale, hole = float(rng.choice([0.1, 1.0, 5.0])), float(rng.choice([0.0, 0.0, 0.0, 0.0, 0.05, 0.3]))
    tables = dict[tuple[int, ...], np.ndarray]()
    for scope in scopes:
        shape = [cards[i] for i in scope]
        tables[scope] = np.where(rng.random(shape) < hole, -np.inf, rng.normal(0, scale, shape))
    return model_of(cards, tables)


def model_of(cards: Sequence[int], tables: Mapping[tuple[int, ...], np.ndarray]) -> LogLinearEnergy:
    """The model with a table for every scope, entries of minus infinity allowed."""
    finite = {scope: np.where(np.isfinite(table), table, 0.0) for scope, table in tables.items()}
    energy = log_linear_energy(cards, finite)
    holes = {scope: np.where(np.isfinite(table), 0.0, -np.inf) for scope, table in tables.items()}
    flat = [holes[tuple(scope)].reshape(-1) for scope in energy.hypergraph.edge_indices]
    shift = torch.from_numpy(np.concatenate([np.zeros(0), *flat]))
    return LogLinearEnergy(energy.hypergraph, energy.tables + shift)


def largest_table(graph: InteractionHypergraph) -> int:
    """Cells of the largest interaction or variable, which a mini-bucket has to hold."""
    cards = graph.domain.cardinalities
    return max([*cards, *(math.prod(cards[i] for i in edge) for edge in graph.edge_indices)], default=1)


def log_q_table(model: LogLinearEnergy, tables: torch.Tensor | None = None) -> torch.Tensor:
    """Log unnormalised probabilities of all states, (*cardinalities), by broadcasting; differentiable in tables."""
    graph, flat = model.hypergraph, model.tables if tables is None else tables
    cards = graph.domain.cardinalities
    total = torch.zeros(cards, dtype=flat.dtype)
    for edge, scope in zip(graph.edges, graph.edge_indices, strict=True):
        shape = [cards[i] if i in scope else 1 for i in range(len(cards))]
        total = total + flat[graph.term_slices[edge]].reshape(shape)
    return total


def enumerated(model: LogLinearEnergy) -> float:
    """Log Z by the sum over all states, minus infinity where none is possible."""
    table = log_q_table(model).numpy()
    return log_sum(table) if np.isfinite(table).any() else -math.inf


# The weighted mini-bucket sum in PyTorch: an oracle of the compiled loops, their gradients and their draws


def _power_sum(logs: torch.Tensor, weight: float) -> torch.Tensor:
    """``weight * log sum exp(logs / weight)`` over the first axis, minus infinity where a term is infinite or all are.

    There its gradient is zero, where that of ``torch.logsumexp`` is not a number.
    """
    powers = logs / weight
    is_none = torch.isinf(powers.amax(0, keepdim=True))
    total = weight * torch.logsumexp(powers.masked_fill(is_none, 0.0), 0)
    return total.masked_fill(is_none[0], -math.inf)


class WeightedSums:
    """The weighted mini-bucket sum of a join graph with given weights and shifts, as a function of the tables.

    Only what the join graph says meets is taken from the library; sums are dense, by ``torch.logsumexp``.
    """

    def __init__(self, sweeps: Sweeps) -> None:
        self.graph: JoinGraph = sweeps.graph
        self.weights = sweeps.weights.copy()
        self.shifts = {
            item.number: torch.from_numpy(
                sweeps.values[sweeps.compiled.place(item) :][: self.graph.size(item.scope)].copy()
            )
            for node in self.graph.nodes
            for item in node.inputs
            if item.kind == SHIFT
        }
        # Of every node the shape; of its inputs their shape, the order of their axes in it, and the shape to broadcast.
        cards = self.graph.hypergraph.domain.cardinalities
        self._layout = [
            (
                [cards[v] for v in node.scope],
                [
                    (
                        item,
                        [cards[v] for v in item.scope],
                        [item.scope.index(v) for v in sorted(item.scope, key=node.scope.index)],
                        [cards[v] if v in item.scope else 1 for v in node.scope],
                    )
                    for item in node.inputs
                ],
            )
            for node in self.graph.nodes
        ]

    def nodes(self, tables: torch.Tensor, *, is_summed: bool = True) -> list[torch.Tensor]:
        """The sum of the tables of every mini-bucket over its scope; without those passed on if not ``is_summed``."""
        slices = list(self.graph.hypergraph.term_slices.values())
        found, messages = list[torch.Tensor](), dict[int, torch.Tensor]()
        for number, (shape, inputs) in enumerate(self._layout):
            total = torch.zeros(shape, dtype=tables.dtype)
            for item, sizes, order, wide in inputs:
                if item.kind == MESSAGE and not is_summed:
                    continue
                if item.kind == TABLE:
                    flat = tables[slices[item.number]]
                else:
                    flat = (messages if item.kind == MESSAGE else self.shifts)[item.number]
                total = total + flat.reshape(sizes).permute(order).reshape(wide)
            found.append(total)
            weight = float(self.weights[number])
            messages[number] = _power_sum(total, weight)
        self.messages = messages
        return found

    def __call__(self, tables: torch.Tensor) -> torch.Tensor:
        """The bound, 0-d."""
        self.nodes(tables)
        roots = [self.messages[k] for k, node in enumerate(self.graph.nodes) if len(node.scope) == 1]
        return torch.stack(roots).sum() if roots else torch.zeros((), dtype=tables.dtype)

    def log_probs(self, tables: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Log probabilities (n,) of states (n, d) as draws from geometric means of what mini-buckets say."""
        nodes, total = self.nodes(tables), torch.zeros(len(states), dtype=tables.dtype)
        for bucket in self.graph.buckets:
            # Logarithms of the geometric mean, [level, state].
            levels = torch.arange(nodes[bucket.start].shape[0])[:, None]
            mean = torch.zeros(len(levels), len(states), dtype=tables.dtype)
            for k in bucket:
                law = float(self.weights[k]) * (nodes[k] / float(self.weights[k])).log_softmax(0)
                law = law.nan_to_num(nan=-torch.inf, neginf=-torch.inf)  # where no level is possible
                mean = mean + law[(levels, *(states[:, v] for v in self.graph.nodes[k].scope[1:]))]
            chosen = mean[states[:, self.graph.nodes[bucket.start].scope[0]], torch.arange(len(states))]
            # Where no level is possible the first one is drawn.
            is_first = (states[:, self.graph.nodes[bucket.start].scope[0]] == 0).to(tables.dtype).log()
            sums = mean.logsumexp(0)
            total = total + torch.where(sums > -torch.inf, chosen - sums, is_first)
        return total


# The Ising model on a torus


def torus(side: int, coupling: float) -> LogLinearEnergy:
    """Spins on a square lattice with periodic boundaries, ``side`` at least 3, and equal couplings, nats."""
    tables = dict[tuple[int, ...], np.ndarray]()
    for i, j in itertools.product(range(side), repeat=2):
        for other in (i * side + (j + 1) % side, (i + 1) % side * side + j):
            low, high = sorted((i * side + j, other))
            tables[low, high] = coupling * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return log_linear_energy([2] * side**2, tables)


CRITICAL = math.log(1 + math.sqrt(2)) / 2
"""Coupling of the square lattice at its critical temperature."""


def kaufman_log_z(side: int, coupling: float) -> float:
    """Log Z of :func:`torus`: Bruria Kaufman, Crystal statistics II, Physical Review 76, 1949, equation 69."""
    ratio = math.cosh(2 * coupling) / math.tanh(2 * coupling)
    gammas = [2 * coupling + math.log(math.tanh(coupling))]
    gammas += [math.acosh(ratio - math.cos(math.pi * k / side)) for k in range(1, 2 * side)]

    def log_product(of: Callable[[float], float], parity: int) -> tuple[float, float]:
        factors = [2 * of(side * gammas[k] / 2) for k in range(parity, 2 * side, 2)]
        if any(abs(factor) < 1e-12 for factor in factors):
            return 0.0, -math.inf
        return math.prod(math.copysign(1.0, f) for f in factors), sum(math.log(abs(f)) for f in factors)

    terms = [log_product(of, parity) for of in (math.cosh, math.sinh) for parity in (1, 0)]
    top = max(log for _, log in terms)
    total = sum(sign * math.exp(log - top) for sign, log in terms)
    return side**2 / 2 * math.log(2 * math.sinh(2 * coupling)) + top + math.log(total / 2)
