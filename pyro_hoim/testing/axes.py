"""Axes of laws over counts, categories and numbers: points and weights of sums and integrals, and cells for draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import check_whole, out_of_range

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Axis:
    r"""Values of one variable, or of indicators that are drawn together, at which a law is summed or integrated.

    A :class:`~pyro_hoim.testing.DistributionCase` of a law that is not finite has an axis for every variable. A sum
    over the points of all axes with their weights is the integral of the law, up to what the tails hold that the points
    leave out. Draws are counted in cells, whose probabilities are such sums too.

    Attributes:
        values: points (n, m) of m variables; m is 1 but for indicators.
        log_weights: logs of the weights of the points, (n,).
        cuts: ascending borders between cells of one variable; no point lies on one.
        outside: values (k, m) that are not of the support.
        is_whole: whether the points are all values that there are.

    Example:
        >>> axis = Axis.counts(3, top=40)
        >>> axis.values.shape, axis.cells(np.array([[0.0], [2.0], [17.0]])).tolist()
        ((40, 1), [0, 2, 3])
        >>> line = Axis.numbers([-9, -1, 1, 9])
        >>> round(float(np.exp(line.log_weights - 0.5 * line.values[:, 0] ** 2).sum() ** 2), 6)  # 2 pi
        6.283185
    """

    values: Floats
    log_weights: Floats
    cuts: Floats = field(default_factory=lambda: np.zeros(0))
    outside: Floats = field(default_factory=lambda: np.full((1, 1), np.nan))
    is_whole: bool = False

    @classmethod
    def levels(cls, size: int) -> Axis:
        """The codes from 0 to size - 1, a cell each."""
        check_whole(size, "size")
        values = np.arange(float(size))[:, None]
        outside = np.array([-1.0, size, 0.5, np.nan])[:, None]
        return cls(values, np.zeros(size), values[1:, 0] - 0.5, outside, is_whole=True)

    @classmethod
    def counts(cls, cells: int, top: int) -> Axis:
        """The counts from 0 to top - 1; a cell each for the first, and one for the others."""
        check_whole(top, "top")
        values = np.arange(float(top))[:, None]
        outside = np.array([-1.0, 0.5, np.inf, np.nan])[:, None]
        return cls(values, np.zeros(top), values[1 : cells + 1, 0] - 0.5, outside)

    @classmethod
    def indicators(cls, size: int) -> Axis:
        """The indicators of a category of some levels, of which one is 1."""
        check_whole(size, "size")
        outside = np.stack([np.zeros(size), np.full(size, 1.0 if size > 1 else 2.0), np.eye(size)[0] / 2])
        return cls(np.eye(size), np.zeros(size), outside=outside, is_whole=True)

    @classmethod
    def numbers(cls, knots: Sequence[float], nodes: int = 24, power: int = 1) -> Axis:
        r"""Gauss-Legendre nodes between consecutive knots, which are the borders of cells, in u with :math:`x = u^m`.

        Densities that are smooth in the m-th root of x are integrated to about 14 digits by panels of moderate width; a
        law of both signs needs a knot at 0 then.
        """
        ends = np.asarray(knots, dtype=np.float64)
        if len(ends) < 2 or (np.diff(ends) <= 0).any():
            raise out_of_range("knots", "at least two ascending numbers", received=list(knots))
        # Each panel by itself, in the root of the numbers.
        u = np.sign(ends) * np.abs(ends) ** (1 / power)
        points, weights = np.polynomial.legendre.leggauss(nodes)
        half = np.diff(u)[:, None] / 2
        at = (u[:-1, None] + half * (points + 1)).reshape(-1)
        log_weights = np.log((half * weights).reshape(-1)) + np.log(power) + (power - 1) * np.log(np.abs(at))
        values = np.sign(at) * np.abs(at) ** power
        outside = [np.nan, *([-1.0] if ends[0] == 0.0 else [])]
        return cls(values[:, None], log_weights, ends[1:-1], np.array(outside)[:, None])

    @property
    def width(self) -> int:
        """Number of variables."""
        return self.values.shape[1]

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return self.width if self.width > 1 else len(self.cuts) + 1

    def cells(self, values: Floats) -> NDArray[np.int64]:
        r"""Cells (\*sample,) of values (\*sample, m)."""
        if self.width > 1:
            return values.argmax(-1)
        return np.searchsorted(self.cuts, values[..., 0])
