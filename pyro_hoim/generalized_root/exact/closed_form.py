"""Generalized root models with a closed form: the multivariate normal law, and variables that do not interact."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from typing_extensions import override

from ...core.partition import Cost, LogPartition
from ..chains.gibbs import independent_samples
from ..energy import GeneralizedRootEnergy
from ..nodes.columns import Families, NodeFamilies
from ..structure import RootStructure
from .base import ExactRoot, checked_psi, element_rows, joined_states, root_result

__all__ = ["GaussianClosedForm", "IndependentClosedForm"]


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
