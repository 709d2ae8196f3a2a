"""Positions of table entries selected by joint states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from .._modes import plain_mode
from ..budgets import MAX_ENTRIES, MAX_LEVELS, check_size
from ..checks import check_shape, is_hidden
from ..errors import check_type, out_of_range, unexpected, wrong_type
from ..schema import Domain
from .hypergraph import InteractionHypergraph

__all__ = ["cell_index", "check_codes", "check_tables", "evidence_codes", "gather_slices", "row_strides"]


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in entries."""
    return tuple(math.prod(shape[j + 1 :]) for j in range(len(shape)))


def check_tables(hypergraph: InteractionHypergraph) -> None:
    """Refuse tables of more than 2^27 entries, or of a variable of more than 2^13 levels, before they are made.

    Raises:
        IntractableError: with the number and the budget.

    Example:
        >>> from pyro_hoim import Domain
        >>> check_tables(InteractionHypergraph.saturated(Domain.from_cardinalities([2] * 4)))
        >>> check_tables(InteractionHypergraph.saturated(Domain.from_cardinalities([8193])))
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.IntractableError: variable 'x0': it has 8,193 levels, more than the budget of ...
    """
    hint = "use smaller interactions or fewer levels"
    what = "its interaction tables have"
    check_size(hypergraph.num_terms, MAX_ENTRIES, "entries", "hypergraph", hint, what)
    for variable in hypergraph.domain:
        if variable.cardinality > MAX_LEVELS and hypergraph.incident[hypergraph.domain.index(variable.name)]:
            hint, where = "merge rare levels, or leave it out", f"variable {variable.name!r}"
            check_size(variable.cardinality, MAX_LEVELS, "levels", where, hint)


def check_codes(x: torch.Tensor, domain: Domain, argument: str = "x", columns: list[int] | None = None) -> torch.Tensor:
    """Codes as a long tensor (*sample, d), refused unless every one is a level of its variable, where that can be seen.

    ``columns`` are the positions that are read; the others may hold anything and come back as they are (truncated).
    """
    check_type(x, torch.Tensor, argument, "a tensor of codes")
    if x.dtype == torch.bool or x.is_complex():
        raise wrong_type(argument, "whole-number codes", received=f"dtype {x.dtype}")
    check_shape(x, (len(domain),), argument)
    codes = x.long()
    if is_hidden(x):
        return codes
    read, given = (codes, x) if columns is None else (codes[..., columns], x[..., columns])
    cards = torch.tensor(domain.cardinalities, device=x.device)
    wrong = (read < 0) | (read >= (cards if columns is None else cards[columns]))
    if x.is_floating_point():
        wrong = wrong | (read != given)
    if bool(wrong.any()):
        where = tuple(int(i) for i in wrong.nonzero()[0])
        position = where[-1] if columns is None else columns[where[-1]]
        variable = domain.variables[position]
        expected = f"codes from 0 to {variable.cardinality - 1} for variable {variable.name!r}"
        raise out_of_range(argument, expected, received=f"{given[where].item()} at index {(*where[:-1], position)}")
    return codes


def evidence_codes(
    domain: Domain, evidence: Mapping[str, Any], batch_shape: Sequence[int]
) -> tuple[dict[str, int | torch.Tensor], torch.Size]:
    """Codes of fixed variables, and the shape of them all and the batch together.

    A label or code gives a number, a tensor with dimensions a long tensor, which must broadcast with the batch.
    """
    tensors = {name: value for name, value in evidence.items() if isinstance(value, torch.Tensor) and value.ndim}
    codes: dict[str, int | torch.Tensor] = dict(
        domain.encode_state({name: value for name, value in evidence.items() if name not in tensors})
    )
    shape = torch.Size(batch_shape)
    for name, value in tensors.items():
        codes[name] = check_codes(value[..., None], domain.project([name]), f"evidence of {name!r}").squeeze(-1)
        try:
            shape = torch.broadcast_shapes(shape, value.shape)
        except RuntimeError:
            expected = f"a shape that broadcasts with {tuple(shape)}, the batch shape and the evidence before it"
            argument, received = f"evidence of {name!r}", tuple(value.shape)
            raise unexpected(argument, expected, received=received, code="wrong-shape") from None
    return codes, shape


def gather_slices(table: torch.Tensor, num_batch: int, codes: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Slices of tables (*batch, *axes) at codes of some axes, broadcast with the batch; None for an axis that stays."""
    batch, sizes = table.shape[:num_batch], table.shape[num_batch:]
    fixed = {axis: code.to(table.device) for axis, code in enumerate(codes) if code is not None}
    free = [axis for axis, code in enumerate(codes) if code is None]
    num_free, num_fixed = math.prod(sizes[axis] for axis in free), math.prod(sizes[axis] for axis in fixed)
    if not fixed:
        return table.reshape(*batch, num_free)
    order = [*range(num_batch), *(num_batch + axis for axis in (*fixed, *free))]
    flat = table.permute(order).reshape(batch.numel() * num_fixed, num_free)
    index = torch.arange(batch.numel(), device=table.device).reshape(batch)
    for axis, code in fixed.items():
        index = index * sizes[axis] + code
    return flat.index_select(0, index.reshape(-1)).reshape(*index.shape, num_free)


_KEPT_BLOCK_ENTRIES = 2**16
_KEPT_BLOCKS = 1024


class _Layout(NamedTuple):
    """Position of a cell as ``offsets + sum_j strides[j] * codes[variables[j]]``, per hyperedge."""

    offsets: torch.Tensor
    variables: list[torch.Tensor]
    strides: list[torch.Tensor]

    def __call__(self, codes: torch.Tensor) -> torch.Tensor:
        index = self.offsets.expand(*codes.shape[:-1], len(self.offsets))
        for variable, stride in zip(self.variables, self.strides, strict=True):
            index = index + codes.index_select(-1, variable) * stride
        return index


class CellIndex:
    """Flat position, in the layout of tables, of the cell that a state selects in every hyperedge."""

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        self._cardinalities = hypergraph.domain.cardinalities
        self._edges = [
            (where.start, members, row_strides(shape))
            for where, members, shape in zip(
                hypergraph.term_slices.values(), hypergraph.edge_indices, hypergraph.edge_shapes, strict=True
            )
        ]
        self._layouts: dict[torch.device, _Layout] = {}
        self._blocks: dict[tuple[tuple[int, ...], torch.device], tuple[_Layout, torch.Tensor]] = {}

    @staticmethod
    @plain_mode()
    def _layout(
        edges: list[tuple[int, tuple[int, ...], tuple[int, ...]]], fixed: set[int], device: torch.device
    ) -> _Layout:
        """Layout of some hyperedges, leaving out the contribution of some variables."""
        axes = [
            [(i, n) for i, n in zip(members, strides, strict=True) if i not in fixed] for _, members, strides in edges
        ]
        depth = max((len(a) for a in axes), default=0)
        padded = [a + [(0, 0)] * (depth - len(a)) for a in axes]  # stride zero adds nothing
        return _Layout(
            torch.tensor([start for start, _, _ in edges], dtype=torch.long, device=device),
            [torch.tensor([a[j][0] for a in padded], dtype=torch.long, device=device) for j in range(depth)],
            [torch.tensor([a[j][1] for a in padded], dtype=torch.long, device=device) for j in range(depth)],
        )

    def flat(self, codes: torch.Tensor) -> torch.Tensor:
        """Positions (*sample, num_edges) for codes (*sample, d); the codes are not checked."""
        layout = self._layouts.get(codes.device)
        if layout is None:
            layout = self._layouts[codes.device] = self._layout(self._edges, set(), codes.device)
        return layout(codes)

    def block(self, codes: torch.Tensor, positions: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions of the cells of the hyperedges that meet a block, for every state of the block.

        The part set by the variables outside the block, (*sample, edges), and the part added by every state of the
        block in row-major order, (states, edges).
        """
        key = (positions, codes.device)
        found = self._blocks.get(key)
        if found is None:
            inside = set(positions)
            edges = [edge for edge in self._edges if inside.intersection(edge[1])]
            layout = self._layout(edges, inside, codes.device)
            with plain_mode():
                strides = [dict(zip(members, steps, strict=True)) for _, members, steps in edges]
                weights = np.array([[s.get(i, 0) for s in strides] for i in positions], dtype=np.int64)
                shape = [self._cardinalities[i] for i in positions]
                states = np.indices(shape).reshape(len(shape), math.prod(shape)).T
                added = torch.from_numpy(states @ weights.reshape(len(shape), len(edges))).to(codes.device)
            found = layout, added
            if added.numel() <= _KEPT_BLOCK_ENTRIES and len(self._blocks) < _KEPT_BLOCKS:
                self._blocks[key] = found
        layout, added = found
        return layout(codes), added


@lru_cache(maxsize=64)
@plain_mode()
def cell_index(hypergraph: InteractionHypergraph) -> CellIndex:
    """The :class:`CellIndex` of a hypergraph; equal hypergraphs share one."""
    return CellIndex(hypergraph)
