r"""Do the terms of a root model fall fast enough where statistics grow at powers of their own?

**Setting.** In the logarithms :math:`u_s = \log T(x_s)` of the statistics of the unbounded variables, at fixed values
of the bounded ones and fixed signs of the square roots of Gaussian variables, log q is a sum of exponentials,

.. math:: f(u) = \sum_t c_t M_t(u) - \sum_z \log x_z!, \qquad M_t(u) = e^{\langle e_t, u \rangle},\quad
          e_t = \tfrac1j 1_S,

where z are the Poisson variables, and the measure is :math:`e^{\langle k, u \rangle} du` with k = 1 for an exponential
variable (dx = dT) and k = 1/2 for a Gaussian one (:math:`dx = dT / 2 \sqrt T`). Along a curve
:math:`T(x_s) = v_s r^{a_s}` a term has the *degree* :math:`\langle e_t, a \rangle`. Straight directions are a = 1:
there degrees are the powers l/j, terms of power 1 lead, and neither bounded variables nor counts enter their form,
because a term that holds one has a lower power in the others.

**Proofs.** Let N be the terms with negative coefficients.

1. A positive term p is *absorbed* if there are weights :math:`\lambda \ge 0` with
   :math:`e_p = \sum_{t \in N} \lambda_t e_t + \sum_z \lambda_z 1_z`, a sum of at most one, and either a sum below
   one or some :math:`\lambda_z > 0`. By the weighted inequality of the means :math:`M_p \le \varepsilon \sum_t M_t +
   C_\varepsilon (1 + \sum_z x_z)` for every :math:`\varepsilon > 0`, and a multiple of :math:`x_z` is nothing beside
   :math:`\log x_z! \sim x_z \log x_z`. Terms of N with a count that p does not hold must not be used: it may be zero.
2. Where the sum of the weights is one and no count helps, p *competes*. At any u the same inequality reads
   :math:`c_p M_p \le \sum_t \lambda_t c_p \frac{M_p(u)}{M_t(u)} M_t`. If all competing terms together put less than
   :math:`|c_t|` on every t, they are outweighed. The largest share is convex in u, and linear in the weights.
3. Terms of one power that hold only variables whose first single term has that power make a form
   (:mod:`.form`). If it is negative in every direction they are replaced by small negative multiples of the single
   terms; those absorb, but nothing may compete with them.
4. Then :math:`f \le -\delta \sum_{t \in N} M_t + \sum_z (C x_z - \log x_z!) + C`, whose integral is finite if and only
   if :math:`\int e^{\langle k, u \rangle - \delta \sum_{t \in N_0} M_t} du` is, :math:`N_0` the terms without counts.
   That holds if and only if k is in the interior of the cone of their exponents: otherwise some :math:`u \ne 0` has
   :math:`\langle e_t, u \rangle \le 0` for all of them and :math:`\langle k, u \rangle \ge 0`, and the mass of a tube
   about the ray of u is infinite.

5. A form of power 1 that is zero on one ray and negative elsewhere, decided exactly for pairs, leaves the ray to the
   highest lower power there: outside of any neighbourhood of the ray the form is below a negative multiple of the
   scale.

**Counterexamples** are (a) the ray of 4: log q is bounded from below there whatever the positive terms are; (b) a curve
on which the terms of the highest degree are positive, if it is above one: :math:`r^a` beats :math:`r \log r`; (c) a
curve of degree one on which the sum of the terms of that degree is positive and no count grows as fast as r; (d) a
direction in which the form of 3 is positive and that holds no term of a higher power, or the ray of 5 where the next
power is positive. Variables outside a curve are
near zero (counts are zero): terms that hold them vanish, at the price of a power of r in the mass.

Weights and curves come from linear programs in floating point and are checked in rational numbers, sums of terms have
margins for rounding.

References:
    Riley Murray, Venkat Chandrasekaran and Adam Wierman, Newton polytopes and relative entropy optimization,
    Foundations of Computational Mathematics 21, 2021 (weights of point 2). Tomas Bajbar and Oliver Stein, Coercive
    polynomials and their Newton polytopes, SIAM Journal on Optimization 25, 2015.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import linprog, minimize

from ..structure import TermGroup, terms_where
from .form import Array, Form, Index, Mask, Verdict, connected, null_ray, settle

_MARGIN = 1e-9
_LARGEST_PATTERN = 6
_ROUNDS = 5
_COUNT_DISCOUNT = 1e-3
HOPELESS = 8
"""How many patterns are searched for a counterexample where a proof is out of reach."""


class Outcome(NamedTuple):
    """Verdict, reason, and where disproven a curve: values v (d,) and powers a (d,) of :math:`T(x_s) = T(v_s) r^{a_s}`.

    Without powers all are one, and v has any length.
    """

    verdict: Literal["proven", "disproven", "undecided"]
    reason: str
    values: Array | None = None
    growth: Array | None = None


def said_once(ways: Iterable[str]) -> str:
    """Reasons of several parts as one, each said once, and reasons of several ways as one of all of them.

    Example:
        >>> said_once(["form of power 1, by a", "form of power 1, by b; other", "form of power 1, by a"])
        'form of power 1, by a or by b; other'
    """
    by_head: dict[str, dict[str, None]] = {}
    for way in (way for reason in ways for way in reason.split("; ")):
        head, by, how = way.partition(", by ")
        by_head.setdefault(head, {}).update(dict.fromkeys(how.split(" or by ") if by else ()))
    return "; ".join(head + (", by " + " or by ".join(hows) if hows else "") for head, hows in by_head.items())


class Kinds(NamedTuple):
    """Names of the unbounded variables, and which of them are Gaussian and which Poisson (d,)."""

    names: tuple[str, ...]
    is_real: Mask
    is_count: Mask


class Monomials(NamedTuple):
    """Terms with their members (m, d), roots (m,) and coefficients (m,), NaN where only their sign is known."""

    members: Mask
    roots: Index
    values: Array

    @property
    def exponents(self) -> Array:
        """Exponents (m, d)."""
        return self.members / self.roots[:, None]

    @property
    def is_negative(self) -> Mask:
        """Which terms have negative coefficients."""
        return ~(self.values > 0)

    def within(self, support: Mask) -> Mask:
        """Which terms hold variables of a support only."""
        return np.asarray(~(self.members & ~support).any(1))

    def degrees(self, powers: Sequence[Fraction]) -> list[Fraction]:
        """Degrees along a curve, exactly."""
        sums = [sum((powers[s] for s in np.flatnonzero(row).tolist()), Fraction(0)) for row in self.members]
        return [total / int(j) for total, j in zip(sums, self.roots, strict=True)]


@dataclass
class Work:
    """Verdicts on forms that came up before, and how many more sums of terms are weighed."""

    forms: dict[tuple[int, bytes], Verdict] = field(default_factory=dict[tuple[int, bytes], Verdict])
    weighings: int = 2048
    programs: int = 3000
    competitions: int = 48
    unknown: dict[int, int] = field(default_factory=dict[int, int])
    """Variables in forms that were not settled, with the root of their first term; they leave no hope of a proof."""


def judge(terms: list[TermGroup], part: Index, kinds: Kinds, work: Work, is_bound: bool = False) -> Outcome:
    """Verdict on a part at fixed values of the bounded variables.

    Args:
        terms: terms that hold unbounded variables only.
        part: the variables that are asked about.
        kinds: what the variables are.
        work: what is known and what may still be done.
        is_bound: whether the coefficients are upper bounds, which can prove and not disprove.
    """
    inside = np.zeros(len(kinds.names), dtype=bool)
    inside[part] = True
    mine = terms_where(terms, lambda rows: inside[rows].all(1))
    # Forms of one power, and what they leave.
    settled, ways, answer = _forms(mine, part, kinds, work)
    if answer is not None:
        return Outcome("undecided", answer.reason) if is_bound else answer
    is_odd = [t.root == 2 and bool(kinds.is_real[t.rows].any()) for t in mine]
    odd_rows = [t.rows[kinds.is_real[t.rows].any(1)] for t, odd in zip(mine, is_odd, strict=True) if odd]
    flips = sorted({int(s) for rows in odd_rows for s in rows[kinds.is_real[rows]]})
    # All signs at once, by moduli; then one pattern after the other.
    open_reason = ""
    for is_reduced in (True, False) if settled else (False,):
        known = settled if is_reduced else {}
        outcome = _weigh(_monomials(mine, kinds, known, None), part, kinds, work)
        if outcome.verdict == "proven":
            return outcome._replace(reason=said_once([*ways, outcome.reason] if is_reduced else [outcome.reason]))
        if outcome.verdict == "disproven" and not flips and not is_bound:
            return outcome
        open_reason = open_reason or outcome.reason
    if is_bound or not flips:
        return Outcome("undecided", open_reason)
    return _patterns(mine, part, kinds, settled, flips, work)


def _patterns(
    terms: list[TermGroup], part: Index, kinds: Kinds, settled: dict[int, int], flips: list[int], work: Work
) -> Outcome:
    """Verdict by patterns of signs of Gaussian variables, all of them where they are few."""
    rng = np.random.default_rng(0)
    is_whole = len(flips) <= _LARGEST_PATTERN and not work.unknown
    listed: Iterable[Any] = itertools.product([1.0, -1.0], repeat=len(flips))
    if not is_whole:
        listed = rng.choice([1.0, -1.0], (HOPELESS if work.unknown else 2**_LARGEST_PATTERN, len(flips)))
    undecided: Outcome | None = None
    for pattern in listed:
        signs = np.ones(len(kinds.names))
        signs[flips] = pattern
        versions = [settled, dict[int, int]()] if settled else [settled]
        outcomes = [_weigh(_monomials(terms, kinds, known, signs), part, kinds, work) for known in versions]
        for outcome in outcomes:
            if outcome.verdict == "disproven":
                assert outcome.values is not None
                return outcome._replace(values=outcome.values * signs)
        if all(outcome.verdict == "undecided" for outcome in outcomes):
            undecided = undecided or outcomes[0]
    if undecided is None and is_whole:
        return Outcome("proven", "weights of the negative terms, for every pattern of signs")
    return undecided or Outcome("undecided", f"the signs of {len(flips)} variables have too many patterns")


# Forms of the terms of one power.


def _first_roots(terms: list[TermGroup]) -> dict[int, int]:
    """Root of the single term of the highest power, by variable."""
    first: dict[int, int] = {}
    for t in sorted(terms, key=lambda t: t.root):
        if t.size == 1:
            for s in t.rows[:, 0].tolist():
                first.setdefault(s, t.root)
    return first


def _forms(
    terms: list[TermGroup], part: Index, kinds: Kinds, work: Work
) -> tuple[dict[int, int], list[str], Outcome | None]:
    """Variables whose forms are negative, with the root of their first term, how, and a direction that disproves."""
    first = {s: j for s, j in _first_roots(terms).items() if not kinds.is_count[s]}
    settled: dict[int, int] = {}
    work.unknown = {}
    ways: list[str] = []
    for j in sorted(set(first.values())):
        members = np.array([s for s in part if first.get(int(s)) == j], dtype=np.int64)
        at_power = [t for t in terms if t.power == Fraction(1, j)]
        form = Form.of_terms(at_power, kinds.is_real).restricted(members)
        for piece in connected(form.size, form.sets):
            own_form = form.restricted(piece)
            arrays = [members[piece], own_form.linear, *own_form.sets, *own_form.weights]
            key = (j, b"".join(array.tobytes() for array in arrays))
            if key not in work.forms:
                work.forms[key] = settle(own_form)
            verdict = work.forms[key]
            if verdict.sign == "negative":
                settled |= dict.fromkeys(members[piece].tolist(), j)
                way = f"the terms of power {Fraction(1, j)} are negative in every direction, by {verdict.how}"
                ways += [way] if way not in ways else []
            elif (answer := _direction(verdict, members[piece], j, terms, kinds)) is not None:
                return settled, ways, answer
            elif j == 1 and (ray := null_ray(own_form)) is not None:
                return settled, ways, _ridge(ray, members[piece], part, terms, kinds)
            elif not any(np.isin(t.rows, members[piece]).all(1).any() for t in terms if t.power > Fraction(1, j)):
                work.unknown |= dict.fromkeys(members[piece].tolist(), j)
    return settled, ways, None


def _direction(verdict: Verdict, members: Index, j: int, terms: list[TermGroup], kinds: Kinds) -> Outcome | None:
    """A direction that disproves, where a form is not negative and no term of a higher power lies in it."""
    if verdict.point is None or verdict.sign not in ("positive", "zero"):
        return None
    w = np.zeros(len(kinds.names))
    w[members] = verdict.point
    inside = terms_where(terms, lambda rows: (w[rows] > 0).all(1))
    if any(t.power > Fraction(1, j) for t in inside):
        return None
    # A singular precision is flat along the direction, but for a linear term of one of the two signs. Other numbers may
    # not meet its variables: near zero they cost a power of the scale, which is too much where nothing grows.
    if verdict.sign == "zero":
        is_member = np.isin(np.arange(len(w)), members)
        near = [(t, t.rows[is_member[t.rows].any(1) & ~kinds.is_count[t.rows].any(1)]) for t in terms]
        is_alone = all(t.root <= 2 and bool(is_member[rows].all()) for t, rows in near if len(rows))
        if j != 1 or not kinds.is_real[members].all() or not is_alone:
            return None
    signs = np.ones(len(w))
    signs[members] = 1.0 if verdict.signs is None else verdict.signs
    for t in inside:
        if t.root == 2 and t.size == 1 and j == 2:  # odd terms of single variables become positive
            s = t.rows[:, 0]
            signs[s] = np.where(kinds.is_real[s] & (t.values < 0), -1.0, signs[s])
    values = np.where(kinds.is_real, signs * np.sqrt(w**j), w**j)
    if verdict.sign == "zero":
        slope = sum(float(t.values @ values[t.rows[:, 0]]) for t in inside if t.root == 2 and t.size == 1)
        values = values if slope >= 0 else -values
    shown = _shown(values, kinds)
    if verdict.sign == "zero":
        return Outcome("disproven", f"the precision is singular along the direction ({shown})", values)
    return Outcome("disproven", f"log q grows along the direction ({shown}), found by {verdict.how}", values)


def _ridge(ray: Array, members: Index, part: Index, terms: list[TermGroup], kinds: Kinds) -> Outcome:
    """Verdict where the form of power 1 is zero on one ray and negative elsewhere: by the next power on the ray.

    Where that is positive it beats the measure of a tube, whose width is a power of the scale. Where it is negative, so
    it is near the ray, and further away the form is below a negative multiple of the scale.
    """
    outcomes: list[Outcome | None] = []
    has_mirror = bool(kinds.is_real[members[ray != 0]].all())
    for sign in (1.0, -1.0) if has_mirror else (1.0,):
        y = np.zeros(len(kinds.names))
        y[members] = sign * ray
        size = y**2  # the statistics
        sums: dict[Fraction, tuple[float, float]] = {}
        for t in terms:
            inside = (y[t.rows] != 0).all(1)
            if t.power == 1 or not inside.any():
                continue
            rows, c = t.rows[inside], t.values[inside]
            turned = np.where(kinds.is_real[rows], np.sign(y[rows]), 1.0).prod(1) if t.root == 2 else 1.0
            parts = c * turned * (size[rows] ** (1 / t.root)).prod(1)
            total, moduli = sums.get(t.power, (0.0, 0.0))
            sums[t.power] = (total + float(parts.sum()), moduli + float(np.abs(parts).sum()))
        # The highest power that is there decides, unless it is zero within rounding.
        total, moduli = sums[max(sums)] if sums else (0.0, 0.0)
        if total > _MARGIN * moduli:
            values = np.where(kinds.is_real, y, size)
            reason = f"log q grows along the direction ({_shown(values, kinds)}), on which terms of power 1 are zero"
            return Outcome("disproven", reason, values)
        is_whole = len(members) == len(part) and bool((ray != 0).all())  # so that all other terms are on the ray
        how = "the terms of power 1 are negative in every direction but one, where the next power is"
        outcomes.append(Outcome("proven", how) if is_whole and total < -_MARGIN * moduli else None)
    if all(outcomes) and outcomes[0] is not None:
        return outcomes[0]
    return Outcome("undecided", "the terms of power 1 are zero in one direction, and the next power does not decide")


def _shown(values: Array, kinds: Kinds) -> str:
    """The largest entries of a direction."""
    return ", ".join(f"{kinds.names[i]}: {values[i]:.4g}" for i in np.argsort(-np.abs(values))[:4] if values[i])


def _monomials(terms: list[TermGroup], kinds: Kinds, settled: dict[int, int], signs: Array | None) -> Monomials:
    """Terms at some signs of the Gaussian variables, or at those that make each the largest.

    Terms of forms that are known to be negative give way to the single terms of their variables.
    """
    d = len(kinds.names)
    members: list[Mask] = []
    roots: list[int] = []
    values: list[float] = []
    depth = np.array([settled.get(s, 0) for s in range(d)])
    for t in terms:
        value = t.values
        if t.root == 2:
            real = kinds.is_real[t.rows]
            flip = np.ones(t.rows.shape) if signs is None else np.where(real, signs[t.rows], 1.0)
            value = np.where(real.any(1), np.abs(value), value) if signs is None else value * flip.prod(1)
        for row, c in zip(t.rows, value, strict=True):
            j = int(depth[row[0]])
            if j and t.power == Fraction(1, j) and (depth[row] == j).all():
                continue
            mask = np.zeros(d, dtype=bool)
            mask[row] = True
            members.append(mask)
            roots.append(t.root)
            values.append(float(c))
    for s, j in settled.items():
        members.append(np.arange(d) == s)
        roots.append(j)
        values.append(np.nan)
    return Monomials(np.array(members, dtype=bool).reshape(-1, d), np.array(roots, dtype=np.int64), np.array(values))


# Weights of the negative terms.


def _weigh(terms: Monomials, part: Index, kinds: Kinds, work: Work) -> Outcome:
    """Verdict on terms of given signs."""
    work.weighings -= 1
    if work.weighings < 0:
        return Outcome("undecided", "values of bounded variables and signs have too many patterns")
    # What has infinite mass whatever the positive terms are.
    is_free = terms.is_negative & ~(terms.members & kinds.is_count).any(1)
    cone = _cone(terms, is_free, part[~kinds.is_count[part]], kinds)
    if cone is not None and cone.verdict == "disproven":
        return cone
    # Weights of the single terms alone absorb most positive terms; a count weighs as much as its term itself.
    depth = np.full(len(kinds.names), 10**6)
    for t in np.flatnonzero(is_free & (terms.members.sum(1) == 1)):
        s = terms.members[t].argmax()
        depth[s] = min(depth[s], terms.roots[t])
    depth[kinds.is_count] = 1
    total = terms.members @ depth
    is_absorbed = (total < terms.roots) | ((total == terms.roots) & (terms.members & kinds.is_count).any(1))
    # The others one by one: absorbed, competing, or of a higher degree than all negative ones.
    competing: list[int] = []
    unclear = "" if cone is None else cone.reason
    for p in np.flatnonzero(~terms.is_negative & ~is_absorbed).tolist():
        way = _way(terms, p, kinds, work)
        if way == "competes":
            competing.append(p)
        elif way == "beyond":
            powers = _curve(terms, terms.members[p], [p], kinds)
            if powers is not None and terms.degrees(powers)[p] > 1:
                shown = _names(terms, p, kinds)
                reason = f"the term of {shown} grows faster than all negative terms"
                return _along(reason, powers, terms.members[p], np.zeros(len(powers)), kinds)
        if way in ("beyond", "unclear"):
            unclear = unclear or f"no weights absorb the term of {_names(terms, p, kinds)}"
    # Those that compete together.
    work.competitions -= bool(competing)
    is_left = work.competitions >= 0
    if competing and not (is_left and not unclear and _outweighed(terms, competing, kinds)):
        if is_left and (higher := _competition(terms, competing, kinds)) is not None:
            return higher
        shown = _names(terms, competing[0], kinds)
        unclear = unclear or f"the term of {shown} and negative terms have one degree, and their sum was not settled"
    if unclear:
        return Outcome("undecided", unclear)
    return Outcome("proven", "negative terms outweigh all positive ones, by weighted means")


def _names(terms: Monomials, p: int, kinds: Kinds) -> str:
    """The variables of a term."""
    return ":".join(kinds.names[s] for s in np.flatnonzero(terms.members[p]))


def _fractions(numbers: Array, limit: int) -> list[Fraction]:
    """Simple fractions near the solution of a linear program, to be checked exactly."""
    return [Fraction(float(number)).limit_denominator(limit) for number in numbers]


def _cone(terms: Monomials, is_free: Mask, numbers: Index, kinds: Kinds) -> Outcome | None:
    """A ray with infinite mass, by point 4; None where there is none, undecided where none was proven or refuted."""
    rows = terms.exponents[is_free][:, numbers]
    singles = terms.members[is_free & (terms.members.sum(1) == 1)][:, numbers]
    if singles.any(0).all():  # the cone is the whole orthant
        return None
    # Inside the cone with a margin: positive weights of exponents that span everything.
    measure = np.where(kinds.is_real[numbers], 0.5, 1.0)
    m, n = rows.shape
    if m and np.linalg.matrix_rank(rows) == n:
        equal = np.hstack([rows.T, rows.sum(0)[:, None]])
        best = linprog([*[0.0] * m, -1.0], A_eq=equal, b_eq=measure, bounds=[*[(0, None)] * m, (0, 1)])
        if best.status == 0 and best.x[-1] > _MARGIN:
            return None
    # A ray on which no negative term grows and the measure does not fall.
    aims = [measure, *np.eye(n), *-np.eye(n)]
    limits, bounds = np.vstack([rows, -measure]), np.zeros(m + 1)
    for aim in aims:
        best = linprog(-aim, A_ub=limits, b_ub=bounds, bounds=[(-1, 1)] * n)
        if best.status != 0 or -best.fun <= _MARGIN:
            continue
        powers = [Fraction(0)] * len(kinds.names)
        for s, a in zip(numbers.tolist(), _fractions(best.x, 10_000), strict=True):
            powers[s] = a
        degrees = terms.degrees(powers)
        mass = sum((powers[s] / (2 if kinds.is_real[s] else 1) for s in numbers.tolist()), Fraction(0))
        if any(powers) and mass >= 0 and all(degrees[t] <= 0 for t in np.flatnonzero(is_free)):
            support = np.zeros(len(kinds.names), dtype=bool)
            support[numbers] = True
            reason = "no negative term falls, and the mass is infinite"
            return _along(reason, powers, support, np.zeros(len(powers)), kinds)
    return Outcome("undecided", "whether negative terms bound all variables could not be settled")


def _way(terms: Monomials, p: int, kinds: Kinds, work: Work) -> Literal["absorbed", "competes", "beyond", "unclear"]:
    """Whether negative terms absorb a positive one, by weights that are checked exactly."""
    # A term of a form that was not settled
    support = terms.members[p]
    roots = {work.unknown.get(s, 0) for s in np.flatnonzero(support).tolist()}
    if len(roots) == 1 and Fraction(int(support.sum()), int(terms.roots[p])) == Fraction(1, max(roots) or 10**6):
        return "unclear"
    work.programs -= 1
    if work.programs < 0:
        return "unclear"
    # The least sum of weights, those of counts a little cheaper.
    chosen = np.flatnonzero(terms.is_negative & terms.within(support))
    solved = _weights(terms, p, chosen, np.ones(len(chosen)), 1 - _COUNT_DISCOUNT, kinds)
    if solved is None:
        return "beyond"
    weights, extra = solved
    if weights is None:
        return "unclear"
    return "absorbed" if sum(weights) + sum(extra) < 1 or any(extra) else "competes"


def _weights(
    terms: Monomials, p: int, chosen: Index, costs: Array, count_cost: float, kinds: Kinds
) -> tuple[list[Fraction] | None, list[Fraction]] | None:
    """Cheapest weights of some negative terms and of counts that give a term, with a sum of at most one.

    None where there are none, weights None where they do not withstand the check in rational numbers.
    """
    support, j = terms.members[p], int(terms.roots[p])
    numbers, counts = np.flatnonzero(support & ~kinds.is_count), np.flatnonzero(support & kinds.is_count)
    rows = terms.exponents[chosen]
    m, c = len(chosen), len(counts)
    if m + c == 0:
        return None
    equal = np.hstack([rows[:, numbers].T, np.zeros((len(numbers), c))])
    limits = np.vstack([np.hstack([-rows[:, counts].T, -np.eye(c)]), np.ones((1, m + c))])
    right = np.array([*[-1 / j] * c, 1.0])
    objective = np.array([*costs, *[count_cost] * c])
    best = linprog(objective, A_ub=limits, b_ub=right, A_eq=equal, b_eq=np.full(len(numbers), 1 / j))
    if best.status == 2:
        return None
    if best.status != 0:
        return (None, [])
    # Exactly the exponents of numbers, at least those of counts, which are one or more.
    solution = _fractions(best.x, 1_000_000)
    weights, extra = solution[:m], solution[m:]
    sums = [
        sum((w / int(terms.roots[t]) for w, t in zip(weights, chosen, strict=True) if terms.members[t, s]), Fraction(0))
        for s in (*numbers, *counts)
    ]
    is_right = all(total == Fraction(1, j) for total in sums[: len(numbers)])
    is_enough = all(total + more >= Fraction(1, j) for total, more in zip(sums[len(numbers) :], extra, strict=True))
    is_good = is_right and is_enough and sum(solution) <= 1 and min(solution) >= 0
    return (weights, extra) if is_good else (None, [])


# Curves on which positive terms win.


def _curve(terms: Monomials, support: Mask, targets: list[int], kinds: Kinds) -> list[Fraction] | None:
    """Powers of the variables of a support that make degrees of positive terms largest, and no negative one above 1."""
    inside = np.flatnonzero(support)
    chosen = np.flatnonzero(terms.is_negative & terms.within(support))
    rows = terms.exponents[:, inside]
    is_count = kinds.is_count[inside]
    aim = rows[targets].sum(0)
    lower, upper = np.where(is_count, 0.0, -2000.0), np.where(is_count, 1.0, 2000.0)
    limits, right = rows[chosen], np.ones(len(chosen))
    best = linprog(-aim, A_ub=limits, b_ub=right, bounds=np.stack([lower, upper], 1))
    if best.status != 0:
        return None
    # Of the curves of that degree, or of degree two where it has no limit, the one with the least powers.
    n = len(inside)
    enough = min(-best.fun, 2.0 * len(targets))
    split = np.vstack([np.hstack([limits, -limits]), np.hstack([-aim, aim])])
    ends = np.concatenate([upper, -lower])
    least = linprog(np.ones(2 * n), A_ub=split, b_ub=[*right, -enough], bounds=np.stack([np.zeros(2 * n), ends], 1))
    solution = least.x[:n] - least.x[n:] if least.status == 0 else best.x
    powers = [Fraction(0)] * len(kinds.names)
    for s, a in zip(inside.tolist(), _fractions(solution, 10_000), strict=True):
        powers[s] = a
    degrees = terms.degrees(powers)
    is_good = all(degrees[t] <= 1 for t in chosen)
    is_good &= all(0 <= powers[s] <= 1 for s in inside[is_count].tolist())
    return powers if is_good else None


def _along(reason: str, powers: list[Fraction], support: Mask, logs: Array, kinds: Kinds) -> Outcome:
    """The verdict that a curve disproves; variables outside its support are zero."""
    statistic = np.where(support, np.exp(logs), 0.0)
    statistic = np.where(kinds.is_count, np.rint(statistic), statistic)
    values = np.where(kinds.is_real, np.sqrt(statistic), statistic)
    growth = np.array([float(a) for a in powers])
    moving = [s for s in np.flatnonzero(support) if powers[s]]
    shown = ", ".join(f"T({kinds.names[s]}) = {statistic[s]:.4g} r^{powers[s]}" for s in moving[:4])
    return Outcome("disproven", f"{reason} along the curve {shown}{', ...' * (len(moving) > 4)}", values, growth)


def _outweighed(terms: Monomials, competing: list[int], kinds: Kinds) -> bool:
    """Whether the negative terms bear all that compete with them, by point 2."""
    is_known = terms.is_negative & np.isfinite(terms.values)
    rng = np.random.default_rng(0)
    size = np.abs(terms.values)
    u = np.zeros(len(kinds.names))
    options: list[tuple[int, Array]] = []  # term and weights of negative ones; a mixture of them is allowed
    numbers = np.flatnonzero(~kinds.is_count)
    for round_ in range(_ROUNDS):
        # Weights that are cheap at the point, and others.
        logs = terms.exponents @ u
        for p in competing:
            chosen = np.flatnonzero(is_known & terms.within(terms.members[p]))
            price = np.exp(np.clip(logs[p] - logs[chosen], -50, 50)) / size[chosen]
            for costs in (price, rng.exponential(size=len(chosen)), *([np.ones(len(chosen))] if not round_ else [])):
                solved = _weights(terms, p, chosen, costs, 1e6, kinds)
                if solved is None or solved[0] is None:
                    return False
                if not any(solved[1]):
                    row = np.zeros(len(terms.roots))
                    row[chosen] = [float(w) for w in solved[0]]
                    options.append((p, row))
        # The best mixture of weights at the point, then the best point for it.
        weights = np.array([row for _, row in options])
        owners = np.array([p for p, _ in options])
        mixture = _mixture(terms, weights, owners, competing, logs, is_known)
        if mixture is None:
            return False
        loads = weights * (mixture * size[owners])[:, None]
        owner, borne = np.nonzero(loads > 0)
        slopes = terms.exponents[owners[owner]] - terms.exponents[borne]
        offsets = np.log(loads[owner, borne]) - np.log(size[borne])
        u, largest = _lightest(slopes[:, numbers], offsets, borne, u, numbers)
        if largest < 1 - _MARGIN:
            return True
    return False


def _mixture(
    terms: Monomials, weights: Array, owners: Index, competing: list[int], logs: Array, is_known: Mask
) -> Array | None:
    """Shares of the weights of every competing term, one in all, with the least largest load."""
    size = np.abs(terms.values)
    borne = np.flatnonzero(is_known & (weights > 0).any(0))
    ratio = np.exp(np.clip(logs[owners][:, None] - logs[borne], -50, 50)) * size[owners][:, None] / size[borne]
    limits = np.hstack([(weights[:, borne] * ratio).T, -np.ones((len(borne), 1))])
    equal = np.array([[*(owners == p).astype(float), 0.0] for p in competing])
    objective = np.array([*[0.0] * len(owners), 1.0])
    best = linprog(objective, A_ub=limits, b_ub=np.zeros(len(borne)), A_eq=equal, b_eq=np.ones(len(competing)))
    if best.status != 0:
        return None
    shares = np.maximum(best.x[:-1], 0.0)
    sums = np.array([shares[owners == p].sum() for p in owners])
    return shares / sums


def _lightest(slopes: Array, offsets: Array, borne: Index, start: Array, numbers: Index) -> tuple[Array, float]:
    """Point where the largest load, a convex function, is least, and that load."""
    targets, column = np.unique(borne, return_inverse=True)

    def loads(v: Array) -> Array:
        return np.bincount(column, np.exp(np.clip(slopes @ v + offsets, -200, 200)), len(targets)).astype(np.float64)

    def softmax(v: Array, power: float) -> tuple[float, Array]:
        parts = np.exp(np.clip(slopes @ v + offsets, -200, 200))
        sums = np.bincount(column, parts, len(targets))
        logs = power * np.log(sums)
        top = logs.max()
        total = np.exp(logs - top).sum()
        share = np.exp(logs - top) / total
        return (top + float(np.log(total))) / power, ((share[column] * parts / sums[column])[:, None] * slopes).sum(0)

    v = start[numbers]
    best, lightest = v, float(loads(v).max())
    for power in (1.0, 4.0, 16.0, 64.0):
        v = minimize(softmax, v, (power,), jac=True, method="L-BFGS-B", bounds=[(-60, 60)] * len(v)).x
        if (largest := float(loads(v).max())) < lightest:
            best, lightest = v, largest
    point = np.zeros_like(start)
    point[numbers] = best
    return point, lightest


def _competition(terms: Monomials, competing: list[int], kinds: Kinds) -> Outcome | None:
    """A curve of degree one on which the terms of that degree have a positive sum, by ascent from several points."""
    rng = np.random.default_rng(0)
    union = np.asarray(terms.members[competing].any(0))
    trials = [(union, competing), *((terms.members[p], [p]) for p in competing[:10])]
    for support, targets in trials:
        powers = _curve(terms, support, targets, kinds)
        if powers is None or any(powers[s] == 1 for s in np.flatnonzero(support & kinds.is_count)):
            continue
        degrees = np.array([float(degree) for degree in terms.degrees(powers)])
        inside = terms.within(support)
        top = inside & (degrees == 1)
        if (inside & (degrees > 1)).any() or not np.isfinite(terms.values[top]).all():
            continue
        rows, values = terms.exponents[top], terms.values[top]

        def balance(logs: Array, rows: Array = rows, values: Array = values) -> tuple[float, Array]:
            parts = values * np.exp(np.clip(rows @ logs, -200, 200))
            total, size = parts.sum(), np.abs(parts).sum()
            return -total / size, -(parts @ rows) / size + total / size**2 * (np.abs(parts) @ rows)

        is_still = support & kinds.is_count & np.array([a == 0 for a in powers])
        for start in (np.zeros(len(powers)), *rng.normal(scale=2.0, size=(11, len(powers)))):
            start = np.where(is_still, np.abs(start), start)
            bounds = [(0.0 if still else -30.0, 30.0) for still in is_still]
            logs = minimize(balance, start, jac=True, method="L-BFGS-B", bounds=bounds).x
            logs = np.where(is_still, np.log(np.maximum(np.rint(np.exp(logs)), 1.0)), logs)
            if -balance(logs)[0] > _MARGIN:
                return _along("log q grows", powers, support, logs, kinds)
    return None
