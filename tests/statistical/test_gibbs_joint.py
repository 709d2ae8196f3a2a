"""Joint-distribution tests of the block and the mixed Gibbs kernel, in Geweke's independent form (JASA 99, 2004)."""

import itertools
from functools import cache, reduce

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import scipy.linalg
import torch
from pyro.infer import HMC, NUTS
from scipy import stats

from pyro_hoim import BlockGibbs, Domain, HierarchicalLogLinear, InteractionHypergraph, MixedGibbs
from pyro_hoim.log_linear import parametrization
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_exact_law,
    count_states,
    enumerate_codes,
    exact_table,
    random_tables,
    required_draws,
)

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


# The mixed kernel


FIELD = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2, "c": 3}), 3)
HELMERT = [reduce(np.kron, (scipy.linalg.helmert(n).T for n in shape)) for shape in FIELD.edge_shapes]
WEIGHTS = parametrization(FIELD).from_tables(
    2
    * torch.from_numpy(scipy.linalg.block_diag(*HELMERT) @ [0.4, -0.3, 0.5, 0.2, 0.8, -0.6, 0.7, -0.5, 0.4, 0.6, -0.7])
)
PICKED = torch.tensor([-1.0, 0.4, 1.2], dtype=torch.float64)
SPREAD = torch.tensor([0.4, 1.0, 2.5], dtype=torch.float64)
ROWS = 80
BATCHES = 50
TRANSITIONS = 3


class Program:
    """y_v is normal around ``shift`` plus the value picked by variable v of a field of strength ``strength``."""

    def __init__(self, rows):
        self.rows = rows
        self.y = torch.zeros(*(() if rows is None else (rows,)), 3, dtype=torch.float64)

    def __call__(self):
        if self.rows is None:
            self.body()
        else:
            with pyro.plate("rows", self.rows):
                self.body()

    def body(self):
        zero = torch.zeros((), dtype=torch.float64)
        strength = pyro.sample("strength", dist.Normal(zero, 1.0))
        shift = pyro.sample("shift", dist.Normal(zero, 1.0))
        x = pyro.sample("x", HierarchicalLogLinear(FIELD, strength.unsqueeze(-1) * WEIGHTS))
        pyro.sample("y", dist.Normal(shift.unsqueeze(-1) + PICKED[x], SPREAD[x]).to_event(1), obs=self.y)


def field_law(strength):
    """Probabilities of all states (*batch, states) by enumeration."""
    tables = parametrization(FIELD).to_tables(torch.as_tensor(strength)[..., None] * WEIGHTS, "free")
    return np.exp(exact_table(FIELD, tables)).reshape(*strength.shape, -1)


def draw_joint(rng, size):
    strength, shift = rng.standard_normal(size), rng.standard_normal(size)
    cumulative = field_law(strength).cumsum(-1)
    state = (cumulative < rng.random((size, 1)) * cumulative[:, -1:]).sum(-1)
    x = enumerate_codes(FIELD.domain.cardinalities)[state]
    y = shift[:, None] + PICKED.numpy()[x] + SPREAD.numpy()[x] * rng.standard_normal((size, 3))
    return {"strength": strength, "shift": shift, "x": x, "y": y}


def moments(draws):
    """Functions of (parameters, field, data), (replications, functions)."""
    s, m, x, y = draws["strength"], draws["shift"], draws["x"], draws["y"]
    picked, centred = PICKED.numpy()[x], y - y.mean(-1, keepdims=True)
    log_prob = np.log(field_law(s)[np.arange(len(s)), np.ravel_multi_index(tuple(x.T), FIELD.domain.cardinalities)])
    residual = (y - m[:, None] - picked) / SPREAD.numpy()[x]
    log_scale = np.log(SPREAD.numpy()[x]).sum(-1)
    columns = [s, m, s**2, m**2, s * m, log_prob, s * log_prob, (residual**2).sum(-1), residual.sum(-1)]
    columns += [log_scale, (y**2).sum(-1) * log_scale, (m - y.mean(-1)) ** 2 * log_scale]
    columns += [m * y.mean(-1), s * y[:, 0], s * y[:, 2], s * y[:, 0] * y[:, 1], (picked * centred).sum(-1)]
    columns += [*(picked * y).T, *(s[:, None] * picked).T, picked[:, 0] * picked[:, 1] * s, m * picked.sum(-1)]
    return np.stack(columns, -1)


def replicate(kernel_class, inner, seed, rows, batches):
    """States before and after some transitions, joined over batches."""
    rng = np.random.default_rng(seed)
    pyro.set_rng_seed(seed)
    program = Program(rows)
    kernel = kernel_class(program, inner)
    kernel.setup(0)
    before, after = [], []
    for _ in range(batches):
        start = draw_joint(rng, rows or 1)
        values = {k: torch.as_tensor(v if rows else v[0]) for k, v in start.items()}
        program.y = values["y"]
        params = {name: values[name].double() for name in ("strength", "shift", "x")}
        kernel.restart()
        for _ in range(TRANSITIONS):
            params = kernel.sample(params)
        before.append(start)
        moved = {k: v.numpy() if rows else v.numpy()[None] for k, v in params.items()}
        after.append({**moved, "x": moved["x"].astype(np.int64), "y": start["y"]})
    assert set(kernel.evaluation.values()) == {"rows together"}
    return tuple({k: np.concatenate([part[k] for part in parts]) for k in start} for parts in (before, after))


def assert_same_joint_law(before, after):
    difference = moments(after) - moments(before)
    scores = difference.mean(0) / (difference.std(0, ddof=1) / np.sqrt(len(difference)))
    limit = stats.norm.isf(FALSE_ALARM_RATE / 2 / len(scores))
    assert np.abs(scores).max() < limit, f"largest z score {np.abs(scores).max():.1f} at {np.abs(scores).argmax()}"
    for name in ("strength", "shift"):
        assert stats.kstest(after[name], "norm").pvalue > FALSE_ALARM_RATE / 2
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    law = (weights / weights.sum()) @ field_law(points)
    cards = FIELD.domain.cardinalities
    assert_exact_law(count_states(after["x"], cards), law)


class Restartable(MixedGibbs):
    """Begins a replication without anything cached."""

    def restart(self):
        self.inner.clear_cache()
        self.past = None


class StaleTheta(Restartable):
    """Control: after NUTS moved the parameters, the discrete move still uses those from before."""

    def _move_discrete(self, values):
        present = {name: values[name] for name in ("strength", "shift")}
        self.past = self.past or present
        return {**super()._move_discrete({**values, **self.past}), **present}


class StaleValues(Restartable):
    """Control: NUTS still works with the discrete values from before their move."""

    def _refresh_inner(self, discrete):
        past, self.past = self.past or discrete, discrete
        super()._refresh_inner(past)


def nuts(program):
    return NUTS(program, step_size=0.25, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=4)


def hmc(program):
    return HMC(program, step_size=0.25, num_steps=5, adapt_step_size=False, adapt_mass_matrix=False)


def test_transitions_leave_the_joint_law():
    before, after = replicate(Restartable, hmc, 1, ROWS, BATCHES)
    assert len(before["x"]) == ROWS * BATCHES
    assert (before["x"] != after["x"]).any(-1).mean() > 0.5  # the kernel does something
    assert np.abs(after["shift"] - before["shift"]).mean() > 0.2
    assert_same_joint_law(before, after)


def test_control_theta_not_refreshed_after_the_continuous_move():
    with pytest.raises(AssertionError, match="largest z score"):
        assert_same_joint_law(*replicate(StaleTheta, hmc, 2, ROWS, BATCHES))


@pytest.mark.slow
def test_control_inner_kernel_not_refreshed_after_the_discrete_move():
    with pytest.raises(AssertionError, match="largest z score"):
        assert_same_joint_law(*replicate(StaleValues, hmc, 3, ROWS, BATCHES))


@pytest.mark.slow
def test_nuts_and_one_replication_at_a_time():
    assert_same_joint_law(*replicate(Restartable, nuts, 4, None, 800))
