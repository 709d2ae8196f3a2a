"""The latent discrete sites of a program: what can be drawn at each, in which blocks, and where a chain starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from pyro import poutine
from pyro.distributions import Independent, MaskedDistribution
from pyro.distributions.torch_distribution import ExpandedDistribution
from pyro.poutine.messenger import Messenger
from pyro.poutine.subsample_messenger import _Subsample
from pyro.poutine.trace_struct import Trace
from pyro.poutine.util import site_is_subsample

from ...checks import check_exact_shape
from ...errors import (
    HoimError,
    IntractableError,
    check_names,
    check_type,
    check_unique,
    conflict,
    out_of_reach,
    refused,
    unexpected,
)
from ...log_linear.laws.law import HierarchicalLogLinear
from ...runs.schedule import GibbsSchedule
from ..structure.prior import StructurePrior

MAX_VALUES = 2**16
"""Most values of one element of a site."""
_MAX_TOGETHER = 2**9  # collections of a structure that are drawn together and not indicator by indicator

Schedules = GibbsSchedule | Mapping[str, GibbsSchedule] | None


@dataclass(frozen=True, eq=False)
class Visit:
    """Entries of a site's value that are drawn together, and the values they can take."""

    columns: tuple[int, ...]
    candidates: torch.Tensor
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class DiscreteSite:
    """A latent discrete site."""

    name: str
    dtype: torch.dtype
    batch_shape: torch.Size
    event_shape: torch.Size
    plates: frozenset[tuple[str, int]]
    visits: tuple[Visit, ...]
    atoms: torch.Tensor | None = None
    law: HierarchicalLogLinear | None = None
    schedule: GibbsSchedule | None = None

    @property
    def shape(self) -> torch.Size:
        """Shape of a value."""
        return self.batch_shape + self.event_shape

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.batch_shape.numel()

    def rows(self, value: torch.Tensor) -> torch.Tensor:
        """A value as a matrix (num_rows, entries of an event)."""
        return value.reshape(self.num_rows, self.event_shape.numel())

    def random_value(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """A value drawn uniformly, one block after the other."""
        device = self.visits[0].candidates.device if self.visits else torch.device("cpu")
        shape = (self.num_rows, self.event_shape.numel())
        value = torch.zeros(shape, dtype=self.dtype, device=device)
        for visit in self.visits:
            chosen = torch.randint(len(visit.candidates), (self.num_rows,), generator=generator)
            value[:, list(visit.columns)] = visit.candidates[chosen.to(device)]
        return value.reshape(self.shape)


def sample_nodes(trace: Trace) -> dict[str, dict[str, Any]]:
    """Sample sites of a trace without plates' own and ``pyro.deterministic`` ones, whose log-probability is 0."""
    nodes = cast(dict[str, Any], trace.nodes)
    return {
        name: node
        for name, node in nodes.items()
        if node["type"] == "sample" and not site_is_subsample(node) and not node["infer"].get("_deterministic")
    }


def split_law(fn: Any) -> tuple[HierarchicalLogLinear | None, torch.Tensor | bool]:
    """The log-linear law inside a distribution, if there is one, with the mask around it."""
    mask: torch.Tensor | bool = True
    while isinstance(fn, MaskedDistribution):
        mask = fn._mask if mask is True else mask & fn._mask
        fn = fn.base_dist
    return (fn, mask) if isinstance(fn, HierarchicalLogLinear) else (None, True)


class _UniformFields(Messenger):
    """Start latent log-linear laws from uniform codes: an exact draw may be out of reach."""

    def _pyro_sample(self, msg: Any) -> None:
        law, _ = split_law(msg["fn"])
        if law is None or msg["is_observed"] or msg["value"] is not None:
            return
        columns = [torch.randint(n, law.batch_shape) for n in law.domain.cardinalities]
        codes = torch.stack(columns, -1) if columns else torch.zeros(law.shape(), dtype=torch.long)
        msg["value"] = codes.to(law.theta.device)


def start(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    """Run a program once: laws that are log-linear from uniform codes, every other latent site from its prior."""
    with torch.no_grad(), poutine.block(), _UniformFields():
        trace = poutine.trace(model).get_trace(*args, **kwargs)
    for name, node in cast(dict[str, Any], trace.nodes).items():
        fn = node.get("fn")
        if isinstance(fn, _Subsample) and len(node["value"]) != fn.size:
            raise conflict(
                "model",
                f"plate {name!r} takes {len(node['value'])} of {fn.size} elements; MCMC needs all of them, leave out "
                "subsample_size and subsample",
            )
    return trace


def find_sites(trace: Trace, names: Sequence[str] | None, schedules: Schedules) -> tuple[DiscreteSite, ...]:
    """The latent discrete sites of a trace, in the order given or else in that of the program."""
    nodes = {name: node for name, node in sample_nodes(trace).items() if not node["is_observed"]}
    found = [name for name, node in nodes.items() if is_discrete(node["fn"])]
    order = found if names is None else list(names)
    if names is not None:
        check_unique(order, "discrete_sites")
        for name in order:
            if name in nodes and name not in found:
                raise refused(
                    "discrete_sites",
                    f"site {name!r} is continuous",
                    "leave it to the inner kernel",
                    code="unknown-name",
                )
        check_names(order, found, "discrete_sites", "latent discrete site")
        left_out = [name for name in found if name not in order]
        if left_out:
            problem = f"expected every latent discrete site, but {left_out[0]!r} is left out"
            hint = "name it too, or observe or marginalise it in the program"
            raise refused("discrete_sites", problem, hint, code="missing-part")
    if isinstance(schedules, Mapping):
        check_names(schedules, found, "schedule", "latent discrete site")
    sites = tuple(_describe(name, nodes[name], schedules) for name in order)
    for site in sites:
        if isinstance(schedules, Mapping) and site.name in schedules and site.law is None:
            problem = f"site {site.name!r} is not a log-linear law; its elements are always drawn one by one"
            raise refused("schedule", problem, code="conflict")
    return sites


def check_initial(site: DiscreteSite, value: torch.Tensor) -> torch.Tensor:
    """A given first value in the dtype of the site."""
    check_exact_shape(value, tuple(site.shape), f"initial_params[{site.name!r}]")
    converted = (value.round() if value.is_floating_point() else value).to(site.dtype)
    rows = site.rows(converted)
    is_inside = bool((converted == value).all())
    if site.law is not None:
        is_inside = is_inside and bool(site.law.support.check(rows).all())
    else:
        for visit in site.visits:
            entries = rows[:, None, list(visit.columns)]
            is_inside = is_inside and bool((entries == visit.candidates).all(-1).any(-1).all())
    if not is_inside:
        raise unexpected(f"initial_params[{site.name!r}]", "values inside the support of the site", code="impossible")
    return converted


def check_support(site: DiscreteSite, fn: Any) -> None:
    """Refuse a law of a site that has other values than the one found at the start."""
    law, _ = split_law(fn)
    if law is not None or site.law is not None:
        is_same = law is not None and site.law is not None and law.domain == site.law.domain
    else:
        try:
            is_same = site.atoms is not None and torch.equal(_atoms(site.name, fn), site.atoms)
        except HoimError:
            is_same = False  # no one list for all elements any more
    if not is_same:
        expected = "the same support whatever the values of other sites"
        hint = "give it all values that it can ever have, with probability zero where they are impossible"
        raise unexpected(f"site {site.name!r}", expected, hint=hint, received="another one", code="other-domain")


def is_discrete(fn: Any) -> bool:
    """Whether a law has whole-number or listed values."""
    if split_law(fn)[0] is not None:
        return True
    try:
        return bool(fn.support.is_discrete)
    except (NotImplementedError, AttributeError):
        return bool(getattr(fn, "has_enumerate_support", False))


def _describe(name: str, node: dict[str, Any], schedules: Schedules) -> DiscreteSite:
    fn, value = node["fn"], node["value"]
    law, _ = split_law(fn)
    plates = frozenset((frame.name, frame.dim) for frame in node["cond_indep_stack"] if frame.vectorized)
    if law is not None:
        schedule = schedules.get(name) if isinstance(schedules, Mapping) else schedules
        schedule = GibbsSchedule() if schedule is None else schedule
        check_type(schedule, GibbsSchedule, "schedule")
        domain = law.domain
        levels = [torch.arange(n, device=value.device) for n in domain.cardinalities]
        visits = tuple(
            Visit(
                block,
                torch.cartesian_prod(*(levels[i] for i in block)).reshape(-1, len(block)),
                tuple(domain.names[i] for i in block),
            )
            for block in schedule.resolve(law.hypergraph)
        )
        return DiscreteSite(
            name, value.dtype, fn.batch_shape, fn.event_shape, plates, visits, law=law, schedule=schedule
        )
    atoms = _atoms(name, fn)
    size, flat = max(1, math.prod(atoms.shape[1:])), atoms.reshape(len(atoms), -1).to(value)
    visits = tuple(Visit(tuple(range(first, first + size)), flat) for first in range(0, fn.event_shape.numel(), size))
    return DiscreteSite(name, value.dtype, fn.batch_shape, fn.event_shape, plates, visits, atoms=atoms)


def element_law(fn: Any) -> Any:
    """The law of one element inside event dimensions, masks and plates."""
    while isinstance(fn, Independent | MaskedDistribution | ExpandedDistribution):
        fn = fn.base_dist
    return fn


def _atoms(name: str, fn: Any) -> torch.Tensor:
    """Values of one element, (num_values, *shape)."""
    base = element_law(fn)
    kind = type(base).__name__
    if isinstance(base, HierarchicalLogLinear):
        raise unexpected(
            f"site {name!r}", "the log-linear law in a plate", received="it under to_event", code="no-method"
        )
    if isinstance(base, StructurePrior) and not base.space.is_graphical:
        members = base.space.members
        if members is None or len(members) > _MAX_TOGETHER:
            return torch.tensor([0.0, 1.0])  # any two collections are joined by births and deaths
    advice = (
        "Gibbs draws from a list of all values. Observe the site, marginalise it in the program, or use a bounded law "
        "such as Categorical or Binomial"
    )
    if not getattr(base, "has_enumerate_support", False):
        raise unexpected(f"site {name!r}", "a law with finite support", hint=advice, received=kind, code="no-method")
    try:
        values = base.enumerate_support(expand=False)
    except NotImplementedError:
        expected = "elements with one common support"
        raise unexpected(
            f"site {name!r}", expected, hint=advice, received=f"{kind} with several", code="no-method"
        ) from None
    except IntractableError as error:
        raise out_of_reach(f"site {name!r}", str(error)) from None
    if len(values) > MAX_VALUES:
        raise out_of_reach(f"site {name!r}", f"{len(values)} values exceed the limit of {MAX_VALUES}")
    event_dim = len(base.event_shape)
    return values.reshape(len(values), *values.shape[values.dim() - event_dim :])
