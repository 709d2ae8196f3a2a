r"""Penalties on the size of an information source: R(k, N), nats per observation, and what theorem 5 asks of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import check_positive, out_of_range, refused, unexpected, wrong_type

SourcePenalty = Callable[[int, float], float]
"""R(k, N): nats per observation for k free parameters and N observations; non-negative, not falling in k."""

_LARGEST_SIZE = 1e12


@dataclass(frozen=True)
class MDL:
    r"""Minimum description length, :math:`R(k, N) = k \log N / (2 N)`; 0 where N is below one (paper 5, 4.1).

    Example:
        >>> round(MDL()(3, 100), 4)  # 3 log 100 / 200
        0.0691
    """

    def __call__(self, num_parameters: int, num_observations: float) -> float:
        """Nats per observation."""
        return num_parameters * max(math.log(num_observations), 0.0) / (2 * num_observations)


@dataclass(frozen=True)
class AIC:
    r"""Akaike's information criterion, :math:`R(k, N) = k / N`.

    Example:
        >>> AIC()(3, 100)  # parameters over observations
        0.03
    """

    def __call__(self, num_parameters: int, num_observations: float) -> float:
        """Nats per observation."""
        return num_parameters / num_observations


@dataclass(frozen=True)
class EBIC:
    r"""The extended Bayesian information criterion, :math:`R(k, N) = k (\log N + 2 \log m) / (2 N)`.

    A split chooses among m variables, and the best of many that say nothing looks better than the price of
    :class:`MDL`. With the price of that choice, networks of hundreds of columns have few arrows that are due to chance.

    Attributes:
        num_candidates: how many variables m a split chooses from, at least one.

    References:
        Jiahua Chen and Zehua Chen, Extended Bayesian information criteria for model selection with large model spaces,
        Biometrika 95, 2008, with gamma = 1.

    Example:
        >>> round(EBIC(1)(3, 100), 4), round(EBIC(300)(3, 100), 4)  # MDL's, and 3 log 300 / 100 more
        (0.0691, 0.2402)
    """

    num_candidates: int

    def __call__(self, num_parameters: int, num_observations: float) -> float:
        """Nats per observation."""
        choice = num_parameters * math.log(max(self.num_candidates, 1)) / num_observations
        return MDL()(num_parameters, num_observations) + choice


PENALTIES: dict[str, SourcePenalty] = {"mdl": MDL(), "aic": AIC()}


@dataclass(frozen=True)
class TheoremConditions:
    """What theorem 5 asks for learned laws to converge, as far as it can be checked.

    Attributes:
        lossless_is_candidate: condition 1, the lossless source is among the candidates.
        is_positive: condition 2, R(k, N) > 0.
        vanishes: condition 3, R(k, N) tends to 0 for fixed k as N grows.
        message: what is missing, empty where nothing is.
    """

    lossless_is_candidate: bool
    is_positive: bool
    vanishes: bool
    message: str

    @property
    def hold(self) -> bool:
        """Whether all three conditions hold."""
        return self.lossless_is_candidate and self.is_positive and self.vanishes


def check_theorem_conditions(
    penalty: str | SourcePenalty, num_parameters: int, num_observations: float, *, lossless: bool = False
) -> TheoremConditions:
    """Check the conditions of theorem 5 of paper 5 on a penalty, for one node.

    Conditions 2 and 3 are about all sizes; they are checked at one parameter and at the lossless source's number of
    them, for the given number of observations and on to 10^12 times as many. A penalty passes condition 3 when it falls
    at every tenfold step and ends below a millionth of where it began.

    Args:
        penalty: ``"mdl"``, ``"aic"``, ``"ebic"`` or a function R(k, N).
        num_parameters: free parameters k of the lossless source.
        num_observations: observations N.
        lossless: whether the lossless source is among the candidates.

    Raises:
        InputError: an unknown penalty, no parameter, no observation, or a penalty that is negative or not finite.

    Example:
        >>> check_theorem_conditions("aic", 4, 100, lossless=True).hold
        True
        >>> check_theorem_conditions(lambda k, n: 0.1 * k, 4, 100, lossless=True).message
        'R(k, N) is not seen to tend to 0 as N grows'
    """
    _, penalty = checked_penalty(penalty)
    if num_parameters < 1:
        raise out_of_range("num_parameters", "at least 1", num_parameters)
    check_positive(num_observations, "num_observations")
    # Positive and falling to zero, as far as thirteen sizes show.
    sizes = num_observations * np.logspace(0, 12, 13)
    values = np.array([[_value(penalty, k, n) for n in sizes] for k in (1, num_parameters)])
    is_positive = bool((values > 0).all())
    later = values[:, sizes > math.e**2]  # log N / N itself rises below e
    vanishes = bool((np.diff(later, axis=1) <= 0).all() and (values[:, -1] <= 1.000001e-6 * values.max(1)).all())
    missing = [
        text
        for holds, text in (
            (lossless, "the lossless source is not among the candidates; pass lossless=True"),
            (is_positive, "R(k, N) is not positive"),
            (vanishes, "R(k, N) is not seen to tend to 0 as N grows"),
        )
        if not holds
    ]
    return TheoremConditions(lossless, is_positive, vanishes, "; ".join(missing))


def checked_penalty(penalty: str | SourcePenalty, num_candidates: int = 1) -> tuple[str, SourcePenalty]:
    """Name and function of a penalty, where splits choose among so many variables."""
    penalties: dict[str, SourcePenalty] = {**PENALTIES, "ebic": EBIC(num_candidates)}
    if isinstance(penalty, str):
        if penalty not in penalties:
            known = ", ".join(map(repr, penalties))
            raise unexpected("penalty", f"{known} or a function R(k, N)", penalty, code="unknown-choice")
        return penalty, penalties[penalty]
    if not callable(penalty):
        raise wrong_type("penalty", "a name or a function R(k, N)", penalty)
    for name, known in penalties.items():
        if penalty == known:
            return name, penalty
    return getattr(penalty, "__qualname__", repr(penalty)), penalty


def _value(penalty: SourcePenalty, num_parameters: int, num_observations: float) -> float:
    """A penalty's value, checked."""
    try:
        value = float(penalty(num_parameters, num_observations))
    except ArithmeticError as error:
        problem = f"no value for {num_parameters} parameters and {num_observations:g} observations ({error})"
        raise refused("penalty", problem) from error
    if not 0 <= value < math.inf:
        expected = (
            f"a finite number of nats from 0 for {num_parameters} parameters and {num_observations:g} observations"
        )
        raise out_of_range("penalty", expected, value)
    return value


def large_penalty(penalty: SourcePenalty, num_parameters: int, num_observations: float) -> float:
    """R(k, N) for any whole k; infinite where k is no double."""
    return math.inf if num_parameters > _LARGEST_SIZE else _value(penalty, num_parameters, num_observations)


def leaf_penalties(
    penalty: SourcePenalty,
    per_leaf: int,
    num_observations: float,
    budget: float,
    most: int,
    known: Sequence[float] | None = None,
) -> tuple[np.ndarray, list[float]]:
    """N R(k, N) of 0, 1, ... leaves in nats of all rows, up to ``most`` leaves or the last that ``budget`` pays for.

    The cost falls from step to step and entropies are not negative, so a source whose penalty alone exceeds the cost
    of one leaf (entropy ``budget`` and the penalty of that leaf) is never reached; ``most`` is at least 1. Second, all
    values that are known, which may be given to the next call with other budgets.
    """
    values = list(known or ())
    while len(values) < 2:
        values.append(num_observations * _value(penalty, len(values) * per_leaf, num_observations))
    # One leaf's cost is all that any source may cost.
    limit = budget + values[1]
    while len(values) <= most and values[-1] <= limit:
        value = num_observations * _value(penalty, len(values) * per_leaf, num_observations)
        if value < values[-1]:
            received = (
                f"{value / num_observations!r} for {len(values) * per_leaf} parameters after "
                f"{values[-1] / num_observations!r}"
            )
            raise out_of_range("penalty", "one that does not fall in k", received=received)
        values.append(value)
    return np.array(values[: min(most, bisect_right(values, limit, lo=1)) + 1]), values
