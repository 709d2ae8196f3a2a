"""What a long run of chains gave, whatever their model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = [
    "ChainRun",
]


@dataclass(frozen=True, eq=False)
class ChainRun:
    r"""What a run of Gibbs chains gave.

    Attributes:
        eta: estimated mean coordinates, the probability of every cell of every edge in the layout of
            ``hypergraph.term_slices``, float64 (\*batch, num_terms); asymptotically unbiased, biased by what is left of
            the first states. None unless statistics were recorded.
        std_error: Monte Carlo standard errors of ``eta`` that allow for autocorrelation, from the variance between
            batches of sweeps and between chains, and for the few visits that rare cells had (see
            :class:`~pyro_hoim.runs.recorder.Recorder`); float64 (\*batch, num_terms), NaN with one record of one
            chain. Where nothing in the model moved they are one over the number of chains. They know nothing of modes
            that no chain entered. Of runs that are mixed at most 2 % have a cell beyond 5 standard errors (5 of 757
            random models of two to five variables, measured).
        between_chains: variance between chains over what independent records would give, by edge, float64 (\*batch,
            num_edges): near 1 where chains forget their states within a batch, the number of batches where they
            never do, and scattered widely where states are rare. None with one chain.
        is_mixed: whether chains differ everywhere as little as chance allows (false alarm about 1e-6); None where that
            cannot be judged: a run is too short, has one chain, or no chain of a batch element ever moved.
        energies: energy of every chain at every record, float64 (records, \*batch, num_chains), nats; or None.
        codes: states at every record, uint8 or int32 (records, \*batch, num_chains, d); or None.
        chains: the chains at the end of the run, which can be continued.
        num_records: records made.
        num_sweeps: sweeps after burn-in.
        burn_in: sweeps before.
        thin: sweeps between two records.
        seconds: time spent, earlier parts of a resumed run included.
    """

    eta: torch.Tensor | None
    std_error: torch.Tensor | None
    between_chains: torch.Tensor | None
    is_mixed: bool | None
    energies: torch.Tensor | None
    codes: torch.Tensor | None
    chains: Any
    num_records: int
    num_sweeps: int
    burn_in: int
    thin: int
    seconds: float
