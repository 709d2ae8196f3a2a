"""The oracles against closed forms, and every statistical assertion beside a control that it must refuse."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim import Domain, InputError, InteractionHypergraph, testing
from pyro_hoim.log_linear import AnnealedImportance, VariableElimination
from pyro_hoim.testing import exact_log_partition

from support.hard_models import (
    blocks_of_levels,
    broad_phase,
    condensate_and_dimers,
    condensing_level,
    curie_weiss,
    enumerated_log_z,
    hidden_needle,
    mean_field_spins,
    needle,
    potts_complete,
    potts_grid,
    root_counts,
    shuffled,
    sign_grid,
    spin_glass,
    two_wells,
    xor_sat,
)
from support.hard_suite import HARD_CLASSES, easy_models, hard_models, is_false_claim
from support.ranks import rank_test_rate
from support.root_models import listed, log_sum
from support.transitions import join_tables


@pytest.fixture
def graph():
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
    return InteractionHypergraph(domain, [["a", "b"], ["c"]], closure=True)


# --- oracles ---------------------------------------------------------------------------------------------------------


def test_table_of_independent_variables_is_the_product_of_margins():
    domain = Domain.from_cardinalities([2, 3])
    graph = InteractionHypergraph(domain, [["x0"], ["x1"]])
    p, q = np.array([0.2, 0.8]), np.array([0.1, 0.3, 0.6])
    log_table = testing.exact_table(graph, {("x0",): np.log(p), ("x1",): np.log(q)})
    testing.assert_close(np.exp(log_table), np.outer(p, q), relative=1e-14)


def test_table_equals_a_loop_over_states(graph):
    tables = testing.random_tables(graph, np.random.default_rng(1), scale=2.0, batch_shape=(3,))
    log_table = testing.exact_table(graph, tables)
    parts = testing.split_tables(graph, tables)
    codes = testing.enumerate_codes(graph.domain.cardinalities)
    for b in range(3):
        energy = []
        for state in codes:
            total = 0.0
            for edge, positions in zip(graph.edges, graph.edge_indices, strict=True):
                total += parts[edge][(b, *(state[i] for i in positions))]
            energy.append(total)
        log_z = math.log(math.fsum(math.exp(e) for e in energy))
        testing.assert_close(log_table[b].reshape(-1), np.array(energy) - log_z, relative=1e-13)
        testing.assert_close(testing.exact_log_partition(graph, tables[b]), log_z, relative=1e-13)


def test_saturated_tables_reproduce_any_law():
    domain = Domain.from_cardinalities([2, 2])
    graph = InteractionHypergraph.saturated(domain)
    law = np.array([[0.1, 0.2], [0.3, 0.4]])
    tables = {("x0",): np.zeros(2), ("x1",): np.zeros(2), ("x0", "x1"): np.log(law)}
    testing.assert_close(np.exp(testing.exact_table(graph, tables)), law, relative=1e-14)


def test_scale_thirty_is_normalised(graph):
    log_table = testing.exact_table(graph, testing.random_tables(graph, np.random.default_rng(2), scale=30.0))
    assert abs(np.exp(log_table).sum() - 1) < 1e-12


def test_statistics_and_covariance_are_derivatives_of_log_z(graph):
    tables = testing.random_tables(graph, np.random.default_rng(3))
    log_table = testing.exact_table(graph, tables)
    eta = testing.exact_statistics(graph, log_table)
    covariance = testing.exact_covariance(graph, log_table)
    step = 1e-5
    for i in range(graph.num_terms):
        move = np.zeros(graph.num_terms)
        move[i] = step
        up, down = tables + move, tables - move
        slope = (testing.exact_log_partition(graph, up) - testing.exact_log_partition(graph, down)) / (2 * step)
        assert abs(slope - eta[i]) < 1e-9
        means = [testing.exact_statistics(graph, testing.exact_table(graph, t)) for t in (up, down)]
        testing.assert_close((means[0] - means[1]) / (2 * step), covariance[i], relative=1e-8)


def test_one_interaction_dropped_is_seen(graph):
    tables = testing.random_tables(graph, np.random.default_rng(4))
    parts = testing.split_tables(graph, tables)
    parts[("a", "b")] = np.zeros_like(parts[("a", "b")])
    with pytest.raises(AssertionError, match="out of tolerance"):
        testing.assert_close(testing.exact_table(graph, parts), testing.exact_table(graph, tables))


def test_no_edges_is_uniform_and_keeps_the_batch():
    graph = InteractionHypergraph(Domain.from_cardinalities([2, 3]), [])
    log_table = testing.exact_table(graph, np.zeros((4, 0)))
    testing.assert_close(log_table, np.full((4, 2, 3), -math.log(6)), relative=1e-15)
    assert testing.exact_statistics(graph, log_table).shape == (4, 0)


def test_flat_layout_round_trip(graph):
    tables = testing.random_tables(graph, np.random.default_rng(5), batch_shape=(2,))
    testing.assert_close(join_tables(graph, testing.split_tables(graph, tables)), tables, relative=0)
    torch_tables = torch.as_tensor(tables, dtype=torch.float64)
    testing.assert_close(testing.exact_table(graph, torch_tables), testing.exact_table(graph, tables), relative=0)


@pytest.mark.parametrize("tables", [np.zeros(3), {("a",): np.zeros(2)}, {}])
def test_wrong_tables_are_refused(graph, tables):
    with pytest.raises(InputError, match="tables"):
        testing.exact_table(graph, tables)


def test_count_states():
    states = torch.tensor([[[0, 0], [1, 2]], [[1, 2], [0, 1]]])
    assert testing.count_states(states, (2, 3)).tolist() == [1, 1, 0, 0, 0, 2]
    assert testing.count_states(np.zeros((5, 0)), ()).tolist() == [5]
    for bad in ([[0, 3]], [[0, -1]], [[0, 0.5]], [[0, 0, 0]]):
        with pytest.raises(InputError, match="states"):
            testing.count_states(bad, (2, 3))


# --- exact laws ------------------------------------------------------------------------------------------------------


def test_required_draws_are_the_published_sizes():
    """Sizes by hand: 9.6k / 60k for 16 cells, 14k / 89k for 64, 142k for 243 at 0.02, all at power 0.999."""
    assert [round(testing.required_draws(k, 0.05), -2) for k in (16, 64)] == [9600, 14200]
    assert [round(testing.required_draws(k, 0.02), -3) for k in (16, 64, 243)] == [60000, 88000, 142000]


@pytest.mark.parametrize("num_cells", [16, 64])
def test_exact_draws_pass_and_a_law_off_by_the_stated_error_fails(num_cells):
    """Seed 11; the detectable error is 0.05 in total variation, detected with probability 0.999."""
    rng = np.random.default_rng(11)
    law = np.full(num_cells, 1 / num_cells)
    draws = testing.required_draws(num_cells, 0.05)
    testing.assert_exact_law(rng.multinomial(draws, law), law)
    biased = law * (1 + 0.1 * (-1.0) ** np.arange(num_cells))
    assert abs(0.5 * np.abs(biased - law).sum() - 0.05) < 1e-12
    with pytest.raises(AssertionError, match="chi-square"):
        testing.assert_exact_law(rng.multinomial(draws, biased), law)


def test_draws_of_a_model_pass_and_one_interaction_dropped_fails(graph):
    """Seed 12, 20,000 draws."""
    rng = np.random.default_rng(12)
    tables = testing.random_tables(graph, rng)
    probs = np.exp(testing.exact_table(graph, tables))
    parts = testing.split_tables(graph, tables)
    parts[("a", "b")] = np.zeros_like(parts[("a", "b")])
    wrong = np.exp(testing.exact_table(graph, parts))
    testing.assert_exact_law(rng.multinomial(20_000, probs.reshape(-1)).reshape(probs.shape), probs)
    with pytest.raises(AssertionError):
        testing.assert_exact_law(rng.multinomial(20_000, wrong.reshape(-1)).reshape(probs.shape), probs)


def test_structural_zero_fails_outright():
    with pytest.raises(AssertionError, match="probability zero"):
        testing.assert_exact_law([5000, 4999, 1], [0.5, 0.5, 0.0])
    testing.assert_exact_law([5000, 5000, 0], [0.5, 0.5, 0.0])


def test_total_variation_criterion_sees_what_pooling_hides():
    """1,000 rare cells pool into one, so chi-square is blind to all draws of them falling into one cell."""
    law = np.append(np.full(1000, 0.5 / 1000), 0.5)
    counts = np.zeros(1001)
    counts[0] = counts[-1] = 5000
    with pytest.raises(AssertionError, match="total variation"):
        testing.assert_exact_law(counts, law)
    testing.assert_exact_law(np.random.default_rng(13).multinomial(10_000, law), law)


def test_pooling_keeps_all_draws_and_respects_the_minimum():
    p_value, cells = testing.chi_square_p_value([950, 30, 20], [0.95, 0.03, 0.02])
    assert (p_value, cells) == (1.0, 1)
    p_value, cells = testing.chi_square_p_value([880, 60, 60], [0.88, 0.06, 0.06])
    assert (p_value, cells) == (1.0, 2)


def test_total_variation_bound_holds_at_its_rate():
    """Seed 14: at alpha = 0.05 over 2,000 experiments the bound fails at most at its rate (it is conservative)."""
    rng = np.random.default_rng(14)
    law = rng.dirichlet(np.ones(30))
    draws = rng.multinomial(500, law, size=2000) / 500
    distance = 0.5 * np.abs(draws - law).sum(axis=1)
    assert (distance >= testing.total_variation_bound(30, 500, 0.05)).mean() <= 0.05


@pytest.mark.parametrize(
    ("counts", "probs"), [([1, 2], [0.5, 0.4, 0.1]), ([0, 0], [0.5, 0.5]), ([1, 2], [0.5, 0.6]), ([1, -2], [0.5, 0.5])]
)
def test_law_arguments_are_checked(counts, probs):
    with pytest.raises(InputError):
        testing.assert_exact_law(counts, probs)


# --- calibration -----------------------------------------------------------------------------------------------------


def _normal_ranks(rng, scale):
    """Ranks in a conjugate normal model (noise sd 10) the posterior using ``scale`` times the prior sd."""
    truth = rng.standard_normal(1000)
    data = truth + 10 * rng.standard_normal(1000)
    variance = 1 / (1 / 100 + 1 / scale**2)
    draws = data[:, None] * variance / 100 + math.sqrt(variance) * rng.standard_normal((1000, 99))
    return (draws < truth[:, None]).sum(axis=1)


def test_right_posterior_has_uniform_ranks_and_wrong_ones_are_refused():
    """Seed 21, 1,000 replications of 99 draws in 20 bins; a prior sd 20 % small or 35 % large is found with 0.999.

    The chi-square divergence of the ranks from uniform is that of N(0, 1) from N(0, s^2), s^2/sqrt(2 s^2 - 1) - 1.
    """
    critical = stats.chi2.isf(testing.FALSE_ALARM_RATE, 19)
    rng = np.random.default_rng(21)
    assert len(testing.assert_uniform_ranks(_normal_ranks(rng, 1.0), 99)) == 1
    for scale in (0.8, 1.35):
        divergence = scale**2 / math.sqrt(2 * scale**2 - 1) - 1
        assert stats.ncx2.sf(critical, 19, 1000 * divergence) > 0.997
        with pytest.raises(AssertionError, match="not uniform"):
            testing.assert_uniform_ranks(_normal_ranks(rng, scale), 99)


@pytest.mark.parametrize(("expected", "ratio"), [(50, 1.24), (20, 1.62)])
def test_exact_false_alarm_rate_of_the_rank_test(expected, ratio):
    assert 1.0 < rank_test_rate(testing.FALSE_ALARM_RATE, 20, expected) / testing.FALSE_ALARM_RATE < ratio


def test_only_the_wrong_quantity_is_named():
    rng = np.random.default_rng(22)
    ranks = np.stack([_normal_ranks(rng, 1.0), np.full(1000, 50)], axis=1)
    with pytest.raises(AssertionError, match=r"ranks of second .*p = "):
        testing.assert_uniform_ranks(ranks, 99, names=["first", "second"])


@pytest.mark.parametrize(
    "arguments",
    [
        (np.full(1000, 100), 99, 20),
        (np.full(1000, 0.5), 99, 20),
        (np.zeros(1000), 98, 20),
        (np.zeros(100), 99, 20),
        (np.zeros((2, 2, 2)), 99, 20),
    ],
)
def test_rank_arguments_are_checked(arguments):
    ranks, draws, bins = arguments
    with pytest.raises(InputError):
        testing.assert_uniform_ranks(ranks, draws, num_bins=bins)


# --- transition matrices ---------------------------------------------------------------------------------------------


def test_stationary_chain_passes_and_degenerate_ones_fail():
    law = np.array([0.2, 0.3, 0.5])
    metropolis = np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            if i != j:
                metropolis[i, j] = 0.5 * min(1.0, law[j] / law[i])
        metropolis[i, i] = 1 - metropolis[i].sum()
    second = testing.assert_stationary(metropolis, law)
    assert 0 < second < 1
    with pytest.raises(AssertionError, match="does not mix"):
        testing.assert_stationary(np.eye(3), law)
    with pytest.raises(AssertionError, match="does not mix"):
        testing.assert_stationary([[0, 1], [1, 0]], [0.5, 0.5])
    with pytest.raises(AssertionError, match="moves"):
        testing.assert_stationary(metropolis, [0.21, 0.29, 0.5])
    with pytest.raises(AssertionError, match="sums to one"):
        testing.assert_stationary(metropolis * 0.99, law)


def test_close_refuses_nan_shapes_and_differences():
    testing.assert_close(torch.tensor([1.0, math.inf]), [1.0, math.inf])
    for actual, expected in [([math.nan], [math.nan]), ([1.0], [1.0 + 1e-9]), ([1.0], [[1.0]]), ([math.inf], [1.0])]:
        with pytest.raises(AssertionError):
            testing.assert_close(actual, expected)


def test_p_value_is_pearsons():
    counts = np.array([180, 220, 210, 190])
    expected = stats.chisquare(counts, np.full(4, 200)).pvalue
    assert testing.chi_square_p_value(counts, np.full(4, 0.25))[0] == pytest.approx(expected, rel=1e-12)


# Log Z of the hard models against sums over all states, and the rule of false claims.

SMALL = [
    mean_field_spins(7, -1.3, 2.2, 5.0),
    curie_weiss(8, 1.3, 0.1),
    two_wells(7, 0.4, 1.0, 2.5),
    condensing_level(5, 4, 0.7),
    blocks_of_levels(5, [1, 3, 1, 2], [0.3, 0.7, 1.1, -0.4], [0.6, 0.0, -0.2]),
    broad_phase(6, 3, 2, 1.5, field=1.2),
    condensate_and_dimers(5, 6, 1.3, 1.5, 2.0),
    shuffled(condensate_and_dimers(4, 5, 0.9, 1.1, 0.4), 3),
    potts_complete(6, 3, 3.1),
    potts_complete(5, 4, 2.0, 0.8),
    potts_grid(3, 3, 3, 0.9),
    sign_grid(3, 4, 1.1, seed=3),
    spin_glass(9, 1.5, seed=2),
    xor_sat(9, 2.0, seed=4),
    needle(5, 6.0, others=3, seed=1),
    hidden_needle(3, 6, 4.0, decoys=3, seed=1),
]


@pytest.mark.parametrize("model", SMALL, ids=lambda model: f"{model.name} {model.parameters}")
def test_log_z_is_the_sum_over_all_states(model):
    exact = float(exact_log_partition(model.energy.hypergraph, model.energy.tables))
    assert abs(model.log_z - exact) <= 1e-12 * abs(exact)
    assert abs(enumerated_log_z(model.energy) - exact) <= 1e-12 * abs(exact)
    tables = model.energy.tables.clone()  # the control: one entry of one table changed
    tables[-1] += 1e-3
    assert abs(model.log_z - float(exact_log_partition(model.energy.hypergraph, tables))) > 1e-12 * abs(exact)


@pytest.mark.parametrize(("size", "linear", "pair"), [(2, -0.3, 0.4), (3, -1.0, 0.3), (3, -4.0, 2.0)])
def test_log_z_of_counts_is_the_sum_over_all_counts(size, linear, pair):
    model = root_counts(size, linear, pair)
    exact = log_sum(listed("poisson", model.energy, {2: 200, 3: 60}[size])[1])
    assert abs(model.log_z - exact) < 1e-10
    assert abs(root_counts(size, linear, pair + 1e-6).log_z - exact) > 1e-7  # the control


def test_equations_of_xor_sat_have_one_solution_for_every_right_hand_side():
    model = xor_sat(10, 1.0, seed=3)
    states = np.indices((2,) * 10).reshape(10, -1)
    products = np.stack([states[list(scope)].sum(0) % 2 for scope in model.energy.hypergraph.edge_indices])
    assert len(np.unique(products, axis=1).T) == 2**10


def test_large_grid_agrees_with_elimination():
    model = sign_grid(10, 10, 2.0, seed=0)
    found = float(VariableElimination().log_partition(model.energy).value)
    assert abs(found - model.log_z) < 1e-9


def test_suite_has_the_counterexamples_and_finite_constants():
    for name in HARD_CLASSES:
        first = next(hard_models(name))
        assert first.name == name
        assert math.isfinite(first.log_z)
    sizes = {model.parameters["size"]: model.log_z for model in hard_models("spins of orders 1 to 3")}
    assert abs(sizes[30] - 263.444) < 1e-3
    with pytest.raises(InputError, match="expected '"):
        hard_models("soft")


def test_easy_models_stay_small_and_weak():
    for model in easy_models(16):
        assert math.prod(model.energy.hypergraph.domain.cardinalities) <= 2**16
        assert float(model.energy.tables.abs().max()) < 3


def test_rule_of_false_claims():
    model = curie_weiss(8, 0.5)
    result = AnnealedImportance(seed=1, num_chains=64, num_temperatures=50).log_partition(model.energy)
    assert not is_false_claim(result, model.log_z)
    shifted = replace(result, value=result.value + 1.0)
    assert is_false_claim(shifted, model.log_z)
    assert not is_false_claim(replace(shifted, verdicts=torch.zeros_like(result.verdicts)), model.log_z)
    assert not is_false_claim(replace(shifted, std_error=torch.tensor(0.3)), model.log_z)
    assert not is_false_claim(replace(result, value=torch.tensor(model.log_z + 0.04), std_error=0.0), model.log_z)
