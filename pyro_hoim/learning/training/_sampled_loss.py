"""Log Z of trained tables by annealed runs on chains of their own, made longer within a budget. Private to training."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import torch

from ...errors import ConvergenceWarning
from ...models import LogLinearEnergy
from ...partition import AnnealedImportance, LogPartition
from ._sampled_options import SampledTraining
from ._weighted_chains import seed_of

__all__ = ["annealed_log_z", "with_reverse_run"]

_FIRST = (1024, 500)  # chains and temperatures of the first run; both double from run to run
_REVERSE = 6  # a reverse run and the tempered runs it starts from cost as much as that many forward runs
_ONE_SIDED = "there was no reverse run"
_GAP = 4.0  # errors between forward and reverse estimate that count as agreement


def _run(
    model: LogLinearEnergy,
    settings: SampledTraining,
    reference: torch.Tensor,
    size: tuple[int, int],
    seed: int,
    reverse: bool,
) -> LogPartition:
    backend = AnnealedImportance(
        num_chains=size[0],
        num_temperatures=size[1],
        reference=reference,
        schedule=settings.schedule(model.hypergraph),
        reverse=reverse,
        seed=seed,
        engine=settings.engine,
        precision=settings.precision,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the notes say the same
        return backend.log_partition(model)


def annealed_log_z(
    model: LogLinearEnergy, settings: SampledTraining, reference: torch.Tensor, seed: int
) -> LogPartition:
    """Forward estimate with a standard error of at most that of the settings, or the best within their budget."""
    best: LogPartition | None = None
    size = _FIRST
    for k in range(64):
        found = _run(model, settings, reference, size, seed_of(seed, k), reverse=False)
        if best is None or float(found.std_error) <= float(best.std_error):
            best = found
        if float(best.std_error) <= settings.loss_standard_error:
            return best
        size = (2 * size[0], 2 * size[1])
        if size[0] * size[1] > settings.loss_budget:
            break
    assert best is not None
    note = (
        f"the standard error of log Z is {float(best.std_error):.3g}, more than the {settings.loss_standard_error:g} "
        f"asked for, after runs within the budget of {settings.loss_budget} sweeps; raise loss_budget"
    )
    return replace(best, notes=(*best.notes, note))


def with_reverse_run(
    result: LogPartition, model: LogLinearEnergy, settings: SampledTraining, reference: torch.Tensor, seed: int
) -> LogPartition:
    """The estimate with a sandwich from a shorter forward and reverse run; their disagreement is an error."""
    share = max(1.0, _FIRST[0] * _FIRST[1] * _REVERSE / settings.loss_budget)
    size = (max(16, round(_FIRST[0] / math.sqrt(share))), max(10, round(_FIRST[1] / math.sqrt(share))))
    both = _run(model, settings, reference, size, seed_of(seed, 101), reverse=True)
    if both.sandwich is None:
        return result
    gap = abs(float(both.sandwich.reverse - result.value))
    own = float(result.std_error)
    error = math.hypot(own if math.isfinite(own) else 0.0, float(both.sandwich.reverse_error))
    result = replace(result, notes=tuple(note for note in result.notes if not note.startswith(_ONE_SIDED)))
    notes = list(both.notes)
    if not bool(both.is_reliable) or gap <= _GAP * error + 1e-9:
        return replace(result, sandwich=both.sandwich, notes=(*result.notes, *notes))
    notes.append(f"the reverse run is {gap:.3g} nats away, more than its error; a part of the law may be unseen")
    return replace(
        result,
        std_error=torch.full_like(result.value, max(gap, own)),
        is_reliable=torch.zeros_like(result.value, dtype=torch.bool),
        sandwich=both.sandwich,
        notes=(*result.notes, *notes),
    )
