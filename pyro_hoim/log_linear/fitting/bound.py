r"""Fits beyond exact sums that maximise a lower bound of the likelihood, which is certain whatever the fit ends with.

.. math:: \max_{\theta, \lambda, w} \; N \big(\theta \cdot t - U(\theta, \lambda, w)\big) - \mathrm{penalty}(\theta),
    \qquad U(\theta, \lambda, w) \ge \log Z(\theta)

U is the upper bound of weighted mini-buckets with shifted costs :math:`\lambda` and weights w. It is convex in all
three together, so that a solver that moves them at once finds the largest of these bounds.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.partition import PartitionBackend
from ...errors import conflict, out_of_reach, size_text
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..bounds.mini_buckets import MiniBuckets
from ..bounds.variational import VariationalBound, num_costs
from ..impossible import ImpossibleStates, support_of_states
from .design import Coordinates
from .solvers import Evaluate, Outcome, Point, Report, State

Floats = NDArray[np.float64]

_WINDOW = 50  # iterations, whose gain is compared with that of all after as many
_LEAST_SHARE = 0.05
_FIRST_STEPS = 20  # from the uniform law, where all orders of mini-buckets are equally good
_VECTORS = 48  # of theta and costs, that a solver remembers
_ROUNDING = 4 * float(np.finfo(np.float64).eps)


def buckets_of(partition: PartitionBackend | None) -> MiniBuckets:
    """The backend of a fit by its bound; others are refused."""
    if partition is None:
        return MiniBuckets()
    if not isinstance(partition, MiniBuckets) or partition.side != "upper":
        problem = f"a lower bound of the likelihood needs an upper bound of log Z, received {partition!r}"
        raise conflict("partition", problem, "use MiniBuckets(max_cells=..., passes=...)")
    return partition


def is_exact_as_cheap(graph: InteractionHypergraph, partition: PartitionBackend | None) -> bool:
    """Whether the likelihood takes the place of its bound.

    That is so where no mini-bucket would be divided, and without a budget of one's own where exact sums take no more
    operations than a pass over mini-buckets.
    """
    backend, exact = buckets_of(partition), Auto().plan(graph)
    if not exact.feasible:
        return False
    if not num_costs(backend, graph):
        return True
    share = backend.plan(graph).flops / (backend.passes + backend.orders + 1)
    return partition is None and exact.flops <= share


def checked_buckets(
    graph: InteractionHypergraph, num_parameters: int, partition: PartitionBackend | None
) -> MiniBuckets:
    """The backend, whose budget of memory also holds what a solver remembers of so many parameters and the costs."""
    backend = buckets_of(partition)
    cost = backend.plan(graph).check()
    costs = num_costs(backend, graph)
    memory = cost.memory_bytes + _VECTORS * 8 * (num_parameters + costs)
    if memory > backend.max_memory_bytes:
        problem = f"{costs} costs beside {num_parameters} parameters need {size_text(memory, 'bytes')}"
        hint = "lower MiniBuckets(max_cells=...), or raise max_memory_bytes"
        raise out_of_reach("the bound", f"{problem}, the budget is {backend.max_memory_bytes}", hint)
    return backend


class LikelihoodBound:
    r"""Minus a lower bound of the mean log-likelihood, :math:`U(\theta, \lambda, w) - \theta \cdot t`.

    Args:
        hypergraph: the interactions.
        statistics: means t of the statistics in the rows, (num_parameters,), in ``coordinates``.
        backend: mini-buckets, with their budget and the number of passes that the bound begins with.
        coordinates: of theta.
        impossible: states of probability zero.

    Attributes:
        free: the bound's own parameters at the next evaluation, see :class:`VariationalBound`.
        slopes: the gradient in them at the last one.
        ends_by_gains: whether a solver has converged, too, where it gains little of what it gained before.
    """

    name = "bound"

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        statistics: Floats,
        backend: MiniBuckets,
        coordinates: Coordinates,
        impossible: ImpossibleStates | None = None,
    ) -> None:
        self.statistics = statistics
        self._backend, self._coordinates = backend, coordinates
        self._support = None if impossible is None else support_of_states(hypergraph, impossible)
        self.graph = hypergraph if self._support is None else self._support.graph
        self._bound: VariationalBound | None = None
        self.free = self.slopes = np.zeros(0)
        self.ends_by_gains = True

    def _tables(self, theta: Floats) -> Floats:
        tables = self._coordinates.tables(theta)
        return tables if self._support is None else self._support.model(torch.from_numpy(tables)).tables.numpy()

    def search(self, theta: Floats) -> None:
        """Take the order of mini-buckets that is the best at theta, and the costs and weights that passes find."""
        self._bound = VariationalBound.search(self._backend, self.graph, self._tables(theta))
        self.free = self._bound.tightest

    def evaluate(self, theta: Floats) -> Point:
        """Loss and gradient at theta (num_parameters,), with the bound's own parameters as they are."""
        if self._bound is None:
            self.search(theta)
        assert self._bound is not None
        tables = self._tables(theta)
        log_z, eta, self.slopes = self._bound.evaluate(tables, self.free)
        if self._support is not None:
            eta = self._support.finite_terms(torch.from_numpy(eta)).numpy()
        loss = log_z - float(theta @ self.statistics)
        return Point(theta, loss, loss, self._coordinates.statistics(eta) - self.statistics)

    def certified(self, theta: Floats) -> float:
        """A number that the mean log-likelihood at theta is not below, nats per row, with all rounding allowed for."""
        if self._bound is None:
            self.search(theta)
        assert self._bound is not None
        log_z, inner = (
            self._bound.tightened(self._tables(theta), self.free, self._backend.passes),
            theta * self.statistics,
        )
        slack = _ROUNDING * (len(theta) + 1) * (float(np.abs(inner).sum()) + abs(log_z))
        return float(inner.sum()) - log_z - slack

    # What a checkpoint holds beside the bound's own parameters.

    @property
    def order(self) -> int:
        """Which of the orders of the backend the mini-buckets have."""
        assert self._bound is not None
        return self._bound.order(self._backend)

    def take_up(self, order: int, free: Floats) -> None:
        """Go on with an order and parameters of the bound; ValueError or IndexError where these do not fit."""
        self._bound, self.free = VariationalBound.of_order(self._backend, self.graph, order), free
        if len(free) != self._bound.num_free:
            raise ValueError("the costs and weights are of other mini-buckets")


KEPT_SHAPES: dict[str, tuple[int | None, ...]] = {"free": (None,), "order": (), "gains": (2,)}
"""Shapes of the state beside that of the solver; None is any length."""


class _Gains:
    """Whether a window of iterations gained little of what all after the first window did, or next to nothing."""

    def __init__(self, numbers: Floats, nothing: float, least_share: float) -> None:
        self.first, self.last = map(float, numbers)
        self.is_over, self._nothing, self._least_share = False, nothing, least_share

    def __call__(self, iteration: int, value: float) -> bool:
        if iteration % _WINDOW:
            return False
        if iteration > 2 * _WINDOW:
            least = max(self._nothing, self._least_share * (self.first - value))
            self.is_over = self.last - value <= least
        self.first, self.last = value if iteration == _WINDOW else self.first, value
        return self.is_over


def solve_jointly(
    evaluate: Evaluate,
    start: Point,
    tolerance: float,
    max_iterations: int,
    report: Report,
    *,
    objective: LikelihoodBound,
    solve: Callable[..., Outcome],
    state: State,
) -> Outcome:
    """Move theta and the bound's own parameters at once.

    Args:
        evaluate: the objective with its penalty, a function of theta.
        start: where it begins.
        tolerance: as of the solver, over all that is moved; and nats per row that fifty iterations gain at least.
        max_iterations: likewise.
        report: gets points in theta alone.
        objective: whose own parameters are moved.
        solve: the solver.
        state: of an earlier run.
    """
    size = len(start.theta)

    def joint(both: Floats) -> Point:
        if not np.isfinite(both).all():
            return Point(both, np.nan, np.nan, np.full(len(both), np.nan))
        objective.free = both[size:]
        point = evaluate(both[:size])
        return replace(point, theta=both, gradient=np.concatenate([point.gradient, objective.slopes]))

    def alone(point: Point) -> Point:
        return replace(point, theta=point.theta[:size], gradient=point.gradient[:size])

    # A few steps tell orders apart, of which the uniform law knows none.
    first = np.concatenate([start.theta, objective.free])
    if not state and not start.theta.any():
        few = solve(joint, joint(first), tolerance, _FIRST_STEPS, lambda *_: False)
        objective.search(few.point.theta[:size])
        first = np.concatenate([start.theta, objective.free])
    share = _LEAST_SHARE if objective.ends_by_gains else 0.0
    gains, order = _Gains(state.get("gains", np.zeros(2)), tolerance, share), np.array(float(objective.order))

    def report_alone(iteration: int, point: Point, norm: float, made: Callable[[], State]) -> bool:
        is_over = gains(iteration, point.value)
        extra = {"free": point.theta[size:], "order": order, "gains": np.array([gains.first, gains.last])}
        return report(iteration, alone(point), norm, lambda: {**made(), **extra}) or is_over

    outcome = solve(joint, joint(first), tolerance, max_iterations, report_alone, state=state)
    objective.free = outcome.point.theta[size:]
    is_done = outcome.status == "stopped" and gains.is_over
    return outcome._replace(point=alone(outcome.point), status="converged" if is_done else outcome.status)
