"""Chains that carry importance weights along a path of models, and annealed populations. Private to training."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ...models import LogLinearEnergy
from ...sampling.chains import GibbsChains
from ...sampling.schedule import GibbsSchedule
from ...structure.hypergraph import InteractionHypergraph
from ._sampled_options import SampledTraining

__all__ = [
    "Population",
    "WeightedChains",
    "disagreement",
    "effective_size",
    "is_independent",
    "normalised",
    "seed_of",
    "single_terms",
]

Floats = NDArray[np.float64]
_PIECES = 30  # parts of an annealed run between which weights are looked at
_LEAST_DISTANCE = 0.05  # total variation of one variable's law that counts as nothing
_ERRORS = 4.0  # expected distances of two samples of one law that count as agreement


def seed_of(*numbers: int) -> int:
    """A seed below 2^62 that depends on all numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 2)


def single_terms(hypergraph: InteractionHypergraph, tables: Floats) -> Floats:
    """Tables of single variables, one after the other; zeros for a variable that has none."""
    where = hypergraph.term_slices
    cards = zip(hypergraph.domain.names, hypergraph.domain.cardinalities, strict=True)
    parts = [tables[where[(name,)]] if (name,) in where else np.zeros(levels) for name, levels in cards]
    return np.concatenate([np.zeros(0), *parts])


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


@dataclass(frozen=True)
class Population:
    """Weighted states: codes (chains, d) long, log weights (chains,) up to a constant, log Z if they came with one."""

    codes: torch.Tensor
    log_weights: Floats
    log_z: float = math.nan

    @property
    def effective_size(self) -> float:
        """Number of unweighted states that the weights leave."""
        return effective_size(self.log_weights)


class WeightedChains:
    """Gibbs chains with log weights that follow changes of the model.

    Args:
        hypergraph: the collection.
        tables: first tables (num_terms,).
        settings: number of chains, engine, precision, share below which chains are resampled.
        schedule: of the sweeps.
        reference: log weights of the independent law, one variable after the other.
        seed: of chains and resampling.
        population: first states; None draws them from the reference, all with weight one.
    """

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        tables: Floats,
        settings: SampledTraining,
        schedule: GibbsSchedule,
        reference: torch.Tensor,
        seed: int,
        population: Population | None = None,
    ) -> None:
        self._hypergraph = hypergraph
        self._settings = settings
        self.chains = GibbsChains(
            self._model(tables),
            settings.num_chains if population is None else len(population.codes),
            schedule=schedule,
            init=None if population is None else population.codes,
            reference=reference,
            seed=seed,
            engine=settings.engine,
            precision=settings.precision,
        )
        count = self.chains.num_chains
        self.log_weights = np.zeros(count) if population is None else population.log_weights.copy()
        self._is_weighted = settings.chains == "weighted"
        self._random = np.random.default_rng(seed_of(seed, 1))

    def _model(self, tables: Floats) -> LogLinearEnergy:
        return LogLinearEnergy(self._hypergraph, torch.from_numpy(tables), validate=False)

    @property
    def population(self) -> Population:
        """The present states and weights."""
        return Population(self.chains.codes, self.log_weights.copy())

    @property
    def effective_size(self) -> float:
        """Effective number of chains."""
        return effective_size(self.log_weights)

    def eta(self) -> Floats:
        """Weighted frequencies of the cells of every interaction, (num_terms,)."""
        return self.chains.statistics(torch.from_numpy(normalised(self.log_weights))).numpy()

    def set_tables(self, tables: Floats, before: Floats) -> Floats:
        """New tables; growth (chains,) of the log weights since the energies ``before``. Weights do not change yet."""
        self.chains.set_model(self._model(tables))
        return before - self.chains.energy.numpy()

    def spread(self, growth: Floats) -> float:
        """Standard deviation of a growth of log weights over the weighted chains."""
        weights = normalised(self.log_weights)
        centred = growth - weights @ growth
        return math.sqrt(float(weights @ np.square(centred)))

    def grow(self, growth: Floats) -> None:
        """Take up a growth of the log weights; unweighted chains take none."""
        if self._is_weighted:
            self.log_weights += growth

    def resample(self) -> bool:
        """Systematic resampling where the effective share is too small; whether it was."""
        count = self.chains.num_chains
        if self.effective_size >= self._settings.resample_below * count:
            return False
        shares = np.cumsum(normalised(self.log_weights))
        points = (self._random.random() + np.arange(count)) / count
        picked = np.minimum(np.searchsorted(shares, points, side="right"), count - 1)
        self.chains.gather(torch.from_numpy(picked))
        self.log_weights = np.zeros(count)
        return True

    def anneal(self, num_temperatures: int) -> Population:
        """Lead the chains from the reference to the model, resampling on the way; their log Z is that of the tables.

        The chains must have been drawn from the reference.
        """
        pieces = min(_PIECES, num_temperatures)
        path = torch.linspace(0, 1, num_temperatures + 1, dtype=torch.float64)
        ends = [round(num_temperatures * k / pieces) for k in range(pieces + 1)]
        log_z = 0.0
        for first, last in itertools.pairwise(ends):
            self.log_weights += self.chains.anneal(path[first : last + 1]).numpy()
            mean = _log_mean(self.log_weights)
            if last < num_temperatures and self.resample():
                log_z += mean
        return Population(self.chains.codes, self.log_weights.copy(), log_z + _log_mean(self.log_weights))


def _log_mean(log_weights: Floats) -> float:
    top = float(log_weights.max())
    return top + math.log(float(np.exp(log_weights - top).mean()))


def disagreement(first: Population, second: Population, cardinalities: tuple[int, ...]) -> tuple[float, bool]:
    r"""Largest total variation between single-variable laws of two populations, and whether it is beyond their noise.

    Two samples of one law with effective sizes m and n have the expected distance
    :math:`\tfrac12 \sum_k \sqrt{\tfrac{2}{\pi} p_k (1 - p_k) (1/m + 1/n)}`; four times that, or 0.05 where this is
    more, counts as agreement.
    """
    shares = [normalised(p.log_weights) for p in (first, second)]
    codes = [p.codes.numpy() for p in (first, second)]
    noise = 1 / first.effective_size + 1 / second.effective_size
    largest, is_off = 0.0, False
    for v, levels in enumerate(cardinalities):
        p, q = (np.bincount(c[:, v], s, levels) for c, s in zip(codes, shares, strict=True))
        mean = np.clip((p + q) / 2, 0, 1)
        distance = 0.5 * float(np.abs(p - q).sum())
        expected = 0.5 * float(np.sqrt(2 / math.pi * mean * (1 - mean) * noise).sum())
        largest = max(largest, distance)
        is_off = is_off or distance > max(_LEAST_DISTANCE, _ERRORS * expected)
    return largest, is_off
