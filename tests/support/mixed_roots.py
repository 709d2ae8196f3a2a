"""Root models whose variables have families of their own, and their definition by plain loops and wide grids.

:func:`log_density` and :func:`brute_force` share nothing with the library but the list of terms.
"""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import gammaln

from pyro_hoim import Domain, Variable
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    IndicatorFamily,
    NodeFamily,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
    UserFamily,
)
from pyro_hoim.testing import Axis

BINARY, BOUNDED, LONG = TruncatedPoissonFamily(1), TruncatedPoissonFamily(4), TruncatedPoissonFamily(70)
POISSON, EXPONENTIAL, GAUSSIAN = PoissonFamily(), ExponentialFamily(), GaussianFamily()
RED, LARGE = IndicatorFamily("colour"), IndicatorFamily("size")
GEOMETRIC = UserFamily("geometric", "count", np.zeros_like, is_normalizable=True)

PAIR = [("v0", "v1")]
PAIRS = [("v0", "v1"), ("v0", "v2"), ("v1", "v2")]
TRIPLE = [*PAIRS, ("v0", "v1", "v2")]

MIXTURES: dict[str, tuple[tuple[NodeFamily, ...], list[tuple[str, ...]]]] = {
    "binary-gaussian": ((BINARY, GAUSSIAN), PAIR),
    "binary-poisson": ((BINARY, POISSON), PAIR),
    "poisson-gaussian": ((POISSON, GAUSSIAN), PAIR),
    "exponential-gaussian": ((EXPONENTIAL, GAUSSIAN), PAIR),
    "bounded-exponential": ((BOUNDED, EXPONENTIAL), PAIR),
    "counts": ((BINARY, BOUNDED, POISSON), TRIPLE),
    "finite": ((BINARY, BOUNDED, BINARY), TRIPLE),
    "gaussians-binary": ((GAUSSIAN, BINARY, GAUSSIAN), PAIRS),
    "long-exponential": ((LONG, EXPONENTIAL), PAIR),
    "all": ((BINARY, POISSON, EXPONENTIAL, GAUSSIAN), [*PAIRS, ("v2", "v3"), ("v0", "v2", "v3")]),
    "user-binary": ((GEOMETRIC, BINARY), PAIR),
    "category-gaussian": ((RED, GAUSSIAN, RED, RED), [("v0", "v1"), ("v2", "v1")]),
    "category-counts": ((POISSON, RED, BINARY, RED, RED), [("v0", "v1"), ("v0", "v2"), ("v0", "v2", "v3")]),
    "two-categories": ((RED, LARGE, RED, LARGE, EXPONENTIAL), [("v0", "v1"), ("v1", "v4"), ("v2", "v3", "v4")]),
    "category-alone": ((RED, RED, BINARY, RED, BINARY), [("v2", "v4")]),
    "categories-binary": ((RED, LARGE, RED, LARGE, LARGE, BINARY), [("v0", "v1"), ("v2", "v5"), ("v0", "v3", "v5")]),
    "category-poisson-gaussian": ((RED, POISSON, RED, GAUSSIAN), [("v0", "v1"), ("v0", "v3"), ("v1", "v3")]),
    "poisson-exponential": ((POISSON, EXPONENTIAL), PAIR),
    "cubic-numbers": ((GAUSSIAN, EXPONENTIAL, GAUSSIAN), TRIPLE),
    "user-category": ((GEOMETRIC, RED, RED), [("v0", "v1")]),
    "every-kind": (
        (BINARY, POISSON, EXPONENTIAL, GAUSSIAN, RED, RED),
        [("v0", "v1"), ("v1", "v3"), ("v2", "v3"), ("v3", "v4"), ("v0", "v2", "v3"), ("v1", "v2", "v5")],
    ),
}
"""Families of v0, v1, ... and sets of them that interact."""

TEN = [
    *("binary-gaussian", "binary-poisson", "bounded-exponential", "category-gaussian", "categories-binary"),
    *("category-poisson-gaussian", "poisson-exponential", "cubic-numbers", "user-category", "every-kind"),
]
"""Mixtures that are held to everything that a law of one family is held to."""

EDGES: dict[str, tuple[NodeFamily, ...]] = {
    "one-count": (POISSON,),
    "one-number": (GAUSSIAN,),
    "one-level": (RED, EXPONENTIAL),
    "indicators-alone": (RED, RED, RED),
    "nothing": (),
}
"""Families of variables that do not interact: the smallest tables."""


def mixed_energy(name: str, seed: int = 3, scale: float = 0.15, batch: tuple[int, ...] = ()) -> GeneralizedRootEnergy:
    """The model of a mixture with random entries, in which single terms of real numbers outweigh all others."""
    families, sets = MIXTURES[name] if name in MIXTURES else (EDGES[name], [])
    domain = Domain([Variable(f"v{i}", kind=family.kind) for i, family in enumerate(families)])
    structure = RootStructure.mixed(domain, sets)
    rng = np.random.default_rng(seed)
    psi = rng.normal(0, scale, (*batch, structure.num_terms))
    for i, family in enumerate(families):
        if not family.is_discrete or family is GEOMETRIC:
            psi[..., i] = -rng.uniform(0.9, 1.4, batch)
    return GeneralizedRootEnergy(structure, torch.tensor(psi), dict(zip(domain.names, families, strict=True)))


def in_units(energy: GeneralizedRootEnergy) -> GeneralizedRootEnergy:
    """The model with the indicators of every category next to each other."""
    places = [int(s) for unit in energy.families.units for s in unit]
    domain = Domain([energy.domain.variables[s] for s in places])
    structure = RootStructure(domain, {key: energy.structure.tuples(key) for key in energy.structure.keys})
    order = [energy.structure.index(names, key[0]) for key, names in structure.names]
    return GeneralizedRootEnergy(structure, energy.psi[..., order], [energy.families[s] for s in places])


def root(family: NodeFamily, x: np.ndarray, j: int) -> np.ndarray:
    """T_j by definition."""
    if family.name != "gaussian":
        return x ** (1 / j)
    return x**2 if j == 1 else x if j == 2 else np.abs(x) ** (2 / j)


def log_density(energy: GeneralizedRootEnergy, columns: Sequence[np.ndarray]) -> np.ndarray:
    """Log q at values of all variables, which broadcast."""
    families = energy.families
    total = sum((-gammaln(x + 1) for f, x in zip(families, columns, strict=True) if "poisson" in f.name), np.zeros(()))
    for ((j, size), names), psi in zip(energy.structure.names, energy.psi.tolist(), strict=True):
        product = math.factorial(size) * psi
        for s in energy.domain.indices(names):
            product = product * root(families[s], columns[s], j)
        total = total + product
    return np.asarray(total)


@functools.cache
def grid(family: NodeFamily, order: int, tops: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """Values and log weights that cover what matters: counts, or Gauss-Legendre nodes in a smooth coordinate."""
    if family.is_discrete:
        values = np.arange(min(family.largest_value, tops) + 1)
        return values, np.zeros_like(values)
    # In u with x = u^m all roots are smooth on either side of 0.
    power = math.lcm(*range(1, order + 1))
    power = power if family.kind == "positive" or order > 2 else 1
    nodes, weights = np.polynomial.legendre.leggauss(64)
    end = (70.0 if family.kind == "positive" else 12.0) ** (1 / power)
    u, log_w = end * (nodes + 1) / 2, np.log(end * weights / 2)
    values, log_w = u**power, log_w + math.log(power) + (power - 1) * np.log(u)
    if family.kind == "positive":
        return values, log_w
    return np.concatenate([-values, values]), np.concatenate([log_w, log_w])


def brute_force(energy: GeneralizedRootEnergy) -> tuple[float, np.ndarray, list[np.ndarray]]:
    """Log Z, log of normalised weights on the product of the grids, and the grids as columns that broadcast."""
    # A dimension for every unit: a variable by itself, or the indicators of a category, of which one is set.
    units = energy.families.units
    d, columns, weights = len(units), [np.zeros(())] * len(energy.families), [np.zeros(())]
    for number, unit in enumerate(units):
        values, log_w = grid(energy.families[int(unit[0])], energy.order)
        values, log_w = (
            (np.eye(len(unit)), np.zeros(len(unit))) if energy.families.is_category(unit) else (values[:, None], log_w)
        )
        shape = [-1 if number == t else 1 for t in range(d)]
        weights.append(np.reshape(log_w, shape))
        for s, column in zip(unit, values.T, strict=True):
            columns[s] = column.reshape(shape)
    logs = np.asarray(log_density(energy, columns) + sum(weights))
    log_z = float(torch.from_numpy(logs).logsumexp(tuple(range(d))))
    return log_z, logs - log_z, columns


def mixed_states(energy: GeneralizedRootEnergy, count: int, seed: int = 0) -> torch.Tensor:
    """States (count, d) of all variables, zeros among them."""
    rng = np.random.default_rng(seed)
    columns = [
        rng.integers(0, int(min(family.largest_value, 6)) + 1, count)
        if family.is_discrete
        else rng.exponential(1.5, count) * rng.integers(0, 2, count)
        if family.kind == "positive"
        else rng.normal(0, 1.5, count)
        for family in energy.families
    ]
    states = np.stack(columns, 1).astype(float)
    for places in energy.families.blocks:
        states[:, places] = np.eye(len(places))[rng.integers(0, len(places), count)]
    return torch.from_numpy(states)


def mixed_axes(energy: GeneralizedRootEnergy) -> list[Axis]:
    """Axes of all units, whose cells are few; the variables of a unit must stand together."""
    power = math.lcm(*range(1, energy.order + 1))
    axes: list[Axis] = []
    for unit in energy.families.units:
        family = energy.families[int(unit[0])]
        if energy.families.is_category(unit):
            axes.append(Axis.indicators(len(unit)))
        elif family.is_discrete:
            axes.append(Axis.levels(int(family.largest_value) + 1) if family.largest_value < 9 else Axis.counts(3, 42))
        elif family.kind == "positive":
            axes.append(Axis.numbers([0, 0.5, 1.5, 60], 20, max(power, 2)))
        else:
            axes.append(Axis.numbers([-7, -0.7, 0, 0.7, 7], 20, 1 if power == 2 else power // 2))
    return axes


def conditional_gaussian_log_z(energy: GeneralizedRootEnergy) -> float:
    """Log Z of pairs of bounded counts and Gaussian variables, as a sum over counts of Gaussian integrals."""
    families, names = energy.families, energy.domain.names
    reals = [s for s, family in enumerate(families) if family.name == "gaussian"]
    counts = [s for s in range(len(names)) if s not in reals]
    entries = dict(zip(energy.structure.names, energy.psi.tolist(), strict=True))
    # Log q = c(x) + h(x) y - y' L y / 2 at counts x.
    precision = np.zeros((len(reals), len(reals)))
    for a, s in enumerate(reals):
        precision[a, a] = -2 * entries.get(((1, 1), (names[s],)), 0.0)
    for ((j, size), members), psi in entries.items():
        where = [reals.index(energy.domain.index(name)) for name in members if energy.domain.index(name) in reals]
        if (j, size, len(where)) == (2, 2, 2):
            precision[where[0], where[1]] = precision[where[1], where[0]] = -2 * psi
    logs = []
    for x in itertools.product(*(range(int(families[s].largest_value) + 1) for s in counts)):
        value = dict(zip((names[s] for s in counts), x, strict=True))
        if any(sum(value[names[s]] for s in places) != 1 for places in energy.families.blocks):
            continue
        constant, shift = -sum(math.lgamma(v + 1) for v in x), np.zeros(len(reals))
        for ((j, size), members), psi in entries.items():
            product = math.factorial(size) * psi * math.prod(value[n] ** (1 / j) for n in members if n in value)
            free = [reals.index(energy.domain.index(name)) for name in members if name not in value]
            if not free:
                constant += product
            elif len(free) == 1 and j == 2:
                shift[free[0]] += product
        solved = np.linalg.solve(precision, shift)
        sign, log_det = np.linalg.slogdet(precision)
        assert sign > 0
        logs.append(constant + 0.5 * (shift @ solved - log_det + len(reals) * math.log(2 * math.pi)))
    return float(torch.tensor(logs, dtype=torch.float64).logsumexp(0))
