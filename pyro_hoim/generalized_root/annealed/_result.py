"""What annealed runs over generalized root models amount to: cost beforehand, log Z with a verdict afterwards."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np

from ...annealing.mode_checks import Weighed, root_distance, weighed
from ...annealing.verdict import METHOD, Checks, estimate_of, islands_of, num_steps, result_of
from ...core.certificate import Certificate, certificate, state_text
from ...core.partition import Cost, LogPartition
from ..energy import GeneralizedRootEnergy
from ..structure import RootStructure
from ._runs import AnnealedRun, RootReverse
from ._search import climbed_counts, count_mode_runs, count_modes, rows_of

if TYPE_CHECKING:
    from .importance import RootAnnealed

_CONDITIONALS = 1e-14  # relative error of the chains' probabilities
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
    behind: list[RootReverse] | None,
) -> LogPartition:
    """The result of forward and perhaps reverse runs, one per element of the batch, with the verdict on its error."""
    is_perfect = all(run.start == "exact" for run in behind or [])
    parts = [_checked(options, run, None if behind is None else behind[i]) for i, run in enumerate(runs)]
    checks = _joined(parts)
    names = energy.domain.names
    best = [state_text(names, state) if len(state) else "" for state in checks.certificate.best.tolist()]
    return result_of(
        options,
        np.array([run.log_z0 for run in runs]),
        np.stack([run.log_weights.numpy() for run in runs]),
        None if behind is None else np.stack([run.log_weights.numpy() for run in behind]),
        start="exact" if is_perfect else "tempered",
        is_reversible=True,
        checks=checks,
        best_states=best,
        advice=_ADVICE,
        like=energy.psi.detach().new_zeros(energy.batch_shape),
        cost=annealing_cost(options, energy.structure),
        coding="root",
    )


def _checked(options: RootAnnealed, run: AnnealedRun, reverse: RootReverse | None) -> Checks:
    """Count states met and looked for, and without perfect samples runs from the modes; of one model."""
    spread = run.energy.interaction_score(run.ends, validate=False).std(correction=0).numpy()[None]
    rounding = _CONDITIONALS * math.sqrt(run.ends.shape[-1]) * spread
    if not run.energy.family.is_discrete:
        return Checks(Certificate.none(1), None, rounding)
    states, log_q = climbed_counts(run, rows_of(options, run.energy))
    met = [run.ends, states, *([] if reverse is None else [reverse.states])]
    values = [-run.energy.energy(part, validate=False)[None] for part in met]
    found = None
    main = run.log_weights.numpy()[None]
    if reverse is not None and reverse.start == "tempered" and estimate_of(options, main).is_reliable.all():
        modes = count_modes(states, log_q)
        parts = count_mode_runs(options, run, modes)
        found = weighed(main + run.log_z0, run.ends.numpy()[None], modes, parts, root_distance, islands_of(options))
    proof = certificate([part[None] for part in met], values, None)
    return Checks(proof, found, rounding + np.finfo(np.float64).eps * np.abs(proof.best_log_q))


def _joined(parts: list[Checks]) -> Checks:
    """The checks of all elements of a batch; where runs from modes were made for some, the others passed them."""
    proof = Certificate(
        *(np.concatenate(column) for column in zip(*(astuple(p.certificate) for p in parts), strict=True))
    )
    found: Weighed | None = None
    if any(part.weighed is not None for part in parts):
        nothing = Weighed(np.zeros(1, dtype=bool), np.zeros(1, dtype=bool), np.full(1, -np.inf))
        columns = zip(*(astuple(part.weighed or nothing) for part in parts), strict=True)
        found = Weighed(*(np.concatenate(column) for column in columns))
    return Checks(proof, found, np.concatenate([part.rounding for part in parts]))
