"""Dense design of a small table: the statistics of every cell, as a NumPy matrix.

Small tables are fitted fastest with one matrix whose rows are cells and whose columns are the free statistics. It is
built once for a hypergraph and kept; larger models go through a partition backend and never form it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch

from ..data import Observations
from ..errors import IntractableError
from ..models import parametrization
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["MAX_DESIGN_ENTRIES", "cell_codes", "cell_counts", "design_entries", "design_matrix", "free_basis"]

MAX_DESIGN_ENTRIES = 2**26
"""Largest number of entries of a dense design (512 MiB in double precision)."""


def design_entries(hypergraph: InteractionHypergraph) -> int:
    """Entries of the dense design, cells times free parameters."""
    return hypergraph.domain.num_states * max(hypergraph.num_parameters, 1)


@lru_cache(maxsize=32)
def free_basis(hypergraph: InteractionHypergraph) -> np.ndarray:
    """Orthonormal basis of the balanced tables: balanced = basis @ free.

    Shape:
        result (num_terms, num_parameters), float64, read-only.
    """
    basis = parametrization(hypergraph).matrix("free", "balanced").numpy()
    basis.flags.writeable = False
    return basis


@lru_cache(maxsize=16)
def _small_design(hypergraph: InteractionHypergraph) -> np.ndarray:
    return _build(hypergraph)


def _build(hypergraph: InteractionHypergraph) -> np.ndarray:
    cards = hypergraph.domain.cardinalities
    num_cells = hypergraph.domain.num_states
    strides = [math.prod(cards[i + 1 :]) for i in range(len(cards))]
    cells = np.arange(num_cells)
    codes = [(cells // strides[i]) % cards[i] for i in range(len(cards))]
    basis = free_basis(hypergraph)
    design = np.empty((num_cells, hypergraph.num_parameters))
    slices = zip(hypergraph.term_slices.values(), hypergraph.parameter_slices.values(), strict=True)
    for (terms, parameters), members in zip(slices, hypergraph.edge_indices, strict=True):
        index = np.zeros(num_cells, dtype=np.int64)
        for i in members:
            index = index * cards[i] + codes[i]
        design[:, parameters] = basis[terms, parameters][index]
    design.flags.writeable = False
    return design


def design_matrix(hypergraph: InteractionHypergraph, max_entries: int = MAX_DESIGN_ENTRIES) -> np.ndarray:
    r"""Statistics of every cell in the free coding, :math:`X` with :math:`\log q(x) = (X \theta)_x - \log Z`.

    Args:
        hypergraph: the interaction structure.
        max_entries: budget for cells times parameters.

    Shape:
        result (num_states, num_parameters), float64, read-only; cells in row-major order.

    Raises:
        IntractableError: more than ``max_entries`` entries are needed.

    Example:
        >>> from pyro_hoim.schema import Domain
        >>> design_matrix(InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 2)).shape
        (4, 3)
    """
    needed = design_entries(hypergraph)
    if needed > max_entries:
        raise IntractableError(
            f"method: a dense design needs {hypergraph.domain.num_states} cells x {hypergraph.num_parameters} "
            f"parameters = {needed:.4g} entries, the budget is {max_entries}; use method='lbfgs'"
        )
    return _small_design(hypergraph) if needed <= 2**22 else _build(hypergraph)


def cell_codes(hypergraph: InteractionHypergraph) -> np.ndarray:
    """Codes of every cell in row-major order.

    Shape:
        result (num_states, d).
    """
    cards = hypergraph.domain.cardinalities
    return np.stack([a.ravel() for a in np.indices(cards)], axis=1) if cards else np.zeros((1, 0), dtype=np.int64)


def cell_counts(data: Observations) -> np.ndarray:
    """Counts of every cell in row-major order; the rows must be complete.

    Shape:
        result (num_states,), float64.
    """
    codes = data.codes.numpy()
    index = np.zeros(len(codes), dtype=np.int64)
    for i, n in enumerate(data.domain.cardinalities):
        index = index * n + codes[:, i]
    return np.bincount(index, weights=data.counts.numpy(), minlength=data.domain.num_states)


def as_tensor(values: np.ndarray) -> torch.Tensor:
    """A float64 tensor over the same memory."""
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))
