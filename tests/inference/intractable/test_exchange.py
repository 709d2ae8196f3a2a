"""The exchange kernel against quadrature, enumerated transitions and NUTS, the programs it takes, Pyro's contract."""

import itertools
import math
import pickle
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC
from pyro.ops.stats import effective_sample_size
from scipy import stats

from pyro_hoim import HierarchicalLogLinear, MixedGibbs, Observations, load_table, run_mcmc, sample_posterior, to_arviz
from pyro_hoim.dependency_network import DependencyNetwork, learn_network
from pyro_hoim.errors import HoimError, InputError, InputTypeError
from pyro_hoim.generalized_root import GeneralizedRoot, RootStructure, TruncatedPoissonFamily
from pyro_hoim.inference import Exchange, NoisyExchange, NUTSSettings, log_linear_model, sample_pseudo_posterior
from pyro_hoim.inference.intractable._kernel import IntractableProgram
from pyro_hoim.inference.intractable._table_kernels import draw_tables
from pyro_hoim.inference.intractable.exchange import AuxiliaryData
from pyro_hoim.log_linear import AnnealedImportance, LogLinearStatistics, normal_prior, statistics_of
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    assert_stationary,
    assert_uniform_ranks,
    total_variation_bound,
)

MAIN = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
PAIR = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 2)
COUNTS = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
ROWS = torch.tensor([[0, 0]] * 9 + [[0, 1]] * 2 + [[1, 0]] * 3 + [[1, 1]] * 8)
DIRECTION = torch.tensor([0.3, -0.4, 1.1], dtype=torch.float64)
GRID = torch.linspace(-6, 6, 4001, dtype=torch.float64)
ZERO = torch.zeros((), dtype=torch.float64)

run = partial(run_mcmc, progress=False)


def main_effects():
    log_linear_model(MAIN, normal_prior(MAIN, dtype=torch.float64), COUNTS, 40)


def strength_of_rows(rows=ROWS, partition=None):
    """One strength, rows in a plate, and a normal observation of it."""
    strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
    with pyro.plate("rows", len(rows)):
        law = HierarchicalLogLinear(PAIR, strength.unsqueeze(-1) * DIRECTION, partition=partition)
        pyro.sample("x", law, obs=rows)
    pyro.sample("y", dist.Normal(strength, 0.5), obs=torch.tensor(0.4, dtype=torch.float64))


def log_likelihood(strength, rows=ROWS):
    """Exact log-likelihood of the rows at strengths (S,)."""
    law = LogLinearStatistics(PAIR, strength.unsqueeze(-1) * DIRECTION, len(rows))
    return law.log_prob(statistics_of(rows, PAIR))


def moments(log_density, grid=GRID):
    """Mean and mean square of a density on a grid."""
    weight = torch.softmax(log_density, 0)
    return np.array([float((weight * grid**k).sum()) for k in (1, 2)])


def scores(draws, expected):
    """t scores of mean and mean square of draws (chains, draws), by independent chains."""
    by_chain = torch.stack([draws.mean(1), draws.square().mean(1)], -1).double().numpy()
    return (by_chain.mean(0) - expected) / (by_chain.std(0, ddof=1) / np.sqrt(len(by_chain)))


def bound(num_scores, num_chains):
    return float(stats.t.isf(FALSE_ALARM_RATE / 2 / num_scores, num_chains - 1))


STRENGTH = moments(
    log_likelihood(GRID) + dist.Normal(ZERO, 1.0).log_prob(GRID) + dist.Normal(GRID, 0.5).log_prob(ZERO + 0.4)
)


@pytest.mark.parametrize(
    ("proposal", "num_bridges"), [("pseudo-likelihood", 0), ("pseudo-likelihood", 2), ("autoregressive", 0)]
)
def test_strength_equals_quadrature(proposal, num_bridges):
    """The control is the posterior without the normal observation."""
    kernel = Exchange(strength_of_rows, proposal=proposal, num_bridges=num_bridges)
    result = run(kernel, 150, burn_in=100, num_chains=200, seed=1)
    assert result.chain_diagnostics[0]["evaluation"] == "together"
    limit = bound(2, 200)
    assert np.abs(scores(result.samples["strength"], STRENGTH)).max() < limit
    other = moments(log_likelihood(GRID) + dist.Normal(ZERO, 1.0).log_prob(GRID))
    assert np.abs(scores(result.samples["strength"], other)).max() > limit
    assert bool((result.sample_stats["is_exact"] == 1).all())
    accepted = float(result.sample_stats["is_accepted"].mean())
    assert 0.1 < accepted < (0.8 if proposal == "autoregressive" else 0.5)  # with one parameter nearly independent


def test_control_auxiliary_data_at_the_present_theta(monkeypatch):
    """Data drawn where they must not be leave another law invariant."""
    from pyro_hoim.inference.intractable.exchange import AuxiliaryData

    right = AuxiliaryData._perfect

    def wrong(self, start, end, total, copies):
        return -right(self, end, start, total, copies)

    monkeypatch.setattr(AuxiliaryData, "_perfect", wrong)
    result = run(Exchange(strength_of_rows), 150, burn_in=100, num_chains=200, seed=1)
    assert np.abs(scores(result.samples["strength"], STRENGTH)).max() > bound(2, 200)


def test_both_main_effects_equal_quadrature():
    result = run(Exchange(main_effects), 200, burn_in=100, num_chains=200, seed=2)
    table = torch.stack([-GRID, GRID], -1) / 2**0.5
    for k in range(2):
        seen = COUNTS[2 * k : 2 * k + 2]
        log_density = table @ seen - 40 * table.logsumexp(-1) - GRID.square() / 2
        found = scores(result.samples["theta"][..., k], moments(log_density))
        assert np.abs(found).max() < bound(4, 200)


def test_a_learned_proposal():
    result = run(Exchange(strength_of_rows, proposal="adaptive"), 150, burn_in=300, num_chains=200, seed=3)
    assert np.abs(scores(result.samples["strength"], STRENGTH)).max() < bound(2, 200)
    assert 0.1 < float(result.sample_stats["is_accepted"].mean()) < 0.5


SLOW_ROWS = torch.tensor([[0, 0]] * 14 + [[0, 1]] + [[1, 0]] + [[1, 1]] * 6)
FIELD = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
COUPLING = torch.tensor([0.0, 0.0, 3.0], dtype=torch.float64)


def tied_pair():
    """A field on two variables that are tied so strongly that a sweep seldom changes them both."""
    strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
    with pyro.plate("rows", len(SLOW_ROWS)):
        law = HierarchicalLogLinear(PAIR, strength.unsqueeze(-1) * FIELD + COUPLING)
        pyro.sample("x", law, obs=SLOW_ROWS)


@pytest.mark.slow
def test_gibbs_auxiliary_data_and_too_few_sweeps():
    """Eighty sweeps are enough, a single one is not, and the check of the kernel sees it."""
    law = LogLinearStatistics(PAIR, GRID.unsqueeze(-1) * FIELD + COUPLING, len(SLOW_ROWS))
    log_density = law.log_prob(statistics_of(SLOW_ROWS, PAIR)) + dist.Normal(ZERO, 1.0).log_prob(GRID)
    expected, found = moments(log_density), {}
    for sweeps in (1, 80):
        kernel = Exchange(tied_pair, auxiliary="gibbs", num_sweeps=sweeps)
        result = run(kernel, 60, burn_in=60, num_chains=100, seed=4)
        assert bool((result.sample_stats["is_exact"] == 0).all())
        assert not result.chain_diagnostics[0]["is_exact"]
        found[sweeps] = np.abs(scores(result.samples["strength"], expected)).max()
        pyro.set_rng_seed(5)
        check = kernel.check_sweeps(result.get_samples(), num_proposals=2000)
        assert check.is_changed is (sweeps == 1), check
        assert ("too few" in repr(check)) is (sweeps == 1)
    assert found[80] < bound(4, 100) < found[1]


@pytest.mark.parametrize("num_bridges", [0, 2])
def test_bridged_gibbs_auxiliary_data(num_bridges):
    kernel = Exchange(strength_of_rows, auxiliary="gibbs", num_sweeps=20, num_bridges=num_bridges)
    result = run(kernel, 60, burn_in=60, num_chains=60, seed=6)
    assert np.abs(scores(result.samples["strength"], STRENGTH)).max() < bound(4, 60)


COUNT_DOMAIN = Domain([Variable(name, kind="count") for name in "ab"])
COUNT_PAIR = RootStructure.simplified(COUNT_DOMAIN, [("a", "b")])
COUNT_FAMILY = TruncatedPoissonFamily(4)
COUNT_ROWS = torch.tensor([[0.0, 1.0], [2.0, 2.0], [1.0, 1.0], [4.0, 3.0], [0.0, 0.0], [1.0, 2.0], [3.0, 3.0]])
COUNT_DIRECTION = torch.tensor([0.1, -0.1, 0.35], dtype=torch.float64)


def counts_program():
    strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
    with pyro.plate("rows", len(COUNT_ROWS)):
        law = GeneralizedRoot(COUNT_PAIR, strength.unsqueeze(-1) * COUNT_DIRECTION, COUNT_FAMILY)
        pyro.sample("x", law, obs=COUNT_ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(("auxiliary", "num_bridges"), [("auto", 0), ("auto", 1), ("gibbs", 0), ("gibbs", 1)])
def test_truncated_counts_equal_enumeration(auxiliary, num_bridges):
    grid = GRID[::20]
    states = torch.cartesian_prod(torch.arange(5), torch.arange(5)).double()
    law = GeneralizedRoot(COUNT_PAIR, grid.unsqueeze(-1) * COUNT_DIRECTION, COUNT_FAMILY)
    log_z = torch.logsumexp(-law.energy(states.unsqueeze(1)), 0)
    log_density = -law.energy(COUNT_ROWS.double().unsqueeze(1)).sum(0) - len(COUNT_ROWS) * log_z - grid.square() / 2
    kernel = Exchange(counts_program, auxiliary=auxiliary, num_bridges=num_bridges, num_sweeps=20)
    result = run(kernel, 40, burn_in=40, num_chains=40, seed=7)
    assert bool(result.sample_stats["is_exact"].all()) is (auxiliary == "auto")
    assert np.abs(scores(result.samples["strength"], moments(log_density, grid))).max() < bound(8, 40)
    assert np.abs(scores(result.samples["strength"], moments(-grid.square() / 2, grid))).max() > bound(8, 40)


# Programs


def scaled(rows=ROWS):
    """A positive scale above the strength, so that a Jacobian counts."""
    scale = pyro.sample("scale", dist.HalfNormal(ZERO + 1.0))
    strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
    law = LogLinearStatistics(PAIR, (scale * strength).unsqueeze(-1) * DIRECTION, len(rows))
    pyro.sample("counts", law, obs=statistics_of(rows, PAIR))


def test_constrained_sites_equal_quadrature():
    points = torch.linspace(0.005, 5, 400, dtype=torch.float64)
    grid = GRID[::10]
    joint = log_likelihood((points[:, None] * grid).reshape(-1)).reshape(len(points), -1)
    joint = joint - points[:, None].square() / 2 - grid.square() / 2
    result = run(Exchange(scaled), 200, burn_in=200, num_chains=200, seed=8)
    assert bool((result.samples["scale"] > 0).all())
    found = scores(result.samples["scale"], moments(joint.logsumexp(1), points))
    assert np.abs(found).max() < bound(4, 200)
    found = scores(result.samples["strength"], moments(joint.logsumexp(0), grid))
    assert np.abs(found).max() < bound(4, 200)
    no_jacobian = moments(joint.logsumexp(1) - points.log(), points)
    assert np.abs(scores(result.samples["scale"], no_jacobian)).max() > bound(4, 200)


GROUPS = torch.stack([ROWS[torch.arange(12) + 5 * g] for g in range(3)], 1)  # (12, 3, 2)


def several(groups=GROUPS):
    """A strength per group, rows in two plates with some of them masked, counts of all with a strength of their own."""
    common = pyro.sample("common", dist.Normal(ZERO, 1.0))
    mask = torch.arange(12).unsqueeze(-1) < torch.tensor([12, 8, 5])
    with pyro.plate("groups", 3, dim=-1):
        strength = pyro.sample("strength", dist.Normal(common, 0.7))
        with pyro.plate("rows", 12, dim=-2):
            law = HierarchicalLogLinear(PAIR, strength.unsqueeze(-1) * DIRECTION)
            pyro.sample("x", law.mask(mask), obs=groups)
    counts = LogLinearStatistics(PAIR, common.unsqueeze(-1) * DIRECTION, len(ROWS))
    pyro.sample("counts", counts, obs=statistics_of(ROWS, PAIR))
    fixed = HierarchicalLogLinear(PAIR, DIRECTION, partition=AnnealedImportance(num_chains=4))
    pyro.sample("constant", fixed, obs=ROWS[0])


def regression(rows=ROWS):
    """A theta of its own for every row, written so that no dimension of chains can pass."""
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2, dtype=torch.float64), 1.0).to_event(1))
    with pyro.plate("rows", len(rows)):
        strength = slope[0] + slope[1] * torch.linspace(-1, 1, len(rows), dtype=torch.float64)
        pyro.sample("x", HierarchicalLogLinear(PAIR, strength.unsqueeze(-1) * DIRECTION), obs=rows)


@pytest.mark.parametrize(("program", "is_together"), [(several, True), (scaled, True), (regression, False)])
def test_log_ratios_of_programs_are_those_of_their_exact_laws(program, is_together):
    """Differences of log density plus statistics less N log Z are what Pyro finds with exact laws."""
    found = IntractableProgram(program, (), {}, None)
    assert found.is_together is is_together
    pyro.set_rng_seed(9)
    points = found.random_points(4)
    there = found.evaluate(points)
    total = there.log_density.clone()
    for name, site in found.sites.items():
        natural, data = there.naturals[name], there.data[name]
        law = site.law
        log_z = HierarchicalLogLinear(law.hypergraph, natural, coding=law.coding).log_partition.value
        total += (natural * data.statistics).sum((-1, -2)) - (log_z * data.total).sum(-1)
    for i in range(4):
        values = {name: found.transforms[name].inv(value[i]) for name, value in points.items()}
        blocked = pyro.poutine.block(pyro.condition(program, data=values), hide=["constant"])
        trace = pyro.poutine.trace(blocked).get_trace()
        trace.compute_log_prob()
        exact = trace.log_prob_sum()
        for name, value in points.items():
            exact = exact + found.transforms[name].inv.log_abs_det_jacobian(value[i], values[name]).sum()
        assert float(total[i]) == pytest.approx(float(exact), rel=1e-10)


def test_sites_that_are_not_moved_stay():
    result = run(Exchange(several, sites=["strength"]), 10, burn_in=5, num_chains=3, seed=10)
    assert bool((result.samples["common"] == result.samples["common"][:, :1]).all())
    assert not bool((result.samples["strength"] == result.samples["strength"][:, :1]).all())


def test_without_rows_the_posterior_is_the_prior():
    def program():
        log_linear_model(MAIN, normal_prior(MAIN, dtype=torch.float64), torch.zeros(4, dtype=torch.float64), 0)

    result = run(Exchange(program), 200, burn_in=100, num_chains=200, seed=11)
    for k in range(2):
        assert np.abs(scores(result.samples["theta"][..., k], np.array([0.0, 1.0]))).max() < bound(4, 200)
    assert bool((result.sample_stats["is_exact"] == 1).all())


@pytest.mark.slow
def test_as_the_continuous_kernel_of_mixed_gibbs():
    """Strength and field given noisy observations of the field, by quadrature; the latent field is a normal site."""
    levels, data = torch.tensor([-0.5, 1.0], dtype=torch.float64), torch.tensor([-0.3, 1.4], dtype=torch.float64)

    def program():
        with pyro.plate("copies", 60):
            strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
            x = pyro.sample("x", HierarchicalLogLinear(PAIR, strength.unsqueeze(-1) * DIRECTION))
            pyro.sample("y", dist.Normal(levels[x], 0.9).to_event(1), obs=data)

    states = torch.cartesian_prod(torch.arange(2), torch.arange(2))
    law = HierarchicalLogLinear(PAIR, GRID.unsqueeze(-1) * DIRECTION)
    seen = dist.Normal(levels[states], 0.9).log_prob(data).sum(-1)
    log_density = torch.stack([law.log_prob(s) + e for s, e in zip(states, seen, strict=True)]).logsumexp(0)
    expected = moments(log_density - GRID.square() / 2)
    kernel = MixedGibbs(program, partial(Exchange, proposal="adaptive"))
    result = run(kernel, 1500, burn_in=500, num_chains=1, seed=12)
    assert np.abs(scores(result.samples["strength"][0].T, expected)).max() < bound(2, 60)
    assert result.samples["x"].dtype == torch.long


SINGLE = InteractionHypergraph.from_order(Domain.from_cardinalities([2]), 1)
SHUT = torch.tensor(0.0, dtype=torch.float64)


def gated(choose):
    """Two tables, of which an indicator says whether the second has parameters of its own."""
    gate = pyro.sample("gate", dist.Bernoulli(SHUT + 0.5))
    theta = pyro.sample("theta", dist.Normal(torch.zeros(2, 1, dtype=torch.float64), 1.5).to_event(2))
    for name, counts, where in (("a", [7.0, 3.0], theta[..., 0, :]), ("b", [2.0, 8.0], choose(gate, theta[..., 1, :]))):
        pyro.sample(name, LogLinearStatistics(SINGLE, where, 10), obs=torch.tensor(counts, dtype=torch.float64))


def gated_draws(num_draws):
    """Of a chain that starts with its gate shut, where the gate is open, and the parameter behind it there."""
    kernel = MixedGibbs(partial(gated, lambda gate, theta: gate.unsqueeze(-1) * theta), Exchange)
    result = run(kernel, num_draws, burn_in=20, num_chains=1, seed=2, initial_params={"gate": SHUT.unsqueeze(0)})
    is_open = result.samples["gate"][0] == 1
    return is_open, result.samples["theta"][0][is_open, 1, 0]


def test_a_site_whose_gate_is_shut_at_first_is_not_left_out():
    """It is moved where the gate is open; one that is left out keeps a single value. Its law is the next test's."""
    is_open, opened = gated_draws(200)
    assert bool(is_open.any()) and not bool(is_open.all())
    assert len(opened.unique()) > 10


@pytest.mark.slow
def test_a_site_whose_gate_is_shut_at_first_has_its_law():
    is_open, opened = gated_draws(2500)
    counts = torch.tensor([2.0, 8.0], dtype=torch.float64)
    log_likelihood = LogLinearStatistics(SINGLE, GRID.unsqueeze(-1), 10).log_prob(counts)
    log_density = log_likelihood + dist.Normal(ZERO, 1.5).log_prob(GRID)
    evidence = float(log_density.exp().sum() * (GRID[1] - GRID[0]))
    shut = float(LogLinearStatistics(SINGLE, ZERO.unsqueeze(-1), 10).log_prob(counts).exp())
    assert float(is_open.double().mean()) == pytest.approx(evidence / (evidence + shut), abs=0.1)
    assert [float((opened**k).mean()) for k in (1, 2)] == pytest.approx(moments(log_density), abs=0.25)


def test_a_site_that_stood_still_and_moves_is_refused():
    kernel = MixedGibbs(
        partial(gated, lambda gate, theta: theta if bool((gate == 1).all()) else 0 * theta.detach()), Exchange
    )
    with pytest.raises(InputError, match=r"torch\.where"):
        run(kernel, 300, burn_in=50, num_chains=1, seed=2, initial_params={"gate": SHUT.unsqueeze(0)})


# The contract with Pyro


def test_in_pyros_mcmc_and_arviz():
    pyro.set_rng_seed(13)
    kernel = Exchange(strength_of_rows)
    mcmc = MCMC(kernel, num_samples=150, warmup_steps=100, disable_progbar=True)
    mcmc.run()
    draws = mcmc.get_samples()["strength"]
    assert draws.shape == (150,) and draws.dtype == torch.float64
    size = float(effective_sample_size(draws.unsqueeze(0), chain_dim=0, sample_dim=1))
    error = float(draws.std()) / size**0.5
    assert abs(float(draws.mean()) - STRENGTH[0]) < 5 * error
    assert mcmc.diagnostics()["is_exact"] == {"chain 0": True}
    assert to_arviz(mcmc)["sample_stats"]["acceptance_rate"].shape == (1, 150)
    result = run(kernel, 20, burn_in=20, num_chains=3, seed=1)
    assert to_arviz(result)["sample_stats"]["is_exact"].shape == (3, 20)
    assert result.num_divergences == 0
    with pytest.raises(InputError, match="no chain is set up"):
        _ = kernel.sample({})


def test_a_seed_decides_everything_and_float32_stays():
    first = run(Exchange(strength_of_rows), 20, num_chains=4, seed=5)
    again = run(pickle.loads(pickle.dumps(Exchange(strength_of_rows))), 20, num_chains=4, seed=5)
    assert torch.equal(first.samples["strength"], again.samples["strength"])
    assert not torch.equal(
        first.samples["strength"], run(Exchange(strength_of_rows), 20, num_chains=4).samples["strength"]
    )

    def program():
        strength = pyro.sample("strength", dist.Normal(0.0, 1.0))
        law = LogLinearStatistics(PAIR, strength.unsqueeze(-1) * DIRECTION.float(), len(ROWS))
        pyro.sample("counts", law, obs=statistics_of(ROWS, PAIR).float())

    result = run(Exchange(program), 150, burn_in=100, num_chains=200, seed=14)
    assert result.samples["strength"].dtype == torch.float32
    expected = moments(log_likelihood(GRID) - GRID.square() / 2)
    assert np.abs(scores(result.samples["strength"], expected)).max() < bound(2, 200)


def test_initial_params():
    kernel = Exchange(strength_of_rows)
    start = {"strength": torch.tensor([0.1, 0.2], dtype=torch.float64)}
    result = run(kernel, 5, burn_in=0, num_chains=2, seed=1, initial_params=start)
    assert result.samples["strength"].shape == (2, 5)
    for wrong, match in (
        ({"strenght": start["strength"]}, "strenght"),
        ({"strength": start["strength"][:, None]}, "expected shape"),
        ({"strength": start["strength"] * torch.nan}, "positive density"),
        ({}, "'strength' is missing"),
    ):
        with pytest.raises(InputError, match=match):
            run(kernel, 5, num_chains=2, initial_params=wrong)


# Bad input


def nothing_to_exchange():
    strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
    pyro.sample("x", HierarchicalLogLinear(PAIR, DIRECTION), obs=ROWS[0])
    pyro.sample("y", dist.Normal(strength, 1.0), obs=ZERO)


def latent_field():
    strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
    pyro.sample("x", HierarchicalLogLinear(PAIR, strength * DIRECTION))


def no_latent_site():
    pyro.sample("x", HierarchicalLogLinear(PAIR, DIRECTION), obs=ROWS[0])


def network():
    pyro.sample("strength", dist.Normal(ZERO, 1.0))
    rows = Observations(PAIR.domain, ROWS)
    pyro.sample("x", DependencyNetwork(learn_network(rows).conditionals), obs=ROWS[0])


def scaled_site():
    with pyro.poutine.scale(scale=0.5):
        strength_of_rows()


def outside():
    strength_of_rows(ROWS + 1)


def statistics_beyond_reach():
    large = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
    theta = pyro.sample("theta", normal_prior(large, dtype=torch.float64))
    counts = statistics_of(torch.zeros(3, 60, dtype=torch.long), large)
    pyro.sample("counts", LogLinearStatistics(large, theta, 3), obs=counts)


def random_log_z():
    """An estimated log Z in a factor, which is no intractable site but a term like others."""
    strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
    law = HierarchicalLogLinear(PAIR, strength.unsqueeze(-1) * DIRECTION, partition=AnnealedImportance())
    pyro.factor("f", law.log_prob(ROWS[0]))
    strength_of_rows_beside(strength)


def strength_of_rows_beside(strength):
    law = LogLinearStatistics(PAIR, strength.unsqueeze(-1) * DIRECTION, len(ROWS))
    pyro.sample("counts", law, obs=statistics_of(ROWS, PAIR))


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (nothing_to_exchange, "use NUTS"),
        (latent_field, "MixedGibbs"),
        (no_latent_site, "expected a latent continuous site"),
        (network, "dependency network"),
        (scaled_site, "poutine.scale"),
        (outside, "in the support"),
        (statistics_beyond_reach, "proposal='adaptive'"),
        (random_log_z, "without randomness inside Exchange"),
    ],
)
def test_programs_that_are_refused(program, match):
    with pytest.raises(HoimError, match=match):
        run(Exchange(program), 5, num_chains=2, seed=1)


def test_arguments_that_are_refused():
    wrong = [
        ({"sites": "strength"}, InputTypeError, "a sequence of names"),
        ({"auxiliary": "annealed"}, InputError, "auxiliary"),
        ({"auxiliary": AnnealedImportance()}, InputError, "no unbiased Z"),
        ({"num_bridges": -1}, InputError, "num_bridges"),
        ({"num_sweeps": 0}, InputError, "num_sweeps"),
        ({"proposal": "laplace"}, InputError, "proposal"),
        ({"num_chains": 0}, InputError, "num_chains"),
    ]
    for options, error, match in wrong:
        with pytest.raises(error, match=match):
            Exchange(strength_of_rows, **options)
    with pytest.raises(InputTypeError, match="a Pyro program"):
        Exchange(3)
    with pytest.raises(InputError, match="num_auxiliary"):
        NoisyExchange(strength_of_rows, 0)
    with pytest.raises(InputError, match="stength"):
        run(Exchange(strength_of_rows, sites=["stength"]), 5)
    with pytest.raises(InputError, match="'strength' is missing"):
        Exchange(strength_of_rows).check_sweeps({})


# Transition matrices
#
# The kernel itself computes the acceptances: its proposals and its auxiliary data are replaced by all that can be
# drawn, one combination per chain, and weighted by what their probabilities are.


LEVEL = InteractionHypergraph.from_order(Domain.from_cardinalities([3]), 1)
STEPS = torch.tensor([-1.2, -0.5, 0.1, 0.8, 1.7], dtype=torch.float64)
SLOPE = torch.tensor([0.9, -0.6], dtype=torch.float64)
SEEN = torch.tensor(0.7, dtype=torch.float64)
NUM_LEVELS = 2
OBSERVED = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)


def levels_program():
    """One parameter of one variable with three levels, two rows, and a normal observation beside them."""
    strength = pyro.sample("strength", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
    law = LogLinearStatistics(LEVEL, strength.unsqueeze(-1) * SLOPE, NUM_LEVELS)
    pyro.sample("counts", law, obs=OBSERVED)
    pyro.sample("y", dist.Normal(strength, 2.0), obs=SEEN)


def log_levels(strength):
    """Log-probabilities of the three levels, (..., 3), from the definition of the law."""
    law = HierarchicalLogLinear(LEVEL, strength.unsqueeze(-1) * SLOPE)
    states = torch.arange(3).unsqueeze(-1)
    energy = torch.stack([-law.energy(state) for state in states], -1)
    return energy - energy.logsumexp(-1, keepdim=True)


def posterior():
    """Posterior on the grid."""
    log_density = dist.Normal(0.0, 1.0).log_prob(STEPS) + dist.Normal(STEPS, 2.0).log_prob(SEEN)
    log_density = log_density + (log_levels(STEPS) * OBSERVED).sum(-1)
    return torch.softmax(log_density, 0).numpy()


TABLES = list(itertools.product(range(3), repeat=NUM_LEVELS))
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
    pairs = [(i, j) for i in range(len(STEPS)) for j in range(len(STEPS)) if i != j]
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
        at = STEPS[there] + share * (STEPS[here] - STEPS[there]) if source == "proposal" else STEPS[here]
        rows = levels[chosen[:, k]]
        log_weight += log_levels(at).gather(-1, rows).sum(-1)
    # The kernel asks for (copies, steps, chains, G, terms).
    found = acceptances(kernel, STEPS[here], STEPS[there], of_rows[chosen].movedim(0, 1))
    flow = (log_weight.exp() * found).reshape(len(pairs), -1).sum(-1) / len(STEPS)
    matrix = np.zeros((len(STEPS), len(STEPS)))
    for (i, j), value in zip(pairs, flow.tolist(), strict=True):
        matrix[i, j] = value
    return matrix + np.diag(1 - matrix.sum(1))


@pytest.mark.parametrize("num_bridges", [0, 1, 2])
def test_the_posterior_is_invariant(num_bridges):
    """To 1e-12, bridged or not; the control draws the auxiliary data at the present theta."""
    kernel = Exchange(levels_program, num_bridges=num_bridges)
    assert_stationary(transition(kernel, num_bridges + 1), posterior())
    with pytest.raises(AssertionError, match="the law moves"):
        assert_stationary(transition(kernel, num_bridges + 1, source="present"), posterior())


def test_bridges_raise_the_acceptance():
    law = posterior()
    stays = [law @ np.diag(transition(Exchange(levels_program, num_bridges=k), k + 1)) for k in (0, 1, 2)]
    assert stays[0] > stays[1] > stays[2]


def stationary(matrix):
    values, vectors = np.linalg.eig(matrix.T)
    law = np.real(vectors[:, np.argmax(np.real(values))])
    return law / law.sum()


def one_row():
    strength = pyro.sample("strength", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
    law = LogLinearStatistics(LEVEL, strength.unsqueeze(-1) * SLOPE, 1)
    pyro.sample("counts", law, obs=torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))


def averaged(num_auxiliary):
    """Transition matrix of averaged ratios with one row, from the numbers of auxiliary rows at every level."""
    kernel = NoisyExchange(one_row, num_auxiliary)
    pairs = [(i, j) for i in range(len(STEPS)) for j in range(len(STEPS)) if i != j]
    numbers = [(a, b, num_auxiliary - a - b) for a in range(num_auxiliary + 1) for b in range(num_auxiliary + 1 - a)]
    split = torch.tensor(numbers)
    here = torch.tensor([i for i, _ in pairs]).repeat_interleave(len(split))
    there = torch.tensor([j for _, j in pairs]).repeat_interleave(len(split))
    levels = torch.stack([torch.arange(3).repeat_interleave(row) for row in split]).repeat(len(pairs), 1)
    (site,) = set_up(kernel).program.sites.values()
    of_level = site._coded(torch.eye(3, dtype=torch.float64))
    numbers_of = split.double().repeat(len(pairs), 1)
    log_weight = math.lgamma(num_auxiliary + 1) - torch.lgamma(numbers_of + 1).sum(-1)
    log_weight = log_weight + (numbers_of * log_levels(STEPS[there])).sum(-1)
    found = acceptances(kernel, STEPS[here], STEPS[there], of_level[levels].movedim(0, 1))
    flow = (log_weight.exp() * found).reshape(len(pairs), -1).sum(-1) / len(STEPS)
    matrix = np.zeros((len(STEPS), len(STEPS)))
    for (i, j), value in zip(pairs, flow.tolist(), strict=True):
        matrix[i, j] = value
    return matrix + np.diag(1 - matrix.sum(1))


def test_the_error_of_averaged_ratios_is_inverse_to_their_number():
    """One data set is exact. The error of M, found without chance, is between 0.01 / M and 0.04 / M."""
    log_density = dist.Normal(0.0, 1.0).log_prob(STEPS) + log_levels(STEPS)[:, 1]
    exact = torch.softmax(log_density, 0).numpy()
    errors = {m: 0.5 * float(np.abs(stationary(averaged(m)) - exact).sum()) for m in (1, 2, 8, 16, 32, 64)}
    assert_close(errors.pop(1), 0.0, absolute=1e-12)
    for num_auxiliary, error in errors.items():
        assert 0.01 < error * num_auxiliary < 0.04, errors


def test_control_the_grid_is_not_flat():
    law = posterior()
    assert math.isclose(law.sum(), 1.0) and 0.5 * np.abs(law - 0.2).sum() > total_variation_bound(5, 400)


# Calibration on simulated data, and agreement with NUTS where log Z is exact


NUM_ROWS, REPLICATIONS, NUM_DRAWS = 15, 400, 39


def simulated(counts):
    strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
    pyro.sample("counts", LogLinearStatistics(PAIR, strength.unsqueeze(-1) * DIRECTION, NUM_ROWS), obs=counts)


def ranks():
    """Ranks of the true strength and of the log-likelihood there among one draw of each of 39 chains."""
    found = np.empty((REPLICATIONS, 2), dtype=np.int64)
    kernel = Exchange(simulated)
    generator = torch.Generator().manual_seed(1)
    for i in range(REPLICATIONS):
        true = torch.randn((), dtype=torch.float64, generator=generator)
        pyro.set_rng_seed(i)
        law = LogLinearStatistics(PAIR, true * DIRECTION, NUM_ROWS)
        counts = law.sample()
        run = run_mcmc(kernel, 1, burn_in=50, num_chains=NUM_DRAWS, seed=i, model_args=(counts,), progress=False)
        draws = run.samples["strength"][:, 0]
        all_laws = LogLinearStatistics(PAIR, torch.cat([true[None], draws])[:, None] * DIRECTION, NUM_ROWS)
        likelihood = all_laws.log_prob(counts)
        found[i] = int((draws < true).sum()), int((likelihood[1:] < likelihood[0]).sum())
    return found


@pytest.mark.slow
def test_draws_are_calibrated(monkeypatch):
    """Ranks are uniform; with auxiliary data at the present theta they are not.

    By a random walk, because proposals about the mode keep even a wrong ratio near the posterior.
    """
    assert_uniform_ranks(ranks(), NUM_DRAWS, names=["strength", "log-likelihood"])
    right = AuxiliaryData._perfect

    def wrong(self, start, end, total, copies):
        return -right(self, end, start, total, copies)

    monkeypatch.setattr(AuxiliaryData, "_perfect", wrong)
    with pytest.raises(AssertionError, match="not uniform"):
        assert_uniform_ranks(ranks(), NUM_DRAWS, names=["strength", "log-likelihood"])


def table(name):
    """A published table, or one of 120 rows simulated over the given levels."""
    if not name[0].isdigit():
        return load_table(name)
    levels = [int(n) for n in name.split("x")]
    rng = np.random.default_rng(6)
    counts = rng.multinomial(120, rng.dirichlet(np.ones(math.prod(levels)))).reshape(levels)
    return Observations.from_table(Domain.from_cardinalities(levels), counts.astype(float))


def disagreement(theta, nuts):
    """Largest score of means and of shares below the 5, 50 and 95 % quantiles of NUTS, both (chains, draws, P)."""
    pairs = [(theta, nuts)]
    for level in (0.05, 0.5, 0.95):
        cut = nuts.flatten(0, 1).quantile(level, 0)
        pairs.append(((theta < cut).double(), (nuts < cut).double()))
    worst = 0.0
    for left, right in pairs:
        by_chain = left.mean(1)
        size = effective_sample_size(right, chain_dim=0, sample_dim=1).clamp(max=right.shape[0] * right.shape[1])
        error = by_chain.var(0) / len(by_chain) + right.flatten(0, 1).var(0) / size
        score = (by_chain.mean(0) - right.flatten(0, 1).mean(0)) / error.sqrt()
        worst = max(worst, float(score.abs().max()))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("czech_autoworkers", {"proposal": "autoregressive"}),
        ("czech_autoworkers", {"num_bridges": 2}),
        ("2x2x3", {}),
        ("3x2x4", {"num_bridges": 1}),
        ("4x4x4", {"proposal": "autoregressive", "num_bridges": 1}),
    ],
)
def test_draws_agree_with_nuts(name, options):
    """Means and quantiles of every parameter; the control has rows that were counted twice."""
    data = table(name)
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    prior, counts = normal_prior(hypergraph, dtype=torch.float64), statistics_of(data, hypergraph)
    total = data.total_count
    nuts = sample_posterior(hypergraph, data, 1.0, NUTSSettings(4, 500), seed=1, progress=False).theta
    found = {}
    for times in (1, 2):
        arguments = (hypergraph, prior, times * counts, times * total)
        run = run_mcmc(
            Exchange(log_linear_model, **options),
            150,
            burn_in=300,
            num_chains=200,
            seed=2,
            model_args=arguments,
            progress=False,
        )
        found[times] = disagreement(run.samples["theta"], nuts)
    limit = float(stats.norm.isf(FALSE_ALARM_RATE / 2 / (4 * hypergraph.num_parameters)))
    assert found[1] < limit < found[2], found


def collection(name, num_columns, edges):
    """The first columns of a table with all interactions up to an order, or those named by letters of columns."""
    data = table(name)
    data = data.project(data.domain.names[:num_columns])
    if isinstance(edges, int):
        return InteractionHypergraph.from_order(data.domain, edges), data
    named = [tuple(data.domain.names["abcdef".index(letter)] for letter in edge) for edge in edges.split()]
    return InteractionHypergraph(data.domain, named, closure=True), data


def three_ways(hypergraph, data, num_chains, num_draws, nuts):
    """Largest scores of exchange and bridged draws against NUTS with exact log Z, and the limit of all of them.

    "raw" is the control: the smaller score of both against a pseudo-posterior that is not calibrated.
    """
    prior, counts = normal_prior(hypergraph, dtype=torch.float64), statistics_of(data, hypergraph)
    arguments = (hypergraph, prior, counts, data.total_count)
    exact = sample_posterior(hypergraph, data, 1.0, nuts, seed=1, progress=False).theta
    raw = sample_pseudo_posterior(
        hypergraph,
        data,
        1.0,
        NUTSSettings(2, max(250, nuts.num_draws), nuts.burn_in),
        calibrate="none",
        seed=3,
        progress=False,
    )
    found = {"raw": math.inf}
    for way, num_bridges in (("exchange", 0), ("bridged", 2)):
        kernel = Exchange(log_linear_model, num_bridges=num_bridges, proposal="autoregressive")
        run = run_mcmc(
            kernel,
            num_draws,
            burn_in=2 * num_draws,
            num_chains=num_chains,
            seed=2,
            model_args=arguments,
            progress=False,
        )
        assert bool(run.sample_stats["is_exact"].all())
        found[way] = disagreement(run.samples["theta"], exact)
        found["raw"] = min(found["raw"], disagreement(run.samples["theta"], raw.theta))
    # Means and three shares of every parameter, two ways.
    return found, float(stats.norm.isf(FALSE_ALARM_RATE / 2 / (2 * 4 * hypergraph.num_parameters)))


MODELS = {
    "Czech, pairs": ("czech_autoworkers", 6, 2),
    "Czech, seven edges": ("czech_autoworkers", 6, "ac ad ae bc ce de f"),
    "Czech, decomposable": ("czech_autoworkers", 6, "ace bc de f"),
    "Czech, five columns": ("czech_autoworkers", 5, 2),
    "Czech, saturated": ("czech_autoworkers", 4, 4),
    "Rochdale, six columns": ("rochdale", 6, 2),
    "Rochdale, five columns": ("rochdale", 5, 2),
    "Rochdale, triples": ("rochdale", 4, 3),
    "Titanic, pairs": ("titanic", 4, 2),
    "2^4, pairs": ("2x2x2x2", 4, 2),
    "2^5, triples": ("2x2x2x2x2", 5, 3),
    "2^6, ring": ("2x2x2x2x2x2", 6, "ab bc cd de ef af"),
    "4^4, pairs": ("4x4x4x4", 4, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_three_ways_agree(name):
    hypergraph, data = collection(*MODELS[name])
    found, limit = three_ways(hypergraph, data, 200, 150, NUTSSettings(4, 500))
    assert max(found["exchange"], found["bridged"]) < limit < found["raw"], found


def test_three_ways_agree_on_a_small_model():
    hypergraph, data = collection("2x2x2", 3, 3)
    found, limit = three_ways(hypergraph, data, 100, 40, NUTSSettings(2, 60, 30))
    assert max(found["exchange"], found["bridged"]) < limit < found["raw"], found


# Multinomial tables against the binomial law of every cell


NUM_TABLES = 40_000


def tables(total, probs, seed):
    logits = np.log(probs)[None].repeat(NUM_TABLES, 0)
    words = np.random.default_rng(seed).integers(0, 2**63, NUM_TABLES).astype(np.uint64)
    counts = np.empty_like(logits)
    draw_tables(logits, np.full(NUM_TABLES, float(total)), words, counts)
    assert bool((counts >= 0).all()) and bool((counts.sum(1) == total).all())
    return counts.astype(np.int64)


@pytest.mark.parametrize(
    ("total", "probs"),
    [
        (1, [0.5, 0.2, 0.3]),  # one by one
        (3, [0.01] * 20 + [0.8]),  # one by one among many
        (30, [0.1, 0.6, 0.3]),  # inversion, and above one half
        (60, [0.4, 0.35, 0.25]),  # rejection
        (1841, [0.02, 0.9, 0.08]),
        (200_000, [0.3, 0.0002, 0.6998]),
    ],
)
def test_every_cell_is_binomial(total, probs):
    """The control is the law of one row more."""
    counts = tables(total, np.array(probs), total)
    for cell in {0, 1, len(probs) - 1}:
        support = np.arange(total + 1)
        seen = np.bincount(counts[:, cell], minlength=total + 1)
        assert_exact_law(seen, stats.binom.pmf(support, total, probs[cell]))
    if total < 100:
        with pytest.raises(AssertionError):
            assert_exact_law(seen, stats.binom.pmf(support, total, probs[cell] * (1 - 0.5 / total)))


def test_cells_depend_on_each_other_as_they_should():
    """Two cells of three are negatively correlated; a joint law of small tables in full."""
    counts = tables(4, np.array([0.2, 0.5, 0.3]), 5)
    seen, law = np.zeros((5, 5)), np.zeros((5, 5))
    np.add.at(seen, (counts[:, 0], counts[:, 1]), 1)
    for a in range(5):
        for b in range(5 - a):
            law[a, b] = stats.multinomial.pmf([a, b, 4 - a - b], 4, [0.2, 0.5, 0.3])
    assert_exact_law(seen.astype(np.int64), law)


def test_no_rows_and_an_impossible_cell():
    assert not tables(0, np.array([0.5, 0.5]), 1).any()
    with np.errstate(divide="ignore"):
        counts = tables(50, np.array([0.0, 0.4, 0.6, 0.0]), 2)
    assert not counts[:, 0].any() and not counts[:, 3].any()
