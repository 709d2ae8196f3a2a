"""Scores of rows and figures of fits, whatever the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from ..data.observations import Observations
from ..errors import unexpected
from .words import amount_text


@dataclass(frozen=True, eq=False)
class RowLogLikelihood:
    """Log-likelihood of every row under a model, missing cells summed over.

    Attributes:
        values: float64 (N,), nats; minus infinity for rows that are impossible.
        kind: ``likelihood``, or where that is out of reach ``pseudo-likelihood``: the sum over the known cells of a row
            of the log probability of each given the others.
        is_exact: False where log Z is an estimate, or where missing cells were averaged over chains.
    """

    values: torch.Tensor
    kind: Literal["likelihood", "pseudo-likelihood"] = "likelihood"
    is_exact: bool = True


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Mean scores of the rows of one data set, in nats a row; None where a model or the rows allow none.

    Attributes:
        rows: number of observations (sum of the counts).
        pseudo_nll: mean negative log pseudo-likelihood; a missing cell is summed over and adds no factor of its own.
        pseudo_nll_std_error: its standard error over rows.
        nll: mean negative log-likelihood, missing cells summed over; infinite when a row has probability zero.
        nll_std_error: its standard error over rows.
        kl: ``nll`` less the entropy of the rows' empirical law; None with missing cells, and of real numbers.
        gain: mean log-likelihood above that of a reference, see :func:`mean_gain`; of a dependency network the mean log
            pseudo-likelihood.
        gain_std_error: its standard error over rows, from the differences row by row.
        reference_kl: as ``kl``, of the reference.
        impossible_rows: observations to which the model gives probability zero, where that was counted.
        approximate_rows: observations with a factor that was averaged over chains, for want of missing cells.
    """

    rows: float
    pseudo_nll: float
    pseudo_nll_std_error: float | None = None
    nll: float | None = None
    nll_std_error: float | None = None
    kl: float | None = None
    gain: float | None = None
    gain_std_error: float | None = None
    reference_kl: float | None = None
    impossible_rows: float = 0
    approximate_rows: float = 0


def mean_over_rows(values: torch.Tensor, counts: torch.Tensor, squares: torch.Tensor) -> tuple[float, float]:
    r"""Mean of a figure of every row, and its standard error over rows; both infinite where a row has none.

    .. math:: \bar d = \frac{1}{N} \sum_r n_r d_r, \quad
        \mathrm{se}^2 = \frac{1}{N^2} \sum_r s_r (d_r - \bar d)^2, \quad N = \sum_r n_r

    where s are sums of squared weights: n themselves of counts, the squares of weights. So the error does not depend
    on the unit that weights come in. Arguments are (N,), and counts positive.

    References:
        Leslie Kish, Survey sampling, 1965.
    """
    total = float(counts.sum())
    mean = float((counts * values).sum()) / total
    if not math.isfinite(mean):
        return mean, math.inf
    return mean, math.sqrt(float((squares * (values - mean) ** 2).sum())) / total


def kl_over_rows(log_probs: torch.Tensor, counts: torch.Tensor, entropy: float | None) -> float | None:
    """Mean of minus log-probabilities (N,) of rows less the entropy of their empirical law; None without that."""
    return None if entropy is None else -float((counts * log_probs).sum()) / float(counts.sum()) - entropy


def mean_gain(
    log_probs: torch.Tensor, reference: torch.Tensor, counts: torch.Tensor, squares: torch.Tensor | None = None
) -> tuple[float | None, float | None]:
    r"""Mean gain in log-likelihood over a reference model, and its standard error over rows (:func:`mean_over_rows`).

    .. math:: d_r = \log q(x_r) - \log q_0(x_r)

    The differences are paired: a row that is improbable under both models adds little to the error. Models are taken as
    given; the error is that of the rows alone. Arguments are (N,), in nats, and counts positive; without squares they
    are counts. The gain is infinite where rows are impossible under one of the models only, None where under both; its
    error is None with an infinite gain and for a single row.

    Example:
        >>> counts = torch.ones(2)
        >>> gain, error = mean_gain(torch.tensor([-1.0, -1.0]), torch.tensor([-1.5, -2.5]), counts)
        >>> gain, round(error, 4)
        (1.0, 0.3536)
    """
    lost, lost_alone = bool((log_probs == -math.inf).any()), bool((reference == -math.inf).any())
    if lost or lost_alone:
        return (None if lost and lost_alone else -math.inf if lost else math.inf), None
    squares = counts if squares is None else squares
    gain, error = mean_over_rows((log_probs - reference).double(), counts, squares)
    return gain, error if float(counts.sum()) ** 2 > float(squares.sum()) else None


def scores_of(
    data: Observations,
    log_probs: torch.Tensor,
    reference: torch.Tensor | None,
    log_pseudo_prob: Callable[[Observations], torch.Tensor],
) -> Scores:
    """Scores of rows from their log-probabilities under a model and a reference, (N,), and what gives pseudo ones."""
    if not data.total_count > 0:
        raise unexpected("data", "at least one row", received="a total count of 0", code="empty")
    # Rows that count, with their weights.
    total = data.total_count
    present = data.counts > 0
    counts, squares = data.counts[present], data.squared_weights[present]
    entropy = None if data.has_missing else data.entropy()
    gain = gain_error = reference_kl = None
    if reference is not None:
        gain, gain_error = mean_gain(log_probs[present], reference[present], counts, squares)
        reference_kl = kl_over_rows(reference[present], counts, entropy)
    nll, nll_error = mean_over_rows(-log_probs[present], counts, squares)
    # Pseudo-likelihoods of distinct rows.
    unique = data.unique()
    pseudo = -float((unique.counts * log_pseudo_prob(unique)).sum()) / total
    return Scores(
        rows=total,
        nll=nll,
        nll_std_error=nll_error,
        kl=kl_over_rows(log_probs[present], counts, entropy),
        pseudo_nll=pseudo,
        gain=gain,
        gain_std_error=gain_error,
        reference_kl=reference_kl,
        impossible_rows=float(counts[log_probs[present].isneginf()].sum()),
    )


def rows_are_distinct(rows: float, nll: float | None, kl: float | None) -> bool:
    r"""Whether all rows of a part are distinct, so that its KL is :math:`\mathrm{NLL} - \log N` for every model.

    Read from the entropy of the empirical distribution, :math:`\mathrm{NLL} - \mathrm{KL}`, which is
    :math:`\log N` for distinct rows and lower by at least :math:`2 \log 2 / N` when two are alike.
    """
    if nll is None or kl is None or not math.isfinite(nll) or not rows > 0:
        return False
    return abs(nll - kl - math.log(rows)) < math.log(2) / rows


@dataclass(frozen=True, kw_only=True)
class Figures:
    """How large a model is, and how well it describes the rows that it was estimated from, as far as that is known.

    Attributes:
        num_variables: of the model.
        num_interactions: of two and more variables.
        num_parameters: free parameters, those that the rows identify.
        num_rows: observations, the sum of their counts.
        has_weights: whether that is a sum of weights.
        log_likelihood: of all these rows, in nats.
        log_likelihood_bound: a number that it is at least, where the estimate maximises such a bound.
        log_pseudo_likelihood: likewise, the sum over the variables given all others.
        deviance: twice the log-likelihood lost against the saturated model.
        df: degrees of freedom of that comparison.
        is_maximum: whether the estimate maximises the likelihood, so that AIC, BIC and tests apply.
        status: how the fit ended.
        method: what else than the likelihood was maximised, in words.
        zeros: which rows were declared impossible, in words.
    """

    num_variables: int
    num_interactions: int
    num_parameters: int | None = None
    num_rows: float | None = None
    has_weights: bool = False
    log_likelihood: float | None = None
    log_likelihood_bound: float | None = None
    log_pseudo_likelihood: float | None = None
    deviance: float | None = None
    df: int | None = None
    is_maximum: bool = False
    status: str = ""
    method: str = ""
    zeros: str = ""

    @property
    def rows_text(self) -> str:
        """The number of rows, or what their weights add up to; empty where that is not known."""
        if self.num_rows is None:
            return ""
        return amount_text(self.num_rows, self.has_weights)
