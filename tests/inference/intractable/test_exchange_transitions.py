"""Transition matrices of the exchange kernels on a grid of theta, every auxiliary data set enumerated.

The kernel itself computes the acceptances: its proposals and its auxiliary data are replaced by all that can be drawn,
one combination per chain, and weighted by what their probabilities are.
"""

import itertools
import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_hoim.inference import Exchange, NoisyExchange
from pyro_hoim.log_linear import HierarchicalLogLinear, LogLinearStatistics
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, assert_stationary, total_variation_bound

LEVEL = InteractionHypergraph.from_order(Domain.from_cardinalities([3]), 1)
GRID = torch.tensor([-1.2, -0.5, 0.1, 0.8, 1.7], dtype=torch.float64)
DIRECTION = torch.tensor([0.9, -0.6], dtype=torch.float64)
SEEN = torch.tensor(0.7, dtype=torch.float64)
NUM_ROWS = 2
OBSERVED = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)


def program():
    """One parameter of one variable with three levels, two rows, and a normal observation beside them."""
    strength = pyro.sample("strength", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
    law = LogLinearStatistics(LEVEL, strength.unsqueeze(-1) * DIRECTION, NUM_ROWS)
    pyro.sample("counts", law, obs=OBSERVED)
    pyro.sample("y", dist.Normal(strength, 2.0), obs=SEEN)


def log_levels(strength):
    """Log-probabilities of the three levels, (..., 3), from the definition of the law."""
    law = HierarchicalLogLinear(LEVEL, strength.unsqueeze(-1) * DIRECTION)
    states = torch.arange(3).unsqueeze(-1)
    energy = torch.stack([-law.energy(state) for state in states], -1)
    return energy - energy.logsumexp(-1, keepdim=True)


def posterior():
    """Posterior on the grid."""
    log_density = dist.Normal(0.0, 1.0).log_prob(GRID) + dist.Normal(GRID, 2.0).log_prob(SEEN)
    log_density = log_density + (log_levels(GRID) * OBSERVED).sum(-1)
    return torch.softmax(log_density, 0).numpy()


TABLES = list(itertools.product(range(3), repeat=NUM_ROWS))
"""All ordered data sets of two rows."""


class _Given:
    """A proposal that goes where it is told."""

    def __init__(self, targets):
        self._targets = targets
        self.scale = 1.0

    def propose(self, vectors):
        return self._targets.unsqueeze(-1), torch.zeros(len(vectors), dtype=torch.float64)


def acceptances(kernel, here, there, drawn):
    """Acceptance of every combination; drawn are statistics in the order in which the kernel asks for them."""
    kernel = kernel.with_chains(len(here))
    kernel.setup(0)
    chain = kernel._set_up()
    (auxiliary,) = chain.auxiliary.values()
    auxiliary._site.draw = lambda natural, total: drawn.reshape(natural.shape)
    kernel._chain = chain._replace(walk=_Given(there))
    kernel.sample({"strength": here})
    found = kernel.diagnostics()["sample_stats"]["acceptance_rate"]
    return torch.tensor(found, dtype=torch.float64).reshape(-1)


def set_up(kernel):
    """The chain of a kernel."""
    kernel = kernel.with_chains(1)
    kernel.setup(0)
    return kernel._set_up()


def statistics(kernel):
    """Statistics of every ordered data set, (9, 2), by the site of the kernel."""
    (site,) = set_up(kernel).program.sites.values()
    counts = torch.stack([torch.bincount(torch.tensor(rows), minlength=3) for rows in TABLES])
    return site._coded(counts.double())


def transition(kernel, num_draws, *, source="proposal"):
    """Matrix of uniform proposals on the grid with data sets at the laws of the path; ``num_draws`` of them in all.

    ``source``: where the first data set is drawn, at the proposal or, which is wrong, at the present value.
    """
    pairs = [(i, j) for i in range(len(GRID)) for j in range(len(GRID)) if i != j]
    of_rows = statistics(kernel)
    sets = list(itertools.product(range(len(TABLES)), repeat=num_draws))
    here = torch.tensor([i for i, _ in pairs]).repeat_interleave(len(sets))
    there = torch.tensor([j for _, j in pairs]).repeat_interleave(len(sets))
    chosen = torch.tensor(sets).repeat(len(pairs), 1)
    is_noisy = isinstance(kernel, NoisyExchange) and kernel.num_auxiliary > 1
    log_weight = torch.zeros(len(here), dtype=torch.float64)
    levels = torch.tensor(TABLES)
    for k in range(num_draws):
        share = 0.0 if is_noisy else k / num_draws
        at = GRID[there] + share * (GRID[here] - GRID[there]) if source == "proposal" else GRID[here]
        rows = levels[chosen[:, k]]
        log_weight += log_levels(at).gather(-1, rows).sum(-1)
    # The kernel asks for (copies, steps, chains, G, terms).
    found = acceptances(kernel, GRID[here], GRID[there], of_rows[chosen].movedim(0, 1))
    flow = (log_weight.exp() * found).reshape(len(pairs), -1).sum(-1) / len(GRID)
    matrix = np.zeros((len(GRID), len(GRID)))
    for (i, j), value in zip(pairs, flow.tolist(), strict=True):
        matrix[i, j] = value
    return matrix + np.diag(1 - matrix.sum(1))


@pytest.mark.parametrize("num_bridges", [0, 1, 2])
def test_the_posterior_is_invariant(num_bridges):
    """To 1e-12, bridged or not; the control draws the auxiliary data at the present theta."""
    kernel = Exchange(program, num_bridges=num_bridges)
    assert_stationary(transition(kernel, num_bridges + 1), posterior())
    with pytest.raises(AssertionError, match="the law moves"):
        assert_stationary(transition(kernel, num_bridges + 1, source="present"), posterior())


def test_bridges_raise_the_acceptance():
    law = posterior()
    stays = [law @ np.diag(transition(Exchange(program, num_bridges=k), k + 1)) for k in (0, 1, 2)]
    assert stays[0] > stays[1] > stays[2]


def stationary(matrix):
    values, vectors = np.linalg.eig(matrix.T)
    law = np.real(vectors[:, np.argmax(np.real(values))])
    return law / law.sum()


def one_row():
    strength = pyro.sample("strength", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
    law = LogLinearStatistics(LEVEL, strength.unsqueeze(-1) * DIRECTION, 1)
    pyro.sample("counts", law, obs=torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))


def averaged(num_auxiliary):
    """Transition matrix of averaged ratios with one row, from the numbers of auxiliary rows at every level."""
    kernel = NoisyExchange(one_row, num_auxiliary)
    pairs = [(i, j) for i in range(len(GRID)) for j in range(len(GRID)) if i != j]
    numbers = [(a, b, num_auxiliary - a - b) for a in range(num_auxiliary + 1) for b in range(num_auxiliary + 1 - a)]
    split = torch.tensor(numbers)
    here = torch.tensor([i for i, _ in pairs]).repeat_interleave(len(split))
    there = torch.tensor([j for _, j in pairs]).repeat_interleave(len(split))
    levels = torch.stack([torch.arange(3).repeat_interleave(row) for row in split]).repeat(len(pairs), 1)
    (site,) = set_up(kernel).program.sites.values()
    of_level = site._coded(torch.eye(3, dtype=torch.float64))
    numbers_of = split.double().repeat(len(pairs), 1)
    log_weight = math.lgamma(num_auxiliary + 1) - torch.lgamma(numbers_of + 1).sum(-1)
    log_weight = log_weight + (numbers_of * log_levels(GRID[there])).sum(-1)
    found = acceptances(kernel, GRID[here], GRID[there], of_level[levels].movedim(0, 1))
    flow = (log_weight.exp() * found).reshape(len(pairs), -1).sum(-1) / len(GRID)
    matrix = np.zeros((len(GRID), len(GRID)))
    for (i, j), value in zip(pairs, flow.tolist(), strict=True):
        matrix[i, j] = value
    return matrix + np.diag(1 - matrix.sum(1))


def test_the_error_of_averaged_ratios_is_inverse_to_their_number():
    """One data set is exact. The error of M, found without chance, is between 0.01 / M and 0.04 / M."""
    log_density = dist.Normal(0.0, 1.0).log_prob(GRID) + log_levels(GRID)[:, 1]
    exact = torch.softmax(log_density, 0).numpy()
    errors = {m: 0.5 * float(np.abs(stationary(averaged(m)) - exact).sum()) for m in (1, 2, 8, 16, 32, 64)}
    assert_close(errors.pop(1), 0.0, absolute=1e-12)
    for num_auxiliary, error in errors.items():
        assert 0.01 < error * num_auxiliary < 0.04, errors


def test_control_the_grid_is_not_flat():
    law = posterior()
    assert math.isclose(law.sum(), 1.0) and 0.5 * np.abs(law - 0.2).sum() > total_variation_bound(5, 400)
