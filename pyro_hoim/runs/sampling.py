"""Long runs of chains of any model: running statistics, traces, progress, checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from ..core.chains import Chains, RecordPart
from ..errors import ConvergenceWarning, check_choice, check_names, check_whole, conflict, wrong_type
from .checkpoint import part_of
from .jobs import follow
from .options import RunOptions, checked_run
from .recorder import Recorder

__all__ = ["ChainRun", "sample_chains"]

_TRACE_PER_CALL = 2**24
_KEYWORDS = {"statistics": "counts", "energies": "energies", "draws": "states"}

C = TypeVar("C", bound=Chains)


@dataclass(frozen=True, eq=False)
class ChainRun(Generic[C]):
    r"""What a run of chains gave.

    Attributes:
        eta: estimated mean coordinates, the probability of every cell of every edge of ``chains.hypergraph`` in the
            layout of its ``term_slices``, float64 (\*batch, num_terms); asymptotically unbiased, biased by what is left
            of the first states. None unless statistics were recorded.
        std_error: Monte Carlo standard errors of ``eta`` that allow for autocorrelation and for the few visits that
            rare cells had (see :class:`~pyro_hoim.runs.recorder.Recorder`); float64 (\*batch, num_terms), NaN with one
            record of one chain. Where nothing moved they are one over the number of chains. They know nothing of modes
            that no chain entered. Of runs that are mixed at most 2 % have a cell beyond 5 standard errors (5 of 757
            random models of two to five variables, measured).
        between_chains: variance between chains over what independent records would give, by edge, float64 (\*batch,
            num_edges): near 1 where chains forget their states within a batch, the number of batches where they never
            do. None with one chain.
        is_mixed: whether chains differ everywhere as little as chance allows (false alarm about 1e-6); None where that
            cannot be judged: a run is too short, has one chain, or no chain of a batch element ever moved.
        energies: energy of every chain at every record, float64 (num_draws, \*batch, num_chains), nats; or None.
        draws: states at every record (num_draws, \*batch, num_chains, d), codes in uint8 or int32, values of
            generalized root models in float64; or None.
        chains: the chains at the end of the run, which can be continued.
        num_draws: records made.
        burn_in: sweeps before the first record.
        thin: sweeps between two records.
        seconds: time spent, earlier parts of a resumed run included.

    Example:
        >>> from pyro_hoim import Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2}), 2)
        >>> chains = GibbsChains(LogLinearEnergy(graph, torch.zeros(8)), 100, engine="torch")
        >>> run = sample_chains(chains, 50, record=["statistics", "draws"])
        >>> run.values("a").shape, run.eta.shape
        (torch.Size([50, 100]), torch.Size([8]))
        >>> bool(((run.eta[:4] - 0.5).abs() < 5 * run.std_error[:4]).all())  # margins of a and of b
        True
    """

    eta: torch.Tensor | None
    std_error: torch.Tensor | None
    between_chains: torch.Tensor | None
    is_mixed: bool | None
    energies: torch.Tensor | None
    draws: torch.Tensor | None
    chains: C
    num_draws: int
    burn_in: int
    thin: int
    seconds: float

    def probs(self, names: str | Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        r"""Estimated probabilities of some variables that were counted together, and their standard errors.

        Both are (\*batch, \*cardinalities), float64, in schema order, for a variable or an edge that was counted.

        Raises:
            InputError: the names were not counted together, or no statistics were recorded.
            UnknownNameError: a name is not in the domain.
        """
        if self.eta is None or self.std_error is None:
            raise conflict("probs", "the run recorded no statistics", "run it with record='statistics'")
        hypergraph = self.chains.hypergraph
        assert hypergraph is not None
        wanted = (names,) if isinstance(names, str) else tuple(names)
        edge = tuple(self.chains.domain.names[i] for i in sorted(self.chains.domain.indices(wanted)))
        if edge not in hypergraph.term_slices:
            raise conflict("probs", f"{edge} were not counted together", f"make chains with edges=[{edge}]")
        where = hypergraph.term_slices[edge]
        shape = (*self.eta.shape[:-1], *(self.chains.domain[name].cardinality for name in edge))
        return self.eta[..., where].reshape(shape), self.std_error[..., where].reshape(shape)

    def values(self, name: str) -> torch.Tensor:
        r"""Draws of one variable (num_draws, \*batch, num_chains); InputError where none were recorded."""
        check_names([name], self.chains.domain.names, "name")
        if self.draws is None:
            raise conflict("values", "the run recorded no draws", "run it with record='draws'")
        return self.draws[..., self.chains.domain.index(name)]


class _Sampling:
    """Burn-in and sampling of chains, as a :class:`~pyro_hoim.runs.jobs.Job`."""

    def __init__(
        self, chains: Chains, recorder: Recorder, burn_in: int, num_draws: int, thin: int, parts: Sequence[str]
    ) -> None:
        self.done, self.burn_in, self.thin = 0, burn_in, thin
        self.total = burn_in + num_draws * thin
        self._chains, self._recorder = chains, recorder
        self._kept = {_KEYWORDS[part]: True for part in parts}
        self._unit = chains.sweeps_per_call
        if recorder.bytes_per_record:
            self._unit = min(self._unit, max(1, _TRACE_PER_CALL // recorder.bytes_per_record) * self.thin)

    def advance(self) -> int:
        if self.done < self.burn_in:
            length = min(self._unit, self.burn_in - self.done)
            self._chains.sweep(length)
            return length
        to_record = self.thin - (self.done - self.burn_in) % self.thin
        if self._unit < to_record:
            self._chains.sweep(self._unit)
            return self._unit
        records = 1
        if to_record == self.thin:
            records = min(self._unit // self.thin, self._recorder.num_to_look)
        length = to_record + (records - 1) * self.thin
        if self._recorder.add(self._chains.sweep(length, thin=length // records, **self._kept)):
            self._recorder.look(self._chains.states)
        return length

    def state(self) -> dict[str, torch.Tensor]:
        return {
            **{f"chains.{name}": value for name, value in self._chains.state_dict().items()},
            **{f"record.{name}": value for name, value in self._recorder.state().items()},
        }

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self._chains.load_state_dict(part_of(state, "chains."))
        num_records = max(0, self.done - self.burn_in) // self.thin
        self._recorder.load_state(part_of(state, "record."), num_records)


def sample_chains(
    chains: C,
    num_draws: int = 1000,
    *,
    burn_in: int = 0,
    thin: int = 1,
    record: RecordPart | Sequence[RecordPart] | None = None,
    run: RunOptions | None = None,
) -> ChainRun[C]:
    r"""Run chains for any number of sweeps, keeping running statistics instead of states, or what is asked for.

    Memory does not grow with the length of the run, unless energies or draws are recorded. A run that was resumed from
    its checkpoint gives the same bits as one that was not.

    Args:
        chains: :class:`~pyro_hoim.log_linear.GibbsChains`, :class:`~pyro_hoim.dependency_network.PseudoGibbsChains` or
            :class:`~pyro_hoim.generalized_root.RootChains`; they are moved.
        num_draws: records of every chain.
        burn_in: sweeps before the first one that counts.
        thin: sweeps to a record.
        record: what is kept: "statistics" (running sums for ``eta``), "energies" and "draws" (traces). None keeps
            statistics, and of chains that have none (generalized root models) the traces.
        run: the file that is written now and then, at Ctrl-C and at the end, whether to continue from it (of a finished
            run it gives the result; the chains may have moved since, but must have been made alike), and progress.

    Returns:
        Estimates, traces, and the chains in their last states. Of a dependency network the estimates are those of the
        stationary law of the random scan, or of the law after whole sweeps of the sequential one.

    Raises:
        InputError: numbers that are none, a part that the chains do not have, a trace that does not fit into memory, or
            a checkpoint that exists, is damaged or belongs to a run with other arguments.
        InputTypeError: arguments of the wrong type.

    Warns:
        ConvergenceWarning: chains differ from each other by more than chance; their standard errors say so, and
            say nothing of modes where no chain has been.

    Example:
        >>> from pyro_hoim import Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3}), 2)
        >>> chains = GibbsChains(LogLinearEnergy(hypergraph, torch.zeros(11)), 100, engine="torch")
        >>> run = sample_chains(chains, 100, burn_in=10, thin=2)
        >>> probs, errors = run.probs("a")
        >>> chains.num_sweeps, bool(((probs - 0.5).abs() < 5 * errors).all())
        (210, True)
    """
    if not hasattr(chains, "recordable"):
        raise wrong_type("chains", "GibbsChains, PseudoGibbsChains or RootChains", chains)
    burn_in, num_draws = check_whole(burn_in, "burn_in", 0), check_whole(num_draws, "num_draws")
    thin = check_whole(thin, "thin")
    parts = _checked_parts(record, chains.recordable)
    run = checked_run(run)
    file = run.file()
    recorder = Recorder(chains, num_draws, parts)
    sizes = {"burn_in": burn_in, "num_draws": num_draws, "thin": thin}
    settings = {"kind": type(chains).__name__, **sizes, "record": list(parts), **chains.settings}
    seconds = follow(_Sampling(chains, recorder, **sizes, parts=parts), settings, file, run.progress)
    eta, std_error, between_chains, is_mixed = recorder.summary() or (None,) * 4
    if is_mixed is False:
        message = "chains differ from each other by more than chance, so they have not mixed; make longer runs, or "
        warnings.warn(ConvergenceWarning(message + chains.mixing_hint), stacklevel=2)
    return ChainRun(
        eta,
        std_error,
        between_chains,
        is_mixed,
        recorder.traces.get("energies"),
        recorder.traces.get("draws"),
        chains,
        num_draws,
        burn_in,
        thin,
        seconds,
    )


def _checked_parts(record: RecordPart | Sequence[RecordPart] | None, known: tuple[RecordPart, ...]) -> tuple[str, ...]:
    """What is recorded, in one order."""
    if record is None:
        return ("statistics",) if "statistics" in known else known
    if not isinstance(record, Sequence):
        raise wrong_type("record", "names of what to keep", record)
    asked = (record,) if isinstance(record, str) else tuple(record)
    for name in asked:
        check_choice(name, known, "record")
    return tuple(name for name in known if name in asked)
