"""What annealed runs amount to: cost beforehand, and afterwards log Z with a verdict on its error bar."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...annealing.mode_checks import Weighed, hamming, weighed
from ...annealing.verdict import METHOD, Checks, estimate_of, islands_of, num_steps, result_of
from ...annealing.weights import Floats, WeightEstimate
from ...core.certificate import certificate, state_text
from ...core.partition import Cost, LogPartition
from ...errors import IntractableError, size_text
from ...structure.hypergraph import InteractionHypergraph
from ._options import is_reversible
from ._runs import Reverse, Run
from ._search import ascend, found_modes, mode_runs

if TYPE_CHECKING:
    from .importance import AnnealedImportance

__all__ = ["ADVICE", "annealing_cost", "estimate", "judged"]

_MAX_CELLS = 2**26  # of a marginal table
_CONDITIONALS = {torch.float32: 1e-6, torch.float64: 1e-15}  # relative error of the chains' probabilities
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


def _rows(values: torch.Tensor) -> Floats:
    return values.reshape(-1, values.shape[-1]).cpu().numpy()


def judged(options: AnnealedImportance, run: Run, reverse: Reverse | None) -> LogPartition:
    """The result of a forward and perhaps a reverse run, with the verdict on its error."""
    domain = run.model.hypergraph.domain
    checks = _checked(options, run, reverse)
    best = [
        state_text(domain.names, [v.labels[i] for v, i in zip(domain, state, strict=True)])
        for state in checks.certificate.best.tolist()
    ]
    return result_of(
        options,
        run.log_z0.reshape(-1).cpu().numpy(),
        _rows(run.log_weights),
        None if reverse is None else _rows(reverse.log_weights),
        start="exact" if reverse is None else reverse.start,
        is_reversible=is_reversible(options.schedule),
        checks=checks,
        best_states=best,
        advice=ADVICE,
        like=run.model.tables.new_zeros(run.log_z0.shape),
        cost=annealing_cost(options, run.model.hypergraph, ()),
        coding="balanced",
    )


def _checked(options: AnnealedImportance, run: Run, reverse: Reverse | None) -> Checks:
    """States met and looked for, and where the reverse run had no perfect samples, runs from the modes found."""
    cards = run.model.hypergraph.domain.cardinalities
    states, log_q = ascend(options, run)
    met = [(run.ends, run.log_q), (states, log_q)]
    if reverse is not None:
        met.append((reverse.states, reverse.log_q))
    rows = run.log_z0.numel()
    flat = [part.reshape(rows, *part.shape[-2:]) for part, _ in met]
    proof = certificate(flat, [values.reshape(rows, values.shape[-1]) for _, values in met], cards)
    found: Weighed | None = None
    is_open = estimate(options, run.log_weights).is_reliable & ~proof.is_complete
    if reverse is not None and reverse.start == "tempered" and is_open.any():
        modes = found_modes(states, log_q)
        parts = mode_runs(options, run, modes)
        main = _rows(run.log_weights + run.log_z0[..., None])
        found = weighed(main, flat[0].cpu().numpy(), modes, parts, hamming, islands_of(options))
    spread = _rows(run.log_q - run.log_q0).std(-1)
    rounding = _CONDITIONALS[options.precision] * math.sqrt(len(cards)) * spread
    return Checks(proof, found, rounding + np.finfo(np.float64).eps * np.abs(proof.best_log_q))
