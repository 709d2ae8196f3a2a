r"""Can a generalized root model be normalised? Proofs, counterexamples, and an honest "undecided"."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
import torch

from ...errors import check_type, out_of_reach, refused, unexpected
from ..energy import GeneralizedRootEnergy
from ..nodes.families import NodeFamily
from ..nodes.user_family import UserFamily
from ..structure import TermGroup
from .form import Array, Form, Index, Verdict, connected, settle


@dataclass(frozen=True, eq=False)
class Normalizability:
    """Whether a model can be normalised, and why."""

    verdict: Literal["proven", "disproven", "undecided"]
    """The sum or integral of q is finite (``proven``) or infinite (``disproven``), or it is not known."""
    reason: str
    witness: torch.Tensor | None = None
    """Where disproven, a direction v (d,) along which log q does not fall fast enough: x = z v as z grows, v with sum
    one; for the Gaussian family x = sqrt(z) v, v of length one."""
    index: tuple[int, ...] = ()
    """Place of the model that the verdict is about; empty without a batch."""

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


class _Found(NamedTuple):
    verdict: Literal["proven", "disproven", "undecided"]
    reason: str
    witness: Array | None = None


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
    coefficients = energy.coefficients.detach()
    if not bool(torch.isfinite(coefficients).all()):
        raise unexpected("psi", "finite numbers", received="NaN or an infinity", code="not-finite")
    if len(energy.domain) == 0:
        return Normalizability("proven", "there are no variables")
    if energy.families.common is None:
        return _check_several(energy, coefficients)
    # Counts, and what a user says of a family.
    family = energy.family
    if family.is_discrete and math.isfinite(family.largest_value):
        return Normalizability("proven", "the domain is finite")
    if isinstance(family, UserFamily):
        if family.is_normalizable:
            return Normalizability("proven", f"the {family.name} family is said to be normalisable always")
        reason = f"the {family.name} family is a user's, and does not say that it is normalisable always"
        return Normalizability("undecided", reason)
    if family.is_discrete:
        return Normalizability("proven", "the factorial of a count outweighs every root product")
    # Numbers, one element of the batch after the other.
    worst = Normalizability("proven", "the batch is empty")
    for index in np.ndindex(*energy.batch_shape):
        verdict = _examine(energy, coefficients[index].to("cpu", torch.float64).numpy())
        if verdict.verdict == "disproven":
            assert verdict.witness is not None
            norm = np.linalg.norm(verdict.witness) if family.name == "gaussian" else verdict.witness.sum()
            direction = torch.from_numpy(verdict.witness / norm).to(energy.device)
            return Normalizability("disproven", verdict.reason, direction, index)
        if worst.is_proven:
            worst = Normalizability(verdict.verdict, verdict.reason, index=() if verdict.verdict == "proven" else index)
    return worst


def _check_several(energy: GeneralizedRootEnergy, coefficients: torch.Tensor) -> Normalizability:
    """Verdict on variables of several families: by their real numbers, as long as counts cannot matter."""
    # What never has a finite constant in doubt, and what nobody knows.
    families, d = energy.families, len(energy.domain)
    if families.is_bounded:
        return Normalizability("proven", "the domain is finite")
    is_free = [isinstance(f, UserFamily) and not (f.is_discrete and math.isfinite(f.largest_value)) for f in families]
    if unknown := [f.name for f, free in zip(families, is_free, strict=True) if free and not _is_said(f)]:
        reason = f"the {unknown[0]} family is a user's, and does not say that it is normalisable always"
        return Normalizability("undecided", reason)
    numbers = np.array([s for s in range(d) if not (families[s].is_discrete or is_free[s])], dtype=np.int64)
    if any(is_free) and len(numbers):
        return Normalizability("undecided", "nobody knows how a user's family goes together with real numbers")
    if any(is_free):
        return Normalizability("proven", "the user's families are said to be normalisable always")
    if not len(numbers):
        return Normalizability("proven", "the factorial of a count outweighs every root product")
    # Counts at 0 leave the law of the numbers alone; where its leading form is negative no count can outweigh it.
    is_gaussian = any(family.name == "gaussian" for family in families)
    worst = Normalizability("proven", "the batch is empty")
    for index in np.ndindex(*energy.batch_shape):
        terms = energy.structure.nonzero(coefficients[index].to("cpu", torch.float64).numpy())
        inner = [(t, np.isin(t.rows, numbers).all(1)) for t in terms if t.power == 1]
        leading = [TermGroup(t.root, t.rows[chosen], t.values[chosen]) for t, chosen in inner if chosen.any()]
        form = Form.of_terms(leading, d, is_gaussian).restricted(numbers)
        if (verdict := settle(form)).sign == "negative":
            reason = f"the terms of power 1 of real numbers are negative in every direction, by {verdict.how}"
            worst = Normalizability("proven", reason) if worst.is_proven else worst
            continue
        zeros = {energy.domain.names[s]: 0.0 for s in range(d) if s not in numbers}
        alone = GeneralizedRootEnergy(energy.structure, energy.psi[index].detach(), families).condition(zeros)[0]
        if alone.families.common is not None and (inside := check_normalizable(alone)).verdict == "disproven":
            assert inside.witness is not None
            witness = inside.witness.new_zeros(d)
            witness[numbers.tolist()] = inside.witness
            return Normalizability("disproven", f"with all counts at 0, {inside.reason}", witness, index)
        if worst.is_proven:
            shown = ", ".join(repr(energy.domain.names[s]) for s in numbers[:4].tolist())
            reason = f"the terms of power 1 of the real numbers {shown} are not proven negative in every direction"
            worst = Normalizability("undecided", reason, index=index)
    return worst


def _is_said(family: NodeFamily) -> bool:
    """Whether a user says that every model of a family can be normalised."""
    return isinstance(family, UserFamily) and family.is_normalizable


def _examine(energy: GeneralizedRootEnergy, coefficients: Array) -> _Found:
    """Verdict on one model: the worst of its independent parts."""
    # Parts that share no term are independent.
    terms = energy.structure.nonzero(coefficients)
    undecided: _Found | None = None
    ways: list[str] = []
    for part in connected(len(energy.domain), [t.rows for t in terms]):
        verdict = _examine_part(energy, terms, part)
        if verdict.verdict == "disproven":
            return verdict
        if verdict.verdict == "undecided":
            undecided = undecided or verdict
        elif verdict.reason not in ways:
            ways.append(verdict.reason)
    return undecided or _Found("proven", "; ".join(ways))


def _examine_part(energy: GeneralizedRootEnergy, terms: list[TermGroup], part: Index) -> _Found:
    """Verdict on a connected part, from the highest power of the scale downwards.

    Variables are settled at the power where they occur first, if the form of that power is negative on them. Positive
    products that reach a settled variable are absorbed: a weighted mean puts an arbitrarily small multiple on the
    unsettled ones, which must therefore be settled at that very power.
    """
    is_gaussian, names, d = energy.family.name == "gaussian", energy.domain.names, len(energy.domain)
    left = np.zeros(d, dtype=bool)
    left[part] = True
    mine = [TermGroup(t.root, t.rows[chosen], t.values[chosen]) for t in terms if (chosen := left[t.rows[:, 0]]).any()]
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
        verdict = settle(Form.of_terms(at_power, d, is_gaussian).restricted(members))
        if verdict.sign == "negative":
            ways.append(f"the terms of power {power} are negative in every direction, by {verdict.how}")
            left[members] = False
            continue
        return _not_negative(energy, verdict, mine, power, members)
    # What no power has settled is flat, freed by another variable, or unknown.
    rest = [names[i] for i in np.flatnonzero(left)]
    if not rest:
        return _Found("proven", "; ".join(ways))
    if len(part) == 1:
        return _Found("disproven", f"no term contains {rest[0]!r}, its law is flat", np.eye(d)[part[0]])
    for s in np.flatnonzero(left):
        holding = [set(row) - {int(s)} for t in mine for row in t.rows.tolist() if s in row]
        if holding and (shared := set[int].intersection(*holding)):
            # The mass where the shared variable is below 1/x_s is that of 1/x_s, whose integral is infinite.
            reason = f"{names[s]!r} occurs only in products with {names[min(shared)]!r}, whose values near 0 free it"
            return _Found("disproven", reason, np.eye(d)[s])
    return _Found("undecided", f"only products with other variables bound {rest[0]!r}")


def _not_negative(
    energy: GeneralizedRootEnergy, verdict: Verdict, terms: list[TermGroup], power: Fraction, members: Index
) -> _Found:
    """Verdict where the form of a power is not proven negative: is there a direction that disproves?"""
    shown = ", ".join(repr(energy.domain.names[i]) for i in members[:4]) + (", ..." if len(members) > 4 else "")
    # A direction disproves unless terms of a higher power lie in it.
    if verdict.point is not None and verdict.sign in ("positive", "zero"):
        w = np.zeros(len(energy.domain))
        w[members] = verdict.point
        x = w ** (1 / float(power))
        if energy.family.name == "gaussian":
            x = np.sqrt(x)
            x[members] *= 1.0 if verdict.signs is None else verdict.signs
            for t in terms:
                if t.root == 2 and t.size == 1 and t.power == power:  # odd terms of single variables become positive
                    x[t.rows[:, 0]] *= np.where(t.values < 0, -1.0, 1.0)
        is_inside = [(w[t.rows] > 0).all(1).any() for t in terms if t.power > power]
        is_normal = energy.family.name == "gaussian" and energy.order <= 2
        direction = ", ".join(f"{energy.domain.names[i]}: {x[i]:.4g}" for i in np.argsort(-np.abs(x))[:4] if x[i])
        if verdict.sign == "positive" and not any(is_inside):
            return _Found("disproven", f"log q grows along the direction ({direction}), found by {verdict.how}", x)
        if verdict.sign == "zero" and is_normal:
            return _Found("disproven", f"the precision is singular along the direction ({direction})", x)
    asked = f"whether the terms of power {power} of {shown} fall in every direction could not be settled"
    return _Found("undecided", f"{asked}: {verdict.how}")
