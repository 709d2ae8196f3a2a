"""Exact or estimated: the options of the commands that need a normalising constant or draws."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.partition import LogPartition
from ..errors import IntractableError, conflict, out_of_range
from ..generalized_root.annealed.importance import RootAnnealed
from ..generalized_root.auto import RootAuto
from ..generalized_root.energy import GeneralizedRootEnergy
from ..log_linear.annealed.importance import ADVICE, AnnealedImportance
from ..log_linear.auto import Auto
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.file import ModelFile
from .options import SEED, WholeNumber
from .wording import in_option_words

if TYPE_CHECKING:
    import torch

__all__ = ["LOG_Z_OPTIONS", "describe_log_z", "is_terminal", "log_z_of", "root_log_z_of"]

_F = TypeVar("_F", bound=Callable[..., Any])
_CHAINS, _TEMPERATURES = AnnealedImportance.num_chains, AnnealedImportance.num_temperatures
_ADVICE = "try more --temperatures or --chains; in Python there are block moves and resampling as well"
_EXACT = click.Choice(["auto", "exact", "ais"])
_OPTIONS = (
    click.option(
        "--method",
        type=_EXACT,
        default="auto",
        show_default=True,
        help="How to find log Z. auto: exactly where possible, else the estimate that the model file holds, if any; "
        "exact: exactly, or not at all; ais: a new estimate with an error bar, at any size, by annealed importance "
        "sampling.",
    ),
    click.option("--chains", type=WholeNumber(1), metavar="N", help=f"Chains of ais.  [default: {_CHAINS}]"),
    click.option(
        "--temperatures",
        metavar="K|adaptive",
        help=f"Temperatures of ais, or adaptive: steps of equal difficulty.  [default: {_TEMPERATURES}]",
    ),
    click.option("--seed", type=SEED, help="Seed of ais.  [default: 0]"),
)


def LOG_Z_OPTIONS(command: _F) -> _F:  # noqa: N802 (a decorator like click's own constants here)
    """Add ``--method``, ``--chains``, ``--temperatures`` and ``--seed`` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def is_terminal() -> bool:
    """Whether a person may be looking at progress on standard error."""
    return sys.stderr.isatty()


def log_z_of(
    model: ModelFile,
    method: str,
    chains: int | None,
    temperatures: str | None,
    seed: int | None,
    starts: torch.Tensor | None = None,
) -> LogPartition:
    """Log Z of the model in a file by the method asked for, balanced coding; ``auto`` prefers exact to what is kept.

    An estimate looks for modes from ``starts`` (n, d), too.

    Raises:
        InputError: an option of ais without ``--method ais``, or temperatures that are no number.
        IntractableError: exact methods are asked for and exceed their budget; names the alternative.
    """
    kept = model.log_partition if method == "auto" and chains is temperatures is seed is None else None
    energy = LogLinearEnergy.from_theta(model.hypergraph, model.theta, model.coding)
    if kept is not None and not Auto().plan(model.hypergraph).feasible:
        notes = tuple(_in_option_words(note) for note in kept.notes)
        return replace(kept, method=f"{kept.method}, as the model file holds it", notes=notes)
    return _log_z(energy, method, chains, temperatures, seed, AnnealedImportance, Auto(), starts)


def root_log_z_of(
    energy: GeneralizedRootEnergy,
    method: str,
    chains: int | None,
    temperatures: str | None,
    seed: int | None,
    starts: torch.Tensor | None = None,
) -> LogPartition:
    """Log Z of a generalized root model; as :func:`log_z_of`."""
    return _log_z(energy, method, chains, temperatures, seed, RootAnnealed, RootAuto(), starts)


def _log_z(
    energy: Any,
    method: str,
    chains: int | None,
    temperatures: str | None,
    seed: int | None,
    annealed: type[AnnealedImportance | RootAnnealed],
    auto: Auto | RootAuto,
    starts: torch.Tensor | None,
) -> LogPartition:
    if method == "ais":
        result = _annealed(annealed, chains, temperatures, seed, starts).log_partition(energy)
        return replace(result, notes=tuple(_in_option_words(note) for note in result.notes))
    for name, value in (("--chains", chains), ("--temperatures", temperatures), ("--seed", seed)):
        if value is not None:
            raise conflict(name, f"belongs to --method ais, received --method {method}")
    try:
        return auto.log_partition(energy)
    except IntractableError as error:
        raise IntractableError(
            f"{error}. At the command line: --method ais estimates log Z at any size, with an error bar"
        ) from error


def _in_option_words(note: str) -> str:
    context = click.get_current_context(silent=True)
    return in_option_words(note.replace(ADVICE, _ADVICE), None if context is None else context.command)


def _annealed(
    kind: Any, chains: int | None, temperatures: str | None, seed: int | None, starts: torch.Tensor | None
) -> Any:
    """The backend that the options describe."""
    common: dict[str, Any] = {"num_chains": chains or kind.num_chains, "seed": seed or 0, "progress": is_terminal()}
    common["starts"] = starts if starts is not None and len(starts) else None
    if temperatures == "adaptive":
        return kind(temperatures="adaptive", **common)
    text = str(kind.num_temperatures) if temperatures is None else temperatures.strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 10**7):
        raise out_of_range("--temperatures", "a whole number from 1 to 10,000,000 or adaptive", text)
    return kind(num_temperatures=int(text), **common)


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
