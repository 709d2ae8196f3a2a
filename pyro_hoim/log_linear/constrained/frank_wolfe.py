"""Frank-Wolfe over products of norm balls, plain and corrected, and proximal steps for the penalised problem."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ...errors import check_choice, check_type, conflict
from ..fitting.solvers import Stopping
from .losses import Derivatives, Loss, Restriction
from .norms import Ball, Face, L1Norm, NormPenalty, checked_terms
from .result import ConstrainedResult, ConstrainedStatus

# Step lengths between 0 and 1: by exact search in one or more of them, on a grid, on nested grids, and 2 / (i + 2).

Floats = NDArray[np.float64]
StepRule = Literal["exact", "two-variable", "nested", "grid", "diminishing"]
_GRID, _DEPTH = 20, 8
_NEWTON_STEPS, _TRIALS, _ARMIJO, _FLAT = 50, 40, 1e-4, 1e-13


def best_steps(plane: Restriction, upper: NDArray[np.float64]) -> Floats:
    """Minimiser (k,) of a convex function over the box from 0 to ``upper``, by projected Newton steps from 0.

    Steps that would leave the box are cut off, coordinate by coordinate; a step is halved until the function falls, and
    a direction along which Newton does not help is replaced by the gradient.
    """
    steps = np.zeros(len(upper))
    here = plane.derivatives(steps)
    scale = max(1e-300, float(np.abs(here.gradient) @ upper))
    for _ in range(_NEWTON_STEPS):
        is_free = ((steps > 0) | (here.gradient < 0)) & ((steps < upper) | (here.gradient > 0)) & (upper > 0)
        if float(np.abs(here.gradient * is_free) @ upper) <= _FLAT * scale:
            break
        # Minus the inverse Hessian of the free coordinates times their gradient, the Hessian slightly raised.
        newton, free = np.zeros(len(is_free)), np.flatnonzero(is_free)
        hessian = here.hessian[np.ix_(free, free)]
        raised = hessian + np.eye(len(free)) * max(1e-300, 1e-12 * float(np.trace(hessian)))
        newton[free] = -np.linalg.solve(raised, here.gradient[free])
        for direction in (newton, -here.gradient * is_free * (upper @ upper) / scale):
            lower = _searched(plane, steps, here, direction, upper)
            if lower is not None:
                steps, here = lower
                break
        else:
            break
    return steps


def _searched(
    plane: Restriction, steps: Floats, here: Derivatives, direction: Floats, upper: Floats
) -> tuple[Floats, Derivatives] | None:
    """The first of ever shorter steps within the box at which the function falls enough; None if none does."""
    length = 1.0
    for _ in range(_TRIALS):
        trial = np.clip(steps + length * direction, 0.0, upper)
        fall = float(here.gradient @ (trial - steps))
        if not np.isfinite(trial).all() or fall >= 0:
            return None
        there = plane.derivatives(trial)
        # Where values differ by rounding alone, the slope tells: of a convex function it must not have turned round.
        is_lower = there.value <= here.value + _ARMIJO * fall
        if is_lower or (fall > -1e-12 * abs(here.value) and there.gradient @ (trial - steps) <= -0.5 * fall):
            return trial, there
        length /= 2
    return None


def grid_step(plane: Restriction, moves: int, points: int = _GRID) -> Floats:
    """The best common step of an equidistant grid with 0 and 1, as in paper 3, section 4.5."""
    grid = np.linspace(0.0, 1.0, points + 1)
    values = [plane.value(np.full(moves, step)) for step in grid]
    return np.full(moves, grid[int(np.argmin(values))])


def nested_step(plane: Restriction, moves: int, points: int = 4, depth: int = _DEPTH) -> Floats:
    r"""A common step by ever finer grids: each is scanned until the function rises, then the next one lies around.

    With :math:`a_i` the best point of a grid, the minimiser of a convex function is between :math:`a_{i-1}` and
    :math:`a_{i+1}`. (Paper 3, section 4.5, continues between :math:`a_{i-1}` and :math:`a_i`, which can miss it.)
    """
    low, high, step = 0.0, 1.0, 0.0
    for _ in range(depth):
        grid = np.linspace(low, high, points + 1)
        best, value = 0, plane.value(np.full(moves, grid[0]))
        for index in range(1, points + 1):
            other = plane.value(np.full(moves, grid[index]))
            if other > value:
                break
            best, value = index, other
        low, high, step = grid[max(0, best - 1)], grid[min(points, best + 1)], grid[best]
    return np.full(moves, step)


class _Together:
    """A restriction to the sum of its directions."""

    def __init__(self, plane: Restriction, moves: int) -> None:
        self._plane, self._ones = plane, np.ones(moves)

    def value(self, steps: NDArray[np.float64]) -> float:
        return self._plane.value(steps[0] * self._ones)

    def derivatives(self, steps: NDArray[np.float64]) -> Derivatives:
        along = self._plane.derivatives(steps[0] * self._ones)
        slope, bend = along.gradient.sum(keepdims=True), along.hessian.sum(keepdims=True)
        return Derivatives(along.value, slope, bend)


def step_lengths(rule: StepRule, plane: Restriction, moves: int, iteration: int) -> Floats:
    """Steps (moves,) along as many directions by a rule; all but those of "two-variable" are equal."""
    if rule == "diminishing":
        return np.full(moves, 2.0 / (iteration + 2))
    if rule == "two-variable":
        return best_steps(plane, np.ones(moves))
    if rule == "exact":
        return best_steps(_Together(plane, moves), np.ones(1)).repeat(moves)
    return nested_step(plane, moves) if rule == "nested" else grid_step(plane, moves)


# Minimisation over the faces of several parts at once: Newton steps with projections, or proximal maps.

_NEWTON, _SHARE, _EVERY, _STEPS = 20, 0.05, 5, 3000
_MEMORY = 8
_SHORTEST, _LONGEST = 1e-8, 1e6


@dataclass(frozen=True, eq=False)
class FacePoint:
    """Coordinates on every face, loss, objective, gradient in theta, gradients there and duality gap."""

    faces: tuple[Face, ...]
    coordinates: tuple[Floats, ...]
    loss: float
    objective: float
    gradient: Floats
    pulled: tuple[Floats, ...]
    gap: float

    def parts(self) -> Floats:
        """The parts of theta, (k, num_parameters)."""
        return np.stack([face.embed(x) for face, x in zip(self.faces, self.coordinates, strict=True)])


def on_faces(
    loss: Loss, terms: Sequence[Ball | NormPenalty], faces: Sequence[Face], coordinates: Sequence[Floats]
) -> FacePoint:
    """A point with all that belongs to it; the gap is that of the problem on the faces alone."""
    every = list(zip(terms, faces, coordinates, strict=True))
    theta = np.zeros(loss.num_parameters)
    for _, face, x in every:
        theta += face.embed(x)
    value, gradient = loss.value_and_gradient(theta)
    norms = [face.norm(x) for _, face, x in every]
    objective = value + sum(term.cost(norm) for (term, _, _), norm in zip(every, norms, strict=True))
    pulled = tuple(face.pull(gradient) for face in faces)
    gap = gap_on(terms, faces, coordinates, pulled, norms, objective)
    return FacePoint(tuple(faces), tuple(coordinates), value, objective, gradient, pulled, gap)


def gap_on(
    terms: Sequence[Ball | NormPenalty],
    faces: Sequence[Face],
    coordinates: Sequence[Floats],
    slopes: Sequence[Floats],
    norms: Sequence[float],
    objective: float,
) -> float:
    """Duality gap of the problem on faces alone, from the gradient there and the norms of the parts."""
    return sum(
        term.gap(float(slope @ x), norm, face.dual(slope), objective)
        for term, face, x, slope, norm in zip(terms, faces, coordinates, slopes, norms, strict=True)
    )


def descend(loss: Loss, terms: Sequence[Ball | NormPenalty], start: FacePoint, tolerance: float) -> FacePoint:
    """A point of the same faces with a gap of at most ``tolerance``, or the best one that was found.

    Newton steps: the second-order model at a point is minimised under the same constraints or penalties, up to a share
    of the gap, and a step towards its minimiser is halved until the objective falls.
    """
    here = start
    for _ in range(_NEWTON):
        if here.gap <= tolerance:
            break
        model = _Model(loss, here)
        target = _spectral(model, terms, here.faces, here.coordinates, max(0.3 * tolerance, _SHARE * here.gap))
        moves = [a - b for a, b in zip(target, here.coordinates, strict=True)]
        for trial in range(_TRIALS):
            moved = [x + move / 2**trial for x, move in zip(here.coordinates, moves, strict=True)]
            there = on_faces(loss, terms, here.faces, moved)
            if there.objective < here.objective or there.gap < here.gap:
                here = there
                break
        else:
            break
    return here


class _Model:
    """Second-order model of a loss around a point of faces, in their coordinates."""

    def __init__(self, loss: Loss, centre: FacePoint) -> None:
        self._sizes = np.cumsum([face.size for face in centre.faces])[:-1]
        self._centre, self._slope = np.concatenate(centre.coordinates), np.concatenate(centre.pulled)
        self._value = centre.loss
        basis = np.concatenate([face.basis() for face in centre.faces], 1)
        self._hessian = loss.reduced_hessian(centre.parts().sum(0), basis)

    def __call__(self, coordinates: Sequence[Floats]) -> tuple[float, list[Floats]]:
        move = np.concatenate(coordinates) - self._centre
        bend = self._hessian @ move
        return self._value + float((self._slope + bend / 2) @ move), np.split(self._slope + bend, self._sizes)


def _spectral(
    model: _Model, terms: Sequence[Ball | NormPenalty], faces: Sequence[Face], start: Sequence[Floats], tolerance: float
) -> list[Floats]:
    """Minimiser of a model plus the terms up to a gap: projected, or proximal, gradient steps of spectral length.

    A step goes to the projection (of penalties: the proximal map) of a gradient step, whose length is that of Barzilai
    and Borwein. The largest of the last eight objectives may not be exceeded.

    References:
        Stephen Wright, Robert Nowak and Mario Figueiredo, Sparse reconstruction by separable approximation, 2009.
    """

    def evaluated(coordinates: list[Floats]) -> tuple[float, list[Floats], list[float]]:
        value, slopes = model(coordinates)
        norms = [face.norm(x) for face, x in zip(faces, coordinates, strict=True)]
        return value + sum(term.cost(norm) for term, norm in zip(terms, norms, strict=True)), slopes, norms

    # The gap is looked at every few steps only: it costs as much as a step.
    here = list(start)
    objective, slopes, norms = evaluated(here)
    recent, length = deque([objective], _MEMORY), 1.0
    for count in range(_STEPS):
        if count % _EVERY == 0 and gap_on(terms, faces, here, slopes, norms, objective) <= tolerance:
            break
        # Shorter steps until the largest of the recent objectives is not exceeded.
        for _ in range(_TRIALS):
            moved = [
                term.prox(face, x - length * slope, length)
                for term, face, x, slope in zip(terms, faces, here, slopes, strict=True)
            ]
            moves = [a - b for a, b in zip(moved, here, strict=True)]
            square = float(sum(move @ move for move in moves))
            trial = evaluated(moved)
            if trial[0] <= max(recent) - _ARMIJO * square / (2 * length):
                break
            length /= 2
        else:
            break
        if square == 0.0:
            break
        # The length of the next step, from the curvature along this one.
        curvature = float(sum(move @ (a - b) for move, a, b in zip(moves, trial[1], slopes, strict=True)))
        length = float(np.clip(square / curvature, _SHORTEST, _LONGEST)) if curvature > 0 else _LONGEST
        here, (objective, slopes, norms) = moved, trial
        recent.append(objective)
    return here


Method = Literal["fully-corrective", "standard", "away", "pairwise"]
_TOLERANCE, _ITERATIONS = 1e-7, 1000


@dataclass(frozen=True, eq=False)
class _Iterate:
    """Parts of theta (k, num_parameters) with objective, gradient of the loss and duality gap."""

    parts: Floats
    objective: float
    gradient: Floats
    gap: float


def frank_wolfe(
    loss: Loss,
    balls: Ball | Mapping[str, Ball],
    *,
    method: Method = "fully-corrective",
    step: StepRule = "exact",
    stopping: Stopping | None = None,
    start: ConstrainedResult | None = None,
    progress: bool = False,
) -> ConstrainedResult:
    r"""Minimise a loss of a sum of parts, each within a ball, by linear minimisation over the balls.

    .. math:: \min_{S, L} f(S + L) \quad \text{subject to} \quad \|S\|_1 \le a,\ \|L\|_{S_1} \le b

    and likewise for any number of parts. At every iterate X with parts :math:`X_k` in balls :math:`B_k` the duality gap

    .. math:: g(X) = \sum_k \max_{V_k \in B_k} \langle X_k - V_k, \nabla f(X) \rangle \ge f(X) - f(X^*)

    is known from the vertices; it stops the run and comes with the result. The methods:

    * ``"standard"``: algorithms 1 to 4 of paper 3, with the step rule ``step``: ``"diminishing"``, 2 / (i + 2);
      ``"exact"``, the best common step of all parts; ``"two-variable"``, the best step for each part; ``"grid"`` and
      ``"nested"``, a common step by searches on grids. Gap and error fall as 1 / i, by searches on grids only until
      the best step is shorter than those of the (finest) grid: such a run stands still from there and is ``stalled``.
    * ``"pairwise"`` and ``"away"``: for one l1 ball. Weight moves from the worst vertex in use to the best one, or away
      from the worst. Both converge linearly on a polytope.
    * ``"fully-corrective"`` (default): after new vertices are met, the loss is minimised over all combinations of
      those in use, by projected gradients in few coordinates. For the nuclear norm these are a symmetric matrix in the
      span of the eigenvectors met so far, from which directions of no weight are dropped.

    Args:
        loss: a convex function of theta.
        balls: constraints by the name of the part, or a single one.
        method: see above.
        step: step rule of ``"standard"``; the other methods search exactly.
        stopping: ``tolerance`` is the gap, as a share of the loss, at which it is done (1e-7); ``max_iterations`` the
            most evaluations of the vertices (1,000). ``patience`` has no meaning here.
        start: a result for the same loss and names, whose parts are moved into the balls; zero by default.
        progress: show on standard error how far the gap has fallen.

    Returns:
        The best point met with its gap, whether the run converged, stalled, ran out of iterations or was interrupted:
        Ctrl-C ends it with the best complete iterate.

    Raises:
        InputTypeError: an argument of another type.
        InputError: no ball, a norm that the interactions do not have, an unknown method or step rule, steps away from
            vertices for other than one l1 ball, a start with other parts.

    References:
        Paper 3, algorithms 1 to 4 and section 4.5. Martin Jaggi, Revisiting Frank-Wolfe, 2013, algorithm 4 and theorem
        2. Simon Lacoste-Julien and Martin Jaggi, On the global linear convergence of Frank-Wolfe optimization variants,
        2015, algorithms 1 and 2.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear.constrained.losses import PseudoLikelihoodLoss
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> found = frank_wolfe(PseudoLikelihoodLoss(data, 2), Ball(L1Norm(), 0.5))
        >>> found.theta.round(decimals=3).tolist(), found.status
        ([0.0, 0.0, 0.5], 'converged')
    """
    check_type(loss, Loss, "loss")
    check_choice(method, get_args(Method), "method")
    check_choice(step, get_args(StepRule), "step")
    terms = checked_terms(balls, Ball, "balls", loss.hypergraph)
    if method in ("away", "pairwise") and [type(ball.norm) for ball in terms.values()] != [L1Norm]:
        problem = f"{method!r} steps need one l1 ball, whose vertices are finitely many"
        raise conflict("method", problem, "use 'fully-corrective'")
    first = _started(loss, terms, start)
    if method == "fully-corrective":
        iterates = _corrected(loss, list(terms.values()), first, limits(stopping)[0])
    elif method == "standard":
        iterates = _plain(loss, list(terms.values()), first.parts(), step)
    else:
        iterates = _on_vertices(loss, next(iter(terms.values())), first.parts()[0], method == "pairwise")
    return _followed(loss, terms, iterates, stopping, progress)


def fit_penalised(
    loss: Loss,
    penalties: NormPenalty | Mapping[str, NormPenalty],
    *,
    stopping: Stopping | None = None,
    start: ConstrainedResult | None = None,
    progress: bool = False,
) -> ConstrainedResult:
    r"""Minimise a loss of a sum of parts plus a multiple of the norm of each, by proximal gradient steps.

    .. math:: \min_{S, L} f(S + L) + \lambda \|S\|_1 + \mu \|L\|_{S_1}

    The parts live on faces that grow by the vertices at which the gradient is steeper than the strength of the penalty,
    so that no decomposition of an (n, n) matrix is made. As the loss is not negative, the norms of a solution are at
    most objective / strength; over these balls there is a duality gap, the certificate and stopping rule.

    Args:
        loss: a convex function of theta that is not negative, in nats per row.
        penalties: by the name of the part, or a single one.
        stopping: as of :func:`frank_wolfe`, the gap as a share of the objective.
        start: a result for the same loss and names to begin at.
        progress: show on standard error how far the gap has fallen.

    Returns:
        The best point met, as :func:`frank_wolfe` returns it.

    Raises:
        InputTypeError: an argument of another type.
        InputError: no penalty, a norm that the interactions do not have, a start with other parts.

    References:
        Paper 3, equation (3.2).

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear import PseudoLikelihoodLoss
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> results = [fit_penalised(PseudoLikelihoodLoss(data, 2), NormPenalty(L1Norm(), s)) for s in (0.3, 0.1)]
        >>> [result.theta.round(decimals=3).tolist() for result in results]  # the gradient at zero is 0.25 at most
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.56]]
    """
    check_type(loss, Loss, "loss")
    terms = checked_terms(penalties, NormPenalty, "penalties", loss.hypergraph)
    iterates = _corrected(loss, list(terms.values()), _started(loss, terms, start), limits(stopping)[0])
    return _followed(loss, terms, iterates, stopping, progress)


def limits(stopping: Stopping | None) -> tuple[float, int]:
    """Gap, as a share of the objective, and number of iterations at which a run ends."""
    check_type(stopping, Stopping | None, "stopping", "Stopping or None")
    tolerance, iterations = (None, None) if stopping is None else (stopping.tolerance, stopping.max_iterations)
    return _TOLERANCE if tolerance is None else tolerance, _ITERATIONS if iterations is None else iterations


def _started(loss: Loss, terms: Mapping[str, Ball | NormPenalty], start: ConstrainedResult | None) -> FacePoint:
    """The point zero, or the parts of a former result, moved into the balls."""
    check_type(start, ConstrainedResult | None, "start", "ConstrainedResult or None")
    if start is not None and (list(start.parts) != list(terms) or start.hypergraph != loss.hypergraph):
        problem = f"it has the parts {list(start.parts)} of other interactions, or under other names than {list(terms)}"
        raise conflict("start", problem, "start from a result for the same loss and names")
    faces: list[Face] = []
    coordinates: list[Floats] = []
    for name, term in terms.items():
        part = np.zeros(loss.num_parameters) if start is None else start.parts[name].numpy()
        face, inside = term.norm.face(part)
        faces.append(face)
        coordinates.append(face.project(inside, term.radius) if isinstance(term, Ball) else inside)
    return on_faces(loss, list(terms.values()), faces, coordinates)


def _corrected(
    loss: Loss, terms: Sequence[Ball | NormPenalty], point: FacePoint, tolerance: float
) -> Iterator[_Iterate]:
    """Widen the faces by the steepest vertices and minimise over them, until nothing changes any more."""
    while True:
        parts = point.parts()
        norms = [face.norm(x) for face, x in zip(point.faces, point.coordinates, strict=True)]
        gap = sum(
            term.gap(float(point.gradient @ part), norm, term.norm.dual(point.gradient), point.objective)
            for term, part, norm in zip(terms, parts, norms, strict=True)
        )
        yield _Iterate(parts, point.objective, point.gradient, gap)
        # Faces with the steepest vertices, and the minimum over them.
        pairs = [
            face.widened(x, point.gradient, term.level)
            for term, face, x in zip(terms, point.faces, point.coordinates, strict=True)
        ]
        wider = on_faces(loss, terms, [face for face, _ in pairs], [x for _, x in pairs])
        descended = descend(loss, terms, wider, max(0.3 * tolerance * point.objective, 0.1 * gap))
        if descended is wider and wider.gap <= point.gap:
            return
        point = descended


def _plain(loss: Loss, balls: Sequence[Ball], parts: Floats, rule: StepRule) -> Iterator[_Iterate]:
    """Algorithms 1 to 4 of paper 3."""
    for iteration in itertools.count():
        theta = parts.sum(0)
        value, gradient = loss.value_and_gradient(theta)
        moves = np.stack([ball.vertex(gradient) for ball in balls]) - parts
        yield _Iterate(parts, value, gradient, -float((moves @ gradient).sum()))
        steps = step_lengths(rule, loss.restrict(theta, moves), len(moves), iteration)
        if not steps.any():  # of a grid all of whose steps are too long; every further iteration would be this one
            return
        parts = parts + steps[:, None] * moves


def _on_vertices(loss: Loss, ball: Ball, theta: Floats, is_pairwise: bool) -> Iterator[_Iterate]:
    """Pairwise or away steps on the l1 ball; weights are those of the positive and of the negative unit vectors."""
    radius = ball.radius
    weights = np.concatenate([np.maximum(theta, 0.0), np.maximum(-theta, 0.0)]) / radius
    weights[[0, len(theta)]] += (1.0 - weights.sum()) / 2
    while True:
        theta = radius * (weights[: len(theta)] - weights[len(theta) :])
        value, gradient = loss.value_and_gradient(theta)
        slopes = radius * np.concatenate([gradient, -gradient])
        here = float(gradient @ theta)
        best, worst = int(np.argmin(slopes)), int(np.argmax(np.where(weights > 0, slopes, -np.inf)))
        yield _Iterate(theta[None], value, gradient, here - float(slopes[best]))
        # The direction, and how far the weight that it takes away lasts.
        move = np.zeros(len(weights))
        is_forward = here - slopes[best] >= slopes[worst] - here
        if is_pairwise:
            move[best], move[worst] = 1.0, -1.0
            limit = float(weights[worst])
        elif is_forward:
            move -= weights
            move[best] += 1.0
            limit = 1.0
        else:
            move += weights
            move[worst] -= 1.0
            limit = float(weights[worst] / (1.0 - weights[worst])) if weights[worst] < 1 else 0.0
        if best == worst or limit == 0.0:
            return
        # A vertex that lost all of its weight is dropped, not left with what rounding makes of zero.
        along = radius * (move[: len(theta)] - move[len(theta) :])
        length = float(best_steps(loss.restrict(theta, along[None]), np.array([limit]))[0])
        weights = weights + length * move
        if length == limit and (is_pairwise or not is_forward):
            weights[worst] = 0.0
        weights = np.maximum(weights, 0.0)
        weights /= weights.sum()


def run_until_done(
    points: Iterator[tuple[float, float]], stopping: Stopping | None, progress: bool, label: str | None = None
) -> ConstrainedStatus:
    """Run through objectives and gaps until a gap is small, they end, the iterations are spent or Ctrl-C."""
    (tolerance, limit), number = limits(stopping), 0
    with tqdm(total=limit, desc=label, unit="iteration", leave=False, disable=not progress) as bar:
        try:
            for objective, gap in itertools.islice(points, limit):
                number += 1
                bar.set_postfix_str(f"gap {gap:.2g}", refresh=False)
                bar.update()
                if gap <= tolerance * abs(objective):
                    return "converged"
        except KeyboardInterrupt:
            return "interrupted"
    return "max_iterations" if number == limit else "stalled"


def _followed(
    loss: Loss,
    terms: Mapping[str, Ball | NormPenalty],
    iterates: Iterator[_Iterate],
    stopping: Stopping | None,
    progress: bool,
) -> ConstrainedResult:
    """The best point met, or the last one where the run converged."""
    met: list[_Iterate] = []  # the best and the last
    trace: list[tuple[float, float]] = []

    def noted() -> Iterator[tuple[float, float]]:
        for iterate in iterates:
            trace.append((iterate.objective, iterate.gap))
            met[:] = min([*met[:1], iterate], key=lambda point: point.objective), iterate
            yield trace[-1]

    status = run_until_done(noted(), stopping, progress)
    if not met:
        raise KeyboardInterrupt
    best = met[1 if status == "converged" else 0]
    return ConstrainedResult.from_parts(loss, terms, best.parts, best.gradient, best.gap, status, np.array(trace))
