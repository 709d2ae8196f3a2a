"""Statistical assertions with a stated false-alarm rate and a sample size derived from a detectable error.

An assertion raises :class:`AssertionError` with the numbers that decided it. Under the
null hypothesis it raises with probability at most about :data:`FALSE_ALARM_RATE` per criterion. Seeds are the
caller's; nothing here draws random numbers. Shapes and numbers that do not fit are refused with InputError.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from scipy import optimize, stats

from ..checks import check_exact_shape
from ..errors import ErrorCode, HoimError, out_of_range, unexpected, wrong_shape
from .oracles import as_array

FALSE_ALARM_RATE = 1e-6
"""Probability that one random assertion fails although the code is right."""

POWER = 0.999
"""Probability that the stated error is detected, used to derive sample sizes."""

MINIMUM_EXPECTATION = 100.0
"""Cells expected to hold fewer draws are pooled; below this the chi-square tail at 1e-6 is badly calibrated."""


@contextmanager
def raises(code: ErrorCode, argument: str | None = None) -> Generator[None]:
    """Fail unless the block raises a :class:`~pyro_hoim.errors.HoimError` with a code and an argument.

    Example:
        >>> from pyro_hoim import Domain
        >>> with raises("wrong-type", "cardinality of 'a'"):
        ...     _ = Domain.from_cardinalities({"a": 2.5})
    """
    try:
        yield
    except HoimError as error:
        raised = (error.code, error.argument)
        if code != error.code or argument not in (None, error.argument):
            msg = f"expected {code!r} about {argument!r}, received {raised} from {error}"
            raise AssertionError(msg) from error
    else:
        raise AssertionError(f"expected {code!r} about {argument!r}, nothing was raised")


def assert_equal(actual: Any, expected: Any, what: str) -> None:
    """Raise unless two values are equal; of tensors every bit and the precision.

    Example:
        >>> assert_equal((2, 3), (2, 3), "shape")
        >>> assert_equal((2, 3), (3, 2), "shape")
        Traceback (most recent call last):
        AssertionError: shape: received (2, 3), expected (3, 2)
    """
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        if actual.dtype != expected.dtype or not torch.equal(actual, expected):
            raise AssertionError(f"{what}: expected equal bits")
    elif actual != expected:
        raise AssertionError(f"{what}: received {actual!r}, expected {expected!r}")


def assert_close(actual: Any, expected: Any, *, relative: float = 1e-10, absolute: float = 0.0, what: str = "") -> None:
    """Raise unless every entry differs by at most ``absolute + relative * max(1, |expected|)``; ``what`` names them.

    The floor of one makes the tolerance usable for probabilities and log-probabilities near zero. Infinities must
    agree exactly and NaN never passes.

    Example:
        >>> assert_close([0.5, 0.25], [0.5, 0.25 + 1e-12], what="probs")
        >>> assert_close([0.5, 0.26], [0.5, 0.25], what="probs")
        Traceback (most recent call last):
        AssertionError: probs: 1 of 2 entries out of tolerance (relative 1e-10); at (1,) received ...0.26...
    """
    left, right = as_array(actual), as_array(expected)
    if left.shape != right.shape:
        raise AssertionError(f"{what or 'values'}: shape {left.shape}, expected {right.shape}")
    with np.errstate(invalid="ignore"):
        error = np.abs(left - right)
        allowed = absolute + relative * np.maximum(1.0, np.abs(right))
        good = (left == right) | (np.isfinite(left) & np.isfinite(right) & (error <= allowed))
    if not good.all():
        where = tuple(int(i) for i in np.argwhere(~good)[0]) if left.ndim else ()
        raise AssertionError(
            f"{what or 'values'}: {int((~good).sum())} of {left.size} entries out of tolerance "
            f"(relative {relative:g}); at {where} received {left[where]!r}, expected {right[where]!r}"
        )


def total_variation_bound(num_cells: int, num_draws: int, alpha: float = FALSE_ALARM_RATE) -> float:
    r"""Total-variation distance that R i.i.d. draws in K cells exceed with probability at most ``alpha``.

    .. math:: \tfrac12 \sqrt{(K-1)/R} + \sqrt{\ln(1/\alpha) / (2R)}

    The first term bounds the mean (Cauchy-Schwarz over the cells), the second is McDiarmid's inequality; both hold
    for any law on K cells.

    Example:
        >>> [round(total_variation_bound(16, draws), 4) for draws in (10_000, 1_000_000)]  # falls by ten
        [0.0456, 0.0046]
    """
    return 0.5 * math.sqrt(max(num_cells - 1, 0) / num_draws) + math.sqrt(math.log(1 / alpha) / (2 * num_draws))


def required_draws(num_cells: int, tv: float) -> int:
    r"""Number of draws with which the chi-square test finds a given total-variation error with probability 0.999.

    The error is taken to be spread evenly over K equally probable cells (half of them up, half down by the same
    factor), so the statistic is non-central chi-square with K - 1 degrees of freedom and non-centrality
    :math:`4 R\,\mathrm{tv}^2`. A concentrated error is easier to find. At least enough that each equal cell expects
    :data:`MINIMUM_EXPECTATION` draws.

    Example:
        >>> [round(required_draws(k, 0.05), -2) for k in (16, 64)]
        [9600, 14200]
    """
    if num_cells < 2:
        raise out_of_range("num_cells", "at least 2", received=num_cells)
    if not 0 < tv < 0.5:
        raise out_of_range("tv", "a number between 0 and 0.5", tv)
    return max(math.ceil(_shift(num_cells - 1) / (4 * tv * tv)), math.ceil(MINIMUM_EXPECTATION * num_cells))


@lru_cache(maxsize=256)
def _shift(freedom: int) -> float:
    """The non-centrality at which the critical value of chi-square is passed with the stated power."""
    critical = stats.chi2.isf(FALSE_ALARM_RATE, freedom)
    high = 10.0
    while stats.ncx2.sf(critical, freedom, high) < POWER:
        high *= 2
    least = high / 2 if high > 10 else 1e-3
    return float(cast(Any, optimize.brentq(lambda v: stats.ncx2.sf(critical, freedom, v) - POWER, least, high)))


def chi_square_p_value(counts: Any, probs: Any) -> tuple[float, int]:
    """P value of Pearson's chi-square of counts (K,) against a law (K,), and the number of cells after pooling.

    All cells whose expectation is below :data:`MINIMUM_EXPECTATION` become one; if that one still expects less, it
    joins the smallest of the others. The p value is 1.0 when one cell is left.

    Example:
        >>> p_value, cells = chi_square_p_value([520, 480], [0.5, 0.5])  # chi-square of 1.6
        >>> round(p_value, 4), cells
        (0.2059, 2)
    """
    observed = as_array(counts).reshape(-1)
    law = as_array(probs).reshape(-1)
    expected = observed.sum() * law / law.sum()
    # Rare cells are pooled, and their pool with the next one where it is rare itself.
    small = expected < MINIMUM_EXPECTATION
    groups_o, groups_e = list(observed[~small]), list(expected[~small])
    if small.any() and expected[small].sum() > 0:
        rest_o, rest_e = float(observed[small].sum()), float(expected[small].sum())
        if rest_e < MINIMUM_EXPECTATION and groups_e:
            least = int(np.argmin(groups_e))
            groups_o[least] += rest_o
            groups_e[least] += rest_e
        else:
            groups_o.append(rest_o)
            groups_e.append(rest_e)
    if len(groups_e) < 2:
        return 1.0, len(groups_e)
    o, e = np.array(groups_o), np.array(groups_e)
    return float(stats.chi2.sf(((o - e) ** 2 / e).sum(), len(e) - 1)), len(e)


def assert_exact_law(counts: Any, probs: Any, *, what: str = "draws") -> None:
    """Raise unless independent draws look like the exact law; counts and probs have one common shape.

    Three criteria: no draw in a cell of probability zero; the chi-square p value on pooled cells is at least
    :data:`FALSE_ALARM_RATE`; the total variation is below :func:`total_variation_bound`. The draws must be independent:
    start chains from the exact law and keep one state of each.

    Example:
        >>> law = [[0.4, 0.1], [0.2, 0.3]]
        >>> assert_exact_law([[410, 95], [195, 300]], law)
        >>> assert_exact_law([[300, 195], [95, 410]], law)
        Traceback (most recent call last):
        AssertionError: draws: chi-square p value ... below 1e-06 on 4 pooled cells, 1000 draws; total variation 0.2050
    """
    # Counts and a law of one shape, or the test would say nothing.
    observed, law = as_array(counts, None), as_array(probs)
    if observed.shape != law.shape:
        raise unexpected("counts", f"the shape {law.shape} of probs", received=observed.shape, code="wrong-shape")
    observed, law = observed.reshape(-1).astype(np.float64), law.reshape(-1)
    if not np.isfinite(law).all() or (law < 0).any() or abs(law.sum() - 1) > 1e-6:
        raise out_of_range("probs", "non-negative numbers that sum to 1", received=f"sum {law.sum()}")
    if not np.isfinite(observed).all() or (observed < 0).any() or observed.sum() < 1:
        raise out_of_range("counts", "non-negative numbers with at least one draw")
    # Three criteria: impossible cells, chi-square, total variation.
    num_draws = int(observed.sum())
    impossible = (law == 0) & (observed > 0)
    if impossible.any():
        cell = int(np.flatnonzero(impossible)[0])
        raise AssertionError(
            f"{what}: {int(observed[impossible].sum())} of {num_draws} draws fell into cells of probability zero "
            f"(first: flat cell {cell})"
        )
    # Chi-square finds errors spread over many cells, total variation those in cells too rare to pool.
    p_value, num_cells = chi_square_p_value(observed, law)
    distance = 0.5 * float(np.abs(observed / num_draws - law).sum())
    bound = total_variation_bound(int((law > 0).sum()), num_draws)
    if p_value < FALSE_ALARM_RATE:
        raise AssertionError(
            f"{what}: chi-square p value {p_value:.3g} below {FALSE_ALARM_RATE:g} on {num_cells} pooled cells, "
            f"{num_draws} draws; total variation {distance:.4f}"
        )
    if distance >= bound:
        raise AssertionError(f"{what}: total variation {distance:.4f} at or above {bound:.4f}, {num_draws} draws")


def assert_uniform_ranks(
    ranks: Any,
    num_draws: int,
    *,
    num_bins: int = 20,
    alpha: float = FALSE_ALARM_RATE,
    names: Sequence[str] | None = None,
) -> tuple[float, ...]:
    """Raise unless the ranks of simulation-based calibration are uniform; a chi-square p value per quantity.

    In each replication parameters are drawn from the prior, data from the model, and ``num_draws`` thinned
    posterior draws are made; the rank is the number of draws below the true value, uniform on
    0, ..., num_draws when everything is right. Each quantity gets one chi-square test in equal bins at rate
    ``alpha`` divided by the number of quantities, so that one call is one assertion of rate ``alpha``. With 1,000
    replications in 20 bins the exact rate of the chi-square test at 1e-6 is 1.23e-6 (2e-6 at 20 per bin).

    Args:
        ranks: integer ranks, one row per replication, (replications,) or (replications, quantities).
        num_draws: posterior draws per replication; ``num_draws + 1`` must be a multiple of ``num_bins``.
        num_bins: equal bins; each must expect at least 20 replications.
        alpha: false-alarm rate of the call.
        names: names of the quantities, for the message.

    References:
        Talts et al., Validating Bayesian inference algorithms with simulation-based calibration, 2018, section 4.

    Example:
        >>> ranks = np.arange(400) % 20
        >>> assert_uniform_ranks(ranks, 19)  # every rank as often as any other
        (1.0,)
        >>> assert_uniform_ranks(ranks // 2, 19, names=["slope"])
        Traceback (most recent call last):
        AssertionError: ranks of slope (p = ...) are not uniform: 400 replications in 20 bins, ...
    """
    # Ranks as whole numbers, with enough replications for every bin.
    values = as_array(ranks, None)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise wrong_shape("ranks", "(replications,) or (replications, quantities)", values)
    whole = values.astype(np.int64)
    if (whole != values).any() or (whole < 0).any() or (whole > num_draws).any():
        raise out_of_range("ranks", f"integers from 0 to {num_draws}")
    if num_bins < 2 or (num_draws + 1) % num_bins:
        raise out_of_range("num_bins", f"a divisor (at least 2) of {num_draws + 1} ranks", received=num_bins)
    replications, quantities = whole.shape
    if replications < 20 * num_bins:
        raise out_of_range("ranks", f"at least {20 * num_bins} replications for {num_bins} bins", received=replications)
    labels = [f"quantity {i}" for i in range(quantities)] if names is None else [str(name) for name in names]
    if len(labels) != quantities:
        raise unexpected("names", str(quantities), received=len(labels), code="wrong-shape")
    # One test a quantity, at an equal share of the rate.
    threshold = alpha / quantities
    width = (num_draws + 1) // num_bins
    expected = replications / num_bins
    p_values = []
    for column in whole.T:
        counts = np.bincount(column // width, minlength=num_bins)
        p_values.append(float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), num_bins - 1)))
    # All quantities that failed are named at once.
    bad = [f"{label} (p = {p:.3g})" for label, p in zip(labels, p_values, strict=True) if p < threshold]
    if bad:
        raise AssertionError(
            f"ranks of {', '.join(bad)} are not uniform: {replications} replications in {num_bins} bins, "
            f"smallest p value that passes {threshold:.3g}"
        )
    return tuple(p_values)


def assert_stationary(transition: Any, probs: Any) -> float:
    r"""Raise unless a transition matrix (K, K) leaves a law unchanged and has no second eigenvalue of modulus one.

    :math:`\pi P = \pi` alone also holds for the identity and for a deterministic flip; both have more than one
    eigenvalue on the unit circle and are refused. Row sums and entries of :math:`\pi P` may be off by 1e-12; a modulus
    above 1 - 1e-9 counts as one. Returns the modulus of the second eigenvalue (0.0 for a single state).

    Example:
        >>> round(assert_stationary([[0.9, 0.1], [0.3, 0.7]], [0.75, 0.25]), 10)  # trace less one
        0.6
        >>> assert_stationary([[0.0, 1.0], [1.0, 0.0]], [0.5, 0.5])  # a flip keeps the law, but does not mix
        Traceback (most recent call last):
        AssertionError: transition: 2 eigenvalues of modulus above 1 - 1e-09; the chain does not mix
    """
    tolerance, gap = 1e-12, 1e-9
    matrix = as_array(transition)
    law = as_array(probs).reshape(-1)
    check_exact_shape(matrix, (law.size, law.size), "transition")
    if not np.isfinite(matrix).all() or (matrix < -tolerance).any():
        raise AssertionError("transition: entries must be finite and non-negative")
    # A stochastic matrix that keeps the law, and forgets where it began.
    rows = float(np.abs(matrix.sum(axis=1) - 1).max())
    if rows > tolerance:
        raise AssertionError(f"transition: a row sums to one only within {rows:.3g} (allowed {tolerance:g})")
    moved = float(np.abs(law @ matrix - law).max())
    if moved > tolerance:
        raise AssertionError(f"transition: the law moves by {moved:.3g} (allowed {tolerance:g})")
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))[::-1]
    ones = int((moduli > 1 - gap).sum())
    if ones != 1:
        raise AssertionError(f"transition: {ones} eigenvalues of modulus above 1 - {gap:g}; the chain does not mix")
    return float(moduli[1]) if moduli.size > 1 else 0.0
