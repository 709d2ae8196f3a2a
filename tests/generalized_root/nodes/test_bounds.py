"""Certified bounds of M(a): they hold always, and close with the number of subdomains."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyro_hoim.errors import IntractableError
from pyro_hoim.generalized_root.nodes.bound_kernels import bound_counts
from pyro_hoim.generalized_root.nodes.bounds import node_bounds
from pyro_hoim.generalized_root.nodes.families import (
    ExponentialFamily,
    GaussianFamily,
    PoissonFamily,
    TruncatedPoissonFamily,
)
from pyro_hoim.generalized_root.nodes.log_partition import node_moments
from pyro_hoim.testing import raises

FIGURE = [3.0232, -4.4966]
LONG = np.longdouble
LOG_FACTORIALS = np.concatenate([[LONG(0)], np.cumsum(np.log(np.arange(1, 6000, dtype=LONG)))])


def log_sum(logs):
    top = logs.max()
    return top + np.log(np.exp(logs - top).sum())


def exact(family, eta, power):
    """M(a) in extended precision: direct sums, and trapezoidal sums in the log of |x|."""
    natural = np.array(eta, dtype=LONG)
    if family.is_discrete:
        last = int(min(family.largest_value, 5999))
        x = np.arange(last + 1, dtype=LONG)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = -LOG_FACTORIALS[: last + 1] + (power * np.log(x) if power else 0)
        return log_sum(logs + sum(e * x ** (LONG(1) / j) for j, e in enumerate(natural, 1)))
    step = LONG(1) / 128
    y = np.arange(-60, 40, step, dtype=LONG)
    x, parts = np.exp(y), []
    for sign in (1, -1) if isinstance(family, GaussianFamily) else (1,):
        logs = (power + 1) * y
        for j, e in enumerate(natural, 1):
            if isinstance(family, GaussianFamily):
                logs = logs + e * (sign if j == 2 else 1) * x ** (LONG(2) / j)
            else:
                logs = logs + e * x ** (LONG(1) / j)
        parts.append(log_sum(logs) + np.log(step))
    return log_sum(np.array(parts))


NUMBERS = st.floats(-6, 6, allow_nan=False).map(lambda v: round(v, 3))
FAMILIES = [
    PoissonFamily(),
    TruncatedPoissonFamily(1),
    TruncatedPoissonFamily(30),
    ExponentialFamily(),
    GaussianFamily(),
]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    family=st.sampled_from(FAMILIES),
    eta=st.lists(NUMBERS, min_size=1, max_size=5),
    power=st.sampled_from([0.0, 0.0, 1 / 3, 0.5, 1.0, 7 / 6, 2.0, 6.5]),
    num_subdomains=st.integers(1, 12),
)
def test_bounds_hold_always(family, eta, power, num_subdomains):
    if not family.is_discrete:
        eta = [-abs(eta[0]) - 0.01, *eta[1:]]
    bounds = node_bounds(family, eta, power, num_subdomains)
    truth = exact(family, eta, power)
    assert bounds.lower <= truth <= bounds.upper
    assert len(bounds.subdomains) <= max(num_subdomains, 2 * len(eta) + 2)
    assert bounds.error >= 0 and bounds.power == power


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    family=st.sampled_from(FAMILIES),
    eta=st.lists(NUMBERS, min_size=2, max_size=4),
    power=st.sampled_from([0.0, 0.5, 2.0]),
)
def test_lines_lie_on_their_sides_of_g(family, eta, power):
    if not family.is_discrete:
        eta = [-abs(eta[0]) - 0.01, *eta[1:]]
    bounds = node_bounds(family, eta, power, 6)
    for part in bounds.subdomains:
        half = next(h for h in bounds.halves if h.sign == part.sign)
        right = part.high if math.isfinite(part.high) else 50 * part.low + 50
        x = np.linspace(part.low, right, 201)
        if family.is_discrete:
            x = np.unique(np.floor(x))
        for value in x[x > 0]:
            slack = 1e-13 * (1 + half.size(value))
            assert part.lower_line.slope * value + part.lower_line.intercept <= half.g(value) + slack
            assert part.upper_line.slope * value + part.upper_line.intercept >= half.g(value) - slack


def test_subdomains_divide_the_domain():
    for family in FAMILIES:
        parts = node_bounds(family, [-1.0, 2.0, -3.0, 1.0], 0.5, 9).subdomains
        for sign in (-1, 1):
            side = sorted((p for p in parts if p.sign == sign), key=lambda p: p.low)
            if side:
                gap = 1 if family.is_discrete else 0
                assert side[0].low == (1 if family.is_discrete else 0)
                assert [b.low - a.high for a, b in itertools.pairwise(side)] == [gap] * (len(side) - 1)
                assert side[-1].high == family.largest_value


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_lower_powers_alone_are_bounded_too(power):
    """Exponential with eta_1 = 0, Gaussian with |x|^(2/3) only: x = u^j makes the leading term linear."""
    cases = [(ExponentialFamily(), [0.0, -2.0, 3.0]), (ExponentialFamily(), [0.0, 0.0, -1.5])]
    cases.append((GaussianFamily(), [0.0, 0.0, -2.0, 3.0]))
    for family, eta in cases:
        for n in (1, 3, 12, 40):
            bounds = node_bounds(family, eta, power, n)
            assert bounds.lower <= exact(family, eta, power) <= bounds.upper
        assert bounds.error < 0.1


def test_negative_control_the_misprint_in_the_paper():
    """E x^a = exp(M(a) - M(0)); with M(1), as printed, the same test fails."""
    for a, j in ((1.0, 1), (0.5, 2)):
        mean = node_moments(PoissonFamily(), torch.tensor(FIGURE, dtype=torch.float64)).mean[j - 1].item()
        at_power, at_zero, at_one = (node_bounds(PoissonFamily(), FIGURE, p, 40) for p in (a, 0.0, 1.0))

        def holds(low, high, mean=mean):
            return math.exp(low) <= mean <= math.exp(high)

        assert holds(at_power.lower - at_zero.upper, at_power.upper - at_zero.lower)
        assert at_power.error + at_zero.error < 1e-6
        assert not holds(at_power.lower - at_one.upper, at_power.upper - at_one.lower)


@pytest.mark.parametrize(
    ("family", "eta"),
    [
        (PoissonFamily(), [7.0, -30.0]),
        (PoissonFamily(), [6.0, 20.0, -8.0]),
        (ExponentialFamily(), [-1.0, 2.0, 3.0]),
        (GaussianFamily(), [-1.0, 2.0, 3.0]),
    ],
)
def test_the_gap_falls_with_the_square_of_the_number(family, eta):
    """Slope of log gap against log number from 6 to 48 subdomains: about -2; -1 would fail."""
    numbers = [6, 12, 24, 48]
    gaps = [node_bounds(family, eta, 0.0, n).error for n in numbers]
    slope = np.polyfit(np.log(numbers), np.log(gaps), 1)[0]
    assert slope < -1.6, gaps
    assert all(a > b for a, b in itertools.pairwise(gaps))


def test_closed_forms_need_no_subdomains():
    for family, eta in ((PoissonFamily(), [2.0]), (ExponentialFamily(), [-0.3]), (GaussianFamily(), [-0.5, 3.0])):
        bounds = node_bounds(family, eta, 0.0, 1)
        assert bounds.error < 1e-11
        assert bounds.lower <= exact(family, eta, 0.0) <= bounds.upper


def test_large_counts():
    for eta in ([16.118], [16.118, 0.5, -0.5], [14.0, -400.0]):
        value = node_moments(PoissonFamily(), torch.tensor(eta, dtype=torch.float64)).value.item()
        bounds = node_bounds(PoissonFamily(), eta, 0.0, 24)
        assert bounds.lower <= value * (1 + 1e-14) and bounds.upper >= value * (1 - 1e-14)
        assert bounds.error < 1e-6 * value
    with pytest.raises(IntractableError, match="mean count up to 1e\\+11"):
        node_bounds(PoissonFamily(), [26.0])


def test_bad_arguments():
    poisson = PoissonFamily()
    for code, argument, *arguments in (
        ("wrong-type", "family", "poisson", FIGURE),
        ("wrong-shape", "natural", poisson, torch.zeros(2, 2)),
        ("not-finite", "natural", poisson, [1.0, math.nan]),
        *(("out-of-range", "power", poisson, FIGURE, power) for power in (-1.0, math.nan, math.inf, "a")),
        *(("out-of-range", "num_subdomains", poisson, FIGURE, 0.0, number) for number in (0, 2.5, True)),
        ("not-normalizable", "natural", ExponentialFamily(), [0.0, 1.0]),
    ):
        with raises(code, argument):
            node_bounds(*arguments)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    top=st.sampled_from([math.inf, 40.0, 5.0, 1.0]),
    eta=st.lists(NUMBERS, min_size=1, max_size=4),
    num_subdomains=st.sampled_from([1, 2, 9, 20]),
)
def test_compiled_bounds_lie_above_direct_sums(top, eta, num_subdomains):
    """Off by what a tangent or a secant leaves, never below."""
    value, empty = np.empty(1), np.empty((0, len(eta)))
    family = TruncatedPoissonFamily(int(top)) if math.isfinite(top) else PoissonFamily()
    bound_counts(np.array([eta]), top, num_subdomains, 0, value, empty, empty[..., None])
    truth = float(exact(family, eta, 0.0))
    assert value[0] >= truth - 1e-12 * (1 + abs(truth))
    fine = value.copy()
    bound_counts(np.array([eta]), top, 80, 0, fine, empty, empty[..., None])
    assert fine[0] <= truth + 1e-5 * (1 + abs(truth))


def test_compiled_bounds_have_their_own_gradient_and_hessian():
    """By central differences; a control takes the exact mean, which is not the gradient of the bound."""
    rng = np.random.default_rng(3)
    eta = rng.normal(size=(200, 3)) * [0.7, 1.5, 1.5]
    value, mean, covariance = np.empty(200), np.empty((200, 3)), np.empty((200, 3, 3))
    bound_counts(eta, math.inf, 3, 2, value, mean, covariance)
    step, slopes, bends = 1e-6, np.empty((200, 3)), np.empty((200, 3, 3))
    for j in range(3):
        sides = []
        for sign in (1, -1):
            moved, found, at = eta.copy(), np.empty(200), np.empty((200, 3))
            moved[:, j] += sign * step
            bound_counts(moved, math.inf, 3, 1, found, at, covariance[:0])
            sides.append((found, at))
        slopes[:, j] = (sides[0][0] - sides[1][0]) / (2 * step)
        bends[:, j] = (sides[0][1] - sides[1][1]) / (2 * step)
    # A row where a subdomain moves within the step jumps; there are few.
    is_smooth = np.abs(slopes - mean).max(1) < 1e-6 * (1 + np.abs(mean).max(1))
    assert is_smooth.mean() > 0.98
    assert (np.abs(bends - covariance).max((1, 2)) < 1e-5 * (1 + np.abs(covariance).max((1, 2))))[is_smooth].all()
    truth = node_moments(PoissonFamily(), torch.from_numpy(eta)).mean.numpy()
    control = np.abs(slopes - truth).max(1) < 1e-6 * (1 + np.abs(truth).max(1))
    assert control.mean() < 0.5
