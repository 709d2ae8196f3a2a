"""Minimisation over the faces of several parts at once: Newton steps with projections, or proximal maps."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .losses import Loss
from .norms import Ball, Face, NormPenalty

__all__ = ["FacePoint", "descend", "on_faces"]

Floats = NDArray[np.float64]
_NEWTON, _SHARE, _EVERY, _STEPS = 20, 0.05, 5, 3000
_MEMORY, _ARMIJO, _TRIALS = 8, 1e-4, 40
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
    model: _Model,
    terms: Sequence[Ball | NormPenalty],
    faces: Sequence[Face],
    start: Sequence[Floats],
    tolerance: float,
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

    here = list(start)
    objective, slopes, norms = evaluated(here)
    recent, length = deque([objective], _MEMORY), 1.0
    for count in range(_STEPS):
        if count % _EVERY == 0 and gap_on(terms, faces, here, slopes, norms, objective) <= tolerance:
            break
        for _ in range(_TRIALS):
            moved = [
                term.prox(face, x - length * slope, length)
                for term, face, x, slope in zip(terms, faces, here, slopes, strict=True)
            ]
            moves = [a - b for a, b in zip(moved, here, strict=True)]
            square = float(sum(move @ move for move in moves))
            found = evaluated(moved)
            if found[0] <= max(recent) - _ARMIJO * square / (2 * length):
                break
            length /= 2
        else:
            break
        if square == 0.0:
            break
        curvature = float(sum(move @ (a - b) for move, a, b in zip(moves, found[1], slopes, strict=True)))
        length = float(np.clip(square / curvature, _SHORTEST, _LONGEST)) if curvature > 0 else _LONGEST
        here, (objective, slopes, norms) = moved, found
        recent.append(objective)
    return here
