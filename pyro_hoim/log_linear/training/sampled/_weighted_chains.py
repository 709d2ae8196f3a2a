"""Chains that carry importance weights along a path of models, and annealed populations. Private to training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ....runs.schedule import MAX_BLOCK_STATES, GibbsSchedule
from ....structure.hypergraph import Edge, InteractionHypergraph
from ...chains.gibbs import GibbsChains
from ...energy import LogLinearEnergy
from ._start import StartLaw
from .options import SampledTraining

Floats = NDArray[np.float64]
_WIDE = 4  # one in so many chains of an annealed population comes from the wide start
_PIECES = 30  # parts of an annealed run between which weights are looked at
_LEAST_DISTANCE = 0.05  # total variation of the law of an interaction that counts as nothing
_ERRORS = 6.0  # expected distances of two samples of one law that count as agreement


def seed_of(*numbers: int) -> int:
    """A seed below 2^62 that depends on all numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 2)


def is_independent(hypergraph: InteractionHypergraph, tables: Floats) -> bool:
    """Whether all tables but those of single variables are zero."""
    return not any(len(edge) > 1 and tables[where].any() for edge, where in hypergraph.term_slices.items())


def normalised(log_weights: Floats) -> Floats:
    """Weights that sum to one (chains,)."""
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def effective_size(log_weights: Floats) -> float:
    """Effective number of weights, (sum w)^2 / sum w^2."""
    return 1 / float(np.square(normalised(log_weights)).sum())


def systematic(shares: Floats, count: int, random: np.random.Generator) -> torch.Tensor:
    """Positions (count,) of a systematic sample, of cumulative shares that end at one."""
    points = (random.random() + np.arange(count)) / count
    return torch.from_numpy(np.minimum(np.searchsorted(shares, points, side="right"), len(shares) - 1))


def drawn(law: StartLaw, count: int, seed: int) -> Population:
    """Exact draws of a law, with its constant."""
    return Population(law.states(count, np.random.default_rng(seed)), np.full(count, law.log_z))


@dataclass(frozen=True)
class Population:
    """Weighted states: codes (chains, d) long, log weights (chains,); of annealed ones whether these stayed even."""

    codes: torch.Tensor
    log_weights: Floats
    is_even: bool = True

    @property
    def effective_size(self) -> float:
        """Number of unweighted states that the weights leave."""
        return effective_size(self.log_weights)

    @property
    def log_z(self) -> float:
        """Log of the mean weight."""
        top = float(self.log_weights.max())
        return top + math.log(float(np.exp(self.log_weights - top).mean()))

    def joined(self, other: Population) -> Population:
        """States of both; where both have absolute weights, so has the union."""
        codes = torch.cat([self.codes, other.codes])
        return Population(codes, np.concatenate([self.log_weights, other.log_weights]))

    def picked(self, count: int, random: np.random.Generator) -> torch.Tensor:
        """Positions (count,) of a systematic sample in proportion to the weights."""
        return systematic(np.cumsum(normalised(self.log_weights)), count, random)

    def resampled(self, count: int, random: np.random.Generator) -> Population:
        """As many states with equal weights."""
        return Population(self.codes[self.picked(count, random)], np.full(count, self.log_z))


def schedule_of(
    hypergraph: InteractionHypergraph, settings: SampledTraining, added: Sequence[Edge] = ()
) -> GibbsSchedule:
    """What a sweep visits: single variables, or interactions whose states can be listed and whatever these leave."""
    share = settings.emphasis
    emphasis: dict[str, Any] = {} if share is None else {"emphasised": added, "emphasis": share}
    if settings.blocks == "sites":
        return GibbsSchedule("sites", **emphasis)
    domain = hypergraph.domain
    sizes = {edge: math.prod(domain[name].cardinality for name in edge) for edge in hypergraph.blocks()}
    blocks = [edge for edge, size in sizes.items() if size <= MAX_BLOCK_STATES]
    seen = {name for edge in blocks for name in edge}
    return GibbsSchedule(blocks + [(name,) for name in domain.names if name not in seen], **emphasis)


class WeightedChains:
    """Gibbs chains with log weights that follow changes of the model."""

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        tables: Floats,
        settings: SampledTraining,
        seed: int,
        population: Population,
        num_chains: int | None = None,
        added: Sequence[Edge] = (),
    ) -> None:
        self._hypergraph = hypergraph
        self._settings = settings
        self._tables = tables.copy()
        self._random = np.random.default_rng(seed_of(seed, 1))
        count = settings.num_chains if num_chains is None else num_chains
        if len(population.codes) != count:
            population = population.resampled(count, self._random)
        self.chains = GibbsChains(
            self._model(tables),
            count,
            schedule=schedule_of(hypergraph, settings, added),
            init=population.codes,
            seed=seed,
            engine=settings.engine,
            precision=settings.precision,
        )
        self.log_weights = population.log_weights.copy()
        self._is_weighted = settings.chains == "weighted"

    def _model(self, tables: Floats) -> LogLinearEnergy:
        tables_there = torch.from_numpy(tables).to(self._settings.device)
        return LogLinearEnergy(self._hypergraph, tables_there, validate=False)

    @property
    def population(self) -> Population:
        """The present states and weights."""
        return Population(self.chains.states.cpu(), self.log_weights.copy())

    @property
    def effective_size(self) -> float:
        """Effective number of chains."""
        return effective_size(self.log_weights)

    def eta(self) -> Floats:
        """Weighted frequencies of the cells of every interaction, (num_terms,)."""
        return self.chains.statistics(torch.from_numpy(normalised(self.log_weights))).numpy()

    def growth(self, change: Floats) -> Any:
        """Growth (chains,) of the log weights under a change of the tables; linear in it. Nothing changes yet."""
        return -self.chains.energy_of(self._model(change), validate=False).numpy()

    def set_tables(self, tables: Floats) -> None:
        """New tables; the log weights stay."""
        self.chains.set_model(self._model(tables), validate=False)
        self._tables = tables.copy()

    def move_to(self, tables: Floats) -> None:
        """New tables, with the log weights that belong to them."""
        self.grow(self.growth(tables - self._tables))
        self.set_tables(tables)

    def spread(self, growth: Any) -> float:
        """Standard deviation of a growth of log weights over the weighted chains."""
        weights = normalised(self.log_weights)
        centred = growth - weights @ growth
        return math.sqrt(float(weights @ np.square(centred)))

    def grow(self, growth: Any) -> None:
        """Take up a growth of the log weights; unweighted chains take none."""
        if self._is_weighted:
            self.log_weights += growth

    def resample(self) -> bool:
        """Systematic resampling where the effective share is too small; whether it was."""
        count = self.chains.num_chains
        if self.effective_size >= self._settings.resample_below * count:
            return False
        states = Population(self.chains.states[:0], self.log_weights)
        self.chains.gather(states.picked(count, self._random))
        self.log_weights = np.full(count, states.log_z)
        return True

    def anneal(self, num_temperatures: int, start: Floats) -> bool:
        """Lead the chains from other tables, which they must have been drawn from, to the present ones.

        Returns whether weights stayed so even on the way that none were resampled.
        """
        is_even = True
        pieces = min(_PIECES, num_temperatures)
        path = torch.linspace(0, 1, num_temperatures + 1, dtype=torch.float64)
        ends = [round(num_temperatures * k / pieces) for k in range(pieces + 1)]
        for first, last in itertools.pairwise(ends):
            self.log_weights += self.chains.anneal(path[first : last + 1], start=self._model(start)).cpu().numpy()
            if last < num_temperatures and self.resample():
                is_even = False
        return is_even


class ChainsOnDevice(WeightedChains):
    """The same with weights beside the chains on their device.

    A training step sends tables there, and brings eta and three numbers back.
    """

    _held: torch.Tensor

    @property
    def log_weights(self) -> Floats:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A copy (chains,) on the CPU."""
        return self._held.cpu().numpy()

    @log_weights.setter
    def log_weights(self, values: Floats) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._held = torch.from_numpy(values).to(self._settings.device, copy=True)

    def _shares(self) -> torch.Tensor:
        return torch.softmax(self._held, -1)

    @property
    @override
    def effective_size(self) -> float:
        return 1 / float(self._shares().square().sum())

    @override
    def eta(self) -> Floats:
        return self.chains.statistics(self._shares()).cpu().numpy()

    @override
    def growth(self, change: Floats) -> torch.Tensor:
        return -self.chains.energy_of(self._model(change), validate=False)

    @override
    def spread(self, growth: torch.Tensor) -> float:
        shares = self._shares()
        return float((shares @ (growth - shares @ growth).square()).sqrt())

    @override
    def grow(self, growth: torch.Tensor) -> None:
        if self._is_weighted:
            self._held = self._held + growth

    @override
    def resample(self) -> bool:
        count = self.chains.num_chains
        if self.effective_size >= self._settings.resample_below * count:
            return False
        steps = torch.arange(count, dtype=torch.float64, device=self._held.device)
        points = (self._random.random() + steps) / count
        picked = torch.searchsorted(self._shares().cumsum(-1), points, right=True)
        self.chains.gather(picked.clamp_max(count - 1))
        self._held = (self._held.logsumexp(-1) - math.log(count)).expand(count).clone()
        return True


def chains_for(settings: SampledTraining) -> type[WeightedChains]:
    """The kind of chains for the device of the settings."""
    return WeightedChains if torch.device(settings.device).type == "cpu" else ChainsOnDevice


def annealed_population(
    hypergraph: InteractionHypergraph,
    tables: Floats,
    settings: SampledTraining,
    starts: Sequence[StartLaw],
    seed: int,
    num_chains: int | None = None,
) -> Population:
    """Draws from the starts led to the model, resampled on the way; the weights are absolute.

    A quarter comes from the second start, where there is one. A start that is close to the rows gives even weights but
    may miss modes far from them; a wide one finds these. Even are the weights of the first.
    """
    count = settings.num_chains if num_chains is None else num_chains
    wide = count // _WIDE * (len(starts) - 1)
    found: list[Population] = []
    for k, (start, size) in enumerate(zip(starts, (count - wide, wide), strict=False)):
        own = seed_of(seed, k)
        first, padded = drawn(start, size, seed_of(own, 2)), start.padded(hypergraph, tables)
        chains = chains_for(settings)(start.hypergraph, padded, settings, own, first, size)
        is_even = chains.anneal(settings.refresh_temperatures, start.tables)
        found.append(replace(chains.population, is_even=is_even))
    return found[0] if len(found) == 1 else replace(found[0].joined(found[1]), is_even=found[0].is_even)


def weighted_margins(
    codes: NDArray[np.integer], weights: Floats, cards: Sequence[int], sets: Sequence[Sequence[int]]
) -> list[Floats]:
    """Weights (N,) of states, codes (d, N), summed in the cells of every set of positions; row-major, flat tables."""
    from ....compute.lanes import run_threads
    from ._kernels import add_margins

    shapes = [[cards[i] for i in members] for members in sets]
    first = np.cumsum([0, *map(math.prod, shapes)])
    ends = np.cumsum([0, *map(len, sets)])
    members = np.array([i for found in sets for i in found], dtype=np.int64)
    strides = np.array([math.prod(shape[j + 1 :]) for shape in shapes for j in range(len(shape))], dtype=np.int64)
    total = np.zeros(int(first[-1]))

    def count(begin: int, step: int) -> None:
        add_margins(codes, weights, first[:-1], ends, members, strides, begin, step, total)

    run_threads(count, len(sets))
    return np.split(total, first[1:-1]) if len(sets) else []


def disagreement(first: Population, second: Population, hypergraph: InteractionHypergraph) -> tuple[float, bool]:
    r"""Largest total variation between two populations in the law of an interaction, and whether it is beyond noise.

    Two samples of one law with effective sizes m and n have the expected distance
    :math:`\tfrac12 \sum_k \sqrt{\tfrac{2}{\pi} p_k (1 - p_k) (1/m + 1/n)}`; six times that, or 0.05 where this is
    more, counts as agreement.
    """
    cards = hypergraph.domain.cardinalities
    one, two = (
        weighted_margins(np.ascontiguousarray(p.codes.numpy().T), normalised(p.log_weights), cards, sets)
        for p, sets in ((population, hypergraph.edge_indices) for population in (first, second))
    )
    noise = 1 / first.effective_size + 1 / second.effective_size
    if not one:
        return 0.0, False
    starts = np.cumsum([0, *map(len, one[:-1])])
    p, q = np.concatenate(one), np.concatenate(two)
    mean = np.clip((p + q) / 2, 0, 1)
    distance = 0.5 * np.add.reduceat(np.abs(p - q), starts)
    expected = 0.5 * np.add.reduceat(np.sqrt(2 / math.pi * mean * (1 - mean) * noise), starts)
    is_off = distance > np.maximum(_LEAST_DISTANCE, _ERRORS * expected)
    return float(distance.max()), bool(is_off.any())
