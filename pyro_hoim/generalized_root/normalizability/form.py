r"""Forms of degree one in non-negative numbers: are they negative everywhere?

.. math:: g(w) = \sum_s a_s w_s + \sum_S c_S \Bigl(\prod_{s \in S} w_s\Bigr)^{1/|S|}, \qquad w \ge 0

All terms of a generalized root model with the same power l/j of the scale make such a form, in the numbers
:math:`w_s = T_1(x_s)^{l/j}`: their root products are geometric means. In a *signed* form some variables have square
roots of either sign (those of the Gaussian family, where :math:`T_2(x) = x`), and so have their pairs, with each other
or with variables whose roots are positive: there g is maximised over signs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from ..structure import TermGroup

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_LARGEST_DEFINITE = 3_000


@dataclass(frozen=True)
class Form:
    """Linear part (d,), and per size of the sets their variables (m, l) and weights (m,), none of them zero."""

    linear: Array
    sets: tuple[Index, ...]
    weights: tuple[Array, ...]
    signed: Mask | None = None
    """Variables (d,) whose square roots have either sign; None where no pair has one."""

    @classmethod
    def of(cls, linear: Array, parts: Sequence[tuple[Index, Array]], signed: Mask | None = None) -> Form:
        """The form with these sets and their weights; empty parts are left out."""
        filled = [(index, c) for index, c in parts if len(c)]
        return cls(linear, tuple(index for index, _ in filled), tuple(c for _, c in filled), signed)

    @classmethod
    def of_terms(cls, terms: Iterable[TermGroup], is_real: Mask) -> Form:
        """The form of the terms of one power; where T_2 of a variable may have either sign, at the larger value.

        ``is_real`` tells the variables of the Gaussian family (d,).
        """
        linear, joint, is_signed = np.zeros(len(is_real)), list[tuple[Index, Array]](), False
        for t in terms:
            if t.size > 1:
                joint.append((t.rows, t.values))
                is_signed = is_signed or (t.root == t.size == 2 and bool(is_real[t.rows].any()))
            else:
                s = t.rows[:, 0]
                linear[s] += np.where(is_real[s], np.abs(t.values), t.values) if t.root == 2 else t.values
        return cls.of(linear, joint, is_real if is_signed else None)

    @property
    def is_signed(self) -> bool:
        """Whether pairs may take either sign."""
        return self.signed is not None

    @property
    def size(self) -> int:
        """Number of variables."""
        return len(self.linear)

    @property
    def slack(self) -> float:
        """Bound on the relative rounding error of a sum of all terms."""
        return (sum(len(c) for c in self.weights) + self.size + 1000) * float(np.finfo(np.float64).eps)

    @property
    def scale(self) -> float:
        """Largest modulus of a coefficient."""
        return max([0.0, *(float(np.abs(part).max()) for part in (self.linear, *self.weights) if len(part))])

    def terms(self, w: Array, signs: Array | None = None) -> list[Array]:
        """Terms (*sample, m) of every size at points (*sample, d)."""
        found: list[Array] = []
        with np.errstate(divide="ignore"):
            logs = np.log(w)
        for index, weight in zip(self.sets, self.weights, strict=True):
            means = np.exp(logs[..., index].mean(-1))
            if signs is not None and index.shape[1] == 2:
                means = means * signs[..., index].prod(-1)
            found.append(weight * means)
        return found

    def value(self, w: Array, signs: Array | None = None) -> tuple[Array, Array]:
        """G at points (*sample, d), and a bound on its rounding error."""
        parts = [self.linear * w, *self.terms(w, signs)]
        total = sum((part.sum(-1) for part in parts), np.zeros(w.shape[:-1]))
        size = sum((np.abs(part).sum(-1) for part in parts), np.zeros(w.shape[:-1]))
        return total, self.slack * size

    def flow(self, terms: list[Array]) -> Array:
        """Share 1/l of every term added to each of its variables (d,): w times the gradient of the means."""
        total = np.zeros(self.size)
        for index, term in zip(self.sets, terms, strict=True):
            share = np.repeat(term / index.shape[1], index.shape[1])
            total += np.bincount(index.ravel(), share, self.size)
        return total

    def upper(self) -> Form:
        """The form without negative means, which is concave and nowhere smaller; signed pairs count as positive."""
        weights = [
            np.maximum(c, 0.0 if self.signed is None or index.shape[1] != 2 else -c * self.signed[index].any(1))
            for index, c in zip(self.sets, self.weights, strict=True)
        ]
        return Form.of(self.linear, [(index[c > 0], c[c > 0]) for index, c in zip(self.sets, weights, strict=True)])

    def with_signs(self, signs: Array) -> Form:
        """The form at fixed signs, which is not signed."""
        weights = [
            c * signs[index].prod(-1) if index.shape[1] == 2 else c
            for index, c in zip(self.sets, self.weights, strict=True)
        ]
        return Form(self.linear, self.sets, tuple(weights))

    def restricted(self, members: Index) -> Form:
        """The form of some variables, in rising order; terms with others are left out."""
        if len(members) == self.size:
            return self
        position = np.full(self.size, -1)
        position[members] = np.arange(len(members))
        parts = [(position[index], c) for index, c in zip(self.sets, self.weights, strict=True)]
        inside = [(index >= 0).all(1) for index, _ in parts]
        whole = [(index[is_whole], c[is_whole]) for is_whole, (index, c) in zip(inside, parts, strict=True)]
        signed = None if self.signed is None else self.signed[members]
        return Form.of(self.linear[members], whole, signed if signed is not None and signed.any() else None)

    def matrix(self, shift: Array | None = None) -> Array:
        """Matrix M of the pairs and the diagonal, g = y' M y at w = y^2 where there are only pairs."""
        matrix = np.diag(self.linear if shift is None else self.linear + shift)
        for index, c in zip(self.sets, self.weights, strict=True):
            if index.shape[1] == 2:
                matrix[index[:, 0], index[:, 1]] += c / 2
                matrix[index[:, 1], index[:, 0]] += c / 2
        return matrix


def connected(size: int, sets: Iterable[Index]) -> list[Index]:
    """Variables of the connected parts; a form is negative everywhere if and only if it is on each of them."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(size))
    for index in sets:
        for column in range(1, index.shape[1]):
            graph.add_edges_from(zip(index[:, 0].tolist(), index[:, column].tolist(), strict=True))
    return [np.array(sorted(part), dtype=np.int64) for part in nx.connected_components(graph)]


def bounded_by_planes(form: Form) -> bool:
    r"""Whether some tangent plane of the concave upper form proves that g is negative for all w other than 0.

    Concave of degree one: :math:`g(w) \le \nabla g(u) \cdot w` for every u > 0 (a weighted inequality of arithmetic and
    geometric means), so it is enough that the gradient is negative. The iteration on u is that of the non-linear Perron
    theorem; it finds a good u whenever the upper form is negative.
    """
    # Terms of single variables must fall, and enough to bear the means.
    upper = form.upper()
    need = -upper.linear
    if (need <= 0).any():
        return False
    # Move u to where the needs are met alike.
    u = np.ones(upper.size)
    for _ in range(400):
        ratio = upper.flow(upper.terms(u)) / (need * u)
        if ratio.max(initial=0.0) < 1 - 4 * upper.slack:
            return True
        moved = ratio > 0
        if (ratio[moved] >= 1).all():  # then the largest value is at least zero
            return False
        u = np.where(moved, u * np.sqrt(np.where(moved, ratio, 1.0)), u)
        u = np.clip(u / np.exp(np.log(u[moved]).mean()), 1e-100, 1e100)
    return False


def is_definite(form: Form) -> tuple[bool, Array | None]:
    """Whether a negative definite matrix proves that g is negative, of any signs; else the top eigenvector.

    Pairs keep their signs; larger means that are positive are bounded by tangent planes, on the diagonal.
    """
    if form.size > _LARGEST_DEFINITE:
        return False, None
    # Pairs alone first: without them nothing larger can be borne.
    larger_sets = [(i, c) for i, c in zip(form.sets, form.weights, strict=True) if i.shape[1] > 2]
    larger = Form.of(np.zeros(form.size), larger_sets).upper()
    values, vectors = np.linalg.eigh(form.matrix())
    top = vectors[:, -1]
    if values[-1] >= -10 * form.size * form.slack * form.scale:
        return False, top
    # Larger means by tangent planes at better and better points.
    u = np.ones(form.size)
    for _ in range(40 if larger.sets else 1):
        shift = larger.flow(larger.terms(u)) / u
        values, vectors = np.linalg.eigh(form.matrix(shift))
        if values[-1] < -10 * form.size * form.slack * max(form.scale, float(shift.max(initial=0.0))):
            return True, None
        u = np.sqrt(u * np.maximum(vectors[:, -1] ** 2, 1e-12))
        u = u / u.sum()
    return False, top


def local_maximum(form: Form) -> tuple[float, Array, Array]:
    """Largest value of g on the simplex found by ascent from many points, value less its error, point and signs.

    The search ends at the first positive value.
    """
    # Starts: the middle, random points, and the strongest sets.
    rng = np.random.default_rng(0)
    starts = 3 * min(form.size, 6)
    points = [np.full(form.size, 1 / form.size)]
    points += [rng.dirichlet(np.full(form.size, shape)) for shape in (1.0, 0.3, 0.1) for _ in range(starts // 3)]
    for index, c in zip(form.sets, form.weights, strict=True):
        for row in index[np.argsort(-np.abs(c))[:6]]:
            points.append(np.full(form.size, 1e-6 / form.size))
            points[-1][row] += 1 / len(row)
    # Ascents, signs and point in turn; tiny coordinates are tried at zero, too.
    best = (-np.inf, points[0], np.ones(form.size))
    for point in points:
        signs = np.ones(form.size)
        if form.signed is not None:
            signs[(rng.random(form.size) < 0.5) & form.signed] = -1.0
        w = point / point.sum()
        for _ in range(2 if form.is_signed else 1):
            if form.is_signed:
                signs = _best_signs(form, w, signs)
            w = ascend(form.with_signs(signs), w)
        for candidate in (w, np.where(w > 1e-9 * w.max(), w, 0.0)):
            candidate = candidate / candidate.sum()
            value, error = form.value(candidate, signs)
            if float(value - error) > best[0]:
                best = (float(value - error), candidate, signs)
        if best[0] > 0:
            break
    return best


def _best_signs(form: Form, w: Array, signs: Array) -> Array:
    """Signs that no single flip improves."""
    y = np.sqrt(w)
    matrix = form.matrix() * np.outer(y, y)
    np.fill_diagonal(matrix, 0.0)
    signs = signs.copy()
    for _ in range(20):
        before = signs.copy()
        for s in range(form.size) if form.signed is None else np.flatnonzero(form.signed):
            pull = float(matrix[s] @ signs)
            if pull != 0:
                signs[s] = np.sign(pull)
        if (signs == before).all():
            break
    return signs


def ascend(form: Form, start: Array) -> Array:
    """A local maximum on the simplex, in logarithms of w."""

    def negated(logits: Array) -> tuple[float, Array]:
        w = np.exp(logits - logits.max())
        w = w / w.sum()
        parts = form.terms(w)
        slope = form.linear * w + form.flow(parts)
        total = slope.sum()
        return -float(total), -(slope - w * total)

    logits = np.log(np.maximum(start, 1e-12))
    best = minimize(negated, logits, jac=True, method="L-BFGS-B", bounds=[(-60, 60)] * form.size).x
    w = np.exp(best - best.max())
    return w / w.sum()


# Sign of the largest value of a form, by the cheapest means that settles it.

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
    # A form is negative if each of its connected parts is.
    verdicts: list[Verdict] = []
    for members in connected(form.size, form.sets):
        verdict = _settle_connected(form.restricted(members))
        if verdict.point is not None:
            point, signs = np.zeros(form.size), np.ones(form.size)
            point[members] = verdict.point
            signs[members] = 1.0 if verdict.signs is None else verdict.signs
            verdict = verdict._replace(point=point, signs=signs)
        if verdict.sign == "positive":
            return verdict
        verdicts.append(verdict)
    ways = " or by ".join(dict.fromkeys(verdict.how for verdict in verdicts))
    worst = min(verdicts, key=lambda found: ("unknown", "zero", "negative").index(found.sign), default=None)
    return Verdict("negative", ways) if worst is None or worst.sign == "negative" else worst


def _settle_connected(form: Form) -> Verdict:
    # By single variables, by inequalities of means, by the matrix of the pairs.
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
        if form.signed is not None and not form.signed.all():  # the others have positive roots only
            signs = np.where(form.signed, signs * np.sign(vector[~form.signed].sum() or 1.0), 1.0)
        value, error = form.value(w, signs if form.is_signed else None)
        if value > error:
            return Verdict("positive", "an eigenvector of the quadratic form", w, signs)
        if form.signed is not None and form.signed.all() and only_pairs:
            return _exact_definite(form, w, signs)
    # By ascent, and by branch and bound where that finds nothing.
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
    # Pairs do not change where all signs do, so that one of the variables keeps its own if all have one.
    free = [] if form.signed is None else np.flatnonzero(form.signed[:-1] if form.signed.all() else form.signed)
    for pattern in range(2 ** len(free)):
        signs = np.ones(form.size)
        signs[[s for i, s in enumerate(free) if pattern >> i & 1]] = -1.0
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
    # Gaussian elimination; the first pivot that is not positive decides.
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


def null_ray(form: Form) -> Array | None:
    """The one ray y (d,), w = y^2, where a form of pairs is zero, if it is negative elsewhere; decided exactly."""
    if form.size > _LARGEST_RATIONAL or any(index.shape[1] != 2 for index in form.sets):
        return None
    # Elimination of a semi-definite matrix whose last pivot alone is zero: the null vector solves the upper triangle.
    rows = [[-Fraction(float(v)) for v in row] for row in form.matrix()]
    n = form.size
    for k in range(n):
        pivot = rows[k][k]
        if pivot < 0 or (pivot == 0) != (k == n - 1):
            return None
        for i in range(k + 1, n):
            factor = rows[i][k] / pivot
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    ray = [Fraction(0)] * (n - 1) + [Fraction(1)]
    for k in reversed(range(n - 1)):
        ray[k] = -sum((rows[k][i] * ray[i] for i in range(k + 1, n)), Fraction(0)) / rows[k][k]
    # Variables whose roots are positive only must have one sign.
    fixed = np.ones(n, dtype=bool) if form.signed is None else ~form.signed
    signs = {number > 0 for number, is_fixed in zip(ray, fixed, strict=True) if is_fixed and number}
    if len(signs) == 2:
        return None
    y = np.array([float(number) for number in ray]) * (-1.0 if signs == {False} else 1.0)
    return y / np.sqrt((y**2).sum())


def branch_and_bound(form: Form, budget: int) -> tuple[Sign, Array | None, int]:
    """Prove that a form (without signs) is negative on the simplex, or find a point where it is positive.

    Gives the sign of the largest value, a point where it is positive, and the number of simplices tried. The simplex is
    halved along edges until every piece is proven. With pairs only, the form is y' M y at w = y^2, and a piece with
    corners V is proven if all entries of V M V' are negative (then so is the form on the cone of V). Otherwise a
    positive mean, which is concave, is bounded by its tangent plane at the middle, a negative one, which is convex, by
    its values at the corners; the largest sum over corners bounds the piece (Bundfuss and Duer, 2008).
    """
    # Simplices are rows of corners, a few at a time.
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
        # A corner that is positive is an answer.
        points = pieces**2 if only_pairs else pieces
        values, errors = form.value(points)
        if (values > errors).any():
            corner = np.unravel_index(int((values - errors).argmax()), values.shape)
            point = points[corner]
            return "positive", point / point.sum(), tried
        if tried >= budget:
            return "unknown", None, tried
        # Pieces that are not proven negative stay open.
        if only_pairs:
            products = pieces @ matrix @ pieces.swapaxes(-1, -2)
            is_open = (products >= -margin * pieces.sum(-1)[..., None] * pieces.sum(-1)[..., None, :]).any((-1, -2))
        else:
            is_open = _plane_bound(form, pieces) >= -margin
        pieces = pieces[is_open]
        if len(pieces):
            # Every piece cut in two at the middle of its longest edge
            n, d = pieces.shape[:2]
            lengths = ((pieces[:, :, None] - pieces[:, None]) ** 2).sum(-1)
            longest = lengths.reshape(n, -1).argmax(-1)
            first, second = longest // d, longest % d
            rows = np.arange(n)
            middle = (pieces[rows, first] + pieces[rows, second]) / 2
            left, right = pieces.copy(), pieces.copy()
            left[rows, first] = middle
            right[rows, second] = middle
            stack.append(np.concatenate([left, right]))
    return "negative", None, tried


def _plane_bound(form: Form, pieces: Array) -> Array:
    """Upper bound of the form on every piece (n,) with corners (n, d, d)."""
    # The linear part, then planes above positive means and corners above negative ones.
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
