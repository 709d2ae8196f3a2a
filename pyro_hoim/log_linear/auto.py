"""The automatic choice of a backend: exact where one is within its budget, estimates where these were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from typing_extensions import override

from .._modes import plain_mode
from ..checks import is_hidden
from ..core.model import LogLinearModel
from ..core.partition import Cost, LogPartition, PartitionBackend, PlannedBackend, check_model
from ..errors import IntractableError, check_choice, check_type, size_text, unexpected
from ..structure.hypergraph import InteractionHypergraph, cell_index
from .annealed.importance import AnnealedImportance
from .bounds.annealed import BoundedAnnealing
from .bounds.importance import BucketImportance
from .coding import Coding, Reference, check_corner, reference_codes
from .energy import LogLinearEnergy, check_energy
from .exact.elimination import VariableElimination
from .exact.enumeration import Enumeration, MatrixEnumeration
from .impossible import ProductInside

Chosen = (
    MatrixEnumeration | Enumeration | VariableElimination | AnnealedImportance | BucketImportance | BoundedAnnealing
)

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
    5     ``buckets`` is given and within its budget, ``annealed`` too   both: ``BucketImportance``,
                                                                         and ``AnnealedImportance``
                                                                         where it is not verified
    6     ``buckets`` is given and within its budget                     ``BucketImportance``
    7     ``annealed`` is given                                          ``AnnealedImportance``
    8     otherwise                                                      refusal with the numbers
    ===== ============================================================== ==========================

    The choice depends on the structure only; :meth:`plan` and :meth:`select` tell it before anything is computed, and
    the ``method`` of a result tells it afterwards. Of both estimates of row 5 the one with the better verdict is taken,
    of equal ones that with the smaller error, and an annealed one never outside the limits that the other proves: where
    they contradict each other the result is unreliable and its notes say so. Estimates are never slipped in: without
    ``buckets`` and ``annealed`` a model out of reach is refused. Log Z by itself is exact where elimination can sum it
    within its options, also where these do not allow marginals.

    Args:
        matrix: options of the design-matrix backend.
        enumeration: options of enumeration.
        elimination: options of variable elimination.
        annealed: options of annealed estimates to fall back on; None allows none.
        buckets: options of estimates between bounds of log Z to fall back on; None allows none.

    Raises:
        InputTypeError: options of a backend are another kind of object.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
        >>> Auto().plan(hypergraph).method
        'design matrix'
        >>> large = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
        >>> Auto(annealed=AnnealedImportance()).plan(large).method
        'annealed importance sampling'
        >>> Auto(buckets=BucketImportance(max_cells=2**10)).plan(large).method
        'importance sampling from mini-buckets'
    """

    matrix: MatrixEnumeration = field(default_factory=MatrixEnumeration)
    enumeration: Enumeration = field(default_factory=Enumeration)
    elimination: VariableElimination = field(default_factory=VariableElimination)
    annealed: AnnealedImportance | None = None
    buckets: BucketImportance | None = None

    def __post_init__(self) -> None:
        for name, kind in (
            ("matrix", MatrixEnumeration),
            ("enumeration", Enumeration),
            ("elimination", VariableElimination),
        ):
            check_type(getattr(self, name), kind, f"Auto {name}", f"{kind.__name__}(...)")
        check_type(self.annealed, AnnealedImportance | None, "Auto annealed", "AnnealedImportance(...) or None")
        check_type(self.buckets, BucketImportance | None, "Auto buckets", "BucketImportance(...) or None")

    @property
    @override
    def is_exact(self) -> bool:
        return self.annealed is None and self.buckets is None

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
        check_model(model)
        backend, cost = _choose(self, model.hypergraph, ())
        # Log Z alone may need less memory than the plan, which has marginals.
        try:
            return (backend if backend.is_exact else self.elimination).log_partition(model)
        except IntractableError as error:
            if not backend.is_exact:
                return backend.log_partition(model)
            reason = _beyond(self, str(error.problem), model.hypergraph)
            raise IntractableError(reason, hint=_hint(cost, model)) from error

    def _selected(self, model: LogLinearModel, keep: Sequence[str] = ()) -> Chosen:
        """As :meth:`select`; a refusal names estimates only where they can begin."""
        check_model(model)
        backend, cost = _choose(self, model.hypergraph, tuple(keep))
        if not cost.feasible:
            raise IntractableError(cost.reason, hint=_hint(cost, model))
        return backend

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        return self._selected(model).expectations(model)

    @override
    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self._selected(model, names).log_marginal(model, names)

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self._selected(model, names).marginal(model, names)

    @override
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        check_model(model)
        return self.select(model.hypergraph).sample(model, sample_shape, generator)

    @override
    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:
        check_model(model)
        backend, cost = _choose(self, model.hypergraph, ())
        replace(cost, hint=(cost.hint or "").removesuffix(_ESTIMATE) or None).check()  # no estimate is a mode
        return backend.mode(model)


_ESTIMATE = (
    "; for an estimate with an error bar, ask for it with Auto(buckets=BucketImportance()), which also bounds log Z, "
    "or Auto(annealed=AnnealedImportance())"
)


def _hint(cost: Cost, model: LogLinearModel) -> str | None:
    """What to do about a cost, without an estimate where it would be refused for the model's impossible states."""
    if cost.hint is None or is_hidden(model.tables) or ProductInside.is_reached(model):
        return cost.hint
    more = "bound it by Auto(buckets=BucketImportance()), draw with GibbsChains, or condition on some variables"
    return f"{cost.hint.removesuffix(_ESTIMATE)}; {more}"


@lru_cache(maxsize=256)
@plain_mode()
def _choose(auto: Auto, hypergraph: InteractionHypergraph, keep: tuple[str, ...]) -> tuple[Chosen, Cost]:
    """The backend of the decision table and its cost; an infeasible cost means refusal."""
    # The rows of the table, in order.
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
    # Nothing exact is within its budget.
    if not cost.feasible:
        why = _beyond(auto, cost.reason, hypergraph)
        estimated = _estimated(auto, hypergraph, keep)
        if estimated is not None:
            backend, cost = estimated
            return backend, replace(cost, reason=f"{cost.reason}; {why}")
        return auto.elimination, replace(cost, reason=why, hint=f"{cost.hint}{_ESTIMATE}")
    return auto.elimination, cost


def _beyond(auto: Auto, reason: str, hypergraph: InteractionHypergraph) -> str:
    """Why nothing exact is within its budget, given why elimination is not."""
    states = size_text(auto.enumeration.plan(hypergraph).cells, "states")
    return f"{reason}. Enumeration of {states} exceeds the budget of {auto.enumeration.max_states}"


def _estimated(
    auto: Auto, hypergraph: InteractionHypergraph, keep: tuple[str, ...]
) -> tuple[AnnealedImportance | BucketImportance | BoundedAnnealing, Cost] | None:
    """The estimates that were asked for and their cost; None where none were. One over its budget leaves the other."""
    backends = [backend for backend in (auto.buckets, auto.annealed) if backend is not None]
    costs = [backend.plan(hypergraph, keep=keep) for backend in backends]
    if auto.buckets is not None and auto.annealed is not None and all(cost.feasible for cost in costs):
        both = BoundedAnnealing(auto.buckets, auto.annealed)
        return both, both.plan(hypergraph, keep=keep)
    order = sorted(zip(backends, costs, strict=True), key=lambda pair: not pair[1].feasible)
    return order[0] if order else None


# Log Z in the coding that is asked for: of one law it is another number in every coding.


def log_partition(
    model: LogLinearEnergy,
    coding: Coding | None = None,
    *,
    partition: PartitionBackend | None = None,
    reference: Reference | None = None,
) -> LogPartition:
    r"""Log Z of a model in a coding: what makes the sum of that coding's tables a log-probability.

    .. math:: \log Z_{\mathrm{corner}} = -\log p(0, \dots, 0), \qquad
        \log Z_{\mathrm{balanced}} = \log Z_{\mathrm{free}} = -\frac{1}{|\mathcal X|} \sum_x \log p(x)

    Corner tables vanish at the state of all references, so there only log Z is left: it is the :math:`\psi(\theta)` of
    binary models in 0/1 monomials. Balanced tables have mean zero over the states. A backend's own ``log_partition``
    belongs to the tables as they stand; this adds their constant, which is linear in them, so errors, limits and
    gradients stay those of the estimate. For every collection, hierarchical or not: both numbers belong to the law.

    Args:
        model: the model, of any tables.
        coding: "corner", "balanced" or "free"; None for that of the family, "balanced" unless the model's collection
            says "corner".
        partition: backend of log Z; ``Auto()`` when None.
        reference: levels of the corner coding in place of the first, by variable: -log of their probability.

    Shape:
        every number (*batch) of the model; the field ``coding`` is "corner" or "balanced".

    Raises:
        InputError: an unknown coding; a model with impossible states, whose tables have no coding.
        InputTypeError: a law or a result in the place of its energy.
        IntractableError: log Z exceeds the budget of the backend.

    References:
        Paper 4, equation (6).

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> pair = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(pair, torch.tensor([0.0, 0.0, 2.0]), "corner")
        >>> psi = log_partition(model, "corner")
        >>> psi.coding, round(float(psi.value), 4)  # log(1 + 1 + 1 + e^2)
        ('corner', 2.3408)
    """
    check_energy(model)
    check_corner("corner" if coding is None else coding, reference)
    coding = coding if reference is None else "corner"
    return in_coding(model, (Auto() if partition is None else partition).log_partition(model), coding, reference)


def in_coding(
    model: LogLinearEnergy, log_z: LogPartition, coding: Coding | None, reference: Reference | None = None
) -> LogPartition:
    """Log Z of the model's tables as one of a coding."""
    coding = model.hypergraph.coding if coding is None else coding
    check_choice(coding, ("free", "corner", "balanced"), "coding")
    tables, slices = model.tables, model.hypergraph.term_slices.values()
    if coding == "corner":
        levels = list(reference_codes(model.domain, reference).values())
        state = torch.tensor(levels, dtype=torch.long, device=tables.device).reshape(1, -1)
        first = cell_index(model.hypergraph).flat(state)[0]
        return log_z.moved(_finite(-tables.index_select(-1, first).sum(-1)), "corner")
    sizes = torch.tensor([where.stop - where.start for where in slices], dtype=torch.long, device=tables.device)
    return log_z.moved(_finite(-(tables / sizes.repeat_interleave(sizes)).sum(-1)), "balanced")


def _finite(constant: torch.Tensor) -> torch.Tensor:
    """The constant of a coding, refused of tables with impossible entries, which have none."""
    if not is_hidden(constant) and bool(torch.isinf(constant.detach()).any()):
        hint = "the log_partition of a backend is that of the tables as they are"
        raise unexpected("model", "finite tables, which have a coding", hint=hint, received="-inf", code="impossible")
    return constant
