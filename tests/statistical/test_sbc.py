"""Simulation-based calibration of the NUTS posterior of a log-linear model.

Three binary variables with all two-way interactions: six parameters. Data sets of 8 rows are simulated from the prior;
their posteriors are sampled together, as independent members of one plate, so that one run of NUTS makes one draw for
each. The rank of the true value among 99 thinned draws is uniform for every parameter and for the log-likelihood when
prior, likelihood, gradient and sampler agree.

Size. 8 rows leave the prior as much weight as the data, so that a wrong prior shows, and are enough to tell the missing
interaction. 2,000 replications, twice the customary 1,000, give every one of the 20 bins an expectation of 100, and
the power that is needed: over four seeds the smallest p value of the scale control was between 1e-40 and 1e-21, where
1.2e-7 is significant (with 1,000 replications and 6 to 8 rows it was between 6e-17 and 4e-9). That of the dropped
interaction was below 1e-89 over three seeds, so 1,000 replications with 19 draws each, 9e-63, are enough to show it:
that control is in every run of the tests, the others are slow. Thinning by 3 leaves autocorrelations of a few per
cent, which is asserted.

Error rate. One calibration is one assertion at FALSE_ALARM_RATE, split over its quantities. The exact tail of the
multinomial statistic (by convolution, 2,000 replications in 20 bins) at the nominal level 1e-6 / 7 is 1.16 times the
chi-square one, so the rate passed is divided by 1.2.
"""

import pyro
import pytest
import torch
from pyro.infer import MCMC, NUTS

from pyro_hoim import Domain, InteractionHypergraph, LogLinearStatistics, normal_prior
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_uniform_ranks

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
