r"""Sums over the states of binary pairwise models whose graph has two colours: one colour is listed, the other summed.

.. math:: \log Z = \log \sum_{a \in \{0,1\}^k} \exp\Bigl(\beta_A \cdot a
    + \sum_{j \in B} \log\bigl(1 + e^{\beta_j + \sum_{i \in A} a_i J_{ij}}\bigr)\Bigr)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import torch
from torch.utils.checkpoint import checkpoint

from .._modes import plain_mode
from ..core.laws.expansion import list_states
from ..log_linear.auto import Auto
from ..log_linear.coding import parametrization
from ..log_linear.energy import LogLinearEnergy
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["Layers", "PairGraph", "softplus"]

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
            theta = torch.cat(_broadcast(biases, weights), -1)
            tables = parametrization(self.hypergraph).corner_tables(theta)
            return Auto().log_partition(LogLinearEnergy(self.hypergraph, tables, validate=False)).value
        listed, summed = biases[..., list(layers.listed)], biases[..., list(layers.summed)]
        return layer_scores(listed, summed, self.coupling(weights), is_total=True)


def _broadcast(biases: torch.Tensor, weights: torch.Tensor) -> list[torch.Tensor]:
    shape = torch.broadcast_shapes(biases.shape[:-1], weights.shape[:-1])
    return [part.expand(*shape, part.shape[-1]) for part in (biases, weights)]


def _scores(states: torch.Tensor, listed: torch.Tensor, summed: torch.Tensor, coupling: torch.Tensor) -> torch.Tensor:
    """Log weight (*shape, states) of listed states (states, k), the other variables summed out."""
    fields = summed.unsqueeze(-2) + states @ coupling
    return (listed.unsqueeze(-2) * states).sum(-1) + softplus(fields).sum(-1)


def _total(states: torch.Tensor, listed: torch.Tensor, summed: torch.Tensor, coupling: torch.Tensor) -> torch.Tensor:
    return _scores(states, listed, summed, coupling).logsumexp(-1)


def layer_scores(
    listed: torch.Tensor, summed: torch.Tensor, coupling: torch.Tensor, *, is_total: bool = False
) -> torch.Tensor:
    """Log weights (*shape, 2^k) of all listed states, or the log of their sum (*shape), in pieces that fit memory.

    Shape:
        biases listed (*shape, k) and summed (*shape, r), coupling (*batch, k, r) broadcast.
    """
    k, r = coupling.shape[-2:]
    shape = torch.broadcast_shapes(listed.shape[:-1], summed.shape[:-1], coupling.shape[:-2])
    states = list_states([2] * k, listed.device).to(listed.dtype)
    size = max(1, _CHUNK // max(1, math.prod(shape) * max(r, 1)))
    pieces = states.split(size)
    step = _total if is_total else _scores
    if len(pieces) == 1:
        return step(states, listed, summed, coupling).expand((*shape,) if is_total else (*shape, len(states)))
    found = [_kept(step, piece, (listed, summed, coupling)) for piece in pieces]
    return torch.stack(found, -1).logsumexp(-1) if is_total else torch.cat(found, -1)


def _kept(step: Callable[..., torch.Tensor], states: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """One piece; for a gradient it is computed again and not stored."""
    if torch.is_grad_enabled() and any(part.requires_grad for part in parts):
        return checkpoint(step, states, *parts, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore[reportReturnType]
    return step(states, *parts)
