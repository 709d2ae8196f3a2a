"""What every node family is: an abstract class, and the checks that families share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from ...errors import check_whole, out_of_range
from ...schema import NumberKind

__all__ = ["NodeFamily", "check_order", "floating", "refuse_values"]


@dataclass(frozen=True)
class NodeFamily(ABC):
    r"""A univariate exponential family, with the roots of its statistic.

    Families are values: two of the same kind and maximum are equal and have the same hash. How to write a further one
    is told in the page on adding a node family.

    Attributes:
        name: name in files and at the command line.
        code: number of the family in compiled kernels.
        kind: kind of the schema's variables.
        is_discrete: whether the base measure counts whole numbers (True) or is Lebesgue's (False).

    References:
        Inouye, Ravikumar, Dhillon (2016), Generalized root models, equations 1 and 5.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    kind: ClassVar[NumberKind]
    is_discrete: ClassVar[bool]

    @property
    def largest_value(self) -> float:
        """Largest value of the domain; infinity where there is none."""
        return math.inf

    @property
    @abstractmethod
    def support(self) -> constraints.Constraint:
        """The domain as a constraint of :mod:`torch.distributions`."""

    def root(self, x: Tensor, j: int) -> Tensor:
        """The j-th root of the statistic, :math:`T_j(x) = x^{1/j}` (the Gaussian family has its own), shape of x.

        Args:
            x: values of the domain, any dtype; whole numbers become the default floating dtype.
            j: order of the root, from 1.
        """
        check_order(j, "j")
        numbers = floating(x)
        if j == 1:
            return numbers
        return numbers.sqrt() if j == 2 else numbers.pow(1.0 / j)

    def roots(self, x: Tensor, order: int) -> Tensor:
        """The roots :math:`T_1(x), ..., T_k(x)` in a new last dimension, (*sample, k), of values (*sample,)."""
        check_order(order, "order")
        return torch.stack([self.root(x, j) for j in range(1, order + 1)], -1)

    @abstractmethod
    def log_base(self, x: Tensor) -> Tensor:
        """Log base measure B(x) of values of the domain, shape of x."""

    @abstractmethod
    def check_values(self, x: Tensor, argument: str) -> None:
        """Refuse numbers, under the caller's name for them, unless all are of the domain; the first one is named."""

    @abstractmethod
    def base_log_partition(self, eta1: Tensor) -> Tensor:
        """Closed form of A for k = 1, shape of eta1; infinite where the density cannot be normalised."""

    @abstractmethod
    def base_cdf(self, x: Tensor, eta1: Tensor) -> Tensor:
        """Closed form of P(X <= x) for k = 1, broadcast shape; eta1 must be normalisable."""

    @abstractmethod
    def base_natural(self, mean: Tensor) -> Tensor:
        """Natural parameter of k = 1 at which E T(X) has a given value, shape of mean; a start value for a fit."""


def floating(x: Tensor) -> Tensor:
    """Values in a floating dtype: their own, or the default one."""
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def check_order(order: int, argument: str) -> None:
    """Refuse a number of roots that is none."""
    check_whole(order, argument)


def refuse_values(x: Tensor, is_good: Callable[[Tensor], Tensor], argument: str, expected: str) -> None:
    """Raise for the first value that is not good."""
    bad = ~is_good(x)
    if bool(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        found = f"{x[where].item():g} at index {where} ({int(bad.sum())} such values)"
        raise out_of_range(argument, expected, received=found)
