"""Dependence in a generalized root model: exact moments of two variables, and what a third one changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch

from ...errors import check_type, unexpected
from ..energy import GeneralizedRootEnergy
from ..exact.enumeration import RootEnumeration


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
    r"""Mean, variance and covariance of the two variables of a model, by :class:`RootEnumeration`.

    The covariance is the second derivative of log Z in the terms of the two variables themselves. Relative error about
    1e-10. For more variables clamp the others first: ``pair_moments(energy.condition({...})[0])``.

    Args:
        energy: a model of two variables without a batch, with a term (1, 1) of each, on counts or on positive numbers.
            (A Gaussian model has a closed form for k <= 2: ``energy.gaussian_parameters()``.)

    Raises:
        InputError: another number of variables, a batch, the Gaussian family, or a model that no law belongs to.
        InputTypeError: no generalized root model.
        IntractableError: the law reaches too far for a sum or an integral.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> structure = RootStructure.simplified(Domain([Variable(name, kind="count") for name in "ab"]), [("a", "b")])
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([0.0, 0.0, 0.0]), PoissonFamily())
        >>> found = pair_moments(energy)  # two Poisson variables with mean one
        >>> round(found.log_z, 6), found.mean.round(decimals=6).tolist(), abs(found.covariance) < 1e-9
        (2.0, [1.0, 1.0], True)
    """
    check_type(energy, GeneralizedRootEnergy, "energy")
    if len(energy.domain) != 2 or energy.batch_shape:
        received = f"{len(energy.domain)} variables and batch shape {tuple(energy.batch_shape)}"
        hint = "clamp the other variables with condition()"
        expected = "a model of two variables without a batch"
        raise unexpected("energy", expected, hint=hint, received=received, code="wrong-shape")
    if energy.family.name == "gaussian":
        raise unexpected("energy", "counts or positive numbers", received="the gaussian family", code="no-method")
    # Moments by sums, and the covariance as a second derivative of log Z.
    backend = RootEnumeration()
    energy = energy.detach().to(dtype=torch.float64, device="cpu")
    mean, variance = backend.moments(energy)
    psi = energy.psi.clone().requires_grad_()
    log_z = backend.log_partition(GeneralizedRootEnergy(energy.structure, psi, energy.family)).value
    (slope,) = torch.autograd.grad(log_z, psi, create_graph=True)
    first, second = energy.structure.slices[1, 1].start, energy.structure.slices[1, 1].stop - 1
    covariance = torch.autograd.grad(slope[first], psi)[0][second]
    return PairMoments(float(log_z.detach()), mean, variance, float(covariance))


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

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> structure = RootStructure.simplified(Domain([Variable(name, kind="count") for name in "ab"]), [("a", "b")])
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([0.0, 0.0, 0.25]), PoissonFamily())
        >>> round(log_odds_ratio(energy, ("a", "b"), {}), 6)  # 2! times the entry of the tensor
        0.5
    """
    if len(names) != 2 or names[0] == names[1]:
        raise unexpected("names", "two different variables", names, code="repeated-name")
    positions = energy.domain.indices(names)
    missing = [name for name in energy.domain.names if name not in given and name not in names]
    if missing or any(name in given for name in names):
        expected = f"the values of all variables but {names[0]} and {names[1]}, missing {missing}"
        raise unexpected("given", expected, code="missing-part")
    # Four states that differ in the two variables.
    state = torch.zeros(4, len(energy.domain), dtype=torch.float64)
    for name, value in given.items():
        state[:, energy.domain.index(name)] = float(value)
    for position, values in zip(positions, ([high, low, high, low], [high, low, low, high]), strict=True):
        state[:, position] = torch.tensor(values, dtype=torch.float64)
    scores = -energy.energy(state)
    return float(scores[0] + scores[1] - scores[2] - scores[3])
