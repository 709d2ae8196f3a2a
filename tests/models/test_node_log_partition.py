"""Node log partitions: value, gradient and Hessian against arbitrary precision and against each other."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from pyro_hoim.models._node_kernels import node_values


def evaluate(code: int, eta: list[list[float]], maximum: float = math.inf, order: int = 2) -> tuple[np.ndarray, ...]:
    rows = np.ascontiguousarray(eta, dtype=np.float64)
    n, k = rows.shape
    value, mean, cov = np.full(n, np.nan), np.full((n, k), np.nan), np.full((n, k, k), np.nan)
    node_values(code, maximum, rows, order, value, mean, cov)
    return value, mean, cov


def count_oracle(eta: list[float], first: int, last: int) -> tuple[mpmath.mpf, list, list]:
    """Sum from first to last in arbitrary precision."""
    with mpmath.workdps(70):
        k = len(eta)
        natural = [mpmath.mpf(e) for e in eta]
        rows = []
        log_factorial = mpmath.loggamma(first + 1)
        for x in range(first, last + 1):
            log_factorial += mpmath.log(x) if x > first else 0
            t = [mpmath.root(x, j + 1) for j in range(k)]
            rows.append((mpmath.exp(mpmath.fdot(natural, t) - log_factorial), t))
        total = mpmath.fsum(w for w, _ in rows)
        mean = [mpmath.fsum(w * t[j] for w, t in rows) / total for j in range(k)]
        cov = [
            [mpmath.fsum(w * (t[i] - mean[i]) * (t[j] - mean[j]) for w, t in rows) / total for j in range(k)]
            for i in range(k)
        ]
        return mpmath.log(total), mean, cov


def assert_agree(found: tuple[np.ndarray, ...], row: int, expected: tuple, tolerance: float = 1e-10) -> None:
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


@pytest.mark.parametrize("row", range(len(SMALL)))
def test_poisson_small_means_against_mpmath(row: int) -> None:
    assert_agree(evaluate(0, SMALL), row, count_oracle(SMALL[row], 0, 250))


@pytest.mark.parametrize("maximum", [1, 3, 40])
def test_truncated_poisson_against_mpmath(maximum: int) -> None:
    rows = [*SMALL, [30.0, -4.0, 2.0], [60.0, 0.0, 0.0]]
    found = evaluate(1, rows, float(maximum))
    for row, eta in enumerate(rows):
        assert_agree(found, row, count_oracle(eta, 0, maximum))


def test_poisson_order_one_is_the_rate() -> None:
    eta = np.linspace(-30, 7, 75)[:, None]
    value, mean, cov = evaluate(0, eta.tolist())
    rate = np.exp(eta[:, 0])
    for found in (value, mean[:, 0], cov[:, 0, 0]):
        np.testing.assert_allclose(found, rate, rtol=1e-12)
