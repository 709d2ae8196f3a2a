"""One l1-penalised root regression: working set, proximal Newton steps, a scan of all features as certificate."""

import itertools
import math
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from ...core.words import in_python, option
from ._kernels import scan_pairs, scan_singles, scan_tuples, screened_columns
from ._regression import Floats, Groups, Integers, Point, Status, WorkingSet, newton, published_newton, units
from .options import RootSettings, SearchSpace
from .rows import RootRows


def advice(status: str, penalties: str, is_full: bool) -> str:
    """What helps a search that stopped with a status and has not converged; names the arguments that penalise."""
    if status != "stalled":
        return f"raise {penalties}{in_python(', tolerance or max_iterations')}"
    lower = f", or leave out {option('full', True)}" if is_full else ""
    others = "; a larger tolerance helps against rounding alone, and more iterations do not help"
    return (
        f"rounding, or the edge of the family's domain, stops the line search: raise {penalties}{lower}"
        f"{in_python(others)}"
    )


class Outcome(NamedTuple):
    """How a node's regression ended."""

    objective: float
    residual: float
    num_steps: int
    num_scans: int
    seconds: float
    status: Status


@dataclass(frozen=True, eq=False)
class NodeSolution:
    """Solution of one node's regression.

    Keys (j, l) of each feature (F, 2), with the positions of the other variables (F, width), -1 behind the last; the
    constant of key (1, 1) comes first, of the others only nonzero coefficients are kept, in the units of the rows. The
    node itself is at ``own`` (F,); a category is at the place of each of its contrasts, with a constant for each, and
    has whole groups. The outcome is as in :class:`~pyro_hoim.generalized_root.RootNodeResult`.
    """

    keys: Integers
    own: Integers
    others: Integers
    coefficients: Floats
    outcome: Outcome


class _NodeSolver:
    def __init__(self, rows: RootRows, node: int, space: SearchSpace, settings: RootSettings) -> None:
        self.rows, self.node, self.space, self.settings = rows, node, space, settings
        self.width = space.width
        orders = np.array([j - 1 for j, size in space.keys if size == 1])
        if node in rows.category_of:  # one constant for each contrast
            orders = np.arange(rows.num_statistics(node))
        self.num_constants = self.first_key = len(orders)
        l1 = np.zeros(len(orders)) if rows.categories else np.array(space.l1[: self.num_constants])  # else by groups
        self.working = WorkingSet(rows, node, orders, l1, self.width)
        if settings.objective == "upper-bound":
            self.working.num_subdomains = settings.num_subdomains
        self.steps = self.scans = 0
        self.status: Status = "converged"

    def scan(
        self, point: Point, slack: float, is_whole: bool = False
    ) -> tuple[tuple[Integers, Integers, Floats], float]:
        """What is outside the working set and has a gradient beyond (1 - slack) x penalty: key, others, and the excess.

        Larger sizes wait for smaller ones that are far off, unless the scan is to be whole.
        """
        self.scans += 1
        residuals = self.working.residuals(point)
        # Key by key, smaller sizes first.
        of_keys = [(np.empty(0, np.int64), np.empty((0, self.width), np.int64), np.empty(0))]
        worst, worst_share, last_size = 0.0, 0.0, 1
        for index in range(self.first_key, len(self.space.keys)):
            size = self.space.keys[index][1]
            if size > last_size and worst_share > 0.1 and not is_whole:
                worst = np.inf
                break
            last_size = size
            others, excess, top, share = self._violating(index, residuals, slack)
            if len(excess):
                worst, worst_share = max(worst, top), max(worst_share, share)
                of_keys.append((np.full(len(excess), index), others, excess))
        keys, others, excess = (np.concatenate(parts) for parts in zip(*of_keys, strict=True))
        return (keys, others, excess), worst

    def _violating(self, index: int, residuals: Floats, slack: float) -> tuple[Integers, Floats, float, float]:
        """Features of one key, by how much they violate their condition, the most in units, and as a share of it."""
        (j, size), penalty = self.space.keys[index], self.space.l1[index]
        others, gradients = self._scan_key(j, size, np.ascontiguousarray(residuals[:, j - 1]), penalty * (1 - slack))
        keep = [i for i, o in enumerate(others.tolist()) if (index, *o) not in self.working.members]
        others, excess = others[keep], np.abs(gradients[keep]) - penalty
        top = float((excess / self._units(j, size, others)).max()) if len(excess) else 0.0
        return others, excess, top, top / penalty if penalty else np.inf

    def _units(self, j: int, size: int, others: Integers) -> Floats:
        """Units of the subgradients of features outside the working set."""
        working, largest = self.working, self.rows.largest_roots[j - 1]
        if abs(working.targets[:, j - 1]).mean() * largest ** (size - 1) < 1e4:
            return np.ones(len(others))
        orders, sizes = np.full(len(others), j - 1), np.full(len(others), size - 1)
        return units(working.linear_terms(working.columns(orders, sizes, others), orders))

    def _scan_key(self, j: int, size: int, residual: Floats, threshold: float) -> tuple[Integers, Floats]:
        rows = self.rows
        # Listed sets one by one; pairs and triples by passes over the sparse rows.
        listed = self.space.others(size, self.node)
        if listed is not None:
            gradients = np.empty(len(listed))
            scan_tuples(rows.indptr, rows.rows, rows.roots[j - 1], rows.num_rows, listed, residual, gradients)
            keep = np.flatnonzero(np.abs(gradients) > threshold)
            tuples, gradients = listed[keep], gradients[keep]
        elif size == 2:
            gradients = np.empty(len(rows.domain))
            scan_singles(rows.indptr, rows.rows, rows.roots[j - 1], residual, gradients)
            gradients[self.node] = 0.0
            keep = np.flatnonzero(np.abs(gradients) > threshold)
            tuples, gradients = keep[:, None], gradients[keep]
        else:
            ends, columns, roots, candidates = screened_columns(
                rows.row_end, rows.columns, rows.row_roots[j - 1], residual, len(rows.domain), self.node, threshold
            )
            first, second, gradients = scan_pairs(
                ends, columns, roots, residual, max(1, len(candidates)), -1, threshold
            )
            tuples = candidates[np.stack([first, second], 1)]
        # No feature holds a column that is fixed.
        if rows.is_fixed.any():
            keep = np.flatnonzero(~rows.is_fixed[tuples].any(1))
            tuples, gradients = tuples[keep], gradients[keep]
        if rows.families.common is None:
            has_root = rows.has_root(self.node, tuples, j)
            tuples, gradients = tuples[has_root], gradients[has_root]
        padded = np.full((len(tuples), self.width), -1, np.int64)
        padded[:, : size - 1] = tuples
        return padded, gradients

    def add(self, keys: Integers, others: Integers) -> None:
        """Add features to the working set."""
        # Features by their keys in the search space.
        orders = np.array([self.space.keys[k][0] - 1 for k in keys], dtype=np.int64)
        sizes = np.array([self.space.keys[k][1] - 1 for k in keys], dtype=np.int64)
        l1 = np.array([self.space.l1[k] for k in keys], dtype=np.float64)
        self.working.add(keys, orders, sizes, others, l1)

    def extend(self, point: Point, keys: Integers, others: Integers) -> Point:
        """The point with further features, whose coefficients are 0."""
        before = self.working.row_map
        self.add(keys, others)
        return self.working.extended(point, before)

    def solve(self, warm: NodeSolution | None, slack: float) -> tuple[Point, float]:
        tolerance = self.settings.tolerance
        working = self.working
        # The base family's own parameters; further constants 0.
        start = np.zeros(self.num_constants)
        alone = self.rows.start_alone(self.node, working.means)
        start[: len(alone)] = alone
        point = working.point(start)
        # A warm start brings its features along, and what the strong rule adds to them.
        if warm is not None:
            keys, others, start, coefficients = self._warm_groups(warm)
            self.add(keys, others)
            point = working.point(np.concatenate([start, coefficients]))
            (keys, others, _), _ = self.scan(point, slack)
            if len(keys):
                point = self.extend(point, keys, others)
        if self.settings.stop == "published":
            # The rule of the authors looks at every feature before each step.
            def extend(at: Point) -> Point:
                (keys, others, excess), _ = self.scan(at, 0.0, is_whole=True)
                is_over = excess > 0.0
                return self.extend(at, keys[is_over], others[is_over]) if is_over.any() else at

            end = published_newton(self.working, point, extend, self.settings.max_iterations)
            self.steps, self.status = end.num_steps, end.status
            _, outside = self.scan(end.point, 0.0, is_whole=True)
            return end.point, max(float(self.working.violations(end.point).max()), outside)
        # Newton steps only as exact as the scan between them is worth, until both agree.
        goal = max(0.5 * tolerance, 0.1 * max(self.space.l1, default=0.0))
        while True:
            end = newton(working, point, goal, self.settings.max_iterations - self.steps)
            self.steps, point = self.steps + end.num_steps, end.point
            self.status = end.status
            inside = float(working.violations(point).max())
            (keys, others, excess), outside = self.scan(point, 0.0)
            is_over = self.status == "max_iterations" or (self.status == "stalled" and not len(keys))
            if inside <= tolerance and outside <= tolerance:
                self.status = "converged"  # though rounding may have stopped steps beyond the tolerance
                is_over = True
            if is_over:
                return point, max(inside, outside)
            self.status = "converged"  # rounding that stops a search may not stop that of more features
            if len(keys):
                most = max(50, len(working) // 2)
                chosen = np.sort(np.argsort(-excess, kind="stable")[:most])
                point = self.extend(point, keys[chosen], others[chosen])
            if not np.isinf(outside):
                goal = min(goal, max(0.5 * tolerance, 0.02 * outside))

    def _warm_groups(self, warm: NodeSolution) -> tuple[Integers, Integers, Floats, Floats]:
        """Keys and others of the features of a solution, the coefficients of its constants, and theirs."""
        index = {key: i for i, key in enumerate(self.space.keys)}
        keys = np.array([index[j, size] for j, size in warm.keys.tolist()], dtype=np.int64)
        is_constant = keys < self.num_constants
        start = np.zeros(self.num_constants)
        start[keys[is_constant]] = warm.coefficients[is_constant]
        others = np.full((len(keys), self.width), -1, np.int64)
        others[:, : warm.others.shape[1]] = warm.others
        return keys[~is_constant], others[~is_constant], start, warm.coefficients[~is_constant]

    def solution(self, point: Point, outcome: Outcome) -> NodeSolution:
        """What is not zero, sorted by key and variables, with the first constant in any case."""
        working = self.working
        keep = np.flatnonzero((point.coefficients != 0) | (np.arange(len(working)) == 0))
        order = keep[np.lexsort((*working.others[keep].T[::-1], working.keys[keep]))]
        keys = np.array(self.space.keys, dtype=np.int64)[working.keys[order]]
        members = np.full(len(order), self.node)
        return NodeSolution(keys, members, working.others[order], point.coefficients[order], outcome)


class _GroupSolver(_NodeSolver):
    """The regression of a node where some column is a category: what one set of columns adds enters together."""

    def __init__(self, rows: RootRows, node: int, space: SearchSpace, settings: RootSettings) -> None:
        super().__init__(rows, node, space, settings)
        self.unit = int(rows.unit_of[node])
        self.is_category = node in rows.category_of
        self.num_statistics = rows.num_statistics(node) if self.is_category else 1
        self.first_key = sum(size == 1 for _, size in space.keys)
        self.sizes = np.array([len(columns) for columns in rows.features])  # of the groups of single columns
        # Groups of the working set: key and units of every one, and where they begin.
        self.sets: list[tuple[int, ...]] = []
        self.starts, self.penalties = list(range(self.num_constants + 1)), [0.0] * self.num_constants
        if not self.is_category:
            self.penalties = list(space.l1[: self.num_constants])
        self._regroup()

    def _regroup(self) -> None:
        self.working.groups = Groups(np.array(self.starts, dtype=np.int64), np.array(self.penalties))

    def penalty(self, key: int, size: float) -> float:
        """What the norm of a group of so many coefficients costs."""
        return self.space.l1[key] * math.sqrt(size)

    @override
    def _violating(self, index: int, residuals: Floats, slack: float) -> tuple[Integers, Floats, float, float]:
        j, size = self.space.keys[index]
        sets, norms = self._norms(j, size, residuals)
        penalties = self.space.l1[index] * np.sqrt(np.prod(self.sizes[sets], 1) * self.num_statistics)
        padded = np.full((len(sets), self.width), -1, np.int64)
        padded[:, : size - 1] = sets
        keep, members = np.flatnonzero(norms > penalties * (1 - slack)), set(self.sets)
        keep = np.array([i for i in keep.tolist() if (index, *padded[i].tolist()) not in members], dtype=np.int64)
        excess, penalties = norms[keep] - penalties[keep], penalties[keep]
        top = int(excess.argmax()) if len(keep) else 0
        most = float(excess[top]) if len(keep) else 0.0
        return padded[keep], excess, most, most / float(penalties[top]) if len(keep) and penalties[top] else np.inf

    def _norms(self, j: int, size: int, residuals: Floats) -> tuple[Integers, Floats]:
        """Sets of other units of one size (m, size - 1), and the norms of the gradients of their groups."""
        rows, unit_of, count = self.rows, self.rows.unit_of, len(self.rows.nodes)
        statistics = range(residuals.shape[1]) if self.is_category else [j - 1]
        listed = self.space.others(size, self.unit)
        squares: Floats = np.zeros(count ** min(size - 1, 2) if listed is None else len(listed))
        numbers, columns = np.empty(0, np.int64), np.empty((0, size - 1), np.int64)
        if listed is not None:
            combined = [list(itertools.product(*(rows.features[u] for u in some))) for some in listed.tolist()]
            numbers = np.repeat(np.arange(len(listed)), [len(some) for some in combined])
            columns = np.array(list(itertools.chain.from_iterable(combined)), dtype=np.int64).reshape(-1, size - 1)
        for a in statistics:
            residual = np.ascontiguousarray(residuals[:, a])
            if listed is not None:
                gradients = np.empty(len(columns))
                scan_tuples(rows.indptr, rows.rows, rows.roots[j - 1], rows.num_rows, columns, residual, gradients)
                squares += np.bincount(numbers, gradients**2, len(listed))
            elif size == 2:
                gradients = np.empty(len(unit_of))
                scan_singles(rows.indptr, rows.rows, rows.roots[j - 1], residual, gradients)
                squares += np.bincount(unit_of, gradients**2, count)
            else:
                first, second, gradients = scan_pairs(
                    rows.row_end, rows.columns, rows.row_roots[j - 1], residual, len(unit_of), -1, -1.0
                )
                low, high = np.sort([unit_of[first], unit_of[second]], axis=0)
                squares += np.bincount(low * count + high, gradients**2, count * count)
        # Sets of distinct units, none of them fixed or the node itself.
        if listed is None:
            sets = np.stack(np.unravel_index(np.arange(len(squares)), (count,) * (size - 1)), 1).astype(np.int64)
            is_set = (np.diff(sets, axis=1) > 0).all(1) & (sets != self.unit).all(1)
        else:
            sets, is_set = listed, np.ones(len(listed), dtype=bool)
        keep = np.flatnonzero(is_set & (self.sizes[sets] > 0).all(1))
        keep = keep[rows.has_root(self.node, np.array(rows.nodes)[sets[keep]], j)]
        return sets[keep], np.sqrt(squares[keep])

    @override
    def add(self, keys: Integers, others: Integers) -> None:
        """Add groups by key and units, and their features to the working set."""
        rows, features, places = self.rows, list[tuple[int, int, int]](), list[tuple[int, ...]]()
        for key, members in zip(keys.tolist(), others.tolist(), strict=True):
            j, size = self.space.keys[key]
            # Every product of the columns of the units, for every natural parameter of the node.
            inside = list(itertools.product(*(rows.features[u].tolist() for u in members[: size - 1])))
            orders = range(self.num_statistics) if self.is_category else [j - 1]
            for some, order in itertools.product(inside, orders):
                features.append((key, order, size))
                places.append((*some, *[-1] * (self.width - size + 1)))
            self.sets.append((key, *members))
            count = len(inside) * self.num_statistics
            self.starts.append(self.starts[-1] + count)
            self.penalties.append(self.penalty(key, count))
        # Features by their keys in the search space.
        keys, orders, sizes = np.array(features, dtype=np.int64).reshape(-1, 3).T
        roots = np.array([self.space.keys[key][0] - 1 for key in keys], dtype=np.int64)
        columns = np.array(places, dtype=np.int64).reshape(-1, self.width)
        self.working.add(keys, orders, sizes - 1, columns, np.zeros(len(keys)), roots)
        self._regroup()

    @override
    def _warm_groups(self, warm: NodeSolution) -> tuple[Integers, Integers, Floats, Floats]:
        """Keys and units of the groups of a solution, the coefficients of its constants, and those of the groups."""
        index = {key: i for i, key in enumerate(self.space.keys)}
        is_constant = warm.keys[:, 1] == 1
        start = np.zeros(self.num_constants)
        constants = range(self.num_constants) if self.is_category else [index[j, 1] for j in warm.keys[is_constant, 0]]
        start[list(constants)] = warm.coefficients[is_constant]
        groups: dict[tuple[int, ...], None] = {}
        for key, others in zip(warm.keys[~is_constant].tolist(), warm.others[~is_constant].tolist(), strict=True):
            units = [int(self.rows.unit_of[s]) for s in others if s >= 0]
            groups[index[tuple(key)], *units, *[-1] * (self.width - len(units))] = None
        table = np.array(list(groups), dtype=np.int64).reshape(-1, 1 + self.width)
        return table[:, 0], table[:, 1:], start, warm.coefficients[~is_constant]

    @override
    def solution(self, point: Point, outcome: Outcome) -> NodeSolution:
        """The constants and the groups that are not zero, sorted by key and units."""
        working, count = self.working, self.num_constants
        norms = working.groups.norms(point.coefficients)[count:] if working.groups is not None else np.empty(0)
        order = sorted(np.flatnonzero(norms > 0).tolist(), key=lambda g: self.sets[g])
        starts = self.starts[count:]
        constants = [i for i in range(count) if not self.penalties[i] or point.coefficients[i]]
        chosen = [constants, *(range(starts[g], starts[g + 1]) for g in order)]
        index = np.array(list(itertools.chain.from_iterable(chosen)), dtype=np.int64)
        category = self.rows.category_of.get(self.node)
        of_space = working.keys[index] if category is None else np.where(index < count, 0, working.keys[index])
        keys = np.array(self.space.keys, dtype=np.int64)[of_space]
        members = np.full(len(index), self.node)
        if category is not None:
            members = category.columns[working.orders[index]]
        return NodeSolution(keys, members, working.others[index], point.coefficients[index], outcome)


def solve_node(
    rows: RootRows,
    node: int,
    space: SearchSpace,
    settings: RootSettings,
    warm: NodeSolution | None = None,
    slack: float = 0.0,
) -> NodeSolution:
    """Minimise one node's penalised objective, from the solution of a related problem over the same keys where given.

    Then features whose gradient exceeds (1 - slack) x penalty enter at once (strong rule from a to b: a / b - 1).
    """
    start = time.perf_counter()
    solver = (_GroupSolver if rows.categories else _NodeSolver)(rows, node, space, settings)
    if rows.is_fixed_node(node):
        is_low = node in rows.category_of or rows.fixed_columns[rows.domain.names[node]] == 0.0 or rows.has_mean(node)
        edge = -np.inf if is_low else np.inf
        others = np.full((1, space.width), -1, np.int64)
        outcome = Outcome(0.0, 0.0, 0, 0, time.perf_counter() - start, "fixed")
        return NodeSolution(np.ones((1, 2), np.int64), np.array([node]), others, np.array([edge]), outcome)
    point, residual = solver.solve(warm, slack)
    seconds = time.perf_counter() - start
    return solver.solution(
        point, Outcome(point.objective, residual, solver.steps, solver.scans, seconds, solver.status)
    )
