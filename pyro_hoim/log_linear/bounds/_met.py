"""The certain lower bound of log Z that states prove by being possible: the sum of q over the distinct ones."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...structure.hypergraph import InteractionHypergraph, cell_index
from ._join_graph import tables_of

_EPS = float(np.finfo(np.float64).eps)  # twice the error of one addition
_LOG_SUM = 1e-13  # error of the logarithm of a sum of exponentials, relative


class Met(NamedTuple):
    """Distinct possible states (n, d), log q of them (n,), and the log of their sum, rounded downward."""

    states: NDArray[np.int64]
    logs: NDArray[np.float64]
    bound: float

    def slopes(self, hypergraph: InteractionHypergraph) -> torch.Tensor:
        """Gradient of the bound in the tables (num_terms,): means over the states, by their shares of the sum."""
        slopes = torch.zeros(hypergraph.num_terms, dtype=torch.float64)
        if len(self.logs):
            where = cell_index(hypergraph).flat(torch.from_numpy(self.states))
            shares = torch.from_numpy(self.logs).softmax(0)
            slopes.index_add_(0, where.reshape(-1), shares[:, None].expand(where.shape).reshape(-1))
        return slopes


def met(hypergraph: InteractionHypergraph, tables: torch.Tensor, states: NDArray[np.integer]) -> Met:
    """What states (n, d) prove of the model with tables (num_terms,), float64. Each counts once, impossible ones not.

    A sum of k entries is wrong by less than k - 1 roundings of the sum of their sizes.
    """
    rows = np.ascontiguousarray(states)
    if rows.shape[1]:  # equal rows have equal bytes
        first = np.unique(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0], return_index=True)[1]
        rows = rows[np.sort(first)]
    else:
        rows = rows[:1]
    codes = torch.from_numpy(rows.astype(np.int64))
    logs = log_q(hypergraph, tables, codes)
    is_possible = logs > -math.inf
    codes, logs = codes[is_possible], logs[is_possible].numpy()
    if not len(logs):
        return Met(codes.numpy(), logs, -math.inf)
    sizes = log_q(hypergraph, tables.abs(), codes).numpy()
    total = float(np.logaddexp.reduce(logs - _EPS * len(hypergraph) * sizes))
    return Met(codes.numpy(), logs, total - _LOG_SUM * (1.0 + abs(total)))


def log_q(hypergraph: InteractionHypergraph, tables: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Log unnormalised probabilities (n,) of states (n, d) under tables (num_terms,)."""
    from ...compute.lanes import run_threads
    from ._kernels import LANES, look_up

    codes, values = np.ascontiguousarray(states.numpy()), np.ascontiguousarray(tables.numpy())
    arrays, logs = tables_of(hypergraph), np.zeros(len(codes))
    run_threads(lambda first, step: look_up(codes, values, arrays, logs, first, step), -(-len(codes) // LANES))
    return torch.from_numpy(logs)
