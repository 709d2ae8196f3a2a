"""The automatic choice of a backend for generalized root models, one connected component at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from typing_extensions import override

from ..checks import checked_sample_shape
from ..core.partition import Cost, LogPartition, Sandwich
from ..errors import IntractableError, check_type
from .annealed.importance import RootAnnealed
from .energy import GeneralizedRootEnergy
from .exact.base import RootBackend, component_structure
from .exact.closed_form import GaussianClosedForm, IndependentClosedForm
from .exact.enumeration import RootEnumeration
from .nodes.families import NodeFamily
from .structure import RootStructure

__all__ = ["RootAuto"]


@dataclass(frozen=True)
class RootAuto(RootBackend):
    """Log Z by components that share no term, each by the first row that applies.

    ===== ================================================================ ==========================
    row   condition on the component                                       backend
    ===== ================================================================ ==========================
    1     no term of two or more variables (all such variables together)   ``IndependentClosedForm``
    2     Gaussian family, k <= 2                                          ``GaussianClosedForm``
    3     largest table of its sum or quadrature within                    ``RootEnumeration``
          ``enumeration.max_cells``
    4     ``annealed`` is given                                            ``RootAnnealed``
    5     otherwise                                                        refusal with the numbers
    ===== ================================================================ ==========================

    Log Z of the components add up; standard errors add in squares, one-sided limits as they are. :meth:`plan` tells
    the choice before anything is computed, reckoning with 64 values of every variable in row 3. How many matter
    depends on the parameters: :meth:`plan_energy` and :meth:`select` know. Estimates are never slipped in: without
    ``annealed`` a model out of reach is refused.

    Args:
        enumeration: options of sums and quadrature.
        annealed: options of the estimates to fall back on; None allows exact results only.
        allow_undecided: go on where it is not known whether the model has a finite constant, with every backend.

    Raises:
        InputTypeError: options of another kind.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> from pyro_hoim.schema import Domain, Variable
        >>> domain = Domain([Variable(f"w{i}", kind="count") for i in range(40)])
        >>> chain = RootStructure.simplified(domain, zip(domain.names, domain.names[1:]))
        >>> RootAuto().plan(chain, PoissonFamily()).method
        'enumeration'
        >>> dense = RootStructure.complete(domain, 2)
        >>> RootAuto().plan(dense, PoissonFamily()).feasible
        False
        >>> RootAuto(annealed=RootAnnealed()).plan(dense, PoissonFamily()).method
        'annealed importance sampling'
    """

    enumeration: RootEnumeration = field(default_factory=RootEnumeration)
    annealed: RootAnnealed | None = None
    allow_undecided: bool = False

    def __post_init__(self) -> None:
        check_type(self.enumeration, RootEnumeration, "RootAuto enumeration", "RootEnumeration(...)")
        check_type(self.annealed, RootAnnealed | None, "RootAuto annealed", "RootAnnealed(...) or None")
        if self.allow_undecided:
            object.__setattr__(self, "enumeration", replace(self.enumeration, allow_undecided=True))
            if self.annealed is not None:
                object.__setattr__(self, "annealed", replace(self.annealed, allow_undecided=True))

    @property
    @override
    def is_exact(self) -> bool:
        return self.annealed is None

    # The choice

    def select(self, energy: GeneralizedRootEnergy) -> tuple[tuple[tuple[str, ...], RootBackend], ...]:
        """The backend of every component, ``(names, backend)``, for these parameters.

        Raises:
            IntractableError: no exact backend is within its budget for a component, and no estimates are allowed.
            InputError: a model without a finite constant.
        """
        found: list[tuple[tuple[str, ...], RootBackend]] = []
        for names, part, _ in self._parts(energy):
            backend, cost = self._choice(part.structure, energy.family, lambda b, e=part: b.plan_energy(e))
            cost.check()
            found.append((names, backend))
        return tuple(found)

    @override
    def plan(self, structure: RootStructure, family: NodeFamily) -> Cost:
        parts = [component_structure(structure, names)[0] for names in _components(structure)]
        return _together([self._choice(p, family, lambda b, s=p: b.plan(s, family))[1] for p in parts])

    @override
    def plan_energy(self, energy: GeneralizedRootEnergy) -> Cost:
        return _together(
            [self._choice(p.structure, p.family, lambda b, e=p: b.plan_energy(e))[1] for _, p, _ in self._parts(energy)]
        )

    def is_exact_for(self, energy: GeneralizedRootEnergy) -> bool:
        """Whether log Z and expectations of this model are exact."""
        return self.is_exact or all(backend.is_exact for _, backend in self.select(energy))

    def draws_exactly(self, energy: GeneralizedRootEnergy) -> bool:
        """Whether :meth:`sample` gives perfect independent draws of this model: no chains, no refusal."""
        try:
            chosen = self.select(energy)
        except IntractableError:
            return False
        discrete = energy.family.is_discrete
        return all(b.is_exact and (discrete or not isinstance(b, RootEnumeration)) for _, b in chosen)

    def _choice(
        self, structure: RootStructure, family: NodeFamily, cost_of: Callable[[RootBackend], Cost]
    ) -> tuple[RootBackend, Cost]:
        """Backend and cost of one component; an infeasible cost means refusal."""
        backend = self._closed_form(structure, family)
        if backend is not None:
            return backend, cost_of(backend)
        cost = cost_of(self.enumeration)
        if cost.feasible:
            return self.enumeration, cost
        if self.annealed is not None:
            estimated = cost_of(self.annealed)
            return self.annealed, replace(estimated, reason=f"{estimated.reason}; {cost.reason}")
        hint = "for an estimate with an error bar, ask for it with RootAuto(annealed=RootAnnealed())"
        names = ", ".join(structure.domain.names[:4]) + (", ..." if len(structure.domain) > 4 else "")
        reason = f"component of {len(structure.domain)} variables ({names}): {cost.reason}; {hint}"
        return self.enumeration, replace(cost, reason=reason)

    def _closed_form(self, structure: RootStructure, family: NodeFamily) -> RootBackend | None:
        if structure.is_independent:
            return IndependentClosedForm(self.allow_undecided)
        closed = GaussianClosedForm(self.allow_undecided)
        return closed if closed.plan(structure, family).feasible else None

    def _parts(
        self, energy: GeneralizedRootEnergy
    ) -> list[tuple[tuple[str, ...], GeneralizedRootEnergy, torch.Tensor]]:
        """Names, model and places of terms of every component; psi keeps its graph."""
        found: list[tuple[tuple[str, ...], GeneralizedRootEnergy, torch.Tensor]] = []
        for names in _components(energy.structure):
            structure, places = component_structure(energy.structure, names)
            psi = energy.psi[..., places.to(energy.psi.device)]
            found.append((names, GeneralizedRootEnergy(structure, psi, energy.family, validate=False), places))
        return found

    # Results

    @override
    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        results = [backend.log_partition(part) for part, _, backend in self._chosen(energy)]
        return _sum_of(results, energy)

    @override
    def expectations(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        chosen = self._chosen(energy)
        if not chosen:
            return energy.psi.clone()
        values = torch.cat([backend.expectations(part) for part, _, backend in chosen], -1)
        return values[..., torch.cat([places for _, places, _ in chosen]).argsort().to(values.device)]

    @override
    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = self._chosen(energy)
        if not chosen:
            nothing = energy.psi.new_zeros((*energy.batch_shape, 0))
            return nothing, nothing
        pairs = [backend.moments(part) for part, _, backend in chosen]
        order = self._variables(energy, chosen)
        mean, variance = (torch.cat([pair[i] for pair in pairs], -1)[..., order] for i in (0, 1))
        return mean, variance

    @override
    @torch.no_grad()
    def sample(
        self, energy: GeneralizedRootEnergy, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        sample_shape = checked_sample_shape(sample_shape)
        chosen = self._chosen(energy)
        if not chosen:
            return energy.psi.new_zeros((*sample_shape, *energy.batch_shape, 0))
        parts: list[torch.Tensor] = []
        for part, _, backend in chosen:
            is_grid_of_reals = isinstance(backend, RootEnumeration) and not energy.family.is_discrete
            source = self.annealed if is_grid_of_reals and self.annealed is not None else backend
            parts.append(source.sample(part, sample_shape, generator))
        return torch.cat(parts, -1)[..., self._variables(energy, chosen)]

    def _chosen(self, energy: GeneralizedRootEnergy) -> list[tuple[GeneralizedRootEnergy, torch.Tensor, RootBackend]]:
        """Model, places of terms and backend of every component."""
        backends = self.select(energy.detach())
        return [
            (part, places, backend)
            for (_, part, places), (_, backend) in zip(self._parts(energy), backends, strict=True)
        ]

    def _variables(
        self, energy: GeneralizedRootEnergy, chosen: list[tuple[GeneralizedRootEnergy, torch.Tensor, RootBackend]]
    ) -> torch.Tensor:
        """Index that brings variables listed by component into schema order."""
        listed = [energy.domain.index(name) for part, _, _ in chosen for name in part.domain.names]
        return torch.tensor(listed, dtype=torch.long).argsort().to(energy.psi.device)


@lru_cache(maxsize=256)
def _components(structure: RootStructure) -> tuple[tuple[str, ...], ...]:
    """Connected components, those of one variable joined into one at the end."""
    parts = structure.components()
    alone = tuple(names[0] for names in parts if len(names) == 1)
    tied = tuple(names for names in parts if len(names) > 1)
    return (*tied, alone) if alone else tied


def _together(costs: list[Cost]) -> Cost:
    """One cost of all components: sums, and the verdict of the first that is refused."""
    if not costs:
        return Cost(1, 0, 0, 0, True, "no variables", "independent closed form")
    if len(costs) == 1:
        return costs[0]
    refused = next((cost for cost in costs if not cost.feasible), None)
    methods = Counter(cost.method for cost in costs)
    hardest = max(costs, key=lambda cost: cost.flops)
    return Cost(
        cells=max(cost.cells for cost in costs),
        total_cells=sum(cost.total_cells for cost in costs),
        flops=sum(cost.flops for cost in costs),
        memory_bytes=max(cost.memory_bytes for cost in costs),
        feasible=refused is None,
        reason=refused.reason if refused else f"{len(costs)} components, the hardest: {hardest.reason}",
        method=refused.method if refused else " + ".join(methods),
    )


def _sum_of(results: list[LogPartition], energy: GeneralizedRootEnergy) -> LogPartition:
    """Log Z of independent components."""
    cost = _together([result.cost for result in results])
    if len(results) == 1:
        return results[0]
    value = energy.psi.new_zeros(energy.batch_shape)
    if not results:
        return LogPartition(value, "exact", 0.0, None, value, value, cost, cost.method, coding="root")
    value = sum((result.value for result in results), value)
    lower, upper = (sum((getattr(r, side) for r in results), torch.zeros_like(value)) for side in ("lower", "upper"))
    notes = tuple(dict.fromkeys(note for result in results for note in result.notes))
    estimated = [result for result in results if result.kind != "exact"]
    if not estimated:
        return LogPartition(value, "exact", 0.0, None, value, value, cost, cost.method, coding="root", notes=notes)
    squares = [torch.as_tensor(result.std_error, dtype=value.dtype).square() for result in estimated]
    sizes = [result.ess for result in estimated if result.ess is not None]
    return LogPartition(
        value,
        "biased",
        torch.stack(squares).sum(0).sqrt(),
        torch.stack(sizes).amin(0) if sizes else None,
        lower,
        upper,
        cost,
        cost.method,
        coding="root",
        verdicts=torch.stack([result.verdicts for result in estimated]).amin(0),
        notes=notes,
        lower_bound=sum(
            (r.value if r.lower_bound is None else r.lower_bound for r in results), torch.zeros_like(value)
        ),
        sandwich=_joint_sandwich(results, value),
    )


def _joint_sandwich(results: list[LogPartition], value: torch.Tensor) -> Sandwich | None:
    """Both sides added up, exact components on either; None where an estimate has no reverse run."""
    forward, reverse = torch.zeros_like(value), torch.zeros_like(value)
    ahead, behind = torch.zeros_like(value), torch.zeros_like(value)
    is_perfect = True
    for result in results:
        if result.kind == "exact":
            forward, reverse = forward + result.value, reverse + result.value
            continue
        if result.sandwich is None:
            return None
        forward, reverse = forward + result.sandwich.forward, reverse + result.sandwich.reverse
        ahead, behind = (
            ahead + result.sandwich.forward_error.square(),
            behind + result.sandwich.reverse_error.square(),
        )
        is_perfect = is_perfect and result.sandwich.start == "exact"
    return Sandwich(forward, ahead.sqrt(), reverse, behind.sqrt(), "exact" if is_perfect else "tempered")
