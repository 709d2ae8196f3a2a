"""Parallel tempering: Gibbs chains at a ladder of temperatures that exchange their states."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InputError, InputTypeError
from ..structure.hypergraph import InteractionHypergraph
from .chains import EngineName, GibbsChains, LogLinearModel, _is_whole, _positive, _tables
from .engine import Record
from .recorder import Recorder
from .run import (
    ChainRun,
    RecordPart,
    checked_file,
    checked_parts,
    checked_sizes,
    follow,
    outcome,
    part_of,
    run_settings,
)
from .schedule import GibbsSchedule

__all__ = ["ParallelTempering", "TemperedRun", "sample_tempered"]

_LEAST_REJECTION = 1e-3
_LEAST_ADAPTED_ROUNDS = 16
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
        >>> from pyro_hoim.models import LogLinearEnergy
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
        self._betas = _ladder(betas)
        tables = _tables(model)
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

    def swap(self) -> None:
        """Propose to exchange the states of every second pair of neighbours."""
        chains = self.chains
        energy = (chains.energy - chains.reference_energy).cpu().numpy()
        log_ratio = np.diff(self._betas)[:, None] * np.diff(energy, axis=0)
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


@dataclass(frozen=True, eq=False)
class TemperedRun(ChainRun):
    r"""What a run of parallel tempering gave; estimates and states are those of the rung at beta 1.

    Attributes:
        eta: as of :class:`ChainRun`, float64 (num_terms,).
        std_error: float64 (num_terms,).
        between_chains: float64 (num_edges,).
        is_mixed: as of :class:`ChainRun`.
        energies: model energies of all rungs, float64 (records, rungs, num_chains), nats; or None.
        codes: states at beta 1, uint8 or int32 (records, num_chains, d); or None.
        chains: chains of all rungs; those at beta 1 are the last element of the batch.
        num_records: records made.
        num_sweeps: sweeps after burn-in.
        burn_in: sweeps before.
        thin: sweeps between two records.
        seconds: time spent, earlier parts of a resumed run included.
        betas: inverse temperatures after burn-in, float64 (rungs,).
        swap_rates: share of accepted swaps after burn-in of every pair of neighbours, float64 (rungs - 1,).
        round_trips: how often states went from beta 1 to the hottest rung and back after burn-in, long (num_chains,).
        ladder: the ladder at the end of the run, which can be continued.
    """

    betas: torch.Tensor
    swap_rates: torch.Tensor
    round_trips: torch.Tensor
    ladder: ParallelTempering

    @property
    def states(self) -> torch.Tensor:
        """Last states at beta 1, long (num_chains, d)."""
        return self.chains.codes[-1]


class _Tempering:
    """Burn-in and sampling of a ladder, as a job."""

    def __init__(
        self,
        ladder: ParallelTempering,
        recorder: Recorder,
        sizes: tuple[int, int, int],
        swap_every: int,
        parts: Sequence[str],
        adapt: bool,
    ) -> None:
        self.done = 0
        self.burn_in, num_sweeps, self.thin = sizes
        self.total = self.burn_in + num_sweeps
        self.ladder, self._recorder, self._swap_every = ladder, recorder, swap_every
        self._kept = {"counts": "statistics" in parts, "energies": "energy" in parts, "codes": "codes" in parts}
        rounds = self.burn_in // swap_every
        # Windows that double; the second half of burn-in settles on the final ladder.
        self._adapt_after = {rounds * k // 16 * swap_every for k in (1, 2, 4, 8)} if adapt else set[int]()

    def advance(self) -> int:
        length = self._swap_every
        past = self.done + length - self.burn_in
        if past > 0 and past % self.thin == 0:
            record = self.ladder.sweep(length, thin=length, **self._kept)
            kept = Record(
                record.num_records,
                None if record.counts is None else record.counts[-1:],
                record.energies,
                None if record.codes is None else record.codes[:, -1],
            )
            if self._recorder.add(kept):
                self._recorder.look(self.ladder.chains.codes[-1:])
        else:
            self.ladder.sweep(length)
        if past <= 0:
            if self.done + length in self._adapt_after:
                self.ladder.adapt()
            if past == 0:
                self.ladder.reset_statistics()
        return length

    def state(self) -> dict[str, torch.Tensor]:
        recorded = {f"record.{name}": value for name, value in self._recorder.state().items()}
        return {**self.ladder.state_dict(), **recorded}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self.ladder.load_state_dict(state)
        self._recorder.load_state(part_of(state, "record."))


def sample_tempered(
    model: LogLinearModel,
    num_chains: int,
    num_sweeps: int = 1000,
    *,
    betas: int | Sequence[float] | torch.Tensor = 12,
    adapt: bool | None = None,
    swap_every: int = 1,
    burn_in: int = 1000,
    thin: int = 1,
    record: RecordPart | Sequence[RecordPart] = "statistics",
    schedule: GibbsSchedule | None = None,
    clamped: Mapping[str, Any] | None = None,
    init: torch.Tensor | None = None,
    reference: torch.Tensor | None = None,
    seed: int = 0,
    engine: EngineName = "auto",
    precision: torch.dtype = torch.float32,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    resume: bool = False,
) -> TemperedRun:
    """Sample a law with several modes by parallel tempering; costs as many chains as there are rungs.

    States travel to high temperatures, change mode there, and come back. Look at ``swap_rates`` (above 0.2, say) and at
    ``round_trips`` (at least one per chain): a low rate asks for more rungs, few trips for a longer run.

    Args:
        model: the energies, without a batch.
        num_chains: chains on every rung.
        num_sweeps: sweeps after burn-in, a multiple of ``thin``.
        betas: inverse temperatures rising to 1, or the number of rungs from 0 to 1, at least 2.
        adapt: move the rungs so that swap rates become equal, during the first half of burn-in; by default if
            ``betas`` is a number. At least 16 swaps of burn-in are needed.
        swap_every: sweeps between two rounds of swaps; divides ``burn_in`` and ``thin``.
        burn_in: sweeps before the first one that is recorded.
        thin: sweeps between two records.
        record: what is kept of every record: "statistics", "energy" (of all rungs) and "codes", at beta 1.
        schedule: blocks and scan.
        clamped: variables held fixed.
        init: first states, broadcastable to (rungs, num_chains, d); drawn from the reference law when None.
        reference: log weights of the product law at beta 0; uniform when None.
        seed: seed of everything random.
        engine: what moves the chains.
        precision: of the conditionals.
        progress: show a progress bar on standard error.
        checkpoint: file to continue from; written now and then, at Ctrl-C and at the end.
        checkpoint_every: least number of seconds between two writes.
        resume: continue from ``checkpoint`` if it exists; otherwise an existing file is refused.

    Returns:
        Estimates at beta 1, swap rates and round trips. The estimates are those of a Markov chain: biased by its start
        and autocorrelated.

    Raises:
        InputError: numbers that do not divide each other as they should, a ladder that does not rise to 1, a burn-in
            too short to adapt, a checkpoint that exists, is damaged or belongs to a run with other arguments, and
            everything that :class:`GibbsChains` refuses.
        InputTypeError: arguments of the wrong type.

    Warns:
        ConvergenceWarning: chains differ from each other by more than chance.

    Randomness:
        From ``seed`` only.

    Example:
        >>> from pyro_hoim.models import LogLinearEnergy
        >>> from pyro_hoim.schema import Domain
        >>> from pyro_hoim.structure import InteractionHypergraph
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 2]))
        >>> model = LogLinearEnergy.from_theta(hypergraph, torch.tensor([0.0, 0.0, 6.0]))  # two modes
        >>> run = sample_tempered(model, 50, 200, betas=5, burn_in=64, engine="torch")
        >>> bool((run.eta[:2] - 0.5).abs().max() < 5 * run.std_error[0]), int(run.round_trips.min()) > 0
        (True, True)
    """
    sizes = checked_sizes(num_sweeps, burn_in, thin)
    parts = checked_parts(record)
    swap_every = _positive(swap_every, "swap_every")
    for name, value in (("burn_in", burn_in), ("thin", thin)):
        if value % swap_every:
            raise InputError(f"{name}: expected a multiple of swap_every={swap_every}, received {value}")
    is_number = _is_whole(betas)
    if is_number and betas < 2:  # pyright: ignore[reportOperatorIssue]
        raise InputError(f"betas: expected at least 2 rungs, received {betas}")
    levels = _ladder(np.linspace(0, 1, betas) if is_number else betas)  # pyright: ignore[reportArgumentType, reportCallIssue]
    moves = is_number if adapt is None else bool(adapt)
    if moves and burn_in < _LEAST_ADAPTED_ROUNDS * swap_every:
        raise InputError(
            f"burn_in: expected at least {_LEAST_ADAPTED_ROUNDS * swap_every} sweeps to adapt the ladder, received "
            f"{burn_in}; pass more, or adapt=False"
        )
    file = checked_file(checkpoint, checkpoint_every, resume)
    ladder = ParallelTempering(
        model,
        num_chains,
        torch.from_numpy(levels),
        schedule=schedule,
        clamped=clamped,
        init=init,
        reference=reference,
        seed=seed,
        engine=engine,
        precision=precision,
    )
    chains = ladder.chains
    recorder = Recorder(chains.hypergraph, 1, num_chains, sizes[1] // sizes[2], parts, (len(levels), chains.num_chains))
    settings = {
        "kind": "tempered chains",
        **run_settings(chains, sizes, parts, states=True, precision=str(precision)),
        "betas": levels.tolist(),
        "adapt": moves,
        "swap_every": swap_every,
    }
    job = _Tempering(ladder, recorder, sizes, swap_every, parts, moves)
    seconds = follow(job, settings, file, progress)
    return TemperedRun(
        **outcome(recorder, chains, sizes, seconds, (chains.num_chains,)),
        betas=ladder.betas,
        swap_rates=ladder.swap_rates,
        round_trips=ladder.round_trips,
        ladder=ladder,
    )


def _ladder(betas: Any) -> NDArray[np.float64]:
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
