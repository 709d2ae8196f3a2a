"""Checks of the options of annealed importance sampling."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING

import torch

from ...annealing.path import checked_path
from ...annealing.start_rows import checked_rows
from ...annealing.weights import MIN_CHAINS
from ...errors import InputError, InputTypeError, is_whole
from ...runs.schedule import GibbsSchedule

if TYPE_CHECKING:
    from .importance import AnnealedImportance


def check_options(options: AnnealedImportance) -> None:
    """Raise for options that are out of range and bring sequences into a form that can be hashed."""
    for name in ("num_chains", "num_temperatures", "sweeps_per_step", "islands"):
        _check_whole(getattr(options, name), name, 1)
    _check_whole(options.burn_in, "burn_in", 0)
    if options.seed is not None:
        _check_whole(options.seed, "seed", 0)
        if options.seed >= 2**62:
            raise InputError(f"AnnealedImportance seed: expected a number below 2^62, received {options.seed}")
    for name in ("conditional_ess", "level"):
        if not _is_number(getattr(options, name)) or not 0 < getattr(options, name) < 1:
            raise InputError(
                f"AnnealedImportance {name}: expected a share between 0 and 1, received {getattr(options, name)!r}"
            )
    if not isinstance(options.schedule, GibbsSchedule):
        raise InputTypeError(
            f"AnnealedImportance schedule: expected a GibbsSchedule, received {type(options.schedule).__name__}"
        )
    if isinstance(options.temperatures, str):
        if options.temperatures != "adaptive":
            raise InputError(
                f"AnnealedImportance temperatures: expected 'adaptive', numbers or None, "
                f"received {options.temperatures!r}"
            )
    elif options.temperatures is not None:
        object.__setattr__(options, "temperatures", checked_path(options.temperatures))
    _check_reference(options)
    _check_runs(options)
    if options.starts is not None:
        object.__setattr__(options, "starts", checked_rows(options.starts, "AnnealedImportance"))
    if options.engine not in ("auto", "products", "tables", "torch"):
        raise InputError(
            f"AnnealedImportance engine: expected 'auto', 'products', 'tables' or 'torch', received {options.engine!r}"
        )
    if options.precision not in (torch.float32, torch.float64):
        raise InputError(
            f"AnnealedImportance precision: expected torch.float32 or torch.float64, received {options.precision}"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _check_reference(options: AnnealedImportance) -> None:
    if isinstance(options.reference, str):
        if options.reference not in ("singles", "uniform"):
            raise InputError(
                f"AnnealedImportance reference: expected 'singles', 'uniform' or log weights, "
                f"received {options.reference!r}"
            )
        return
    weights = torch.as_tensor(options.reference).detach()
    if weights.dim() != 1 or not bool(torch.isfinite(weights).all()):
        raise InputError(
            "AnnealedImportance reference: expected a vector of finite log weights, one for every level of every "
            f"variable, received shape {tuple(weights.shape)} or numbers that are not finite"
        )
    object.__setattr__(options, "reference", tuple(weights.double().tolist()))


def _check_runs(options: AnnealedImportance) -> None:
    if options.reverse not in (True, False, "auto"):
        raise InputError(f"AnnealedImportance reverse: expected True, False or 'auto', received {options.reverse!r}")
    if options.resample_below is not None:
        if not _is_number(options.resample_below) or not 0 < options.resample_below <= 1:
            raise InputError(
                f"AnnealedImportance resample_below: expected a share within (0, 1] or None, "
                f"received {options.resample_below!r}"
            )
        if options.islands < MIN_CHAINS or options.num_chains % options.islands:
            raise InputError(
                f"AnnealedImportance islands: expected at least {MIN_CHAINS} that divide "
                f"num_chains={options.num_chains}, received {options.islands}"
            )
    if options.combine and (
        options.reverse is False or options.resample_below is not None or not is_reversible(options.schedule)
    ):
        raise InputError(
            "AnnealedImportance combine: needs the reverse run of a sequential schedule without emphasis, and no "
            "resampling"
        )


def is_reversible(schedule: GibbsSchedule) -> bool:
    """Whether a reverse run makes the very sweeps of the forward run, in reverse."""
    return schedule.scan == "sequential" and not schedule.emphasised


def _check_whole(value: object, name: str, least: int) -> None:
    if not is_whole(value) or value < least:
        raise InputError(f"AnnealedImportance {name}: expected a whole number of at least {least}, received {value!r}")
