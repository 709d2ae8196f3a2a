r"""Finding planted interactions of a generalized root model again: ROC curves, errors, and what pairs alone miss."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from pyro_hoim.data.counts import CountTable
from pyro_hoim.errors import is_whole, none_received, other_domain, out_of_range, refused, unexpected, wrong_type
from pyro_hoim.generalized_root.chains.gibbs import RootChains
from pyro_hoim.generalized_root.energy import GeneralizedRootEnergy
from pyro_hoim.generalized_root.nodes.families import NodeFamily, PoissonFamily
from pyro_hoim.generalized_root.regress.fit import fit_root_path, fit_roots
from pyro_hoim.generalized_root.regress.options import RootSettings
from pyro_hoim.generalized_root.regress.result import RootFitResult
from pyro_hoim.generalized_root.structure import RootStructure
from pyro_hoim.schema import Domain, Variable

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RocCurve",
    "coefficient_errors",
    "draw_root_rows",
    "plant_roots",
    "roc_curve",
    "root_recovery",
    "tuple_scores",
]

Names = tuple[str, ...]

_PENALTIES = (1.0, 0.6, 0.35, 0.2)
_MOST_TRIES = 10_000


class RocCurve(NamedTuple):
    """How well scores tell the true from the false, over all thresholds.

    Attributes:
        false_positive_rate: share of the false with a score at the threshold or above, rising from 0 to 1.
        true_positive_rate: the same share of the true.
        auc: area under the curve: the probability that a true one scores above a false one, ties counting half.
    """

    false_positive_rate: np.ndarray
    true_positive_rate: np.ndarray
    auc: float


def roc_curve(scores: Sequence[float] | np.ndarray, is_true: Sequence[bool] | np.ndarray) -> RocCurve:
    """Receiver operating characteristic of scores; equal scores are one step of the curve.

    Args:
        scores: finite or infinite numbers, high where true.
        is_true: the answers; at least one true and one false.

    Shape:
        scores, is_true (m,); rates (number of different scores + 1,).

    Raises:
        InputError: different lengths, NaN, or only one kind of answer.

    Example:
        >>> roc_curve([0.9, 0.4, 0.4, 0.1], [True, True, False, False]).auc
        0.875
    """
    values, answers = np.asarray(scores, dtype=np.float64), np.asarray(is_true, dtype=bool)
    if values.ndim != 1 or values.shape != answers.shape:
        found = f"{values.shape} and {answers.shape}"
        raise unexpected("scores, is_true", "equal lengths", received=found, code="wrong-shape")
    if np.isnan(values).any():
        raise out_of_range("scores", "numbers", received="NaN")
    if answers.all() or not answers.any():
        raise unexpected("is_true", "at least one true and one false answer", code="empty")
    order = np.argsort(-values, kind="stable")
    last = np.append(values[order][1:] != values[order][:-1], True)
    hits, alarms = np.cumsum(answers[order])[last], np.cumsum(~answers[order])[last]
    tpr = np.concatenate([[0.0], hits / hits[-1]])
    fpr = np.concatenate([[0.0], alarms / alarms[-1]])
    return RocCurve(fpr, tpr, float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2)))


def plant_roots(
    num_variables: int = 12,
    num_pairs: int = 8,
    num_triples: int = 6,
    *,
    single: float = 0.5,
    pair: float = 0.4,
    triple: float = 0.5,
    family: NodeFamily | None = None,
    seed: int = 0,
) -> GeneralizedRootEnergy:
    r"""A generalized root model with planted pairs and triples, half of them positive, half negative.

    .. math:: \log q(x) = c_1 \sum_s T_1(x_s) \pm c_2 \sum_{st} T_2(x_s) T_2(x_t)
              \pm c_3 \sum_{str} T_3(x_s) T_3(x_t) T_3(x_r) + \sum_s B(x_s)

    Two triples share at most one variable, and no pair lies inside a triple, so that what is found can be told apart.
    Sets are drawn at random; the first of each size is positive, and signs alternate.

    Args:
        num_variables: named ``x1``, ``x2``, ...
        num_pairs: number of pairs.
        num_triples: number of triples.
        single: coefficient of every single variable.
        pair: magnitude of the coefficients of pairs.
        triple: magnitude of the coefficients of triples.
        family: Poisson when left out.
        seed: of the choice of sets.

    Raises:
        InputError: numbers out of range, or more sets than fit.

    Randomness:
        From ``seed`` only.

    Example:
        >>> planted = plant_roots(6, 2, 2, seed=1)
        >>> planted.structure.tuples((3, 3)), planted.coefficients[-2:].tolist()
        ((('x1', 'x5', 'x6'), ('x2', 'x3', 'x5')), [-0.5, 0.5])
    """
    _check_whole(num_variables, "num_variables", 1)
    _check_whole(num_pairs, "num_pairs", 0)
    _check_whole(num_triples, "num_triples", 0)
    _check_whole(seed, "seed", 0)
    kind = PoissonFamily() if family is None else family
    domain = Domain(Variable(f"x{i + 1}", kind=kind.kind) for i in range(num_variables))
    rng = np.random.default_rng(seed)
    used: set[tuple[int, ...]] = set()
    planted: dict[Names, float] = {}
    for size, count, strength in ((3, num_triples, triple), (2, num_pairs, pair)):
        for i in range(count):
            chosen = _unused(rng, num_variables, size, used)
            used.update(itertools.combinations(chosen, 2))
            planted[tuple(domain.names[s] for s in chosen)] = strength if i % 2 == 0 else -strength
    structure = RootStructure.simplified(domain, list(planted))
    coefficients = [planted.get(names, single) for _, names in structure.names]
    return GeneralizedRootEnergy.from_coefficients(structure, torch.tensor(coefficients, dtype=torch.float64), kind)


def _unused(rng: np.random.Generator, num_variables: int, size: int, used: set[tuple[int, ...]]) -> tuple[int, ...]:
    """A set of positions without a pair that is used."""
    for _ in range(_MOST_TRIES if num_variables >= size else 0):
        chosen = tuple(sorted(rng.choice(num_variables, size, replace=False).tolist()))
        if not used.intersection(itertools.combinations(chosen, 2)):
            return chosen
    problem = f"found no further set of {size} among {num_variables} variables that shares no pair with the others"
    raise refused("num_pairs, num_triples", problem, "take fewer sets or more variables")


def draw_root_rows(
    energy: GeneralizedRootEnergy, num_rows: int, *, burn_in: int = 50, generator: torch.Generator | None = None
) -> CountTable:
    """Independent rows from a model: the ends of as many Gibbs chains.

    Args:
        energy: the model, without a batch.
        num_rows: how many.
        burn_in: sweeps of every chain, from an independent draw of the member without interactions. What is left of
            the start is not checked here; weak interactions need few sweeps.
        generator: source of randomness; the global one when left out.

    Raises:
        InputError: a batch, numbers out of range, or a model that cannot be normalised.

    Randomness:
        One seed from ``generator``; chain i has its own stream, so the first rows do not depend on ``num_rows``.

    Example:
        >>> rows = draw_root_rows(plant_roots(4, 1, 1), 5, generator=torch.Generator().manual_seed(0))
        >>> rows.num_rows, rows.domain.names
        (5, ('x1', 'x2', 'x3', 'x4'))
    """
    _check_whole(num_rows, "num_rows", 1)
    chains = RootChains(energy, num_rows, seed=generator)
    chains.sweep(burn_in)
    return CountTable(energy.domain, chains.states.cpu().numpy(), "the draws")


def tuple_scores(path: Sequence[RootFitResult], size: int) -> tuple[list[Names], np.ndarray]:
    r"""Scores of all sets of variables by a path of fits: when a set comes in, and how large it becomes.

    A set's score is the number of penalties at which its coefficient is not zero, plus :math:`|c| / (1 + |c|)` with its
    coefficient c at the smallest penalty: sets are ranked by when they enter, and those that enter together by size.

    Args:
        path: fits of the same rows at falling penalties.
        size: number of variables of the sets; coefficients of key (size, size) are looked at.

    Returns:
        All sets of that size in schema order, and their scores (m,).

    Raises:
        InputError: no fit, or fits of different columns.
    """
    if not path:
        raise none_received("path", "at least one fit")
    domain = path[0].domain
    if any(fit.domain != domain for fit in path):
        raise other_domain("path", "fits of the same columns")
    sets = list(itertools.combinations(domain.names, size))
    entered = np.zeros(len(sets))
    magnitude = np.zeros(len(sets))
    for fit in path:
        found = _coefficients(fit, size)
        values = np.array([abs(found.get(names, 0.0)) for names in sets])
        entered += values > 0
        magnitude = values
    return sets, entered + magnitude / (1 + magnitude)


def _coefficients(model: RootFitResult | GeneralizedRootEnergy, size: int) -> dict[Names, float]:
    """Coefficients of key (size, size) by names."""
    place = model.structure.slices.get((size, size), slice(0, 0))
    return dict(zip(model.structure.tuples((size, size)), model.coefficients[place].tolist(), strict=True))


def coefficient_errors(
    fit: RootFitResult, truth: GeneralizedRootEnergy, size: int, *, planted: bool = False
) -> np.ndarray:
    """Errors of the coefficients of all sets of a size, or of the planted ones; a set that is absent counts as zero.

    Shape:
        (number of sets,), in schema order.
    """
    found, true = _coefficients(fit, size), _coefficients(truth, size)
    sets: Iterable[Names] = true if planted else itertools.combinations(truth.domain.names, size)
    return np.array([found.get(names, 0.0) - true.get(names, 0.0) for names in sets])


def root_recovery(
    truth: GeneralizedRootEnergy,
    sizes: Sequence[int],
    *,
    penalties: Sequence[float] = _PENALTIES,
    repeats: int = 1,
    held_out: int = 2000,
    burn_in: int = 50,
    seed: int = 0,
    jobs: int | None = None,
) -> pd.DataFrame:
    r"""Fit samples of a known model with pairs and triples, with pairs only, and with the known structure.

    Penalties are given in units of :math:`\sqrt{\log d / N}`, the rate at which noise in a gradient falls. The rows of
    a smaller size are the first of a larger one. The penalty of ``pseudo_nll`` is chosen on ``held_out`` rows of
    their own, and the value is that of as many other rows.

    Args:
        truth: the model that rows come from, simplified, with terms of one, two and three variables.
        sizes: numbers of rows.
        penalties: falling.
        repeats: independent samples.
        held_out: rows to choose the penalty, and to judge.
        burn_in: sweeps before a row is taken.
        seed: non-negative; of all rows.
        jobs: as :func:`~pyro_hoim.generalized_root.fit_roots` takes it.

    Returns:
        One row for each repeat, size and ``model``: ``pairs and triples``, ``pairs only``, ``known structure`` (its
        sets only, no penalty), and the references ``truth`` and ``independent``. Columns where they apply:
        ``pair_auc``, ``triple_auc`` (:func:`tuple_scores` over the path), ``sign`` (share of the planted sets of three,
        for ``pairs only`` of two, whose coefficient at the smallest penalty has the right sign), ``pair_error``,
        ``triple_error`` (mean absolute error of all coefficients at the smallest penalty; of the planted ones for
        ``known structure``), ``inside`` (share of the pairs inside planted triples, none of them planted, that
        the chosen fit has), ``outside`` (the same share of all other pairs that are not planted), ``l1`` (chosen),
        ``pseudo_nll`` (nats a row), ``seconds``.

    Raises:
        InputError: numbers out of range, or a truth with other terms; nothing was fitted.
        InputTypeError: no generalized root model.

    Randomness:
        From ``seed`` only.
    """
    import pandas as pd

    _check_study(truth, sizes, penalties)
    _check_whole(repeats, "repeats", 1)
    _check_whole(held_out, "held_out", 1)
    _check_whole(seed, "seed", 0)
    entries: list[dict[str, object]] = []
    for repeat in range(repeats):
        state = np.random.SeedSequence([seed, repeat]).generate_state(2)
        drawn, other = (torch.Generator().manual_seed(int(word)) for word in state)
        rows = draw_root_rows(truth, max(sizes), burn_in=burn_in, generator=drawn)
        aside = draw_root_rows(truth, 2 * held_out, burn_in=burn_in, generator=other)
        choose, judge = aside.rows(np.arange(held_out)), aside.rows(np.arange(held_out, 2 * held_out))
        reference = -float(truth.detach().log_pseudo_prob(judge.to_tensor()).mean())
        for size in sizes:
            sample = rows.rows(np.arange(size))
            study = _Study(truth, sample, choose, judge, [c * _unit(truth, size) for c in penalties], jobs)
            for name, found in study.models():
                entries.append({"num_rows": size, "repeat": repeat, "model": name, **found})
            entries.append({"num_rows": size, "repeat": repeat, "model": "truth", "pseudo_nll": reference})
    return pd.DataFrame(entries)


def _unit(truth: GeneralizedRootEnergy, num_rows: int) -> float:
    return math.sqrt(math.log(len(truth.domain)) / num_rows)


class _Study(NamedTuple):
    """One sample and what it is judged by."""

    truth: GeneralizedRootEnergy
    sample: CountTable
    choose: CountTable
    judge: CountTable
    l1s: list[float]
    jobs: int | None

    def models(self) -> list[tuple[str, dict[str, object]]]:
        """Columns of every model."""
        return [
            ("pairs and triples", self._path(3)),
            ("pairs only", self._path(2)),
            ("known structure", self._known()),
            ("independent", self._independent()),
        ]

    def _path(self, order: int) -> dict[str, object]:
        start = time.perf_counter()
        family = self.truth.family
        settings = RootSettings(tolerance=1e-5, jobs=self.jobs, false_discovery_rate=None)
        path = fit_root_path(self.sample, self.l1s, family, order=order, settings=settings)
        seconds = time.perf_counter() - start
        scores = [float(fit.log_pseudo_prob(self.choose).mean()) for fit in path]
        chosen = path[int(np.argmax(scores))]
        planted = {size: _coefficients(self.truth, size) for size in (2, 3)}
        found: dict[str, object] = {}
        for size, name in ((2, "pair"), (3, "triple"))[: order - 1]:
            sets, ranks = tuple_scores(path, size)
            if planted[size]:
                found[f"{name}_auc"] = roc_curve(ranks, [names in planted[size] for names in sets]).auc
            found[f"{name}_error"] = float(np.abs(coefficient_errors(path[-1], self.truth, size)).mean())
        last = _coefficients(path[-1], order)
        if planted[order]:
            found["sign"] = float(np.mean([last.get(n, 0.0) * c > 0 for n, c in planted[order].items()]))
        inside = {pair for names in planted[3] for pair in itertools.combinations(names, 2)} - planted[2].keys()
        outside = set(itertools.combinations(self.truth.domain.names, 2)) - inside - planted[2].keys()
        pairs = _coefficients(chosen, 2)
        for name, group in (("inside", inside), ("outside", outside)):
            if group:
                found[name] = float(np.mean([pairs.get(pair, 0.0) != 0 for pair in group]))
        found |= {"l1": chosen.l1[order], "pseudo_nll": _nll(chosen, self.judge), "seconds": seconds}
        return found

    def _known(self) -> dict[str, object]:
        start = time.perf_counter()
        sets = {size: self.truth.structure.tuples((size, size)) for size in (2, 3)}
        settings = RootSettings(candidates=sets, jobs=self.jobs, false_discovery_rate=None)
        fit = fit_roots(self.sample, self.truth.family, order=3, l1=0.0, settings=settings)
        found: dict[str, object] = {"seconds": time.perf_counter() - start, "pseudo_nll": _nll(fit, self.judge)}
        for size, name in ((2, "pair"), (3, "triple")):
            if sets[size]:
                errors = coefficient_errors(fit, self.truth, size, planted=True)
                found[f"{name}_error"] = float(np.abs(errors).mean())
        return found

    def _independent(self) -> dict[str, object]:
        fit = fit_roots(self.sample, self.truth.family, order=1, settings=RootSettings(jobs=self.jobs))
        return {"pseudo_nll": _nll(fit, self.judge)}


def _nll(fit: RootFitResult, rows: CountTable) -> float:
    """Minus the mean log pseudo-likelihood, nats a row."""
    return -float(fit.log_pseudo_prob(rows).mean())


def _check_study(truth: Any, sizes: Sequence[int], penalties: Sequence[float]) -> None:
    if not isinstance(truth, GeneralizedRootEnergy):
        raise wrong_type("truth", "a GeneralizedRootEnergy", truth)
    if truth.batch_shape or not set(truth.structure.keys) <= {(1, 1), (2, 2), (3, 3)}:
        expected = "a simplified model of order at most 3 without a batch (equation 4)"
        raise unexpected("truth", expected, code="wrong-shape")
    if len(truth.domain) < 3:
        raise unexpected("truth", "at least three variables", received=len(truth.domain))
    if not sizes or not penalties:
        raise none_received("sizes, penalties", "at least one of each")
    for size in sizes:
        _check_whole(size, "sizes", 1)
    values = list(penalties)
    if not all(value > 0 for value in values) or any(b >= a for a, b in itertools.pairwise(values)):
        raise out_of_range("penalties", "positive numbers in falling order", received=values)


def _check_whole(value: object, argument: str, least: int) -> None:
    if not is_whole(value) or value < least:
        raise out_of_range(argument, f"a whole number from {least}", value)
