"""What backends share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from typing_extensions import override

from ...core.model import LogLinearModel
from ...core.partition import Cost, PartitionBackend
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["ExactBackend", "PlannedBackend"]


class PlannedBackend(PartitionBackend):
    """A backend that knows its cost from the structure that evidence leaves."""

    @abstractmethod
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        """Cost of a structure, the evidence of :meth:`plan` already taken out of it."""

    @override
    def plan(
        self, hypergraph: InteractionHypergraph, evidence_names: Sequence[str] = (), keep: Sequence[str] = ()
    ) -> Cost:
        return self.plan_after(hypergraph.restrict(evidence_names) if evidence_names else hypergraph, keep)


class ExactBackend(PlannedBackend):
    """A backend all of whose results are exact to rounding."""

    @property
    @override
    def is_exact(self) -> bool:
        return True

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.log_marginal(model, names).exp()
