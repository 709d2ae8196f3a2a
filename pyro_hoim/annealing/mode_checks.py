"""Whether an annealed run has weighed the modes that a search has found. Private to the package.

Every forward run, from whatever reference, estimates the sum of q over any set of states without bias, by the mean of
its weights over the chains that end in the set. Runs from references around the modes found must therefore agree with
the main run about the neighbourhood of each mode; where they find more, the main run has missed a part of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .weights import Flags, Floats, island_means, log_mean_weight

__all__ = ["Distance", "ModeRuns", "Modes", "Weighed", "hamming", "pick_modes", "root_distance", "weighed"]

Numbers = NDArray[np.generic]
Distance = Callable[[Numbers, Numbers], Floats]

_APART = 0.25  # distance from which two states count as two modes
_QUANTILE = 0.9  # of the distances of chains at a mode from it; the radius of its neighbourhood
_GAP = 4.0  # errors between two estimates that count as agreement
_VISITS = 10.0  # effective chains in a neighbourhood by which a run has weighed it
_NEGLIGIBLE = 0.01  # share of Z below which it does not matter whether a mode was weighed
_ABSENT = 60.0  # nats below the others for chains outside a set


def hamming(first: Numbers, second: Numbers) -> Floats:
    """Share of variables in which level codes (..., d) differ."""
    return (first != second).mean(-1)


def root_distance(first: Numbers, second: Numbers) -> Floats:
    """Mean difference of the square roots of counts (..., d), each cut at one: two deviations of a Poisson count."""
    return np.minimum(np.abs(np.sqrt(first) - np.sqrt(second)), 1).mean(-1)


class Modes(NamedTuple):
    """States of high probability far from one another, the most probable first."""

    states: Numbers  # (J, B, d)
    log_q: Floats  # (J, B), nats; minus infinity where there is no such mode


class ModeRuns(NamedTuple):
    """Runs that begin around the first K modes, m chains each."""

    local: Numbers  # states of chains begun at the mode and moved by the model, (K, B, m, d)
    local_log_q: Floats  # their log q, (K, B, m), nats
    local_entropy: Floats  # entropy of the product of their marginals, (K, B), nats; at least that of their law
    log_weights: Floats  # of forward runs from a reference fitted to them; their mean estimates Z; (K, B, m), nats
    ends: Numbers  # states at the end of these, (K, B, m, d)


class Weighed(NamedTuple):
    """What the runs from the modes say about the main run, (B,)."""

    is_contradicted: Flags  # a set of states is heavier, beyond the errors, than in the main run
    is_unweighed: Flags  # a mode was found that no run has weighed, and that may matter
    log_z: Floats  # log of Z as the main run has it, plus what it has missed, nats


def pick_modes(states: Numbers, log_q: Floats, count: int, distance: Distance) -> Modes:
    """Up to ``count`` of the states (B, n, d), by log q (B, n), a quarter of the largest distance apart."""
    rows = np.arange(len(states))
    is_free = np.isfinite(log_q)
    chosen, values = list[Numbers](), list[Floats]()
    for _ in range(count):
        left = np.where(is_free, log_q, -np.inf)
        index = left.argmax(-1)
        state = states[rows, index]
        chosen.append(state)
        values.append(left[rows, index])
        is_free &= distance(states, state[:, None]) >= _APART
        if not is_free.any():
            break
    return Modes(np.stack(chosen), np.stack(values))


def weighed(
    main: Floats, ends: Numbers, modes: Modes, runs: ModeRuns, distance: Distance, islands: int | None = None
) -> Weighed:
    """Compare the log weights (B, M) and ends (B, M, d) of the main run with runs from the first modes.

    Chains of the main run are in independent groups of consecutive ones, ``islands`` of them, or all independent.
    """
    size = len(runs.log_weights)
    log_z = log_mean_weight(island_means(main, islands))
    is_there = np.isfinite(modes.log_q)
    radius = np.quantile(distance(runs.local, modes.states[:size, :, None]), _QUANTILE, axis=-1)
    radius = np.concatenate([radius, np.broadcast_to(radius.max(0), (len(modes.log_q) - size, *radius.shape[1:]))])
    inside, nearby = _neighbourhoods(ends, modes, radius, distance)
    shape = (len(modes.log_q), *log_z.value.shape)
    here, error = np.stack([_part(main, part, log_z.value, islands) for part in inside], 1)
    visits = np.stack([_effective(main, part) for part in nearby])
    missed, spread, share = np.zeros(shape), np.full(shape, 1 / main.shape[-1]), here.copy()
    is_blind, is_more = np.zeros(shape, dtype=bool), np.zeros(log_z.value.shape, dtype=bool)
    for k in range(size):
        found = log_mean_weight(runs.log_weights[k])
        there = _neighbourhoods(runs.ends[k], modes, radius, distance)[0][k]
        part, part_error = _part(runs.log_weights[k], there, log_z.value)
        share[k] = np.where(found.is_reliable, part, here[k])
        missed[k], spread[k] = part - here[k], np.hypot(np.hypot(part_error, error[k]), spread[k])
        gap = found.value - log_z.value
        is_more |= found.is_reliable & is_there[k] & (gap > _GAP * np.hypot(found.error, log_z.error) + 1e-9)
        ceiling = runs.local_log_q[k].mean(-1) + runs.local_entropy[k] - log_z.value
        is_blind[k] = ~found.is_reliable & (visits[k] < _VISITS) & (ceiling > np.log(_NEGLIGIBLE))
        missed[k] = np.where(found.is_reliable, missed[k], np.maximum(missed[k], 0))
    is_blind &= is_there
    missed, spread = np.where(is_there, missed, 0), np.where(is_there, spread, 0)
    positive = np.maximum(missed, 0)
    beyond = is_there & (missed > _GAP * spread)
    total = positive.sum(0) > _GAP * np.sqrt(np.square(spread).sum(0))
    others = _others(modes, np.where(is_there, share, 0)[:size], visits < _VISITS)
    is_unweighed = is_blind.any(0) | (others > np.maximum(_NEGLIGIBLE, _GAP * log_z.error))
    more = np.log1p(positive.sum(0) + others)
    return Weighed(is_more | total | beyond.any(0), is_unweighed, log_z.value + more)


def _neighbourhoods(states: Numbers, modes: Modes, radius: Floats, distance: Distance) -> tuple[Flags, Flags]:
    """Whether states (B, n, d) are within the radius of a mode and closest to it, and whether within, (J, B, n)."""
    far = np.stack([distance(states, mode[:, None]) for mode in modes.states])
    far = np.where(np.isfinite(modes.log_q)[..., None], far, np.inf)
    closest = far.argmin(0)
    within = far <= radius[..., None]
    return within & (np.arange(len(far))[:, None, None] == closest), within


def _effective(log_weights: Floats, inside: Flags) -> Floats:
    """Effective number of chains inside a set, (B,)."""
    weights = np.where(inside, np.exp(log_weights - log_weights.max(-1, keepdims=True)), 0)
    return np.square(weights.sum(-1)) / np.maximum(np.square(weights).sum(-1), 1e-300)


def _part(log_weights: Floats, inside: Flags, scale: Floats, islands: int | None = None) -> tuple[Floats, Floats]:
    """The mean weight inside a set over exp(scale), and its error, (B,)."""
    is_empty = ~inside.any(-1)
    floor = log_weights.max(-1, keepdims=True) - _ABSENT
    found = log_mean_weight(island_means(np.where(inside, log_weights, np.minimum(floor, log_weights)), islands))
    value = np.exp(np.minimum(found.value - scale, _ABSENT))
    error = value * np.minimum(found.error, 1e6)
    return np.where(is_empty, 0, value), np.where(is_empty, 0, error)


def _others(modes: Modes, share: Floats, is_unseen: Flags) -> Floats:
    """Share of Z that modes without runs of their own, in which the main run hardly ends, may have together, (B,).

    Their neighbourhoods are taken to be as heavy, for their log q, as the heaviest of those with a ``share`` (K, B).
    """
    size = len(share)
    log_q = np.where(share > 0, modes.log_q[:size], 0)
    width = np.log(np.maximum(share, 1e-300)) - log_q
    width = np.where(share > 0, width, -np.inf).max(0)
    parts = np.exp(np.minimum(modes.log_q[size:] + width, _ABSENT))
    return np.where(is_unseen[size:], parts, 0).sum(0)
