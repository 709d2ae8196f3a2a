"""Pseudo-Gibbs sampling of a dependency network as a Pyro kernel."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel

from ..errors import InputError, InputTypeError
from ..models import DependencyConditionals
from ..sampling import PseudoGibbsChains
from ..sampling.arguments import positive
from ..sampling.pseudo_gibbs import Scan, WalkerName
from ..sampling.pseudo_gibbs_arguments import checked_conditionals

__all__ = ["PseudoGibbs"]


class PseudoGibbs(MCMCKernel):
    r"""Pseudo-Gibbs sampling of a dependency network as a Pyro kernel.

    The target is the limiting law of the scan: :math:`\pi(x)`, or :math:`\pi'(x \mid x_C)` with clamped variables. One
    transition is ``num_sweeps`` sweeps. With a sequential scan the draws follow the law just after the last variable of
    the order.

    The kernel runs in ``pyro.infer.MCMC``, there with several chains in processes of their own (started by "spawn" or
    "fork"), and in :func:`~pyro_hoim.inference.run_mcmc`, where all chains are one tensor and move together. Pyro's
    MCMC breaks on integer sites, so the kernel emits the codes as floats, which are exact; :meth:`decode` makes
    ``torch.long`` of them, and ``run_mcmc`` does that by itself.

    Args:
        conditionals: the network, or a law that holds one as ``conditionals``.
        scan: "random" or "sequential".
        order: order of a sequential scan, see :class:`~pyro_hoim.sampling.PseudoGibbsChains`.
        selection: probabilities of a random scan, likewise.
        num_sweeps: sweeps per transition.
        clamped: variables held fixed, ``{name: label, code or codes per chain}``.
        num_chains: None for one chain without a dimension of its own, which is what ``pyro.infer.MCMC`` expects; a
            number puts a dimension of so many chains in front of every value.
        engine: see :class:`~pyro_hoim.sampling.PseudoGibbsChains`.
        precision: of the compiled conditionals, likewise.
        check: refuse networks without a single limiting law, likewise; done when a chain is set up.
        site: name of the site.

    Shape:
        values (d,), or (num_chains, d).

    Raises:
        InputError: numbers below 1; when a chain is set up all that the chains refuse.
        InputTypeError: arguments of the wrong type.

    Randomness:
        :meth:`setup` draws one seed from PyTorch's global generator, so ``pyro.set_rng_seed`` makes a run
        reproducible; the processes of Pyro's MCMC have seeds of their own, hence streams of their own.

    References:
        Paper 5, algorithms 1 and 3.

    Example:
        >>> from pyro.infer import MCMC
        >>> from pyro_hoim.models import TableConditional
        >>> from pyro_hoim.schema import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> a = TableConditional(domain, "a", ["b"], torch.tensor([[0.9, 0.1], [0.4, 0.6]]))
        >>> b = TableConditional(domain, "b", ["a"], torch.tensor([[0.3, 0.7], [0.5, 0.5]]))
        >>> kernel = PseudoGibbs(DependencyConditionals([a, b]), clamped={"b": 1}, engine="torch")
        >>> mcmc = MCMC(kernel, num_samples=20, warmup_steps=5, disable_progbar=True)
        >>> mcmc.run()
        >>> draws = kernel.decode(mcmc.get_samples())["x"]
        >>> draws.shape, draws.dtype, int(draws[:, 1].min())
        (torch.Size([20, 2]), torch.int64, 1)
    """

    def __init__(
        self,
        conditionals: DependencyConditionals,
        *,
        scan: Scan = "random",
        order: Sequence[str] | None = None,
        selection: Mapping[str, float] | None = None,
        num_sweeps: int = 1,
        clamped: Mapping[str, Any] | None = None,
        num_chains: int | None = None,
        engine: WalkerName = "auto",
        precision: torch.dtype = torch.float32,
        check: bool = True,
        site: str = "x",
    ) -> None:
        self.conditionals = checked_conditionals(conditionals)
        if clamped is not None and not isinstance(clamped, Mapping):
            raise InputTypeError(f"clamped: expected a mapping from names to values, received {type(clamped).__name__}")
        self.num_sweeps = positive(num_sweeps, "num_sweeps")
        self.num_chains = None if num_chains is None else positive(num_chains, "num_chains")
        self.site = site
        # Pyro reads both after the last draw; ArviZ would call a model.
        self.transforms: dict[str, Any] = {}
        self.model = None
        self._options: dict[str, Any] = {
            "scan": scan,
            "order": order,
            "selection": selection,
            "clamped": dict(clamped or {}),
            "engine": engine,
            "precision": precision,
            "check": check,
        }
        self._given: torch.Tensor | None = None
        self._reset()

    def _reset(self) -> None:
        """Forget the chain."""
        self._chains: PseudoGibbsChains | None = None
        self._emitted: torch.Tensor | None = None
        self._warmup_steps = 0
        self._num_transitions = 0
        self._drawn: list[torch.Tensor] = []

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the chain, which belongs to one process; a copy is set up again."""
        return {**self.__dict__, "_chains": None, "_emitted": None}

    def with_chains(self, num_chains: int) -> PseudoGibbs:
        """A copy whose values have a leading dimension of ``num_chains`` chains.

        Raises:
            InputError: a number below 1.
        """
        result = copy.copy(self)
        result.num_chains = positive(num_chains, "num_chains")
        result._given = None
        result._reset()
        return result

    # The protocol of Pyro's kernels

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        """Start a chain; whatever an earlier one left is forgotten.

        Args:
            warmup_steps: transitions that leave no statistics.
            args: a network takes none.
            kwargs: likewise.

        Raises:
            InputError: arguments, or what the chains refuse.
        """
        self._reset()
        if args or kwargs:
            raise InputError("setup: a dependency network takes no arguments")
        seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu"))
        self._warmup_steps = warmup_steps
        self._chains = PseudoGibbsChains(
            self.conditionals, self.num_chains or 1, init=self._given, seed=seed, **self._options
        )
        self._emitted = self._values(self._chains.codes)

    def _values(self, codes: torch.Tensor) -> torch.Tensor:
        """States of the chains as floats, in the shape of the site."""
        codes = codes[0] if self.num_chains is None else codes
        return codes.to(torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32)

    def _running(self) -> tuple[PseudoGibbsChains, torch.Tensor]:
        if self._chains is None or self._emitted is None:
            raise InputError("PseudoGibbs: no chain is set up; call setup() first")
        return self._chains, self._emitted

    @property
    def initial_params(self) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Where the chain starts: the values set, or independent uniform levels."""
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
            InputError: no chain is set up, or a code that is no level.
        """
        chains, emitted = self._running()
        values = params[self.site]
        if not torch.equal(values.to(emitted), emitted):
            held = chains.codes
            codes = values.expand(held.shape).clone()
            fixed = [chains.domain.index(name) for name in chains.clamped]
            codes[:, fixed] = held[:, fixed].to(codes)
            chains.set_codes(codes)
        chains.sweep(self.num_sweeps)
        self._num_transitions += 1
        codes = chains.codes
        if self._num_transitions > self._warmup_steps:
            self._drawn.append(codes.to(torch.int32))
        self._emitted = self._values(codes)
        return {self.site: self._emitted.clone()}

    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Nothing for the progress bar: a network has no energy."""
        return {}

    def diagnostics(self) -> dict[str, Any]:
        r"""No divergences, and under ``"sample_stats"`` the ``log_pseudo_prob`` of every draw after warm-up.

        This is :math:`\sum_i \log \theta_i(x_i \mid x_{-i})` in nats, not a log-probability. With a dimension of chains
        it is a list of draws of lists of chains.
        """
        values = self._log_pseudo_probs()
        return _report((values[:, 0] if self.num_chains is None else values).tolist())

    def chain_diagnostics(self) -> list[dict[str, Any]]:
        """Diagnostics of every chain by itself."""
        return [_report(column.tolist()) for column in self._log_pseudo_probs().unbind(-1)]

    def _log_pseudo_probs(self) -> torch.Tensor:
        """Log pseudo-probabilities (draws, chains) of all draws, found at once."""
        if not self._drawn:
            return torch.zeros(0, self.num_chains or 1)
        with torch.no_grad():
            return self.conditionals.log_pseudo_prob(torch.stack(self._drawn).long())

    def cleanup(self) -> None:
        """Let go of the chain and of initial values; the diagnostics stay until the next :meth:`setup`."""
        self._chains = self._emitted = self._given = None

    def decode(self, samples: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Draws with the codes as ``torch.long``, whatever dimensions are in front.

        Raises:
            InputError: a value that is not a whole number, which this kernel does not emit.
        """
        for name, value in samples.items():
            if not torch.equal(value, value.round()):
                raise InputError(f"samples: expected whole numbers, received others in {name!r}")
        return {name: value.long() for name, value in samples.items()}


def _report(values: list[Any]) -> dict[str, Any]:
    return {"divergences": [], "sample_stats": {"log_pseudo_prob": values}}
