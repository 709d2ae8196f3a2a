"""Free energies: the unnormalised law of the visible variables, the hidden units summed out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from ..checks import check_finite, check_shape, checked_floating
from ..core.laws.expansion import list_states
from ..core.model import ParametricEnergy
from ..errors import check_type
from ..schema import Domain
from ..structure.cells import check_codes
from .structure import MachineStructure

__all__ = ["MAX_LAYER_STATES", "MarginalEnergy"]

MAX_LAYER_STATES = 2**22
"""Most states of a layer that are listed."""


class MarginalEnergy(ParametricEnergy):
    r"""Energy of the visible variables of a Boltzmann machine, which is its free energy.

    .. math:: F(v) = -\log \sum_h e^{-E(v, h)} = -b \cdot v - \sum_{i<j} w_{ij} v_i v_j - \log Z_h(c + v W)

    where :math:`Z_h` is the normalising constant of the hidden part, whose biases the visible variables shift. Without
    edges among hidden units it is :math:`\prod_j (1 + e^{c_j + (vW)_j})` (a restricted machine: O(n m) a row); with
    such edges it is summed over the smaller of two colours, or eliminated. Exact, or refused.

    Args:
        structure: visible and hidden variables and edges.
        theta: biases and weights, in nats.
        validate: check that theta is finite. Shape and type are always checked.

    Shape:
        theta (*batch, num_parameters).

    Raises:
        InputError: wrong length, NaN or infinite entries.
        IntractableError: on use, a hidden part that is too large to eliminate.

    References:
        Paper 4, equations (1) to (3).

    Example:
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> MarginalEnergy(structure, torch.zeros(5)).energy(torch.tensor([0, 1]))
        tensor(-0.6931)
    """

    def __init__(self, structure: MachineStructure, theta: torch.Tensor, *, validate: bool = True) -> None:
        check_type(structure, MachineStructure, "structure")
        check_shape(checked_floating(theta, "theta"), (structure.num_parameters,), "theta")
        if validate:
            check_finite(theta, "theta")
        self.structure = structure
        self.theta = theta

    @property
    @override
    def domain(self) -> Domain:
        return self.structure.domain

    @property
    @override
    def parameters(self) -> torch.Tensor:
        return self.theta

    @override
    def _with(self, parameters: torch.Tensor) -> MarginalEnergy:
        return MarginalEnergy(self.structure, parameters, validate=False)

    @property
    def visible_bias(self) -> torch.Tensor:
        """Biases b (*batch, n)."""
        return self.theta[..., : self.structure.num_visible]

    @property
    def hidden_bias(self) -> torch.Tensor:
        """Biases c (*batch, m)."""
        return self.theta[..., self.structure.num_visible : len(self.structure.names)]

    @property
    def weights(self) -> torch.Tensor:
        """Weights W between visible and hidden variables (*batch, n, m), zero where there is no edge."""
        structure, theta = self.structure, self.theta
        n, m = structure.num_visible, structure.num_hidden
        flat = theta[..., len(structure.names) :]
        if not structure.is_restricted:
            kept = structure.places[1].to(theta.device)
            pairs = torch.tensor(structure.graph.pairs, dtype=torch.long, device=theta.device).reshape(-1, 2)
            pairs = pairs[kept - len(structure.names)]
            at = pairs[:, 0] * m + pairs[:, 1] - n
            flat = theta.new_zeros(*theta.shape[:-1], n * m).index_add(-1, at, theta[..., kept])
        return flat.reshape(*theta.shape[:-1], n, m)

    def hidden_fields(self, x: torch.Tensor) -> torch.Tensor:
        """What the hidden units see, c + v W: (*sample broadcast with batch, m) for v (*sample, n)."""
        rows, weights = x.to(self.theta.dtype), self.weights
        product = rows @ weights if weights.dim() == 2 else (rows.unsqueeze(-2) @ weights).squeeze(-2)
        return self.hidden_bias + product

    def energy(self, x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        """The free energy in nats, (*sample broadcast with batch) for states (*sample, n)."""
        codes = check_codes(x, self.domain) if validate else x
        structure, shape = self.structure, self._shape(codes)
        rows = codes.to(self.theta.dtype)
        first, _, third = (place.to(self.theta.device) for place in structure.places)
        value = (rows * self.visible_bias).sum(-1)
        if len(first):
            ends = torch.tensor(structure.graph.pairs, device=rows.device)[first - len(structure.names)]
            value = value + (rows[..., ends[:, 0]] * rows[..., ends[:, 1]] * self.theta[..., first]).sum(-1)
        hidden = structure.hidden_graph.log_partition(
            self.hidden_fields(rows), self.theta[..., third], MAX_LAYER_STATES
        )
        return -(value + hidden).expand(shape)

    def block_conditional(self, block: Sequence[str], x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        """Log probabilities of the states of a block of visible variables given the other visible ones.

        Shape:
            x (*sample, n), whose entries of the block are not read; result (*sample with batch, 2, ..., 2).

        Raises:
            UnknownNameError: a name is no visible variable.
            InputError: a repeated name, a wrong shape, or a code that is read and is no level.
            IntractableError: the block has more than 2^22 states.
        """
        positions, sizes, _ = self._block(block, self.domain.cardinalities)
        others = [i for i in range(len(self.domain)) if i not in set(positions)]
        codes = check_codes(x, self.domain, columns=others) if validate else x.long()
        states = list_states(sizes, codes.device)
        batch = self._shape(codes)
        rows = codes.expand(*batch, codes.shape[-1]).repeat(len(states), *(1,) * (len(batch) + 1))
        rows[..., list(positions)] = states.reshape(len(states), *(1,) * len(batch), len(positions))
        scores = -self.energy(rows, validate=False).movedim(0, -1)
        return torch.log_softmax(scores, -1).reshape((*batch, *sizes))

    def log_pseudo_prob(self, x: torch.Tensor) -> torch.Tensor:
        r"""Log pseudo-likelihood :math:`\sum_i \log p(v_i \mid v_{-i})`, (*sample with batch), without log Z."""
        codes = check_codes(x, self.domain)
        here, total = self.energy(codes, validate=False), self.theta.new_zeros(self._shape(codes))
        for i in range(len(self.domain)):
            flipped = codes.clone()
            flipped[..., i] = 1 - codes[..., i]
            total = total + torch.nn.functional.logsigmoid(self.energy(flipped, validate=False) - here)
        return total
