"""Births, deaths and swaps of interactions as a Pyro kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from typing_extensions import override

from ....checks import check_exact_shape
from ....data.observations import Observations
from ....errors import check_type, refused, unexpected, wrong_type
from ..evidence import EvidenceMethod
from ..prior import StructurePrior
from ..scorer import StructureEvidence
from ..theta_prior import ThetaPrior
from .chains import Neighbourhood, TemperedChain, checked_temperatures

__all__ = ["BirthDeath"]


class BirthDeath(MCMCKernel):
    r"""A chain over collections with theta integrated out, as a Pyro kernel of the site ``gamma``.

    One transition is a sweep: as many births, deaths and swaps as there are free candidates, at every temperature,
    then exchanges between neighbouring ones. It runs in ``pyro.infer.MCMC`` and in
    :func:`~pyro_hoim.inference.run_mcmc`; :func:`~pyro_hoim.inference.sample_structures` makes a posterior of many
    such chains. The chain's law is the posterior where ``is_exact``, and that of the approximate evidence otherwise.

    Args:
        data: complete rows.
        prior: prior of theta given a collection, as in :func:`~pyro_hoim.inference.enumerate_structures`.
        structure_prior: prior over collections; every hierarchical one with the same probability when None.
        temperatures: of the evidence, from 1, rising.
        method: of the evidence; estimates (``bridge``, ``path``) are made from seed 0.

    Shape:
        ``gamma`` (candidates,), 0 and 1, of PyTorch's default dtype. ``sample_stats``: ``log_evidence``.

    Raises:
        InputError: what :func:`~pyro_hoim.inference.sample_structures` refuses; a start outside the space.

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
        data: Observations,
        prior: ThetaPrior = "unit",
        structure_prior: StructurePrior | None = None,
        *,
        temperatures: Sequence[float] | NDArray[Any] = (1.0,),
        method: EvidenceMethod = "auto",
    ) -> None:
        check_type(data, Observations, "data")
        check_type(structure_prior, StructurePrior | None, "structure_prior")
        self.structure_prior = StructurePrior(data.domain) if structure_prior is None else structure_prior
        self.evidence = StructureEvidence(data, self.structure_prior.space, prior, method=method)
        self.temperatures = checked_temperatures(temperatures)
        self.transforms: dict[str, Any] = {}  # read by Pyro after the last draw
        self.model = None
        self._moves = Neighbourhood(self.structure_prior)
        self._given: int | None = None
        self._clear(0)

    def _clear(self, warmup_steps: int) -> None:
        self._chain: TemperedChain | None = None
        self._warmup_steps, self._num_sweeps = warmup_steps, 0
        self._log_evidence: list[float] = []

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the chain, which belongs to one process; a copy is set up again."""
        return {**self.__dict__, "_chain": None}

    @property
    def is_exact(self) -> bool:
        """Whether the posterior is the law that the chain leaves unchanged."""
        return self.evidence.is_exact

    @property
    def initial_params(self) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Where the chain starts: main effects alone, unless another collection was given."""
        mask = self._given or 0 if self._chain is None else self._chain.mask
        return {"gamma": self._gamma(mask)}

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor]) -> None:
        if not isinstance(params, Mapping) or set(params) != {"gamma"}:
            raise wrong_type("initial_params", "a dict with 'gamma'", params)
        gamma = params["gamma"]
        check_exact_shape(gamma, self.structure_prior.event_shape, "initial_params['gamma']")
        if not bool(self.structure_prior.support.check(gamma)):
            raise unexpected("initial_params['gamma']", "indicators of a collection in the space", code="impossible")
        self._given = self.structure_prior.space.masks_of((gamma == 1).unsqueeze(0).cpu().numpy())[0]

    def _gamma(self, mask: int) -> torch.Tensor:
        flags = torch.from_numpy(self.structure_prior.space.flags_of([mask])[0].copy())
        return flags.to(torch.get_default_dtype())

    @override
    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            raise refused("BirthDeath", "it takes no arguments of a program", code="conflict")
        self._clear(warmup_steps)
        seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu"))
        starts = [self._given or 0] * len(self.temperatures)
        self._chain = TemperedChain(self._moves, self.evidence, self.temperatures, starts, seed)

    @override
    def sample(self, params: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if self._chain is None:
            raise refused("BirthDeath", "no chain is set up", "call setup() first", code="missing-part")
        self._chain.sweep()
        self._num_sweeps += 1
        if self._num_sweeps > self._warmup_steps:
            self._log_evidence.append(self.evidence(self._chain.mask))
        return {"gamma": self._gamma(self._chain.mask)}

    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Share of moves that were accepted, and the log evidence."""
        if self._chain is None:
            return {}
        value = self.evidence(self._chain.mask)
        return {"acc. rate": f"{self._chain.acceptance:.2f}", "log evidence": f"{value:.1f}"}

    def diagnostics(self) -> dict[str, Any]:
        """Shares of moves and of exchanges that were accepted, whether the chain is exact, and statistics of draws."""
        rates = {} if self._chain is None else {"exchange rates": self._chain.exchange_rates}
        return {
            "divergences": [],
            "acceptance rate": 0.0 if self._chain is None else self._chain.acceptance,
            "is_exact": self.is_exact,
            **rates,
            "sample_stats": {"log_evidence": list(self._log_evidence)},
        }
