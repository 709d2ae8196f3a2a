r"""Univariate families whose roots are the statistics of a generalized root model (paper 2, equations 1 and 5).

A family is a statistic T and a log base measure B on a domain of numbers. The model uses the *roots*
:math:`T_j(x) = \sqrt[j]{T(x)}`, so that a node given all others follows

.. math:: p(x \mid \eta) = \exp\Bigl(\sum_{j=1}^k \eta_j T_j(x) + B(x) - A(\eta)\Bigr).

The log partition function A and its derivatives are in :mod:`.log_partition`, certified bounds in
:mod:`.bounds`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.distributions import constraints
from typing_extensions import override

from ...errors import HoimError, check_choice, check_whole, conflict, out_of_range, unexpected
from ...schema import NumberKind

_SUPPORTS: dict[NumberKind, constraints.Constraint] = {
    "count": constraints.nonnegative_integer,
    "positive": constraints.nonnegative,
    "real": constraints.real,
}


@dataclass(frozen=True)
class NodeFamily(ABC):
    r"""A univariate exponential family, with the roots of its statistic.

    Families are values: two of the same kind and maximum are equal. The page on adding a node family tells how.

    Attributes:
        name: name in files and at the command line.
        code: number of the family in compiled kernels.
        kind: kind of the schema's variables; it fixes the domain.
        is_discrete: whether the base measure counts whole numbers (True) or is Lebesgue's (False).
    """

    name: ClassVar[str]
    code: ClassVar[int]
    kind: ClassVar[NumberKind]
    is_discrete: ClassVar[bool] = False

    @property
    def largest_value(self) -> float:
        """Largest value of the domain; infinity where there is none."""
        return math.inf

    @property
    def support(self) -> constraints.Constraint:
        """The domain as a constraint of :mod:`torch.distributions`."""
        return _SUPPORTS[self.kind]

    def root(self, x: Tensor, j: int) -> Tensor:
        """The j-th root of the statistic, :math:`T_j(x) = x^{1/j}` (the Gaussian family has its own), shape of x.

        Args:
            x: values of the domain, any dtype; whole numbers become the default floating dtype.
            j: order of the root, from 1.
        """
        check_whole(j, "j")
        numbers = _floating(x)
        if j == 1:
            return numbers
        return numbers.sqrt() if j == 2 else numbers.pow(1.0 / j)

    def roots(self, x: Tensor, order: int) -> Tensor:
        """The roots :math:`T_1(x), ..., T_k(x)` in a new last dimension, (*sample, k), of values (*sample,)."""
        check_whole(order, "order")
        return torch.stack([self.root(x, j) for j in range(1, order + 1)], -1)

    def log_base(self, x: Tensor) -> Tensor:
        """Log base measure B(x) of values of the domain, shape of x; zero unless a family has its own."""
        return torch.zeros_like(_floating(x))

    def check_values(self, x: Tensor, argument: str) -> None:
        """Refuse numbers, under the caller's name for them, unless all are of the domain; the first one is named."""
        top = self.largest_value
        _refuse_values(x, torch.isfinite, argument, "counts" if self.is_discrete else "finite numbers")
        if self.kind != "real":
            _refuse_values(x, lambda v: v >= 0, argument, "numbers that are not negative")
        if self.is_discrete:
            _refuse_values(x, lambda v: v == v.floor(), argument, "whole numbers")
        if math.isfinite(top):
            _refuse_values(x, lambda v: v <= top, argument, f"counts up to the maximum {top:g} of the family")

    @abstractmethod
    def base_natural(self, mean: Tensor) -> Tensor:
        """Natural parameter of k = 1 at which E T(X) has a given value, shape of mean; a start value for a fit."""


def _floating(x: Tensor) -> Tensor:
    """Values in a floating dtype: their own, or the default one."""
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def _refuse_values(x: Tensor, is_good: Callable[[Tensor], Tensor], argument: str, expected: str) -> None:
    """Raise for the first value that is not good."""
    bad = ~is_good(x)
    if bool(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        shown = f"{x[where].item():g} at index {where} ({int(bad.sum())} such values)"
        raise out_of_range(argument, expected, received=shown)


@dataclass(frozen=True)
class PoissonFamily(NodeFamily):
    r"""Poisson: :math:`T(x) = x`, :math:`B(x) = -\log x!` on 0, 1, 2, ...; every natural parameter is normalisable.

    Example:
        >>> PoissonFamily().base_natural(torch.tensor([1.0, 2.0]))  # the log of the mean
        tensor([0.0000, 0.6931])
    """

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = 0
    kind: ClassVar[NumberKind] = "count"
    is_discrete: ClassVar[bool] = True

    @override
    def log_base(self, x: Tensor) -> Tensor:
        return -torch.lgamma(_floating(x) + 1)

    @override
    def base_natural(self, mean: Tensor) -> Tensor:
        return _floating(mean).log()


@dataclass(frozen=True)
class TruncatedPoissonFamily(PoissonFamily):
    r"""Poisson restricted to 0, ..., maximum; every natural parameter is normalisable.

    Args:
        maximum: largest count, a whole number from 1 to 2^53.

    Raises:
        InputError: another maximum.

    Example:
        >>> family = TruncatedPoissonFamily(2)
        >>> family.base_log_partition(torch.tensor([0.0])).exp()  # 1 + 1 + 1/2
        tensor([2.5000])
        >>> family.largest_value
        2.0
    """

    maximum: int
    name: ClassVar[str] = "truncated-poisson"
    code: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_whole(self.maximum, "maximum", 1, 2**53)

    @property
    @override
    def largest_value(self) -> float:
        return float(self.maximum)

    @property
    @override
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.maximum)

    def base_log_partition(self, eta1: Tensor) -> Tensor:
        r""":math:`\log \sum_{x=0}^{m} e^{\eta_1 x} / x!`, by the incomplete gamma function or a sum from above."""
        # The share of the Poisson law below the maximum.
        rate = eta1.exp()
        top = torch.full_like(rate, self.largest_value)
        share = torch.special.gammaincc(top + 1, rate)
        below = rate + share.log()
        # Far above the maximum the share underflows: then the terms fall from x = m by the factors x / rate.
        term, total = torch.ones_like(rate), torch.ones_like(rate)
        is_far = (share < 1e-30) | ~torch.isfinite(below)
        steps = 0
        while bool((is_far & (term > 1e-18 * total)).any()) and steps < self.maximum:
            term = term * (top - steps) / rate
            total = total + term
            steps += 1
        above = eta1 * top - torch.lgamma(top + 1) + total.log()
        return torch.where(is_far, above, below)

    @override
    def base_natural(self, mean: Tensor) -> Tensor:
        """Log of mean over (1 - mean / maximum): a start value that grows without limit near the maximum.

        It is exact for a maximum of 1, and nearly so where the mean is far below the maximum.
        """
        numbers = _floating(mean)
        return numbers.log() - torch.log1p(-numbers / self.largest_value)


@dataclass(frozen=True)
class ExponentialFamily(NodeFamily):
    r"""Exponential: :math:`T(x) = x`, B = 0 on :math:`x \ge 0`.

    Normalisable if the first nonzero of :math:`\eta_1, \eta_2, ...` is negative: it belongs to the highest power.

    Example:
        >>> ExponentialFamily().base_natural(torch.tensor([0.5, 2.0]))  # minus one over the mean
        tensor([-2.0000, -0.5000])
    """

    name: ClassVar[str] = "exponential"
    code: ClassVar[int] = 2
    kind: ClassVar[NumberKind] = "positive"

    @override
    def base_natural(self, mean: Tensor) -> Tensor:
        return -1 / _floating(mean)


@dataclass(frozen=True)
class GaussianFamily(NodeFamily):
    r"""Gaussian: :math:`T_1(x) = x^2`, :math:`T_2(x) = x`, :math:`T_j(x) = |x|^{2/j}` from j = 3; B = 0 on the reals.

    Normalisable if :math:`\eta_1 < 0`; with :math:`\eta_1 = \eta_2 = 0`, if the first nonzero of
    :math:`\eta_3, ...` is negative.

    References:
        Inouye, Ravikumar, Dhillon (2016), sections 3 and 3.3. In their rule for :math:`T = f^{cj}` it is cj that must
        be even, which makes the third root of :math:`x^2` equal :math:`|x|^{2/3}`.

    Example:
        >>> GaussianFamily().roots(torch.tensor([-8.0]), 3)
        tensor([[64., -8.,  4.]])
    """

    name: ClassVar[str] = "gaussian"
    code: ClassVar[int] = 3
    kind: ClassVar[NumberKind] = "real"

    @override
    def root(self, x: Tensor, j: int) -> Tensor:
        check_whole(j, "j")
        numbers = _floating(x)
        if j == 1:
            return numbers.square()
        return numbers if j == 2 else numbers.abs().pow(2.0 / j)

    @override
    def base_natural(self, mean: Tensor) -> Tensor:
        return -0.5 / _floating(mean)


@final
@dataclass(frozen=True)
class IndicatorFamily(NodeFamily):
    r"""Indicator of one level of a category: of the indicators of a category exactly one is 1, the others are 0.

    All roots of 0 and 1 are equal, so one key per set suffices. No term holds two indicators of one category, for their
    product is always 0. Adding a number to the terms (1, 1) of all indicators of a category changes no probability: one
    of them is redundant, and may be left out. The indicators are drawn and summed together; none has a law of its own.

    Args:
        category: name of the category, the same for all of its indicators.

    Raises:
        InputError: an empty name.

    Example:
        >>> from pyro_hoim import Domain, GeneralizedRoot, RootStructure, Variable
        >>> domain = Domain([Variable(f"colour={level}", kind="count") for level in ("red", "blue")])
        >>> structure = RootStructure(domain, {(1, 1): [("colour=blue",)]})  # red is the reference
        >>> law = GeneralizedRoot(structure, torch.tensor([3.0]).log(), IndicatorFamily("colour"))
        >>> law.mean
        tensor([0.2500, 0.7500])
    """

    category: str
    name: ClassVar[str] = "indicator"
    code: ClassVar[int] = 4
    kind: ClassVar[NumberKind] = "count"
    is_discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.category, str) or not self.category:
            raise unexpected("category", "a non-empty string", self.category)

    @property
    @override
    def largest_value(self) -> float:
        return 1.0

    @property
    @override
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, 1)

    @override
    def base_natural(self, mean: Tensor) -> Tensor:
        return _floating(mean).log()


_PLAIN = {family.name: family for family in (PoissonFamily, ExponentialFamily, GaussianFamily)}


def node_family(name: str, maximum: int | None = None) -> NodeFamily:
    """A family by its name.

    Args:
        name: ``poisson``, ``truncated-poisson``, ``exponential`` or ``gaussian``.
        maximum: largest count of ``truncated-poisson``, which needs it; the others take none.

    Raises:
        InputError: another name; or a maximum that is missing, or given to a family that takes none.

    Example:
        >>> node_family("truncated-poisson", 9).largest_value, node_family("poisson").largest_value
        (9.0, inf)
    """
    # One family needs a maximum, the others take none.
    truncated = TruncatedPoissonFamily.name
    check_choice(name, (*_PLAIN, truncated), "family")
    if name == truncated:
        if maximum is None:
            raise conflict("maximum", f"family {name} needs its largest count, received None")
        return TruncatedPoissonFamily(maximum)
    if maximum is not None:
        raise conflict("maximum", f"family {name} takes none, received {maximum!r}")
    return _PLAIN[name]()


def family_to_json(family: NodeFamily) -> dict[str, Any]:
    """JSON of a family, inverse of :func:`family_from_json`; refuses one that would not come back the same."""
    if isinstance(family, IndicatorFamily):
        return {"name": family.name, "maximum": None, "category": family.category}
    # What the words of the file would give back.
    maximum = family.maximum if isinstance(family, TruncatedPoissonFamily) else None
    try:
        same = node_family(family.name, maximum)
    except HoimError:
        same = None
    if same != family:
        expected, hint = "one of the families that node_family knows", "keep its psi and structure yourself"
        raise unexpected("family", expected, family, hint, code="unknown-choice")
    return {"name": family.name, "maximum": maximum}


def family_from_json(stated: Mapping[str, Any]) -> NodeFamily:
    """The family that :func:`family_to_json` stated."""
    if "category" in stated:
        return IndicatorFamily(stated["category"])
    return node_family(stated["name"], stated["maximum"])
