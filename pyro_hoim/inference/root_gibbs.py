"""Gibbs sampling of a generalized root model as a Pyro kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..generalized_root.chains.arguments import checked_energy
from ..generalized_root.chains.gibbs import RootChains
from ..generalized_root.energy import GeneralizedRootEnergy
from ._site_kernel import SiteKernel, checked_mapping

__all__ = ["RootGibbs"]


class RootGibbs(SiteKernel):
    r"""Gibbs sampling of a generalized root model as a Pyro kernel.

    The target is the law :math:`q(x) / Z` of the model, or that of the other variables given some. One transition is
    ``num_sweeps`` sweeps over all variables, each of exact draws from the node conditionals; Z is never needed.

    The kernel runs in ``pyro.infer.MCMC``, there with several chains in processes of their own, and in
    :func:`~pyro_hoim.inference.run_mcmc`, where all chains are one tensor and move together. Values are float64, also
    counts, which are whole numbers.

    Args:
        energy: the model without a batch, or a law that holds one as ``energy_model``.
        num_sweeps: sweeps per transition.
        given: variables held fixed, ``{name: value or values per chain}``.
        num_chains: None for one chain without a dimension of its own, which is what ``pyro.infer.MCMC`` expects; a
            number puts a dimension of so many chains in front of every value.
        check: refuse models of reals that cannot be normalised; done when a chain is set up.
        site: name of the site.

    Shape:
        values (d,), or (num_chains, d).

    Raises:
        InputError: numbers below 1, a batch; when a chain is set up all that
            :class:`~pyro_hoim.generalized_root.RootChains` refuses.
        InputTypeError: arguments of the wrong type.

    Randomness:
        :meth:`setup` draws one seed from PyTorch's global generator, so ``pyro.set_rng_seed`` makes a run
        reproducible; the processes of Pyro's MCMC have seeds of their own, hence streams of their own.

    References:
        Inouye, Ravikumar, Dhillon (2016), Generalized root models, equation 5.

    Example:
        >>> from pyro.infer import MCMC
        >>> from pyro_hoim.generalized_root import PoissonFamily, RootStructure
        >>> from pyro_hoim.schema import Domain, Variable
        >>> domain = Domain([Variable(name, kind="count") for name in "ab"])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([0.5, 0.0, 0.25]), PoissonFamily())
        >>> mcmc = MCMC(RootGibbs(energy, given={"b": 3}), num_samples=20, warmup_steps=5, disable_progbar=True)
        >>> mcmc.run()
        >>> draws = mcmc.get_samples()["x"]
        >>> draws.shape, draws.dtype, draws[:, 1].unique().tolist()
        (torch.Size([20, 2]), torch.float64, [3.0])
    """

    model_noun = "generalized root model"
    statistic = "log_q"

    def __init__(
        self,
        energy: GeneralizedRootEnergy,
        *,
        num_sweeps: int = 1,
        given: Mapping[str, float | torch.Tensor] | None = None,
        num_chains: int | None = None,
        check: bool = True,
        site: str = "x",
    ) -> None:
        super().__init__(num_sweeps=num_sweeps, num_chains=num_chains, site=site)
        self.energy = checked_energy(energy).detach()
        self._options: dict[str, Any] = {"given": checked_mapping(given, "given"), "check": check}

    def _make_chains(self, num_chains: int, init: torch.Tensor | None, seed: int) -> RootChains:
        generator = torch.Generator().manual_seed(seed)
        return RootChains(self.energy, num_chains, start=init, generator=generator, **self._options)

    def _states(self, chains: RootChains) -> torch.Tensor:
        return chains.states

    def _put(self, chains: RootChains, states: torch.Tensor) -> None:
        chains.set_states(states)

    def _fixed(self, chains: RootChains) -> tuple[str, ...]:
        return chains.given

    def _statistics(self, drawn: torch.Tensor) -> torch.Tensor:
        """Log q, the log-probability up to a constant."""
        return -self.energy.energy(drawn.to(self.energy.dtype), validate=False)

    def _dtype(self) -> torch.dtype:
        return torch.float64
