"""Learning: fits of hierarchical log-linear models, whether they exist, how well they fit and what they say."""

from .existence import Combination, MLEExistence, mle_existence
from .fit import fit
from .goodness_of_fit import GoodnessOfFit, LikelihoodRatioTest, goodness_of_fit, likelihood_ratio_test
from .incomplete import fit_incomplete, row_log_likelihood
from .penalties import L1, L2, GroupL2
from .result import FitResult, HistoryEntry
from .tables import cell_table, coefficient_table, odds_ratio_table

__all__ = [
    "L1",
    "L2",
    "Combination",
    "FitResult",
    "GoodnessOfFit",
    "GroupL2",
    "HistoryEntry",
    "LikelihoodRatioTest",
    "MLEExistence",
    "cell_table",
    "coefficient_table",
    "fit",
    "fit_incomplete",
    "goodness_of_fit",
    "likelihood_ratio_test",
    "mle_existence",
    "odds_ratio_table",
    "row_log_likelihood",
]
