"""The parameters of a generalized root law together with everything that is computed from them once.

Private to the package: distributions that differ only by a broadcast batch shape share one :class:`RootLaw`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch

from ..errors import InputError, InputTypeError, check_finite
from ..models import GeneralizedRootEnergy, NodeFamily, RootStructure
from ..models.normalizability import Normalizability, check_normalizable
from ..partition import LogPartition, RootAnnealed, RootAuto, RootBackend, RootEnumeration
from ._approximate import _enclosing_kernel
from ._law import _drop_graph, _version
from ._values import sample_batch

__all__ = ["RootLaw", "check_root_value"]

_Value = TypeVar("_Value")


class RootLaw:
    """Structure, psi, family and backend, with a cache of log Z and expectations.

    What is kept depends on psi: a change in place empties the cache, and values that carry a graph are dropped as
    soon as a backward pass runs through them. With a backend that is not exact every value kept is one estimate.

    Args:
        structure: the terms.
        psi: tensor entries (*batch, num_terms), floating.
        family: the base family.
        partition: backend, ``RootAuto()`` when None.
        num_sweeps: sweeps of a chain to a draw where draws are not exact.
        is_lenient: keep psi that is not finite or has no normalised law instead of raising; ``is_usable`` is False.
        is_checked: look at once whether the law can be normalised, instead of on use.
    """

    def __init__(
        self,
        structure: RootStructure,
        psi: torch.Tensor,
        family: NodeFamily,
        partition: RootBackend | None,
        num_sweeps: int,
        *,
        is_lenient: bool = False,
        is_checked: bool = True,
    ) -> None:
        if partition is not None and not (hasattr(partition, "plan_energy") and hasattr(partition, "is_exact")):
            raise InputTypeError(
                "partition: expected a backend such as RootAuto(), RootEnumeration() or RootAnnealed(), "
                f"received {partition!r}"
            )
        if not isinstance(num_sweeps, int) or isinstance(num_sweeps, bool) or num_sweeps < 1:
            raise InputError(f"num_sweeps: expected a whole number from 1, received {num_sweeps!r}")
        self.partition: RootBackend = RootAuto() if partition is None else partition
        self.energy = GeneralizedRootEnergy(structure, psi, family, validate=False)
        self.num_sweeps = num_sweeps
        self.is_lenient = is_lenient
        self._is_checked = is_checked
        self._forget()

    @property
    def psi(self) -> torch.Tensor:
        """Tensor entries as given."""
        return self.energy.psi

    @property
    def batch_shape(self) -> torch.Size:
        """Leading shape of psi."""
        return self.energy.batch_shape

    def _forget(self) -> None:
        """Empty the cache and look at psi, as at the start and after a change in place."""
        self._version = _version(self.psi)
        self._plain: dict[str, Any] = {}
        self._graph: dict[str, Any] = {}
        values = self.psi.detach()
        if torch.jit.is_tracing():
            self.is_usable = True
            return
        self.is_usable = bool(torch.isfinite(values).all())
        if not self.is_usable:
            if not self.is_lenient:
                check_finite(values, "psi")
            return
        if self.is_lenient:
            self.is_usable = self.normalizability.verdict != "disproven"
        elif self._is_checked and self.normalizability.verdict == "disproven":
            self.normalizability.check()

    def refuse(self) -> None:
        """Raise for a psi that was let pass."""
        check_finite(self.psi.detach(), "psi")
        self.normalizability.check()

    def look(self) -> None:
        """Take notice of a change of psi in place."""
        if _version(self.psi) != self._version:
            self._forget()

    def _cached(self, name: str, compute: Callable[[], _Value]) -> _Value:
        self.look()
        has_graph = self.psi.requires_grad and torch.is_grad_enabled()
        values = self._graph if has_graph else self._plain
        if name not in values:
            values[name] = compute()
        return values[name]

    @property
    def normalizability(self) -> Normalizability:
        """Whether the law can be normalised."""
        if "normalizability" not in self._plain:
            self._plain["normalizability"] = check_normalizable(self.energy.detach())
        return self._plain["normalizability"]

    def _model(self) -> GeneralizedRootEnergy:
        """The energy, through a hook that empties the cache when its graph is used up."""
        psi = self.psi
        if not (psi.requires_grad and torch.is_grad_enabled()):
            return self.energy
        own = psi.view_as(psi)
        own.register_hook(partial(_drop_graph, weakref.ref(self)))  # pyright: ignore[reportArgumentType]
        return GeneralizedRootEnergy(self.energy.structure, own, self.energy.family, validate=False)

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant, value (*batch)."""
        return self._cached("log_partition", self._compute_log_partition)

    def _compute_log_partition(self) -> LogPartition:
        self._check_estimate()
        return self.partition.log_partition(self._model())

    @property
    def expectations(self) -> torch.Tensor:
        """Expectations of the statistics of all terms (*batch, num_terms)."""
        return self._cached("expectations", self._compute_expectations)

    def _compute_expectations(self) -> torch.Tensor:
        self._check_estimate()
        return self.partition.expectations(self._model())

    @property
    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of every variable, both (*batch, d)."""
        return self._cached("moments", lambda: self.partition.moments(self.energy))

    @property
    def is_exact(self) -> bool:
        """Whether log Z and expectations of this law are exact."""
        if isinstance(self.partition, RootAuto):
            return self.partition.is_exact or self.partition.is_exact_for(self.energy.detach())
        return self.partition.is_exact

    @property
    def is_within_reach(self) -> bool:
        """Whether structure and family alone leave log Z within the budget."""
        return self.partition.plan(self.energy.structure, self.energy.family).feasible

    @property
    def draws_exactly(self) -> bool:
        """Whether draws are perfect and independent: no Markov chain."""

        def find() -> bool:
            if isinstance(self.partition, RootAuto):
                return self.partition.draws_exactly(self.energy.detach())
            if not self.partition.is_exact or not self.partition.plan_energy(self.energy.detach()).feasible:
                return False
            return not isinstance(self.partition, RootEnumeration) or self.energy.family.is_discrete

        self.look()
        if "draws_exactly" not in self._plain:
            self._plain["draws_exactly"] = self.is_usable and find()
        return self._plain["draws_exactly"]

    def draw(self, shape: torch.Size) -> torch.Tensor:
        """States (*shape, *batch, d), exact where :attr:`draws_exactly`, else ends of chains."""
        energy = self.energy.detach()
        if self.draws_exactly:
            return self.partition.sample(energy, shape)
        allowed = bool(getattr(self.partition, "allow_undecided", False))
        return RootAnnealed(burn_in=self.num_sweeps, allow_undecided=allowed).sample(energy, shape)

    def _check_estimate(self) -> None:
        """Refuse log Z where it would spoil the answer: an estimate inside HMC and its kin, any value while tracing.

        Raises:
            InputError: log Z would be an estimate without a seed inside a kernel of Pyro that needs one and the same
                function at every call; or it is wanted inside ``torch.jit.trace``.
        """
        if torch.jit.is_tracing():
            raise InputError(
                "partition: log Z of a generalized root model depends on psi through grids and chains that a traced "
                "function would freeze; use jit_compile=False"
            )
        if self.partition.is_exact:
            return
        backend = self.partition.annealed if isinstance(self.partition, RootAuto) else self.partition
        if getattr(backend, "seed", None) is not None or not (kernel := _enclosing_kernel()) or self.is_exact:
            return
        raise InputError(
            f"partition: expected a log-probability without randomness inside {kernel}, received "
            f"{type(backend).__name__} without a seed, whose noise would make the draws wrong without a sign of it; "
            "use an exact backend such as RootAuto(), fix the randomness with seed= (one estimate for every psi: the "
            "draws then follow a posterior biased by its error times the number of rows), put the pseudo-likelihood in "
            "by pyro.factor(name, law.log_pseudo_prob(x).sum()), or infer by SVI"
        )

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_version"], state["_plain"], state["_graph"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()


def check_root_value(value: object, energy: GeneralizedRootEnergy, batch_shape: torch.Size) -> None:
    """Raise unless a value has the right shape and lies in the support."""
    if not isinstance(value, torch.Tensor):
        raise InputTypeError(f"value: expected a tensor of numbers, received {type(value).__name__}")
    if value.dtype == torch.bool or value.is_complex():
        raise InputTypeError(f"value: expected numbers, received dtype {value.dtype}")
    event_shape = torch.Size((len(energy.domain),))
    if value.dim() == 0 or value.shape[-1:] != event_shape:
        expected = (*batch_shape, *event_shape)
        raise InputError(f"value: expected a shape that broadcasts with {expected}, received {tuple(value.shape)}")
    sample_batch(value, batch_shape, event_shape)
    energy.family.check_values(value, "value")
