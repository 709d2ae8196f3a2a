"""Log Z of generalized root models of any size by annealed importance sampling, with an error bar."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from ...annealing.autograd import constant, log_z_with_eta
from ...annealing.path import checked_path
from ...annealing.start_rows import checked_rows
from ...annealing.verdict import estimate_of
from ...annealing.weights import MIN_CHAINS
from ...checks import checked_sample_shape
from ...core.partition import Cost, LogPartition
from ...errors import ConvergenceWarning, check_choice, conflict, is_whole, out_of_range, unexpected
from ..energy import GeneralizedRootEnergy
from ..exact.base import checked_psi
from ..nodes.families import NodeFamily
from ..structure import RootStructure
from . import _runs as runs
from ._result import annealing_cost, judged
from ._search import rows_of

__all__ = ["RootAnnealed"]

_SAMPLE_TEMPERATURES = 100  # of the path that leads draws to the model


@dataclass(frozen=True)
class RootAnnealed:
    r"""Annealed importance sampling from the independent member: Gibbs chains led to the model, and weighted.

    .. math:: \log \hat Z = \sum_s A(\eta_s) + \log \frac1M \sum_{c=1}^M w_c, \qquad
        \log w_c = \sum_k (\beta_k - \beta_{k-1}) \, U(x_{c,k-1})

    U holds the terms of two or more variables, and :math:`\eta_s` those of one. For models whose exact constant is out
    of reach. :math:`\hat Z` has no bias, so :math:`\log \hat Z` is low on average, by about half its squared error.
    Time is ``num_chains * num_temperatures`` sweeps over d node conditionals. The weighted chains give the
    expectations of all terms (bias of order 1 / M), so that log Z is differentiable, once. Error bar, limits,
    verdict and its checks are those of :class:`~pyro_hoim.log_linear.AnnealedImportance`. States of counts bound log Z
    from below, and ascents from chain ends and from equal counts of any size look for them; further forward runs start
    from independent members fitted to chains at the modes found. Densities bound nothing: for real variables there is
    no such search, "consistent" rests on forward and reverse run alone, and ``lower_bound`` is minus infinity. The
    reverse run starts from perfect samples of small models, and from longer annealed runs otherwise; then a mode that
    no chain found stays unseen, and a note says so.

    Args:
        num_chains: independent chains, 16 or more for an error bar.
        num_temperatures: steps of the path, equally spaced in beta, where ``temperatures`` is None.
        temperatures: inverse temperatures that rise from 0 to 1, or ``"adaptive"``: a pilot run with random numbers
            of its own finds steps of equal difficulty.
        conditional_ess: effective share of the chains that an adaptive step must leave.
        sweeps_per_step: sweeps at every temperature.
        resample_below: resample islands of chains whose effective share falls below it; None never resamples.
        islands: independent groups of chains when resampling.
        reverse: make the reverse run; ``"auto"`` does, except where a gradient is asked for.
        combine: report Bennett's acceptance ratio of both runs instead of the forward estimate; needs perfect samples.
        level: of the one-sided limits.
        seed: None draws a fresh one from PyTorch's global generator in every call. A number fixes all randomness.
        starts: states of counts, such as rows of data, that count as met, as of ``AnnealedImportance``; ascents start
            from the 16 of largest log q.
        burn_in: sweeps at beta 1 before a state counts as a draw.
        progress: show a bar.
        allow_undecided: go on where it is not known whether the model has a finite constant.

    Shape:
        starts (rows, d).

    Raises:
        InputError: an option outside its range, or a missing cell in ``starts``.
        InputTypeError: ``starts`` that are no numbers.

    References:
        Radford Neal, Annealed importance sampling, Statistics and Computing 11, 2001.
        David I. Inouye, Pradeep Ravikumar and Inderjit S. Dhillon, Generalized Root Models, 2016, equations 1 and 5.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> from pyro_hoim.schema import Domain, Variable
        >>> domain = Domain([Variable(name, kind="count") for name in "abc"])
        >>> structure = RootStructure.simplified(domain, [("a", "b"), ("b", "c")])
        >>> energy = GeneralizedRootEnergy(structure, torch.full((5,), 0.1), PoissonFamily())
        >>> result = RootAnnealed(num_chains=64, num_temperatures=30, seed=1).log_partition(energy)
        >>> bool(result.lower < result.value < result.upper), result.verdict, result.sandwich.start
        (True, 'verified', 'exact')
    """

    num_chains: int = 256
    num_temperatures: int = 200
    temperatures: Sequence[float] | Literal["adaptive"] | None = None
    conditional_ess: float = 0.999
    sweeps_per_step: int = 1
    resample_below: float | None = None
    islands: int = 32
    reverse: bool | Literal["auto"] = "auto"
    combine: bool = False
    level: float = 0.99
    seed: int | None = None
    starts: torch.Tensor | Sequence[Sequence[float]] | None = field(default=None, repr=False)
    burn_in: int = 100
    progress: bool = False
    allow_undecided: bool = False

    def __post_init__(self) -> None:
        for name in ("num_chains", "num_temperatures", "sweeps_per_step", "islands"):
            _check_whole(getattr(self, name), name, 1)
        _check_whole(self.burn_in, "burn_in", 0)
        if self.seed is not None:
            _check_whole(self.seed, "seed", 0)
            if self.seed >= 2**62:
                raise out_of_range("RootAnnealed seed", "a number below 2^62", received=self.seed)
        for name in ("conditional_ess", "level"):
            if not _is_share(getattr(self, name)) or getattr(self, name) == 1:
                raise out_of_range(f"RootAnnealed {name}", "a share between 0 and 1", getattr(self, name))
        if isinstance(self.temperatures, str):
            if self.temperatures != "adaptive":
                expected = "'adaptive', numbers or None"
                raise unexpected("RootAnnealed temperatures", expected, self.temperatures, code="unknown-choice")
        elif self.temperatures is not None:
            object.__setattr__(self, "temperatures", checked_path(self.temperatures))
        check_choice(self.reverse, (True, False, "auto"), "RootAnnealed reverse")
        if self.resample_below is not None:
            if not _is_share(self.resample_below):
                raise out_of_range("RootAnnealed resample_below", "a share within (0, 1] or None", self.resample_below)
            if self.islands < MIN_CHAINS or self.num_chains % self.islands:
                expected = f"at least {MIN_CHAINS} that divide num_chains={self.num_chains}"
                raise out_of_range("RootAnnealed islands", expected, received=self.islands)
        if self.starts is not None:
            object.__setattr__(self, "starts", checked_rows(self.starts, "RootAnnealed"))
        if self.combine and (self.reverse is False or self.resample_below is not None):
            raise conflict("RootAnnealed combine", "needs the reverse run, and no resampling")

    @property
    def is_exact(self) -> bool:
        """Always false: results are random estimates."""
        return False

    def plan(self, structure: RootStructure, family: NodeFamily) -> Cost:  # noqa: ARG002
        """Cost of a forward run; an adaptive path counts as 1,000 steps."""
        return annealing_cost(self, structure)

    def plan_energy(self, energy: GeneralizedRootEnergy) -> Cost:
        """As :meth:`plan`."""
        return annealing_cost(self, energy.structure)

    def _elements(self, energy: GeneralizedRootEnergy) -> list[GeneralizedRootEnergy]:
        """The elements of the batch, without a graph, in float64."""
        psi = checked_psi(energy.detach(), self.allow_undecided)
        rows = psi.reshape(math.prod(energy.batch_shape), energy.structure.num_terms)
        return [GeneralizedRootEnergy(energy.structure, row, energy.family) for row in rows]

    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        """Estimated log Z in nats, value (*batch), differentiable once in psi.

        Raises:
            InputError: the model has no finite constant (the direction is told), psi is not finite, a torch.func
                transformation is at work, the terms of single variables alone cannot be normalised, so that there is
                nothing to start from, ``starts`` are no states of counts, or a conditional that cannot or whose mode is
                beyond 2^53 is met on the way.
            IntractableError: whether the model has a finite constant is not known; ``combine`` without perfect
                samples; a second derivative.

        Warns:
            ConvergenceWarning: the verdict is "unreliable".

        Randomness:
            ``seed``, or PyTorch's global generator when it is None.
        """
        rows_of(self, energy)
        elements = self._elements(energy)
        if not elements:
            nothing = energy.psi.sum(-1)
            return LogPartition(
                nothing, "biased", nothing, nothing, nothing, nothing, self.plan_energy(energy), "none", coding="root"
            )
        differentiable = torch.is_grad_enabled() and energy.psi.requires_grad
        found = runs.forward(self, elements)
        slopes = self._shaped(energy, [run.expectations() for run in found]) if differentiable else None
        wanted = self.combine or (not differentiable if self.reverse == "auto" else self.reverse)
        result = judged(self, energy, found, [runs.reverse(self, run) for run in found] if wanted else None)
        if slopes is not None:
            multiplicity = energy.structure.multiplicity.to(slopes)
            result = replace(result, value=log_z_with_eta(energy.psi, result.value, slopes * multiplicity))
        if result.verdict == "unreliable":
            _warn()
        return result

    def _shaped(self, energy: GeneralizedRootEnergy, parts: list[torch.Tensor]) -> torch.Tensor:
        """One tensor (*batch, ...) in the dtype of psi from those of all elements."""
        return torch.stack(parts).reshape(*energy.batch_shape, *parts[0].shape).to(energy.psi.device, energy.psi.dtype)

    def _weighted(self, energy: GeneralizedRootEnergy) -> list[runs.AnnealedRun]:
        """Forward runs, with a warning where their weights are degenerate."""
        found = runs.forward(self, self._elements(energy))
        if not all(bool(estimate_of(self, run.log_weights.numpy()[None]).is_reliable.all()) for run in found):
            _warn(4)
        return found

    def expectations(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        """Estimated expectations of the statistics of all terms, (*batch, num_terms), bias of order one over M.

        With a fixed seed, times the multiplicity, this is what autograd gives for :meth:`log_partition`. It has no
        gradient itself.

        Raises:
            InputError, IntractableError: as :meth:`log_partition`.

        Warns:
            ConvergenceWarning: the weights are degenerate.
        """
        found = self._weighted(energy)
        if not found:
            return torch.zeros_like(energy.psi)
        values = self._shaped(energy, [run.expectations() for run in found])
        return constant(energy.psi, values) if energy.psi.requires_grad else values

    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        """Estimated mean and variance of every variable, both (*batch, d); no gradient.

        Raises:
            InputError, IntractableError: as :meth:`log_partition`.

        Warns:
            ConvergenceWarning: the weights are degenerate.
        """
        found = self._weighted(energy)
        if not found:
            nothing = energy.psi.new_zeros((*energy.batch_shape, len(energy.domain)))
            return nothing, nothing
        both = self._shaped(energy, [run.moments() for run in found])
        return both[..., 0, :], both[..., 1, :]

    @torch.no_grad()
    def sample(
        self, energy: GeneralizedRootEnergy, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """States (*sample_shape, *batch, d), one from each of as many chains: close to the model, not exact.

        Every chain runs through 100 temperatures and then ``burn_in`` sweeps at beta 1.

        Raises:
            InputError, IntractableError: as :meth:`log_partition`.

        Randomness:
            One seed per element of the batch from ``generator`` or, if it is None, PyTorch's global generator.
        """
        sample_shape = checked_sample_shape(sample_shape)
        draws, parts = math.prod(sample_shape), [torch.zeros(0)][:0]
        for element in self._elements(energy) if draws else []:
            annealer = runs.Annealer(element, draws, runs.drawn_seed(generator))
            if not energy.structure.is_independent:
                annealer.anneal(torch.linspace(0, 1, _SAMPLE_TEMPERATURES + 1, dtype=torch.float64))
                annealer.chains.sweep(self.burn_in)
            parts.append(annealer.chains.states)
        shape = (*sample_shape, *energy.batch_shape, len(energy.domain))
        states = torch.stack(parts, 1) if parts else torch.zeros(shape)
        return states.reshape(shape).to(energy.psi.device, energy.psi.dtype)


def _is_share(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) <= 1


def _check_whole(value: object, name: str, least: int) -> None:
    if not is_whole(value) or value < least:
        raise out_of_range(f"RootAnnealed {name}", f"a whole number of at least {least}", value)


def _warn(stacklevel: int = 3) -> None:
    warnings.warn(
        "RootAnnealed: the estimate is unreliable (see notes of log_partition); use more temperatures or resampling, "
        "or an exact backend with a larger budget",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )
