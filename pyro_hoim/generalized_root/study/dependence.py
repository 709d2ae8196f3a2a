"""Dependence in a generalized root model: exact moments of two variables, and what a third one changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from ...errors import out_of_range, out_of_reach, unexpected, wrong_type
from ..energy import GeneralizedRootEnergy
from ..nodes.log_partition import node_moments
from ..normalizability.check import check_normalizable

__all__ = ["PairMoments", "log_odds_ratio", "pair_moments"]

_DEPTH = 60.0  # nats below the largest term at which sums and integrals end
_FIRST = 64
_LARGEST = 2**22
_PANEL_NODES = 24
_MOST_PANELS = 2**10
_TOLERANCE = 1e-10


class PairMoments(NamedTuple):
    """Exact moments of a model of two variables.

    Attributes:
        log_z: log of the normalising constant, nats.
        mean: E x of both, float64 (2,).
        variance: Var x of both, float64 (2,).
        covariance: of the two.
    """

    log_z: float
    mean: torch.Tensor
    variance: torch.Tensor
    covariance: float

    @property
    def correlation(self) -> float:
        """Pearson's correlation of the two variables."""
        return self.covariance / math.sqrt(float(self.variance.prod()))


def pair_moments(energy: GeneralizedRootEnergy) -> PairMoments:
    r"""Mean, variance and covariance of the two variables of a model, by a sum or an integral over the first.

    .. math:: p(x_1) \propto \exp\bigl(\log q(x_1, 0) + A(\eta_2(x_1))\bigr), \qquad
        E[x_1 x_2] = \sum_{x_1} p(x_1)\, x_1\, E[x_2 \mid x_1]

    The second variable is summed out by its node log partition. Counts are summed until what is left is below e^-60 of
    the largest term; values of the exponential family are integrated in u, with x = u^m and m the least common multiple
    of the roots, by Gauss-Legendre panels that are halved until nothing moves by 1e-10. Relative error about 1e-10. For
    more variables clamp the others first: ``pair_moments(energy.condition({...}))``.

    Args:
        energy: a model of two variables without a batch, on counts or on positive numbers. (A Gaussian model has a
            closed form for k <= 2: ``energy.gaussian_parameters()``.)

    Raises:
        InputError: another number of variables, a batch, the Gaussian family, or a model that no law belongs to.
        InputTypeError: no generalized root model.
        IntractableError: counts above four million matter, or the integral does not settle.

    References:
        Paper 2 (generalized root models), equations 1, 2 and 5.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable(name, kind="count") for name in "ab"])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> found = pair_moments(GeneralizedRootEnergy(structure, torch.tensor([0.0, 0.0, 0.0]), PoissonFamily()))
        >>> found.mean.numpy().round(6).tolist(), round(found.log_z, 6), round(abs(found.correlation), 6)
        ([1.0, 1.0], 2.0, 0.0)
    """
    _check_pair(energy)
    energy = energy.detach().to(dtype=torch.float64, device="cpu")
    check_normalizable(energy).check()
    if energy.family.is_discrete:
        return _moments(energy, *_count_points(energy))
    found, before = None, None
    panels = 4
    while found is None or before is None or _moved(before, found) > _TOLERANCE:
        if panels > _MOST_PANELS:
            problem = "the integral over the first variable does not settle; the law reaches too far"
            raise out_of_reach("energy", problem, code="no-method")
        before, found = found, _moments(energy, *_real_points(energy, panels))
        panels *= 2
    return found


def _check_pair(energy: object) -> None:
    if not isinstance(energy, GeneralizedRootEnergy):
        raise wrong_type("energy", "a GeneralizedRootEnergy", energy)
    if len(energy.domain) != 2 or energy.batch_shape:
        expected = "a model of two variables without a batch"
        hint = "clamp the other variables with condition()"
        found = f"{len(energy.domain)} variables and batch shape {tuple(energy.batch_shape)}"
        raise unexpected("energy", expected, hint=hint, received=found, code="wrong-shape")
    if energy.family.name == "gaussian":
        raise out_of_range("energy", "counts or positive numbers", received="the gaussian family")


def _moved(before: PairMoments, after: PairMoments) -> float:
    """Largest relative change of a moment."""
    old = torch.cat([before.mean, before.variance])
    new = torch.cat([after.mean, after.variance])
    scale = math.sqrt(float(after.variance.prod()))
    shifts = [float((new / old - 1).abs().max()), abs(after.covariance - before.covariance) / scale]
    return max(*shifts, abs(after.log_z - before.log_z))


def _log_marginal(energy: GeneralizedRootEnergy, x: torch.Tensor) -> torch.Tensor:
    """Log of the first variable's unnormalised marginal density at x (n,)."""
    states = torch.stack([x, torch.zeros_like(x)], 1)
    natural = energy.node_natural(states, validate=False)[:, 1]
    return -energy.energy(states, validate=False) + node_moments(energy.family, natural, hessian=False).value


def _count_points(energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
    """Counts that matter and the log of their marginal weights, both (n,)."""
    limit = energy.family.largest_value
    count = _FIRST
    while True:
        x = torch.arange(min(count, limit + 1.0), dtype=torch.float64)
        weights = _log_marginal(energy, x)
        is_past = int(weights.argmax()) < count // 2 and bool(weights[-1] < weights.max() - _DEPTH)
        if count > limit or is_past:
            return x, weights
        if count >= _LARGEST:
            problem = f"counts above {_LARGEST} of {energy.domain.names[0]!r} matter"
            raise out_of_reach("energy", problem, code="no-method")
        count *= 2


def _real_points(energy: GeneralizedRootEnergy, panels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Quadrature nodes x = u^m and the log of marginal density times weight, both (n,)."""
    power = math.lcm(*range(1, energy.order + 1))
    grid = torch.linspace(0.0, 1.0, 513, dtype=torch.float64)[1:]
    top = 1.0
    while True:
        u = top * grid
        values = _log_marginal(energy, u**power) + (power - 1) * u.log()
        if int(values.argmax()) < len(u) // 2 and bool(values[-1] < values.max() - _DEPTH):
            break
        if top > 1e9:
            problem = f"values of {energy.domain.names[0]!r} reach too far to be integrated"
            raise out_of_reach("energy", problem, code="no-method")
        top *= 2
    top = float(u[torch.nonzero(values > values.max() - _DEPTH).max() + 1])
    nodes, weights = np.polynomial.legendre.leggauss(_PANEL_NODES)
    width = top / panels
    u = (torch.arange(panels, dtype=torch.float64)[:, None] + torch.from_numpy((nodes + 1) / 2)) * width
    log_weights = torch.from_numpy(np.log(weights * width / 2)).expand(panels, -1).reshape(-1)
    u = u.reshape(-1)
    return u**power, _log_marginal(energy, u**power) + math.log(power) + (power - 1) * u.log() + log_weights


def _moments(energy: GeneralizedRootEnergy, x: torch.Tensor, log_weights: torch.Tensor) -> PairMoments:
    """Moments from points of the first variable (n,) and the logs of their weights (n,)."""
    log_z = log_weights.logsumexp(0)
    weights = (log_weights - log_z).exp()
    states = torch.stack([x, torch.zeros_like(x)], 1)
    inner = node_moments(energy.family, energy.node_natural(states, validate=False)[:, 1])
    assert inner.covariance is not None
    given, spread = inner.mean[:, 0], inner.covariance[:, 0, 0]
    mean = torch.stack([weights @ x, weights @ given])
    variance = torch.stack([weights @ (x - mean[0]) ** 2, weights @ (spread + (given - mean[1]) ** 2)])
    covariance = weights @ ((x - mean[0]) * (given - mean[1]))
    return PairMoments(float(log_z), mean, variance, float(covariance))


def log_odds_ratio(
    energy: GeneralizedRootEnergy,
    names: tuple[str, str],
    given: Mapping[str, float],
    *,
    low: float = 0.0,
    high: float = 1.0,
) -> float:
    r"""How strongly two variables go together when all others are held: a log odds ratio, in nats.

    .. math:: \log \frac{p(h, h \mid z)\, p(l, l \mid z)}{p(h, l \mid z)\, p(l, h \mid z)}

    In a pairwise model it does not depend on the others' values z; with l = 0 and h = 1 it is the pair's coefficient. A
    triple adds its coefficient times the root of the third variable. Exact, and it needs no normalising constant.

    Args:
        energy: the model, without a batch.
        names: the two variables.
        given: values of all others.
        low: the smaller value l of both.
        high: the larger value h of both.

    Raises:
        UnknownNameError: a name that is not in the domain.
        InputError: values missing, or outside the support of the family.
    """
    if len(names) != 2 or names[0] == names[1]:
        raise unexpected("names", "two different variables", names, code="repeated-name")
    positions = energy.domain.indices(names)
    missing = [name for name in energy.domain.names if name not in given and name not in names]
    if missing or any(name in given for name in names):
        raise unexpected("given", f"the values of all variables but {names[0]} and {names[1]}, missing {missing}")
    state = torch.zeros(4, len(energy.domain), dtype=torch.float64)
    for name, value in given.items():
        state[:, energy.domain.index(name)] = float(value)
    for position, values in zip(positions, ([high, low, high, low], [high, low, low, high]), strict=True):
        state[:, position] = torch.tensor(values, dtype=torch.float64)
    scores = -energy.energy(state)
    return float(scores[0] + scores[1] - scores[2] - scores[3])
