r"""Can a generalized root model be normalised? Proofs, counterexamples, and an honest "undecided"."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch

from ...errors import check_type, out_of_reach, refused, unexpected
from ..energy import GeneralizedRootEnergy
from ..nodes.columns import root_range
from ..nodes.families import NodeFamily
from ..nodes.user_family import UserFamily
from ..structure import RootStructure, TermGroup, terms_where
from .form import Array, Form, Index, Mask, Verdict, connected, settle
from .growth import HOPELESS, Kinds, Outcome, Work, judge, said_once


@dataclass(frozen=True, eq=False)
class Normalizability:
    """Whether a model can be normalised, and why."""

    verdict: Literal["proven", "disproven", "undecided"]
    """The sum or integral of q is finite (``proven``) or infinite (``disproven``), or it is not known."""
    reason: str
    witness: torch.Tensor | None = None
    """Where disproven, a direction v (d,) along which log q does not fall fast enough: x = z v as z grows, v with sum
    one; for the Gaussian family x = sqrt(z) v, v of length one. Of several families :attr:`exponents` says how."""
    index: tuple[int, ...] = ()
    """Place of the model that the verdict is about; empty without a batch."""
    exponents: torch.Tensor | None = None
    """Where disproven, powers b (d,) of the curve :math:`x_s = v_s z^{b_s}`: 1, 1/2 for the Gaussian family, for models
    of several families other ones, too, with 0 for a variable that stays at v. Counts are rounded."""

    @property
    def is_proven(self) -> bool:
        """Whether the verdict is ``proven``."""
        return self.verdict == "proven"

    def check(self) -> None:
        """Raise :class:`InputError` where disproven, with the direction, :class:`IntractableError` where undecided."""
        where = f" (batch index {self.index})" if self.index else ""
        if self.verdict == "disproven":
            raise refused(f"psi{where}", f"the model cannot be normalised: {self.reason}", code="not-normalizable")
        if self.verdict == "undecided":
            problem = f"whether the model can be normalised is undecided: {self.reason}"
            hint = "make the coefficients of single variables more negative, or the interactions weaker"
            raise out_of_reach(f"psi{where}", problem, hint, code="no-method")


def check_normalizable(energy: GeneralizedRootEnergy) -> Normalizability:
    r"""Decide whether the unnormalised law of a model has a finite sum or integral.

    Counts of the library's families are always proven, the factorial beats all terms (section 3.3); of a
    :class:`UserFamily` finite domains are, and what else the user says. Otherwise the terms of power l/j = 1 decide,
    :math:`\eta_1(v)`: negative in every direction proves, positive in one disproves, and where it is exactly zero the
    next lower power decides for the variables concerned. Proofs hold in floating point, with margins for rounding: by
    inequalities of weighted means (of any size and order, cheap), by definiteness of the pairs, or by branch and bound
    over all directions for up to 10 variables that interact (7 for the Gaussian family with roots above 2).
    Counterexamples come from single variables, eigenvectors and ascent from many starts. What is neither is undecided,
    in particular where the largest value is zero within rounding. For the Gaussian family with k <= 2 the answer is
    that of positive definiteness of the precision, decided in rational numbers where rounding is in the way (up to 24
    variables). A negative value in every direction is more than the paper's condition on each ray asks: where powers
    below one decide, bounds must hold uniformly.

    Args:
        energy: the model; of a batch the worst verdict is given, with its place.

    Raises:
        InputTypeError: not a :class:`GeneralizedRootEnergy`.
        InputError: psi is not finite.

    References:
        Inouye, Ravikumar and Dhillon, Generalized Root Models, 2016, section 3.3. Stefan Bundfuss and Mirjam Duer,
        Algorithmic copositivity detection by simplicial partition, Linear Algebra and its Applications 428, 2008.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import ExponentialFamily
        >>> structure = RootStructure.simplified(Domain([Variable(n, kind="positive") for n in "ab"]), [("a", "b")])
        >>> for pair in (0.75, 1.25):
        ...     psi = torch.tensor([-1.0, -1.0, pair])
        ...     check_normalizable(GeneralizedRootEnergy(structure, psi, ExponentialFamily())).verdict
        'proven'
        'disproven'
    """
    check_type(energy, GeneralizedRootEnergy, "energy")
    families = energy.families
    if families.common is not None:
        return check_normalizability(energy.structure, energy.psi, families.common)
    groups = [block.tolist() for block in families.blocks]
    return check_normalizability(energy.structure, energy.psi, tuple(families), groups)


def check_normalizability(
    structure: RootStructure,
    psi: torch.Tensor,
    families: NodeFamily | Sequence[NodeFamily],
    groups: Iterable[Sequence[int]] = (),
) -> Normalizability:
    """The verdict of :func:`check_normalizable` on tensor entries, with one family for all or one for every variable.

    Args:
        structure: the terms.
        psi: tensor entries (*batch, num_terms).
        families: one family, or one per variable in the order of the schema.
        groups: schema positions of indicators of which exactly one is 1 in every state, the levels of a category.

    Raises:
        InputError: psi is not finite, or another number of families than of variables.
    """
    # One family per variable, finite numbers.
    d = len(structure.domain)
    listed = (families,) * d if isinstance(families, NodeFamily) else tuple(families)
    if len(listed) != d:
        raise unexpected("families", f"one for each of the {d} variables", received=len(listed), code="wrong-shape")
    coefficients = psi.detach() * structure.multiplicity.to(psi)
    if not bool(torch.isfinite(coefficients).all()):
        raise unexpected("psi", "finite numbers", received="NaN or an infinity", code="not-finite")
    if d == 0:
        return Normalizability("proven", "there are no variables")
    is_single = isinstance(families, NodeFamily) or len(set(listed)) == 1
    if is_single and (known := _known(listed[0])):
        return known
    is_real = np.array([family.name == "gaussian" for family in listed])
    nodes = Nodes(structure.domain.names, listed, is_real, structure.order, tuple(map(tuple, groups)))
    # One element of the batch after the other.
    worst = Normalizability("proven", "the batch is empty")
    for index in np.ndindex(*psi.shape[:-1]):
        terms = structure.nonzero(coefficients[index].to("cpu", torch.float64).numpy())
        verdict = _examine(nodes, terms) if is_single else examine_mixed(nodes, terms)
        if verdict.verdict == "disproven":
            return _disproven(nodes, verdict, index, psi.device)
        if worst.is_proven:
            worst = Normalizability(verdict.verdict, verdict.reason, index=() if verdict.verdict == "proven" else index)
    return worst


def _known(family: NodeFamily) -> Normalizability | None:
    """The verdict on all models of one family, where there is one: for counts, and what a user says."""
    if family.is_discrete and math.isfinite(family.largest_value):
        return Normalizability("proven", "the domain is finite")
    if isinstance(family, UserFamily):
        if family.is_normalizable:
            return Normalizability("proven", f"the {family.name} family is said to be normalisable always")
        reason = f"the {family.name} family is a user's, and does not say that it is normalisable always"
        return Normalizability("undecided", reason)
    if family.is_discrete:
        return Normalizability("proven", "the factorial of a count outweighs every root product")
    return None


def _disproven(nodes: Nodes, outcome: Outcome, index: tuple[int, ...], device: torch.device) -> Normalizability:
    """The verdict with its curve; where all move by the same power of T, the sum of T over the direction is one."""
    v, growth, is_real = outcome.values, outcome.growth, nodes.is_real
    assert v is not None
    if growth is None:
        size = (
            np.linalg.norm(v)
            if is_real.all()
            else v.sum()
            if not is_real.any()
            else (v**2)[is_real].sum() + v[~is_real].sum()
        )
        v = v / (size if is_real.all() or not is_real.any() else np.where(is_real, np.sqrt(size), size))
        growth = np.ones(len(v))
    exponents = torch.from_numpy(np.where(is_real, growth / 2, growth)).to(device)
    return Normalizability("disproven", outcome.reason, torch.from_numpy(v).to(device), index, exponents)


def _examine(nodes: Nodes, terms: list[TermGroup]) -> Outcome:
    """Verdict on one model of exponential or Gaussian variables: the worst of its independent parts."""
    # Parts that share no term are independent.
    parts = connected(len(nodes.names), [t.rows for t in terms])
    return _worst(_examine_part(nodes, terms, part) for part in parts)


def _worst(verdicts: Iterable[Outcome], otherwise: str = "") -> Outcome:
    """The first verdict that disproves, else the first undecided one, else all proofs; ``otherwise`` of no parts."""
    undecided, ways = None, list[str]()
    for verdict in verdicts:
        if verdict.verdict == "disproven":
            return verdict
        if verdict.verdict == "undecided":
            undecided = undecided or verdict
        else:
            ways.append(verdict.reason)
    return undecided or Outcome("proven", said_once(ways) or otherwise)


def _examine_part(nodes: Nodes, terms: list[TermGroup], part: Index) -> Outcome:
    """Verdict on a connected part, from the highest power of the scale downwards.

    Variables are settled at the power where they occur first, if the form of that power is negative on them. Positive
    products that reach a settled variable are absorbed: a weighted mean puts an arbitrarily small multiple on the
    unsettled ones, which must therefore be settled at that very power.
    """
    is_gaussian, names, d = bool(nodes.is_real.all()), nodes.names, len(nodes.names)
    left = np.zeros(d, dtype=bool)
    left[part] = True
    mine = terms_where(terms, lambda rows: left[rows[:, 0]])
    # Power by power, the highest first.
    ways: list[str] = []
    for power in sorted({t.power for t in mine}, reverse=True):
        at_power = [t for t in mine if t.power == power]
        touched = np.zeros(d, dtype=bool)
        for t in at_power:
            is_odd = is_gaussian and t.root == 2
            weighs = (t.values > 0) | is_odd | (t.size == 1)
            touched[t.rows[weighs]] = True
        members = np.flatnonzero(touched & left)
        if not len(members):
            continue
        verdict = settle(Form.of_terms(at_power, nodes.is_real).restricted(members))
        if verdict.sign == "negative":
            ways.append(f"the terms of power {power} are negative in every direction, by {verdict.how}")
            left[members] = False
            continue
        return _not_negative(nodes, verdict, mine, power, members)
    # What no power has settled is flat, freed by another variable, or unknown.
    rest = [names[i] for i in np.flatnonzero(left)]
    if not rest:
        return Outcome("proven", "; ".join(ways))
    if len(part) == 1:
        return Outcome("disproven", f"no term contains {rest[0]!r}, its law is flat", np.eye(d)[part[0]])
    for s in np.flatnonzero(left):
        holding = [set(row) - {int(s)} for t in mine for row in t.rows.tolist() if s in row]
        if holding and (shared := set[int].intersection(*holding)):
            # The mass where the shared variable is below 1/x_s is that of 1/x_s, whose integral is infinite.
            reason = f"{names[s]!r} occurs only in products with {names[min(shared)]!r}, whose values near 0 free it"
            return Outcome("disproven", reason, np.eye(d)[s])
    return Outcome("undecided", f"only products with other variables bound {rest[0]!r}")


def _not_negative(nodes: Nodes, verdict: Verdict, terms: list[TermGroup], power: Fraction, members: Index) -> Outcome:
    """Verdict where the form of a power is not proven negative: is there a direction that disproves?"""
    shown = ", ".join(repr(nodes.names[i]) for i in members[:4]) + (", ..." if len(members) > 4 else "")
    # A direction disproves unless terms of a higher power lie in it.
    if verdict.point is not None and verdict.sign in ("positive", "zero"):
        w = np.zeros(len(nodes.names))
        w[members] = verdict.point
        x = w ** (1 / float(power))
        if nodes.is_real.all():
            x = np.sqrt(x)
            x[members] *= 1.0 if verdict.signs is None else verdict.signs
            for t in terms:
                if t.root == 2 and t.size == 1 and t.power == power:  # odd terms of single variables become positive
                    x[t.rows[:, 0]] *= np.where(t.values < 0, -1.0, 1.0)
        is_inside = [(w[t.rows] > 0).all(1).any() for t in terms if t.power > power]
        is_normal = bool(nodes.is_real.all()) and nodes.order <= 2
        direction = ", ".join(f"{nodes.names[i]}: {x[i]:.4g}" for i in np.argsort(-np.abs(x))[:4] if x[i])
        if verdict.sign == "positive" and not any(is_inside):
            return Outcome("disproven", f"log q grows along the direction ({direction}), found by {verdict.how}", x)
        if verdict.sign == "zero" and is_normal:
            return Outcome("disproven", f"the precision is singular along the direction ({direction})", x)
    asked = f"whether the terms of power {power} of {shown} fall in every direction could not be settled"
    return Outcome("undecided", f"{asked}: {verdict.how}")


# Normalisability where variables have families of their own: bounded variables, and parts that are independent.

_LARGEST_LISTED = 1024


Choice = dict[int, float]
"""Values of one variable, or of the indicators of one category that are not zero."""


class Nodes(NamedTuple):
    """What is asked of the variables: names, families, which are Gaussian (d,), and the largest root."""

    names: tuple[str, ...]
    families: tuple[NodeFamily, ...]
    is_real: Mask
    order: int
    groups: tuple[tuple[int, ...], ...] = ()
    """Indicators of which exactly one is 1."""

    @property
    def largest(self) -> Array:
        """Largest values (d,), infinity where there is none or the values are not whole."""
        return np.array([f.largest_value if f.is_discrete else math.inf for f in self.families])

    def values(self, s: int, is_short: bool) -> list[float]:
        """Values of a bounded count that have a mass: all, or where these are many the least and the largest."""
        family, top = self.families[s], int(self.families[s].largest_value)
        listed = sorted({0, 1, top}) if is_short else range(top + 1)
        x = torch.tensor(listed, dtype=torch.float64)
        return x[torch.isfinite(family.log_base(x))].tolist()


@lru_cache(4096)
def _root(family: NodeFamily, value: float, j: int) -> float:
    """The j-th root of the statistic of a count."""
    return float(family.root(torch.tensor([value], dtype=torch.float64), j))


def examine_mixed(nodes: Nodes, terms: list[TermGroup]) -> Outcome:
    """Verdict on a model whose variables have several families: the worst of its independent parts.

    Parts are those of the unbounded variables, since bounded ones have finitely many joint values: the constant is
    finite if it is at each of them.
    """
    largest = nodes.largest
    is_bounded = np.isfinite(largest)
    is_user = np.array([isinstance(f, UserFamily) for f in nodes.families]) & ~is_bounded
    is_count = np.array([f.is_discrete for f in nodes.families]) & ~is_bounded & ~is_user
    kinds = Kinds(nodes.names, nodes.is_real, is_count)
    # Parts of the unbounded variables
    d = len(nodes.names)
    free = list(_split(terms, is_bounded))
    work = Work()

    def verdict(part: Index) -> Outcome:
        if is_user[part].any():
            # What the user says of all variables of a part that has unbounded ones of user families.
            name = nodes.families[part[is_user[part]][0]].name
            said_always = [isinstance(f := nodes.families[s], UserFamily) and f.is_normalizable for s in part]
            if all(said_always):
                return Outcome("proven", f"the {name} family is said to be normalisable always")
            if all(is_user[part]):
                reason = f"the {name} family is a user's, and does not say that it is normalisable always"
            else:
                reason = f"the {name} family is a user's, and meets variables of unbounded families of the library"
            return Outcome("undecided", reason)
        if is_count[part].all():
            return Outcome("proven", "the factorial of a count outweighs every root product")
        return _examine_mixed_part(nodes, terms, part, is_bounded, kinds, work)

    parts = connected(d, [np.array([row]) for _, row, _, _ in free])
    return _worst((verdict(part) for part in parts if not is_bounded[part].all()), "the domain is finite")


def _examine_mixed_part(
    nodes: Nodes, terms: list[TermGroup], part: Index, is_bounded: Mask, kinds: Kinds, work: Work
) -> Outcome:
    """Verdict on a connected part of exponential, Gaussian and Poisson variables."""
    d = len(nodes.names)
    # Terms of power 1 of the numbers: no other variable enters them.
    numbers = part[~kinds.is_count[part]]
    leading = [t for t in terms if t.power == 1]
    form = Form.of_terms(leading, nodes.is_real).restricted(numbers)
    if (form.linear < 0).all() and (verdict := settle(form)).sign == "negative":
        return Outcome("proven", f"the terms of power 1 are negative in every direction, by {verdict.how}")
    # The bounded variables that terms of the part hold.
    inside = np.zeros(d, dtype=bool)
    inside[part] = True
    mine = terms_where(terms, lambda rows: inside[rows].any(1))
    near = sorted({int(s) for t in mine for s in t.rows[is_bounded[t.rows]]})
    if not near:
        return judge(mine, part, kinds, work)
    # All their values at once, by the largest coefficients.
    above = judge(_upper(mine, is_bounded, nodes), part, kinds, work, is_bound=True)
    if above.verdict == "proven":
        return above
    # Their values one by one.
    levels, is_whole = _levels(nodes, near)
    undecided = above if work.unknown or not is_whole else None
    seen: set[bytes] = set()
    for state in itertools.islice(levels, HOPELESS if work.unknown else None):
        folded = _fold(mine, is_bounded, state, nodes)
        key = b"".join(t.rows.tobytes() + t.values.tobytes() for t in folded)
        if key in seen:
            continue
        seen.add(key)
        outcome = judge(folded, part, kinds, work)
        if outcome.verdict == "disproven":
            return _at(outcome, state, near, nodes)
        if outcome.verdict == "undecided":
            undecided = undecided or outcome
    return undecided or Outcome("proven", f"all values of {len(near)} bounded variables, one by one")


def _at(outcome: Outcome, state: Array, near: Sequence[int], nodes: Nodes) -> Outcome:
    """The verdict with the values of the bounded variables, which do not move along the curve."""
    fixed = [s for s in near if state[s]]
    if not fixed:
        return outcome
    assert outcome.values is not None
    growth = np.ones(len(state)) if outcome.growth is None else outcome.growth.copy()
    values = outcome.values.copy()
    values[fixed] = state[fixed]
    growth[fixed] = 0.0
    shown = ", ".join(f"{nodes.names[s]} = {state[s]:g}" for s in fixed)
    return Outcome("disproven", f"{outcome.reason}, at {shown}", values, growth)


def _levels(nodes: Nodes, near: Sequence[int]) -> tuple[Iterator[Array], bool]:
    """Joint values (d,) of bounded variables, and whether these are all."""
    # One choice per group of indicators, one per other variable.
    d = len(nodes.names)
    largest = nodes.largest
    grouped = [group for group in nodes.groups if set(group) & set(near)]
    in_group = {s for group in grouped for s in group}
    choices: list[list[Choice]] = [[{s: 1.0} for s in group] for group in grouped]
    alone = [s for s in near if s not in in_group]
    size = math.prod(len(choice) for choice in choices) * math.prod(largest[s] + 1 for s in alone)
    is_whole = size <= _LARGEST_LISTED
    choices += [[{s: value} for value in nodes.values(s, not is_whole)] for s in alone]

    chosen = itertools.product(*choices) if is_whole else _some(choices)
    return (_joined(values, d) for values in chosen), is_whole


def _joined(choices: Sequence[Choice], d: int) -> Array:
    """A state (d,), zero where nothing is chosen."""
    state = np.zeros(d)
    for values in choices:
        for s, value in values.items():
            state[s] = value
    return state


def _some(choices: list[list[Choice]]) -> Iterator[tuple[Choice, ...]]:
    """Some of many joint choices: the first, those that change one, the last, and random ones."""
    start = tuple(choice[0] for choice in choices)
    yield start
    for i, choice in enumerate(choices):
        for value in choice[1:]:
            yield (*start[:i], value, *start[i + 1 :])
    yield tuple(choice[-1] for choice in choices)
    rng = np.random.default_rng(0)
    for _ in range(_LARGEST_LISTED // 4):
        yield tuple(choice[rng.integers(len(choice))] for choice in choices)


def _fold(terms: list[TermGroup], is_bounded: Mask, state: Array, nodes: Nodes) -> list[TermGroup]:
    """Terms of the unbounded variables, at some values (d,) of the bounded ones; equal terms are added."""
    sums: dict[tuple[int, tuple[int, ...]], float] = {}
    for j, row, c, bounded in _split(terms, is_bounded):
        factors = [_root(nodes.families[s], float(state[s]), j) for s in bounded]
        sums[j, row] = sums.get((j, row), 0.0) + c * math.prod(factors)
    return _grouped(sums)


def _upper(terms: list[TermGroup], is_bounded: Mask, nodes: Nodes) -> list[TermGroup]:
    """Terms of the unbounded variables with the largest coefficients that values of the bounded ones give.

    Where signs of Gaussian variables may turn a term, the largest modulus.
    """
    sums: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
    for j, row, c, bounded in _split(terms, is_bounded):
        ends = (c, c)
        for s in bounded:
            products = [end * root for end in ends for root in root_range(nodes.families[s], j)]
            ends = (min(products), max(products))
        low, high = sums.get((j, row), (0.0, 0.0))
        sums[j, row] = (low + ends[0], high + ends[1])
    # A known coefficient keeps its sign, which the form of its power may use.
    is_odd = {(j, row): j == 2 and bool(nodes.is_real[list(row)].any()) for j, row in sums}
    ends = {key: max(high, -low) if is_odd[key] and low < high else high for key, (low, high) in sums.items()}
    return _grouped(ends)


def _split(terms: list[TermGroup], is_bounded: Mask) -> Iterator[tuple[int, tuple[int, ...], float, list[int]]]:
    """Root, unbounded members, coefficient and bounded members of every term that has unbounded ones."""
    for t in terms:
        for row, c in zip(t.rows, t.values, strict=True):
            bounded = is_bounded[row]
            if not bounded.all():
                yield t.root, tuple(row[~bounded].tolist()), float(c), row[bounded].tolist()


def _grouped(sums: dict[tuple[int, tuple[int, ...]], float]) -> list[TermGroup]:
    """Terms by root and size, without zeros."""
    groups: dict[tuple[int, int], tuple[list[tuple[int, ...]], list[float]]] = {}
    for (j, row), c in sorted(sums.items()):
        if c != 0:
            rows, values = groups.setdefault((j, len(row)), ([], []))
            rows.append(row)
            values.append(c)
    return [TermGroup(j, np.array(rows, dtype=np.int64), np.array(c)) for (j, _), (rows, c) in groups.items()]
