"""The search for states of high probability of log-linear models, whatever the order of their levels."""

import itertools
import math
from functools import lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray

from ... import budgets
from ...annealing.runs import Run, derived
from ...runs.schedule import GibbsSchedule
from ...structure.hypergraph import InteractionHypergraph
from ..chains.gibbs import EngineName, GibbsChains
from ..energy import LogLinearEnergy
from ..impossible import ProductInside, walled

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

_STARTS = 256  # of the ascents, at most
_STRONGEST = 16  # interactions whose best cells ascents begin with
_CELLS = 4  # best ones of each
_CELL_STARTS = _STRONGEST * _CELLS
_GREEDY = 2  # of these interactions, those whose best cells go on with the next strongest
_SEEDS = 512  # levels of which ascents ask what they draw the others to, at most
_STEPS = 8  # from a level to those that it draws to, over interactions
_MOST_GAINS = 2**24  # pairs of levels, or table entries, that are looked at for this
_FIELDLESS = 2  # sweeps under interactions alone
_SWEEPS = 12  # of an ascent
_SHALLOW = 2.0  # nats by which impossible cells are worse than others, where ascents look for states to begin with
_COLD = 1000.0  # inverse temperature that leaves nothing to chance
_BLOCK_STARTS = 32  # best states that moves of whole interactions begin with
_BLOCK_SWEEPS = 3
_BLOCK_SHARE = 0.1  # of the look-ups of the forward run that these may take
_BLOCK_STATES = 256  # of one block
_FEWEST = 64  # starts, where there are as many chains


def ascend(
    model: LogLinearEnergy, run: Run, engine: EngineName, support: LogLinearEnergy | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """States (B, n, d) at which ascents ended, possible ones, and their log q (B, n).

    They start from chain ends, from the best cells of the strongest interactions, from what every level of every
    variable draws the others to, from random states mixed with these, and from the rows of the options, which are among
    the states. Names and order of the levels do not matter to any of them. Where states are impossible, ascents start
    from random possible ones too, and those that begin outside of these climb a wall that is higher than all else.
    """
    options, graph = run.model.options, model.hypergraph
    if not len(graph.domain) or not len(model.tables):
        return run.ends, run.log_q
    energy = walled(LogLinearEnergy(graph, model.tables.double(), validate=False))
    shallow = energy if support is None else walled(model.to(dtype=torch.float64), _SHALLOW)
    steps = options.num_chains * options.num_steps * options.sweeps_per_step
    climb = partial(climbed, seed=derived(run.seed, 8), engine=engine)

    def searched(starts: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """After moves of single variables, and from the best of these after moves of interactions, where cheap."""
        states, log_q = climb(energy, starts, GibbsSchedule(), _SWEEPS)
        if not _is_cheap(graph, steps, min(_BLOCK_STARTS, starts.shape[-2])):
            return [(states, log_q)]
        best = log_q.argsort(-1, descending=True)[..., :_BLOCK_STARTS, None].expand(-1, -1, states.shape[-1])
        of_blocks = climb(energy, states.gather(-2, best), GibbsSchedule("interactions"), _BLOCK_SWEEPS)
        return [(states, log_q), of_blocks]

    # Tables (B, num_terms) less what single variables contribute: the sum over levels of any one variable is as
    # zero. Tables of more than two variables lose what is additive in these.
    tables = shallow.tables.cpu().numpy()
    alone = np.zeros_like(tables)
    for piece, shape in zip(graph.term_slices.values(), graph.edge_shapes, strict=True):
        if len(shape) < 2:
            continue
        part = tables[:, piece].reshape(-1, *shape)
        axes = tuple(range(1, part.ndim))
        rest = part + (len(shape) - 1) * part.mean(axes, keepdims=True)
        for axis in axes:
            rest = rest - part.mean(tuple(a for a in axes if a != axis), keepdims=True)
        alone[:, piece] = rest.reshape(len(tables), -1)
    drawn, others = _starts(shallow, alone, run, min(_STARTS, max(_FEWEST, options.num_chains)))
    if drawn.shape[-2]:  # fields may hide what interactions favour
        fieldless = LogLinearEnergy(graph, torch.from_numpy(alone).to(model.device), validate=False)
        drawn = climb(fieldless, drawn, GibbsSchedule(), _FIELDLESS)[0]
    starts = [others, drawn]
    if support is not None:
        law = ProductInside(support, model.tables.new_zeros(sum(graph.domain.cardinalities), dtype=torch.float64))
        random = torch.Generator(model.device).manual_seed(derived(run.seed, 12))
        inside = others[:, -others.shape[1] // 2 :].clone()
        inside[..., list(graph.domain.indices(law.names))] = law.sample(inside.shape[1], random)
        starts.append(inside)
    # From all these starts, and from the rows of the options, which count as met.
    ends = searched(torch.cat(starts, -2))
    rows = options.rows_within([k - 1 for k in graph.domain.cardinalities])
    if rows is not None:
        rows = rows.to(model.device).expand(len(model.tables), -1, -1)
        ends += [climb(energy, rows, GibbsSchedule(), 0), *searched(rows)]
    states, log_q = (torch.cat(part, dim) for part, dim in zip(zip(*ends, strict=True), (-2, -1), strict=True))
    if support is None:
        return states, log_q
    # Ascents that ended outside count as the best end of the run.
    log_q = -LogLinearEnergy(graph, model.tables.double()[:, None], validate=False).energy(states, validate=False)
    is_inside, best = torch.isfinite(log_q), run.log_q.argmax(-1, keepdim=True)
    end = run.ends.gather(1, best[..., None].expand(-1, -1, states.shape[-1]))
    return torch.where(is_inside[..., None], states, end), torch.where(is_inside, log_q, run.log_q.gather(1, best))


def climbed(
    model: LogLinearEnergy,
    starts: torch.Tensor,
    schedule: GibbsSchedule | None,
    sweeps: int,
    seed: int,
    engine: EngineName,
) -> tuple[torch.Tensor, torch.Tensor]:
    """States (B, n, d) and log q (B, n) after sweeps from states at an inverse temperature near infinity."""
    most = max(1, budgets.MAX_CELLS // max(1, starts.shape[:-2].numel() * starts.shape[-1]))
    if starts.shape[-2] > most:  # there are more starts than chains were asked for
        parts = (climbed(model, part, schedule, sweeps, seed, engine) for part in starts.split(most, -2))
        states, log_q = zip(*parts, strict=True)
        return torch.cat(states, -2), torch.cat(log_q, -1)
    cold = LogLinearEnergy(model.hypergraph, model.tables * _COLD, validate=False)
    chains = GibbsChains(cold, starts.shape[-2], schedule=schedule, init=starts, seed=seed, engine=engine)
    chains.sweep(sweeps)
    return chains.states, -chains.energy / _COLD


def _starts(model: LogLinearEnergy, alone: Floats, run: Run, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where ascents begin, (B, n, d): those that interactions alone are to lead on first, and the others."""
    random, graph = np.random.default_rng(derived(run.seed, 7)), model.hypergraph
    cards = np.array(model.domain.cardinalities, dtype=np.int64)
    size = (len(run.ends), len(cards))
    last = run.log_q.argsort(-1, descending=True)[:, : count // 4, None]
    ends = run.ends.gather(1, last.expand(-1, -1, size[1])).cpu().numpy()
    cells = _strongest_cells(graph, model.tables.cpu().numpy(), _random_states(random, cards, size[0], _CELL_STARTS))
    drawn = _drawn_together(graph, alone, _SEEDS, random)
    mixed = _random_states(random, cards, size[0], count - ends.shape[1])
    if drawn.shape[1]:
        picked = drawn[:, random.integers(drawn.shape[1], size=mixed.shape[1])]
        mixed = np.where(random.random(mixed.shape) < random.random((*mixed.shape[:2], 1)) ** 2, picked, mixed)
    others = np.concatenate([ends, cells, mixed], 1)
    return torch.from_numpy(drawn).to(model.device), torch.from_numpy(others).to(model.device)


def _random_states(random: np.random.Generator, cards: Codes, batch: int, count: int) -> Codes:
    """Uniform states (B, n, d)."""
    return np.minimum((random.random((batch, count, len(cards))) * cards).astype(np.int64), cards - 1)


def _drawn_together(graph: InteractionHypergraph, alone: Floats, count: int, random: np.random.Generator) -> Codes:
    """States (B, n, d), each of what one level of one variable draws the others to, step by step.

    A pair of levels of two variables gains the largest entry that agrees with it, in every table that holds both. Of
    more levels than ``count``, half are those that gain most from all variables together, the others are random.
    """
    cards = graph.domain.cardinalities
    firsts, total = np.cumsum([0, *cards]), sum(cards)
    cells = sum(math.prod(shape) * len(shape) ** 2 for shape in graph.edge_shapes if len(shape) > 1)
    if not cells or len(alone) * max(total**2, cells) > _MOST_GAINS:
        return np.zeros((len(alone), 0, len(cards)), dtype=np.int64)
    variable = np.repeat(np.arange(len(cards)), cards)
    level = np.arange(total) - firsts[variable]
    states_of = list[Codes]()
    of_all = np.zeros((len(alone), total, total))
    for members, piece, shape in zip(graph.edge_indices, graph.term_slices.values(), graph.edge_shapes, strict=True):
        part = alone[:, piece].reshape(-1, *shape)
        for first, second in itertools.combinations(range(len(shape)), 2):
            best = part.max(tuple(k + 1 for k in range(len(shape)) if k not in (first, second)))
            u, v = (slice(firsts[members[k]], firsts[members[k] + 1]) for k in (first, second))
            of_all[:, u, v] += best
            of_all[:, v, u] += best.swapaxes(1, 2)
    # Levels that begin, strong ones and others.
    for gains in of_all:
        scale = np.abs(gains).max()
        gains += 1e-9 * scale * random.random(gains.shape)  # ties are broken at random
        seeds = np.arange(total)
        if total > count:
            strong = (-np.maximum.reduceat(gains, firsts[:-1], axis=1).sum(1)).argsort()
            rest = random.permutation(strong[count // 2 :])
            seeds = np.concatenate([strong[: count // 2], rest[: count - count // 2]])
        # States of which one variable is set.
        is_set = np.zeros((len(seeds), len(cards)), dtype=bool)
        states = _random_states(random, np.array(cards, dtype=np.int64), 1, len(seeds))[0]
        is_set[np.arange(len(seeds)), variable[seeds]] = True
        states[np.arange(len(seeds)), variable[seeds]] = level[seeds]
        field = gains[seeds]
        # Variables that what is set draws to a level are set with it.
        for _ in range(_STEPS):
            top, low = (largest.reduceat(field, firsts[:-1], axis=1) for largest in (np.maximum, np.minimum))
            is_new = ~is_set & (top - low > 1e-6 * scale)
            is_best = field == np.repeat(top, cards, axis=1)
            levels = np.minimum.reduceat(np.where(is_best, level, total), firsts[:-1], axis=1)
            states = np.where(is_new, levels, states)
            is_set |= is_new
            if not is_new.any() or is_set.all():
                break
            chosen = np.zeros((len(seeds), total))
            np.put_along_axis(chosen, states + firsts[:-1], is_new, -1)
            field = field + chosen @ gains
        states_of.append(states)
    return np.stack(states_of)


def _strongest_cells(graph: InteractionHypergraph, tables: Floats, states: Codes) -> Codes:
    """Give the states (B, n, d) the best cells of the strongest interactions; those that none is left for go."""
    several = [i for i, edge in enumerate(graph.edge_indices) if len(edge) > 1]
    if not several or not len(tables):
        return states[:, :0]
    pieces = list(graph.term_slices.values())
    first = [piece.start for piece in pieces]
    # Interactions by the range of their tables.
    strength = (np.maximum.reduceat(tables, first, -1) - np.minimum.reduceat(tables, first, -1)).max(0)
    order = sorted(several, key=lambda i: -strength[i])
    strongest = order[:_STRONGEST]
    starts = [(edge, rank) for rank in range(_CELLS) for edge in strongest if rank < math.prod(graph.edge_shapes[edge])]
    # The first ones go on with the next strongest that is free.
    for k, (edge, rank) in enumerate(starts):
        is_free = np.ones(states.shape[-1], dtype=bool)
        goes_on = rank == 0 and edge in order[:_GREEDY]
        path = [edge, *(i for i in order if i != edge)] if goes_on else [edge]
        for i in path:
            members = list(graph.edge_indices[i])
            if is_free[members].any():
                best = rank if i == edge else 0
                _put_cell(tables[:, pieces[i]], graph.edge_shapes[i], members, is_free, states[:, k], best)
                is_free[members] = False
            if not is_free.any():
                break
    return states[:, : len(starts)]


def _put_cell(
    table: Floats, shape: tuple[int, ...], members: list[int], is_free: NDArray[np.bool_], states: Codes, rank: int
) -> None:
    """Give the free members of an interaction, in states (B, d), its best cell but ``rank`` that agrees with them."""
    cells = _cells(shape)
    agree = np.ones((len(states), len(cells)), dtype=bool)
    for column, variable in enumerate(members):
        if not is_free[variable]:
            agree &= cells[:, column] == states[:, variable, None]
    chosen = np.argpartition(np.where(agree, -table, math.inf), rank, -1)[:, rank]
    states[:, members] = cells[chosen]


@lru_cache(maxsize=64)
def _cells(shape: tuple[int, ...]) -> Codes:
    return np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), -1).astype(np.int64)


@lru_cache(maxsize=256)
def _is_cheap(graph: InteractionHypergraph, steps: int, count: int) -> bool:
    """Whether moves of whole interactions take few look-ups against so many sweeps of a forward run."""
    cards = graph.domain.cardinalities
    touching = [len(edges) for edges in graph.incident]
    work = 0
    for block in graph.blocks():
        members = graph.domain.indices(block)
        cells = math.prod(cards[i] for i in members)
        if cells > _BLOCK_STATES:
            return False
        work += cells * sum(touching[i] for i in members)
    forward = steps * sum(levels * number for levels, number in zip(cards, touching, strict=True))
    return work * count * _BLOCK_SWEEPS < _BLOCK_SHARE * forward
