"""Posterior sampling against quadrature and conjugacy, and the contract of its chains and seeds."""

import math
import multiprocessing
import random
import warnings
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Predictive
from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from scipy import stats

from pyro_hoim import Auto, DiaconisYlvisaker, Domain, InteractionHypergraph, Observations, normal_prior
from pyro_hoim.errors import ConvergenceWarning, InputError
from pyro_hoim.inference import R_HAT_LIMIT, NUTSSettings, log_linear_model, r_hat_limit, sample_posterior
from pyro_hoim.log_linear import Enumeration, MatrixEnumeration, VariableElimination, parametrization, statistics_of
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_log_partition, exact_statistics, exact_table, raises

DOMAIN = Domain.from_cardinalities([2, 3])
MAIN = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
PAIRS = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 3]), 2)


def table_of(hypergraph, seed, rows):
    rng = np.random.default_rng(seed)
    size = math.prod(hypergraph.domain.cardinalities)
    return rng.multinomial(rows, rng.dirichlet(np.ones(size))).reshape(hypergraph.domain.cardinalities).astype(float)


def counts_of(hypergraph, seed, rows):
    return statistics_of(Observations.from_table(hypergraph.domain, table_of(hypergraph, seed, rows)), hypergraph)


def threshold(num_scores):
    """Bound on the largest of so many z scores, at the false-alarm rate of one assertion."""
    return float(stats.norm.isf(FALSE_ALARM_RATE / 2 / num_scores))


def mean_and_error(values):
    """Mean over chains and draws and its Monte Carlo standard error."""
    flat = values.flatten(0, 1)
    size = effective_sample_size(values, chain_dim=0, sample_dim=1).clamp(max=len(flat))
    return flat.mean(0), flat.std(0) / size.sqrt()


draw = partial(sample_posterior, progress=False)


@pytest.fixture(scope="module")
def conjugate():
    prior = DiaconisYlvisaker.uniform(PAIRS, 6.0, dtype=torch.float64)
    return draw(PAIRS, counts_of(PAIRS, 1, 25), prior, NUTSSettings(2, 250, 50), total_count=25, seed=2)


def test_conjugate_mean_of_eta(conjugate):
    """E[eta | data] = (n0 s + t) / (n0 + N), within the bound below and the 4 Monte Carlo errors that were asked for.

    The control is the posterior that forgets the prior.
    """
    assert conjugate.theta.shape == (2, 250, PAIRS.num_parameters)
    assert (conjugate.num_chains, conjugate.num_draws, conjugate.status) == (2, 250, "converged")
    law = exact_table(PAIRS, conjugate.tables)
    mean, error = mean_and_error(torch.from_numpy(exact_statistics(PAIRS, law)))
    expected = conjugate.prior.posterior(conjugate.counts, 25).mean_statistics
    assert float(((mean - expected) / error).abs().max()) < 4 < threshold(PAIRS.num_terms)
    assert float(((mean - conjugate.counts / 25) / error).abs().max()) > threshold(PAIRS.num_terms)


def test_diagnostics(conjugate):
    assert conjugate.num_divergences == 0
    assert float(conjugate.r_hat.max()) < 1.02 and conjugate.r_hat.shape == (PAIRS.num_parameters,)
    assert float(conjugate.ess.min()) > 300
    assert torch.equal(conjugate.run.get_samples()["theta"], conjugate.theta.flatten(0, 1))
    assert set(conjugate.run.diagnostics()["sample_stats"]) == {"chain 0", "chain 1"}


@pytest.mark.parametrize("metric", ["laplace", pytest.param("adapt", marks=pytest.mark.slow)])
def test_normal_prior_against_quadrature(metric):
    """Mean and second moment of two independent main effects at the stated rate; N = 40, 10 in one cell."""
    scale = {("x0",): 0.5, ("x1",): 2.0}
    counts = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    settings = NUTSSettings(2, 250, 100)
    result = draw(MAIN, counts, normal_prior(MAIN, scale), settings, total_count=40, seed=3, metric=metric)
    assert result.theta.dtype == torch.float64
    moments = torch.cat([result.theta, result.theta.square()], -1)
    mean, error = mean_and_error(moments)
    expected = []
    for power in (1, 2):
        for k, sigma in enumerate((0.5, 2.0)):
            n = counts[2 * k : 2 * k + 2]
            table = torch.stack([-grid, grid], -1) / math.sqrt(2)
            log_density = table @ n - 40 * table.logsumexp(-1) - (grid / sigma).square() / 2
            weight = torch.softmax(log_density, 0)
            expected.append(float((weight * grid**power).sum()))
    score = (mean - torch.tensor(expected, dtype=torch.float64)) / error
    assert float(score.abs().max()) < threshold(len(score))
    # Control: the answer for the first effect with the other one's scale.
    log_density = table @ counts[:2] - 40 * table.logsumexp(-1) - (grid / 2.0).square() / 2
    other = float((torch.softmax(log_density, 0) * grid).sum())
    assert abs(float((mean[0] - other) / error[0])) > threshold(len(score))


def test_model_density_equals_enumeration():
    counts = counts_of(PAIRS, 4, 30)
    theta = torch.from_numpy(np.random.default_rng(5).normal(size=PAIRS.num_parameters))
    conditioned = pyro.condition(log_linear_model, {"theta": theta})
    trace = pyro.poutine.trace(conditioned).get_trace(PAIRS, normal_prior(PAIRS, 2.0, dtype=torch.float64), counts, 30)
    tables = parametrization(PAIRS).to_tables(theta)
    expected = float(tables @ counts) - 30 * exact_log_partition(PAIRS, tables)
    expected += float(dist.Normal(torch.zeros_like(theta), 2.0).log_prob(theta).sum())
    assert float(trace.log_prob_sum()) == pytest.approx(float(expected), rel=1e-10)
    pyro.set_rng_seed(0)
    simulated = Predictive(log_linear_model, num_samples=5)(PAIRS, normal_prior(PAIRS), None, 30)
    assert bool((simulated["counts"].reshape(5, -1)[:, :2].sum(-1) == 30).all())


def test_seed_decides_everything_and_global_state_stays():
    table = table_of(MAIN, 6, 20)
    observations = Observations.from_table(MAIN.domain, table)
    options = {"settings": NUTSSettings(3, 8, 8), "progress": False}

    def states():
        return torch.random.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    pyro.set_rng_seed(1)
    before = states()
    first = sample_posterior(MAIN, observations, seed=4, **options)
    assert states() == before
    pyro.set_rng_seed(2)
    again = sample_posterior(MAIN, statistics_of(observations, MAIN), total_count=20, seed=4, **options)
    assert torch.equal(first.theta, again.theta)
    assert not torch.equal(first.theta, sample_posterior(MAIN, observations, seed=5, **options).theta)
    assert len({tuple(chain[0].tolist()) for chain in first.theta}) == 3


def test_chains_never_use_processes(monkeypatch):
    monkeypatch.setattr(multiprocessing, "cpu_count", lambda: 64)
    monkeypatch.setattr(torch.multiprocessing, "cpu_count", lambda: 64)
    started = []
    monkeypatch.setattr(multiprocessing.Process, "start", lambda self: started.append(self))
    result = draw(MAIN, counts_of(MAIN, 7, 20), 1.0, NUTSSettings(4, 8, 8), total_count=20)
    assert result.num_chains == 4 and not started


@pytest.mark.parametrize("partition", [Enumeration(), MatrixEnumeration(), VariableElimination(), Auto()], ids=repr)
def test_any_exact_backend(partition):
    counts, settings = counts_of(MAIN, 8, 20), NUTSSettings(1, 8, 8)
    result = draw(MAIN, counts, 1.0, settings, total_count=20, partition=partition)
    assert bool(torch.isfinite(result.theta).all())


@pytest.mark.slow
def test_other_priors_and_no_data():
    """Without rows the draws are from the prior: mean and mean size of a Student t, variance of a normal.

    The controls are a Student t and a normal whose scale was lost, and a mean that was lost.
    """
    zeros = torch.zeros(MAIN.num_terms, dtype=torch.float64)
    location = torch.tensor([0.0, 0.5], dtype=torch.float64)
    prior = dist.StudentT(5.0, location, 0.5).to_event(1)
    result = draw(MAIN, zeros, prior, NUTSSettings(2, 400, 100), total_count=0)
    size = float(stats.t(5, scale=0.5).expect(abs))
    expected = torch.tensor([0.0, 0.5, size, size], dtype=torch.float64)
    mean, error = mean_and_error(torch.cat([result.theta, (result.theta - location).abs()], -1))
    bound = threshold(6)  # with the two of the normal prior
    assert float(((mean - expected) / error).abs().max()) < bound
    assert float((mean[2:] / error[2:] - 2 * size / error[2:]).abs().min()) > bound
    assert abs(float(mean[1] / error[1])) > bound
    normal = draw(MAIN, zeros, 1.5, NUTSSettings(2, 400), total_count=0)
    mean, error = mean_and_error(normal.theta.square())
    assert float(((mean - 1.5**2) / error).abs().max()) < bound
    assert float(((mean - 1.0) / error).abs().min()) > bound


class SpyBackend:
    """An exact backend that counts what it is asked."""

    is_exact = True

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        self.calls.append(name)
        return getattr(Auto(), name)


@pytest.mark.parametrize("metric", ["laplace", "adapt"])
def test_the_given_backend_is_the_one_that_runs(metric):
    """Also with a conjugate prior that has its own backend, which must stay silent unless none is given."""
    counts = counts_of(PAIRS, 8, 20)

    def run(partition):
        own = SpyBackend()
        prior = DiaconisYlvisaker.uniform(PAIRS, 4.0, dtype=torch.float64, partition=own)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            settings = NUTSSettings(1, 4, 2)
            draw(PAIRS, counts, prior, settings, total_count=20, metric=metric, partition=partition)
        return own.calls, [] if partition is None else partition.calls

    own, given = run(SpyBackend())
    assert not own and given.count("log_partition") > 6 and given[0] == "plan"
    own, _ = run(None)
    assert own.count("log_partition") > 6 and own[0] == "plan"


def test_conjugate_and_float32_priors():
    zeros = torch.zeros(MAIN.num_terms, dtype=torch.float64)
    prior = dist.StudentT(5.0, torch.zeros(2, dtype=torch.float64), 0.5).to_event(1)
    single = DiaconisYlvisaker.uniform(MAIN, 2.0)
    drawn = draw(MAIN, zeros, single, NUTSSettings(2, 20, 20), total_count=0)
    assert single.mean_statistics.dtype == torch.float32 and drawn.theta.dtype == torch.float64
    with pytest.raises(InputError, match="laplace"):
        sample_posterior(MAIN, zeros, prior, total_count=0, metric="laplace")


def test_r_hat_limit_is_the_quantile_of_independent_chains():
    """Of 40,000 sets of independent chains, one in 100 passes the 1 % point; the limit is at the 0.01 % point."""
    generator = torch.Generator().manual_seed(1)
    chains, draws, sets = 3, 20, 40_000
    values = split_gelman_rubin(torch.randn(chains, draws, sets, generator=generator, dtype=torch.float64), 0, 1)

    def point(level):
        half = draws // 2
        return math.sqrt((half - 1 + stats.f.isf(level, 2 * chains - 1, 2 * chains * (half - 1))) / half)

    passed = int((values > point(0.01)).sum())
    assert stats.binomtest(passed, sets, 0.01).pvalue > FALSE_ALARM_RATE
    assert stats.binomtest(int((values > 0.98 * point(0.01)).sum()), sets, 0.01).pvalue < FALSE_ALARM_RATE  # control
    assert r_hat_limit(chains, draws) == pytest.approx(R_HAT_LIMIT - 1 + point(1e-4), rel=1e-12)
    assert r_hat_limit(4, 10**7) == pytest.approx(R_HAT_LIMIT, abs=1e-5)


def test_unconverged_chains_are_reported():
    settings = NUTSSettings(2, 8, 0, max_tree_depth=1)
    with pytest.warns(ConvergenceWarning, match="R-hat"):
        result = draw(PAIRS, counts_of(PAIRS, 9, 2000), 20.0, settings, total_count=2000, metric="adapt")
    assert result.status == "unconverged"


COUNTS = counts_of(MAIN, 1, 10)
OTHER = InteractionHypergraph.from_order(Domain.from_cardinalities([3]), 1)
MISSING = Observations.from_tensor(torch.tensor([[0, -1]]), MAIN.domain)


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"total_count": None}, "out-of-range", "total_count"),
        ({"total_count": 11}, "out-of-range", "value"),
        ({"data": COUNTS[:3]}, "wrong-shape", "data"),
        ({"data": COUNTS * math.nan}, "not-finite", "data"),
        ({"data": [1, 2]}, "wrong-type", "data"),
        ({"data": MISSING, "total_count": None}, "missing-cells", None),
        ({"hypergraph": "a*b"}, "wrong-type", "hypergraph"),
        ({"hypergraph": InteractionHypergraph(MAIN.domain), "data": torch.zeros(0)}, "empty", "hypergraph"),
        ({"metric": "dense"}, "unknown-choice", "metric"),
        ({"prior": normal_prior(PAIRS)}, "wrong-shape", "prior"),
        ({"prior": -1.0}, "out-of-range", None),
        ({"prior": "wide"}, "wrong-type", "prior"),
        ({"prior": DiaconisYlvisaker.uniform(OTHER, 1.0)}, "other-domain", "prior"),
        ({"partition": Enumeration(max_states=2)}, "over-budget", None),
    ],
)
def test_bad_input(options, code, argument):
    with raises(code, argument):
        sample_posterior(**{"hypergraph": MAIN, "data": COUNTS, "total_count": 10, **options})


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_draws", 3), ("num_chains", 0), ("burn_in", -1), ("max_tree_depth", 1.5), ("target_accept", 1.0)],
)
def test_bad_settings(name, value):
    with raises("out-of-range", name):
        NUTSSettings(**{name: value})
