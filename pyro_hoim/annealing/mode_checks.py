"""Whether annealed runs have weighed the phases that a search has found. Private to the package.

A phase is where chains of the model stay that begin at a state which an ascent found: a narrow peak, or a broad set of
states none of which is probable alone. Every phase stands for its own width: its part of log Z is at most the mean of
log q over its states plus the entropy of the product of their marginals, which the chains there estimate.

Every forward run, from whatever reference, estimates the sum of q over any set of states without bias, by the mean of
its weights over the chains that end in the set. Runs from references around the phases must therefore agree with the
main run about each of them; where they find more, the main run has missed a part of the model.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .weights import Flags, Floats, island_means, log_mean_weight

Numbers = NDArray[np.generic]
Distance = Callable[[Numbers, Numbers], Floats]

_APART = 0.25  # distance from which two states count as two modes
_GAP = 4.0  # errors between two estimates that count as agreement
_VISITS = 10.0  # effective chains in a phase by which a run has weighed it
_NEGLIGIBLE = 0.01  # share of Z below which it does not matter whether a phase was weighed
_ABSENT = 60.0  # nats below the others for chains outside a set
_ROUNDS = (8, 8, 16)  # states that rounds of looking for phases begin at
_FEWEST, _MOST = 16, 64  # chains at each of these
_SHARE = 8  # of the chains of the main run
_RELAXED = 24  # sweeps of the model after an ascent
_SETTLED = 24  # sweeps after which states of a phase are looked at
_LOOKS = 4  # how often
THIN = 4  # sweeps between two looks
_OUTER = 0.1  # share of the states of a phase at either end that says nothing about its range
_SLACK = 1.0  # of the range of the others, by which a state of the phase may be beyond it
_SPREAD = 3.0  # of the log probability of a state, per square root of a variable
_LEAST_GROUP = 2  # chains that may be a phase of their own
_LEAST_GAIN = 0.5  # nats for a state, by which laws of two groups are better than one law
_MOST_GROUPS = 4  # phases that chains from one state may go to


def hamming(first: Numbers, second: Numbers) -> Floats:
    """Share of variables in which level codes (..., d) differ."""
    return (first != second).mean(-1)


def root_distance(first: Numbers, second: Numbers) -> Floats:
    """Mean difference of the square roots of counts (..., d), each cut at one: two deviations of a Poisson count."""
    return np.minimum(np.abs(np.sqrt(first) - np.sqrt(second)), 1).mean(-1)


class PhaseLaws(Protocol):
    """Product laws fitted to the states of J phases of B models."""

    def log_prob(self, states: Numbers, /) -> Floats:
        """Log probabilities (J, B, n) of states (B, n, d), or of states (J, B, n, d) under the law of their phase."""
        ...


class Moved(Protocol):
    """Chains of the model."""

    def __call__(self, starts: Numbers, /, sweeps: int, looks: int, stream: int) -> tuple[Numbers, Floats]:
        """States (looks, B, n, d) and log q of chains from states (B, n, d).

        There are ``sweeps`` before the first look and four between two; ``stream`` is that of the random numbers.
        """
        ...


Fitted = Callable[[Numbers], PhaseLaws]
"""The product laws of states (J, B, n, d)."""


class _Round(NamedTuple):
    """What a round found at J states for each of B models."""

    states: Numbers  # of the chains there, (J, B, m, d)
    log_q: Floats  # of these, (J, B, m), nats
    is_there: Flags  # whether there is such a state, (J, B)
    ceiling: Floats  # most that the phase can add to log Z, nats, (J, B)
    law: PhaseLaws
    least: Floats  # log probability from which a state belongs to the phase, (J, B)
    low: Floats  # range of log q of its states, (J, B), nats
    high: Floats

    def holds(self, states: Numbers, log_q: Floats) -> tuple[Flags, Floats]:
        """Whether states (B, n, d) are in the phases, and their log probability under the laws, (J, B, n)."""
        chance = self.law.log_prob(states)
        inside = (log_q >= self.low[..., None]) & (log_q <= self.high[..., None])
        return inside & (chance >= self.least[..., None]) & self.is_there[..., None], chance


class Stray(NamedTuple):
    """States (n, d) in no phase, and what may be around each (n,), nats: as much as any phase has for its log q."""

    states: Numbers
    ceiling: Floats


class Phases(NamedTuple):
    """J phases of each of B models."""

    states: Numbers  # states of chains there, (J, B, m, d)
    ceiling: Floats  # most that the phase can add to log Z, nats, (J, B); minus infinity where there is no such phase
    rounds: tuple[_Round, ...]  # in which they were found
    place: NDArray[np.intp]  # of a phase in all rounds together, (J, B)
    strays: tuple[Stray, ...]  # of each of the B models

    def holds(self, states: Numbers, log_q: Floats) -> tuple[Flags, Flags]:
        """Whether states (B, n, d) are in a phase and in none that is more probable for them, and whether in it."""
        parts = [phases.holds(states, log_q) for phases in self.rounds]
        every = (np.concatenate(part) for part in zip(*parts, strict=True))
        inside, chance = (np.take_along_axis(part, self.place[..., None], 0) for part in every)
        inside = inside & np.isfinite(self.ceiling)[..., None]
        best = np.where(inside, chance, -np.inf).argmax(0)
        return inside & (np.arange(len(inside))[:, None, None] == best), inside


class ModeRuns(NamedTuple):
    """Forward runs of m chains from references fitted to each of the first K phases."""

    log_weights: Floats  # their mean estimates Z; (K, B, m), nats
    ends: Numbers  # states at their ends, (K, B, m, d)
    log_q: Floats  # of these, (K, B, m), nats


class Weighed(NamedTuple):
    """What the runs from the phases say about the main run, (B,)."""

    is_contradicted: Flags  # a set of states is heavier, beyond the errors, than in the main run
    is_unweighed: Flags  # a phase was found that no run has weighed, and that may matter
    log_z: Floats  # log of Z as the main run has it, plus what it has missed, nats
    unseen: Floats  # most that phases in which the main run hardly ended may add to log Z, nats


class Ends(NamedTuple):
    """The main run: log weights (B, M), states (B, M, d) and log q (B, M) at its ends, and independent groups."""

    log_weights: Floats
    states: Numbers
    log_q: Floats
    islands: int | None = None  # groups of consecutive chains, or all independent


def pick_modes(states: Numbers, order: Floats, count: int, distance: Distance) -> tuple[NDArray[np.intp], Flags]:
    """Places (count, B) of states (B, n, d), the largest in ``order`` (B, n) first, a quarter of the distance apart.

    The second array says which of these there are; minus infinity keeps a state out.
    """
    rows, is_free = np.arange(len(states)), np.isfinite(order)
    places, is_there = list[NDArray[np.intp]](), list[Flags]()
    for _ in range(count):
        index = np.where(is_free, order, -np.inf).argmax(-1)
        places.append(index)
        is_there.append(is_free[rows, index])
        is_free = is_free & (distance(states, states[rows, index][:, None]) >= _APART)
        if not is_free.any():
            break
    return np.stack(places), np.stack(is_there)


def explored(
    modes: Numbers, moved: Moved, fitted: Fitted, num_chains: int, distance: Distance, random: np.random.Generator
) -> Phases:
    """The phases to which chains of the model go from the states (B, n, d) at which ascents ended.

    After some sweeps from every state, rounds begin at those that are in no phase yet: half of a round at the most
    probable, so that no peak is missed, half at others drawn at random, which finds what many ascents lead to.
    """
    count = min(_MOST, max(_FEWEST, num_chains // _SHARE))
    looks, looks_log_q = moved(modes, sweeps=_RELAXED, looks=2, stream=0)
    relaxed, log_q = looks[-1], looks_log_q[-1]
    is_open = np.ones(log_q.shape, dtype=bool)
    rounds = list[_Round]()
    # Rounds from states that are in no phase yet.
    for number, size in enumerate(_ROUNDS, start=1):
        order = np.where(is_open, log_q, -np.inf)
        chance = np.where(np.isfinite(order), random.random(order.shape), -np.inf)
        picked = [pick_modes(relaxed, part, size // 2, distance) for part in (order, chance)]
        places, is_there = (np.concatenate(part) for part in zip(*picked, strict=True))
        start = relaxed[np.arange(len(relaxed)), places]
        move = partial(moved, sweeps=_SETTLED, looks=_LOOKS, stream=number)
        settled = _settled(start, is_there, move, fitted, distance, count)
        rounds.append(settled)
        for states, values in zip(looks, looks_log_q, strict=True):
            is_open &= ~settled.holds(states, values)[0].any(0)
        for position, there in zip(places, is_there, strict=True):
            is_open[np.arange(len(relaxed)), position] &= ~there
        if not is_open.any():
            break
    # The heaviest first, each once.
    ceiling = _distinct_ceilings(rounds)
    order = (-ceiling).argsort(0, kind="stable")[: max(1, int(np.isfinite(ceiling).sum(0).max()))]
    states = np.concatenate([part.states for part in rounds])
    states = np.take_along_axis(states, order[..., None, None], 0)
    width = (ceiling - np.concatenate([part.low for part in rounds])).max(0)
    strays = [Stray(relaxed[b, is_open[b]], log_q[b, is_open[b]] + width[b]) for b in range(len(relaxed))]
    return Phases(states, np.take_along_axis(ceiling, order, 0), tuple(rounds), order, tuple(strays))


def _settled(
    start: Numbers,
    is_there: Flags,
    moved: Callable[[Numbers], tuple[Numbers, Floats]],
    fitted: Fitted,
    distance: Distance,
    count: int,
) -> _Round:
    """What ``count`` chains from each of the states (J, B, d) say about the phases that they are in, G of each.

    Half of the chains make the product law r of a phase, the other half say how probable its states are under r. The
    mean of log q - log r over the law p of the phase is its part of log Z plus the divergence of r from p.
    """
    number, batch, size = start.shape
    states, log_q = moved(np.repeat(start.swapaxes(0, 1), count, 1))
    states = states.reshape(-1, batch, number, count, size).transpose(2, 1, 3, 0, 4)  # (J, B, chains, looks, d)
    log_q = log_q.reshape(-1, batch, number, count).transpose(2, 1, 3, 0)
    groups = [[_groups(states[j, b], fitted, distance) for b in range(batch)] for j in range(number)]
    most = max(len(of) for row in groups for of in row)
    index = np.array([[[*of, *[of[0]] * (most - len(of))] for of in row] for row in groups])  # (J, B, G, chains)
    index = index.transpose(2, 0, 1, 3)
    is_group = np.array([[[g < len(of) for of in row] for row in groups] for g in range(most)])
    flags = (is_group & is_there).reshape(-1, batch)
    states = np.take_along_axis(states[None], index[..., None, None], 3).reshape(-1, *states.shape[1:])
    log_q = np.take_along_axis(log_q[None], index[..., None], 3).reshape(-1, *log_q.shape[1:])
    # Law and range of every phase.
    half = count // 2
    law = fitted(states[:, :, :half].reshape(len(states), batch, -1, size))
    chance = law.log_prob(states[:, :, half:].reshape(len(states), batch, -1, size))
    theirs = log_q[:, :, half:].reshape(chance.shape)
    # Variables that fluctuate alone move the log probability by some square roots of their number, mixtures by more.
    least = _reach(chance, _SPREAD * np.sqrt(size))[0]
    low, high = _reach(log_q.reshape(len(states), batch, -1))
    # Chains that have left, which are few, would make the phase look as wide as what they went to.
    stayed = (chance >= least[..., None]) & (theirs >= low[..., None]) & (theirs <= high[..., None])
    gain = np.ma.masked_array(theirs - chance, ~stayed)
    ceiling = np.ma.filled(gain.mean(-1) + 2 * gain.std(-1) / np.sqrt(count - half), np.inf)
    return _Round(states[..., -1, :], log_q[..., -1], flags, ceiling, law, least, low, high)


def _groups(states: Numbers, fitted: Fitted, distance: Distance) -> list[NDArray[np.intp]]:
    """Chains (m, looks, d) that went to different phases apart: the members of each group, repeated to m.

    Chains are split along the first principal coordinate of their distances, as long as states of the groups that made
    no law are more probable under the law of their own group than under one of both, by more than the choice costs.
    """
    count, _, size = states.shape
    left, groups = [np.arange(count)], list[NDArray[np.intp]]()
    while left:
        members = left.pop()
        # Two laws must be worth more than the choice between them costs.
        parts = _split(states[members], distance) if len(members) >= 2 * _LEAST_GROUP else []
        if min(map(len, parts), default=0) >= _LEAST_GROUP and len(left) + len(groups) < _MOST_GROUPS - 1:
            both = [_halves(members, count), *(_halves(members[part], count) for part in parts)]
            law = fitted(np.stack([states[of[: count // 2]].reshape(1, -1, size) for of in both]))
            gain = 0.0
            for k, part in enumerate(parts, start=1):
                chance = law.log_prob(states[both[k][count // 2 :]].reshape(1, -1, size))[:, 0].mean(-1)
                share = len(part) / len(members)
                gain += share * (chance[k] - chance[0] + np.log(share))
            if gain > _LEAST_GAIN:
                left += [members[part] for part in parts]
                continue
        groups.append(_halves(members, count))
    return groups


def _halves(members: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """``count`` chains, of which no member is in both halves if there are two."""
    half, middle = count // 2, max(1, len(members) // 2)
    first, second = members[:middle], members[middle:] if len(members) > 1 else members
    return np.concatenate([np.resize(first, half), np.resize(second, count - half)])


def _split(states: Numbers, distance: Distance) -> list[NDArray[np.intp]]:
    """Two groups of chains (m, looks, d), by the sign of the first principal coordinate."""
    apart = distance(states[:, None, -1], states[None, :, -1])
    apart = apart - apart.mean(0) - apart.mean(1)[:, None] + apart.mean()
    coordinate = np.linalg.eigh(-apart)[1][:, -1]
    return [np.flatnonzero(coordinate <= 0), np.flatnonzero(coordinate > 0)]


def _reach(values: Floats, most: float = np.inf) -> tuple[Floats, Floats]:
    """Between which numbers others like these (..., n) are."""
    low, high = np.quantile(values, [_OUTER, 1 - _OUTER], axis=-1)
    slack = np.minimum(_SLACK * (high - low), most) + 1e-6 * (1 + np.abs(high))
    return low - slack, high + slack


def _distinct_ceilings(rounds: Sequence[_Round]) -> Floats:
    """The ceiling (J, B) of all that was found, minus infinity for what is the same phase as one with a lower one.

    Most states of each must be in the other: a mixture of phases does not stand for its parts.
    """
    states = np.concatenate([part.states[:, :, -_FEWEST:] for part in rounds])
    log_q = np.concatenate([part.log_q[:, :, -_FEWEST:] for part in rounds])
    number, batch, count, size = states.shape
    log_q = log_q.swapaxes(0, 1).reshape(batch, -1)
    flat = states.swapaxes(0, 1).reshape(batch, number * count, size)
    inside = np.concatenate([part.holds(flat, log_q)[0] for part in rounds])
    is_part = inside.reshape(number, batch, number, count).mean(-1) >= 0.5  # [a, b, c]: c of a
    is_same = is_part & is_part.swapaxes(0, 2)
    ceiling = np.concatenate([np.where(part.is_there, part.ceiling, -np.inf) for part in rounds])
    # Lowest ceiling first: it stands for all that are the same.
    for b in range(batch):
        distinct = list[int]()
        for j in ceiling[:, b].argsort(kind="stable").tolist():
            if not np.isfinite(ceiling[j, b]) or is_same[distinct, b, j].any():
                ceiling[j, b] = -np.inf
            else:
                distinct.append(j)
    return ceiling


def first_to_weigh(phases: Phases, main: Ends, distance: Distance) -> Phases:
    """The phases in the order in which runs should weigh them: the heaviest, those the main run has not, the others."""
    visits = _visits(main, phases, distance)
    rank = np.arange(len(phases.ceiling))[:, None]
    matters = phases.ceiling > log_mean_weight(main.log_weights).value + np.log(_NEGLIGIBLE)
    urgent = np.where(rank == 0, 2, matters & (visits < _VISITS)) + np.isfinite(phases.ceiling) * 4
    order = np.lexsort((np.broadcast_to(rank, urgent.shape), -urgent), axis=0)
    states = np.take_along_axis(phases.states, order[..., None, None], 0)
    ceiling, where = (np.take_along_axis(part, order, 0) for part in (phases.ceiling, phases.place))
    return phases._replace(states=states, ceiling=ceiling, place=where)


def weighed(main: Ends, phases: Phases, runs: ModeRuns, distance: Distance) -> Weighed:
    """Compare the main run with runs from the first phases."""
    size, (log_weights, islands) = len(runs.log_weights), (main.log_weights, main.islands)
    log_z = log_mean_weight(island_means(log_weights, islands))
    is_there = np.isfinite(phases.ceiling)
    alone = phases.holds(main.states, main.log_q)[0]
    here, error = np.stack([_part(log_weights, part, log_z.value, islands) for part in alone], 1)
    is_unseen = _visits(main, phases, distance) < _VISITS
    share = np.where(is_there, np.exp(np.minimum(phases.ceiling - log_z.value, _ABSENT)), 0)
    # What the runs from every phase say about it: what the main run has missed, and whether they have weighed it.
    missed, spread = np.zeros(here.shape), np.full(here.shape, 1 / log_weights.shape[-1])
    is_blind, has_run = np.zeros((2, *here.shape), dtype=bool)
    is_more = np.zeros(log_z.value.shape, dtype=bool)
    for k in range(size):
        of_mode = log_mean_weight(runs.log_weights[k])
        there = phases.holds(runs.ends[k], runs.log_q[k])
        part, part_error = _part(runs.log_weights[k], there[0][k], log_z.value)
        missed[k], spread[k] = part - here[k], np.hypot(np.hypot(part_error, error[k]), spread[k])
        gap = of_mode.value - log_z.value
        is_more |= of_mode.is_reliable & is_there[k] & (gap > _GAP * np.hypot(of_mode.error, log_z.error) + 1e-9)
        is_seen = of_mode.is_reliable & (_effective(runs.log_weights[k], there[1][k]) >= _VISITS)
        is_blind[k], has_run[k] = ~is_seen & is_unseen[k] & (share[k] > _NEGLIGIBLE), is_seen
        missed[k] = np.where(of_mode.is_reliable, missed[k], np.maximum(missed[k], 0))
    # All phases together, and those that no run was made for by the most that they can add.
    is_blind &= is_there
    missed, spread = np.where(is_there, missed, 0), np.where(is_there, spread, 0)
    positive = np.maximum(missed, 0)
    beyond = is_there & (missed > _GAP * spread)
    total = positive.sum(0) > _GAP * np.sqrt(np.square(spread).sum(0))
    # States in no phase may stand for more, unless the main run ends near them.
    shares = np.zeros(len(log_z.value))
    for b, (states, ceiling) in enumerate(phases.strays):
        for state, most in zip(states, ceiling, strict=True):
            near = distance(main.states[b], state) < _APART
            if _effective(main.log_weights[b : b + 1], near[None])[0] < _VISITS:
                shares[b] += np.exp(min(float(most - log_z.value[b]), _ABSENT))
    others = np.where(is_unseen, share, 0)[size:].sum(0) + shares
    is_unweighed = is_blind.any(0) | (others > np.maximum(_NEGLIGIBLE, _GAP * log_z.error))
    more = np.log1p(positive.sum(0) + others)
    may_add = np.minimum(np.where(has_run, positive + 2 * spread, np.inf), share)[:size]
    unseen = np.log1p(np.where(is_unseen[:size], may_add, 0).sum(0) + others)
    return Weighed(is_more | total | beyond.any(0), is_unweighed, log_z.value + more, unseen)


def _visits(main: Ends, phases: Phases, distance: Distance) -> Floats:
    """Effective chains of the main run in every phase, or, of narrow ones, as near to a state of it as its own are."""
    inside = phases.holds(main.states, main.log_q)[1]
    for k, states in enumerate(phases.states):
        radius = np.quantile(distance(states, states[:, :1]), 1 - _OUTER, axis=-1)
        near = distance(main.states, states[:, :1]) <= radius[:, None]
        inside[k] |= near & (radius < _APART)[:, None] & np.isfinite(phases.ceiling[k])[:, None]
    return np.stack([_effective(main.log_weights, part) for part in inside])


def _effective(log_weights: Floats, inside: Flags) -> Floats:
    """Effective number of chains inside a set, (B,)."""
    weights = np.where(inside, np.exp(log_weights - log_weights.max(-1, keepdims=True)), 0)
    return np.square(weights.sum(-1)) / np.maximum(np.square(weights).sum(-1), 1e-300)


def _part(log_weights: Floats, inside: Flags, scale: Floats, islands: int | None = None) -> tuple[Floats, Floats]:
    """The mean weight inside a set over exp(scale), and its error, (B,)."""
    is_empty = ~inside.any(-1)
    floor = log_weights.max(-1, keepdims=True) - _ABSENT
    estimate = log_mean_weight(island_means(np.where(inside, log_weights, np.minimum(floor, log_weights)), islands))
    value = np.exp(np.minimum(estimate.value - scale, _ABSENT))
    error = value * np.minimum(estimate.error, 1e6)
    return np.where(is_empty, 0, value), np.where(is_empty, 0, error)
