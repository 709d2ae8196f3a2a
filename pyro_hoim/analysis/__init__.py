"""Analyses of a table: fits, tests, scores and posteriors of several models together."""

from .posterior import Posterior, PosteriorSettings, compare_models, file_stem, run_posterior
from .scores import (
    CoefficientInterval,
    RowScores,
    coefficient_intervals,
    interaction_table,
    matches_any,
    num_impossible,
    prediction_accuracy,
    score_rows,
)
from .study import Analysis, ModelAnalysis, PartScores, analyse

__all__ = [
    "Analysis",
    "CoefficientInterval",
    "ModelAnalysis",
    "PartScores",
    "Posterior",
    "PosteriorSettings",
    "RowScores",
    "analyse",
    "coefficient_intervals",
    "compare_models",
    "file_stem",
    "interaction_table",
    "matches_any",
    "num_impossible",
    "prediction_accuracy",
    "run_posterior",
    "score_rows",
]
