"""Draws from node conditionals, and the log partition function of the independent member."""

from __future__ import annotations

import numpy as np
import torch

from ...errors import check_type, refused
from ...runs.arguments import seed_from
from ..energy import GeneralizedRootEnergy
from ..nodes.families import NodeFamily
from ..nodes.log_partition import checked_natural, node_log_partition
from ..nodes.user import UserFamily

__all__ = ["draw_from_nodes", "independent_log_partition"]


def draw_from_nodes(
    family: NodeFamily, natural: torch.Tensor, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    r"""Independent exact draws of single variables, one per vector of natural parameters.

    .. math:: x \sim \exp\Bigl(\sum_j \eta_j T_j(x) + B(x)\Bigr) / Z(\eta)

    Args:
        family: the base family.
        natural: :math:`\eta_1, \dots, \eta_k` (\*batch, k); the result is (\*batch), of its type and device.
        generator: what the seed is drawn from; PyTorch's global generator when None.

    Raises:
        InputError: natural parameters whose law cannot be normalised, or has its mode beyond 2^53.
        InputTypeError: an argument of another type.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> natural = torch.full((10_000, 1), 3.0).log()  # Poisson with mean 3
        >>> draws = draw_from_nodes(PoissonFamily(), natural, generator=torch.Generator().manual_seed(0))
        >>> round(float(draws.mean()), 1), round(float(draws.var()), 1)
        (3.0, 3.0)
    """
    check_type(family, NodeFamily, "family")
    natural = checked_natural(natural)
    from ._count_kernels import small_counts
    from ._kernels import draw_nodes, workspace
    from ._random_kernels import chain_words
    from ._user_moves import user_node_draws

    order = natural.shape[-1]
    rows = np.ascontiguousarray(natural.detach().cpu().double().reshape(-1, order).numpy())
    words = chain_words(seed_from(generator), len(rows))
    if isinstance(family, UserFamily):
        drawn = user_node_draws(family, rows, words)
    else:
        drawn = np.empty(len(rows))
        draw_nodes(family.code, family.largest_value, rows, small_counts(order), workspace(order, 1), words, drawn)
    if np.isnan(drawn).any():
        wrong = int(np.isnan(drawn).argmax())
        problem = f"the law of {rows[wrong].tolist()} cannot be normalised, or has its mode beyond 2^53"
        raise refused("natural", problem, code="not-normalizable")
    return torch.from_numpy(drawn).reshape(natural.shape[:-1]).to(natural)


def independent_log_partition(energy: GeneralizedRootEnergy) -> torch.Tensor:
    r"""Log partition function of the independent member, :math:`\sum_s A(\eta_s)` over the terms of single variables.

    Exact up to the error of :func:`~pyro_hoim.generalized_root.node_log_partition`; nats (*batch), differentiable.

    Raises:
        InputError: the independent member cannot be normalised.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> structure = RootStructure.independent(Domain([Variable(name, kind="count") for name in "ab"]))
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([2.0, 3.0]).log(), PoissonFamily())
        >>> independent_log_partition(energy)  # the sum of the rates
        tensor(5.)
    """
    check_type(energy, GeneralizedRootEnergy, "energy")
    return node_log_partition(energy.family, energy.structure.single_natural(energy.psi)).sum(-1)
