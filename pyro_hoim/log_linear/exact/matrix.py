"""Exact inference of small models by one matrix product with the cached design matrix."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from typing_extensions import override

from ..._modes import plain_mode
from ...checks import is_transformed
from ...core.model import LogLinearModel
from ...core.partition import Cost, LogPartition
from ...errors import out_of_range, size_text
from ...structure.hypergraph import InteractionHypergraph
from .enumeration import Enumeration, enumeration_axes

__all__ = ["MatrixEnumeration"]


_KEPT, _KEPT_ENTRIES = 64, 2**23  # design matrices that are kept, and entries of them all
_kept: OrderedDict[tuple[InteractionHypergraph, torch.dtype, torch.device], torch.Tensor] = OrderedDict()
_lock = threading.Lock()


def _build_design(hypergraph: InteractionHypergraph, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zero-one matrix (num_states, num_terms), states in enumeration order: 1 where the state selects the term.

    The tensor is kept, and whoever asks first may be in inference mode or inside a transformation.
    """
    cards = hypergraph.domain.cardinalities
    matrix = np.zeros((hypergraph.domain.num_states, hypergraph.num_terms))
    rows = rest = np.arange(len(matrix))
    codes: dict[int, np.ndarray] = {}
    for v in reversed(enumeration_axes(hypergraph)):
        rest, codes[v] = np.divmod(rest, cards[v])
    for edge, piece in zip(hypergraph.edge_indices, hypergraph.term_slices.values(), strict=True):
        index = np.zeros_like(rows)
        for v in edge:
            index = index * cards[v] + codes[v]
        matrix[rows, piece.start + index] = 1
    with plain_mode():
        return torch.from_numpy(matrix).to(device=device, dtype=dtype)


def _design(hypergraph: InteractionHypergraph, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Design matrix, see :func:`_build_design`; the ``_KEPT`` used last are kept, ``_KEPT_ENTRIES`` entries at most."""
    key = (hypergraph, dtype, device)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    matrix = _build_design(hypergraph, dtype, device)
    with _lock:
        _kept[key] = matrix
        while len(_kept) > _KEPT or (len(_kept) > 1 and sum(m.numel() for m in _kept.values()) > _KEPT_ENTRIES):
            _kept.popitem(last=False)
    return matrix


def _logits(tables: torch.Tensor, design: torch.Tensor) -> torch.Tensor:
    """Log unnormalised probabilities (*batch, num_states); entries of minus infinity exclude the states they belong to.

    The product alone would make NaN of them, 0 times infinity. Inside ``torch.func`` values cannot be looked at.
    """
    logits = torch.matmul(tables, design.T)
    if not is_transformed(tables) and math.isfinite(logits.detach().sum().item()):
        return logits
    is_impossible = torch.isneginf(tables)
    excluded = torch.matmul(is_impossible.to(design.dtype), design.T) > 0
    return torch.where(excluded, -math.inf, torch.matmul(torch.where(is_impossible, 0.0, tables), design.T))


@dataclass(frozen=True)
class MatrixEnumeration(Enumeration):
    r"""Enumeration of a small model as two products with its design matrix A (states by terms).

    .. math:: \log Z = \log \sum_x \exp (A \theta)_x, \qquad \eta = A^{\mathsf T} \operatorname{softmax}(A \theta)

    The fastest way for models of a few thousand states at most, which NUTS evaluates thousands of times. Cost and
    memory are num_states times num_terms; the matrix is made once per structure, dtype and device. Exact.

    Args:
        max_states: largest number of joint states allowed.
        max_entries: largest number of entries of the matrix allowed.

    Raises:
        InputError: an option is not positive.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
        >>> MatrixEnumeration().plan(hypergraph).reason
        '64 states by 72 terms, within the budget of 1048576'
    """

    max_entries: int = 2**20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_entries < 1:
            raise out_of_range("MatrixEnumeration max_entries", "at least 1", received=self.max_entries)

    @override
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        hypergraph.domain.indices(keep)
        return _cost(self, hypergraph.domain.num_states, hypergraph.num_terms)

    def _log_table(self, hypergraph: InteractionHypergraph, tables: torch.Tensor) -> torch.Tensor:
        flat = _logits(tables, _design(hypergraph, tables.dtype, tables.device))
        return flat.reshape(
            tables.shape[0], *(hypergraph.domain.cardinalities[v] for v in enumeration_axes(hypergraph))
        )

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        cost, _, logits = self._ready(model)
        return LogPartition.exact(torch.logsumexp(logits, -1), cost, model.hypergraph.coding)

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        _, design, logits = self._ready(model)
        return torch.matmul(torch.softmax(logits, -1), design)

    def _ready(self, model: LogLinearModel) -> tuple[Cost, torch.Tensor, torch.Tensor]:
        """Cost, design matrix and log unnormalised probabilities of a model within the budget."""
        cost = _cost(self, model.hypergraph.domain.num_states, model.hypergraph.num_terms).check()
        design = _design(model.hypergraph, model.tables.dtype, model.tables.device)
        return cost, design, _logits(model.tables, design)


@lru_cache(maxsize=256)
def _cost(backend: MatrixEnumeration, states: int, terms: int) -> Cost:
    """Cost of a number of states by a number of terms."""
    entries = states * max(terms, 1)
    feasible, hint = entries <= backend.max_entries and states <= backend.max_states, None
    reason = f"{size_text(states)} states by {terms} terms, within the budget of {backend.max_entries}"
    if not feasible:
        need = f"{size_text(entries, 'entries')} for {size_text(states, 'states')}"
        reason = f"the design matrix needs {need}, the budget is {backend.max_entries} and {backend.max_states}"
        hint = "raise MatrixEnumeration(max_entries=...) or use Enumeration or VariableElimination"
    memory = 8 * (entries + 3 * states)
    return Cost(states, states, 2 * entries, memory, feasible, reason, "design matrix", hint=hint)
