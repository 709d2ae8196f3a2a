"""What trainers of balanced tables have in common: the collection, the tables, checks and the state. Private."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ...data import Observations
from ...errors import InputError, InputTypeError, check_finite, check_unique
from ...structure.hypergraph import InteractionHypergraph
from ..arguments import check_data
from ..penalties import L2
from ._tables import MarginsOfRows, edge_axes, initial_tables, restructured_tables
from .base import Margins, TrainingReport
from .ridge import InteractionRidge

__all__ = ["TableTrainer", "join_margins", "margin_edges"]


class TableTrainer:
    """Collection, balanced tables and their state; subclasses say how a collection is prepared and trained.

    Args:
        rows: complete training rows.
        hypergraph: the collection to begin with.
        penalty: added to the loss of all rows.
    """

    def __init__(
        self, rows: Observations, hypergraph: InteractionHypergraph, penalty: InteractionRidge | L2 | None
    ) -> None:
        if not isinstance(rows, Observations):
            raise InputTypeError(f"rows: expected Observations, received {type(rows).__name__}")
        check_data(hypergraph, rows, "rows")
        if isinstance(penalty, L2):
            penalty = InteractionRidge(penalty.strength)
        if penalty is not None and not isinstance(penalty, InteractionRidge):
            raise InputTypeError(f"penalty: expected InteractionRidge, L2 or None, received {type(penalty).__name__}")
        self.rows = rows
        self.penalty = penalty
        self._frequencies = MarginsOfRows()
        self._prepare(hypergraph)
        self._adopt(hypergraph, initial_tables(rows, hypergraph).numpy())

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The present collection."""
        return self._hypergraph

    @property
    def tables(self) -> torch.Tensor:
        """Balanced tables (num_terms,), float64; a copy."""
        return torch.from_numpy(self._tables.copy())

    def _prepare(self, hypergraph: InteractionHypergraph) -> None:
        """Whatever a collection needs; raises before anything is changed."""

    def _adopt(self, hypergraph: InteractionHypergraph, tables: np.ndarray) -> None:
        self._hypergraph = hypergraph
        self._tables = tables
        self._axes = edge_axes(hypergraph)
        ridge = self.penalty
        has_penalty = ridge is not None and not ridge.is_zero
        self._ridge = ridge.terms(hypergraph) / self.rows.total_count if ridge is not None and has_penalty else None

    def restructure(self, hypergraph: InteractionHypergraph) -> None:
        """Go over to another collection over the same domain; common interactions keep their tables.

        Raises:
            InputError: another domain.
            IntractableError: exact gradients are out of reach; the trainer is as it was.
        """
        if not isinstance(hypergraph, InteractionHypergraph):
            raise InputTypeError(f"hypergraph: expected an InteractionHypergraph, received {type(hypergraph).__name__}")
        if hypergraph == self._hypergraph:
            return
        tables = restructured_tables(torch.from_numpy(self._tables), self._hypergraph, hypergraph).numpy()
        self._prepare(hypergraph)
        self._adopt(hypergraph, tables)

    def _penalised(self, tables: np.ndarray, loss: float, raw: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Loss, penalised loss and its centred gradient, of a gradient that is not centred; it is overwritten."""
        from ._exact_kernels import centre

        centre(self._axes, raw)
        if self._ridge is None:
            return loss, loss, raw
        raw += self._ridge * tables
        return loss, loss + 0.5 * float(self._ridge @ np.square(tables)), raw

    def _settle(self, tables: np.ndarray, report: TrainingReport) -> TrainingReport:
        """Take over tables, centred once more: rounding must not add up over many calls."""
        from ._exact_kernels import centre

        if report.num_iterations or not np.array_equal(tables, self._tables):
            tables = tables.copy()
            centre(self._axes, tables)
            self._tables = tables
        return report

    def state_dict(self) -> Mapping[str, torch.Tensor]:
        """The tables; no method keeps anything else from one call to the next."""
        return {"tables": self.tables}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Inverse of :meth:`state_dict`, after :meth:`restructure` to the same collection.

        Raises:
            InputError: no tables, of another length, not finite, or not balanced.
        """
        from ._exact_kernels import centre

        found = state.get("tables")
        if not isinstance(found, torch.Tensor) or tuple(found.shape) != self._tables.shape:
            shape = tuple(found.shape) if isinstance(found, torch.Tensor) else found
            raise InputError(
                f"state: expected tables of shape {self._tables.shape}, received {shape}; "
                "restructure to the collection of the state first"
            )
        check_finite(found, "state")
        tables = found.detach().to("cpu", torch.float64).numpy().copy()
        centred = tables.copy()
        centre(self._axes, centred)
        if tables.size and float(np.abs(centred - tables).max()) > 1e-6 * (1 + float(np.abs(tables).max())):
            raise InputError(
                "state: expected balanced tables, but a fibre does not sum to zero; "
                "give tables made by a coding, see parametrization(hypergraph).convert"
            )
        self._tables = tables


def margin_edges(hypergraph: InteractionHypergraph, edges: Sequence[tuple[str, ...]]) -> list[tuple[int, ...]]:
    """Schema positions of sets of variables, increasing; names are checked."""
    found: list[tuple[int, ...]] = []
    for edge in edges:
        if isinstance(edge, str):
            raise InputTypeError(f"edges: expected sets of names, received the string {edge!r}; write ({edge!r},)")
        check_unique(tuple(edge), f"edge {tuple(edge)!r}")
        found.append(tuple(sorted(hypergraph.domain.indices(edge))))
    return found


def join_margins(tables: list[np.ndarray]) -> Margins:
    """Exact margins, set after set."""
    flat = np.concatenate([np.zeros(0), *(table.reshape(-1) for table in tables)])
    return Margins(torch.from_numpy(flat), float("inf"))
