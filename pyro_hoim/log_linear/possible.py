"""A partition backend that sums over possible states alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from typing_extensions import override

from ..core.model import LogLinearModel
from ..core.partition import Cost, LogPartition, PartitionBackend, check_hypergraph, check_model
from ..errors import check_type
from ..structure.hypergraph import InteractionHypergraph
from .energy import LogLinearEnergy
from .impossible import ImpossibleStates, support_of_states

__all__ = ["PossibleStates"]


@dataclass(frozen=True)
class PossibleStates(PartitionBackend):
    """What another backend makes of models in which some states are impossible.

    It takes the finite part: fits and posteriors of theta need not know the impossible states, and differentiate log Z
    of the law on the others.

    Attributes:
        partition: the other backend.
        impossible: the states. A law that is given this backend has them as its own, as by its ``impossible=``.

    Raises:
        InputTypeError: no backend, or states that are no :class:`~pyro_hoim.log_linear.ImpossibleStates`.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import Auto
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> graph = InteractionHypergraph.from_order(domain, 1)
        >>> backend = PossibleStates(Auto(), ImpossibleStates.of_combinations(domain, [{"a": 1, "b": 1}]))
        >>> uniform = LogLinearEnergy(graph, torch.zeros(4, dtype=torch.float64))
        >>> backend.expectations(uniform).round(decimals=4).tolist()  # of three cells
        [0.6667, 0.3333, 0.6667, 0.3333]
    """

    partition: PartitionBackend
    impossible: ImpossibleStates

    def __post_init__(self) -> None:
        check_type(self.partition, PartitionBackend, "partition", "a partition backend")
        check_type(self.impossible, ImpossibleStates, "impossible", "ImpossibleStates")

    def _model(self, model: LogLinearModel) -> LogLinearEnergy:
        check_model(model)
        return self.impossible.applied(LogLinearEnergy(model.hypergraph, model.tables, validate=False))

    @property
    @override
    def is_exact(self) -> bool:
        return self.partition.is_exact

    @override
    def plan(
        self, hypergraph: InteractionHypergraph, evidence_names: Sequence[str] = (), keep: Sequence[str] = ()
    ) -> Cost:
        check_hypergraph(hypergraph)
        return self.partition.plan(self.impossible.added_to(hypergraph), evidence_names, keep)

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        return self.partition.log_partition(self._model(model))

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        eta = self.partition.expectations(self._model(model))
        return support_of_states(model.hypergraph, self.impossible).finite_terms(eta)

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.partition.marginal(self._model(model), names)

    @override
    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.partition.log_marginal(self._model(model), names)

    @override
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        return self.partition.sample(self._model(model), sample_shape, generator)

    @override
    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:
        return self.partition.mode(self._model(model))


def on_support(partition: PartitionBackend, impossible: ImpossibleStates | None) -> PartitionBackend:
    """The backend itself where no state is impossible, else one that sums over the others."""
    return partition if impossible is None else PossibleStates(partition, impossible)
