"""What kernels of one site have in common whose chains are an object of :mod:`pyro_hoim.log_linear.chains`."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import torch
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel

from ..errors import InputError, InputTypeError
from ..runs.arguments import positive


def checked_mapping(values: Mapping[str, Any] | None, argument: str) -> dict[str, Any]:
    """Values by name as a dict, empty for None; anything else is refused."""
    if values is not None and not isinstance(values, Mapping):
        raise InputTypeError(f"{argument}: expected a mapping from names to values, received {type(values).__name__}")
    return dict(values or {})


def decoded(samples: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Whole numbers that a kernel has emitted as floats, as ``torch.long``."""
    for name, value in samples.items():
        if not torch.equal(value, value.round()):
            raise InputError(f"samples: expected whole numbers, received others in {name!r}")
    return {name: value.long() for name, value in samples.items()}


class SiteKernel(MCMCKernel):
    """Pyro's protocol for chains with ``domain``, ``sweep(n)`` and the names of the variables held fixed.

    Args:
        num_sweeps: sweeps per transition.
        num_chains: None for one chain without a dimension of its own.
        site: name of the site; None where it is known only when a chain is set up.

    Raises:
        InputError: numbers below 1.
    """

    model_noun: ClassVar[str]
    statistic: ClassVar[str]
    finds_site: ClassVar[bool] = False
    """Whether the site may be known only when a chain is set up; names of initial values are then checked there."""

    def __init__(self, *, num_sweeps: int, num_chains: int | None, site: str | None) -> None:
        self.num_sweeps = positive(num_sweeps, "num_sweeps")
        self.num_chains = None if num_chains is None else positive(num_chains, "num_chains")
        self.site = site
        # Pyro reads both after the last draw; ArviZ would call a model.
        self.transforms: dict[str, Any] = {}
        self.model: Callable[..., Any] | None = None
        self._given: dict[str, torch.Tensor] | None = None
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
        """States of the chains, (num_chains, d), perhaps behind a batch."""

    @abstractmethod
    def _put(self, chains: Any, states: torch.Tensor) -> None:
        """Replace all states."""

    @abstractmethod
    def _fixed(self, chains: Any) -> tuple[str, ...]:
        """Names of the variables that are held fixed."""

    def _kept(self, chains: Any) -> torch.Tensor:
        """What is kept of a draw for the statistic: the states themselves."""
        return self._states(chains)

    @abstractmethod
    def _statistics(self, drawn: torch.Tensor) -> torch.Tensor:
        """The statistic (draws, chains) of all that was kept."""

    def _named(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        """All statistics of draws, by name, from the one that was found."""
        return {self.statistic: values}

    def _begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Take the arguments of a program: here there are none."""
        if args or kwargs:
            raise InputError(f"setup: a {self.model_noun} takes no arguments")

    def _values(self, states: torch.Tensor) -> torch.Tensor:
        """States of the chains in the shape of the site."""
        return states[0] if self.num_chains is None else states

    def _start(self, values: torch.Tensor) -> torch.Tensor:
        """What the chains take for values of the site, at the start."""
        return values

    def _states_of(self, values: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
        """New states from values of the site, beside the states that the chains hold."""
        return values.expand(held.shape).clone()

    def _dtype(self) -> torch.dtype:
        """Type of the values."""
        return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32

    # The protocol of Pyro's kernels

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        """Start a chain; whatever an earlier one left is forgotten.

        Args:
            warmup_steps: transitions that leave no statistics.
            args: arguments of a program.
            kwargs: likewise.

        Raises:
            InputError: arguments where there is no program, or what the chains refuse.
        """
        self._reset()
        self._begin(args, kwargs)
        seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu"))
        self._warmup_steps = warmup_steps
        start = None if self._given is None else self._start(self._at_site(self._given))
        self._chains = self._make_chains(self.num_chains or 1, start, seed)
        self._emit()

    def _at_site(self, params: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The only values that a mapping may hold."""
        if set(params) != {self.site}:
            raise InputError(f"initial_params: expected values of {self.site!r} alone, received {sorted(params)}")
        return next(iter(params.values()))

    def _emit(self) -> dict[str, torch.Tensor]:
        """The states of the chains as values of the site."""
        assert self.site is not None
        self._emitted = self._values(self._states(self._chains)).to(self._dtype())
        return {self.site: self._emitted.clone()}

    def _running(self) -> tuple[Any, str, torch.Tensor]:
        if self._chains is None or self.site is None or self._emitted is None:
            raise InputError(f"{type(self).__name__}: no chain is set up; call setup() first")
        return self._chains, self.site, self._emitted

    @property
    def initial_params(self) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Where the chain starts: the values set, or values drawn at random."""
        _, site, emitted = self._running()
        return {site: emitted.clone()}

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor] | None) -> None:
        if params is None:
            self._given = None
            return
        if not isinstance(params, Mapping) or not all(isinstance(v, torch.Tensor) for v in params.values()):
            raise InputTypeError(f"initial_params: expected a dict of tensors, received {type(params).__name__}")
        if not self.finds_site:
            self._at_site(params)
        self._given = dict(params)

    def sample(self, params: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One transition from the given values, which need not be those of the last one.

        Raises:
            InputError: no chain is set up, or a value outside the domain.
        """
        chains, site, emitted = self._running()
        values = params[site]
        if not torch.equal(values.to(emitted), emitted):
            held = self._states(chains)
            states = self._states_of(values, held)
            if fixed := [chains.domain.index(name) for name in self._fixed(chains)]:
                states[..., fixed] = held[..., fixed].to(states)
            self._put(chains, states)
        chains.sweep(self.num_sweeps)
        self._num_transitions += 1
        if self._num_transitions > self._warmup_steps:
            self._drawn.append(self._kept(chains))
        return self._emit()

    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Nothing for the progress bar."""
        return {}

    def diagnostics(self) -> dict[str, Any]:
        """No divergences, and under ``"sample_stats"`` a statistic of every draw after warm-up, in nats.

        With a dimension of chains it is a list of draws of lists of chains.
        """
        values = self._all_statistics()
        return self._report(values[:, 0] if self.num_chains is None else values)

    def chain_diagnostics(self) -> list[dict[str, Any]]:
        """Diagnostics of every chain by itself."""
        return [self._report(column) for column in self._all_statistics().unbind(-1)]

    def _all_statistics(self) -> torch.Tensor:
        """The statistic (draws, chains) of all draws, found at once."""
        if not self._drawn:
            return torch.zeros(0, self.num_chains or 1)
        with torch.no_grad():
            return self._statistics(torch.stack(self._drawn))

    def _report(self, values: torch.Tensor) -> dict[str, Any]:
        statistics = {name: found.tolist() for name, found in self._named(values).items()}
        return {"divergences": [], "sample_stats": statistics}

    def cleanup(self) -> None:
        """Let go of the chain and of initial values; the diagnostics stay until the next :meth:`setup`."""
        self._chains = self._emitted = self._given = None
