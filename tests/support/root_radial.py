"""The nested integral over direction and radius: a second way to log Z in up to three dimensions."""

import itertools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from pyro_hoim.errors import check_whole, out_of_reach
from pyro_hoim.generalized_root.energy import GeneralizedRootEnergy
from pyro_hoim.testing.oracles import enumerate_codes

Floats = NDArray[np.float64]

_LARGEST = 3  # dimensions
_MOST_POINTS = 2**26
_TOLERANCE = 1e-9  # change of log Z in the last halving, or relative weight of what a sum leaves out
_REACH = 3.6  # of the double-exponential variable; weights end below 1e-20
_DEPTH = 40.0  # nats below the largest value at which a radius ends
_LEVELS = 9
_STEP = 0.25


@torch.no_grad()
def radial_log_partition(energy: GeneralizedRootEnergy) -> float:
    r"""Log Z of one model of up to three variables as the nested integral over the direction and the radius, in nats.

    .. math:: Z = \int_{\mathcal V} \int_0^\infty
        \exp\Bigl(\sum_{r} \eta_r(v) z^r + \tilde B_v(z)\Bigr) \, d\mu(z) \, dv

    The way in which the paper shows that a model is normalisable: an oracle that shares nothing with
    :class:`~pyro_hoim.generalized_root.RootEnumeration` but the energy. Reals: double-exponential quadrature over
    directions with entries that sum to one (all signs for the Gaussian family) and, in the logarithm of z, over radii;
    steps are halved until log Z stands still. Counts: for z = 0, 1, 2, ... the sum over the states with total z, up to
    a z after which a bound for every total leaves nothing. Whether Z is finite is not checked. Quadrature that does
    not settle and a sum of too many points raise IntractableError.

    References:
        David I. Inouye, Pradeep Ravikumar and Inderjit S. Dhillon, Generalized Root Models: Beyond Pairwise Graphical
        Models for Univariate Exponential Families, 2016, equations 6 and 7, appendix B.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import ExponentialFamily
        >>> structure = RootStructure.independent(Domain([Variable(name, kind="positive") for name in "ab"]))
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([-1.0, -2.0]).double(), ExponentialFamily())
        >>> round(math.exp(radial_log_partition(energy)), 9)  # 1 / (1 * 2)
        0.5
    """
    check_whole(len(energy.domain), "energy: number of variables", 1, _LARGEST)
    return _counts(energy) if energy.family.is_discrete else _reals(energy)


def _counts(energy: GeneralizedRootEnergy) -> float:
    """Log of the sum over totals."""
    d = len(energy.domain)
    last = int(min(d * energy.family.largest_value, _last_total(energy)))
    top = int(min(last, energy.family.largest_value))
    if (top + 1) ** (d - 1) * (last + 1) > _MOST_POINTS:
        raise out_of_reach("radial_log_partition", f"totals up to {last} need more than {_MOST_POINTS} points")
    heads = torch.from_numpy(enumerate_codes([top + 1] * (d - 1)))
    shells: list[float] = []
    for total in range(last + 1):
        rest = total - heads.sum(1)
        inside = (rest >= 0) & (rest <= top)
        states = torch.cat([heads[inside], rest[inside, None]], 1)
        shells.append(float(torch.logsumexp(-energy.energy(states, validate=False), 0)))
    return float(np.logaddexp.reduce(shells))


def _last_total(energy: GeneralizedRootEnergy) -> float:
    r"""A total beyond which all states together weigh less than the tolerance of the state zero, whose q is 1.

    With entries of v that sum to one, :math:`\prod v_s^{1/j} \le \ell^{-\ell / j}`, and the states of total n
    have :math:`\sum \prod 1 / x_s! = d^n / n!`.
    """
    d, slopes = len(energy.domain), dict[float, float]()
    for key, where in energy.structure.slices.items():
        ratio = key[1] / key[0]
        largest = float(energy.coefficients[where].clamp(min=0).sum()) * key[1] ** -ratio
        slopes[ratio] = slopes.get(ratio, 0.0) + largest
    count = 64
    while count < _MOST_POINTS:
        n = np.arange(count, 4 * count, dtype=np.float64)
        logs = n * math.log(d) - special.gammaln(n + 1) + sum(a * n**r for r, a in slopes.items())
        if np.logaddexp.reduce(logs) < math.log(_TOLERANCE) - 5 and logs[-1] < logs[0] - 1:
            break
        count *= 2
    return count


def _reals(energy: GeneralizedRootEnergy) -> float:
    """Log of the double integral, with steps halved until it stands still."""
    before, radii = math.nan, np.zeros(0)
    for level in range(_LEVELS):
        directions, log_weights = _directions(len(energy.domain), energy.family.name == "gaussian", _STEP / 2**level)
        radii = _radii(energy, directions, log_weights, radii)
        if len(radii) * len(directions) > _MOST_POINTS:
            break
        value = _nested(energy, directions, log_weights, radii)
        if abs(value - before) <= _TOLERANCE:
            return value
        before = value
    raise out_of_reach("radial_log_partition", f"the integral does not settle to {_TOLERANCE:g}", code="no-method")


def _radii(energy: GeneralizedRootEnergy, directions: torch.Tensor, log_weights: torch.Tensor, old: Floats) -> Floats:
    """Logarithms of z on which the integral over the radius stands still; those of the level before if they do."""
    coarse = np.arange(-200.0, 200.0, 0.25)
    best, power = np.full(len(coarse), -np.inf), _radial_power(energy)
    for start in range(0, len(directions), 4096):
        logs = np.full((1, len(coarse)), power * coarse)
        with np.errstate(over="ignore", invalid="ignore"):
            for ratio, eta in energy.radial_natural(directions[start : start + 4096]).items():
                logs = logs + eta[:, None].numpy() * np.exp(float(ratio) * coarse)
        best = np.maximum(best, np.nan_to_num(logs, nan=-np.inf).max(0))
    inside = np.flatnonzero(best > best.max() - _DEPTH)
    if inside[0] == 0 or inside[-1] == len(coarse) - 1:
        problem = "the radius has no end within floating-point range"
        raise out_of_reach("radial_log_partition", problem, code="no-method")
    lower, upper = float(coarse[inside[0]]) - 0.25, float(coarse[inside[-1]]) + 0.25
    if len(old) and old[0] <= lower and upper <= old[-1] + 0.25:
        return old
    value = math.nan
    sparse = slice(None, None, max(1, len(directions) // 1000))
    for level in range(_LEVELS + 3):
        radii = np.arange(lower, upper, _STEP / 2**level)
        found = _nested(energy, directions[sparse], log_weights[sparse], radii)
        if abs(found - value) <= _TOLERANCE / 100:
            return radii
        value = found
    problem = f"the integral over the radius does not settle to {_TOLERANCE:g}"
    raise out_of_reach("radial_log_partition", problem, code="no-method")


def _radial_power(energy: GeneralizedRootEnergy) -> float:
    """Power of z in its own measure: d for x = z v, d / 2 for x = sqrt(z) v."""
    return len(energy.domain) / (2.0 if energy.family.name == "gaussian" else 1.0)


def _nested(energy: GeneralizedRootEnergy, directions: torch.Tensor, log_weights: torch.Tensor, radii: Floats) -> float:
    """Log of the sum over directions (n, d) and over log radii on an even grid."""
    t = torch.from_numpy(radii)
    parts: list[torch.Tensor] = []
    for start in range(0, len(directions), 8192):
        part = slice(start, start + 8192)
        logs = _radial_power(energy) * t
        for ratio, eta in energy.radial_natural(directions[part]).items():
            logs = logs + eta.unsqueeze(-1) * torch.exp(float(ratio) * t)
        parts.append(torch.logsumexp(logs, -1) + log_weights[part])
    factor = math.log(float(radii[1] - radii[0])) - (math.log(2) if energy.family.name == "gaussian" else 0.0)
    return float(torch.logsumexp(torch.cat(parts), 0)) + factor


def _directions(size: int, signed: bool, step: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Directions (n, d) with absolute values that sum to one, and logs of their quadrature weights (n,)."""
    s = np.arange(-_REACH, _REACH + step / 2, step)
    ahead, behind = special.expit(np.pi * np.sinh(s)), special.expit(-np.pi * np.sinh(s))
    log_weight = (
        np.log(step * np.pi * np.cosh(s))
        + special.log_expit(np.pi * np.sinh(s))
        + special.log_expit(-np.pi * np.sinh(s))
    )
    if size == 1:
        entries, logs = np.ones((1, 1)), np.zeros(1)
    elif size == 2:
        entries, logs = np.stack([ahead, behind], 1), log_weight
    else:
        first, second = (g.reshape(-1) for g in np.meshgrid(np.arange(len(s)), np.arange(len(s)), indexing="ij"))
        entries = np.stack([ahead[first], behind[first] * ahead[second], behind[first] * behind[second]], 1)
        logs = log_weight[first] + log_weight[second] + special.log_expit(-np.pi * np.sinh(s[first]))
    if signed:
        signs = np.array(list(itertools.product([1.0, -1.0], repeat=size)))
        entries = (signs[:, None] * entries).reshape(-1, size)
        logs = np.tile(logs, len(signs))
    return torch.from_numpy(entries), torch.from_numpy(logs)
