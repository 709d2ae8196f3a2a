"""Draws from node conditionals, and the log partition function of the independent member."""

from __future__ import annotations

import numpy as np
import torch

from ...errors import check_type, unexpected, wrong_shape, wrong_type
from ...runs.arguments import received, seed_from
from ..energy import GeneralizedRootEnergy
from ..nodes.families import NodeFamily
from ..nodes.log_partition import node_log_partition

__all__ = ["draw_from_nodes", "independent_log_partition"]


def draw_from_nodes(
    family: NodeFamily, natural: torch.Tensor, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    r"""Independent exact draws of single variables, one per vector of natural parameters.

    .. math:: x \sim \exp\Bigl(\sum_j \eta_j T_j(x) + B(x)\Bigr) / Z(\eta)

    Args:
        family: the base family.
        natural: :math:`\eta_1, \dots, \eta_k`.
        generator: what the seed is drawn from; PyTorch's global generator when None.

    Shape:
        natural (\*batch, k); result (\*batch), in natural's type and on its device.

    Raises:
        InputError: natural parameters whose law cannot be normalised, or has its mode beyond 2^53.
        InputTypeError: an argument of another type.

    Example:
        >>> from pyro_hoim.generalized_root import ExponentialFamily
        >>> natural = torch.tensor([-2.0, 1.0, 0.5]).expand(1000, 3)
        >>> draws = draw_from_nodes(ExponentialFamily(), natural, generator=torch.Generator().manual_seed(0))
        >>> draws.shape, bool((draws > 0).all())
        (torch.Size([1000]), True)
    """
    check_type(family, NodeFamily, "family")
    if not isinstance(natural, torch.Tensor) or not natural.is_floating_point():
        raise wrong_type("natural", "a floating-point tensor", received=received(natural))
    if natural.ndim == 0 or not natural.shape[-1]:
        raise wrong_shape("natural", "(..., k) with k from 1", natural)
    from ._count_kernels import small_counts
    from ._kernels import draw_nodes, workspace
    from ._random_kernels import chain_words

    order = natural.shape[-1]
    rows = np.ascontiguousarray(natural.detach().cpu().double().reshape(-1, order).numpy())
    drawn = np.empty(len(rows))
    words = chain_words(seed_from(generator), len(rows))
    draw_nodes(family.code, family.largest_value, rows, small_counts(order), workspace(order, 1), words, drawn)
    if np.isnan(drawn).any():
        wrong = int(np.isnan(drawn).argmax())
        expected = "a law that can be normalised, with its mode below 2^53"
        raise unexpected("natural", expected, received=rows[wrong].tolist())
    return torch.from_numpy(drawn).reshape(natural.shape[:-1]).to(natural)


def independent_log_partition(energy: GeneralizedRootEnergy) -> torch.Tensor:
    r"""Log partition function of the independent member, :math:`\sum_s A(\eta_s)` over the terms of single variables.

    Exact up to the error of :func:`~pyro_hoim.generalized_root.nodes.log_partition`; nats; differentiable in psi.

    Args:
        energy: the model.

    Shape:
        result (\*batch) of the energy.

    Raises:
        InputError: the independent member cannot be normalised.
        InputTypeError: an argument of another type.
    """
    check_type(energy, GeneralizedRootEnergy, "energy")
    structure, coefficients = energy.structure, energy.coefficients
    natural = coefficients.new_zeros(*energy.batch_shape, len(structure.domain), structure.order)
    for j, num_members in structure.keys:
        if num_members == 1:
            positions = structure.positions((j, 1))[:, 0].to(coefficients.device)
            column = coefficients.new_zeros(*energy.batch_shape, len(structure.domain))
            column = column.index_copy(-1, positions, coefficients[..., structure.slices[j, 1]])
            natural = natural + torch.nn.functional.pad(column.unsqueeze(-1), (j - 1, structure.order - j))
    return node_log_partition(energy.family, natural).sum(-1)
