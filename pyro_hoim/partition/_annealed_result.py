"""What annealed runs amount to: cost beforehand, and afterwards log Z with a verdict on its error bar."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from ..errors import IntractableError, size_text
from ..structure.hypergraph import InteractionHypergraph
from ._annealed_options import is_reversible
from ._annealed_runs import Reverse, Run
from ._annealed_verdict import METHOD, estimate_of, num_steps, result_of
from .base import Cost, LogPartition
from .weights import Floats, WeightEstimate

if TYPE_CHECKING:
    from .annealed import AnnealedImportance

__all__ = ["ADVICE", "annealing_cost", "estimate", "judged"]

_MAX_CELLS = 2**26  # of a marginal table
ADVICE = (
    "try more temperatures (num_temperatures, temperatures='adaptive'), block moves (GibbsSchedule('interactions')), "
    "resampling (resample_below=0.5), more chains, or an exact backend with a larger budget"
)


@lru_cache(maxsize=256)
def annealing_cost(options: AnnealedImportance, hypergraph: InteractionHypergraph, keep: tuple[str, ...]) -> Cost:
    """Cost of a forward run; refused where a block or the table over ``keep`` is too large."""
    cards = hypergraph.domain.cardinalities
    lookups = sum(cards[i] for edge in hypergraph.edge_indices for i in edge) + sum(cards)
    steps = num_steps(options)
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
        method=METHOD,
    )


def estimate(options: AnnealedImportance, log_weights: torch.Tensor) -> WeightEstimate:
    """Estimate from log weights (*batch, chains), flat; islands are the independent parts when there is resampling."""
    return estimate_of(options, _rows(log_weights))


def _rows(log_weights: torch.Tensor) -> Floats:
    return log_weights.reshape(-1, log_weights.shape[-1]).cpu().numpy()


def judged(options: AnnealedImportance, run: Run, reverse: Reverse | None) -> LogPartition:
    """The result of a forward and perhaps a reverse run, with the verdict on its error."""
    return result_of(
        options,
        run.log_z0.reshape(-1).cpu().numpy(),
        _rows(run.log_weights),
        None if reverse is None else _rows(reverse.log_weights),
        start="exact" if reverse is None else reverse.start,
        is_reversible=is_reversible(options.schedule),
        advice=ADVICE,
        like=run.model.tables.new_zeros(run.log_z0.shape),
        cost=annealing_cost(options, run.model.hypergraph, ()),
        coding="balanced",
    )
