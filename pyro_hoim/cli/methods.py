"""Exact or estimated: the options of the commands that need a normalising constant or draws."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

from ..core.family import Option, Question
from ..core.partition import LogPartition
from ..errors import IntractableError, conflict, out_of_range
from ..log_linear.annealed.importance import ADVICE, AnnealedImportance
from .options import LARGEST_SEED

__all__ = [
    "BURN_IN",
    "COMPLETE",
    "DRAW_METHOD",
    "LABEL",
    "LOG_Z_OPTIONS",
    "describe_log_z",
    "is_terminal",
    "log_z_json",
    "log_z_of",
    "notes_in_option_words",
    "number_text",
]

_CHAINS, _TEMPERATURES = AnnealedImportance.num_chains, AnnealedImportance.num_temperatures
_ADVICE = "try more --temperatures or --chains; in Python there are block moves and resampling as well"

LOG_Z_OPTIONS = (
    Option(
        "method",
        "How to find log Z. auto: exactly where possible, else the estimate that the model file holds, if any; "
        "exact: exactly, or not at all; ais: a new estimate with an error bar, at any size, by annealed importance "
        "sampling.",
        choices=("auto", "exact", "ais"),
        default="auto",
    ),
    Option("chains", f"Chains of ais.  [default: {_CHAINS}]", kind="whole", low=1, metavar="N"),
    Option(
        "temperatures",
        f"Temperatures of ais, or adaptive: steps of equal difficulty.  [default: {_TEMPERATURES}]",
        metavar="K|adaptive",
    ),
    Option("seed", "Seed of ais.  [default: 0]", kind="whole", low=0, high=LARGEST_SEED),
)
DRAW_METHOD = Option(
    "method",
    "exact: perfect draws or none; gibbs: Markov chains, approximate; auto: exact where possible, else gibbs, and says "
    "so.",
    choices=("auto", "exact", "gibbs"),
    default="auto",
)
BURN_IN = Option(
    "burn_in",
    f"Sweeps of gibbs before a row.  [default: {AnnealedImportance.burn_in}; of a dependency network or a grm 200]",
    kind="whole",
    low=0,
    metavar="N",
)
LABEL = Option("missing", "Cells with this label are missing, as empty cells are.", multiple=True, metavar="LABEL")
COMPLETE = (
    Option(
        "complete",
        "Fill the missing cells of the rows of this CSV file instead, each row N times, given its known cells.",
        kind="path",
        metavar="FILE",
    ),
    LABEL,
)
"""Options of ``sample`` of a family that fills missing cells."""


def is_terminal() -> bool:
    """Whether a person may be looking at progress on standard error."""
    return sys.stderr.isatty()


def log_z_of(question: Question, energy: Any, annealed: Any, auto: Any, starts: Any = None) -> LogPartition:
    """Log Z by the method asked for.

    Args:
        question: with the options of :data:`LOG_Z_OPTIONS`.
        energy: of the model.
        annealed: class of the backend of ``ais``.
        auto: the backend that is exact or refuses.
        starts: rows (n, d) from which an estimate looks for modes, too.
    """
    if question["method"] == "ais":
        return notes_in_option_words(_annealed(question, annealed, starts).log_partition(energy))
    for name in ("chains", "temperatures", "seed"):
        if question[name] is not None:
            raise conflict(f"--{name}", f"belongs to --method ais, received --method {question['method']}")
    try:
        return auto.log_partition(energy)
    except IntractableError as error:
        instead = "At the command line: --method ais estimates log Z at any size, with an error bar"
        raise IntractableError(f"{error.problem}. {instead}", argument=error.argument) from error


def notes_in_option_words(result: LogPartition) -> LogPartition:
    """The same with notes in the words of the command."""
    return replace(result, notes=tuple(note.replace(ADVICE, _ADVICE) for note in result.notes))


def _annealed(question: Question, kind: Any, starts: Any) -> Any:
    """The backend that the options describe."""
    chains, temperatures, seed = (question[name] for name in ("chains", "temperatures", "seed"))
    common: dict[str, Any] = {"num_chains": chains or kind.num_chains, "seed": seed or 0}
    common |= {"progress": question.progress, "starts": starts if starts is not None and len(starts) else None}
    if temperatures == "adaptive":
        return kind(temperatures="adaptive", **common)
    text = str(kind.num_temperatures) if temperatures is None else temperatures.strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 10**7):
        raise out_of_range("--temperatures", "a whole number from 1 to 10,000,000 or adaptive", text)
    return kind(num_temperatures=int(text), **common)


def log_z_json(log_z: LogPartition | None) -> dict[str, Any]:
    """What the JSON of ``score`` says of log Z."""
    if log_z is None:
        names = ("std_error", "kind", "method", "verdict")
        return {**{f"log_z_{name}": None for name in names}, "log_z_notes": []}
    return {
        "log_z_std_error": float(log_z.std_error),
        "log_z_kind": log_z.kind,
        "log_z_method": log_z.method,
        "log_z_verdict": log_z.verdict,
        "log_z_notes": list(log_z.notes),
    }


def describe_log_z(result: LogPartition) -> list[str]:
    """Lines that say what log Z is, how wrong it may be, and the verdict."""
    value = f"log Z = {float(result.value):.10g}"
    if result.kind == "exact":
        return [f"{value} ({result.kind}, {result.method})"]
    error = float(result.std_error)
    shown = f"+- {error:.2g}" if math.isfinite(error) else "+- unknown"
    ess = "unknown" if result.ess is None else f"{float(result.ess):.4g} chain{'s' * (float(result.ess) != 1)}"
    level = f"{AnnealedImportance.level:.0%}"
    bound = [] if result.lower_bound is None else [f"lower bound            {_limit(result.lower_bound)} (states met)"]
    return [
        f"{value} {shown} ({result.kind}: an estimate, low on average; {result.method})",
        f"limits                 {_limit(result.lower)} to {_limit(result.upper)} (one-sided, {level} each)",
        *bound,
        f"effective sample size  {ess}",
        f"verdict                {result.verdict}",
        *(f"note: {note}" for note in result.notes),
    ]


def _limit(value: Any) -> str:
    number = float(value)
    return f"{number:.8g}" if math.isfinite(number) else "unknown"


def number_text(value: float | None, missing: str = "missing cells") -> str:
    """Six significant digits, or why there is no number."""
    if value is None:
        return f"not available ({missing})"
    return "infinite" if math.isinf(value) else f"{value:.6g}"
