"""Laws of independent columns by maximum likelihood: what a generalized root model is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from ...data.counts import CountTable
from ...errors import check_choice, none_received, other_domain
from ...schema import Domain
from ..file import RootFile
from ..nodes.families import NodeFamily, TruncatedPoissonFamily

BASELINES: Mapping[str, tuple[str, ...]] = {
    "poisson": ("poisson", "negative-binomial"),
    "truncated-poisson": ("truncated-poisson",),
    "exponential": ("exponential",),
    "gaussian": ("normal",),
}
"""Laws that a family is compared with: its own member without interactions first."""

_LARGEST_SIZE = 1e12


@dataclass(frozen=True, eq=False)
class IndependentLaw:
    r"""Independent columns, each with a law of its own.

    .. math:: \log p(x) = \sum_s \log p_s(x_s)

    Because the columns are independent, minus this is NLL and pseudo-NLL at once.

    Args:
        kind: ``poisson``, ``truncated-poisson``, ``negative-binomial``, ``exponential`` or ``normal``.
        domain: the columns.
        first: rate (Poisson, also truncated) or mean, (d,).
        second: size of the negative binomial (infinite: Poisson), variance of the normal, (d,), else None.
        maximum: largest count of the truncated Poisson.

    Example:
        >>> law = IndependentLaw("exponential", Domain.from_cardinalities({"a": 2}), np.array([2.0]))
        >>> law.log_density(np.array([0]), np.array([0.0])).round(4).tolist()  # minus the log of the mean
        [-0.6931]
    """

    kind: str
    domain: Domain
    first: np.ndarray
    second: np.ndarray | None = None
    maximum: float = math.inf

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a model file keeps of the law; :func:`kept_independent` reads it."""
        arrays = {"independent.first": self.first, "independent.second": self.second}
        return {name: torch.as_tensor(value) for name, value in arrays.items() if value is not None}

    def log_density(self, column: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Log density of values (M,) of columns given by their positions (M,); minus infinity for impossible values."""
        first = self.first[column]
        second = None if self.second is None else self.second[column]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return _DENSITIES[self.kind](values, first, second, self.maximum)

    def log_prob(self, table: CountTable) -> np.ndarray:
        """Log density of every row, (N,); of sparse counts only the nonzero ones are visited."""
        if table.domain.names != self.domain.names:
            raise other_domain("table", f"columns {', '.join(self.domain.names[:6])}, ..., as the law has")
        # Of dense numbers cell by cell.
        matrix, places = table.matrix, np.arange(len(self.domain))
        if not sparse.issparse(matrix):
            cells = [self.log_density(np.full(table.num_rows, s), matrix[:, s]) for s in places]
            return np.sum(cells, axis=0) if cells else np.zeros(table.num_rows)
        # Of sparse counts: all zeros, and what each nonzero one changes.
        at_zero = self.log_density(places, np.zeros(len(places)))
        is_never_zero = np.isneginf(at_zero)  # a truncated law at its maximum
        at_zero[is_never_zero] = 0.0
        gain = self.log_density(matrix.indices, matrix.data) - at_zero[matrix.indices]
        gain[is_never_zero[matrix.indices]] = 0.0
        row = np.repeat(np.arange(table.num_rows), np.diff(matrix.indptr))
        log_probs = at_zero.sum() + np.bincount(row, weights=gain, minlength=table.num_rows)
        for s in np.flatnonzero(is_never_zero):
            log_probs += self.log_density(np.full(table.num_rows, s), table.column(self.domain.names[s]))
        return log_probs


def kept_independent(stored: RootFile, domain: Domain) -> IndependentLaw | None:
    """The law of independent columns that a model file holds for its columns, all of one family; None otherwise."""
    first, second = (stored.tensors.get(f"independent.{name}") for name in ("first", "second"))
    family = stored.family
    if first is None or not isinstance(family, NodeFamily):
        return None
    kind, size = BASELINES[family.name][0], None if second is None else second.numpy()
    return IndependentLaw(kind, domain, first.numpy(), size, family.largest_value)


def _poisson(x: np.ndarray, rate: np.ndarray, _: object, __: float) -> np.ndarray:
    return np.where(x > 0, x * np.log(rate), 0.0) - rate - gammaln(x + 1)


def _truncated(x: np.ndarray, rate: np.ndarray, _: object, maximum: float) -> np.ndarray:
    inner, back = np.unique(np.where(np.isinf(rate), 1.0, rate), return_inverse=True)
    inside = np.where(x > 0, x * np.log(rate), 0.0) - gammaln(x + 1) - _log_sum(np.log(inner), maximum)[back]
    return np.where(np.isinf(rate), np.where(x == maximum, 0.0, -np.inf), inside)


def _log_sum(log_rate: np.ndarray, maximum: float) -> np.ndarray:
    """Log of the sum of rate^x / x! over x up to the maximum, which may be 0."""
    if maximum < 1:
        return np.zeros_like(log_rate)
    return TruncatedPoissonFamily(int(maximum)).base_log_partition(torch.from_numpy(log_rate)).numpy()


def _negative_binomial(x: np.ndarray, mean: np.ndarray, size: Any, _: float) -> np.ndarray:
    finite = np.where(np.isfinite(size), size, 1.0)
    log_probs = gammaln(x + finite) - gammaln(finite) - gammaln(x + 1) - (finite + x) * np.log1p(mean / finite)
    log_probs += np.where(x > 0, x * (np.log(mean) - np.log(finite)), 0.0)
    return np.where(np.isfinite(size), log_probs, _poisson(x, mean, None, math.inf))


def _exponential(x: np.ndarray, mean: np.ndarray, _: object, __: float) -> np.ndarray:
    return np.where(mean > 0, -np.log(mean) - x / mean, _point(x))


def _normal(x: np.ndarray, mean: np.ndarray, variance: Any, _: float) -> np.ndarray:
    gap = x - mean
    return np.where(variance > 0, -0.5 * (np.log(2 * math.pi * variance) + gap * gap / variance), _point(gap))


def _point(x: np.ndarray) -> np.ndarray:
    """Of a column with one value, as fits of root models count it: zero there, impossible elsewhere."""
    return np.where(x == 0, 0.0, -np.inf)


_DENSITIES: Mapping[str, Callable[[np.ndarray, np.ndarray, Any, float], np.ndarray]] = {
    "poisson": _poisson,
    "truncated-poisson": _truncated,
    "negative-binomial": _negative_binomial,
    "exponential": _exponential,
    "normal": _normal,
}


def fit_independent(table: CountTable, kind: str, family: NodeFamily) -> IndependentLaw:
    """Maximum-likelihood laws of independent columns.

    Args:
        table: the rows to learn from.
        kind: one of the kinds of :class:`IndependentLaw`.
        family: gives the maximum of the truncated Poisson.

    Raises:
        InputError: an unknown kind, or no rows.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> table = CountTable.from_matrix([[0, 1], [2, 2], [5, 4], [0, 0], [1, 1]], ["a", "b"])
        >>> law = fit_independent(table, "poisson", PoissonFamily())
        >>> law.first.tolist(), law.log_prob(table).round(4).tolist()[3]  # the means, and minus their sum at zero
        ([1.6, 1.6], -3.2)
    """
    check_choice(kind, _DENSITIES, "kind")
    if not table.num_rows:
        raise none_received("table", "at least one row")
    # Means, and what the kind needs besides.
    mean = table.totals / table.num_rows
    second: np.ndarray | None = None
    maximum = math.inf
    if kind == "truncated-poisson":
        assert isinstance(family, TruncatedPoissonFamily)
        maximum = family.largest_value
        mean = np.array([_truncated_rate(m, maximum) for m in mean])
    elif kind == "negative-binomial":
        second = np.array([_negative_binomial_size(table.column(name)) for name in table.domain.names])
    elif kind == "normal":
        second = table.to_array().var(0)
    return IndependentLaw(kind, table.domain, mean, second, maximum)


def _negative_binomial_size(values: np.ndarray) -> float:
    """Maximum-likelihood size of counts (N,), infinite unless they vary above their mean (Levin and Reeds, 1977)."""
    # No finite size fits counts that vary less than Poisson ones.
    distinct, times = np.unique(values, return_counts=True)
    num, mean = times.sum(), float(times @ distinct) / times.sum()
    if not float(times @ (distinct - mean) ** 2) / num > mean * (1 + 1e-12):
        return math.inf

    def slope(log_size: float) -> float:
        size = math.exp(log_size)
        score = times @ (digamma(distinct + size) - digamma(size)) - num * math.log1p(mean / size)
        return float(score) * size / num

    return _exp_of_root(slope, math.log(mean), 2.0, 1e-12)


def _truncated_rate(mean: float, maximum: float) -> float:
    """Rate of a truncated Poisson law with a given mean; 0 and infinity at the ends of the range."""
    if mean <= 0 or mean >= maximum:
        return 0.0 if mean <= 0 else math.inf

    def gap(log_rate: float) -> float:
        at = np.array([log_rate])
        return float(math.log(mean) - (at + _log_sum(at, maximum - 1) - _log_sum(at, maximum))[0])

    return _exp_of_root(gap, math.log(mean), 1.0, 1e-13)


def _exp_of_root(falling: Callable[[float], float], start: float, width: float, tolerance: float) -> float:
    """Exponential of the root of a falling function; infinite where that is beyond the largest size."""
    # Bracket, then solve.
    low, high = start - width, start + width
    while falling(low) < 0:
        low -= 2 * width
    while falling(high) > 0:
        high += 2 * width
        if high > math.log(_LARGEST_SIZE):
            return math.inf
    return math.exp(cast(float, brentq(falling, low, high, xtol=tolerance)))
