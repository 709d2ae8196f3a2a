"""Long runs of chains of any model: running statistics, traces, progress, checkpoints."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from scipy import special

from ..budgets import MAX_BYTES, check_size
from ..compute.engine import Record
from ..core.model import Chains, RecordPart
from ..core.words import in_python
from ..errors import ConvergenceWarning, check_choice, check_names, check_whole, conflict, wrong_type
from ..structure.hypergraph import cell_index
from .checkpoint import RunOptions, checked_run, follow, part_of

# What is kept of a long run: running statistics with their errors, and traces where they are asked for.

_SHORT_RUN = 64
_MAX_BATCHES = 1024
_MAX_BLOCKS = 16
_WATCHED = (512, 2**16)
_WATCHED_IN_SHORT_RUNS = (2048, 2**18)
_MAX_BLOCK_CELLS = 2**24
_MAX_ROW_CELLS = 2**20
_ALARM = 1e-6
_DOUBT = 1e-4
_RARE, _FEW_LOOKS = 0.05, 25  # shares below both, the second in looks, may lack long visits
_ENOUGH_BLOCKS = 8  # whose variance says something of a single cell
_MAX_KURTOSIS = 0.05  # of the visits of a block, above which their variance has no chi-square law far out


class Summary(NamedTuple):
    """Estimates of mean coordinates, with the attributes of :class:`~pyro_hoim.runs.ChainRun`."""

    eta: torch.Tensor
    std_error: torch.Tensor
    between_chains: torch.Tensor | None
    is_mixed: bool | None


class Recorder:
    r"""Running sums of a run of known length, in memory that does not depend on it.

    The records are cut into :math:`a = \min(1024, \lfloor \sqrt{n} \rfloor)` batches of consecutive records. With batch
    means :math:`\bar y_k`, the error of their mean is :math:`\sqrt{\sum_k (\bar y_k - \bar y)^2 / (a (a - 1))}`, which
    holds if chains forget within a batch. Whether they do is seen between chains: up to 16 blocks of chains are looked
    at after every batch, and chains that are independent have block means with variance
    :math:`\eta (1 - \eta) / (\text{looks} \times \text{chains})`. Where the variance between blocks is larger than
    chance allows, it replaces that of the batches. A run of at most 64 records uses the blocks alone.

    Both errors are too small for a cell that was visited too little. With the variance v of its estimate a cell of
    share :math:`\eta` had about :math:`E = \eta (1 - \eta) / v` independent visits (of the cell or of its complement),
    each with the weight :math:`w = v / (\eta (1 - \eta))`. E is close to a Poisson variable, and the farthest mean that
    it does not refute at k standard errors lies :math:`k (k / 2 + \sqrt{E + k^2 / 4})` above it. The error that is
    stated is that distance divided by k, at k = 2: :math:`w + \sqrt{v + w^2}`, near :math:`\sqrt v` for many visits.
    A cell with :math:`\eta (1 - \eta)` below 25 looks and 0.05 may have been visited briefly and often while its long
    visits are missing. There v is the larger of both variances (with 8 blocks or more) and w at least the weight of one
    look, the longest visit that batches allow for; so the error of a cell that never changed is 2 over the number of
    looks at all chains.

    What chance allows of an edge is the limit of a chi-square law, from the cells whose visits to a block are close
    enough to a normal law: about 20 or more, or a share between 0.2 and 0.8. A rarer cell is judged by the block that
    has most of its T visits: one of B blocks has m of them or more with a probability of at most
    :math:`B \, \Pr(\mathrm{Bin}(T, 1/B) \ge m)`.

    The ``parts`` that are kept are "statistics" (of the cells of the chains' ``hypergraph``), "energies" and "draws";
    traces that do not fit into memory are refused.

    References:
        Charles Geyer, Practical Markov chain Monte Carlo, Statistical Science 7, 1992, section 3.2 (batch means).
        Neil Gehrels, Confidence limits for small numbers of events in astrophysical data, The Astrophysical Journal
        303, 1986, section 2 (limits of Poisson means).
    """

    def __init__(self, chains: Chains, num_draws: int, parts: Sequence[str]) -> None:
        self._num_chains = num_chains = chains.num_chains
        self._batch, self._num_records = chains.batch_shape, num_draws
        self._groups = groups = self._batch.numel()
        self.num_done = 0
        self.traces: dict[str, torch.Tensor] = {}
        # Memory for the traces is reserved now, so that a run that cannot hold them does not begin.
        lead = (num_draws, *chains.batch_shape, num_chains)
        if "energies" in parts:
            self.traces["energies"] = _reserve(lead, torch.float64)
        if "draws" in parts:
            # Values as they are, codes as small as they can be.
            dtype = torch.float64
            if not chains.states.is_floating_point():
                dtype = torch.int32 if max(chains.domain.cardinalities, default=1) > 256 else torch.uint8
            self.traces["draws"] = _reserve((*lead, len(chains.domain)), dtype)
        self._num_batches = 0
        self._sums: dict[str, torch.Tensor] = {}
        if "statistics" not in parts:
            return
        # Blocks of chains, which are compared with each other.
        hypergraph = chains.hypergraph
        assert hypergraph is not None
        self._hypergraph, num_records = hypergraph, num_draws
        blocks = min(_MAX_BLOCKS, num_chains, _MAX_BLOCK_CELLS // max(1, groups * hypergraph.num_terms))
        self._blocks = blocks if blocks >= 2 else 0
        root = math.isqrt(num_records)
        self.is_short = num_records <= _SHORT_RUN and self._blocks >= min(root, _MAX_BLOCKS)
        # Between long batches few chains will do: whether all of them are stuck shows in any of them.
        few, cells = _WATCHED_IN_SHORT_RUNS if self.is_short else _WATCHED
        watched = min(num_chains, few, max(blocks, cells // max(1, len(hypergraph.edge_indices))))
        self._watched = watched // blocks * blocks if self._blocks else 0
        # Batches of records, and the sums over them.
        count = num_records if self.is_short else min(_MAX_BATCHES, root)
        self._ends = [(k + 1) * num_records // count for k in range(count)]
        size = (groups, hypergraph.num_terms)
        self._sums = {name: torch.zeros(size, dtype=torch.float64) for name in ("total", "batch", "mean", "squares")}
        self._sums["blocks"] = torch.zeros((self._blocks, *size), dtype=torch.float64)

    @property
    def bytes_per_record(self) -> int:
        """What a record adds to the traces."""
        return sum(values.nbytes for values in self.traces.values()) // self._num_records

    @property
    def num_to_look(self) -> int:
        """Records until the next look at the states."""
        return (self._ends[self._num_batches] if self._sums else self._num_records) - self.num_done

    def add(self, record: Record) -> bool:
        """Take in (groups, ...) counts, and traces; True if the states should now be shown to :meth:`look`."""
        k = self.num_done
        for name, values in (("energies", record.energies), ("draws", record.states)):
            if name in self.traces and values is not None:
                target = self.traces[name][k : k + record.num_records]
                target.copy_(values.reshape(target.shape))
        self.num_done += record.num_records
        if record.counts is None or not self._sums:
            return False
        self._sums["batch"] += record.counts.cpu().reshape(self._sums["batch"].shape)
        return self.num_done == self._ends[self._num_batches]

    def look(self, states: torch.Tensor) -> None:
        """End a batch, at states (*batch, num_chains, d)."""
        # Mean and squares of the batch means, by Welford's update.
        states = states.reshape(-1, *states.shape[-2:])
        sums, k = self._sums, self._num_batches
        length = self._ends[k] - (self._ends[k - 1] if k else 0)
        sums["total"] += sums["batch"]
        change = sums["batch"] / (length * self._num_chains) - sums["mean"]
        sums["mean"] += change / (k + 1)
        sums["squares"] += change**2 * (k / (k + 1))
        sums["batch"].zero_()
        self._num_batches += 1
        # Cells of every block at this moment, some batch elements at a time.
        if self._blocks:
            shown, flat = states[:, : self._watched].cpu(), cell_index(self._hypergraph).flat
            terms, each = self._hypergraph.num_terms, self._watched // self._blocks
            at_once = max(1, _MAX_ROW_CELLS // (self._watched * max(1, len(self._hypergraph))))
            for first in range(0, self._groups, at_once):
                rows = shown[first : first + at_once].reshape(-1, shown.shape[-1])
                cells, count = flat(rows).numpy(), len(rows) // each
                cells += (np.arange(len(rows)) // each * terms)[:, None]
                counts = np.bincount(cells.ravel(), minlength=count * terms).reshape(-1, self._blocks, terms)
                sums["blocks"][:, first : first + at_once] += torch.from_numpy(counts).transpose(0, 1)

    def summary(self) -> Summary | None:
        """Estimates from all records, or None where statistics were not asked for."""
        if not self._sums:
            return None
        sums, looks = self._sums, self._num_batches
        total = self._num_records * self._num_chains
        # Batch means: their variance holds where chains forget their states within a batch.
        eta = sums["total"] / total
        spread = sums["squares"] / (looks * (looks - 1)) if looks > 1 else torch.full_like(eta, math.nan)
        scale, look = eta * (1 - eta), 1 / (looks * self._num_chains)
        is_seldom = (scale < _FEW_LOOKS * look) & (scale < _RARE)
        ratio, is_mixed = None, None
        # The variance between blocks of chains replaces it where chance does not explain that.
        if self._blocks:
            means = sums["blocks"] / (self._watched // self._blocks * looks)
            between = means.var(0) / self._blocks * (self._watched / self._num_chains)
            ratio = self._ratio(between, scale * look)
            if self.is_short:
                spread = between
            else:
                freedom = self._blocks - 1
                is_doubtful = ratio > float(special.chdtri(freedom, _DOUBT)) / freedom
                sizes = torch.tensor([math.prod(shape) for shape in self._hypergraph.edge_shapes])
                cells = is_doubtful.repeat_interleave(sizes, dim=-1)
                cells = cells | is_seldom if self._blocks >= _ENOUGH_BLOCKS else cells
                spread = torch.where(cells, torch.maximum(spread, between), spread)
                is_mixed = self._is_mixed(between, scale * look)
        # Cells that were visited too little: the error states how far the mean may lie above what was seen.
        is_constant = (sums["total"] == 0) | (sums["total"] == total)
        is_stuck = is_constant.all(-1, keepdim=True)
        if is_mixed and bool(is_stuck.any()):
            is_mixed = None
        weight = torch.where(is_constant, 0.0, spread / scale)
        weight = torch.where(is_seldom, weight.clamp(min=look), weight)
        error = weight + (weight**2 + spread).sqrt()
        error = torch.where(is_stuck, 1 / self._num_chains, error)

        def batched(values: torch.Tensor) -> torch.Tensor:
            return values.reshape(*self._batch, values.shape[-1])

        return Summary(batched(eta), batched(error), None if ratio is None else batched(ratio), is_mixed)

    def _is_mixed(self, between: torch.Tensor, expected: torch.Tensor) -> bool:
        """Whether blocks of chains differ as little as chance allows, in common and in rare cells."""
        # A chi-square test of every edge, over cells that blocks visit often enough for a normal law.
        blocks, seen = self._blocks, self._watched // self._blocks * self._num_batches
        counts = self._sums["blocks"]
        total = counts.sum(0)
        share = total / (blocks * seen)
        variance = share * (1 - share)
        is_common = 1 - 6 * variance <= _MAX_KURTOSIS * seen * variance
        ratio = self._ratio(between * is_common, expected * is_common)
        limit = float(special.chdtri(blocks - 1, _ALARM / 2 / max(1, ratio.numel()))) / (blocks - 1)
        if bool((ratio > limit).any()):
            return False
        # Rarer cells by the block that has most of their visits.
        is_often = share > 0.5  # then its complement is the rare event
        most = torch.where(is_often, seen - counts.amin(0), counts.amax(0))
        visits = torch.where(is_often, blocks * seen - total, total)
        is_rare = ~is_common & (visits > 0)
        most, visits = most[is_rare].numpy(), visits[is_rare].numpy()
        chance = special.betainc(most, visits - most + 1, 1 / blocks)  # of a binomial variable, to be that large
        return not bool((blocks * chance < _ALARM / 2 / max(1, chance.size)).any())

    def _ratio(self, between: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Sums over the cells of every edge, divided; 1 where nothing varies."""
        slices = self._hypergraph.term_slices.values()
        above = torch.stack([between[:, s].sum(-1) for s in slices], -1) if slices else between[:, :0]
        below = torch.stack([expected[:, s].sum(-1) for s in slices], -1) if slices else expected[:, :0]
        return torch.where(below > 0, above / below.clamp(min=1e-300), 1.0)

    def state(self) -> dict[str, torch.Tensor]:
        """Everything as tensors; traces as far as they go."""
        traces = {name: values[: self.num_done] for name, values in self.traces.items()}
        return {**self._sums, **traces, "position": torch.tensor([self.num_done, self._num_batches])}

    def load_state(self, state: Mapping[str, torch.Tensor], num_done: int) -> None:
        """Continue from :meth:`state` after so many records; ValueError for the state after another number."""
        self.num_done = num_done
        self._num_batches = bisect_right(self._ends, num_done) if self._sums else 0
        if state["position"].tolist() != [num_done, self._num_batches]:
            raise ValueError(f"position {state['position'].tolist()} after {num_done} records")
        for name, values in self._sums.items():
            values.copy_(state[name])
        for name, values in self.traces.items():
            values[: self.num_done].copy_(state[name])


def _reserve(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Memory for a trace; pages are taken when they are written."""
    what, hint = f"a trace of {shape[0]} records has", "thin more, or keep statistics only"
    check_size(math.prod(shape) * dtype.itemsize, MAX_BYTES, "bytes", "record", hint, what)
    return torch.empty(tuple(shape), dtype=dtype)


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
            rare cells had (see :class:`~pyro_hoim.runs.sampling.Recorder`); float64 (\*batch, num_terms), NaN with one
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
        # Edges stand in the order of the schema.
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
    """Burn-in and sampling of chains, as a :class:`~pyro_hoim.runs.checkpoint.Job`."""

    def __init__(
        self, chains: Chains, recorder: Recorder, burn_in: int, num_draws: int, thin: int, parts: Sequence[str]
    ) -> None:
        self.done, self.burn_in, self.thin = 0, burn_in, thin
        self.total = burn_in + num_draws * thin
        self._chains, self._recorder = chains, recorder
        self._recorded = {_KEYWORDS[part]: True for part in parts}
        self._unit = chains.sweeps_per_call
        if recorder.bytes_per_record:
            self._unit = min(self._unit, max(1, _TRACE_PER_CALL // recorder.bytes_per_record) * self.thin)

    def advance(self) -> int:
        # Burn-in in pieces as long as the chains take at once.
        if self.done < self.burn_in:
            length = min(self._unit, self.burn_in - self.done)
            self._chains.sweep(length)
            return length
        # Up to the next record, or over some whole ones.
        to_record = self.thin - (self.done - self.burn_in) % self.thin
        if self._unit < to_record:
            self._chains.sweep(self._unit)
            return self._unit
        records = 1
        if to_record == self.thin:
            records = min(self._unit // self.thin, self._recorder.num_to_look)
        length = to_record + (records - 1) * self.thin
        if self._recorder.add(self._chains.sweep(length, thin=length // records, **self._recorded)):
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
        ConvergenceWarning: before the run, if no chain can ever reach some of the possible states; after it, if chains
            differ from each other by more than chance otherwise; their standard errors say so, and say nothing of modes
            where no chain has been.

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
    # What is asked for, before memory is reserved or a file is written.
    burn_in, num_draws = check_whole(burn_in, "burn_in", 0), check_whole(num_draws, "num_draws")
    thin = check_whole(thin, "thin")
    parts = _checked_parts(record, chains.recordable)
    run = checked_run(run)
    if barrier := chains.barrier:
        hint = f"{in_python(f'{chains.mixing_hint}, or ')}use an exact backend"
        warnings.warn(ConvergenceWarning(barrier, argument="chains", hint=hint), stacklevel=2)
    file = run.file()
    # A run in steps, which a checkpoint can be taken of.
    recorder = Recorder(chains, num_draws, parts)
    sizes = {"burn_in": burn_in, "num_draws": num_draws, "thin": thin}
    settings = {"kind": type(chains).__name__, **sizes, "record": list(parts), **chains.settings}
    seconds = follow(_Sampling(chains, recorder, **sizes, parts=parts), settings, file, run.progress)
    # Estimates with their errors, and a warning where chains contradict each other.
    eta, std_error, between_chains, is_mixed = recorder.summary() or (None,) * 4
    if is_mixed is False and not barrier:
        message = "chains differ from each other by more than chance, so they have not mixed; make longer runs"
        warnings.warn(ConvergenceWarning(message + in_python(f", or {chains.mixing_hint}")), stacklevel=2)
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
