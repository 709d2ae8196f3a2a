"""Simulation-based calibration of the NUTS posterior of a log-linear model, and of `sample_posterior` as shipped.

The rank of a true value among thinned draws is uniform when prior, likelihood, gradient and sampler agree. Data sets
have 8 rows, so that a wrong prior shows as well as a missing interaction. First all data sets are members of one plate,
2,000 with 99 draws each: over four seeds the smallest p value of the scale control was between 1e-40 and 1e-21, where
1.2e-7 is significant; of the dropped interaction 1,000 with 19 draws show enough (9e-63). One calibration is one
assertion at FALSE_ALARM_RATE, split over its quantities; the exact tail of the multinomial statistic is 1.16 times the
chi-square one there, so the rate passed is divided by 1.2.
"""

import warnings

import pyro
import pytest
import torch
from pyro.infer import MCMC, NUTS

from pyro_hoim import ConvergenceWarning, DiaconisYlvisaker, Domain, InteractionHypergraph, sample_posterior
from pyro_hoim.inference import NUTSSettings
from pyro_hoim.log_linear import LogLinearStatistics, normal_prior
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_uniform_ranks

from support.ranks import rank_test_rate

REPLICATIONS = 2000
DRAWS = 99
THINNING = 3
WARMUP = 100
ROWS = 8
RATE = FALSE_ALARM_RATE / 1.2
PAIRS = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}), 2)


def ranks(fitted, scale, seed, replications=REPLICATIONS, num_draws=DRAWS):
    """Ranks (replications, parameters of the fitted model + 1) and their names; data come from PAIRS and scale 1."""
    pyro.set_rng_seed(seed)
    true = normal_prior(PAIRS, 1.0, dtype=torch.float64).sample((replications,))
    simulator = LogLinearStatistics(PAIRS, true, ROWS)
    counts = simulator.sample()
    kept = torch.cat([torch.arange(part.start, part.stop) for e, part in PAIRS.term_slices.items() if e in fitted])
    data = counts[:, kept]
    prior = normal_prior(fitted, scale, dtype=torch.float64)

    def model():
        with pyro.plate("replications", replications):
            theta = pyro.sample("theta", prior)
            pyro.sample("counts", LogLinearStatistics(fitted, theta, ROWS), obs=data)

    mcmc = MCMC(
        NUTS(model, max_tree_depth=6, target_accept_prob=0.65, jit_compile=True, ignore_jit_warnings=True),
        num_samples=num_draws * THINNING,
        warmup_steps=WARMUP,
        initial_params={"theta": torch.zeros(replications, fitted.num_parameters, dtype=torch.float64)},
        disable_progbar=True,
    )
    mcmc.run()
    draws = mcmc.get_samples()["theta"][THINNING - 1 :: THINNING]
    assert draws.shape == (num_draws, replications, fitted.num_parameters)
    centred = draws - draws.mean(0)
    lag_one = (centred[1:] * centred[:-1]).mean(0) / centred.square().mean(0)
    # An independent series of n draws has a mean of -1/n here; the average over so many series is precise to 0.02.
    assert float((lag_one.mean(0) + 1 / num_draws).abs().max()) < 0.1
    target = torch.cat([true[:, part] for e, part in PAIRS.parameter_slices.items() if e in fitted], -1)
    likelihood = LogLinearStatistics(fitted, draws, ROWS).log_prob(data)
    below = torch.cat([(draws < target).sum(0), (likelihood < simulator.log_prob(counts)).sum(0)[:, None]], -1)
    return below, [":".join(edge) for edge in fitted.edges] + ["log-likelihood"]


@pytest.mark.slow
def test_posterior_is_calibrated():
    below, names = ranks(PAIRS, 1.0, seed=1)
    result = assert_uniform_ranks(below, DRAWS, num_bins=20, alpha=RATE, names=names)
    assert below.shape == (2000, 7) and len(result) == 7


@pytest.mark.slow
def test_control_prior_scale_off_by_20_per_cent():
    below, names = ranks(PAIRS, 0.8, seed=2)
    with pytest.raises(AssertionError, match="not uniform"):
        assert_uniform_ranks(below, DRAWS, num_bins=20, alpha=RATE, names=names)


def test_control_one_interaction_dropped():
    below, names = ranks(PAIRS.remove_edges([("a", "b")]), 1.0, seed=3, replications=500, num_draws=19)
    with pytest.raises(AssertionError, match=r"log-likelihood.*not uniform"):
        assert_uniform_ranks(below, 19, num_bins=20, alpha=RATE, names=names)


# The posterior as shipped: each data set is one call, with 30 transitions of warm-up and one chain of 99 draws that are
# not thinned, whose autocorrelation is bounded below. Of 200 calls 10 bins expect 20 each; the controls are a normal
# prior of a third of the scale and a conjugate one of nine times the size. RATIO makes up for the tail, as asserted.

CALLS = 200
BINS = 10
RATIO = 3.0
SHIPPED_RATE = FALSE_ALARM_RATE / RATIO
MODEL = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
NAMES = ["a", "b", "a:b", "log-likelihood"]


def prior_of(kind, factor):
    """A normal or conjugate prior, wider by about the factor than the one that data come from."""
    if kind == "normal":
        return normal_prior(MODEL, factor, dtype=torch.float64)
    return DiaconisYlvisaker.uniform(MODEL, 4.0 / factor**2, dtype=torch.float64)


def shipped_ranks(kind, factor, seed):
    """Ranks (replications, 4) of the truth under a prior that is wrong by a factor."""
    torch.manual_seed(seed)
    true = prior_of(kind, 1.0).sample((CALLS,))
    simulator = LogLinearStatistics(MODEL, true, ROWS)
    counts = simulator.sample()
    draws = []
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        # One short chain of 200 may be told apart from its other half, or meet one divergence; ranks count.
        for index in range(CALLS):
            result = sample_posterior(
                MODEL,
                counts[index],
                prior_of(kind, factor),
                total_count=ROWS,
                settings=NUTSSettings(num_draws=DRAWS, burn_in=30, num_chains=1),
                seed=1000 * seed + index,
                progress=False,
            )
            draws.append(result.theta[0])
    theta = torch.stack(draws, 1)
    centred = theta - theta.mean(0)
    lag_one = (centred[1:] * centred[:-1]).mean(0) / centred.square().mean(0)
    assert float(lag_one.mean(0).abs().max()) < 0.3
    likelihood = LogLinearStatistics(MODEL, theta, ROWS).log_prob(counts)
    return torch.cat([(theta < true).sum(0), (likelihood < simulator.log_prob(counts)).sum(0)[:, None]], -1)


def test_rate_of_the_rank_test():
    level = SHIPPED_RATE / len(NAMES)
    assert 1.0 < rank_test_rate(level, BINS, CALLS // BINS) / level < RATIO


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "conjugate"])
def test_shipped_posterior_is_calibrated(kind):
    result = assert_uniform_ranks(
        shipped_ranks(kind, 1.0, seed=1), DRAWS, num_bins=BINS, alpha=SHIPPED_RATE, names=NAMES
    )
    assert len(result) == 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "conjugate"])
def test_control_prior_too_narrow(kind):
    with pytest.raises(AssertionError, match="not uniform"):
        assert_uniform_ranks(shipped_ranks(kind, 1 / 3, seed=2), DRAWS, num_bins=BINS, alpha=SHIPPED_RATE, names=NAMES)
