"""Simulation-based calibration of `sample_posterior` itself: its Laplace metric, overdispersed starts and kernel.

`test_sbc.py` calibrates Pyro's NUTS on the library's densities with many replications in one plate. Here every
replication is one call of the function that users call, on the saturated model of two binary variables (three
parameters) with a normal and with a conjugate prior: 8 rows are drawn given a theta from the prior, and the rank of the
true value is taken among 99 draws of one chain after 30 transitions of warm-up, all other settings as shipped.

Size and rate. A call takes 0.4 to 0.9 s, so there are 200 replications in 10 bins, 20 expected in each. The controls, a
normal prior of a third of the scale and a conjugate prior of nine times the sample size, show what is found; finer
faults are left to `test_sbc.py`. One calibration is one assertion at FALSE_ALARM_RATE, split over its four quantities;
the exact tail of the multinomial statistic at the nominal level is less than RATIO times the chi-square one (asserted
below), which the rate passed makes up for. Draws of a chain are not thinned: their autocorrelation, bounded below,
changes the law of a rank only by the noise of an empirical distribution function of 99 draws.
"""

import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim import ConvergenceWarning, Domain, InteractionHypergraph, sample_posterior
from pyro_hoim.inference import NUTSSettings
from pyro_hoim.log_linear import DiaconisYlvisaker, LogLinearStatistics, normal_prior
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_uniform_ranks

REPLICATIONS = 200
BINS = 10
DRAWS = 99
ROWS = 8
RATIO = 3.0
RATE = FALSE_ALARM_RATE / RATIO
MODEL = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
NAMES = ["a", "b", "a:b", "log-likelihood"]


def prior_of(kind, factor):
    """A normal or conjugate prior, wider by about the factor than the one that data come from."""
    if kind == "normal":
        return normal_prior(MODEL, factor, dtype=torch.float64)
    return DiaconisYlvisaker.uniform(MODEL, 4.0 / factor**2, dtype=torch.float64)


def ranks(kind, factor, seed):
    """Ranks (replications, 4) of the truth under a prior that is wrong by a factor."""
    torch.manual_seed(seed)
    true = prior_of(kind, 1.0).sample((REPLICATIONS,))
    simulator = LogLinearStatistics(MODEL, true, ROWS)
    counts = simulator.sample()
    draws = []
    with warnings.catch_warnings():
        # One short chain of 200 may be told apart from its other half, or meet one divergence; ranks are what counts.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for index in range(REPLICATIONS):
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
    """Exact law of the statistic: multinomial counts as Poisson ones given their sum, added up cell by cell."""
    expected = REPLICATIONS // BINS
    counts = np.arange(5 * expected)
    weights = stats.poisson.pmf(counts, expected)
    grid = np.zeros((512, 4096))  # sums of counts and of squares past these have no weight to speak of
    squares = (counts - expected) ** 2
    keep = squares < grid.shape[1]
    np.add.at(grid, (counts[keep], squares[keep]), weights[keep])
    law = np.fft.ifft2(np.fft.fft2(grid) ** BINS).real[REPLICATIONS]
    level = RATE / len(NAMES)
    critical = stats.chi2.isf(level, BINS - 1)
    rate = law[np.arange(len(law)) / expected >= critical].sum() / law.sum()
    assert 1.0 < rate / level < RATIO


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "conjugate"])
def test_shipped_posterior_is_calibrated(kind):
    result = assert_uniform_ranks(ranks(kind, 1.0, seed=1), DRAWS, num_bins=BINS, alpha=RATE, names=NAMES)
    assert len(result) == 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "conjugate"])
def test_control_prior_too_narrow(kind):
    with pytest.raises(AssertionError, match="not uniform"):
        assert_uniform_ranks(ranks(kind, 1 / 3, seed=2), DRAWS, num_bins=BINS, alpha=RATE, names=NAMES)
