"""Random machines and the laws of their visible variables by sums over all states, in NumPy alone."""

import itertools
import math

import numpy as np
import torch

from pyro_hoim import Domain
from pyro_hoim.boltzmann import BoltzmannMachine, MachineStructure, RestrictedBoltzmannMachine


def domain(n):
    return Domain.from_cardinalities({f"v{i}": 2 for i in range(n)})


def structures():
    return {
        "restricted": MachineStructure.restricted(domain(4), 3),
        "wide": MachineStructure.restricted(domain(2), 4),
        "no hidden": MachineStructure.restricted(domain(3), 0),
        "layered": MachineStructure.layered(domain(3), 2, 2),
        "visible edges": MachineStructure(domain(3), 2, [("v0", "v1"), ("v1", "h1"), ("v2", "h2"), ("v0", "h2")]),
        "triangle": MachineStructure(
            domain(3), 3, [("v0", "v1"), ("v1", "h1"), ("h1", "h2"), ("h2", "h3"), ("h1", "h3"), ("v2", "h3")]
        ),
        "visible triangle": MachineStructure(domain(3), 1, [("v0", "v1"), ("v1", "v2"), ("v0", "v2"), ("v2", "h1")]),
        "one variable": MachineStructure(domain(1), 0),
        "no edges": MachineStructure(domain(2), 1),
        "edges apart": MachineStructure(domain(2), 2, [("v0", "v1"), ("h1", "h2")]),
    }


def joint_scores(structure, theta):
    """Log weights (2, ..., 2) of all states of all variables, every pair counted once."""
    names = [*structure.domain.names, *structure.hidden]
    place = {name: i for i, name in enumerate(names)}
    scores = np.zeros((2,) * len(names))
    for state in itertools.product((0, 1), repeat=len(names)):
        total = sum(t * x for t, x in zip(theta, state, strict=False))
        for k, (a, b) in enumerate(structure.edges):
            total += theta[len(names) + k] * state[place[a]] * state[place[b]]
        scores[state] = total
    return scores


def marginal_scores(structure, theta):
    """Log weights (2, ..., 2) of the visible states."""
    scores = joint_scores(structure, np.asarray(theta))
    weights = np.exp(scores).sum(tuple(range(len(structure.domain), scores.ndim)))
    return np.log(weights)


def exact_log_probs(structure, theta):
    """Log-probabilities (B, 2, ..., 2) of the visible states under each row of theta."""
    tables = [marginal_scores(structure, row) for row in np.asarray(theta)]
    return np.stack([table - np.log(np.exp(table).sum()) for table in tables])


def random_theta(structure, *batch, scale=1.0, seed=0):
    """Normal quantiles of multiples of the golden ratio: no generator, so the machines never change."""
    shape = (*batch, structure.num_parameters)
    places = (torch.arange(1, math.prod(shape) + 1) + 997 * seed).double() * (math.sqrt(5) - 1) / 2
    return scale * torch.special.ndtri((places % 1).clamp(1e-3, 1 - 1e-3)).reshape(shape)


def machine(name, seed=0, **options):
    structure = structures()[name]
    return BoltzmannMachine(structure, random_theta(structure, seed=seed), **options)


def restricted(structure, theta, **options):
    n, m = structure.num_visible, structure.num_hidden
    weights = theta[..., n + m :].reshape(*theta.shape[:-1], n, m)
    return RestrictedBoltzmannMachine(structure.domain, theta[..., :n], theta[..., n : n + m], weights, **options)
