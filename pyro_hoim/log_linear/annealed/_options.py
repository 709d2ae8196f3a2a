"""Checks of the options of annealed importance sampling."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING

import torch

from ...annealing.path import checked_path
from ...annealing.start_rows import checked_rows
from ...annealing.weights import MIN_CHAINS
from ...errors import check_choice, conflict, is_whole, out_of_range, unexpected, wrong_type
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
            raise out_of_range("AnnealedImportance seed", "a number below 2^62", received=options.seed)
    for name in ("conditional_ess", "level"):
        if not _is_number(getattr(options, name)) or not 0 < getattr(options, name) < 1:
            raise out_of_range(f"AnnealedImportance {name}", "a share between 0 and 1", getattr(options, name))
    if not isinstance(options.schedule, GibbsSchedule):
        raise wrong_type("AnnealedImportance schedule", "a GibbsSchedule", options.schedule)
    if isinstance(options.temperatures, str):
        if options.temperatures != "adaptive":
            expected = "'adaptive', numbers or None"
            raise unexpected("AnnealedImportance temperatures", expected, options.temperatures, code="unknown-choice")
    elif options.temperatures is not None:
        object.__setattr__(options, "temperatures", checked_path(options.temperatures))
    _check_reference(options)
    _check_runs(options)
    if options.starts is not None:
        object.__setattr__(options, "starts", checked_rows(options.starts, "AnnealedImportance"))
    check_choice(options.engine, ("auto", "products", "tables", "torch"), "AnnealedImportance engine")
    check_choice(options.precision, (torch.float32, torch.float64), "AnnealedImportance precision")


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _check_reference(options: AnnealedImportance) -> None:
    if isinstance(options.reference, str):
        if options.reference not in ("singles", "uniform"):
            expected = "'singles', 'uniform' or log weights"
            raise unexpected("AnnealedImportance reference", expected, options.reference, code="unknown-choice")
        return
    weights = torch.as_tensor(options.reference).detach()
    if weights.dim() != 1 or not bool(torch.isfinite(weights).all()):
        expected = "a vector of finite log weights, one for every level of every variable"
        found = f"shape {tuple(weights.shape)} or numbers that are not finite"
        raise unexpected("AnnealedImportance reference", expected, received=found, code="wrong-shape")
    object.__setattr__(options, "reference", tuple(weights.double().tolist()))


def _check_runs(options: AnnealedImportance) -> None:
    check_choice(options.reverse, (True, False, "auto"), "AnnealedImportance reverse")
    if options.resample_below is not None:
        if not _is_number(options.resample_below) or not 0 < options.resample_below <= 1:
            expected = "a share within (0, 1] or None"
            raise out_of_range("AnnealedImportance resample_below", expected, options.resample_below)
        if options.islands < MIN_CHAINS or options.num_chains % options.islands:
            expected = f"at least {MIN_CHAINS} that divide num_chains={options.num_chains}"
            raise out_of_range("AnnealedImportance islands", expected, received=options.islands)
    if options.combine and (
        options.reverse is False or options.resample_below is not None or not is_reversible(options.schedule)
    ):
        problem = "needs the reverse run of a sequential schedule without emphasis, and no resampling"
        raise conflict("AnnealedImportance combine", problem)


def is_reversible(schedule: GibbsSchedule) -> bool:
    """Whether a reverse run makes the very sweeps of the forward run, in reverse."""
    return schedule.scan == "sequential" and not schedule.emphasised


def _check_whole(value: object, name: str, least: int) -> None:
    if not is_whole(value) or value < least:
        raise out_of_range(f"AnnealedImportance {name}", f"a whole number of at least {least}", value)
