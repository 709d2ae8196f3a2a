"""Maximum likelihood of the law of one variable given others, a multinomial logistic one, and with statistics moved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs, helmert
from scipy.sparse import csc_array, csr_array

from ...runs.checkpoint import check_time

Floats = NDArray[np.float64]
Ints = NDArray[Any]
_STEPS, _HALVINGS, _DOUBLINGS = 60, 30, 10
_DONE = 1e-5  # nats that another step would bring
_CURVED = 1.1  # times what a step promised that it brings: on a parabola once, on the way to infinity 1.26 times
_FLAT = 1e-3  # rows of information: a direction of an infinite estimate has less by then
_FIRST, _STRENGTHS, _EVIDENCE_STEPS = 0.25, (0.02, 2.0), 3  # of ridges that rows choose
_RANK = 1e-10  # of the largest eigenvalue
_WRITTEN = 2**17  # entries of columns in patterns that are written out: products of more wait for memory
_DENSE, _MOST_WRITTEN = 3, 2**24  # columns of a table, and entries, whose products take less time than pairs of cells
_PRODUCTS_OF_PAIRS = 2**20  # of columns of patterns that cost no more than sums over pairs of cells
_LARGE = 300  # parameters, beyond which pooled levels alone are tested
_WITH_MATRIX = 1000  # parameters, beyond which no matrix of all of them is written
_PRODUCTS, _NEARLY = 200, 1e-4  # of conjugate gradients: most, and the share of a step's gain that the last adds
_ROUGHLY, _CLOSE = 0.1, 0.01  # that share without matrices, of steps that bring more than a nat and of others
_SCORED, _FAR = 1e-4, 0.8  # and of scores, but of those that stay below this share of what is asked for
_ENOUGH = 1e-2  # nats that another step would bring there


_solve_positive: Any = get_lapack_funcs("posv", dtype=np.float64)  # without the checks of cho_factor, which take longer


def is_large(num_parameters: int) -> bool:
    """Whether so many parameters are fitted roughly, for tests of pooled levels alone."""
    return num_parameters > _LARGE


@lru_cache(maxsize=256)
def level_contrasts(cardinality: int) -> Floats:
    """Orthonormal contrasts (r, r - 1), so that a ridge on their parameters is the same for every order of levels."""
    contrasts = np.ascontiguousarray(np.asarray(helmert(cardinality)).T)
    contrasts.flags.writeable = False
    return contrasts


@lru_cache(maxsize=256)
def _pairs_of_contrasts(number: int) -> tuple[Ints, Ints, Ints]:
    """Pairs of contrasts, each once, as the first and the second of all; and the pair of any two."""
    one, other = np.triu_indices(number)
    places = np.empty((number, number), np.int64)
    places[one, other] = places[other, one] = np.arange(len(one))
    return one, other, places


@dataclass(frozen=True, eq=False)
class Design:
    """Statistics of patterns and levels, which may be of less than full rank: products, of which few are written out.

    A table has columns (n, f) of its n cells; every pattern is in one of them. The tables of a part share contrasts
    (r, c) of the levels. The statistics of a part are the products of its columns and its contrasts, and its parameters
    are in the order of columns, then of contrasts.

    Attributes:
        cells: the cell that every pattern is in (P, T), of each table, counted through all tables.
        parts: tables and contrasts.
        weights: what the pattern counts there (P, T); one where there are none.
        never: levels (P, r) without probability; None for none.
    """

    cells: Ints
    parts: tuple[tuple[tuple[Floats, ...], Floats], ...]
    weights: Floats | None = None
    never: NDArray[np.bool_] | None = None

    def __add__(self, other: Design) -> Design:
        cells, weights = np.concatenate([self.cells, other.cells + self._ends[-1]], 1), None
        if self.weights is not None or other.weights is not None:
            both = [np.ones(one.cells.shape) if one.weights is None else one.weights for one in (self, other)]
            weights = np.concatenate(both, 1)
        return Design(cells, self.parts + other.parts, weights, self.never)

    def of_seen(self, counts: Floats, is_given: NDArray[np.bool_]) -> Design:
        """The same without levels that no row has in a cell of a table that is given, as counted (P, r).

        Their estimates are infinite, so that steps towards them never end.
        """
        tables = [columns for given, _ in self.parts for columns in given]
        cells = np.repeat(is_given, [len(columns) for columns in tables])[:, None]
        is_empty = (self._by_cell @ counts == 0) & cells
        return replace(self, never=self._places @ is_empty.astype(np.float64) > 0) if is_empty.any() else self

    def law(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Probabilities of levels (P, r), and the logarithms of the sums that divide them (P,)."""
        eta = self.scores(parameters)
        if self.never is not None:
            eta[self.never] = -math.inf
        most = reduce(np.maximum, eta.T)[:, None]
        parts = np.exp(eta - most)
        sums = _by_pattern(parts)
        return parts / sums, (np.log(sums) + most)[:, 0]

    @cached_property
    def _ends(self) -> Ints:
        """First cell of every table, and the end."""
        return np.cumsum([0, *(len(columns) for tables, _ in self.parts for columns in tables)])

    @cached_property
    def _shapes(self) -> list[tuple[int, int]]:
        """Columns and contrasts of every part."""
        return [(sum(columns.shape[1] for columns in tables), c.shape[1]) for tables, c in self.parts]

    @cached_property
    def _places(self) -> csr_array:
        """Patterns by cells."""
        weights = np.ones(self.cells.shape) if self.weights is None else self.weights
        return csr_array(_entries(self.cells, weights), shape=(len(self.cells), int(self._ends[-1])))

    @cached_property
    def _by_cell(self) -> csc_array:
        """Cells by patterns."""
        return self._places.T

    @cached_property
    def _written(self) -> Floats | None:
        """The columns of all tables in every pattern (P, sum of f), where they are so few that this is faster."""
        tables = [columns for tables, _ in self.parts for columns in tables]
        most = _MOST_WRITTEN if self._is_dense else _WRITTEN
        if len(self.cells) * sum(columns.shape[1] for columns in tables) > most:
            return None
        parts = [columns[self.cells[:, t] - self._ends[t]] for t, columns in enumerate(tables)]
        if self.weights is not None:
            parts = [part * self.weights[:, t, None] for t, part in enumerate(parts)]
        return np.concatenate(parts, 1)

    @cached_property
    def _is_dense(self) -> bool:
        """Whether tables have few columns, as those of variables of two levels."""
        return sum(num for num, _ in self._shapes) <= _DENSE * self.cells.shape[1]

    @cached_property
    def _pairs(self) -> csc_array:
        """Pairs of cells of one pattern, half of a cell with itself, by patterns."""
        first, second = np.triu_indices(self.cells.shape[1])
        num, size = len(self.cells), int(self._ends[-1])
        cells = self.cells.astype(np.int32 if size**2 < 2**31 else np.int64)
        weights = np.broadcast_to(np.where(first == second, 0.5, 1.0), (num, len(first)))
        if self.weights is not None:
            weights = self.weights[:, first] * self.weights[:, second] * weights
        return csc_array(_entries(cells[:, first] * size + cells[:, second], weights), shape=(size * size, num))

    def __len__(self) -> int:
        return sum(f * c for f, c in self._shapes)

    @property
    def is_large(self) -> bool:
        """Whether there are so many parameters that they are fitted roughly."""
        return is_large(len(self))

    @property
    def has_matrix(self) -> bool:
        """Whether there are so few parameters that a matrix of all of them is written."""
        return len(self) <= _WITH_MATRIX

    def _columns(self, by_cell: Floats) -> Floats:
        """Sums over cells, the first axis, times the columns of their tables."""
        tables = [columns for tables, _ in self.parts for columns in tables]
        flat = by_cell.reshape(len(by_cell), -1)
        sums = [columns.T @ flat[at : at + len(columns)] for columns, at in zip(tables, self._ends, strict=False)]
        return np.concatenate(sums).reshape(-1, *by_cell.shape[1:])

    def scores(self, parameters: Floats) -> Floats:
        """Sums of the statistics times parameters, (P, r)."""
        by_part: list[Floats] = []
        at = 0
        for (num, count), (_, contrasts) in zip(self._shapes, self.parts, strict=True):
            end = at + num * count
            by_part.append(parameters[at:end].reshape(num, count) @ contrasts.T)
            at = end
        by_column = by_part[0] if len(by_part) == 1 else np.concatenate(by_part)
        if self._written is not None:
            return self._written @ by_column
        by_cell, at = list[Floats](), 0
        for columns in (columns for tables, _ in self.parts for columns in tables):
            end = at + columns.shape[1]
            by_cell.append(columns @ by_column[at:end])
            at = end
        return self._places @ np.concatenate(by_cell)

    def image(self, totals: Floats, probs: Floats, parameters: Floats) -> Floats:
        """The product of the information with parameters, (q,)."""
        moves = probs * self.scores(parameters)
        moves -= probs * _by_pattern(moves)
        return self.totals(totals[:, None] * moves)

    def diagonal(self, totals: Floats, probs: Floats) -> Floats:
        """That of the information (q,), where no pattern has a weight."""
        sums, ends = list[Floats](), iter(self._ends)
        for tables, contrasts in self.parts:
            spread = totals[:, None] * (probs @ contrasts**2 - (probs @ contrasts) ** 2)
            by_cell = self._by_cell @ spread
            for columns, at in zip(tables, ends, strict=False):
                sums.append(((columns**2).T @ by_cell[at : at + len(columns)]).ravel())
        return np.concatenate(sums)

    def totals(self, weights: Floats) -> Floats:
        """Sums of the statistics (q,) over cells with weights (P, r)."""
        written, at = self._written, 0
        by_column = self._columns(self._by_cell @ weights) if written is None else written.T @ weights
        sums: list[Floats] = []
        for (num, _), (_, contrasts) in zip(self._shapes, self.parts, strict=True):
            sums.append((by_column[at : at + num] @ contrasts).ravel())
            at += num
        return np.concatenate(sums)

    def information(self, totals: Floats, probs: Floats) -> Floats:
        """Covariance of the statistics (q, q), summed over rows: so many (P,) of every pattern."""
        # That of all contrasts of the levels, in every pattern and then in every pair of cells.
        num_levels = probs.shape[1]
        every = level_contrasts(num_levels)
        one, other, places = _pairs_of_contrasts(num_levels - 1)
        means = probs @ every
        covariance = totals[:, None] * (probs @ (every[:, one] * every[:, other]) - means[:, one] * means[:, other])
        # Sums of two columns, then all their contrasts beside each other, then those of the parts.
        written, size = self._written, int(self._ends[-1])
        num = 0 if written is None else written.size * len(one)
        if written is not None and (
            num * written.shape[1] < _PRODUCTS_OF_PAIRS or (self._is_dense and num <= _MOST_WRITTEN)
        ):
            sums = (written.T * covariance.T[:, None]) @ written
            result = sums[places].transpose(2, 0, 3, 1)
        else:
            sums = (self._pairs @ covariance).reshape(size, size, -1)
            sums = self._columns(np.ascontiguousarray(self._columns(sums + sums.swapaxes(0, 1)).swapaxes(0, 1)))
            result = sums[:, :, places].swapaxes(1, 2)
        wide = len(result) * (num_levels - 1)
        result = result.reshape(wide, wide)
        if all(contrasts is every for _, contrasts in self.parts):
            return result
        return self._contrasted(self._contrasted(result, every).T, every)

    def _contrasted(self, sums: Floats, every: Floats) -> Floats:
        """Sums over columns and all contrasts of the levels, the first axis, as those of the contrasts of the parts."""
        at, rows = 0, list[Floats]()
        for (num, count), (_, contrasts) in zip(self._shapes, self.parts, strict=True):
            end = at + num * every.shape[1]
            rows.append(sums[at:end])
            if contrasts is not every:
                block = (contrasts.T @ every) @ rows[-1].reshape(num, every.shape[1], -1)
                rows[-1] = block.reshape(num * count, -1)
            at = end
        return np.concatenate(rows)


def _entries(cells: Ints, weights: Floats) -> tuple[Floats, Ints, Ints]:
    """What a sparse array of cells (P, n) by patterns is made of."""
    num, width = cells.shape
    return weights.ravel(), cells.ravel(), np.arange(0, num * width + 1, width, dtype=cells.dtype)


@dataclass(frozen=True, eq=False)
class Maximum:
    """A fit of parameters (q,) to the statistics of patterns, where levels were counted (P, r)."""

    design: Design
    counts: Floats
    parameters: Floats
    probs: Floats  # of the levels in every pattern (P, r)
    value: float  # the log-likelihood, without the ridge
    penalised: float  # less the ridge
    known: tuple[Floats, Floats] | None = None  # the eigenvalues and eigenvectors, where they were found before

    @classmethod
    def of(
        cls, design: Design, counts: Floats, parameters: Floats, value: float, eigen: tuple[Floats, Floats] | None
    ) -> Self:
        """A fit that was found before, with the same statistics for patterns that may be divided further."""
        return cls(design, counts, parameters, design.law(parameters)[0], value, value, eigen)

    @cached_property
    def eigen(self) -> tuple[Floats, Floats]:
        """Eigenvalues and eigenvectors of the information."""
        if self.known is not None:
            return self.known
        values, vectors = np.linalg.eigh(self.design.information(self.counts.sum(1), self.probs))
        return values, vectors

    def tilted(self, direction: Design, target: float, promise: float) -> tuple[float, float, float] | None:
        """The fit with one more statistic, whose total is ``target`` in place of the one seen.

        Returns what the log-likelihood rises by, the parameter of the statistic, and the root of the ratio of the
        determinants of both informations. Parameters of infinite estimates stay. The target must lie between the total
        seen and its expectation in this fit. None where that is sure to bring less than ``promise``.
        """
        # What the statistic varies by beside the others.
        totals, (values, vectors) = self.counts.sum(1), self.eigen
        is_moving = values > _FLAT
        values, vectors, design = values[is_moving], vectors[:, is_moving], self.design + direction
        image = design.image(totals, self.probs, np.append(np.zeros(len(self.parameters)), 1.0))
        shared, expected = vectors.T @ image[:-1], float(direction.totals(totals[:, None] * self.probs)[0])
        spread = float(image[-1] - shared @ (shared / values))
        if not spread > _FLAT * image[-1] or _most_gain(target, expected, spread) < promise:
            return None

        # Newton's steps, each by conjugate gradients on the curvature divided by that of this fit.
        def divided(slope: Floats) -> Floats:
            last = (slope[-1] - shared @ (slope[:-1] / values)) / spread
            return np.append((slope[:-1] - shared * last) / values, last)

        def step(slope: Floats, probs: Floats) -> Floats:
            def curved(move: Floats) -> Floats:
                image = design.image(totals, probs, np.append(vectors @ move[:-1], move[-1]))
                return np.append(vectors.T @ image[:-1], image[-1])

            move = _conjugate_gradients(curved, divided, np.append(vectors.T @ slope[:-1], slope[-1]))
            return np.append(vectors @ move[:-1], move[-1])

        seen, start = np.append(self.design.totals(self.counts), target), np.append(self.parameters, 0.0)
        parameters, probs, value = _climbed(design, totals, seen, 0.0, start, step)
        # Of the information there, the part of the others is that of their own statistics.
        image = design.image(totals, probs, np.append(np.zeros(len(self.parameters)), 1.0))
        shared, with_it = vectors.T @ image[:-1], vectors.T @ self.design.information(totals, probs) @ vectors
        others = np.linalg.slogdet(with_it)[1] - np.log(values).sum()
        ratio = others + math.log(max(float(image[-1] - shared @ np.linalg.solve(with_it, shared)), 1e-300))
        return value - self.value, float(parameters[-1]), math.exp(min(ratio, 1400.0) / 2)

    def score_of_large(self, added: Design, both: Floats | None, least: float) -> float:
        """The score test of further statistics by the information of all, or as products approach it from below.

        By products it is rough where it stays far below ``least``.
        """
        design, totals, score = self.design + added, self.counts.sum(1), 0.0
        slope = design.totals(self.counts - totals[:, None] * self.probs)
        if both is not None:
            return float(slope @ _raised_step(both.copy(), _FLAT, slope))
        for nearly in (_CLOSE, _SCORED):
            score = float(slope @ _solved_by_products(design, totals, self.probs, 0.0, slope, (nearly, nearly)))
            if score < _FAR * least:
                break
        return score

    def score_statistic(self, added: Design, both: Floats) -> float:
        """The score test of further statistics: chi-square of as many degrees of freedom in the limit.

        Parameters of infinite estimates stay, and directions without information do not count, of which rounding would
        decide; that makes the statistic no larger. ``both`` is the information of all statistics in this fit.
        """
        totals, num, (values, vectors) = self.counts.sum(1), len(self.design), self.eigen
        excess = added.totals(self.counts - totals[:, None] * self.probs)
        is_moving = values > _FLAT
        shared = vectors[:, is_moving].T @ both[:num, num:]
        adjusted = both[num:, num:] - shared.T @ (shared / values[is_moving, None])
        values, vectors = np.linalg.eigh(adjusted)
        return float(((excess @ vectors[:, values > _FLAT]) ** 2 / values[values > _FLAT]).sum())


def maximised(
    design: Design,
    counts: Floats,
    ridge: float | Floats = 0.0,
    start: Floats | None = None,
    curvature: Floats | None = None,
    until: float = math.inf,
) -> Maximum:
    """The parameters of highest likelihood less half the ridge (of all, or of each) times their squares.

    ``curvature`` is the information at the start, where it is known; a value of ``until`` is enough. Of more than
    1,000 parameters steps are found by products with the information alone.
    """
    totals, seen = counts.sum(1), design.totals(counts)
    start = np.zeros(len(design)) if start is None else start
    known = [] if curvature is None else [curvature.copy()]

    def step(slope: Floats, probs: Floats) -> Floats:
        if not design.has_matrix:
            return _solved_by_products(design, totals, probs, ridge, slope, (_ROUGHLY, _CLOSE))
        return _raised_step(known.pop() if known else design.information(totals, probs), ridge, slope)

    enough = _ENOUGH if design.is_large else _DONE
    solution, probs, value = _climbed(design, totals, seen, ridge, start, step, until, enough)
    return Maximum(design, counts, solution, probs, value + float(solution @ (ridge * solution)) / 2, value)


def _solved_by_products(
    design: Design, totals: Floats, probs: Floats, ridge: float | Floats, slope: Floats, nearly: tuple[float, float]
) -> Floats:
    """The step of a slope by conjugate gradients, to shares of what it brings that differ below and above a nat."""
    diagonal = design.diagonal(totals, probs) + ridge + _FLAT
    return _conjugate_gradients(
        lambda move: design.image(totals, probs, move) + ridge * move, lambda rest: rest / diagonal, slope, nearly
    )


def _raised_step(curvature: Floats, ridge: float | Floats, slope: Floats) -> Floats:
    """The step of a slope by a curvature, raised by a ridge and rounding's share for designs of less than full rank."""
    diagonal = np.einsum("ii->i", curvature)
    diagonal += ridge
    diagonal += _RANK * max(float(diagonal.max(initial=0.0)), _FLAT)
    return _solved(curvature, slope)


def _solved(curvature: Floats, slope: Floats) -> Floats:
    """The step of a slope by a symmetric matrix (q, q), also where rounding left it not positive."""
    _, step, status = _solve_positive(curvature.T, slope)
    return np.asarray(np.linalg.solve(curvature, slope) if status else step, np.float64)


def evidence_strength(
    design: Design, counts: Floats, is_random: NDArray[np.bool_], ridge: float
) -> tuple[float, Floats]:
    """The ridge of some parameters that their evidence chooses, beside a given one of the others, and the last fit.

    Steps of MacKay: the number of parameters that the rows determine over the squared length of all.
    """
    totals, strength, solution = counts.sum(1), _FIRST, None
    for _ in range(_EVIDENCE_STEPS):
        ridges = np.where(is_random, strength, ridge)
        fit = maximised(design, counts, ridges, solution)
        solution = fit.parameters
        curvature = design.information(totals, fit.probs) + np.diag(ridges)
        determined = is_random.sum() - strength * np.linalg.inv(curvature).diagonal()[is_random].sum()
        strength = float(np.clip(determined / max(float((solution[is_random] ** 2).sum()), 1e-300), *_STRENGTHS))
    assert solution is not None
    return strength, solution


def _climbed(
    design: Design,
    totals: Floats,
    seen: Floats,
    ridge: float | Floats,
    start: Floats,
    newton: Callable[[Floats, Floats], Floats],
    until: float = math.inf,
    enough: float = _DONE,
) -> tuple[Floats, Floats, float]:
    """Parameters, probabilities and the objective there, by steps, halved or doubled where that is better.

    ``newton`` makes a step of a slope and probabilities; an objective of ``until`` is enough, and so is where another
    step brings less than ``enough``.
    """

    def objective(parameters: Floats, log_sums: Floats) -> float:
        return float(parameters @ (seen - ridge * parameters / 2) - totals @ log_sums)

    solution = start
    probs, log_sums = design.law(solution)
    value = objective(solution, log_sums)
    for _ in range(_STEPS):
        check_time()
        slope = seen - design.totals(totals[:, None] * probs) - ridge * solution
        step = newton(slope, probs)
        gain = float(slope @ step) / 2
        if not gain > 0:
            break
        for _ in range(_HALVINGS):
            trial = solution + step
            law, log_sums = design.law(trial)
            new = objective(trial, log_sums)
            if new >= value:
                break
            step = step / 2
        else:
            break
        # Infinite estimates are as many steps away as their information has powers of e: longer ones get there.
        for _ in range(_DOUBLINGS if new - value > _CURVED * max(gain, enough) else 0):
            step = 2 * step
            further, log_sums = design.law(solution + step)
            newer = objective(solution + step, log_sums)
            if newer <= new:
                break
            trial, law, new = solution + step, further, newer
        rise, value, solution, probs = new - value, new, trial, law
        if gain < enough or rise < enough or value >= until:
            break
    return solution, probs, value


def _conjugate_gradients(
    curved: Callable[[Floats], Floats],
    divided: Callable[[Floats], Floats],
    slope: Floats,
    nearly: tuple[float, float] = (_NEARLY, _NEARLY),
) -> Floats:
    """The step of a slope by products with the curvature, preconditioned.

    It ends where the last product brings no more than a share of what all have, the first of ``nearly`` where that is
    above a nat.
    """
    residual, move, direction, gain = slope, np.zeros_like(slope), divided(slope), 0.0
    inner = float(residual @ direction)
    for _ in range(_PRODUCTS):
        image = curved(direction)
        size = float(direction @ image)
        if not size > _RANK * inner:
            break
        move, residual = move + (inner / size) * direction, residual - (inner / size) * image
        rise = inner / 2 * (inner / size)
        gain += rise
        if rise < nearly[gain < 1] * gain:
            break
        again = divided(residual)
        before, inner = inner, float(residual @ again)
        direction = again + (inner / before) * direction
    return move


def _most_gain(target: float, expected: float, spread: float) -> float:
    """More nats than a total that has come from its expectation to a target brings, of variables such as counts.

    Of Poisson and binomial ones the larger of two figures is within two thirds of it: that of the normal law, and that
    of the Poisson law with as many events as have this spread.
    """
    poisson = (target * math.log(target / expected) - target + expected) * expected / spread if expected > 0 else 0.0
    return 2 * max(poisson, (target - expected) ** 2 / (2 * spread))


def _by_pattern(values: Floats) -> Floats:
    """Sums over levels (P, 1), which are so few that NumPy's own sum takes ten to forty times as long."""
    return values @ np.ones((values.shape[1], 1))
