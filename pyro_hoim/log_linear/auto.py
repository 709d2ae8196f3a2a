"""The automatic choice of a backend: exact where one is within its budget, annealed where that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from typing_extensions import override

from .._modes import plain_mode
from ..core.model import LogLinearModel
from ..core.partition import Cost, LogPartition
from ..errors import IntractableError, check_type, size_text
from ..structure.hypergraph import InteractionHypergraph
from .annealed.importance import AnnealedImportance
from .exact.base import PlannedBackend
from .exact.elimination import VariableElimination
from .exact.enumeration import Enumeration
from .exact.matrix import MatrixEnumeration

__all__ = ["Auto"]

Chosen = MatrixEnumeration | Enumeration | VariableElimination | AnnealedImportance

_ELIMINATION_OVERHEAD = 4.0  # time of a cell in elimination relative to one in enumeration


@dataclass(frozen=True)
class Auto(PlannedBackend):
    """Inference by the cheapest exact backend, or by sampling if allowed; the first row that applies is taken.

    ===== ============================================================== ==========================
    row   condition                                                      backend
    ===== ============================================================== ==========================
    1     states times terms within ``matrix.max_entries``               ``MatrixEnumeration``
    2     states within ``enumeration.max_states`` and fewer operations  ``Enumeration``
          than elimination would need (weighted by 4)
    3     largest table within ``elimination.max_cells``, if need be by  ``VariableElimination``
          conditioning on a few variables; operations and memory within
          the other options
    4     states within ``enumeration.max_states``                       ``Enumeration``
    5     ``annealed`` is given                                          ``AnnealedImportance``
    6     otherwise                                                      refusal with the numbers
    ===== ============================================================== ==========================

    The choice depends on the structure only; :meth:`plan` and :meth:`select` tell it before anything is computed, and
    the ``method`` of a result tells it afterwards. Estimates are never slipped in: without ``annealed`` a model out
    of reach is refused.

    Args:
        matrix: options of the design-matrix backend.
        enumeration: options of enumeration.
        elimination: options of variable elimination.
        annealed: options of the estimates to fall back on; None allows exact results only.

    Raises:
        InputTypeError: ``annealed`` is another kind of object.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
        >>> Auto().plan(hypergraph).method
        'design matrix'
        >>> large = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
        >>> Auto(annealed=AnnealedImportance()).plan(large).method
        'annealed importance sampling'
    """

    matrix: MatrixEnumeration = field(default_factory=MatrixEnumeration)
    enumeration: Enumeration = field(default_factory=Enumeration)
    elimination: VariableElimination = field(default_factory=VariableElimination)
    annealed: AnnealedImportance | None = None

    def __post_init__(self) -> None:
        check_type(self.annealed, AnnealedImportance | None, "Auto annealed", "AnnealedImportance(...) or None")

    @property
    @override
    def is_exact(self) -> bool:
        return self.annealed is None

    def select(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Chosen:
        """The backend that will do the work; its ``is_exact`` tells whether the results for this structure are exact.

        Raises:
            IntractableError: no exact backend is within its budget, and no estimates are allowed.
        """
        backend, cost = _choose(self, hypergraph, tuple(keep))
        cost.check()
        return backend

    @override
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        return _choose(self, hypergraph, tuple(keep))[1]

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        backend, cost = _choose(self, model.hypergraph, ())
        try:
            return backend.log_partition(model)  # log Z alone may need less memory than the plan, which has marginals
        except IntractableError as error:
            raise IntractableError(cost.reason, hint=cost.hint) from error

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        return self.select(model.hypergraph).expectations(model)

    @override
    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.select(model.hypergraph, names).log_marginal(model, names)

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.select(model.hypergraph, names).marginal(model, names)

    @override
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        return self.select(model.hypergraph).sample(model, sample_shape, generator)

    @override
    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:
        return self.select(model.hypergraph).mode(model)


@lru_cache(maxsize=256)
@plain_mode()
def _choose(auto: Auto, hypergraph: InteractionHypergraph, keep: tuple[str, ...]) -> tuple[Chosen, Cost]:
    """The backend of the decision table and its cost; an infeasible cost means refusal."""
    cost = auto.matrix.plan(hypergraph, keep=keep)
    if cost.feasible:
        return auto.matrix, cost
    listed = auto.enumeration.plan(hypergraph, keep=keep)
    operations = auto.elimination.operations(hypergraph, keep)
    chosen = replace(
        listed,
        reason=f"{listed.reason}; elimination would need {size_text(operations, 'operations')} against "
        f"{size_text(listed.flops)}",
    )
    if listed.feasible and listed.flops < _ELIMINATION_OVERHEAD * operations:
        return auto.enumeration, chosen
    cost = auto.elimination.plan(hypergraph, keep=keep)
    if listed.feasible and not cost.feasible:
        return auto.enumeration, chosen
    if not cost.feasible:
        why = f"{cost.reason}. Enumeration of {size_text(listed.cells, 'states')} exceeds "
        why += f"the budget of {auto.enumeration.max_states}"
        if auto.annealed is not None:
            estimated = auto.annealed.plan(hypergraph, keep=keep)
            return auto.annealed, replace(estimated, reason=f"{estimated.reason}; {why}")
        hint = f"{cost.hint}; for an estimate with an error bar, ask for it with Auto(annealed=AnnealedImportance())"
        return auto.elimination, replace(cost, reason=why, hint=hint)
    return auto.elimination, cost
