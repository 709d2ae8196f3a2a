"""Weights of annealed runs against exact transitions of the same schedule: means, variances and reversal."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim.annealing import runs as annealed_runs
from pyro_hoim.annealing.weights import acceptance_ratio, log_mean_weight
from pyro_hoim.log_linear import AnnealedImportance, LogLinearEnergy
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, enumerate_codes, exact_table, random_tables

CARDS = [2, 3, 2, 2]
GRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities(CARDS), 3)
CODES = enumerate_codes(CARDS)
BETAS = np.array([0.0, 0.15, 0.45, 0.7, 1.0])
SITES = ((0,), (1,), (2,), (3,))
PAIRS = ((0, 1), (1, 2), (3,))
Z_LIMIT = -stats.norm.ppf(FALSE_ALARM_RATE / 2)


def model(seed=0, scale=1.0):
    tables = random_tables(GRAPH, np.random.default_rng(seed), scale=scale, balanced=False)
    return LogLinearEnergy(GRAPH, torch.tensor(tables))


def log_laws(tables, reference):
    """Log q (states,) and log q0 (states,) of a reference with log weights by variable."""
    starts = np.cumsum([0, *CARDS])[:-1]
    return (
        exact_table(GRAPH, tables, normalised=False).reshape(-1),
        sum(reference[start + CODES[:, i]] for i, start in enumerate(starts)),
    )


def move(log_f, block):
    """Transition matrix that draws the block from its conditional law given the rest."""
    others = [i for i in range(len(CARDS)) if i not in block]
    is_same = (CODES[:, None, others] == CODES[None, :, others]).all(-1)
    weights = np.where(is_same, np.exp(log_f - log_f.max())[None], 0.0)
    return weights / weights.sum(1, keepdims=True)


def together(log_f):
    """The control: all variables drawn at once from their single-site conditionals."""
    result = np.ones((len(CODES), len(CODES)))
    for i in range(len(CARDS)):
        single = move(log_f, (i,))
        for level in range(CARDS[i]):
            column = single[:, CODES[:, i] == level].sum(1)
            result[:, CODES[:, i] == level] *= column[:, None]
    return result


def sweep(log_f, blocks):
    """Transition matrix of visits to the blocks in order."""
    result = np.eye(len(CODES))
    for block in blocks:
        result = result @ move(log_f, block)
    return result


def moment(laws, start, betas, blocks, power=1, kernel=sweep):
    """E[w ** power] of a run from the law ``start`` through ``betas``, by pushing the weighted law through."""
    log_q, log_q0 = laws
    mass = start.copy()
    for before, after in itertools.pairwise(betas):
        mass = mass * np.exp(power * (after - before) * (log_q - log_q0))
        log_f = after * log_q + (1 - after) * log_q0
        mass = mass @ (kernel(log_f, blocks) if kernel is sweep else kernel(log_f))
    return mass.sum()


def setting(seed=0):
    found = model(seed)
    reference = np.random.default_rng(seed + 1).normal(size=sum(CARDS))
    laws = log_laws(found.tables, reference)
    normal = [np.exp(v - v.max()).sum() * np.exp(v.max()) for v in laws]
    starts = [np.exp(v) / n for v, n in zip(laws, normal, strict=True)]
    return found, reference, laws, np.log(normal[0] / normal[1]), starts


@pytest.mark.parametrize("blocks", [SITES, PAIRS])
def test_mean_weight_is_the_ratio_of_constants(blocks):
    _, _, laws, log_ratio, (target, start) = setting()
    assert_close(np.log(moment(laws, start, BETAS, blocks)), log_ratio, relative=1e-10)
    backwards = moment(laws, target, BETAS[::-1], blocks[::-1])
    assert_close(-np.log(backwards), log_ratio, relative=1e-10)


def test_controls_break_the_identity():
    _, _, laws, log_ratio, (target, start) = setting()
    assert abs(np.log(moment(laws, start, BETAS, SITES, kernel=together)) - log_ratio) > 1e-3
    wrong = np.log(moment(laws, start, np.array([0.05, *BETAS[1:]]), SITES))  # starts at another temperature
    assert abs(wrong - log_ratio) > 1e-3
    hotter = (0.95 * laws[0] + 0.05 * laws[1], laws[1])  # moves at a beta off by 5 %, weights as before
    mass = start.copy()
    for before, after in itertools.pairwise(BETAS):
        mass = mass * np.exp((after - before) * (laws[0] - laws[1]))
        mass = mass @ sweep(after * hotter[0] + (1 - after) * hotter[1], SITES)
    assert abs(np.log(mass.sum()) - log_ratio) > 1e-4
    assert abs(np.log(moment(laws, target, BETAS, SITES)) - log_ratio) > 1e-3


def runs_of(blocks, num_chains, seed):
    """Forward and reverse log weights of the library on the setting."""
    found, reference, *_ = setting()
    schedule = GibbsSchedule([[GRAPH.domain.names[i] for i in block] for block in blocks])
    options = AnnealedImportance(
        num_chains=num_chains, temperatures=BETAS, reference=torch.tensor(reference), schedule=schedule, seed=seed
    )
    run = annealed_runs.forward(options._annealed(found), seed)
    return run.log_weights[0].numpy(), annealed_runs.reverse(run).log_weights[0].numpy()


@pytest.mark.parametrize("blocks", [SITES, PAIRS])
def test_library_weights_have_the_exact_moments(blocks):
    _, _, laws, log_ratio, (target, start) = setting()
    count = 100_000
    forward, reverse = runs_of(blocks, count, seed=3)
    for log_weights, law, path, order, expected in (
        (forward, start, BETAS, blocks, log_ratio),
        (reverse, target, BETAS[::-1], blocks[::-1], -log_ratio),
    ):
        scaled = np.exp(log_weights - expected)
        moments = [moment(laws, law, path, order, power) * np.exp(-power * expected) for power in (1, 2, 3, 4)]
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
    _, _, laws, log_ratio, (_, start) = setting()
    forward, _ = runs_of(SITES, 128 * 500, seed=5)
    runs = log_mean_weight(forward.reshape(500, 128))
    exact = np.sqrt((moment(laws, start, BETAS, SITES, 2) * np.exp(-2 * log_ratio) - 1) / 128)
    assert np.median(runs.error) == pytest.approx(exact, rel=0.25)
    errors = runs.value - log_ratio
    spread = np.sqrt(stats.chi2.ppf([FALSE_ALARM_RATE, 1 - FALSE_ALARM_RATE], 500) / 500)
    assert exact * spread[0] * 0.9 < np.sqrt(np.mean(errors**2)) < exact * spread[1] * 1.1


@pytest.mark.fixed_seed  # of the control, which is off by a tenth only
def test_reverse_runs_are_the_reversal_of_forward_runs():
    _, _, _, log_ratio, _ = setting()
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
