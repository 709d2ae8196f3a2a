r"""The two contracts of a model: conditionals, and conditionals with an energy.

A model is *unnormalised*: it never knows its partition function. A distribution is a model, a partition backend and a
sampler. Dependency networks satisfy the first protocol only, because their conditionals need not belong to one law.

Conventions of both protocols:

* A joint state is the last dimension of a tensor of codes ``x`` (*sample, d), in the order of ``domain``; integers, or
  floats that are whole numbers.
* Parameters have a batch shape; ``x.shape[:-1]`` is broadcast against it as in :mod:`torch.distributions`.
* Everything is in nats and differentiable in the parameters by autograd.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import torch

from ..checks import broadcast_shapes
from ..compute.engine import Record
from ..errors import out_of_reach, refused, size_text, unexpected, wrong_type
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .laws.expansion import check_expandable

# Many chains of one model, whatever the model: what long runs, kernels and the interop layer ask of them.

RecordPart = Literal["statistics", "energies", "draws"]
"""What a run can keep of every record: running sums for estimates, and traces of energies and of states."""


class Chains(ABC):
    r"""Chains of one model, or of a batch of models, that move together.

    Equal chains that make equal calls have equal bits, also after :meth:`load_state_dict`; how the sweeps are cut into
    calls changes nothing.
    """

    recordable: ClassVar[tuple[RecordPart, ...]]
    mixing_hint: ClassVar[str]
    identity: ClassVar[str]
    """What :attr:`fingerprint` is made of, in words."""

    _num_chains: int
    _num_sweeps: int = 0
    _clamped: tuple[str, ...]
    _init: str
    """Checksum of the first states, as far as they were given."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The variables."""

    @property
    def hypergraph(self) -> InteractionHypergraph | None:
        """The sets of variables whose cells are counted; None where there are no statistics."""
        return None

    @property
    def barrier(self) -> str:
        """What no run of the chains crosses however long it is, in a sentence; empty where nothing is known."""
        return ""

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch of models."""
        return torch.Size()

    @property
    def num_chains(self) -> int:
        """Chains per element of the batch."""
        return self._num_chains

    @property
    def num_sweeps(self) -> int:
        """Whole sweeps made so far."""
        return self._num_sweeps

    @property
    def clamped(self) -> tuple[str, ...]:
        """Names of the variables that are held fixed."""
        return self._clamped

    @property
    @abstractmethod
    def states(self) -> torch.Tensor:
        r"""A copy of the states of all chains, codes or float64 values (\*batch, num_chains, d)."""

    @abstractmethod
    def set_states(self, states: torch.Tensor) -> None:
        r"""Replace all states by what broadcasts to (\*batch, num_chains, d); clamped variables take these values."""

    @abstractmethod
    def sweep(self, *args: Any, **kwargs: Any) -> Record:
        r"""Move by sweeps, and record the parts asked for after every ``thin`` of them.

        Keywords are, of ``recordable``, ``counts`` (\*batch, num_terms), ``energies`` (records, \*batch, num_chains) in
        nats, and ``states`` (records, \*batch, num_chains, d).
        """

    @property
    @abstractmethod
    def sweeps_per_call(self) -> int:
        """Sweeps between two looks at the clock: some tenths of a second, from the size of the problem alone."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A digest of what chains that continue these must have in common with them."""

    @property
    def settings(self) -> dict[str, str]:
        """What chains that continue a run must have in common with the first ones: digests by what they are of."""
        return {f"{self.identity} digest": self.fingerprint, "initial state or clamped value digest": self._init}

    @abstractmethod
    def _state(self) -> dict[str, torch.Tensor]:
        """What moves."""

    @abstractmethod
    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take up :meth:`_state`."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Everything that a later run needs to continue with equal bits, as plain tensors."""
        fingerprint = torch.tensor(list(bytes.fromhex(self.fingerprint)), dtype=torch.uint8)
        return {**self._state(), "fingerprint": fingerprint}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`state_dict` of equal chains; InputError for that of others."""
        fingerprint = state.get("fingerprint")
        if fingerprint is None or bytes(fingerprint.tolist()).hex() != self.fingerprint:
            raise refused("state", f"the checkpoint belongs to chains of another {self.identity}", code="other-run")
        self._load(state)


_MAX_BLOCK_STATES = 2**22


@runtime_checkable
class ConditionalModel(Protocol):
    r"""A family of conditional laws, one for every block of variables given all the others.

    Laws an implementation must obey, for every block B and state x:

    * ``block_conditional(B, x).exp()`` sums to one over its last ``len(B)`` dimensions;
    * it does not depend on ``x[..., B]``, which may hold anything;
    * permuting the names of B permutes those dimensions and changes nothing else.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> model = LogLinearEnergy.from_theta(graph, torch.zeros(2, dtype=torch.float64))
        >>> model.block_conditional(["a"], torch.tensor([[0, 1]])).exp().tolist()
        [[0.5, 0.5]]
    """

    @property
    def domain(self) -> Domain:
        """The variables, in the order of the last dimension of a state."""
        ...

    def block_conditional(self, block: Sequence[str], x: torch.Tensor) -> torch.Tensor:
        r"""Log probabilities of the states of a block given the rest, :math:`\log p(x_B \mid x_{-B})`.

        Args:
            block: distinct variable names; their order is the order of the trailing dimensions of the result.
            x: codes; the entries of the block are not read.

        Shape:
            x (*sample, d); result (*broadcast of sample and batch, *cardinalities of the block).
        """
        ...


@runtime_checkable
class EnergyModel(ConditionalModel, Protocol):
    r"""A conditional model whose conditionals come from one energy, :math:`q(x) \propto \exp(-E(x))`.

    Further law: ``block_conditional(B, x)`` at a state of B, minus that at another state, equals the difference of
    minus the energies of the two joint states.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.3, 0.0, 0.5], dtype=torch.float64))
        >>> energy = model.energy(torch.tensor([[0, 1], [1, 1]]))
        >>> logs = model.block_conditional(["a"], torch.tensor([0, 1]))
        >>> round(float(energy[0] - energy[1]), 6), round(float(logs[1] - logs[0]), 6)
        (0.924264, 0.924264)
    """

    def energy(self, x: torch.Tensor) -> torch.Tensor:
        """Minus the log of the unnormalised probability (*broadcast of sample and batch) at x (*sample, d)."""
        ...


@runtime_checkable
class CountModel(ConditionalModel, Protocol):
    """A conditional model of values that are their own numbers, and so no codes of levels."""

    def over_levels(self) -> ConditionalModel:
        """The same model over ordinal variables; a code is the value itself."""
        ...


class LogLinearModel(Protocol):
    """What samplers and backends read of a log-linear model: hypergraph and flat tables (*batch, num_terms)."""

    hypergraph: InteractionHypergraph
    tables: torch.Tensor


class ParametricEnergy(ABC):
    """A model of parameters (*batch, num_parameters); results of states (*sample, d) broadcast with the batch."""

    @property
    @abstractmethod
    def parameters(self) -> torch.Tensor:
        """The parameters."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The variables, in the order of the last dimension of a state."""

    @abstractmethod
    def _with(self, parameters: torch.Tensor) -> Self:
        """The model with other parameters, which are not checked."""

    @property
    def batch_shape(self) -> torch.Size:
        """Leading shape of the parameters."""
        return torch.Size(self.parameters.shape[:-1])

    @property
    def dtype(self) -> torch.dtype:
        """Type of the parameters and of every result."""
        return self.parameters.dtype

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.parameters.device

    def expand(self, batch_shape: Sequence[int]) -> Self:
        """The model with batch dimensions broadcast to a larger shape, uncopied; refuses one that does not fit."""
        shape = check_expandable(self.batch_shape, batch_shape)
        return self._with(self.parameters.expand(*shape, self.parameters.shape[-1]))

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Self:
        """The model with its parameters in another dtype or on another device."""
        return self._with(self.parameters.to(device=device, dtype=dtype))

    def detach(self) -> Self:
        """The model with its parameters cut off from the graph of autograd."""
        return self._with(self.parameters.detach())

    def _shape(self, x: torch.Tensor, argument: str = "x") -> torch.Size:
        """Sample shape of states broadcast with the batch shape."""
        try:
            return broadcast_shapes(x.shape[:-1], self.parameters.shape[:-1])
        except RuntimeError:
            expected = f"leading dimensions that broadcast with the batch shape {tuple(self.batch_shape)}"
            raise unexpected(argument, expected, received=f"shape {tuple(x.shape)}", code="wrong-shape") from None

    def _block(self, block: Sequence[str], sizes: Sequence[int]) -> tuple[tuple[int, ...], list[int], int]:
        """Positions of a block's variables, their numbers of values, and that of joint states, at most 2^22."""
        if isinstance(block, str):
            raise wrong_type("block", "a sequence of names", received=f"the string {block!r}")
        positions = self.domain.indices(block)
        shape = [sizes[i] for i in positions]
        num_states = math.prod(shape)
        if num_states > _MAX_BLOCK_STATES:
            states = size_text(num_states, "joint states")
            problem = f"{states} of {len(positions)} variables exceed the limit of {_MAX_BLOCK_STATES}"
            raise out_of_reach("block", problem, "condition on smaller blocks in turn")
        return positions, shape, num_states
