r"""Univariate families whose roots are the statistics of a generalized root model (paper 2, equations 1 and 5).

A family is a statistic T and a log base measure B on a domain of numbers. The model uses the *roots*
:math:`T_j(x) = \sqrt[j]{T(x)}`, so that a node given all others follows

.. math:: p(x \mid \eta) = \exp\Bigl(\sum_{j=1}^k \eta_j T_j(x) + B(x) - A(\eta)\Bigr).

The log partition function A and its derivatives are in :mod:`.log_partition`, certified bounds in
:mod:`.bounds`.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import constraints
from typing_extensions import override

from ...errors import check_choice, check_type, check_whole, conflict, out_of_range, refused, wrong_shape, wrong_type
from ...schema import NumberKind
from .user_rows import user_moments

__all__ = [
    "ExponentialFamily",
    "GaussianFamily",
    "NodeFamily",
    "PoissonFamily",
    "TruncatedPoissonFamily",
    "UserFamily",
    "node_family",
]


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

    Example:
        >>> family = node_family("poisson")
        >>> family.roots(torch.tensor([0, 1, 64]), 3), family.log_base(torch.tensor([3])).exp()  # one over 3!
        (tensor([[ 0.,  0.,  0.],
                [ 1.,  1.,  1.],
                [64.,  8.,  4.]]), tensor([0.1667]))
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
        found = f"{x[where].item():g} at index {where} ({int(bad.sum())} such values)"
        raise out_of_range(argument, expected, received=found)


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
    truncated = TruncatedPoissonFamily.name
    check_choice(name, (*_PLAIN, truncated), "family")
    if name == truncated:
        if maximum is None:
            raise conflict("maximum", f"family {name} needs its largest count, received None")
        return TruncatedPoissonFamily(maximum)
    if maximum is not None:
        raise conflict("maximum", f"family {name} takes none, received {maximum!r}")
    return _PLAIN[name]()


# A univariate exponential family that a user states: its statistic and its log base measure, as functions of arrays.
#
# Nothing of it is compiled here. Log partitions, moments and draws are those of sums and quadrature over tables of the
# user's functions (:mod:`.user_rows`), which is slower than the kernels of the built-in families.

Floats = NDArray[np.float64]
Function = Callable[[Floats], Any]

_LARGEST = 1e150  # value of a statistic: products of two are numbers
_BISECTIONS, _DOUBLINGS = 60, 40


def _itself(x: Floats) -> Floats:
    return x


@dataclass(frozen=True, repr=False)
class UserFamily(NodeFamily):
    r"""Any univariate exponential family, from its statistic T and its log base measure B.

    .. math:: p(x \mid \eta) = \exp\Bigl(\sum_{j=1}^k \eta_j T(x)^{1/j} + B(x) - A(\eta)\Bigr)

    Counts are summed one by one until what is left, continued as a geometric series, is below 1e-17 of the sum; real
    numbers are integrated by trapezoidal sums in the log of :math:`|x|` (of :math:`x / (m - x)` below a maximum m),
    refined until they stand still to 1e-12. Both are as exact as the built-in families where B is smooth; sums took 15
    times as long as those of the compiled Poisson family, integrals 2.5 times as long as those of the exponential. What
    is too narrow to be met by the first points, an eighth apart in that log, is not seen.

    Whether a joint model can be normalised is left undecided, so that backends need ``allow_undecided=True``, unless
    you say that all can. Not offered: certified bounds, the law along rays, model files and the command line.

    Args:
        name: what messages call it; not that of a built-in family.
        kind: ``count``, ``positive`` or ``real``, which fixes the domain.
        log_measure: B of an array of values, in nats; minus infinity where a value is impossible.
        statistic: T of an array of values, from 0 upwards; x itself unless given. Regressions need T(0) = 0.
        maximum: largest value of the domain, for counts or positive numbers.
        signed_roots: j-th roots :math:`T_j(x)` as a function of an array and j, for roots with a sign, as those of the
            Gaussian family; then :math:`|T_j|^j = T`. The positive roots of T when None.
        is_normalizable: you know that every model of this family that you use has a finite constant.

    Functions take float64 arrays of any shape and return the same shape: plain NumPy, :class:`numpy.ufunc` or compiled
    by Numba. Families are equal if their functions are the same objects. Give named functions of a module where a
    family has to be pickled.

    Raises:
        InputError: a name that is taken, a maximum that does not fit, or functions whose values at some probes are not
            what is said above.
        InputTypeError: an argument of another type.

    Example:
        >>> import numpy as np
        >>> from pyro_hoim.generalized_root import node_moments
        >>> geometric = UserFamily("geometric", "count", np.zeros_like)  # p(x) is proportional to exp(eta x)
        >>> found = node_moments(geometric, torch.tensor([[0.5]]).log())
        >>> found.value.exp(), found.mean  # 1 / (1 - 0.5), and 0.5 / (1 - 0.5)
        (tensor([2.]), tensor([[1.]]))
    """

    name: str  # pyright: ignore[reportIncompatibleVariableOverride]
    kind: NumberKind  # pyright: ignore[reportIncompatibleVariableOverride]
    log_measure: Function
    statistic: Function = _itself
    maximum: float = math.inf
    signed_roots: Callable[[Floats, int], Any] | None = None
    is_normalizable: bool = False

    code = -1  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        check_type(self.name, str, "name", "a string")
        if self.name in {*_BUILT_IN}:
            raise conflict("name", f"{self.name!r} is that of a built-in family")
        check_choice(self.kind, ("count", "positive", "real"), "kind")
        check_type(self.is_normalizable, bool, "is_normalizable")
        if self.maximum != math.inf:
            if self.kind == "real":
                raise conflict("maximum", "real numbers have none")
            if self.kind == "count":
                check_whole(self.maximum, "maximum", 1, 2**20)
            elif not (isinstance(self.maximum, float) and 0 < self.maximum < math.inf):
                raise out_of_range("maximum", "a positive number", self.maximum)
        for argument in ("log_measure", "statistic", "signed_roots"):
            given = getattr(self, argument)
            if not callable(given) and (given is not None or argument != "signed_roots"):
                raise wrong_type(argument, "a function of an array", given)
        # Refuse functions whose values at the probes do not make a family
        x = self._probes
        measure, top = self.measured(x), self.rooted(x, 1)
        if np.isnan(measure).any() or (measure == np.inf).any() or not np.isfinite(measure).any():
            raise refused("log_measure", "it is NaN, infinite, or minus infinity at all probes", code="not-finite")
        is_possible = np.isfinite(measure)
        if not (np.isfinite(top[is_possible]).all() and (top[is_possible] >= 0).all()):
            where = x[is_possible][~(np.isfinite(top) & (top >= 0))[is_possible]][0]
            raise out_of_range("statistic", "finite values from 0 upwards", received=f"another one at {where:g}")
        for j in (2, 3):
            if not np.allclose(np.abs(self.rooted(x, j)[is_possible]) ** j, top[is_possible], 1e-9, 1e-9):
                raise refused("signed_roots", f"the {j}-th power of its roots of order {j} is not the statistic")

    @property
    def _probes(self) -> Floats:
        if self.is_discrete:
            return np.arange(min(64.0, self.maximum + 1))
        sizes = np.geomspace(1e-3, 1e3, 61)
        sizes = self.maximum * sizes / (1 + sizes) if math.isfinite(self.maximum) else sizes
        return np.concatenate([-sizes[::-1], sizes]) if self.kind == "real" else sizes

    def __repr__(self) -> str:
        content = hashlib.sha256()
        for values in (self.measured(self._probes), *(self.rooted(self._probes, j) for j in (1, 2, 3))):
            content.update(" ".join(f"{value:.9g}" for value in values).encode())
        known = ", is_normalizable=True" if self.is_normalizable else ""
        most = "" if self.maximum == math.inf else f", maximum={self.maximum:g}"
        return f"UserFamily({self.name!r}, kind={self.kind!r}{most}, digest={content.hexdigest()[:8]!r}{known})"

    def _values(self, function: Callable[[Floats], Any], x: Floats, argument: str) -> Floats:
        with np.errstate(all="ignore"):
            found = np.asarray(function(x))
        if found.shape != x.shape:
            raise wrong_shape(argument, x.shape, found, "return one number for every value of the array")
        if found.dtype.kind not in "fiu":
            raise wrong_type(argument, "an array of numbers", received=f"dtype {found.dtype}")
        return found.astype(np.float64)

    def measured(self, x: Floats) -> Floats:
        """B of an array, float64."""
        return self._values(self.log_measure, x, "log_measure")

    def rooted(self, x: Floats, j: int) -> Floats:
        """T_j of an array, float64, cut off at 1e150."""
        roots = self.signed_roots
        if roots is not None:
            found = self._values(lambda values: roots(values, j), x, "signed_roots")
        else:
            found = self._values(self.statistic, x, "statistic")
            with np.errstate(invalid="ignore"):
                found = found if j == 1 else np.sqrt(found) if j == 2 else found ** (1.0 / j)
        return np.clip(found, -_LARGEST, _LARGEST)

    @property
    def is_discrete(self) -> bool:  # type: ignore[override] # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether values are counts."""
        return self.kind == "count"

    @property
    @override
    def largest_value(self) -> float:
        return float(self.maximum)

    @property
    @override
    def support(self) -> constraints.Constraint:
        if self.maximum == math.inf:
            return super().support
        if self.is_discrete:
            return constraints.integer_interval(0, int(self.maximum))
        return cast("constraints.Constraint", constraints.interval(0.0, self.maximum))

    @override
    def root(self, x: Tensor, j: int) -> Tensor:
        check_whole(j, "j")
        return _like(x, lambda values: self.rooted(values, j))

    @override
    def log_base(self, x: Tensor) -> Tensor:
        return _like(x, self.measured)

    @override
    def check_values(self, x: Tensor, argument: str) -> None:
        super().check_values(x, argument)
        bad = ~torch.isfinite(self.log_base(x.double()))
        if bool(bad.any()):
            found = f"{x[bad].reshape(-1)[0].item():g} ({int(bad.sum())} such values)"
            raise out_of_range(argument, f"values of finite base measure of the {self.name} family", received=found)

    @override
    def base_natural(self, mean: Tensor) -> Tensor:
        """Found by bisection; where no parameter gives the mean, the largest or smallest tried."""
        wanted = mean.detach().double().reshape(-1).numpy()
        low, high = np.full(len(wanted), -1.0), np.full(len(wanted), 1.0)
        for _ in range(_DOUBLINGS):
            is_far = ~(self._base_means(low) <= wanted)
            if not is_far.any():
                break
            low[is_far] *= 2
        for _ in range(_DOUBLINGS):
            is_far = self._base_means(high) < wanted
            if not is_far.any():
                break
            high[is_far] *= 2
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            is_below = self._base_means(middle) <= wanted
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return torch.from_numpy(low).reshape(mean.shape).to(mean if mean.is_floating_point() else torch.float64)

    def _base_means(self, eta: Floats) -> Floats:
        """E T at k = 1, infinite where the parameter has no law."""
        value, mean = np.empty(len(eta)), np.empty((len(eta), 1))
        user_moments(self, eta[:, None], 1, value, mean, np.empty((0, 1, 1)))
        return np.where(np.isfinite(value), mean[:, 0], np.inf)


_BUILT_IN = ("poisson", "truncated-poisson", "exponential", "gaussian")


def _like(x: Tensor, function: Callable[[Floats], Floats]) -> Tensor:
    """A function of arrays of a tensor, in its floating dtype and on its device."""
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    found = function(x.detach().cpu().double().numpy())
    return torch.from_numpy(found).to(x.device, dtype)
