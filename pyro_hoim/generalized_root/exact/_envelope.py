r"""A product law above and a product law below a generalized root model: how far out its grid has to reach.

Below: the mean-field bound :math:`\log Z \ge \mathrm{E}_p \log q + H(p)` of a product p of node laws. Above: an
interaction is at most a sum over its variables, by the weighted inequality of the means,

.. math:: c \prod_{s \in S} y_s^{1/j} \le \frac{c^+}{\ell} \Bigl(\prod_{t \in S} w_t\Bigr)^{r / \ell}
          \sum_{s \in S} (y_s / w_s)^r, \qquad r = \ell / j, \quad y = T_1(x), \quad w > 0,

so that q is at most a product of functions of one variable. What lies outside a box then weighs at most what the
product does there, over the lower bound. Equality holds along y = w.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import InputError, out_of_reach
from ..nodes.families import NodeFamily
from ..nodes.integrability_kernels import decays
from ..nodes.log_partition import node_moments
from ..nodes.user import UserFamily
from ..normalizability.form import Form, ascend, local_maximum
from ..structure import RootStructure, TermGroup

Floats = NDArray[np.float64]

_SWEEPS = 30
_SMALL_GAIN = 1e-2  # nats


@dataclass(frozen=True)
class Terms:
    """Terms of one element of a batch: those of one variable (d, k), and those that are not zero by key."""

    family: NodeFamily
    size: int
    singles: Floats
    parts: tuple[TermGroup, ...]

    @classmethod
    def of(cls, structure: RootStructure, family: NodeFamily, psi: torch.Tensor) -> Terms:
        """Terms of psi (num_terms,)."""
        coefficients = psi.detach().double().cpu() * structure.multiplicity
        singles, parts = structure.single_natural(coefficients).numpy(), structure.nonzero(coefficients.numpy())
        return cls(family, len(structure.domain), singles, tuple(parts))

    @property
    def is_signed(self) -> bool:
        """Whether values lie on the whole line and T_1 is their square."""
        return self.family.name == "gaussian"

    @property
    def is_two_sided(self) -> bool:
        """Whether values lie on the whole line."""
        return self.family.kind == "real"

    def has_signs(self, j: int) -> bool:
        """Whether the j-th root may be negative."""
        if isinstance(self.family, UserFamily):
            return self.family.signed_roots is not None
        return self.is_signed and j == 2

    def interactions(self) -> list[TermGroup]:
        """The parts with two or more variables."""
        return [part for part in self.parts if part.size > 1]


@dataclass(frozen=True)
class Bounds:
    """A product above q, by variable: singles (d, k) as they are, and ``slopes`` (d, R) of powers ``ratios`` of y."""

    singles: Floats
    ratios: tuple[float, ...]
    slopes: Floats

    def log_above(self, family: NodeFamily, variable: int, x: Floats) -> Floats:
        """Logarithm of the function of one variable, base measure included, at values (n,)."""
        values = torch.from_numpy(x)
        total = (family.roots(values, self.singles.shape[1]).numpy() @ self.singles[variable]).astype(np.float64)
        total += family.log_base(values).numpy()
        y = family.root(values, 1).numpy()
        for ratio, slope in zip(self.ratios, self.slopes[variable], strict=True):
            if slope:
                total += slope * y**ratio
        return total

    def decays(self, family: NodeFamily) -> bool:
        """Whether every function of one variable is integrable: its highest power with a coefficient is negative."""
        if family.is_discrete or isinstance(family, UserFamily):  # whose profiles show whether they end
            return True
        powers = sorted({*self.ratios, *(1 / j for j in range(1, self.singles.shape[1] + 1))}, reverse=True)
        for s, own in enumerate(self.singles):
            slope = dict.fromkeys(powers, 0.0)
            for j, value in enumerate(own, 1):
                slope[1 / j] += abs(value) if family.name == "gaussian" and j == 2 else value
            for ratio, value in zip(self.ratios, self.slopes[s], strict=True):
                slope[ratio] += value
            if not decays(np.array([slope[r] for r in powers])):
                return False
        return True


def product_below(terms: Terms) -> tuple[float, Floats]:
    """Lower bound of log Z by coordinate ascent over products of node laws, and their means of T_1 (d,)."""
    natural = terms.singles
    adjacent: list[list[tuple[int, NDArray[np.int64], float]]] = [[] for _ in range(terms.size)]
    for j, rows, values in terms.interactions():
        for row, value in zip(rows, values, strict=True):
            for s in row:
                adjacent[s].append((j, row[row != s], float(value)))
    field = natural.copy()
    first = _nodes(terms, field)
    if first is None:
        problem = "the terms of single variables alone have no finite constant, and the search for a grid starts there"
        raise out_of_reach("RootEnumeration", problem, "give every variable terms of its own", code="no-method")
    value, means = first

    def bound() -> float:
        total = float((value - ((field - natural) * means).sum(1)).sum())
        return total + sum(
            float((values * means[rows, j - 1].prod(1)).sum()) for j, rows, values in terms.interactions()
        )

    best = bound()
    for _ in range(_SWEEPS if terms.interactions() else 0):
        for s, held in enumerate(adjacent):
            if not held:
                continue
            row = natural[s].copy()
            for j, others, coefficient in held:
                row[j - 1] += coefficient * means[others, j - 1].prod()
            node = _nodes(terms, row[None]) if np.isfinite(row).all() else None
            if node is None:
                return best, means[:, 0]
            field[s] = row
            value[s : s + 1], means[s : s + 1] = node
        found = bound()
        if not found > best + _SMALL_GAIN:
            best = max(best, found)
            break
        best = found
    return best, means[:, 0]


def _nodes(terms: Terms, natural: Floats) -> tuple[Floats, Floats] | None:
    """Log partitions (n,) and means of the roots (n, k) of node laws with naturals (n, k); None if one is infinite."""
    try:
        found = node_moments(terms.family, torch.from_numpy(np.ascontiguousarray(natural)), hessian=False)
    except InputError:
        return None
    return found.value.numpy().copy(), found.mean.numpy().copy()


def bounds_of(terms: Terms, means: Floats) -> list[Bounds]:
    """Products above q, those that decay only: tight near the means, and tight where the leading power is largest."""
    weights = [np.maximum(means, 1e-3 * max(float(means.max(initial=0.0)), 1e-300)) + 1e-300]
    form = _leading(terms).upper()  # signs made positive
    if form.sets:  # by Euler's identity no slope of the weights that maximise it exceeds it
        weights.append(np.maximum(ascend(form, np.full(terms.size, 1 / terms.size)), 1e-12))
    weights.append(np.ones(terms.size))
    candidates = [_separated(terms, w) for w in weights]
    good = [bounds for bounds in candidates if bounds.decays(terms.family)]
    if not good and not terms.family.is_discrete and not isinstance(terms.family, UserFamily):
        shifted = _with_signs(terms, candidates[0])
        good = [] if shifted is None else [shifted]
    return good


def _separated(terms: Terms, weights: Floats) -> Bounds:
    """The product by the weighted inequality of the means."""
    ratios = tuple(sorted({rows.shape[1] / j for j, rows, _ in terms.interactions()}, reverse=True))
    slopes = np.zeros((terms.size, len(ratios)))
    for j, rows, values in terms.interactions():
        length = rows.shape[1]
        ratio = length / j
        largest = np.abs(values) if terms.has_signs(j) else np.maximum(values, 0)  # whatever the signs of x
        logs = np.log(weights[rows])
        share = largest[:, None] / length * np.exp(ratio * (logs.mean(1, keepdims=True) - logs))
        np.add.at(slopes[:, ratios.index(ratio)], rows, share)
    return Bounds(terms.singles, ratios, slopes)


def _leading(terms: Terms) -> Form:
    """The form of the leading power, whose maximum over directions the slopes of a product have to reach."""
    return Form.of_terms([part for part in terms.parts if part.power == 1], terms.size, terms.is_signed)


def _with_signs(terms: Terms, bounds: Bounds) -> Bounds | None:
    r"""Bounds of leading power :math:`\lambda \sum_s y_s`, with its largest value from many starts, no certificate."""
    largest = max(local_maximum(_leading(terms))[0], float(terms.singles[:, 0].max()))
    if largest >= 0:
        return None
    slopes, singles = bounds.slopes.copy(), bounds.singles.copy()
    if 1.0 in bounds.ratios:
        slopes[:, bounds.ratios.index(1.0)] = 0
    singles[:, 0] = 0.99 * largest
    return Bounds(singles, bounds.ratios, slopes)
