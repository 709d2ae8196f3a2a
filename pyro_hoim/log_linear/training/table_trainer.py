"""What trainers of balanced tables have in common: the collection, the tables, checks and the state. Private."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from typing_extensions import override

from ...checks import check_finite
from ...core.partition import PartitionBackend
from ...core.trainer import Margins, RidgeTrainer, TrainingReport
from ...data.observations import Observations
from ...errors import (
    check_choice,
    check_names,
    check_positive,
    check_type,
    check_unique,
    out_of_range,
    refused,
    unexpected,
    wrong_type,
)
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..fitting.arguments import check_data, check_validation
from ..fitting.penalties import L2
from ..fitting.solvers import Evaluate, HeldOut, Patience, Point, Precondition, Stopping, gradient_descent, lbfgs
from ._preconditioner import ridge_preconditioner
from .dense.engines import check_backend
from .evidence import EvidenceRounds, num_effective, updated_ridge
from .ridge import InteractionRidge
from .tables import MarginsOfRows, edge_axes, initial_tables, restructured_tables

__all__ = ["TableTrainer", "join_margins", "margin_edges"]


_TOLERANCE, _MAX_ITERATIONS, _PATIENCE = 1e-6, 1000, 20


@dataclass(frozen=True)
class Descent:
    """How tables are moved."""

    method: Literal["lbfgs", "gradient"] = "lbfgs"
    step: float = 0.5

    def __post_init__(self) -> None:
        check_choice(self.method, ("lbfgs", "gradient"), "method")
        check_positive(self.step, "step")


class TableTrainer(RidgeTrainer, ABC):
    """Collection, balanced tables, descent and state; subclasses say how a collection is prepared and what its loss is.

    The arguments are those of :class:`~pyro_hoim.log_linear.ExactTrainer`, all checked before any work.
    """

    _is_pseudo = False

    def __init__(
        self,
        rows: Observations,
        hypergraph: InteractionHypergraph,
        *,
        penalty: InteractionRidge | L2 | None = None,
        partition: PartitionBackend | None = None,
        method: Literal["lbfgs", "gradient"] = "lbfgs",
        step: float = 0.5,
        validation: Observations | None = None,
        stopping: Stopping | None = None,
        evidence: EvidenceRounds | None = None,
    ) -> None:
        self.descent = Descent(method, step)
        check_type(stopping, Stopping | None, "stopping")
        check_type(evidence, EvidenceRounds | None, "evidence")
        check_backend(partition)
        check_type(rows, Observations, "rows")
        check_data(hypergraph, rows, "rows")
        check_validation(hypergraph, validation, early_stopping=False)
        self.partition = partition
        self.rows = rows
        self.validation = validation
        self.stopping = Stopping() if stopping is None else stopping
        self.evidence = EvidenceRounds() if evidence is None else evidence
        self.penalty = penalty
        self._frequencies = MarginsOfRows()
        self._prepare(hypergraph)
        self._adopt(hypergraph, initial_tables(rows, hypergraph).numpy())

    @abstractmethod
    def _prepare(self, hypergraph: InteractionHypergraph) -> None:
        """Whatever a collection needs; raises before anything is changed."""

    @abstractmethod
    def _losses(self) -> tuple[Evaluate, HeldOut | None]:
        """Loss of the training rows in the present collection, and that of the validation rows where there are any."""

    @property
    def penalty(self) -> InteractionRidge | None:
        """The present ridge, with the strengths that rounds of evidence have found.

        A new one replaces it and what was found; ``L2`` becomes an ``InteractionRidge``.
        """
        return self._penalty

    @penalty.setter
    def penalty(self, penalty: InteractionRidge | L2 | None) -> None:
        if isinstance(penalty, L2):
            penalty = InteractionRidge(penalty.strength)
        if penalty is not None and not isinstance(penalty, InteractionRidge):
            raise wrong_type("penalty", "InteractionRidge, L2 or None", penalty)
        if penalty is not None:
            for edge in penalty.by_edge:
                check_names(edge, self.rows.domain.names, "penalty by_edge")
        if self.evidence.num_rounds and (penalty is None or penalty.is_zero):
            expected = "a penalty whose strengths can be updated"
            hint = "pass penalty=InteractionRidge(1.0, by_order={1: 0.05}) or evidence_rounds=0"
            raise unexpected("evidence_rounds", expected, hint=hint, received="none", code="conflict")
        self.penalty_given = penalty
        self._penalty = penalty

    @override
    def use_ridge(self, ridge: InteractionRidge, evidence_rounds: int) -> None:
        self.evidence = replace(self.evidence, num_rounds=evidence_rounds)
        self.penalty = ridge

    @property
    @override
    def hypergraph(self) -> InteractionHypergraph:
        return self._hypergraph

    @property
    @override
    def tables(self) -> torch.Tensor:
        return torch.from_numpy(self._tables.copy())

    def _adopt(self, hypergraph: InteractionHypergraph, tables: np.ndarray) -> None:
        self._hypergraph = hypergraph
        self._tables = tables
        self._axes = edge_axes(hypergraph)

    @override
    def restructure(self, hypergraph: InteractionHypergraph) -> None:
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        if hypergraph == self._hypergraph:
            return
        tables = restructured_tables(torch.from_numpy(self._tables), self._hypergraph, hypergraph).numpy()
        self._prepare(hypergraph)
        self._adopt(hypergraph, tables)
        if self._penalty is not self.penalty_given:
            self._set_strengths(self._strengths())

    def _strengths(self) -> dict[Edge, float]:
        """Strengths that evidence has found for present interactions."""
        assert self._penalty is not None
        found = self._penalty.by_edge
        return {edge: found[edge] for edge in self._hypergraph.edges if edge in found}

    def _set_strengths(self, strengths: Mapping[Edge, float]) -> None:
        """The given penalty with other strengths for some interactions."""
        assert self.penalty_given is not None
        self._penalty = self.penalty_given.updated(strengths)

    def _penalised(self, tables: np.ndarray, loss: float, raw: np.ndarray) -> Point:
        """Tables with their losses and centred gradient, of a gradient that is not centred; it is overwritten."""
        from .dense.kernels import centre

        value, penalty = loss, self._penalty
        if penalty is not None and not penalty.is_zero:
            slope = penalty.gradient(tables, self._hypergraph)
            slope /= self.rows.total_count
            value += 0.5 * float(slope @ tables)
            raw += slope
        centre(self._axes, raw)
        return Point(tables, loss, value, raw)

    def _preconditioner(self) -> Precondition | None:
        """Rough inverse Hessian of the penalised loss, where the penalty alone makes it far from a constant."""
        if self._penalty is None or self._penalty.is_zero:
            return None
        return ridge_preconditioner(self._penalty, self._hypergraph, self.rows.total_count)

    @override
    def train(self) -> TrainingReport:
        evaluate, held_out = self._losses()

        def fit() -> TrainingReport:
            return self._settle(*self._descended(evaluate, held_out))

        return self._with_evidence(fit)

    def _descended(self, evaluate: Evaluate, held_out: HeldOut | None) -> tuple[np.ndarray, TrainingReport]:
        """Tables after descent from the present ones; they are sound, whatever happened on the way."""
        first = evaluate(self._tables)
        if not first.is_sound:
            note = "the loss of the tables that training began with is infinite or NaN"
            return self._tables, TrainingReport("diverged", 0, math.inf, (note,))
        patience = None if held_out is None else Patience(held_out, self.stopping.patience or _PATIENCE)

        def report(iteration: int, point: Point, _: float) -> bool:
            return patience is not None and patience(iteration, point)

        report(0, first, first.norm)
        limits = self.stopping.tolerance or _TOLERANCE, self.stopping.max_iterations or _MAX_ITERATIONS
        if self.descent.method == "lbfgs":
            outcome = lbfgs(evaluate, first, *limits, report, self._preconditioner())
        else:
            outcome = gradient_descent(evaluate, first, *limits, report, self.descent.step)
        kept, steps, notes = outcome.point, outcome.num_iterations, outcome.notes
        if patience is not None and patience.best is not None and outcome.status != "diverged":
            kept = patience.best
            note = f"the loss of the validation rows was lowest at step {patience.best_iteration} of {steps}"
            notes = (*notes, note)
        if outcome.status in ("converged", "diverged"):
            return kept.theta, TrainingReport(outcome.status, steps, kept.norm, notes)
        return kept.theta, TrainingReport("max_iterations", steps, kept.norm, notes)

    def _with_evidence(self, fit: Callable[[], TrainingReport]) -> TrainingReport:
        """Fit, then move the strengths and fit again from there, as often as rounds were asked for."""
        report = fit()
        steps, notes = report.num_iterations, report.notes
        rounds, margins = self.evidence, self._frequencies(self.rows, self._hypergraph)
        done = 0
        while done < rounds.num_rounds and report.status != "diverged":
            assert self._penalty is not None
            found = updated_ridge(
                self._penalty,
                self._hypergraph,
                self._tables,
                margins,
                self.rows.total_count,
                damping=rounds.damping,
                pseudo=self._is_pseudo,
            )
            self._set_strengths({edge: found.ridge.strength(edge) for edge in self._hypergraph.edges if len(edge) > 1})
            report = fit()
            steps, notes = steps + report.num_iterations, report.notes
            done += 1
        if done and self._penalty is not None:
            effective = self.num_effective()
            total, free = sum(effective.values()), self._hypergraph.num_parameters
            note = f"{done} rounds of evidence: about {total:.1f} of {free} parameters are effective"
            report = replace(report, num_iterations=steps, notes=(*notes, note))
        return report

    def num_effective(self) -> dict[Edge, float]:
        """About how many parameters of every interaction the rows determine under the present penalty.

        All of them without one; see :func:`~pyro_hoim.log_linear.training.evidence.updated_ridge`.
        """
        ridge = InteractionRidge() if self._penalty is None else self._penalty
        margins = self._frequencies(self.rows, self._hypergraph)
        return num_effective(ridge, self._hypergraph, margins, self.rows.total_count, pseudo=self._is_pseudo)

    def _settle(self, tables: np.ndarray, report: TrainingReport) -> TrainingReport:
        """Take over tables, centred once more: rounding must not add up over many calls."""
        from .dense.kernels import centre

        if report.num_iterations or not np.array_equal(tables, self._tables):
            tables = tables.copy()
            centre(self._axes, tables)
            self._tables = tables
        return report

    @override
    def state_dict(self) -> Mapping[str, torch.Tensor]:
        state = {"tables": self.tables}
        if self._penalty is not None and self._penalty is not self.penalty_given:
            strengths = [self._penalty.strength(edge) for edge in self._hypergraph.edges]
            state["strengths"] = torch.tensor(strengths, dtype=torch.float64)
        return state

    @override
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        from .dense.kernels import centre

        found = state.get("tables")
        if not isinstance(found, torch.Tensor) or tuple(found.shape) != self._tables.shape:
            shape = tuple(found.shape) if isinstance(found, torch.Tensor) else found
            expected = f"tables of shape {self._tables.shape}"
            hint = "restructure to the collection of the state first"
            raise unexpected("state", expected, hint=hint, received=shape, code="wrong-shape")
        check_finite(found, "state")
        tables = found.detach().to("cpu", torch.float64).numpy().copy()
        centred = tables.copy()
        centre(self._axes, centred)
        if tables.size and float(np.abs(centred - tables).max()) > 1e-6 * (1 + float(np.abs(tables).max())):
            problem = "expected balanced tables, but a fibre does not sum to zero"
            raise refused("state", problem, "give tables made by a coding, see parametrization(hypergraph).convert")
        strengths = self._checked_strengths(state.get("strengths"))
        self._tables = tables
        self._penalty = self.penalty_given
        if strengths is not None:
            pairs = zip(self._hypergraph.edges, strengths, strict=True)
            self._set_strengths({edge: value for edge, value in pairs if len(edge) > 1})

    def _checked_strengths(self, strengths: object) -> list[float] | None:
        if strengths is None:
            return None
        edges = self._hypergraph.edges
        if not isinstance(strengths, torch.Tensor) or tuple(strengths.shape) != (len(edges),):
            shape = tuple(strengths.shape) if isinstance(strengths, torch.Tensor) else strengths
            raise unexpected("state", f"strengths of shape ({len(edges)},)", received=shape, code="wrong-shape")
        check_finite(strengths, "state")
        if bool((strengths < 0).any()):
            raise out_of_range("state", "strengths from 0", received=float(strengths.min()))
        if self.penalty_given is None:
            raise refused("state", "it has strengths of a penalty, the trainer has none", "pass penalty=...")
        return [float(value) for value in strengths]


def margin_edges(hypergraph: InteractionHypergraph, edges: Sequence[tuple[str, ...]]) -> list[tuple[int, ...]]:
    """Schema positions of sets of variables, increasing; names are checked."""
    found: list[tuple[int, ...]] = []
    for edge in edges:
        if isinstance(edge, str):
            raise wrong_type("edges", "sets of names", hint=f"write ({edge!r},)", received=f"the string {edge!r}")
        check_unique(tuple(edge), f"edge {tuple(edge)!r}")
        found.append(tuple(sorted(hypergraph.domain.indices(edge))))
    return found


def join_margins(tables: list[np.ndarray]) -> Margins:
    """Exact margins, set after set."""
    flat = np.concatenate([np.zeros(0), *(table.reshape(-1) for table in tables)])
    return Margins(torch.from_numpy(flat), float("inf"))
