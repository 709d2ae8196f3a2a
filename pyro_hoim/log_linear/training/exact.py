"""Training with exact gradients: maximum likelihood, with or without a ridge, where log Z is within reach."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Literal

import numpy as np
import torch
from typing_extensions import override

from ...core.partition import Cost, LogPartition, PartitionBackend
from ...core.trainer import Loss, Margins
from ...data.observations import Observations
from ...errors import IntractableError, out_of_reach, size_text
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..fitting.design import check_data
from ..fitting.objectives import BackendEngine
from ..fitting.solvers import Evaluate, HeldOut, Point
from .table_trainer import DescentTrainer, join_margins, margin_edges

# Log Z and all margins of a model over a small domain, in a few passes over its table of states.
#
# The sets of variables of a collection are joined two at a time, the pair with the smallest union first, until no two
# that are left have a variable in common: a tree whose leaves are the interactions and whose roots are the connected
# components of the model. Energies go up the tree by additions that broadcast, probabilities come down it by sums over
# axes. A pass over all the states happens only near the root, whatever the number of interactions.


class SweepPlan:
    """The tree of sums of one collection: where every node lies in the work space and in which steps it is filled.

    Nodes are bit masks over axes, numbered by increasing cardinality so that the innermost loops are long.
    """

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        cards = hypergraph.domain.cardinalities
        self.axes = tuple(sorted(range(len(cards)), key=lambda v: (cards[v], v)))
        self._sizes = [cards[v] for v in self.axes]
        self._cells: dict[int, int] = {}
        rank = {v: i for i, v in enumerate(self.axes)}
        # The tree of joins that fills the fewest cells.
        leaves = [sum(1 << rank[v] for v in edge) for edge in hypergraph.edge_indices]
        plans = [_join(leaves, self.cells, share) for share in (1e-9, -1.0)]  # the smallest union, the least growth
        joins = min(plans, key=lambda plan: sum(self.cells(up) for up, _ in plan))

        # Places in the work space, and steps from every node to its parent.
        self._places: dict[int, int] = {}
        for mask, where in zip(leaves, hypergraph.term_slices.values(), strict=True):
            self._places[mask] = where.start
        self.work_cells = hypergraph.num_terms
        self._steps: list[tuple[int, int, int, int, int, int]] = []
        self._filled = set(leaves)
        parent: dict[int, int] = {}
        for up, down in joins:
            parent[down] = up
            self._expand(down, up)
        self.steps = np.array(self._steps, dtype=np.int64).reshape(-1, 6)
        self.step_cells = sum(a * m * c for _, _, _, a, m, c in self._steps)

        # Roots are the components; each entry of the tables knows its own.
        roots = [mask for mask in dict.fromkeys([*leaves, *(up for up, _ in joins)]) if mask not in parent]
        self.roots = [(mask, self._places[mask], self.cells(mask)) for mask in roots]
        self.root_cells = sum(cells for _, _, cells in self.roots)
        number = {mask: i for i, mask in enumerate(roots)}
        component: list[int] = []
        self.first_leaf = [slice(0, 0)] * len(roots)
        for mask, where in zip(leaves, hypergraph.term_slices.values(), strict=True):
            top = mask
            while top in parent:
                top = parent[top]
            component.append(number[top])
            if self.first_leaf[number[top]] == slice(0, 0):
                self.first_leaf[number[top]] = where
        lengths = [where.stop - where.start for where in hypergraph.term_slices.values()]
        self.component = np.repeat(np.array(component, dtype=np.int64), lengths)
        # Variables without an interaction multiply Z.
        covered = reduce(int.__or__, leaves, 0)
        self.free_states = math.prod(n for i, n in enumerate(self._sizes) if not covered >> i & 1)
        # Place in the work space of every entry of the flat tables: the same tables with their axes in order of rank.
        self.order = np.empty(hypergraph.num_terms, dtype=np.int64)
        pieces = zip(hypergraph.edge_indices, hypergraph.edge_shapes, hypergraph.term_slices.values(), strict=True)
        for edge, shape, where in pieces:
            axes = sorted(range(len(edge)), key=lambda i: rank[edge[i]])
            stored = np.arange(where.start, where.stop).reshape([shape[i] for i in axes])
            self.order[where] = stored.transpose(np.argsort(axes)).reshape(-1)

    def cells(self, mask: int) -> int:
        """Number of cells of a node."""
        num_cells = self._cells.get(mask)
        if num_cells is None:
            num_cells = self._cells[mask] = math.prod(self._sizes[i] for i in axes_of_mask(mask))
        return num_cells

    def shape(self, mask: int) -> tuple[int, ...]:
        """Axis lengths of a node."""
        return tuple(self._sizes[i] for i in axes_of_mask(mask))

    def _place(self, mask: int) -> int:
        if mask not in self._places:
            self._places[mask] = self.work_cells
            self.work_cells += self.cells(mask)
        return self._places[mask]

    def _expand(self, down: int, up: int) -> None:
        """Steps from a node to its parent: one for every run of axes that it lacks, the shortest run first."""
        # Runs of axes that lie together in the parent.
        runs: list[int] = []
        open_run = False
        for i in axes_of_mask(up):
            if down >> i & 1:
                open_run = False
            elif open_run:
                runs[-1] |= 1 << i
            else:
                runs.append(1 << i)
                open_run = True
        runs.sort(key=self.cells)
        # One step a run; between two nodes there is room of its own.
        here, at = down, self._places[down]
        for run in runs:
            there = here | run
            if there == up:
                target, add = self._place(up), up in self._filled
                self._filled.add(up)
            else:  # between two nodes: a place of its own, whatever nodes there are
                target, add = self.work_cells, False
                self.work_cells += self.cells(there)
            low = (run & -run) - 1
            before, after = self.cells(there & low), self.cells(there & ~low & ~run)
            self._steps.append((int(add), target, at, before, self.cells(run), after))
            here, at = there, target


def axes_of_mask(mask: int) -> list[int]:
    """Numbers of the axes of a mask, increasing."""
    axes: list[int] = []
    while mask:
        low = mask & -mask
        axes.append(low.bit_length() - 1)
        mask ^= low
    return axes


def _join(leaves: Sequence[int], cells: Callable[[int], int], share: float) -> list[tuple[int, int]]:
    """Arcs (parent, child) of the tree, every child before its parent becomes a child; pairs of least cells first.

    Counted are the cells of the union and that share of those of both.
    """
    arcs: list[tuple[int, int]] = []
    active: set[int] = set()
    for mask in sorted(leaves, key=lambda m: (m.bit_count(), m)):
        larger = [m for m in leaves if m != mask and m & mask == mask]
        if larger:
            arcs.append((min(larger, key=lambda m: (cells(m), m)), mask))
        else:
            active.add(mask)
    heap: list[tuple[float, int, int, int]] = []

    def offer(first: int, second: int) -> None:
        if first & second:
            union = first | second
            heapq.heappush(heap, (cells(union) + share * (cells(first) + cells(second)), union, first, second))

    # Every pair of sets that have a variable in common, the cheapest union first.
    ordered = sorted(active)
    for i, first in enumerate(ordered):
        for second in ordered[:i]:
            offer(first, second)
    while heap:
        _, union, first, second = heapq.heappop(heap)
        if first not in active or second not in active:
            continue
        active -= {first, second}
        # A third node inside the union is joined at once: it costs no larger table.
        inside = sorted(m for m in active if m & union == m and m != union)
        active.difference_update(inside)
        arcs.extend((union, m) for m in (first, second, *inside) if m != union)
        for other in sorted(active):
            if other != union:
                offer(union, other)
        active.add(union)
    return arcs


@lru_cache(maxsize=16)
def sweep_plan(hypergraph: InteractionHypergraph) -> SweepPlan:
    """The :class:`SweepPlan` of a hypergraph; equal hypergraphs share one."""
    return SweepPlan(hypergraph)


# Exact log Z, eta and margins of tables: by the dense sweep, or by a partition backend.

DENSE_CELLS = 2**22
"""Largest number of cells of the tables of states of all components together that a dense sweep may form."""

_SMALL_CELLS = 2**14
_ELIMINATION_OVERHEAD = 8.0  # time of a cell in elimination, through autograd, relative to a cell of the sweep


class _Law:
    """Margins of independent components by successive sums, every intermediate one kept."""

    def __init__(self, cardinalities: Sequence[int], components: list[tuple[tuple[int, ...], np.ndarray]]) -> None:
        self._cardinalities = cardinalities
        self._home = {v: number for number, (axes, _) in enumerate(components) for v in axes}
        self._known: list[dict[tuple[int, ...], np.ndarray]] = []
        for axes, table in components:
            order = sorted(range(len(axes)), key=axes.__getitem__)
            self._known.append({tuple(sorted(axes)): table.transpose(order)})

    def __call__(self, edge: tuple[int, ...]) -> np.ndarray:
        """Joint law of increasing schema positions."""
        parts: dict[int, list[int]] = {}
        result = np.ones([1] * len(edge))
        for v in edge:
            if v in self._home:
                parts.setdefault(self._home[v], []).append(v)
            else:
                result = result / self._cardinalities[v]
        for number, members in parts.items():
            known, wanted = self._known[number], tuple(members)
            if wanted not in known:
                inside = set(wanted)
                source = min((axes for axes in known if inside <= set(axes)), key=lambda axes: known[axes].size)
                for gone in sorted(set(source) - inside, key=lambda v: -self._cardinalities[v]):
                    rest = tuple(v for v in source if v != gone)
                    if rest not in known:
                        known[rest] = known[source].sum(source.index(gone))
                    source = rest
            table = known[wanted]
            result = result * table.reshape([self._cardinalities[v] if v in members else 1 for v in edge])
        return np.broadcast_to(result, [self._cardinalities[v] for v in edge])


class DenseEngine:
    r"""The table of states of every component, formed once per evaluation: one way up and one down the tree of sums.

    .. math:: \log Z = \log \sum_x \exp \sum_S \theta^S_{x_S}, \qquad \eta^S_{x_S} = \sum_{x_{-S}} q(x)

    Entries of minus infinity exclude the states that they belong to; where a table holds NaN, log Z is NaN.
    """

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        self.hypergraph = hypergraph
        self._plan = sweep_plan(hypergraph)
        self._work = np.empty(self._plan.work_cells)
        self._totals = np.ones(len(self._plan.roots))
        self._law: tuple[np.ndarray, _Law] | None = None

    def evaluate(self, tables: np.ndarray) -> tuple[float, np.ndarray]:
        """Log Z in nats and eta (num_terms,) of tables (num_terms,)."""
        from ._dense_kernels import gather_down, scatter_up

        # Up the tree energies are added.
        plan, work = self._plan, self._work
        work[plan.order] = tables
        scatter_up(plan.steps, work)
        log_z = math.log(plan.free_states)
        # Over all the states of a component they are exponentiated, relative to the largest.
        for _, start, cells in plan.roots:
            root = work[start : start + cells]
            top = float(root.max())
            if not math.isfinite(top):
                return (top if top == -math.inf else math.nan), np.full(len(tables), math.nan)
            np.subtract(root, top, out=root)
            np.exp(root, out=root)
            log_z += top
        # Down the tree probabilities are summed.
        gather_down(plan.steps, work)
        for number, leaf in enumerate(plan.first_leaf):
            self._totals[number] = work[leaf].sum()
        log_z += float(np.log(self._totals).sum())
        return log_z, work[plan.order] / self._totals[plan.component]

    def log_partition(self, tables: np.ndarray) -> LogPartition:
        """Log Z and what it cost."""
        plan = self._plan
        cells = max((cells for _, _, cells in plan.roots), default=1)
        flops = plan.step_cells + 3 * plan.root_cells
        reason = f"{plan.root_cells} states in {len(plan.roots)} components, within {DENSE_CELLS}"
        cost = Cost(cells, plan.work_cells, flops, 8 * plan.work_cells, True, reason, "dense sweep")
        return LogPartition.exact(torch.tensor(self.evaluate(tables)[0], dtype=torch.float64), cost)

    def margins(self, tables: np.ndarray, edges: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Laws over sets of variables, given by increasing schema positions; axes in that order."""
        if self._law is None or not np.array_equal(self._law[0], tables):
            self.evaluate(tables)
            parts: list[tuple[tuple[int, ...], np.ndarray]] = []
            for total, (mask, start, cells) in zip(self._totals, self._plan.roots, strict=True):
                axes = tuple(self._plan.axes[i] for i in axes_of_mask(mask))
                law = self._work[start : start + cells] / total
                parts.append((axes, law.reshape(self._plan.shape(mask))))
            self._law = (tables.copy(), _Law(self.hypergraph.domain.cardinalities, parts))
        return [self._law[1](edge) for edge in edges]


Engine = DenseEngine | BackendEngine
"""Log Z and its derivative for one collection."""


def choose_engine(hypergraph: InteractionHypergraph, partition: PartitionBackend | None = None) -> Engine:
    """The cheapest exact way, by cells to be formed; the backend given, where one is."""
    if partition is not None:
        partition.plan(hypergraph).check()
        return BackendEngine(hypergraph, partition)
    # The union of a component's variables is at most the domain, so small domains need no look at the components.
    cells = sum(math.prod(hypergraph.domain[name].cardinality for name in part) for part in hypergraph.components())
    if cells > DENSE_CELLS:
        try:
            Auto().plan(hypergraph).check()
        except IntractableError as error:
            problem = f"a dense sweep needs {size_text(cells, 'cells')}, the budget is {DENSE_CELLS}; {error.problem}"
            raise out_of_reach("hypergraph", problem, error.hint) from error
        return BackendEngine(hypergraph, Auto())
    if cells > _SMALL_CELLS:
        cost = Auto().plan(hypergraph)
        is_eliminated = cost.feasible and cost.method not in ("enumeration", "design matrix")
        if is_eliminated and _ELIMINATION_OVERHEAD * cost.total_cells < sweep_plan(hypergraph).step_cells:
            return BackendEngine(hypergraph, Auto())
    return DenseEngine(hypergraph)


class ExactTrainer(DescentTrainer):
    r"""Balanced tables fitted by exact gradients of the mean negative log-likelihood.

    .. math:: f(\theta) = \log Z(\theta) - \theta \cdot \hat\eta + \mathrm{penalty}(\theta) / N, \qquad
        \tilde\nabla_{\theta^S} f = \pi^S_\theta - \hat\pi^S + \lambda_S \theta^S / N

    It is a :class:`~pyro_hoim.core.trainer.Trainer`. Any collection will do, also one that is not hierarchical. An
    evaluation costs the same for any number of rows. Log Z and eta come from a dense sweep, a few passes over the table
    of states of every connected component, where these have at most 2^22 states and elimination is not far cheaper;
    else from ``partition``, by default ``Auto()``. Every call of :meth:`train` begins where the tables are.

    Args:
        rows: complete training rows.
        hypergraph: the collection to begin with. Tables of single variables begin at the logarithms of their counts
            plus one half, the others at zero.
        penalty: ridge (or ``L2``) added to the negative log-likelihood of all rows; without one an estimate may be
            infinite, and training then ends at its limits.
        partition: exact backend that is used instead of the sweep.
        method: ``lbfgs``, or ``gradient``: descent along the purified gradient with a fixed ``step``.
        step: of the method ``gradient``.
        validation: rows whose loss is looked at after every step; the tables where it was lowest are kept.
        stopping: tolerance (1e-6), most steps of one call (1,000), and patience with the validation rows (20).
        evidence: how often a call of :meth:`train` moves the strengths of interactions, by
            :func:`~pyro_hoim.log_linear.updated_ridge`, and fits again; new ones begin with that of ``penalty``.

    Raises:
        InputError: rows of another domain or none, options without a meaning, or a backend that estimates.
        MissingDataError: missing cells.
        IntractableError: no exact way within its budget.

    References:
        Paper 1, section 4.2, equation (9) and algorithm 2.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.from_order(rows.domain, 1))
        >>> trainer.restructure(InteractionHypergraph.saturated(rows.domain))
        >>> trainer.train().status
        'converged'
    """

    name: Literal["exact", "sampled", "pseudo-likelihood"] = "exact"

    def _prepare(self, hypergraph: InteractionHypergraph) -> None:
        self._engine = choose_engine(hypergraph, self.partition)
        self._known: tuple[np.ndarray, float] | None = None

    def _losses(self) -> tuple[Evaluate, HeldOut | None]:
        goal = self._frequencies(self.rows)

        def evaluate(tables: np.ndarray) -> Point:
            log_z, eta = self._engine.evaluate(tables)
            return self._penalised(tables, log_z - float(tables @ goal), eta - goal)

        if self.validation is None:
            return evaluate, None
        difference = goal - self._frequencies(self.validation)

        def held_out(tables: np.ndarray, loss: float) -> float:
            return loss + float(tables @ difference)

        return evaluate, held_out

    def _normaliser(self) -> float:
        """Log Z of the present tables, computed once for them."""
        if self._known is None or self._known[0] is not self._tables:
            self._known = (self._tables, self._engine.evaluate(self._tables)[0])
        return self._known[1]

    @override
    def loss(self, rows: Observations) -> Loss:
        check_data(self._hypergraph, rows, "rows")
        return Loss(self._normaliser() - float(self._tables @ self._frequencies(rows)), 0.0, "exact")

    @override
    def margins(self, edges: Sequence[tuple[str, ...]]) -> Margins:
        return join_margins(self._engine.margins(self._tables, margin_edges(self._hypergraph, edges)))

    @override
    def log_partition(self) -> LogPartition:
        return self._engine.log_partition(self._tables)
