"""Chains that carry importance weights along a path of models, and annealed populations. Private to training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from ....data.bits import LevelBits, laid_out
from ....data.observations import Observations
from ....runs.schedule import MAX_BLOCK_STATES, GibbsSchedule
from ....structure.hypergraph import Edge, InteractionHypergraph
from ...chains.gibbs import GibbsChains
from ...coding import parametrization
from ...energy import LogLinearEnergy
from ...fitting.design import cell_numbers
from ..table_trainer import RowMargins, restructured_tables
from .options import SampledTraining

# Laws with known constants that sampled training and its annealed runs start from.

Floats = NDArray[np.float64]
_PRIOR = 0.5  # counts per level in a network
_MAX_PARENTS = 3
_PROMISING = 128  # variables that the first pass leaves for the next parents
_MAX_FAMILY = 4096  # cells of a variable and its parents
_LEAST_GAIN = 1.0  # nats per level, over all rows, that a parent must bring, beside the log of how many might do


class _Draw(NamedTuple):
    """A variable, those that it is drawn given, and log weights (states of these, levels)."""

    variable: int
    parents: tuple[int, ...]
    log_weights: Floats


class StartLaw(NamedTuple):
    """A law within a collection whose constant is known and from which states are drawn exactly."""

    hypergraph: InteractionHypergraph
    tables: Floats
    log_z: float
    draws: tuple[_Draw, ...]

    def states(self, count: int, random: np.random.Generator) -> torch.Tensor:
        """Independent states, long (count, d)."""
        codes = np.zeros((count, len(self.draws)), dtype=np.int64)
        cards = self.hypergraph.domain.cardinalities
        for variable, parents, log_weights in self.draws:
            weights = np.exp(log_weights - log_weights.max(1, keepdims=True)).cumsum(1)
            rows = weights[cell_numbers(codes, parents, cards)]
            uniform = random.random(count) * rows[:, -1]
            codes[:, variable] = (uniform[:, None] >= rows[:, :-1]).sum(1)
        return torch.from_numpy(codes)

    def padded(self, hypergraph: InteractionHypergraph, tables: Floats) -> Floats:
        """Tables of a smaller collection in the layout of this one."""
        if hypergraph == self.hypergraph:
            return tables
        return restructured_tables(torch.from_numpy(tables), hypergraph, self.hypergraph).numpy()

    def balanced(self) -> Floats:
        """Balanced tables (num_terms,) of a forest, with every subset of whose edges in the collection."""
        hypergraph = self.hypergraph
        inside = InteractionHypergraph(
            hypergraph.domain,
            [e for e, where in hypergraph.term_slices.items() if self.tables[where].any()],
            closure=True,
        )
        raw = restructured_tables(torch.from_numpy(self.tables), hypergraph, inside)
        pure = parametrization(inside).purify(raw)[0]
        return restructured_tables(pure, inside, hypergraph).numpy()


def law_of_singles(hypergraph: InteractionHypergraph, tables: Floats) -> StartLaw:
    """The independent law with the single-variable tables of a model; uniform where a variable has none."""
    where, single_tables, draws, log_z = hypergraph.term_slices, np.zeros(hypergraph.num_terms), list[_Draw](), 0.0
    for i, (name, levels) in enumerate(zip(hypergraph.domain.names, hypergraph.domain.cardinalities, strict=True)):
        weights = tables[where[(name,)]] if (name,) in where else np.zeros(levels)
        if (name,) in where:
            single_tables[where[(name,)]] = weights
        draws.append(_Draw(i, (), weights[None].copy()))
        log_z += float(np.logaddexp.reduce(weights))
    return StartLaw(hypergraph, single_tables, log_z, tuple(draws))


def forest_law(
    margins: RowMargins, hypergraph: InteractionHypergraph, smoothing: float = 0.5, *, pairs: bool = True
) -> StartLaw:
    r"""The forest among the pairs of a collection that is most likely given the rows (Chow and Liu), smoothed.

    .. math:: \log q(x) = \sum_i \log q(x_i \mid x_{\pi(i)}), \qquad
        q(x_i \mid x_j) = \frac{n(x_i, x_j) + a I_i q(x_i)}{n(x_j) + a I_i}, \qquad
        q(x_i) = \frac{n(x_i) + a}{n + a I_i}

    It maximises the sum of mutual informations. Pairs count whose variables are in the collection alone, too; variables
    without a single-variable interaction are uniform and independent. No probability is zero.
    """
    names, cards, slices = hypergraph.domain.names, hypergraph.domain.cardinalities, hypergraph.term_slices
    total, frequencies = margins.rows.total_count, margins(hypergraph)
    tables = np.zeros(hypergraph.num_terms)
    # Smoothed laws of single variables, and counts of the pairs that may become edges.
    single: dict[int, Floats] = {}
    for i, name in enumerate(names):
        if (name,) in slices:
            counts = total * frequencies[slices[(name,)]] + smoothing
            single[i] = counts / counts.sum()
    counts_of: dict[tuple[int, int], Floats] = {}
    if pairs:
        for members, edge in zip(hypergraph.edge_indices, hypergraph.edges, strict=True):
            if len(members) == 2 and all(i in single and cards[i] > 1 for i in members):
                i, j = members
                counts_of[i, j] = total * frequencies[slices[edge]].reshape(cards[i], cards[j])
    # Down from the roots: a root has its own law, a child that given its parent, which adds nothing to log Z.
    draws: list[_Draw] = []
    log_z = 0.0
    # Nodes with their parents (-1 for none), parents first, of the forest with most mutual information
    # (Kruskal)
    count = len(names)
    joined, forest = nx.Graph(), nx.Graph()
    for graph in (joined, forest):
        graph.add_nodes_from(range(count))
    gains = sorted((pair, _information(counts)) for pair, counts in counts_of.items())
    joined.add_weighted_edges_from((*pair, gain) for pair, gain in gains if gain > 0)
    forest.add_edges_from(nx.maximum_spanning_edges(joined, data=False))
    parents: dict[int, int] = {}
    for first in range(count):
        if first not in parents:
            parents[first] = -1
            arcs = nx.dfs_edges(forest, first, sort_neighbors=lambda nodes: list(nodes)[::-1])
            parents.update((child, parent) for parent, child in arcs)
    for i, parent in list(parents.items()):
        if parent < 0:
            weights = np.log(single[i])[None] if i in single else np.zeros((1, cards[i]))
            log_z += float(np.logaddexp.reduce(weights[0]))
            if i in single:
                tables[slices[(names[i],)]] += weights[0]
        else:
            pair = (min(i, parent), max(i, parent))
            counts = counts_of[pair] if parent < i else counts_of[pair].T
            prior = smoothing * cards[i]
            weights = np.log((counts + prior * single[i]) / (counts.sum(1, keepdims=True) + prior))
            tables[slices[names[pair[0]], names[pair[1]]]] += (weights if parent < i else weights.T).reshape(-1)
        draws.append(_Draw(i, () if parent < 0 else (parent,), weights))
    return StartLaw(hypergraph, tables, log_z, tuple(draws))


def network_law(rows: Observations, hypergraph: InteractionHypergraph, forest: StartLaw) -> StartLaw:
    r"""A directed network of up to three parents per variable, close to the rows; in a larger collection.

    .. math:: q(x_i \mid x_P) = \frac{n(x_i, x_P) + a I_i \, q(x_i \mid x_{P \setminus \{j\}})}{n(x_P) + a I_i}

    Variables come in the order of the forest. Each takes the parent j among its predecessors, with which the rows are
    most probable when each is left out, as long as that helps by more than the best of so many does by chance; the
    second and third among the 128 that did best as the first. The families join the collection. It lies much closer to
    a fitted law than a forest, so that annealed runs from it are short and their weights even.
    """
    from ....compute.lanes import run_threads

    # Each variable looks for parents among those before it.
    names, cards = rows.domain.names, rows.domain.cardinalities
    parents, order = _Parents(rows), [draw.variable for draw in forest.draws]
    draw_of: dict[int, _Draw] = {}

    def search(first: int, step: int) -> None:
        for k in range(first, len(order), step):
            draw_of[k] = parents.draw(order[k], order[:k])

    run_threads(search, len(order), cost=parents.cost)
    draws = [draw_of[k] for k in range(len(order))]
    # The families join the collection, with their conditionals as tables.
    families = [tuple(sorted((draw.variable, *draw.parents))) for draw in draws]
    joint = InteractionHypergraph(
        rows.domain,
        list(dict.fromkeys([*hypergraph.edges, *(tuple(names[i] for i in family) for family in families)])),
        hierarchical=False,
    )
    tables = np.zeros(joint.num_terms)
    for family, draw in zip(families, draws, strict=True):
        given = (*draw.parents, draw.variable)
        table = draw.log_weights.reshape([cards[j] for j in given])
        where = joint.term_slices[tuple(names[i] for i in family)]
        tables[where] += np.transpose(table, [given.index(i) for i in family]).reshape(-1)
    return StartLaw(joint, tables, 0.0, tuple(draws))


class _Parents:
    """Rows that parents of variables are looked for in."""

    def __init__(self, rows: Observations) -> None:
        self._cards, self._counts = rows.domain.cardinalities, rows.counts.numpy().astype(np.float64)
        self._codes = rows.narrow.numpy()
        self._columns = np.ascontiguousarray(self._codes.T)

    @property
    def cost(self) -> float:
        """Look-ups that the draws of all variables take, about."""
        return self._codes.size * len(self._cards) / 2

    def draw(self, i: int, placed: Sequence[int]) -> _Draw:
        """A variable given those of the ``placed`` ones that make the rows most probable."""
        from ._kernels import parent_scores

        cards, codes, counts = self._cards, self._codes, self._counts
        levels, prior, sizes = cards[i], _PRIOR * cards[i], np.array(cards, dtype=np.int64)
        # The law of the variable alone, then with one parent more as long as that helps.
        alone = np.bincount(codes[:, i], counts, levels) + _PRIOR
        fitted = (alone / alone.sum())[None]
        parents: tuple[int, ...] = ()
        cells = np.zeros(len(codes), dtype=np.int64)
        best = float(counts @ np.log(fitted[0, codes[:, i]]))
        free = np.array(placed, dtype=np.int64)
        while len(parents) < _MAX_PARENTS:
            scores = parent_scores(self._columns, sizes, counts, i, cells, fitted, prior, free, _MAX_FAMILY)
            if not len(free) or scores.max() <= best + _LEAST_GAIN * levels + math.log(len(placed)):
                break
            # The best parent joins; the promising ones are looked at again.
            j, best = int(free[scores.argmax()]), float(scores.max())
            free = free[np.sort(np.argsort(-scores, kind="stable")[:_PROMISING])]
            free = free[free != j]
            parents, cells = (*parents, j), cells * cards[j] + codes[:, j]
            table = np.bincount(cells * levels + codes[:, i], counts, len(fitted) * cards[j] * levels)
            table = table.reshape(-1, levels)
            before = prior * np.repeat(fitted, cards[j], axis=0)
            fitted = (table + before) / (table.sum(1) + prior)[:, None]
        return _Draw(i, parents, np.log(fitted))


def _information(counts: Floats) -> float:
    """Mutual information in nats of a table of counts."""
    probs = counts / counts.sum()
    product = np.outer(probs.sum(1), probs.sum(0))
    seen = probs > 0
    return float((probs[seen] * np.log(probs[seen] / product[seen])).sum())


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
        """Number of unweighted states that the weights leave, (sum w)^2 / sum w^2."""
        return 1 / float(np.square(softmax(self.log_weights)).sum())

    @property
    def log_z(self) -> float:
        """Log of the mean weight."""
        top = float(self.log_weights.max())
        return top + math.log(float(np.exp(self.log_weights - top).mean()))

    def joined(self, other: Population) -> Population:
        """States of both; where both have absolute weights, so has the union."""
        codes = torch.cat([self.codes, other.codes])
        return Population(codes, np.concatenate([self.log_weights, other.log_weights]))

    def resampled(self, count: int, random: np.random.Generator) -> Population:
        """As many states with equal weights, a systematic sample in proportion to the present ones."""
        picked = systematic(np.cumsum(softmax(self.log_weights)), count, random)
        return Population(self.codes[picked], np.full(count, self.log_z))


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
    """Gibbs chains with log weights that follow changes of the model, both on the device of the settings.

    A training step sends tables there, and brings eta and three numbers back.
    """

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
        self._weigh(torch.from_numpy(population.log_weights).to(settings.device, copy=True))

    def _model(self, tables: Floats) -> LogLinearEnergy:
        tables_there = torch.from_numpy(tables).to(self._settings.device)
        return LogLinearEnergy(self._hypergraph, tables_there, validate=False)

    def _weigh(self, log_weights: torch.Tensor) -> None:
        self._weights, self._shares = log_weights, torch.softmax(log_weights, -1)

    @property
    def log_weights(self) -> Floats:
        """A copy (chains,)."""
        return self._weights.cpu().numpy().copy()

    @property
    def population(self) -> Population:
        """The present states and weights."""
        return Population(self.chains.states.cpu(), self.log_weights)

    @property
    def effective_size(self) -> float:
        """Effective number of chains."""
        return 1 / float(self._shares @ self._shares)

    def eta(self) -> Floats:
        """Weighted frequencies of the cells of every interaction, (num_terms,)."""
        return self.chains.statistics(self._shares).cpu().numpy()

    def growth(self, change: Floats) -> torch.Tensor:
        """Growth (chains,) of the log weights under a change of the tables; linear in it. Nothing changes yet."""
        return -self.chains.energy_of(self._model(change), validate=False)

    def set_tables(self, tables: Floats) -> None:
        """New tables; the log weights stay."""
        self.chains.set_model(self._model(tables), validate=False)
        self._tables = tables.copy()

    def move_to(self, tables: Floats) -> None:
        """New tables, with the log weights that belong to them."""
        self.grow(self.growth(tables - self._tables))
        self.set_tables(tables)

    def spread(self, growth: torch.Tensor) -> float:
        """Standard deviation of a growth of log weights over the weighted chains."""
        return float((self._shares @ (growth - self._shares @ growth).square()).sqrt())

    def grow(self, growth: torch.Tensor) -> None:
        """Take up a growth of the log weights; unweighted chains take none."""
        if self._settings.chains == "weighted":
            self._weigh(self._weights + growth)

    def resample(self, *, always: bool = False) -> bool:
        """Systematic resampling where the effective share is too small, or always; whether it was."""
        count = self.chains.num_chains
        if not always and self.effective_size >= self._settings.resample_below * count:
            return False
        picked = systematic(self._shares.cumsum(-1).cpu().numpy(), count, self._random)
        self.chains.gather(picked.to(self._weights.device))
        self._weigh((self._weights.logsumexp(-1) - math.log(count)).expand(count).clone())
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
            growth = self.chains.anneal(path[first : last + 1], start=self._model(start))
            self._weigh(self._weights + growth)
            if last < num_temperatures and self.resample():
                is_even = False
        return is_even


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
    populations: list[Population] = []
    for k, (start, size) in enumerate(zip(starts, (count - wide, wide), strict=False)):
        start_seed = seed_of(seed, k)
        first, padded = drawn(start, size, seed_of(start_seed, 2)), start.padded(hypergraph, tables)
        chains = WeightedChains(start.hypergraph, padded, settings, start_seed, first, size)
        is_even = chains.anneal(settings.refresh_temperatures, start.tables)
        populations.append(replace(chains.population, is_even=is_even))
    near, *wide_ones = populations
    return replace(near.joined(*wide_ones), is_even=near.is_even) if wide_ones else near


def weighted_margins(
    codes: NDArray[np.integer], weights: Floats, cards: Sequence[int], sets: Sequence[Sequence[int]]
) -> list[Floats]:
    """Weights (N,) of states, codes (d, N), summed in the cells of every set of positions; row-major, flat tables."""
    from ....compute.lanes import run_threads
    from ._kernels import add_margins

    # Cells of all sets one after the other, counted in lanes.
    shapes = [[cards[i] for i in positions] for positions in sets]
    first, ends, members = laid_out(cards, sets)
    strides = np.array([math.prod(shape[j + 1 :]) for shape in shapes for j in range(len(shape))], dtype=np.int64)
    total = np.zeros(int(first[-1]))

    def count(begin: int, step: int) -> None:
        add_margins(codes, weights, first[:-1], ends, members, strides, begin, step, total)

    run_threads(count, len(sets))
    return np.split(total, first[1:-1]) if len(sets) else []


class States:
    """States of equal weight, codes (d, N), and their margins."""

    def __init__(self, codes: NDArray[np.integer], cards: Sequence[int]) -> None:
        self.codes, self._cards, self._bits = codes, tuple(cards), LevelBits(codes, cards)

    def margins(self, sets: Sequence[Sequence[int]]) -> list[Floats]:
        """Frequencies of the cells of every set of positions; row-major, flat tables."""
        ones = np.ones(self.codes.shape[1])
        tables = self._bits.margins_beside(sets, lambda some: weighted_margins(self.codes, ones, self._cards, some))
        return [table / len(ones) for table in tables]


def disagreement(first: Population, second: Population, hypergraph: InteractionHypergraph) -> tuple[float, bool]:
    r"""Largest total variation between two populations in the law of an interaction, and whether it is beyond noise.

    Two samples of one law with effective sizes m and n have the expected distance
    :math:`\tfrac12 \sum_k \sqrt{\tfrac{2}{\pi} p_k (1 - p_k) (1/m + 1/n)}`; six times that, or 0.05 where this is
    more, counts as agreement.
    """
    cards = hypergraph.domain.cardinalities
    one, two = (
        weighted_margins(np.ascontiguousarray(p.codes.numpy().T), softmax(p.log_weights), cards, sets)
        for p, sets in ((population, hypergraph.edge_indices) for population in (first, second))
    )
    # Distances of the laws of all interactions, and those expected of two samples.
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
