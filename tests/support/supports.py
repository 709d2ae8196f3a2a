"""Small models in which states are impossible, and all their states: an oracle for what obeys a support."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.testing import enumerate_codes

NO = -math.inf


def forbidding(
    cards: Sequence[int],
    forbidden: Mapping[tuple[int, ...], Iterable[Sequence[int]]],
    tables: Iterable[tuple[int, ...]] = (),
    seed: int = 0,
) -> LogLinearEnergy:
    """A model over x0, x1, ... with a set of cells that are impossible, by positions of variables, and other tables."""
    domain = Domain.from_cardinalities(cards)
    edges = {tuple(domain.names[i] for i in members) for members in [*forbidden, *tables]}
    graph = InteractionHypergraph(domain, edges, hierarchical=False)
    values = torch.as_tensor(np.random.default_rng(seed).normal(size=graph.num_terms))
    for members, cells in forbidden.items():
        where = graph.term_slices[tuple(domain.names[i] for i in members)]
        table = values[where].reshape([cards[i] for i in members])
        for cell in cells:
            table[tuple(cell)] = NO
    return LogLinearEnergy(graph, values)


def one_hot(size: int, more: int = 0) -> LogLinearEnergy:
    """Exactly one of some binary columns is set; further binary columns follow the one before."""
    columns = range(size)
    forbidden: dict[tuple[int, ...], list[tuple[int, ...]]] = {
        pair: [(1, 1)] for pair in itertools.combinations(columns, 2)
    }
    forbidden[tuple(columns)] = [(0,) * size]
    pairs = [(size - 1 + k, size + k) for k in range(more)]
    return forbidding([2] * (size + more), forbidden, pairs)


def random_model(rng: np.random.Generator, batch: tuple[int, ...] = (), largest: int = 4) -> LogLinearEnergy:
    """A model with a random support, connected or not, over up to six variables of up to ``largest`` - 1 levels."""
    number = int(rng.integers(2, 6))
    domain = Domain.from_cardinalities(rng.integers(1, largest, size=number).tolist())
    sets = [rng.choice(number, size=rng.integers(1, min(number, 3) + 1), replace=False) for _ in range(5)]
    graph = InteractionHypergraph(domain, [[domain.names[i] for i in members] for members in sets], hierarchical=False)
    tables = torch.as_tensor(rng.normal(size=(*batch, graph.num_terms)))
    lost = torch.as_tensor(rng.random(tables.shape) < rng.choice([0.05, 0.15, 0.3]))
    return LogLinearEnergy(graph, tables.masked_fill(lost, NO))


def log_weights(model: LogLinearEnergy) -> tuple[torch.Tensor, torch.Tensor]:
    """All states, and minus their energies, (*batch, states)."""
    codes = torch.as_tensor(enumerate_codes(model.domain.cardinalities))
    wide = LogLinearEnergy(model.hypergraph, model.tables[..., None, :])
    return codes, -wide.energy(codes)


def positions(states: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Which of the enumerated states each state (..., d) is."""
    strides = torch.tensor([math.prod(codes.max(0).values.add(1)[i + 1 :].tolist()) for i in range(codes.shape[1])])
    return (states * strides).sum(-1)
