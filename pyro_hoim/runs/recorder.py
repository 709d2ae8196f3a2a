"""What is kept of a long run: running statistics with their errors, and traces where they are asked for."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import special

from ..budgets import MAX_BYTES, check_size
from ..compute.engine import Record
from ..core.chains import Chains
from ..structure.cells import cell_index

__all__ = ["Recorder", "Summary"]

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
        lead = (num_draws, *chains.batch_shape, num_chains)
        if "energies" in parts:
            self.traces["energies"] = _reserve(lead, torch.float64)
        if "draws" in parts:
            self.traces["draws"] = _reserve((*lead, len(chains.domain)), _dtype_of(chains))
        self._num_batches = 0
        self._sums: dict[str, torch.Tensor] = {}
        if "statistics" not in parts:
            return
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
        states = states.reshape(-1, *states.shape[-2:])
        sums, k = self._sums, self._num_batches
        length = self._ends[k] - (self._ends[k - 1] if k else 0)
        sums["total"] += sums["batch"]
        change = sums["batch"] / (length * self._num_chains) - sums["mean"]
        sums["mean"] += change / (k + 1)
        sums["squares"] += change**2 * (k / (k + 1))
        sums["batch"].zero_()
        self._num_batches += 1
        if self._blocks:
            shown, flat = states[:, : self._watched].cpu(), cell_index(self._hypergraph).flat
            terms, each = self._hypergraph.num_terms, self._watched // self._blocks
            at_once = max(1, _MAX_ROW_CELLS // (self._watched * max(1, len(self._hypergraph))))
            for first in range(0, self._groups, at_once):
                rows = shown[first : first + at_once].reshape(-1, shown.shape[-1])
                cells, count = flat(rows).numpy(), len(rows) // each
                cells += (np.arange(len(rows)) // each * terms)[:, None]
                found = np.bincount(cells.ravel(), minlength=count * terms).reshape(-1, self._blocks, terms)
                sums["blocks"][:, first : first + at_once] += torch.from_numpy(found).transpose(0, 1)

    def summary(self) -> Summary | None:
        """Estimates from all records, or None where statistics were not asked for."""
        if not self._sums:
            return None
        sums, looks = self._sums, self._num_batches
        total = self._num_records * self._num_chains
        eta = sums["total"] / total
        spread = sums["squares"] / (looks * (looks - 1)) if looks > 1 else torch.full_like(eta, math.nan)
        scale, look = eta * (1 - eta), 1 / (looks * self._num_chains)
        is_seldom = (scale < _FEW_LOOKS * look) & (scale < _RARE)
        ratio, is_mixed = None, None
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


def _dtype_of(chains: Chains) -> torch.dtype:
    """Type of recorded states: values as they are, codes as small as they can be."""
    if chains.states.is_floating_point():
        return torch.float64
    return torch.int32 if max(chains.domain.cardinalities, default=1) > 256 else torch.uint8


def _reserve(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Memory for a trace; pages are taken when they are written."""
    what, hint = f"a trace of {shape[0]} records has", "thin more, or keep statistics only"
    check_size(math.prod(shape) * dtype.itemsize, MAX_BYTES, "bytes", "record", hint, what)
    return torch.empty(tuple(shape), dtype=dtype)
