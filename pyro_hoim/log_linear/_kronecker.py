"""Linear maps between flat vectors of interaction tables that are Kronecker products on every hyperedge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Literal, NamedTuple

import numpy as np
import torch

from .._modes import plain_mode
from ..structure.hypergraph import Edge, InteractionHypergraph

Array = np.ndarray
Layout = Literal["terms", "parameters", "subsets"]
Factor = Callable[[int], Array]

_KRONECKER_ENTRIES = 2**16  # of the product of a shape, above which it is applied axis by axis instead of being stored
_DENSE_ENTRIES = 2**20  # largest dense matrix that replaces a chain of maps
_ENTRIES_PER_BLOCK = 12_000  # a dense product over so many costs about as much as one block of the structured form


def level_contrasts(n: int) -> Array:
    r"""Orthonormal contrasts of n levels as columns, shape (n, n - 1); column l - 1 is that of level l."""
    contrasts = np.vstack([np.full((1, n - 1), -1 / math.sqrt(n)), np.eye(n - 1)])
    contrasts[1:] -= 1 / (n + math.sqrt(n))
    return contrasts


def corner_embedding(n: int) -> Array:
    """Places n - 1 free entries at levels 1 ... n - 1 and zero at level 0, shape (n, n - 1)."""
    return np.eye(n)[:, 1:]


class Block(NamedTuple):
    """Hyperedges of one shape."""

    shape: tuple[int, ...]
    inputs: Array
    outputs: Array


def edge_blocks(hypergraph: InteractionHypergraph, inputs: Layout, outputs: Layout) -> list[Block]:
    """All hyperedges grouped by shape, with the positions of their entries in two layouts."""
    groups: dict[tuple[int, ...], list[Edge]] = {}
    for edge, shape in zip(hypergraph.edges, hypergraph.edge_shapes, strict=True):
        groups.setdefault(shape, []).append(edge)
    return [
        Block(shape, _positions(hypergraph, edges, shape, inputs), _positions(hypergraph, edges, shape, outputs))
        for shape, edges in groups.items()
    ]


def _positions(hypergraph: InteractionHypergraph, edges: list[Edge], shape: tuple[int, ...], layout: Layout) -> Array:
    """Positions (num_edges, entries) of hyperedges of one shape in a layout."""
    if layout == "subsets":
        return np.stack([_subset_positions(hypergraph, edge, shape) for edge in edges])
    slices = hypergraph.term_slices if layout == "terms" else hypergraph.parameter_slices
    starts = np.array([slices[edge].start for edge in edges])
    size = math.prod(shape) if layout == "terms" else math.prod(n - 1 for n in shape)
    return starts[:, None] + np.arange(size)


def _subset_positions(hypergraph: InteractionHypergraph, edge: Edge, shape: tuple[int, ...]) -> Array:
    """Where a transformed table goes: index 0 on an axis means without that variable, j its free entry j - 1."""
    places = np.empty(shape, dtype=np.int64)
    for is_inside in itertools.product((False, True), repeat=len(edge)):
        subset = tuple(name for name, keep in zip(edge, is_inside, strict=True) if keep)
        where = tuple(slice(1, None) if keep else 0 for keep in is_inside)
        if subset:
            target = hypergraph.parameter_slices[subset]
            sizes = [n - 1 for n, keep in zip(shape, is_inside, strict=True) if keep]
            places[where] = np.arange(target.start, target.stop).reshape(sizes)
        else:
            places[where] = hypergraph.num_parameters
    return places.ravel()


class _Placed(NamedTuple):
    """Constants of a map on one device and dtype."""

    gather: torch.Tensor | None
    factors: list[list[torch.Tensor]]
    place: torch.Tensor | None
    scatter: torch.Tensor | None


class KroneckerMap:
    """One structured linear map, that maps the entries of hyperedges of one shape alike."""

    def __init__(self, blocks: Sequence[Block], factor: Factor, num_inputs: int, num_outputs: int) -> None:
        self.blocks = [b for b in blocks if b.inputs.size and b.outputs.size]
        self.factor = factor
        self.num_inputs = num_inputs
        self.num_outputs = num_outputs
        self._placed: dict[tuple[torch.dtype, torch.device], _Placed] = {}

    def adjoint(self) -> KroneckerMap:
        """The transposed map."""
        blocks = [Block(b.shape, b.outputs, b.inputs) for b in self.blocks]
        return KroneckerMap(blocks, lambda n: self.factor(n).T, self.num_outputs, self.num_inputs)

    def _place(self, dtype: torch.dtype, device: torch.device) -> _Placed:
        key = (dtype, device)
        if key not in self._placed:
            with plain_mode():
                none = np.zeros(0, dtype=np.int64)
                inputs = np.concatenate([none, *(b.inputs.ravel() for b in self.blocks)])
                outputs = np.concatenate([none, *(b.outputs.ravel() for b in self.blocks)])
                gather = (
                    None if np.array_equal(inputs, np.arange(self.num_inputs)) else torch.from_numpy(inputs).to(device)
                )
                permutation = scatter = None
                if not np.array_equal(np.sort(outputs), np.arange(self.num_outputs)):
                    scatter = torch.from_numpy(outputs).to(device)
                elif not np.array_equal(outputs, np.arange(self.num_outputs)):
                    permutation = torch.from_numpy(np.argsort(outputs)).to(device)
                factors: list[list[torch.Tensor]] = []
                for block in self.blocks:
                    axes = [self.factor(n) for n in block.shape]
                    if block.inputs.shape[1] * block.outputs.shape[1] <= _KRONECKER_ENTRIES:
                        axes = [reduce(np.kron, axes)]
                    # Transposed, because rows of entries are multiplied from the right.
                    factors.append([torch.from_numpy(np.ascontiguousarray(a.T)).to(device, dtype) for a in axes])
                self._placed[key] = _Placed(gather, factors, permutation, scatter)
        return self._placed[key]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``x`` (*batch, num_inputs), giving (*batch, num_outputs)."""
        gather, factors, permutation, scatter = self._place(x.dtype, x.device)
        batch = x.shape[:-1]
        if not self.blocks:
            return x.new_zeros(*batch, self.num_outputs)
        if gather is not None:
            x = x.index_select(-1, gather)
        pieces = x.split([b.inputs.size for b in self.blocks], -1)
        results: list[torch.Tensor] = []
        for block, piece, matrices in zip(self.blocks, pieces, factors, strict=True):
            value = piece.reshape(*batch, *block.inputs.shape)
            if len(matrices) == 1:
                value = value @ matrices[0]
            else:
                # The first axis is split off, multiplied and put last; after all axes the order is restored.
                num_edges, size = block.inputs.shape
                for matrix in matrices:
                    size = size // matrix.shape[0]
                    value = value.reshape(*batch, num_edges, matrix.shape[0], size)
                    size = size * matrix.shape[1]
                    value = (value.transpose(-1, -2) @ matrix).reshape(*batch, num_edges, size)
            results.append(value.reshape(*batch, block.outputs.size))
        y = torch.cat(results, -1)
        if permutation is not None:
            return y.index_select(-1, permutation)
        if scatter is not None:
            return x.new_zeros(*batch, self.num_outputs).index_add(-1, scatter, y)
        return y


class LinearMap:
    """Composition of structured maps, kept as one dense matrix where that is faster."""

    def __init__(self, *maps: KroneckerMap, num_outputs: int) -> None:
        self.maps = maps
        self.num_inputs = maps[0].num_inputs if maps else num_outputs
        self.num_outputs = num_outputs
        calls = sum(len(m.blocks) + 2 for m in maps)
        self.is_dense = self.num_inputs * num_outputs <= min(_DENSE_ENTRIES, _ENTRIES_PER_BLOCK * calls) and calls > 0
        self._matrices: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    def _apply(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.maps:
            x = step(x[..., : step.num_inputs])
        return x[..., : self.num_outputs]

    def matrix(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Dense matrix (num_inputs, num_outputs) by which a row vector is multiplied from the right."""
        with plain_mode():
            # Always rounded from double precision, so that a dtype changes the entries by rounding alone.
            dense = self._apply(torch.eye(self.num_inputs, dtype=torch.float64, device="cpu"))
            return dense.to(device, dtype).contiguous()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``x`` (*batch, num_inputs), giving (*batch, num_outputs)."""
        if not self.is_dense:
            return self._apply(x)
        key = (x.dtype, x.device)
        dense = self._matrices.get(key)
        if dense is None:
            dense = self._matrices[key] = self.matrix(*key)
        return x @ dense
