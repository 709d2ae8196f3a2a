"""What is derived from a root model: its terms when some variables are fixed, and the model over levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..schema import Domain, Variable
from ..structure.hypergraph import InteractionHypergraph
from .structure import RootStructure


def fold(
    structure: RootStructure,
    coefficients: torch.Tensor,
    positions: Sequence[int],
    roots: Callable[[int], torch.Tensor],
) -> tuple[RootStructure, torch.Tensor, torch.Tensor]:
    """Structure and coefficients over the variables that are not fixed, and the constant that is left."""
    d = len(structure.domain)
    place = np.full(d, -1)  # of a fixed variable among the fixed ones
    place[list(positions)] = np.arange(len(positions))
    free = np.flatnonzero(place < 0)
    renumbered = np.full(d, -1)
    renumbered[free] = np.arange(len(free))
    rows: dict[tuple[int, int], list[npt.NDArray[np.int64]]] = {}
    weights: dict[tuple[int, int], list[torch.Tensor]] = {}
    shape = torch.broadcast_shapes(coefficients.shape[:-1], roots(1).shape[:-1])
    constant = coefficients.new_zeros(shape)
    for key in structure.keys:
        j, length = key
        terms = structure.positions(key).numpy()
        is_free = place[terms] < 0
        part = coefficients[..., structure.slices[key]]
        fixed = roots(j)
        # Place -1 finds the factor 1 of a free variable.
        values = torch.cat([fixed, fixed.new_ones(*fixed.shape[:-1], 1)], -1)
        for left in range(length + 1):
            chosen = np.flatnonzero(is_free.sum(1) == left)
            if not len(chosen):
                continue
            where = torch.from_numpy(place[terms[chosen]]).to(values.device)
            weight = part.index_select(-1, torch.from_numpy(chosen).to(part.device)) * values[..., where].prod(-1)
            if left == 0:
                constant = constant + weight.sum(-1)
                continue
            rows.setdefault((j, left), []).append(renumbered[terms[chosen][is_free[chosen]].reshape(-1, left)])
            weights.setdefault((j, left), []).append(weight)
    variables = structure.domain.variables
    found: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
    parts: dict[tuple[int, int], torch.Tensor] = {}
    for key, pieces in rows.items():
        unique, inverse = np.unique(np.concatenate(pieces), axis=0, return_inverse=True)
        weight = torch.cat(weights[key], -1)
        index = torch.from_numpy(inverse.reshape(-1)).to(weight.device)
        found[key] = unique
        parts[key] = weight.new_zeros(*weight.shape[:-1], len(unique)).index_add(-1, index, weight)
    rest = RootStructure.from_positions(Domain(variables[i] for i in free), found)
    empty = coefficients.new_zeros(*shape, 0)
    return rest, torch.cat([empty, *(parts[key] for key in rest.keys)], -1), constant


class CountsAsLevels:
    """The model of ordinal variables; a code is the count itself. The energy that makes it is ``counts``."""

    def __init__(self, counts: Any) -> None:
        levels = tuple(str(value) for value in range(counts.require_finite("model")))
        self._counts = counts
        self.energy, self.block_conditional = counts.energy, counts.block_conditional
        self.domain = Domain(Variable(v.name, levels, "ordinal", v.unit) for v in counts.domain)
        names = self.domain.names
        pairs = [(names[i], names[j]) for i, j in counts.structure.graph.edges]
        self.hypergraph = InteractionHypergraph(self.domain, pairs, closure=True)
        self.batch_shape = counts.batch_shape

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> CountsAsLevels:
        """The model in another precision or on another device."""
        return CountsAsLevels(self._counts.to(dtype=dtype, device=device))
