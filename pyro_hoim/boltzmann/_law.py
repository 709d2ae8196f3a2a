"""The parameters of a machine with what is computed from them once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from typing_extensions import override

from ..checks import check_finite, is_hidden
from ..core.laws.expansion import list_states
from ..core.laws.parameter_cache import ParameterCache
from ..core.laws.traces import refuse_traced
from ..core.partition import Cost, LogPartition, PartitionBackend
from ..errors import out_of_reach, size_text
from ..log_linear.auto import Auto
from ..log_linear.laws.law import HierarchicalLogLinear
from ..log_linear.normaliser import in_coding
from ..schema import Domain
from .energy import MarginalEnergy
from .layers import Layers, layer_scores
from .structure import MachineStructure

METHOD = "sum over a layer"


class MachineLaw(ParameterCache):
    """A machine and its backend, with a cache of log Z and moments."""

    def __init__(
        self,
        structure: MachineStructure,
        theta: torch.Tensor,
        partition: PartitionBackend | None,
        max_states: int,
        *,
        is_lenient: bool,
    ) -> None:
        self.model = MarginalEnergy(structure, theta, validate=False)
        self.structure, self.is_lenient, self._max_states = structure, is_lenient, max_states
        self.partition: PartitionBackend = Auto() if partition is None else partition
        self._forget()

    @property
    @override
    def parameters(self) -> torch.Tensor:
        return self.model.theta

    @override
    def _examine(self, values: torch.Tensor) -> None:
        is_open = torch.jit.is_tracing() or is_hidden(values)
        self._is_finite = is_open or bool(torch.isfinite(values).all())
        if not self._is_finite and not self.is_lenient:
            check_finite(values, "theta")

    @property
    def is_finite(self) -> bool:
        """Whether theta is finite."""
        self.look()
        return self._is_finite

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of theta."""
        return self.model.batch_shape

    @property
    def domain(self) -> Domain:
        """The visible variables."""
        return self.structure.domain

    @property
    def device(self) -> torch.device:
        """Where theta is."""
        return self.model.device

    @property
    def joint(self) -> HierarchicalLogLinear:
        """The law of all variables, hidden ones included, in corner coding."""
        return self._cached_plain("joint", self._joint)

    def _joint(self) -> HierarchicalLogLinear:
        hypergraph = self.structure.hypergraph
        return HierarchicalLogLinear(hypergraph, self.model.theta, coding="corner", partition=self.partition)

    @property
    def layers(self) -> Layers | None:
        """Colours of the graph where log Z is a sum over one of them: an automatic backend, and few states."""
        found = self.structure.graph.layers if isinstance(self.partition, Auto) else None
        return found if found is not None and found.num_states <= self._max_states else None

    def _parts(self, layers: Layers, theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Biases of the listed and of the summed variables, and the weights between them as a matrix."""
        structure, d = self.structure, len(self.structure.names)
        return (
            theta[..., list(layers.listed)],
            theta[..., list(layers.summed)],
            structure.graph.coupling(theta[..., d:]),
        )

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant of the machine, in corner coding, value (*batch)."""
        refuse_traced("log_prob", "the places of weights and states")
        if self.layers is not None:
            return self._cached("log_partition", partial(self._log_partition, self.layers))
        self._check_reach()
        return in_coding(self.joint.energy_model, self.joint.log_partition, "corner")  # the joint law keeps it

    def _log_partition(self, layers: Layers) -> LogPartition:
        value = layer_scores(*self._parts(layers, self._source), is_total=True)
        states, width = layers.num_states, len(layers.summed)
        reason = f"{size_text(states, 'states')} of {len(layers.listed)} variables, the others summed one by one"
        cost = Cost(states, states, states * max(width, 1) * 8, 8 * states * max(width, 1), True, reason, METHOD)
        return replace(LogPartition.exact(value, cost), coding="corner")

    def _check_reach(self) -> None:
        """Refuse a restricted machine that only a larger layer sum would normalise, with its size."""
        layers = self.structure.graph.layers if isinstance(self.partition, Auto) else None
        if layers is not None and self.structure.is_restricted and self.partition.is_exact:
            size = size_text(layers.num_states, "states")
            raise out_of_reach(
                "log_partition",
                f"the smaller layer has {len(layers.listed)} units, so {size}, the limit is {self._max_states}",
                "raise max_layer_states, or ask for an estimate with an error bar by partition=AnnealedImportance(...)",
            )

    @property
    def draws_exactly(self) -> bool:
        """Whether draws are perfect and independent."""
        return self.layers is not None or self.joint.sample_is_exact

    @property
    def num_sweeps(self) -> int:
        """Gibbs sweeps at the machine itself before a state is a draw."""
        return self.joint.sample_burn_in

    @torch.no_grad()
    def draw(self, shape: torch.Size) -> torch.Tensor:
        """States of all variables (*shape, *batch, d), exact where :attr:`draws_exactly`."""
        layers = self.layers
        if layers is None:
            self._check_reach()
            return self.joint.sample(shape)
        listed, summed, coupling = self._parts(layers, self.parameters)
        weights = layer_scores(listed, summed, coupling).double().softmax(-1)
        number, batch = shape.numel(), self.batch_shape
        flat = weights.reshape(-1, weights.shape[-1])
        index = flat.multinomial(number, replacement=True) if number else flat.new_zeros((len(flat), 0)).long()
        first = list_states([2] * len(layers.listed), self.device)[index].movedim(1, 0)
        first = first.reshape(*shape, *batch, len(layers.listed))
        fields = summed + (first.to(listed.dtype).unsqueeze(-2) @ coupling).squeeze(-2)
        second = torch.bernoulli(fields.double().sigmoid()).long()
        states = first.new_zeros(*shape, *batch, len(self.structure.names))
        states[..., list(layers.listed)] = first
        states[..., list(layers.summed)] = second
        return states

    @property
    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of every visible variable, both (*batch, n)."""
        if self.layers is None:
            self._check_reach()
            mean = self.joint.mean
        else:
            mean = self._cached("mean", partial(self._mean, self.layers))
        mean = mean[..., : self.structure.num_visible]
        return mean, mean * (1 - mean)

    def _mean(self, layers: Layers) -> torch.Tensor:
        theta = self._source
        listed, summed, coupling = self._parts(layers, theta)
        probs = layer_scores(listed, summed, coupling).softmax(-1)
        states = list_states([2] * len(layers.listed), self.device).to(theta.dtype)
        fields = summed.unsqueeze(-2) + states @ coupling
        parts = torch.cat([probs @ states, (probs.unsqueeze(-1) * fields.sigmoid()).sum(-2)], -1)
        order = torch.tensor([*layers.listed, *layers.summed], device=self.device).argsort()
        return parts[..., order]
