"""The parameters of a log-linear law together with everything that is computed from them once."""

from __future__ import annotations

import torch

from ...checks import check_finite, checked_floating, is_hidden
from ...core.laws.parameter_cache import ParameterCache
from ...core.partition import LogPartition, PartitionBackend
from ...errors import check_type, wrong_shape, wrong_type
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..coding import Coding, Parametrization, parametrization
from ..energy import LogLinearEnergy
from .backends import acting_backend, check_estimate, is_exact_for


class Law(ParameterCache):
    """Hypergraph, theta, coding and backend, with a cache of tables, log Z and eta, estimates where it is not exact."""

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        theta: torch.Tensor,
        coding: Coding,
        partition: PartitionBackend | None,
        *,
        is_lenient: bool = False,
    ) -> None:
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        checked_floating(theta, "theta")
        if partition is not None and not (hasattr(partition, "log_partition") and hasattr(partition, "is_exact")):
            expected = "a backend such as Auto(), VariableElimination() or AnnealedImportance()"
            raise wrong_type("partition", expected, received=repr(partition))
        self.hypergraph = hypergraph
        self.theta, self._divergence = theta, None
        if is_hidden(theta) or (is_lenient and torch.jit.is_tracing()):
            self.theta, self._divergence = _screened(theta)
        self.coding: Coding = coding
        self.partition = Auto() if partition is None else partition
        self.parametrization: Parametrization = parametrization(hypergraph)
        size = self.parametrization.num(coding)
        if theta.dim() == 0 or theta.shape[-1] != size:
            expected = f"(..., {size}), the size of the {coding!r} coding of {len(hypergraph)} edges"
            raise wrong_shape("theta", expected, theta)
        self.batch_shape = torch.Size(theta.shape[:-1])
        self._is_lenient = is_lenient
        self._forget()
        if coding == "balanced" and self.is_finite and not torch.jit.is_tracing():
            _ = self.tables  # refuses tables that are not balanced before any work

    @property
    def parameters(self) -> torch.Tensor:
        """Theta."""
        return self.theta

    def _examine(self, values: torch.Tensor) -> None:
        if torch.jit.is_tracing() or is_hidden(values):
            self._is_finite = True
        elif self._is_lenient:  # a divergence; past the root of the largest number sums and products overflow
            self._is_finite = bool(_is_small(values).all())
        else:
            self._is_finite = bool(torch.isfinite(values).all())
            if not self._is_finite:
                check_finite(values, "theta")

    @property
    def is_finite(self) -> bool:
        """Whether theta is finite, and small enough for sums where a divergence may be."""
        self.look()
        return self._is_finite

    @property
    def tables(self) -> torch.Tensor:
        """Balanced tables (*batch, num_terms)."""
        return self._cached("tables", self._compute_tables)

    def _compute_tables(self) -> torch.Tensor:
        tables = self.parametrization.to_tables(self.theta, self.coding)
        return self._watched(tables) if tables.requires_grad and not torch.jit.is_tracing() else tables

    @property
    def model(self) -> LogLinearEnergy:
        """The unnormalised model with the balanced tables."""
        return self._cached("model", lambda: LogLinearEnergy(self.hypergraph, self.tables, validate=False))

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant of the balanced tables, value (*batch)."""
        return self._cached("log_partition", lambda: self._checked().log_partition(self.model))

    @property
    def eta(self) -> torch.Tensor:
        """Marginal probabilities of every edge (*batch, num_terms)."""
        return self._cached("eta", lambda: self._checked().expectations(self.model))

    def _checked(self) -> PartitionBackend:
        check_estimate(self.partition, self.hypergraph)
        return self.partition

    def diverging(self, log_probs: torch.Tensor) -> torch.Tensor:
        """The same numbers, NaN in a traced program where theta is not :attr:`is_finite`, (*sample, *batch)."""
        return log_probs if self._divergence is None else log_probs + self._divergence

    @property
    def draws_exactly(self) -> bool:
        """Whether log Z, eta and samples of this law are exact."""
        return is_exact_for(self.partition, self.hypergraph)

    @property
    def num_sweeps(self) -> int:
        """Gibbs sweeps at the model itself before a state is a draw, after the run that leads chains there."""
        return int(getattr(acting_backend(self.partition, self.hypergraph), "burn_in", 0))

    @property
    def domain(self) -> Domain:
        """The variables."""
        return self.hypergraph.domain

    @property
    def device(self) -> torch.device:
        """Where theta is."""
        return self.theta.device


def _is_small(theta: torch.Tensor) -> torch.Tensor:
    """Where theta is below the root of the largest number, past which sums and products overflow."""
    return theta.abs() < torch.finfo(theta.dtype).max ** 0.5


def _screened(theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Theta with zeros for rows that are not finite, and NaN for these rows, 0 for others, (*batch): traceable."""
    is_kept = _is_small(theta).all(-1)
    zero = torch.zeros((), dtype=theta.dtype, device=theta.device)
    return torch.where(is_kept.unsqueeze(-1), theta, zero), torch.where(is_kept, zero, zero + torch.nan)
