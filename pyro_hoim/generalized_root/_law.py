"""What distributions that differ by a broadcast batch shape share: a model, and what is computed from it once."""

from __future__ import annotations

from dataclasses import replace

import torch
from typing_extensions import override

from ..checks import check_finite, is_hidden, refuse_transforms
from ..core.laws.parameter_cache import ParameterCache
from ..core.laws.traces import check_seed, refuse_traced
from ..core.laws.values import check_numbers
from ..core.partition import LogPartition
from ..errors import check_whole, wrong_type
from .annealed.importance import RootAnnealed
from .auto import RootAuto, draws_exactly
from .energy import GeneralizedRootEnergy
from .exact.base import RootBackend
from .normalizability.check import Normalizability, check_normalizable


class RootLaw(ParameterCache):
    """A model and its backend, with a cache of log Z and expectations."""

    def __init__(
        self,
        model: GeneralizedRootEnergy,
        partition: RootBackend | None,
        num_sweeps: int,
        *,
        is_lenient: bool,
        is_checked: bool,
    ) -> None:
        if partition is not None and not (hasattr(partition, "plan_energy") and hasattr(partition, "is_exact")):
            expected = "a backend such as RootAuto(), RootEnumeration() or RootAnnealed()"
            raise wrong_type("partition", expected, received=repr(partition))
        check_whole(num_sweeps, "num_sweeps")
        self.partition: RootBackend = RootAuto() if partition is None else partition
        self.model = model
        self.domain = model.domain
        self.batch_shape = model.batch_shape
        self.num_sweeps = num_sweeps
        self.is_lenient = is_lenient
        self._is_checked = is_checked
        self._forget()

    @property
    @override
    def parameters(self) -> torch.Tensor:
        return self.model.psi

    @override
    def _examine(self, values: torch.Tensor) -> None:
        self._is_usable: bool | None = None
        if torch.jit.is_tracing() or is_hidden(values):
            return  # neither an answer nor an error of this moment holds for the psi of later calls
        self._is_usable = bool(torch.isfinite(values).all())
        if not self._is_usable:
            if not self.is_lenient:
                check_finite(values, "psi")
            return
        if self.is_lenient:
            self._is_usable = self.normalizability.verdict != "disproven"
        elif self._is_checked and self.normalizability.verdict == "disproven":
            self.normalizability.check()

    @property
    def is_usable(self) -> bool:
        """Whether psi is finite and, for a lenient law, not known to have no normalised law."""
        self.look()
        if self._is_usable is None:
            refuse_traced("psi", "whether the model can be normalised")
            refuse_transforms("psi", self.parameters)
            self._forget()  # made in a traced program, used outside
        return bool(self._is_usable)

    def require_usable(self) -> None:
        """Raise for a psi that a lenient law has let pass."""
        if not self.is_usable:
            check_finite(self.parameters.detach(), "psi")
            self.normalizability.check()

    @property
    def normalizability(self) -> Normalizability:
        """Whether the law can be normalised."""
        return self._cached_plain("normalizability", lambda: check_normalizable(self.model.detach()))

    def _watched_model(self) -> GeneralizedRootEnergy:
        """The energy, through a hook that empties the cache when its graph is used up."""
        if not self.has_graph:
            return self.model
        return GeneralizedRootEnergy(self.model.structure, self._source, self.model.family, validate=False)

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant, value (*batch)."""
        return self._cached("log_partition", lambda: self._normaliser().log_partition(self._watched_model()))

    @property
    def expectations(self) -> torch.Tensor:
        """Expectations of the statistics of all terms (*batch, num_terms)."""
        return self._cached("expectations", lambda: self._normaliser().expectations(self._watched_model()))

    @property
    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of every variable, both (*batch, d)."""
        return self._cached("moments", self._compute_moments)

    def _compute_moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        refuse_traced("mean", "moments, which grids and chains give,")
        return self.partition.moments(self._watched_model())

    @property
    def is_exact(self) -> bool:
        """Whether log Z and expectations of this law are exact."""
        if isinstance(self.partition, RootAuto):
            return self.partition.is_exact or self.partition.is_exact_for(self.model.detach())
        return self.partition.is_exact

    @property
    def draws_exactly(self) -> bool:
        """Whether draws are perfect and independent: no Markov chain."""
        return self._cached_plain("draws_exactly", lambda: self.is_usable and self._is_drawn_exactly())

    def _is_drawn_exactly(self) -> bool:
        energy, backend = self.model.detach(), self.partition
        if isinstance(backend, RootAuto):
            return backend.draws_exactly(energy)
        return draws_exactly(backend, energy) and backend.plan_energy(energy).feasible

    def draw(self, shape: torch.Size) -> torch.Tensor:
        """States (*shape, *batch, d), exact where :attr:`draws_exactly`."""
        energy = self.model.detach()
        if self.draws_exactly:
            return self.partition.sample(energy, shape)
        allowed = bool(getattr(self.partition, "allow_undecided", False))
        chains = RootAnnealed(burn_in=self.num_sweeps, allow_undecided=allowed)
        if isinstance(self.partition, RootAuto):
            return replace(self.partition, annealed=chains).sample(energy, shape)
        return chains.sample(energy, shape)

    def _normaliser(self) -> RootBackend:
        """The backend, refused where log Z would spoil the answer: an estimate inside HMC, any value while tracing."""
        refuse_traced("log_prob", "log Z, which grids and chains give,")
        if not self.partition.is_exact:
            backend = self.partition.annealed if isinstance(self.partition, RootAuto) else self.partition
            instead = "put the pseudo-likelihood in by pyro.factor(name, law.log_pseudo_prob(x).sum()), or infer by SVI"
            check_seed(backend, "RootAuto()", "psi", instead, is_exact=lambda: self.is_exact)
        return self.partition


def check_root_value(value: object, energy: GeneralizedRootEnergy, batch_shape: torch.Size) -> None:
    """Raise unless a value has the right shape and lies in the support."""
    energy.family.check_values(check_numbers(value, "numbers", batch_shape, torch.Size((len(energy.domain),))), "value")
