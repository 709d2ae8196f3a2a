"""Generalized root models that can be normalised, and the definition of log q, for tests of log Z and of draws.

:func:`log_q` shares nothing with the library but the list of terms.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from pyro_hoim import Domain, GeneralizedRootEnergy, RootStructure, Variable
from pyro_hoim.generalized_root.nodes.families import (
    ExponentialFamily,
    GaussianFamily,
    NodeFamily,
    PoissonFamily,
    TruncatedPoissonFamily,
)

ROOT_FAMILIES: dict[str, NodeFamily] = {
    "poisson": PoissonFamily(),
    "truncated": TruncatedPoissonFamily(4),
    "exponential": ExponentialFamily(),
    "gaussian": GaussianFamily(),
}
"""One family of every kind, by the name that the functions take."""


def domain_of(size: int, family: NodeFamily) -> Domain:
    """Variables v0, v1, ... of the kind of a family."""
    return Domain([Variable(f"v{i}", kind=family.kind) for i in range(size)])


def simplified_energy(
    family: NodeFamily, size: int, sets: Iterable[Iterable[str]], psi: Sequence[float]
) -> GeneralizedRootEnergy:
    """The simplified model of v0, v1, ... and some sets of them, in double precision."""
    structure = RootStructure.simplified(domain_of(size, family), sets)
    return GeneralizedRootEnergy(structure, torch.tensor(psi, dtype=torch.float64), family)


def _random(
    name: str, structure: RootStructure, seed: int, scale: float, batch: tuple[int, ...] = ()
) -> GeneralizedRootEnergy:
    """A model with random entries; single terms of reals, which come first, are made to outweigh everything."""
    rng, family, size = np.random.default_rng(seed), ROOT_FAMILIES[name], len(structure.domain)
    psi = rng.normal(0, scale, (*batch, structure.num_terms))
    if not family.is_discrete:
        psi[..., :size] = -rng.uniform(1.0, 2.0, (*batch, size))
    return GeneralizedRootEnergy(structure, torch.tensor(psi), family)


def random_energy(
    name: str,
    size: int,
    order: int,
    seed: int,
    *,
    scale: float = 0.15,
    simplified: bool = False,
    batch: tuple[int, ...] = (),
) -> GeneralizedRootEnergy:
    """A model with random entries of all terms up to an order, or of a simplified model."""
    domain = domain_of(size, ROOT_FAMILIES[name])
    if simplified:
        return _random(name, RootStructure.simplified(domain, _sets(domain.names, order)), seed, scale, batch)
    return _random(name, RootStructure.complete(domain, order), seed, scale, batch)


def _sets(names: Sequence[str], order: int) -> list[tuple[str, ...]]:
    """All sets of two and more names, up to an order."""
    return [s for r in range(2, order + 1) for s in itertools.combinations(names, r)]


def chain_energy(name: str, size: int, seed: int, scale: float = 0.3) -> GeneralizedRootEnergy:
    """A model with pairs along a chain."""
    domain = domain_of(size, ROOT_FAMILIES[name])
    return _random(name, RootStructure.simplified(domain, itertools.pairwise(domain.names)), seed, scale)


def blocks_energy(name: str, blocks: int, block: int, seed: int, scale: float = 0.15) -> GeneralizedRootEnergy:
    """Independent blocks of a few variables with all pairs and triples inside."""
    domain = domain_of(blocks * block, ROOT_FAMILIES[name])
    sets = [s for b in range(blocks) for s in _sets(domain.names[b * block : (b + 1) * block], min(block, 3))]
    return _random(name, RootStructure.simplified(domain, sets), seed, scale)


def root(name: str, x: np.ndarray, j: int) -> np.ndarray:
    """The root statistic T_j of values of a family."""
    if name == "gaussian":
        return x**2 if j == 1 else x if j == 2 else np.abs(x) ** (2 / j)
    return x ** (1 / j)


def log_q(name: str, energy: GeneralizedRootEnergy, x: np.ndarray) -> np.ndarray:
    """Log q of states (n, d), (n,), from the definition."""
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


def listed(name: str, energy: GeneralizedRootEnergy, top: int) -> tuple[np.ndarray, np.ndarray]:
    """All vectors of counts below a top, (n, d), and their log q, (n,)."""
    states = np.array(list(itertools.product(range(top), repeat=len(energy.domain))), dtype=np.float64)
    return states, log_q(name, energy, states)


def log_sum(values: np.ndarray) -> float:
    """Logarithm of the sum of exponentials."""
    largest = values.max()
    return float(largest + np.log(np.exp(values - largest).sum()))


def count_table(seed: int = 0, num_rows: int = 120, width: int = 6, scale: float = 1.0) -> np.ndarray:
    """Counts with pair and triple dependence and many zeros."""
    rng = np.random.default_rng(seed)
    hidden = rng.gamma(0.7, 1.2, (num_rows, 3))
    load = rng.random((3, width)) * (rng.random((3, width)) < 0.6)
    return rng.poisson(scale * (hidden @ load + 0.15)).astype(float)
