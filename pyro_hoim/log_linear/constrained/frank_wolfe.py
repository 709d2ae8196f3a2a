"""Frank-Wolfe over products of norm balls, plain and corrected, and proximal steps for the penalised problem."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ...errors import check_choice, check_type, conflict
from ..fitting.solvers import Stopping
from .corrective import FacePoint, descend, on_faces
from .losses import Loss
from .norms import Ball, Face, L1Norm, NormPenalty, checked_terms
from .result import ConstrainedResult
from .steps import StepRule, best_steps, step_lengths

__all__ = ["Method", "fit_penalised", "frank_wolfe"]

Floats = NDArray[np.float64]
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
        iterates = _corrected(loss, list(terms.values()), first, _tolerance(stopping))
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
    iterates = _corrected(loss, list(terms.values()), _started(loss, terms, start), _tolerance(stopping))
    return _followed(loss, terms, iterates, stopping, progress)


def _tolerance(stopping: Stopping | None) -> float:
    check_type(stopping, Stopping | None, "stopping", "Stopping or None")
    return _TOLERANCE if stopping is None or stopping.tolerance is None else stopping.tolerance


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
        face, found = term.norm.face(part)
        faces.append(face)
        coordinates.append(face.project(found, term.radius) if isinstance(term, Ball) else found)
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
        pairs = [
            face.widened(x, point.gradient, term.level)
            for term, face, x in zip(terms, point.faces, point.coordinates, strict=True)
        ]
        wider = on_faces(loss, terms, [face for face, _ in pairs], [x for _, x in pairs])
        found = descend(loss, terms, wider, max(0.3 * tolerance * point.objective, 0.1 * gap))
        if found is wider and wider.gap <= point.gap:
            return
        point = found


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
        along = radius * (move[: len(theta)] - move[len(theta) :])
        length = float(best_steps(loss.restrict(theta, along[None]), np.array([limit]))[0])
        weights = weights + length * move
        if length == limit and (is_pairwise or not is_forward):
            weights[worst] = 0.0
        weights = np.maximum(weights, 0.0)
        weights /= weights.sum()


def _followed(
    loss: Loss,
    terms: Mapping[str, Ball | NormPenalty],
    iterates: Iterator[_Iterate],
    stopping: Stopping | None,
    progress: bool,
) -> ConstrainedResult:
    """Run until the gap is small, nothing changes, the iterations are spent or Ctrl-C; the best point met."""
    limit = _ITERATIONS if stopping is None or stopping.max_iterations is None else stopping.max_iterations
    tolerance, trace = _tolerance(stopping), list[tuple[float, float]]()
    best: _Iterate | None = None
    status = "max_iterations"
    bar = tqdm(total=limit, unit="iteration", leave=False) if progress else None
    try:
        for iterate in itertools.islice(iterates, limit):
            trace.append((iterate.objective, iterate.gap))
            is_done = iterate.gap <= tolerance * abs(iterate.objective)
            if best is None or is_done or iterate.objective < best.objective:
                best = iterate
            if bar is not None:
                bar.set_postfix_str(f"gap {iterate.gap:.2g}", refresh=False)
                bar.update()
            if is_done:
                status = "converged"
                break
        else:
            status = "max_iterations" if len(trace) == limit else "stalled"
    except KeyboardInterrupt:
        if best is None:
            raise
        status = "interrupted"
    finally:
        if bar is not None:
            bar.close()
    assert best is not None
    return ConstrainedResult.from_parts(loss, terms, best.parts, best.gradient, best.gap, status, np.array(trace))
