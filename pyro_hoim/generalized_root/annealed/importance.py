"""Log Z of generalized root models of any size by annealed importance sampling, with an error bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from typing_extensions import override

from ...annealing.annealable import Run, Traits
from ...annealing.backend import AnnealedBackend, constant
from ...annealing.mode_checks import root_distance
from ...annealing.runs import drawn_seed
from ...annealing.verdict import METHOD
from ...checks import checked_sample_shape
from ...core.partition import Cost, LogPartition
from ...errors import refused
from ..energy import GeneralizedRootEnergy
from ..exact.base import RootBackend, checked_psi, element_rows, joined_states, split_moments
from ..nodes.families import NodeFamily
from ..structure import RootStructure
from ._model import AnnealedRoot

__all__ = ["RootAnnealed"]

_SAMPLE_TEMPERATURES = 100  # of the path that leads draws to the model
_DRAW = 200  # operations of one draw from a node conditional
_ADVICE = (
    "try more temperatures (num_temperatures, temperatures='adaptive'), resampling (resample_below=0.5), more chains, "
    "or an exact backend with a larger budget"
)
_TRAITS = Traits("root", _ADVICE, root_distance, conditional_error=1e-14)


@dataclass(frozen=True)
class RootAnnealed(AnnealedBackend, RootBackend):
    r"""Annealed importance sampling from the independent member: Gibbs chains led to the model, and weighted.

    .. math:: \log \hat Z = \sum_s A(\eta_s) + \log \frac1M \sum_{c=1}^M w_c, \qquad
        \log w_c = \sum_k (\beta_k - \beta_{k-1}) \, U(x_{c,k-1})

    U holds the terms of two or more variables, and :math:`\eta_s` those of one. For models whose exact constant is out
    of reach. :math:`\hat Z` has no bias, so :math:`\log \hat Z` is low on average, by about half its squared error.
    Time is ``num_chains * num_temperatures`` sweeps over d node conditionals. The weighted chains give the
    expectations of all terms (bias of order 1 / M), so that log Z is differentiable, once. Error bar, limits,
    verdict and its checks are those of :class:`~pyro_hoim.log_linear.AnnealedImportance`. States of counts bound log Z
    from below, and ascents from chain ends, equal counts of any size and the 16 best ``starts`` look for them; chains
    that go on from there show the phases, each of which stands for its own width, and further forward runs start from
    independent members fitted to them. Densities bound nothing: for reals
    "consistent" rests on forward and reverse run alone, and ``lower_bound`` is minus infinity. The reverse run starts
    from perfect samples of small models, and from longer annealed runs otherwise; then a mode that no chain found stays
    unseen, and a note says so.

    *Options.* Those of :class:`~pyro_hoim.annealing.AnnealingOptions`, with its errors, by default 256 chains, 200
    temperatures and a burn-in of 100; and ``allow_undecided``, to go on where a finite constant is not certain.

    References:
        Radford Neal, Annealed importance sampling, Statistics and Computing 11, 2001.
        Inouye, Ravikumar and Dhillon, Generalized Root Models, 2016, equations 1 and 5.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable(name, kind="count") for name in "abc"])
        >>> structure = RootStructure.simplified(domain, [("a", "b"), ("b", "c")])
        >>> energy = GeneralizedRootEnergy(structure, torch.full((5,), 0.1), PoissonFamily())
        >>> result = RootAnnealed(num_chains=64, num_temperatures=30, seed=1).log_partition(energy)
        >>> bool(result.lower < result.value < result.upper), result.verdict, result.sandwich.start
        (True, 'verified', 'exact')
    """

    num_chains: int = 256
    num_temperatures: int = 200
    burn_in: int = 100
    allow_undecided: bool = False

    @override
    def plan(self, structure: RootStructure, family: NodeFamily) -> Cost:
        steps, d = self.num_steps, len(structure.domain)
        members = sum(key[1] * (where.stop - where.start) for key, where in structure.slices.items())
        return Cost(
            cells=1,
            total_cells=structure.num_terms,
            flops=self.num_chains * steps * self.sweeps_per_step * (_DRAW * d + 2 * members),
            memory_bytes=8 * (self.num_chains * d * (structure.order + 1) + structure.num_terms),
            feasible=True,
            reason=f"{self.num_chains} chains through {steps} temperatures",
            method=METHOD,
        )

    def _models(self, energy: GeneralizedRootEnergy) -> list[AnnealedRoot]:
        """The elements of the batch, without a graph, in float64."""
        psi = checked_psi(energy.detach(), self.allow_undecided)
        return [
            AnnealedRoot(GeneralizedRootEnergy(energy.structure, row, energy.family), self, _TRAITS)
            for row in element_rows(energy, psi)
        ]

    @override
    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        """Estimated log Z in nats, value (*batch), differentiable once in psi; random by ``seed``.

        Raises:
            InputError: as of every backend; also terms of single variables that cannot be normalised alone, ``starts``
                that are no states of counts, or a conditional met that cannot or whose mode is beyond 2^53.
            IntractableError: as of every backend; also ``combine`` without perfect samples, and a second derivative.

        Warns:
            ConvergenceWarning: the verdict is "unreliable".
        """
        cost, family = self.plan_energy(energy), energy.family
        if self.starts is not None and not family.is_discrete:
            problem = "densities bound nothing, so that rows help with counts only"
            raise refused("RootAnnealed starts", problem, "leave them out")
        self.rows_within([family.largest_value] * len(energy.domain))
        models = self._models(energy)
        if not models:
            nothing = energy.psi.sum(-1)
            return LogPartition(nothing, "biased", nothing, nothing, nothing, nothing, cost, "none", coding="root")

        def slope(runs: Sequence[Run]) -> torch.Tensor:
            found = self._shaped(energy, [_expectations(run) for run in runs])
            return found * energy.structure.multiplicity.to(found)

        return self._estimated(models, energy.psi, cost, slope)

    def _shaped(self, energy: GeneralizedRootEnergy, parts: list[torch.Tensor]) -> torch.Tensor:
        """One tensor (*batch, ...) in the dtype of psi from those of all elements."""
        return torch.stack(parts).reshape(*energy.batch_shape, *parts[0].shape).to(energy.psi.device, energy.psi.dtype)

    @override
    def expectations(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        """Estimated expectations of the statistics of all terms, (*batch, num_terms), bias of order one over M.

        With a fixed seed, times the multiplicity, they are the gradient of :meth:`log_partition`, and have none.
        """
        found = self._weighted(self._models(energy))
        if not found:
            return torch.zeros_like(energy.psi)
        values = self._shaped(energy, [_expectations(run) for run in found])
        return constant(energy.psi, values) if energy.psi.requires_grad else values

    @override
    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        parts: list[torch.Tensor] = []
        for run in self._weighted(self._models(energy)):  # self-normalised
            shares, states = torch.softmax(run.log_weights[0], -1), run.ends[0]
            mean = shares @ states
            parts.append(torch.stack([mean, shares @ (states - mean).square()]))
        return split_moments(energy, parts)

    @override
    @torch.no_grad()
    def sample(
        self, energy: GeneralizedRootEnergy, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """States (*sample_shape, *batch, d), one from each of as many chains: close to the model, not exact.

        Every chain runs through 100 temperatures and then ``burn_in`` sweeps at beta 1.
        """
        sample_shape = checked_sample_shape(sample_shape, energy.batch_shape.numel() * len(energy.domain))
        draws, parts = math.prod(sample_shape), list[torch.Tensor]()
        for model in self._models(energy) if draws else []:
            chains = model.begin(draws, drawn_seed(generator))
            if not energy.structure.is_independent:
                chains.anneal(torch.linspace(0, 1, _SAMPLE_TEMPERATURES + 1, dtype=torch.float64))
                chains.sweep(self.burn_in)
            parts.append(chains.states[0])
        return joined_states(energy, sample_shape, parts)


def _expectations(run: Run) -> torch.Tensor:
    """Self-normalised means of the statistics of all terms (num_terms,)."""
    energy = cast("AnnealedRoot", run.model).energy
    return torch.softmax(run.log_weights[0], -1) @ energy.statistics(run.ends[0], validate=False)
