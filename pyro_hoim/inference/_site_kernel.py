"""What kernels of one site have in common whose chains are an object of :mod:`pyro_hoim.sampling`."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel

from ..errors import InputError, InputTypeError
from ..sampling.arguments import positive

__all__ = ["SiteKernel"]


class SiteKernel(MCMCKernel):
    """Pyro's protocol for chains with ``domain``, ``sweep(n)`` and the names of the variables held fixed.

    Args:
        num_sweeps: sweeps per transition.
        num_chains: None for one chain without a dimension of its own.
        site: name of the site.

    Raises:
        InputError: numbers below 1.
    """

    model_noun: ClassVar[str]
    statistic: ClassVar[str]

    def __init__(self, *, num_sweeps: int, num_chains: int | None, site: str) -> None:
        self.num_sweeps = positive(num_sweeps, "num_sweeps")
        self.num_chains = None if num_chains is None else positive(num_chains, "num_chains")
        self.site = site
        # Pyro reads both after the last draw; ArviZ would call a model.
        self.transforms: dict[str, Any] = {}
        self.model = None
        self._given: torch.Tensor | None = None
        self._reset()

    def _reset(self) -> None:
        """Forget the chain."""
        self._chains: Any = None
        self._emitted: torch.Tensor | None = None
        self._warmup_steps = 0
        self._num_transitions = 0
        self._drawn: list[torch.Tensor] = []

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the chain, which belongs to one process; a copy is set up again."""
        return {**self.__dict__, "_chains": None, "_emitted": None}

    def with_chains(self, num_chains: int) -> Self:
        """A copy whose values have a leading dimension of ``num_chains`` chains.

        Raises:
            InputError: a number below 1.
        """
        result = copy.copy(self)
        result.num_chains = positive(num_chains, "num_chains")
        result._given = None
        result._reset()
        return result

    # What a kernel adds

    @abstractmethod
    def _make_chains(self, num_chains: int, init: torch.Tensor | None, seed: int) -> Any:
        """New chains."""

    @abstractmethod
    def _states(self, chains: Any) -> torch.Tensor:
        """States of the chains, (num_chains, d)."""

    @abstractmethod
    def _put(self, chains: Any, states: torch.Tensor) -> None:
        """Replace all states."""

    @abstractmethod
    def _fixed(self, chains: Any) -> tuple[str, ...]:
        """Names of the variables that are held fixed."""

    @abstractmethod
    def _kept(self, states: torch.Tensor) -> torch.Tensor:
        """What is kept of the states of a draw for the statistic."""

    @abstractmethod
    def _statistics(self, drawn: torch.Tensor) -> torch.Tensor:
        """The statistic (draws, chains) of all that was kept."""

    def _dtype(self) -> torch.dtype:
        """Type of the values."""
        return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32

    # The protocol of Pyro's kernels

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        """Start a chain; whatever an earlier one left is forgotten.

        Args:
            warmup_steps: transitions that leave no statistics.
            args: none are taken.
            kwargs: likewise.

        Raises:
            InputError: arguments, or what the chains refuse.
        """
        self._reset()
        if args or kwargs:
            raise InputError(f"setup: a {self.model_noun} takes no arguments")
        seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu"))
        self._warmup_steps = warmup_steps
        self._chains = self._make_chains(self.num_chains or 1, self._given, seed)
        self._emitted = self._values(self._states(self._chains))

    def _values(self, states: torch.Tensor) -> torch.Tensor:
        """States of the chains as floats, in the shape of the site."""
        states = states[0] if self.num_chains is None else states
        return states.to(self._dtype())

    def _running(self) -> tuple[Any, torch.Tensor]:
        if self._chains is None or self._emitted is None:
            raise InputError(f"{type(self).__name__}: no chain is set up; call setup() first")
        return self._chains, self._emitted

    @property
    def initial_params(self) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Where the chain starts: the values set, or values drawn at random."""
        return {self.site: self._running()[1].clone()}

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor] | None) -> None:
        if params is None:
            self._given = None
            return
        if not isinstance(params, Mapping) or not all(isinstance(v, torch.Tensor) for v in params.values()):
            raise InputTypeError(f"initial_params: expected a dict of tensors, received {type(params).__name__}")
        if set(params) != {self.site}:
            raise InputError(f"initial_params: expected values of {self.site!r} alone, received {sorted(params)}")
        self._given = params[self.site]

    def sample(self, params: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One transition from the given values, which need not be those of the last one.

        Raises:
            InputError: no chain is set up, or a value outside the domain.
        """
        chains, emitted = self._running()
        values = params[self.site]
        if not torch.equal(values.to(emitted), emitted):
            held = self._states(chains)
            states = values.expand(held.shape).clone()
            fixed = [chains.domain.index(name) for name in self._fixed(chains)]
            states[:, fixed] = held[:, fixed].to(states)
            self._put(chains, states)
        chains.sweep(self.num_sweeps)
        self._num_transitions += 1
        states = self._states(chains)
        if self._num_transitions > self._warmup_steps:
            self._drawn.append(self._kept(states))
        self._emitted = self._values(states)
        return {self.site: self._emitted.clone()}

    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Nothing for the progress bar."""
        return {}

    def diagnostics(self) -> dict[str, Any]:
        """No divergences, and under ``"sample_stats"`` a statistic of every draw after warm-up, in nats.

        With a dimension of chains it is a list of draws of lists of chains.
        """
        values = self._all_statistics()
        return self._report((values[:, 0] if self.num_chains is None else values).tolist())

    def chain_diagnostics(self) -> list[dict[str, Any]]:
        """Diagnostics of every chain by itself."""
        return [self._report(column.tolist()) for column in self._all_statistics().unbind(-1)]

    def _all_statistics(self) -> torch.Tensor:
        """The statistic (draws, chains) of all draws, found at once."""
        if not self._drawn:
            return torch.zeros(0, self.num_chains or 1)
        with torch.no_grad():
            return self._statistics(torch.stack(self._drawn))

    def _report(self, values: list[Any]) -> dict[str, Any]:
        return {"divergences": [], "sample_stats": {self.statistic: values}}

    def cleanup(self) -> None:
        """Let go of the chain and of initial values; the diagnostics stay until the next :meth:`setup`."""
        self._chains = self._emitted = self._given = None
