"""Where a random log Z must not stand in, whatever the model: inside HMC, importance sampling and traces."""

import sys
from collections.abc import Callable

import torch

from ...errors import unexpected

# Classes of Pyro that accept, reject or choose a move by differences of log-probabilities, and those that put
# probabilities into weights: the mean of Z-hat^-N over its noise is not Z^-N.
_KERNELS = frozenset({"HMC", "NUTS", "RandomWalkKernel"})
_WEIGHTING = frozenset(
    {
        "Importance",
        "RenyiELBO",
        "Resampler",
        "ReweightedWakeSleep",
        "SMCFilter",
        "TraceTMC_ELBO",
        "TraceTailAdaptive_ELBO",
        "WeighedPredictive",
    }
)
_FUNCTIONS = {("pyro.infer.importance", "vectorized_importance_weights"): "Pyro's vectorized_importance_weights"}
_MARK = "NEEDS_FIXED_LOG_Z"
"""A module whose functions cannot use noise says so by a global of this name, with the words for itself."""


def refuse_traced(what: str, frozen: str, instead: str = "") -> None:
    """Refuse what is found outside the operations that ``torch.jit.trace`` records."""
    if torch.jit.is_tracing():
        hint = f"use jit_compile=False, Trace_ELBO in the place of JitTrace_ELBO{instead}"
        received = (
            f"a call inside torch.jit.trace, where {frozen} would be found once and then be a constant of the compiled "
            "function"
        )
        raise unexpected(what, "a program that is not traced", hint=hint, received=received)


def check_seed(
    backend: object, exact: str, parameters: str, instead: str, is_exact: Callable[[], bool] = lambda: False
) -> None:
    """Refuse an estimate with fresh randomness inside inference of Pyro that needs one and the same function."""
    if getattr(backend, "seed", None) is not None or not (caller := _enclosing_inference()) or is_exact():
        return
    hint = (
        f"use an exact backend such as {exact}, fix the randomness with seed= (one estimate for every {parameters}: "
        f"the result is then biased by its error times the number of rows), {instead}"
    )
    received = f"{type(backend).__name__} without a seed, whose noise would make the result wrong without a sign of it"
    raise unexpected("partition", f"a log-probability without randomness inside {caller}", hint=hint, received=received)


def _enclosing_inference() -> str | None:
    """Who called us and cannot use noise, however deep the user's program lies between; None where nobody did."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        caller = _FUNCTIONS.get((module, frame.f_code.co_name), frame.f_globals.get(_MARK))
        for cls in type(frame.f_locals.get("self")).__mro__:
            if cls.__module__.startswith("pyro.infer.") and cls.__name__ in _KERNELS | _WEIGHTING:
                caller = caller or f"Pyro's {cls.__name__}"
        if caller:
            return caller
        frame = frame.f_back
    return None
