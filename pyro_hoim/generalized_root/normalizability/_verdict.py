"""Sign of the largest value of a form, by the cheapest means that settles it."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from .form import Array, Form, bounded_by_planes, connected, is_definite, local_maximum

_BUDGET = 40_000
_CHUNK = 1024
_LARGEST_BRANCHED = 10
_LARGEST_SIGNED = 7
_LARGEST_RATIONAL = 24


Sign = Literal["negative", "positive", "unknown"]


class Verdict(NamedTuple):
    """Sign of the largest value of a form on the simplex, how it is known, and a point with signs that is not below."""

    sign: Literal["negative", "zero", "positive", "unknown"]
    how: str
    point: Array | None = None
    signs: Array | None = None


def settle(form: Form) -> Verdict:
    """The sign of the largest value of a form; ``zero`` only where it is certain, with a point that attains it."""
    verdicts: list[Verdict] = []
    for members in connected(form.size, form.sets):
        found = _settle_connected(form.restricted(members))
        if found.point is not None:
            point, signs = np.zeros(form.size), np.ones(form.size)
            point[members] = found.point
            signs[members] = 1.0 if found.signs is None else found.signs
            found = found._replace(point=point, signs=signs)
        if found.sign == "positive":
            return found
        verdicts.append(found)
    ways = "; ".join(dict.fromkeys(found.how for found in verdicts))
    worst = min(verdicts, key=lambda found: ("unknown", "zero", "negative").index(found.sign), default=None)
    return Verdict("negative", ways) if worst is None or worst.sign == "negative" else worst


def _settle_connected(form: Form) -> Verdict:
    if (form.linear > 0).any():
        return Verdict("positive", "a single variable grows", np.eye(form.size)[form.linear.argmax()])
    if form.size == 1:
        sign = "negative" if form.linear[0] < 0 else "zero"
        return Verdict(sign, "the coefficient of a single variable", np.ones(1))
    if bounded_by_planes(form):
        return Verdict("negative", "a bound of every root product by a weighted arithmetic mean")
    definite, vector = is_definite(form)
    if definite:
        return Verdict("negative", "a negative definite quadratic form")
    only_pairs = all(index.shape[1] == 2 for index in form.sets)
    if vector is not None:
        w, signs = vector**2 / (vector**2).sum(), np.where(vector < 0, -1.0, 1.0)
        value, error = form.value(w, signs if form.is_signed else None)
        if value > error:
            return Verdict("positive", "an eigenvector of the quadratic form", w, signs)
        if form.is_signed and only_pairs:
            return _exact_definite(form, w, signs)
    largest, point, signs = local_maximum(form)
    if largest > 0:
        return Verdict("positive", "ascent from many directions", point, signs)
    value, error = form.value(point, signs)
    if abs(value) <= max(float(error), 1e-12 * form.scale):
        return Verdict("unknown", "its largest value is zero within rounding", point, signs)
    return _branch(form)


def _branch(form: Form) -> Verdict:
    """Branch and bound, over all patterns of signs where they matter."""
    limit = _LARGEST_SIGNED if form.is_signed else _LARGEST_BRANCHED
    if form.size > limit:
        return Verdict("unknown", f"no bound applies and {form.size} variables are more than the {limit} searched")
    tried = 0
    for pattern in range(2 ** (form.size - 1) if form.is_signed else 1):
        signs = np.array([-1.0 if pattern >> s & 1 else 1.0 for s in range(form.size)])
        sign, point, more = branch_and_bound(form.with_signs(signs), _BUDGET - tried)
        tried += more
        if sign == "positive":
            return Verdict("positive", "branch and bound", point, signs)
        if sign == "unknown":
            return Verdict("unknown", f"branch and bound stopped after {tried} pieces of the set of directions")
    return Verdict("negative", f"branch and bound over {tried} pieces of the set of directions")


def _exact_definite(form: Form, w: Array, signs: Array) -> Verdict:
    """Decide a matrix that is singular within rounding by elimination in rational numbers."""
    if form.size > _LARGEST_RATIONAL:
        return Verdict("unknown", "the quadratic form is singular within rounding", w, signs)
    rows = [[-Fraction(float(v)) for v in row] for row in form.matrix()]
    for k in range(form.size):
        pivot = rows[k][k]
        if pivot <= 0:
            sign = "zero" if pivot == 0 and not any(rows[k][k:]) else "positive"
            return Verdict(sign, "elimination of the quadratic form in rational numbers", w, signs)
        for i in range(k + 1, form.size):
            factor = rows[i][k] / pivot
            if factor:
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return Verdict("negative", "elimination of the quadratic form in rational numbers")


def branch_and_bound(form: Form, budget: int) -> tuple[Sign, Array | None, int]:
    """Prove that a form (without signs) is negative on the simplex, or find a point where it is positive.

    Gives the sign of the largest value, a point where it is positive, and the number of simplices tried. The simplex is
    halved along edges until every piece is proven. With pairs only, the form is y' M y at w = y^2, and a piece with
    corners V is proven if all entries of V M V' are negative (then so is the form on the cone of V). Otherwise a
    positive mean, which is concave, is bounded by its tangent plane at the middle, a negative one, which is convex, by
    its values at the corners; the largest sum over corners bounds the piece (Bundfuss and Duer, 2008).
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
