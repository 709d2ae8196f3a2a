"""Small problems in the UAI format, made anew from seeds, and a reader of that format that only enumerates."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

Factor = tuple[tuple[int, ...], Any]
"""Scope and weights."""


class Problem(NamedTuple):
    """Text of a model, and levels of its observed variables."""

    text: str
    evidence: Mapping[int, int] = MappingProxyType({})


def text_of(cardinalities: Sequence[int], factors: Sequence[Factor], kind: str = "MARKOV") -> str:
    """Text of a model from (scope, weights) pairs, the axes of the weights in the order of the scope."""
    lines = [kind, str(len(cardinalities)), " ".join(map(str, cardinalities)), str(len(factors))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope, _ in factors]
    for _, weights in factors:
        numbers = np.asarray(weights, dtype=float).ravel().tolist()
        lines += ["", str(len(numbers)), " " + " ".join(map(repr, numbers))]
    return "\n".join(lines) + "\n"


def parsed(text: str) -> tuple[list[int], list[tuple[list[int], list[float]]]]:
    """Cardinalities and (scope, flat weights) pairs, word by word."""
    words = iter(text.split()[1:])
    cards = [int(next(words)) for _ in range(int(next(words)))]
    scopes = [[int(next(words)) for _ in range(int(next(words)))] for _ in range(int(next(words)))]
    return cards, [(scope, [float(next(words)) for _ in range(int(next(words)))]) for scope in scopes]


def enumerated(problem: Problem) -> tuple[float, list[list[float]], float]:
    """Z of the evidence, probabilities of every variable, and the largest weight of a state, one state at a time."""
    cards, factors = parsed(problem.text)
    shares, largest = [defaultdict[int, float](float) for _ in cards], 0.0
    for state in product(*map(range, cards)):
        if any(state[i] != level for i, level in problem.evidence.items()):
            continue
        weight = 1.0
        for scope, weights in factors:
            index = 0
            for i in scope:  # the last one fastest
                index = index * cards[i] + state[i]
            weight *= weights[index]
        largest = max(largest, weight)
        for i, level in enumerate(state):
            shares[i][level] += weight
    total = math.fsum(shares[0].values())
    return total, [[shares[i][level] / total for level in range(card)] for i, card in enumerate(cards)], largest


def grid(rows: int, columns: int, seed: int, zeros: float = 0.0) -> Problem:
    """Pairs of neighbours and single variables of two levels; a share of the weights of the pairs is zero."""
    rng = np.random.default_rng(seed)
    factors: list[Factor] = [((i,), rng.uniform(0.5, 2, 2)) for i in range(rows * columns)]
    for r, c in product(range(rows), range(columns)):
        for i, j in ((r, c + 1), (r + 1, c)):
            if i < rows and j < columns:
                weights = np.exp(rng.normal(size=(2, 2)))
                weights[rng.random((2, 2)) < zeros] = 0
                factors.append(((i * columns + j, r * columns + c), weights))
    return Problem(text_of([2] * (rows * columns), factors))


def chain(length: int, levels: int, seed: int) -> Problem:
    """A chain of conditional tables, as BAYES, the child last."""
    rng = np.random.default_rng(seed)
    factors: list[Factor] = [((0,), rng.dirichlet(np.ones(levels)))]
    factors += [((i, i + 1), rng.dirichlet(np.ones(levels), levels)) for i in range(length - 1)]
    return Problem(text_of([levels] * length, factors, "BAYES"), {length - 1: 0})


def noisy_or(diseases: int, findings: int, seed: int) -> Problem:
    """Findings, each the or of diseases that act at random, built of gates of three variables as in Promedas."""
    rng = np.random.default_rng(seed)
    cards, evidence = [2] * diseases, dict[int, int]()
    factors: list[Factor] = [((i,), [1 - p, p]) for i, p in enumerate(rng.uniform(0.01, 0.3, diseases))]
    for _ in range(findings):
        last, this = -1, -1
        for parent in rng.choice(diseases, 3, replace=False).tolist():
            acts = rng.uniform(0.2, 0.9)
            gate = np.zeros((2, 2, 2))  # before, disease, after: what holds goes on holding
            gate[0, 0, 0], gate[0, 1], gate[1, :, 1] = 1, (1 - acts, acts), 1
            cards.append(2)
            this = len(cards) - 1
            factors.append(((parent, this), gate[0]) if last < 0 else ((last, parent, this), gate))
            last = this
        evidence[last] = int(rng.random() < 0.6)
    return Problem(text_of(cards, factors), evidence)


def one_hot(groups: int, size: int, seed: int) -> Problem:
    """Groups of indicators of which exactly one is on, and couplings between groups."""
    rng = np.random.default_rng(seed)
    factors = list[Factor]()
    for group in range(groups):
        weights = np.zeros([2] * size)
        for i in range(size):
            weights[tuple(int(j == i) for j in range(size))] = rng.uniform(0.5, 2)
        factors.append((tuple(range(group * size, (group + 1) * size)), weights))
    pairs = [(i, j) for i, j in product(range(size), range(size, groups * size)) if j >= size]
    factors += [(pair, np.exp(rng.normal(size=(2, 2)))) for pair in pairs]
    return Problem(text_of([2] * (groups * size), factors))


def face() -> Problem:
    """Haberman's example: three variables without a triple, whose pairs exclude nothing, and 000 and 111 impossible."""
    corners: np.ndarray = np.ones((2, 2, 2))
    corners[0, 0, 0] = corners[1, 1, 1] = 0
    pairs: list[Factor] = [((0, 1), [[1, 2], [3, 4]]), ((0, 2), [[2, 1], [1, 2]]), ((2, 1), [[1, 5], [2, 1]])]
    return Problem(text_of([2, 2, 2], [*pairs, ((2, 0, 1), corners)]))


def odd(seed: int) -> Problem:
    """What the format allows beside: scopes in any order and twice, constants, one level, variables in no factor."""
    rng = np.random.default_rng(seed)
    cards = [1, *rng.integers(1, 4, 5).tolist(), 3]
    factors: list[Factor] = [((), [rng.uniform(0.1, 9)])]
    for _ in range(7):
        scope = tuple(rng.permutation(len(cards) - 1)[: rng.integers(1, 4)].tolist())
        for again in ((scope,), (scope, scope[::-1]))[int(rng.random() < 0.3)]:
            weights = rng.exponential(size=[cards[i] for i in again])
            weights[(rng.random(weights.shape) < 0.2) & (np.arange(weights.size).reshape(weights.shape) > 0)] = 0
            factors.append((again, weights))
    factors.insert(3, ((), [2.0]))
    return Problem(text_of(cards, factors), {1: 0})


PROBLEMS = {
    "grid": grid(3, 4, 1),
    "grid with zeros": grid(3, 4, 2, zeros=0.15),
    "wide grid with zeros": grid(2, 6, 4, zeros=0.1),
    "chain": chain(6, 3, 3),
    "binary chain": chain(12, 2, 4),
    "noisy or": noisy_or(5, 3, 5),
    "noisy or, other diseases": noisy_or(6, 2, 6),
    "one-hot columns": one_hot(2, 4, 7),
    "three groups": one_hot(3, 3, 8),
    "a face that is no table": face(),
    "odd scopes": odd(9),
    "odd scopes and zeros": odd(10),
}
"""A dozen, each small enough to enumerate."""
