"""Weights: resampling, the verdict on their mean, the acceptance ratio, and what they refuse."""

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim.annealing import weights
from pyro_hoim.annealing.runs import resampled
from pyro_hoim.annealing.weights import acceptance_ratio, island_means, log_mean_weight
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

Z_LIMIT = -stats.norm.ppf(FALSE_ALARM_RATE / 2)


def test_resampling_inside_islands_keeps_the_mean():
    generator = torch.Generator().manual_seed(1)
    log_weights = torch.randn(3, 64, dtype=torch.float64, generator=generator) * 2
    index, after = resampled(log_weights, 4, 1.0, generator)
    assert np.allclose(island_means(after.numpy(), 4), island_means(log_weights.numpy(), 4))
    assert torch.equal(index // 16, torch.arange(64).div(16, rounding_mode="floor").expand(3, 64))
    share = torch.softmax(log_weights.reshape(3, 4, 16), -1).reshape(3, 64)
    copies = torch.zeros(3, 64, dtype=torch.float64).scatter_add_(1, index, torch.ones(3, 64, dtype=torch.float64))
    assert bool(((copies - 16 * share).abs() < 1).all())  # systematic: within one of the expected number
    kept, same = resampled(log_weights, 4, 1e-9, generator)
    assert torch.equal(kept, torch.arange(64).expand(3, 64))
    assert torch.equal(same, log_weights)


def test_resampling_has_the_expected_number_of_copies():
    log_weights = torch.tensor([[0.0, 1.0, 2.0, -1.0]], dtype=torch.float64).expand(20_000, 4)
    index, _ = resampled(log_weights, 1, 1.0, torch.Generator().manual_seed(2))
    copies = torch.stack([(index == k).double().sum(-1) for k in range(4)], -1)
    share = torch.softmax(log_weights[0], -1)
    assert bool(((copies.mean(0) - 4 * share).abs() < Z_LIMIT * copies.std(0) / 20_000**0.5 + 1e-12).all())


def test_equal_weights_leave_no_error():
    found = log_mean_weight(np.full((1, 32), 2.0))
    assert found.value[0] == 2.0
    assert found.error[0] == 0.0
    assert found.ess[0] == 32
    assert bool(found.is_reliable[0])


def test_a_ratio_that_was_not_solved_is_not_reliable(monkeypatch):
    rng = np.random.default_rng(5)
    forward, reverse = 2.5 + rng.standard_normal((2, 500)), -3.5 + rng.standard_normal((2, 500))
    found = weights.acceptance_ratio(forward, reverse)
    assert found.is_reliable.all()  # control: enough steps
    assert np.abs(found.value - 3.0).max() < 6 * found.error.max()
    monkeypatch.setattr(weights, "_MAX_STEPS", 2)
    assert not weights.acceptance_ratio(forward, reverse).is_reliable.any()


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ([0.0, 1.0], "wrong-type"),
        (np.zeros(20), "wrong-shape"),
        (np.zeros((2, 0)), "wrong-shape"),
        (np.full((1, 20), np.nan), "not-finite"),
    ],
)
def test_weights_that_are_refused(bad, code):
    good = np.zeros((1, 20))
    with raises(code, "log_weights"):
        log_mean_weight(bad)
    with raises(code, "reverse"):
        acceptance_ratio(good, bad)
    with raises("wrong-shape", "reverse"):
        acceptance_ratio(good, good[:, 1:])
    with raises("out-of-range", "level"):
        weights.one_sided_limits(log_mean_weight(good), 1, np.ones(1, dtype=bool))
