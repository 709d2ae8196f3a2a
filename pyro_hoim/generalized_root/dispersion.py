"""Whether the numbers of a table vary as a root model says, given all other columns."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from ..core.words import shorten, times
from ..errors import InputError
from .energy import GeneralizedRootEnergy
from .nodes.families import ExponentialFamily, NodeFamily, PoissonFamily
from .nodes.log_partition import node_moments

_FACTOR = 1.5  # of the variance, from which on it is said
_ERRORS = 5.0  # standard errors of the ratio under the model
_PIECE = 2**21  # natural parameters at a time


def dispersions(
    energy: GeneralizedRootEnergy, rows: torch.Tensor, weights: torch.Tensor | None = None
) -> dict[str, float]:
    r"""Columns that vary otherwise than the model says, with the ratio of both variances.

    .. math:: \frac1n \sum_i \frac{(x_{is} - \mu_{is})^2}{\sigma_{is}^2}

    with mean and variance of the law of a count or positive number given all others in row i: Pearson's statistic per
    row, 1 under the model. A column is returned where the ratio is above 1.5 or below 1/1.5, and further from 1 than
    five standard errors under the model. Real numbers have a variance of their own, and labels none.

    Args:
        energy: the model, without a batch.
        rows: states (n, d).
        weights: how often each row was seen, (n,); each once when None.

    Raises:
        InputError: values outside the support, or a row without a conditional law.

    References:
        Peter McCullagh and John Nelder, Generalized Linear Models, 1989, section 4.5 (Pearson's statistic).

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> alone = RootStructure.independent(Domain([Variable("visits", kind="count")]))
        >>> model = GeneralizedRootEnergy(alone, torch.tensor([math.log(2.0)]), PoissonFamily())
        >>> ratios = dispersions(model, torch.tensor([[0.0], [0.0], [0.0], [8.0]]).repeat(50, 1))
        >>> round(ratios["visits"], 3)  # variance 12, mean 2
        6.0
    """
    numbers = [s for s, family in enumerate(energy.families) if _is_tied(family)]
    if not numbers or not len(rows):
        return {}
    weights = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights.double()
    # Sums over some rows at a time, for a row has natural parameters of every variable.
    squares, spreads = torch.zeros(2, len(numbers), dtype=torch.float64)
    size = max(1, _PIECE // (len(energy.domain) * energy.order))
    with torch.no_grad():
        for states, times in zip(rows.split(size), weights.split(size), strict=True):
            natural = energy.node_natural(states).double()
            for i, s in enumerate(numbers):
                law = node_moments(energy.families[s], natural[:, s].contiguous())
                assert law.covariance is not None
                variance = law.covariance[:, 0, 0]
                squares[i] += times @ ((states[:, s] - law.mean[:, 0]) ** 2 / variance)
                spreads[i] += times @ _spread(energy.families[s], variance)
    # Those that are far from 1, more than chance allows.
    total = float(weights.sum())
    ratios, errors = (squares / total).tolist(), (spreads.sqrt() / total).tolist()
    return {
        energy.domain.names[s]: ratio
        for s, ratio, error in zip(numbers, ratios, errors, strict=True)
        if abs(math.log(max(ratio, 1e-300))) > math.log(_FACTOR) and abs(ratio - 1) > _ERRORS * error
    }


def found_dispersions(
    energy: GeneralizedRootEnergy, rows: torch.Tensor, weights: torch.Tensor | None = None
) -> dict[str, float]:
    """:func:`dispersions`, none where some row has no conditional law."""
    try:
        return dispersions(energy, rows, weights)
    except InputError:
        return {}


def dispersion_caveats(ratios: Mapping[str, float]) -> list[str]:
    """The same as :func:`dispersion_sentences`, as whole sentences of a page."""
    return [f"{one[0].upper()}{one[1:]}." for one in dispersion_sentences(ratios)]


def dispersion_sentences(ratios: Mapping[str, float]) -> list[str]:
    """What a reader has to know of columns that vary otherwise than the model says."""
    sentences = list[str]()
    for is_more, how, what in ((True, "more", "too narrow"), (False, "less", "too wide")):
        some = [f"{shorten(name)} {times(ratio)}" for name, ratio in ratios.items() if (ratio > 1) == is_more]
        if some:
            sentences.append(
                f"numbers vary {how} than the model says, with the variance of {', '.join(some)}: intervals of "
                f"predictions are {what}, samples too {'even' if is_more else 'scattered'}; standard errors and tests "
                "do not rest on this variance"
            )
    return sentences


def _is_tied(family: NodeFamily) -> bool:
    """Whether the mean of a family, truncated Poisson ones among them, says its variance; two values are labels."""
    return isinstance(family, PoissonFamily | ExponentialFamily) and family.largest_value > 1


def _spread(family: NodeFamily, variance: torch.Tensor) -> torch.Tensor:
    """Variance of the squared distance from the mean in units of the variance, of Poisson and exponential laws."""
    return torch.full_like(variance, 8.0) if isinstance(family, ExponentialFamily) else 2.0 + 1.0 / variance
