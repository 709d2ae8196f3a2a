"""Long runs of Gibbs chains of generalized root models: draws, progress, interruption, checkpoints."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ...errors import check_names
from ...runs.arguments import count, positive
from ...runs.jobs import checked_file, follow, part_of
from ...schema import Domain
from ..energy import GeneralizedRootEnergy
from .gibbs import RootChains

__all__ = ["RootRun", "sample_root_chains"]

_UPDATES_PER_CALL = 2**18


@dataclass(frozen=True, eq=False)
class RootRun:
    r"""What a run of Gibbs chains of a generalized root model gave.

    Attributes:
        draws: states, float64 (chains, draws, d), in the order of the schema, given variables included.
        log_q: their log unnormalised probabilities in nats, float64 (chains, draws).
        chains: the chains at the end of the run, which can be continued.
        warmup: sweeps before the first draw.
        thin: sweeps between two draws.
        seconds: time spent, earlier parts of a resumed run included.
    """

    draws: torch.Tensor
    log_q: torch.Tensor
    chains: RootChains
    warmup: int
    thin: int
    seconds: float

    @property
    def domain(self) -> Domain:
        """The variables."""
        return self.chains.domain

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.draws.shape[0]

    @property
    def num_draws(self) -> int:
        """Draws per chain."""
        return self.draws.shape[1]

    def values(self, name: str) -> torch.Tensor:
        """Draws of one variable, (chains, draws).

        Raises:
            UnknownNameError: there is no such variable.
        """
        check_names([name], self.domain.names, "name")
        return self.draws[..., self.domain.index(name)]


class _RootJob:
    """Warm-up and draws of chains, as a :class:`~pyro_hoim.runs.jobs.Job`."""

    def __init__(self, chains: RootChains, warmup: int, num_draws: int, thin: int) -> None:
        self.done = 0
        self.burn_in, self.total = warmup, warmup + num_draws * thin
        self._chains, self._thin = chains, thin
        shape = (chains.num_chains, num_draws)
        self.draws = torch.zeros(*shape, len(chains.domain), dtype=torch.float64)
        self.log_q = torch.zeros(shape, dtype=torch.float64)
        self._unit = max(1, min(2**16, _UPDATES_PER_CALL // max(1, len(chains.domain) * chains.num_chains)))

    def advance(self) -> int:
        made = 0
        while made < self._unit and self.done + made < self.total:
            past = self.done + made - self.burn_in
            left = -past if past < 0 else self._thin - past % self._thin
            length = min(left, self._unit - made)
            self._chains.sweep(length)
            made += length
            if past >= 0 and length == left:
                place = past // self._thin
                self.draws[:, place] = self._chains.states
                self.log_q[:, place] = self._chains.log_q()
        return made

    def state(self) -> dict[str, torch.Tensor]:
        made = max(0, self.done - self.burn_in) // self._thin
        return {
            **{f"chains.{name}": value for name, value in self._chains.state_dict().items()},
            "draws": self.draws[:, :made].contiguous(),
            "log_q": self.log_q[:, :made].contiguous(),
        }

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self._chains.load_state_dict(part_of(state, "chains."))
        made = state["draws"].shape[1]
        self.draws[:, :made], self.log_q[:, :made] = state["draws"], state["log_q"]


def sample_root_chains(
    energy: GeneralizedRootEnergy,
    num_draws: int = 1000,
    *,
    num_chains: int = 4,
    warmup: int = 100,
    thin: int = 1,
    given: Mapping[str, float | torch.Tensor] | None = None,
    start: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
    check: bool = True,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    resume: bool = False,
) -> RootRun:
    r"""Run Gibbs chains of a generalized root model and keep their draws.

    .. math:: x^{(0)} \to \dots \to x^{(w)} \to x^{(w + t)} \to x^{(w + 2t)} \to \dots

    A run that was interrupted and is resumed from its checkpoint gives the same bits as one that was not. The draws
    take 8 bytes per variable, chain and draw.

    Args:
        energy: the model, without a batch, or a law that holds one as ``energy_model``.
        num_draws: draws per chain.
        num_chains: number of chains; R-hat needs at least two.
        warmup: sweeps w before the first ones that count.
        thin: sweeps t between two draws.
        given: variables held fixed; see :class:`RootChains` for this and the next three.
        start: first states; independent draws from the independent member when None.
        generator: what the seed is drawn from. To resume, pass one in the state of the first time.
        check: refuse models of reals that cannot be normalised.
        progress: show a progress bar on standard error.
        checkpoint: file to continue from; written now and then, at Ctrl-C and at the end.
        checkpoint_every: least number of seconds between two writes.
        resume: continue from ``checkpoint`` if it exists (of a finished run it gives the result); otherwise an
            existing file is refused.

    Returns:
        Draws, autocorrelated and biased by what is left of the start.
        :func:`~pyro_hoim.interop.diagnose_chains` gives R-hat and effective sample sizes,
        :func:`~pyro_hoim.interop.chains_to_arviz` ArviZ data.

    Raises:
        InputError: a checkpoint that exists, is damaged or belongs to a run with other arguments, and everything that
            :class:`RootChains` refuses.
        InputTypeError: arguments of the wrong type.

    Randomness:
        As :class:`RootChains`.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily, RootStructure
        >>> from pyro_hoim.schema import Variable
        >>> domain = Domain([Variable(name, kind="count") for name in "ab"])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> model = GeneralizedRootEnergy(structure, torch.tensor([0.5, 0.0, 0.25]), PoissonFamily())
        >>> run = sample_root_chains(model, 50, num_chains=2, generator=torch.Generator().manual_seed(0))
        >>> run.draws.shape, run.log_q.shape
        (torch.Size([2, 50, 2]), torch.Size([2, 50]))
    """
    num_draws, thin, warmup = positive(num_draws, "num_draws"), positive(thin, "thin"), count(warmup, "warmup")
    file = checked_file(checkpoint, checkpoint_every, resume)
    chains = RootChains(energy, num_chains, given=given, start=start, generator=generator, check=check)
    job = _RootJob(chains, warmup, num_draws, thin)
    states = chains.states.cpu().contiguous()
    settings = {
        "kind": "chains of a generalized root model",
        "num_draws": num_draws,
        "num_chains": chains.num_chains,
        "warmup": warmup,
        "thin": thin,
        "model, given variable or seed digest": chains.fingerprint,
        "initial state digest": hashlib.sha256(states.numpy().tobytes()).hexdigest(),
    }
    seconds = follow(job, settings, file, progress)
    device = chains.energy.device
    return RootRun(job.draws.to(device), job.log_q.to(device), chains, warmup, thin, seconds)
