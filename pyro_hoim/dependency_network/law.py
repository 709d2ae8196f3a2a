r"""Dependency networks as Pyro distributions: the law at which pseudo-Gibbs sampling settles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from pyro.distributions import constraints

from ..core.law import Law
from ..core.laws.expansion import list_states
from ..core.laws.shared import FiniteLaw
from ..core.laws.values import check_value
from ..errors import wrong_type
from ._law import NetworkLaw, NetworkSampler
from .conditionals import DependencyConditionals, checked_conditionals
from .scan import Scan, ScanLike, checked_scan
from .stationary.laws import StationaryLaw, StationaryMethod

__all__ = ["DependencyNetwork"]


class DependencyNetwork(FiniteLaw):
    r"""The law of d finite variables that a dependency network defines by pseudo-Gibbs sampling.

    .. math:: \pi(x) = \sum_i c_i \, \pi(x_{-i}) \, \theta_i(x_i \mid x_{-i})

    A value is a vector of level codes in schema order, so the event shape is (d,). The conditionals
    :math:`\theta_i` need not belong to one joint law; :math:`\pi` is what a chain that updates variable i with
    probability :math:`c_i` settles at. With a sequential scan it is the mean of the laws at all places of a sweep.
    The law has no formula: up to ``max_states`` joint states it is enumerated, and probabilities, moments, marginals
    and independent draws are exact. Beyond, these raise IntractableError and draws are the ends of pseudo-Gibbs chains.
    ``log_pseudo_prob`` is exact at any size, and differentiable in the tables, which ``log_prob`` is not: in a Pyro
    program of many variables write ``pyro.factor("rows", network.log_pseudo_prob(x).sum())``, not an observed site.

    Args:
        conditionals: one conditional per variable, or an object that holds them as ``conditionals``.
        scan: "random" with equal probabilities, a mapping from names to the probabilities :math:`c_i` of a random scan
            (positive, with sum one), "sequential" in schema order, or a sequence of all names in another order.
        sampler: "exact" draws from the enumerated law, "pseudo-gibbs" takes the last states of independent chains,
            "auto" (default) is exact up to ``max_states`` states.
        num_sweeps: sweeps of a pseudo-Gibbs chain from uniform levels to a draw; whether they are enough is not known.
        method: how the enumerated law is found, as in :func:`~pyro_hoim.dependency_network.stationary_law`.
        max_states: most joint states for which the law is enumerated. 2^16 take seconds.
        validate_args: as in every distribution; values are checked in any case.

    Shape:
        samples (*sample, *batch, d) of dtype ``torch.long``; :meth:`log_prob` takes integer or floating codes and
        returns (*sample, *batch). The batch shape is that of the conditionals, () for single tables, until
        :meth:`expand`. A batch of networks has pseudo-likelihoods, conditionals and :meth:`condition` alone.

    Raises:
        InputTypeError: no network, or arguments of the wrong type.
        InputError: an option that is out of range, a scan that does not name every variable. On use, a
            value of a wrong shape or outside the support, or a network with more than one limiting law (the states are
            named).
        UnknownNameError: an unknown name.

    Warns:
        ConvergenceWarning: on use, where zero probabilities leave it open whether chains forget their start, or the
            enumerated law did not settle.

    References:
        Paper 5, sections 2, 3 and 5; further sources with
        :class:`~pyro_hoim.dependency_network.DependencyConditionals`.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> copy, fair = torch.tensor([[0.9, 0.1], [0.1, 0.9]]), torch.tensor([0.5, 0.5])
        >>> nodes = [TableConditional(domain, "a", ["b"], copy), TableConditional(domain, "b", [], fair)]
        >>> network = DependencyNetwork(DependencyConditionals(nodes))
        >>> network.probs
        tensor([[0.3500, 0.1500],
                [0.1500, 0.3500]])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}  # type: ignore[override]
    _law: NetworkLaw

    def __init__(
        self,
        conditionals: DependencyConditionals,
        *,
        scan: ScanLike = "random",
        sampler: NetworkSampler = "auto",
        num_sweeps: int = 100,
        method: StationaryMethod = "auto",
        max_states: int = 2**16,
        validate_args: bool | None = None,
    ) -> None:
        found = checked_conditionals(conditionals, single=False)
        checked = checked_scan(found.domain, found.domain.names, scan)
        self._law = NetworkLaw(found, checked, sampler, num_sweeps, method, max_states)
        self._settle(self._law.batch_shape, len(self._law.domain), validate_args)

    @property
    def conditionals(self) -> DependencyConditionals:
        """The conditional laws."""
        return self._law.conditionals

    @property
    def scan(self) -> Scan:
        """Which variable a chain updates next."""
        return self._law.scan

    @property
    def max_states(self) -> int:
        """Most joint states for which the law is enumerated."""
        return self._law.max_states

    @classmethod
    def infer_shapes(  # type: ignore[override]
        cls,
        *,
        conditionals: DependencyConditionals,
        **other: Any,  # noqa: ARG003
    ) -> tuple[torch.Size, torch.Size]:
        """Pair of batch and event shape; further arguments are ignored."""
        return conditionals.batch_shape, torch.Size((len(conditionals.domain),))

    def __repr__(self) -> str:
        return self._repr(repr(self.conditionals), f"scan={self.scan.kind!r}")

    def _validate_sample(self, value: torch.Tensor) -> None:
        check_value(value, self.domain, self.batch_shape)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-probability in nats, (*sample, *batch), from the enumerated law; minus infinity for states left for good.

        Raises:
            IntractableError: more than :attr:`max_states` joint states; use :meth:`log_pseudo_prob`.
            InputError: a value of the wrong shape or outside the support; tables that require a
                gradient, which this has not; a network with more than one limiting law.
        """
        self._law.require("log_prob")
        self._law.check_gradient("log_prob")
        self._validate_sample(value)  # also without validation: a wrong code would select another state
        codes = value.long()
        index = torch.zeros(codes.shape[:-1], dtype=torch.long, device=codes.device)
        for i, size in enumerate(self.domain.cardinalities):
            index = index * size + codes[..., i]
        found = self._law.log_probs.reshape(-1)[index]
        return found.expand(self._sample_batch(value))

    def log_pseudo_prob(self, value: torch.Tensor) -> torch.Tensor:
        r"""Log pseudo-likelihood :math:`\sum_i \log \theta_i(x_i \mid x_{-i})`, differentiable in the tables; nats.

        It is not a log-probability, and costs one look-up per variable, whatever the number of states.
        """
        self._validate_sample(value)
        return self.conditionals.log_pseudo_prob(value).expand(self._sample_batch(value))

    @property
    def stationary_law(self) -> StationaryLaw:
        """The enumerated law with the way it was found, found once; errors as those of :meth:`log_prob`."""
        self._law.require("stationary_law")
        return self._law.stationary

    @property
    def log_prob_table(self) -> torch.Tensor:
        """Log-probability of every cell, (*batch, *cardinalities); see :meth:`log_prob`."""
        self._law.require("log_prob_table")
        self._law.check_gradient("log_prob_table")
        return self._expanded(self._law.log_probs, len(self.domain))

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Draws (*sample_shape, *batch, d) of level codes: exact and independent where :attr:`sample_is_exact`.

        Otherwise every draw is the last state of a pseudo-Gibbs chain of its own, after :attr:`sample_burn_in` sweeps
        from uniform levels; for a sequential scan at a place of the order drawn at random.

        Raises:
            InputError: the network has more than one limiting law, as far as that is known; the states are named.
            IntractableError: ``sampler="exact"`` and more than :attr:`max_states` joint states.
        """
        codes = torch.zeros((), dtype=torch.long, device=self._law.device)
        return self._drawn(sample_shape, self._law.draw, codes)

    def _require_enumerable(self) -> None:
        self._law.require("enumerate_support")

    def marginal(self, names: Iterable[str]) -> Law:
        """The law of some variables, in schema order: their table under the enumerated law; see :meth:`log_prob`."""
        if isinstance(names, str):
            raise wrong_type("names", "a collection of variable names", received=f"the string {names!r}")
        names = tuple(names)
        self.domain.indices(names)
        self._law.require("marginal")
        return Law(self.domain, self._law.stationary.probs).marginal(names)

    def _moments(self, what: str) -> tuple[torch.Tensor, torch.Tensor]:
        self._law.require(what)
        first = self._law.moment(1)
        return first, (self._law.moment(2) - first**2).clamp(min=0)

    @property
    def mode(self) -> torch.Tensor:
        """A most probable state of the enumerated law, (*batch, d) of dtype ``torch.long``."""
        self._law.require("mode")
        best = self._law.stationary.probs.reshape(-1).argmax()
        state = list_states(self.domain.cardinalities, torch.device("cpu"))[best].to(self._law.device)
        return self._expanded(state, 1)

    def entropy(self) -> torch.Tensor:
        """Shannon entropy of the enumerated law in nats, (*batch)."""
        self._law.require("entropy")
        return torch.special.entr(self._law.stationary.probs).sum().to(self._law.probe).expand(self.batch_shape)

    def condition(self, evidence: Mapping[str, str | int | torch.Tensor]) -> DependencyNetwork:
        r"""The network of the remaining variables with some clamped: the law :math:`\pi'(x \mid x_C)`.

        It is what conditional pseudo-Gibbs sampling settles at. Unless the conditionals belong to one joint law, it is
        *not* the conditional law :math:`\pi(x \mid x_C)` of this network's own law; near evidence of small probability
        it may be far off. Evidence and errors are those of :meth:`DependencyConditionals.condition`; evidence that a
        single network is known to give probability zero is refused.
        """
        return self._in_batch(type(self)(**self._law.clamped(evidence), validate_args=self._own_validation))
