"""Many chains of one model, whatever the model: what long runs, kernels and the interop layer ask of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch

from ..compute.engine import Record
from ..errors import refused
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["Chains", "RecordPart"]

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
        found = state.get("fingerprint")
        if found is None or bytes(found.tolist()).hex() != self.fingerprint:
            raise refused("state", f"the checkpoint belongs to chains of another {self.identity}", code="other-run")
        self._load(state)
