"""Log-likelihood of cells under draws of theta."""

from __future__ import annotations

import torch

from ...checks import check_shape
from ...errors import wrong_shape
from ...structure.hypergraph import InteractionHypergraph
from .law import HierarchicalLogLinear

__all__ = ["cell_log_likelihood"]

_BATCH = 1024  # draws evaluated at once


def cell_log_likelihood(hypergraph: InteractionHypergraph, theta: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    r"""Log-probability of each observed cell under each draw of theta: one term per cell, not per row.

    .. math:: \ell_{sc} = \theta_s \cdot A_{x_c} - \log Z(\theta_s)

    Rows in one cell share their term; :func:`pyro_hoim.interop.loo_by_cell` weights it by the cell's count.

    Args:
        hypergraph: the interactions.
        theta: posterior draws in the free coding.
        states: codes of the distinct observed cells, for instance ``observations.unique().codes``.

    Shape:
        ``theta`` (\*sample, num_parameters), ``states`` (num_cells, d); returns (\*sample, num_cells), nats.

    Raises:
        InputError: wrong shapes or codes.
        IntractableError: log Z exceeds the budget of :class:`~pyro_hoim.log_linear.Auto`.
    """
    check_shape(states, (len(hypergraph.domain),), "states")
    if states.dim() != 2:
        raise wrong_shape("states", f"(num_cells, {len(hypergraph.domain)})", states)
    flat = theta.detach().reshape(-1, theta.shape[-1])
    with torch.no_grad():
        laws = (HierarchicalLogLinear(hypergraph, chunk) for chunk in flat.split(_BATCH))
        parts = [law.log_prob(states[:, None]).T for law in laws]
    return torch.cat(parts).reshape(*theta.shape[:-1], states.shape[0])
