"""Births, deaths and swaps of interactions as a Pyro kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from typing_extensions import override

from ...checks import check_exact_shape, check_finite
from ...data.frames import DataLike
from ...errors import check_type, refused, unexpected, wrong_type
from ..kernels import no_chain
from .chains import JumpChain, Neighbourhood, TemperedChain, ThetaProposals, chain_of, checked_temperatures
from .evidence import EvidenceMethod, StructureEvidence
from .prior import StructurePrior, rows_and_prior
from .program import ThetaPrior


class BirthDeath(MCMCKernel):
    r"""A chain over collections, with theta integrated out or drawn, as a Pyro kernel of ``gamma`` and ``theta``.

    One transition is a sweep: as many births, deaths and swaps as there are free candidates, at every temperature,
    then exchanges between neighbouring ones. It runs in ``pyro.infer.MCMC`` and in
    :func:`~pyro_hoim.inference.run_mcmc`; :func:`~pyro_hoim.inference.sample_structures` makes a posterior of many
    such chains. With ``collapsed=True`` the chain's law is the posterior where the evidence is exact, and that of the
    approximate evidence otherwise. With ``collapsed=False`` it is exact for every prior whose constant is known
    (normal ones, the conjugate one of decomposable collections, functions that return a normalised law): a jump

    .. math:: (m, \theta) \to (m', \theta'), \quad \theta' \sim t_8\big(\hat\theta_{m'}, H_{m'}^{-1}\big), \qquad
        w(m, \theta) = p(\theta \mid m)\, p(x \mid \theta, m) / t_8(\theta; \hat\theta_m, H_m^{-1})

    is accepted by the ratio of p(m) w(m, theta) and of the proposals of collections. Student laws at the mode have
    longer tails than the posterior, so that no state has a weight without bound. After every fourth jump theta is
    proposed anew within the collection and moved by a random-walk step. Draws are those of
    :func:`~pyro_hoim.inference.structure_model`, but for absent interactions, whose theta is zero here.

    Args:
        data: complete rows.
        prior: prior of theta given a collection, as in :func:`~pyro_hoim.inference.enumerate_structures`.
        structure_prior: prior over collections; every hierarchical one with the same probability when None.
        temperatures: of the evidence, from 1, rising.
        method: of the evidence; estimates (``bridge``, ``path``) are made from seed 0. Jumps do not need it.
        collapsed: integrate theta out, or draw it by reversible jumps.

    Shape:
        ``gamma`` (candidates,), 0 and 1, of PyTorch's default dtype; with jumps ``theta`` (largest.num_parameters,),
        float64, zero where an interaction is absent. ``sample_stats``: ``log_evidence``, or with jumps ``log_joint``,
        the log joint density of rows and theta given the collection; nats.

    Raises:
        InputError: what :func:`~pyro_hoim.inference.sample_structures` refuses; a start outside the space.

    References:
        Peter Green, Reversible jump Markov chain Monte Carlo computation and Bayesian model determination, Biometrika
        82, 1995; Petros Dellaportas and Jonathan Forster, Markov chain Monte Carlo model determination for hierarchical
        and graphical log-linear models, Biometrika 86, 1999.

    Randomness:
        :meth:`setup` draws one seed from PyTorch's global generator.

    Example:
        >>> from pyro_hoim import load_table, run_mcmc
        >>> kernel = BirthDeath(load_table("czech_autoworkers"), "unit")
        >>> run = run_mcmc(kernel, 20, burn_in=5, num_chains=2, seed=1, progress=False)
        >>> run.samples["gamma"].shape, kernel.is_exact
        (torch.Size([2, 20, 57]), False)
    """

    def __init__(
        self,
        data: DataLike,
        prior: ThetaPrior = "unit",
        structure_prior: StructurePrior | None = None,
        *,
        temperatures: Sequence[float] | NDArray[Any] = (1.0,),
        method: EvidenceMethod = "auto",
        collapsed: bool = True,
    ) -> None:
        data, self.structure_prior = rows_and_prior(data, structure_prior)
        self.evidence = StructureEvidence(data, self.structure_prior.space, prior, method=method)
        check_type(collapsed, bool, "collapsed")
        self._proposals = None if collapsed else ThetaProposals(self.evidence)
        self.temperatures = checked_temperatures(temperatures)
        self.transforms: dict[str, Any] = {}  # read by Pyro after the last draw
        self.model = None
        self._moves = Neighbourhood(self.structure_prior)
        self._given: tuple[int, torch.Tensor | None] = (0, None)
        self._clear(0)

    def _clear(self, warmup_steps: int) -> None:
        self._chain: TemperedChain | None = None
        self._warmup_steps, self._num_sweeps = warmup_steps, 0
        self._values: list[float] = []

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the chain, which belongs to one process; a copy is set up again."""
        return {**self.__dict__, "_chain": None}

    @property
    def is_exact(self) -> bool:
        """Whether the posterior is the law that the chain leaves unchanged."""
        return self.evidence.is_exact or self._proposals is not None

    @property
    def initial_params(self) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Where the chain starts: main effects alone, unless another collection was given, with theta at its mode."""
        if self._chain is not None:
            return self._params(self._chain)
        mask, theta = self._given
        params = {"gamma": self._gamma(mask)}
        if self._proposals is not None:
            mode = torch.from_numpy(self._proposals.spread(mask, self._proposals[mask].mode))
            params["theta"] = mode if theta is None else theta
        return params

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor]) -> None:
        names = {"gamma"} if self._proposals is None else {"gamma", "theta"}
        if not isinstance(params, Mapping) or "gamma" not in params or set(params) - names:
            raise wrong_type(
                "initial_params", " and ".join(["a dict with 'gamma'", *sorted(names - {"gamma"})]), params
            )
        gamma, theta = params["gamma"], params.get("theta")
        check_exact_shape(gamma, self.structure_prior.event_shape, "initial_params['gamma']")
        if not bool(self.structure_prior.support.check(gamma)):
            raise unexpected("initial_params['gamma']", "indicators of a collection in the space", code="impossible")
        if theta is not None:
            size = self.structure_prior.largest.num_parameters
            check_exact_shape(theta, torch.Size([size]), "initial_params['theta']")
            check_finite(theta, "initial_params['theta']")
            theta = theta.double() * self.structure_prior.parameter_mask(gamma)
        self._given = self.structure_prior.space.masks_of((gamma == 1).unsqueeze(0).cpu().numpy())[0], theta

    def _params(self, chain: TemperedChain) -> dict[str, torch.Tensor]:
        """Where a chain is, by site."""
        theta = {"theta": torch.from_numpy(chain.theta)} if isinstance(chain, JumpChain) else {}
        return {"gamma": self._gamma(chain.mask), **theta}

    def _gamma(self, mask: int) -> torch.Tensor:
        flags = torch.from_numpy(self.structure_prior.space.flags_of([mask])[0].copy())
        return flags.to(torch.get_default_dtype())

    @override
    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            raise refused("BirthDeath", "it takes no arguments of a program", code="conflict")
        # A new chain at the collection that was given, with theta where that was given, too.
        self._clear(warmup_steps)
        seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu"))
        mask, theta = self._given
        self._chain = chain_of(self._moves, self.evidence, self._proposals, self.temperatures, mask, seed)
        if isinstance(self._chain, JumpChain) and theta is not None:
            self._chain.points[0] = self._chain.proposals[mask].at(theta.numpy()[self.evidence.columns([mask])[0]])

    @override
    def sample(self, params: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if self._chain is None:
            raise no_chain(self)
        self._chain.sweep()
        self._num_sweeps += 1
        if self._num_sweeps > self._warmup_steps:
            self._values.append(self._value(self._chain))
        return self._params(self._chain)

    def _value(self, chain: TemperedChain) -> float:
        """The statistic of a draw: log evidence, or the log joint density."""
        return chain.points[0].log_joint if isinstance(chain, JumpChain) else self.evidence(chain.mask)

    @property
    def _name(self) -> str:
        return "log_evidence" if self._proposals is None else "log_joint"

    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Share of moves that were accepted, and the log evidence or joint density."""
        if self._chain is None:
            return {}
        value = self._value(self._chain)
        return {"acc. rate": f"{self._chain.acceptance:.2f}", self._name.replace("_", " "): f"{value:.1f}"}

    def diagnostics(self) -> dict[str, Any]:
        """Shares of moves and of exchanges that were accepted, whether the chain is exact, and statistics of draws."""
        rates = {} if self._chain is None else {"exchange rates": self._chain.exchange_rates}
        return {
            "divergences": [],
            "acceptance rate": 0.0 if self._chain is None else self._chain.acceptance,
            "is_exact": self.is_exact,
            **rates,
            "sample_stats": {self._name: list(self._values)},
        }
