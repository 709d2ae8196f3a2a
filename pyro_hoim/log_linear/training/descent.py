"""Trainers that descend along a gradient without sampling error: the loss, the descent and when it ends. Private."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from typing_extensions import override

from ...core.partition import PartitionBackend
from ...core.trainer import TrainingReport
from ...data.observations import Observations
from ...errors import check_choice, check_positive, check_type, unexpected
from ...runs.checkpoint import check_time
from ...structure.hypergraph import InteractionHypergraph
from ..fitting.fit import check_validation
from ..fitting.penalties import L2
from ..fitting.solvers import Evaluate, HeldOut, Patience, Point, Stopping, gradient_descent, lbfgs
from .ridge import EvidenceRounds, InteractionRidge, ar1_precision
from .table_trainer import TableTrainer

__all__ = ["DescentTrainer"]


# Rough inverse Hessian of a penalised loss, from the ridge alone.

Floats = NDArray[np.float64]


class _Group(NamedTuple):
    """Interactions of one shape: positions (E, cells), bases by smooth axis, and the inverse Hessian (E, *shape)."""

    places: NDArray[np.int64]
    bases: tuple[tuple[int, Floats], ...]
    inverse: Floats


def ridge_preconditioner(
    ridge: InteractionRidge, hypergraph: InteractionHypergraph, num_rows: float
) -> Callable[[Floats], Floats] | None:
    r"""Multiplies balanced tables by :math:`(c + \lambda_S K_S / N)^{-1}`, in the eigenbasis of every smooth axis.

    The curvature c of the loss per row is the same everywhere, the mean over interactions of one over the number of
    cells. Strengths of evidence span many orders of magnitude; without this, so would the Hessian.
    """
    strengths = np.array([ridge.strength(edge) for edge in hypergraph.edges])
    if not len(strengths) or (ridge.is_diagonal(hypergraph) and bool((strengths == strengths[0]).all())):
        return None
    curvature = float(np.mean([1 / math.prod(shape) for shape in hypergraph.edge_shapes]))
    # Interactions of one shape share eigenvalues, and are multiplied together.
    kinds: dict[tuple[tuple[int, bool], ...], list[int]] = {}
    for k, edge in enumerate(hypergraph.edges):
        variables = [hypergraph.domain[name] for name in edge]
        kinds.setdefault(tuple((v.cardinality, ridge.is_smooth(edge, v)) for v in variables), []).append(k)
    # The inverse in the eigenbasis of every smooth axis; the others need none.
    starts = np.array([where.start for where in hypergraph.term_slices.values()])
    groups: list[_Group] = []
    for kind, members in kinds.items():
        shape = tuple(n for n, _ in kind)
        eigenvalues = np.ones(shape)
        bases: list[tuple[int, Floats]] = []
        for axis, (n, is_smooth) in enumerate(kind):
            if is_smooth:
                values, basis = _axis_basis(n, ridge.smoothness)
                eigenvalues *= values.reshape(-1, *(1 for _ in kind[axis + 1 :]))
                bases.append((axis + 1, basis))
        places = starts[members, None] + np.arange(math.prod(shape))
        scale = (strengths[members] / num_rows).reshape(-1, *(1 for _ in kind))
        groups.append(_Group(places, tuple(bases), 1 / (curvature + scale * eigenvalues)))

    def multiply(values: Floats) -> Floats:
        result = np.empty_like(values)
        for places, axes, inverse in groups:
            tables = values[places].reshape(inverse.shape)
            for axis, basis in axes:
                tables = _along(basis, tables, axis)
            tables = tables * inverse
            for axis, basis in axes:
                tables = _along(basis.T, tables, axis)
            result[places] = tables.reshape(places.shape)
        return result

    return multiply


def _axis_basis(num_levels: int, correlation: float) -> tuple[Floats, Floats]:
    """Eigenvalues (n,) and orthonormal rows (n, n) that diagonalise the precision within tables that sum to zero."""
    contrasts = scipy.linalg.helmert(num_levels)
    values, vectors = np.linalg.eigh(contrasts @ ar1_precision(num_levels, correlation) @ contrasts.T)
    constant = np.full((1, num_levels), num_levels**-0.5)
    return np.concatenate([np.ones(1), values]), np.concatenate([constant, vectors.T @ contrasts])


def _along(matrix: Floats, tables: Floats, axis: int) -> Floats:
    return np.moveaxis(np.tensordot(matrix, tables, (1, axis)), 0, axis)


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
