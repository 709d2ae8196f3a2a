r"""Posterior means of the probabilities of cells by Laplace's expansion.

.. math:: E\,p_x \propto p_x \exp\{(x - \mu) \cdot \delta + \tfrac12 h_x\}, \quad
    h_x = (x - \mu)^\top H^{-1} (x - \mu), \quad \delta = -\tfrac12 H^{-1} n \sum_x p_x h_x (x - \mu)

with statistics x of mean :math:`\mu` at the mode and minus the Hessian H there: the mean of theta is shifted from its
mode by delta, and p is curved. What is left out is of the order of n to the power -2.
"""

from __future__ import annotations

import numpy as np

from .kernel import Floats, LogKernel

__all__ = ["MAX_CELLS", "mean_cells"]

MAX_CELLS = 2**12
"""Most cells whose probabilities are averaged over collections."""


def mean_cells(kernel: LogKernel, design: Floats, theta: Floats) -> Floats:
    """Means (cells,) under the law of a kernel with its mode at theta; ``design`` (cells, P) has the statistics."""
    logits = design @ theta
    probs = np.exp(logits - logits.max())
    probs /= probs.sum()
    centred = design - probs @ design
    hessian = kernel.total * (centred.T @ (probs[:, None] * centred)) + np.diag(kernel.precision)
    solved = np.linalg.solve(hessian, centred.T)
    leverage = (centred * solved.T).sum(1)
    shift = -0.5 * kernel.total * (solved @ (probs * leverage))
    logits = logits + centred @ shift + 0.5 * leverage
    means = np.exp(logits - logits.max())
    return means / means.sum()
