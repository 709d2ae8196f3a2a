"""What a law may do with a backend that is not exact: where an estimate may stand in, and where it must not."""

from __future__ import annotations

from dataclasses import replace

from ...core.laws.traces import check_seed, refuse_traced
from ...core.partition import PartitionBackend
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto

__all__ = [
    "acting_backend",
    "check_estimate",
    "exact_backend",
    "is_exact_for",
]


def acting_backend(partition: PartitionBackend, hypergraph: InteractionHypergraph) -> PartitionBackend:
    """The backend that does the work for a structure: the choice of :class:`Auto`, or else the backend itself."""
    if isinstance(partition, Auto) and not partition.is_exact:
        return partition.select(hypergraph)
    return partition


def is_exact_for(partition: PartitionBackend, hypergraph: InteractionHypergraph) -> bool:
    """Whether log Z, eta and samples of a structure are exact with this backend."""
    return partition.is_exact or acting_backend(partition, hypergraph).is_exact


def exact_backend(partition: PartitionBackend) -> PartitionBackend:
    """The backend itself when it is exact, otherwise its exact rows (``Auto``), otherwise ``Auto()``."""
    if partition.is_exact:
        return partition
    return replace(partition, annealed=None) if isinstance(partition, Auto) else Auto()


def check_estimate(partition: PartitionBackend, hypergraph: InteractionHypergraph) -> None:
    """Refuse a random log Z where it would spoil the answer: inside HMC, importance sampling and their kin, in traces.

    Costs nothing when the backend is exact; the stack is looked at only before an estimate.
    """
    if partition.is_exact:
        return
    backend = acting_backend(partition, hypergraph)
    if backend.is_exact:
        return
    refuse_traced("log_prob", f"the estimate of {type(backend).__name__}", ", or an exact backend")
    check_seed(backend, "Auto()", "theta", "or infer by SVI or inference.Langevin")
