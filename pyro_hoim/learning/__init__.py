"""Learning: fits of hierarchical log-linear models, whether they exist, how well they fit and what they say."""

from .existence import Combination, MLEExistence, mle_existence
from .fit import fit
from .given import ClampedGibbs, row_log_weights
from .goodness_of_fit import GoodnessOfFit, LikelihoodRatioTest, goodness_of_fit, likelihood_ratio_test
from .incomplete import fit_incomplete, row_log_likelihood
from .penalties import L1, L2, Conjugate, GroupL2
from .prediction import Prediction, extend_rows, predict
from .result import FitResult, HistoryEntry
from .tables import cell_table, coefficient_table, odds_ratio_table

__all__ = [
    "L1",
    "L2",
    "ClampedGibbs",
    "Combination",
    "Conjugate",
    "FitResult",
    "GoodnessOfFit",
    "GroupL2",
    "HistoryEntry",
    "LikelihoodRatioTest",
    "MLEExistence",
    "Prediction",
    "cell_table",
    "coefficient_table",
    "extend_rows",
    "fit",
    "fit_incomplete",
    "goodness_of_fit",
    "likelihood_ratio_test",
    "mle_existence",
    "odds_ratio_table",
    "predict",
    "row_log_likelihood",
    "row_log_weights",
]
