"""What annealed runs over generalized root models amount to: cost beforehand, log Z with a verdict afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from ..models.generalized_root import GeneralizedRootEnergy
from ..models.root_structure import RootStructure
from ._annealed_result import _is_close, _Notes, _two_sided
from ._annealing import island_means
from ._root_annealed_runs import RootRun
from .base import Cost, LogPartition, Sandwich
from .weights import MIN_CHAINS, Floats, WeightEstimate, acceptance_ratio, log_mean_weight, one_sided_limits

if TYPE_CHECKING:
    from .root_annealed import RootAnnealed

__all__ = ["annealing_cost", "estimate", "judged"]

METHOD = "annealed importance sampling"
_DRAW = 200  # operations of one draw from a node conditional
_ADVICE = (
    "try more temperatures (num_temperatures, temperatures='adaptive'), resampling (resample_below=0.5), more chains, "
    "or an exact backend with a larger budget"
)
_GAP_NOTE = (
    "{which}forward and reverse runs disagree by more than their errors, or hardly overlap, so that at least one has "
    f"not seen the whole law; {_ADVICE}"
)
_TEMPERED_NOTE = (
    "the reverse run started from tempered runs, not from perfect samples, so that a mode that no chain found would "
    "stay unseen; the upper limit rests on there being none"
)
_ONE_SIDED_NOTE = "there was no reverse run, so that a mode that no chain found would stay unseen"


def annealing_cost(options: RootAnnealed, structure: RootStructure) -> Cost:
    """Cost of a forward run; an adaptive path counts as 1,000 steps."""
    if isinstance(options.temperatures, tuple):
        steps = len(options.temperatures) - 1
    else:
        steps = options.num_temperatures if options.temperatures is None else 1000
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


def estimate(options: RootAnnealed, log_weights: Floats) -> WeightEstimate:
    """Estimate from log weights (B, chains); islands are the independent parts when there is resampling."""
    if options.resample_below is None:
        return log_mean_weight(log_weights)
    means = island_means(torch.from_numpy(log_weights), options.islands).numpy()
    return log_mean_weight(means, options.num_chains // options.islands)


def judged(
    options: RootAnnealed,
    energy: GeneralizedRootEnergy,
    runs: list[RootRun],
    behind: list[tuple[torch.Tensor, Literal["exact", "tempered"]]] | None,
) -> LogPartition:
    """The result of forward and perhaps reverse runs, one per element of the batch, with the verdict on its error."""
    batch, psi = energy.batch_shape, energy.psi
    ahead = np.stack([run.log_weights.numpy() for run in runs])
    log_z0 = np.array([run.log_z0 for run in runs])
    forward = estimate(options, ahead)
    best, reliable, notes = forward, forward.is_reliable, _Notes(len(runs))
    notes.add(~reliable, _weight_note(forward, options))

    def shaped(values: Floats) -> torch.Tensor:
        return torch.from_numpy(values).to(psi.device, psi.dtype).reshape(batch)

    sandwich = None
    if behind is None:
        lower, upper = one_sided_limits(forward, options.level, reliable)
        notes.add_general(_ONE_SIDED_NOTE)
    else:
        returned = np.stack([weights.numpy() for weights, _ in behind])
        back = log_mean_weight(returned)
        agree = _is_close(forward.value, -back.value, forward.error, back.error) | ~back.is_reliable
        both = forward
        if options.resample_below is None:
            both = acceptance_ratio(ahead, returned)
            agree &= _is_close(forward.value, both.value, forward.error, both.error) & both.is_reliable
        lower, upper = _two_sided(options.level, forward, back, agree)
        reliable = reliable & agree
        best = forward._replace(error=np.maximum(forward.error, np.abs(forward.value - both.value)))
        if options.combine:
            best, reliable, notes = both, both.is_reliable, _Notes(len(runs))
            agree = reliable
        notes.add(~agree, _GAP_NOTE)
        is_perfect = all(start == "exact" for _, start in behind)
        if not is_perfect:
            notes.add_general(_TEMPERED_NOTE)
        parts = (forward.value + log_z0, forward.error, log_z0 - back.value, back.error)
        sandwich = Sandwich(*map(shaped, parts), start="exact" if is_perfect else "tempered")
    value = best.value + log_z0
    error = np.where(reliable, np.hypot(best.error, torch.finfo(psi.dtype).eps * np.abs(value)), np.inf)
    return LogPartition(
        shaped(value),
        "biased",
        shaped(error),
        shaped(best.ess),
        shaped(lower + log_z0),
        shaped(upper + log_z0),
        annealing_cost(options, energy.structure),
        METHOD,
        coding="root",
        is_reliable=torch.from_numpy(np.asarray(reliable)).to(psi.device).reshape(batch),
        notes=notes.lines(),
        sandwich=sandwich,
    )


def _weight_note(found: WeightEstimate, options: RootAnnealed) -> str:
    if options.num_chains < MIN_CHAINS:
        return (
            f"{{which}}{options.num_chains} chains are too few for an error bar; "
            f"use num_chains of at least {MIN_CHAINS}"
        )
    return (
        f"{{which}}weights are uneven: down to {float(found.ess.min()):.3g} effective of {options.num_chains} chains, "
        f"the largest holds up to {float(found.share.max()):.0%} of the weight, or their logarithms spread too far "
        f"for so few chains; {_ADVICE}"
    )
