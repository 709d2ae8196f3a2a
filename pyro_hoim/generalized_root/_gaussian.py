"""Precision and linear part of a Gaussian model of pairs. Private to :mod:`pyro_hoim.generalized_root`."""

from __future__ import annotations

import torch

from .structure import RootStructure


def precision_and_shift(structure: RootStructure, psi: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Precision (*batch, d, d) and linear part (*batch, d) of tensor entries (*batch, num_terms) with roots up to 2."""
    d, batch = len(structure.domain), psi.shape[:-1]
    precision = psi.new_zeros(*batch, d * d)
    shift = psi.new_zeros(*batch, d)
    for key, where in structure.slices.items():
        columns = structure.columns(key, psi.device)
        part = psi[..., where]
        if key == (2, 1):
            shift = shift.index_add(-1, columns[0], part)
        elif key == (1, 1):
            precision = precision.index_add(-1, columns[0] * (d + 1), -2 * part)
        else:
            for a, b in (columns, columns[::-1]):
                precision = precision.index_add(-1, a * d + b, -2 * part)
    return precision.reshape(*batch, d, d), shift
