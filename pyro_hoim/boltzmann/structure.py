"""Boltzmann machines: their variables and edges, free energies, and sums over the states of one colour."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import networkx as nx
import torch
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from .._modes import plain_mode
from ..budgets import MAX_SETS, check_size
from ..checks import broadcast_shapes, check_finite, check_shape, checked_floating
from ..core.laws.expansion import list_states
from ..core.model import ParametricEnergy
from ..errors import (
    check_names,
    check_type,
    check_unique,
    check_whole,
    conflict,
    is_whole,
    out_of_range,
    refused,
    unexpected,
)
from ..log_linear.auto import Auto
from ..log_linear.coding import parametrization
from ..log_linear.energy import LogLinearEnergy
from ..schema import Domain, Variable
from ..structure.hypergraph import InteractionHypergraph, check_codes

# Sums over the states of binary pairwise models whose graph has two colours: one colour is listed, the other summed.
#
# .. math:: \log Z = \log \sum_{a \in \{0,1\}^k} \exp\Bigl(\beta_A \cdot a
#     + \sum_{j \in B} \log\bigl(1 + e^{\beta_j + \sum_{i \in A} a_i J_{ij}}\bigr)\Bigr)

_CHUNK = 2**23  # numbers that are held at once


def softplus(value: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(value)) to rounding, twice differentiable (PyTorch's own is linear from 20 on)."""
    return -torch.nn.functional.logsigmoid(-value)


@dataclass(frozen=True)
class Layers:
    """Two colours of a graph: positions of the listed and of the summed variables."""

    listed: tuple[int, ...]
    summed: tuple[int, ...]

    @property
    def num_states(self) -> int:
        """States that are listed."""
        return 2 ** len(self.listed)


@dataclass(frozen=True)
class PairGraph:
    """Binary variables with edges between pairs, as positions in order."""

    names: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]

    @cached_property
    def layers(self) -> Layers | None:
        """The colours with the fewest variables listed, component by component; None where two do not suffice."""
        # Each component by itself: the smaller colour of each is listed.
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(len(self.names)))
        graph.add_edges_from(self.pairs)
        listed: set[int] = set()
        for part in nx.connected_components(graph):
            try:
                first, second = nx.bipartite.sets(graph.subgraph(part)) if len(part) > 1 else (part, set[int]())
            except nx.NetworkXError:
                return None
            listed |= min(first, second, key=lambda side: (len(side), -min(side, default=0)))
        rest = [i for i in range(len(self.names)) if i not in listed]
        return Layers(tuple(sorted(listed)), tuple(rest))

    @cached_property
    def hypergraph(self) -> InteractionHypergraph:
        """All single variables and the edges."""
        domain = Domain.from_cardinalities(dict.fromkeys(self.names, 2))
        edges = [(self.names[i], self.names[j]) for i, j in self.pairs]
        return InteractionHypergraph(domain, [*((name,) for name in self.names), *edges])

    @cached_property
    @plain_mode()
    def _places(self) -> tuple[torch.Tensor, int, int]:
        """Flat place of every pair in the matrix of listed by summed variables, and the sizes of the matrix."""
        layers = self.layers
        assert layers is not None
        row = {i: k for k, i in enumerate(layers.listed)}
        column = {i: k for k, i in enumerate(layers.summed)}
        width = len(column)
        flat = [row[i] * width + column[j] if i in row else row[j] * width + column[i] for i, j in self.pairs]
        return torch.tensor(flat, dtype=torch.long), len(row), width

    def coupling(self, weights: torch.Tensor) -> torch.Tensor:
        """Weights (*batch, pairs) as a matrix (*batch, listed, summed)."""
        flat, height, width = self._places
        dense = weights.new_zeros(*weights.shape[:-1], height * width)
        dense = dense.index_add(-1, flat.to(weights.device), weights)
        return dense.reshape(*weights.shape[:-1], height, width)

    def log_partition(self, biases: torch.Tensor, weights: torch.Tensor, max_states: int) -> torch.Tensor:
        """Log Z (*shape) of biases (*shape, d) and weights (*batch, pairs) that broadcast; exact, or refused."""
        layers = self.layers
        if layers is None or layers.num_states > max_states:
            shape = broadcast_shapes(biases.shape[:-1], weights.shape[:-1])
            theta = torch.cat([part.expand(*shape, part.shape[-1]) for part in (biases, weights)], -1)
            tables = parametrization(self.hypergraph).corner_tables(theta)
            return Auto().log_partition(LogLinearEnergy(self.hypergraph, tables, validate=False)).value
        listed, summed = biases[..., list(layers.listed)], biases[..., list(layers.summed)]
        return layer_scores(listed, summed, self.coupling(weights), is_total=True)


def _scores(states: torch.Tensor, listed: torch.Tensor, summed: torch.Tensor, coupling: torch.Tensor) -> torch.Tensor:
    """Log weight (*shape, states) of listed states (states, k), the other variables summed out."""
    fields = summed.unsqueeze(-2) + states @ coupling
    return (listed.unsqueeze(-2) * states).sum(-1) + softplus(fields).sum(-1)


def layer_scores(
    listed: torch.Tensor, summed: torch.Tensor, coupling: torch.Tensor, *, is_total: bool = False
) -> torch.Tensor:
    """Log weights (*shape, 2^k) of all listed states, or the log of their sum (*shape), in pieces that fit memory.

    Shape:
        biases listed (*shape, k) and summed (*shape, r), coupling (*batch, k, r) broadcast.
    """
    # Listed states in pieces, so that no field of all states is held at once.
    k, r = coupling.shape[-2:]
    shape = broadcast_shapes(listed.shape[:-1], summed.shape[:-1], coupling.shape[:-2])
    states = list_states([2] * k, listed.device).to(listed.dtype)
    size = max(1, _CHUNK // max(1, math.prod(shape) * max(r, 1)))
    pieces = states.split(size)
    step: Callable[..., Any] = (lambda *parts: _scores(*parts).logsumexp(-1)) if is_total else _scores
    if len(pieces) == 1:
        return step(states, listed, summed, coupling).expand((*shape,) if is_total else (*shape, len(states)))
    # For a gradient a piece is computed again and not stored.
    if torch.is_grad_enabled() and any(part.requires_grad for part in (listed, summed, coupling)):
        step = partial(checkpoint, step, use_reentrant=False, preserve_rng_state=False)
    scores: list[Any] = [step(piece, listed, summed, coupling) for piece in pieces]
    return torch.stack(scores, -1).logsumexp(-1) if is_total else torch.cat(scores, -1)


# Visible and hidden binary variables and the edges between them.

_FEWER = "use fewer hidden units or columns"
_KEPT = 2**14  # edges of a structure that is remembered


@dataclass(frozen=True)
class MachineStructure:
    r"""The graph of a Boltzmann machine: n visible and m hidden variables of two levels each, and edges between any.

    Parameters are in corner coding, one bias a variable and one weight an edge, so that each pair counts once:

    .. math:: \log q(x) = \sum_i b_i x_i + \sum_{\{i,j\}} w_{ij} x_i x_j, \qquad x = (v, h) \in \{0, 1\}^{n+m}

    theta is flat: visible biases, hidden biases, then weights by the positions of their ends, the visible variables
    first. That is the corner coding of :attr:`hypergraph`, so that the joint law is an ordinary pairwise log-linear
    one.

    Args:
        domain: the visible variables; code 1 is "on".
        hidden: number of hidden units, then called ``h1``, ``h2``, ..., or their names.
        edges: pairs of names of any two variables.

    Raises:
        InputError: a visible variable without exactly two levels; a hidden unit with the name of another variable; an
            edge that is no pair, or that comes twice.
        UnknownNameError: an edge with an unknown name.

    References:
        Paper 4, equations (1) to (3); (1) counts every pair twice as printed, here it counts once.

    Example:
        >>> structure = MachineStructure(Domain.from_cardinalities({"a": 2, "b": 2}), 1, [("a", "b"), ("b", "h1")])
        >>> structure.hypergraph.edges
        (('a',), ('b',), ('h1',), ('a', 'b'), ('b', 'h1'))
    """

    domain: Domain
    hidden: Any = 0
    edges: Any = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", _hidden_names(self.domain, self.hidden))
        object.__setattr__(self, "edges", self._sorted(self.edges))

    @classmethod
    def restricted(cls, domain: Domain, hidden: int | Sequence[str]) -> MachineStructure:
        """Every visible variable joined to every hidden unit, and no others."""
        check_type(domain, Domain, "domain")
        if is_whole(hidden) and hidden <= MAX_SETS:
            check_edges(len(domain), hidden)
        names = _hidden_names(domain, hidden)
        return (_restricted if len(domain) * len(names) <= _KEPT else _restricted.__wrapped__)(domain, names)

    @classmethod
    def layered(cls, domain: Domain, *sizes: int) -> MachineStructure:
        """Layers of hidden units, each joined to the layer before it, the first to the visible variables."""
        names = _hidden_names(domain, sum(check_whole(size, "sizes", 0) for size in sizes))
        check_edges(len(domain), *sizes)
        ends = list(itertools.accumulate(sizes, initial=0))
        layers = [domain.names, *(names[a:b] for a, b in itertools.pairwise(ends))]
        pairs = [pair for low, high in itertools.pairwise(layers) for pair in itertools.product(low, high)]
        return cls(domain, names, pairs)

    def _sorted(self, edges: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
        names = self.names
        positions = {name: i for i, name in enumerate(names)}
        # Ends by position, whatever the order in which they are named.
        pairs: list[tuple[int, int]] = []
        check_type(edges, Iterable, "edges", "pairs of names")
        for edge in edges:
            if not isinstance(edge, Sequence) or isinstance(edge, str) or len(edge) != 2:
                raise unexpected("edges", "pairs of names", edge)
            if not (edge[0] in positions and edge[1] in positions):
                check_names(edge, names, "edges")
            first, second = sorted(positions[name] for name in edge)
            if first == second:
                raise unexpected("edges", "pairs of two variables", tuple(edge))
            pairs.append((first, second))
        if len(set(pairs)) < len(pairs):
            twice = next(pair for k, pair in enumerate(pairs) if pair in pairs[:k])
            raise refused("edges", f"{tuple(names[i] for i in twice)!r} comes twice; each pair counts once")
        return tuple((names[i], names[j]) for i, j in sorted(pairs))

    @property
    def names(self) -> tuple[str, ...]:
        """All variables, the visible ones first."""
        return (*self.domain.names, *self.hidden)

    @property
    def num_visible(self) -> int:
        """Visible variables."""
        return len(self.domain)

    @property
    def num_hidden(self) -> int:
        """Hidden units."""
        return len(self.hidden)

    @property
    def num_parameters(self) -> int:
        """Length of theta."""
        return len(self.names) + len(self.edges)

    @cached_property
    def is_restricted(self) -> bool:
        """Whether the edges are those of a restricted machine."""
        return self.edges == tuple(itertools.product(self.domain.names, self.hidden))

    @cached_property
    def graph(self) -> PairGraph:
        """All variables with their edges, by position."""
        position = {name: i for i, name in enumerate(self.names)}
        return PairGraph(self.names, tuple((position[a], position[b]) for a, b in self.edges))

    @cached_property
    def hidden_graph(self) -> PairGraph:
        """The hidden units with the edges among them."""
        n = self.num_visible
        return PairGraph(self.hidden, tuple((i - n, j - n) for i, j in self.graph.pairs if i >= n))

    @cached_property
    @plain_mode()
    def places(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Positions in theta of the weights among visible, between visible and hidden, and among hidden variables."""
        n, d = self.num_visible, len(self.names)
        kinds = [(i >= n) + (j >= n) for i, j in self.graph.pairs]
        first, second, third = (torch.tensor([d + k for k, kind in enumerate(kinds) if kind == s]) for s in range(3))
        return first.long(), second.long(), third.long()

    @cached_property
    def hypergraph(self) -> InteractionHypergraph:
        """Collection of the joint law: all single variables and the edges."""
        domain = Domain([*self.domain, *(Variable(name, ("0", "1")) for name in self.hidden)])
        return InteractionHypergraph(domain, [*((name,) for name in self.names), *self.edges])

    def theta_of(self, values: Mapping[str | tuple[str, str], float | torch.Tensor]) -> torch.Tensor:
        """Theta (*batch, num_parameters) from biases by name and weights by pair of names; others are zero.

        Raises:
            InputError: an entry that is neither a variable nor an edge.
        """
        at: dict[Any, int] = {key: i for i, key in enumerate((*self.names, *self.edges))}
        # One column a parameter, zero where nothing is given.
        tensors = {key: torch.as_tensor(value) for key, value in values.items()}
        dtype = next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.get_default_dtype())
        columns = [torch.zeros((), dtype=dtype)] * self.num_parameters
        for key, value in tensors.items():
            position = at.get(key, at.get(key[::-1] if isinstance(key, tuple) else key))
            if position is None:
                raise refused("values", f"{key!r} is neither a variable nor an edge", code="unknown-name")
            columns[position] = value.to(dtype)
        return torch.stack(torch.broadcast_tensors(*columns), -1) if columns else torch.zeros(0, dtype=dtype)

    def __repr__(self) -> str:
        return f"MachineStructure({self.num_visible} visible, {self.num_hidden} hidden, {len(self.edges)} edges)"


def _hidden_names(domain: Domain, hidden: int | Sequence[str]) -> tuple[str, ...]:
    """Names of hidden units; refused where they are those of visible variables."""
    check_type(domain, Domain, "domain")
    # Visible variables have two levels.
    for variable in domain:
        if not variable.is_finite or variable.cardinality != 2:
            levels = f"{variable.cardinality} levels" if variable.is_finite else f"kind {variable.kind}"
            hint = "a Boltzmann machine has binary variables; code others by columns of two levels"
            raise out_of_range(f"variable {variable.name!r}", "exactly two levels", hint=hint, received=levels)
    # Names as given, or made of numbers once there are not too many.
    if isinstance(hidden, str):
        raise unexpected("hidden", "a number or names", hidden, code="wrong-type")
    if isinstance(hidden, Sequence):
        names = tuple(hidden)
        for name in names:
            if not isinstance(name, str) or not name:
                raise unexpected("hidden", "names that are non-empty strings", name, code="wrong-type")
        check_unique(names, "hidden")
    else:
        check_size(check_whole(hidden, "hidden", 0), MAX_SETS, "units", "hidden", _FEWER, "there are")
        names = tuple(f"h{k + 1}" for k in range(hidden))
    for name in names:
        # Names are those of the joint law, where each is one variable.
        if name in domain:
            hint = "give the hidden units names of their own, hidden=[...]"
            raise conflict("hidden", f"the hidden unit {name!r} has the name of a visible variable", hint)
    return names


def check_edges(*sizes: int) -> None:
    """Refuse layers of too many edges, each joined to the next, before their units have names.

    Example:
        >>> check_edges(16, 10**6)
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.IntractableError: hidden: they have 16,000,000 edges, more than the budget ...
    """
    edges = sum(low * high for low, high in itertools.pairwise(sizes))
    check_size(edges, MAX_SETS, "edges", "hidden", _FEWER, "they have")


@lru_cache(maxsize=64)
def _restricted(domain: Domain, hidden: tuple[str, ...]) -> MachineStructure:
    check_edges(len(domain), len(hidden))
    return MachineStructure(domain, hidden, tuple(itertools.product(domain.names, hidden)))


def times(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Rows (*sample, *batch, a) times a matrix (*batch, a, b)."""
    return rows @ matrix if matrix.dim() == 2 else (rows.unsqueeze(-2) @ matrix).squeeze(-2)


# Free energies: the unnormalised law of the visible variables, the hidden units summed out.

MAX_LAYER_STATES = 2**22
"""Most states of a layer that are listed."""


class MarginalEnergy(ParametricEnergy):
    r"""Energy of the visible variables of a Boltzmann machine, which is its free energy.

    .. math:: F(v) = -\log \sum_h e^{-E(v, h)} = -b \cdot v - \sum_{i<j} w_{ij} v_i v_j - \log Z_h(c + v W)

    where :math:`Z_h` is the normalising constant of the hidden part, whose biases the visible variables shift. Without
    edges among hidden units it is :math:`\prod_j (1 + e^{c_j + (vW)_j})` (a restricted machine: O(n m) a row); with
    such edges it is summed over the smaller of two colours, or eliminated. Exact, or refused.

    Args:
        structure: visible and hidden variables and edges.
        theta: biases and weights, in nats.
        validate: check that theta is finite. Shape and type are always checked.

    Shape:
        theta (*batch, num_parameters).

    Raises:
        InputError: wrong length, NaN or infinite entries.
        IntractableError: on use, a hidden part that is too large to eliminate.

    References:
        Paper 4, equations (1) to (3).

    Example:
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> MarginalEnergy(structure, torch.zeros(5)).energy(torch.tensor([0, 1]))
        tensor(-0.6931)
    """

    def __init__(self, structure: MachineStructure, theta: torch.Tensor, *, validate: bool = True) -> None:
        check_type(structure, MachineStructure, "structure")
        check_shape(checked_floating(theta, "theta"), (structure.num_parameters,), "theta")
        if validate:
            check_finite(theta, "theta")
        self.structure = structure
        self.theta = theta

    @property
    @override
    def domain(self) -> Domain:
        return self.structure.domain

    @property
    @override
    def parameters(self) -> torch.Tensor:
        return self.theta

    @override
    def _with(self, parameters: torch.Tensor) -> MarginalEnergy:
        return MarginalEnergy(self.structure, parameters, validate=False)

    @property
    def visible_bias(self) -> torch.Tensor:
        """Biases b (*batch, n)."""
        return self.theta[..., : self.structure.num_visible]

    @property
    def hidden_bias(self) -> torch.Tensor:
        """Biases c (*batch, m)."""
        return self.theta[..., self.structure.num_visible : len(self.structure.names)]

    @property
    def weights(self) -> torch.Tensor:
        """Weights W between visible and hidden variables (*batch, n, m), zero where there is no edge."""
        structure, theta = self.structure, self.theta
        n, m = structure.num_visible, structure.num_hidden
        flat = theta[..., len(structure.names) :]
        if not structure.is_restricted:
            columns = structure.places[1].to(theta.device)
            pairs = torch.tensor(structure.graph.pairs, dtype=torch.long, device=theta.device).reshape(-1, 2)
            pairs = pairs[columns - len(structure.names)]
            at = pairs[:, 0] * m + pairs[:, 1] - n
            flat = theta.new_zeros(*theta.shape[:-1], n * m).index_add(-1, at, theta[..., columns])
        return flat.reshape(*theta.shape[:-1], n, m)

    def hidden_fields(self, x: torch.Tensor) -> torch.Tensor:
        """What the hidden units see, c + v W: (*sample broadcast with batch, m) for v (*sample, n)."""
        return self.hidden_bias + times(x.to(self.theta.dtype), self.weights)

    def energy(self, x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        """The free energy in nats, (*sample broadcast with batch) for states (*sample, n)."""
        # Visible biases and edges, then the hidden part, whose biases the states shift.
        codes = check_codes(x, self.domain) if validate else x
        structure, shape = self.structure, self._shape(codes)
        rows = codes.to(self.theta.dtype)
        first, _, third = (index.to(self.theta.device) for index in structure.places)
        value = (rows * self.visible_bias).sum(-1)
        if len(first):
            ends = torch.tensor(structure.graph.pairs, device=rows.device)[first - len(structure.names)]
            value = value + (rows[..., ends[:, 0]] * rows[..., ends[:, 1]] * self.theta[..., first]).sum(-1)
        hidden = structure.hidden_graph.log_partition(
            self.hidden_fields(rows), self.theta[..., third], MAX_LAYER_STATES
        )
        return -(value + hidden).expand(shape)

    def block_conditional(self, block: Sequence[str], x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        """Log probabilities of the states of a block of visible variables given the other visible ones.

        Shape:
            x (*sample, n), whose entries of the block are not read; result (*sample with batch, 2, ..., 2).

        Raises:
            UnknownNameError: a name is no visible variable.
            InputError: a repeated name, a wrong shape, or a code that is read and is no level.
            IntractableError: the block has more than 2^22 states.
        """
        # All states of the block side by side, whose energies give the conditional.
        positions, sizes, _ = self._block(block, self.domain.cardinalities)
        others = [i for i in range(len(self.domain)) if i not in set(positions)]
        codes = check_codes(x, self.domain, columns=others) if validate else x.long()
        states = list_states(sizes, codes.device)
        batch = self._shape(codes)
        rows = codes.expand(*batch, codes.shape[-1]).repeat(len(states), *(1,) * (len(batch) + 1))
        rows[..., list(positions)] = states.reshape(len(states), *(1,) * len(batch), len(positions))
        scores = -self.energy(rows, validate=False).movedim(0, -1)
        return torch.log_softmax(scores, -1).reshape((*batch, *sizes))

    def log_pseudo_prob(self, x: torch.Tensor) -> torch.Tensor:
        r"""Log pseudo-likelihood :math:`\sum_i \log p(v_i \mid v_{-i})`, (*sample with batch), without log Z."""
        codes = check_codes(x, self.domain)
        here, total = self.energy(codes, validate=False), self.theta.new_zeros(self._shape(codes))
        for i in range(len(self.domain)):
            flipped = codes.clone()
            flipped[..., i] = 1 - codes[..., i]
            total = total + torch.nn.functional.logsigmoid(self.energy(flipped, validate=False) - here)
        return total
