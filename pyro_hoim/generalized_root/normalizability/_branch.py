"""Branch and bound on the simplex: is a form negative everywhere?"""

from __future__ import annotations

from typing import Literal

import numpy as np

from .form import Array, Form

_CHUNK = 1024


Sign = Literal["negative", "positive", "unknown"]


def branch_and_bound(form: Form, budget: int) -> tuple[Sign, Array | None, int]:
    """Prove that a form (without signs) is negative on the simplex, or find a point where it is positive.

    Gives the sign of the largest value, a point where it is positive, and the number of simplices tried. The simplex is
    halved along edges until every piece is proven. With pairs only, the form is y' M y at w = y^2, and a piece with
    corners V is proven if all entries of V M V' are negative (then so is the form on the cone of V). Otherwise a
    positive mean, which is concave, is bounded by its tangent plane at the middle, a negative one, which is convex, by
    its values at the corners; the largest sum over corners bounds the piece. Every comparison allows for rounding.

    References:
        Stefan Bundfuss and Mirjam Duer, Algorithmic copositivity detection by simplicial partition, 2008.
    """
    only_pairs = all(index.shape[1] == 2 for index in form.sets)
    matrix = form.matrix()
    margin = 4 * form.size * (form.size + sum(map(len, form.weights))) * form.slack * form.scale
    stack = [np.eye(form.size)[None]]
    tried = 0
    while stack:
        pieces = stack.pop()
        if len(pieces) > _CHUNK:
            stack.append(pieces[_CHUNK:])
            pieces = pieces[:_CHUNK]
        tried += len(pieces)
        points = pieces**2 if only_pairs else pieces
        values, errors = form.value(points)
        if (values > errors).any():
            corner = np.unravel_index(int((values - errors).argmax()), values.shape)
            point = points[corner]
            return "positive", point / point.sum(), tried
        if tried >= budget:
            return "unknown", None, tried
        if only_pairs:
            products = pieces @ matrix @ pieces.swapaxes(-1, -2)
            is_open = (products >= -margin * pieces.sum(-1)[..., None] * pieces.sum(-1)[..., None, :]).any((-1, -2))
        else:
            is_open = _plane_bound(form, pieces) >= -margin
        pieces = pieces[is_open]
        if len(pieces):
            stack.append(_halved(pieces))
    return "negative", None, tried


def _plane_bound(form: Form, pieces: Array) -> Array:
    """Upper bound of the form on every piece (n,) with corners (n, d, d)."""
    middle = pieces.mean(1)
    corners = (pieces * form.linear).sum(-1)
    with np.errstate(divide="ignore"):
        logs, log_middle = np.log(pieces), np.log(middle)
    for index, c in zip(form.sets, form.weights, strict=True):
        is_positive = c > 0
        up, down = index[is_positive], index[~is_positive]
        means = np.exp(log_middle[:, up].mean(-1)) * c[is_positive]  # (n, m)
        for column in range(index.shape[1]):
            slope = np.divide(means, middle[:, up[:, column]], out=np.zeros_like(means), where=means > 0)
            corners += (pieces[:, :, up[:, column]] * slope[:, None, :]).sum(-1) / index.shape[1]
        corners += (np.exp(logs[:, :, down].mean(-1)) * c[~is_positive]).sum(-1)
    return corners.max(-1)


def _halved(pieces: Array) -> Array:
    """Every piece cut in two at the middle of its longest edge."""
    n, d = pieces.shape[:2]
    lengths = ((pieces[:, :, None] - pieces[:, None]) ** 2).sum(-1)
    longest = lengths.reshape(n, -1).argmax(-1)
    first, second = longest // d, longest % d
    rows = np.arange(n)
    middle = (pieces[rows, first] + pieces[rows, second]) / 2
    left, right = pieces.copy(), pieces.copy()
    left[rows, first] = middle
    right[rows, second] = middle
    return np.concatenate([left, right])
