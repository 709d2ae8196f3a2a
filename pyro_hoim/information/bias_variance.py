"""Total error of an estimated law, split into bias and variance (paper 4, section "Bias-variance decomposition")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.distributions import Distribution, kl_divergence

from ..core.law import Law
from ..errors import check_choice, none_received, other_domain, out_of_range, wrong_shape, wrong_type

__all__ = ["Average", "BiasVariance", "bias_variance"]

_PARTS = ("total", "bias", "variance", "remainder")
_SUM_TOLERANCE = 1e-4


class Average(NamedTuple):
    """Mean over data sets, in nats, and its standard error: infinite for one data set, NaN where one is infinite.

    Example:
        >>> truth = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
        >>> fits = torch.tensor([[0.25, 0.75], [0.75, 0.25]], dtype=torch.float64).log()
        >>> found = bias_variance(truth, truth, fits).average("variance")
        >>> round(found.mean, 4), round(0.5 * math.log(4 / 3), 4), found.std_error
        (0.1438, 0.1438, 0.0)
    """

    mean: float
    std_error: float


@dataclass(frozen=True)
class BiasVariance:
    r"""Divergences in nats between the true law, its projection and estimates from data sets.

    Attributes:
        total: :math:`D(P^*; \hat P_B)` of every data set.
        bias: :math:`D(P^*; P^*_B)`, one number.
        variance: :math:`D(P^*_B; \hat P_B)` of every data set.
        remainder: total - bias - variance of every data set, computed as
            :math:`\sum_x (P^*(x) - P^*_B(x)) (\log P^*_B(x) - \log \hat P_B(x))` where cells are listed; zero up to
            rounding for members of an exponential family and its projection. NaN (infinity minus infinity) where an
            estimate excludes a state whose probability the projection changed.

    Shape:
        total, variance and remainder (*batch of the estimates); bias ().

    Example:
        >>> truth = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
        >>> result = bias_variance(truth, truth, torch.tensor([0.0, 1.0], dtype=torch.float64).log())
        >>> result.num_infinite, float(result.bias), float(result.variance)
        (1, 0.0, inf)
    """

    total: torch.Tensor
    bias: torch.Tensor
    variance: torch.Tensor
    remainder: torch.Tensor

    def average(self, part: str) -> Average:
        """Mean and standard error over all data sets of "total", "bias", "variance" or "remainder"."""
        check_choice(part, _PARTS, "part")
        values = getattr(self, part).to(torch.float64).reshape(-1)
        if part == "bias":
            return Average(float(values), 0.0)
        error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
        return Average(float(values.mean()), error)

    @property
    def num_infinite(self) -> int:
        """Number of data sets whose variance is infinite."""
        return int(torch.isinf(self.variance).sum())

    @property
    def note(self) -> str | None:
        """What infinite values mean, None where there are none."""
        if self.num_infinite:
            return (
                f"{self.num_infinite} of {self.variance.numel()} estimates give probability zero to a state that the "
                "projection allows (a margin that the family fits was zero in the data), so their variance, and its "
                "expectation at any number of rows, is infinite; estimates after finitely many steps, or under a "
                "prior, stay positive and have a finite variance that depends on the number of steps or the prior"
            )
        if bool(torch.isinf(self.bias)):
            return "the projection gives probability zero to a state that the true law allows: the bias is infinite"
        return None


def bias_variance(truth: Any, projection: Any, fits: Any, *, validate: bool = True) -> BiasVariance:
    r"""Split the error of estimates into the bias of their family and the variance of the estimation.

    .. math::
        \underbrace{D(P^*; \hat P_B)}_{\text{total}} = \underbrace{D(P^*; P^*_B)}_{\text{bias}}
        + \underbrace{D(P^*_B; \hat P_B)}_{\text{variance}} + \underbrace{\textstyle\sum_x
        (P^* - P^*_B)(\log P^*_B - \log \hat P_B)}_{\text{remainder}}

    In an exponential family :math:`\log P^*_B - \log \hat P_B` is a sum of its statistics, of which the m-projection
    :math:`P^*_B` has the means of :math:`P^*`: the remainder is zero (generalised Pythagorean theorem). A family that
    is not e-flat, such as a mixture or a machine with hidden units, has a remainder, of either sign. It also shows a
    projection that has not converged. Nothing is estimated here but the average over data sets.

    Costs O(cells) per data set where one of the arguments is a table. Where all are distributions with a registered
    divergence (:func:`torch.distributions.kl_divergence`), that is taken: log-linear laws and root models then need
    log Z and expectations only, and no list of cells. It is as exact as their backends are.

    Args:
        truth: the law P*: a :class:`~pyro_hoim.core.Law`, a distribution with ``log_prob_table``, or a tensor of
            log-probabilities of all cells.
        projection: P*_B, the law closest to it in the family, :math:`\operatorname{argmin}_Q D(P^*; Q)`.
        fits: estimates: a tensor or a distribution with leading batch dimensions, one for each data set, or a sequence
            of what ``truth`` may be.
        validate: refuse tables that do not sum to 1. Without it log-probabilities by an estimated log Z are taken as
            they are, and the error of the estimate is part of total and variance, alike, and not of the remainder.

    Shape:
        truth and projection (*cells) as tensors, fits (*batch, *cells); a sequence gives the batch (len,).

    Returns:
        Per data set in nats, infinite where an estimate excludes a state; see :attr:`BiasVariance.note`.

    Raises:
        InputError: shapes or variables that do not agree, or tensors that do not sum to 1.
        InputTypeError: something without probabilities of its cells.

    References:
        Paper 4, section "Bias-variance decomposition"; Amari (2001), Information geometry on hierarchy.

    Example:
        >>> truth = torch.tensor([[0.4, 0.1], [0.1, 0.4]], dtype=torch.float64)
        >>> projection = torch.full((2, 2), 0.25, dtype=torch.float64)  # independent columns with the same margins
        >>> fit = torch.tensor([[0.36, 0.24], [0.24, 0.16]], dtype=torch.float64)
        >>> result = bias_variance(truth.log(), projection.log(), fit.log())
        >>> round(float(result.total - result.bias - result.variance), 12)
        0.0
    """
    if isinstance(fits, Sequence) and not fits:
        raise none_received("fits", "at least one estimate")
    _check_domains(truth, projection, fits)
    # Of distributions Pyro knows the divergences, else all cells are listed.
    divided = _by_expectations(truth, projection, fits)
    if divided is not None:
        return divided
    log_p, log_q = _log_table(truth, "truth"), _log_table(projection, "projection")
    if log_p.shape != log_q.shape:
        raise wrong_shape("projection", tuple(log_p.shape), log_q)
    log_fits = _log_tables(fits, log_p.shape)
    ndim = log_p.dim()
    if ndim == 0 or log_fits.shape[log_fits.dim() - ndim :] != log_p.shape:
        raise wrong_shape("fits", f"(*batch, {', '.join(map(str, log_p.shape))})", log_fits)
    if not log_fits.numel():
        raise none_received("fits", "at least one estimate")
    for table, argument in ((log_p, "truth"), (log_q, "projection"), (log_fits, "fits")):
        if validate:
            _check_sum(table, ndim, argument)
    # The remainder vanishes cell by cell where the fit equals the projection, whatever the truth is.
    p, q, fitted = (table.flatten(-ndim) for table in (log_p, log_q, log_fits))
    weights, least = p.exp() - q.exp(), 0.0 if validate else -math.inf
    change = torch.where((weights == 0) | (q == fitted), 0.0, q - fitted)
    return BiasVariance(
        total=_divergence(p, fitted, least),
        bias=_divergence(p, q, 0.0),
        variance=_divergence(q, fitted, least),
        remainder=torch.where(torch.isinf(fitted) & (weights != 0), math.nan, weights * change).sum(-1),
    )


def _check_domains(truth: Any, projection: Any, fits: Any) -> None:
    """Refuse laws whose tables have other variables, or the same in another order, than those of the truth."""
    laws = {"truth": [truth], "projection": [projection], "fits": fits if isinstance(fits, Sequence) else [fits]}
    known = [(name, law.domain) for name, group in laws.items() for law in group if hasattr(law, "domain")]
    for argument, domain in known[1:]:
        if domain.names != known[0][1].names:
            raise other_domain(argument, f"the variables {known[0][1].names}, in this order", domain.names)


def _divergence(log_p: torch.Tensor, log_q: torch.Tensor, least: float) -> torch.Tensor:
    """D(p; q) over the last dimension, at least some number; cells of probability zero count nothing."""
    terms = torch.where(torch.isneginf(log_p), 0.0, log_p.exp() * (log_p - log_q))
    return terms.sum(-1).clamp(min=least)


def _by_expectations(truth: Any, projection: Any, fits: Any) -> BiasVariance | None:
    """By the divergences of distributions, or None where these are not distributions or have none."""
    estimates = list(fits) if isinstance(fits, Sequence) else [fits]
    if not all(isinstance(law, Distribution) for law in (truth, projection, *estimates)):
        return None
    try:
        bias = kl_divergence(truth, projection)
        divergences = [(kl_divergence(truth, fit), kl_divergence(projection, fit)) for fit in estimates]
    except NotImplementedError:
        return None
    if bias.dim():
        raise wrong_shape("truth", "() of its batch, as of the projection's", bias)
    total, variance = (
        torch.stack(part) if isinstance(fits, Sequence) else part[0] for part in zip(*divergences, strict=True)
    )
    return BiasVariance(total, bias, variance, total - bias - variance)


def _log_tables(fits: Any, shape: torch.Size) -> torch.Tensor:
    """Log-probabilities of the estimates, (*batch, *cells)."""
    if not isinstance(fits, Sequence):
        return _log_table(fits, "fits")
    tables = [_log_table(fit, "fits") for fit in fits]
    for table in tables:
        if table.shape != shape:
            raise wrong_shape("fits", tuple(shape), table)
    return torch.stack(tables)


def _log_table(law: Any, argument: str) -> torch.Tensor:
    """Log-probabilities of all cells."""
    table = law.probs.log() if isinstance(law, Law) else getattr(law, "log_prob_table", law)
    if not isinstance(table, torch.Tensor) or not table.is_floating_point():
        raise wrong_type(argument, "a Law, a distribution over cells or log-probabilities of all cells", law)
    return table.detach().to(torch.float64)


def _check_sum(log_probs: torch.Tensor, ndim: int, argument: str) -> None:
    sums = log_probs.flatten(-ndim).logsumexp(-1)
    worst = float(sums.abs().max()) if sums.numel() else 0.0
    if not worst <= _SUM_TOLERANCE:
        expected = "log-probabilities whose exponentials sum to 1"
        hint = "take the logarithm of probabilities"
        raise out_of_range(argument, expected, hint=hint, received=f"a log of their sum of up to {worst:.3g}")
