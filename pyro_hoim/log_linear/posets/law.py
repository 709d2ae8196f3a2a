"""Laws on a finite partially ordered set in their dual coordinates theta and eta (paper 4, equations 4 and 5)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from pyro.distributions import Categorical, constraints

from ...checks import check_finite, check_shape, checked_floating
from ...errors import check_type, other_domain, out_of_range, refused, unexpected
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..laws.law import HierarchicalLogLinear
from ._order_moments import second_moments
from .poset import Poset

__all__ = ["PosetLaw"]


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
        logits = poset._order.sums(_with_bottom(poset, theta, 0.0), "below")
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
    found, counts = where.unique(return_counts=True)
    if bool((counts > 1).any()):
        twice = poset.elements[int(found[counts > 1][0])]
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
        found = f"p({poset.elements[where[-1]]!r}) = {float(probs[where]):.6g}"
        raise out_of_range(argument, expected, received=found)
