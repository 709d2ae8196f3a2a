"""What a law may do with a backend that is not exact: where an estimate may stand in, and where it must not.

Private to the package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch

from ..errors import InputError
from ..partition import Auto, LogPartition, PartitionBackend
from ..structure import InteractionHypergraph

__all__ = [
    "acting_backend",
    "check_estimate",
    "check_seed",
    "exact_backend",
    "expand_result",
    "is_exact_for",
    "refuse_traced",
]

# Modules of kernels that accept, reject or choose a move by differences of log-probabilities.
_KERNELS = frozenset({"pyro.infer.mcmc.hmc", "pyro.infer.mcmc.nuts", "pyro.infer.mcmc.rwkernel"})
_OWN_KERNELS = {"pyro_hoim.inference._full_conditional": "MixedGibbs"}


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
    """Refuse a random log Z where it would spoil the answer: inside Pyro's HMC and its kin, and while tracing.

    Costs nothing when the backend is exact; the stack is looked at only before an estimate.

    Raises:
        InputError: log Z would be an estimate, and it is wanted inside a kernel of Pyro that needs one and the same
            function at every call (unless the backend has a fixed seed), or inside ``torch.jit.trace``.
    """
    if partition.is_exact:
        return
    backend = acting_backend(partition, hypergraph)
    if backend.is_exact:
        return
    refuse_traced("log_prob", f"the estimate of {type(backend).__name__}", ", or an exact backend")
    check_seed(backend, "Auto()", "theta", "or infer by SVI or stochastic-gradient Langevin dynamics")


def refuse_traced(what: str, frozen: str, instead: str = "") -> None:
    """Refuse what is found outside the operations that ``torch.jit.trace`` records.

    Args:
        what: the method, for the message.
        frozen: what would be found once for all parameters, for the message.
        instead: further ways out, for the message.

    Raises:
        InputError: inside ``torch.jit.trace``, as with ``jit_compile=True`` and ``JitTrace_ELBO``.
    """
    if torch.jit.is_tracing():
        raise InputError(
            f"{what}: expected a program that is not traced, received a call inside torch.jit.trace, where {frozen} "
            "would be found once and then be a constant of the compiled function; use jit_compile=False, Trace_ELBO "
            f"in the place of JitTrace_ELBO{instead}"
        )


def check_seed(
    backend: object, exact: str, parameters: str, instead: str, is_exact: Callable[[], bool] = lambda: False
) -> None:
    """Refuse an estimate with fresh randomness inside a kernel of Pyro that needs one and the same function.

    Args:
        backend: what would make the estimate.
        exact: an exact backend, for the message.
        parameters: what the estimate depends on, for the message.
        instead: other ways out, for the message.
        is_exact: asked last, where it takes work to know that there is no estimate after all.

    Raises:
        InputError: the backend has no seed, and such a kernel is at work.
    """
    if getattr(backend, "seed", None) is not None or not (kernel := _enclosing_kernel()) or is_exact():
        return
    raise InputError(
        f"partition: expected a log-probability without randomness inside {kernel}, received "
        f"{type(backend).__name__} without a seed, whose noise would make the draws wrong without a sign of it; "
        f"use an exact backend such as {exact}, fix the randomness with seed= (one estimate for every {parameters}: "
        f"the draws then follow a posterior biased by its error times the number of rows), {instead}"
    )


def _enclosing_kernel() -> str | None:
    """Name of the kernel that called us, however deep the user's program lies between; None outside of any."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in _OWN_KERNELS:
            return _OWN_KERNELS[module]
        if module in _KERNELS:
            owner = type(frame.f_locals.get("self")).__mro__
            return next((f"Pyro's {c.__name__}" for c in owner if c.__module__ in _KERNELS), "Pyro's MCMC")
        frame = frame.f_back
    return None


def expand_result(result: LogPartition, present: torch.Size, wanted: torch.Size) -> LogPartition:
    """A result whose tensors of the present batch shape have the wanted one."""

    def expanded(part: Any) -> Any:
        values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
        return replace(
            part,
            **{n: v.expand(wanted) for n, v in values.items() if isinstance(v, torch.Tensor) and v.shape == present},
        )

    if result.sandwich is not None:
        result = replace(result, sandwich=expanded(result.sandwich))
    return expanded(result)
