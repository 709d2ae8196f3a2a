"""Log-linear models, given or learned, as a family of the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ...core.command.options import BURN_IN, COMPLETE, DRAW_METHOD, LABEL, LOG_Z_OPTIONS, PREDICT_METHOD, PREDICT_SEED
from ...core.family import Family, Stored
from ...core.page import Page
from ...core.scores import Figures
from ...errors import check_type, out_of_reach, refused
from ...log_linear.coding import Coding, parametrization
from ...log_linear.codings.references import Reference
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.file import ModelFile, load_model, save_model
from ...log_linear.fitting.result import CovarianceKind, FitResult
from ...log_linear.goodness.goodness_of_fit import likelihood_ratio_test, term_tests
from ...log_linear.goodness.of_files import ratio_test_of_files
from ...log_linear.goodness.summary import fit_figures, fit_summary, model_figures, model_summary
from ...log_linear.impossible import ImpossibleStates
from ...log_linear.laws.law import HierarchicalLogLinear
from ...log_linear.learning.model import LearnResult
from ...log_linear.scores import infinite_interactions
from ...log_linear.search.rounds import SelectionResult
from ...runs.container import LOG_LINEAR, check_single
from ..files import column_shares, directions_of, save_analysis, save_learned
from ..learned import LearnedAnalysis
from ..learned_page import learned_page
from ..page import analysis_page
from . import use
from .fit import LOG_LINEAR_OPTIONS, plan_log_linear
from .use import estimate, score_each_row

__all__ = ["FAMILY"]


def _load(path: Path) -> ModelFile:
    """The one model of a file."""
    file = load_model(path)
    check_single(path, file.theta, "load_model")
    return file


def _stored(found: Any) -> Stored | None:
    """What a file holds of an energy, of a law, or of what a fit or learning returned."""
    if isinstance(found, SelectionResult):
        found = found.log_linear()
    if isinstance(found, LearnResult):
        found = found.file()
    elif isinstance(found, LogLinearEnergy):
        codings, impossible = parametrization(found.hypergraph), ImpossibleStates.of_energy(found)
        tables = found.tables
        if impossible is not None:
            tables = tables.masked_fill(torch.isneginf(tables), 0.0)
        if codings.coding == "corner":
            found = ModelFile(found.hypergraph, codings.from_tables(tables), "corner", impossible=impossible)
        else:
            found = ModelFile(found.hypergraph, codings.purify(tables)[0], "balanced", impossible=impossible)
    elif isinstance(found, HierarchicalLogLinear):
        found = ModelFile(found.hypergraph, found.theta, found.coding)
    elif isinstance(found, FitResult):
        figures = fit_figures(found)
        names = ("num_parameters", "log_likelihood", "is_maximum", "status")
        info = {"rows": found.num_rows, **{name: getattr(figures, name) for name in names}}
        info["is_restricted"] = found.restriction is not None
        info |= {} if found.penalty is None else {"penalty": repr(found.penalty)}
        if found.data is not None:
            info["independent"] = column_shares(found.data)
        info["infinite_interactions"] = infinite_interactions(found)
        info["has_structural_zeros"] = found.possible is not None
        tensors, impossible = directions_of(found), found.impossible
        found = ModelFile(found.hypergraph, found.theta, found.coding, info, tensors, impossible)
    if not isinstance(found, ModelFile):
        return None
    return Stored(LOG_LINEAR, found, found.hypergraph.domain, found.info)


def _file(found: Any) -> ModelFile:
    """What a file holds of a model of this family."""
    stored = found if isinstance(found, Stored) else _stored(found)
    assert stored is not None
    return stored.model


def _summary(
    found: Any,
    *,
    level: float = 0.95,
    coding: Coding | None = None,
    covariance: CovarianceKind | None = None,
    reference: Reference | None = None,
) -> pd.DataFrame:
    """Coefficients, with tests where the result of a fit allows them."""
    if isinstance(found, FitResult):
        return fit_summary(found, level=level, coding=coding, covariance=covariance, reference=reference)
    return model_summary(_file(found), coding, reference)


def _term_tests(found: Any, **options: Any) -> pd.DataFrame:
    """A test of every interaction of a fit."""
    if not isinstance(found, FitResult):
        problem = f"interactions are tested on the rows of a fit, which a {type(found).__name__} does not keep"
        raise out_of_reach("test_terms", problem, "fit its hypergraph to the rows, and test that", code="no-method")
    return term_tests(found, **options)


def _figures(found: Any) -> Figures:
    """How large a model is and how well it fits."""
    return fit_figures(found) if isinstance(found, FitResult) else model_figures(_file(found))


def _nested(small: Any, big: Any) -> tuple[float, int, float, str]:
    """Likelihood-ratio test by what the expected counts allow, corrected for weights that are not whole."""
    if all(isinstance(found, Stored) for found in (small, big)):
        if small.info.get("split") is None or small.info["split"] != big.info.get("split"):
            raise refused("models", "the files do not tell that the rows were the same", code="other-domain")
        test = ratio_test_of_files(small.model, big.model)
    else:
        for name, result in (("small", small), ("big", big)):
            check_type(result, FitResult, name, "the result of a fit")
        test = likelihood_ratio_test(small, big)
    method = test.p_value_method
    how = "" if method == "chi-square" else f"p-value: {method or 'none'}; {test.p_value_note}"
    return test.statistic, test.df_adjusted, test.p_value, how


def _page(analysis: Any) -> Page:
    """The page of given interactions, or of learned ones."""
    return learned_page(analysis) if isinstance(analysis, LearnedAnalysis) else analysis_page(analysis)


def _save(analysis: Any, folder: Path) -> dict[str, str]:
    """Write the models of given interactions, or of learned ones."""
    is_learned = isinstance(analysis, LearnedAnalysis)
    return save_learned(analysis, folder) if is_learned else save_analysis(analysis, folder)


FAMILY = Family(
    kind=LOG_LINEAR,
    name="log-linear model",
    short="log-linear",
    data_type="labels",
    options={
        "fit": LOG_LINEAR_OPTIONS,
        "sample": (DRAW_METHOD, BURN_IN, use.MOST_PROBABLE, *COMPLETE),
        "score": (LABEL, *LOG_Z_OPTIONS),
        "predict": (PREDICT_METHOD, PREDICT_SEED, LABEL),
        "log-z": LOG_Z_OPTIONS,
        "interactions": use.INTERACTIONS_OPTIONS,
    },
    fit=plan_log_linear,
    load=_load,
    write=save_model,
    stored=_stored,
    save=_save,
    sections=_page,
    draw=use.draw,
    score=use.score,
    predict=use.predict,
    interactions=use.interactions,
    complete=use.complete,
    log_z=use.log_z,
    estimate=estimate,
    row_log_likelihood=score_each_row,
    summary=_summary,
    figures=_figures,
    nested=_nested,
    term_tests=_term_tests,
)
