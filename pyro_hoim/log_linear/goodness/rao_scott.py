r"""Likelihood-ratio tests under survey weights, corrected by their design effects."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import chdtrc

from ...errors import check_choice
from ..fitting.result import FitResult
from ..restricted.interactions import RestrictedInteractions
from .p_values import Comparison, PValue, asymptotic_verdict

__all__ = ["contrasts_between", "corrected_p_value", "design_effects"]


def contrasts_between(small: FitResult, big: FitResult) -> torch.Tensor:
    """Linear functions of theta of the larger of two nested models (df, num_parameters) that vanish in the smaller."""
    if small.restriction is None and big.restriction is None:
        kept, slices = set(small.hypergraph.edges), big.hypergraph.parameter_slices
        where = [i for edge, part in slices.items() if edge not in kept for i in range(part.start, part.stop)]
        return torch.eye(big.hypergraph.num_parameters, dtype=torch.float64)[where]
    lesser, greater = (r.restriction or RestrictedInteractions.whole(r.hypergraph) for r in (small, big))
    within = greater.basis.T @ greater.embedded(lesser)
    across = np.linalg.svd(within)[0][:, lesser.num_parameters :]
    return torch.from_numpy((greater.basis @ across).T.copy())


def design_effects(result: FitResult, contrasts: torch.Tensor, covariance: torch.Tensor) -> np.ndarray:
    """Eigenvalues of a covariance of linear functions in units of the model's, over what the data identify."""
    own, other = ((contrasts @ matrix @ contrasts.T).numpy() for matrix in (result.covariance, covariance))
    values, vectors = np.linalg.eigh(own)
    kept = values > 1e-10 * values.max(initial=0.0)
    scaled = vectors[:, kept] / np.sqrt(values[kept])
    return np.linalg.eigvalsh(scaled.T @ other @ scaled)


def corrected_p_value(test: Comparison, covariance: torch.Tensor, how: str | None) -> tuple[PValue, float]:
    """P-value of a likelihood ratio with the correction of second order, and the mean design effect."""
    check_choice(how, ("auto", "chi-square", None), "p_value")
    assert test.larger is not None
    effects = design_effects(test.larger, contrasts_between(test.result, test.larger), covariance)
    if not len(effects):
        return PValue(p_value_note="the data do not identify what the larger model adds"), math.nan
    mean = float(effects.mean())
    if len(effects) < test.df:
        return PValue(p_value_note="the larger model has infinite estimates, whose covariance is not known"), mean
    is_reliable, note = asymptotic_verdict(test, how)
    if how is None:
        return PValue(p_value_note=note), mean
    if not is_reliable:  # nothing else is known for weights; as of Wald's tests beside it
        note = f"rough: {note}"
    spread = float(np.square(effects).mean()) / mean**2
    found = float(chdtrc(len(effects) / spread, max(test.deviance, 0.0) / (mean * spread)))
    return PValue(p_value_note=note, p_value=found, p_value_method="rao-scott", p_value_statistic="deviance"), mean
