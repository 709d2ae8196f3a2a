"""Small dependency networks, and transition matrices of their chains from the definition of a network alone."""

import itertools

import numpy as np
import torch

from pyro_hoim.dependency_network import DependencyConditionals, LeafConditional, Split, TableConditional
from pyro_hoim.schema import Domain
from pyro_hoim.testing import enumerate_codes

PAIR = Domain.from_cardinalities({"a": 2, "b": 2})


def laws(shape, seed=0):
    """Positive random laws on the last axis."""
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), size=shape[:-1]))


def pair(of_a, of_b, domain=PAIR):
    """Two variables that read each other, or nothing where the table is one law."""
    return DependencyConditionals(
        TableConditional(domain, name, other[: table.dim() - 1], table)
        for name, other, table in (("a", ["b"], of_a), ("b", ["a"], of_b))
    )


def random_network(domain, seed, concentration=1.0, parents=None, floor=0.0):
    """Tables over all other variables, or over some; no joint law."""
    rng = np.random.default_rng(seed)
    nodes = []
    for name in domain.names:
        others = [other for other in domain.names if other != name]
        read = others if parents is None else list(rng.permutation(others)[:parents])
        shape = [domain[other].cardinality for other in read]
        table = np.maximum(rng.dirichlet([concentration] * domain[name].cardinality, size=shape), floor)
        nodes.append(TableConditional(domain, name, read, torch.from_numpy(table / table.sum(-1, keepdims=True))))
    return DependencyConditionals(nodes)


def all_states(domain):
    return list(itertools.product(*(range(n) for n in domain.cardinalities)))


def partition(domain, operations):
    """The leaves as sets of states, in the order of equations (19) and (20)."""
    leaves = [set(all_states(domain))]
    for operation in operations:
        if isinstance(operation, Split):
            opened = leaves.pop(operation.leaf)
            j = domain.index(operation.on)
            leaves += [{x for x in opened if x[j] == level} for level in range(domain.cardinalities[j])]
        else:
            joined = leaves.pop(operation.second)
            leaves[operation.first] = leaves[operation.first] | joined
    return leaves


def laws_of(conditionals, name):
    """Law of a variable at every state (states, levels), by partitions of graphs and looking into tables."""
    node, states = conditionals.node(name), enumerate_codes(conditionals.domain.cardinalities)
    if isinstance(node, LeafConditional):
        leaves = partition(node.domain, node.graph.operations)
        return node.probs.double().numpy()[
            [next(y for y, leaf in enumerate(leaves) if x in leaf) for x in all_states(node.domain)]
        ]
    if isinstance(node, TableConditional):
        found = node.probs.double().numpy()[tuple(states[:, node.domain.index(p)] for p in node.parents)]
        return np.broadcast_to(found, (len(states), found.shape[-1]))
    return node.log_probs(torch.from_numpy(states)).double().exp().numpy()


def update_matrix(conditionals, name):
    """Transition matrix of one update of a variable, level by level."""
    domain = conditionals.domain
    states, laws, i = enumerate_codes(domain.cardinalities), laws_of(conditionals, name), domain.index(name)
    matrix = np.zeros((len(states), len(states)))
    for level in range(domain.cardinalities[i]):
        moved = states.copy()
        moved[:, i] = level
        matrix[np.arange(len(states)), np.ravel_multi_index(tuple(moved.T), domain.cardinalities)] = laws[:, level]
    return matrix


def fixed_law(matrix):
    """The law that a matrix keeps, by linear equations."""
    size = len(matrix)
    system = np.vstack([matrix.T - np.eye(size), np.ones(size)])
    return np.abs(np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0])
