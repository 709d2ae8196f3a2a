"""Generalized root models for the tests of log Z, and plain oracles for them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from pyro_hoim.models import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.schema import Domain, Variable

FAMILIES = {
    "poisson": PoissonFamily(),
    "truncated": TruncatedPoissonFamily(4),
    "exponential": ExponentialFamily(),
    "gaussian": GaussianFamily(),
}


def domain_of(size, family):
    return Domain([Variable(f"v{i}", kind=family.kind) for i in range(size)])


def random_energy(name, size, order, seed, *, scale=0.15, simplified=False, batch=()):
    """A random model that can be normalised: single terms of reals outweigh everything."""
    family, rng = FAMILIES[name], np.random.default_rng(seed)
    domain = domain_of(size, family)
    if simplified:
        sets = [s for r in range(2, order + 1) for s in itertools.combinations(domain.names, r)]
        structure = RootStructure.simplified(domain, sets)
    else:
        structure = RootStructure.complete(domain, order)
    psi = rng.normal(0, scale, (*batch, structure.num_terms))
    if not family.is_discrete:
        psi[..., :size] = -rng.uniform(1.0, 2.0, (*batch, size))
    return GeneralizedRootEnergy(structure, torch.tensor(psi), family)


def chain_energy(name, size, seed, scale=0.3):
    """Pairs along a chain."""
    family, rng = FAMILIES[name], np.random.default_rng(seed)
    domain = domain_of(size, family)
    structure = RootStructure.simplified(domain, list(itertools.pairwise(domain.names)))
    psi = rng.normal(0, scale, structure.num_terms)
    if not family.is_discrete:
        psi[:size] = -rng.uniform(1.0, 2.0, size)
    return GeneralizedRootEnergy(structure, torch.tensor(psi), family)


def blocks_energy(name, blocks, block, seed, scale=0.15):
    """Independent blocks of a few variables with all pairs and triples inside; names as in domain_of."""
    family, rng = FAMILIES[name], np.random.default_rng(seed)
    domain = domain_of(blocks * block, family)
    sets = [
        s
        for b in range(blocks)
        for r in range(2, min(block, 3) + 1)
        for s in itertools.combinations(domain.names[b * block : (b + 1) * block], r)
    ]
    structure = RootStructure.simplified(domain, sets)
    psi = rng.normal(0, scale, structure.num_terms)
    if not family.is_discrete:
        psi[: blocks * block] = -rng.uniform(1.0, 2.0, blocks * block)
    return GeneralizedRootEnergy(structure, torch.tensor(psi), family)


def root(name, x, j):
    if name == "gaussian":
        return x**2 if j == 1 else x if j == 2 else np.abs(x) ** (2 / j)
    return x ** (1 / j)


def log_q(name, energy, x):
    """Log q of states (n, d) from the definition, with nothing of the library but the list of terms."""
    x = np.asarray(x, dtype=np.float64)
    total = np.zeros(len(x))
    if name in ("poisson", "truncated"):
        total -= np.vectorize(math.lgamma)(x + 1).sum(1)
    psi = energy.psi.detach().double().numpy()
    for (key, names), value in zip(energy.structure.names, psi, strict=True):
        product = np.ones(len(x))
        for variable in names:
            product = product * root(name, x[:, energy.domain.names.index(variable)], key[0])
        total += math.factorial(key[1]) * value * product
    return total


def listed(name, energy, top):
    """All counts below a top and their log q."""
    states = np.array(list(itertools.product(range(top), repeat=len(energy.domain))), dtype=np.float64)
    return states, log_q(name, energy, states)


def log_sum(values):
    largest = values.max()
    return float(largest + np.log(np.exp(values - largest).sum()))


def monomials(energy, power):
    """Exponent of q as a polynomial in u with x = u^power: coefficients and exponents of every variable."""
    terms = []
    for (key, names), value in zip(energy.structure.names, energy.psi.tolist(), strict=True):
        exponents = [power // key[0] if name in names else 0 for name in energy.domain.names]
        terms.append((math.factorial(key[1]) * value, tuple(exponents)))
    return terms


def simplex(a, b):
    """A direction of three entries that sum to one by two angles, and its Jacobian."""
    first, second = math.sin(a) ** 2, math.sin(b) ** 2
    jacobian = 4 * math.sin(a) * math.cos(a) ** 3 * math.sin(b) * math.cos(b)
    return (first, (1 - first) * second, (1 - first) * (1 - second)), jacobian
