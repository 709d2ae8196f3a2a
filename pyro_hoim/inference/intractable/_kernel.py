"""What kernels for programs with intractable sites share: setup, initial values, chains as a dimension, statistics."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from typing_extensions import override

from ...errors import check_names, check_whole, refused, unexpected, wrong_type
from ._program import IntractableProgram, Values
from ._proposals import Coordinates

_SPREAD = 2.0
"""Chains start from draws of this multiple of the Laplace approximation's standard deviations."""


class IntractableKernel(MCMCKernel):
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

    def with_chains(self, num_chains: int) -> Self:
        """A copy whose values have a leading dimension of ``num_chains`` chains."""
        result = copy.copy(self)
        result.num_chains = check_whole(num_chains, "num_chains")
        result._given = None
        result._clear()
        return result

    # What is known of a chain

    @property
    def is_exact(self) -> bool:
        """Whether the chain that is set up leaves the posterior invariant; no kernel here that estimates does."""
        if self._is_exact is None:
            raise refused(type(self).__name__, "no chain is set up", "call setup() first", code="missing-part")
        return self._is_exact

    @property
    def evaluation(self) -> str:
        """How the program is evaluated: "together", or "one by one" with the reason; empty before :meth:`setup`."""
        return self._evaluation

    def _set_up(self) -> Any:
        if self._chain is None:
            raise refused(type(self).__name__, "no chain is set up", "call setup() first", code="missing-part")
        return self._chain

    @property
    def initial_params(self) -> Values:  # type: ignore[override]
        """Where the chain starts, unconstrained: the values set, or draws around the mode or within two of zero."""
        return {name: self._emitted(value) for name, value in self._initial.items()} or dict(self._given or {})

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor] | None) -> None:
        if params is not None and not (
            isinstance(params, Mapping) and all(isinstance(value, torch.Tensor) for value in params.values())
        ):
            raise wrong_type("initial_params", "a dict of tensors", params)
        self._given = None if params is None else dict(params)

    def _emitted(self, value: torch.Tensor) -> torch.Tensor:
        r"""Values (C, \*shape) as they are handed out."""
        return (value[0] if self.num_chains is None else value).clone()

    def _taken(self, params: Mapping[str, torch.Tensor]) -> Values:
        """Values as they come in with a dimension of chains."""
        return {name: value.unsqueeze(0) if self.num_chains is None else value for name, value in params.items()}

    # The protocol of Pyro's kernels

    def _begin(
        self, warmup_steps: int, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[IntractableProgram, Coordinates, Values]:
        """The program with its coordinates, and first points of positive density."""
        self._clear()
        self._warmup_steps = warmup_steps
        program = IntractableProgram(self.model, args, kwargs, self._names)
        num_chains = self.num_chains or 1
        points = program.valid_points(num_chains) if self._given is None else self._checked(program, num_chains)
        return program, Coordinates(program), points

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
                found = tuple(value.shape) if self.num_chains is not None else tuple(value.shape[1:])
                raise unexpected(
                    f"initial_params[{name!r}]", f"shape {shown}", received=f"shape {found}", code="wrong-shape"
                )
        points = {name: given[name].detach().to(program.dtypes[name]) for name in program.latent}
        if not bool(program.is_valid(program.evaluate(points)).all()):
            raise unexpected("initial_params", "values of positive density", code="impossible")
        return points

    def _around(
        self,
        program: IntractableProgram,
        coordinates: Coordinates,
        points: Values,
        mode: torch.Tensor,
        covariance: torch.Tensor,
    ) -> Values:
        """Points spread around the mode, and those given where one of them is impossible."""
        noise = torch.randn(self.num_chains or 1, len(mode), dtype=torch.float64)
        near = coordinates.points(mode + _SPREAD * noise @ torch.linalg.cholesky(covariance).mT, points)
        is_valid = program.is_valid(program.evaluate(near))
        return {name: where(is_valid, value, points[name]) for name, value in near.items()}

    def clear_cache(self) -> None:
        """Forget what is known of the present values: the program has changed."""
        self._present = None
        if self._chain is not None:
            self._chain.program.forget()

    @override
    def diagnostics(self) -> dict[str, Any]:
        """Divergences, acceptance where there is one, ``is_exact``, and ``"sample_stats"`` of every draw.

        With a dimension of chains these are lists of draws of lists of chains.
        """
        record = self._stacked()
        return self._report({n: v[:, 0] if self.num_chains is None else v for n, v in record.items()})

    def chain_diagnostics(self) -> list[dict[str, Any]]:
        """Diagnostics of every chain by itself."""
        record = self._stacked()
        return [
            self._report({name: value[:, i] for name, value in record.items()}) for i in range(self.num_chains or 1)
        ]

    def _stacked(self) -> Values:
        """Statistics (draws, chains)."""
        empty = torch.zeros(0, self.num_chains or 1)
        return {name: torch.stack(values) if values else empty for name, values in self._record.items()}

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
