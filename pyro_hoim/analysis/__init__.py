"""Analyses of a table: fits, tests, scores and posteriors of several models together."""

from .posterior import Posterior, PosteriorSettings, compare_models, run_posterior
from .scores import RowScores, interaction_table, prediction_accuracy, score_rows
from .study import Analysis, ModelAnalysis, PartScores, analyse

__all__ = [
    "Analysis",
    "ModelAnalysis",
    "PartScores",
    "Posterior",
    "PosteriorSettings",
    "RowScores",
    "analyse",
    "compare_models",
    "interaction_table",
    "prediction_accuracy",
    "run_posterior",
    "score_rows",
]
