"""Energies of generalized root models against dense tensors, and their conditionals against sums of exp(-energy).

Identities hold to a relative 1e-10 in float64.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from pyro_hoim.models import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    NodeFamily,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.schema import Domain, Variable

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
FAMILIES: list[NodeFamily] = [PoissonFamily(), TruncatedPoissonFamily(9), ExponentialFamily(), GaussianFamily()]
ALL = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def make_domain(d: int, family: NodeFamily) -> Domain:
    return Domain([Variable(f"x{i}", kind=family.kind) for i in range(d)])


def build(
    family: NodeFamily, d: int = 4, order: int = 4, batch: tuple[int, ...] = (), seed: int = 0, scale: float = 0.3
) -> GeneralizedRootEnergy:
    """Model with every (j, l) and random entries."""
    structure = RootStructure.complete(make_domain(d, family), order)
    generator = torch.Generator().manual_seed(seed)
    psi = scale * torch.randn(*batch, structure.num_terms, generator=generator, dtype=torch.float64)
    return GeneralizedRootEnergy(structure, psi, family)


def draw(family: NodeFamily, shape: tuple[int, ...], seed: int = 1) -> torch.Tensor:
    """Values of the domain of a family, zeros among them."""
    rng = np.random.default_rng(seed)
    values = {
        "poisson": rng.poisson(2.0, shape),
        "truncated-poisson": rng.integers(0, 10, shape),
        "exponential": rng.exponential(2.0, shape) * rng.integers(0, 2, shape),
        "gaussian": rng.normal(0, 2.0, shape),
    }[family.name]
    return torch.from_numpy(values.astype(float))


def literal_root(family: NodeFamily, x: float, j: int) -> float:
    """T_j as the paper defines it, with its misprint corrected."""
    if family.name != "gaussian":
        return x ** (1 / j)
    return {1: x * x, 2: x}.get(j, abs(x) ** (2 / j))


def literal_base(family: NodeFamily, x: float) -> float:
    return -math.lgamma(x + 1) if family.is_discrete else 0.0


def dense_tensors(model: GeneralizedRootEnergy) -> dict[tuple[int, int], np.ndarray]:
    """The super-symmetric tensors, written out in full."""
    d = len(model.domain)
    tensors = {key: np.zeros((d,) * key[1]) for key in model.structure.keys}
    for (key, names), value in zip(model.structure.names, model.psi.tolist(), strict=True):
        for index in itertools.permutations(model.domain.indices(names)):
            tensors[key][index] = value
    return tensors


def literal_energy(model: GeneralizedRootEnergy, x: list[float]) -> float:
    """Equation 1: inner products of dense tensors with outer powers of the vector of roots."""
    total = sum(literal_base(model.family, value) for value in x)
    for (j, size), tensor in dense_tensors(model).items():
        root = np.array([literal_root(model.family, value, j) for value in x])
        outer = np.ones(())
        for _ in range(size):
            outer = np.multiply.outer(outer, root)
        total += float((tensor * outer).sum())
    return -total


def close(left: torch.Tensor, right: Any, **tolerance: float) -> None:
    expected = right.detach().numpy() if isinstance(right, torch.Tensor) else np.asarray(right)
    np.testing.assert_allclose(left.detach().numpy(), expected, **(tolerance or TOLERANCE))


@ALL
@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_energy_is_the_dense_contraction(family: NodeFamily, d: int, order: int) -> None:
    model, x = build(family, d, order, seed=d), draw(family, (6, d), seed=order)
    expected = [literal_energy(model, row) for row in x.tolist()]
    close(model.energy(x), expected)
    assert model.energy(x[0]).shape == ()
    assert model.energy(x[:0]).shape == (0,)
    close(-(model.statistics(x) @ model.coefficients + family.log_base(x).sum(-1)), expected)


@ALL
def test_control_sees_a_missing_factorial_a_dropped_term_and_another_root(family: NodeFamily) -> None:
    model, x = build(family), draw(family, (6, 4)) + (0.0 if family.name != "exponential" else 1.0)
    expected = np.array([literal_energy(model, row) for row in x.tolist()])
    dropped = model.psi.clone()
    dropped[model.structure.index(["x0", "x1", "x2"], 4)] = 0
    names = {(j + 1, size): model.structure.tuples((j, size)) for j, size in model.structure.keys}
    shifted = RootStructure(model.domain, names)
    for wrong in (
        GeneralizedRootEnergy.from_coefficients(model.structure, model.psi, family),
        GeneralizedRootEnergy(model.structure, dropped, family),
        GeneralizedRootEnergy(shifted, model.psi, family),
    ):
        assert np.abs(wrong.energy(x).numpy() - expected).max() > 1e-2


@ALL
def test_interaction_score_is_the_part_that_tempering_multiplies(family: NodeFamily) -> None:
    model, x = build(family), draw(family, (5, 4))
    alone = torch.where(model.structure.is_interaction, 0.0, model.psi)
    independent = GeneralizedRootEnergy(model.structure, alone, family)
    close(model.interaction_score(x), independent.energy(x) - model.energy(x))
    close(independent.interaction_score(x), np.zeros(5))


@ALL
@pytest.mark.parametrize("d", [1, 3, 5])
def test_natural_parameters_are_differences_of_energy(family: NodeFamily, d: int) -> None:
    """For any two values a, b of x_s: E(b) - E(a) = sum_j eta_j (T_j(a) - T_j(b)) + B(a) - B(b)."""
    model, x = build(family, d), draw(family, (4, d))
    natural = model.node_natural(x)
    assert natural.shape == (4, d, model.order)
    for s in range(d):
        for a, b in ((0.0, 1.0), (3.0, 7.0)):
            left, right = x.clone(), x.clone()
            left[:, s], right[:, s] = a, b
            roots = np.array([literal_root(family, a, j) - literal_root(family, b, j) for j in range(1, 5)])
            expected = natural[:, s].numpy() @ roots + literal_base(family, a) - literal_base(family, b)
            close(model.energy(right) - model.energy(left), expected)
            assert torch.equal(model.node_natural(left)[:, s], natural[:, s])


def test_control_sees_natural_parameters_without_the_factor_l() -> None:
    """Equation 5 has l times a slice of the tensor; the coefficient of a term counts it l! / (l - 1)! times."""
    family = PoissonFamily()
    model = build(family)
    sizes = torch.cat([torch.full((len(model.structure.tuples(key)),), key[1]) for key in model.structure.keys])
    wrong = GeneralizedRootEnergy.from_coefficients(model.structure, model.coefficients / sizes, family)
    x = draw(family, (6, 4)) + 1
    assert (model.node_natural(x) - wrong.node_natural(x)).abs().max() > 0.1
    left, right = x.clone(), x.clone()
    left[:, 0], right[:, 0] = 1.0, 0.0
    difference = model.energy(right) - model.energy(left)
    close(difference, model.node_natural(x)[:, 0].sum(-1))
    assert (difference - wrong.node_natural(x)[:, 0].sum(-1)).abs().max() > 0.1
