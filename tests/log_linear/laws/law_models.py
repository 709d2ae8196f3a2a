"""Structures, parameters and laws that several tests of the laws share."""

import itertools

import numpy as np
import torch

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.log_linear import HierarchicalLogLinear, parametrization
from pyro_hoim.testing import enumerate_codes, exact_statistics, exact_table


def graph(cards, edges, *, closure=True, hierarchical=True):
    return InteractionHypergraph(Domain.from_cardinalities(cards), edges, closure=closure, hierarchical=hierarchical)


CHAIN = graph([2, 3, 2, 2], [("x0", "x1"), ("x1", "x2"), ("x2", "x3")])
CYCLE = graph([2, 3, 2, 2], [("x0", "x1"), ("x1", "x2"), ("x2", "x3"), ("x0", "x3")])
TRIPLES = graph([3, 2, 2, 3], [("x0", "x1", "x2"), ("x1", "x2", "x3")])
WEAK = graph([2, 3, 2, 2], [("x0",), ("x0", "x1", "x2"), ("x2", "x3")], closure=False, hierarchical=False)
GRAPHS = {
    "chain": CHAIN,
    "cycle": CYCLE,
    "triples": TRIPLES,
    "disconnected": graph([2, 3, 2, 3], [("x0", "x2"), ("x1", "x3")]),
    "unused variable": graph([2, 3, 2], [("x0", "x2")]),
    "no edges": graph([2, 3], []),
    "one variable": graph([4], [("x0",)]),
    "one state": graph([1, 3, 1], [("x0", "x1"), ("x1", "x2")]),
    "saturated": InteractionHypergraph.saturated(Domain.from_cardinalities([2, 3, 2])),
    "no variables": graph([], []),
    "weak heredity": WEAK,
}


def draw_theta(hypergraph, *batch, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*batch, hypergraph.num_parameters, generator=generator, dtype=torch.float64)


def law_of(hypergraph, *batch, seed=0, scale=1.0, **options):
    """Law of a random theta."""
    return HierarchicalLogLinear(hypergraph, draw_theta(hypergraph, *batch, seed=seed, scale=scale), **options)


def theta_of(hypergraph, *batch, seed=0, scale=1.0):
    """A random theta of numpy's generator."""
    size = (*batch, hypergraph.num_parameters)
    return torch.from_numpy(np.random.default_rng(seed).normal(scale=scale, size=size))


def table_of(hypergraph, theta):
    """Probability of every cell by brute force."""
    return np.exp(exact_table(hypergraph, parametrization(hypergraph).to_tables(theta)))


def flat(hypergraph, table):
    """Statistics of a table of probabilities or counts, which may hold zeros."""
    with np.errstate(divide="ignore"):
        return torch.from_numpy(exact_statistics(hypergraph, np.log(table)))


def corner_indicators(graph):
    """Of every cell, which coordinates of corner theta it has, by definition: (cells, parameters)."""
    cells, cards = enumerate_codes(graph.domain.cardinalities), graph.domain.cardinalities
    sets = [(m, product) for m in graph.edge_indices for product in itertools.product(*(range(1, cards[i]) for i in m))]
    return np.stack([(cells[:, members] == np.array(levels)).all(1) for members, levels in sets], 1).astype(float)
