"""Random root models with a family per variable, and the growth of their mass by sums over growing boxes.

Nothing here shares anything with the library but the list of terms.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import gammaln

from pyro_hoim import Domain, Variable
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.generalized_root.nodes.families import NodeFamily

FAMILIES: dict[str, NodeFamily] = {
    "b": TruncatedPoissonFamily(1),
    "t": TruncatedPoissonFamily(3),
    "p": PoissonFamily(),
    "e": ExponentialFamily(),
    "g": GaussianFamily(),
}
"""One family of every kind, by its letter."""

Terms = dict[tuple[int, tuple[int, ...]], float]


class MixedModel(NamedTuple):
    """Letters of the families, and coefficients by root and positions."""

    letters: str
    terms: Terms

    @property
    def families(self) -> list[NodeFamily]:
        """Family of every variable."""
        return [FAMILIES[letter] for letter in self.letters]

    def parameters(self) -> tuple[RootStructure, torch.Tensor]:
        """Structure and tensor entries."""
        domain = Domain([Variable(f"{c}{i}", kind=FAMILIES[c].kind) for i, c in enumerate(self.letters)])
        rows: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for j, row in self.terms:
            rows.setdefault((j, len(row)), []).append(row)
        structure = RootStructure.from_positions(domain, {key: np.array(part) for key, part in rows.items()})
        listed = [self.terms[key[0], tuple(row)] for key in structure.keys for row in structure.positions(key).tolist()]
        return structure, torch.tensor(listed, dtype=torch.float64) / structure.multiplicity


def log_density(model: MixedModel, logs: Sequence[np.ndarray], signs: Sequence[Any]) -> np.ndarray:
    """Log q and the log measure of logarithms u of T; minus infinity stands for a value of zero, without measure."""
    total = np.zeros(())
    for (j, row), c in model.terms.items():
        sign = math.prod((signs[s] for s in row if model.letters[s] == "g"), start=1.0) if j == 2 else 1.0
        total = total + c * sign * np.exp(np.sum(np.broadcast_arrays(*[logs[s] for s in row]), axis=0) / j)
    for letter, u in zip(model.letters, logs, strict=True):
        if letter in "pbt":
            total = total - gammaln(np.exp(u) + 1)
        if letter in "eg":
            total = total + (u if letter == "e" else u / 2)
    return total


def log_masses(model: MixedModel, tops: Sequence[float], step: float) -> np.ndarray:
    """Log mass in boxes where the moduli of the logarithms of T stay below some tops, up to a factor near one.

    Counts are listed to 12, beyond they stand on the grid of logarithms with their number.
    """
    top = max(tops)
    grid = np.arange(-top, top + step / 2, step)
    far = np.log(np.concatenate([np.arange(1, 13), np.exp(np.arange(np.log(13.5), top, step))]))
    weight = np.concatenate([np.zeros(12), far[12:] + np.log(step)])
    choices: list[list[tuple[np.ndarray, np.ndarray, float]]] = []
    zero = (np.array([-np.inf]), np.zeros(1), 1.0)
    for letter in model.letters:
        if letter in "bt":
            size = int(FAMILIES[letter].largest_value)
            choices.append([(np.log(np.arange(size + 1.0)), np.zeros(size + 1), 1.0)])
        elif letter == "p":
            choices.append([(np.concatenate([zero[0], far]), np.concatenate([zero[1], weight]), 1.0)])
        else:
            choices.append([(grid, np.zeros(len(grid)), sign) for sign in ((1.0, -1.0) if letter == "g" else (1.0,))])
    masses = np.full(len(tops), -np.inf)
    n = len(model.letters)
    for chosen in itertools.product(*choices):
        logs = [u.reshape([-1 if i == s else 1 for i in range(n)]) for s, (u, _, _) in enumerate(chosen)]
        weights = [w.reshape([-1 if i == s else 1 for i in range(n)]) for s, (_, w, _) in enumerate(chosen)]
        values = log_density(model, logs, [sign for _, _, sign in chosen]) + sum(weights)
        reach = np.maximum.reduce(np.broadcast_arrays(*[np.where(np.isfinite(u), np.abs(u), 0.0) for u in logs]))
        for i, limit in enumerate(tops):
            inside = values[reach <= limit + 1e-9]
            most = inside.max()
            masses[i] = np.logaddexp(masses[i], most + np.log(np.exp(inside - most).sum()))
    return masses


def log_density_along(model: MixedModel, values: np.ndarray, exponents: np.ndarray, log_z: np.ndarray) -> np.ndarray:
    """Log q with the measure along a curve x = v z^b, at the logarithms of z."""
    logs = []
    for letter, v, b in zip(model.letters, values, exponents, strict=True):
        with np.errstate(divide="ignore"):
            u = np.log(np.abs(v)) * (2 if letter == "g" else 1) + b * (2 if letter == "g" else 1) * log_z
        if letter == "p":
            u = np.log(np.rint(np.exp(u)))
        logs.append(u)
    signs = [-1.0 if v < 0 else 1.0 for v in values]
    return log_density(model, logs, signs)


def random_model(rng: np.random.Generator, largest_unbounded: int) -> MixedModel:
    """Two to four variables of at least two families, some of them numbers; many terms are absent."""
    while True:
        letters = "".join(rng.choice(list("btpeg"), rng.integers(2, 5)))
        if (
            len(set(letters)) > 1
            and sum(letter in "peg" for letter in letters) <= largest_unbounded
            and set(letters) & set("eg")
        ):
            break
    n, terms = len(letters), Terms()
    share = rng.choice([0.1, 0.5])
    for s in range(n):
        for j in (1, 2, 3):
            if rng.random() < (1 - share if j == 1 else 0.4):
                c = rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0], p=[0.3, 0.4, 0.2, 0.05, 0.05])
                terms[j, (s,)] = float(c)
    for size, roots, chance in ((2, (2, 3, 4), 0.35), (3, (3, 4), 0.3)):
        for row in itertools.combinations(range(n), size):
            for j in roots:
                if rng.random() < chance:
                    terms[j, row] = float(rng.choice([-2.0, -1.0, -0.4, 0.4, 1.0, 2.0]))
    return MixedModel(letters, terms)
