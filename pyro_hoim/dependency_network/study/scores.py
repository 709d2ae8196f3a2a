"""Scores of rows under a dependency network: pseudo-likelihood at any size, likelihood where the law is enumerated."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

import torch

from ...core.rows import ClampedGibbs, row_patterns
from ...core.scores import RowLogLikelihood, mean_gain, mean_over_rows
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import ConvergenceWarning, other_domain, rounded_power, unexpected
from ..chains.ergodicity import check_ergodic
from ..conditionals import DependencyConditionals
from ..geometry.full_conditional import fc_limit, full_conditional_divergence
from ..stationary.laws import StationaryLaw, stationary_law
from .predictions import predict_network

__all__ = ["NetworkLawFinding", "NetworkScores", "find_law", "network_log_likelihood", "score_network"]

_MAX_STATES = 2**16
_GIBBS = ClampedGibbs(burn_in=20, num_sweeps=40, thin=2)


@dataclass(frozen=True, eq=False)
class NetworkLawFinding:
    """The law that a network settles at under the random scan with equal probabilities, or why there is no table of it.

    Attributes:
        law: the enumerated law, None where it is out of reach or there is no single one.
        reason: why there is none, one clause; empty with a law.
        has_unique_law: whether there is a single limiting law; None where zero probabilities leave it open.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_cardinalities({name: 2 for name in "abcdefghijklmnopq"})
        >>> nodes = [TableConditional(domain, name, [], torch.tensor([0.5, 0.5])) for name in domain.names]
        >>> find_law(DependencyConditionals(nodes)).reason
        'it has 131,072 states, at most 65,536 are enumerated'
    """

    law: StationaryLaw | None
    reason: str
    has_unique_law: bool | None


def find_law(conditionals: DependencyConditionals, *, max_states: int = _MAX_STATES) -> NetworkLawFinding:
    """The enumerated law of a network where it exists and has at most ``max_states`` states.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> found = find_law(learn_network(rows, alpha=0.0).conditionals)
        >>> found.has_unique_law, found.law.probs.round(decimals=4).tolist()
        (True, [[0.4, 0.1], [0.1, 0.4]])
    """
    found = check_ergodic(conditionals, max_states=max_states)
    if found.has_unique_law is False:
        return NetworkLawFinding(None, found.message, False)
    size = conditionals.domain.num_states
    if size > max_states:
        shown = f"{size:,}" if size < 10**9 else "{}e{}".format(*rounded_power(size, 1))
        reason = f"it has {shown} states, at most {max_states:,} are enumerated"
        return NetworkLawFinding(None, reason, found.has_unique_law)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said by the result
        law = stationary_law(conditionals, max_states=max_states)
    if not law.is_converged:
        return NetworkLawFinding(None, "the iteration for the stationary law did not settle", found.has_unique_law)
    return NetworkLawFinding(law, "", True)


@dataclass(frozen=True, eq=False)
class NetworkScores:
    r"""Mean scores of the rows of one data set, in nats a row.

    Attributes:
        rows: number of observations (sum of the counts).
        pseudo_nll: mean of :math:`-\sum_i \log \theta_i(x_i \mid x_{-i})` over the known cells; infinite where a
            factor is zero.
        pseudo_nll_std_error: its standard error over rows.
        nodes: mean of :math:`-\log \theta_i(x_i \mid x_{-i})` by variable, over the rows in which it is known; NaN
            where it never is.
        impossible_rows: observations with a cell that its conditional gives probability zero.
        approximate_rows: observations with a factor that was averaged over pseudo-Gibbs chains (missing cells).
        nll: mean negative log-likelihood under the enumerated law, missing cells summed over; None without a law.
        nll_std_error: its standard error over rows; None without a law.
        kl: ``nll`` less the entropy of the rows' empirical law; None without a law or with missing cells.
        fc: full conditional divergence of the rows' empirical law from the enumerated one; None likewise.
        fc_limit: its bound from the conditionals alone; None with missing cells.
        gain: mean log pseudo-likelihood above that of a reference network; None without one.
        gain_std_error: its standard error over rows, see :func:`~pyro_hoim.core.scores.mean_gain`.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> learned = learn_network(rows, alpha=0.0)
        >>> scores = score_network(learned.conditionals, rows)
        >>> scores.rows, round(scores.nodes["a"], 4), round(scores.fc_limit, 6)
        (100.0, 0.5004, 0.0)
    """

    rows: float
    pseudo_nll: float
    pseudo_nll_std_error: float
    nodes: dict[str, float] = field(repr=False)
    impossible_rows: float
    approximate_rows: float
    nll: float | None
    nll_std_error: float | None
    kl: float | None
    fc: float | None
    fc_limit: float | None
    gain: float | None = None
    gain_std_error: float | None = None


def score_network(
    conditionals: DependencyConditionals,
    data: DataLike,
    *,
    law: StationaryLaw | None = None,
    reference: DependencyConditionals | None = None,
    gibbs: ClampedGibbs = _GIBBS,
    seed: int = 0,
) -> NetworkScores:
    r"""Score rows under a dependency network (paper 5, equations 6 to 10).

    A missing cell adds no factor of its own to the pseudo-likelihood. A factor that needs a missing cell is the mean of
    the conditional over conditional pseudo-Gibbs chains, as in :func:`predict_network`.

    Args:
        conditionals: the network.
        data: rows over its domain with a positive total count; others are refused.
        law: its enumerated law over all variables, for what needs one; see :func:`find_law`.
        reference: a network over the same domain that the gain is measured from, such as that of independent columns.
        gibbs: number and length of the chains.
        seed: seed of the chains.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> network = learn_network(rows, alpha=0.0).conditionals
        >>> scores = score_network(network, rows, law=find_law(network).law)
        >>> round(scores.nll, 4), round(rows.entropy(), 4), abs(scores.kl) < 1e-9
        (1.1935, 1.1935, True)
    """
    data = as_observations(data, domain=conditionals.domain)
    if data.domain != conditionals.domain:
        expected = "the variables and labels of the model's domain"
        raise other_domain("data", expected, hint="read the file with domain=...")
    if not data.total_count > 0:
        raise unexpected("data", "at least one row", received="a total count of 0", code="empty")
    data = data.unique()
    total, counts, squares = data.total_count, data.counts, data.squared_weights
    log_probs, is_exact = _log_conditionals(conditionals, data, gibbs, seed)
    pseudo = log_probs.nan_to_num(nan=0.0, neginf=-math.inf).sum(1)
    mean, error = mean_over_rows(-pseudo, counts, squares)
    gain = gain_error = None
    if reference is not None:
        apart = _log_conditionals(reference, data, gibbs, seed)[0].nan_to_num(nan=0.0, neginf=-math.inf).sum(1)
        gain, gain_error = mean_gain(pseudo, apart, counts, squares)
    nll = nll_error = kl = fc = None
    if law is not None:
        nll, nll_error = mean_over_rows(-_log_law(law, data), counts, squares)
        kl = None if data.has_missing else nll - data.entropy()
        fc = None if data.has_missing else full_conditional_divergence(data, law)
    return NetworkScores(
        rows=total,
        pseudo_nll=mean,
        pseudo_nll_std_error=error,
        nodes={name: _node_mean(log_probs[:, i], counts) for i, name in enumerate(data.domain.names)},
        impossible_rows=float(counts[pseudo == -math.inf].sum()),
        approximate_rows=float(counts[~is_exact].sum()),
        nll=nll,
        nll_std_error=nll_error,
        kl=kl,
        fc=fc,
        fc_limit=None if data.has_missing else fc_limit(data, conditionals).value,
        gain=gain,
        gain_std_error=gain_error,
    )


def network_log_likelihood(
    conditionals: DependencyConditionals, data: DataLike, pseudo: bool = False
) -> RowLogLikelihood:
    """Log-likelihood of every row under the enumerated law; pseudo-likelihood on demand and where there is none."""
    data = as_observations(data, domain=conditionals.domain)
    law = None if pseudo else find_law(conditionals).law
    if law is not None:
        return RowLogLikelihood(_log_law(law, data))
    log_probs, is_exact = _log_conditionals(conditionals, data, _GIBBS, seed=0)
    values = log_probs.nan_to_num(nan=0.0, neginf=-math.inf).sum(1)
    return RowLogLikelihood(values, "pseudo-likelihood", bool(is_exact.all()))


def _log_conditionals(
    conditionals: DependencyConditionals, data: Observations, gibbs: ClampedGibbs, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of every cell given the others, NaN where it is missing, (N, d); rows without chains, (N,)."""
    complete = (data.codes >= 0).all(1)
    values = torch.full(data.codes.shape, math.nan, dtype=torch.float64)
    values[complete] = conditionals.log_conditionals(data.codes[complete]).double()
    is_exact = torch.ones(len(data.codes), dtype=torch.bool)
    gaps = (~complete).nonzero().squeeze(1)
    for column, name in enumerate(data.domain.names if len(gaps) else ()):
        known = gaps[data.codes[gaps, column] >= 0]
        found = predict_network(conditionals, data.rows(known), name, gibbs=gibbs, seed=seed)
        values[known, column] = found.log_probs.gather(1, found.truth[:, None]).squeeze(1)
        is_exact[known] &= found.is_exact
    return values, is_exact


def _log_law(law: StationaryLaw, data: Observations) -> torch.Tensor:
    """Log-probability of the known cells of every row, (N,)."""
    values = torch.empty(len(data.codes), dtype=torch.float64)
    for missing, rows in row_patterns(data):
        known = [i for i, name in enumerate(data.domain.names) if name not in missing]
        gone = data.domain.indices(missing)
        table = law.probs.sum(gone) if gone else law.probs
        values[rows] = table[tuple(data.codes[rows][:, known].T)].log()
    return values


def _node_mean(log_probs: torch.Tensor, counts: torch.Tensor) -> float:
    known = ~log_probs.isnan()
    total = float(counts[known].sum())
    return -float((counts[known] * log_probs[known]).sum()) / total + 0.0 if total else math.nan
