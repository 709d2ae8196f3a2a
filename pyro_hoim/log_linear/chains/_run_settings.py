"""What runs of Gibbs chains of a log-linear model need from them: settings to compare, and how long a call is."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from .gibbs import GibbsChains

_LOOKUPS_PER_CALL = 2**30


_LEAST_CHAINS = 32


_LOOKUPS_PER_CALL_TORCH = 2**24


_LOOKUPS_PER_STEP_TORCH = 2**14


def run_settings(
    chains: GibbsChains, sizes: tuple[int, int, int], parts: Sequence[str], *, states: bool, precision: str | None
) -> dict[str, Any]:
    """What a continued run must have in common with the first one.

    Chains that were passed in have moved when an interrupted run is resumed; of these only the clamped values count.
    """
    fixed = slice(None) if states else [chains.domain.index(name) for name in chains.clamped]
    codes = chains.codes[..., fixed].cpu().contiguous()
    return {
        "burn_in": sizes[0],
        "num_sweeps": sizes[1],
        "thin": sizes[2],
        "record": list(parts),
        "precision": precision,
        "model, schedule, clamped value, engine, seed or number of chains digest": chains.fingerprint,
        "initial state digest": hashlib.sha256(codes.numpy().tobytes()).hexdigest(),
    }


def sweeps_per_call(chains: GibbsChains) -> int:
    """Sweeps between two looks at the clock: a few tenths of a second, from the size of the problem alone."""
    cards = chains.domain.cardinalities
    meeting = [set[int]() for _ in cards]
    for number, edge in enumerate(chains.hypergraph.edge_indices):
        for i in edge:
            meeting[i].add(number)
    lookups = 0
    for block in chains._blocks:
        num_edges = len(set[int]().union(*(meeting[i] for i in block)))
        lookups += math.prod(cards[i] for i in block) * (1 + num_edges)
    groups = chains.batch_shape.numel()
    if type(chains._engine).__name__ == "TorchEngine":
        lookups = lookups * groups * chains.num_chains + _LOOKUPS_PER_STEP_TORCH * len(chains._blocks)
        limit = _LOOKUPS_PER_CALL_TORCH
    else:
        lookups *= groups * max(chains.num_chains, _LEAST_CHAINS)  # the fewer, the emptier the vectors
        limit = _LOOKUPS_PER_CALL
    return max(1, min(2**20, limit // max(1, lookups)))
