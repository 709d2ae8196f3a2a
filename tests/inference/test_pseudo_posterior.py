"""Pseudo-posteriors of log-linear and root models, Dirichlet leaves of networks: quadrature, closed forms, sampling."""

import itertools
import math
from functools import partial

import numpy as np
import pyro
import pytest
import torch
from pyro.distributions import Normal, StudentT
from scipy import linalg, stats

from pyro_hoim import DependencyConditionals, DiaconisYlvisaker, InteractionHypergraph, load_table, normal_prior
from pyro_hoim.data import Observations
from pyro_hoim.dependency_network import DecisionGraph, LeafConditional, TableConditional, learn_network, stationary_law
from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootPseudoLikelihood,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.inference import (
    NUTSSettings,
    PseudoPosterior,
    RecordingNUTS,
    pseudo_model,
    root_posterior,
    root_pseudo_model,
    run_mcmc,
    sample_network_posterior,
    sample_posterior,
    sample_pseudo_posterior,
    sample_root_posterior,
)
from pyro_hoim.inference.calibration import calibrated_covariance, find_mode, transport
from pyro_hoim.inference.kernels import PotentialNUTS
from pyro_hoim.interop import ArvizNames, to_arviz
from pyro_hoim.log_linear import Enumeration, LogLinearPseudoLikelihood, statistics_of, unit_information_prior
from pyro_hoim.log_linear.laws.natural_parameters import fisher_information, solve_natural_parameters
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, raises

draw = partial(sample_pseudo_posterior, progress=False)
unjudged = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
DOMAIN = Domain.from_cardinalities({"a": 2, "b": 2})
PAIR = InteractionHypergraph(DOMAIN, [("a", "b")], hierarchical=False)  # one parameter
FULL = InteractionHypergraph.from_order(DOMAIN, 2)
DATA = Observations.from_table(DOMAIN, [[13, 5], [4, 8]])
SHORT = NUTSSettings(2, 12, 5)


def laplace(hypergraph, data, scale):
    """Covariance of the normal approximation of the exact posterior."""
    total, size = data.total_count, hypergraph.num_parameters
    precision = torch.full((size,), scale**-2, dtype=torch.float64)
    mean = statistics_of(data, hypergraph) / total
    mode = solve_natural_parameters(hypergraph, mean, Enumeration(), precision=precision / total)
    information = total * fisher_information(hypergraph, mode, Enumeration()) + torch.diag(precision)
    return torch.linalg.inv(information).numpy()


def approximation(hypergraph, data, scale, how):
    """Covariance of the normal approximation of the pseudo-posterior, calibrated or not."""
    likelihood = LogLinearPseudoLikelihood(hypergraph, data)
    prior = normal_prior(hypergraph, scale, dtype=torch.float64)
    mode, is_mode = find_mode(likelihood, prior, np.zeros(hypergraph.num_parameters))
    assert is_mode
    return calibrated_covariance(likelihood, mode, np.full(len(mode), scale**-2), how)


def test_draws_have_the_pseudo_posterior():
    found = draw(PAIR, DATA, 1.5, NUTSSettings(2, 500, 60), calibrate="none", seed=1)
    assert found.status == "converged"
    grid = np.linspace(-6, 6, 20_001)
    concordance = 12.0  # 13 + 8 - 5 - 4 rows: theta / 2 in a table of the pair
    scores = []
    for variables in (2, 1):  # the pseudo-likelihood has every row once for each variable; the likelihood is a control
        logs = variables * (0.5 * concordance * grid - 30 * np.logaddexp(grid / 2, -grid / 2)) - 0.5 * (grid / 1.5) ** 2
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        mean = weights @ grid
        variance = weights @ (grid - mean) ** 2
        draws, size = found.theta.flatten().numpy(), min(float(found.ess), found.theta.numel())
        # Squares mix about as well as values here; a factor of 2 in their variance is granted.
        scores.append(
            (
                abs(draws.mean() - mean) / np.sqrt(variance / size),
                abs(np.log(draws.var() / variance)) / np.sqrt(4 / size),
            )
        )
    limit = stats.norm.isf(FALSE_ALARM_RATE / 2 / 2)
    assert max(scores[0]) < limit < scores[1][1], scores


def test_czech_pairs_are_too_narrow_and_calibration_mends_it():
    """Standard deviations over those of the exact posterior, by normal approximations of both: 0.67 to 0.71 raw."""
    data = load_table("czech_autoworkers")
    pairs = InteractionHypergraph.from_order(data.domain, 2)
    exact = np.diag(laplace(pairs, data, 1.0))
    is_pair = pairs.spread(torch.tensor([len(edge) == 2 for edge in pairs.edges])).numpy()
    ratio = {how: np.sqrt(np.diag(approximation(pairs, data, 1.0, how)) / exact) for how in ("none", "curvature")}
    assert 0.665 < ratio["none"][is_pair].min() < ratio["none"][is_pair].max() < 0.715
    assert 0.97 < ratio["curvature"].min() < ratio["curvature"].max() < 1.05
    one = np.sqrt(np.diag(approximation(pairs, data, 1.0, "magnitude")) / exact)
    assert one[is_pair].max() < 0.97  # one factor for all leaves pairs too narrow, and
    assert one[~is_pair].max() > 1.05  # makes variables too wide


@pytest.mark.slow
def test_czech_draws_have_these_spreads():
    """The same of draws by NUTS from all of them; a ratio of standard deviations is known to 1 %."""
    data = load_table("czech_autoworkers")
    pairs = InteractionHypergraph.from_order(data.domain, 2)
    settings = NUTSSettings(4, 2500)
    exact = sample_posterior(pairs, data, 1.0, settings, seed=1, progress=False).theta.flatten(0, 1)
    is_pair = pairs.spread(torch.tensor([len(edge) == 2 for edge in pairs.edges]))
    raw = draw(pairs, data, 1.0, settings, calibrate="none", seed=2)
    moved = draw(pairs, data, 1.0, settings, seed=3)
    # The variance of the log of a ratio of standard deviations of m and of m normal draws is 1 / m.
    error = stats.norm.isf(FALSE_ALARM_RATE / 2 / 42) / np.sqrt(min(len(exact), 2 * float(moved.ess.min())))
    narrow, ratio = (found.theta.flatten(0, 1).std(0) / exact.std(0) for found in (raw, moved))
    assert 0.67 - error < narrow[is_pair].min() < narrow[is_pair].max() < 0.71 + error
    assert 0.97 - error < ratio.min() < ratio.max() < 1.05 + error
    assert narrow[is_pair].max() < 0.97 - error  # control


def test_of_one_variable_there_is_nothing_to_calibrate():
    """Its pseudo-likelihood is the likelihood, and the scores at the estimate have its information, N - 1 for N."""
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([4]), 1)
    data = Observations.from_table(hypergraph.domain, [10, 25, 40, 5])
    exact = laplace(hypergraph, data, 1e4)
    for how, factor in (("none", 1.0), ("magnitude", 80 / 79), ("curvature", 80 / 79)):
        np.testing.assert_allclose(approximation(hypergraph, data, 1e4, how), factor * exact, rtol=1e-5)


@unjudged
def test_draws_are_moved_as_stated():
    found = {how: draw(FULL, DATA, 100.0, SHORT, calibrate=how, seed=4) for how in ("none", "magnitude", "curvature")}
    raw = found["none"]
    np.testing.assert_array_equal(raw.covariance, raw.plain_covariance)
    for how, one in found.items():
        assert isinstance(one, PseudoPosterior)
        assert (one.calibrate, one.is_exact) == (how, False)
        source, target = one.plain_covariance.numpy(), one.covariance.numpy()
        move = transport(source, target)
        np.testing.assert_allclose(move @ source @ move.T, target, rtol=1e-8)
        expected = one.mode + (raw.theta - raw.mode) @ torch.from_numpy(move).T
        torch.testing.assert_close(one.theta, expected, rtol=1e-10, atol=1e-10)
    factors = ((found["magnitude"].theta - raw.mode) / (raw.theta - raw.mode)).flatten()
    np.testing.assert_allclose(factors, float(factors[0]), rtol=1e-3)  # one factor
    # k = P / tr(H^-1 J), by the definition
    likelihood, mode = LogLinearPseudoLikelihood(FULL, DATA), raw.mode.numpy()
    scores = likelihood.row_scores(mode)
    spread = np.cov(scores.T, fweights=likelihood.weights.astype(int)) * DATA.total_count
    shrink = 3 / np.trace(linalg.solve(-likelihood.hessian(mode), spread))
    assert float(factors[0]) == pytest.approx(shrink**-0.5, rel=1e-3)
    sandwich = linalg.inv(likelihood.hessian(mode)) @ spread @ linalg.inv(likelihood.hessian(mode))
    np.testing.assert_allclose(found["curvature"].covariance, sandwich, rtol=1e-2)


@unjudged
@pytest.mark.parametrize("how", ["none", "magnitude", "curvature"])
def test_without_rows_it_is_the_prior(how):
    empty = Observations.from_table(DOMAIN, np.zeros((2, 2)))
    prior = Normal(torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.1, 1.0, 3.0])).to_event(1)
    found = draw(FULL, empty, prior, SHORT, calibrate=how)
    assert found.theta.dtype == torch.float64
    torch.testing.assert_close(found.mode, prior.mean.double(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.covariance, prior.stddev.double().square().diag(), rtol=1e-6, atol=1e-9)


@unjudged
def test_the_result_opens_in_arviz_and_says_that_it_is_not_exact():
    found = draw(FULL, DATA, unit_information_prior(FULL), SHORT)
    data = to_arviz(found.run, hypergraph=FULL)
    assert data["posterior"]["theta"].sel(interaction_level="a:b[1,1]").shape == (2, 12)
    np.testing.assert_array_equal(data["posterior"]["theta"], found.theta)
    assert not np.asarray(data["sample_stats"]["is_exact"]).any()
    assert found.tables.shape == (2, 12, FULL.num_terms)
    assert found.parameters is found.theta
    assert found.prior.base_dist.scale.dtype == torch.float64


def test_equal_columns_have_a_pseudo_posterior_that_is_not_calibrated():
    found = draw(FULL, EQUAL, 1.0, NUTSSettings(2, 60, 40), calibrate="none")
    assert float(found.mode[2]) > 2
    assert found.status == "converged"


@unjudged
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_extreme_scales_and_columns_of_one_level(scale):
    domain = Domain.from_cardinalities([2, 1, 2])
    data = Observations.from_table(domain, np.array([13.0, 5.0, 4.0, 8.0]).reshape(2, 1, 2))
    found = draw(InteractionHypergraph.from_order(domain, 2), data, scale, SHORT)
    expected = draw(FULL, DATA, scale, SHORT)
    torch.testing.assert_close(found.mode, expected.mode)
    torch.testing.assert_close(found.covariance, expected.covariance)


def test_the_program_has_the_likelihood_as_a_factor():
    likelihood = LogLinearPseudoLikelihood(FULL, DATA)
    prior = normal_prior(FULL, dtype=torch.float64)
    theta = torch.tensor([0.3, -0.2, 0.8], dtype=torch.float64)
    trace = pyro.poutine.trace(pyro.poutine.condition(pseudo_model, {"theta": theta})).get_trace(prior, likelihood)
    expected = float(prior.log_prob(theta)) + likelihood.log_prob(theta.numpy())
    assert float(trace.log_prob_sum()) == pytest.approx(expected, abs=1e-12)


FEW = Observations.from_table(DOMAIN, [[2, 0], [0, 0]])
EQUAL = Observations.from_table(DOMAIN, [[10, 0], [0, 20]])  # two columns that are the same
FRACTIONS = Observations.from_table(DOMAIN, weights=[[0.5, 1.5], [2.0, 1.0]])
LARGE = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 70), 2)


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"prior": 0}, "out-of-range", "prior"),
        ({"prior": -1.0}, "out-of-range", "prior"),
        ({"prior": float("nan")}, "out-of-range", "prior"),
        ({"prior": "wide"}, "wrong-type", "prior"),
        ({"prior": StudentT(5.0, torch.zeros(3), 0.5).to_event(1)}, "wrong-type", "prior"),
        ({"prior": DiaconisYlvisaker.uniform(FULL, 1.0)}, "wrong-type", "prior"),
        ({"prior": Normal(torch.zeros(2), 1.0).to_event(1)}, "wrong-shape", "prior"),
        ({"data": FRACTIONS}, "conflict", "data"),
        ({"data": Observations(DOMAIN, torch.tensor([[0, -1]]))}, "missing-cells", "data"),
        ({"data": DATA.table()}, "wrong-type", "data"),
        ({"data": load_table("hair_eye_color")}, "other-domain", "data"),
        ({"data": FEW}, "conflict", "calibrate"),
        ({"data": EQUAL}, "conflict", "calibrate"),
        ({"data": EQUAL, "calibrate": "magnitude"}, "conflict", "calibrate"),
        ({"hypergraph": "a*b"}, "wrong-type", "hypergraph"),
        ({"hypergraph": InteractionHypergraph(DOMAIN)}, "empty", "hypergraph"),
        ({"hypergraph": LARGE}, "over-budget", "hypergraph"),
        ({"calibrate": True}, "unknown-choice", "calibrate"),
        ({"settings": {}}, "wrong-type", "settings"),
        ({"seed": -1}, "out-of-range", "seed"),
    ],
)
def test_bad_input(options, code, argument):
    with raises(code, argument):
        draw(**{"hypergraph": FULL, "data": DATA, **options})


# Root models


draw_root = partial(sample_root_posterior, progress=False)
FAMILY = TruncatedPoissonFamily(3)
TWO_COUNTS = RootStructure.simplified(Domain([Variable(name, kind="count") for name in "ab"]), [("a", "b")])
PLANTED = torch.tensor([-0.3, 0.2, 0.35], dtype=torch.float64)
STATES = torch.tensor(list(itertools.product(range(4), repeat=2)), dtype=torch.float64)


def state_probs(psi=PLANTED):
    return (-GeneralizedRootEnergy(TWO_COUNTS, psi, FAMILY).energy(STATES)).softmax(0).numpy()


def drawn_weights(rng, num_rows):
    return torch.from_numpy(rng.multinomial(num_rows, state_probs())).double()


def quadrature(likelihood, mode, covariance, scales, points=13):
    """Means and covariances of pseudo-posteriors by the trapezoid rule on a box of 6 standard deviations.

    With steps of a standard deviation the rule is off by exp(-2 pi^2), 3e-9, of a normal law.
    """
    factor = linalg.cholesky(covariance, lower=True)
    grid = np.stack(np.meshgrid(*[np.linspace(-6, 6, points)] * 3, indexing="ij"), -1).reshape(-1, 3)
    psi = mode + grid @ factor.T
    likelihoods = np.array([likelihood.log_prob(p) for p in psi])
    for scale in scales:
        logs = likelihoods - 0.5 * ((psi / scale) ** 2).sum(1)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        mean = weights @ psi
        yield mean, (weights[:, None] * (psi - mean)).T @ (psi - mean)


def test_draws_have_the_pseudo_posterior_of_roots():
    weights = drawn_weights(np.random.default_rng(0), 60)
    prior = Normal(torch.zeros(3, dtype=torch.float64), 0.7).to_event(1)
    found = draw_root(TWO_COUNTS, STATES, FAMILY, prior, NUTSSettings(2, 250, 50), weights=weights, calibrate=False)
    assert found.status == "converged"
    likelihood = RootPseudoLikelihood(TWO_COUNTS, STATES, FAMILY, weights)
    laws = quadrature(likelihood, found.mode.numpy(), found.covariance.numpy(), (0.7, 0.2))
    (mean, covariance), (wrong, _) = laws
    draws, ess = found.psi.flatten(0, 1).numpy(), found.ess.numpy()
    limit = stats.norm.isf(FALSE_ALARM_RATE / 2 / 6)
    z = (draws.mean(0) - mean) / np.sqrt(np.diag(covariance) / np.minimum(ess, len(draws)))
    assert np.abs(z).max() < limit
    # Squares mix about as well as values here; a factor of 2 in their variance is granted.
    ratio = (draws.var(0) / np.diag(covariance) - 1) / np.sqrt(2 * 2 / np.minimum(ess, len(draws)))
    assert np.abs(ratio).max() < limit
    control = (draws.mean(0) - wrong) / np.sqrt(np.diag(covariance) / np.minimum(ess, len(draws)))
    assert np.abs(control).max() > limit  # control: another prior


@pytest.mark.parametrize("kind", ["log-linear", "roots"])
def test_calibrated_covariance_is_that_of_repeated_sampling(kind):
    rng = np.random.default_rng(1)
    if kind == "roots":
        num_sets, size, num_tests = 200, 3, 1
        likelihoods = [
            RootPseudoLikelihood(TWO_COUNTS, STATES, FAMILY, drawn_weights(rng, 400)) for _ in range(num_sets)
        ]
    else:
        graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 3]), 2)
        probs, num_sets = rng.dirichlet(np.full(12, 5.0)), 150
        size = num_tests = graph.num_parameters
        tables = [rng.multinomial(2000, probs).reshape(2, 2, 3) for _ in range(num_sets)]
        likelihoods = [LogLinearPseudoLikelihood(graph, Observations.from_table(graph.domain, t)) for t in tables]
    prior, precision = Normal(torch.zeros(size, dtype=torch.float64), 1e3).to_event(1), np.full(size, 1e-6)
    estimates, variances = [], {"none": [], "curvature": []}
    for likelihood in likelihoods:
        mode, is_mode = find_mode(likelihood, prior, np.zeros(size))
        assert is_mode
        estimates.append(mode)
        for how, diagonals in variances.items():
            diagonals.append(np.diag(calibrated_covariance(likelihood, mode, precision, how)))
    estimates = np.array(estimates)
    # Sums of squared deviations in units of their variance are chi-squared.
    squares = ((estimates - estimates.mean(0)) ** 2).sum(0)
    low, high = stats.chi2(num_sets - 1).interval(1 - FALSE_ALARM_RATE / num_tests)
    calibrated = squares / np.mean(variances["curvature"], 0)
    assert low < calibrated.min() < calibrated.max() < high
    plain = squares / np.mean(variances["none"], 0)
    assert (plain[2] if kind == "roots" else plain.max()) > high  # control: without calibration it is too narrow
    if kind == "roots":
        error = np.abs(estimates.mean(0) - PLANTED.numpy()) / (estimates.std(0) / np.sqrt(num_sets))
        bias = 0.1 * np.sqrt(num_sets)  # of 400 rows: granted a tenth of the spread
        assert error.max() < stats.norm.isf(FALSE_ALARM_RATE / 2 / 3) + bias


@unjudged
@pytest.mark.parametrize("kind", ["log-linear", "roots"])
def test_a_seed_gives_the_same_draws_and_leaves_global_generators_alone(kind):
    def drawn(seed):
        if kind == "roots":
            return draw_root(TWO_COUNTS, STATES, FAMILY, settings=NUTSSettings(2, 6, 6), seed=seed).psi
        return draw(FULL, DATA, 1.0, SHORT, seed=seed).theta

    before = torch.get_rng_state()
    one = drawn(1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert torch.equal(one, drawn(1)) and not torch.equal(one, drawn(2))


def test_the_potential_is_that_of_the_program():
    likelihood = RootPseudoLikelihood(TWO_COUNTS, STATES, FAMILY, drawn_weights(np.random.default_rng(7), 50))
    prior = Normal(torch.zeros(3, dtype=torch.float64), 0.7).to_event(1)
    program = pyro.poutine.condition(root_pseudo_model, {"psi": PLANTED})
    joint = pyro.poutine.trace(program).get_trace(prior, likelihood).log_prob_sum()
    assert float(joint) == pytest.approx(float(prior.log_prob(PLANTED)) + likelihood.log_prob(PLANTED), abs=1e-12)
    options = {"num_draws": 30, "burn_in": 0, "num_chains": 1, "seed": 3, "progress": False}
    kernel = RecordingNUTS(root_pseudo_model, step_size=0.1, adapt_step_size=False, adapt_mass_matrix=False)
    known = PotentialNUTS(
        root_pseudo_model,
        lambda values: -(prior.log_prob(values["psi"]) + likelihood(values["psi"])),
        step_size=0.1,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    one, other = (run_mcmc(k, model_args=(prior, likelihood), **options) for k in (kernel, known))
    torch.testing.assert_close(one.samples["psi"], other.samples["psi"], rtol=1e-8, atol=1e-8)


@unjudged
def test_calibration_moves_draws_as_stated():
    weights = drawn_weights(np.random.default_rng(2), 300)
    options = {"weights": weights, "settings": NUTSSettings(2, 20, 20), "seed": 4}
    plain = draw_root(TWO_COUNTS, STATES, FAMILY, calibrate=False, **options)
    moved = draw_root(TWO_COUNTS, STATES, FAMILY, **options)
    torch.testing.assert_close(plain.mode, moved.mode, rtol=0, atol=0)
    a, b = plain.covariance.numpy(), moved.covariance.numpy()
    np.testing.assert_array_equal(moved.plain_covariance, a)
    move = transport(a, b)
    spread = np.sqrt(np.diag(a))
    inside = move / spread[:, None] * spread
    np.testing.assert_allclose(inside, inside.T, atol=1e-10)
    np.testing.assert_allclose(move @ a @ move.T, b, rtol=1e-8)
    assert linalg.eigvalsh(inside).min() > 0
    expected = plain.mode + (plain.psi - plain.mode) @ torch.from_numpy(move).T
    torch.testing.assert_close(moved.psi, expected, rtol=1e-12, atol=1e-12)
    assert (moved.is_calibrated, plain.is_calibrated) == (True, False)
    assert moved.is_exact is plain.is_exact is False
    assert not moved.run.sample_stats["is_exact"].any()
    assert float(moved.psi[..., 2].std()) > 1.1 * float(plain.psi[..., 2].std())


@unjudged
@pytest.mark.parametrize(("family", "order"), [(ExponentialFamily(), 2), (GaussianFamily(), 2), (PoissonFamily(), 3)])
def test_other_families(family, order):
    rng = np.random.default_rng(3)
    domain = Domain([Variable(name, kind=family.kind) for name in "abc"])
    tuples = [("a", "b"), ("a", "b", "c")][: order - 1]
    structure = RootStructure.simplified(domain, tuples)
    drawn = rng.gamma(2.0, 1.0, (60, 3)) if family.kind != "count" else rng.poisson(2.0, (60, 3))
    rows = torch.from_numpy(drawn).double()
    found = draw_root(structure, rows, family, settings=NUTSSettings(2, 5, 10))
    assert (found.psi.shape, found.energy.batch_shape) == ((2, 5, structure.num_terms), (2, 5))
    assert bool(torch.isfinite(found.psi).all())
    likelihood = RootPseudoLikelihood(structure, rows, family)
    slope = likelihood.gradient(found.mode.numpy()) - found.mode.numpy() * (structure.multiplicity.numpy() / 3.0) ** 2
    assert np.abs(slope).max() < 1e-3 * np.sqrt(np.abs(np.diag(likelihood.hessian(found.mode.numpy())))).max()


@unjudged
def test_names_and_arviz():
    structure = RootStructure.complete(TWO_COUNTS.domain, 2)
    rows = torch.from_numpy(np.random.default_rng(5).integers(0, 4, (80, 2))).double()
    found = draw_root(structure, rows, FAMILY, settings=NUTSSettings(2, 20, 20))
    assert found.term_names == ["a", "b", "a^(1/2)", "b^(1/2)", "a:b"]
    torch.testing.assert_close(found.coefficients[..., -1], 2 * found.psi[..., -1])
    data = to_arviz(found.run, names=ArvizNames({"psi": ["term"]}, {"term": found.term_names}))
    assert data["posterior"]["psi"].sel(term="a:b").shape == (2, 20)
    assert repr(found).endswith(f"calibrated, {found.status})")
    assert found.num_lawless == 0


def test_a_run_that_is_too_short_says_so():
    rows = torch.from_numpy(np.random.default_rng(6).integers(0, 4, (50, 2))).double()
    settings = NUTSSettings(4, 40, 0, target_accept=0.99, max_tree_depth=1)
    with pytest.warns(ConvergenceWarning, match="R-hat"):
        found = draw_root(TWO_COUNTS, rows, FAMILY, settings=settings)
    assert found.status == "unconverged"


def test_units_of_the_columns_do_not_matter():
    rng = np.random.default_rng(8)
    rows = rng.multivariate_normal([1.0, 2.0], [[1.0, 0.6], [0.6, 1.0]], 300)
    structure = RootStructure.complete(Domain([Variable(name, kind="real") for name in "ab"]), 2)
    family, found = GaussianFamily(), []
    for unit in (1.0, 1e4):
        scaled = torch.from_numpy(rows * [1.0, unit])
        likelihood = RootPseudoLikelihood(structure, scaled, family)
        units = np.array([unit ** -(2.0 / root * list(names).count("b")) for (root, _), names in structure.names])
        prior = Normal(torch.zeros(5, dtype=torch.float64), torch.from_numpy(3.0 * units)).to_event(1)
        start = root_posterior._independent(likelihood, scaled)
        mode, is_mode = find_mode(likelihood, prior, start)
        assert is_mode
        calibrated = calibrated_covariance(likelihood, mode, (3.0 * units) ** -2)
        found.append((mode / units, calibrated / units[:, None] / units))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-4)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-3)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_without_rows_the_calibrated_draws_are_those_of_the_prior(is_weighted):
    """From no rows and from rows of weight zero: there is no score that could vary."""
    prior = Normal(torch.tensor([0.5, -1.0, 0.2]), torch.tensor([0.1, 1.0, 2.0])).to_event(1)
    rows, weights = (STATES, torch.zeros(len(STATES))) if is_weighted else (STATES[:0], None)
    found = draw_root(TWO_COUNTS, rows, FAMILY, prior, NUTSSettings(2, 60, 40), weights=weights, seed=1)
    torch.testing.assert_close(found.mode, prior.mean.double(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.covariance, prior.stddev.double().square().diag(), rtol=1e-6, atol=1e-9)
    limit = stats.norm.isf(FALSE_ALARM_RATE / 2 / 3) / np.sqrt(float(found.ess.min()))
    away = ((found.psi.mean((0, 1)) - prior.mean) / prior.stddev).abs()
    assert float(away.max()) < limit < 1  # a mean that is a standard deviation off is told apart


def test_calibrated_draws_without_a_law_are_counted():
    rows = torch.tensor([0.1] * 5 + [0.2] * 5 + [9.0, 12.0], dtype=torch.float64)[:, None]
    structure = RootStructure.independent(Domain([Variable("a", kind="positive")]))
    with pytest.warns(ConvergenceWarning) as told:  # a divergent transition is reported beside it
        found = draw_root(structure, rows, ExponentialFamily(), settings=NUTSSettings(2, 120, 50))
    assert any("of 240 calibrated draws are where the conditional" in str(warning.message) for warning in told)
    assert found.num_lawless == int((found.psi >= 0).sum()) > 0


POSITIVE = Domain([Variable(name, kind="positive") for name in "ab"])
PAIRS_ONLY = RootStructure.simplified(POSITIVE, [("a", "b")]).without({(1, 1): [("a",)]})
REALS = {"structure": PAIRS_ONLY, "rows": STATES + 1.0, "family": ExponentialFamily(), "calibrate": False}


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"rows": STATES[:2]}, "conflict", "calibrate"),
        ({"prior": 0}, "out-of-range", "prior"),
        ({"prior": torch.distributions.Gamma(torch.ones(3), 1.0)}, "wrong-type", "prior"),
        ({"prior": Normal(torch.zeros(2), 1.0).to_event(1)}, "wrong-shape", "prior"),
        ({"settings": {}}, "wrong-type", "settings"),
        ({"calibrate": "yes"}, "wrong-type", "calibrate"),
        ({"rows": STATES - 1}, "out-of-range", "rows"),
        ({"structure": RootStructure(TWO_COUNTS.domain, {})}, "out-of-range", "structure"),
        (REALS, "not-normalizable", None),
    ],
)
def test_wrong_input(options, code, argument):
    with raises(code, argument):
        draw_root(**{"structure": TWO_COUNTS, "rows": STATES, "family": FAMILY, **options})


def test_a_column_without_a_law_is_named():
    with pytest.raises(InputError, match="conditional of 'a' given the rest"):
        draw_root(**REALS)


# Dirichlet leaves of dependency networks


THREE = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
GRAPHS = (
    DecisionGraph(THREE, "a").split(0, "b").merge(0, 2),
    DecisionGraph(THREE, "b").split(0, "c").split(1, "a"),
    DecisionGraph(THREE, "c"),
)


def network(graphs=GRAPHS):
    """Uniform tables over the graphs."""
    sizes = [(g.num_leaves, g.domain[g.variable].cardinality) for g in graphs]
    tables = [torch.full(size, 1 / size[1], dtype=torch.float64) for size in sizes]
    return DependencyConditionals(map(LeafConditional, graphs, tables))


def table(seed=3):
    return Observations.from_table(THREE, np.random.default_rng(seed).poisson(2.0, (2, 3, 2)).astype(float))


def moment_scores(posterior, means, variances):
    """Largest score of the draws' means and of their mean squares about the means."""
    worst = 0.0
    for name, value in posterior.get_samples().items():
        mean, variance = means[name], variances[name]
        squared = (value - mean).square()
        for found, wanted, spread in ((value, mean, value.std(0)), (squared, variance, squared.std(0))):
            worst = max(worst, float(((found.mean(0) - wanted).abs() / (spread / math.sqrt(len(value)))).max()))
    return worst


def z_limit(num_numbers):
    return float(stats.norm.isf(FALSE_ALARM_RATE / 2 / num_numbers))


def test_draws_have_the_moments_that_a_grid_over_the_pseudo_likelihood_has():
    """Numerical integration of prior times product of conditionals; rows told of the wrong leaf are found out."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    graphs = DecisionGraph(domain, "a").split(0, "b"), DecisionGraph(domain, "b")
    data = Observations.from_table(domain, [[3.0, 1.0], [2.0, 5.0]])
    grid = torch.linspace(0, 1, 202, dtype=torch.float64)[1:-1]
    alpha = 1.7
    states = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    counts = torch.tensor([3.0, 1.0, 2.0, 5.0], dtype=torch.float64)
    means, variances = {}, {}
    fair = torch.full((2, 2), 0.5, dtype=torch.float64)
    for name, leaf in (("a", 0), ("a", 1), ("b", 0)):
        weights = torch.empty_like(grid)
        for k, share in enumerate(grid):
            nodes = [LeafConditional(graphs[0], fair), LeafConditional(graphs[1], fair[:1])]
            i = domain.index(name)
            probs = nodes[i].probs.clone()
            probs[leaf] = torch.stack([share, 1 - share])
            nodes[i] = nodes[i].with_probs(probs)
            likelihood = (counts * DependencyConditionals(nodes).log_pseudo_prob(states)).sum()
            weights[k] = likelihood + (alpha / 2 - 1) * (share.log() + (1 - share).log())
        weights = weights.softmax(0)
        mean = (weights * grid).sum()
        variance = (weights * (grid - mean).square()).sum()
        means.setdefault(name, []).append(torch.stack([mean, 1 - mean]))
        variances.setdefault(name, []).append(torch.stack([variance, variance]))
    means = {name: torch.stack(value) for name, value in means.items()}
    variances = {name: torch.stack(value) for name, value in variances.items()}
    found = sample_network_posterior(network(graphs), data, alpha, num_draws=5000, seed=1)
    for name in domain.names:
        assert_close(found.means[name], means[name], relative=2e-3)
        assert_close(found.variances[name], variances[name], relative=2e-3)
    assert moment_scores(found, found.means, found.variances) < z_limit(12)
    turned = {name: value.flip(0) for name, value in found.means.items()}
    assert moment_scores(found, turned, found.variances) > z_limit(12)
    assert moment_scores(found, found.means, {name: 1.2 * value for name, value in found.variances.items()}) > z_limit(
        12
    )


def test_draws_are_dirichlet_with_the_counts_of_the_leaves():
    """Closed form from counts by hand, and the marginal beta laws by Kolmogorov and Smirnov's test."""
    data = table()
    found = sample_network_posterior(network(), data, 2.0, num_draws=2000, num_chains=2, seed=5)
    assert found.is_exact
    counts = {
        graph.variable: torch.zeros(graph.num_leaves, THREE[graph.variable].cardinality, dtype=torch.float64)
        for graph in GRAPHS
    }
    for row, count in zip(data.codes, data.counts, strict=True):
        for graph in GRAPHS:
            counts[graph.variable][int(graph.leaves(row)), int(row[THREE.index(graph.variable)])] += count
    for name, value in counts.items():
        assert_close(found.concentrations[name], value + 2.0 / value.shape[1])
        assert_close(found.draws[name].sum(-1), torch.ones(found.draws[name].shape[:-1]), relative=1e-12)
        assert_close(found.conditionals.node(name).probs, found.means[name])
    concentration, draws = found.concentrations["b"], found.get_samples()["b"]
    shape = concentration[1, 2].item(), (concentration[1].sum() - concentration[1, 2]).item()
    assert stats.kstest(draws[:, 1, 2].numpy(), stats.beta(*shape).cdf).pvalue > FALSE_ALARM_RATE
    assert stats.kstest(draws[:, 1, 2].numpy(), stats.beta(shape[0] + 2, shape[1]).cdf).pvalue < FALSE_ALARM_RATE
    by_chain = found.get_samples(group_by_chain=True)["b"]
    assert by_chain.shape == (2, 2000, 3, 3)
    assert torch.equal(by_chain.flatten(0, 1), draws)


def test_seeds_fix_the_draws_and_leave_the_global_generator_alone():
    state = torch.random.get_rng_state()
    first, second, third = (sample_network_posterior(network(), table(), num_draws=5, seed=s).draws for s in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["a"], third["a"])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_without_rows_the_draws_are_those_of_the_prior():
    """Also with a prior so weak that a gamma of its shape is often below the least double."""
    none = Observations(THREE, torch.zeros(0, 3, dtype=torch.long))
    for alpha in (1e-300, 1e300):
        draws = sample_network_posterior(network(), none, alpha, num_draws=5).draws
        assert all(bool((value.sum(-1) - 1).abs().max() < 1e-12) for value in draws.values())
    for alpha in (3.0, 1e-3):
        found = sample_network_posterior(network(), none, alpha, seed=2)
        assert torch.equal(found.concentrations["a"], torch.full((2, 2), alpha / 2, dtype=torch.float64))
        assert all(bool(torch.isfinite(value).all()) for value in found.draws.values())
        assert moment_scores(found, found.means, found.variances) < z_limit(2 * (4 + 9 + 2))


def test_a_variable_of_one_level_has_probability_one():
    domain = Domain.from_cardinalities({"a": 1, "b": 2})
    graphs = DecisionGraph(domain, "a").split(0, "b"), DecisionGraph(domain, "b").split(0, "a")
    found = sample_network_posterior(network(graphs), Observations(domain, torch.tensor([[0, 1]])), num_draws=3)
    assert torch.equal(found.draws["a"], torch.ones(4, 3, 2, 1, dtype=torch.float64))


def test_learned_networks_keep_their_prior_and_their_tables():
    data = load_table("czech_autoworkers")
    learned = learn_network(data, alpha=4.0)
    found = sample_network_posterior(learned, data, num_draws=10)
    assert found.alpha == 4.0
    for node, counts in zip(learned.conditionals.nodes, learned.counts, strict=True):
        assert_close(found.means[node.variable], node.probs)
        assert_close(found.concentrations[node.variable], counts + 4.0 / counts.shape[1])
    assert sample_network_posterior(learn_network(data, alpha=0.0), data, num_draws=1).alpha == 1.0
    law = stationary_law(found.network(7))
    assert_close(law.probs.sum(), 1.0)
    assert torch.equal(found.network(13).node("smoke").probs, found.draws["smoke"][1, 3])


def test_draws_open_in_arviz():
    found = sample_network_posterior(network(), table(), num_draws=6, num_chains=3)
    data = to_arviz(found)
    assert data.posterior["b"].shape == (3, 6, 3, 3)
    assert bool(data.sample_stats["is_exact"].all())
    assert np.array_equal(data.posterior["a"].values, found.draws["a"].numpy())


def test_rows_without_the_variable_are_left_out_and_rows_without_a_parent_refused():
    data = Observations(THREE, torch.tensor([[0, 1, -1], [1, 1, 1]]), torch.tensor([2.5, 1.0]))
    asks_nothing = network((DecisionGraph(THREE, "a").split(0, "b"), DecisionGraph(THREE, "b"), GRAPHS[2]))
    found = sample_network_posterior(asks_nothing, data, 2.0, num_draws=1)
    assert found.concentrations["c"].tolist() == [[1.0, 2.0]]
    assert found.concentrations["a"].tolist() == [[1.0, 1.0], [3.5, 2.0], [1.0, 1.0]]
    with raises("missing-cells", "data"):
        sample_network_posterior(network(), data)


def test_what_has_no_dirichlet_leaves_is_refused_with_what_is_possible():
    other = Domain.from_cardinalities({"a": 2, "b": 2})
    fair = torch.full((2, 2), 0.5)
    tables = DependencyConditionals(
        [TableConditional(other, "a", ["b"], fair), TableConditional(other, "b", ["a"], fair)]
    )
    with pytest.raises(InputError, match=r"TableConditional, whose posterior is not Dirichlet.*learn_network finds"):
        sample_network_posterior(tables, Observations(other, torch.tensor([[0, 1]])))
    with raises("other-domain", "data"):
        sample_network_posterior(network(), Observations(other, torch.tensor([[0, 1]])))
    for alpha in (0.0, -1.0, math.nan, 1e-308, 1e308):
        with raises("out-of-range", "alpha"):
            sample_network_posterior(network(), table(), alpha)
    with raises("out-of-range", "num_draws"):
        sample_network_posterior(network(), table(), num_draws=0)
    with pytest.raises(InputTypeError):
        sample_network_posterior(GRAPHS[0], table())
    with pytest.raises(InputTypeError):
        sample_network_posterior(network(), torch.zeros(2, 3))
    with raises("out-of-range", "draw"):
        sample_network_posterior(network(), table(), num_draws=2, num_chains=1).network(2)
