"""Parallel tempering: Gibbs chains at a ladder of temperatures that exchange their states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...compute.engine import Record
from ...core.model import LogLinearModel
from ...errors import InputError, InputTypeError
from ...runs.arguments import checked_tables
from ...runs.jobs import part_of
from ...runs.schedule import GibbsSchedule
from ...structure.hypergraph import InteractionHypergraph
from .engines import EngineName
from .gibbs import GibbsChains

__all__ = ["ParallelTempering", "checked_betas"]

_LEAST_REJECTION = 1e-3
_SWAP_STREAM = 0x51A9


class ParallelTempering:
    r"""A ladder of inverse temperatures, each with the same number of Gibbs chains, and swaps between neighbours.

    .. math:: \log \alpha_{ij}(x_i, x_j) = \min\{0, (\beta_i - \beta_j) \, [u(x_i) - u(x_j)]\}, \qquad
        u(x) = E(x) + \sum_v r^v[x_v]

    is the log probability that the states of rungs i and j change places. It is the Metropolis ratio of the product of
    :math:`\log f_\beta(x) = -\beta E(x) + (1 - \beta) \sum_v r^v[x_v]` over rungs, so the product law stays
    invariant. Even and odd pairs take turns. Chain c of one rung exchanges with chain c of the next; different c never
    meet, and chains at beta 1 are independent. The rung at beta 0, if there is one, is drawn afresh by every sweep.

    Args:
        model: the energies, without a batch.
        num_chains: chains on every rung.
        betas: at least two inverse temperatures, rising, the last one 1.
        schedule: blocks and scan.
        clamped: variables held fixed, as for :class:`GibbsChains`; values per chain are (num_chains,).
        init: first states, broadcastable to (rungs, num_chains, d); drawn from the reference law when None.
        reference: log weights of the product law at beta 0; uniform when None.
        seed: seed of everything random.
        engine: what moves the chains.
        precision: of the conditionals.

    Attributes:
        chains: the chains, with the rungs as their batch.

    Raises:
        InputError: betas that do not rise from at least 0 to 1, a batch of models, and what :class:`GibbsChains`
            refuses.
        InputTypeError: arguments of the wrong type.

    Randomness:
        From ``seed`` only; swaps have a stream of their own.

    References:
        Saifuddin Syed, Alexandre Bouchard-Côté, George Deligiannidis and Arnaud Doucet, Non-reversible parallel
        tempering, Journal of the Royal Statistical Society B 84, 2022, sections 3.1 and 5.1.

    Example:
        >>> from pyro_hoim.log_linear import LogLinearEnergy
        >>> from pyro_hoim.schema import Domain
        >>> from pyro_hoim.structure import InteractionHypergraph
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 2]))
        >>> model = LogLinearEnergy.from_theta(hypergraph, torch.tensor([0.5, 0.0, 3.0]))
        >>> ladder = ParallelTempering(model, 64, [0.0, 0.5, 1.0], engine="torch")
        >>> for _ in range(20):
        ...     _ = ladder.sweep()
        >>> ladder.swap_rates.shape, bool((ladder.swap_rates > 0.2).all())
        (torch.Size([2]), True)
    """

    def __init__(
        self,
        model: LogLinearModel,
        num_chains: int,
        betas: Sequence[float] | torch.Tensor,
        *,
        schedule: GibbsSchedule | None = None,
        clamped: Mapping[str, Any] | None = None,
        init: torch.Tensor | None = None,
        reference: torch.Tensor | None = None,
        seed: int = 0,
        engine: EngineName = "auto",
        precision: torch.dtype = torch.float32,
    ) -> None:
        self._betas = checked_betas(betas)
        tables = checked_tables(model)
        if tables.dim() != 1:
            raise InputError(
                f"model: expected one model without a batch, received tables {tuple(tables.shape)}; temper one by one"
            )
        self.chains = GibbsChains(
            _Rungs(model.hypergraph, tables.expand(len(self._betas), -1)),
            num_chains,
            schedule=schedule,
            clamped=clamped,
            init=init,
            reference=reference,
            seed=seed,
            engine=engine,
            precision=precision,
        )
        self._seed = int(seed)
        self._num_rounds = 0
        self.reset_statistics()

    def reset_statistics(self) -> None:
        """Forget swap rates and round trips."""
        rungs = len(self._betas)
        self._accepted = np.zeros(rungs - 1)
        self._proposed = np.zeros(rungs - 1)
        self._round_trips = np.zeros(self.chains.num_chains, dtype=np.int64)
        # The end of the ladder that a state was at last: 1 the target, 2 the hottest rung, 0 neither.
        self._origin = np.zeros((rungs, self.chains.num_chains), dtype=np.int8)
        self._note_ends()

    @property
    def betas(self) -> torch.Tensor:
        """Inverse temperatures, rising to 1, float64 (rungs,)."""
        return torch.from_numpy(self._betas.copy())

    @property
    def swap_rates(self) -> torch.Tensor:
        """Share of accepted swaps of every pair of neighbours, float64 (rungs - 1,); NaN before the first."""
        with np.errstate(invalid="ignore"):
            return torch.from_numpy(self._accepted / self._proposed)

    @property
    def round_trips(self) -> torch.Tensor:
        """How often a state went from the target to the hottest rung and back, long (num_chains,)."""
        return torch.from_numpy(self._round_trips.copy())

    def sweep(self, num_sweeps: int = 1, **kept: Any) -> Record:
        """Move all chains by sweeps, then swap.

        Args:
            num_sweeps: sweeps before the swap.
            kept: what to record, arguments of :meth:`GibbsChains.sweep`; records are made before the swap.

        Raises:
            InputError: a negative number of sweeps.
        """
        record = self.chains.sweep(num_sweeps, torch.from_numpy(self._betas), **kept)
        self.swap()
        return record

    def log_ratio(self) -> torch.Tensor:
        """Log Metropolis ratio of swapping every pair of neighbours as they are, float64 (rungs - 1, num_chains)."""
        energy = (self.chains.energy - self.chains.reference_energy).cpu()
        return torch.from_numpy(self._betas).diff()[:, None] * energy.diff(dim=0)

    def swap(self) -> None:
        """Propose to exchange the states of every second pair of neighbours."""
        chains = self.chains
        log_ratio = self.log_ratio().numpy()
        accept = _exponentials(self._seed, self._num_rounds, log_ratio.shape) > -log_ratio
        for i in range(self._num_rounds % 2, len(accept), 2):
            self._proposed[i] += accept.shape[1]
            self._accepted[i] += accept[i].sum()
            if accept[i].any():
                chains.exchange(i, i + 1, torch.from_numpy(accept[i]))
                self._origin[i : i + 2, accept[i]] = self._origin[i : i + 2, accept[i]][::-1]
        self._num_rounds += 1
        self._note_ends()

    def _note_ends(self) -> None:
        self._round_trips += self._origin[-1] == 2
        self._origin[-1] = 1
        self._origin[0, self._origin[0] == 1] = 2

    def adapt(self) -> None:
        """Move the rungs in between to where swap rates should be equal, given the rates so far; forget these.

        States and laws of the rungs change places gradually, so this belongs into burn-in only.
        """
        with np.errstate(invalid="ignore"):
            rejected = np.nan_to_num(1 - self._accepted / self._proposed, nan=0.0)
        barrier = np.concatenate([[0.0], np.maximum(rejected, _LEAST_REJECTION).cumsum()])
        betas = np.interp(np.linspace(0, barrier[-1], len(barrier)), barrier, self._betas)
        betas[0], betas[-1] = self._betas[0], 1.0
        self._betas = betas
        self.reset_statistics()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Everything that a later run needs to continue with equal bits, as plain tensors."""
        arrays = {
            "betas": self._betas,
            "accepted": self._accepted,
            "proposed": self._proposed,
            "round_trips": self._round_trips,
            "origin": self._origin,
        }
        return {
            **{f"chains.{name}": value for name, value in self.chains.state_dict().items()},
            **{f"ladder.{name}": torch.from_numpy(value.copy()) for name, value in arrays.items()},
            "ladder.num_rounds": torch.tensor(self._num_rounds),
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`state_dict` of a ladder with the same model, number of rungs, schedule, seed and engine.

        Raises:
            InputError: the state belongs to another ladder.
        """
        self.chains.load_state_dict(part_of(state, "chains."))
        ladder = part_of(state, "ladder.")
        self._betas, self._accepted, self._proposed, self._round_trips, self._origin = (
            ladder[name].numpy().copy() for name in ("betas", "accepted", "proposed", "round_trips", "origin")
        )
        self._num_rounds = int(ladder["num_rounds"])


@dataclass
class _Rungs:
    """A model once for every rung."""

    hypergraph: InteractionHypergraph
    tables: torch.Tensor


def checked_betas(betas: Any) -> NDArray[np.float64]:
    """Checked inverse temperatures."""
    try:
        values = torch.as_tensor(betas, dtype=torch.float64).detach().cpu().numpy().copy()
    except (TypeError, ValueError, RuntimeError):
        raise InputTypeError(f"betas: expected numbers, received {type(betas).__name__}") from None
    if values.ndim != 1 or len(values) < 2:
        raise InputError(f"betas: expected at least two inverse temperatures, received shape {values.shape}")
    rises = bool(np.all(np.diff(values) > 0))  # false for NaN
    if not rises or values[0] < 0 or not math.isclose(values[-1], 1.0, abs_tol=1e-12):
        raise InputError(
            f"betas: expected inverse temperatures that rise from at least 0 to 1, received {values.tolist()}"
        )
    values[-1] = 1.0
    return values


def _exponentials(seed: int, number: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Exponential random numbers of a round of swaps; they depend on the arguments alone."""
    bits = np.random.Philox(
        key=np.array([seed, _SWAP_STREAM], dtype=np.uint64), counter=np.array([0, number, 0, 0], dtype=np.uint64)
    )
    return np.random.Generator(bits).standard_exponential(shape)
