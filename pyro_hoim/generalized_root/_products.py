"""Sums over the terms of a root structure, never by a dense tensor. Private to :mod:`pyro_hoim.generalized_root`.

Inside, variables come first: roots are (d, *sample), so that taking a variable is one contiguous copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from .structure import RootStructure

_CHUNK_CELLS = 2**17  # terms times states that are worked on at once: what a processor keeps close

_Chunk = tuple[torch.Tensor, tuple[torch.Tensor, ...]]

Roots = Callable[[int], torch.Tensor]
"""The j-th roots (d, *sample) of a state, by j; asked for once per key."""


def term_products(structure: RootStructure, roots: Roots, keys: Iterable[tuple[int, int]]) -> list[torch.Tensor]:
    """Products of the roots over the variables of every term, one tensor (m, *sample) per key."""
    return [_products(roots(key[0]), structure.columns(key, roots(key[0]).device)) for key in keys]


def _products(values: torch.Tensor, columns: Sequence[torch.Tensor]) -> torch.Tensor:
    product = values.index_select(0, columns[0])
    for column in columns[1:]:
        product = product * values.index_select(0, column)
    return product


def _chunks(structure: RootStructure, key: tuple[int, int], part: torch.Tensor, num_states: int) -> Iterator[_Chunk]:
    """Coefficients (*batch, m) and columns of a key, a few terms at a time."""
    step = max(1, _CHUNK_CELLS // max(1, num_states))
    columns = structure.columns(key, part.device)
    yield from zip(part.split(step, -1), zip(*(column.split(step) for column in columns), strict=True), strict=True)


def weighted_products(
    structure: RootStructure,
    coefficients: torch.Tensor,
    roots: Roots,
    sample: torch.Size,
    keys: Iterable[tuple[int, int]],
) -> torch.Tensor:
    """Sum over terms of coefficient times product, (*broadcast of sample and batch); coefficients (*batch, T)."""
    batch = coefficients.shape[:-1]
    shape = torch.broadcast_shapes(sample, batch)
    total = coefficients.new_zeros(shape)
    for key in keys:
        values = roots(key[0])
        for part, columns in _chunks(structure, key, coefficients[..., structure.slices[key]], shape.numel()):
            total = total + _contract(part, _products(values, columns), shape)
    return total


def _contract(part: torch.Tensor, products: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Inner product over terms of (*batch, m) and (m, *sample), broadcast to a shape."""
    batch, sample, rank = part.shape[:-1], products.shape[1:], len(shape)
    if batch.numel() * sample.numel() != shape.numel():
        left = part.movedim(-1, 0).reshape(-1, *[1] * (rank - len(batch)), *batch)
        return (left * products.reshape(-1, *[1] * (rank - len(sample)), *sample)).sum(0)
    # No dimension is shared, so that one matrix product does it and nothing of size (m, *shape) is made.
    outer = part.reshape(batch.numel(), -1) @ products.reshape(products.shape[0], sample.numel())
    outer = outer.reshape((*[1] * (rank - len(batch)), *batch, *[1] * (rank - len(sample)), *sample))
    return outer.permute(tuple(axis for i in range(rank) for axis in (i, rank + i))).reshape(shape)


def weighted_slopes(
    structure: RootStructure, coefficients: torch.Tensor, roots: Roots, sample: torch.Size, order: int
) -> torch.Tensor:
    """Natural parameters of all node conditionals (*broadcast of sample and batch, d, order)."""
    batch = coefficients.shape[:-1]
    shape = torch.broadcast_shapes(sample, batch)
    rank, d = len(shape), len(structure.domain)
    slopes: list[torch.Tensor] = []
    for j in range(1, order + 1):
        total = coefficients.new_zeros(d, *shape)
        for key in structure.keys:
            if key[0] != j:
                continue
            values = roots(j).reshape(d, *[1] * (rank - len(sample)), *sample)
            for part, columns in _chunks(structure, key, coefficients[..., structure.slices[key]], shape.numel()):
                part = part.movedim(-1, 0).reshape(-1, *[1] * (rank - len(batch)), *batch)
                _add_slopes(total, part, values, columns, shape)
        slopes.append(total)
    return torch.stack(slopes, -1).movedim(0, -2)


def _add_slopes(
    total: torch.Tensor, part: torch.Tensor, values: torch.Tensor, columns: Sequence[torch.Tensor], shape: torch.Size
) -> None:
    """Add to every variable of every term the coefficient times the roots of the term's other variables."""
    taken = [values.index_select(0, column) for column in columns]
    before = [part]
    for value in taken[:-1]:
        before.append(before[-1] * value)
    after: torch.Tensor | None = None
    for i in reversed(range(len(columns))):
        slope = before[i] if after is None else before[i] * after
        total.index_add_(0, columns[i], slope.expand(len(part), *shape))
        after = taken[i] if after is None else after * taken[i]
