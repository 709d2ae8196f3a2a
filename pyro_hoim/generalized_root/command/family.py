"""Generalized root models as a family of the registry."""

from __future__ import annotations

from typing import Any

from ...core.command.options import BURN_IN, DRAW_METHOD, LOG_Z_OPTIONS
from ...core.family import Family, Stored
from ...runs.container import GENERALIZED_ROOT
from ..energy import GeneralizedRootEnergy
from ..file import RootFile, load_roots, save_roots
from ..law import GeneralizedRoot
from ..regress.result import RootFitResult
from ..study.page import root_page
from ..study.scores import RootModel
from . import use
from .fit import ROOT_OPTIONS, VOCAB, estimate, plan_roots

__all__ = ["FAMILY"]


def _stored(found: Any) -> Stored | None:
    """What a file holds of a model, of a law, or of what a fit returned."""
    if isinstance(found, RootFitResult):
        info = {"columns": list(found.domain.names), "fixed_columns": dict(found.fixed_columns)}
        found = RootFile(found.structure, found.psi, found.family, info)
    elif isinstance(found, GeneralizedRoot | GeneralizedRootEnergy):
        found = RootFile(found.structure, found.psi, found.family)
    if not isinstance(found, RootFile):
        return None
    return Stored(GENERALIZED_ROOT, found, RootModel.from_file(found).domain, found.info)


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
    load=load_roots,
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
    instead={
        "prior": "its coefficients are held back by {l1}",
        "target": "fit without it, then predict the column with the model",
        "missing": "fill empty cells or leave out their rows first, for it needs every number",
        "complete": "its rows are complete",
        "information": "its tuples are sorted by coefficient",
        "samples": "its tuples are sorted by coefficient",
    },
)
