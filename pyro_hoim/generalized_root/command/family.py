"""Generalized root models as a family of the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.command.options import BURN_IN, DRAW_METHOD, LOG_Z_OPTIONS
from ...core.family import Family, Stored
from ...core.scores import Figures
from ...runs.container import GENERALIZED_ROOT, check_single
from ..energy import GeneralizedRootEnergy
from ..file import RootFile, load_roots, save_roots
from ..law import GeneralizedRoot
from ..regress.result import RootFitResult
from ..study.page import root_page
from ..study.scores import RootModel
from . import use
from .fit import ROOT_OPTIONS, VOCAB, estimate, plan_roots
from .use import root_figures, root_summary

__all__ = ["FAMILY"]


def _load(path: Path) -> RootFile:
    """The one model of a file."""
    file = load_roots(path)
    check_single(path, file.psi, "load_roots")
    return file


def _stored(found: Any) -> Stored | None:
    """What a file holds of a model, of a law, or of what a fit returned."""
    if isinstance(found, RootFitResult):
        info: dict[str, Any] = {"columns": list(found.domain.names), "fixed_columns": dict(found.fixed_columns)}
        info |= {"rows": found.num_rows, "refit": None if found.refit is None else found.refit.method}
        found = RootFile(found.structure, found.psi, found.family, info)
    elif isinstance(found, GeneralizedRoot | GeneralizedRootEnergy):
        found = RootFile(found.structure, found.psi, found.family)
    if not isinstance(found, RootFile):
        return None
    return Stored(GENERALIZED_ROOT, found, RootModel.from_file(found).domain, found.info)


def _file(found: Any) -> RootFile:
    """What a file holds of a model of this family."""
    stored = found if isinstance(found, Stored) else _stored(found)
    assert stored is not None
    return stored.model


def _figures(found: Any) -> Figures:
    """Its size, and the pseudo-likelihood of a refit."""
    refit = found.refit if isinstance(found, RootFitResult) else None
    status = "" if not isinstance(found, RootFitResult) or found.is_converged else "not converged"
    return root_figures(_file(found), refit, status)


FAMILY = Family(
    kind=GENERALIZED_ROOT,
    name="generalized root model",
    short="grm",
    data_type="numbers",
    options={
        "fit": ROOT_OPTIONS,
        "sample": (DRAW_METHOD, BURN_IN),
        "score": (VOCAB, *LOG_Z_OPTIONS),
        "predict": (VOCAB,),
        "log-z": LOG_Z_OPTIONS,
    },
    fit=plan_roots,
    load=_load,
    write=save_roots,
    stored=_stored,
    sections=root_page,
    draw=use.draw,
    score=use.score,
    predict=use.predict,
    interactions=use.interactions,
    log_z=use.log_z,
    estimate=estimate,
    row_log_likelihood=use.score_each_row,
    summary=lambda found, level=0.95: root_summary(_file(found), level),
    figures=_figures,
    instead={
        "prior": "its coefficients are held back by {l1}",
        "target": "fit without it, then predict the column with the model",
        "missing": "fill empty cells or leave out their rows first, for it needs every number",
        "complete": "its rows are complete",
        "information": "its tuples are sorted by coefficient",
        "samples": "its tuples are sorted by coefficient",
    },
)
