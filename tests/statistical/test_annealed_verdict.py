"""The verdict on weights of annealed runs: how often error bars hold given that they are called reliable."""

import numpy as np
import pytest
from scipy import stats

from pyro_hoim.annealing import weights
from pyro_hoim.annealing.weights import acceptance_ratio, log_mean_weight
from pyro_hoim.testing import FALSE_ALARM_RATE


def normal(deviation):
    return lambda rng, shape: rng.normal(-(deviation**2) / 2, deviation, shape)


def student(freedom, scale, highest=20.0):
    """Scaled Student variables cut off at a height, without which their weights have no mean."""
    law = stats.t(freedom)
    at = np.linspace(-60, highest, 800_001)
    mean = np.trapezoid(np.exp(scale * at) * law.pdf(at), at) + np.exp(scale * highest) * law.sf(highest)
    return lambda rng, shape: scale * np.minimum(law.rvs(shape, random_state=rng), highest) - np.log(mean)


def mixture(share, height, below=0.3, above=0.5):
    """A share of the chains has larger weights."""
    mean = (1 - share) * np.exp(below**2 / 2) + share * np.exp(height + above**2 / 2)

    def draw(rng, shape):
        high = height + above * rng.normal(size=shape)
        return np.where(rng.random(shape) < share, high, below * rng.normal(size=shape)) - np.log(mean)

    return draw


def pareto(index):
    """Weights with finite moments below ``index``."""
    return lambda rng, shape: rng.exponential(1 / index, shape) + np.log1p(-1 / index)


def gamma(shape_parameter):
    """Weights with a tail lighter than log-normal: their logarithms lean to the left."""
    return lambda rng, shape: np.log(rng.gamma(shape_parameter, 1 / shape_parameter, shape))


def judged(draw, count, repeats, seed):
    """How many of repeated estimates are called reliable, and how many of those miss by more than three errors."""
    found = log_mean_weight(draw(np.random.default_rng(seed), (repeats, count)))
    missed = np.abs(found.value) > 3 * found.error
    return int(found.is_reliable.sum()), int((missed & found.is_reliable).sum())


def is_too_often(missed, repeats, rate=0.01):
    """Whether the Clopper-Pearson limit of the rate of misses lies above the one promised."""
    return missed > 0 and stats.beta.ppf(FALSE_ALARM_RATE, missed, repeats - missed + 1) > rate


@pytest.mark.parametrize("count", [16, 64, 512])
def test_reliable_bars_of_log_normal_weights_hold(count, monkeypatch):
    """For log weights of any spread taken together: an unreliable spread is called reliable too rarely to count."""

    repeats = 3000 if count == 512 else 8000

    def all_of(deviations):
        found = [judged(normal(s), count, repeats, seed) for seed, s in enumerate(deviations)]
        return np.sum(found, axis=0)

    reliable, missed = all_of((0.3, 1.0, 1.5, 2.0))
    assert reliable > 0.8 * repeats
    assert not is_too_often(missed, reliable)
    wide = (1.0, 1.5) if count == 16 else (1.5, 2.0)
    reliable, missed = all_of(wide)
    assert not is_too_often(missed, reliable)
    assert reliable < 20
    # The control: the skewness of the sample alone is small where the large weights were missed.
    monkeypatch.setattr(weights, "_implied_skewness", lambda log_weights: np.zeros(len(log_weights)))
    reliable, missed = all_of(wide)
    assert is_too_often(missed, reliable)


@pytest.mark.parametrize(
    ("draw", "count", "least"),
    [
        (student(10, 0.2), 16, 0.8),
        (student(10, 0.5), 64, 0.6),
        (student(5, 0.2), 512, 0.9),
        (mixture(0.02, 1.0), 512, 0.6),
        (mixture(0.2, 1.0), 128, 0.7),
        (mixture(0.2, 2.0), 512, 0.95),
        (mixture(0.5, 1.0), 128, 0.9),
        (pareto(10), 64, 0.6),
        (pareto(5), 512, 0.9),
        (gamma(1), 512, 0.95),
    ],
)
def test_reliable_bars_of_other_weights_hold(draw, count, least):
    reliable, missed = judged(draw, count, 5000, seed=count)
    assert not is_too_often(missed, reliable)
    assert reliable >= 5000 * least


@pytest.mark.parametrize(
    ("deviation", "count", "least"),
    [(0.3, 16, 0.8), (0.3, 64, 0.95), (0.1**0.5, 512, 0.99), (0.5**0.5, 512, 0.95), (1.0, 512, 0.8)],
)
def test_good_weights_stay_reliable(deviation, count, least):
    reliable, missed = judged(normal(deviation), count, 4000, seed=1)
    assert reliable >= 4000 * least
    assert not is_too_often(missed, 4000)


def test_bars_of_wide_weights_fail_without_the_verdict():
    found = log_mean_weight(normal(10**0.5)(np.random.default_rng(4), (2000, 512)))
    missed = np.abs(found.value) > 3 * found.error
    assert (missed & found.is_reliable).mean() < 0.01
    assert missed.mean() > 0.05  # control


@pytest.mark.parametrize("count", [16, 24, 40])
def test_few_equal_weights_overlap_enough(count):
    rng = np.random.default_rng(count)
    forward, reverse = (rng.normal(-0.005, 0.1, (2000, count)) for _ in range(2))
    found = acceptance_ratio(forward, reverse)
    assert found.is_reliable.mean() > 0.99
    assert not is_too_often(int((np.abs(found.value) > 3 * found.error)[found.is_reliable].sum()), 2000)
    apart = acceptance_ratio(*(rng.normal(-8.0, 4.0, (2000, count)) for _ in range(2)))  # the control
    assert apart.is_reliable.mean() < 0.01
    assert not acceptance_ratio(forward[:, :15], reverse[:, :15]).is_reliable.any()
