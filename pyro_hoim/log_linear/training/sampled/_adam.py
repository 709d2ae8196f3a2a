"""Adam steps whose metric is known, so that a ridge can be added by its proximal map. Private to training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_FIRST, _SECOND = 0.9, 0.999  # decay of the moments


class Adam:
    r"""Moments of a gradient; a step is ``rate * metric * direction`` with metric :math:`1 / (\sqrt{v} + \epsilon)`."""

    def __init__(self, size: int, damping: float) -> None:
        self._damping = damping
        self._mean = np.zeros(size)
        self._square = np.zeros(size)
        self._num_mean = self._num_square = 0

    def step(self, gradient: Floats) -> tuple[Floats, Floats]:
        """Direction and metric (size,) after taking up a gradient of ascent."""
        self._num_mean += 1
        self._num_square += 1
        self._mean *= _FIRST
        self._mean += (1 - _FIRST) * gradient
        self._square *= _SECOND
        self._square += (1 - _SECOND) * np.square(gradient)
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
