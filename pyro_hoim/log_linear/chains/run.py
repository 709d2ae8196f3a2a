"""Long runs of Gibbs chains: running statistics, traces, progress, checkpoints."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...core.model import LogLinearModel
from ...errors import ConvergenceWarning, conflict, out_of_range, unexpected
from ...runs.chain_run import ChainRun
from ...runs.jobs import RecordPart, checked_file, checked_parts, checked_sizes, follow, part_of
from ...runs.recorder import Recorder
from ...runs.schedule import GibbsSchedule
from ._run_settings import run_settings, sweeps_per_call
from .engines import EngineName
from .gibbs import GibbsChains

__all__ = ["sample_chains"]

_TRACE_PER_CALL = 2**24


class _Sampling:
    """Burn-in and sampling of chains, as a job."""

    def __init__(
        self,
        chains: GibbsChains,
        recorder: Recorder,
        beta: torch.Tensor,
        sizes: tuple[int, int, int],
        parts: Sequence[str],
        tempered_burn_in: bool,
    ) -> None:
        self.done = 0
        self.burn_in, num_sweeps, self.thin = sizes
        self.total = self.burn_in + num_sweeps
        self._chains, self._recorder, self._beta = chains, recorder, beta
        self._kept = {"counts": "statistics" in parts, "energies": "energy" in parts, "codes": "codes" in parts}
        self._tempered = tempered_burn_in
        self._unit = sweeps_per_call(chains)
        if recorder.bytes_per_record:
            self._unit = min(self._unit, max(1, _TRACE_PER_CALL // recorder.bytes_per_record) * self.thin)

    def advance(self) -> int:
        if self.done < self.burn_in:
            length = min(self._unit, self.burn_in - self.done)
            self._warm_up(length)
            return length
        past = self.done - self.burn_in
        to_record = self.thin - past % self.thin
        if self._unit < to_record:
            self._chains.sweep(self._unit, self._beta)
            return self._unit
        records = 1
        if to_record == self.thin:
            records = min(self._unit // self.thin, self._recorder.num_to_look)
        length = to_record + (records - 1) * self.thin
        record = self._chains.sweep(length, self._beta, thin=length // records, **self._kept)
        if self._recorder.add(record):
            codes = self._chains.codes
            self._recorder.look(codes.reshape(-1, *codes.shape[-2:]))
        return length

    def _warm_up(self, length: int) -> None:
        if not self._tempered:
            self._chains.sweep(length, self._beta)
            return
        path = torch.arange(self.done, self.done + length + 1, dtype=torch.float64) / self.burn_in
        if self._beta.dim() == 0:
            self._chains.anneal(path * self._beta)
        else:
            for share in path[1:]:
                self._chains.sweep(1, self._beta * share)

    def state(self) -> dict[str, torch.Tensor]:
        return {
            **{f"chains.{name}": value for name, value in self._chains.state_dict().items()},
            **{f"record.{name}": value for name, value in self._recorder.state().items()},
        }

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self._chains.load_state_dict(part_of(state, "chains."))
        self._recorder.load_state(part_of(state, "record."))


def sample_chains(
    model: LogLinearModel | GibbsChains,
    num_chains: int | None = None,
    num_sweeps: int = 1000,
    *,
    burn_in: int = 0,
    thin: int = 1,
    record: RecordPart | Sequence[RecordPart] = "statistics",
    beta: float | torch.Tensor = 1.0,
    tempered_burn_in: bool = False,
    schedule: GibbsSchedule | None = None,
    clamped: Mapping[str, Any] | None = None,
    init: torch.Tensor | None = None,
    reference: torch.Tensor | None = None,
    seed: int | None = None,
    engine: EngineName = "auto",
    precision: torch.dtype = torch.float32,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    resume: bool = False,
) -> ChainRun:
    r"""Run Gibbs chains for any number of sweeps, keeping running statistics instead of states.

    Memory does not grow with the length of the run, unless energies or codes are recorded. A run that was killed and is
    resumed from its checkpoint gives the same bits as one that was not.

    Args:
        model: the energies; or chains to continue, which are moved and which fix the arguments from ``num_chains``
            and ``schedule`` to ``precision``.
        num_chains: chains per element of the batch.
        num_sweeps: sweeps after burn-in, a multiple of ``thin``.
        burn_in: sweeps before the first one that is recorded.
        thin: sweeps between two records.
        record: what is kept of every record: "statistics" (running sums for ``eta``), "energy" and "codes" (traces).
        beta: inverse temperature within [0, 1].
        tempered_burn_in: let beta rise linearly from 0 during burn-in.
        schedule: blocks and scan.
        clamped: variables held fixed.
        init: first states; drawn from the reference law when None.
        reference: log weights of the product law at beta 0; uniform when None.
        seed: seed of everything random, 0 when None.
        engine: what moves the chains.
        precision: of the conditionals.
        progress: show a progress bar on standard error.
        checkpoint: file to continue from; written now and then, at Ctrl-C and at the end.
        checkpoint_every: least number of seconds between two writes.
        resume: continue from ``checkpoint`` if it exists (of a finished run it gives the result); otherwise an
            existing file is refused.

    Shape:
        beta () or (\*batch); for the others see :class:`GibbsChains` and :class:`ChainRun`.

    Returns:
        Estimates and the chains in their last states. The estimates are those of a Markov chain: biased by its start
        and autocorrelated.

    Raises:
        InputError: sweeps that are no multiple of ``thin``, an unknown part to record, beta outside [0, 1], a
            checkpoint that exists, is damaged or belongs to a run with other arguments, and everything that
            :class:`GibbsChains` refuses.
        InputTypeError: arguments of the wrong type.

    Warns:
        ConvergenceWarning: chains differ from each other by more than chance; their standard errors say so, and
            say nothing of modes where no chain has been.

    Randomness:
        From ``seed`` only, as :class:`GibbsChains` describes.

    Example:
        >>> from pyro_hoim.log_linear import LogLinearEnergy
        >>> from pyro_hoim.schema import Domain
        >>> from pyro_hoim.structure import InteractionHypergraph
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
        >>> model = LogLinearEnergy(hypergraph, torch.zeros(11))
        >>> run = sample_chains(model, 100, 200, burn_in=10, thin=2, engine="torch")
        >>> run.num_records, bool(((run.eta[:2] - 0.5).abs() < 5 * run.std_error[:2]).all())
        (100, True)
    """
    sizes = checked_sizes(num_sweeps, burn_in, thin)
    parts = checked_parts(record)
    if tempered_burn_in and not sizes[0]:
        raise out_of_range("tempered_burn_in", "a burn-in of at least one sweep", received="burn_in=0")
    file = checked_file(checkpoint, checkpoint_every, resume)
    given = isinstance(model, GibbsChains)
    if isinstance(model, GibbsChains):
        fixed = {
            "num_chains": num_chains is None,
            "schedule": schedule is None,
            "clamped": clamped is None,
            "init": init is None,
            "reference": reference is None,
            "seed": seed is None,
            "engine": engine == "auto",
            "precision": precision == torch.float32,
        }
        for name, is_default in fixed.items():
            if not is_default:
                raise conflict(name, "is fixed in the chains that are continued", "leave it out, or pass a model")
        chains = model
    else:
        if num_chains is None:
            raise out_of_range("num_chains", "a whole number from 1 with a model", received="None")
        chains = GibbsChains(
            model,
            num_chains,
            schedule=schedule,
            clamped=clamped,
            init=init,
            reference=reference,
            seed=0 if seed is None else seed,
            engine=engine,
            precision=precision,
        )
    level = torch.as_tensor(beta, dtype=torch.float64).detach().cpu()
    if level.dim() > len(chains.batch_shape):
        expected = "one number per element of the batch"
        raise unexpected("beta", expected, received=f"shape {tuple(level.shape)}", code="wrong-shape")
    chains._betas(level)
    shape = (*chains.batch_shape, chains.num_chains)
    groups = chains.batch_shape.numel()
    recorder = Recorder(chains.hypergraph, groups, chains.num_chains, sizes[1] // sizes[2], parts, shape)
    job = _Sampling(chains, recorder, level, sizes, parts, bool(tempered_burn_in))
    settings = {
        "kind": "chains",
        **run_settings(chains, sizes, parts, states=not given, precision=None if given else str(precision)),
        "beta": level.tolist(),
        "tempered_burn_in": bool(tempered_burn_in),
    }
    seconds = follow(job, settings, file, progress)
    return ChainRun(**outcome(recorder, chains, sizes, seconds, shape))


def outcome(
    recorder: Recorder, chains: GibbsChains, sizes: tuple[int, int, int], seconds: float, shape: Sequence[int]
) -> dict[str, Any]:
    """Fields of a finished run; ``shape`` is that of the recorded chains, (*batch, num_chains)."""
    summary = recorder.summary()

    def batched(values: torch.Tensor | None) -> torch.Tensor | None:
        return None if values is None else values.reshape(*shape[:-1], values.shape[-1])

    if summary is not None and summary.is_mixed is False:
        warnings.warn(
            ConvergenceWarning(
                "chains differ from each other by more than chance, so they have not mixed; make longer runs, or draw "
                "larger blocks (GibbsSchedule)"
            ),
            stacklevel=3,
        )
    return {
        "eta": None if summary is None else batched(summary.eta),
        "std_error": None if summary is None else batched(summary.std_error),
        "between_chains": None if summary is None else batched(summary.between_chains),
        "is_mixed": None if summary is None else summary.is_mixed,
        "energies": recorder.energies,
        "codes": None if recorder.codes is None else recorder.codes.reshape(-1, *shape, len(chains.domain)),
        "chains": chains,
        "burn_in": sizes[0],
        "num_sweeps": sizes[1],
        "thin": sizes[2],
        "num_records": sizes[1] // sizes[2],
        "seconds": seconds,
    }
