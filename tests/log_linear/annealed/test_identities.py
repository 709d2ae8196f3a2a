"""Weights of annealed runs against exact transitions of the same schedule: means, variances and reversal."""

import itertools

import numpy as np
import pytest
import torch
from scipy import special, stats

from pyro_hoim.annealing import runs as annealed_runs
from pyro_hoim.annealing.weights import acceptance_ratio, log_mean_weight
from pyro_hoim.log_linear import AnnealedImportance, LogLinearEnergy
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    enumerate_codes,
    exact_log_partition,
    exact_table,
    random_tables,
)

from support.transitions import block_update_matrix, sweep_matrix, tempered_law

CARDS = [2, 3, 2, 2]
GRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities(CARDS), 3)
CODES = enumerate_codes(CARDS)
BETAS = np.array([0.0, 0.15, 0.45, 0.7, 1.0])
SITES = (("x0",), ("x1",), ("x2",), ("x3",))
PAIRS = (("x0", "x1"), ("x1", "x2"), ("x3",))
Z_LIMIT = -stats.norm.ppf(FALSE_ALARM_RATE / 2)


def together(graph, tables, blocks, *, beta, reference):
    """The control: all variables drawn at once from their single-site conditionals."""
    result = np.ones((len(CODES), len(CODES)))
    for i, block in enumerate(blocks):
        single = block_update_matrix(graph, tables, block, beta=beta, reference=reference)
        for level in range(CARDS[i]):
            column = single[:, CODES[:, i] == level].sum(1)
            result[:, CODES[:, i] == level] *= column[:, None]
    return result


def moment(model, start, betas, blocks, power=1, kernel=sweep_matrix, factor=1.0):
    """E[w ** power] of a run from the law ``start`` through ``betas``, by pushing the weighted law through."""
    tables, reference = model
    of_reference = reference[CODES + np.cumsum([0, *CARDS])[:-1]].sum(1)
    gain, mass = exact_table(GRAPH, tables, normalised=False).reshape(-1) - of_reference, start
    for before, after in itertools.pairwise(betas):
        mass = mass * np.exp(power * (after - before) * gain)
        mass = mass @ kernel(GRAPH, tables, blocks, beta=factor * after, reference=reference)
    return mass.sum()


def setting():
    """Tables with reference log weights, the log ratio of their constants, and the laws at both ends."""
    tables = random_tables(GRAPH, np.random.default_rng(0), balanced=False)
    reference = np.random.default_rng(1).normal(size=sum(CARDS))
    log_z0 = sum(special.logsumexp(part) for part in np.split(reference, np.cumsum(CARDS)[:-1]))
    laws = [tempered_law(GRAPH, tables, beta=beta, reference=reference) for beta in (1.0, 0.0)]
    return (tables, reference), float(exact_log_partition(GRAPH, tables)) - log_z0, laws


@pytest.mark.parametrize("blocks", [SITES, PAIRS])
def test_mean_weight_is_the_ratio_of_constants(blocks):
    model, log_ratio, (target, start) = setting()
    assert_close(np.log(moment(model, start, BETAS, blocks)), log_ratio, relative=1e-10)
    backwards = moment(model, target, BETAS[::-1], blocks[::-1])
    assert_close(-np.log(backwards), log_ratio, relative=1e-10)


def test_controls_break_the_identity():
    model, log_ratio, (target, start) = setting()
    assert abs(np.log(moment(model, start, BETAS, SITES, kernel=together)) - log_ratio) > 1e-3
    wrong = np.log(moment(model, start, np.array([0.05, *BETAS[1:]]), SITES))  # starts at another temperature
    assert abs(wrong - log_ratio) > 1e-3
    hotter = np.log(moment(model, start, BETAS, SITES, factor=0.95))  # moves at a beta off by 5 %, weights as before
    assert abs(hotter - log_ratio) > 1e-4
    assert abs(np.log(moment(model, target, BETAS, SITES)) - log_ratio) > 1e-3


def runs_of(blocks, num_chains, seed):
    """Forward and reverse log weights of the library on the setting."""
    tables, reference = map(torch.tensor, setting()[0])
    schedule = GibbsSchedule(blocks)
    options = AnnealedImportance(
        num_chains=num_chains, temperatures=BETAS, reference=reference, schedule=schedule, seed=seed
    )
    run = annealed_runs.forward(options._annealed(LogLinearEnergy(GRAPH, tables)), seed)
    return run.log_weights[0].numpy(), annealed_runs.reverse(run).log_weights[0].numpy()


@pytest.mark.parametrize("blocks", [SITES, PAIRS])
def test_library_weights_have_the_exact_moments(blocks):
    model, log_ratio, (target, start) = setting()
    count = 100_000
    forward, reverse = runs_of(blocks, count, seed=3)
    for log_weights, law, path, order, expected in (
        (forward, start, BETAS, blocks, log_ratio),
        (reverse, target, BETAS[::-1], blocks[::-1], -log_ratio),
    ):
        scaled = np.exp(log_weights - expected)
        moments = [moment(model, law, path, order, power) * np.exp(-power * expected) for power in (1, 2, 3, 4)]
        variance = moments[1] - 1
        fourth = moments[3] - 4 * moments[2] + 6 * moments[1] - 3
        assert abs(scaled.mean() - 1) < Z_LIMIT * np.sqrt(variance / count)
        spread = Z_LIMIT * np.sqrt((fourth / variance**2 - 1) / count)  # of the variance of these weights
        assert abs(scaled.var() / variance - 1) < spread
        skewness = (moments[2] - 3 * moments[1] + 2) / variance**1.5 / np.sqrt(count)
        expected_error = np.sqrt(variance / count) * (1 + 19 / 18 * max(skewness, 0))
        # the error goes with the root of the variance; 0.05 is for the skewness, estimated from the same weights
        assert log_mean_weight(log_weights[None]).error[0] == pytest.approx(expected_error, rel=spread / 2 + 0.05)
        assert abs(np.exp(log_weights - log_weights.mean()).mean() - 1) > 1e-2  # the control: another constant


def test_error_of_many_runs_is_the_exact_one():
    model, log_ratio, (_, start) = setting()
    forward, _ = runs_of(SITES, 128 * 500, seed=5)
    runs = log_mean_weight(forward.reshape(500, 128))
    exact = np.sqrt((moment(model, start, BETAS, SITES, 2) * np.exp(-2 * log_ratio) - 1) / 128)
    assert np.median(runs.error) == pytest.approx(exact, rel=0.25)
    errors = runs.value - log_ratio
    spread = np.sqrt(stats.chi2.ppf([FALSE_ALARM_RATE, 1 - FALSE_ALARM_RATE], 500) / 500)
    assert exact * spread[0] * 0.9 < np.sqrt(np.mean(errors**2)) < exact * spread[1] * 1.1


@pytest.mark.fixed_seed  # of the control, which is off by a tenth only
def test_reverse_runs_are_the_reversal_of_forward_runs():
    _, log_ratio, _ = setting()
    count = 100_000
    forward, reverse = runs_of(PAIRS, count, seed=7)
    both = acceptance_ratio(forward[None], reverse[None])
    assert abs(both.value[0] - log_ratio) < Z_LIMIT * both.error[0]
    assert both.error[0] < log_mean_weight(forward[None]).error[0]
    for c in (log_ratio - 1, log_ratio + 0.5):  # Crooks' relation at other places than the ratio itself
        # E_F[w g(w)] / E_F[w] = E_R[g(1 / w)] with g the logistic function of log w - c
        ahead = np.exp(forward - log_ratio) / (1 + np.exp(c - forward))
        behind = 1 / (1 + np.exp(c + reverse))
        error = np.sqrt((ahead.var() + behind.var()) / count)
        assert abs(ahead.mean() - behind.mean()) < Z_LIMIT * error
        assert abs(ahead.mean() - behind.mean() * 1.1) > Z_LIMIT * error
