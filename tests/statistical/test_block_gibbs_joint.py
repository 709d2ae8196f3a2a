r"""Joint-distribution test of the block Gibbs kernel in its i.i.d. form.

Draw theta from its prior and x from its law given theta, exactly; hold theta and make one transition of the kernel.
If every transition leaves the law given *its own* theta invariant, (theta, x) has the same joint law as before, which
is known: theta = s D with s uniform on an interval, so the probability of (bin of s, x) is an integral over one
number, done by Gauss-Legendre quadrature of laws from enumeration. Replications are independent, a row of a batch each.

References:
    John Geweke, Getting it right: joint distribution tests of posterior simulators, JASA 99, 2004, section 2.
"""

import itertools
from functools import cache

import numpy as np
import pyro
import pytest
import torch

from pyro_hoim import BlockGibbs, Domain, HierarchicalLogLinear, InteractionHypergraph
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import assert_exact_law, enumerate_codes, exact_table, random_tables, required_draws

HYPERGRAPH = InteractionHypergraph(Domain.from_cardinalities([2, 3, 2]), [["x0", "x1"], ["x1", "x2"]], closure=True)
STATES = enumerate_codes(HYPERGRAPH.domain.cardinalities)
DIRECTION = random_tables(HYPERGRAPH, np.random.default_rng(11))
LOW, HIGH, NUM_BINS = -0.5, 2.0, 5
NUM_CELLS = NUM_BINS * len(STATES)
SCHEDULES = {
    "sites": GibbsSchedule(),
    "colours": GibbsSchedule("colours"),
    "interactions": GibbsSchedule("interactions"),
    "random": GibbsSchedule("interactions", scan="random"),
}


def laws(scale):
    """Probabilities (n, states) of the laws with tables s D, by enumeration."""
    return np.exp(exact_table(HYPERGRAPH, scale[:, None] * DIRECTION)).reshape(len(scale), -1)


@cache
def joint_law():
    """Probability of (bin of s, x), flat."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(LOW, HIGH, NUM_BINS + 1)
    rows = []
    for low, high in itertools.pairwise(edges):
        rows.append(weights @ laws(low + (high - low) * (nodes + 1) / 2) / 2 / NUM_BINS)
    return np.concatenate(rows)


@cache
def replications(seed, size):
    """Parameters s (R,) from the prior and states (R,) from their laws."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(LOW, HIGH, size)
    total = laws(scale).cumsum(-1)
    states = (total <= rng.random((size, 1)) * total[:, -1:]).sum(-1)
    return scale, np.minimum(states, len(STATES) - 1)


def transition(scale, states, schedule, seed):
    """States after one transition of the kernel under the laws of the parameters given to it."""
    law = HierarchicalLogLinear.from_tables(HYPERGRAPH, torch.from_numpy(scale[:, None] * DIRECTION))
    kernel = BlockGibbs(law, schedule=SCHEDULES[schedule], engine="torch")
    pyro.set_rng_seed(seed)
    kernel.initial_params = {"x": torch.from_numpy(STATES[states])}
    kernel.setup(0)
    codes = kernel.decode(kernel.sample(kernel.initial_params))["x"].numpy()
    return np.ravel_multi_index(tuple(codes.T), HYPERGRAPH.domain.cardinalities)


def counts_of(scale, states):
    bins = np.minimum(((scale - LOW) / (HIGH - LOW) * NUM_BINS).astype(int), NUM_BINS - 1)
    return np.bincount(bins * len(STATES) + states, minlength=NUM_CELLS)


SIZE = required_draws(NUM_CELLS, 0.02)


def test_the_exact_draws_follow_the_joint_law():
    assert_exact_law(counts_of(*replications(1, SIZE)), joint_law())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_transition_keeps_the_joint_law_and_one_with_stale_parameters_does_not(schedule):
    scale, states = replications(2, SIZE)
    after = transition(scale, states, schedule, 3)
    assert (after != states).mean() > 0.3
    assert_exact_law(counts_of(scale, after), joint_law(), what=schedule)
    stale = np.roll(scale, 1)  # each replication runs under the parameters of its neighbour
    with pytest.raises(AssertionError):
        assert_exact_law(counts_of(scale, transition(stale, states, schedule, 3)), joint_law())


@pytest.mark.parametrize("factor", [0.85, 1.2])
def test_a_kernel_at_another_temperature_fails(factor):
    scale, states = replications(2, SIZE)
    with pytest.raises(AssertionError):
        assert_exact_law(counts_of(scale, transition(factor * scale, states, "interactions", 3)), joint_law())


@pytest.mark.slow
def test_a_kernel_five_percent_too_cold_fails():
    size = required_draws(NUM_CELLS, 0.005)
    scale, states = replications(4, size)
    after = transition(scale, states, "interactions", 5)
    assert_exact_law(counts_of(scale, after), joint_law())
    with pytest.raises(AssertionError):
        assert_exact_law(counts_of(scale, transition(1.05 * scale, states, "interactions", 5)), joint_law())
