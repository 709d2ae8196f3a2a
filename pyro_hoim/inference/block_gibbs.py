"""Block Gibbs as a Pyro kernel, for a program whose only latent site is a log-linear law."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..errors import InputError, InputTypeError
from ..log_linear.chains.gibbs import EngineName, GibbsChains
from ..log_linear.laws.law import HierarchicalLogLinear
from ..runs.schedule import GibbsSchedule
from ._latent_laws import LatentLaw, find_latent_law, plain_energy
from ._site_kernel import SiteKernel, checked_mapping, decoded

__all__ = ["BlockGibbs"]


class BlockGibbs(SiteKernel):
    r"""Gibbs sampling of a log-linear law as a Pyro kernel; no normalising constant is needed.

    The target is :math:`p(x_F \mid x_C)`: the law of the free variables given the clamped ones. One transition is
    ``num_sweeps`` sweeps of the schedule, each of which leaves the target invariant.

    The kernel runs in ``pyro.infer.MCMC``, there with several chains in processes of their own (started by "spawn" or
    "fork"), and in :func:`~pyro_hoim.inference.run_mcmc`, where all chains are one tensor and move together. Pyro's
    MCMC breaks on integer sites, so the kernel emits the codes as floats, which are exact; :meth:`decode` makes
    ``torch.long`` of them, and ``run_mcmc`` does that by itself.

    Args:
        model: a :class:`~pyro_hoim.log_linear.HierarchicalLogLinear`, or a Pyro program whose only latent site is
            one (inside plates too). Observed sites may be there as long as they do not depend on the latent value:
            a site that does would change the target, and is refused when the chain is set up.
        schedule: blocks and scan, single sites in order when None.
        num_sweeps: sweeps per transition.
        clamped: variables held fixed, ``{name: label, code or codes per batch element}``.
        num_chains: None for one chain without a dimension of its own, which is what ``pyro.infer.MCMC`` expects; a
            number puts a dimension of so many chains in front of every value.
        engine: see :class:`~pyro_hoim.log_linear.GibbsChains`.
        precision: of the conditionals, likewise.
        site: name of the site where ``model`` is a law; that of a program is its own.

    Shape:
        values (\*batch, d), or (num_chains, \*batch, d); batch is that of the law, plates included.

    Raises:
        InputError: numbers below 1; when a chain is set up: other latent sites, observed sites that depend on the
            latent one, a masked or scaled latent site, a clamped value or initial code that is no level.
        InputTypeError: arguments of the wrong type.

    The diagnostics hold, for every draw after warm-up, the ``energy`` and ``lp``, minus it: those of the tables of the
    model, without log Z, in nats, summed over the batch. ``site`` is the name of the latent site, None for a program
    before :meth:`setup`.

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

    model_noun = "law"
    statistic = "energy"
    finds_site = True

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
        self._law = LatentLaw(site, plain_energy(model)) if is_law else None
        super().__init__(num_sweeps=num_sweeps, num_chains=num_chains, site=None)
        self.schedule = schedule
        self.clamped = checked_mapping(clamped, "clamped")
        self.engine: EngineName = engine
        self.precision = precision
        # ArviZ calls the model, which for a law alone would only draw it.
        self.model = None if is_law else model

    def _reset(self) -> None:
        """Forget the chain, and the site of a program."""
        super()._reset()
        self._target = self._law
        self.site = None if self._law is None else self._law.site

    def _begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Find the latent site of a program; a law takes no arguments."""
        if self.model is None:
            if args or kwargs:
                raise InputError("setup: a law takes no arguments; give them to a program")
            return
        self._target = find_latent_law(self.model, args, dict(kwargs))
        self.site = self._target.site

    def _make_chains(self, num_chains: int, init: torch.Tensor | None, seed: int) -> GibbsChains:
        assert self._target is not None
        evidence = {
            name: value.unsqueeze(-1) if isinstance(value, torch.Tensor) else value
            for name, value in self.clamped.items()
        }
        return GibbsChains(
            self._target.energy,
            num_chains,
            schedule=self.schedule,
            clamped=evidence,
            init=init,
            seed=seed,
            engine=self.engine,
            precision=self.precision,
        )

    def _start(self, values: torch.Tensor) -> torch.Tensor:
        """Codes with the chains behind the batch."""
        if self.num_chains is None:
            return values.unsqueeze(-2) if values.dim() else values
        return values.movedim(0, -2) if values.dim() > 1 else values

    def _values(self, states: torch.Tensor) -> torch.Tensor:
        return states.squeeze(-2) if self.num_chains is None else states.movedim(-2, 0)

    def _states_of(self, values: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
        codes = self._start(values)
        return codes.expand(held.shape).clone() if self.clamped else codes

    def _states(self, chains: GibbsChains) -> torch.Tensor:
        return chains.codes

    def _put(self, chains: GibbsChains, states: torch.Tensor) -> None:
        chains.set_codes(states)

    def _fixed(self, chains: GibbsChains) -> tuple[str, ...]:
        return tuple(chains.clamped)

    def _kept(self, chains: GibbsChains) -> torch.Tensor:
        energy = chains.energy
        return energy.reshape(-1, energy.shape[-1]).sum(0)

    def _statistics(self, drawn: torch.Tensor) -> torch.Tensor:
        """Energies belong to the tables of the model, without log Z, in nats, summed over the batch."""
        return drawn

    def _named(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"energy": values, "lp": -values}

    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Energy of the last state for the progress bar, averaged over the chains."""
        return {"energy": f"{float(self._drawn[-1].mean()):.2f}"} if self._drawn else {}

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
        return decoded(samples)
