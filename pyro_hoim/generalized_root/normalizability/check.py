r"""Can a generalized root model be normalised? Proofs, counterexamples, and an honest "undecided"."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import torch

from ...errors import check_type, out_of_reach, refused, unexpected
from ..energy import GeneralizedRootEnergy
from ..nodes.families import NodeFamily
from ..nodes.user_family import UserFamily
from ..structure import RootStructure, TermGroup, terms_where
from .form import Form, Index, Verdict, connected, settle
from .growth import Outcome, said_once
from .mixed import Nodes, examine_mixed


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
    undecided: Outcome | None = None
    ways: list[str] = []
    for part in connected(len(nodes.names), [t.rows for t in terms]):
        verdict = _examine_part(nodes, terms, part)
        if verdict.verdict == "disproven":
            return verdict
        if verdict.verdict == "undecided":
            undecided = undecided or verdict
        else:
            ways.append(verdict.reason)
    return undecided or Outcome("proven", said_once(ways))


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
