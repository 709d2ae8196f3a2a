"""LogLinearStatistics against the law of its rows."""

import copy
import itertools
import math
import pickle
import time

import numpy as np
import pyro
import pytest
import torch
from hypothesis import given, settings, strategies as st
from law_models import CYCLE, GRAPHS, TRIPLES, draw_theta, graph
from torch.distributions import kl_divergence

from pyro_hoim.core import MarginalCounts
from pyro_hoim.data import Observations
from pyro_hoim.errors import InputError, InputTypeError, MissingDataError
from pyro_hoim.log_linear import HierarchicalLogLinear, LogLinearStatistics, parametrization, statistics_of
from pyro_hoim.log_linear.laws.statistics import multinomial_counts
from pyro_hoim.testing import assert_close, assert_exact_law, raises, required_draws


def draw_rows(hypergraph, *shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(n, shape, generator=generator) for n in hypergraph.domain.cardinalities]
    return torch.stack(columns, -1) if columns else torch.zeros(*shape, 0, dtype=torch.long)


# Log-likelihood


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
def test_log_prob_is_the_sum_over_rows(hypergraph, coding):
    hypergraph = hypergraph.in_coding("corner") if coding == "corner" else hypergraph
    codings = parametrization(hypergraph)
    theta = codings.convert(draw_theta(hypergraph, 3), codings.coding, coding)
    rows = draw_rows(hypergraph, 50)
    counts = statistics_of(rows, hypergraph)
    law = LogLinearStatistics(hypergraph, theta, 50, coding=coding)
    expected = HierarchicalLogLinear(hypergraph, theta, coding=coding).log_prob(rows.unsqueeze(1)).sum(0)
    assert_close(law.log_prob(counts), expected, relative=1e-12, absolute=1e-10)
    assert_close(law.rows.log_prob(rows.unsqueeze(1)).sum(0), expected, relative=1e-12)


def test_sum_over_rows_notices_one_row_more_and_a_wrong_coding():
    theta, rows = draw_theta(CYCLE), draw_rows(CYCLE, 50)
    expected = HierarchicalLogLinear(CYCLE, theta).log_prob(rows).sum()
    counts = statistics_of(rows, CYCLE)
    for wrong in (
        LogLinearStatistics(CYCLE, theta, 51, validate_args=False),
        LogLinearStatistics(CYCLE, theta, 50, coding="corner"),
    ):
        with pytest.raises(AssertionError):
            assert_close(wrong.log_prob(counts), expected, absolute=1e-10)


def test_batches_of_counts_theta_and_total_count():
    theta, sizes = draw_theta(CYCLE, 3, 1), torch.tensor([5, 20])
    law = LogLinearStatistics(CYCLE, theta, sizes)
    assert (law.batch_shape, law.event_shape) == ((3, 2), (CYCLE.num_terms,))
    shapes = LogLinearStatistics.infer_shapes(hypergraph=CYCLE, theta=theta.shape, total_count=sizes.shape)
    assert shapes == (law.batch_shape, law.event_shape)
    data = [draw_rows(CYCLE, int(n)) for n in sizes]
    counts = torch.stack([statistics_of(rows, CYCLE) for rows in data])
    rows_law = HierarchicalLogLinear(CYCLE, theta[:, 0])
    expected = torch.stack([rows_law.log_prob(rows.unsqueeze(1)).sum(0) for rows in data], -1)
    assert_close(law.log_prob(counts), expected, absolute=1e-10)
    assert law.log_prob(counts.expand(7, 1, 2, -1)).shape == (7, 3, 2)
    assert law.total_count.tolist() == [[5, 20]] * 3
    assert_close(law.mean, law.rows.eta * law.total_count.unsqueeze(-1))
    assert (law.rows.batch_shape, law.log_partition.value.shape) == (law.batch_shape, law.batch_shape)


def test_expand_shares_the_law():
    law = LogLinearStatistics(CYCLE, draw_theta(CYCLE), 30, validate_args=True)
    wide = law.expand(torch.Size([2, 4]))
    assert wide.batch_shape == (2, 4)
    assert wide._rows is law._rows
    assert wide._validate_args is True
    counts = law.sample(torch.Size([5]))
    assert torch.equal(wide.log_prob(counts[:, None, None]), law.log_prob(counts)[:, None, None].expand(5, 2, 4))
    drawn = wide.sample(torch.Size([3]))
    assert drawn.shape == (3, 2, 4, CYCLE.num_terms)
    assert len(drawn.flatten(0, 2).unique(dim=0)) > 12  # draws are independent, not shared
    with pytest.raises(InputError, match="cannot be expanded"):
        wide.expand(torch.Size([4]))
    assert "total_count=30.0" in repr(wide)


def test_gradient_is_that_of_the_rows():
    theta = draw_theta(TRIPLES).requires_grad_()
    rows = draw_rows(TRIPLES, 40)
    (expected,) = torch.autograd.grad(HierarchicalLogLinear(TRIPLES, theta).log_prob(rows).sum(), theta)
    law = LogLinearStatistics(TRIPLES, theta, 40)
    counts = statistics_of(rows, TRIPLES)
    (actual,) = torch.autograd.grad(law.log_prob(counts), theta)
    assert_close(actual, expected, absolute=1e-10)
    codings = parametrization(TRIPLES)
    assert_close(actual, codings.free_statistics(counts - law.mean.detach()), absolute=1e-10)


def test_value_may_be_integer_and_theta_single():
    counts = statistics_of(draw_rows(CYCLE, 40), CYCLE)
    law = LogLinearStatistics(CYCLE, draw_theta(CYCLE), 40)
    assert torch.equal(law.log_prob(counts.long()), law.log_prob(counts))
    single = LogLinearStatistics(CYCLE, draw_theta(CYCLE).float(), 40)
    assert single.sample().dtype == single.mean.dtype == torch.float32
    assert_close(single.log_prob(counts.float()), law.log_prob(counts), relative=1e-5)  # single precision
    single.log_prob(single.sample(torch.Size([20])))


# Statistics of data


def test_statistics_of_observations_equal_those_of_their_rows(hypergraph):
    rows = draw_rows(hypergraph, 30)
    data = Observations.from_tensor(rows, hypergraph.domain)
    counts = statistics_of(data, hypergraph)
    assert counts.dtype == torch.float64
    assert torch.equal(counts, statistics_of(rows, hypergraph))
    assert_close(counts, parametrization(hypergraph).statistics(rows).sum(0))
    assert LogLinearStatistics(hypergraph, draw_theta(hypergraph), 30).support.check(counts)
    rows = draw_rows(hypergraph, 3)
    for held in (rows, Observations.from_tensor(rows, hypergraph.domain)):
        with pytest.raises(InputTypeError, match="hypergraph, the second argument: expected an InteractionHypergraph"):
            statistics_of(hypergraph, held)
        assert statistics_of(held, hypergraph).shape == (hypergraph.num_terms,)  # control


def test_statistics_of_batches_and_weights():
    rows = draw_rows(CYCLE, 3, 2, 10)
    counts = statistics_of(rows, CYCLE)
    assert counts.shape == (3, 2, CYCLE.num_terms)
    assert torch.equal(counts[1, 1], statistics_of(rows[1, 1], CYCLE))
    weights = [0.5] * 10
    weighted = Observations.from_tensor(rows[0, 0], CYCLE.domain, weights=weights)
    half = statistics_of(weighted, CYCLE)
    assert torch.equal(half, counts[0, 0] / 2)
    LogLinearStatistics(CYCLE, draw_theta(CYCLE), 5, validate_args=True).log_prob(half)


def test_statistics_of_wrong_data():
    missing = Observations.from_tensor(torch.tensor([[0, -1, 0, 0]]), CYCLE.domain)
    other = Observations.from_tensor(torch.zeros(2, 3, dtype=torch.long), GRAPHS["unused variable"].domain)
    for data, error, message in (
        (missing, MissingDataError, None),
        (other, InputError, "domain"),
        (torch.zeros(4), InputError, r"shape \(\.\.\., N, 4\)"),
        (torch.tensor([[0, 3, 0, 0]]), InputError, "level codes"),
        ([[0, 0, 0, 0]], InputTypeError, "list"),
    ):
        with pytest.raises(error, match=message):
            statistics_of(data, CYCLE)


# Validation


def test_support_is_discrete_with_one_event_dimension():
    law = LogLinearStatistics(CYCLE, draw_theta(CYCLE), 10)
    assert isinstance(law.support, MarginalCounts)
    assert law.support.is_discrete
    assert law.support.event_dim == LogLinearStatistics.support.event_dim == 1
    assert not law.has_enumerate_support
    assert "MarginalCounts" in repr(law.support)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(sorted(GRAPHS)), position=st.integers(0, 100))
def test_one_changed_count_is_noticed(seed, name, position):
    hypergraph = GRAPHS[name]
    counts = statistics_of(draw_rows(hypergraph, 25, seed=seed), hypergraph)
    law = LogLinearStatistics(hypergraph, draw_theta(hypergraph), 25, validate_args=True)
    law.log_prob(counts)
    if hypergraph.num_terms:
        wrong = counts.clone()
        wrong[position % hypergraph.num_terms] += 1
        with pytest.raises(InputError, match="expected non-negative counts"):
            law.log_prob(wrong)
        LogLinearStatistics(hypergraph, draw_theta(hypergraph), 25, validate_args=False).log_prob(wrong)


def test_messages_name_the_inconsistent_table():
    hypergraph = graph([2, 2], [("x0", "x1")])
    law = LogLinearStatistics(hypergraph, draw_theta(hypergraph), 4, validate_args=True)
    good = torch.tensor([3.0, 1.0, 2.0, 2.0, 2.0, 1.0, 0.0, 1.0])
    law.log_prob(good)
    for changed, text in [
        ([4.0, 0.0, 2.0, 2.0, 2.0, 1.0, 0.0, 1.0], "tables of x0 and x0:x1 that differ by 1 over x0"),
        ([3.0, 1.0, 2.0, 3.0, 2.0, 1.0, 0.0, 1.0], "a table of x1 that sums to 5, not 4"),
        ([5.0, -1.0, 2.0, 2.0, 2.0, 1.0, 0.0, 1.0], "the count -1.0 at position 1"),
        ([math.nan, 1.0, 2.0, 2.0, 2.0, 1.0, 0.0, 1.0], "the count nan at position 0"),
    ]:
        with pytest.raises(InputError, match=text):
            law.log_prob(torch.stack([good, torch.tensor(changed)]))
    with pytest.raises(InputError, match="broadcasts"):
        law.log_prob(torch.zeros(7))
    with pytest.raises(InputTypeError):
        law.log_prob([1.0] * 8)
    with pytest.raises(InputError, match="broadcasts"):
        LogLinearStatistics(hypergraph, draw_theta(hypergraph, 2), 4).log_prob(good.expand(3, 8))


@pytest.mark.parametrize("bad", [-1, 1.5, math.nan, math.inf, torch.tensor([3.0, -1.0]), torch.tensor(0.5)])
def test_total_count_must_be_a_whole_number(bad):
    with raises("out-of-range", "total_count"):
        LogLinearStatistics(CYCLE, draw_theta(CYCLE), bad)


def test_other_wrong_arguments():
    for theta, total_count, code, argument in (
        *((draw_theta(CYCLE), bad, "wrong-type", "total_count") for bad in (None, "10", True, torch.tensor(True))),
        (torch.zeros(3), 10, "wrong-shape", "theta"),
        (draw_theta(CYCLE) * math.nan, 10, "not-finite", "theta"),
    ):
        with raises(code, argument):
            LogLinearStatistics(CYCLE, theta, total_count)
    with pytest.raises(InputError, match="broadcasts with the batch"):
        LogLinearStatistics(CYCLE, draw_theta(CYCLE, 2), torch.tensor([1, 2, 3]))


def test_theta_that_is_not_finite_where_validation_is_off_globally():
    with pyro.validation_enabled(False):
        law = LogLinearStatistics(CYCLE, draw_theta(CYCLE, 2) * math.inf, 10)
        assert law.log_prob(torch.ones(CYCLE.num_terms)).isnan().all()
        with raises("not-finite", "theta"):
            law.sample()


# Samples


def statistic_law(law, total):
    """Exact law of the statistic by enumerating all ordered data sets: {statistic: probability}."""
    states = law.rows.enumerate_support()
    probs = law.rows.log_prob(states).exp().tolist()
    statistics = parametrization(law.hypergraph).statistics(states)
    found = {}
    for choice in itertools.product(range(len(states)), repeat=total):
        key = tuple(int(v) for v in statistics[list(choice)].sum(0).tolist())
        found[key] = found.get(key, 0.0) + math.prod(probs[i] for i in choice)
    return found


@pytest.mark.parametrize("path", ["cells", "rows"])
def test_samples_follow_the_exact_law(path, monkeypatch):
    if path == "rows":
        monkeypatch.setattr("pyro_hoim.log_linear.laws.statistics._MAX_CELLS", 0)
        monkeypatch.setattr("pyro_hoim.log_linear.laws.statistics._CHUNK", 500_000)
    hypergraph = graph([2, 3], [("x0",), ("x1",)])
    law = LogLinearStatistics(hypergraph, draw_theta(hypergraph, scale=0.6), 3)
    assert law.sample_is_exact
    exact = statistic_law(law, 3)
    assert abs(sum(exact.values()) - 1) < 1e-12
    pyro.set_rng_seed(11)
    drawn = law.sample(torch.Size([required_draws(len(exact), 0.05)]))
    assert bool(law.support.check(drawn).all())
    position = {key: i for i, key in enumerate(exact)}
    counts = np.zeros(len(exact))
    for row in drawn.long().tolist():
        counts[position[tuple(row)]] += 1
    assert_exact_law(counts, np.array(list(exact.values())))
    other = statistic_law(LogLinearStatistics(hypergraph, draw_theta(hypergraph, seed=5, scale=0.6), 3), 3)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.array([other[key] for key in exact]))


def test_cells_and_rows_paths_agree_in_shape_and_support(hypergraph, monkeypatch):
    sizes = torch.tensor([0, 7])
    law = LogLinearStatistics(hypergraph, draw_theta(hypergraph, 3, 1), sizes)
    for limit in (2**20, 0):
        monkeypatch.setattr("pyro_hoim.log_linear.laws.statistics._MAX_CELLS", limit)
        drawn = law.sample(torch.Size([4]))
        assert drawn.shape == (4, 3, 2, hypergraph.num_terms)
        assert bool(law.support.check(drawn).all())
        assert law.sample(torch.Size([0])).shape == (0, 3, 2, hypergraph.num_terms)
        assert law.sample().shape == (3, 2, hypergraph.num_terms)


def test_mean_and_variance_of_millions_of_rows():
    hypergraph = graph([2] * 6, itertools.combinations([f"x{i}" for i in range(6)], 2))
    law = LogLinearStatistics(hypergraph, draw_theta(hypergraph, scale=0.3), 1_841_000)
    pyro.set_rng_seed(3)
    started = time.process_time()
    drawn = law.sample(torch.Size([1000]))
    assert time.process_time() - started < 30  # counting 1.8e9 rows one by one would take minutes
    # |z| < 6 on 72 + 72 correlated means: false alarm below 1e-6 by the union bound and the normal tail 2e-9
    error = (drawn.mean(0) - law.mean) / (law.variance / 1000).sqrt()
    assert float(error.abs().max()) < 6
    ratio = drawn.var(0) / law.variance
    assert float((ratio - 1).abs().max()) < 6 * math.sqrt(2 / 999)
    wrong = LogLinearStatistics(hypergraph, 1.01 * law.theta, 1_841_000)
    assert float(((drawn.mean(0) - wrong.mean) / (wrong.variance / 1000).sqrt()).abs().max()) > 6


def test_a_batch_too_large_for_tables_is_drawn_by_rows(monkeypatch):
    hypergraph = graph([2] * 10, [("x0", "x1")])
    law = LogLinearStatistics(hypergraph, draw_theta(hypergraph, 6), torch.tensor([3, 0, 1, 2, 5, 4]))
    for chunk in (2**12, 2**22):  # 6 x 1,024 cells are past the first
        monkeypatch.setattr("pyro_hoim.log_linear.laws.statistics._CHUNK", chunk)
        drawn = law.sample(torch.Size([30]))
        assert bool(law.support.check(drawn).all())


@pytest.mark.parametrize("num_cells", [1, 2, 5, 8])
def test_multinomial_counts(num_cells):
    probs = torch.arange(num_cells, dtype=torch.float64)  # the first cell is impossible
    probs = probs / probs.sum() if num_cells > 1 else torch.ones(1, dtype=torch.float64)
    pyro.set_rng_seed(0)
    total = torch.tensor([0.0, 1.0, 10.0, 100_000.0], dtype=torch.float64)
    counts = multinomial_counts(total, probs.expand(4, num_cells))
    assert torch.equal(counts.sum(-1), total)
    assert torch.equal(counts, counts.round())
    if num_cells > 1:
        assert not counts[:, 0].any()
        assert_exact_law(counts[-1], probs)
    if num_cells > 2:
        with pytest.raises(AssertionError):
            assert_exact_law(counts[-1], torch.full((num_cells,), 1 / num_cells))


def test_the_global_seed_makes_samples_reproducible():
    law = LogLinearStatistics(CYCLE, draw_theta(CYCLE), 100)
    pyro.set_rng_seed(5)
    first = law.sample(torch.Size([20]))
    pyro.set_rng_seed(5)
    assert torch.equal(law.sample(torch.Size([20])), first)
    assert not torch.equal(law.sample(torch.Size([20])), first)


# Copies and divergence


def test_pickle_and_copy(hypergraph):
    law = LogLinearStatistics(hypergraph, draw_theta(hypergraph), torch.tensor([10, 20]))
    counts = law.sample()
    for other in (pickle.loads(pickle.dumps(law)), copy.copy(law), copy.deepcopy(law)):
        assert torch.equal(other.log_prob(counts), law.log_prob(counts))
        assert torch.equal(other.total_count, law.total_count)


def test_kl_divergence_is_that_of_the_statistic():
    hypergraph = graph([2, 3], [("x0",), ("x1",)])
    p = LogLinearStatistics(hypergraph, draw_theta(hypergraph, seed=1), 3)
    q = LogLinearStatistics(hypergraph, draw_theta(hypergraph, seed=2), 3)
    law_p, law_q = statistic_law(p, 3), statistic_law(q, 3)
    expected = sum(v * (math.log(v) - math.log(law_q[k])) for k, v in law_p.items())
    assert_close(kl_divergence(p, q), expected, relative=1e-10)
    with pytest.raises(InputError, match="numbers of rows"):
        kl_divergence(p, LogLinearStatistics(hypergraph, q.theta, 4))
    with pytest.raises(InputError, match="hypergraphs"):
        kl_divergence(p, LogLinearStatistics(CYCLE, draw_theta(CYCLE), 3))
