"""Exact log Z, eta and margins of tables: by the dense sweep, or by a partition backend. Private to training."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ....core.partition import Cost, LogPartition, PartitionBackend
from ....errors import IntractableError, out_of_reach, size_text
from ....structure.hypergraph import InteractionHypergraph
from ...auto import Auto
from ...energy import LogLinearEnergy
from .sweep import axes_of_mask, sweep_plan

__all__ = ["DENSE_CELLS", "BackendEngine", "DenseEngine", "Engine", "choose_engine"]

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
            table = self._margin(self._known[number], tuple(members))
            result = result * table.reshape([self._cardinalities[v] if v in members else 1 for v in edge])
        return np.broadcast_to(result, [self._cardinalities[v] for v in edge])

    def _margin(self, known: dict[tuple[int, ...], np.ndarray], wanted: tuple[int, ...]) -> np.ndarray:
        if wanted not in known:
            inside = set(wanted)
            source = min((axes for axes in known if inside <= set(axes)), key=lambda axes: known[axes].size)
            for gone in sorted(set(source) - inside, key=lambda v: -self._cardinalities[v]):
                rest = tuple(v for v in source if v != gone)
                if rest not in known:
                    known[rest] = known[source].sum(source.index(gone))
                source = rest
        return known[wanted]


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
        from .kernels import gather_down, scatter_up

        plan, work = self._plan, self._work
        work[plan.order] = tables
        scatter_up(plan.steps, work)
        log_z = math.log(plan.free_states)
        for _, start, cells in plan.roots:
            root = work[start : start + cells]
            top = float(root.max())
            if not math.isfinite(top):
                return (top if top == -math.inf else math.nan), np.full(len(tables), math.nan)
            np.subtract(root, top, out=root)
            np.exp(root, out=root)
            log_z += top
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


class BackendEngine:
    """A partition backend and one sweep of autograd."""

    def __init__(self, hypergraph: InteractionHypergraph, backend: PartitionBackend) -> None:
        backend.plan(hypergraph).check()
        self.hypergraph = hypergraph
        self._backend = backend

    def _model(self, tables: np.ndarray) -> LogLinearEnergy:
        return LogLinearEnergy(self.hypergraph, torch.from_numpy(tables), validate=False)

    def evaluate(self, tables: np.ndarray) -> tuple[float, np.ndarray]:
        """Log Z in nats and eta (num_terms,) of tables (num_terms,)."""
        if not np.isfinite(tables).all():
            return math.nan, np.full(len(tables), math.nan)
        with torch.enable_grad():
            leaf = torch.from_numpy(tables.copy()).requires_grad_()
            value = self._backend.log_partition(LogLinearEnergy(self.hypergraph, leaf, validate=False)).value
            if not leaf.numel():
                return float(value.detach()), np.zeros(0)
            (eta,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), eta.numpy()

    def log_partition(self, tables: np.ndarray) -> LogPartition:
        """Log Z and what it cost."""
        return self._backend.log_partition(self._model(tables))

    def margins(self, tables: np.ndarray, edges: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Laws over sets of variables, given by increasing schema positions; axes in that order."""
        names = self.hypergraph.domain.names
        model = self._model(tables)
        return [self._backend.marginal(model, [names[v] for v in edge]).numpy() for edge in edges]


Engine = DenseEngine | BackendEngine
"""Log Z and its derivative for one collection."""


def choose_engine(hypergraph: InteractionHypergraph, partition: PartitionBackend | None = None) -> Engine:
    """The cheapest exact way, by cells to be formed; the backend given, where one is."""
    if partition is not None:
        return BackendEngine(hypergraph, partition)
    # The union of a component's variables is at most the domain, so small domains need no look at the components.
    cells = sum(math.prod(hypergraph.domain[name].cardinality for name in part) for part in hypergraph.components())
    if cells > DENSE_CELLS:
        try:
            return BackendEngine(hypergraph, Auto())
        except IntractableError as error:
            problem = f"a dense sweep needs {size_text(cells, 'cells')}, the budget is {DENSE_CELLS}; {error.problem}"
            raise out_of_reach("hypergraph", problem, error.hint) from error
    if cells > _SMALL_CELLS:
        cost = Auto().plan(hypergraph)
        is_eliminated = cost.feasible and cost.method not in ("enumeration", "design matrix")
        if is_eliminated and _ELIMINATION_OVERHEAD * cost.total_cells < sweep_plan(hypergraph).step_cells:
            return BackendEngine(hypergraph, Auto())
    return DenseEngine(hypergraph)
