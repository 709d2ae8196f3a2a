"""Generalized root models with a closed form: normal laws, alone or by states of counts, and variables on their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from typing_extensions import override

from ..._modes import plain_mode
from ...core.partition import Cost, LogPartition
from ...errors import check_whole, refused, size_text
from ..chains.gibbs import independent_samples
from ..energy import GeneralizedRootEnergy
from ..nodes.columns import Families, NodeFamilies
from ..structure import RootStructure
from .base import ExactRoot, checked_psi, element_rows, inner_structure, joined_states, root_result


@dataclass(frozen=True)
class GaussianClosedForm(ExactRoot):
    r"""Gaussian models with k <= 2: multivariate normal laws with precision :math:`\Lambda` and shift h.

    .. math:: \log Z = \tfrac{d}{2} \log 2\pi - \tfrac12 \log \det \Lambda + \tfrac12 h^T \Lambda^{-1} h

    Exact to rounding, in O(d^3); twice differentiable in psi; draws are perfect and independent. Nothing is undecided.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import GaussianFamily
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="real")]))
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([-0.5]), GaussianFamily())  # standard normal
        >>> round(float(GaussianClosedForm().log_partition(energy).value), 6), round(math.log(2 * math.pi) / 2, 6)
        (0.918939, 0.918939)
    """

    allow_undecided: bool = False

    @override
    def plan(self, structure: RootStructure, family: Families) -> Cost:
        d = len(structure.domain)
        families = NodeFamilies.of(family, structure.domain)
        feasible = families.is_gaussian and structure.order <= 2
        reason = f"one factorisation of a {d} x {d} matrix"
        if not feasible:
            received = f"{families.name} with k = {structure.order}"
            reason = f"GaussianClosedForm: expected the gaussian family with k <= 2, received {received}"
        return Cost(d * d, d * d, d**3, 24 * d * d, feasible, reason, "Gaussian closed form")

    def _parameters(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor, Cost]:
        """Mean and precision in float64 with their graph."""
        cost = self.plan(energy.structure, energy.families).check()
        psi = checked_psi(energy, self.allow_undecided)
        loc, precision = GeneralizedRootEnergy(energy.structure, psi, energy.families).gaussian_parameters()
        return loc, precision, cost

    @override
    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        loc, precision, cost = self._parameters(energy)
        # The completed square.
        quadratic = (loc * (precision @ loc.unsqueeze(-1)).squeeze(-1)).sum(-1)
        value = (len(energy.domain) * math.log(2 * math.pi) - torch.logdet(precision) + quadratic) / 2
        return root_result(value, energy, cost)

    @override
    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        loc, precision, _ = self._parameters(energy)
        variance = torch.linalg.inv(precision).diagonal(dim1=-2, dim2=-1)
        return loc.to(energy.psi), variance.to(energy.psi)

    @override
    def _sample(self, energy: GeneralizedRootEnergy, shape: torch.Size, random: torch.Generator | None) -> torch.Tensor:
        loc, precision, _ = self._parameters(energy)
        # Standard normal numbers through the inverse of a factor of the precision.
        noise = torch.randn((*shape, *loc.shape), dtype=torch.float64, generator=random)
        factor = torch.linalg.cholesky(precision).mT
        draws = loc + torch.linalg.solve_triangular(factor, noise.unsqueeze(-1), upper=True).squeeze(-1)
        return draws.to(energy.psi.device, energy.psi.dtype)


@dataclass(frozen=True)
class IndependentClosedForm(ExactRoot):
    r"""Models without interactions: the sum of the node log partitions, :math:`\log Z = \sum_s A(\eta_s)`.

    Exact to the error of :func:`~pyro_hoim.generalized_root.nodes.log_partition` (about 1e-10), linear in d, twice
    differentiable in psi; draws are independent, and as exact as those of the node conditionals.

    ``allow_undecided`` goes on where it is not known whether the model has a finite constant.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> structure = RootStructure.independent(Domain([Variable(name, kind="count") for name in "ab"]))
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([2.0, 3.0]).log(), PoissonFamily())
        >>> IndependentClosedForm().log_partition(energy).value, IndependentClosedForm().moments(energy)
        (tensor(5.), (tensor([2., 3.]), tensor([2., 3.])))
    """

    allow_undecided: bool = False

    @override
    def plan(self, structure: RootStructure, family: Families) -> Cost:
        d = len(structure.domain)
        reason = f"{d} node log partitions"
        if not structure.is_independent:
            reason = "IndependentClosedForm: expected no terms of two or more variables"
        return Cost(1, d, 10_000 * d, 1000 * d, structure.is_independent, reason, "independent closed form")

    @override
    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        cost = self.plan(energy.structure, energy.families).check()
        natural = energy.structure.single_natural(checked_psi(energy, self.allow_undecided))
        return root_result(energy.families.log_partition(natural).sum(-1), energy, cost)

    @override
    @torch.no_grad()
    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        self.plan(energy.structure, energy.families).check()
        psi = checked_psi(energy, self.allow_undecided)
        mean, variance = energy.families.value_moments(energy.structure.single_natural(psi))
        return mean.to(energy.psi), variance.to(energy.psi)

    @override
    def _sample(self, energy: GeneralizedRootEnergy, shape: torch.Size, random: torch.Generator | None) -> torch.Tensor:
        self.plan(energy.structure, energy.families).check()
        psi = checked_psi(energy, self.allow_undecided)
        models = [GeneralizedRootEnergy(energy.structure, row, energy.families) for row in element_rows(energy, psi)]
        draws = math.prod(shape) if len(energy.domain) else 0
        parts = [independent_samples(model, draws, generator=random) for model in models if draws]
        return joined_states(energy, shape, parts)


@dataclass(frozen=True)
class ConditionalGaussianClosedForm(ExactRoot):
    r"""Bounded counts beside Gaussian variables: a normal law for every joint state of the counts.

    .. math:: \log q(x, y) = c(x) + h(x) \cdot y - \tfrac12 y^T \Lambda y, \qquad
        Z = \frac{(2 \pi)^{m / 2}}{\sqrt{\det \Lambda}} \sum_x \exp\bigl(c(x) + \tfrac12 h(x)^T \Lambda^{-1} h(x)\bigr)

    with counts x and m Gaussian variables y: the homogeneous conditional Gaussian law of graphical models. Terms that
    hold a Gaussian variable have roots 1 and 2; those of counts alone are free. Exact to rounding, in
    O(N (m^2 + terms)) for N states of the counts; twice differentiable in psi; draws are perfect and independent.

    Args:
        max_states: most joint states of the counts.
        allow_undecided: go on where it is not known whether the model has a finite constant.

    References:
        Steffen Lauritzen, Graphical Models, 1996, section 6.1.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import GaussianFamily, TruncatedPoissonFamily
        >>> domain = Domain([Variable("ill", kind="count"), Variable("weight", kind="real")])
        >>> structure = RootStructure.mixed(domain, [("ill", "weight")])
        >>> families = {"ill": TruncatedPoissonFamily(1), "weight": GaussianFamily()}
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([0.0, -0.5, 0.0, 0.5]), families)
        >>> mean, _ = ConditionalGaussianClosedForm().moments(energy)  # weight has mean 1 where ill is 1, else 0
        >>> mean
        tensor([0.6225, 0.6225])
    """

    max_states: int = 2**16
    allow_undecided: bool = False

    def __post_init__(self) -> None:
        check_whole(self.max_states, "ConditionalGaussianClosedForm max_states")

    @override
    @plain_mode()  # positions are numbers, whatever transforms the entries
    def plan(self, structure: RootStructure, family: Families) -> Cost:
        families = NodeFamilies.of(family, structure.domain)
        is_real = np.array([one.name == "gaussian" for one in families], dtype=bool)
        counts = families.at(np.flatnonzero(~is_real).tolist())
        states = math.prod(map(counts.size_of, counts.units)) if counts.is_bounded else 0
        largest = max((key[0] for key in structure.keys if is_real[structure.rows(key)].any()), default=0)
        # What is refused, in one line.
        size, problem = int(is_real.sum()), ""
        if not counts.is_bounded or size in (0, len(families)):
            problem = f"expected bounded counts and Gaussian variables, received {families.name}"
        elif largest > 2:
            problem = f"expected roots up to 2 in terms of Gaussian variables, received {largest}"
        elif states > self.max_states:
            problem = f"{size_text(states, 'states')} of counts, above max_states={self.max_states}"
        cells = states * (len(families) + structure.num_terms)
        reason = f"{size_text(states, 'states')} of counts, each a normal law of {size}"
        reason, feasible = (f"ConditionalGaussianClosedForm: {problem}", False) if problem else (reason, True)
        flops = cells + states * size**2 + size**3
        return Cost(states, cells, flops, 8 * 4 * cells, feasible, reason, "conditional Gaussian closed form")

    def _parts(self, energy: GeneralizedRootEnergy) -> _ConditionalGaussian:
        """What the law is made of, float64 with its graph."""
        cost = self.plan(energy.structure, energy.families).check()
        psi = checked_psi(energy, self.allow_undecided)
        model = GeneralizedRootEnergy(energy.structure, psi, energy.families, validate=False)
        reals = [s for s, family in enumerate(energy.families) if family.name == "gaussian"]
        counts = [s for s in range(len(energy.domain)) if s not in reals]
        # All states of the counts (N, d), with the reals at 0, where their roots are 0.
        listed = energy.families.states_of(counts)
        states = torch.zeros(len(listed), len(energy.domain), dtype=torch.float64)
        states[:, counts] = listed
        spread = states.reshape(len(states), *[1] * psi[..., 0].dim(), -1)
        natural = model.node_natural(spread, validate=False)[..., reals, :]
        natural = torch.nn.functional.pad(natural, (0, max(0, 2 - natural.shape[-1])))
        # The precision is that of the Gaussian variables alone, at any state of the counts.
        inner, places = inner_structure(model.structure, tuple(model.domain.names[s] for s in reals))
        among = GeneralizedRootEnergy(inner, psi[..., places], model.families.at(reals), validate=False)
        precision, _ = among.gaussian_precision()
        factor, failed = torch.linalg.cholesky_ex(precision)
        if bool(failed.any()):
            problem = "the precision of the Gaussian variables is not positive definite"
            raise refused("psi", problem, code="not-normalizable")
        # Means given the states (N, *batch, m), and log masses (N, *batch).
        shift = natural[..., 1]
        means = torch.cholesky_solve(shift.unsqueeze(-1), factor).squeeze(-1)
        half_log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = len(reals) / 2 * math.log(2 * math.pi) - half_log_det
        masses = -model.energy(spread, validate=False) + (shift * means).sum(-1) / 2 + constant
        return _ConditionalGaussian(states, masses, means, factor, reals, cost)

    @override
    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        parts = self._parts(energy)
        return root_result(parts.masses.logsumexp(0), energy, parts.cost)

    @override
    @torch.no_grad()
    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        parts = self._parts(energy)
        # Values of counts, and means of reals, by state (N, *batch, d).
        values = parts.values()
        probs = parts.masses.softmax(0).unsqueeze(-1)
        mean = (probs * values).sum(0)
        variance = (probs * (values - mean).square()).sum(0)
        variance[..., parts.reals] += torch.cholesky_inverse(parts.factor).diagonal(dim1=-2, dim2=-1)
        return mean.to(energy.psi), variance.to(energy.psi)

    @override
    def _sample(self, energy: GeneralizedRootEnergy, shape: torch.Size, random: torch.Generator | None) -> torch.Tensor:
        parts = self._parts(energy)
        # A state by inversion, then normal numbers about its means.
        weights = parts.masses.movedim(0, -1).softmax(-1).cumsum(-1)
        uniform = torch.rand((*shape, *energy.batch_shape), dtype=torch.float64, generator=random)
        target = (uniform * weights[..., -1]).unsqueeze(-1)
        index = torch.searchsorted(weights.expand(*target.shape[:-1], -1).contiguous(), target, right=True)
        index = index.clamp_(max=weights.shape[-1] - 1).unsqueeze(0).expand(1, *target.shape[:-1], len(energy.domain))
        values = parts.values().reshape(-1, *[1] * len(shape), *energy.batch_shape, len(energy.domain))
        draws = values.expand(-1, *target.shape[:-1], -1).gather(0, index).squeeze(0)
        noise = torch.randn((*draws.shape[:-1], len(parts.reals)), dtype=torch.float64, generator=random)
        draws[..., parts.reals] += torch.linalg.solve_triangular(
            parts.factor.mT, noise.unsqueeze(-1), upper=True
        ).squeeze(-1)
        return draws.to(energy.psi.device, energy.psi.dtype)


class _ConditionalGaussian(NamedTuple):
    """States of counts (N, d), log masses (N, *batch), means (N, *batch, m), Cholesky factor, and places of reals."""

    states: torch.Tensor
    masses: torch.Tensor
    means: torch.Tensor
    factor: torch.Tensor
    reals: list[int]
    cost: Cost

    def values(self) -> torch.Tensor:
        """Counts, and means of the reals, by state (N, *batch, d)."""
        states = self.states.reshape(len(self.states), *[1] * (self.masses.dim() - 1), -1)
        values = states.expand(*self.masses.shape, -1).clone()
        values[..., self.reals] = self.means
        return values
