"""Laws on a finite partially ordered set in their dual coordinates theta and eta (paper 4, equations 4 and 5)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from pyro.distributions import Categorical, constraints

from ...checks import check_exact_shape, check_finite, check_shape, checked_floating
from ...errors import (
    ConvergenceWarning,
    check_positive,
    check_type,
    check_whole,
    other_domain,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
)
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..fitting.existence import forced_zeros, identified_directions
from ..fitting.solvers import Point, newton
from ..laws.law import HierarchicalLogLinear
from .poset import Poset, indicators, second_moments


class PosetLaw(Categorical):
    r"""A positive law on the elements of a poset with a bottom.

    .. math::
        \log p(x) = \sum_{\bot < s \le x} \theta(s) - \psi(\theta), \qquad \eta(x) = \sum_{s \ge x} p(s), \qquad
        \theta(x) = \sum_{s \le x} \mu(s, x) \log p(s), \qquad p(x) = \sum_{s \ge x} \mu(x, s)\, \eta(s)

    A value is the position of an element in ``poset.elements``, so the law is a categorical one with other parameters:
    a Pyro site with plates, enumeration, an entropy and divergences. Theta and eta are dual coordinates of one
    manifold, :math:`\eta = \partial \psi / \partial \theta`; the bottom has none: :math:`\theta(\bot) = -\psi` and
    :math:`\eta(\bot) = 1`. All conversions are sums along the order, exact, differentiable and vectorised over batches,
    and cost what :meth:`Poset.sums` costs.

    Args:
        poset: a poset with a bottom.
        theta: natural coordinates in nats of all elements but the bottom, in the order of ``poset.elements``.
        validate_args: check values given to :meth:`log_prob`; default is Pyro's global setting.

    Shape:
        theta and eta (*batch, n - 1), probs and logits (*batch, n); values (*sample, *batch), long.

    Raises:
        InputError: a poset without a bottom, or theta of the wrong shape or not finite. Only where validation is
            switched off, as inside Pyro's MCMC, a theta that is not finite is kept.

    References:
        Paper 4, equations (4) to (6); Sugiyama, Nakahara and Tsuda (2017), Tensor balancing on statistical manifold.

    Example:
        >>> poset = Poset.boolean_lattice(["a", "b"])  # (), b, a, ab
        >>> law = PosetLaw(poset, torch.tensor([0.0, 0.0, 2.0]))
        >>> law.log_prob(poset.indices([("a", "b")])), law.eta
        (tensor([-0.3408]), tensor([0.8075, 0.8075, 0.7112]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {  # type: ignore[override]
        "theta": constraints.real_vector
    }

    def __init__(self, poset: Poset, theta: torch.Tensor, *, validate_args: bool | None = None) -> None:
        check_type(poset, Poset, "poset")
        check_shape(checked_floating(theta, "theta"), (len(poset) - 1,), "theta")
        if validate_args or (validate_args is None and torch.distributions.Distribution._validate_args):
            check_finite(theta, "theta")  # else NaN, which HMC treats as a divergence
        self.poset, self.theta = poset, theta
        logits = poset._sums(_with_bottom(poset, theta, 0.0), "below")
        super().__init__(logits=logits, validate_args=validate_args)

    @classmethod
    def from_probs(cls, poset: Poset, probs: torch.Tensor, *, validate_args: bool | None = None) -> PosetLaw:
        """Law of positive probabilities (*batch, n), which are normalised; InputError that names one that is not."""
        check_type(poset, Poset, "poset")
        check_shape(checked_floating(probs, "probs"), (len(poset),), "probs")
        _check_positive(poset, probs, "probs", "positive probabilities")
        return cls(poset, _without_bottom(poset, poset.differences(probs.log())), validate_args=validate_args)

    @classmethod
    def from_eta(cls, poset: Poset, eta: torch.Tensor, *, validate_args: bool | None = None) -> PosetLaw:
        """Law of mean coordinates (*batch, n - 1); InputError where they are those of no positive law."""
        check_type(poset, Poset, "poset")
        check_shape(checked_floating(eta, "eta"), (len(poset) - 1,), "eta")
        probs = poset.differences(_with_bottom(poset, eta, 1.0), "above")
        _check_positive(poset, probs, "eta", "mean coordinates of a positive law")
        return cls.from_probs(poset, probs, validate_args=validate_args)

    @property
    def eta(self) -> torch.Tensor:
        """Mean coordinates (*batch, n - 1): probability of being above or equal to an element."""
        return _without_bottom(self.poset, self.poset.sums(self.probs, "above"))

    @property
    def log_partition(self) -> torch.Tensor:
        r"""The potential :math:`\psi(\theta) = \log Z = -\log p(\bot)`, (*batch), in nats."""
        return -self.logits[..., self.poset.bottom_index]

    @property
    def log_prob_table(self) -> torch.Tensor:
        """Log-probabilities of all elements, (*batch, n)."""
        return self.logits

    def fisher_information(self, elements: Iterable[Hashable] | None = None) -> torch.Tensor:
        r"""Fisher information of theta at some elements, by default all but the bottom (Sugiyama et al., 2016).

        .. math:: g_{xy} = \sum_{s} \zeta(x, s)\, \zeta(y, s)\, p(s) - \eta(x)\, \eta(y)

        On a Boolean lattice the sum is :math:`\eta(x \cup y)`. It is the Hessian of the potential.

        Shape:
            (*batch, m, m).
        """
        where = _members(self.poset, elements)
        eta = self.poset.sums(self.probs, "above")[..., where]
        return second_moments(self.poset, self.probs, where) - eta.unsqueeze(-1) * eta.unsqueeze(-2)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> PosetLaw:
        """The same law with a larger batch shape."""
        new: Any = self._get_checked_instance(PosetLaw, _instance)
        new.poset = self.poset
        new.theta = self.theta.expand(*batch_shape, self.theta.shape[-1])
        return super().expand(torch.Size(batch_shape), _instance=new)

    def to_log_linear(
        self, domain: Domain | None = None, *, validate_args: bool | None = None
    ) -> HierarchicalLogLinear:
        """The same law of n binary variables; only on a Boolean lattice.

        ``domain`` has the names of the lattice, in any order; levels "0" and "1" when left out. Theta is that of the
        corner coding, by size and then schema order. InputError for other variables.
        """
        names = self.poset.variables
        if names is None:
            raise unexpected("poset", "a Boolean lattice", received=repr(self.poset), code="no-method")
        domain = Domain.from_cardinalities(dict.fromkeys(names, 2)) if domain is None else domain
        check_type(domain, Domain, "domain")
        if set(domain.names) != set(names) or set(domain.cardinalities) - {2}:
            raise other_domain("domain", f"the binary variables {names}", domain)
        graph = InteractionHypergraph.saturated(domain)
        theta = self.theta[..., self.poset.indices(graph.edges) - 1]
        return HierarchicalLogLinear(graph, theta, coding="corner", validate_args=validate_args)


def _members(poset: Poset, elements: Iterable[Hashable] | None, argument: str = "elements") -> torch.Tensor:
    """Positions of distinct elements, by default of all but the bottom, which has no coordinate."""
    every = torch.arange(len(poset))
    where = every[every != poset.bottom_index] if elements is None else poset.indices(elements)
    if bool((where == poset.bottom_index).any()):
        raise unexpected(argument, "elements above the bottom", poset.bottom)
    distinct, counts = where.unique(return_counts=True)
    if bool((counts > 1).any()):
        twice = poset.elements[int(distinct[counts > 1][0])]
        raise refused(argument, f"elements must be distinct, but {twice!r} is repeated", code="repeated-name")
    return where


def _with_bottom(poset: Poset, values: torch.Tensor, value: float) -> torch.Tensor:
    """Coordinates with that of the bottom, (*batch, n)."""
    where, bottom = poset.bottom_index, values.new_full((*values.shape[:-1], 1), value)
    return torch.cat((values[..., :where], bottom, values[..., where:]), -1)


def _without_bottom(poset: Poset, values: torch.Tensor) -> torch.Tensor:
    """Coordinates of all elements but the bottom, (*batch, n - 1)."""
    where = poset.bottom_index
    return torch.cat((values[..., :where], values[..., where + 1 :]), -1)


def _check_positive(poset: Poset, probs: torch.Tensor, argument: str, expected: str) -> None:
    """Raise unless all probabilities are finite and positive, naming the first that is not."""
    wrong = ~((probs > 0) & torch.isfinite(probs))
    if bool(wrong.any()):
        where = tuple(int(i) for i in wrong.nonzero()[0])
        first = f"p({poset.elements[where[-1]]!r}) = {float(probs[where]):.6g}"
        raise out_of_range(argument, expected, received=first)


# Projections of laws on submanifolds of a poset's laws: theta zero outside a collection, or eta fixed on it.

_MAX_PARAMETERS = 4096
_MAX_FACIAL_ENTRIES = 2**23  # of a matrix of elements and members, for which the linear program is solved


@dataclass(frozen=True, eq=False)
class PosetProjection:
    r"""A projection and how it was found.

    Attributes:
        poset: the poset.
        members: positions (m,) of the collection B.
        theta: coordinates (m,) on B, in nats; where the projection is a limit, those on the elements that stay
            possible, of least norm.
        probs: the projection (n,), float64; zeros where it is a limit of positive laws.
        divergence: D(p; q) of an m-projection, D(q; p) of an e-projection, in nats.
        is_attained: whether a positive law is the projection; None where that was not decided (a table too large).
        is_converged: whether the criterion was met.
        num_iterations: Newton steps.
        error: largest difference between eta on B and what it should be.
    """

    poset: Poset = field(repr=False)
    members: torch.Tensor = field(repr=False)
    theta: torch.Tensor = field(repr=False)
    probs: torch.Tensor = field(repr=False)
    divergence: float
    is_attained: bool | None
    is_converged: bool
    num_iterations: int
    error: float

    @property
    def law(self) -> PosetLaw:
        """The projection as a law; InputError where it has zeros."""
        return PosetLaw.from_probs(self.poset, self.probs)


def m_projection(
    poset: Poset,
    probs: torch.Tensor,
    members: Iterable[Hashable],
    *,
    tolerance: float = 1e-12,
    max_iterations: int = 100,
) -> PosetProjection:
    r"""Project a law on the laws with theta = 0 outside a collection: the maximum-likelihood estimate.

    .. math:: \operatorname{argmin}_{q \in \mathcal S(B)} D(p; q), \qquad
        \mathcal S(B) = \{q : \theta_q(x) = 0 \text{ for } x \notin B\}, \qquad \eta_q(x) = \eta_p(x) \text{ on } B

    By Newton's method on the convex potential: O(m^3) and, outside Boolean lattices, O(n m^2) per step. Where p has
    zeros the minimum may be attained by a limit only; a linear program then finds the elements that stay possible, and
    the limit is returned.

    Args:
        poset: a poset with a bottom.
        probs: probabilities (n,), zeros allowed, or counts; they are normalised.
        members: the collection B, any elements above the bottom, such as ``poset.up_to(order)``.
        tolerance: largest difference between eta of the law and of the projection on B.
        max_iterations: most Newton steps.

    Raises:
        InputError: wrong shapes, negative or only zero probabilities, or a member twice.
        UnknownNameError: an unknown element.
        IntractableError: more than 4,096 members.

    Warns:
        ConvergenceWarning: the criterion was not met.

    References:
        Paper 4, equation (7).

    Example:
        >>> poset = Poset.boolean_lattice(["a", "b"])
        >>> result = m_projection(poset, torch.tensor([0.5, 0.0, 0.0, 0.5]), [("a",), ("b",)])
        >>> result.probs.tolist(), round(result.divergence, 6)
        ([0.25, 0.25, 0.25, 0.25], 0.693147)
    """
    check_type(poset, Poset, "poset")
    check_exact_shape(checked_floating(probs, "probs"), (len(poset),), "probs")
    check_finite(probs, "probs")
    p = probs.detach().to(torch.float64)
    if bool((p < 0).any()) or not float(p.sum()) > 0:
        raise out_of_range("probs", "numbers that are not negative, and not all zero")
    p = p / p.sum()
    where = _members(poset, members)
    target = poset.sums(p, "above")[where].numpy()
    # Of a table with zeros a linear program finds what stays possible.
    base = torch.zeros(len(poset), dtype=torch.float64)
    is_attained, basis = None, None
    if bool((p > 0).all()):
        is_attained = True
    elif len(where) * len(poset) <= _MAX_FACIAL_ENTRIES:
        is_attained, face, basis = _face(poset, where, p.numpy())
        base[~torch.from_numpy(face)] = -math.inf
    potential = _Potential(poset, where, target, base, basis)
    return potential.projection(p, is_attained, tolerance, max_iterations)


def e_projection(
    law: PosetLaw,
    members: Iterable[Hashable],
    eta: torch.Tensor,
    *,
    tolerance: float = 1e-12,
    max_iterations: int = 100,
) -> PosetProjection:
    r"""Project a law on the laws with given eta on a collection, which keeps theta outside it.

    .. math:: \operatorname{argmin}_{q : \eta_q = \eta \text{ on } B} D(q; p), \qquad
        \theta_q(x) = \theta_p(x) \text{ for } x \notin B

    By Newton's method as in :func:`m_projection`, which this is for the uniform law.

    Args:
        law: the law p, without a batch.
        members: the collection B.
        eta: mean coordinates (m,) on B, in its order, of some positive law.
        tolerance: as in :func:`m_projection`.
        max_iterations: as there.

    Raises:
        InputError: wrong shapes, a law with a batch, an eta outside (0, 1), or a member twice.
        UnknownNameError: an unknown element.
        IntractableError: more than 4,096 members.

    Warns:
        ConvergenceWarning: the criterion was not met, as for an eta that no positive law has.

    Example:
        >>> poset = Poset.boolean_lattice(["a", "b"])
        >>> law = PosetLaw(poset, torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64))
        >>> found = e_projection(law, [("a",), ("b",)], torch.tensor([0.5, 0.5], dtype=torch.float64))
        >>> found.law.eta[:2].round(decimals=6).tolist(), round(float(found.law.theta[2]), 6)  # theta of the pair stays
        ([0.5, 0.5], 2.0)
    """
    check_type(law, PosetLaw, "law")
    where = _members(law.poset, members)
    check_exact_shape(checked_floating(eta, "eta"), (len(where),), "eta")
    target = eta.detach().to(torch.float64).numpy()
    if not ((target > 0) & (target < 1)).all():
        raise out_of_range("eta", "numbers between 0 and 1", eta.tolist())
    check_exact_shape(law.theta, (len(law.poset) - 1,), "law: theta")
    base = law.logits.detach().to(torch.float64)
    return _Potential(law.poset, where, target, base, None).projection(None, True, tolerance, max_iterations)


class _Potential:
    """The convex function psi(theta) - theta . target of theta on B, over log weights ``base`` of the elements."""

    def __init__(
        self, poset: Poset, where: torch.Tensor, target: np.ndarray, base: torch.Tensor, basis: np.ndarray | None
    ) -> None:
        if len(where) > _MAX_PARAMETERS:
            problem = f"Newton's method takes up to {_MAX_PARAMETERS} members, received {size_text(len(where))}"
            raise out_of_reach("members", problem, "take plain gradient steps with train_machine")
        self.poset, self.where, self.target, self.base = poset, where, target, base
        self.basis = basis  # directions of theta that are identified, all of them where None
        self.size = len(where) if basis is None else basis.shape[1]

    def theta(self, coordinates: np.ndarray) -> np.ndarray:
        """Theta on B at coordinates in the basis."""
        return coordinates if self.basis is None else self.basis @ coordinates

    def log_probs(self, coordinates: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities (n,) and log Z less that of the base."""
        spread = self.base.new_zeros(len(self.poset))
        spread[self.where] = torch.from_numpy(self.theta(coordinates))
        weights = self.poset.sums(spread) + self.base
        log_z = weights.logsumexp(0)
        return weights - log_z, log_z

    def evaluate(self, coordinates: np.ndarray) -> Point:
        """Value and gradient."""
        log_probs, log_z = self.log_probs(coordinates)
        self._probs = log_probs.exp()
        self._eta = self.poset.sums(self._probs, "above")[self.where].numpy()
        value = float(log_z) - float(self.theta(coordinates) @ self.target)
        gradient = self._eta - self.target
        return Point(coordinates, value, value, gradient if self.basis is None else self.basis.T @ gradient)

    def hessian(self) -> np.ndarray:
        """Fisher information at the point evaluated last."""
        moments = second_moments(self.poset, self._probs, self.where).numpy() - np.outer(self._eta, self._eta)
        return moments if self.basis is None else self.basis.T @ moments @ self.basis

    def projection(
        self, p: torch.Tensor | None, is_attained: bool | None, tolerance: float, max_iterations: int
    ) -> PosetProjection:
        """The minimum; the divergence is from p, or from the minimum to the base where p is None."""
        check_positive(tolerance, "tolerance")
        check_whole(max_iterations, "max_iterations")
        start = self.evaluate(np.zeros(self.size))
        outcome = newton(self.evaluate, start, tolerance, max_iterations, lambda *_: False, self.hessian)
        # Divergence and what is left of the criterion.
        log_q, _ = self.log_probs(outcome.point.theta)
        q, (log_p, log_r) = log_q.exp(), (log_q, self.base) if p is None else (p.log(), log_q)
        terms = torch.where(torch.isneginf(log_p), 0.0, log_p.exp() * (log_p - log_r))
        eta = self.poset.sums(q, "above")[self.where].numpy()
        error = float(np.abs(eta - self.target).max(initial=0.0))
        is_converged = outcome.status == "converged" or error <= tolerance
        if not is_converged:
            problem = f"projection: {outcome.status} after {outcome.num_iterations} steps with eta {error:.2g} off"
            warnings.warn(problem, ConvergenceWarning, stacklevel=3)
        return PosetProjection(
            self.poset,
            self.where,
            torch.from_numpy(self.theta(outcome.point.theta)),
            q,
            max(float(terms.sum()), 0.0),
            is_attained,
            is_converged,
            outcome.num_iterations,
            error,
        )


def _face(poset: Poset, where: torch.Tensor, p: np.ndarray) -> tuple[bool | None, np.ndarray, np.ndarray | None]:
    """Whether the estimate is positive, the elements that stay possible, and a basis of what they identify."""
    face = np.ones(len(p), dtype=bool)
    design = indicators(poset, where).numpy().T
    solution = forced_zeros(np.hstack([design, np.ones((len(p), 1))]), np.flatnonzero(p > 0), np.flatnonzero(p <= 0))
    if solution is None:
        return None, face, None
    face[solution[0]] = False
    return (True, face, None) if face.all() else (False, face, identified_directions(design, face))
