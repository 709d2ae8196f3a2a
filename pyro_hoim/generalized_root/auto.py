"""The automatic choice of a backend for generalized root models, one connected component at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import networkx as nx
import torch
from typing_extensions import override

from ..checks import checked_sample_shape
from ..core.partition import Cost, LogPartition, Sandwich
from ..core.words import in_python
from ..errors import IntractableError, check_type
from .annealed import RootAnnealed
from .energy import GeneralizedRootEnergy
from .exact.base import RootBackend, inner_structure
from .exact.closed_form import ConditionalGaussianClosedForm, GaussianClosedForm, IndependentClosedForm
from .exact.enumeration import RootEnumeration
from .nodes.columns import Families, NodeFamilies
from .structure import RootStructure


@dataclass(frozen=True)
class RootAuto(RootBackend):
    """Log Z by components that share no term, each by the first method that serves it.

    1. Variables without a term of two or more, all together: ``IndependentClosedForm``.
    2. Gaussian variables, k <= 2: ``GaussianClosedForm``.
    3. Bounded counts, of at most 2^16 joint states, beside Gaussian variables: ``ConditionalGaussianClosedForm``.
    4. The largest table of its sum or quadrature is within ``enumeration.max_cells``: ``RootEnumeration``.
    5. ``annealed`` is given: ``RootAnnealed``. Otherwise the component is refused with the numbers.

    Log Z of the components add up; standard errors add in squares, one-sided limits as they are. :meth:`plan` reckons
    with 64 values of every variable in step 4; how many matter depends on the parameters, which :meth:`plan_energy` and
    :meth:`select` know.

    Args:
        enumeration: options of sums and quadrature.
        annealed: options of the estimates to fall back on; None allows exact results only.
        allow_undecided: go on where it is not known whether the model has a finite constant, with every backend.

    Raises:
        InputTypeError: options of another kind.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable(f"w{i}", kind="count") for i in range(40)])
        >>> chain = RootStructure.simplified(domain, zip(domain.names, domain.names[1:]))
        >>> RootAuto().plan(chain, PoissonFamily()).method
        'enumeration'
        >>> dense = RootStructure.complete(domain, 2)  # refused without annealed
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

    def select(self, energy: GeneralizedRootEnergy) -> tuple[tuple[tuple[str, ...], RootBackend], ...]:
        """The backend of every component, ``(names, backend)``, for these parameters; errors as ``log_partition``."""
        return tuple((part.names, part.backend) for part in self._chosen(energy))

    @override
    def plan(self, structure: RootStructure, family: Families) -> Cost:
        # One component at a time.
        families = NodeFamilies.of(family, structure.domain)
        costs: list[Cost] = []
        for names in _components(structure, _tied(families)):
            part = inner_structure(structure, names)[0]
            inner = families.at(structure.domain.indices(names))
            costs.append(self._choice(part, inner, lambda b, s=part, f=inner: b.plan(s, f))[1])
        return _together(costs)

    @override
    def plan_energy(self, energy: GeneralizedRootEnergy) -> Cost:
        return _together([cost for *_, cost in self._costs(energy)])

    def is_exact_for(self, energy: GeneralizedRootEnergy) -> bool:
        """Whether log Z and expectations of this model are exact."""
        return self.is_exact or all(backend.is_exact for _, backend in self.select(energy))

    def draws_exactly(self, energy: GeneralizedRootEnergy) -> bool:
        """Whether :meth:`sample` gives perfect independent draws of this model: no chains, no refusal."""
        try:
            chosen = self._chosen(energy)
        except IntractableError:
            return False
        return all(draws_exactly(part.backend, part.model) for part in chosen)

    def _choice(
        self, structure: RootStructure, family: Families, cost_of: Callable[[RootBackend], Cost]
    ) -> tuple[RootBackend, Cost]:
        """Backend and cost of one component; an infeasible cost means refusal."""
        # Closed forms, then sums and quadrature, then what was asked for as an estimate.
        if structure.is_independent:
            alone = IndependentClosedForm(self.allow_undecided)
            return alone, cost_of(alone)
        listed = ConditionalGaussianClosedForm(allow_undecided=self.allow_undecided)
        for closed in (GaussianClosedForm(self.allow_undecided), listed):
            if closed.plan(structure, family).feasible:
                return closed, cost_of(closed)
        cost = cost_of(self.enumeration)
        if cost.feasible:
            return self.enumeration, cost
        if self.annealed is not None:
            estimated = cost_of(self.annealed)
            return self.annealed, replace(estimated, reason=f"{estimated.reason}; {cost.reason}")
        hint = in_python("; for an estimate with an error bar, ask for it with RootAuto(annealed=RootAnnealed())")
        names = ", ".join(structure.domain.names[:4]) + (", ..." if len(structure.domain) > 4 else "")
        reason = f"component of {len(structure.domain)} variables ({names}): {cost.reason}{hint}"
        return self.enumeration, replace(cost, reason=reason)

    def _costs(self, energy: GeneralizedRootEnergy) -> Iterator[tuple[_Part, Cost]]:
        """Every component with the cost of its backend for these parameters."""
        for names in _components(energy.structure, _tied(energy.families)):
            structure, places = inner_structure(energy.structure, names)
            psi = energy.psi[..., places.to(energy.psi.device)]
            families = energy.families.at(energy.domain.indices(names))
            model = GeneralizedRootEnergy(structure, psi, families, validate=False)
            plain = model.detach()
            backend, cost = self._choice(structure, families, lambda b, e=plain: b.plan_energy(e))
            yield _Part(names, places, model, backend), cost

    def _chosen(self, energy: GeneralizedRootEnergy) -> list[_Part]:
        """All components, none of them refused."""
        return [part for part, cost in self._costs(energy) if cost.check()]

    @override
    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        return _sum_of([part.backend.log_partition(part.model) for part in self._chosen(energy)], energy)

    @override
    def expectations(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        chosen = self._chosen(energy)
        values = [part.backend.expectations(part.model) for part in chosen]
        return _in_order(energy, values, [part.places for part in chosen])

    @override
    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = self._chosen(energy)
        pairs = [torch.stack(part.backend.moments(part.model)) for part in chosen]
        mean, variance = _in_order(energy, pairs, [part.variables(energy) for part in chosen], (2,))
        return mean, variance

    @override
    @torch.no_grad()
    def sample(
        self, energy: GeneralizedRootEnergy, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        sample_shape = checked_sample_shape(sample_shape, energy.batch_shape.numel() * len(energy.domain))
        chosen, parts = self._chosen(energy), list[torch.Tensor]()
        # Quadrature nodes are no sample: those components are drawn by chains.
        for part in chosen:
            is_grid_of_reals = isinstance(part.backend, RootEnumeration) and not part.model.families.is_discrete
            source = self.annealed if is_grid_of_reals and self.annealed is not None else part.backend
            parts.append(source.sample(part.model, sample_shape, generator))
        return _in_order(energy, parts, [part.variables(energy) for part in chosen], sample_shape)


def draws_exactly(backend: RootBackend, energy: GeneralizedRootEnergy) -> bool:
    """Whether draws of a backend for one kind of model are perfect; quadrature nodes are no sample."""
    return backend.is_exact and (energy.families.is_discrete or not isinstance(backend, RootEnumeration))


class _Part(NamedTuple):
    """A component: names, places of its terms in the whole, its model (psi keeps its graph), and its backend."""

    names: tuple[str, ...]
    places: torch.Tensor
    model: GeneralizedRootEnergy
    backend: RootBackend

    def variables(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        """Schema positions in the whole model."""
        return torch.tensor(energy.domain.indices(self.model.domain.names))


def _in_order(
    energy: GeneralizedRootEnergy,
    parts: Sequence[torch.Tensor],
    places: Sequence[torch.Tensor],
    sample_shape: Sequence[int] = (),
) -> torch.Tensor:
    """Values (*sample_shape, *batch, n) of all components as one tensor, in the order of their places."""
    nothing = energy.psi.new_zeros((*sample_shape, *energy.batch_shape, 0))
    order = torch.cat([torch.zeros(0, dtype=torch.long), *places]).argsort()
    return torch.cat([nothing, *parts], -1)[..., order.to(nothing.device)]


@lru_cache(maxsize=512)
def _components(structure: RootStructure, blocks: tuple[tuple[int, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Connected components, with blocks of variables whole; those without interactions joined into one at the end."""
    graph = structure.graph.copy() if blocks else structure.graph
    for block in blocks:
        graph.add_edges_from(itertools.pairwise(block))
    parts = sorted(sorted(part) for part in nx.connected_components(graph))
    names = structure.domain.names
    alone = sorted(s for part in parts if not any(structure.graph.degree[s] for s in part) for s in part)
    tied = tuple(tuple(names[s] for s in part) for part in parts if any(structure.graph.degree[s] for s in part))
    return (*tied, tuple(names[s] for s in alone)) if alone else tied


def _tied(families: NodeFamilies) -> tuple[tuple[int, ...], ...]:
    """Positions of the indicators of every category."""
    return tuple(tuple(places.tolist()) for places in families.blocks)


def _together(costs: list[Cost]) -> Cost:
    """One cost of all components: sums, and the verdict of the first that is refused."""
    if not costs:
        return Cost(1, 0, 0, 0, True, "no variables", "independent closed form")
    if len(costs) == 1:
        return costs[0]
    # Sums of all, in the words of the hardest.
    hardest = max(costs, key=lambda cost: cost.flops)
    reason = f"{len(costs)} components, the hardest: {hardest.reason}"
    whole = replace(hardest, reason=reason, method=" + ".join(dict.fromkeys(cost.method for cost in costs)))
    return replace(
        next((cost for cost in costs if not cost.feasible), whole),
        cells=max(cost.cells for cost in costs),
        total_cells=sum(cost.total_cells for cost in costs),
        flops=sum(cost.flops for cost in costs),
        memory_bytes=max(cost.memory_bytes for cost in costs),
    )


def _sum_of(results: list[LogPartition], energy: GeneralizedRootEnergy) -> LogPartition:
    if len(results) == 1:
        return results[0]
    # Values of components add up.
    cost = _together([result.cost for result in results])
    zero = energy.psi.new_zeros(energy.batch_shape)
    value = sum((result.value for result in results), zero)
    notes = tuple(dict.fromkeys(note for result in results for note in result.notes))
    estimated = [result for result in results if result.kind != "exact"]
    if not estimated:
        return LogPartition(value, "exact", 0.0, None, value, value, cost, cost.method, coding="root", notes=notes)
    # Errors add in squares, limits as they are; the whole is as good as its worst estimate.
    squares = [torch.as_tensor(result.std_error, dtype=value.dtype).square() for result in estimated]
    sizes = [result.ess for result in estimated if result.ess is not None]
    sandwich = None
    if all(result.sandwich is not None for result in estimated):  # both sides add up, exact components on either
        parts = [r.sandwich or Sandwich(r.value, zero, r.value, zero, "exact") for r in results]
        sandwich = Sandwich(
            sum((part.forward for part in parts), zero),
            sum((part.forward_error.square() for part in parts), zero).sqrt(),
            sum((part.reverse for part in parts), zero),
            sum((part.reverse_error.square() for part in parts), zero).sqrt(),
            "exact" if all(part.start == "exact" for part in parts) else "tempered",
        )
    return LogPartition(
        value,
        "biased",
        torch.stack(squares).sum(0).sqrt(),
        torch.stack(sizes).amin(0) if sizes else None,
        sum((result.lower for result in results), zero),
        sum((result.upper for result in results), zero),
        cost,
        cost.method,
        coding="root",
        verdicts=torch.stack([result.verdicts for result in estimated]).amin(0),
        notes=notes,
        lower_bound=sum((r.value if r.lower_bound is None else r.lower_bound for r in results), zero),
        sandwich=sandwich,
    )
