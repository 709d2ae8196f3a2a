"""Pseudo-Gibbs sampling of a dependency network as a Pyro kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..dependency_network.chains.arguments import checked_conditionals
from ..dependency_network.chains.pseudo_gibbs import PseudoGibbsChains, Scan, WalkerName
from ..dependency_network.conditionals import DependencyConditionals
from ._site_kernel import SiteKernel, checked_mapping, decoded

__all__ = ["PseudoGibbs"]


class PseudoGibbs(SiteKernel):
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
        order: order of a sequential scan, see :class:`~pyro_hoim.dependency_network.PseudoGibbsChains`.
        selection: probabilities of a random scan, likewise.
        num_sweeps: sweeps per transition.
        clamped: variables held fixed, ``{name: label, code or codes per chain}``.
        num_chains: None for one chain without a dimension of its own, which is what ``pyro.infer.MCMC`` expects; a
            number puts a dimension of so many chains in front of every value.
        engine: see :class:`~pyro_hoim.dependency_network.PseudoGibbsChains`.
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
        >>> from pyro_hoim.dependency_network import TableConditional
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

    model_noun = "dependency network"
    statistic = "log_pseudo_prob"

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
        super().__init__(num_sweeps=num_sweeps, num_chains=num_chains, site=site)
        self.conditionals = checked_conditionals(conditionals)
        self._options: dict[str, Any] = {
            "scan": scan,
            "order": order,
            "selection": selection,
            "clamped": checked_mapping(clamped, "clamped"),
            "engine": engine,
            "precision": precision,
            "check": check,
        }

    def _make_chains(self, num_chains: int, init: torch.Tensor | None, seed: int) -> PseudoGibbsChains:
        return PseudoGibbsChains(self.conditionals, num_chains, init=init, seed=seed, **self._options)

    def _states(self, chains: PseudoGibbsChains) -> torch.Tensor:
        return chains.codes

    def _put(self, chains: PseudoGibbsChains, states: torch.Tensor) -> None:
        chains.set_codes(states)

    def _fixed(self, chains: PseudoGibbsChains) -> tuple[str, ...]:
        return chains.clamped

    def _kept(self, chains: PseudoGibbsChains) -> torch.Tensor:
        return chains.codes.to(torch.int32)

    def _statistics(self, drawn: torch.Tensor) -> torch.Tensor:
        r""":math:`\sum_i \log \theta_i(x_i \mid x_{-i})`, which is not a log-probability."""
        return self.conditionals.log_pseudo_prob(drawn.long())

    def decode(self, samples: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Draws with the codes as ``torch.long``, whatever dimensions are in front.

        Raises:
            InputError: a value that is not a whole number, which this kernel does not emit.
        """
        return decoded(samples)
