"""Energies of generalized root models against dense tensors, their conditionals and joint pseudo-likelihood.

Identities hold to a relative 1e-10 in float64.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from pyro_hoim import DependencyConditionals, Domain, InputError, IntractableError, Variable, stationary_law
from pyro_hoim.core import EnergyModel
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootPseudoLikelihood,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.testing import raises

from support.root_models import domain_of

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
FAMILIES = [PoissonFamily(), TruncatedPoissonFamily(9), ExponentialFamily(), GaussianFamily()]
ALL = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def build(family, d=4, order=4, batch=(), seed=0, scale=0.3):
    """Model with every (j, l) and random entries."""
    structure = RootStructure.complete(domain_of(d, family), order)
    generator = torch.Generator().manual_seed(seed)
    psi = scale * torch.randn(*batch, structure.num_terms, generator=generator, dtype=torch.float64)
    return GeneralizedRootEnergy(structure, psi, family)


def independent_of(model):
    """The control: the model without interactions."""
    alone = torch.where(model.structure.multiplicity > 1, 0.0, model.psi)
    return GeneralizedRootEnergy(model.structure, alone, model.family)


def falling(model, by):
    """The model with less of the terms that make it normalisable."""
    psi = model.psi.clone()
    psi[..., model.structure.slices[1, 1]] -= by
    return GeneralizedRootEnergy(model.structure, psi, model.family)


def draw(family, shape, seed=1):
    """Values of the domain of a family, zeros among them."""
    rng = np.random.default_rng(seed)
    values = {
        "poisson": rng.poisson(2.0, shape),
        "truncated-poisson": rng.integers(0, 10, shape),
        "exponential": rng.exponential(2.0, shape) * rng.integers(0, 2, shape),
        "gaussian": rng.normal(0, 2.0, shape),
    }[family.name]
    return torch.from_numpy(values.astype(float))


def literal_root(family, x, j):
    """T_j as the paper defines it, with its misprint corrected."""
    if family.name != "gaussian":
        return x ** (1 / j)
    return {1: x * x, 2: x}.get(j, abs(x) ** (2 / j))


def literal_base(family, x):
    return -math.lgamma(x + 1) if family.is_discrete else 0.0


def dense_tensors(model):
    """The super-symmetric tensors, written out in full."""
    d = len(model.domain)
    tensors = {key: np.zeros((d,) * key[1]) for key in model.structure.keys}
    for (key, names), value in zip(model.structure.names, model.psi.tolist(), strict=True):
        for index in itertools.permutations(model.domain.indices(names)):
            tensors[key][index] = value
    return tensors


def literal_energy(model, x):
    """Equation 1: inner products of dense tensors with outer powers of the vector of roots."""
    total = sum(literal_base(model.family, value) for value in x)
    for (j, size), tensor in dense_tensors(model).items():
        root = np.array([literal_root(model.family, value, j) for value in x])
        outer = np.ones(())
        for _ in range(size):
            outer = np.multiply.outer(outer, root)
        total += float((tensor * outer).sum())
    return -total


def close(left, right, **tolerance):
    expected = right.detach().numpy() if isinstance(right, torch.Tensor) else np.asarray(right)
    np.testing.assert_allclose(left.detach().numpy(), expected, **(tolerance or TOLERANCE))


@ALL
@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_energy_is_the_dense_contraction(family, d, order):
    model, x = build(family, d, order, seed=d), draw(family, (6, d), seed=order)
    expected = [literal_energy(model, row) for row in x.tolist()]
    close(model.energy(x), expected)
    assert (model.energy(x[0]).shape, model.energy(x[:0]).shape) == ((), (0,))
    close(-(model.statistics(x) @ model.coefficients + family.log_base(x).sum(-1)), expected)


@ALL
def test_control_sees_a_missing_factorial_a_dropped_term_and_another_root(family):
    model, x = build(family), draw(family, (6, 4)) + (0.0 if family.name != "exponential" else 1.0)
    expected = np.array([literal_energy(model, row) for row in x.tolist()])
    dropped = model.psi.clone()
    dropped[model.structure.index(["v0", "v1", "v2"], 4)] = 0
    names = {(j + 1, size): model.structure.tuples((j, size)) for j, size in model.structure.keys}
    shifted = RootStructure(model.domain, names)
    for wrong in (
        GeneralizedRootEnergy.from_coefficients(model.structure, model.psi, family),
        GeneralizedRootEnergy(model.structure, dropped, family),
        GeneralizedRootEnergy(shifted, model.psi, family),
    ):
        assert np.abs(wrong.energy(x).numpy() - expected).max() > 1e-2


@ALL
def test_interaction_score_is_the_part_that_tempering_multiplies(family):
    model, x = build(family), draw(family, (5, 4))
    independent = independent_of(model)
    close(model.interaction_score(x), independent.energy(x) - model.energy(x))
    close(independent.interaction_score(x), np.zeros(5))


@ALL
@pytest.mark.parametrize("d", [1, 3, 5])
def test_natural_parameters_are_differences_of_energy(family, d):
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


def test_control_sees_natural_parameters_without_the_factor_l():
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


# Conditionals against the joint law


def conditional_of_sums(model, x, s, top):
    """Log conditional of x_s from sums of exp(-energy) over 0, ..., top."""
    rows = x[:, None, :].repeat(1, top + 1, 1)
    rows[:, :, s] = torch.arange(top + 1)
    return -model.energy(x) - (-model.energy(rows)).logsumexp(-1)


@pytest.mark.parametrize("family", [PoissonFamily(), TruncatedPoissonFamily(9)], ids=lambda family: family.name)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_conditionals_of_counts_are_sums_of_the_joint_law(family, order):
    model, x = build(family, 3, order, scale=0.2), draw(family, (5, 3))
    found = model.node_log_prob(x)
    top = int(min(family.largest_value, 300))
    for s in range(3):
        close(found[:, s], conditional_of_sums(model, x, s, top))
    close(model.log_pseudo_prob(x), found.sum(-1))


def literal_block(model, x, block, values):
    """Law of a block given the rest, from the energies of all its states one by one."""
    found = np.zeros([values] * len(block))
    for state in np.ndindex(*found.shape):
        row = list(x)
        for position, value in zip(block, state, strict=True):
            row[position] = float(value)
        found[state] = math.exp(-literal_energy(model, row))
    return found / found.sum()


@pytest.mark.parametrize("block", [[], [1], [2, 0], [0, 1, 2]])
def test_blocks_of_truncated_counts_are_enumerated(block):
    model = build(TruncatedPoissonFamily(3), 3, 3, seed=7)
    names = [model.domain.names[i] for i in block]
    x = draw(model.family, (5, 3)).clamp(max=3)
    unread = x.clone()
    unread[:, block] = math.nan
    found = model.block_conditional(names, unread)
    assert found.shape == (5, *[4] * len(block))
    for row, law in zip(x.tolist(), found.exp(), strict=True):
        close(law, literal_block(model, row, block, 4))
    if 0 < len(block) < 3:
        assert (independent_of(model).block_conditional(names, x) - found).abs().max() > 0.05
    if len(block) == 1:
        chosen = found.gather(-1, x[:, block].long()).squeeze(-1)
        close(chosen, model.node_log_prob(x)[:, block[0]])
    several = build(model.family, 3, 3, batch=(2, 1), seed=8)
    batched = several.block_conditional(names, x[0])
    assert batched.shape == (2, 1, *[4] * len(block))
    for i in range(2):
        one = GeneralizedRootEnergy(several.structure, several.psi[i, 0], several.family)
        close(batched[i, 0], one.block_conditional(names, x[0]))


def test_unsuitable_blocks_are_refused():
    for family in (PoissonFamily(), ExponentialFamily(), GaussianFamily()):
        with raises("no-method", "block_conditional"):
            build(family, 2, 2).block_conditional(["v0"], torch.zeros(2))
        with raises("no-method", "model"):
            DependencyConditionals.from_model(build(family, 2, 2))
    model = build(TruncatedPoissonFamily(9), 7, 1)
    with pytest.raises(IntractableError, match=r"10000000 joint states.* of 7 variables exceed the limit"):
        model.block_conditional(model.domain.names, torch.zeros(7))
    for code, argument, block, value in (
        ("wrong-type", "block", "v0", 0.0),
        ("unknown-name", None, ["y"], 0.0),
        ("repeated-name", None, ["v0", "v0"], 0.0),
        ("out-of-range", "x", ["v0"], 10.0),
    ):
        with raises(code, argument):
            model.block_conditional(block, torch.full((7,), value))


def test_a_network_of_truncated_counts_settles_at_their_law():
    model = build(TruncatedPoissonFamily(2), 3, 3, seed=5)
    apart = RootStructure.simplified(model.domain, [("v0", "v2")])
    pair = GeneralizedRootEnergy(apart, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64), model.family)
    assert DependencyConditionals.from_model(pair).node("v0").reads == ("v2",)
    network = DependencyConditionals.from_model(model)
    assert isinstance(model, EnergyModel)
    assert network.domain.cardinalities == (3, 3, 3)
    assert not network.node("v0").has_zeros
    exact = literal_block(model, [0.0, 0.0, 0.0], [0, 1, 2], 3)
    close(stationary_law(network).probs, exact)
    other = DependencyConditionals.from_model(pair)  # the control
    assert (stationary_law(other).probs - torch.from_numpy(exact)).abs().max() > 0.01


def test_control_sees_a_conditional_of_the_independent_model():
    family = PoissonFamily()
    model, x = build(family, 3, 3, scale=0.2), draw(family, (5, 3)) + 1
    wrong = independent_of(model).node_log_prob(x)
    assert (wrong[:, 0] - conditional_of_sums(model, x, 0, 300)).abs().max() > 0.05


@pytest.mark.parametrize("family", [ExponentialFamily(), GaussianFamily()], ids=lambda family: family.name)
def test_conditionals_of_reals_are_integrals_of_the_joint_law(family):
    model = build(family, 3, 3, scale=0.1)
    psi = model.psi.clone()
    psi[model.structure.slices[1, 1]] = -1.0
    model, x = GeneralizedRootEnergy(model.structure, psi, family), draw(family, (2, 3)).abs()
    found = model.node_log_prob(x)

    # With x = u^6 all roots are polynomials in u, and Gauss-Legendre quadrature is exact to rounding.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    u = (torch.from_numpy(nodes) + 1) / 2 * 80 ** (1 / 6)
    log_weights = (torch.from_numpy(weights) / 2 * 80 ** (1 / 6) * 6 * u**5).log()
    for s in range(3):
        parts = []
        for sign in (1.0, -1.0) if family.name == "gaussian" else (1.0,):
            rows = x[:, None, :].repeat(1, 200, 1)
            rows[:, :, s] = sign * u**6
            parts.append(log_weights - model.energy(rows))
        close(found[:, s], -model.energy(x) - torch.cat(parts, -1).logsumexp(-1), rtol=1e-9, atol=1e-9)


# Special cases


@ALL
def test_independent_model(family):
    domain = domain_of(3, family)
    psi = torch.tensor([-0.5, -1.0, -2.0], dtype=torch.float64)
    model = GeneralizedRootEnergy(RootStructure.independent(domain), psi, family)
    x = draw(family, (6, 3))
    laws = {
        "poisson": lambda: torch.distributions.Poisson(psi.exp()),
        "exponential": lambda: torch.distributions.Exponential(-psi),
        "gaussian": lambda: torch.distributions.Normal(0.0, (-0.5 / psi).sqrt()),
    }
    if family.name in laws:
        close(model.node_log_prob(x), laws[family.name]().log_prob(x))
    else:
        counts = torch.arange(10, dtype=torch.float64)
        table = torch.log_softmax(psi[:, None] * counts - torch.lgamma(counts + 1), -1)
        close(model.node_log_prob(x), table.gather(1, x.long().T).T)
    assert torch.equal(model.node_natural(x), psi[:, None].expand(6, 3, 1))


@pytest.mark.parametrize("family", [PoissonFamily(), ExponentialFamily()], ids=lambda family: family.name)
def test_square_root_graphical_model(family):
    """Section 3.1: theta and Phi of the pairwise model; its exponent is sqrt(x)' Phi sqrt(x) + theta' sqrt(x)."""
    rng = np.random.default_rng(0)
    d = 4
    phi = rng.normal(size=(d, d))
    phi, theta = (phi + phi.T) / 2, rng.normal(size=d)
    structure = RootStructure.complete(domain_of(d, family), 2)
    pairs = [phi[i, j] for i, j in itertools.combinations(range(d), 2)]
    model = GeneralizedRootEnergy(structure, torch.tensor([*np.diag(phi), *theta, *pairs]), family)
    x = draw(family, (7, d))
    root = x.sqrt().numpy()
    exponent = np.einsum("ni,ij,nj->n", root, phi, root) + root @ theta + family.log_base(x).sum(-1).numpy()
    close(model.energy(x), -exponent)
    # The published node conditional: eta_1 = phi_ss, eta_2 = theta_s + 2 phi_s' sqrt(x) without s.
    natural = model.node_natural(x)
    close(natural[..., 0], np.broadcast_to(np.diag(phi), (7, d)))
    close(natural[..., 1], theta + 2 * root @ (phi - np.diag(np.diag(phi))))


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_gaussian_pairs_are_the_multivariate_normal_law(batch):
    generator = torch.Generator().manual_seed(4)
    d = 4
    model = falling(build(GaussianFamily(), d, 2, batch), 2.0)
    loc, precision = model.gaussian_parameters()
    normal = torch.distributions.MultivariateNormal(loc, precision_matrix=precision)
    x = torch.randn(9, *[1] * len(batch), d, generator=generator, dtype=torch.float64)
    difference = model.energy(x) + normal.log_prob(x)
    close(difference, difference[:1].expand_as(difference))
    # And the node conditionals are those of the normal law.
    diagonal = precision.diagonal(dim1=-2, dim2=-1)
    pull = (precision @ (x - loc)[..., None]).squeeze(-1) - diagonal * (x - loc)
    expected = torch.distributions.Normal(loc - pull / diagonal, diagonal.rsqrt()).log_prob(x)
    close(model.node_log_prob(x), expected)


def test_gaussian_parameters_refuse_other_models():
    for model in (build(PoissonFamily(), 2, 2), build(GaussianFamily(), 3, 3)):
        with pytest.raises(InputError, match="expected the gaussian family with k <= 2"):
            model.gaussian_parameters()
    structure = RootStructure.independent(domain_of(2, GaussianFamily()))
    with pytest.raises(InputError, match="not positive definite"):
        GeneralizedRootEnergy(structure, torch.tensor([-1.0, 1.0]), GaussianFamily()).gaussian_parameters()


# Rays


@ALL
def test_radial_conditionals_are_the_energy_along_a_ray(family):
    model = build(family, 3, 4)
    direction = draw(family, (5, 3), seed=9) + (0.25 if family.name == "exponential" else 1.0)
    powers = model.radial_natural(direction)
    assert list(powers) == [Fraction(1), Fraction(3, 4), Fraction(2, 3), Fraction(1, 2), Fraction(1, 3), Fraction(1, 4)]
    for z in (0.0, 1.0, 3.0, 16.0):
        point = direction * (math.sqrt(z) if family.name == "gaussian" else z)
        scale = torch.full((5,), z, dtype=torch.float64)
        expected = -model.energy(point, validate=False)
        close(model.radial_log_density(scale, direction), expected)
        exponent = sum(eta * z ** float(r) for r, eta in powers.items()) + family.log_base(point).sum(-1)
        close(exponent, expected)
    wrong = sum(eta * 3.0 for eta in powers.values()) + family.log_base(direction * 3).sum(-1)
    assert (wrong + model.energy(direction * 3, validate=False)).abs().max() > 1e-2


def test_rays_refuse_wrong_arguments():
    model = build(PoissonFamily(), 3, 3)
    v = torch.ones(3)
    for code, direction in (("out-of-range", -v), ("not-finite", v * math.inf), ("wrong-shape", torch.ones(2))):
        with raises(code, "direction"):
            model.radial_natural(direction)
    for code, z in (
        ("out-of-range", torch.tensor(-1.0)),
        ("out-of-range", torch.tensor(math.nan)),
        ("wrong-type", 1.0),
    ):
        with raises(code, "z"):
            model.radial_log_density(z, v)


# Fixed variables, other names, batches, precision


@ALL
@pytest.mark.parametrize("fixed", [[], ["v2"], ["v3", "v0"], ["v0", "v1", "v2", "v3", "v4"]])
def test_condition_is_the_energy_of_the_rest(family, fixed):
    model, x = build(family, 5, 4), draw(family, (6, 5))
    evidence = {name: float(value) for name, value in zip(fixed, draw(family, (5,), seed=8), strict=False)}
    for name, value in evidence.items():
        x[:, model.domain.index(name)] = value
    rest, constant = model.condition(evidence)
    free = [i for i, name in enumerate(model.domain.names) if name not in evidence]
    assert rest.domain.names == tuple(model.domain.names[i] for i in free)
    close(constant - rest.energy(x[:, free]), -model.energy(x))
    close(rest.node_natural(x[:, free])[..., : model.order], model.node_natural(x)[:, free, : rest.order])


def test_condition_keeps_the_roots_and_shrinks_the_sets():
    family = PoissonFamily()
    structure = RootStructure.simplified(domain_of(4, family), [("v0", "v1"), ("v0", "v1", "v2"), ("v1", "v2", "v3")])
    model = GeneralizedRootEnergy(structure, torch.ones(structure.num_terms, dtype=torch.float64), family)
    rest, _ = model.condition({"v0": 8.0, "v3": 27.0})
    assert rest.structure.names == (((1, 1), ("v1",)), ((1, 1), ("v2",)), ((2, 1), ("v1",)), ((3, 2), ("v1", "v2")))
    close(rest.coefficients, [1.0, 1.0, 2 * math.sqrt(8), 6 * 2 + 6 * 3])


def test_condition_refuses_wrong_evidence():
    model = build(PoissonFamily(), 2, 2)
    place = "evidence['v0']"
    for code, argument, evidence in (
        ("unknown-name", None, {"y": 1.0}),
        *(("out-of-range", place, {"v0": value}) for value in (-1.0, 0.5, math.nan)),
        *(("wrong-type", place, {"v0": value}) for value in ("many", None, torch.ones(2) > 0)),
        ("wrong-type", "evidence", ["v0"]),
    ):
        with raises(code, argument):
            model.condition(evidence)


@ALL
def test_relabelling_permutes(family):
    model, x = build(family, 4, 3), draw(family, (5, 4))
    order = [2, 0, 3, 1]
    domain = Domain([model.domain.variables[i] for i in order])
    terms = {key: model.structure.tuples(key) for key in model.structure.keys}
    structure = RootStructure(domain, terms)
    psi = torch.stack([model.psi[model.structure.index(names, key[0])] for key, names in structure.names])
    other = GeneralizedRootEnergy(structure, psi, family)
    close(other.energy(x[:, order]), model.energy(x))
    close(other.node_natural(x[:, order]), model.node_natural(x)[:, order])


@ALL
@pytest.mark.parametrize(
    ("batch", "sample"), [((3,), (5, 1)), ((2, 3), (3,)), ((2, 3), (4, 2, 1)), ((3,), (2, 3)), ((1,), (4,))]
)
def test_batches_equal_single_models(family, batch, sample):
    model, x = build(family, 3, 3, batch), draw(family, (*sample, 3))
    shape = torch.broadcast_shapes(batch, sample)
    states, psi = x.expand(*shape, 3), model.psi.expand(*shape, model.structure.num_terms)
    energy, score, natural = model.energy(x), model.interaction_score(x), model.node_natural(x)
    assert energy.shape == score.shape == shape
    assert natural.shape == (*shape, 3, 3)
    for index in itertools.product(*map(range, shape)):
        single = GeneralizedRootEnergy(model.structure, psi[index], family)
        close(energy[index], single.energy(states[index]))
        close(score[index], single.interaction_score(states[index]))
        close(natural[index], single.node_natural(states[index]))
    rest, constant = model.condition({"v1": 2.0})
    fixed = x.clone()
    fixed[..., 1] = 2.0
    assert rest.batch_shape == constant.shape == batch
    close(constant - rest.energy(fixed[..., [0, 2]]), -model.energy(fixed))


def test_many_states_are_worked_on_in_pieces(monkeypatch):
    model, x = build(PoissonFamily(), 6, 4), draw(PoissonFamily(), (50, 6))
    energy, natural = model.energy(x), model.node_natural(x)
    monkeypatch.setattr("pyro_hoim.generalized_root.structure._CHUNK_CELLS", 130)
    close(model.energy(x), energy)
    close(model.node_natural(x), natural)


def test_expand_to_and_detach():
    model = build(PoissonFamily(), 3, 3, (3,))
    x = draw(PoissonFamily(), (4, 1, 3))
    wide = model.expand((2, 3))
    assert (wide.batch_shape, wide.psi.data_ptr()) == ((2, 3), model.psi.data_ptr())
    assert torch.equal(wide.energy(x[:, None]), model.energy(x)[:, None].expand(4, 2, 3))
    with pytest.raises(InputError, match="cannot be expanded"):
        model.expand((2,))
    single = model.to(dtype=torch.float32)
    for function in ("energy", "node_natural", "log_pseudo_prob", "interaction_score"):
        found = getattr(single, function)(x)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), getattr(model, function)(x), rtol=2e-5, atol=2e-5)
    assert torch.equal(model.energy(x.long()), model.energy(x))
    trained = GeneralizedRootEnergy(model.structure, model.psi.clone().requires_grad_(), model.family)
    assert trained.energy(x).requires_grad
    assert not trained.detach().energy(x).requires_grad
    close(GeneralizedRootEnergy.from_coefficients(model.structure, model.coefficients, model.family).psi, model.psi)
    assert "batch_shape=(3,)" in repr(model)


@ALL
def test_empty_domain_and_no_terms(family):
    nothing = GeneralizedRootEnergy(RootStructure(Domain(), {}), torch.zeros(2, 0, dtype=torch.float64), family)
    x = torch.zeros(5, 1, 0)
    assert torch.equal(nothing.energy(x), torch.zeros(5, 2, dtype=torch.float64))
    assert nothing.node_natural(x).shape == (5, 2, 0, 1)
    assert torch.equal(nothing.log_pseudo_prob(x), torch.zeros(5, 2, dtype=torch.float64))
    assert (nothing.statistics(x).shape, nothing.radial_natural(x)) == ((5, 1, 0), {})
    flat = GeneralizedRootEnergy(RootStructure(domain_of(2, family), {}), torch.zeros(0), family)
    values = draw(family, (3, 2))
    close(flat.energy(values), -family.log_base(values.float()).sum(-1), rtol=1e-6, atol=1e-6)


# Derivatives


@ALL
@pytest.mark.parametrize("batch", [(), (2,)])
def test_derivatives_in_psi(family, batch):
    d = 2 if batch else 3
    model, x = build(family, d, 3, batch, scale=0.1), draw(family, (2, *[1] * len(batch), d))
    psi = falling(model, 1.5).psi.requires_grad_()

    def at(function):
        return lambda value: getattr(GeneralizedRootEnergy(model.structure, value, family), function)(x)

    for function in ("energy", "interaction_score", "node_natural"):
        assert torch.autograd.gradcheck(at(function), (psi,))
        assert torch.autograd.gradgradcheck(
            lambda value, f=function: at(f)(value).exp().sum(), (0.01 * psi.detach()).requires_grad_()
        )
    assert torch.autograd.gradcheck(at("log_pseudo_prob"), (psi,))
    (slope,) = torch.autograd.grad(at("energy")(psi).sum(), psi)
    totals = (model.statistics(x) * model.structure.multiplicity).reshape(-1, model.structure.num_terms).sum(0)
    close(slope, -totals.expand_as(slope))


@pytest.mark.parametrize("family", [PoissonFamily(), GaussianFamily()], ids=lambda family: family.name)
def test_log_pseudo_prob_is_twice_differentiable(family):
    model, x = build(family, 2, 2, scale=0.1), draw(family, (2, 2))
    psi = falling(model, 1.0).psi

    def score(value):
        return GeneralizedRootEnergy(model.structure, value, family).log_pseudo_prob(x).sum()

    assert torch.autograd.gradgradcheck(score, (psi.requires_grad_(),), rtol=1e-4)


@pytest.mark.parametrize("family", [ExponentialFamily(), GaussianFamily()], ids=lambda family: family.name)
def test_derivatives_in_the_state(family):
    model = build(family, 3, 3)
    x = (draw(family, (4, 3)).abs() + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(model.energy, (x,))
    assert torch.autograd.gradcheck(model.node_natural, (x,))


# Errors


@pytest.mark.parametrize(
    ("x", "code"),
    [
        ([1.0, 2.0], "wrong-type"),
        (torch.tensor([True, False]), "wrong-type"),
        (torch.ones(3), "wrong-shape"),
        (torch.tensor(1.0), "wrong-shape"),
        *((torch.tensor([1.0, value]), "out-of-range") for value in (-1.0, 0.5, math.nan, 10.0)),
        (torch.ones(5, 2), "wrong-shape"),
    ],
)
@pytest.mark.parametrize("function", ["energy", "interaction_score", "node_natural", "log_pseudo_prob", "statistics"])
def test_wrong_states_are_refused(x, code, function):
    with raises(code, "x"):
        getattr(build(TruncatedPoissonFamily(9), 2, 2, (3,)), function)(x)


def test_wrong_arguments_are_refused():
    family = PoissonFamily()
    structure = RootStructure.independent(domain_of(2, family))
    for arguments, code, argument in (
        (("a", torch.zeros(2), family), "wrong-type", "structure"),
        ((structure, [0.0, 0.0], family), "wrong-type", "psi"),
        ((structure, torch.zeros(2, dtype=torch.long), family), "wrong-type", "psi"),
        ((structure, torch.zeros(3), family), "wrong-shape", "psi"),
        ((structure, torch.tensor(0.0), family), "wrong-shape", "psi"),
        ((structure, torch.tensor([0.0, math.inf]), family), "not-finite", "psi"),
        ((structure, torch.zeros(2), "poisson"), "wrong-type", "family"),
        ((structure, torch.zeros(2), GaussianFamily()), "conflict", "structure"),
    ):
        with raises(code, argument):
            GeneralizedRootEnergy(*arguments)
    exponential = ExponentialFamily()
    independent = RootStructure.independent(domain_of(2, exponential))
    growing = GeneralizedRootEnergy(independent, torch.tensor([-1.0, 1.0]), exponential)
    with raises("not-normalizable", "natural"):
        growing.log_pseudo_prob(torch.ones(2))


def test_sets_whose_factorial_is_no_number_are_refused():
    domain = domain_of(171, PoissonFamily())
    with pytest.raises(InputError, match="up to 170 variables"):
        RootStructure.simplified(domain, [domain.names])
    structure = RootStructure.simplified(domain, [domain.names[:40]])
    coefficients = torch.full((172,), 0.1, dtype=torch.float64)
    model = GeneralizedRootEnergy.from_coefficients(structure, coefficients, PoissonFamily())
    assert model.energy(torch.ones(171)).item() == pytest.approx(-17.2)
    with raises("out-of-range", "psi"):
        GeneralizedRootEnergy.from_coefficients(structure, coefficients.float(), PoissonFamily())


# The joint pseudo-likelihood


BY_NAME = {f.name: f for f in (PoissonFamily(), TruncatedPoissonFamily(4), ExponentialFamily(), GaussianFamily())}


def problem(family, order=3, num_rows=40, d=4, seed=0):
    rng = np.random.default_rng(seed)
    domain = Domain([Variable(name, kind=family.kind) for name in "abcdef"[:d]])
    structure = RootStructure.complete(domain, order)
    scale = np.where([len(names) == 1 and j == 1 for (j, _), names in structure.names], 0.0, 0.05)
    psi = scale * rng.normal(size=structure.num_terms)
    singles = np.array([key == (1, 1) for key, _ in structure.names])
    psi[singles] = -1.5 if family.kind != "count" else 0.3
    rows = rng.poisson(1.0, (num_rows, d)) if family.is_discrete else rng.normal(size=(num_rows, d))
    rows = np.minimum(rows, 4) if family.is_discrete else rows
    rows = np.abs(rows) if family.name == "exponential" else rows
    return structure, torch.from_numpy(rows).double(), psi


def reference(structure, rows, family, psi, weights=None):
    values = GeneralizedRootEnergy(structure, psi, family).log_pseudo_prob(rows)
    return (values if weights is None else weights * values).sum()


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_value_and_derivatives_are_those_of_the_energy(name, order):
    family = BY_NAME[name]
    structure, rows, psi = problem(family, order)
    weights = torch.from_numpy(np.random.default_rng(1).integers(0, 4, len(rows))).double()
    found = RootPseudoLikelihood(structure, rows, family, weights)
    point = torch.from_numpy(psi).requires_grad_()
    value = reference(structure, rows, family, point, weights)
    (gradient,) = torch.autograd.grad(value, point)
    assert found.log_prob(psi) == pytest.approx(float(value.detach()), rel=1e-10)
    np.testing.assert_allclose(found.gradient(psi), gradient.numpy(), rtol=1e-8, atol=1e-8)
    together = found.value_and_gradient(psi)
    assert together[0] == found.log_prob(psi)
    np.testing.assert_array_equal(together[1], found.gradient(psi))

    def function(p):
        return reference(structure, rows, family, p, weights)

    hessian = torch.autograd.functional.hessian(function, torch.from_numpy(psi)).numpy()
    np.testing.assert_allclose(found.hessian(psi), hessian, rtol=1e-6, atol=1e-6)
    assert np.linalg.eigvalsh(found.hessian(psi)).max() < 1e-8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_autograd(dtype):
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    found = RootPseudoLikelihood(structure, rows, family)
    point = torch.from_numpy(psi).to(dtype).requires_grad_()
    value = found(point)
    assert (value.shape, value.dtype) == ((), dtype)
    (2 * value).backward()
    wanted = torch.from_numpy(2 * found.gradient(point.detach().double().numpy())).to(dtype)
    torch.testing.assert_close(point.grad, wanted, rtol=0, atol=0)


def test_second_derivatives_of_a_factor_are_those_of_the_hessian():
    family = BY_NAME["poisson"]
    structure, rows, psi = problem(family)
    likelihood = RootPseudoLikelihood(structure, rows, family)
    at = torch.from_numpy(psi)
    found = torch.autograd.functional.hessian(lambda psi: likelihood(psi) - psi @ psi, at)
    np.testing.assert_allclose(found, likelihood.hessian(psi) - 2 * np.eye(len(psi)), rtol=1e-12, atol=1e-10)


def test_row_scores_add_up_to_the_gradient_and_are_those_of_single_rows():
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    found = RootPseudoLikelihood(structure, rows, family)
    scores = found.row_scores(psi)
    np.testing.assert_allclose(found.weights @ scores, found.gradient(psi), rtol=1e-10, atol=1e-10)
    distinct = torch.unique(rows, dim=0)
    assert scores.shape == (len(distinct), structure.num_terms)
    for i in (0, len(distinct) - 1):
        alone = RootPseudoLikelihood(structure, distinct[i : i + 1], family)
        np.testing.assert_allclose(scores[i], alone.gradient(psi), rtol=1e-10, atol=1e-12)
    assert np.abs(scores[0] - scores[-1]).max() > 0.1  # control: rows differ


def test_weights_are_repetitions():
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    counts = torch.arange(len(rows)) % 3
    repeated = RootPseudoLikelihood(structure, rows.repeat_interleave(counts, 0), family)
    weighted = RootPseudoLikelihood(structure, rows, family, counts.double())
    assert weighted.weights.sum() == repeated.weights.sum() == float(counts.sum())
    assert weighted.log_prob(psi) == pytest.approx(repeated.log_prob(psi), rel=1e-12)
    assert len(weighted.weights) == len(torch.unique(rows, dim=0))


def test_many_terms_are_split_into_pieces(monkeypatch):
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    whole = RootPseudoLikelihood(structure, rows, family).gradient(psi)
    monkeypatch.setattr("pyro_hoim.generalized_root.energy._CHUNK_CELLS", 50)
    np.testing.assert_allclose(RootPseudoLikelihood(structure, rows, family).gradient(psi), whole, rtol=1e-12)


def test_small_cases():
    family = PoissonFamily()
    domain = Domain([Variable("a", kind="count")])
    one = RootPseudoLikelihood(RootStructure.independent(domain), torch.tensor([[2.0]]), family)
    assert one.log_prob(np.zeros(1)) == pytest.approx(-1 - math.log(2), abs=1e-12)
    assert one.hessian(np.zeros(1)).tolist() == [[pytest.approx(-1.0)]]
    empty = RootPseudoLikelihood(RootStructure.independent(domain), torch.zeros(0, 1), family)
    assert (empty.log_prob(np.zeros(1)), empty.gradient(np.zeros(1)).tolist()) == (0.0, [0.0])
    assert (empty.row_scores(np.zeros(1)).shape, empty.hessian(np.zeros(1)).tolist()) == ((0, 1), [[0.0]])
    no_terms = RootPseudoLikelihood(RootStructure(domain, {}), torch.tensor([[2.0]]), family)
    assert no_terms.log_prob(np.zeros(0)) == pytest.approx(-1 - math.log(2), abs=1e-12)
    assert no_terms.gradient(np.zeros(0)).shape == (0,)


def test_where_there_is_no_law():
    family = ExponentialFamily()
    domain = Domain([Variable(name, kind="positive") for name in "ab"])
    structure = RootStructure.simplified(domain, list(itertools.combinations("ab", 2)))
    found = RootPseudoLikelihood(structure, torch.tensor([[1.0, 2.0]]), family)
    psi = np.array([0.5, -1.0, 0.0])
    assert found.log_prob(psi) == -math.inf
    assert found.value_and_gradient(psi)[0] == -math.inf
    for method in (found.gradient, found.hessian, found.row_scores):
        with pytest.raises(InputError, match="conditional of 'a' given the rest of distinct row 0"):
            method(psi)


def test_too_much_memory_is_refused_with_the_numbers():
    domain = Domain([Variable(f"v{i}", kind="count") for i in range(120)])
    structure = RootStructure.simplified(domain, list(itertools.combinations(domain.names, 2)))
    rows = torch.arange(25_000.0)[:, None].expand(-1, 120)
    with pytest.raises(IntractableError, match=r"25000 distinct rows and 7260 terms need .* bytes .*the limit is"):
        RootPseudoLikelihood(structure, rows, PoissonFamily())


def test_wrong_arguments_of_the_pseudo_likelihood():
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    for code, argument, *arguments in (
        ("wrong-type", "structure", "ab", rows, family),
        ("wrong-type", "rows", structure, rows.numpy(), family),
        ("wrong-type", "family", structure, rows, "poisson"),
        ("wrong-shape", "rows", structure, rows[:, :3], family),
        ("wrong-shape", "rows", structure, rows[0], family),
        ("out-of-range", "rows", structure, rows - 5, family),
        ("wrong-type", "weights", structure, rows, family, [1.0] * len(rows)),
        ("wrong-shape", "weights", structure, rows, family, torch.ones(3)),
        ("out-of-range", "weights", structure, rows, family, -torch.ones(len(rows))),
    ):
        with raises(code, argument):
            RootPseudoLikelihood(*arguments)
    found = RootPseudoLikelihood(structure, rows, family)
    with raises("wrong-type", "psi"):
        found(torch.ones(len(psi), dtype=torch.long))
    with raises("wrong-shape", "psi"):
        found.log_prob(psi[:-1])
