"""Folding fixed variables into the remaining terms of a root structure. Private to :mod:`pyro_hoim.models`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from ..schema import Domain
from .root_structure import RootStructure

__all__ = ["fold"]


def fold(
    structure: RootStructure,
    coefficients: torch.Tensor,
    positions: Sequence[int],
    roots: Callable[[int], torch.Tensor],
) -> tuple[RootStructure, torch.Tensor, torch.Tensor]:
    """Structure and coefficients over the variables that are not fixed, and the constant that is left.

    Args:
        structure: all terms.
        coefficients: of the terms, (*batch, num_terms).
        positions: schema positions of the fixed variables.
        roots: the j-th roots of the fixed values, in the order of ``positions``.

    Returns:
        The structure that is left, its coefficients (*batch, num_left) and the constant (*batch,).
    """
    d = len(structure.domain)
    place = np.full(d, -1)  # of a fixed variable among the fixed ones
    place[list(positions)] = np.arange(len(positions))
    free = np.flatnonzero(place < 0)
    renumbered = np.full(d, -1)
    renumbered[free] = np.arange(len(free))
    rows: dict[tuple[int, int], list[npt.NDArray[np.int64]]] = {}
    weights: dict[tuple[int, int], list[torch.Tensor]] = {}
    constant = coefficients.new_zeros(coefficients.shape[:-1])
    for key in structure.keys:
        j, length = key
        terms = structure.positions(key).numpy()
        is_free = place[terms] < 0
        part = coefficients[..., structure.slices[key]]
        values = torch.cat([roots(j), coefficients.new_ones(1)])  # place -1 finds the factor 1 of a free variable
        for left in range(length + 1):
            chosen = np.flatnonzero(is_free.sum(1) == left)
            if not len(chosen):
                continue
            factors = values[torch.from_numpy(place[terms[chosen]] % (len(positions) + 1)).to(values.device)].prod(-1)
            weight = part.index_select(-1, torch.from_numpy(chosen).to(part.device)) * factors
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
    empty = coefficients.new_zeros(*coefficients.shape[:-1], 0)
    return rest, torch.cat([empty, *(parts[key] for key in rest.keys)], -1), constant
