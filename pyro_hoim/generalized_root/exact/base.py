"""The contract of backends that normalise generalized root models, and what they share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from typing_extensions import override

from ..._modes import plain_mode
from ...checks import check_finite, checked_sample_shape, refuse_transforms
from ...core.partition import Cost, LogPartition
from ...errors import refused
from ..energy import GeneralizedRootEnergy
from ..nodes.columns import Families
from ..normalizability.check import check_normalizable
from ..structure import RootStructure


@runtime_checkable
class RootBackend(Protocol):
    r"""A method that normalises generalized root models, :math:`A(\Psi) = \log \int q(x) \, d\mu(x)`.

    A backend is a frozen dataclass of options, compared by value; it holds no results. Every method takes batches
    (*batch, num_terms), works in float64 and answers in the dtype and on the device of ``energy.psi``. All but ``plan``
    raise :class:`InputError` for a model that is known to have no finite constant, with the direction in which it
    grows, for psi that is not finite, a log Z beyond the range of its dtype, or inside a torch.func transformation; and
    :class:`IntractableError` past the budget, for another kind of model than the method is for, and where it is not
    known whether there is a finite constant, unless ``allow_undecided``. The laws of a backend with ``is_exact``:

    * ``log_partition(energy).value == log(integral of q)``, to the relative error that the backend states
    * ``grad(log_partition(energy).value, energy.psi) == structure.multiplicity * expectations(energy)``, and the
      Hessian is the covariance of the statistics times both multiplicities
    * ``expectations(energy)[term] == E prod_s T_j(x_s)``; ``moments(energy) == (E x, Var x)``
    * ``sample`` draws independent states with law ``q / Z``, where the backend can.

    Where ``is_exact`` is False, results are random estimates: Z, not log Z, has the right expectation, log Z is
    differentiable once, and its gradient is the multiplicity times the estimated expectations (Inouye, Ravikumar and
    Dhillon, Generalized Root Models, 2016, equations 1, 2 and 7).

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import GaussianClosedForm, node_family
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
        >>> GaussianClosedForm().plan(structure, node_family("poisson")).reason
        'GaussianClosedForm: expected the gaussian family with k <= 2, received poisson with k = 1'
    """

    @property
    def is_exact(self) -> bool:
        """Whether every result is exact; one that may fall back on estimates is not."""
        ...

    def plan(self, structure: RootStructure, family: Families) -> Cost:
        """Cost of log Z as far as structure and family tell it; the parameters may still change the verdict."""
        ...

    def plan_energy(self, energy: GeneralizedRootEnergy) -> Cost:
        """Cost of log Z of one element of the batch, the most expensive, for these very parameters."""
        return self.plan(energy.structure, energy.families)

    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        """Log Z in nats, value (*batch), coding ``root``."""
        ...

    def expectations(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        """Expectations of the statistics of all terms, (*batch, num_terms); differentiable in psi where exact."""
        ...

    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of every variable, both (*batch, d)."""
        ...

    def sample(
        self, energy: GeneralizedRootEnergy, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """Independent states (*sample_shape, *batch, d), of the dtype of psi; a method that cannot draw is intractable.

        Randomness is that of ``generator`` or, if it is None, of PyTorch's global generator.
        """
        ...


class ExactRoot(RootBackend):
    """A backend whose results are exact to the relative error that it states."""

    @property
    @override
    def is_exact(self) -> bool:
        return True

    @override
    def expectations(self, energy: GeneralizedRootEnergy) -> torch.Tensor:
        # Log Z in the graph of psi, or of a copy where no graph is wanted.
        structure, psi = energy.structure, energy.psi
        keep = torch.is_grad_enabled() and psi.requires_grad
        with torch.enable_grad():
            entries = psi if keep else psi.detach().requires_grad_(True)
            model = energy if keep else GeneralizedRootEnergy(structure, entries, energy.families)
            total = self.log_partition(model).value.sum()
            if not total.requires_grad:
                return torch.zeros_like(psi)
            (slope,) = torch.autograd.grad(total, entries, create_graph=keep)
        # An entry counts once for each of its equal ones.
        return slope / structure.multiplicity.to(psi)

    @override
    @torch.no_grad()
    def sample(
        self, energy: GeneralizedRootEnergy, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        width = energy.batch_shape.numel() * len(energy.domain)
        return self._sample(energy, checked_sample_shape(sample_shape, width), generator)

    @abstractmethod
    def _sample(self, energy: GeneralizedRootEnergy, shape: torch.Size, random: torch.Generator | None) -> torch.Tensor:
        """States (*shape, *batch, d) by the method's own way."""


def element_rows(energy: GeneralizedRootEnergy, psi: torch.Tensor) -> torch.Tensor:
    """Parameters of the elements of the batch, (B, num_terms)."""
    return psi.reshape(math.prod(energy.batch_shape), energy.structure.num_terms)


def split_moments(energy: GeneralizedRootEnergy, pairs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Means and variances (*batch, d), like psi, from those (2, d) of every element of the batch."""
    whole = torch.stack(list(pairs)) if pairs else torch.zeros(0)
    whole = whole.reshape((*energy.batch_shape, 2, len(energy.domain))).to(energy.psi.device, energy.psi.dtype)
    return whole[..., 0, :], whole[..., 1, :]


def joined_states(
    energy: GeneralizedRootEnergy, sample_shape: Sequence[int], parts: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Draws (*sample_shape, *batch, d) in dtype and on the device of psi from those (n, d) of every element."""
    shape = (*sample_shape, *energy.batch_shape, len(energy.domain))
    states = torch.stack(list(parts), 1) if parts else torch.zeros(shape)
    return states.reshape(shape).to(energy.psi.device, energy.psi.dtype)


def checked_psi(energy: GeneralizedRootEnergy, allow_undecided: bool) -> torch.Tensor:
    """Parameters of a model that has a finite constant, or is allowed, float64 on the CPU, with their graph."""
    psi = energy.psi
    refuse_transforms("log_partition", psi)
    check_finite(psi.detach(), "psi")
    # What is disproven is refused always, what is undecided unless allowed.
    verdict = check_normalizable(energy.detach())
    if verdict.verdict != "undecided" or not allow_undecided:
        verdict.check()
    return psi.to("cpu", torch.float64)


def root_result(value: torch.Tensor, energy: GeneralizedRootEnergy, cost: Cost, *notes: str) -> LogPartition:
    """Exact result from float64 values (batch,), checked, in dtype and shape of the energy."""
    shaped = value.reshape(energy.batch_shape).to(energy.psi.device, energy.psi.dtype)
    if not bool(torch.isfinite(shaped.detach()).all()):
        problem = "log Z is not finite; psi leads beyond the range of floating-point numbers"
        raise refused("log_partition", problem, code="not-finite")
    return LogPartition(shaped, "exact", 0.0, None, shaped, shaped, cost, cost.method, coding="root", notes=notes)


@lru_cache(maxsize=512)
@plain_mode()
def inner_structure(structure: RootStructure, names: tuple[str, ...]) -> tuple[RootStructure, torch.Tensor]:
    """Structure of the terms whose variables are all among some, and places of these terms in the whole."""
    inside = set(names)
    terms: dict[tuple[int, int], list[tuple[str, ...]]] = {}
    places: list[int] = []
    for position, (key, members) in enumerate(structure.names):
        if inside.issuperset(members):
            terms.setdefault(key, []).append(members)
            places.append(position)
    return RootStructure(structure.domain.project(names), terms), torch.tensor(places, dtype=torch.long)
