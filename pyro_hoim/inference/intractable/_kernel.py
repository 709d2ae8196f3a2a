"""What kernels for programs with intractable observed sites share: the program at one or many points, and its setup."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from pyro.poutine.messenger import Messenger
from pyro.poutine.subsample_messenger import _Subsample
from scipy import optimize
from torch.distributions import biject_to
from typing_extensions import override

from ...dependency_network.law import DependencyNetwork
from ...errors import check_names, check_whole, out_of_reach, refused, unexpected, wrong_type
from ...generalized_root.law import GeneralizedRoot
from ...log_linear.laws.law import HierarchicalLogLinear
from ...log_linear.laws.statistics import LogLinearStatistics
from ..kernels import LaneKernel, checked_params, no_chain
from ..runner import check_plates, is_discrete, sample_nodes
from ._sites import IntractableSite, LogLinearSite, RootSite, SiteData, unwrapped

NEEDS_FIXED_LOG_Z = "Exchange and Langevin"
"""Read where an estimate of log Z is asked for: its noise would make these moves wrong."""

Values = dict[str, torch.Tensor]

_RADIUS = 2.0
_TRIES = 100
_CHECKED = 3
_MOST_DIFFERENCE = {torch.float64: 1e-8, torch.float32: 1e-3}
_USE_MIXED = "draw it with MixedGibbs, whose continuous kernel may be Exchange"


class Evaluation(NamedTuple):
    """A program at C points.

    Attributes:
        log_density: log prior and log-likelihood of the tractable sites with the Jacobian, (C,), float64.
        naturals: natural parameters of every intractable site that moves, (C, G, num_terms), float64.
        data: what these sites observe.
    """

    log_density: torch.Tensor
    naturals: dict[str, torch.Tensor]
    data: dict[str, SiteData]


class _NotVectorised(Exception):  # noqa: N818  never leaves this module
    """A log-probability does not have the shape that chains in a dimension of their own would give it."""


class _Latents(Messenger):
    """Refuses latent sites that no continuous move can draw, before they are drawn."""

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] or isinstance(msg["fn"], _Subsample):
            return
        law, _, _ = unwrapped(msg["fn"])
        if isinstance(law, GeneralizedRoot):
            problem = "a latent generalized root model cannot be moved by a continuous kernel"
            raise refused(f"site {msg['name']!r}", problem, "observe it", code="no-method")
        if is_discrete(law):
            raise refused(f"site {msg['name']!r}", "it is latent and discrete", _USE_MIXED, code="no-method")


class IntractableProgram:
    r"""A program with fixed arguments: its latent sites, what is intractable in it, and its value at given points.

    Points are unconstrained: values (C, \*shape) of every latent site. All C are evaluated in one run where the
    program lets a leftmost dimension pass, and one after the other where it does not, which is found by comparison.
    """

    def __init__(
        self, model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str] | None
    ) -> None:
        self.model, self.args, self.kwargs = model, tuple(args), dict(kwargs)
        with poutine.block(), torch.no_grad(), _Latents():
            trace = poutine.trace(model).get_trace(*self.args, **self.kwargs)
        check_plates(trace)
        nodes = sample_nodes(trace)
        # Latent sites with their unconstrained coordinates; those that are not asked for stay where they are.
        latent = {name: node for name, node in nodes.items() if not node["is_observed"]}
        self.latent = tuple(latent)
        if names is not None:
            check_names(names, self.latent, "sites", "latent site")
        self.moved = self.latent if names is None else tuple(n for n in self.latent if n in set(names))
        if not self.moved:
            raise refused("model", "expected a latent continuous site, found none", code="missing-part")
        self.transforms = {name: biject_to(node["fn"].support).inv for name, node in latent.items()}
        self._batch_dims = {name: len(node["fn"].batch_shape) for name, node in latent.items()}
        plain = {name: self.transforms[name](node["value"].detach()) for name, node in latent.items()}
        self.shapes = {name: value.shape for name, value in plain.items()}
        self.dtypes = {name: value.dtype for name, value in plain.items()}
        self.size = sum(self.shapes[name].numel() for name in self.moved)
        # Intractable sites, of which some may turn out to stand still.
        self._num_dims = _num_dims(nodes)
        sites: dict[str, IntractableSite] = {}
        for name, node in nodes.items():
            law, _, _ = unwrapped(node["fn"])
            if isinstance(law, DependencyNetwork):
                problem = "a dependency network has conditionals and no energy, so there is no ratio of probabilities"
                raise refused(f"site {name!r}", problem, code="no-method")
            if not is_constant_law(law) or not node["is_observed"]:
                continue
            scale = node["scale"]
            if math.prod(torch.as_tensor(scale).shape) and not bool((torch.as_tensor(scale) == 1).all()):
                problem = "its log-probability is scaled, and a power of a likelihood has no auxiliary data"
                raise refused(f"site {name!r}", problem, "leave out poutine.scale and subsampling", code="conflict")
            make = RootSite if isinstance(law, GeneralizedRoot) else LogLinearSite
            sites[name] = make(name, cast(Any, law))
        self.sites = sites
        self._still: dict[str, IntractableSite] = {}
        self._still_at: Values = {}
        self.reason: str | None = None
        self.is_together = True
        self._settle()

    # Points

    def random_points(self, num_chains: int) -> Values:
        r"""Points (num_chains, \*shape) uniform within two of zero in every coordinate, as Pyro's kernels start."""
        return {
            name: (2 * torch.rand(num_chains, *shape, dtype=self.dtypes[name]) - 1) * _RADIUS
            for name, shape in self.shapes.items()
        }

    def valid_points(self, num_chains: int) -> Values:
        """Random points of finite density."""
        points = self.random_points(num_chains)
        for _ in range(_TRIES):
            is_valid = self.is_valid(self.evaluate(points))
            if bool(is_valid.all()):
                return points
            again = self.random_points(num_chains)
            for name, value in points.items():
                value[~is_valid] = again[name][~is_valid]
        problem = f"no valid initial params, which are points of finite density, were found in {_TRIES} tries"
        raise refused("model", problem, "look for observations outside the support, or pass initial_params")

    def is_valid(self, found: Evaluation) -> torch.Tensor:
        """Which points have a density and a law at every site, (C,)."""
        result = torch.isfinite(found.log_density)
        for name, natural in found.naturals.items():
            lawful = self.sites[name].is_lawful(natural.reshape(-1, natural.shape[-1]))
            result &= lawful.reshape(natural.shape[:2]).all(-1)
        return result

    # Coordinates

    def flat(self, points: Values) -> torch.Tensor:
        """The sites that move as vectors (C, P) of float64."""
        return torch.cat([points[name].double().reshape(len(points[name]), -1) for name in self.moved], -1)

    def unflat(self, vectors: torch.Tensor, others: Values) -> Values:
        """Points of vectors (C, P), with the sites that do not move as in ``others``."""
        points, sizes = dict(others), [self.shapes[name].numel() for name in self.moved]
        for name, part in zip(self.moved, vectors.split(sizes, -1), strict=True):
            points[name] = part.reshape(len(vectors), *self.shapes[name]).to(self.dtypes[name])
        return points

    # Evaluation

    def evaluate(self, points: Values) -> Evaluation:
        r"""The program at points (C, \*shape)."""
        with torch.no_grad():
            return self._evaluated(points)

    def attached(self, points: Values) -> tuple[Values, Evaluation]:
        """The program at points with its graph, and these points, of which those that move require gradients."""
        with torch.enable_grad():
            leaves = {name: value.detach().clone().requires_grad_(name in self.moved) for name, value in points.items()}
            return leaves, self._evaluated(leaves)

    def _evaluated(self, points: Values) -> Evaluation:
        return self._at(points, len(next(iter(points.values())))) if self.is_together else self._one_by_one(points)

    def surrogate(self, points: Values) -> torch.Tensor:
        """Log density (C,) with the exact or the pseudo-likelihood in the place of every intractable one."""
        num_chains = len(next(iter(points.values())))
        if self.is_together:
            return self._total(*self._run(points, num_chains), num_chains, with_surrogates=True)
        singles = [self._single(points, i) for i in range(num_chains)]
        return torch.cat([self._total(*self._run(one, None), None, with_surrogates=True) for one in singles])

    def _single(self, points: Values, i: int) -> Values:
        return {name: value[i] for name, value in points.items()}

    def _one_by_one(self, points: Values) -> Evaluation:
        num_chains = len(next(iter(points.values())))
        values = [self._at(self._single(points, i), None) for i in range(num_chains)]
        naturals = {name: torch.cat([one.naturals[name] for one in values]) for name in values[0].naturals}
        return Evaluation(torch.cat([one.log_density for one in values]), naturals, values[0].data)

    def _at(self, points: Values, num_chains: int | None) -> Evaluation:
        nodes, jacobian = self._run(points, num_chains)
        naturals: dict[str, torch.Tensor] = {}
        data: dict[str, SiteData] = {}
        for name, site in self.sites.items():
            naturals[name], data[name] = site.read(nodes[name], num_chains, self._num_dims)
        # A site that was left out may not move after all.
        for name, site in self._still.items():
            value = site.parameters(unwrapped(nodes[name]["fn"])[0]).detach()
            before = self._still_at.get(name)
            if before is not None and before.shape == value.shape and not torch.equal(before, value):
                problem = "its parameters depend on a latent site, which they did not where the chain was set up"
                raise refused(f"site {name!r}", problem, "write the choice with torch.where", code="conflict")
            self._still_at[name] = value
        return Evaluation(self._total(nodes, jacobian, num_chains), naturals, data)

    def _run(self, points: Values, num_chains: int | None) -> tuple[dict[str, Any], torch.Tensor]:
        """Sample sites of one run, and the Jacobian (C,) or (1,)."""
        # Constrained values, with the dimension of chains in front of all batch dimensions of the program.
        values: Values = {}
        jacobian = torch.zeros(num_chains or 1, dtype=torch.float64)
        for name, point in points.items():
            value = self.transforms[name].inv(point)
            slope = self.transforms[name].inv.log_abs_det_jacobian(point, value)
            jacobian = jacobian + slope.double().reshape(num_chains or 1, -1).sum(-1)
            if num_chains is not None:
                event = value.shape[1:]
                padding = (1,) * (self._num_dims - self._batch_dims[name])
                value = value.reshape(num_chains, *padding, *event)
            values[name] = value
        # Validation off: a point outside the support has no density, which is no error here.
        with poutine.block(), pyro.validation_enabled(False):
            given = poutine.condition(self.model, data=values)
            trace = poutine.trace(given).get_trace(*self.args, **self.kwargs)
        check_plates(trace)
        nodes = sample_nodes(trace)
        if any(not node["is_observed"] for node in nodes.values()):
            name = next(name for name, node in nodes.items() if not node["is_observed"])
            problem = f"site {name!r} is not there at every run"
            raise refused("model", problem, "write the choice with torch.where or poutine.mask", code="no-method")
        return nodes, jacobian

    def _total(
        self, nodes: Mapping[str, Any], jacobian: torch.Tensor, num_chains: int | None, *, with_surrogates: bool = False
    ) -> torch.Tensor:
        """Sum (C,) over the tractable sites, and over the others too where these have something in their place."""
        total = jacobian
        with pyro.validation_enabled(False):
            for name, node in nodes.items():
                # The constant of an intractable law is left out, or what stands for the law enters as a whole.
                law, masks, lacking = unwrapped(node["fn"])
                if name in self.sites:
                    if not with_surrogates:
                        continue
                    term = self.sites[name].surrogate(law, node["value"])
                    if term is None:
                        problem = "neither its log Z nor its pseudo-likelihood is at hand"
                        hint = (
                            "use proposal='adaptive' (Langevin: preconditioner='none'), or observe the rows themselves"
                        )
                        raise refused(f"site {name!r}", problem, hint, code="no-method")
                    for mask, missing in masks:
                        flag = torch.as_tensor(mask)
                        term = scale_and_mask(term, mask=flag.reshape(*flag.shape, *(1,) * (lacking - missing)))
                    term = term.sum(tuple(range(-lacking, 0))) if lacking else term
                elif is_constant_law(law):
                    continue
                else:
                    term = node["fn"].log_prob(node["value"], *node["args"], **node["kwargs"])
                # Scales and masks of plates and handlers, for every site alike.
                term = scale_and_mask(term, node["scale"], node["mask"])
                total = total + self._by_chain(name, term, num_chains)
        return total

    def _by_chain(self, name: str, term: torch.Tensor, num_chains: int | None) -> torch.Tensor:
        """Sum of a term over everything but chains, (C,) or (1,)."""
        if num_chains is None or term.dim() <= self._num_dims:
            return term.double().sum().reshape(1)
        if term.dim() > self._num_dims + 1 or term.shape[0] not in (1, num_chains):
            raise _NotVectorised(f"the log-probability of {name!r} has the shape {tuple(term.shape)}")
        return term.double().reshape(len(term), -1).sum(-1)

    # What is decided once

    def _settle(self) -> None:
        """Find which intractable sites move, and whether chains can be evaluated together."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            points = self.random_points(_CHECKED)
        with torch.no_grad():
            apart = self._one_by_one(points)
            # A site whose parameters are those of every point, and not computed from it, is a constant.
            with torch.enable_grad():
                leaves = {name: value.clone().requires_grad_() for name, value in self._single(points, 0).items()}
                nodes, _ = self._run(leaves, None)
                # A gate that is shut here, such as an indicator of MixedGibbs, may open later.
                tied = {n for n, s in self.sites.items() if s.parameters(unwrapped(nodes[n]["fn"])[0]).requires_grad}
            moves = {name: bool((natural != natural[:1]).any()) for name, natural in apart.naturals.items()}
            names = [name for name, does_move in moves.items() if does_move or name in tied]
            if not names:
                expected = "an observed HierarchicalLogLinear, LogLinearStatistics or GeneralizedRoot"
                problem = f"{expected} whose parameters depend on a latent continuous site was expected, there is none"
                raise refused("model", problem, "use NUTS", code="missing-part")
            self._still = {name: site for name, site in self.sites.items() if name not in names}
            self.sites = {name: self.sites[name] for name in names}
            apart = apart._replace(naturals={name: apart.naturals[name] for name in self.sites})
            self.reason = self._disagreement(points, apart)
        self.is_together = self.reason is None

    def forget(self) -> None:
        """Other values of what the program is conditioned on: what stood still may stand elsewhere."""
        self._still_at = {}

    def _disagreement(self, points: Values, apart: Evaluation) -> str | None:
        """Why points cannot be evaluated together, in a clause; None where they can."""
        try:
            together = self._at(points, _CHECKED)
        except _NotVectorised as error:
            return str(error)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            return f"the program raises {type(error).__name__} for many chains at once"
        # Together and apart must agree to rounding, in densities and in natural parameters.
        least = _MOST_DIFFERENCE.get(min(self.dtypes.values(), key=lambda dtype: torch.finfo(dtype).bits), 1e-3)
        pairs = [(together.log_density, apart.log_density)]
        pairs += [(together.naturals[name], apart.naturals[name]) for name in self.sites]
        for left, right in pairs:
            if left.shape != right.shape or not torch.allclose(left, right, rtol=least, atol=least, equal_nan=True):
                return "chains side by side get other log-probabilities than each by itself"
        return None


def is_constant_law(law: Any) -> bool:
    """Whether a law is an intractable one; where it is not among those that move it is a constant."""
    return isinstance(law, HierarchicalLogLinear | LogLinearStatistics | GeneralizedRoot)


def _num_dims(nodes: Mapping[str, Any]) -> int:
    """Batch dimensions that a program uses, plates or not."""
    dims = [0]
    for node in nodes.values():
        event_dim = len(node["fn"].event_shape)
        dims += [len(node["fn"].batch_shape), node["value"].dim() - event_dim]
        dims += [-frame.dim for frame in node["cond_indep_stack"] if frame.vectorized]
    return max(dims)


# The mode and the curvature of a program, and kernels on it.

_MOST_PARAMETERS = 2000
_STEPS = {torch.float64: 1e-4, torch.float32: 1e-2}
_AT_ONCE = 64
_LEAST_SHARE = 1e-8


def laplace(program: IntractableProgram, start: Values) -> tuple[torch.Tensor, torch.Tensor]:
    """Mode (P,) of the surrogate posterior from the first of the points ``start``, and inverse curvature (P, P)."""
    if program.size > _MOST_PARAMETERS:
        problem = f"{program.size} parameters, the curvature is found of at most {_MOST_PARAMETERS}"
        raise out_of_reach("proposal", problem, "use proposal='adaptive' (Langevin: preconditioner='none')")
    # One point says where the others are: sites that do not move stay as they are there.
    first = {name: value[:1] for name, value in start.items()}

    def evaluate(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            leaf = vectors.clone().requires_grad_()
            others = {name: value.expand(len(vectors), *value.shape[1:]) for name, value in first.items()}
            value = program.surrogate(program.unflat(leaf, others))
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), slope

    def objective(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, slope = evaluate(torch.from_numpy(vector).unsqueeze(0))
        if not bool(torch.isfinite(value)) or not bool(torch.isfinite(slope).all()):
            return 1e300, np.zeros_like(vector)
        return -float(value), -slope[0].numpy()

    # The mode, and the Hessian there by differences of gradients on both sides of every coordinate.
    solution = optimize.minimize(objective, program.flat(first)[0].numpy(), jac=True, method="L-BFGS-B")
    mode = torch.from_numpy(np.asarray(solution.x, dtype=np.float64))
    step = max(_STEPS.get(program.dtypes[name], 1e-2) for name in program.moved)
    around = step * torch.eye(len(mode), dtype=torch.float64)
    both = torch.cat([mode + around, mode - around])
    up, down = torch.cat([evaluate(part)[1] for part in both.split(_AT_ONCE)]).split(len(mode))
    curvature = (down - up) / (2 * step)
    curvature = (curvature + curvature.mT) / 2
    if not bool(torch.isfinite(curvature).all()):
        return mode, torch.eye(len(curvature), dtype=torch.float64)
    values, vectors = torch.linalg.eigh(curvature)
    # Where the surrogate is flat or turns up it says nothing of the spread: one is that of unconstrained priors.
    values = torch.where(values > _LEAST_SHARE * values.abs().max().clamp(min=1.0), values, torch.ones_like(values))
    return mode, (vectors / values) @ vectors.mT


_SPREAD = 2.0
"""Chains start from draws of this multiple of the Laplace approximation's standard deviations."""


class IntractableKernel(LaneKernel):
    """A kernel on a program with intractable sites, with or without a dimension of chains."""

    _recorded: ClassVar[tuple[str, ...]]

    def __init__(self, program: Callable[..., Any], sites: Sequence[str] | None, num_chains: int | None) -> None:
        if not callable(program):
            raise wrong_type("program", "a Pyro program", program)
        if isinstance(sites, str):
            raise wrong_type("sites", "a sequence of names", received=f"the string {sites!r}")
        self.model = program
        self.num_chains = None if num_chains is None else check_whole(num_chains, "num_chains")
        self._names = None if sites is None else tuple(sites)
        self._given: Values | None = None
        self.transforms: Any = None  # None makes Pyro's MCMC set the kernel up where chains ran in other processes
        self._clear()

    @override
    def _clear(self) -> None:
        self._chain: Any = None
        self._present: Any = None
        self._initial: Values = {}
        self._is_exact: bool | None = None
        self._evaluation: str = ""
        self._warmup_steps = self._num_transitions = 0
        self._record: dict[str, list[torch.Tensor]] = {name: [] for name in self._recorded}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the chain, which belongs to one process; a copy is set up again."""
        bare: Any = object.__new__(type(self))
        vars(bare).update(vars(self))
        bare._clear()
        return {**vars(bare), "transforms": None}

    # What is known of a chain

    @property
    def is_exact(self) -> bool:
        """Whether the chain that is set up leaves the posterior invariant; no kernel here that estimates does."""
        if self._is_exact is None:
            raise no_chain(self)
        return self._is_exact

    @property
    def evaluation(self) -> str:
        """How the program is evaluated: "together", or "one by one" with the reason; empty before :meth:`setup`."""
        return self._evaluation

    def _set_up(self) -> Any:
        if self._chain is None:
            raise no_chain(self)
        return self._chain

    @property
    def initial_params(self) -> Values:  # type: ignore[override]
        """Where the chain starts, unconstrained: the values set, or draws around the mode or within two of zero."""
        return {name: self._emitted(value) for name, value in self._initial.items()} or dict(self._given or {})

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor] | None) -> None:
        self._given = checked_params(params)

    def _emitted(self, value: torch.Tensor) -> torch.Tensor:
        r"""Values (C, \*shape) as they are handed out."""
        return (value[0] if self.num_chains is None else value).clone()

    def _taken(self, params: Mapping[str, torch.Tensor]) -> Values:
        """Values as they come in with a dimension of chains."""
        return {name: value.unsqueeze(0) if self.num_chains is None else value for name, value in params.items()}

    # The protocol of Pyro's kernels

    def _begin(
        self, warmup_steps: int, args: Sequence[Any], kwargs: Mapping[str, Any], *, finds_mode: bool
    ) -> tuple[IntractableProgram, Values, tuple[torch.Tensor, torch.Tensor] | None]:
        """The program, first points of positive density, and Laplace's law where asked for."""
        self._clear()
        self._warmup_steps = warmup_steps
        program = IntractableProgram(self.model, args, kwargs, self._names)
        num_chains = self.num_chains or 1
        points = program.valid_points(num_chains) if self._given is None else self._checked(program, num_chains)
        if not finds_mode:
            return program, points, None
        mode, covariance = laplace(program, points)
        if self._given is None:
            # Chains start around the mode, but where that is impossible, where they are.
            noise = torch.randn(num_chains, len(mode), dtype=torch.float64)
            near = program.unflat(mode + _SPREAD * noise @ torch.linalg.cholesky(covariance).mT, points)
            is_valid = program.is_valid(program.evaluate(near))
            points = {name: where(is_valid, value, points[name]) for name, value in near.items()}
        return program, points, (mode, covariance)

    def _settle(self, program: IntractableProgram, points: Values, *, is_exact: bool) -> None:
        """Where the chain starts, and what is known of it."""
        self._initial = points
        self.transforms = program.transforms
        self._is_exact = is_exact
        self._evaluation = "together" if program.reason is None else f"one by one, because {program.reason}"

    def _checked(self, program: IntractableProgram, num_chains: int) -> Values:
        """The initial values that were set, where they are possible."""
        # All latent sites are given, of the right shapes, and at a place of positive density.
        given = self._taken(self._given or {})
        check_names(given, program.latent, "initial_params", "latent site")
        if missing := [name for name in program.latent if name not in given]:
            raise refused("initial_params", f"site {missing[0]!r} is missing", code="missing-part")
        for name, value in given.items():
            expected = (num_chains, *program.shapes[name])
            if tuple(value.shape) != expected:
                shown = expected if self.num_chains is not None else expected[1:]
                received = tuple(value.shape) if self.num_chains is not None else tuple(value.shape[1:])
                raise unexpected(
                    f"initial_params[{name!r}]", f"shape {shown}", received=f"shape {received}", code="wrong-shape"
                )
        points = {name: given[name].detach().to(program.dtypes[name]) for name in program.latent}
        if not bool(program.is_valid(program.evaluate(points)).all()):
            raise unexpected("initial_params", "values of positive density", code="impossible")
        return points

    def clear_cache(self) -> None:
        """Forget what is known of the present values: the program has changed."""
        self._present = None
        if self._chain is not None:
            self._chain.program.forget()

    @override
    def _statistics(self) -> Values:
        empty = torch.zeros(0, self.num_chains or 1)
        return {name: torch.stack(values) if values else empty for name, values in self._record.items()}

    @override
    def _report(self, record: Values) -> dict[str, Any]:
        # Divergences are positions of draws, not statistics.
        is_diverging = record.pop("is_diverging", None)
        exact = torch.full_like(next(iter(record.values())), float(bool(self._is_exact)))
        where_diverging = [] if is_diverging is None else is_diverging.reshape(len(exact), -1).any(-1).nonzero()
        report: dict[str, Any] = {"divergences": [int(i) for i in where_diverging]}
        if (accepted := record.get("is_accepted")) is not None:
            report["acceptance rate"] = float(accepted.mean()) if accepted.numel() else math.nan
        statistics = {name: value.tolist() for name, value in {**record, "is_exact": exact}.items()}
        is_exact = bool(self._is_exact)
        return {**report, "is_exact": is_exact, "evaluation": self._evaluation, "sample_stats": statistics}

    @override
    def cleanup(self) -> None:
        """Let go of the chain and of initial values; the diagnostics stay until the next :meth:`setup`."""
        self._chain = self._present = self._given = None


def where(condition: torch.Tensor, value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """By chain one or the other value (C, ...)."""
    return torch.where(condition.reshape(-1, *(1,) * (value.dim() - 1)), value, other)
