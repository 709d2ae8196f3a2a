"""The published suite of models with known log Z: what estimates of log Z and their verdicts are held to.

:func:`hard_models` gives it class by class, with parameters and seeds that were fixed before any estimate was made;
:func:`easy_models` gives the models that a method must not refuse. What the classes are is told by the functions of
:mod:`support.hard_models`.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pyro_hoim.core.partition import LogPartition
from pyro_hoim.errors import check_choice

from .hard_models import (
    HardModel,
    Scope,
    broad_phase,
    condensate_and_dimers,
    condensing_level,
    curie_weiss,
    enumerated_log_z,
    hidden_needle,
    log_linear_energy,
    mean_field_spins,
    needle,
    potts_complete,
    potts_grid,
    root_counts,
    sign_grid,
    spin_glass,
    two_wells,
    xor_sat,
)


def _mean_field_cases() -> Iterator[HardModel]:
    for size in (12, 16, 20):
        edge = 4 * size * size**2 / (2 * math.comb(size, 3))  # both wells are equally deep
        for factor in np.linspace(0.85, 1.45, 10).tolist():
            yield mean_field_spins(size, triple=2 * edge * factor)
    for kappa in (13.5, 20.0):
        yield mean_field_spins(30, triple=2 * kappa)


def _condensing_cases() -> Iterator[HardModel]:
    for levels, edge in ((6, 0.24), (12, 0.33)):
        for factor in np.linspace(0.7, 1.5, 9).tolist():
            yield condensing_level(18, levels, edge * factor)
    yield condensing_level(60, 40, 0.14)


def _potts_complete_cases() -> Iterator[HardModel]:
    for colours, field in itertools.product((3, 6), (0.0, 0.5)):
        edge = 2 * (colours - 1) * math.log(colours - 1) / (colours - 2)  # the transition of large models
        for factor in np.linspace(0.6, 1.6, 8).tolist():
            yield potts_complete(20, colours, edge * factor, field)


def _potts_grid_cases() -> Iterator[HardModel]:
    for colours, side in ((3, 7), (8, 5)):
        edge = math.log(1 + math.sqrt(colours))
        for factor in (0.7, 0.9, 0.95, 1.0, 1.05, 1.1, 1.3, 1.6, 2.0):
            yield potts_grid(side, side, colours, edge * factor)


def _spin_glass_cases() -> Iterator[HardModel]:
    for coupling, seed in itertools.product((0.5, 1.0, 1.5, 2.5, 4.0), range(6)):
        yield spin_glass(16, coupling, seed)
    for coupling, seed in itertools.product((1.0, 2.5, 4.0), range(3)):
        yield spin_glass(20, coupling, seed)


def _sign_grid_cases() -> Iterator[HardModel]:
    for coupling, seed in itertools.product((0.4, 0.8, 1.2, 2.0, 3.0), range(6)):
        yield sign_grid(8, 8, coupling, seed)
    for coupling, seed in itertools.product((0.8, 2.0), range(4)):
        yield sign_grid(13, 13, coupling, seed)


def _broad_phase_cases() -> Iterator[HardModel]:
    """14 to 20 variables of 40 to 60 levels, up to 20 peaks; the broad phase from far below the first to far above."""
    for case in range(36):
        rng = np.random.default_rng(case)
        size, levels, peaks = int(rng.integers(14, 21)), int(rng.integers(40, 61)), int(rng.integers(0, 21))
        field, own, edge = rng.uniform(5.0, 9.0), rng.uniform(0.0, 0.4), rng.uniform(0.04, 0.2)
        lead = (-6.0, -2.0, 0.0, 2.0, 5.0, 12.0)[case % 6]
        yield broad_phase(size, levels - 1 - peaks, peaks, lead, field=field, own=own, edge=edge)


def _dimer_cases() -> Iterator[HardModel]:
    """The condensate from far below the dimers to far above."""
    for case in range(24):
        rng = np.random.default_rng(case)
        size, levels = int(rng.integers(10, 21)), int(rng.integers(40, 61))
        against, dimer = rng.uniform(2.0, 6.0), rng.uniform(0.5, 3.0)
        lead, pairs = (-6.0, -1.0, 2.0, 10.0)[case % 4], size * (size - 1) / 2
        gain = (condensate_and_dimers(size, levels, 0.0, dimer, against).log_z + lead + against * size) / pairs
        yield condensate_and_dimers(size, levels, gain, dimer, against)


HARD_CLASSES: Mapping[str, Callable[[], Iterator[HardModel]]] = {
    "spins of orders 1 to 3": _mean_field_cases,
    "two wells": lambda: (
        two_wells(size, 1.5, 3.0, far)
        for size, far in itertools.product((16, 24, 40), (4.0, 5.5, 6.0, 6.25, 6.5, 7.0, 8.45))
    ),
    "condensing level": _condensing_cases,
    "blocks of levels": _broad_phase_cases,
    "condensate and dimers": _dimer_cases,
    "Potts, complete graph": _potts_complete_cases,
    "Potts grid": _potts_grid_cases,
    "Curie-Weiss": lambda: (
        curie_weiss(size, coupling, field)
        for size, field in itertools.product((16, 32), (0.0, 0.05))
        for coupling in (0.2, 0.6, 0.9, 1.0, 1.1, 1.4, 2.0, 4.0)
    ),
    "Sherrington-Kirkpatrick": _spin_glass_cases,
    "+-J grid": _sign_grid_cases,
    "XOR-SAT": lambda: itertools.starmap(xor_sat, itertools.product((12, 20, 32, 64), (0.7, 1.5, 2.5, 4.0), range(3))),
    "needle": lambda: (
        needle(size, size * math.log(2) + excess, others, seed)
        for size, others in ((10, 10), (16, 14))
        for excess, seed in itertools.product((-4.0, 0.0, 5.0, 15.0, 30.0), range(3))
    ),
    "hidden needle": lambda: (
        hidden_needle(5, width, gain * width * math.log(2) * 6 / 10, 3, seed)
        for width, gain, seed in itertools.product((10, 14), (1.0, 1.2), range(5))
    ),
    "root counts": lambda: (
        root_counts(size, linear, (math.log(target) - linear) / (size - 1))
        for size, target in itertools.product((6, 12), (0.5, 2.0, 5.0, 20.0))
        for linear in (-1.0, -4.0, -8.0, -14.0)
    ),
}
"""The published suite: models of every class, made one by one."""


def is_false_claim(result: LogPartition, log_z: float) -> bool:
    """Whether an estimate that is not called unreliable errs by more than 5 standard errors and 0.05 nats."""
    error = abs(float(result.value) - log_z)
    return result.verdict != "unreliable" and error > 5 * float(result.std_error) and error > 0.05


def hard_models(name: str) -> Iterator[HardModel]:
    """Models of one class of ``HARD_CLASSES``, in a fixed order, made as they are asked for."""
    check_choice(name, HARD_CLASSES, "hard_models name")
    return HARD_CLASSES[name]()


def easy_models(number: int = 200) -> Iterator[HardModel]:
    """Random models of weak to moderate interactions, in which Gibbs sampling mixes well; log Z by enumeration.

    Spins or mixed variables with 2 to 4 levels, chains, sparse and dense pairs, and triples; at most 2^16 states.
    """
    for case in range(number):
        rng = np.random.default_rng(case)
        size = int(rng.integers(6, 15))
        cards = [2] * size if case % 2 == 0 else rng.integers(2, 5, size).tolist()
        while math.prod(cards) > 2**16:
            cards.pop()
        size, shape = len(cards), ("chain", "sparse", "dense", "triples")[case // 2 % 4]
        pairs = list(itertools.combinations(range(size), 2))
        if shape == "chain":
            scopes: list[Scope] = list(itertools.pairwise(range(size)))
        elif shape == "dense":
            scopes = [*pairs]
        else:
            scopes = [pairs[i] for i in rng.choice(len(pairs), size, replace=False)]
        if shape == "triples":
            triples = list(itertools.combinations(range(size), 3))
            scopes += [triples[i] for i in rng.choice(len(triples), size, replace=False)]
        scale = float(rng.choice([0.1, 0.3, 0.5])) * (size**-0.5 if shape == "dense" else 1.0)
        tables: dict[Scope, np.ndarray] = {(i,): rng.normal(0, 0.5, cards[i]) for i in range(size)}
        tables |= {s: rng.normal(0, scale, [cards[i] for i in s]) for s in sorted(scopes)}
        energy = log_linear_energy(cards, tables)
        parameters = {"case": case, "shape": shape, "size": size, "scale": round(scale, 3)}
        yield HardModel("easy", parameters, energy, enumerated_log_z(energy))
