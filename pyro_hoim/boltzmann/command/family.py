"""Boltzmann machines as a family of the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.command.options import BURN_IN, COMPLETE, DRAW_METHOD, LABEL, LOG_Z_OPTIONS
from ...core.family import Family, Stored
from ...core.scores import Figures
from ...runs.container import check_single
from ..file import KIND, MachineFile, load_machine, save_machine
from ..law import BoltzmannMachine
from ..learning.fit import MachineResult
from . import use
from .fit import MACHINE_OPTIONS, MachinePlan, estimate
from .page import machine_page
from .summary import machine_figures, machine_summary

__all__ = ["FAMILY"]


def _load(path: Path) -> MachineFile:
    """The one machine of a file."""
    file = load_machine(path)
    check_single(path, file.theta, "load_machine")
    return file


def _stored(found: Any) -> Stored | None:
    """What a file holds of a machine, or of what a fit returned."""
    info = dict[str, Any]()
    if isinstance(found, MachineResult):
        info = {"rows": found.num_rows, "method": found.options.method}
        found = found.law
    if isinstance(found, BoltzmannMachine):
        found = MachineFile(found.structure, found.theta, info)
    if not isinstance(found, MachineFile):
        return None
    return Stored(KIND, found, found.structure.domain, found.info)


def _file(found: Any) -> MachineFile:
    """What a file holds of a machine."""
    stored = found if isinstance(found, Stored) else _stored(found)
    assert stored is not None
    return stored.model


def _figures(found: Any) -> Figures:
    """Its size, and how learning ended."""
    is_early = isinstance(found, MachineResult) and found.converged is False
    return machine_figures(_file(found), "not converged" if is_early else "")


FAMILY = Family(
    kind=KIND,
    name="Boltzmann machine",
    short="rbm",
    data_type="labels",
    options={
        "fit": MACHINE_OPTIONS,
        "sample": (DRAW_METHOD, BURN_IN, *COMPLETE),
        "score": (LABEL, *LOG_Z_OPTIONS),
        "predict": (LABEL,),
        "log-z": LOG_Z_OPTIONS,
    },
    fit=MachinePlan,
    load=_load,
    write=save_machine,
    stored=_stored,
    sections=machine_page,
    draw=use.draw,
    score=use.score,
    predict=use.predict,
    interactions=use.interactions,
    complete=use.complete,
    log_z=use.log_z,
    estimate=estimate,
    row_log_likelihood=use.score_each_row,
    summary=lambda found, level=0.95: machine_summary(_file(found), level),
    figures=_figures,
    instead={
        "prior": "its weights are held back by {decay}",
        "most_probable": "its missing cells are drawn",
        "information": "its interactions are sorted by value",
        "samples": "its interactions are sorted by value",
    },
)
