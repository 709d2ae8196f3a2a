"""Log Z of generalized root models of any size by annealed importance sampling, with an error bar."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ..annealing.backend import METHOD, AnnealedBackend, constant
from ..annealing.mode_checks import ModeRuns, root_distance
from ..annealing.runs import AnnealingOptions, Run, Traits, derived, drawn_seed
from ..checks import checked_sample_shape
from ..core.partition import Cost, LogPartition, state_text
from ..core.words import in_python
from ..errors import IntractableError, refused
from .chains.draws import draw_independent, independent_log_partition
from .chains.gibbs import RootChains
from .energy import GeneralizedRootEnergy
from .exact.base import RootBackend, checked_psi, element_rows, joined_states, split_moments
from .exact.closed_form import ConditionalGaussianClosedForm, GaussianClosedForm
from .exact.enumeration import RootEnumeration
from .nodes.columns import Families
from .structure import RootStructure

# Generalized root models as annealed runs see them, one at a time.

_PERFECT_CELLS = 2**18  # of a table from which perfect samples are drawn
_PERFECT_STATES = 2**12  # of counts, for the same
_ENDS = 16  # chain ends that ascents begin with, and as many rows
_LARGEST = 2**14  # count that all variables start from together
_ROUNDS = 6  # of an ascent
_NEAR = 3  # counts up and down that a move looks at


class RootAnnealer:
    r"""Chains of one model, from the independent member on, as a batch of one.

    The path of unnormalised laws is :math:`q_0(x) \exp(\beta U(x))` with U the terms of two or more variables. With
    other natural parameters ``single`` (d, k) for the independent member, these turn into the model's along the path.
    """

    def __init__(
        self, energy: GeneralizedRootEnergy, num_chains: int, seed: int, single: torch.Tensor | None = None
    ) -> None:
        # Chains start from the independent member, the model's or another.
        random = torch.Generator().manual_seed(seed)
        start = None
        if single is not None:
            single = single.detach().cpu().double()
            start = draw_independent(energy.families, single.expand(num_chains, -1, -1), random)
        self._chains = RootChains(energy, num_chains, init=start, seed=random, check=False)
        self._single, self._own = single, energy.structure.single_natural(energy.psi.detach().cpu().double())

    @property
    def states(self) -> torch.Tensor:
        return self._chains.states[None]

    @property
    def log_q(self) -> torch.Tensor:
        return -self._chains.energy.energy(self._chains.states, validate=False)[None]

    @property
    def slope(self) -> torch.Tensor:
        return self._chains.interaction_score()[None]

    def sweep(self, num_sweeps: int) -> None:
        self._chains.sweep(num_sweeps)

    def anneal(
        self, betas: torch.Tensor | Sequence[float], sweeps: int = 1, *, reverse_order: bool = False
    ) -> torch.Tensor:
        total = torch.zeros(self._chains.num_chains, dtype=torch.float64)
        families, change = self._chains.energy.families, None if self._single is None else self._own - self._single
        for before, beta in itertools.pairwise(torch.as_tensor(betas, dtype=torch.float64).tolist()):
            score = self._chains.interaction_score()
            if change is not None:  # terms of single variables change with beta, too
                states = self._chains.states.cpu().double()
                parts = (families.root(states, j + 1) @ change[:, j] for j in range(change.shape[1]))
                score = score + sum(parts, torch.tensor(0.0))
            total += (beta - before) * score
            if self._single is not None:
                self._chains.set_single_terms(torch.lerp(self._single, self._own, beta))
            self._chains.sweep(sweeps, beta, reverse_order=reverse_order)
        return total[None]

    def gather(self, index: torch.Tensor) -> None:
        self._chains.set_states(self._chains.states[index[0]])

    def set_states(self, states: torch.Tensor) -> None:
        self._chains.set_states(states[0])


@dataclass(frozen=True)
class IndependentLaws:
    """Members of the family of a model without interactions, natural parameters (J, d, k)."""

    energy: GeneralizedRootEnergy
    natural: torch.Tensor

    def log_prob(self, states: NDArray[np.generic]) -> NDArray[np.float64]:
        """Log probabilities (J, 1, n) of states (1, n, d), or (J, 1, n, d) under their own laws."""
        families, order, parts = self.energy.families, self.energy.order, list[torch.Tensor]()
        for k, natural in enumerate(self.natural):
            counts = torch.from_numpy(states[0] if states.ndim == 3 else states[k, 0])
            terms = (families.root(counts, j + 1) * natural[:, j] for j in range(order))
            parts.append((sum(terms, families.log_base(counts)) - families.log_partition(natural)).sum(-1))
        return torch.stack(parts)[:, None].numpy()


@dataclass(frozen=True)
class AnnealedRoot:
    """One model without a graph, in float64."""

    energy: GeneralizedRootEnergy
    options: AnnealingOptions
    traits: Traits

    @property
    def log_z0(self) -> torch.Tensor:
        return independent_log_partition(self.energy).double().reshape(1)

    def begin(self, num_chains: int, seed: int) -> RootAnnealer:
        return RootAnnealer(self.energy, num_chains, seed)

    def perfect_states(self, seed: int) -> torch.Tensor | None:
        # A closed form, or a table that is small enough.
        energy, shape = self.energy, (self.options.num_chains,)
        random = torch.Generator().manual_seed(seed)
        states = ConditionalGaussianClosedForm(max_states=_PERFECT_STATES, allow_undecided=True)
        for closed in (GaussianClosedForm(allow_undecided=True), states):
            if closed.plan(energy.structure, energy.families).feasible:
                return closed.sample(energy, shape, random)[None]
        listed = RootEnumeration(max_cells=_PERFECT_CELLS, allow_undecided=True)
        if energy.families.is_discrete and listed.plan(energy.structure, energy.families).feasible:
            try:
                return listed.sample(energy, shape, random)[None]
            except IntractableError:  # wide windows
                return None
        return None

    def ascend(self, run: Run) -> tuple[torch.Tensor, torch.Tensor] | None:
        if not self.energy.families.is_discrete:
            return None
        # Starts: equal counts on a geometric grid, and the best of chain ends and of the rows, all of which are among
        # the states.
        energy, families, ends = self.energy, self.energy.families, run.ends[0]
        rows = self.options.rows_within(list(families.largest_values))
        tops = torch.tensor(families.largest_values, dtype=torch.float64)
        largest = min(max(families.largest_values, default=0.0), float(_LARGEST))
        levels = torch.tensor([0.0, *(2.0**k for k in range(15) if 2.0**k <= largest)], dtype=torch.float64)
        seen = ends[:0] if rows is None else rows.double()
        best, better = (energy.energy(part, validate=False).argsort()[:_ENDS] for part in (ends, seen))
        states = torch.cat([ends[best], torch.minimum(levels[:, None], tops), seen[better]])
        for places in families.blocks:  # where counts are alike, the first level of every category is set
            first = torch.eye(len(places), dtype=torch.float64)[0]
            states[len(best) : len(best) + len(levels), places.tolist()] = first
        grid = torch.unique(torch.cat([levels, (1.5 * levels).floor()]))
        # One variable at a time to the best of near values and, every other round, of a grid of all sizes.
        for round_number in range(_ROUNDS):
            before = states.clone()
            for unit in families.units:
                s = int(unit[0])
                if families.is_category(unit):  # the best level of a category
                    scores = energy.node_natural(states, validate=False)[:, unit.tolist()].sum(-1)
                    states[:, unit.tolist()] = torch.nn.functional.one_hot(scores.argmax(-1), len(unit)).double()
                    continue
                natural = energy.node_natural(states, validate=False)[:, s]
                steps = torch.arange(-_NEAR, _NEAR + 1, dtype=torch.float64)
                tried = states[:, s, None] + steps
                if round_number % 2 == 0:
                    tried = torch.cat([tried, grid.expand(len(states), -1)], 1)
                tried = tried.clamp(0, families.largest_values[s])
                score = families[s].log_base(tried)
                for j in range(1, energy.order + 1):
                    score = score + natural[:, None, j - 1] * families[s].root(tried, j)
                states[:, s] = tried.gather(1, score.argmax(1, keepdim=True))[:, 0]
            if torch.equal(before, states):
                break
        states = torch.cat([states, seen])
        return states[None], -energy.energy(states, validate=False)[None]

    def chains_at(self, run: Run, starts: NDArray[np.generic], stream: int) -> RootAnnealer:
        chains = self.begin(starts.shape[1], derived(run.seed, 40 + stream))
        chains.set_states(torch.from_numpy(starts))
        return chains

    def fitted(self, states: NDArray[np.generic]) -> IndependentLaws:
        natural = (self.energy.node_natural(torch.from_numpy(part[0]), validate=False).mean(0) for part in states)
        return IndependentLaws(self.energy, torch.stack(list(natural)))

    def mode_runs(self, run: Run, starts: NDArray[np.generic]) -> ModeRuns:
        parts = [self._run_from(run, torch.from_numpy(start), k) for k, start in enumerate(starts)]
        return ModeRuns(*(np.stack([part.numpy() for part in column]) for column in zip(*parts, strict=True)))

    def _run_from(self, run: Run, starts: torch.Tensor, number: int) -> tuple[torch.Tensor, ...]:
        """The fields of :class:`ModeRuns` for one phase."""
        # Burn in at the phase, then anneal from the independent member that is fitted to it.
        energy, count = self.energy, starts.shape[1]
        chains = self.begin(count, derived(run.seed, 20 + 2 * number))
        chains.set_states(starts)
        chains.sweep(self.options.burn_in)
        natural = energy.node_natural(chains.states[0], validate=False).mean(0)
        log_z0 = energy.families.log_partition(natural).sum()
        fitted = RootAnnealer(energy, count, derived(run.seed, 21 + 2 * number), natural)
        log_weights = fitted.anneal(run.betas, self.options.sweeps_per_step) + log_z0
        return log_weights, fitted.states, fitted.log_q

    def describe(self, state: NDArray[np.generic]) -> str:
        return state_text(self.energy.domain.names, state.tolist()) if len(state) else ""


_SAMPLE_TEMPERATURES = 100  # of the path that leads draws to the model
_DRAW = 200  # operations of one draw from a node conditional


def _traits() -> Traits:
    """What estimates of root models need, with the advice of notes."""
    words = in_python(
        "try more temperatures (num_temperatures, temperatures='adaptive'), resampling (resample_below=0.5), more "
        "chains, or an exact backend with a larger budget",
        "try more temperatures or chains, or an exact method with a larger budget",
    )
    return Traits("root", words, root_distance, conditional_error=1e-14)


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
    def plan(self, structure: RootStructure, family: Families) -> Cost:
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
            AnnealedRoot(GeneralizedRootEnergy(energy.structure, row, energy.families), self, _traits())
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
        # Options that fit the kind of values.
        cost, families = self.plan_energy(energy), energy.families
        if self.starts is not None and not families.is_discrete:
            problem = "densities bound nothing, so that rows help with counts only"
            raise refused("RootAnnealed starts", problem, "leave them out")
        self.rows_within(list(families.largest_values))
        # One estimate for every element of the batch.
        models = self._models(energy)
        if not models:
            nothing = energy.psi.sum(-1)
            return LogPartition(nothing, "biased", nothing, nothing, nothing, nothing, cost, "none", coding="root")

        def slope(runs: Sequence[Run]) -> torch.Tensor:
            values = self._shaped(energy, [_expectations(run) for run in runs])
            return values * energy.structure.multiplicity.to(values)

        return self._estimated(models, energy.psi, cost, slope)

    def _shaped(self, energy: GeneralizedRootEnergy, parts: list[torch.Tensor]) -> torch.Tensor:
        """One tensor (*batch, ...) in the dtype of psi from those of all elements."""
        return torch.stack(parts).reshape(*energy.batch_shape, *parts[0].shape).to(energy.psi.device, energy.psi.dtype)

    @override
    def expectations(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        """Estimated expectations of the statistics of all terms, (*batch, num_terms), bias of order one over M.

        With a fixed seed, times the multiplicity, they are the gradient of :meth:`log_partition`, and have none.
        """
        runs = self._weighted(self._models(energy))
        if not runs:
            return torch.zeros_like(energy.psi)
        values = self._shaped(energy, [_expectations(run) for run in runs])
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
        # A chain for every draw, led through all temperatures.
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
