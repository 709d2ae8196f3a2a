"""Analyses of a table: fits, tests, scores and posteriors of several models together."""

from .imputation import Imputation, impute
from .interaction_values import RemovalValue, removal_values
from .posterior import Posterior, PosteriorSettings, compare_models, file_stem, run_posterior
from .removal import RemovalEffect, log_z_difference, removal_effect, without
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
from .synthetic import SyntheticQuality, synthesise, synthetic_quality

__all__ = [
    "Analysis",
    "CoefficientInterval",
    "Imputation",
    "ModelAnalysis",
    "PartScores",
    "Posterior",
    "PosteriorSettings",
    "RemovalEffect",
    "RemovalValue",
    "RowScores",
    "SyntheticQuality",
    "analyse",
    "coefficient_intervals",
    "compare_models",
    "file_stem",
    "impute",
    "interaction_table",
    "log_z_difference",
    "matches_any",
    "num_impossible",
    "prediction_accuracy",
    "removal_effect",
    "removal_values",
    "run_posterior",
    "score_rows",
    "synthesise",
    "synthetic_quality",
    "without",
]
