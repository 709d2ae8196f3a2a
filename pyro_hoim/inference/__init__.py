"""Pyro inference: kernels for discrete laws, posterior draws and predictive checks, and tools for any other program."""

from __future__ import annotations

from .block_gibbs import BlockGibbs
from .kernels import RecordingNUTS
from .log_likelihood import cell_log_likelihood, log_joint, pointwise_log_likelihood
from .mixed_gibbs import MixedGibbs
from .posterior import R_HAT_LIMIT, Metric, PosteriorSamples, log_linear_model, r_hat_limit, sample_posterior
from .predictive_checks import (
    Discrepancy,
    IntervalCoverage,
    PredictiveCheck,
    Replicates,
    deviance_discrepancy,
    interval_coverage,
    pearson_discrepancy,
    posterior_predictive,
    predictive_check,
    prior_predictive,
)
from .pseudo_gibbs import PseudoGibbs
from .root_gibbs import RootGibbs
from .root_posterior import RootPosterior, root_pseudo_model, sample_root_posterior
from .runner import MCMCRun, VectorizedKernel, run_mcmc

__all__ = [
    "R_HAT_LIMIT",
    "BlockGibbs",
    "Discrepancy",
    "IntervalCoverage",
    "MCMCRun",
    "Metric",
    "MixedGibbs",
    "PosteriorSamples",
    "PredictiveCheck",
    "PseudoGibbs",
    "RecordingNUTS",
    "Replicates",
    "RootGibbs",
    "RootPosterior",
    "VectorizedKernel",
    "cell_log_likelihood",
    "deviance_discrepancy",
    "interval_coverage",
    "log_joint",
    "log_linear_model",
    "pearson_discrepancy",
    "pointwise_log_likelihood",
    "posterior_predictive",
    "predictive_check",
    "prior_predictive",
    "r_hat_limit",
    "root_pseudo_model",
    "run_mcmc",
    "sample_posterior",
    "sample_root_posterior",
]
