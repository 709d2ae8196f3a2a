"""Boltzmann machines as Pyro distributions over their visible variables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import torch
from pyro.distributions import constraints
from typing_extensions import override

from ..checks import broadcast_shapes, check_finite, check_shape, checked_floating, is_hidden
from ..core.laws.expansion import check_cells, list_states
from ..core.laws.parameter_cache import ParameterCache
from ..core.laws.shared import EnergyLaw, FiniteLaw
from ..core.laws.traces import refuse_traced
from ..core.partition import Cost, LogPartition, PartitionBackend
from ..core.prediction import Imputation, Prediction, row_patterns
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import check_names, check_type, check_whole, other_domain, out_of_reach, size_text, unexpected
from ..log_linear.auto import Auto, in_coding
from ..log_linear.laws.law import HierarchicalLogLinear
from ..runs.container import BOLTZMANN
from ..schema import Domain
from ..structure.hypergraph import evidence_codes
from .structure import MAX_LAYER_STATES, Layers, MachineStructure, MarginalEnergy, layer_scores, times

# The parameters of a machine with what is computed from them once.

METHOD = "sum over a layer"


class MachineLaw(ParameterCache):
    """A machine and its backend, with a cache of log Z and moments."""

    def __init__(
        self,
        structure: MachineStructure,
        theta: torch.Tensor,
        partition: PartitionBackend | None,
        max_states: int,
        *,
        is_lenient: bool,
    ) -> None:
        self.model = MarginalEnergy(structure, theta, validate=False)
        self.structure, self.is_lenient, self._max_states = structure, is_lenient, max_states
        self.domain, self.batch_shape, self.device = structure.domain, self.model.batch_shape, self.model.device
        self.partition: PartitionBackend = Auto() if partition is None else partition
        self._forget()

    @property
    @override
    def parameters(self) -> torch.Tensor:
        return self.model.theta

    @override
    def _examine(self, values: torch.Tensor) -> None:
        is_open = torch.jit.is_tracing() or is_hidden(values)
        self._is_finite = is_open or bool(torch.isfinite(values).all())
        if not self._is_finite and not self.is_lenient:
            check_finite(values, "theta")

    @property
    def is_finite(self) -> bool:
        """Whether theta is finite."""
        self.look()
        return self._is_finite

    @property
    def joint(self) -> HierarchicalLogLinear:
        """The law of all variables, hidden ones included, in corner coding."""
        law = partial(HierarchicalLogLinear, self.structure.hypergraph, self.model.theta, coding="corner")
        return self._cached("joint", partial(law, partition=self.partition), is_plain=True)

    @property
    def layers(self) -> Layers | None:
        """Colours of the graph where log Z is a sum over one of them: an automatic backend, and few states."""
        layers = self.structure.graph.layers if isinstance(self.partition, Auto) else None
        return layers if layers is not None and layers.num_states <= self._max_states else None

    def _parts(self, layers: Layers, theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Biases of the listed and of the summed variables, and the weights between them as a matrix."""
        structure, d = self.structure, len(self.structure.names)
        return (
            theta[..., list(layers.listed)],
            theta[..., list(layers.summed)],
            structure.graph.coupling(theta[..., d:]),
        )

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant of the machine, in corner coding, value (*batch)."""
        refuse_traced("log_prob", "the places of weights and states")
        if self.layers is not None:
            return self._cached("log_partition", partial(self._log_partition, self.layers))
        self._check_reach()
        return in_coding(self.joint.energy_model, self.joint.log_partition, "corner")  # the joint law keeps it

    def _log_partition(self, layers: Layers) -> LogPartition:
        value = layer_scores(*self._parts(layers, self._source), is_total=True)
        states, width = layers.num_states, len(layers.summed)
        reason = f"{size_text(states, 'states')} of {len(layers.listed)} variables, the others summed one by one"
        cost = Cost(states, states, states * max(width, 1) * 8, 8 * states * max(width, 1), True, reason, METHOD)
        return replace(LogPartition.exact(value, cost), coding="corner")

    def _check_reach(self) -> None:
        """Refuse a restricted machine that only a larger layer sum would normalise, with its size."""
        layers = self.structure.graph.layers if isinstance(self.partition, Auto) else None
        if layers is not None and self.structure.is_restricted and self.partition.is_exact:
            size = size_text(layers.num_states, "states")
            raise out_of_reach(
                "log_partition",
                f"the smaller layer has {len(layers.listed)} units, so {size}, the limit is {self._max_states}",
                "raise max_layer_states, or ask for an estimate with an error bar by partition=AnnealedImportance(...)",
            )

    @property
    def draws_exactly(self) -> bool:
        """Whether draws are perfect and independent."""
        return self.layers is not None or self.joint.sample_is_exact

    @property
    def num_sweeps(self) -> int:
        """Gibbs sweeps at the machine itself before a state is a draw."""
        return self.joint.sample_burn_in

    @torch.no_grad()
    def draw(self, shape: torch.Size) -> torch.Tensor:
        """States of all variables (*shape, *batch, d), exact where :attr:`draws_exactly`."""
        layers = self.layers
        if layers is None:
            self._check_reach()
            return self.joint.sample(shape)
        # States of the listed layer by their weights, then the other one given them.
        listed, summed, coupling = self._parts(layers, self.parameters)
        weights = layer_scores(listed, summed, coupling).double().softmax(-1)
        number, batch = shape.numel(), self.batch_shape
        flat = weights.reshape(-1, weights.shape[-1])
        index = flat.multinomial(number, replacement=True) if number else flat.new_zeros((len(flat), 0)).long()
        first = list_states([2] * len(layers.listed), self.device)[index].movedim(1, 0)
        first = first.reshape(*shape, *batch, len(layers.listed))
        fields = summed + (first.to(listed.dtype).unsqueeze(-2) @ coupling).squeeze(-2)
        second = torch.bernoulli(fields.double().sigmoid()).long()
        # Both layers at the positions of their variables.
        states = first.new_zeros(*shape, *batch, len(self.structure.names))
        states[..., list(layers.listed)] = first
        states[..., list(layers.summed)] = second
        return states

    @property
    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of every visible variable, both (*batch, n)."""
        if self.layers is None:
            self._check_reach()
            mean = self.joint.mean
        else:
            mean = self._cached("mean", partial(self._mean, self.layers))
        mean = mean[..., : self.structure.num_visible]
        return mean, mean * (1 - mean)

    def _mean(self, layers: Layers) -> torch.Tensor:
        theta = self._source
        listed, summed, coupling = self._parts(layers, theta)
        # Means of the listed layer, and of the other one over its states.
        probs = layer_scores(listed, summed, coupling).softmax(-1)
        states = list_states([2] * len(layers.listed), self.device).to(theta.dtype)
        fields = summed.unsqueeze(-2) + states @ coupling
        parts = torch.cat([probs @ states, (probs.unsqueeze(-1) * fields.sigmoid()).sum(-2)], -1)
        order = torch.tensor([*layers.listed, *layers.summed], device=self.device).argsort()
        return parts[..., order]


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

    model_kind: ClassVar[str] = BOLTZMANN

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

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-probability in nats, differentiable in theta: exact where log Z is, else with its estimate.

        Shape:
            value broadcasts with (*sample, *batch, n); the result is (*sample, *batch).
        """
        if self._validate_args:
            self._validate_sample(value)
        if not self._law.is_finite:
            return self._undefined(value)
        log_z = self._law.log_partition
        return self._normalised(-self._energy(value) - log_z.value, log_z, value)

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
        # Weights between a known and a free variable shift the bias of the free one.
        codes, shape = evidence_codes(self.domain, evidence, self._law.batch_shape)
        free = [i for i, name in enumerate(structure.names) if name not in codes]
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
                position = structure.names.index(other)
                biases[position] = biases[position] + weight * torch.as_tensor(codes[given], device=theta.device)
        # The machine of what is left, in the order of its own structure.
        domain = self.domain.project([name for name in self.domain.names if name not in codes])
        rest = MachineStructure(domain, structure.hidden, edges)
        columns = [*(biases[i] for i in free), *weights]
        flat = torch.stack(columns, -1) if columns else theta.new_zeros(*shape, 0)
        options: dict[str, Any] = {"partition": self.partition, "validate_args": self._own_validation}
        return self._in_batch(BoltzmannMachine(rest, flat, **options))


class RestrictedBoltzmannMachine(BoltzmannMachine):
    r"""The law of n binary variables that share m hidden ones, with no edge inside a layer.

    .. math:: p(v) = \frac1Z \exp\Bigl(b \cdot v + \sum_{j=1}^m \log\bigl(1 + e^{c_j + (vW)_j}\bigr)\Bigr)
        = \frac1Z e^{-F(v)}

    A :class:`~pyro_hoim.boltzmann.BoltzmannMachine` whose free energy, conditionals and draws of one layer given the
    other cost O(n m) a row. log Z, moments and draws are exact by a sum over the :math:`2^{\min(n, m)}` states of the
    smaller layer up to :attr:`max_layer_states`; beyond, give an annealed ``partition``. With m = 0 the variables are
    independent. Permuting hidden units, or switching one over (c to -c, its weights to -W, b to b + W), changes
    nothing: weights are not identified, and a posterior of them has at least :math:`2^m m!` equal modes.

    Args:
        domain: the visible variables, two levels each.
        visible_bias: b, nats.
        hidden_bias: c, nats.
        weights: W, nats.
        hidden_names: names of the hidden units; ``h1``, ``h2``, ... when None.
        partition: backend over all variables, such as ``AnnealedImportance(schedule=GibbsSchedule("colours"))``, whose
            blocks are the layers; ``Auto()`` when None.
        validate_args: as of :class:`~pyro_hoim.boltzmann.BoltzmannMachine`.

    Shape:
        visible_bias (*batch, n), hidden_bias (*batch, m), weights (*batch, n, m), whose batches broadcast; the rest as
        of :class:`~pyro_hoim.boltzmann.BoltzmannMachine`. The tensors are copied into one: a later change of theirs in
        place is not seen.

    Raises:
        InputError, IntractableError: as of :class:`~pyro_hoim.boltzmann.BoltzmannMachine`.

    References:
        Paper 4, section 3.2. Smolensky (1986); Hinton, Training products of experts, 2002.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain, weights = Domain.from_cardinalities([2] * 3), torch.tensor([[2.0], [2.0], [-1.0]])
        >>> law = RestrictedBoltzmannMachine(domain, torch.zeros(3), torch.zeros(1), weights)
        >>> law.log_prob(torch.tensor([1, 1, 0])), law.hidden_probs(torch.tensor([1, 1, 0]))
        (tensor(-0.6288), tensor([0.9820]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {  # type: ignore[override]
        "visible_bias": constraints.real_vector,
        "hidden_bias": constraints.real_vector,
        "weights": constraints.independent(constraints.real, 2),
    }

    def __init__(
        self,
        domain: Domain,
        visible_bias: torch.Tensor,
        hidden_bias: torch.Tensor,
        weights: torch.Tensor,
        *,
        hidden_names: Sequence[str] | None = None,
        partition: PartitionBackend | None = None,
        validate_args: bool | None = None,
    ) -> None:
        # The structure says which shapes biases and weights have.
        number = int(hidden_bias.shape[-1]) if checked_floating(hidden_bias, "hidden_bias").dim() else 0
        names = number if hidden_names is None else hidden_names
        structure = MachineStructure.restricted(domain, names)
        check_shape(checked_floating(visible_bias, "visible_bias"), (len(domain),), "visible_bias")
        check_shape(hidden_bias, (structure.num_hidden,), "hidden_bias")
        check_shape(checked_floating(weights, "weights"), (len(domain), structure.num_hidden), "weights")
        # One vector theta of the batch that all parts broadcast to.
        parts = [visible_bias, hidden_bias, weights.flatten(-2)]
        try:
            shape = broadcast_shapes(*(part.shape[:-1] for part in parts))
        except RuntimeError:
            received = ", ".join(str(tuple(part.shape[:-1])) for part in parts)
            expected = "batch shapes of biases and weights that broadcast"
            raise unexpected("weights", expected, received=received, code="wrong-shape") from None
        theta = torch.cat([part.expand(*shape, part.shape[-1]) for part in parts], -1)
        super().__init__(structure, theta, partition=partition, validate_args=validate_args)

    @classmethod
    def infer_shapes(cls, **arguments: Any) -> tuple[torch.Size, torch.Size]:  # type: ignore[override]
        """Batch and event shape, from the domain and the shapes of biases and weights."""
        ends = {"visible_bias": 1, "hidden_bias": 1, "weights": 2}
        batches = [tuple(arguments[name])[:-size] for name, size in ends.items()]
        return broadcast_shapes(*batches), torch.Size((len(arguments["domain"]),))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """The same law with a larger batch shape; log Z is shared, not found anew."""
        new = cast("Self", self._get_checked_instance(RestrictedBoltzmannMachine, _instance))
        return super().expand(batch_shape, new)

    @property
    def visible_bias(self) -> torch.Tensor:
        """Biases b of the visible variables, (*batch, n)."""
        return self._expanded(self._law.model.visible_bias, 1)

    @property
    def hidden_bias(self) -> torch.Tensor:
        """Biases c of the hidden units, (*batch, m)."""
        return self._expanded(self._law.model.hidden_bias, 1)

    @property
    def weights(self) -> torch.Tensor:
        """Weights W, (*batch, n, m)."""
        return self._expanded(self._law.model.weights, 2)

    def hidden_probs(self, value: torch.Tensor) -> torch.Tensor:
        """Probability that each hidden unit is on given the visible variables, (*sample, *batch, m)."""
        if self._validate_args:
            self._validate_sample(value)
        probs = self._law.model.hidden_fields(value).sigmoid()
        return probs.expand(*self._sample_batch(value), probs.shape[-1])

    def visible_probs(self, hidden: torch.Tensor) -> torch.Tensor:
        """Probability that each visible variable is on given the hidden units (*sample, *batch, m): (..., n)."""
        check_shape(hidden, (self.structure.num_hidden,), "hidden")
        model = self._law.model
        return (model.visible_bias + times(hidden.to(model.dtype), model.weights.mT)).sigmoid()

    @torch.no_grad()
    def sweep(
        self, value: torch.Tensor, num_sweeps: int = 1, *, generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """Visible states after sweeps of block Gibbs: all hidden units given the visible variables, then all of these.

        One product of matrices a layer moves all chains, which suits weights that change after every few sweeps, as in
        learning; for long chains of one machine see :class:`~pyro_hoim.GibbsChains` of ``joint.energy_model`` with
        ``GibbsSchedule("colours")``.

        Shape:
            value (*sample, *batch, n); the result too, long.

        Randomness:
            From ``generator`` or, if it is None, PyTorch's global generator.
        """
        check_whole(num_sweeps, "num_sweeps", 0)
        self._validate_sample(value)
        model = self._law.model
        parts = model.visible_bias, model.hidden_bias, model.weights
        start = value.to(model.dtype).expand(*self._sample_batch(value), value.shape[-1])
        return sweep_layers(start, parts, num_sweeps, generator).long()

    def condition(self, evidence: Mapping[str, str | int | torch.Tensor]) -> RestrictedBoltzmannMachine:
        """The machine of the other visible variables given some, which shift the biases of the hidden units.

        Evidence and errors are as of :meth:`BoltzmannMachine.condition`.
        """
        self._require_finite()
        model = self._law.model
        # What is known shifts the biases of the hidden units.
        codes, shape = evidence_codes(self.domain, evidence, self._law.batch_shape)
        given = [i for i, name in enumerate(self.domain.names) if name in codes]
        free = [i for i, name in enumerate(self.domain.names) if name not in codes]
        columns = [
            torch.as_tensor(codes[self.domain.names[i]], device=model.device).to(model.dtype).expand(shape)
            for i in given
        ]
        rows = torch.stack(columns, -1) if columns else model.theta.new_zeros(*shape, 0)
        bias = model.hidden_bias + times(rows, model.weights[..., given, :])
        # The machine of what is left, restricted as well.
        domain = self.domain.project([self.domain.names[i] for i in free])
        parts = model.visible_bias[..., free], bias, model.weights[..., free, :]
        return self._in_batch(
            RestrictedBoltzmannMachine(
                domain,
                *parts,
                hidden_names=self.structure.hidden,
                partition=self.partition,
                validate_args=self._own_validation,
            )
        )


def as_machine(structure: MachineStructure, theta: torch.Tensor, **options: Any) -> BoltzmannMachine:
    """The machine of theta (*batch, num_parameters) as the class that it is."""
    if not structure.is_restricted:
        return BoltzmannMachine(structure, theta, **options)
    n, d = structure.num_visible, len(structure.names)
    weights = theta[..., d:].unflatten(-1, (n, structure.num_hidden))
    parts = theta[..., :n], theta[..., n:d], weights
    return RestrictedBoltzmannMachine(structure.domain, *parts, hidden_names=structure.hidden, **options)


def sweep_layers(
    rows: torch.Tensor,
    parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    num_sweeps: int,
    generator: torch.Generator | None,
) -> torch.Tensor:
    """Rows (*sample, *batch, n) of zeros and ones after sweeps over both layers; parts are b, c and W."""
    b, c, weights = parts
    for _ in range(num_sweeps):
        hidden = torch.bernoulli((c + times(rows, weights)).sigmoid(), generator=generator)
        rows = torch.bernoulli((b + times(hidden, weights.mT)).sigmoid(), generator=generator)
    return rows


# Rows under a machine, some of whose cells may be missing: likelihoods, predictions, completions.


def _evidence(data: Observations, rows: torch.Tensor, missing: tuple[str, ...]) -> Mapping[str, torch.Tensor]:
    codes = data.codes[rows]
    return {name: codes[:, i] for i, name in enumerate(data.domain.names) if name not in missing}


def _checked(law: BoltzmannMachine, data: DataLike, absent: Collection[str] = ()) -> Observations:
    data = as_observations(data, domain=law.domain, absent=absent)
    if data.domain != law.domain:
        raise other_domain("data", f"the variables {', '.join(map(repr, law.domain.names[:6]))} of the machine")
    return data


@torch.no_grad()
def row_log_scores(law: BoltzmannMachine, data: DataLike) -> torch.Tensor:
    r"""Log of :math:`\sum_{v_M} e^{-F(v)}` of every row with missing cells M, (N,), nats; without log Z.

    Complete rows cost a free energy; others log Z of the machine given what is known, exact or refused.

    Raises:
        InputError: rows of another domain.
        IntractableError: too many cells of a row are missing, and too many units hidden.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.boltzmann import MachineStructure
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = BoltzmannMachine(structure, torch.zeros(5))
        >>> rows = Observations.from_tensor(torch.tensor([[0, 1], [0, -1]]), structure.domain)
        >>> row_log_scores(law, rows).exp().round(decimals=4).tolist()  # states of the hidden unit, and of b with it
        [2.0, 4.0]
    """
    data = _checked(law, data)
    scores = law.theta.new_zeros(len(data.codes))
    for missing, rows in row_patterns(data):
        if not missing:
            scores[rows] = -law.free_energy(data.codes[rows])
            continue
        rest = law.condition(_evidence(data, rows, missing))
        known = torch.where(data.codes[rows] < 0, 0, data.codes[rows])
        # what is known alone: the free energy with the missing cells at 0, less the same of the rest
        zero = rest.free_energy(torch.zeros(len(missing), device=rest.theta.device))
        scores[rows] = zero - law.free_energy(known) + rest.log_partition.value
    return scores


@torch.no_grad()
def row_log_pseudo_scores(law: BoltzmannMachine, data: Observations) -> torch.Tensor:
    """Log pseudo-likelihood of every row, (N,); a missing cell is summed over and adds no factor of its own."""
    if not data.has_missing:
        return law.log_pseudo_prob(data.codes).double()
    scores = torch.zeros(len(data.codes), dtype=torch.float64)
    for column, name in enumerate(data.domain.names):
        truth = data.codes[:, column]
        chosen = predict_machine(law, data, name).log_probs.gather(1, truth.clamp(min=0)[:, None]).squeeze(1)
        scores += torch.where(truth < 0, 0.0, chosen)
    return scores


@torch.no_grad()
def predict_machine(law: BoltzmannMachine, data: DataLike, target: str) -> Prediction:
    """Probabilities of one variable in every row given its other known cells, exact or refused.

    Args:
        law: one machine.
        data: rows over its variables; what they say of the target is not used.
        target: the variable.

    Raises:
        UnknownNameError, InputError, IntractableError: no such variable, or as of :func:`row_log_scores`.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.boltzmann import MachineStructure
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = BoltzmannMachine(structure, torch.tensor([0.0, 0.0, 0.0, 2.0, 2.0], dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, -1]]), structure.domain)
        >>> predict_machine(law, rows, "b").log_probs.exp().round(decimals=3).tolist()  # of 1, then 1 + exp(2)
        [[0.193, 0.807], [0.131, 0.869]]
    """
    check_names([target], law.domain.names, "target")
    data = _checked(law, data, (target,))
    # Both levels in turn; what is known of the others is summed the same way.
    column, both = law.domain.index(target), []
    for level in (0, 1):
        codes = data.codes.clone()
        codes[:, column] = level
        both.append(row_log_scores(law, data.replaced(codes=codes)))
    return Prediction.of(data, target, torch.stack(both, 1).log_softmax(1))


@torch.no_grad()
def impute_machine(law: BoltzmannMachine, data: DataLike, number: int = 1) -> Imputation:
    """Rows with their missing cells drawn given the known ones, ``number`` times: perfect draws, or refused.

    Randomness:
        PyTorch's global generator.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.boltzmann import MachineStructure
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = BoltzmannMachine(structure, torch.tensor([0.0, -20.0, -60.0, 100.0, 40.0]))  # b follows a
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, -1]]), structure.domain)
        >>> impute_machine(law, rows).codes.tolist()
        [[[0, 0], [1, 1]]]
    """
    data = _checked(law, data)
    check_whole(number, "number")
    codes = data.codes.expand(number, *data.codes.shape).clone()
    for missing, rows in row_patterns(data):
        if missing:
            rest = law.condition(_evidence(data, rows, missing))
            columns = torch.tensor(law.domain.indices(missing))
            codes[:, rows[:, None], columns] = rest.expand((len(rows),)).sample((number,))
    return Imputation(data, codes, torch.ones(len(data.codes), dtype=torch.bool), "draws")


def log_likelihoods(law: BoltzmannMachine, data: Observations, log_z: LogPartition) -> torch.Tensor:
    """Log-likelihood of every row, (N,), with a log Z that is known or estimated already."""
    return row_log_scores(law, data) - log_z.value.double()


# Interactions of every order that hidden units bring among the visible variables, in corner coding.

MAX_INTERACTIONS = 2**18
"""Most sets of variables that are looked at."""


@torch.no_grad()
def effective_interactions(law: BoltzmannMachine, order: int = 2) -> dict[tuple[str, ...], float]:
    r"""Corner interactions of the visible variables up to an order, by Moebius inversion of the free energy.

    .. math:: \theta_S = -\sum_{T \subseteq S} (-1)^{|S| - |T|} F(1_T), \qquad
        \log p(v) = -\log Z - F(0) + \sum_{S \ne \emptyset} \theta_S \prod_{i \in S} v_i

    where :math:`1_T` has ones in T alone. The number of S fixes the cost: n^K free energies, no log Z. They are exact
    and, unlike the weights, do not depend on the order of the hidden units. A value is about the level 0 of the other
    variables, as every corner interaction is.

    Args:
        law: one machine.
        order: largest number of variables K.

    Returns:
        The value of every set, in nats, by size, then by position.

    Raises:
        InputError: a batch of machines, or an order outside 1 to n.
        IntractableError: more than 2^18 sets.

    References:
        Paper 4, equations (4) and (5).

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.boltzmann import MachineStructure
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = BoltzmannMachine(structure, structure.theta_of({("a", "h1"): 2.0, ("b", "h1"): 2.0}))
        >>> {names: round(value, 3) for names, value in effective_interactions(law, 2).items()}
        {('a',): 1.434, ('b',): 1.434, ('a', 'b'): 0.457}
    """
    check_type(law, BoltzmannMachine, "law")
    if law.batch_shape:
        received = f"a batch of shape {tuple(law.batch_shape)}"
        raise unexpected("law", "one machine", received=received, code="wrong-shape")
    names, n = law.domain.names, len(law.domain)
    check_whole(order, "order", 1, n)
    total = sum(math.comb(n, k) for k in range(1, order + 1))
    if total > MAX_INTERACTIONS:
        sets = size_text(total, "sets of variables")
        raise out_of_reach("order", f"{sets}, the limit is {MAX_INTERACTIONS}", "ask for a smaller order")
    # Moebius inversion from small sets to large ones: a set less all its proper subsets.
    model = law.energy_model.to(dtype=torch.float64)
    interactions: dict[tuple[int, ...], float] = {(): -float(model.energy(torch.zeros(n, device=model.device)))}
    for size in range(1, order + 1):
        sets = list(itertools.combinations(range(n), size))
        states = torch.zeros(len(sets), n, device=model.device)
        states.scatter_(1, torch.tensor(sets, device=model.device), 1.0)
        scores = [value for part in states.split(4096) for value in (-model.energy(part, validate=False)).tolist()]
        for chosen, score in zip(sets, scores, strict=True):
            below = (interactions[part] for k in range(size) for part in itertools.combinations(chosen, k))
            interactions[chosen] = score - math.fsum(below)
    return {tuple(names[i] for i in chosen): value for chosen, value in interactions.items() if chosen}


_SETS = 2**16  # of which interactions are shown
_LARGEST = 3  # variables of an interaction where not all sets are looked at


def strongest(law: BoltzmannMachine) -> tuple[int, list[tuple[tuple[str, ...], float]]]:
    """The largest order within reach, and interactions of two and more columns up to it, strongest first."""
    n, order, total = len(law.domain), 0, 0
    while order < n and (total := total + math.comb(n, order + 1)) <= _SETS and (order < _LARGEST or 2**n <= _SETS):
        order += 1
    if order < 2:
        return order, []
    interactions = effective_interactions(law, order)
    return order, sorted(((e, v) for e, v in interactions.items() if len(e) > 1), key=lambda pair: -abs(pair[1]))
