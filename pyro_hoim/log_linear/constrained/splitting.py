"""Sparse and low-rank estimation of interactions of any order by operator splitting, with a certificate."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import check_type, conflict
from ..fitting.solvers import Point, Stopping, lbfgs
from .frank_wolfe import run_until_done
from .losses import Loss
from .norms import Ball, L1Norm, NormPenalty, OverlappedNorm, checked_terms, project_magnitudes
from .result import ConstrainedResult, ConstrainedStatus

Floats = NDArray[np.float64]
_INNER = 200
_BALANCED = (3, 6, 12, 25, 50, 100)  # iterations after which the step is set anew; finitely many
_MEMORY, _RIDGE, _SAFE = 10, 1e-12, 1e3
_ROUNDING, _PATIENCE, _RANGE = 1e-9, 20, 1e4


@dataclass(frozen=True, eq=False)
class SplittingResult(ConstrainedResult):
    """A minimiser by :func:`douglas_rachford`, with the state from which a run for neighbouring terms begins.

    Attributes:
        rank: rank of the thresholded unfolding that the low-rank part agrees with up to the accuracy of the run. The
            part itself is strongly symmetric to the last bit and has this rank up to that accuracy.
        state: point of the iteration, and the step.
    """

    rank: int
    state: tuple[Floats, float]


def douglas_rachford(
    loss: Loss,
    terms: Ball | NormPenalty | Mapping[str, Ball] | Mapping[str, NormPenalty],
    *,
    stopping: Stopping | None = None,
    start: SplittingResult | None = None,
    progress: bool = False,
) -> SplittingResult:
    r"""Minimise a loss under the overlapped norm of strongly symmetric tensors of any order, and an l1 norm beside it.

    .. math:: \min_{S, L} f(S + L) + \lambda \|S\|_1 + \mu \|L\|_{\underline{S_1/1}}
        \qquad\text{or}\qquad
        \min_{S, L} f(S + L) \ \text{ subject to } \ \|S\|_1 \le a,\ \|L\|_{\underline{S_1/1}} \le b

    The variables are S and L as corner theta, so every iterate is strongly symmetric by construction; the low-rank
    condition is put on a copy :math:`Z = A L` of one unfolding, which singular-value thresholding (or projection of
    the singular values) brings down in rank. Douglas-Rachford splitting brings the two together: in the coordinates
    :math:`\theta_S / \sqrt{\tau_S}` the map A keeps lengths, and an iteration is one thresholding, by an n x n
    eigenproblem, and one minimisation of f plus half a squared distance, by L-BFGS from the last point. Cost of an
    iteration: some 5 to 30 gradients of the loss and O(n^(K+1) / (K-1)!) operations.

    *Convergence.* Douglas-Rachford converges for every step to a solution, if there is one, with errors of the
    minimisations that can be summed: their tolerance falls as 1 / k^2 at least, down to rounding. The
    step is set anew, so that Z and its dual variable have like lengths, after at most six iterations; then it stays.
    Anderson acceleration over ten iterations is taken only while the residual is below a bound that falls with the
    number of such steps, which keeps convergence from every start, and taken back where it doubles the residual.

    *Certificate.* At every iteration g, the gradient of f at theta, gives a lower bound of the minimum: with a matrix Y
    such that :math:`A^T Y = g` (the dual variable, corrected in closed form) and c the larger of
    :math:`\|Y\|_{S_\infty} / (K \mu)` and :math:`\|g\|_\infty / \lambda`,

    .. math:: F^* \ge f(\theta) - \langle g, \theta \rangle - \max(0, c - 1)\, F(S, L), \qquad
        F^* \ge f(\theta) - \langle g, \theta \rangle - a \|g\|_\infty - (b / K) \|Y\|_{S_\infty}

    for penalties of a loss that is not negative, and for balls. ``gap`` is the best objective met less the best bound
    met, at least the true error up to rounding, and stops the run.

    Args:
        loss: a convex function of corner theta of all interactions of up to K variables; with penalties not negative.
        terms: a ball or penalty of :class:`~pyro_hoim.log_linear.constrained.norms.OverlappedNorm`, alone or with
            one of :class:`~pyro_hoim.log_linear.constrained.norms.L1Norm`, by the names of the parts.
        stopping: ``tolerance`` is the gap, as a share of the objective, at which it is done (1e-7); ``max_iterations``
            (1,000). ``patience`` has no meaning here.
        start: a result for the same loss and norms to begin at, as along a path of strengths or radii.
        progress: show on standard error how far the gap has fallen.

    Returns:
        The best point met, with its gap. Ctrl-C ends a run at that point, with the status "interrupted".

    Raises:
        InputTypeError: an argument of another type.
        InputError: other norms than these, or norms of other interactions, or a start of another run.
        IntractableError: an unfolding beyond 2^23 entries; nothing was computed.

    References:
        The problem is open in paper 3, section 4.3.2; equations (3.1), (3.2). Jonathan Eckstein and Dimitri Bertsekas,
        On the Douglas-Rachford splitting method and the proximal point algorithm for maximal monotone operators, 1992.
        Dirk Lorenz and Quoc Tran-Dinh, Non-stationary Douglas-Rachford and alternating direction method of
        multipliers, 2019, on the step. Anqi Fu, Junzi Zhang and Stephen Boyd, Anderson accelerated Douglas-Rachford
        splitting, 2020, on the bound. Jian-Feng Cai, Emmanuel Candes and Zuowei Shen, A singular value thresholding
        algorithm for matrix completion, 2010, theorem 2.1.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear.constrained.losses import PseudoLikelihoodLoss
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> table = [[[20, 5], [6, 9]], [[4, 8], [7, 30]]]
        >>> loss = PseudoLikelihoodLoss(Observations.from_table(domain, table), 3)
        >>> found = douglas_rachford(loss, NormPenalty(OverlappedNorm(loss.hypergraph), 0.02))
        >>> found.status, found.rank, round(found.objective, 6)
        ('converged', 3, 1.831236)
    """
    check_type(loss, Loss, "loss")
    given = terms.values() if isinstance(terms, Mapping) else [terms]
    kind = Ball if any(isinstance(term, Ball) for term in given) else NormPenalty
    checked = checked_terms(terms, kind, "terms", loss.hypergraph)
    run = _Run(loss, checked)
    run.begin(start)
    return run.result(run_until_done(run.points(), stopping, progress, "splitting"))


class _Run:
    """Douglas-Rachford over the unfolding and, with an l1 term, theta / sqrt(tau), in one flat vector."""

    def __init__(self, loss: Loss, terms: dict[str, Ball] | dict[str, NormPenalty]) -> None:
        self._loss, self._terms = loss, terms
        names = {type(term.norm): name for name, term in terms.items()}
        if len(names) != len(terms) or OverlappedNorm not in names or not names.keys() <= {OverlappedNorm, L1Norm}:
            problem = "one term of OverlappedNorm is needed, and at most one other, of L1Norm"
            raise conflict("terms", problem, "take frank_wolfe() or fit_penalised() for other norms")
        self._low_name, self._sparse_name = names[OverlappedNorm], names.get(L1Norm)
        # The unfolding, and the flat point that holds both parts.
        norm = terms[self._low_name].norm
        assert isinstance(norm, OverlappedNorm)
        self._map = norm.unfolding
        self._order = norm.hypergraph.order
        self._low = terms[self._low_name]
        self._sparse = None if self._sparse_name is None else terms[self._sparse_name]
        self._root = np.sqrt(self._map.multiplicity)
        self._split_at = int(np.prod(self._map.shape))
        size = self._split_at + (0 if self._sparse is None else loss.num_parameters)
        self._point = np.zeros(size)
        # What acceleration and the certificate remember.
        self._recent: deque[tuple[Floats, Floats]] = deque(maxlen=_MEMORY + 1)
        self._first = self._residual = np.inf
        self._iteration = self._num_accelerated = self._num_still = 0
        self.objective, self.bound = np.inf, -np.inf
        self._trace: list[tuple[float, float]] = []
        self._plain: tuple[Floats, Point] | None = None
        self._slopes: dict[str | None, float] = dict.fromkeys([*terms, None], np.inf)

    def begin(self, start: SplittingResult | None) -> None:
        """Set the point and the step."""
        zeros = np.zeros(self._loss.num_parameters)
        value, gradient = self._loss.value_and_gradient(zeros)
        self._here = Point(zeros, value, value, gradient * self._root)
        self.objective, self._best = value, (zeros, zeros, 0)
        scale = float(np.linalg.norm(self._here.gradient))
        self._step = self._usual = 1.0 / max(scale, 1e-12)
        check_type(start, SplittingResult | None, "start", "SplittingResult or None")
        if start is not None:
            if start.state[0].shape != self._point.shape:
                raise conflict("start", "it is of other interactions or norms", "give a result for the same ones")
            self._point, self._step = start.state[0].copy(), start.state[1]
            self._evaluate(start.theta.numpy() / self._root)

    @property
    def gap(self) -> float:
        """How far the best objective may be above its minimum."""
        return max(self.objective - self.bound, 0.0)

    def points(self) -> Iterator[tuple[float, float]]:
        """Best objective and gap of every iteration, until the gap stands still and the point hardly moves."""
        while self._num_still < _PATIENCE:
            self.step()
            yield self.objective, self.gap

    def _evaluate(self, scaled: Floats) -> Point:
        """The loss and its gradient at theta / sqrt(tau)."""
        value, gradient = self._loss.value_and_gradient(scaled * self._root)
        self._here = Point(scaled, value, value, gradient * self._root)
        return self._here

    def _fitted(self, point: Floats) -> Floats:
        """Proximal map of the loss of the sum of both parts at a point."""
        low = self._map.nearest(point[: self._split_at].reshape(self._map.shape)) / self._root
        sparse = point[self._split_at :]
        count = 1 if self._sparse is None else 2
        centre = low if count == 1 else low + sparse
        weight = 1.0 / (count * self._step)

        def evaluate(scaled: Floats) -> Point:
            point, move = self._evaluate(scaled), scaled - centre
            value = point.value + weight / 2 * float(move @ move)
            return Point(scaled, point.loss, value, point.gradient + weight * move)

        # As exact as the residual needs, and ever more so.
        relative = min(0.03 * self._residual, self._first / (self._iteration + 1) ** 2) / self._step
        tolerance = float(np.clip(relative / np.sqrt(len(centre)), 1e-12, 1e-3))
        optimum = lbfgs(evaluate, evaluate(self._here.theta), tolerance, _INNER, lambda *_: False).point
        gradient = optimum.gradient - weight * (optimum.theta - centre)
        self._here = Point(optimum.theta, optimum.loss, optimum.loss, gradient)
        move = (optimum.theta - centre) / count
        whole = self._map.matrix((low + move) * self._root).ravel()
        return whole if count == 1 else np.concatenate([whole, sparse + move])

    def step(self) -> None:
        """One iteration: both proximal maps, the certificate, and the next point."""
        self._iteration += 1
        # Proximal map, or projection, of both terms at the point, and the rank of the first.
        matrix = self._point[: self._split_at].reshape(self._map.shape)
        if isinstance(self._low, Ball):
            low, rank = self._map.project(matrix, self._low.radius / self._order)
        else:
            low, rank = self._map.shrink(matrix, self._step * self._low.strength * self._order)
        rest = self._point[self._split_at :]
        if isinstance(self._sparse, Ball):
            rest = np.copysign(project_magnitudes(np.abs(rest), self._sparse.radius, self._root), rest)
        elif self._sparse is not None:
            rest = np.copysign(np.maximum(np.abs(rest) - self._step * self._sparse.strength * self._root, 0.0), rest)
        shrunk = np.concatenate([low.ravel(), rest])
        change = self._fitted(2 * shrunk - self._point) - shrunk
        residual = float(np.linalg.norm(change))
        if self._plain is not None and not residual <= 2 * self._residual:  # the combination led astray
            self._point, self._here = self._plain
            self._plain = None
            self._recent.clear()
            return
        # The certificate of this point, and whether anything still moves.
        self._residual = residual
        if self._iteration == 1:
            self._first = self._residual
        before = self.gap
        self._certify(shrunk, rank)
        is_still = self.gap >= before and self._residual <= _ROUNDING * float(np.linalg.norm(self._point))
        self._num_still = self._num_still + 1 if is_still else 0
        # A step at which both residuals weigh the same; where it is set anew, what was remembered is of no use.
        if self._iteration in _BALANCED:
            primal, dual = float(np.linalg.norm(shrunk)), float(np.linalg.norm(self._point - shrunk)) / self._step
            if primal > 0 and dual > 0:
                low, high = self._usual / _RANGE, self._usual * _RANGE  # where nothing binds, dual falls to zero
                step = float(np.clip(primal / dual, max(low, self._step / 10), min(high, self._step * 10)))
                self._point = shrunk + (self._point + change - shrunk) * (step / self._step)
                self._step = step
                self._plain = None
                self._recent.clear()
                return
        self._recent.append((self._point, change))
        plain = self._point + change
        self._point = self._accelerated(plain)
        self._plain = None if self._point is plain else (plain, self._here)

    def _accelerated(self, plain: Floats) -> Floats:
        """The next point by Anderson's combination of the last ones, while it is safe."""
        bound = _SAFE * self._first / (self._num_accelerated + 1) ** 1.1
        if len(self._recent) < 3 or self._residual > bound:
            return plain
        points, changes = (np.stack(part) for part in zip(*self._recent, strict=True))
        moves, bends = np.diff(points, axis=0), np.diff(changes, axis=0)
        gram = bends @ bends.T
        gram[np.diag_indices_from(gram)] += _RIDGE * float(np.trace(gram)) + np.finfo(float).tiny
        self._num_accelerated += 1
        return plain - np.linalg.solve(gram, bends @ changes[-1]) @ (moves + bends)

    def _certify(self, shrunk: Floats, rank: int) -> None:
        """Objective of the strongly symmetric parts nearest to the shrunk ones, and a lower bound of the minimum."""
        # From above: the parts as they would be returned.
        matrix = shrunk[: self._split_at].reshape(self._map.shape)
        low, sparse = self._map.nearest(matrix), np.zeros(self._loss.num_parameters)
        if self._sparse is not None:
            sparse = shrunk[self._split_at :] * self._root
        norm = self._order * self._map.nuclear(low)
        if isinstance(self._low, Ball) and norm > self._low.radius:
            low = low * (self._low.radius / norm)
        objective = self._loss.value(sparse + low) + self._low.cost(norm)
        if self._sparse is not None:
            objective += self._sparse.cost(float(np.abs(sparse).sum()))
        if objective < self.objective:
            self.objective, self._best = objective, (low, sparse, rank)
        # From below: the dual variable, corrected until it is feasible for the gradient.
        theta, gradient = self._here.theta * self._root, self._here.gradient / self._root
        dual = (self._point - shrunk)[: self._split_at].reshape(self._map.shape) / self._step
        dual = self._map.with_adjoint(dual, -gradient)
        steep = float(np.sqrt(np.linalg.eigvalsh(dual @ dual.T)[-1])) / self._order
        slopes = {self._low_name: steep, self._sparse_name: float(np.abs(gradient).max())}
        bound = self._here.loss - float(gradient @ theta)
        if isinstance(self._low, Ball):
            bound -= sum(term.radius * slopes[name] for name, term in self._terms.items() if isinstance(term, Ball))
        else:
            excess = max(
                slopes[name] / term.strength for name, term in self._terms.items() if isinstance(term, NormPenalty)
            )
            bound -= max(0.0, excess - 1.0) * self.objective
        if bound > self.bound:
            self.bound, self._slopes = bound, slopes
        self._trace.append((objective, self.gap))

    def result(self, status: ConstrainedStatus) -> SplittingResult:
        """The best point met."""
        low, sparse, rank = self._best
        parts = {self._low_name: low, self._sparse_name: sparse}
        return SplittingResult(
            hypergraph=self._loss.hypergraph,
            coding="corner",
            parts={name: torch.from_numpy(parts[name].copy()) for name in self._terms},
            terms=dict(self._terms),
            loss=self._loss.value(low + sparse),
            gap=self.gap,
            status=status,
            multipliers={name: self._slopes[name] for name in self._terms},
            trace=np.array(self._trace).reshape(-1, 2),
            rank=rank,
            state=(self._point.copy(), self._step),
        )
