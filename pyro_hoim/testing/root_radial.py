"""The nested integral over direction and radius: a second way to log Z in two or three dimensions."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from ..core.partition import Cost, LogPartition
from ..errors import IntractableError, check_whole, out_of_range, out_of_reach, size_text
from ..generalized_root.energy import GeneralizedRootEnergy
from ..generalized_root.exact.base import checked_psi, root_result

__all__ = ["RootRadial"]

Floats = NDArray[np.float64]

_METHOD = "radial integral"
_LARGEST = 3  # dimensions
_REACH = 3.6  # of the double-exponential variable; weights end below 1e-20
_DEPTH = 40.0  # nats below the largest value at which a radius ends
_LEVELS = 9
_STEP = 0.25


@dataclass(frozen=True)
class RootRadial:
    r"""Log Z of up to three variables as the nested integral over the direction and the radius.

    .. math:: Z = \int_{\mathcal V} \int_0^\infty
        \exp\Bigl(\sum_{r} \eta_r(v) z^r + \tilde B_v(z)\Bigr) \, d\mu(z) \, dv

    The way in which the paper shows that a model is normalisable, kept as an oracle that shares nothing with
    :class:`~pyro_hoim.generalized_root.RootEnumeration` but the energy. Reals: double-exponential quadrature over
    directions with entries that sum to one (all signs for the Gaussian family) and, in the logarithm of z, over radii;
    steps are halved until log Z stands still. Counts: for z = 0, 1, 2, ... the sum over the states with total z, up to
    a z after which a bound for every total leaves nothing. Differentiable in psi.

    Args:
        max_points: most points of a sum or quadrature.
        tolerance: change of log Z in the last halving, or relative weight of what a sum leaves out.
        allow_undecided: go on where it is not known whether the model has a finite constant.

    Raises:
        InputError: an option out of range.

    References:
        David I. Inouye, Pradeep Ravikumar and Inderjit S. Dhillon, Generalized Root Models: Beyond Pairwise Graphical
        Models for Univariate Exponential Families, 2016, equations 6 and 7, appendix B.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import ExponentialFamily
        >>> structure = RootStructure.independent(Domain([Variable(name, kind="positive") for name in "ab"]))
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([-1.0, -2.0]), ExponentialFamily())
        >>> RootRadial().log_partition(energy).value.exp()  # 1 / (1 * 2)
        tensor(0.5000)
    """

    max_points: int = 2**26
    tolerance: float = 1e-9
    allow_undecided: bool = False

    def __post_init__(self) -> None:
        check_whole(self.max_points, "RootRadial max_points")
        if not isinstance(self.tolerance, float) or not 1e-14 <= self.tolerance < 1:
            raise out_of_range("RootRadial tolerance", "1e-14 to below 1", self.tolerance)

    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        """Log Z in nats, value (*batch).

        Raises:
            InputError: the model has no finite constant; the direction is told.
            IntractableError: more than three variables, more than ``max_points`` points, or quadrature that does not
                settle.
        """
        if not 1 <= len(energy.domain) <= _LARGEST:
            expected = f"1 to {_LARGEST} variables"
            raise IntractableError(
                argument="RootRadial", expected=expected, received=str(len(energy.domain)), code="out-of-range"
            )
        cost = Cost(self.max_points, self.max_points, 20 * self.max_points, 64 * self.max_points, True, "", _METHOD)
        psi = checked_psi(energy, self.allow_undecided)
        rule = self._counts if energy.family.is_discrete else self._reals
        rows = psi.reshape(math.prod(energy.batch_shape), energy.structure.num_terms)
        values = [rule(GeneralizedRootEnergy(energy.structure, row, energy.family)) for row in rows]
        return root_result(torch.stack(values) if values else rows.sum(-1), energy, cost)

    # Counts

    def _counts(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        """Log of the sum over totals."""
        d = len(energy.domain)
        last = int(min(d * energy.family.largest_value, self._last_total(energy)))
        top = int(min(last, energy.family.largest_value))
        if (top + 1) ** (d - 1) * (last + 1) > self.max_points:
            needed = size_text((top + 1) ** (d - 1) * (last + 1), "points")
            raise out_of_reach("RootRadial", f"totals up to {last} need {needed}, more than {self.max_points}")
        shells: list[torch.Tensor] = []
        heads = torch.cartesian_prod(*[torch.arange(top + 1)] * (d - 1)).reshape(-1, d - 1) if d > 1 else None
        for total in range(last + 1):
            if heads is None:
                states = torch.tensor([[total]])
            else:
                rest = total - heads.sum(1)
                inside = (rest >= 0) & (rest <= top)
                states = torch.cat([heads[inside], rest[inside, None]], 1)
            shells.append(torch.logsumexp(-energy.energy(states, validate=False), 0))
        return torch.logsumexp(torch.stack(shells), 0)

    def _last_total(self, energy: GeneralizedRootEnergy) -> float:
        r"""A total beyond which all states together weigh less than ``tolerance`` of the state zero, whose q is 1.

        With entries of v that sum to one, :math:`\prod v_s^{1/j} \le \ell^{-\ell / j}`, and the states of total n
        have :math:`\sum \prod 1 / x_s! = d^n / n!`.
        """
        d, slopes = len(energy.domain), {}
        for key, where in energy.structure.slices.items():
            ratio = key[1] / key[0]
            largest = float(energy.coefficients[where].detach().clamp(min=0).sum()) * key[1] ** -ratio
            slopes[ratio] = slopes.get(ratio, 0.0) + largest
        count = 64
        while count < self.max_points:
            n = np.arange(count, 4 * count, dtype=np.float64)
            logs = n * math.log(d) - special.gammaln(n + 1) + sum(a * n**r for r, a in slopes.items())
            if np.logaddexp.reduce(logs) < math.log(self.tolerance) - 5 and logs[-1] < logs[0] - 1:
                return count
            count *= 2
        return math.inf if math.isfinite(energy.family.largest_value) else float(count)

    # Reals

    def _reals(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        """Log of the double integral, with steps halved until it stands still."""
        change, before, radii = math.inf, math.nan, np.zeros(0)
        for level in range(_LEVELS):
            directions, log_weights = _directions(
                len(energy.domain), energy.family.name == "gaussian", _STEP / 2**level
            )
            radii = self._radii(energy, directions, log_weights, radii)
            if len(radii) * len(directions) > self.max_points:
                break
            value = _nested(energy, directions, log_weights, radii)
            change = abs(float(value.detach()) - before)
            if change <= self.tolerance:
                return value
            before = float(value.detach())
        problem = (
            f"the last halving within max_points={self.max_points} moved log Z by {change:.2g}, more than "
            f"tolerance={self.tolerance:g}"
        )
        raise out_of_reach("RootRadial", problem, "use RootEnumeration() or RootAnnealed()")

    @torch.no_grad()
    def _radii(
        self, energy: GeneralizedRootEnergy, directions: torch.Tensor, log_weights: torch.Tensor, before: Floats
    ) -> Floats:
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
            raise out_of_reach("RootRadial", problem, "use RootAnnealed()", code="no-method")
        lower, upper = float(coarse[inside[0]]) - 0.25, float(coarse[inside[-1]]) + 0.25
        if len(before) and before[0] <= lower and upper <= before[-1] + 0.25:
            return before
        value = math.nan
        sparse = slice(None, None, max(1, len(directions) // 1000))
        for level in range(_LEVELS + 3):
            radii = np.arange(lower, upper, _STEP / 2**level)
            found = float(_nested(energy, directions[sparse], log_weights[sparse], radii))
            if abs(found - value) <= self.tolerance / 100:
                return radii
            value = found
        problem = f"the integral over the radius does not settle to {self.tolerance:g}"
        raise out_of_reach("RootRadial", problem, "use RootEnumeration() or RootAnnealed()", code="no-method")


def _radial_power(energy: GeneralizedRootEnergy) -> float:
    """Power of z in its own measure: d for x = z v, d / 2 for x = sqrt(z) v."""
    return len(energy.domain) / (2.0 if energy.family.name == "gaussian" else 1.0)


def _nested(
    energy: GeneralizedRootEnergy, directions: torch.Tensor, log_weights: torch.Tensor, radii: Floats
) -> torch.Tensor:
    """Log of the sum over directions (n, d) and over log radii on an even grid, in the graph of psi."""
    t = torch.from_numpy(radii)
    parts: list[torch.Tensor] = []
    for start in range(0, len(directions), 8192):
        part = slice(start, start + 8192)
        logs = _radial_power(energy) * t
        for ratio, eta in energy.radial_natural(directions[part]).items():
            logs = logs + eta.unsqueeze(-1) * torch.exp(float(ratio) * t)
        parts.append(torch.logsumexp(logs, -1) + log_weights[part])
    factor = math.log(float(radii[1] - radii[0])) - (math.log(2) if energy.family.name == "gaussian" else 0.0)
    return torch.logsumexp(torch.cat(parts), 0) + factor


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
