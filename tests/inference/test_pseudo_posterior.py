"""The pseudo-posterior of theta against quadrature, the exact posterior and repeated sampling, and its calibration."""

from functools import partial

import numpy as np
import pyro
import pytest
import torch
from pyro.distributions import Normal, StudentT
from scipy import linalg, stats

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.inference import NUTSSettings, PseudoPosterior, pseudo_model, sample_posterior, sample_pseudo_posterior
from pyro_hoim.inference.calibration import calibrated_covariance, find_mode, transport
from pyro_hoim.interop import to_arviz
from pyro_hoim.log_linear import (
    DiaconisYlvisaker,
    Enumeration,
    LogLinearPseudoLikelihood,
    normal_prior,
    statistics_of,
    unit_information_prior,
)
from pyro_hoim.log_linear.laws.natural_parameters import fisher_information, solve_natural_parameters
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

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


def test_calibrated_covariance_is_that_of_repeated_sampling():
    rng = np.random.default_rng(1)
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 3]), 2)
    logits = np.log(rng.dirichlet(np.full(12, 5.0)))
    probs, num_sets = np.exp(logits - np.logaddexp.reduce(logits)), 150
    prior = normal_prior(hypergraph, 1e3, dtype=torch.float64)
    estimates, found = [], {"none": [], "curvature": []}
    for _ in range(num_sets):
        data = Observations.from_table(hypergraph.domain, rng.multinomial(2000, probs).reshape(2, 2, 3))
        likelihood = LogLinearPseudoLikelihood(hypergraph, data)
        mode, is_mode = find_mode(likelihood, prior, np.zeros(hypergraph.num_parameters))
        assert is_mode
        estimates.append(mode)
        for how, covariances in found.items():
            covariances.append(np.diag(calibrated_covariance(likelihood, mode, np.full(len(mode), 1e-6), how)))
    squares = ((np.array(estimates) - np.mean(estimates, 0)) ** 2).sum(0)
    low, high = stats.chi2(num_sets - 1).interval(1 - FALSE_ALARM_RATE / hypergraph.num_parameters)
    calibrated = squares / np.mean(found["curvature"], 0)
    assert low < calibrated.min() < calibrated.max() < high
    assert (squares / np.mean(found["none"], 0)).max() > high  # control: without calibration


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
def test_a_seed_gives_the_same_draws_and_leaves_global_generators_alone():
    before = torch.get_rng_state()
    one = draw(FULL, DATA, 1.0, SHORT, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again, other = (draw(FULL, DATA, 1.0, SHORT, seed=seed) for seed in (1, 2))
    assert torch.equal(one.theta, again.theta)
    assert not torch.equal(one.theta, other.theta)


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
