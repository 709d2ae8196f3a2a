"""Analyses of a table: fits, tests, scores and posteriors of several models together."""

from .imputation import Imputation, impute
from .interaction_values import RemovalValue, removal_values
from .network_edges import DependencyEdge, GraphInformation, edge_information
from .network_predictions import NetworkDraws, draw_network, impute_network, predict_network
from .network_scores import NetworkLawFinding, NetworkScores, find_law, score_network
from .networks import NetworkAnalysis, NetworkPart, analyse_network
from .posterior import Posterior, PosteriorSettings, compare_models, file_stem, run_posterior
from .priors import Prior
from .removal import RemovalEffect, log_z_difference, removal_effect, without
from .root_baselines import IndependentLaw, fit_independent
from .root_dependence import PairMoments, log_odds_ratio, pair_moments
from .root_recovery import (
    RocCurve,
    coefficient_errors,
    draw_root_rows,
    plant_roots,
    roc_curve,
    root_recovery,
    tuple_scores,
)
from .root_scores import (
    RootDraws,
    RootModel,
    RootPrediction,
    RootScores,
    draw_roots,
    predict_roots,
)
from .roots import PathStep, RootAnalysis, RootPart, analyse_roots, compare_root_models, standardise_term
from .sample_complexity import (
    Recovery,
    draw_rows,
    law_divergence,
    normalised_errors,
    sample_complexity,
    structure_recovery,
)
from .scores import (
    CoefficientInterval,
    RowScores,
    coefficient_intervals,
    gain_over_columns,
    interaction_table,
    matches_any,
    mean_gain,
    num_impossible,
    prediction_accuracy,
    score_rows,
)
from .study import Analysis, ModelAnalysis, PartScores, analyse
from .synthetic import SyntheticQuality, synthesise, synthetic_quality

__all__ = [
    "Analysis",
    "CoefficientInterval",
    "DependencyEdge",
    "GraphInformation",
    "Imputation",
    "IndependentLaw",
    "ModelAnalysis",
    "NetworkAnalysis",
    "NetworkDraws",
    "NetworkLawFinding",
    "NetworkPart",
    "NetworkScores",
    "PairMoments",
    "PartScores",
    "PathStep",
    "Posterior",
    "PosteriorSettings",
    "Prior",
    "Recovery",
    "RemovalEffect",
    "RemovalValue",
    "RocCurve",
    "RootAnalysis",
    "RootDraws",
    "RootModel",
    "RootPart",
    "RootPrediction",
    "RootScores",
    "RowScores",
    "SyntheticQuality",
    "analyse",
    "analyse_network",
    "analyse_roots",
    "coefficient_errors",
    "coefficient_intervals",
    "compare_models",
    "compare_root_models",
    "draw_network",
    "draw_root_rows",
    "draw_roots",
    "draw_rows",
    "edge_information",
    "file_stem",
    "find_law",
    "fit_independent",
    "gain_over_columns",
    "impute",
    "impute_network",
    "interaction_table",
    "law_divergence",
    "log_odds_ratio",
    "log_z_difference",
    "matches_any",
    "mean_gain",
    "normalised_errors",
    "num_impossible",
    "pair_moments",
    "plant_roots",
    "predict_network",
    "predict_roots",
    "prediction_accuracy",
    "removal_effect",
    "removal_values",
    "roc_curve",
    "root_recovery",
    "run_posterior",
    "sample_complexity",
    "score_network",
    "score_rows",
    "standardise_term",
    "structure_recovery",
    "synthesise",
    "synthetic_quality",
    "tuple_scores",
    "without",
]
