"""Block Gibbs as a Pyro kernel, for a program whose only latent site is a log-linear law."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel

from ..distributions import HierarchicalLogLinear
from ..errors import InputError, InputTypeError
from ..sampling import GibbsChains, GibbsSchedule
from ..sampling.chains import EngineName
from ._latent_laws import LatentLaw, find_latent_law, plain_energy

__all__ = ["BlockGibbs"]


class BlockGibbs(MCMCKernel):
    r"""Gibbs sampling of a log-linear law as a Pyro kernel; no normalising constant is needed.

    The target is :math:`p(x_F \mid x_C)`: the law of the free variables given the clamped ones. One transition is
    ``num_sweeps`` sweeps of the schedule, each of which leaves the target invariant.

    The kernel runs in ``pyro.infer.MCMC``, there with several chains in processes of their own (started by "spawn" or
    "fork"), and in :func:`~pyro_hoim.inference.run_mcmc`, where all chains are one tensor and move together. Pyro's
    MCMC breaks on integer sites, so the kernel emits the codes as floats, which are exact; :meth:`decode` makes
    ``torch.long`` of them, and ``run_mcmc`` does that by itself.

    Args:
        model: a :class:`~pyro_hoim.distributions.HierarchicalLogLinear`, or a Pyro program whose only latent site is
            one (inside plates too). Observed sites may be there as long as they do not depend on the latent value:
            a site that does would change the target, and is refused when the chain is set up.
        schedule: blocks and scan, single sites in order when None.
        num_sweeps: sweeps per transition.
        clamped: variables held fixed, ``{name: label, code or codes per batch element}``.
        num_chains: None for one chain without a dimension of its own, which is what ``pyro.infer.MCMC`` expects; a
            number puts a dimension of so many chains in front of every value.
        engine: see :class:`~pyro_hoim.sampling.GibbsChains`.
        precision: of the conditionals, likewise.
        site: name of the site where ``model`` is a law; that of a program is its own.

    Shape:
        values (\*batch, d), or (num_chains, \*batch, d); batch is that of the law, plates included.

    Raises:
        InputError: numbers below 1; when a chain is set up: other latent sites, observed sites that depend on the
            latent one, a masked or scaled latent site, a clamped value or initial code that is no level.
        InputTypeError: arguments of the wrong type.

    Randomness:
        :meth:`setup` draws one seed from PyTorch's global generator, so ``pyro.set_rng_seed`` makes a run
        reproducible; the processes of Pyro's MCMC have seeds of their own, hence streams of their own.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, appendix B.5.

    Example:
        >>> from pyro.infer import MCMC
        >>> from pyro_hoim.schema import Domain
        >>> from pyro_hoim.structure import InteractionHypergraph
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
        >>> law = HierarchicalLogLinear(hypergraph, torch.zeros(5))
        >>> kernel = BlockGibbs(law, clamped={"x0": 1}, engine="torch")
        >>> mcmc = MCMC(kernel, num_samples=20, warmup_steps=5, disable_progbar=True)
        >>> mcmc.run()
        >>> draws = kernel.decode(mcmc.get_samples())["x"]
        >>> draws.shape, draws.dtype, int(draws[:, 0].min())
        (torch.Size([20, 2]), torch.int64, 1)
    """

    def __init__(
        self,
        model: HierarchicalLogLinear | Callable[..., Any],
        *,
        schedule: GibbsSchedule | None = None,
        num_sweeps: int = 1,
        clamped: Mapping[str, Any] | None = None,
        num_chains: int | None = None,
        engine: EngineName = "auto",
        precision: torch.dtype = torch.float32,
        site: str = "x",
    ) -> None:
        is_law = isinstance(model, HierarchicalLogLinear)
        if not is_law and not callable(model):
            raise InputTypeError(f"model: expected a log-linear law or a Pyro program, received {type(model).__name__}")
        if schedule is not None and not isinstance(schedule, GibbsSchedule):
            raise InputTypeError(f"schedule: expected a GibbsSchedule, received {type(schedule).__name__}")
        if clamped is not None and not isinstance(clamped, Mapping):
            raise InputTypeError(f"clamped: expected a mapping from names to values, received {type(clamped).__name__}")
        if num_chains is not None:
            _positive(num_chains, "num_chains")
        self.num_sweeps = _positive(num_sweeps, "num_sweeps")
        self.num_chains = num_chains
        self.schedule = schedule
        self.clamped: dict[str, Any] = dict(clamped or {})
        self.engine: EngineName = engine
        self.precision = precision
        # Pyro reads both after the last draw; ArviZ calls the model, which for a law alone would only draw it.
        self.transforms: dict[str, Any] = {}
        self.model: Callable[..., Any] | None = None if is_law else model
        self._target = LatentLaw(site, plain_energy(model)) if is_law else None
        self._given: dict[str, torch.Tensor] | None = None
        self._reset()

    def _reset(self) -> None:
        """Forget the chain."""
        self._chains: GibbsChains | None = None
        self._emitted: torch.Tensor | None = None
        self._site = None if self._target is None else self._target.site
        self._warmup_steps = 0
        self._num_transitions = 0
        self._energies: list[torch.Tensor] = []

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the chain, which belongs to one process; a copy is set up again."""
        return {**self.__dict__, "_chains": None, "_emitted": None}

    def with_chains(self, num_chains: int) -> BlockGibbs:
        """A copy whose values have a leading dimension of ``num_chains`` chains.

        Raises:
            InputError: a number below 1.
        """
        result = copy.copy(self)
        result.num_chains = _positive(num_chains, "num_chains")
        result._given = None
        result._reset()
        return result

    # The protocol of Pyro's kernels

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        """Start a chain; whatever an earlier one left is forgotten.

        Args:
            warmup_steps: transitions that leave no statistics.
            args: arguments of the program.
            kwargs: likewise.
        """
        self._reset()
        if self._target is not None and (args or kwargs):
            raise InputError("setup: a law takes no arguments; give them to a program")
        target = self._target
        if target is None:
            assert self.model is not None
            target = find_latent_law(self.model, args, kwargs)
        seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu"))
        evidence = {
            name: value.unsqueeze(-1) if isinstance(value, torch.Tensor) else value
            for name, value in self.clamped.items()
        }
        self._site = target.site
        self._warmup_steps = warmup_steps
        self._chains = GibbsChains(
            target.energy,
            self.num_chains or 1,
            schedule=self.schedule,
            clamped=evidence,
            init=self._initial_codes(target.site),
            seed=seed,
            engine=self.engine,
            precision=self.precision,
        )
        self._emitted = self._values(self._chains)

    def _initial_codes(self, site: str) -> torch.Tensor | None:
        """Codes from the values that the caller set, chains behind the batch."""
        if self._given is None:
            return None
        if set(self._given) != {site}:
            raise InputError(f"initial_params: expected values of {site!r} alone, received {sorted(self._given)}")
        return self._chains_last(self._given[site])

    def _chains_last(self, values: torch.Tensor) -> torch.Tensor:
        if self.num_chains is None:
            return values.unsqueeze(-2) if values.dim() else values
        return values.movedim(0, -2) if values.dim() > 1 else values

    def _values(self, chains: GibbsChains) -> torch.Tensor:
        """States of the chains as floats, in the shape of the site."""
        codes = chains.codes.squeeze(-2) if self.num_chains is None else chains.codes.movedim(-2, 0)
        return codes.to(torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32)

    def _running(self) -> GibbsChains:
        if self._chains is None or self._emitted is None:
            raise InputError("BlockGibbs: no chain is set up; call setup() first")
        return self._chains

    @property
    def site(self) -> str | None:
        """Name of the latent site, None for a program before :meth:`setup`."""
        return self._site

    @property
    def initial_params(self) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Where the chain starts: the values set, or independent uniform levels."""
        self._running()
        assert self._site is not None
        assert self._emitted is not None
        return {self._site: self._emitted.clone()}

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor] | None) -> None:
        if params is not None and not (
            isinstance(params, Mapping) and all(isinstance(v, torch.Tensor) for v in params.values())
        ):
            raise InputTypeError(f"initial_params: expected a dict of tensors, received {type(params).__name__}")
        self._given = None if params is None else dict(params)

    def sample(self, params: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One transition from the given values, which need not be those of the last one.

        Raises:
            InputError: no chain is set up, or a code that is no level.
        """
        chains = self._running()
        assert self._site is not None
        assert self._emitted is not None
        values = params[self._site]
        if not torch.equal(values.to(self._emitted), self._emitted):
            self._move_to(chains, values)
        chains.sweep(self.num_sweeps)
        self._num_transitions += 1
        if self._num_transitions > self._warmup_steps:
            energy = chains.energy
            self._energies.append(energy.reshape(-1, energy.shape[-1]).sum(0))
        self._emitted = self._values(chains)
        return {self._site: self._emitted.clone()}

    def _move_to(self, chains: GibbsChains, values: torch.Tensor) -> None:
        """Take states from outside; clamped variables keep their values."""
        codes = self._chains_last(values)
        if chains.clamped:
            held, fixed = chains.codes, [chains.domain.index(name) for name in chains.clamped]
            codes = codes.expand(held.shape).clone()
            codes[..., fixed] = held[..., fixed].to(codes)
        chains.set_codes(codes)

    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Energy of the last state for the progress bar, averaged over the chains."""
        return {"energy": f"{float(self._energies[-1].mean()):.2f}"} if self._energies else {}

    def diagnostics(self) -> dict[str, Any]:
        """No divergences, and under ``"sample_stats"`` the ``energy`` of every draw after warm-up and ``lp``, minus it.

        Both belong to the tables of the model, without log Z, in nats, summed over the batch. With a dimension of
        chains they are lists of draws of lists of chains.
        """
        if self.num_chains is None:
            return self.chain_diagnostics()[0]
        rows = [energies.tolist() for energies in self._energies]
        return _report(rows, [[-e for e in row] for row in rows])

    def chain_diagnostics(self) -> list[dict[str, Any]]:
        """Diagnostics of every chain by itself."""
        if not self._energies:
            return [_report([], []) for _ in range(self.num_chains or 1)]
        columns = torch.stack(self._energies, -1)
        return [_report(column.tolist(), (-column).tolist()) for column in columns]

    def cleanup(self) -> None:
        """Let go of the chain and of initial values; the diagnostics stay until the next :meth:`setup`."""
        self._chains = self._emitted = self._given = None

    def decode(self, samples: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Draws with the codes as ``torch.long``, whatever dimensions are in front.

        Raises:
            InputError: a value that is not a whole number, which this kernel does not emit.

        Example:
            >>> from pyro_hoim.schema import Domain
            >>> from pyro_hoim.structure import InteractionHypergraph
            >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 1)
            >>> kernel = BlockGibbs(HierarchicalLogLinear(hypergraph, torch.zeros(3)))
            >>> kernel.decode({"x": torch.tensor([[1.0, 2.0]])})
            {'x': tensor([[1, 2]])}
        """
        for name, value in samples.items():
            if not torch.equal(value, value.round()):
                raise InputError(f"samples: expected whole numbers, received others in {name!r}")
        return {name: value.long() for name, value in samples.items()}


def _report(energy: list[Any], lp: list[Any]) -> dict[str, Any]:
    return {"divergences": [], "sample_stats": {"energy": energy, "lp": lp}}


def _positive(value: int, argument: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{argument}: expected a positive whole number, received {value!r}")
    return value
