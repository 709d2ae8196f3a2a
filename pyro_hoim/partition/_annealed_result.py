"""What annealed runs amount to: cost beforehand, and afterwards log Z with a verdict on its error bar."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..errors import IntractableError, size_text
from ..structure.hypergraph import InteractionHypergraph
from ._annealed_options import is_reversible
from ._annealed_runs import Reverse, Run
from ._annealing import island_means
from .base import Cost, LogPartition, Sandwich
from .weights import MIN_CHAINS, Flags, Floats, WeightEstimate, acceptance_ratio, log_mean_weight, one_sided_limits

if TYPE_CHECKING:
    from .annealed import AnnealedImportance

__all__ = ["ADVICE", "annealing_cost", "estimate", "judged"]

_METHOD = "annealed importance sampling"
_MAX_CELLS = 2**26  # of a marginal table
_GAP = 4.0  # errors between two estimates that count as agreement; normal ones would part once in 16,000 runs
ADVICE = (
    "try more temperatures (num_temperatures, temperatures='adaptive'), block moves (GibbsSchedule('interactions')), "
    "resampling (resample_below=0.5), more chains, or an exact backend with a larger budget"
)
_GAP_NOTE = (
    "{which}forward and reverse runs disagree by more than their errors, or hardly overlap, so that at least one has "
    f"not seen the whole law; {ADVICE}"
)
_COMBINE_NOTE = "{which}combine=True would report both runs together, for which there is an error bar"
_TEMPERED_NOTE = (
    "the reverse run started from tempered runs, not from perfect samples, so that a mode that no chain found would "
    "stay unseen; the upper limit rests on there being none"
)
_ONE_SIDED_NOTE = "there was no reverse run, so that a mode that no chain found would stay unseen"


@lru_cache(maxsize=256)
def annealing_cost(options: AnnealedImportance, hypergraph: InteractionHypergraph, keep: tuple[str, ...]) -> Cost:
    """Cost of a forward run; refused where a block or the table over ``keep`` is too large."""
    cards = hypergraph.domain.cardinalities
    lookups = sum(cards[i] for edge in hypergraph.edge_indices for i in edge) + sum(cards)
    if isinstance(options.temperatures, tuple):
        steps = len(options.temperatures) - 1
    else:
        steps = options.num_temperatures if options.temperatures is None else 1000
    cells = math.prod(cards[i] for i in hypergraph.domain.indices(keep))
    reason = f"{options.num_chains} chains through {steps} temperatures"
    feasible = cells <= _MAX_CELLS
    if not feasible:
        reason = (
            f"a joint table of {size_text(cells, 'cells')} is asked for, more than {_MAX_CELLS}; keep fewer variables"
        )
    try:
        options.schedule.resolve(hypergraph)
    except IntractableError as error:
        feasible, reason = False, str(error)
    return Cost(
        cells=max((math.prod(shape) for shape in hypergraph.edge_shapes), default=1),
        total_cells=hypergraph.num_terms + (cells if keep else 0),
        flops=options.num_chains * steps * options.sweeps_per_step * lookups,
        memory_bytes=options.num_chains * (16 * len(cards) + 64) + 8 * (hypergraph.num_terms + cells),
        feasible=feasible,
        reason=reason,
        method=_METHOD,
    )


def estimate(options: AnnealedImportance, log_weights: torch.Tensor) -> WeightEstimate:
    """Estimate from log weights (*batch, chains), flat; islands are the independent parts when there is resampling."""
    if options.resample_below is None:
        return log_mean_weight(_rows(log_weights))
    return log_mean_weight(_rows(island_means(log_weights, options.islands)), options.num_chains // options.islands)


def _rows(log_weights: torch.Tensor) -> Floats:
    return log_weights.reshape(-1, log_weights.shape[-1]).cpu().numpy()


def judged(options: AnnealedImportance, run: Run, reverse: Reverse | None) -> LogPartition:
    """The result of a forward and perhaps a reverse run, with the verdict on its error."""
    batch, tables = run.log_z0.shape, run.model.tables
    log_z0 = run.log_z0.reshape(-1).cpu().numpy()
    forward = estimate(options, run.log_weights)
    best, reliable, notes = forward, forward.is_reliable, _Notes(batch.numel())
    notes.add(~reliable, _weight_note(forward, options))

    def shaped(values: Floats) -> torch.Tensor:
        return torch.from_numpy(values).to(tables.device, tables.dtype).reshape(batch)

    sandwich = None
    if reverse is None:
        lower, upper = one_sided_limits(forward, options.level, reliable)
        notes.add_general(_ONE_SIDED_NOTE)
    else:
        behind = log_mean_weight(_rows(reverse.log_weights))
        agree, both = _compared(options, run, reverse, forward, behind)
        lower, upper = _two_sided(options.level, forward, behind, agree)
        reliable = reliable & agree
        spread = np.maximum(forward.error, np.abs(forward.value - both.value))
        best = forward._replace(error=spread)
        if options.combine:
            best, reliable, notes = both, both.is_reliable, _Notes(batch.numel())
            agree = reliable
        elif reverse.start == "exact" and both is not forward:
            notes.add(~reliable & both.is_reliable, _COMBINE_NOTE)
        notes.add(~agree, _GAP_NOTE)
        if reverse.start == "tempered":
            notes.add_general(_TEMPERED_NOTE)
        parts = (forward.value + log_z0, forward.error, log_z0 - behind.value, behind.error)
        sandwich = Sandwich(*map(shaped, parts), start=reverse.start)
    value = best.value + log_z0
    error = np.where(reliable, np.hypot(best.error, torch.finfo(tables.dtype).eps * np.abs(value)), np.inf)
    return LogPartition(
        shaped(value),
        "biased",
        shaped(error),
        shaped(best.ess),
        shaped(lower + log_z0),
        shaped(upper + log_z0),
        annealing_cost(options, run.model.hypergraph, ()),
        _METHOD,
        is_reliable=torch.from_numpy(reliable).to(tables.device).reshape(batch),
        notes=notes.lines(),
        sandwich=sandwich,
    )


def _compared(
    options: AnnealedImportance, run: Run, reverse: Reverse, forward: WeightEstimate, behind: WeightEstimate
) -> tuple[Flags, WeightEstimate]:
    """Whether forward and reverse run agree within four errors (B,), and their acceptance ratio.

    The acceptance ratio needs no well-behaved reverse weights, so it is a second test wherever the runs are mutual
    reversals; the reverse estimate itself is the first, where its weights allow.
    """
    agree = _is_close(forward.value, -behind.value, forward.error, behind.error) | ~behind.is_reliable
    if options.resample_below is not None or not is_reversible(options.schedule):
        return agree, forward
    both = acceptance_ratio(_rows(run.log_weights), _rows(reverse.log_weights))
    return agree & _is_close(forward.value, both.value, forward.error, both.error) & both.is_reliable, both


def _is_close(first: Floats, second: Floats, error: Floats, other: Floats) -> Flags:
    return np.abs(first - second) <= _GAP * np.hypot(error, other) + 1e-9


def _two_sided(level: float, forward: WeightEstimate, behind: WeightEstimate, agree: Flags) -> tuple[Floats, Floats]:
    """Lower limit from the forward run and upper one from the reverse run; Markov's where normal ones would cross."""
    lower = one_sided_limits(forward, level, forward.is_reliable & agree)[0]
    upper = -one_sided_limits(behind, level, behind.is_reliable & agree)[0]
    ordered = agree & (lower <= upper)
    lower = one_sided_limits(forward, level, forward.is_reliable & ordered)[0]
    return lower, -one_sided_limits(behind, level, behind.is_reliable & ordered)[0]


def _weight_note(found: WeightEstimate, options: AnnealedImportance) -> str:
    if options.num_chains < MIN_CHAINS:
        return (
            f"{{which}}{options.num_chains} chains are too few for an error bar; "
            f"use num_chains of at least {MIN_CHAINS}"
        )
    return (
        f"{{which}}weights are uneven: down to {float(found.ess.min()):.3g} effective of {options.num_chains} chains, "
        f"the largest holds up to {float(found.share.max()):.0%} of the weight, or their logarithms spread too far "
        f"for so few chains; {ADVICE}"
    )


class _Notes:
    """Sentences about a result, with the number of batch elements they are true of."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lines: list[str] = []

    def add(self, where: Flags, text: str) -> None:
        """A sentence that is true where the mask (B,) is."""
        found = int(where.sum())
        if found:
            which = "" if self._count == 1 else f"{found} of {self._count} batch elements: "
            self._lines.append(text.format(which=which))

    def add_general(self, text: str) -> None:
        """A sentence that is true of the whole result."""
        self._lines.append(text)

    def lines(self) -> tuple[str, ...]:
        """All sentences."""
        return tuple(self._lines)
