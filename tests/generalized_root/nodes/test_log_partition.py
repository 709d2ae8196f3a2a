"""Node log partitions: value, gradient and Hessian against arbitrary precision; certified bounds."""

import itertools
import math
import time
from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyro_hoim.errors import InputError, IntractableError
from pyro_hoim.generalized_root import draw_from_nodes, node_bounds, node_log_partition, node_moments
from pyro_hoim.generalized_root.nodes import kernels
from pyro_hoim.generalized_root.nodes.bound_kernels import bound_counts
from pyro_hoim.generalized_root.nodes.families import (
    ExponentialFamily,
    GaussianFamily,
    PoissonFamily,
    TruncatedPoissonFamily,
    node_family,
)
from pyro_hoim.generalized_root.nodes.integrability_kernels import is_integrable
from pyro_hoim.generalized_root.nodes.kernels import evaluate_nodes
from pyro_hoim.testing import raises

BY_CODE = {0: PoissonFamily(), 2: ExponentialFamily(), 3: GaussianFamily()}


def evaluate(code, eta, maximum=math.inf, order=2):
    rows = np.ascontiguousarray(eta, dtype=np.float64)
    n, k = rows.shape
    value, mean, cov = np.full(n, np.nan), np.full((n, k), np.nan), np.full((n, k, k), np.nan)
    family = TruncatedPoissonFamily(int(maximum)) if code == 1 else BY_CODE[code]
    evaluate_nodes(family, rows, order, value, mean, cov)
    return value, mean, cov


def weighted_moments(rows):
    """Sum of the weights, mean and covariance of what they weigh, in the precision of the caller."""
    weights, columns = [w for w, _ in rows], list(zip(*(t for _, t in rows), strict=True))
    total = mpmath.fsum(weights)
    mean = [mpmath.fdot(weights, column) / total for column in columns]
    centred = [[x - m for x in column] for column, m in zip(columns, mean, strict=True)]
    scaled = [[w * x for w, x in zip(weights, column, strict=True)] for column in centred]
    return total, mean, [[mpmath.fdot(a, b) / total for b in centred] for a in scaled]


def count_oracle(eta, first, last, digits=70, start=0):
    """Sum from first to last in arbitrary precision; with ``start``, without the counts from 100 to it."""
    with mpmath.workdps(digits):
        k = len(eta)
        natural = [mpmath.mpf(e) for e in eta]
        rows = []
        log_factorial = mpmath.loggamma(first + 1)
        for x in range(first, last + 1):
            log_factorial += mpmath.log(x) if x > first else 0
            if 100 < x < start:
                continue
            t = [mpmath.root(x, j + 1) for j in range(k)]
            rows.append((mpmath.exp(mpmath.fdot(natural, t) - log_factorial), t))
        total, mean, cov = weighted_moments(rows)
        return mpmath.log(total), mean, cov


def assert_agree(found, row, expected, tolerance=1e-10):
    value, mean, cov = (np.array(part, dtype=float) for part in expected)
    for ours, theirs in zip(found, (value, mean, cov), strict=True):
        np.testing.assert_allclose(ours[row], theirs, rtol=tolerance, atol=0)


SMALL = [
    [-18.42, 0.0, 0.0],
    [-2.0, 1.0, 0.5],
    [0.0, -3.0, 1.0],
    [3.0232, -4.4966, 0.0],
    [4.0, -10.0, 3.0],
    [-3.0, 3.0, 3.0],
    [5.0, -20.0, 5.0],
    [-2.0, 6.0, -1.0],
    [0.0, -200.0, 100.0],
    [-50.0, 20.0, 35.0],
]


@pytest.mark.parametrize("maximum", [1, 3, 40])
def test_truncated_poisson_against_mpmath(maximum):
    rows = [*SMALL, [30.0, -4.0, 2.0], [60.0, 0.0, 0.0]]
    found = evaluate(1, rows, float(maximum))
    for row, eta in enumerate(rows):
        assert_agree(found, row, count_oracle(eta, 0, maximum))


def test_poisson_order_one_is_the_rate():
    eta = np.linspace(-30, 7, 75)[:, None]
    value, mean, cov = evaluate(0, eta.tolist())
    rate = np.exp(eta[:, 0])
    for found in (value, mean[:, 0], cov[:, 0, 0]):
        np.testing.assert_allclose(found, rate, rtol=1e-12)


def far_oracle(eta):
    """Counts about one large mode: trapezoidal sums with whole steps of at most an eighth of a standard deviation.

    By Poisson's summation formula this equals the sum over all counts up to exp(-2 pi^2 8^2) at such a mode.
    """
    with mpmath.workdps(45):
        k = len(eta)
        natural = [mpmath.mpf(e) for e in eta]

        def slope(x):
            roots = sum(e * mpmath.power(x, mpmath.mpf(1) / j - 1) / j for j, e in enumerate(natural, 1))
            return roots - mpmath.psi(0, x + 1)

        guess = evaluate(0, [eta])[1][0, 0]
        mode = mpmath.findroot(slope, guess)
        curve = -mpmath.diff(slope, mode)
        spread = 1 / mpmath.sqrt(curve)
        step = max(1, int(spread / 4))
        centre = int(mode)
        rows = []
        for i in range(-int(14 * spread / step), int(14 * spread / step) + 1):
            x = centre + i * step
            if x < 0:
                continue
            t = [mpmath.root(x, j + 1) for j in range(k)]
            rows.append((mpmath.fdot(natural, t) - mpmath.loggamma(x + 1), t))
        peak = max(w for w, _ in rows)
        rows = [(mpmath.exp(w - peak), t) for w, t in rows]
        total, mean, cov = weighted_moments(rows)
        return peak + mpmath.log(total * step), mean, cov


FAR = [
    [16.118, 0.0, 0.0],
    [9.0, 0.0, 0.0],
    [8.4, -3.0, 0.5],
    [10.0, 40.0, -30.0],
    [14.0, -400.0, 0.0],
    [15.0, 300.0, -2000.0],
    [-40.0, 6000.0, 10.0],
    [30.0, 0.0, 100.0],
]


BIMODAL = [[9.4, -133.3839, 0.0], [9.2, -121.2031, 2.0]]


@pytest.mark.parametrize("row", range(len(BIMODAL)))
def test_poisson_two_modes_against_mpmath(row):
    """One mode at 0 with six tenths of the mass and one at thousands with the rest."""
    found = evaluate(0, BIMODAL)
    assert 1000 < found[1][row, 0] < 6000
    assert_agree(found, row, count_oracle(BIMODAL[row], 0, 9_000, digits=30, start=3_000))


def real_oracle(code, eta):
    """Trapezoidal sums in the log of |x| in arbitrary precision, over all that is above exp(-75) of the largest."""
    k, scale = len(eta), 2 if code == 3 else 1
    grid = np.arange(-200, 200, 1 / 512)
    rows = []
    with mpmath.workdps(40):
        for sign in (1, -1) if code == 3 else (1,):
            coefs = [e * (sign if code == 3 and j == 1 else 1) for j, e in enumerate(eta)]
            with np.errstate(over="ignore", invalid="ignore"):
                logs = sum((c * np.exp(grid * scale / j) for j, c in enumerate(coefs, 1) if c), grid)
            logs = np.where(np.isnan(logs), -np.inf, logs)
            # Weights up to the square of the first statistic count.
            kept = grid[(logs > logs.max() - 75) | (logs + 2 * scale * grid > (logs + 2 * scale * grid).max() - 75)]
            low, high = mpmath.mpf(kept[0]), mpmath.mpf(kept[-1])
            step = (high - low) / 600
            for i in range(601):
                y = low + i * step
                t = [mpmath.exp(y * scale / j) for j in range(1, k + 1)]
                log_weight = y + mpmath.log(step) + mpmath.fdot([mpmath.mpf(c) for c in coefs], t)
                if sign < 0:
                    t[1:2] = [-v for v in t[1:2]]
                rows.append((log_weight, t))
        peak = max(w for w, _ in rows)
        weights = [(mpmath.exp(w - peak), t) for w, t in rows]
        total, mean, cov = weighted_moments(weights)
        return peak + mpmath.log(total), mean, cov


EXPONENTIAL = [
    [-1.0, 2.0, 3.0],
    [-1e-6, 3.0, 5.0],
    [-1e-9, -0.5, 0.1],
    [0.0, -2.0, 3.0],
    [0.0, 0.0, -1.0],
    [-1.0, 200.0, 0.0],
    [-1.0, -200.0, 50.0],
    [-5e4, 0.0, 0.0],
    [-2.0, 60.0, -40.0],
    [-1.0, 9.0, -12.5],
    [-0.01, 0.0, -7.0],
]


def small_oracle(eta):
    return count_oracle(eta, 0, 250)


CASES = [(0, SMALL, small_oracle), (0, FAR, far_oracle), (2, EXPONENTIAL, partial(real_oracle, 2))]


@pytest.mark.parametrize(
    ("code", "rows", "row", "oracle"),
    [(code, rows, row, oracle) for code, rows, oracle in CASES for row in range(len(rows))],
)
def test_values_and_moments_against_mpmath(code, rows, row, oracle):
    assert_agree(evaluate(code, rows), row, oracle(rows[row]))


GAUSSIAN = [
    [-1.0, 2.0, 3.0, 0.0],
    [-0.5, 0.3, -4.0, 1.0],
    [-0.5, 30.0, 1.0, -2.0],
    [-0.5, -30.0, 1.0, 2.0],
    [-1e-4, 0.1, 3.0, -5.0],
    [0.0, 0.0, -1.0, 3.0],
    [-3.0, -1.0, 12.0, -20.0],
]


@pytest.mark.parametrize("row", range(len(GAUSSIAN)))
def test_gaussian_against_mpmath(row):
    found, (value, mean, cov) = evaluate(3, GAUSSIAN), real_oracle(3, GAUSSIAN[row])
    np.testing.assert_allclose(found[0][row], float(value), rtol=1e-10)
    spread = np.sqrt(np.array([float(cov[i][i]) for i in range(4)]))
    # Odd moments may vanish: errors are measured against the spreads.
    np.testing.assert_allclose((found[1][row] - np.array(mean, dtype=float)) / spread, 0, atol=1e-10)
    scaled = (found[2][row] - np.array(cov, dtype=float)) / np.outer(spread, spread)
    np.testing.assert_allclose(scaled, 0, atol=1e-10)


def test_gaussian_up_to_order_two_by_quadrature():
    """The closed form of order 2 and the quadrature of order 3 with a third parameter of 0 share no line."""
    eta = [[-0.5, 0.0, 0.0], [-2.0, 7.0, 0.0], [-1e-3, -0.4, 0.0], [-5e3, 100.0, 0.0]]
    closed, sums = evaluate(3, [row[:2] for row in eta]), evaluate(3, eta)
    np.testing.assert_allclose(closed[0], sums[0], rtol=1e-11)
    np.testing.assert_allclose(closed[1], sums[1][:, :2], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(closed[2], sums[2][:, :2, :2], rtol=1e-10, atol=1e-14)


ROOTS = [-1e8, -1e4, -300, -30, -8, -2.01, -2, -1.99, -1.5, -1, -0.5, -0.1, -1e-6, 0, 1e-6, 0.5, 2, 8, 30, 300, 1e4]


@pytest.mark.parametrize("rate", [1e-12, 1.0, 37.0, 1e9])
def test_exponential_up_to_order_two_has_the_moments_of_its_root(rate):
    """With x = u^2, integrals of u^n exp(-rate u^2 + slope u), by parts from the first, in 400 digits."""
    slopes = [c * math.sqrt(rate) for c in ROOTS]
    found = evaluate(2, [[-rate, slope] for slope in slopes])
    for row, slope in enumerate(slopes):
        with mpmath.workdps(400):
            t = -mpmath.mpf(slope) / (2 * mpmath.sqrt(rate))
            parts = [mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(t * t) * mpmath.erfc(t)]
            parts.append(mpmath.mpf(1) / 2 - t * parts[0])
            for n in range(2, 6):
                parts.append((n - 1) * parts[n - 2] / 2 - t * parts[n - 1])
            _, root, number, three, square = [part / parts[1] for part in parts[1:]]
            scale = mpmath.sqrt(rate)
            value = float(mpmath.log(2 * parts[1] / rate))
            mean = [float(number / rate), float(root / scale)]
            cross = float((three - root * number) / (rate * scale))
            cov = [[float((square - number**2) / rate**2), cross], [cross, float((number - root**2) / rate)]]
        assert found[0][row] == pytest.approx(value, rel=1e-14, abs=1e-14)
        np.testing.assert_allclose(found[1][row], mean, rtol=2e-14)
        np.testing.assert_allclose(found[2][row], cov, rtol=2e-13)


def test_exponential_up_to_order_two_at_the_ends_of_its_domain():
    """Without the rate, u is a gamma variable of shape 2; a rate that no sum can see changes nothing."""
    for slope in (1e-70, 1e-6, 1.0, 1e5):
        moments = [math.factorial(n + 1) / slope**n for n in range(3)]
        for rate in (0.0, 5e-324):
            value, mean, cov = evaluate(2, [[-rate, -slope]])
            assert value[0] == pytest.approx(math.log(2) - 2 * math.log(slope), rel=1e-13)
            np.testing.assert_allclose(mean[0], [moments[2], moments[1]], rtol=1e-13)
            assert cov[0, 1, 1] == pytest.approx(2 / slope**2, rel=1e-13)
            if slope > 1e-50:
                assert cov[0, 0, 0] == pytest.approx(84 / slope**4, rel=1e-13)
                assert cov[0, 0, 1] == pytest.approx(12 / slope**3, rel=1e-13)
    assert evaluate(2, [[0.0, 1.0], [1e-300, -1.0], [0.0, 0.0]])[0].tolist() == [math.inf] * 3


def test_exponential_up_to_order_two_by_quadrature():
    """The closed form of order 2 and the quadrature of order 3 with a third parameter of 0 share no line."""
    rng = np.random.default_rng(0)
    rates = np.exp(rng.normal(0, 3, 300))
    eta = np.stack([-rates, rng.normal(0, 4, 300) * np.sqrt(rates), np.zeros(300)], 1)
    closed, sums = evaluate(2, eta[:, :2]), evaluate(2, eta)
    np.testing.assert_allclose(closed[0], sums[0], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(closed[1], sums[1][:, :2], rtol=1e-9)
    np.testing.assert_allclose(closed[2], sums[2][:, :2, :2], rtol=1e-8)
    eta[:, 2] = 1e-3  # the control
    assert float(np.abs(evaluate(2, eta)[0] - closed[0]).min()) > 1e-6


def test_exponential_closed_forms():
    rates = np.array([1e-12, 1e-3, 1.0, 40.0, 1e9])
    value, mean, cov = evaluate(2, [[-r] for r in rates])
    np.testing.assert_allclose(value, -np.log(rates), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mean[:, 0], 1 / rates, rtol=1e-10)
    np.testing.assert_allclose(cov[:, 0, 0], 1 / rates**2, rtol=1e-10)
    for rate, slope in ((1.0, 0.7), (3.0, -5.0), (0.2, 4.0), (1e-4, 0.05)):
        with mpmath.workdps(40):
            # With x = u^2, the integral of 2 u exp(-rate u^2 + slope u), a Gaussian by parts.
            c = mpmath.mpf(slope) / (2 * mpmath.sqrt(rate))
            density = 1 + mpmath.sqrt(mpmath.pi) * c * mpmath.exp(c * c) * mpmath.erfc(-c)
            expected = float(mpmath.log(density / rate))
        assert evaluate(2, [[-rate, slope]])[0][0] == pytest.approx(expected, rel=1e-11)


NUMBERS = st.floats(-8, 8).map(lambda v: round(v, 4))
FAMILIES = [PoissonFamily(), TruncatedPoissonFamily(12), ExponentialFamily(), GaussianFamily()]
ids = [f.name for f in FAMILIES]


def normalisable(family, eta):
    return eta if family.is_discrete else [-abs(eta[0]) - 0.01, *eta[1:]]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(family=st.sampled_from(FAMILIES), eta=st.lists(NUMBERS, min_size=1, max_size=5))
def test_values_lie_between_certified_bounds_and_covariances_are_positive(family, eta):
    row = torch.tensor([normalisable(family, eta)], dtype=torch.float64)
    found = node_moments(family, row)
    bounds = node_bounds(family, row[0], 0.0, 6)
    slack = 1e-12 * (1 + abs(found.value.item()))
    assert bounds.lower - slack <= found.value.item() <= bounds.upper + slack
    spread = found.covariance[0].diagonal().sqrt()
    correlation = found.covariance[0] / torch.outer(spread, spread)
    assert torch.equal(found.covariance, found.covariance.mT)
    assert torch.linalg.eigvalsh(correlation).min() > -1e-9
    assert 0 <= found.error.item() < 1e-10
    for j in range(len(eta)):
        # Means by bounds: E T_j = exp(M(a) - M(0)) for the statistics that are powers.
        if isinstance(family, GaussianFamily) and j == 1:
            continue
        power = (2.0 if isinstance(family, GaussianFamily) else 1.0) / (j + 1)
        at = node_bounds(family, row[0], power, 6)
        log_mean = math.log(found.mean[0, j].item())
        assert at.lower - bounds.upper - slack <= log_mean <= at.upper - bounds.lower + slack


@pytest.mark.parametrize("family", FAMILIES, ids=ids)
def test_autograd_twice(family):
    generator = torch.Generator().manual_seed(0)
    eta = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64)
    if not family.is_discrete:
        eta[..., 0] = -eta[..., 0].abs() - 0.1
    eta.requires_grad_()
    assert torch.autograd.gradcheck(lambda e: node_log_partition(family, e), eta)
    assert torch.autograd.gradgradcheck(lambda e: node_log_partition(family, e), eta)
    value = node_log_partition(family, eta)
    found = node_moments(family, eta)
    (gradient,) = torch.autograd.grad(value.sum(), eta, create_graph=True)
    assert torch.equal(value, found.value) and torch.equal(gradient, found.mean)
    hessian = torch.autograd.functional.hessian(lambda e: node_log_partition(family, e), eta[1, 2].detach())
    torch.testing.assert_close(hessian, found.covariance[1, 2], rtol=1e-12, atol=0)
    at, way = eta[1, 2].detach(), torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    product = torch.autograd.functional.hvp(lambda e: node_log_partition(family, e), at, way)[1]
    torch.testing.assert_close(product, found.covariance[1, 2] @ way, rtol=1e-12, atol=1e-15)
    (second,) = torch.autograd.grad((gradient + eta**3).sum(), eta, create_graph=True)
    with raises("no-method", "natural"):  # and not that of eta**3 alone
        torch.autograd.grad(second.sum(), eta)


def test_near_the_edge_of_the_domain_by_finite_differences():
    for row in ([-1e-4, 0.02, 0.01], [-1e-3, 0.5, -0.2]):
        eta = torch.tensor(row, dtype=torch.float64)
        found = node_moments(ExponentialFamily(), eta)
        for j in range(3):
            step = torch.zeros(3, dtype=torch.float64)
            step[j] = 1e-4 * eta[j].abs()
            two = [node_log_partition(ExponentialFamily(), eta + s * step).item() for s in (-1, 1)]
            assert (two[1] - two[0]) / (2 * step[j].item()) == pytest.approx(found.mean[j].item(), rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES, ids=ids)
def test_shapes_and_precision(family):
    eta = torch.tensor([[-1.0, 0.5, 0.25], [-0.5, 2.0, -1.0]])
    single, double = node_moments(family, eta), node_moments(family, eta.double())
    assert single.value.dtype == single.covariance.dtype == torch.float32
    torch.testing.assert_close(single.value, double.value.float())
    torch.testing.assert_close(single.covariance, double.covariance.float())
    for shape in ((0, 3), (2, 0, 3), (4, 1, 2)):
        found = node_moments(family, torch.full(shape, -1.0))
        assert found.value.shape == shape[:-1] and found.mean.shape == shape
        assert found.covariance.shape == (*shape, shape[-1])
        assert node_log_partition(family, torch.full(shape, -1.0)).shape == shape[:-1]
    one = node_moments(family, eta[0], hessian=False)
    assert one.value.shape == () and one.covariance is None
    torch.testing.assert_close(one.value, single.value[0])
    strided = eta.double().T.contiguous().T
    assert torch.equal(node_log_partition(family, strided), double.value)
    by_row = torch.stack([node_log_partition(family, row) for row in eta.double()])
    assert torch.equal(by_row, double.value)


def test_orders_agree_and_leave_the_rest_alone():
    for code in (0, 2, 3):
        eta = np.array([[-1.0, 2.0, 0.5], [-0.2, 9.0, -3.0]])
        whole = evaluate(code, eta.tolist())
        np.testing.assert_array_equal(evaluate(code, eta.tolist(), order=0)[0], whole[0])
        assert np.isnan(evaluate(code, eta.tolist(), order=0)[1]).all()
        np.testing.assert_array_equal(evaluate(code, eta.tolist(), order=1)[1], whole[1])
        assert np.isnan(evaluate(code, eta.tolist(), order=1)[2]).all()


@pytest.mark.parametrize(
    ("family", "bad"),
    [
        (ExponentialFamily(), [0.0, 1.0, -2.0]),
        (ExponentialFamily(), [1e-9, -50.0, 0.0]),
        (ExponentialFamily(), [0.0, 0.0, 0.0]),
        (GaussianFamily(), [0.0, -1.0, -1.0]),
        (GaussianFamily(), [0.0, 0.0, 2.0]),
        (GaussianFamily(), [0.5, 0.0, 0.0]),
        (PoissonFamily(), [800.0, 0.0, 0.0]),
    ],
)
def test_what_cannot_be_normalised_is_refused(family, bad):
    eta = torch.tensor([[[-1.0, 0.0, 0.0]], [bad], [bad]], dtype=torch.float64)
    for call in (node_moments, node_log_partition):
        with pytest.raises(InputError, match=r"received \(.*\) at index \(1, 0\) \(2 such rows\)"):
            call(family, eta)
    assert evaluate(family.code, [bad])[0][0] == math.inf


def test_bad_arguments():
    for wrong in (math.nan, math.inf, -math.inf):
        with raises("not-finite", "natural"):
            node_log_partition(PoissonFamily(), torch.tensor([0.0, wrong]))
        assert np.isnan(evaluate(0, [[0.0, wrong]])[0][0]) and np.isnan(evaluate(2, [[-1.0, wrong]])[1]).all()
    for family, natural, code, argument in (
        (PoissonFamily(), torch.zeros(2, 3, dtype=torch.long), "wrong-type", "natural"),
        (PoissonFamily(), [0.0], "wrong-type", "natural"),
        ("poisson", torch.zeros(3), "wrong-type", "family"),
        (PoissonFamily(), torch.zeros(()), "wrong-shape", "natural"),
        (PoissonFamily(), torch.zeros(3, 0), "wrong-shape", "natural"),
    ):
        for call in (node_moments, node_log_partition, draw_from_nodes):
            with raises(code, argument):
                call(family, natural)


def test_negative_controls_of_the_oracles():
    """Wrong sums must fail the comparison that the right ones pass: no zero, one term less, root of the mean."""
    eta = SMALL[3]
    found = evaluate(0, [eta])
    assert_agree(found, 0, count_oracle(eta, 0, 250))
    for first, last in ((1, 250), (0, 15)):
        with pytest.raises(AssertionError):
            assert_agree(found, 0, count_oracle(eta, first, last))
    value, mean, cov = count_oracle(eta, 0, 250)
    second = [[cov[i][j] + mean[i] * mean[j] for j in range(3)] for i in range(3)]
    with pytest.raises(AssertionError):
        assert_agree(found, 0, (value, mean, second))
    with pytest.raises(AssertionError):
        assert_agree(found, 0, (value, [mean[0], mean[0] ** 0.5, mean[2]], cov))


def test_stated_errors_hold():
    for (code, every, oracle), size in zip(CASES, (len(SMALL), 3, 4), strict=True):
        rows = every[:size]
        eta = np.array(rows)
        value, mean, cov = np.empty(len(rows)), np.empty(eta.shape), np.empty((*eta.shape, eta.shape[1]))
        error = evaluate_nodes(BY_CODE[code], eta, 2, value, mean, cov)
        for row in range(len(rows)):
            expected, expected_mean, _ = oracle(rows[row])
            assert abs(value[row] - float(expected)) <= error[row] * (1 + abs(float(expected)))
            np.testing.assert_allclose(mean[row], np.array(expected_mean, dtype=float), rtol=error[row])


def test_modes_that_only_second_moments_see_are_integrated_not_summed():
    """A mode at 4e11 whose mass is e^-60 to e^-80: its counts, millions of them, must not be visited one by one."""
    rows = [[15.0, -2193.2665 - 0.01 * i] for i in range(2, 6)]
    far = [[27.7217663, -2 * math.exp((27.7217663 - 1) / 2) * (1 + s)] for s in (1e-10, 1e-9, 1e-8, 1e-6)]
    evaluate(0, rows[:1])
    start = time.process_time()
    evaluate(0, 25 * far)
    assert time.process_time() - start < 2.0  # one by one: minutes
    found = evaluate(0, rows)
    for row, eta in enumerate(rows):
        x = np.arange(1.1e6, 1.3e6, dtype=np.longdouble)
        stirling = x * np.log(x) - x + 0.5 * np.log(2 * np.pi * x) + 1 / (12 * x)
        terms = np.exp(np.longdouble(eta[0]) * x + np.longdouble(eta[1]) * np.sqrt(x) - stirling)
        assert 1e-26 < terms.sum() < 1e-8  # beside the count 0, whose term is 1
        _, mean, cov = found
        np.testing.assert_allclose(mean[row, 0], float((x * terms).sum()), rtol=1e-6)
        np.testing.assert_allclose(cov[row, 0, 0], float((x * x * terms).sum()), rtol=1e-6)


def test_results_beyond_the_range_of_float32_are_refused_by_name():
    family, eta = PoissonFamily(), torch.tensor([[1.0, 0.0], [90.0, 0.0]])
    assert bool(torch.isfinite(node_log_partition(family, eta.double())).all())  # exp(90) = 1.2e39
    for call in (node_log_partition, node_moments):
        with pytest.raises(InputError, match=r"at \(90.0, 0.0\) has a log partition function beyond .*float32.* use"):
            call(family, eta)
    narrow = torch.tensor([[-1e-20]])  # a Gaussian of variance 5e19: its square has variance 5e39
    assert bool(torch.isfinite(node_log_partition(GaussianFamily(), narrow)).all())
    with pytest.raises(InputError, match="covariance of roots beyond"):
        node_moments(GaussianFamily(), narrow)


@pytest.mark.parametrize(
    ("name", "eta", "expected"),
    [
        ("exponential", [-1.0, 5.0, 5.0], True),
        ("exponential", [0.0, -1.0, 5.0], True),
        ("exponential", [0.0, 1.0, -5.0], False),
        ("exponential", [0.0, 0.0, 0.0], False),
        ("gaussian", [-1.0, 5.0, 5.0], True),
        ("gaussian", [0.0, -1.0, -5.0], False),
        ("gaussian", [0.0, 0.0, -5.0], True),
        ("gaussian", [0.0, 0.0, 5.0], False),
        ("gaussian", [1.0, 0.0, -5.0], False),
    ],
)
def test_one_rule_tells_kernels_and_samplers_what_can_be_normalised(name, eta, expected):
    family, row = node_family(name), np.array(eta)
    assert is_integrable(family.code, row) is expected
    assert math.isfinite(evaluate(family.code, [eta], order=0)[0][0]) is expected
    if expected:
        assert math.isfinite(draw_from_nodes(family, torch.from_numpy(row)).item())
    else:
        with raises("not-normalizable", "natural"):
            draw_from_nodes(family, torch.from_numpy(row))


@pytest.mark.parametrize("code", [0, 2])
def test_many_rows_are_evaluated_in_pieces_with_the_same_bits(code, monkeypatch):
    """Between two calls of compiled code Ctrl-C is answered."""
    rows = np.random.default_rng(0).normal(-3.0, 0.5, (300, 2))
    whole = evaluate(code, rows)
    sizes = []
    evaluated = kernels._evaluated
    monkeypatch.setattr(kernels, "_evaluated", lambda *parts: (sizes.append(len(parts[2])), evaluated(*parts))[1])
    monkeypatch.setattr(kernels, "_ROWS", 128)
    for one, other in zip(whole, evaluate(code, rows), strict=True):
        np.testing.assert_array_equal(one, other)
    assert sizes == [128, 128, 44]


# Certified bounds: they hold always, and close with the number of subdomains


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


SMALL_NUMBERS = st.floats(-6, 6, allow_nan=False).map(lambda v: round(v, 3))
BOUNDED = [
    PoissonFamily(),
    TruncatedPoissonFamily(1),
    TruncatedPoissonFamily(30),
    ExponentialFamily(),
    GaussianFamily(),
]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    family=st.sampled_from(BOUNDED),
    eta=st.lists(SMALL_NUMBERS, min_size=1, max_size=5),
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
    family=st.sampled_from(BOUNDED),
    eta=st.lists(SMALL_NUMBERS, min_size=2, max_size=4),
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
    for family in BOUNDED:
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


def test_bad_arguments_of_bounds():
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
    eta=st.lists(SMALL_NUMBERS, min_size=1, max_size=4),
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
