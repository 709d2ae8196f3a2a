"""What kernels for programs with intractable sites share: setup, initial values, chains as a dimension, statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from typing_extensions import override

from ...errors import check_names, check_whole, out_of_reach, refused, unexpected, wrong_type
from ..kernels import LaneKernel, checked_params, no_chain
from ._program import IntractableProgram, Values

# Proposals of unconstrained parameters: their shape, and how warm-up scales it.

ProposalName = Literal["pseudo-likelihood", "autoregressive", "adaptive"]

_BEST = 2.38
_TARGET = 0.234
_DECAY = 0.6
_GAIN = 2.0
_HALVES = (4, 3, 2, 1)
_LEAST_STEPS = 8
_MOST_PARAMETERS = 2000
_STEPS = {torch.float64: 1e-4, torch.float32: 1e-2}
_AT_ONCE = 64
_LEAST_SHARE = 1e-8
_FIRST_SCALE = 0.1
_WIDER = 1.1
_MOST_LOG_SCALE = 5.0


class Coordinates:
    """Values of the sites that move as one vector (C, P) of float64, and back."""

    def __init__(self, program: IntractableProgram) -> None:
        self._program = program
        self.size = sum(program.shapes[name].numel() for name in program.moved)

    def flat(self, points: Values) -> torch.Tensor:
        """Vectors of points."""
        parts = [points[name].double().reshape(len(points[name]), -1) for name in self._program.moved]
        return torch.cat(parts, -1)

    def points(self, vectors: torch.Tensor, others: Values) -> Values:
        """Points of vectors, with the sites that do not move as in ``others``."""
        sizes = [self._program.shapes[name].numel() for name in self._program.moved]
        found = dict(others)
        for name, part in zip(self._program.moved, vectors.split(sizes, -1), strict=True):
            shape = (len(vectors), *self._program.shapes[name])
            found[name] = part.reshape(shape).to(self._program.dtypes[name])
        return found


class RandomWalk:
    r"""Steps :math:`s\,(2.38 / \sqrt P)\,L\,\epsilon` with a scale s that warm-up tunes to an acceptance of 0.234.

    Args:
        covariance: :math:`L L^\top`, (P, P).
        warmup_steps: transitions of warm-up; where the covariance is learned from them (Haario, Saksman and Tamminen,
            2001) it is found anew at 1/16, 1/8, ... 1/2 of them, from the draws since the last time. None keeps it.
    """

    def __init__(self, covariance: torch.Tensor, warmup_steps: int | None = None) -> None:
        self._size = len(covariance)
        self._factor = torch.linalg.cholesky(covariance)
        self._learns = [] if warmup_steps is None else sorted({max(_LEAST_STEPS, warmup_steps >> k) for k in _HALVES})
        self._log_scale = math.log(_FIRST_SCALE) if self._learns else 0.0
        self._steps = self._since = 0
        self._kept: list[torch.Tensor] = []

    @property
    def scale(self) -> float:
        """The present scale s."""
        return math.exp(self._log_scale)

    @property
    def _width(self) -> float:
        """Standard deviation of a step in units of the shape."""
        return self.scale * _BEST / math.sqrt(self._size)

    def propose(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Proposals from vectors (C, P), and what their density adds to the log ratio, (C,)."""
        noise = torch.randn(vectors.shape, dtype=torch.float64) @ self._factor.mT
        return vectors + self._width * noise, torch.zeros(len(vectors), dtype=torch.float64)

    def adapt(self, acceptance: float, vectors: torch.Tensor) -> None:
        """Learn from one transition of warm-up: its mean acceptance and where the chains are, (C, P)."""
        self._steps, self._since = self._steps + 1, self._since + 1
        change = (acceptance - _TARGET) * _GAIN / self._since**_DECAY
        self._log_scale = min(self._log_scale + change, _MOST_LOG_SCALE)
        if not self._learns:
            return
        self._kept.append(vectors)
        if self._steps >= self._learns[0]:
            draws = torch.cat(self._kept)
            if len(draws) > self._size:
                self._factor = torch.linalg.cholesky(definite(torch.cov(draws.mT).reshape(self._size, self._size)))
                self._log_scale, self._since = 0.0, 0
            self._kept.clear()
            self._learns.pop(0)


class Autoregression(RandomWalk):
    r"""Steps :math:`m + \sqrt{1 - b^2} (\theta - m) + b L \epsilon` with a width b that warm-up tunes.

    They leave a normal law about the mode m invariant, a little wider than the Laplace approximation, so that the ratio
    is that of the posterior to this law: nearly constant where there are many rows.
    """

    def __init__(self, mode: torch.Tensor, covariance: torch.Tensor) -> None:
        super().__init__(_WIDER**2 * covariance)
        self._mode = mode

    @property
    @override
    def _width(self) -> float:
        return min(super()._width, 1.0)

    @override
    def propose(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        away, width = vectors - self._mode, self._width
        noise = torch.randn(vectors.shape, dtype=torch.float64) @ self._factor.mT
        proposed = math.sqrt(1 - width**2) * away + width * noise
        return self._mode + proposed, self._depth(proposed) - self._depth(away)

    def _depth(self, away: torch.Tensor) -> torch.Tensor:
        """Minus the log density of the law that is left invariant, up to a constant, (C,)."""
        return torch.linalg.solve_triangular(self._factor, away.mT, upper=False).square().sum(0) / 2


def laplace(program: IntractableProgram, coordinates: Coordinates, start: Values) -> tuple[torch.Tensor, torch.Tensor]:
    """Mode (P,) of the surrogate posterior from the first of the points ``start``, and inverse curvature (P, P)."""
    if coordinates.size > _MOST_PARAMETERS:
        problem = f"{coordinates.size} parameters, the curvature is found of at most {_MOST_PARAMETERS}"
        raise out_of_reach("proposal", problem, "use proposal='adaptive' (Langevin: preconditioner='none')")
    first = {name: value[:1] for name, value in start.items()}

    def evaluate(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            leaf = vectors.clone().requires_grad_()
            others = {name: value.expand(len(vectors), *value.shape[1:]) for name, value in first.items()}
            value = program.surrogate(coordinates.points(leaf, others))
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), slope

    def objective(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, slope = evaluate(torch.from_numpy(vector).unsqueeze(0))
        if not bool(torch.isfinite(value)) or not bool(torch.isfinite(slope).all()):
            return 1e300, np.zeros_like(vector)
        return -float(value), -slope[0].numpy()

    solution = optimize.minimize(objective, coordinates.flat(first)[0].numpy(), jac=True, method="L-BFGS-B")
    mode = torch.from_numpy(np.asarray(solution.x, dtype=np.float64))
    step = max(_STEPS.get(program.dtypes[name], 1e-2) for name in program.moved)
    around = step * torch.eye(len(mode), dtype=torch.float64)
    both = torch.cat([mode + around, mode - around])
    up, down = torch.cat([evaluate(part)[1] for part in both.split(_AT_ONCE)]).split(len(mode))
    return mode, _inverse_curvature((down - up) / (2 * step))


def _inverse_curvature(curvature: torch.Tensor) -> torch.Tensor:
    """Inverse of minus a Hessian (P, P) that rounding made uneven, positive definite."""
    curvature = (curvature + curvature.mT) / 2
    if not bool(torch.isfinite(curvature).all()):
        return torch.eye(len(curvature), dtype=torch.float64)
    values, vectors = torch.linalg.eigh(curvature)
    # Where the surrogate is flat or turns up it says nothing of the spread: one is that of unconstrained priors.
    values = torch.where(values > _LEAST_SHARE * values.abs().max().clamp(min=1.0), values, torch.ones_like(values))
    return (vectors / values) @ vectors.mT


def definite(covariance: torch.Tensor) -> torch.Tensor:
    """A covariance with its smallest variances raised so that it has a Cholesky factor."""
    spread = covariance.diagonal().mean().clamp(min=1e-12)
    return covariance + 1e-6 * spread * torch.eye(len(covariance), dtype=torch.float64)


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
    ) -> tuple[IntractableProgram, Coordinates, Values, tuple[torch.Tensor, torch.Tensor] | None]:
        """The program with its coordinates, first points of positive density, and Laplace's law where asked for."""
        self._clear()
        self._warmup_steps = warmup_steps
        program = IntractableProgram(self.model, args, kwargs, self._names)
        num_chains = self.num_chains or 1
        points = program.valid_points(num_chains) if self._given is None else self._checked(program, num_chains)
        coordinates = Coordinates(program)
        if not finds_mode:
            return program, coordinates, points, None
        mode, covariance = laplace(program, coordinates, points)
        if self._given is None:
            # Chains start around the mode, but where that is impossible, where they are.
            noise = torch.randn(num_chains, len(mode), dtype=torch.float64)
            near = coordinates.points(mode + _SPREAD * noise @ torch.linalg.cholesky(covariance).mT, points)
            is_valid = program.is_valid(program.evaluate(near))
            points = {name: where(is_valid, value, points[name]) for name, value in near.items()}
        return program, coordinates, points, (mode, covariance)

    def _settle(self, program: IntractableProgram, points: Values, *, is_exact: bool) -> None:
        """Where the chain starts, and what is known of it."""
        self._initial = points
        self.transforms = program.transforms
        self._is_exact = is_exact
        self._evaluation = "together" if program.reason is None else f"one by one, because {program.reason}"

    def _checked(self, program: IntractableProgram, num_chains: int) -> Values:
        """The initial values that were set, where they are possible."""
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
        is_diverging = record.pop("is_diverging", None)
        exact = torch.full_like(next(iter(record.values())), float(bool(self._is_exact)))
        where_diverging = [] if is_diverging is None else is_diverging.reshape(len(exact), -1).any(-1).nonzero()
        found: dict[str, Any] = {"divergences": [int(i) for i in where_diverging]}
        if (accepted := record.get("is_accepted")) is not None:
            found["acceptance rate"] = float(accepted.mean()) if accepted.numel() else math.nan
        statistics = {name: value.tolist() for name, value in {**record, "is_exact": exact}.items()}
        is_exact = bool(self._is_exact)
        return {**found, "is_exact": is_exact, "evaluation": self._evaluation, "sample_stats": statistics}

    @override
    def cleanup(self) -> None:
        """Let go of the chain and of initial values; the diagnostics stay until the next :meth:`setup`."""
        self._chain = self._present = self._given = None


def where(condition: torch.Tensor, value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """By chain one or the other value (C, ...)."""
    return torch.where(condition.reshape(-1, *(1,) * (value.dim() - 1)), value, other)
