"""Pyro inference over our models and any other: kernels that record diagnostics, and pointwise log-likelihoods."""

from __future__ import annotations

from .kernels import RecordingNUTS
from .log_likelihood import cell_log_likelihood, log_joint, pointwise_log_likelihood

__all__ = ["RecordingNUTS", "cell_log_likelihood", "log_joint", "pointwise_log_likelihood"]
