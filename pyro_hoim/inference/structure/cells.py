r"""Posterior means of the probabilities of cells by Laplace's expansion, and what tables say of a column given others.

.. math:: E\,p_x \propto p_x \exp\{(x - \mu) \cdot \delta + \tfrac12 h_x\}, \quad
    h_x = (x - \mu)^\top H^{-1} (x - \mu), \quad \delta = -\tfrac12 H^{-1} n \sum_x p_x h_x (x - \mu)

with statistics x of mean :math:`\mu` at the mode and minus the Hessian H there: the mean of theta is shifted from its
mode by delta, and p is curved. What is left out is of the order of n to the power -2.
"""

from __future__ import annotations

import numpy as np
import torch

from ...core.rows import row_patterns
from ...data.observations import Observations
from .kernel import Floats, LogKernel

__all__ = ["MAX_CELLS", "conditionals", "mean_cells"]

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


def conditionals(tables: torch.Tensor, rows: Observations, target: str) -> torch.Tensor:
    """Probabilities of the levels of a variable, missing in all rows, given their known cells: (..., N, K).

    From joint probabilities of positive sum, (..., *cards).
    """
    domain, num_batch = rows.domain, tables.dim() - len(rows.domain)
    size = domain[target].cardinality
    probs = tables.new_empty(*tables.shape[:num_batch], len(rows.codes), size)
    last = tables.movedim(num_batch + domain.index(target), -1)
    others = [name for name in domain.names if name != target]
    for missing, positions in row_patterns(rows):
        gone = [num_batch + k for k, name in enumerate(others) if name in missing]
        margin = (last.sum(gone) if gone else last).reshape(*tables.shape[:num_batch], -1, size)
        cell = torch.zeros_like(positions)
        for name in others:
            if name not in missing:
                cell = cell * domain[name].cardinality + rows.codes[positions, domain.index(name)]
        probs[..., positions, :] = margin[..., cell, :]
    return probs / probs.sum(-1, keepdim=True)
