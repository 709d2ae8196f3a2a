"""The latent discrete sites of a program: what can be drawn, what depends on it, what each contributes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyro
import torch
from pyro import poutine
from pyro.distributions import Independent, MaskedDistribution, TorchDistribution
from pyro.distributions.torch_distribution import ExpandedDistribution
from pyro.distributions.util import scale_and_mask
from pyro.ops.provenance import ProvenanceTensor, detach_provenance, get_provenance
from pyro.poutine.messenger import Messenger
from pyro.poutine.trace_struct import Trace
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ...checks import check_exact_shape
from ...errors import (
    HoimError,
    IntractableError,
    check_names,
    check_type,
    check_unique,
    out_of_reach,
    refused,
    unexpected,
)
from ...log_linear.auto import Auto
from ...log_linear.chains.connected import connectedness, joined_blocks
from ...log_linear.chains.inside import Listing
from ...log_linear.laws.law import HierarchicalLogLinear, is_exact_for
from ...runs.schedule import GibbsSchedule
from ..runner import check_plates, is_discrete, sample_nodes
from ..structure.prior import StructurePrior

# The latent discrete sites of a program: what can be drawn at each, in which blocks, and where a chain starts.

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
        """A value drawn uniformly from the possible ones, one block after the other where all are."""
        if self.law is not None and (zeros := self.law.impossible) is not None:
            return Auto().sample(zeros.expand(self.batch_shape), (), generator).to(self.dtype)
        device = self.visits[0].candidates.device if self.visits else torch.device("cpu")
        shape = (self.num_rows, self.event_shape.numel())
        value = torch.zeros(shape, dtype=self.dtype, device=device)
        for visit in self.visits:
            chosen = torch.randint(len(visit.candidates), (self.num_rows,), generator=generator)
            value[:, list(visit.columns)] = visit.candidates[chosen.to(device)]
        return value.reshape(self.shape)


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
        if (zeros := law.impossible) is not None:
            msg["value"] = Auto().sample(zeros.expand(law.batch_shape)).to(law.theta.device)
            return
        columns = [torch.randint(n, law.batch_shape) for n in law.domain.cardinalities]
        codes = torch.stack(columns, -1) if columns else torch.zeros(law.shape(), dtype=torch.long)
        msg["value"] = codes.to(law.theta.device)


def start(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    """Run a program once: laws that are log-linear from uniform codes, every other latent site from its prior."""
    with torch.no_grad(), poutine.block(), _UniformFields():
        trace = poutine.trace(model).get_trace(*args, **kwargs)
    check_plates(trace)
    return trace


def find_sites(trace: Trace, names: Sequence[str] | None, schedules: Schedules) -> tuple[DiscreteSite, ...]:
    """The latent discrete sites of a trace, in the order given or else in that of the program."""
    nodes = {name: node for name, node in sample_nodes(trace).items() if not node["is_observed"]}
    discrete = [name for name, node in nodes.items() if is_discrete(node["fn"])]
    order = discrete if names is None else list(names)
    # A given order names every latent discrete site, once.
    if names is not None:
        check_unique(order, "discrete_sites")
        for name in order:
            if name in nodes and name not in discrete:
                raise refused(
                    "discrete_sites",
                    f"site {name!r} is continuous",
                    "leave it to the inner kernel",
                    code="unknown-name",
                )
        check_names(order, discrete, "discrete_sites", "latent discrete site")
        left_out = [name for name in discrete if name not in order]
        if left_out:
            problem = f"expected every latent discrete site, but {left_out[0]!r} is left out"
            hint = "name it too, or observe or marginalise it in the program"
            raise refused("discrete_sites", problem, hint, code="missing-part")
    if isinstance(schedules, Mapping):
        check_names(schedules, discrete, "schedule", "latent discrete site")
    # Schedules belong to log-linear laws, whose variables interact.
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
    # Whole numbers inside the support, block by block where the law is listed.
    rows = site.rows(converted)
    is_inside = bool((converted == value).all())
    if site.law is not None:
        is_inside = is_inside and bool(site.law.support.check(rows).all())
        if is_inside and (zeros := site.law.impossible) is not None:
            is_inside = bool(torch.isfinite(zeros.energy(converted.long())).all())
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


def _describe(name: str, node: dict[str, Any], schedules: Schedules) -> DiscreteSite:
    fn, value = node["fn"], node["value"]
    law, _ = split_law(fn)
    plates = frozenset((frame.name, frame.dim) for frame in node["cond_indep_stack"] if frame.vectorized)
    # A log-linear law is visited by the blocks of its schedule.
    if law is not None:
        schedule = schedules.get(name) if isinstance(schedules, Mapping) else schedules
        schedule = GibbsSchedule() if schedule is None else schedule
        check_type(schedule, GibbsSchedule, "schedule")
        domain = law.domain
        listing = None if law.impossible is None else Listing(law.impossible)
        # Blocks "auto" are chosen where the law stands alone; elsewhere each visit costs runs of the program.
        visited = replace(schedule, blocks="sites") if schedule.blocks == "auto" else schedule
        # Blocks that are drawn from a list of their states where the program depends on them. The others are drawn by
        # elimination where the law stands alone; elsewhere their variables are visited one by one.
        cards, names = law.domain.cardinalities, law.domain.names
        blocks: list[tuple[int, ...]] = []
        for block in visited.resolve(law.hypergraph, has_list=listing and listing.has):
            is_listed = math.prod(cards[i] for i in block) <= visited.max_listed
            is_listed = is_listed or (listing is not None and listing.has([names[i] for i in block]))
            blocks += [block] if is_listed else [(i,) for i in block]
        blocks = list(dict.fromkeys(blocks))
        blocks += _connecting_blocks(name, law, visited, blocks)
        levels, visits = [torch.arange(n, device=value.device) for n in domain.cardinalities], list[Visit]()
        for block in blocks:
            names = tuple(domain.names[i] for i in block)
            states = None if listing is None else listing.states(names)
            if states is None:
                candidates = torch.cartesian_prod(*(levels[i] for i in block)).reshape(-1, len(block))
            else:
                candidates = torch.tensor(states, device=value.device)
            visits.append(Visit(block, candidates, names))
        return DiscreteSite(
            name, value.dtype, fn.batch_shape, fn.event_shape, plates, tuple(visits), law=law, schedule=schedule
        )
    # Any other law element by element, each from the list of its values.
    atoms = _atoms(name, fn)
    size, flat = max(1, math.prod(atoms.shape[1:])), atoms.reshape(len(atoms), -1).to(value)
    visits = tuple(Visit(tuple(range(first, first + size)), flat) for first in range(0, fn.event_shape.numel(), size))
    return DiscreteSite(name, value.dtype, fn.batch_shape, fn.event_shape, plates, visits, atoms=atoms)


def _connecting_blocks(
    name: str, law: HierarchicalLogLinear, schedule: GibbsSchedule, blocks: list[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Further blocks by which visits lead from every possible state to every other; refused where they do not."""
    if (zeros := law.impossible) is None:
        return []
    domain = law.domain
    given = [tuple(domain.names[v] for v in block) for block in blocks]
    added = joined_blocks(zeros, schedule, given)
    verdict = connectedness(zeros, [*given, *added])
    if verdict.verdict == "refuted":
        hint = (
            "pass a schedule with larger blocks, such as pyro_hoim.runs.GibbsSchedule(blocks=[...]) of these variables"
        )
        raise refused(f"site {name!r}", verdict.words(domain), hint, code="impossible")
    return [domain.indices(block) for block in added]


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
    # Collections are drawn whole where they are few, else one indicator after the other.
    if isinstance(base, StructurePrior) and not base.space.is_graphical:
        members = base.space.members
        if members is None or len(members) > _MAX_TOGETHER:
            return torch.tensor([0.0, 1.0])  # any two collections are joined by births and deaths
    # Everything else lists its values, the same for all elements.
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


# What a site contributes to a full conditional: its log-probability, with a log Z only where that matters.

Node = Mapping[str, Any]


def log_z_factors(node: Node) -> tuple[tuple[Any, int], ...]:
    """All that decides how much the log Z of a log-linear site contributes, empty for another site."""
    law, mask = split_law(node["fn"])
    return () if law is None else ((law.theta, 1), (mask, 0), (node["mask"], 0), (node["scale"], 0))


def needs_log_z(nodes: list[Node]) -> bool:
    """Whether the log Z of a site contributes differently to some runs of the program."""
    first = log_z_factors(nodes[0])
    return any(
        not _is_equal(part, other)
        for node in nodes[1:]
        for (part, _), (other, _) in zip(first, log_z_factors(node), strict=True)
    )


def _is_equal(part: Any, other: Any) -> bool:
    if isinstance(part, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(part, other)
    return part is other or (type(part) is type(other) and part == other)


def has_estimate(fn: Any) -> bool:
    """Whether the log-probability of a distribution holds a log Z that its backend estimates."""
    while fn is not None:
        partition, hypergraph = getattr(fn, "partition", None), getattr(fn, "hypergraph", None)
        if partition is not None and hypergraph is not None:
            return not is_exact_for(partition, hypergraph)
        fn = getattr(fn, "base_dist", None)
    return False


def log_prob_of(node: Node, with_log_z: bool) -> torch.Tensor:
    """Log-probability of a site, that of a log-linear law up to its constant unless that is wanted."""
    law, mask = split_law(node["fn"])
    if law is None:
        term = node["fn"].log_prob(node["value"], *node["args"], **node["kwargs"])
    else:
        term = law.log_prob(node["value"]) if with_log_z else -law.energy(node["value"])
        term = scale_and_mask(term, mask=mask)
    return scale_and_mask(term, node["scale"], node["mask"])


def own_log_prob(node: Node, visit: Visit, value: torch.Tensor, site: DiscreteSite) -> torch.Tensor:
    """Log conditional of a block under the law of its own site, (candidates, rows), float64."""
    law, mask = split_law(node["fn"])
    assert law is not None
    count = math.prod(law.domain.cardinalities[i] for i in visit.columns)
    if len(visit.candidates) == count:
        table = law.energy_model.block_conditional(visit.names, value)
        table = table.reshape(*site.batch_shape, -1).movedim(-1, 0)
    else:  # of the possible states alone, as a table of all may be too large
        given = value.long().expand(len(visit.candidates), *value.shape).clone()
        given[..., list(visit.columns)] = visit.candidates.reshape(-1, *(1,) * (value.dim() - 1), len(visit.columns))
        table = torch.log_softmax(-law.energy_model.energy(given, validate=False), 0)
    table = scale_and_mask(scale_and_mask(table, mask=mask), node["scale"], node["mask"])
    return table.expand(table.shape[0], *site.batch_shape).reshape(len(visit.candidates), site.num_rows).double()


def without_nan(logits: torch.Tensor) -> torch.Tensor:
    """NaN counts as probability zero, as a divergence does in HMC."""
    return torch.where(logits.isnan(), -math.inf, logits)


def is_same_law(found: torch.Tensor, expected: torch.Tensor, error: float) -> bool:
    """Whether two rows of logits (1, candidates) agree up to a constant and rounding."""
    found, expected = without_nan(found), without_nan(expected)
    best = int(expected.argmax())
    if not math.isfinite(float(expected[0, best])):
        return True  # an impossible state tells nothing
    found, expected = found - found[:, best], expected - expected[:, best]
    is_equal = (found == expected) | ((found - expected).abs() <= 1e-4 + error)
    return bool(is_equal.all())


# Which sites of a program depend on which latent values, found by following these through the tensors.

# What these return says nothing about values.
_METADATA = frozenset(
    (
        *("dim", "size", "numel", "nelement", "ndimension", "stride", "element_size", "__len__", "__hash__", "__get__"),
        *("is_floating_point", "is_complex", "is_signed", "is_contiguous", "is_same_size", "is_inference", "is_tensor"),
        *("is_conj", "is_neg", "get_device", "result_type", "can_cast"),
    )
)


class _Leaks(TorchFunctionMode):
    """Notes where a tracked value first left the tensors: into Python numbers, arrays, or an untracked tensor."""

    found: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        # Only the first place is told: what comes after follows from it.
        if self.found is None and (upstream := get_provenance((args, kwargs))):
            name = getattr(func, "__name__", "")
            is_in_place = name == "__setitem__" or "out" in kwargs or (name.endswith("_") and not name.endswith("__"))
            tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            if tensors:
                is_lost = not all(isinstance(leaf, ProvenanceTensor) for leaf in tensors)
            else:
                is_lost = name not in _METADATA and not (name == "__bool__" and _is_own_check())
            if is_in_place or is_lost:
                # One clause, with the line of the program where the value left the tensors.
                what = {"__bool__": "a condition", "__setitem__": "assignment into a tensor"}.get(name, f"{name}()")
                where, frame = "", sys._getframe(1)
                while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
                    "torch",
                    "pyro",
                    "pyro_hoim",
                ):
                    frame = frame.f_back
                if frame is not None:
                    where = f" (line {frame.f_lineno} of {Path(frame.f_code.co_filename).name})"
                sites = ", ".join(map(repr, sorted(upstream)))
                self.found = (
                    f"{what} changes a tensor in place with the value of {sites}{where}"
                    if is_in_place
                    else f"the program takes the value of {sites} out of the tensors by {what}{where}"
                )
        return result


def _is_own_check() -> bool:
    """Whether this library, and not the program, looked at a value: its laws refuse theta that is not finite."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "torch":
        frame = frame.f_back
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").startswith("pyro_hoim.")


class Dependence(NamedTuple):
    """Which sites depend on which latent values, in every state."""

    followers: dict[str, frozenset[str]]
    log_z: dict[str, frozenset[str]]
    loose: frozenset[str]


def find_dependence(
    run: Callable[[Mapping[str, torch.Tensor]], Trace], values: Mapping[str, torch.Tensor]
) -> Dependence | str:
    """What depends on what in a program, or one clause on why that is not known."""
    followers: dict[str, set[str]] = {name: set() for name in values}
    log_z: dict[str, frozenset[str]] = {}
    loose: set[str] = set()
    # Every value carries the name of its site through the tensors of one run.
    tracked = {name: ProvenanceTensor(detach_provenance(v), frozenset({name})) for name, v in values.items()}
    leaks = _Leaks()
    try:
        with torch.no_grad(), pyro.validation_enabled(False):
            with leaks:
                nodes = sample_nodes(run(tracked))
                # What reaches the law, the mask or the scale of a site, or its value, reaches its log-probability.
                for name, node in nodes.items():
                    parts: list[Any] = [node["scale"], node["mask"], node["value"]]
                    if _is_own(node["fn"]):
                        parts += list(_tensors(node["fn"], set()))
                    else:
                        parts.append(node["fn"].log_prob(node["value"], *node["args"], **node["kwargs"]))
                    for upstream in get_provenance(parts) - {name}:
                        followers[upstream].add(name)
                    if factors := log_z_factors(node):
                        log_z[name] = get_provenance([part for part, _ in factors])
            loose = {name for name in values if _is_loose(nodes[name]["fn"])}
    except Exception as error:  # noqa: BLE001  a tracked tensor is a stranger to some operations: then nothing is known
        return leaks.found or f"values cannot be followed through the program, which raises {brief(error)} on the way"
    return leaks.found or Dependence({n: frozenset(f) for n, f in followers.items()}, log_z, frozenset(loose))


def brief(error: Exception) -> str:
    """Class and first line of an exception, cut to a length that fits into a sentence."""
    first = str(error).strip().partition("\n")[0]
    return (
        f"{type(error).__name__}: {first[:160]}{'...' if len(first) > 160 else ''}" if first else type(error).__name__
    )


def _is_loose(fn: Any) -> bool:
    """Whether a list of the values of a discrete law looks at a tracked value."""
    if split_law(fn)[0] is not None or not is_discrete(fn):
        return False
    leaks = _Leaks()
    with leaks:
        values = element_law(fn).enumerate_support(expand=False)
    return leaks.found is not None or bool(get_provenance(values))


def _is_own(fn: Any) -> bool:
    """Whether a distribution is or wraps one of this library, whose log-probability may need a log Z."""
    while fn is not None:
        if type(fn).__module__.startswith("pyro_hoim."):
            return True
        fn = getattr(fn, "base_dist", None)
    return False


def _tensors(part: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """All tensors that a distribution holds, however deep."""
    if isinstance(part, torch.Tensor):
        yield part
    elif id(part) not in seen:
        seen.add(id(part))
        inner: Any = ()
        if isinstance(part, Mapping):
            inner = part.values()
        elif isinstance(part, list | tuple):
            inner = part
        elif hasattr(part, "__dict__"):
            inner = vars(part).values()
        for value in inner:
            yield from _tensors(value, seen)


# The program that the inner kernel of the continuous sites sees: all discrete values given.


class GivenDiscrete:
    """A program with its discrete sites observed at values that may change between runs."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model
        self.values: dict[str, torch.Tensor] = {}
        self.constant_laws: frozenset[str] = frozenset()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program given the present discrete values."""
        with _WithoutConstants(self.constant_laws):
            return poutine.condition(self.model, data=self.values)(*args, **kwargs)


def constant_laws(dependence: Dependence | str, continuous: Collection[str]) -> frozenset[str]:
    """Log-linear sites whose theta, masks and scale depend on no continuous site; a derivative could not tell steps."""
    if isinstance(dependence, str):
        return frozenset()
    return frozenset(name for name, upstream in dependence.log_z.items() if upstream.isdisjoint(continuous))


class _WithoutConstants(Messenger):
    """Leaves out the log Z of the named log-linear sites."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self._names = names

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self._names and msg["is_observed"]:
            law, mask = split_law(msg["fn"])
            if law is not None:
                msg["fn"] = _Unnormalised(law, mask)


class _Unnormalised(TorchDistribution):
    """A log-linear law at an observed site with minus its energy for a log-probability."""

    arg_constraints: ClassVar[dict[str, Any]] = {}  # type: ignore[override]

    def __init__(self, law: HierarchicalLogLinear, mask: torch.Tensor | bool) -> None:
        super().__init__(law.batch_shape, law.event_shape, validate_args=False)
        self._law, self._mask = law, mask

    @property
    def support(self) -> Any:  # type: ignore[override]
        return self._law.support

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> _Unnormalised:
        return _Unnormalised(self._law.expand(batch_shape), self._mask)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        return scale_and_mask(-self._law.energy(value), mask=self._mask)
