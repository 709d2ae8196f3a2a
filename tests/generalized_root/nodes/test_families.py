"""Node families: roots, base measures, closed forms of the base family; families that a user states."""

import math
import pickle

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from scipy.special import gammaln

from pyro_hoim import ConvergenceWarning, Domain, InputError, IntractableError, Variable
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRoot,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootAnnealed,
    RootAuto,
    RootChains,
    RootEnumeration,
    RootFile,
    RootPseudoLikelihood,
    RootSettings,
    RootStructure,
    TruncatedPoissonFamily,
    UserFamily,
    check_normalizable,
    draw_from_nodes,
    fit_roots,
    node_bounds,
    node_family,
    node_moments,
)
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_exact_law, chi_square_p_value, raises

FAMILIES = [PoissonFamily(), TruncatedPoissonFamily(7), ExponentialFamily(), GaussianFamily()]
ids = [f.name for f in FAMILIES]


def double(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def test_families_are_values():
    assert TruncatedPoissonFamily(3) == TruncatedPoissonFamily(3) != TruncatedPoissonFamily(4)
    assert PoissonFamily() == node_family("poisson") != ExponentialFamily()
    assert (
        len({PoissonFamily(), node_family("poisson"), TruncatedPoissonFamily(3), node_family("truncated-poisson", 3)})
        == 2
    )
    assert pickle.loads(pickle.dumps(TruncatedPoissonFamily(3))) == TruncatedPoissonFamily(3)
    assert [f.code for f in FAMILIES] == [0, 1, 2, 3]


@pytest.mark.parametrize("family", FAMILIES[:3], ids=ids[:3])
def test_roots_are_powers(family):
    x = torch.tensor([0, 1, 5, 64])
    found = family.roots(x, 4)
    np.testing.assert_allclose(found, np.stack([x.numpy() ** (1 / j) for j in range(1, 5)], -1), rtol=1e-6)
    assert found.shape == (4, 4) and torch.equal(found[:, 2], family.root(x, 3))
    assert family.roots(x.double(), 1).dtype == torch.float64


def test_gaussian_roots_keep_the_sign_only_in_the_second():
    found = GaussianFamily().roots(double(-8.0, 8.0), 4)
    np.testing.assert_allclose(found[0], [64, -8, 4, 8**0.5], rtol=1e-14)
    np.testing.assert_allclose(found[1], [64, 8, 4, 8**0.5], rtol=1e-14)


@pytest.mark.parametrize("family", FAMILIES, ids=ids)
def test_orders_below_one_are_refused(family):
    for order in (0, -1, 1.5, True):
        with raises("out-of-range", "order"):
            family.roots(torch.zeros(2), order)
        with raises("out-of-range", "j"):
            family.root(torch.zeros(2), order)


def test_base_measure():
    x = double(0.0, 3.0, 170.0)
    expected = [-math.lgamma(v + 1) for v in x.tolist()]
    np.testing.assert_allclose(PoissonFamily().log_base(x), expected, rtol=1e-14)
    np.testing.assert_allclose(TruncatedPoissonFamily(200).log_base(x), expected, rtol=1e-14)
    assert not ExponentialFamily().log_base(x).any() and not GaussianFamily().log_base(x).any()


@pytest.mark.parametrize("top", [1, 7, 40, 300])
@pytest.mark.parametrize("eta", [-30.0, -2.0, 0.0, 1.5, 6.0])
def test_truncated_log_partition_against_sums(top, eta):
    terms = [x * eta - math.lgamma(x + 1) for x in range(top + 1)]
    found = TruncatedPoissonFamily(top).base_log_partition(double(eta)).item()
    assert found == pytest.approx(np.logaddexp.reduce(terms), rel=1e-12)


def test_base_natural_inverts_the_mean():
    means = double(1e-3, 1.0, 40.0)
    np.testing.assert_allclose(PoissonFamily().base_natural(means).exp(), means, rtol=1e-12)
    np.testing.assert_allclose(-1 / ExponentialFamily().base_natural(means), means, rtol=1e-12)
    np.testing.assert_allclose(-0.5 / GaussianFamily().base_natural(means), means, rtol=1e-12)
    small = TruncatedPoissonFamily(1).base_natural(means[:1])
    np.testing.assert_allclose(small.exp() / (1 + small.exp()), means[:1], rtol=1e-12)


@pytest.mark.parametrize(
    ("family", "bad", "words"),
    [
        (PoissonFamily(), [0.0, math.nan], "counts, received nan at index (1,)"),
        (PoissonFamily(), [0.0, math.inf], "received inf"),
        (PoissonFamily(), [1.0, -1.0, -2.0], "not negative, received -1 at index (1,) (2 such"),
        (PoissonFamily(), [1.5], "whole numbers, received 1.5 at index (0,)"),
        (TruncatedPoissonFamily(7), [7.0, 8.0], "maximum 7 of the family, received 8 at index (1,)"),
        (ExponentialFamily(), [0.0, -0.5], "not negative, received -0.5"),
        (ExponentialFamily(), [math.nan], "finite numbers, received nan"),
        (GaussianFamily(), [0.0, -math.inf], "finite numbers, received -inf at index (1,)"),
    ],
)
def test_values_outside_the_domain_are_named(family, bad, words):
    with pytest.raises(InputError) as caught:
        family.check_values(torch.tensor(bad), "counts of row")
    assert words in str(caught.value) and str(caught.value).startswith("counts of row: expected")


def test_values_of_the_domain_pass():
    for family in FAMILIES:
        family.check_values(torch.tensor([0, 1, 7]), "x")
        family.check_values(torch.zeros(0), "x")
        assert bool(family.support.check(torch.tensor([0.0, 1.0, 7.0])).all())
    ExponentialFamily().check_values(torch.tensor(0.5), "x")
    GaussianFamily().check_values(torch.tensor([-0.5]), "x")


def test_names_and_maximum():
    assert [node_family(f.name, 7 if f.name == "truncated-poisson" else None) for f in FAMILIES] == FAMILIES
    with pytest.raises(InputError, match=r"family: expected 'poisson', .* or 'truncated-poisson', received 'poison'"):
        node_family("poison")
    for name, maximum in (("truncated-poisson", None), ("poisson", 3)):
        with raises("conflict", "maximum"):
            node_family(name, maximum)
    for wrong in (0, -4, 2**60, 2.0, True, None):
        with raises("out-of-range", "maximum"):
            TruncatedPoissonFamily(wrong)


# Families that a user states


def log_factorial_measure(x):
    return -gammaln(x + 1)


def signed_square_roots(x, j):
    return np.square(x) if j == 1 else x if j == 2 else np.abs(x) ** (2 / j)


def binomial_measure(x):
    """Of the negative binomial distribution with r = 2.5."""
    return gammaln(x + 2.5) - gammaln(x + 1) - math.lgamma(2.5)


def cubed(x):
    return x**1.5


def weibull_measure(x):
    return np.log(1.5) + 0.5 * np.log(x)


POISSON = UserFamily("my poisson", "count", log_factorial_measure, is_normalizable=True)
SHORT = UserFamily("my truncated", "count", log_factorial_measure, maximum=4)
EXPONENTIAL = UserFamily("my exponential", "positive", np.zeros_like)
GAUSSIAN = UserFamily("my gaussian", "real", np.zeros_like, np.square, signed_roots=signed_square_roots)
GEOMETRIC = UserFamily("geometric", "count", np.zeros_like)
BINOMIAL = UserFamily("negative binomial", "count", binomial_measure)
RAYLEIGH = UserFamily("rayleigh", "positive", np.log, np.square)
WEIBULL = UserFamily("weibull", "positive", weibull_measure, cubed)
BETA = UserFamily("beta", "positive", lambda x: np.log(1 - x), lambda x: -np.log(x), maximum=1.0)
REMADE = [
    (POISSON, PoissonFamily()),
    (SHORT, TruncatedPoissonFamily(4)),
    (EXPONENTIAL, ExponentialFamily()),
    (GAUSSIAN, GaussianFamily()),
]


def naturals(family, size=40, order=3):
    rng = np.random.default_rng(1)
    eta = rng.normal(size=(size, order)) * [1.0, 2.0, 2.0][:order]
    if family.kind != "count":
        eta[:, 0] = -rng.gamma(1.0, 1.0, size)
    return torch.from_numpy(eta)


def energy_of(family, psi, sets=(("a", "b"),), names="ab"):
    domain = Domain([Variable(name, kind=family.kind) for name in names])
    structure = RootStructure.simplified(domain, sets)
    return GeneralizedRootEnergy(structure, torch.tensor(psi, dtype=torch.float64), family)


@pytest.mark.parametrize(("own", "built_in"), REMADE, ids=lambda family: family.name)
def test_built_in_families_made_anew_have_the_same_moments(own, built_in):
    eta = naturals(own)
    found, expected = node_moments(own, eta), node_moments(built_in, eta)
    for part in ("value", "mean", "covariance"):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), rtol=1e-10, atol=1e-11)
    assert float(found.error.max()) < 1e-11
    assert not np.allclose(found.mean, node_moments(built_in, eta * 1.001).mean, rtol=1e-10)  # the control


def test_means_in_the_thousands_and_narrow_densities():
    eta = torch.tensor([[9.0, 0.0], [8.5, 20.0]], dtype=torch.float64)
    np.testing.assert_allclose(node_moments(POISSON, eta).value, node_moments(PoissonFamily(), eta).value, rtol=1e-12)
    narrow = torch.tensor([[-0.5, 1000.0], [-5e3, -1e5]], dtype=torch.float64)  # means 1000 and -10, deviations 1, 0.01
    found, expected = node_moments(GAUSSIAN, narrow), node_moments(GaussianFamily(), narrow)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-10)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-6)


def test_families_of_scipy():
    shares = torch.tensor([[0.3], [0.9], [0.999]], dtype=torch.float64)
    shares_of = shares.numpy()
    geometric = node_moments(GEOMETRIC, shares.log())
    np.testing.assert_allclose(geometric.value, -np.log1p(-shares_of[:, 0]), rtol=1e-12)
    np.testing.assert_allclose(geometric.mean, shares_of / (1 - shares_of), rtol=1e-10)
    binomial, law = node_moments(BINOMIAL, shares.log()), scipy.stats.nbinom(2.5, 1 - shares_of[:, 0])
    np.testing.assert_allclose(binomial.mean[:, 0], law.mean(), rtol=1e-10)
    np.testing.assert_allclose(binomial.covariance[:, 0, 0], law.var(), rtol=1e-10)
    rayleigh = node_moments(RAYLEIGH, torch.tensor([[-0.5], [-0.02]], dtype=torch.float64))
    np.testing.assert_allclose(rayleigh.value, np.log([1.0, 25.0]), atol=1e-12)
    weibull = node_moments(WEIBULL, torch.tensor([[-1.0]], dtype=torch.float64))
    np.testing.assert_allclose(weibull.value, 0.0, atol=1e-12)  # the density of scale one
    beta = node_moments(BETA, torch.tensor([[-2.5], [0.5]], dtype=torch.float64))
    np.testing.assert_allclose(beta.value, scipy.special.betaln([3.5, 0.5], 2.0), rtol=1e-10)


def test_roots_of_other_families_by_arbitrary_precision():
    row = [-0.4, 1.3, -0.7]
    term = lambda x: mpmath.exp(sum(e * mpmath.mpf(x) ** (mpmath.mpf(1) / j) for j, e in enumerate(row, 1)))  # noqa: E731
    weight = lambda x: mpmath.gamma(x + 2.5) / mpmath.gamma(x + 1) / mpmath.gamma(2.5)  # noqa: E731
    with mpmath.workdps(30):
        total = mpmath.nsum(lambda x: weight(x) * term(x), [0, mpmath.inf])
        found = node_moments(BINOMIAL, torch.tensor(row, dtype=torch.float64))
        assert abs(float(found.value) - float(mpmath.log(total))) < 1e-10
        density = lambda x: mpmath.mpf("1.5") * mpmath.sqrt(x) * term(x ** mpmath.mpf("1.5"))  # noqa: E731
        whole = mpmath.quad(density, [0, 0.01, 0.5, 2, 10, 60])
        mean = mpmath.quad(lambda x: x**0.75 * density(x), [0, 0.01, 0.5, 2, 10, 60]) / whole
    found = node_moments(WEIBULL, torch.tensor(row, dtype=torch.float64))
    assert abs(float(found.value) - float(mpmath.log(whole))) < 1e-9
    assert abs(float(found.mean[1]) - float(mean)) < 1e-8


@pytest.mark.parametrize(
    ("family", "row"), [(GEOMETRIC, [0.0]), (GEOMETRIC, [1e-9]), (RAYLEIGH, [0.0]), (EXPONENTIAL, [0.0, 1.0]),
                        (UserFamily("flat in log", "positive", lambda x: -np.log(x)), [-1.0])],
)  # fmt: skip
def test_parameters_without_a_law_are_refused(family, row):
    with raises("not-normalizable", "natural"):
        node_moments(family, torch.tensor(row, dtype=torch.float64))


def test_draws_follow_the_law():
    """Counts by their probabilities, reals by the cells of a quadrature; a control draws from a neighbour."""
    generator = torch.Generator().manual_seed(0)
    row = torch.tensor([-0.5, 0.8, 0.3], dtype=torch.float64)
    x = np.arange(40.0)
    logs = BINOMIAL.measured(x) + sum(float(e) * x ** (1 / j) for j, e in enumerate(row, 1))
    probs = np.exp(logs - np.logaddexp.reduce(logs))
    probs = np.append(probs[:15], probs[15:].sum())
    for family, truth in ((BINOMIAL, True), (GEOMETRIC, False)):
        drawn = draw_from_nodes(family, row.expand(40_000, 3), generator=generator).numpy()
        counts = np.bincount(np.minimum(drawn, 15).astype(int), minlength=16)
        if truth:
            assert_exact_law(counts, probs)
        else:
            assert chi_square_p_value(counts, probs)[0] < FALSE_ALARM_RATE
    drawn = draw_from_nodes(WEIBULL, torch.tensor([[-1.0]], dtype=torch.float64).expand(40_000, 1), generator=generator)
    for shape, truth in ((1.5, True), (1.6, False)):
        ranks = (scipy.stats.weibull_min(shape).cdf(drawn.numpy()) * 32).astype(int)
        p_value = chi_square_p_value(np.bincount(ranks, minlength=32), np.full(32, 1 / 32))[0]
        assert (p_value >= FALSE_ALARM_RATE) is truth
    drawn = draw_from_nodes(GAUSSIAN, torch.tensor([[-0.5, 0.7]]).double().expand(40_000, 2), generator=generator)
    for mean, truth in ((0.7, True), (0.8, False)):
        ranks = (scipy.stats.norm(mean).cdf(drawn.numpy()) * 32).astype(int)
        p_value = chi_square_p_value(np.bincount(ranks, minlength=32), np.full(32, 1 / 32))[0]
        assert (p_value >= FALSE_ALARM_RATE) is truth


def test_joint_models_have_the_log_z_and_moments_of_the_built_in_ones():
    allowed = RootAuto(allow_undecided=True)
    for own, built_in, psi in (
        (POISSON, PoissonFamily(), [0.2, -0.5, 0.4]),
        (SHORT, TruncatedPoissonFamily(4), [0.2, -0.5, 0.4]),
        (EXPONENTIAL, ExponentialFamily(), [-1.0, -2.0, 0.6]),
        (POISSON, PoissonFamily(), [0.2, -0.5, 0.0]),
    ):
        laws = [GeneralizedRoot(energy_of(f, psi).structure, torch.tensor(psi).double(), f, partition=allowed)
                for f in (own, built_in)]  # fmt: skip
        state = torch.tensor([1.0, 3.0])
        np.testing.assert_allclose(laws[0].log_prob(state), laws[1].log_prob(state), rtol=1e-9)
        np.testing.assert_allclose(laws[0].mean, laws[1].mean, rtol=1e-8)
    signed = energy_of(GAUSSIAN, [-1.0, -1.0, 0.3])
    closed = RootAuto().log_partition(energy_of(GaussianFamily(), [-1.0, -1.0, 0.3])).value
    np.testing.assert_allclose(allowed.log_partition(signed).value, closed, rtol=1e-9)
    alone = energy_of(RAYLEIGH, [-0.5, -0.02], sets=())
    np.testing.assert_allclose(allowed.moments(alone)[0], np.sqrt(np.pi / 2) * np.array([1.0, 5.0]), rtol=1e-10)


def test_joint_models_of_another_family_by_enumeration():
    energy = energy_of(BINOMIAL, [-1.5, -1.2, 0.3])
    x = torch.stack(torch.meshgrid(torch.arange(400.0), torch.arange(400.0), indexing="ij"), -1).double()
    root = (x[..., 0] * x[..., 1]).sqrt()
    logs = -1.5 * x[..., 0] - 1.2 * x[..., 1] + 0.6 * root + torch.from_numpy(binomial_measure(x.numpy())).sum(-1)
    exact = RootEnumeration(allow_undecided=True)
    np.testing.assert_allclose(exact.log_partition(energy).value, logs.flatten().logsumexp(0), rtol=1e-10)
    estimate = RootAnnealed(num_chains=64, num_temperatures=20, seed=1, allow_undecided=True).log_partition(energy)
    assert abs(float(estimate.value) - float(logs.flatten().logsumexp(0))) < 6 * float(estimate.std_error) + 1e-3


def test_a_gibbs_sweep_keeps_the_law():
    """Chains that start from the law, one sweep, one state each; a control sweeps at another temperature."""
    energy = energy_of(SHORT, [0.6, 0.2, 0.5])
    listed = torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0)).double()
    probs = torch.softmax(-energy.energy(listed), 0)
    start = listed[torch.multinomial(probs, 10_000, True, generator=torch.Generator().manual_seed(4))]
    for beta, truth in ((1.0, True), (0.5, False)):
        chains = RootChains(energy, 10_000, init=start, seed=2)
        np.testing.assert_allclose(chains.log_q(), -energy.energy(start), rtol=1e-12)
        chains.sweep(1, beta)
        counts = np.bincount((chains.states @ torch.tensor([5.0, 1.0]).double()).long().numpy(), minlength=25)
        assert (chi_square_p_value(counts, probs.numpy())[0] >= FALSE_ALARM_RATE) is truth
    again = RootChains(energy, 10_000, init=start, seed=2)
    again.sweep(1, 0.5)
    assert torch.equal(again.states, chains.states)


def test_regressions_are_those_of_the_built_in_family():
    rng = np.random.default_rng(5)
    data = rng.poisson(rng.gamma(1.5, 1.0, (120, 1)) * [1.0, 2.0, 0.5]).astype(float)
    own, built_in = (fit_roots(data, family, order=3, l1=0.02) for family in (POISSON, "poisson"))
    assert own.is_converged and own.structure == built_in.structure
    np.testing.assert_allclose(own.psi, built_in.psi, atol=1e-6)
    scores = [RootPseudoLikelihood(own.structure, torch.from_numpy(data), f) for f in (POISSON, PoissonFamily())]
    gradients = [part.value_and_gradient(own.psi.numpy())[1] for part in scores]
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-9)
    spread = fit_roots(data, BINOMIAL, order=2, l1=0.02)
    assert spread.is_converged and float(spread.kkt_residual.max()) < 1e-6
    likelihoods = [float(found.log_pseudo_prob(data).mean()) for found in (spread, built_in)]
    assert likelihoods[0] > likelihoods[1]  # counts that are spread like a negative binomial distribution
    positive = rng.gamma(2.0, 1.0, (150, 2))
    fits = [fit_roots(positive, f, order=2, l1=0.02) for f in (EXPONENTIAL, "exponential")]
    np.testing.assert_allclose(fits[0].psi, fits[1].psi, atol=1e-5)


def test_start_values_have_the_mean():
    means = torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)
    np.testing.assert_allclose(GEOMETRIC.base_natural(means), (means / (1 + means)).log(), rtol=1e-8)
    np.testing.assert_allclose(RAYLEIGH.base_natural(means), -1 / means, rtol=1e-8)


def test_normalisability_is_undecided_unless_the_user_says():
    energy = energy_of(BINOMIAL, [-1.5, -1.2, 0.3])
    assert check_normalizable(energy).verdict == "undecided"
    assert check_normalizable(energy_of(SHORT, [0.0, 0.0, 1.0])).is_proven
    assert check_normalizable(energy_of(POISSON, [0.0, 0.0, 1.0])).is_proven
    with raises("no-method"):
        RootAuto().log_partition(energy)
    with pytest.warns(ConvergenceWarning, match="user's"):
        RootChains(energy, 4)
    with raises("not-normalizable", "init"):
        RootChains(energy_of(GEOMETRIC, [0.1, -1.0, 0.0]), 4, check=False)
    grows = energy_of(GEOMETRIC, [-0.1, -0.1, 0.2])  # along a = b
    with pytest.raises(IntractableError):
        RootAuto(allow_undecided=True).log_partition(grows)


def test_stated_families_are_values():
    assert pickle.loads(pickle.dumps(BINOMIAL)) == BINOMIAL != GEOMETRIC
    assert hash(pickle.loads(pickle.dumps(WEIBULL))) == hash(WEIBULL)
    other = UserFamily("negative binomial", "count", lambda x: 2 * binomial_measure(x))
    assert other != BINOMIAL and repr(other) != repr(BINOMIAL) == repr(pickle.loads(pickle.dumps(BINOMIAL)))


def test_what_a_user_family_does_not_have():
    with raises("no-method", "family"):
        node_bounds(GEOMETRIC, [-1.0])
    with raises("no-method", "direction"):
        energy_of(RAYLEIGH, [-1.0, -1.0, 0.1]).radial_natural(torch.ones(2))
    with raises("conflict", "objective"):
        fit_roots([[1.0, 2.0], [0.0, 1.0]], POISSON, settings=RootSettings(objective="upper-bound"))
    energy = energy_of(GEOMETRIC, [-1.0, -1.0, 0.1])
    with raises("unknown-choice", "family"):
        RootFile(energy.structure, energy.psi, GEOMETRIC)
    with pytest.raises(InputError, match="not 0 at 0"):
        fit_roots([[1.0, 2.0], [0.0, 1.0]], UserFamily("shifted", "count", np.zeros_like, lambda x: x + 1))
    with raises("out-of-range", "data"):
        fit_roots([[1.0, 2.0], [0.0, 1.0]], RAYLEIGH)


def test_bad_arguments_of_stated_families():
    cases = [
        ("conflict", "name", ("poisson", "count", np.zeros_like)),
        ("unknown-choice", "kind", ("f", "counts", np.zeros_like)),
        ("wrong-type", "log_measure", ("f", "count", 0.0)),
        ("wrong-shape", "log_measure", ("f", "count", np.sum)),
        ("not-finite", "log_measure", ("f", "count", lambda x: x * np.nan)),
        ("out-of-range", "statistic", ("f", "real", np.zeros_like)),
        ("invalid-value", "signed_roots", ("f", "count", np.zeros_like, np.square, math.inf, lambda x, j: x)),
        ("out-of-range", "maximum", ("f", "count", np.zeros_like, np.square, 0)),
        ("conflict", "maximum", ("f", "real", np.zeros_like, np.square, 1.0)),
    ]
    for code, argument, given in cases:
        with raises(code, argument):
            UserFamily(*given)
