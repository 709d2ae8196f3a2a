"""Blocks that suit a model: what a sweep of them costs as planned, and how well short pilot runs with them mix."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import InputError, IntractableError
from ...runs.schedule import MAX_BLOCK_STATES, Blocks, GibbsSchedule
from ...structure.elimination_order import block_buckets, bucket_cells
from ...structure.hypergraph import InteractionHypergraph
from .inside import Listing, Lists, listed_states

_logger = logging.getLogger("pyro_hoim")

# A pilot run. Its chains are few, since those of one vector instruction cost as much as one.
CHAINS, GROUPS = 16, 4  # chains per model, and models of a batch that are looked at
_SWEEPS, _FEWEST = 400, 50
_LONGER = 25  # times as many sweeps where no candidate mixes in the first ones
_BUDGET = 1e8  # planned nanoseconds of the pilot run of a candidate, all chains together
_BURN_IN = 0.25
_WIDTHS = 2, 4, 6, 8, 12, 16
_MOST_CODES = 2**27  # of states that are recorded
_MOST_STATISTICS = 128  # indicators of levels
_RARE = 0.02  # shares below it, or above one less it, say too little of mixing in so few draws
_SLOW = 0.1  # quantile of the effective draws of indicators that counts
_GAIN = 1.5  # by which dearer blocks must be better
_FEW_DRAWS = 10  # effective ones of a chain
_FALLS, _FAR = 2, 3  # candidates one after the other that are so many times slower than the best end the search

# Planned nanoseconds of a chain, fitted to sweeps of 256 chains on one core of 2.5 GHz with AVX-512 (bench_blocks.py,
# part "calibration"). Only their ratios matter to the choice, which never looks at a clock.
_PRODUCT_VISIT, _PRODUCT = 0.3, 0.08  # of a single variable, and of a product that it is in
_PRODUCT_STATE = 0.5  # of a joint state of several variables
_TREE_VISIT, _TREE = 1.0, 0.25  # the same of a variable of a tree
_VISIT, _READ, _STATE = 2.0, 0.15, 0.5  # of a listed block, a cell that it reads, and a state that a table adds to
_BUCKET, _CELL = 2.0, 0.35  # of a variable that is eliminated, and of a cell and term of its table


class BlockCandidate(NamedTuple):
    """Blocks that were tried.

    Attributes:
        schedule: the blocks, as of :class:`~pyro_hoim.runs.GibbsSchedule`.
        num_blocks: how many, with those that connect the possible states.
        largest: variables of the largest block.
        planned: nanoseconds of a chain and sweep by the cost model.
        sweeps: of the pilot run of 16 chains; 0 where there was none, as nothing else was within reach.
        effective: effective draws a sweep of a chain; NaN without a pilot run.

    Example:
        >>> candidate = BlockCandidate(GibbsSchedule("trees"), 2, 30, 400.0, 400, 0.5)
        >>> candidate.name, candidate.is_resolved, round(candidate.rate)
        ('trees', True, 1250000)
    """

    schedule: GibbsSchedule
    num_blocks: int
    largest: int
    planned: float
    sweeps: int
    effective: float

    @property
    def name(self) -> str:
        """The kind of the blocks, or "groups" where they are listed by name."""
        return self.schedule.blocks if isinstance(self.schedule.blocks, str) else "groups"

    @property
    def is_resolved(self) -> bool:
        """Whether chains of the pilot run made ten effective draws each; else they may be stuck, and be slower yet."""
        return self.effective * self.sweeps >= _FEW_DRAWS

    @property
    def rate(self) -> float:
        """Effective draws of a chain in a planned second."""
        return 1e9 * self.effective / self.planned


@dataclass(frozen=True)
class BlockChoice:
    """Which blocks ``GibbsSchedule("auto")`` came to, and what it looked at.

    Attributes:
        schedule: the chosen schedule, with blocks other than "auto".
        candidates: those that were tried, single variables first.

    Example:
        >>> single = BlockCandidate(GibbsSchedule(), 30, 1, 20.0, 400, 0.001)
        >>> trees = BlockCandidate(GibbsSchedule("trees"), 1, 30, 50.0, 400, 1.0)
        >>> str(BlockChoice(trees.schedule, (single, trees)))[:57]
        "blocks 'trees', chosen before 'sites' by short pilot runs"
    """

    schedule: GibbsSchedule
    candidates: tuple[BlockCandidate, ...]

    @property
    def chosen(self) -> BlockCandidate:
        """The candidate that was chosen."""
        return next(c for c in self.candidates if c.schedule == self.schedule)

    def __str__(self) -> str:
        tried = [c for c in self.candidates if c.sweeps]
        name, first = self.chosen.name, self.candidates[0]
        if len(tried) < 2:
            return f"blocks {name!r}, as no others are within reach of a pilot run"
        gain = self.chosen.rate / first.rate if first.rate else math.inf
        others = ", ".join(repr(c.name) for c in tried if c.schedule != self.schedule)
        stuck = "" if self.chosen.is_resolved else ", though no chain of these made ten effective draws"
        return (
            f"blocks {name!r}, chosen before {others} by short pilot runs{stuck}: {gain:.3g} times the effective draws "
            f"of {first.name!r} in equal planned time"
        )


def planned_cost(
    hypergraph: InteractionHypergraph,
    blocks: Blocks,
    lists: Lists | None = None,
    max_listed: int = MAX_BLOCK_STATES,
    *,
    by_products: bool = False,
) -> float:
    """Planned nanoseconds of a sweep of one of many chains; ``by_products`` of the engine of this name, else tables."""
    cards, incident, total = hypergraph.domain.cardinalities, hypergraph.incident, 0.0
    edges = hypergraph.edge_indices
    for block, listed in zip(blocks, lists or (None,) * len(blocks), strict=True):
        meeting = set[int]().union(*(incident[i] for i in block))
        states = math.prod(cards[i] for i in block) if listed is None else len(listed)
        if listed is None and states > max_listed:
            buckets = block_buckets(hypergraph, block)
            if by_products:
                total += _TREE_VISIT * len(block) + _TREE * sum(len(incident[i]) for i in block)
            else:
                cells = bucket_cells(buckets, cards)
                terms = 1 + len(meeting) / len(block)
                total += _BUCKET * len(block) + _READ * len(meeting) + _CELL * terms * cells
        elif by_products:
            total += _PRODUCT_VISIT + _PRODUCT * len(meeting) + _PRODUCT_STATE * (states if len(block) > 1 else 0)
        else:
            # Tables that share the same members with the block are added before they meet its states.
            shared = {tuple(i for i in edges[e] if i in block) for e in meeting}
            reads = sum(math.prod(cards[i] for i in edges[e] if i in block) for e in meeting)
            total += _VISIT + _READ * reads + _STATE * states * (1 if len(block) == 1 else 1 + len(shared))
    return total


def effective_draws(values: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Effective draws of chains (draws, chains, statistics) together, of every statistic.

    Chains that disagree count as slow ones: the autocorrelation at lag t is :math:`1 - (W - \bar c_t) / V` with the
    variance W and the mean autocovariance within chains and the variance V of all chains together, halves of chains
    being chains of their own. Its sum stops where two neighbours no longer have a positive sum, and pairs never rise.
    Constants count as independent draws.

    References:
        Charles Geyer, Practical Markov chain Monte Carlo, Statistical Science 7, 1992, section 3.3.
        Aki Vehtari, Andrew Gelman, Daniel Simpson, Bob Carpenter and Paul-Christian Buerkner, Rank-normalization,
        folding, and localization: an improved R-hat, Bayesian Analysis 16, 2021, equations (9) to (11).
    """
    half = len(values) // 2
    split = np.concatenate([values[:half], values[len(values) - half :]], axis=1)
    draws, chains = split.shape[:2]
    mean = split.mean(0)
    # Autocovariances by Fourier transforms, biased as usual.
    spectrum = np.fft.rfft(split - mean, n=2 * draws, axis=0)
    within = np.fft.irfft((spectrum * spectrum.conj()).real, n=2 * draws, axis=0)[:draws].mean(1) / draws
    variance = within[0] * draws / (draws - 1)
    together = within[0] + mean.var(0, ddof=1)
    is_constant = together <= 1e-12 * (1 + (mean**2).mean(0))
    correlation = 1 - (variance - within) / np.where(is_constant, 1, together)
    correlation[0] = 1
    # Sums of pairs as long as they are positive, and falling.
    pairs = correlation[: draws // 2 * 2].reshape(-1, 2, split.shape[2]).sum(1)
    pairs = np.minimum.accumulate(np.where(np.logical_and.accumulate(pairs > 0, axis=0), pairs, 0), axis=0)
    time = np.maximum(2 * pairs.sum(0) - 1, 1 / math.log10(draws * chains))
    return np.where(is_constant, draws * chains, draws * chains / time)


class _Pilot:
    """A candidate with its chains, and the levels (variable, code) that are looked at."""

    def __init__(self, candidate: BlockCandidate, chains: Any, columns: Sequence[tuple[int, int]]) -> None:
        self.candidate, self.chains, self._columns = candidate, chains, columns

    def run(self, most: int) -> None:
        """Up to 400 records of so many sweeps, or as the budget gives; a first quarter does not count.

        Effective draws are those of the energy, or of the slowest tenth of the indicators where these are fewer.
        """
        lead = self.chains.num_chains, self.chains.batch_shape.numel()
        count = min(most, int(_BUDGET / (self.candidate.planned * math.prod(lead))))
        thin = max(1, count // min(_SWEEPS, _MOST_CODES // (math.prod(lead) * len(self.chains.domain))))
        record = self.chains.sweep(count, thin=thin, energies=True, states=True)
        first = int(_BURN_IN * record.num_records)
        energies = record.energies[first:].reshape(-1, lead[1], lead[0]).double().numpy()
        states = record.states[first:].reshape(-1, lead[1], lead[0], len(self.chains.domain)).cpu().numpy()
        chosen = np.array(self._columns, dtype=np.int64).reshape(-1, 2)
        is_level = (states[..., chosen[:, 0]] == chosen[:, 1]).astype(float)
        # Levels that are rare, or that no chain of this candidate leaves or enters, say nothing of how it mixes.
        means = is_level.mean((0, 2))
        of_levels = np.stack([effective_draws(group) for group in is_level.transpose(1, 0, 2, 3)])
        of_levels = of_levels[(means > _RARE) & (means < 1 - _RARE)]
        slow = float(np.quantile(of_levels, _SLOW)) if of_levels.size else math.inf
        effective = min(float(np.median(effective_draws(energies.transpose(0, 2, 1)))), slow)
        scale = thin * len(energies) * lead[0]
        self.candidate = self.candidate._replace(sweeps=count, effective=effective / scale)


def _draws_by_products(chains: Any) -> bool:
    """Whether chains are of the engine "products", which eliminates trees but nothing wider."""
    return type(chains._engine).__name__ == "ProductsEngine"


def _candidate(schedule: GibbsSchedule, chains: Any) -> BlockCandidate:
    """One that was not tried yet, from its chains."""
    blocks = tuple(chains.domain.indices(block) for block in chains.blocks)
    by_products = _draws_by_products(chains)
    cost = planned_cost(chains.hypergraph, blocks, chains._lists, schedule.max_listed, by_products=by_products)
    return BlockCandidate(schedule, len(blocks), max(map(len, blocks), default=0), cost, 0, math.nan)


def _kinds(
    hypergraph: InteractionHypergraph, listing: Listing | None, first: Any
) -> Iterator[str | tuple[tuple[str, ...], ...]]:
    """Blocks to try after single variables, those of dearer sweeps later."""
    groups = [] if listing is None else [g for g in listing.groups() if len(g) > 1]
    if groups:
        inside = {name for group in groups for name in group}
        others = [block for block in first.blocks if not inside.issuperset(block)]
        yield (*groups, *others)
    if hypergraph.order > 1:
        yield "interactions"
    yield "trees"
    yield from (f"width:{width}" for width in _WIDTHS)


def choose_schedule(
    schedule: GibbsSchedule,
    hypergraph: InteractionHypergraph,
    listing: Listing | None,
    chains_of: Callable[[GibbsSchedule, torch.Tensor | None], Any],
    base: str,
) -> BlockChoice:
    """The schedule with blocks in place of "auto": those of most effective draws in equal planned time.

    Candidates are single variables, groups of few possible states, interactions, trees and sets of low treewidth. Each
    moves a few chains from the same states, within a planned time. Effective draws are those of the energy, or of the
    slowest tenth of the indicators of levels where these are fewer; chains that stay where they began count as one draw
    together. Of candidates within a factor of 1.5 of the best the cheapest sweep is chosen. No clock is looked at, and
    draws of the pilot runs are not used again: the blocks are fixed before the first recorded sweep, so that what is
    recorded is a Markov chain of one kernel. (A kernel that went on adapting to its own history would not have to
    leave the law invariant.)

    Args:
        schedule: with blocks "auto".
        hypergraph: the interactions.
        listing: possible joint states; None where all are possible.
        chains_of: makes pilot chains with a schedule, from states, or by their own first draws where these are None.
        base: the kind of blocks of one variable each: "sites", or "colours".
    """
    # Single variables, which every other candidate is measured by.
    plain = replace(schedule, blocks=base)
    first = chains_of(plain, None)
    planned = _candidate(plain, first)
    free = {hypergraph.domain.index(name) for block in first.blocks for name in block}
    lead = first.num_chains * first.batch_shape.numel()
    most, codes = _BUDGET / (lead * _FEWEST), lead * _FEWEST * len(hypergraph.domain)
    is_large = planned.planned > most or codes > _MOST_CODES
    if is_large or not any(len(free.intersection(edge)) > 1 for edge in hypergraph.edge_indices):
        return BlockChoice(plain, (planned,))
    cards = hypergraph.domain.cardinalities
    columns = [(v, level) for v in sorted(free) for level in range(cards[v] if cards[v] > 2 else 1)]
    columns = columns[:: -(-len(columns) // _MOST_STATISTICS)]
    start, pilots, blocks_seen, falls = first.states, [_Pilot(planned, first, columns)], {first.blocks}, 0
    pilots[0].run(_SWEEPS)
    # The others, as long as their sweeps are within the budget and larger blocks may gain anything.
    for blocks in _kinds(hypergraph, listing, first):
        option = replace(schedule, blocks=blocks)
        if falls == _FALLS and option.width is not None:
            break
        try:
            resolved = option.resolve(hypergraph, first.clamped, listing and listing.has)
            lists = listed_states(listing, resolved, hypergraph.domain.names)
            is_forest = _draws_by_products(first) and option.width in (None, 1)
            if planned_cost(hypergraph, resolved, lists, option.max_listed, by_products=is_forest) > most:
                continue
            chains = chains_of(option, start)
        except IntractableError:  # interactions that are too large
            continue
        except InputError as error:
            if error.argument != "engine":
                raise
            continue  # which was asked for by name, and does not draw such blocks
        is_cut_off = chains.connectedness == "refuted" != first.connectedness
        if chains.blocks in blocks_seen or is_cut_off:
            continue
        blocks_seen.add(chains.blocks)
        pilots.append(_Pilot(_candidate(option, chains), chains, columns))
        pilots[-1].run(_SWEEPS)
        best = max((pilot.candidate for pilot in pilots), key=lambda c: c.rate)
        is_far = best.is_resolved and pilots[-1].candidate.rate < best.rate / _FAR
        falls = falls + 1 if is_far else 0
        if len(chains.blocks) == 1:
            break  # all draws are independent
    # Where none mixes, longer runs tell slow chains from those that are stuck.
    if len(pilots) > 1 and not any(pilot.candidate.is_resolved for pilot in pilots):
        for pilot in pilots:
            pilot.run(_LONGER * _SWEEPS)
    candidates = [pilot.candidate for pilot in pilots]
    best = max(c.rate for c in candidates)
    chosen = min((c for c in candidates if c.rate >= best / _GAIN), key=lambda c: c.planned)
    choice = BlockChoice(chosen.schedule, tuple(candidates))
    _logger.info("%s", choice)
    return choice
