r"""A univariate exponential family that a user states: its statistic and its log base measure, as functions of arrays.

Nothing of it is compiled here. Log partitions, moments and draws are those of sums and quadrature over tables of the
user's functions (:mod:`.user_rows`), which is slower than the kernels of the built-in families.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import constraints
from typing_extensions import override

from ...errors import check_choice, check_type, check_whole, conflict, out_of_range, refused, wrong_shape, wrong_type
from ...schema import NumberKind
from .families import NodeFamily
from .user_rows import user_moments

__all__ = ["UserFamily"]

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
        self._check_functions()

    def _check_functions(self) -> None:
        """Refuse functions whose values at the probes do not make a family."""
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
