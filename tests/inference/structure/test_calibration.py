"""Calibration of chains over structure on data simulated from the prior, with controls that must fail.

Collections, theta and rows are drawn from their joint law with NumPy, without the samplers of the library. Then two
questions are asked of the kernels whose ``is_exact`` is true:

- Geweke's, in its independent form: sweeps given the rows leave the joint law of collection, theta and rows unchanged.
  Paired differences of moments have mean zero (z tests), and collections have the law of the prior.
- simulation-based calibration: the truth ranks uniformly among draws of the posterior. Indicators, size and likelihood
  have ties, which are broken at random: the rank is then uniform, too. And inclusion is what it says: of interactions
  with a probability in a bin, as many are present as their probabilities sum to; bins come from other draws.

References:
    John Geweke, Getting it right: joint distribution tests of posterior simulators, JASA 99, 2004, section 2; Sean
    Talts and others, Validating Bayesian inference algorithms with simulation-based calibration, 2018.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from careless import CarelessChain
from scipy import stats

from pyro_hoim import Observations
from pyro_hoim.inference import BirthDeath, StructurePrior
from pyro_hoim.inference.structure.drawn import sampling as jumps
from pyro_hoim.inference.structure.drawn.chains import Neighbourhood, TemperedChain
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.schema import Domain
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_exact_law, assert_uniform_ranks

NUM_ROWS, NUM_SWEEPS, BURN_IN = 12, 8, 10
CELLS = np.stack(np.unravel_index(range(8), (2, 2, 2)), 1)
INCLUSION, FICTIVE = 0.3, 2.0


class Truth(NamedTuple):
    """A member, the log-probabilities of cells (8,), theta (7,), zero where absent, and rows in cells (8,)."""

    gamma: np.ndarray
    log_probs: np.ndarray
    theta: np.ndarray
    counts: np.ndarray


class Case:
    """Three binary variables, with the law of members written out, and the joint law of the others drawn from.

    Args:
        kind: "conjugate" for forests with fictive rows and theta integrated out, "unit" for jumps over all hierarchical
            collections with normal priors.
        inclusion: probability of an interaction, as the kernel is told.
    """

    def __init__(self, kind, inclusion=INCLUSION):
        options = {"space": "decomposable", "max_order": 2} if kind == "conjugate" else {}
        self.prior = StructurePrior(Domain.from_cardinalities([2, 2, 2]), inclusion=inclusion, **options)
        self.kind, self.collapsed = kind, kind == "conjugate"
        members = self.prior.space.members
        assert members is not None and len(members) == (7 if self.collapsed else 9)
        self.members = members
        sizes = members[:, : self.prior.space.num_free].sum(1)
        weights = INCLUSION**sizes * (1 - INCLUSION) ** (self.prior.space.num_free - sizes)
        self.law = weights / weights.sum()
        self.design = design_matrix(self.prior.largest)

    def draw(self, rng):
        gamma = self.members[rng.choice(len(self.law), p=self.law)]
        theta = np.zeros(self.design.shape[1])
        if self.collapsed:
            log_probs = self._forest(gamma, rng)
        else:
            is_present = np.concatenate([np.ones(3, dtype=bool), gamma])
            scales = np.sqrt([2.0, 2, 2, 4, 4, 4, 8])  # the level counts of each set, a row's worth of information
            theta = rng.standard_normal(7) * scales * is_present
            log_probs = self.design @ theta
            log_probs = log_probs - np.log(np.exp(log_probs).sum())
        return Truth(gamma, log_probs, theta, rng.multinomial(NUM_ROWS, np.exp(log_probs)))

    def _forest(self, gamma, rng):
        """Cells of a forest, conditional tables one after the other, each of independent Dirichlet laws.

        A variable with its one neighbour among those left has FICTIVE / 4 rows in every cell of its table.
        """
        left, pairs = [0, 1, 2], [p for p, on in zip([(0, 1), (0, 2), (1, 2)], gamma, strict=True) if on]
        log_probs = np.zeros(8)
        while left:
            near = {v: [w for w in left if (min(v, w), max(v, w)) in pairs] for v in left}
            leaf = next(v for v in left if len(near[v]) <= 1)
            shape = (2,) * len(near[leaf])
            table = rng.dirichlet(np.full(2, FICTIVE / 2 ** (len(shape) + 1)), size=shape)
            with np.errstate(divide="ignore"):  # a Dirichlet law of few rows rounds to zero at times
                log_probs += np.log(table[(*CELLS[:, near[leaf]].T, CELLS[:, leaf])])
            left.remove(leaf)
        return log_probs

    def kernel(self, counts):
        data = Observations.from_table(self.prior.space.domain, counts.reshape(2, 2, 2))
        text = f"conjugate:{FICTIVE}" if self.collapsed else "unit"
        return BirthDeath(data, text, self.prior, collapsed=self.collapsed)

    def moments(self, truth, params, kernel):
        """Functions of collection, theta and rows."""
        gamma, size = params["gamma"].numpy(), float(params["gamma"].sum())
        share = truth.counts @ self.design / NUM_ROWS
        if self.collapsed:
            likelihood = kernel.evidence(self.prior.space.masks_of((gamma == 1)[None])[0])
            return np.concatenate([gamma, gamma * np.abs(share[3:]), [size**2, likelihood, size * likelihood]])
        theta, pairs = params["theta"].numpy(), params["theta"].numpy()[3:6]
        likelihood = self.log_likelihood(theta, truth.counts)
        columns = [gamma, theta, theta**2, theta * share, pairs**2 * gamma[3], np.abs(pairs) * size]
        return np.concatenate([*columns, [size**2, likelihood, size * likelihood]])

    def quantities(self, gamma, theta, counts, kernel):
        """What is ranked; the likelihood of a collection is its evidence where theta is integrated out."""
        if self.collapsed or theta is None:
            likelihood = kernel.evidence(self.prior.space.masks_of((gamma == 1)[None])[0])
            return np.array([*gamma, gamma.sum(), likelihood])
        return np.array([*gamma, gamma.sum(), *theta.numpy(), self.log_likelihood(theta.numpy(), counts)])

    def log_likelihood(self, theta, counts):
        logits = self.design @ theta
        return float(counts @ logits - NUM_ROWS * np.log(np.exp(logits).sum()))


def started(case, truth, seed):
    """The kernel set up at the truth."""
    kernel = case.kernel(truth.counts)
    at = {"gamma": torch.from_numpy(truth.gamma.astype(np.float32))}
    kernel.initial_params = at if case.collapsed else {**at, "theta": torch.from_numpy(truth.theta)}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kernel.setup(0)
    return kernel, kernel.initial_params


def z_limit(num):
    return float(stats.norm.isf(FALSE_ALARM_RATE / 2 / num))


# Geweke's test


def assert_joint_law(case, replications, seed):
    rng, differences, counts = np.random.default_rng(seed), [], np.zeros(len(case.members))
    position = {tuple(member): k for k, member in enumerate(case.members.tolist())}
    for k in range(replications):
        truth = case.draw(rng)
        kernel, before = started(case, truth, seed + k)
        after = before
        for _ in range(NUM_SWEEPS):
            after = kernel.sample(after)
        differences.append(case.moments(truth, after, kernel) - case.moments(truth, before, kernel))
        counts[position[tuple((after["gamma"] == 1).tolist())]] += 1
    moved = np.stack(differences)
    assert (moved != 0).any(1).mean() > 0.5  # the kernel does something
    z = moved.mean(0) / moved.std(0, ddof=1) * math.sqrt(replications)
    assert np.abs(z).max() < z_limit(len(z)), f"largest z score {np.abs(z).max():.1f} at {np.abs(z).argmax()}"
    assert_exact_law(counts, case.law)


class _Unaware(Neighbourhood):
    """A control: proposals taken for symmetric."""

    def propose(self, mask, uniforms):
        return super().propose(mask, uniforms)[0], 0.0


class _Symmetric(TemperedChain):
    def __init__(self, moves, *others):
        super().__init__(_Unaware(moves.prior), *others)


class _Unweighted(TemperedChain):
    """A control: the prior over collections is left out."""

    def move(self, mask, temperature, uniforms):
        other, log_ratio = self.neighbourhood.propose(mask, uniforms)
        gain = (self.log_evidence(other) - self.log_evidence(mask)) / temperature + log_ratio
        return other if gain >= 0 or uniforms[3] < math.exp(gain) else mask


SIZES = {"conjugate": 1_000, "unit": 400}


@pytest.mark.parametrize("kind", SIZES)
def test_sweeps_leave_the_joint_law_unchanged(kind):
    assert_joint_law(Case(kind), SIZES[kind], 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_more_sweeps_leave_the_joint_law_unchanged(kind):
    assert_joint_law(Case(kind), 20 * SIZES[kind], 2)


@pytest.mark.parametrize(
    ("kind", "times", "wrong"),
    [
        ("conjugate", 0.5, _Unweighted),
        pytest.param("conjugate", 10, _Symmetric, marks=pytest.mark.slow),
        ("unit", 1, CarelessChain),
    ],
    ids=["prior", "moves", "theta"],
)
def test_control_sweeps_that_forget_a_density_change_it(kind, times, wrong, monkeypatch):
    monkeypatch.setattr(jumps, "TemperedChain" if kind == "conjugate" else "JumpChain", wrong)
    with pytest.raises(AssertionError, match=r"largest z score|draws:"):
        assert_joint_law(Case(kind), int(times * SIZES[kind]), 3)


# Ranks


class Size(NamedTuple):
    """How much is simulated: data sets, draws of each, sweeps from one draw to the next, bins of ranks."""

    replications: int
    num_draws: int
    thinning: int
    num_bins: int


SHORT, LONG = Size(100, 9, 3, 5), Size(1_000, 19, 5, 20)


def drawn(case, counts, size, seed):
    """Quantities of draws, (num_draws, quantities)."""
    kernel = case.kernel(counts)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kernel.setup(0)
    params, found = kernel.initial_params, []
    for step in range(BURN_IN + size.num_draws * size.thinning):
        params = kernel.sample(params)
        if step >= BURN_IN and (step - BURN_IN) % size.thinning == size.thinning - 1:
            found.append(case.quantities(params["gamma"].numpy(), params.get("theta"), counts, kernel))
    return np.stack(found)


def assert_calibrated(case, size, seed):
    """Ranks are uniform with ties broken at random, and inclusion is right in each of four bins."""
    rng, ranks, off = np.random.default_rng(seed), [], []
    num_free = case.prior.space.num_free
    for k in range(size.replications):
        truth = case.draw(rng)
        first, second = (drawn(case, truth.counts, size, 2 * k + chain) for chain in (0, 1))
        true = case.quantities(truth.gamma, torch.from_numpy(truth.theta), truth.counts, case.kernel(truth.counts))
        ties = (np.abs(first - true) < 1e-9).sum(0)
        ranks.append((first < true - 1e-9).sum(0) + rng.integers(0, ties + 1))
        bins = np.minimum(4 * second[:, :num_free].mean(0), 3).astype(int)
        off.append([((true - first.mean(0))[:num_free] * (bins == b)).sum() for b in range(4)])
    names = ["x".join(edge) for edge in case.prior.space.candidates] + ["size"]
    names += [] if case.collapsed else [f"theta {k}" for k in range(7)]
    assert_uniform_ranks(
        np.stack(ranks),
        size.num_draws,
        num_bins=size.num_bins,
        alpha=FALSE_ALARM_RATE / 2,
        names=[*names, "likelihood"],
    )
    z = np.mean(off, 0) / np.std(off, 0, ddof=1) * math.sqrt(size.replications)
    assert np.abs(z).max() < z_limit(2 * 4), z


@pytest.mark.parametrize("size", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
@pytest.mark.parametrize("kind", SIZES)
def test_truths_rank_uniformly_and_inclusion_is_what_it_says(kind, size):
    assert_calibrated(Case(kind), size, 1)


@pytest.mark.parametrize("kind", SIZES)
def test_control_of_another_prior_over_collections(kind):
    with pytest.raises(AssertionError, match=r"size.*not uniform"):
        assert_calibrated(Case(kind, inclusion=0.6), SHORT, 2)
