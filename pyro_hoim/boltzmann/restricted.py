"""Restricted Boltzmann machines as Pyro distributions over their visible variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, cast

import torch
from pyro.distributions import constraints

from ..checks import check_shape, checked_floating
from ..core.partition import PartitionBackend
from ..errors import check_whole, unexpected
from ..schema import Domain
from ..structure.hypergraph import evidence_codes
from .law import BoltzmannMachine
from .structure import MachineStructure

__all__ = ["RestrictedBoltzmannMachine", "as_machine", "sweep_layers"]


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
        number = int(hidden_bias.shape[-1]) if checked_floating(hidden_bias, "hidden_bias").dim() else 0
        names = number if hidden_names is None else hidden_names
        structure = MachineStructure.restricted(domain, names)
        check_shape(checked_floating(visible_bias, "visible_bias"), (len(domain),), "visible_bias")
        check_shape(hidden_bias, (structure.num_hidden,), "hidden_bias")
        check_shape(checked_floating(weights, "weights"), (len(domain), structure.num_hidden), "weights")
        parts = [visible_bias, hidden_bias, weights.flatten(-2)]
        try:
            shape = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
        except RuntimeError:
            received = ", ".join(str(tuple(part.shape[:-1])) for part in parts)
            expected = "batch shapes of biases and weights that broadcast"
            raise unexpected("weights", expected, received=received, code="wrong-shape") from None
        theta = torch.cat([part.expand(*shape, part.shape[-1]) for part in parts], -1)
        self._begin(structure, theta, partition, validate_args)

    @classmethod
    def infer_shapes(cls, **arguments: Any) -> tuple[torch.Size, torch.Size]:  # type: ignore[override]
        """Batch and event shape, from the domain and the shapes of biases and weights."""
        ends = {"visible_bias": 1, "hidden_bias": 1, "weights": 2}
        batches = [tuple(arguments[name])[:-size] for name, size in ends.items()]
        return torch.broadcast_shapes(*batches), torch.Size((len(arguments["domain"]),))

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
        found = self._law.model.hidden_fields(value).sigmoid()
        return found.expand(*self._sample_batch(value), found.shape[-1])

    def visible_probs(self, hidden: torch.Tensor) -> torch.Tensor:
        """Probability that each visible variable is on given the hidden units (*sample, *batch, m): (..., n)."""
        check_shape(hidden, (self.structure.num_hidden,), "hidden")
        model = self._law.model
        return (model.visible_bias + _times(hidden.to(model.dtype), model.weights.mT)).sigmoid()

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
        codes, shape = evidence_codes(self.domain, evidence, self._law.batch_shape)
        given = [i for i, name in enumerate(self.domain.names) if name in codes]
        free = [i for i, name in enumerate(self.domain.names) if name not in codes]
        columns = [
            torch.as_tensor(codes[self.domain.names[i]], device=model.device).to(model.dtype).expand(shape)
            for i in given
        ]
        rows = torch.stack(columns, -1) if columns else model.theta.new_zeros(*shape, 0)
        bias = model.hidden_bias + _times(rows, model.weights[..., given, :])
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


def _times(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Rows (*sample, *batch, a) times a matrix (*batch, a, b)."""
    return rows @ matrix if matrix.dim() == 2 else (rows.unsqueeze(-2) @ matrix).squeeze(-2)


def sweep_layers(
    rows: torch.Tensor,
    parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    num_sweeps: int,
    generator: torch.Generator | None,
) -> torch.Tensor:
    """Rows (*sample, *batch, n) of zeros and ones after sweeps over both layers; parts are b, c and W."""
    b, c, weights = parts
    for _ in range(num_sweeps):
        hidden = torch.bernoulli((c + _times(rows, weights)).sigmoid(), generator=generator)
        rows = torch.bernoulli((b + _times(hidden, weights.mT)).sigmoid(), generator=generator)
    return rows
