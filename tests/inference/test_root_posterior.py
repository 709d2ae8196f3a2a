"""The pseudo-posterior of root models against quadrature, and its calibration against repeated sampling."""

import itertools
from functools import partial

import numpy as np
import pyro
import pytest
import torch
from pyro.distributions import Normal
from scipy import linalg, stats

from pyro_hoim.errors import ConvergenceWarning, InputError
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
    RecordingNUTS,
    root_posterior,
    root_pseudo_model,
    run_mcmc,
    sample_root_posterior,
)
from pyro_hoim.inference.calibration import calibrated_covariance, find_mode, transport
from pyro_hoim.inference.kernels import PotentialNUTS
from pyro_hoim.interop import ArvizNames, to_arviz
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

draw = partial(sample_root_posterior, progress=False)
unjudged = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
FAMILY = TruncatedPoissonFamily(3)
PAIR = RootStructure.simplified(Domain([Variable(name, kind="count") for name in "ab"]), [("a", "b")])
PLANTED = torch.tensor([-0.3, 0.2, 0.35], dtype=torch.float64)
STATES = torch.tensor(list(itertools.product(range(4), repeat=2)), dtype=torch.float64)


def state_probs(psi=PLANTED):
    return (-GeneralizedRootEnergy(PAIR, psi, FAMILY).energy(STATES)).softmax(0).numpy()


def drawn_weights(rng, num_rows):
    return torch.from_numpy(rng.multinomial(num_rows, state_probs())).double()


def quadrature(likelihood, mode, covariance, scales, points=19):
    """Means and covariances of pseudo-posteriors by the trapezoid rule on a box of 6 standard deviations.

    With steps of two thirds of a standard deviation the rule is off by exp(-2 pi^2 / (2 / 3)^2) of a normal law.
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


def test_draws_have_the_pseudo_posterior():
    weights = drawn_weights(np.random.default_rng(0), 60)
    prior = Normal(torch.zeros(3, dtype=torch.float64), 0.7).to_event(1)
    found = draw(PAIR, STATES, FAMILY, prior, NUTSSettings(2, 400, 60), weights=weights, calibrate=False)
    assert found.status == "converged"
    likelihood = RootPseudoLikelihood(PAIR, STATES, FAMILY, weights)
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


def test_calibrated_covariance_is_that_of_repeated_sampling():
    rng = np.random.default_rng(1)
    num_rows, num_sets = 400, 200
    prior = Normal(torch.zeros(3, dtype=torch.float64), 1e3).to_event(1)
    precision = np.full(3, 1e-6)
    estimates, calibrated, plain = [], [], []
    for _ in range(num_sets):
        likelihood = RootPseudoLikelihood(PAIR, STATES, FAMILY, drawn_weights(rng, num_rows))
        mode, is_mode = find_mode(likelihood, prior, np.zeros(3))
        assert is_mode
        estimates.append(mode)
        calibrated.append(calibrated_covariance(likelihood, mode, precision))
        plain.append(linalg.inv(-likelihood.hessian(mode)))
    estimates = np.array(estimates)
    deviations = estimates - estimates.mean(0)
    # The sum of squared deviations of the pair in units of its variance is chi-squared with 199 degrees of freedom.
    interval = stats.chi2(num_sets - 1).interval(1 - FALSE_ALARM_RATE)
    for index in range(3):
        total = (deviations[:, index] ** 2).sum() / np.mean([c[index, index] for c in calibrated])
        assert interval[0] < total < interval[1]
    control = (deviations[:, 2] ** 2).sum() / np.mean([c[2, 2] for c in plain])
    assert control > interval[1]  # control: the plain pseudo-posterior is too narrow
    error = np.abs(estimates.mean(0) - PLANTED.numpy()) / (estimates.std(0) / np.sqrt(num_sets))
    bias = 0.1 * np.sqrt(num_sets)  # of 400 rows: granted a tenth of the spread
    assert error.max() < stats.norm.isf(FALSE_ALARM_RATE / 2 / 3) + bias


def test_the_potential_is_that_of_the_program():
    likelihood = RootPseudoLikelihood(PAIR, STATES, FAMILY, drawn_weights(np.random.default_rng(7), 50))
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
    settings = NUTSSettings(2, 60, 40)
    options = {"weights": weights, "settings": settings, "seed": 4}
    plain = draw(PAIR, STATES, FAMILY, calibrate=False, **options)
    moved = draw(PAIR, STATES, FAMILY, **options)
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
def test_a_seed_gives_the_same_draws_and_leaves_global_generators_alone():
    settings = NUTSSettings(2, 20, 20)
    options = {"weights": torch.ones(16), "settings": settings}
    before = torch.get_rng_state()
    one = draw(PAIR, STATES, FAMILY, seed=1, **options)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = draw(PAIR, STATES, FAMILY, seed=1, **options)
    other = draw(PAIR, STATES, FAMILY, seed=2, **options)
    assert torch.equal(one.psi, again.psi)
    assert not torch.equal(one.psi, other.psi)


@unjudged
@pytest.mark.parametrize(("family", "order"), [(ExponentialFamily(), 2), (GaussianFamily(), 2), (PoissonFamily(), 3)])
def test_other_families(family, order):
    rng = np.random.default_rng(3)
    domain = Domain([Variable(name, kind=family.kind) for name in "abc"])
    tuples = [("a", "b"), ("a", "b", "c")][: order - 1]
    structure = RootStructure.simplified(domain, tuples)
    drawn = rng.gamma(2.0, 1.0, (60, 3)) if family.kind != "count" else rng.poisson(2.0, (60, 3))
    rows = torch.from_numpy(drawn).double()
    found = draw(structure, rows, family, settings=NUTSSettings(2, 5, 10))
    assert found.psi.shape == (2, 5, structure.num_terms)
    assert found.energy.batch_shape == (2, 5)
    assert bool(torch.isfinite(found.psi).all())
    likelihood = RootPseudoLikelihood(structure, rows, family)
    slope = likelihood.gradient(found.mode.numpy()) - found.mode.numpy() * (structure.multiplicity.numpy() / 3.0) ** 2
    assert np.abs(slope).max() < 1e-3 * np.sqrt(np.abs(np.diag(likelihood.hessian(found.mode.numpy())))).max()


@unjudged
def test_names_and_arviz():
    structure = RootStructure.complete(PAIR.domain, 2)
    rows = torch.from_numpy(np.random.default_rng(5).integers(0, 4, (80, 2))).double()
    found = draw(structure, rows, FAMILY, settings=NUTSSettings(2, 20, 20))
    assert found.term_names == ["a", "b", "a^(1/2)", "b^(1/2)", "a:b"]
    torch.testing.assert_close(found.coefficients[..., -1], 2 * found.psi[..., -1])
    data = to_arviz(found.run, names=ArvizNames({"psi": ["term"]}, {"term": found.term_names}))
    assert data["posterior"]["psi"].sel(term="a:b").shape == (2, 20)
    assert repr(found).endswith(f"calibrated, {found.status})")
    assert found.num_lawless == 0


def test_a_run_that_is_too_short_says_so():
    rows = torch.from_numpy(np.random.default_rng(6).integers(0, 4, (50, 2))).double()
    settings = NUTSSettings(2, 4, 0, max_tree_depth=1)
    with pytest.warns(ConvergenceWarning, match="R-hat"):
        found = draw(PAIR, rows, FAMILY, settings=settings)
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
    found = draw(PAIR, rows, FAMILY, prior, NUTSSettings(2, 100, 60), weights=weights, seed=1)
    torch.testing.assert_close(found.mode, prior.mean.double(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.covariance, prior.stddev.double().square().diag(), rtol=1e-6, atol=1e-9)
    limit = stats.norm.isf(FALSE_ALARM_RATE / 2 / 3) / np.sqrt(float(found.ess.min()))
    away = ((found.psi.mean((0, 1)) - prior.mean) / prior.stddev).abs()
    assert float(away.max()) < limit < 1  # a mean that is a standard deviation off is told apart


def test_calibrated_draws_without_a_law_are_counted():
    rows = torch.tensor([0.1] * 5 + [0.2] * 5 + [9.0, 12.0], dtype=torch.float64)[:, None]
    structure = RootStructure.independent(Domain([Variable("a", kind="positive")]))
    with pytest.warns(ConvergenceWarning) as told:  # a divergent transition is reported beside it
        found = draw(structure, rows, ExponentialFamily(), settings=NUTSSettings(2, 120, 50))
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
        ({"structure": RootStructure(PAIR.domain, {})}, "out-of-range", "structure"),
        (REALS, "not-normalizable", None),
    ],
)
def test_wrong_input(options, code, argument):
    with raises(code, argument):
        draw(**{"structure": PAIR, "rows": STATES, "family": FAMILY, **options})


def test_a_column_without_a_law_is_named():
    with pytest.raises(InputError, match="conditional of 'a' given the rest"):
        draw(**REALS)
