"""Boltzmann machines as Pyro distributions over their visible variables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from pyro.distributions import constraints

from ..checks import check_finite
from ..core.laws.expansion import check_cells, list_states
from ..core.laws.shared import EnergyLaw, FiniteLaw
from ..core.laws.traces import check_probabilities
from ..core.laws.values import check_value
from ..core.partition import PartitionBackend
from ..errors import out_of_reach, size_text
from ..log_linear.laws.law import HierarchicalLogLinear
from ..structure.cells import evidence_codes
from ._law import MachineLaw
from .energy import MAX_LAYER_STATES, MarginalEnergy
from .structure import MachineStructure

__all__ = ["BoltzmannMachine"]


class BoltzmannMachine(FiniteLaw, EnergyLaw):  # pyright: ignore[reportIncompatibleMethodOverride]
    r"""The law of n binary visible variables that m binary hidden units are summed out of.

    .. math:: p(v) = \frac{1}{Z} \sum_{h \in \{0,1\}^m} e^{-E(v, h)}, \qquad
        -E(v, h) = \sum_i b_i x_i + \sum_{\{i, j\}} w_{ij} x_i x_j, \quad x = (v, h)

    The joint law is the pairwise log-linear one of :attr:`joint`. A value is a vector of codes of the visible
    variables, so the event shape is (n,). The law is an ordinary Pyro site. Its unnormalised probability, the free
    energy, is exact wherever the hidden part eliminates, which it does in one formula without edges among hidden
    units. log Z, moments and draws are exact where the graph has two colours of which one has at most
    :attr:`max_layer_states` states (restricted and layered machines), or where ``partition`` is exact within its
    budget; with an annealed backend they are estimates, see :doc:`/exact_or_approximate`, and without one a machine out
    of reach is refused.

    Hidden units may be exchanged, and switched over (h to 1 - h with other weights), without a change of the law: theta
    is not identified, the law is.

    Args:
        structure: visible and hidden variables and edges; :meth:`MachineStructure.layered` for deep machines.
        theta: biases and weights in nats, see :class:`MachineStructure`.
        partition: backend over all variables, as of :class:`~pyro_hoim.HierarchicalLogLinear`; ``Auto()`` when None.
        validate_args: check values given to :meth:`log_prob`; default is Pyro's global setting. Where validation is
            switched off globally, as inside Pyro's MCMC, a theta that is not finite has the log-probability NaN.

    Shape:
        theta (*batch, num_parameters); samples (*sample, *batch, n) of dtype ``torch.long``; :meth:`log_prob` takes
        integer or floating codes and returns (*sample, *batch).

    Raises:
        InputError: theta of the wrong shape or not finite; values outside the support, when validating; an estimate
            with fresh randomness inside HMC, NUTS, importance sampling or a trace.
        IntractableError: on use, when an exact computation exceeds its budget.

    Randomness:
        :meth:`sample`, and with an annealed backend without a seed every estimate, uses PyTorch's global generator.

    References:
        Paper 4, equations (1) to (3).

    Example:
        >>> from pyro_hoim import Domain
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = BoltzmannMachine(structure, structure.theta_of({("a", "h1"): 2.0, ("b", "h1"): 2.0}))
        >>> law.log_partition.value, law.probs
        (tensor(4.3091), tensor([[0.0269, 0.1128],
            [0.1128, 0.7475]]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {  # type: ignore[override]
        "theta": constraints.real_vector,
    }
    _arguments = "structure", "theta"
    _law: MachineLaw

    max_enumerated_states: int = 2**16
    """Most states that :meth:`enumerate_support` lists; a subclass may raise it."""

    max_table_cells: int = 2**24
    """Most cells (batch included) of :attr:`log_prob_table` and :attr:`probs`; a subclass may raise it."""

    max_layer_states: int = MAX_LAYER_STATES
    """Most states of a layer over which log Z is summed; a subclass may raise it."""

    def __init__(
        self,
        structure: MachineStructure,
        theta: torch.Tensor,
        *,
        partition: PartitionBackend | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._begin(structure, theta, partition, validate_args)

    def _begin(
        self,
        structure: MachineStructure,
        theta: torch.Tensor,
        partition: PartitionBackend | None,
        validate_args: bool | None,
    ) -> None:
        is_validation_off = validate_args is None and not torch.distributions.Distribution._validate_args
        limit = self.max_layer_states
        self._law = MachineLaw(structure, theta, partition, limit, is_lenient=is_validation_off)
        self._settle(self._law.batch_shape, structure.num_visible, validate_args)

    @property
    def structure(self) -> MachineStructure:
        """Visible and hidden variables and edges."""
        return self._law.structure

    @property
    def theta(self) -> torch.Tensor:
        """Biases and weights, (*batch, num_parameters)."""
        return self._expanded(self._law.parameters, 1)

    @property
    def joint(self) -> HierarchicalLogLinear:
        """The law of visible and hidden variables together: pairwise log-linear, in corner coding, same backend."""
        return self._law.joint if self._is_own_batch else self._law.joint.expand(self.batch_shape)

    @property
    def energy_model(self) -> MarginalEnergy:
        """Free energies and conditionals of the visible variables, without log Z."""
        return super().energy_model

    def __repr__(self) -> str:
        return self._repr(repr(self.structure))

    def _validate_sample(self, value: torch.Tensor) -> None:
        check_value(value, self.domain, self.batch_shape)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-probability in nats, differentiable in theta: exact where log Z is, else with its estimate.

        Shape:
            value broadcasts with (*sample, *batch, n); the result is (*sample, *batch).
        """
        if self._validate_args:
            self._validate_sample(value)
        if not self._law.is_finite:
            return (self._law.parameters.sum(-1) * math.nan).expand(self._sample_batch(value))
        log_z = self._law.log_partition
        result = check_probabilities(log_z, -self._energy(value) - log_z.value, value, self.domain)
        return result if self._is_own_batch else result.expand(self._sample_batch(value))

    def free_energy(self, value: torch.Tensor) -> torch.Tensor:
        """F(v), minus the log-probability without log Z, (*sample, *batch); always exact, or refused."""
        return self.energy(value)

    def log_pseudo_prob(self, value: torch.Tensor) -> torch.Tensor:
        r"""Log pseudo-likelihood :math:`\sum_i \log p(v_i \mid v_{-i})`, (*sample, *batch), which needs no log Z."""
        if self._validate_args:
            self._validate_sample(value)
        return self._law.model.log_pseudo_prob(value).expand(self._sample_batch(value))

    @property
    def log_prob_table(self) -> torch.Tensor:
        """Log-probability of every cell, (*batch, 2, ..., 2), by listing them; its own sum is log Z."""
        self._require_finite()
        n, batch = self.structure.num_visible, self._law.batch_shape
        check_cells(2**n * max(batch.numel(), 1), self.max_table_cells, "log_prob_table")
        states = list_states([2] * n, self._law.device)
        scores = -self._law.model.energy(states.reshape(len(states), *(1,) * len(batch), n), validate=False)
        table = scores.movedim(0, -1).log_softmax(-1).reshape((*batch, *(2,) * n))
        return self._expanded(table, n)

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Draws (*sample, *batch, n) of dtype ``torch.long``: perfect and independent where :attr:`sample_is_exact`.

        Otherwise they are states of Gibbs chains, annealed and then burnt in by :attr:`sample_burn_in` sweeps.
        """
        self._require_finite()
        n, codes = self.structure.num_visible, torch.zeros((), dtype=torch.long, device=self._law.device)
        return self._drawn(sample_shape, lambda shape: self._law.draw(shape)[..., :n], codes)

    def _require_finite(self) -> None:
        if not self._law.is_finite:
            check_finite(self._law.parameters.detach(), "theta")

    def _require_enumerable(self) -> None:
        states = 2**self.structure.num_visible
        if states > self.max_enumerated_states:
            limit = f"expected at most max_enumerated_states={self.max_enumerated_states}"
            raise out_of_reach("enumerate_support", f"{limit}, received {size_text(states, 'states')}")

    def entropy(self) -> torch.Tensor:
        """Shannon entropy of the visible variables in nats, (*batch), by listing their states; exact, or refused."""
        table = self.log_prob_table.flatten(len(self.batch_shape))
        return -(table.exp() * table).sum(-1)

    def condition(self, evidence: Mapping[str, str | int | torch.Tensor]) -> BoltzmannMachine:
        """The machine of the other visible variables given some, whose weights become biases.

        Args:
            evidence: ``{name: label or code}``, or a tensor of codes: one for every row and batch element.

        Raises:
            UnknownNameError: an unknown name or label.
            InputError: a code out of range, or tensors whose shapes do not broadcast.
        """
        self._require_finite()
        structure, theta = self.structure, self._law.parameters
        codes, shape = evidence_codes(self.domain, evidence, self._law.batch_shape)
        kept = [i for i, name in enumerate(structure.names) if name not in codes]
        biases = [theta[..., i].expand(shape) for i in range(len(structure.names))]
        edges: list[tuple[str, str]] = []
        weights: list[torch.Tensor] = []
        for k, (a, b) in enumerate(structure.edges):
            weight = theta[..., len(structure.names) + k].expand(shape)
            if a not in codes and b not in codes:
                edges.append((a, b))
                weights.append(weight)
            elif (a in codes) != (b in codes):
                given, other = (a, b) if a in codes else (b, a)
                place = structure.names.index(other)
                biases[place] = biases[place] + weight * torch.as_tensor(codes[given], device=theta.device)
        domain = self.domain.project([name for name in self.domain.names if name not in codes])
        rest = MachineStructure(domain, structure.hidden, edges)
        columns = [*(biases[i] for i in kept), *weights]
        flat = torch.stack(columns, -1) if columns else theta.new_zeros(*shape, 0)
        options: dict[str, Any] = {"partition": self.partition, "validate_args": self._own_validation}
        return self._in_batch(BoltzmannMachine(rest, flat, **options))
