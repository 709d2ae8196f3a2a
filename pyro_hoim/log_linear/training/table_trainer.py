"""What trainers have in common: collection, balanced tables, ridge, rounds of evidence, state and descent. Private."""

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from typing_extensions import override

from ...checks import check_finite
from ...core.partition import PartitionBackend
from ...core.trainer import Margins, RidgeTrainer, TrainingReport
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import (
    check_choice,
    check_names,
    check_positive,
    check_type,
    check_unique,
    conflict,
    other_domain,
    out_of_range,
    refused,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ...runs.checkpoint import check_time
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..coding import check_balanced_family
from ..fitting.design import check_data, check_validation
from ..fitting.penalties import L2
from ..fitting.solvers import Evaluate, HeldOut, Patience, Point, Stopping, gradient_descent, lbfgs
from .ridge import EvidenceRounds, InteractionRidge, edge_axes, num_effective, ridge_preconditioner, updated_ridge


def restructured_tables(
    tables: torch.Tensor, source: InteractionHypergraph, target: InteractionHypergraph
) -> torch.Tensor:
    """Tables in the layout of another collection: common interactions keep theirs, new ones are zero.

    Balanced tables stay balanced. It serves any vector with an entry per table entry, such as moments.
    """
    if target.domain != source.domain:
        expected = f"a collection over the variables {source.domain.names} and their levels"
        received = f"one over {target.domain.names} or other levels"
        raise other_domain("hypergraph", expected, hint="make a new trainer", received=received)
    if tables.shape[-1] != source.num_terms:
        raise wrong_shape("tables", f"(..., {source.num_terms})", tables)
    result = tables.new_zeros(*tables.shape[:-1], target.num_terms)
    here = source.term_slices
    for edge, where in target.term_slices.items():
        if edge in here:
            result[..., where] = tables[..., here[edge]]
    return result


def initial_tables(rows: Observations, hypergraph: InteractionHypergraph) -> torch.Tensor:
    """Tables that training begins with: those of single variables from their counts plus one half, the others zero."""
    tables = torch.zeros(hypergraph.num_terms, dtype=torch.float64)
    single = {edge: where for edge, where in hypergraph.term_slices.items() if len(edge) == 1}
    logs = (rows.marginal_counts(single) + 0.5).log()
    for where, log_counts in zip(single.values(), logs.split([w.stop - w.start for w in single.values()]), strict=True):
        tables[where] = log_counts - log_counts.mean()
    return tables


class RowMargins:
    """Marginal laws of rows, counted once for every set of variables."""

    def __init__(self, rows: Observations) -> None:
        self.rows = rows
        self._known: dict[Edge, np.ndarray] = {}

    def __call__(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Frequencies (num_terms,) of the cells of every interaction."""
        new = [edge for edge in hypergraph.edges if edge not in self._known]
        if new:
            counts = self.rows.marginal_counts(new).numpy() / self.rows.total_count
            sizes = [math.prod(self.rows.domain[name].cardinality for name in edge) for edge in new]
            self._known.update(zip(new, np.split(counts, np.cumsum(sizes)[:-1]), strict=True))
        return np.concatenate([np.zeros(0), *(self._known[edge] for edge in hypergraph.edges)])


class TableTrainer(RidgeTrainer, ABC):
    """A collection with balanced tables under a ridge; subclasses say how a collection is prepared and fitted."""

    _is_pseudo = False

    def __init__(
        self,
        rows: DataLike,
        hypergraph: InteractionHypergraph,
        penalty: InteractionRidge | L2 | None,
        evidence: EvidenceRounds | None,
    ) -> None:
        check_type(evidence, EvidenceRounds | None, "evidence")
        rows = as_observations(rows, domain=hypergraph.domain, argument="rows")
        check_data(hypergraph, rows, "rows")
        check_balanced_family(hypergraph, "training")
        self.rows = rows
        self.evidence = EvidenceRounds() if evidence is None else evidence
        self.penalty = penalty
        self._margins_of = lru_cache(maxsize=4)(RowMargins)  # rows are told apart by identity
        self._prepare(hypergraph)
        self._hypergraph = hypergraph
        self._adopt(initial_tables(rows, hypergraph).numpy())

    @abstractmethod
    def _prepare(self, hypergraph: InteractionHypergraph) -> None:
        """Whatever a collection needs; raises before anything is changed."""

    @abstractmethod
    def _fit(self) -> TrainingReport:
        """Fit the tables once, under the present penalty."""

    def _adopt(self, tables: np.ndarray) -> None:
        """Take over tables of the present collection."""
        self._tables = tables
        self._axes = edge_axes(self._hypergraph)

    def _frequencies(self, rows: Observations) -> np.ndarray:
        """Frequencies (num_terms,) of the cells of every interaction among rows."""
        return self._margins_of(rows)(self._hypergraph)

    @property
    def penalty(self) -> InteractionRidge | None:
        """The present ridge, with the strengths that rounds of evidence have found.

        A new one replaces it and what was found; ``L2`` becomes an ``InteractionRidge``.
        """
        return self._penalty

    @penalty.setter
    def penalty(self, penalty: InteractionRidge | L2 | None) -> None:
        if isinstance(penalty, L2):
            if penalty.coding != "free":
                raise conflict("penalty", f"training penalises balanced tables, received {penalty!r}", "call fit")
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

    @override
    def restructure(self, hypergraph: InteractionHypergraph) -> None:
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        check_balanced_family(hypergraph, "training")
        if hypergraph == self._hypergraph:
            return
        tables = restructured_tables(torch.from_numpy(self._tables), self._hypergraph, hypergraph).numpy()
        self._prepare(hypergraph)
        self._hypergraph = hypergraph
        self._adopt(tables)
        if self._penalty is not None and self._penalty is not self.penalty_given:
            strengths = self._penalty.by_edge
            self._set_strengths({edge: strengths[edge] for edge in hypergraph.edges if edge in strengths})

    def _set_strengths(self, strengths: Mapping[Edge, float]) -> None:
        """The given penalty with other strengths for some interactions."""
        assert self.penalty_given is not None
        self._penalty = self.penalty_given.updated(strengths)

    @override
    def train(self) -> TrainingReport:
        with self._whole():
            return self._trained()

    @contextmanager
    def _whole(self) -> Generator[None]:
        """Work that is done as a whole or leaves the trainer as it was."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    def _trained(self) -> TrainingReport:
        """Fit, then move the strengths and fit again from there, as often as rounds were asked for."""
        # Every round moves the strengths by the fitted tables and fits again.
        report, graph = self._fit(), self._hypergraph
        steps, done = report.num_iterations, 0
        while done < self.evidence.num_rounds and report.status != "diverged":
            assert self._penalty is not None
            ridge = updated_ridge(
                self._penalty,
                graph,
                self._tables,
                self._frequencies(self.rows),
                self.rows.total_count,
                damping=self.evidence.damping,
                pseudo=self._is_pseudo,
            )
            self._set_strengths({edge: ridge.strength(edge) for edge in graph.edges if len(edge) > 1})
            report = self._fit()
            steps += report.num_iterations
            done += 1
        if done:
            total = sum(self.num_effective().values())
            note = f"{done} rounds of evidence: about {total:.1f} of {graph.num_parameters} parameters are effective"
            report = replace(report, num_iterations=steps, notes=(*report.notes, note))
        return report

    def num_effective(self) -> dict[Edge, float]:
        """About how many parameters of every interaction the rows determine under the present penalty.

        All of them without one; see :func:`~pyro_hoim.log_linear.training.ridge.updated_ridge`.
        """
        ridge = InteractionRidge() if self._penalty is None else self._penalty
        margins = self._frequencies(self.rows)
        return num_effective(ridge, self._hypergraph, margins, self.rows.total_count, pseudo=self._is_pseudo)

    @override
    def state_dict(self) -> Mapping[str, torch.Tensor]:
        state = {"tables": self.tables}
        if self._penalty is not None and self._penalty is not self.penalty_given:
            strengths = [self._penalty.strength(edge) for edge in self._hypergraph.edges]
            state["strengths"] = torch.tensor(strengths, dtype=torch.float64)
        return state

    @override
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        from ._dense_kernels import centre

        # Balanced tables, and strengths where the rows had moved them.
        edges = self._hypergraph.edges
        tables = state_part(state, "tables", self._tables.shape).to("cpu", torch.float64).numpy().copy()
        centred = tables.copy()
        centre(self._axes, centred)
        if float(np.abs(centred - tables).max(initial=0.0)) > 1e-6 * (1 + float(np.abs(tables).max(initial=0.0))):
            problem = "expected balanced tables, but a fibre does not sum to zero"
            raise refused("state", problem, "give tables made by a coding, see parametrization(hypergraph).convert")
        by_edge: dict[Edge, float] | None = None
        if state.get("strengths") is not None:
            strengths = state_part(state, "strengths", (len(edges),))
            if bool((strengths < 0).any()):
                raise out_of_range("state", "strengths from 0", received=float(strengths.min()))
            if self.penalty_given is None:
                raise conflict("state", "it has strengths of a penalty, the trainer has none", "pass penalty=...")
            pairs = zip(edges, strengths.tolist(), strict=True)
            by_edge = {edge: value for edge, value in pairs if len(edge) > 1}
        self._adopt(tables)
        self._penalty = self.penalty_given
        if by_edge is not None:
            self._set_strengths(by_edge)


_TOLERANCE, _MAX_ITERATIONS, _PATIENCE = 1e-6, 1000, 20


class DescentTrainer(TableTrainer):
    """Tables at the minimum of a loss that can be evaluated; subclasses say what it is.

    The arguments are those of :class:`~pyro_hoim.log_linear.ExactTrainer`, all checked before any work.
    """

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
        # All arguments are looked at before any work.
        check_choice(method, ("lbfgs", "gradient"), "method")
        check_positive(step, "step")
        check_type(stopping, Stopping | None, "stopping")
        check_type(partition, PartitionBackend | None, "partition", "a partition backend")
        if partition is not None and not partition.is_exact:
            hint = "train by sampling where exact gradients are out of reach"
            raise unexpected("partition", "an exact backend", partition, hint)
        check_validation(hypergraph, validation, early_stopping=False)
        self.method, self.step = method, step
        self.partition = partition
        self.validation = validation
        self.stopping = Stopping() if stopping is None else stopping
        super().__init__(rows, hypergraph, penalty, evidence)

    @abstractmethod
    def _losses(self) -> tuple[Evaluate, HeldOut | None]:
        """Loss of the training rows in the present collection, and that of the validation rows where there are any."""

    def _penalised(self, tables: np.ndarray, loss: float, raw: np.ndarray) -> Point:
        """Tables with their losses and centred gradient, of a gradient that is not centred; it is overwritten."""
        from ._dense_kernels import centre

        value, penalty = loss, self._penalty
        if penalty is not None and not penalty.is_zero:
            slope = penalty.gradient(tables, self._hypergraph)
            slope /= self.rows.total_count
            value += 0.5 * float(slope @ tables)
            raw += slope
        centre(self._axes, raw)
        return Point(tables, loss, value, raw)

    @override
    def _fit(self) -> TrainingReport:
        from ._dense_kernels import centre

        tables, report = self._descended(*self._losses())
        if report.num_iterations or not np.array_equal(tables, self._tables):
            tables = tables.copy()
            centre(self._axes, tables)  # once more: rounding must not add up over many calls
            self._adopt(tables)
        return report

    def _descended(self, evaluate: Evaluate, held_out: HeldOut | None) -> tuple[np.ndarray, TrainingReport]:
        """Tables after descent from the present ones; they are sound, whatever happened on the way."""
        first = evaluate(self._tables)
        if not first.is_sound:
            note = "the loss of the tables that training began with is infinite or NaN"
            return self._tables, TrainingReport("diverged", 0, math.inf, (note,))
        # Descend, looking at the validation rows after every step.
        patience = None if held_out is None else Patience(held_out, self.stopping.patience or _PATIENCE)

        def report(iteration: int, point: Point, *_: object) -> bool:
            check_time()
            return patience is not None and patience(iteration, point)

        report(0, first)
        limits = self.stopping.tolerance or _TOLERANCE, self.stopping.max_iterations or _MAX_ITERATIONS
        if self.method == "gradient":
            outcome = gradient_descent(evaluate, first, *limits, report, self.step)
        elif self._penalty is None or self._penalty.is_zero:
            outcome = lbfgs(evaluate, first, *limits, report)
        else:
            inverse = ridge_preconditioner(self._penalty, self._hypergraph, self.rows.total_count)
            outcome = lbfgs(evaluate, first, *limits, report, inverse)
        # With validation rows the tables are those of the best step.
        end, steps, notes = outcome.point, outcome.num_iterations, outcome.notes
        if patience is not None and patience.best is not None and outcome.status != "diverged":
            end = patience.best
            note = f"the loss of the validation rows was lowest at step {patience.best_iteration} of {steps}"
            notes = (*notes, note)
        status = outcome.status if outcome.status in ("converged", "diverged") else "max_iterations"
        return end.theta, TrainingReport(status, steps, end.norm, notes)


def state_part(state: Mapping[str, torch.Tensor], name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A finite tensor of a state, refused unless it has this shape."""
    part = state.get(name)
    if not isinstance(part, torch.Tensor) or tuple(part.shape) != shape:
        received = tuple(part.shape) if isinstance(part, torch.Tensor) else part
        hint = "restructure to the collection of the state first"
        raise unexpected("state", f"{name} of shape {shape}", hint=hint, received=received, code="wrong-shape")
    check_finite(part, "state")
    return part.detach()


def margin_edges(hypergraph: InteractionHypergraph, edges: Sequence[tuple[str, ...]]) -> list[tuple[int, ...]]:
    """Schema positions of sets of variables, increasing; names are checked."""
    positions: list[tuple[int, ...]] = []
    for edge in edges:
        if isinstance(edge, str):
            raise wrong_type("edges", "sets of names", hint=f"write ({edge!r},)", received=f"the string {edge!r}")
        check_unique(tuple(edge), f"edge {tuple(edge)!r}")
        positions.append(tuple(sorted(hypergraph.domain.indices(edge))))
    return positions


def join_margins(tables: Sequence[np.ndarray], sample_size: float = float("inf")) -> Margins:
    """Margins, set after set."""
    flat = np.concatenate([np.zeros(0), *(table.reshape(-1) for table in tables)])
    return Margins(torch.from_numpy(flat), sample_size)
