"""The families of models that come with the library, registered where the command line looks for them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ..core.family import Family, families, register
from ..core.page import Page
from ..dependency_network.study.page import network_page
from ..generalized_root.study.page import root_page
from ..study.files import save_analysis, save_learned
from ..study.learned import LearnedAnalysis
from ..study.learned_page import learned_page
from ..study.page import analysis_page
from .by_family import grm_use, log_linear_use, network_use
from .by_family.grm import ROOT_OPTIONS, VOCAB, plan_roots
from .by_family.log_linear import LOG_LINEAR_OPTIONS, plan_log_linear
from .by_family.network import NETWORK_OPTIONS, NetworkPlan
from .labelled import PREDICT_METHOD, PREDICT_SEED
from .methods import BURN_IN, COMPLETE, DRAW_METHOD, LABEL, LOG_Z_OPTIONS
from .wording import ROOT_HINTS

__all__ = ["DEFAULT", "families"]

DEFAULT = "log-linear"
"""The family that is fitted where none is named."""


def _log_linear_page(analysis: Any) -> Page:
    """The page of given interactions, or of learned ones."""
    return learned_page(analysis) if isinstance(analysis, LearnedAnalysis) else analysis_page(analysis)


def _save_log_linear(analysis: Any, folder: Path) -> dict[str, str]:
    """Write the models of given interactions, or of learned ones."""
    is_learned = isinstance(analysis, LearnedAnalysis)
    return save_learned(analysis, folder) if is_learned else save_analysis(analysis, folder)


def _save_one(analysis: Any, folder: Path) -> dict[str, str]:
    """Write the model."""
    analysis.save(folder / "model.safetensors")
    return {}


register(
    Family(
        kind="hierarchical-log-linear",
        name="log-linear model",
        short="log-linear",
        data_type="labels",
        options={
            "fit": LOG_LINEAR_OPTIONS,
            "sample": (DRAW_METHOD, BURN_IN, log_linear_use.MOST_PROBABLE, *COMPLETE),
            "score": (LABEL, *LOG_Z_OPTIONS),
            "predict": (PREDICT_METHOD, PREDICT_SEED, LABEL),
            "log-z": LOG_Z_OPTIONS,
            "interactions": log_linear_use.INTERACTIONS_OPTIONS,
        },
        fit=plan_log_linear,
        load=log_linear_use.load,
        save=_save_log_linear,
        sections=_log_linear_page,
        draw=log_linear_use.draw,
        score=log_linear_use.score,
        predict=log_linear_use.predict,
        interactions=log_linear_use.interactions,
        complete=log_linear_use.complete,
        log_z=log_linear_use.log_z,
    )
)
register(
    Family(
        kind="dependency-network",
        name="dependency network",
        short="dependency-network",
        data_type="labels",
        options={
            "fit": NETWORK_OPTIONS,
            "sample": (DRAW_METHOD, BURN_IN, *COMPLETE),
            "score": (LABEL, LOG_Z_OPTIONS[0], LOG_Z_OPTIONS[-1]),
            "predict": (PREDICT_METHOD, PREDICT_SEED, LABEL),
            "log-z": LOG_Z_OPTIONS,
        },
        fit=NetworkPlan,
        load=network_use.load,
        save=_save_one,
        sections=network_page,
        draw=network_use.draw,
        score=network_use.score,
        predict=network_use.predict,
        interactions=network_use.interactions,
        complete=network_use.complete,
        instead={
            "prior": "its leaves have the Dirichlet prior of --alpha",
            "most_probable": "it does not hold the joint law",
            "chains": "it has no log Z to estimate",
            "temperatures": "it has no log Z to estimate",
            "information": "its file holds what its edges are worth",
            "samples": "its file holds what its edges are worth",
            "log-z": "its conditionals need not belong to one joint law; pyro-hoim score gives its pseudo-likelihood, "
            "and its likelihood where the law can be enumerated",
        },
    )
)
register(
    Family(
        kind="generalized-root",
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
        load=grm_use.load,
        save=_save_one,
        sections=partial(root_page, hints=ROOT_HINTS),
        draw=grm_use.draw,
        score=grm_use.score,
        predict=grm_use.predict,
        interactions=grm_use.interactions,
        log_z=grm_use.log_z,
        instead={
            "prior": "its coefficients are held back by --l1",
            "target": "fit without it, then pyro-hoim predict MODEL FILE --target COL",
            "missing": "fill empty cells or leave out their rows first, for it needs every number",
            "complete": "its rows are complete",
            "information": "its tuples are sorted by coefficient",
            "samples": "its tuples are sorted by coefficient",
        },
    )
)
