"""Runs of parallel tempering, for laws with several modes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...compute.engine import Record
from ...core.model import LogLinearModel
from ...errors import InputError, is_whole
from ...runs.arguments import positive
from ...runs.chain_run import ChainRun
from ...runs.jobs import RecordPart, checked_file, checked_parts, checked_sizes, follow, part_of
from ...runs.recorder import Recorder
from ...runs.schedule import GibbsSchedule
from ._run_settings import run_settings
from .engines import EngineName
from .ladder import ParallelTempering, checked_betas
from .run import outcome

__all__ = ["TemperedRun", "sample_tempered"]

_LEAST_ADAPTED_ROUNDS = 16


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
        >>> from pyro_hoim.log_linear import LogLinearEnergy
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
    swap_every = positive(swap_every, "swap_every")
    for name, value in (("burn_in", burn_in), ("thin", thin)):
        if value % swap_every:
            raise InputError(f"{name}: expected a multiple of swap_every={swap_every}, received {value}")
    is_number = is_whole(betas)
    if is_number and betas < 2:  # pyright: ignore[reportOperatorIssue]
        raise InputError(f"betas: expected at least 2 rungs, received {betas}")
    levels = checked_betas(np.linspace(0, 1, betas) if is_number else betas)  # pyright: ignore[reportArgumentType, reportCallIssue]
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
