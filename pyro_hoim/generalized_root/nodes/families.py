r"""Univariate families whose roots are the statistics of a generalized root model (paper 2, sections 2 and 3).

A family is a statistic T and a log base measure B on a domain of numbers. The model uses the *roots*
:math:`T_j(x) = \sqrt[j]{T(x)}`, so that a node given all others follows

.. math:: p(x \mid \eta) = \exp\Bigl(\sum_{j=1}^k \eta_j T_j(x) + B(x) - A(\eta)\Bigr).

The log partition function A and its derivatives are in :mod:`.log_partition`, certified bounds in
:mod:`.bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from ...errors import UnknownNameError, check_names, conflict, is_whole, out_of_range, wrong_type
from ...schema import NumberKind
from .family import NodeFamily, check_order, floating, refuse_values

__all__ = [
    "ExponentialFamily",
    "GaussianFamily",
    "NodeFamily",
    "PoissonFamily",
    "TruncatedPoissonFamily",
    "node_family",
]


@dataclass(frozen=True)
class _Counts(NodeFamily):
    """What the two families of whole numbers share: B(x) = -log x!."""

    kind: ClassVar[NumberKind] = "count"
    is_discrete: ClassVar[bool] = True

    def log_base(self, x: Tensor) -> Tensor:
        """Minus the log factorial."""
        return -torch.lgamma(floating(x) + 1)

    def check_values(self, x: Tensor, argument: str) -> None:
        """Whole numbers from 0 to the largest value."""
        top = self.largest_value
        refuse_values(x, torch.isfinite, argument, "counts")
        refuse_values(x, lambda v: v >= 0, argument, "counts, which are not negative")
        refuse_values(x, lambda v: v == v.floor(), argument, "whole numbers")
        if math.isfinite(top):
            refuse_values(x, lambda v: v <= top, argument, f"counts up to the maximum {top:g} of the family")


@dataclass(frozen=True)
class PoissonFamily(_Counts):
    r"""Poisson: :math:`T(x) = x`, :math:`B(x) = -\log x!` on 0, 1, 2, ...; every natural parameter is normalisable."""

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = 0

    @property
    def support(self) -> constraints.Constraint:
        """Whole numbers from 0."""
        return constraints.nonnegative_integer

    def base_log_partition(self, eta1: Tensor) -> Tensor:
        """The rate, exp(eta1)."""
        return eta1.exp()

    def base_cdf(self, x: Tensor, eta1: Tensor) -> Tensor:
        """The regularised upper incomplete gamma function at floor(x) + 1 and the rate."""
        return _poisson_cdf(x, eta1.exp())

    def base_natural(self, mean: Tensor) -> Tensor:
        """Log of the mean."""
        return floating(mean).log()


@dataclass(frozen=True)
class TruncatedPoissonFamily(_Counts):
    r"""Poisson restricted to 0, ..., maximum; every natural parameter is normalisable.

    Args:
        maximum: largest count, a whole number from 1 to 2^53.

    Raises:
        InputError, InputTypeError: another maximum.

    Example:
        >>> TruncatedPoissonFamily(2).base_log_partition(torch.tensor(0.0)).exp()
        tensor(2.5000)
    """

    maximum: int
    name: ClassVar[str] = "truncated-poisson"
    code: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not is_whole(self.maximum):
            raise wrong_type("maximum", "a whole number", received=repr(self.maximum))
        if not 1 <= self.maximum <= 2**53:
            raise out_of_range("maximum", "a whole number from 1 to 2^53", received=self.maximum)

    @property
    def largest_value(self) -> float:
        """The maximum."""
        return float(self.maximum)

    @property
    def support(self) -> constraints.Constraint:
        """Whole numbers from 0 to the maximum."""
        return constraints.integer_interval(0, self.maximum)

    def base_log_partition(self, eta1: Tensor) -> Tensor:
        r""":math:`\log \sum_{x=0}^{m} e^{\eta_1 x} / x!`, by the incomplete gamma function or a sum from above."""
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

    def base_cdf(self, x: Tensor, eta1: Tensor) -> Tensor:
        """Ratio of two partial sums, each as in :meth:`base_log_partition`."""
        whole = self.base_log_partition(eta1)
        values, etas = torch.broadcast_tensors(floating(x).floor().clamp(-1, self.largest_value), eta1)
        result = torch.zeros_like(etas)
        for level in values.unique().tolist():
            at = values == level
            if level == 0:
                result = torch.where(at, (-whole).exp(), result)
            elif level > 0:
                part = TruncatedPoissonFamily(int(level)).base_log_partition(eta1)
                result = torch.where(at, (part - whole).exp(), result)
        return result

    def base_natural(self, mean: Tensor) -> Tensor:
        """Log of mean over (1 - mean / maximum): a start value that grows without limit near the maximum.

        It is exact for a maximum of 1, and nearly so where the mean is far below the maximum.
        """
        numbers = floating(mean)
        top = self.largest_value
        return numbers.log() - torch.log1p(-numbers / top)


@dataclass(frozen=True)
class ExponentialFamily(NodeFamily):
    r"""Exponential: :math:`T(x) = x`, B = 0 on :math:`x \ge 0`.

    Normalisable if the first nonzero of :math:`\eta_1, \eta_2, ...` is negative: it belongs to the highest power.
    """

    name: ClassVar[str] = "exponential"
    code: ClassVar[int] = 2
    kind: ClassVar[NumberKind] = "positive"
    is_discrete: ClassVar[bool] = False

    @property
    def support(self) -> constraints.Constraint:
        """Numbers from 0."""
        return constraints.nonnegative

    def log_base(self, x: Tensor) -> Tensor:
        """Zero."""
        return torch.zeros_like(floating(x))

    def check_values(self, x: Tensor, argument: str) -> None:
        """Finite numbers from 0."""
        refuse_values(x, torch.isfinite, argument, "finite numbers")
        refuse_values(x, lambda v: v >= 0, argument, "numbers that are not negative")

    def base_log_partition(self, eta1: Tensor) -> Tensor:
        """Minus the log of the rate -eta1."""
        return torch.where(eta1 < 0, -torch.log(-eta1.clamp(max=0)), math.inf)

    def base_cdf(self, x: Tensor, eta1: Tensor) -> Tensor:
        """One minus exp(eta1 x) for x from 0."""
        return -torch.expm1(eta1 * floating(x).clamp(min=0))

    def base_natural(self, mean: Tensor) -> Tensor:
        """Minus one over the mean."""
        return -1 / floating(mean)


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
    is_discrete: ClassVar[bool] = False

    @property
    def support(self) -> constraints.Constraint:
        """All numbers."""
        return constraints.real

    def root(self, x: Tensor, j: int) -> Tensor:
        """The square, the number itself, or a power of its modulus."""
        check_order(j, "j")
        numbers = floating(x)
        if j == 1:
            return numbers.square()
        return numbers if j == 2 else numbers.abs().pow(2.0 / j)

    def log_base(self, x: Tensor) -> Tensor:
        """Zero."""
        return torch.zeros_like(floating(x))

    def check_values(self, x: Tensor, argument: str) -> None:
        """Finite numbers."""
        refuse_values(x, torch.isfinite, argument, "finite numbers")

    def base_log_partition(self, eta1: Tensor) -> Tensor:
        """Half the log of pi over -eta1."""
        return torch.where(eta1 < 0, 0.5 * (math.log(math.pi) - torch.log(-eta1.clamp(max=0))), math.inf)

    def base_cdf(self, x: Tensor, eta1: Tensor) -> Tensor:
        """The normal law about 0 with variance -1 / (2 eta1)."""
        return 0.5 * torch.erfc(-floating(x) * (-eta1).sqrt())

    def base_natural(self, mean: Tensor) -> Tensor:
        """Minus one over twice the mean square."""
        return -0.5 / floating(mean)


_PLAIN: dict[str, Callable[[], NodeFamily]] = {
    "poisson": PoissonFamily,
    "exponential": ExponentialFamily,
    "gaussian": GaussianFamily,
}


def node_family(name: str, maximum: int | None = None) -> NodeFamily:
    """A family by its name.

    Args:
        name: ``poisson``, ``truncated-poisson``, ``exponential`` or ``gaussian``.
        maximum: largest count of ``truncated-poisson``, which needs it; the others take none.

    Raises:
        UnknownNameError: another name; the message lists these.
        InputError: a maximum that is missing, or given to a family that takes none.
    """
    names = (*_PLAIN, TruncatedPoissonFamily.name)
    if not isinstance(name, str):
        raise wrong_type("family", f"one of {', '.join(names)}", received=repr(name))
    if name not in names:
        try:
            check_names([name], names, "family", noun="family")
        except UnknownNameError as error:
            hint = f"{error.hint} (families: {', '.join(sorted(names))})"
            raise error.replace(hint=hint) from None
    if name == TruncatedPoissonFamily.name:
        if maximum is None:
            raise conflict("maximum", "family truncated-poisson needs its largest count, received None")
        return TruncatedPoissonFamily(maximum)
    if maximum is not None:
        raise conflict("maximum", f"family {name} takes none, received {maximum!r}")
    return _PLAIN[name]()


def _poisson_cdf(x: Tensor, rate: Tensor) -> Tensor:
    level = floating(x).floor()
    return torch.where(level >= 0, torch.special.gammaincc(level.clamp(min=0) + 1, rate), 0.0)
