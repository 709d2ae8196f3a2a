"""Laws of independent columns by maximum likelihood: what a generalized root model is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, overload

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from ...data.counts import CountTable
from ...errors import check_choice, none_received, other_domain, refused
from ...schema import Domain
from ..file import RootFile
from ..nodes.columns import NodeFamilies
from ..nodes.families import IndicatorFamily, NodeFamily, TruncatedPoissonFamily

BASELINES: Mapping[str, tuple[str, ...]] = {
    "poisson": ("poisson", "negative-binomial"),
    "truncated-poisson": ("truncated-poisson",),
    "exponential": ("exponential",),
    "gaussian": ("normal",),
}
"""Laws that a family is compared with: its own member without interactions first."""

OWN, DISPERSED = "independent", "negative-binomial"
"""Laws that several families are compared with: every column by its own one, then counts by negative binomials."""

_CATEGORY = "category"
_OWN_KIND = {**{name: kinds[0] for name, kinds in BASELINES.items()}, _CATEGORY: _CATEGORY}
_LARGEST_SIZE = 1e12


def baselines_of(families: NodeFamilies) -> tuple[str, ...]:
    """Kinds of laws of independent columns that models of these families are compared with, their own members first.

    Example:
        >>> from pyro_hoim.generalized_root import GaussianFamily, PoissonFamily
        >>> domain = Domain.from_cardinalities({"visits": 2, "weight": 2})
        >>> baselines_of(NodeFamilies.of([PoissonFamily(), GaussianFamily()], domain))
        ('independent', 'negative-binomial')
    """
    if families.common is not None:
        return BASELINES[families.common.name]
    return (OWN, DISPERSED) if any(family.name == "poisson" for family in families) else (OWN,)


@dataclass(frozen=True, eq=False)
class IndependentLaw:
    r"""Independent columns, each with a law of its own.

    .. math:: \log p(x) = \sum_s \log p_s(x_s)

    Because the columns are independent, minus this is NLL and pseudo-NLL at once.

    Args:
        kind: ``poisson``, ``truncated-poisson``, ``negative-binomial``, ``exponential``, ``normal``, or ``category``
            of indicators, of which one is set.
        domain: the columns.
        first: rate (Poisson, also truncated), mean, or share of the rows (category), (d,).
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


@dataclass(frozen=True, eq=False)
class IndependentColumns:
    """Independent columns of several kinds; a category counts as one column, by the shares of its levels.

    Args:
        domain: the columns.
        laws: those of one kind each, with the positions of its columns.

    Example:
        >>> kinds = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> each = [IndependentLaw("poisson", kinds.project(["b"]), np.array([2.0]))]
        >>> each.append(IndependentLaw("normal", kinds.project(["a"]), np.array([0.0]), np.array([1.0])))
        >>> law = IndependentColumns(kinds, tuple(zip(([1], [0]), each)))
        >>> law.log_prob(CountTable.from_matrix([[0.0, 1.0]], ["a", "b"], kind="real")).round(4).tolist()
        [-2.2258]
    """

    domain: Domain
    laws: tuple[tuple[Sequence[int], IndependentLaw], ...]

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a model file keeps of the laws; :func:`kept_independent` reads it."""
        both = np.zeros((2, len(self.domain)))
        for places, law in self.laws:
            both[:, list(places)] = [law.first, np.zeros(len(law.first)) if law.second is None else law.second]
        return {"independent.first": torch.from_numpy(both[0]), "independent.second": torch.from_numpy(both[1])}

    def log_prob(self, table: CountTable) -> np.ndarray:
        """Log density of every row, (N,)."""
        if table.domain.names != self.domain.names:
            raise other_domain("table", f"columns {', '.join(self.domain.names[:6])}, ..., as the law has")
        log_probs = np.zeros(table.num_rows)
        for _, law in self.laws:
            for place, name in enumerate(law.domain.names):
                log_probs += law.log_density(np.full(table.num_rows, place), table.column(name))
        return log_probs


def kept_independent(stored: RootFile, domain: Domain) -> IndependentLaw | IndependentColumns | None:
    """The law of independent columns that a model file holds; None where it holds none."""
    first, second = (stored.tensors.get(f"independent.{name}") for name in ("first", "second"))
    if first is None:
        return None
    size = None if second is None else second.numpy()
    if isinstance(stored.family, NodeFamily):
        kind = BASELINES[stored.family.name][0]
        return IndependentLaw(kind, domain, first.numpy(), size, stored.family.largest_value)
    families = stored.column_families
    laws = list[tuple[Sequence[int], IndependentLaw]]()
    for family, places in families.groups:
        kind, names = _kind_of(family, OWN), [domain.names[s] for s in places]
        spread = None if kind != "normal" or size is None else size[places]
        law = IndependentLaw(kind, domain.project(names), first.numpy()[places], spread, family.largest_value)
        laws.append((places.tolist(), law))
    return IndependentColumns(domain, tuple(laws))


def _kind_of(family: NodeFamily, kind: str) -> str:
    """Kind of the laws of the columns of a family, for one of :func:`baselines_of` several."""
    if kind == DISPERSED and family.name == "poisson":
        return DISPERSED
    name = _CATEGORY if isinstance(family, IndicatorFamily) else family.name
    if name not in _OWN_KIND:
        problem = f"independent columns of the {name} family, which is somebody's own, have no law to compare with"
        raise refused("family", problem, "take one of those that node_family knows", code="unknown-choice")
    return _OWN_KIND[name]


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


def _category(x: np.ndarray, share: np.ndarray, _: object, __: float) -> np.ndarray:
    """Of an indicator that is set the log of the level's share; the others of its category tell nothing more."""
    return np.where(x > 0, np.log(share), 0.0)


def _point(x: np.ndarray) -> np.ndarray:
    """Of a column with one value, as fits of root models count it: zero there, impossible elsewhere."""
    return np.where(x == 0, 0.0, -np.inf)


_DENSITIES: Mapping[str, Callable[[np.ndarray, np.ndarray, Any, float], np.ndarray]] = {
    "poisson": _poisson,
    "truncated-poisson": _truncated,
    "negative-binomial": _negative_binomial,
    "exponential": _exponential,
    "normal": _normal,
    _CATEGORY: _category,
}


@overload
def fit_independent(table: CountTable, kind: str, family: NodeFamily) -> IndependentLaw: ...
@overload
def fit_independent(table: CountTable, kind: str, family: NodeFamilies) -> IndependentLaw | IndependentColumns: ...
def fit_independent(
    table: CountTable, kind: str, family: NodeFamily | NodeFamilies
) -> IndependentLaw | IndependentColumns:
    """Maximum-likelihood laws of independent columns.

    Args:
        table: the rows to learn from.
        kind: one of the kinds of :class:`IndependentLaw`; of several families ``independent``, every column by its own
            family, or ``negative-binomial``, the same with counts as negative binomials.
        family: gives the maximum of the truncated Poisson; or the family of every column.

    Raises:
        InputError: an unknown kind, no rows, or a family of somebody's own.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> table = CountTable.from_matrix([[0, 1], [2, 2], [5, 4], [0, 0], [1, 1]], ["a", "b"])
        >>> law = fit_independent(table, "poisson", PoissonFamily())
        >>> law.first.tolist(), law.log_prob(table).round(4).tolist()[3]  # the means, and minus their sum at zero
        ([1.6, 1.6], -3.2)
    """
    if isinstance(family, NodeFamilies) and family.common is None:
        check_choice(kind, (OWN, DISPERSED), "kind")
        laws = list[tuple[Sequence[int], IndependentLaw]]()
        for one, places in family.groups:
            part = table.columns([table.domain.names[s] for s in places])
            laws.append((places.tolist(), fit_independent(part, _kind_of(one, kind), one)))
        return IndependentColumns(table.domain, tuple(laws))
    family = family[0] if isinstance(family, NodeFamilies) else family
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
