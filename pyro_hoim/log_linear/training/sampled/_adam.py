"""Adam steps whose metric is known, so that penalties can be added by their proximal maps. Private to training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_FIRST, _SECOND = 0.9, 0.999  # decay of the moments


class Adam:
    r"""Moments of a gradient; a step is ``rate * metric * direction`` with metric :math:`1 / (\sqrt{v} + \epsilon)`.

    With ``groups`` all coordinates of a group share the mean of their second moments: the metric is then a number
    within the group, and the proximal map of a norm of the group keeps its closed form.
    """

    def __init__(self, size: int, damping: float, groups: NDArray[np.int64] | None = None) -> None:
        self._damping = damping
        self._groups = groups
        self._sizes = None if groups is None else np.maximum(np.bincount(groups), 1)
        self._mean = np.zeros(size)
        self._square = np.zeros(size)
        self._num_mean = self._num_square = 0

    def step(self, gradient: Floats) -> tuple[Floats, Floats]:
        """Direction and metric (size,) after taking up a gradient of ascent."""
        self._num_mean += 1
        self._num_square += 1
        self._mean *= _FIRST
        self._mean += (1 - _FIRST) * gradient
        square = np.square(gradient)
        if self._groups is not None and self._sizes is not None:
            square = (np.bincount(self._groups, square, len(self._sizes)) / self._sizes)[self._groups]
        self._square *= _SECOND
        self._square += (1 - _SECOND) * square
        metric = np.sqrt(self._square / (1 - _SECOND**self._num_square))
        metric += self._damping
        return self._mean / (1 - _FIRST**self._num_mean), np.reciprocal(metric, out=metric)

    def shorten(self, scale: float) -> None:
        """The step was made shorter: so is the momentum."""
        self._mean *= scale

    def forget_direction(self) -> None:
        """Drop the momentum, because the gradient jumped; the metric stays."""
        self._mean[:] = 0.0
        self._num_mean = 0
