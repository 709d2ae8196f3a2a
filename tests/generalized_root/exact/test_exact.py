"""Exact log Z of generalized root models against brute-force sums, quadrature by other programs and closed forms."""

import itertools
import math
import pickle
import warnings
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from scipy import integrate
from scipy.special import gammaln, logsumexp

from pyro_hoim import ConvergenceWarning, Domain, IntractableError, Variable
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianClosedForm,
    GaussianFamily,
    GeneralizedRootEnergy,
    IndependentClosedForm,
    PoissonFamily,
    RootAnnealed,
    RootAuto,
    RootBackend,
    RootEnumeration,
    RootStructure,
)
from pyro_hoim.testing import assert_close, assert_exact_law, raises

from support.root_models import (
    blocks_energy,
    chain_energy,
    domain_of,
    listed,
    log_sum,
    random_energy,
    root,
    simplified_energy,
)
from support.root_radial import radial_log_partition


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


def over_directions(integrand):
    """Log of an integral over both angles of a direction."""
    half = math.pi / 2
    return math.log(integrate.dblquad(integrand, 0, half, 0, half, epsabs=1e-9, epsrel=1e-9)[0])


@pytest.mark.parametrize(("size", "order", "top"), [(1, 3, 60), (2, 1, 40), (2, 2, 60), (2, 3, 60), (3, 3, 30)])
def test_counts_agree_with_sums_over_all_states(size, order, top):
    energy = random_energy("poisson", size, order, seed=size + 10 * order)
    _, values = listed("poisson", energy, top)
    result = RootEnumeration().log_partition(energy)
    assert_close(result.value, log_sum(values), relative=1e-10)
    assert (result.kind, result.coding, result.std_error) == ("exact", "root", 0.0)
    assert_close(radial_log_partition(energy), log_sum(values), relative=1e-9)


def test_truncated_counts_are_summed_in_full():
    energy = random_energy("truncated", 3, 3, seed=4, scale=1.0)
    _, values = listed("truncated", energy, 5)
    assert_close(RootEnumeration().log_partition(energy).value, log_sum(values), relative=1e-12)
    assert_close(radial_log_partition(energy), log_sum(values), relative=1e-12)


def test_law_far_from_its_mean_field():
    """A strong positive pair spreads the law over small and large counts, which no product law about one does."""
    domain = domain_of(2, PoissonFamily())
    singles = [("v0",), ("v1",)]
    structure = RootStructure(domain, {(1, 1): singles, (2, 1): singles, (2, 2): [("v0", "v1")]})
    psi = torch.tensor([1.0, 1.0, -10.0, -10.0, 3.25], dtype=torch.float64)
    energy = GeneralizedRootEnergy(structure, psi, PoissonFamily())
    states, values = listed("poisson", energy, 400)
    total = log_sum(values)
    assert all(log_sum(values[mask]) - total > -2 for mask in (states.sum(1) < 20, states.sum(1) > 60))
    assert_close(RootEnumeration().log_partition(energy).value, total, relative=1e-10)


@pytest.mark.parametrize("order", [2, 3])
def test_two_exponentials_agree_with_adaptive_quadrature(order):
    energy = random_energy("exponential", 2, order, seed=order)
    power = math.lcm(*range(1, order + 1))
    terms = monomials(energy, power)

    def integrand(b, a):  # x = u^power leaves no root
        score = sum(c * a**p * b**q for c, (p, q) in terms)
        return power**2 * (a * b) ** (power - 1) * math.exp(score)

    top = 40 ** (1 / power)
    oracle = math.log(integrate.dblquad(integrand, 0, top, 0, top, epsabs=1e-9, epsrel=1e-9)[0])
    assert_close(RootEnumeration().log_partition(energy).value, oracle, relative=1e-8)
    assert_close(radial_log_partition(energy), oracle, relative=1e-8)


def test_three_exponentials_agree_with_the_integral_over_directions():
    """With terms l = j only, the radius integrates in closed form: Z is the integral of 2 / (-eta_1(v))^3."""
    energy = random_energy("exponential", 3, 3, seed=8, simplified=True)
    terms = [(c, tuple(bool(e) for e in exponents), sum(map(bool, exponents))) for c, exponents in monomials(energy, 6)]

    def integrand(b, a):
        v, jacobian = simplex(a, b)
        slope = sum(c * math.prod(w for w, e in zip(v, inside, strict=True) if e) ** (1 / n) for c, inside, n in terms)
        return jacobian * 2 / (-slope) ** 3

    oracle = over_directions(integrand)
    assert_close(RootEnumeration().log_partition(energy).value, oracle, relative=1e-8)
    assert_close(radial_log_partition(energy), oracle, relative=1e-8)


def test_one_real_with_many_roots_agrees_with_mpmath():
    domain = domain_of(1, ExponentialFamily())
    structure = RootStructure.complete(domain, 4)
    eta = [-1.3, 0.8, -2.0, 1.5]
    energy = GeneralizedRootEnergy(structure, torch.tensor(eta, dtype=torch.float64), ExponentialFamily())
    with mpmath.workdps(30):
        oracle = mpmath.log(
            mpmath.quad(
                lambda u: 12 * u**11 * mpmath.e ** sum(e * u ** (12 / j) for j, e in enumerate(eta, 1)), [0, 1, 2, 3]
            )
        )
    assert_close(RootEnumeration().log_partition(energy).value, float(oracle), relative=1e-9)


@pytest.mark.parametrize(("size", "order"), [(1, 3), (2, 2), (2, 3), (2, 4)])
def test_gaussian_grids_agree_with_the_radial_integral(size, order):
    energy = random_energy("gaussian", size, order, seed=order)
    assert_close(RootEnumeration().log_partition(energy).value, radial_log_partition(energy), relative=1e-8)


def test_gaussian_of_three_variables_and_three_roots():
    """Every sign pattern by itself; the radius of x = sqrt(z) v integrates to Gamma(3/2) / 2 / (-eta)^(3/2)."""
    energy = random_energy("gaussian", 3, 3, seed=3, simplified=True, scale=0.1)
    squares, pairs, triple = (
        energy.coefficients[energy.structure.slices[key]].tolist() for key in ((1, 1), (2, 2), (3, 3))
    )

    def integrand(b, a):
        (x, y, z), jacobian = simplex(a, b)
        even = squares[0] * x * x + squares[1] * y * y + squares[2] * z * z + triple[0] * (x * y * z) ** (2 / 3)
        slopes = [
            even + pairs[0] * s * t * x * y + pairs[1] * s * x * z + pairs[2] * t * y * z
            for s in (1, -1)
            for t in (1, -1)
        ]  # a common sign of all changes nothing, hence the factor 2
        return jacobian * math.gamma(1.5) * sum((-slope) ** -1.5 for slope in slopes)

    assert_close(RootEnumeration().log_partition(energy).value, over_directions(integrand), relative=1e-8)


def test_gaussian_pairs_are_the_multivariate_normal():
    energy = random_energy("gaussian", 3, 2, seed=1, batch=(2,))
    loc, precision = energy.gaussian_parameters()
    normal = torch.distributions.MultivariateNormal(loc, precision_matrix=precision)
    x = torch.randn(5, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    closed = GaussianClosedForm().log_partition(energy).value
    assert_close(-energy.energy(x) - closed, normal.log_prob(x), relative=1e-12)
    assert_close(RootEnumeration().log_partition(energy).value, closed, relative=1e-10)
    for backend, tolerance in ((GaussianClosedForm(), 1e-12), (RootEnumeration(), 1e-9)):
        mean, variance = backend.moments(energy)
        assert_close(mean, normal.mean, relative=tolerance)
        assert_close(variance, normal.variance, relative=tolerance)


def test_gaussian_draws_have_the_law_of_the_multivariate_normal():
    energy = random_energy("gaussian", 3, 2, seed=1, scale=0.3)
    loc, precision = energy.gaussian_parameters()
    random = torch.Generator().manual_seed(2)
    draws = GaussianClosedForm().sample(energy, (20_000,), random)

    def check(white):  # standard normal, so its cells are known
        cells = (torch.special.ndtr(white) * 4).long().clamp(0, 3) @ torch.tensor([16, 4, 1])
        assert_exact_law(torch.bincount(cells, minlength=64), np.full(64, 1 / 64))

    check((draws - loc) @ torch.linalg.cholesky(precision))
    with pytest.raises(AssertionError):  # the control: without the interactions
        check((draws - loc) * precision.diagonal().sqrt())


@pytest.mark.parametrize("name", ["poisson", "exponential", "gaussian"])
def test_independent_variables_add_up(name):
    energy = random_energy(name, 3, 3, seed=6)
    alone = RootStructure(energy.domain, {(j, 1): [(n,) for n in energy.domain.names] for j in (1, 2, 3)})
    psi = torch.cat([energy.psi[energy.structure.slices[j, 1]] for j in (1, 2, 3)])
    model = GeneralizedRootEnergy(alone, psi, energy.family)
    closed = IndependentClosedForm()
    assert_close(closed.log_partition(model).value, RootEnumeration().log_partition(model).value, relative=1e-9)
    for found, expected in zip(closed.moments(model), RootEnumeration().moments(model), strict=True):
        assert_close(found, expected, relative=1e-8)
    assert_close(closed.expectations(model), RootEnumeration().expectations(model), relative=1e-8)
    with pytest.raises(IntractableError, match="expected no terms of two or more variables"):
        closed.log_partition(energy)


def test_closed_values_of_independent_families():
    for family, psi, expected in (
        (PoissonFamily(), [0.3, -1.0], math.exp(0.3) + math.exp(-1.0)),
        (ExponentialFamily(), [-0.5, -2.0], math.log(2.0) - math.log(2.0)),
        (GaussianFamily(), [-0.5, -2.0], 0.5 * (math.log(2 * math.pi) + math.log(math.pi / 2))),
    ):
        energy = simplified_energy(family, 2, [], psi)
        assert_close(IndependentClosedForm().log_partition(energy).value, expected, relative=1e-10)


@pytest.mark.parametrize("name", ["poisson", "truncated", "exponential", "gaussian"])
def test_expectations_are_the_gradient_and_the_hessian_is_the_covariance(name):
    energy = random_energy(name, 2, 3, seed=2, scale=0.1)
    structure, psi = energy.structure, energy.psi.clone().requires_grad_(True)

    def log_z(value):
        return RootAuto().log_partition(GeneralizedRootEnergy(structure, value, energy.family)).value

    (slope,) = torch.autograd.grad(log_z(psi), psi)
    expectations = RootAuto().expectations(energy)
    assert_close(slope, structure.multiplicity * expectations, relative=1e-10)
    hessian = torch.autograd.functional.hessian(log_z, energy.psi)
    if energy.family.is_discrete:
        states, values = listed(name, energy, 5 if name == "truncated" else 45)
        probs = np.exp(values - log_sum(values))
        statistics = np.stack(
            [
                np.prod([root(name, states[:, energy.domain.names.index(n)], key[0]) for n in names], axis=0)
                for key, names in structure.names
            ],
            1,
        )
        mean = probs @ statistics
        assert_close(expectations, mean, relative=1e-10)
        covariance = (statistics - mean).T @ (probs[:, None] * (statistics - mean))
        scale = structure.multiplicity.numpy()
        assert_close(hessian, covariance * np.outer(scale, scale), relative=1e-9)
    else:
        step = 1e-4 * torch.randn(len(psi), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        ahead, behind = (
            structure.multiplicity
            * RootAuto().expectations(GeneralizedRootEnergy(structure, energy.psi + sign * step, energy.family))
            for sign in (1, -1)
        )
        assert_close((ahead - behind) / 2, hessian @ step, relative=1e-7)
        assert_close(hessian, hessian.T, relative=1e-10)


def test_gaussian_gradients_are_those_of_the_multivariate_normal():
    energy = random_energy("gaussian", 3, 2, seed=1)
    mean = GaussianClosedForm().expectations(energy)
    loc, precision = energy.gaussian_parameters()
    second = torch.linalg.inv(precision) + torch.outer(loc, loc)
    structure = energy.structure
    expected = torch.zeros(structure.num_terms, dtype=torch.float64)
    expected[structure.slices[1, 1]] = second.diagonal()
    expected[structure.slices[2, 1]] = loc
    pairs = structure.positions((2, 2))
    expected[structure.slices[2, 2]] = second[pairs[:, 0], pairs[:, 1]]
    assert_close(mean, expected, relative=1e-10)
    assert torch.autograd.gradcheck(
        lambda psi: GaussianClosedForm().log_partition(GeneralizedRootEnergy(structure, psi, energy.family)).value,
        energy.psi.clone().requires_grad_(True),
    )


def test_chain_of_counts_agrees_with_sequential_sums():
    energy = chain_energy("poisson", 30, seed=0)
    x = np.arange(80.0)
    single, pair = (energy.coefficients[energy.structure.slices[key]].numpy() for key in ((1, 1), (2, 2)))
    base = -np.array([math.lgamma(v + 1) for v in x])
    message = single[0] * x + base
    for s in range(29):
        joint = message[:, None] + pair[s] * np.sqrt(np.outer(x, x))
        top = joint.max(0)
        message = np.log(np.exp(joint - top).sum(0)) + top + single[s + 1] * x + base
    result = RootEnumeration().log_partition(energy)
    assert_close(result.value, log_sum(message), relative=1e-10)
    assert result.cost.cells < 80**2


@pytest.mark.parametrize("name", ["poisson", "exponential"])
def test_blocks_add_up(name):
    energy = blocks_energy(name, 2, 2, seed=1)
    parts = []
    for names in energy.structure.components():
        inside = [i for i, (_, members) in enumerate(energy.structure.names) if members[0] in names]
        structure = RootStructure.simplified(energy.domain.project(names), [names])
        part = GeneralizedRootEnergy(structure, energy.psi[inside], energy.family)
        parts.append(RootEnumeration().log_partition(part))
    assert len(parts) == 2
    whole = RootEnumeration().log_partition(energy).value
    assert_close(whole, sum(part.value for part in parts), relative=1e-9)
    assert_close(RootAuto().log_partition(energy).value, whole, relative=1e-9)


def test_draws_of_counts_have_the_law():
    energy = random_energy("poisson", 2, 2, seed=5, scale=0.5)
    _, values = listed("poisson", energy, 40)
    probs = np.exp(values - log_sum(values)).reshape(40, 40)
    kept = probs[:6, :6].reshape(-1)
    law = np.append(kept, 1 - kept.sum())
    draws = RootEnumeration().sample(energy, (40_000,), torch.Generator().manual_seed(3))
    assert draws.dtype == torch.float64

    def check(first, second):
        cells = torch.where((draws < 6).all(-1), first * 6 + second, 36).long()
        assert_exact_law(torch.bincount(cells, minlength=37), law)

    check(*draws.T)
    with pytest.raises(AssertionError):  # the control: swapped places
        check(*draws.T.flip(0))


def test_batches_equal_single_models():
    for name in ("poisson", "exponential", "gaussian"):
        energy = random_energy(name, 2, 2, seed=9, batch=(2, 1))
        for backend in (RootAuto(), RootEnumeration()):
            value = backend.log_partition(energy).value
            assert value.shape == (2, 1)
            assert backend.expectations(energy).shape == energy.psi.shape
            for i in range(2):
                one = GeneralizedRootEnergy(energy.structure, energy.psi[i, 0], energy.family)
                assert_close(value[i, 0], backend.log_partition(one).value, relative=1e-9)


def test_precision_and_empty_models():
    energy = random_energy("poisson", 2, 2, seed=9)
    single = GeneralizedRootEnergy(energy.structure, energy.psi.float(), energy.family)
    for backend in (RootAuto(), RootEnumeration()):
        found = backend.log_partition(single).value
        assert found.dtype == torch.float32
        assert_close(found, backend.log_partition(energy).value, relative=1e-6)
        assert backend.expectations(single).dtype == torch.float32
        assert isinstance(backend, RootBackend)
    none = RootStructure.independent(domain_of(0, energy.family))
    nothing = GeneralizedRootEnergy(none, torch.zeros(3, 0), energy.family)
    for backend in (RootAuto(), RootEnumeration(), IndependentClosedForm()):
        assert_close(backend.log_partition(nothing).value, torch.zeros(3))
        assert (backend.expectations(nothing).shape, backend.moments(nothing)[0].shape) == ((3, 0), (3, 0))
        assert backend.sample(nothing, (4,)).shape == (4, 3, 0)


def test_models_without_a_constant_are_refused_with_a_direction():
    pair, growing = [("v0", "v1")], [-1.0, -1.0, 1.1]
    for backend, family in (
        (RootAuto(), ExponentialFamily()),
        (RootEnumeration(), ExponentialFamily()),
        (GaussianClosedForm(), GaussianFamily()),
    ):
        with raises("not-normalizable", "psi"):
            backend.log_partition(simplified_energy(family, 2, pair, growing))
    near = simplified_energy(ExponentialFamily(), 2, pair, [-1.0, -1.0, 0.999])
    closed = _two_exponentials(1.998)
    assert_close(radial_log_partition(near), closed, relative=1e-8)
    assert_close(RootEnumeration().log_partition(near).value, closed, relative=1e-8)


def _two_exponentials(c):
    """Log of the integral of exp(-x - y + c sqrt(x y)), from the integral over directions with mpmath."""
    with mpmath.workdps(30):
        found = mpmath.quad(
            lambda a: 2 * mpmath.sin(a) * mpmath.cos(a) / (1 - c * mpmath.sin(a) * mpmath.cos(a)) ** 2,
            mpmath.linspace(0, mpmath.pi / 2, 9),
        )
        return float(mpmath.log(found))


def test_negative_interactions_that_are_needed():
    """A positive triple alone would grow; a negative pair holds it back, which no product of positive parts shows."""
    domain = domain_of(3, ExponentialFamily())
    structure = RootStructure.simplified(domain, [domain.names, domain.names[:2]])
    energy = GeneralizedRootEnergy.from_coefficients(
        structure, torch.tensor([-1.0, -1.0, -1.0, -3.0, 3.3], dtype=torch.float64), ExponentialFamily()
    )
    value = RootEnumeration(allow_undecided=True).log_partition(energy).value
    assert_close(value, radial_log_partition(energy), relative=1e-8)


def test_laws_far_from_the_origin_and_at_other_scales():
    """A window has to be found wherever the law lies; the radial integral looks for it in another way."""
    domain = domain_of(2, GaussianFamily())
    singles = [(name,) for name in domain.names]
    structure = RootStructure(domain, {(1, 1): singles, (2, 1): singles, (3, 2): [domain.names]})
    psi = torch.tensor([-1.0, -1.0, 60.0, -80.0, 0.1], dtype=torch.float64)
    far = GeneralizedRootEnergy(structure, psi, GaussianFamily())
    value = RootEnumeration().log_partition(far).value
    assert_close(value, radial_log_partition(far), relative=1e-8)
    rough = 2500 + math.log(math.pi) + 0.2 * (30 * 40) ** (2 / 3)  # the two normal laws, the term at their means
    assert abs(float(value) - rough) < 0.1
    for scale in (1e-4, 1.0, 1e4):
        energy = random_energy("exponential", 2, 2, seed=3)
        powers = torch.cat([torch.full((2,), 1.0), torch.full((2,), 0.5), torch.full((1,), 1.0)])
        scaled = GeneralizedRootEnergy(energy.structure, energy.psi * scale ** -powers.double(), energy.family)
        shift = RootEnumeration().log_partition(energy).value + 2 * math.log(scale)  # x in other units
        assert_close(RootEnumeration().log_partition(scaled).value, shift, relative=1e-8)
    for family, psi in (
        (PoissonFamily(), [3.0, 6.0]),
        (PoissonFamily(), [13.0, 1.0]),
        (ExponentialFamily(), [-1.0, 200.0]),
    ):
        one = RootStructure.complete(domain_of(1, family), 2)
        law = GeneralizedRootEnergy(one, torch.tensor(psi, dtype=torch.float64), family)
        summed, closed = (backend.log_partition(law).value for backend in (RootEnumeration(), IndependentClosedForm()))
        assert_close(summed, closed, relative=1e-10)


def test_refusals_name_numbers():
    energy = random_energy("poisson", 3, 2, seed=1)
    small = RootEnumeration(max_cells=100)
    assert not small.plan(energy.structure, energy.family).feasible
    assert not small.plan_energy(energy).feasible
    with pytest.raises(IntractableError, match=r"the largest table has \d+ cells, or more, above max_cells=100"):
        small.log_partition(energy)
    with pytest.raises(IntractableError, match=r"max_cells=8388608"):
        RootEnumeration().log_partition(simplified_energy(energy.family, 3, [("v0", "v1")], [12.0, 12.0, 0.0, 0.1]))
    with pytest.raises(IntractableError, match="k <= 2, received gaussian with k = 3"):
        GaussianClosedForm().log_partition(random_energy("gaussian", 2, 3, seed=1))
    for option, value in (("max_cells", 0), ("tolerance", 0.0), ("max_cells", True)):
        with raises("out-of-range", f"RootEnumeration {option}"):
            RootEnumeration(**{option: value})
    with pytest.raises(IntractableError, match="quadrature nodes are no sample"):
        RootEnumeration().sample(random_energy("exponential", 2, 2, seed=1), (3,))


# What is told beforehand and with results


PAIR = Domain([Variable(name, kind="count") for name in "ab"])


def test_the_error_beyond_a_thousand_nats_is_told():
    structure = RootStructure.simplified(PAIR, [])
    for eta, told in ((2.0, "1e-10"), (8.0, "5.96192e-10")):
        energy = GeneralizedRootEnergy(structure, torch.tensor([eta, eta]).double(), PoissonFamily())
        result = RootEnumeration().log_partition(energy)
        assert result.notes == (f"relative error of Z at most {told}",)
        assert abs(float(result.value) - 2 * math.exp(eta)) <= float(told)


def test_plans_refuse_where_the_search_for_the_grid_cannot_start():
    structure = RootStructure.simplified(PAIR, [PAIR.names])
    energy = GeneralizedRootEnergy(structure, torch.tensor([800.0, 0.0, -1.0]).double(), PoissonFamily())
    cost = RootEnumeration().plan_energy(energy)
    assert not cost.feasible and "single variables alone have no finite constant" in cost.reason
    with pytest.raises(IntractableError, match="single variables alone"):
        RootEnumeration().log_partition(energy)
    assert not RootAuto().plan_energy(energy).feasible


def test_two_counts_that_grow_together_need_no_wide_window():
    """Mean-field weights of the low mode bound the model by a product that reaches 8e8; other weights end near 200."""
    structure = RootStructure.simplified(PAIR, [PAIR.names])
    coefficients = torch.tensor([-6.16, -3.45, 17.51], dtype=torch.float64)
    energy = GeneralizedRootEnergy.from_coefficients(structure, coefficients, PoissonFamily())
    a = np.arange(400.0)
    log_q = -6.16 * a[:, None] - 3.45 * a + 17.51 * np.sqrt(a[:, None] * a) - gammaln(a + 1)[:, None] - gammaln(a + 1)
    result = RootAuto().log_partition(energy)
    assert result.kind == "exact"
    assert float(result.value) == pytest.approx(logsumexp(log_q), rel=1e-10)
    assert abs(float(result.value) - logsumexp(log_q[:40, :40])) > 1  # the control: a window that is too short


# Annealed log Z against known constants, and the choice of a backend


QUICK = RootAnnealed(num_chains=128, num_temperatures=40, seed=3, burn_in=20)


def within(result, exact, errors=5.0):
    """A false alarm of five errors of a skewness-corrected bar is rarer than one in a million."""
    assert result.verdict != "unreliable", result.notes
    assert abs(float(result.value) - float(exact)) < errors * float(result.std_error)
    assert float(result.lower) < float(result.value) < float(result.upper)
    return float(result.std_error)


@pytest.mark.parametrize("name", ["poisson", "truncated", "exponential", "gaussian"])
@pytest.mark.parametrize("order", [2, 3])
def test_three_variables_within_the_error_bar(name, order):
    energy = random_energy(name, 3, order, seed=order, scale=0.1)
    exact = RootAuto().log_partition(energy).value
    result = QUICK.log_partition(energy)
    error = within(result, exact)
    assert error < 0.1
    assert (result.kind, result.coding) == ("biased", "root")
    is_perfect = name in ("poisson", "truncated") or (name == "gaussian" and order == 2)
    assert result.sandwich.start == ("exact" if is_perfect else "tempered")
    assert any("tempered" in note for note in result.notes) != is_perfect
    psi = torch.where(energy.structure.multiplicity > 1, 2 * energy.psi, energy.psi)  # the control: twice as strong
    control = RootAuto().log_partition(GeneralizedRootEnergy(energy.structure, psi, energy.family)).value
    assert abs(float(result.value) - float(control)) > 5 * float(result.sandwich.forward_error)


@pytest.mark.parametrize("name", ["poisson", "gaussian"])
def test_ten_variables_in_a_chain(name):
    energy = chain_energy(name, 10, seed=1, scale=0.15)
    exact = RootAuto().log_partition(energy).value  # sums along the chain, or the closed form
    within(replace(QUICK, num_chains=64).log_partition(energy), exact)


@pytest.mark.parametrize("name", ["poisson", "exponential"])
def test_ten_variables_in_blocks(name):
    energy = blocks_energy(name, 5, 2, seed=2)
    exact = RootAuto().log_partition(energy).value
    quick = replace(QUICK, num_chains=64, reverse=False)  # all at once, blind to the blocks
    within(quick.log_partition(energy), exact)


def test_a_hundred_counts_in_blocks():
    energy = blocks_energy("poisson", 50, 2, seed=3, scale=0.05)
    exact = RootAuto().log_partition(energy).value
    result = replace(QUICK, num_chains=64, num_temperatures=30, reverse=False).log_partition(energy)
    assert within(result, exact) < 0.2


def test_combined_runs_and_a_wide_law():
    energy = random_energy("poisson", 3, 3, seed=7, scale=0.3)
    exact = RootAuto().log_partition(energy).value
    plain = within(QUICK.log_partition(energy), exact)
    both = within(replace(QUICK, combine=True).log_partition(energy), exact)
    assert both < 1.5 * plain
    adaptive = replace(QUICK, temperatures="adaptive", conditional_ess=0.99)
    within(adaptive.log_partition(energy), exact)
    resampled = replace(QUICK, num_chains=512, resample_below=0.5, reverse=False)
    within(resampled.log_partition(energy), exact)


@pytest.mark.fixed_seed  # not every random model is far away
def test_what_the_weights_do_not_support_is_said():
    """One step from the independent member to a law far away."""
    energy = random_energy("poisson", 3, 3, seed=7, scale=0.5)
    blind = RootAnnealed(num_chains=64, temperatures=[0.0, 1.0], seed=1, reverse=False)
    with pytest.warns(ConvergenceWarning, match="the estimate is unreliable"):
        result = blind.log_partition(energy)
    assert result.verdict == "unreliable"
    assert float(result.std_error) == float("inf")
    assert any("weights are uneven" in note for note in result.notes)


def test_gradient_is_the_estimated_expectation():
    energy = random_energy("poisson", 3, 2, seed=4)
    psi = energy.psi.clone().requires_grad_(True)
    model = GeneralizedRootEnergy(energy.structure, psi, energy.family)
    value = QUICK.log_partition(model).value
    (slope,) = torch.autograd.grad(value, psi, create_graph=True)
    expectations = QUICK.expectations(energy)
    assert_close(slope, energy.structure.multiplicity * expectations, relative=1e-12)
    with pytest.raises(IntractableError, match="differentiable once"):
        torch.autograd.grad(slope.sum(), psi)
    exact, states = RootAuto().expectations(energy), QUICK.sample(energy, (2000,), torch.Generator().manual_seed(1))
    spread = energy.statistics(states).std(0)
    assert bool(((expectations - exact).abs() < 6 * spread / 128**0.5).all())
    assert bool(((energy.statistics(states).mean(0) - exact).abs() < 6 * spread / 2000**0.5).all())
    mean, variance = QUICK.moments(energy)
    true_mean, true_variance = RootAuto().moments(energy)
    assert bool(((mean - true_mean).abs() < 6 * (true_variance / 128).sqrt()).all())
    assert bool(((variance / true_variance).log().abs() < 1.5).all())


def test_randomness():
    energy = random_energy("poisson", 2, 2, seed=4, batch=(2,))
    first, again = QUICK.log_partition(energy), QUICK.log_partition(energy)
    assert torch.equal(first.value, again.value)
    assert first.value.shape == (2,)
    state = torch.get_rng_state()
    QUICK.log_partition(energy)
    QUICK.sample(energy, (3,), torch.Generator().manual_seed(0))
    assert torch.equal(state, torch.get_rng_state())
    fresh = replace(QUICK, seed=None)
    torch.manual_seed(0)
    one = fresh.log_partition(energy).value
    assert not torch.equal(one, fresh.log_partition(energy).value)
    torch.manual_seed(0)
    assert torch.equal(one, fresh.log_partition(energy).value)
    assert pickle.loads(pickle.dumps(QUICK)) == QUICK
    assert hash(QUICK) == hash(replace(QUICK))


def test_small_shapes():
    nothing = GeneralizedRootEnergy(
        RootStructure.independent(domain_of(2, PoissonFamily())), torch.zeros(0, 2), PoissonFamily()
    )
    assert (QUICK.log_partition(nothing).value.shape, QUICK.expectations(nothing).shape) == ((0,), (0, 2))
    assert (QUICK.moments(nothing)[0].shape, QUICK.sample(nothing, (3,)).shape) == ((0, 2), (3, 0, 2))
    single = GeneralizedRootEnergy(nothing.structure, torch.tensor([0.0, 0.5]), PoissonFamily())
    assert QUICK.sample(single, ()).shape == (2,)
    result = QUICK.log_partition(single)
    assert result.value.dtype == torch.float32
    assert_close(result.value, 1 + torch.tensor(0.5).exp(), relative=1e-6)


# The choice


def test_decision_table():
    names = ("v0", "v1", "v2", "v3", "v4", "v5")
    sets = [names[:3], names[:2], names[1:3], (names[0], names[2])]
    energy = simplified_energy(PoissonFamily(), 6, sets, [0.05] * 10)
    structure = energy.structure
    chosen = RootAuto().select(energy)
    assert [(part, type(backend)) for part, backend in chosen] == [
        (names[:3], RootEnumeration),
        (names[3:], IndependentClosedForm),
    ]
    assert all(isinstance(backend, RootBackend) for _, backend in chosen)
    cost = RootAuto().plan(structure, PoissonFamily())
    assert cost.feasible
    assert cost.method == "enumeration + independent closed form"
    assert "2 components" in cost.reason
    small = RootEnumeration(max_cells=50)
    refused = RootAuto(small)
    assert not refused.plan(structure, PoissonFamily()).feasible
    for action in (refused.log_partition, refused.expectations, refused.select, refused.sample, refused.moments):
        with pytest.raises(
            IntractableError, match=r"component of 3 variables .* \d+ cells.*max_cells=50.*RootAnnealed"
        ):
            action(energy)
    estimated = RootAuto(small, QUICK)
    assert estimated.plan(structure, PoissonFamily()).method == "annealed importance sampling + independent closed form"
    assert not estimated.is_exact
    assert not estimated.is_exact_for(energy)
    assert RootAuto(annealed=QUICK).is_exact_for(energy)
    assert [type(backend) for _, backend in estimated.select(energy)] == [RootAnnealed, IndependentClosedForm]
    result, exact = estimated.log_partition(energy), RootAuto().log_partition(energy)
    assert -math.inf < float(result.lower_bound) <= float(exact.value) + 1e-9
    within(result, exact.value)
    assert result.sandwich is not None
    assert (exact.std_error, exact.verdict) == (0.0, "verified")
    assert RootAuto().draws_exactly(energy)
    assert not estimated.draws_exactly(energy)
    assert not refused.draws_exactly(energy)


def test_gaussian_rows():
    closed = random_energy("gaussian", 3, 2, seed=1)
    assert [type(b) for _, b in RootAuto().select(closed)] == [GaussianClosedForm]
    rooted = random_energy("gaussian", 2, 3, seed=1)
    assert [type(b) for _, b in RootAuto().select(rooted)] == [RootEnumeration]
    assert not RootAuto().draws_exactly(rooted)
    with pytest.raises(IntractableError, match="no sample"):
        RootAuto().sample(rooted, (2,))
    assert RootAuto(annealed=QUICK).sample(rooted, (2,)).shape == (2, 2)


def test_several_components_in_any_order():
    """Variables of different components interleave in the schema; results come back in its order."""
    sets, psi = [("v0", "v3"), ("v2", "v4")], torch.linspace(-0.4, 0.4, 7, dtype=torch.float64)
    energy = simplified_energy(PoissonFamily(), 5, sets, psi.tolist())
    auto, whole = RootAuto(), RootEnumeration()
    assert_close(auto.log_partition(energy).value, whole.log_partition(energy).value, relative=1e-9)
    assert_close(auto.expectations(energy), whole.expectations(energy), relative=1e-8)
    for found, expected in zip(auto.moments(energy), whole.moments(energy), strict=True):
        assert_close(found, expected, relative=1e-8)
    draws = auto.sample(energy, (4000,), torch.Generator().manual_seed(0))
    mean, variance = auto.moments(energy)
    assert bool(((draws.mean(0) - mean).abs() < 6 * (variance / 4000).sqrt()).all())
    assert "v1" in [part for part, _ in auto.select(energy)][-1]


def test_a_thick_graph_is_refused_at_once():
    names = domain_of(200, PoissonFamily()).names
    energy = simplified_energy(PoissonFamily(), 200, itertools.combinations(names, 2), [0.0] * 20_100)
    with pytest.raises(IntractableError, match="component of 200 variables"):
        RootAuto().log_partition(energy)
    assert RootAuto(annealed=QUICK).plan_energy(energy).feasible


def test_undecided_models_need_leave(monkeypatch):
    from pyro_hoim.generalized_root.exact import base as root_base
    from pyro_hoim.generalized_root.normalizability.check import Normalizability

    monkeypatch.setattr(root_base, "check_normalizable", lambda energy: Normalizability("undecided", "for the test"))
    energy = random_energy("exponential", 2, 2, seed=1)
    for backend in (RootAuto(), RootEnumeration(), QUICK, RootAuto(annealed=QUICK)):
        with pytest.raises(IntractableError, match="undecided: for the test"):
            backend.log_partition(energy)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        for backend in (RootAuto(allow_undecided=True), RootEnumeration(allow_undecided=True)):
            assert backend.log_partition(energy).kind == "exact"
        allowed = RootAuto(RootEnumeration(max_cells=10), QUICK, allow_undecided=True)
        assert allowed.log_partition(energy).kind == "biased"


def test_options_of_the_choice_are_checked():
    with raises("wrong-type", "RootAuto annealed"):
        RootAuto(annealed=RootEnumeration())
    with raises("wrong-type", "RootAuto enumeration"):
        RootAuto(QUICK)
    wild = simplified_energy(ExponentialFamily(), 2, [("v0", "v1")], [-1.0, -1.0, 2.0])
    with raises("not-normalizable", "psi"):
        QUICK.log_partition(wild)
    broken = GeneralizedRootEnergy(wild.structure, torch.full((3,), float("nan")), ExponentialFamily(), validate=False)
    with raises("not-finite", "psi"):
        QUICK.log_partition(broken)
