"""What annealed runs over generalized root models amount to: cost beforehand, log Z with a verdict afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ..models.generalized_root import GeneralizedRootEnergy
from ..models.root_structure import RootStructure
from ._annealed_verdict import METHOD, Start, num_steps, result_of
from ._root_annealed_runs import AnnealedRun
from .base import Cost, LogPartition

if TYPE_CHECKING:
    from .root_annealed import RootAnnealed

__all__ = ["annealing_cost", "judged"]

_DRAW = 200  # operations of one draw from a node conditional
_ADVICE = (
    "try more temperatures (num_temperatures, temperatures='adaptive'), resampling (resample_below=0.5), more chains, "
    "or an exact backend with a larger budget"
)


def annealing_cost(options: RootAnnealed, structure: RootStructure) -> Cost:
    """Cost of a forward run; an adaptive path counts as 1,000 steps."""
    steps = num_steps(options)
    d = len(structure.domain)
    members = sum(key[1] * (where.stop - where.start) for key, where in structure.slices.items())
    draws = options.num_chains * steps * options.sweeps_per_step
    return Cost(
        cells=1,
        total_cells=structure.num_terms,
        flops=draws * (_DRAW * d + 2 * members),
        memory_bytes=8 * (options.num_chains * d * (structure.order + 1) + structure.num_terms),
        feasible=True,
        reason=f"{options.num_chains} chains through {steps} temperatures",
        method=METHOD,
    )


def judged(
    options: RootAnnealed,
    energy: GeneralizedRootEnergy,
    runs: list[AnnealedRun],
    behind: list[tuple[torch.Tensor, Start]] | None,
) -> LogPartition:
    """The result of forward and perhaps reverse runs, one per element of the batch, with the verdict on its error."""
    is_perfect = all(start == "exact" for _, start in behind or [])
    return result_of(
        options,
        np.array([run.log_z0 for run in runs]),
        np.stack([run.log_weights.numpy() for run in runs]),
        None if behind is None else np.stack([weights.numpy() for weights, _ in behind]),
        start="exact" if is_perfect else "tempered",
        is_reversible=True,
        advice=_ADVICE,
        like=energy.psi.detach().new_zeros(energy.batch_shape),
        cost=annealing_cost(options, energy.structure),
        coding="root",
    )
