"""The conjugate prior of Diaconis and Ylvisaker over the free coordinates of a log-linear model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import torch
from pyro.distributions import Independent, Normal, TorchDistribution, constraints

from ..._modes import plain_mode
from ...checks import broadcast_shapes, check_finite, check_shape, checked_floating, checked_sample_shape
from ...core.laws.expansion import check_expandable
from ...core.laws.parameter_cache import version_of
from ...core.partition import PartitionBackend
from ...data.frames import DataLike, as_observations, is_frame
from ...data.observations import Observations
from ...errors import check_type, conflict, out_of_range, wrong_shape, wrong_type
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..coding import check_margins, parametrization
from ..energy import LogLinearEnergy
from .hyper_dirichlet import clique_tables, log_normaliser, sample_tables
from .law import check_estimate, is_exact_for
from .natural_parameters import (
    check_conjugate_arguments,
    check_interior,
    fisher_information,
    rounding,
    solve_natural_parameters,
)
from .statistics import statistics_of


class DiaconisYlvisaker(TorchDistribution):
    r"""The conjugate prior of a log-linear model: a fictive sample of size n0 with mean statistics s.

    .. math:: \log p(\theta) = n_0 \big(s \cdot \theta - \log Z(\theta)\big) - \log C(n_0 s, n_0)

    over the free coordinates, with the balanced tables of theta in the inner product. It is proper exactly when s
    lies in the interior of the marginal polytope and :math:`n_0 > 0`. Then the mean coordinates have expectation s,
    the mode solves :math:`\eta(\theta) = s`, and after N observed rows with marginal counts t the posterior is the
    same law with :math:`n_0 + N` and :math:`(n_0 s + t) / (n_0 + N)`. A saturated collection has the Dirichlet law
    with parameters :math:`n_0 s` over its cells, a decomposable one the hyper-Dirichlet law. For these all is exact.

    Elsewhere ``log_prob`` lacks the constant log C (``unnormalised`` is True), and there is no marginal likelihood;
    ``sample`` draws a proposal, normal at the mode with covariance (n0 I)^-1, because NUTS draws a first value from
    every prior site; propriety is decided by a linear program up to 4,096 cells, beyond which ``is_proper`` is None.
    One evaluation of ``log_prob`` costs one log Z; with an annealed backend it is an estimate, refused inside HMC and
    NUTS without a ``seed`` (see :class:`~pyro_hoim.log_linear.HierarchicalLogLinear`).

    Args:
        hypergraph: the interactions.
        mean_statistics: s, the prior expectation of the marginal probability tables of all hyperedges; each table
            sums to one and agrees with the tables of its subsets.
        prior_sample_size: n0, positive.
        partition: backend for log Z; ``Auto()``, which is exact, when None.
        validate_args: check arguments and values; default is Pyro's global setting. Propriety is always checked.

    Shape:
        mean_statistics ``(*batch, num_terms)``, prior_sample_size ``(*batch)``, broadcast together; event shape
        (num_parameters,); :meth:`log_prob` takes ``(*sample, *batch, num_parameters)``, in nats.

    Raises:
        InputError: the prior is improper, or the margins are inconsistent or of the wrong shape.
        IntractableError: on use, when log Z exceeds the backend's budget, a mode has more than 2,000 parameters, or
            what is asked for has no closed form.

    Randomness:
        :meth:`sample` uses PyTorch's global generator, so ``pyro.set_rng_seed`` makes it reproducible.

    References:
        Persi Diaconis and Donald Ylvisaker, Conjugate priors for exponential families, Annals of Statistics 7, 1979,
        theorems 1 and 2. Hélène Massam, Jinnan Liu and Adrian Dobra, A conjugate prior for discrete hierarchical
        log-linear models, Annals of Statistics 37, 2009, sections 3 and 4.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2]))
        >>> prior = DiaconisYlvisaker.uniform(hypergraph, 2.0)  # the uniform law on the probability of a level
        >>> posterior = prior.posterior(torch.tensor([3.0, 1.0]), 4)
        >>> posterior.mean_statistics, posterior.prior_sample_size
        (tensor([0.6667, 0.3333]), tensor(6.))
        >>> prior.log_marginal_likelihood(torch.tensor([3.0, 1.0]), 4).exp()  # 3! 1! / 5!
        tensor(0.0500)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {  # type: ignore[override]
        "mean_statistics": constraints.independent(constraints.unit_interval, 1),
        "prior_sample_size": constraints.positive,
    }
    support = constraints.real_vector  # type: ignore[assignment]
    has_rsample = False

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        mean_statistics: torch.Tensor,
        prior_sample_size: torch.Tensor | float,
        *,
        partition: PartitionBackend | None = None,
        validate_args: bool | None = None,
    ) -> None:
        s, n0 = check_conjugate_arguments(hypergraph, mean_statistics, prior_sample_size)
        proper = check_interior(hypergraph, s.detach())
        self._set(hypergraph, s, n0, Auto() if partition is None else partition, proper, validate_args)

    def _set(
        self,
        hypergraph: InteractionHypergraph,
        mean_statistics: torch.Tensor,
        prior_sample_size: torch.Tensor,
        partition: PartitionBackend,
        is_proper: bool | None,
        validate_args: bool | None,
    ) -> None:
        """Fill the fields from checked values."""
        batch = broadcast_shapes(mean_statistics.shape[:-1], prior_sample_size.shape)
        self.hypergraph = hypergraph
        self.partition = partition
        self.is_proper = is_proper
        self.mean_statistics = mean_statistics.expand(*batch, hypergraph.num_terms)
        self.prior_sample_size = prior_sample_size.expand(batch)
        self._codings = parametrization(hypergraph)
        self._source: DiaconisYlvisaker | None = None  # of an expanded law: the one that keeps the values
        self._kept: dict[str, tuple[tuple[int, int], torch.Tensor]] = {}
        # The base class would store the global setting of this moment; without an own value it is read when used.
        super().__init__(batch, torch.Size((hypergraph.num_parameters,)), validate_args=False)
        del self._validate_args
        if validate_args is not None:
            self._validate_args = validate_args

    def _with(self, s: torch.Tensor, n0: torch.Tensor, partition: PartitionBackend | None = None) -> DiaconisYlvisaker:
        """The law of other values, which keep it proper."""
        new = type(self).__new__(type(self))
        validate_args = self.__dict__.get("_validate_args")
        new._set(self.hypergraph, s, n0, partition or self.partition, self.is_proper, validate_args)
        return new

    @classmethod
    def uniform(
        cls,
        hypergraph: InteractionHypergraph,
        prior_sample_size: torch.Tensor | float = 1.0,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        partition: PartitionBackend | None = None,
        validate_args: bool | None = None,
    ) -> DiaconisYlvisaker:
        """The prior whose mean statistics are those of the uniform law, n0 spread evenly over the cells; proper.

        Args:
            hypergraph: the interactions.
            prior_sample_size: n0, a number or tensor ``(*batch)``.
            dtype: floating dtype, that of a tensor ``prior_sample_size`` or else PyTorch's default when None.
            device: likewise.
            partition: as in the class.
            validate_args: as in the class.
        """
        if isinstance(prior_sample_size, torch.Tensor) and prior_sample_size.is_floating_point():
            dtype, device = dtype or prior_sample_size.dtype, device or prior_sample_size.device
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        sizes = [math.prod(shape) for shape in hypergraph.edge_shapes]
        cells = [1 / size for size in sizes for _ in range(size)]
        s = torch.tensor(cells, dtype=dtype or torch.get_default_dtype(), device=device)
        s, n0 = check_conjugate_arguments(hypergraph, s, prior_sample_size)
        new = cls.__new__(cls)
        new._set(hypergraph, s, n0, Auto() if partition is None else partition, True, validate_args)
        return new

    @property
    def unnormalised(self) -> bool:
        """Whether :attr:`log_prob` leaves out the constant log C, which has no closed form for this collection."""
        return not self.hypergraph.is_decomposable

    @property
    def sample_is_exact(self) -> bool:
        """Whether :meth:`sample` draws from this law itself and not from the normal proposal at its mode."""
        return self.hypergraph.is_decomposable

    @classmethod
    def infer_shapes(  # type: ignore[override]
        cls,
        *,
        hypergraph: InteractionHypergraph,
        mean_statistics: Sequence[int],
        prior_sample_size: Sequence[int] = (),
        **_: Any,
    ) -> tuple[torch.Size, torch.Size]:
        """Batch and event shape from the shapes of s and n0."""
        batch = broadcast_shapes(tuple(mean_statistics)[:-1], tuple(prior_sample_size))
        return batch, torch.Size((hypergraph.num_parameters,))

    def __repr__(self) -> str:
        batch = f", batch_shape={tuple(self.batch_shape)}" if self.batch_shape else ""
        return f"{type(self).__name__}({self.hypergraph!r}{batch})"

    def expand(self, batch_shape: Sequence[int], _instance: DiaconisYlvisaker | None = None) -> DiaconisYlvisaker:
        """The law with its batch dimensions broadcast to a larger shape; mode and constants are shared."""
        new = cast("DiaconisYlvisaker", self._get_checked_instance(DiaconisYlvisaker, _instance))
        shape = check_expandable(self.batch_shape, batch_shape)
        s = self.mean_statistics.expand(*shape, self.hypergraph.num_terms)
        n0 = self.prior_sample_size.expand(shape)
        new._set(self.hypergraph, s, n0, self.partition, self.is_proper, self.__dict__.get("_validate_args"))
        new._source = self if self._source is None else self._source
        return new

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> DiaconisYlvisaker:
        """The law with its tensors in another dtype or on another device."""
        s, n0 = (t.to(dtype=dtype, device=device) for t in (self.mean_statistics, self.prior_sample_size))
        return self._with(s, n0)

    def with_partition(self, partition: PartitionBackend) -> DiaconisYlvisaker:
        """The same law with another backend for log Z."""
        return self._with(self.mean_statistics, self.prior_sample_size, partition)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-density over the free coordinates, in nats; without its constant when :attr:`unnormalised`.

        Shape:
            value ``(*sample, *batch, num_parameters)``; returns ``(*sample, *batch)``.
        """
        if checked_floating(value, "value").shape[-1:] != self.event_shape:
            raise wrong_shape("value", f"(..., {self.event_shape[0]})", value)
        if self._validate_args:
            check_finite(value.detach(), "value")
        is_finite = torch.isfinite(value.detach()).all(-1)
        value = torch.where(is_finite.unsqueeze(-1), value, torch.zeros_like(value))
        check_estimate(self.partition, self.hypergraph)
        model = LogLinearEnergy.from_theta(self.hypergraph, value, validate=False)
        log_z = self.partition.log_partition(model).value
        s = self._keep("statistics", lambda law: law._codings.free_statistics(law.mean_statistics))
        inner = (s * value).sum(-1)
        kernel = torch.where(is_finite, self.prior_sample_size * (inner - log_z), torch.nan)
        return kernel if self.unnormalised else kernel - self.log_normaliser

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Draws of theta ``(*sample, *batch, num_parameters)``: exact, or the proposal (see the class)."""
        shape = checked_sample_shape(sample_shape, self.shape().numel())
        with torch.no_grad():
            if self.sample_is_exact:
                return self._codings.from_tables(sample_tables(self.hypergraph, self._counts, shape), "free")
            mode, factor = self.mode, self._keep("factor", DiaconisYlvisaker._find_proposal_factor, is_detached=True)
            noise = torch.randn(*shape, *mode.shape, dtype=mode.dtype, device=mode.device)
            # L L^T = n0 I(mode), so L^-T noise has the inverse as covariance.
            return mode + torch.linalg.solve_triangular(factor.mT, noise.unsqueeze(-1), upper=True).squeeze(-1)

    def _keep(
        self, name: str, compute: Callable[[DiaconisYlvisaker], torch.Tensor], *, is_detached: bool = False
    ) -> torch.Tensor:
        """``compute(law)``, found once for this law and those expanded from it, until s or n0 change in place.

        What carries a graph now, unless ``is_detached``, is found anew every time.
        """
        law = self if self._source is None else self._source
        inputs = law.mean_statistics, law.prior_sample_size
        has_graph = torch.is_grad_enabled() and any(t.requires_grad for t in inputs) and not is_detached
        versions = version_of(inputs[0]), version_of(inputs[1])
        known_versions, value = law._kept.get(name, (None, inputs[0]))
        if has_graph or known_versions != versions or any(t.is_inference() for t in inputs):
            with plain_mode(*inputs, gradients=has_graph):
                value = compute(law)
            if not has_graph:
                law._kept[name] = versions, value
        return value.expand(self.batch_shape + value.shape[len(law.batch_shape) :])

    def _find_proposal_factor(self) -> torch.Tensor:
        """Cholesky factor of n0 times the Fisher information at the mode ``(*batch, P, P)``."""
        pairs = zip(self.mode.reshape(-1, *self.event_shape).unbind(), self.prior_sample_size.reshape(-1), strict=True)
        factors = [
            torch.linalg.cholesky(n0 * fisher_information(self.hypergraph, mode, self.partition)) for mode, n0 in pairs
        ]
        return torch.stack(factors).detach().reshape(*self.batch_shape, *self.event_shape, *self.event_shape)

    @property
    def mode(self) -> torch.Tensor:
        """The theta of largest density, at which eta(theta) = s; detached, ``(*batch, num_parameters)``."""
        return self._keep("mode", DiaconisYlvisaker._find_mode, is_detached=True)

    def _find_mode(self) -> torch.Tensor:
        rows = self.mean_statistics.detach().reshape(-1, self.hypergraph.num_terms)
        distinct, inverse = rows.unique(dim=0, return_inverse=True)
        modes = [solve_natural_parameters(self.hypergraph, row, self.partition) for row in distinct.unbind()]
        return torch.stack(modes)[inverse].reshape(*self.batch_shape, *self.event_shape)

    @property
    def mean(self) -> torch.Tensor:
        """Expectation of theta (not of eta, which is ``mean_statistics``), in closed form."""
        return self._codings.from_tables(clique_tables(self.hypergraph, self._counts, torch.digamma), "free")

    @property
    def _counts(self) -> torch.Tensor:
        return self.prior_sample_size.unsqueeze(-1) * self.mean_statistics

    @property
    def log_normaliser(self) -> torch.Tensor:
        """Constant log C ``(*batch)``: log-integral of exp(n0 (s . theta - log Z)) over the free coordinates, exact."""
        return self._keep(
            "log_normaliser", lambda law: log_normaliser(law.hypergraph, law._counts, law.prior_sample_size)
        )

    def posterior(
        self, data: DataLike | torch.Tensor, total_count: torch.Tensor | float | None = None
    ) -> DiaconisYlvisaker:
        """The law of theta given observed rows: :math:`n_0 + N` and :math:`(n_0 s + t) / (n_0 + N)`.

        Args:
            data: complete observations of the same domain, or their marginal counts t over every hyperedge.
            total_count: number of rows N; needed with counts, not allowed with observations.

        Shape:
            counts ``(*batch, num_terms)``, total_count ``(*batch)``, broadcast with this law.
        """
        counts, total = self._statistics(data, total_count, self.mean_statistics.dtype)
        size = self.prior_sample_size + total
        mean = (self._counts + counts) / size.unsqueeze(-1)
        # The new mean is a mixture of an interior point and a point of the polytope, hence interior.
        return self._with(mean, size)

    def log_marginal_likelihood(
        self, data: DataLike | torch.Tensor, total_count: torch.Tensor | float | None = None
    ) -> torch.Tensor:
        """Log-probability of the observed rows, in their order, with theta integrated out; exact, ``(*batch)``, nats.

        A difference of large constants: found in double precision, returned in the dtype of the prior.

        Args:
            data: as in :meth:`posterior`.
            total_count: as in :meth:`posterior`.
        """
        counts, total = self._statistics(data, total_count, torch.float64)
        s, n0 = self.mean_statistics.double(), self.prior_sample_size.double()
        alpha = n0.unsqueeze(-1) * s
        updated, size = alpha + counts, n0 + total
        shape = broadcast_shapes(updated.shape[:-1], size.shape)
        value = log_normaliser(self.hypergraph, updated.expand(*shape, -1), size.expand(shape))
        return (value - log_normaliser(self.hypergraph, alpha, n0)).to(self.mean_statistics.dtype)

    def _statistics(
        self, data: DataLike | torch.Tensor, total_count: torch.Tensor | float | None, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Marginal counts ``(*batch, num_terms)`` and rows ``(*batch)``, checked in the dtype of the prior."""
        # Rows are counted; counts are checked as margins of one table.
        like = self.mean_statistics
        data = as_observations(data, domain=self.hypergraph.domain) if is_frame(data) else data
        if isinstance(data, Observations):
            if total_count is not None:
                raise conflict("total_count", "observations carry their own number of rows", "leave it out")
            counts = statistics_of(data, self.hypergraph).to(dtype=dtype, device=like.device)
            return counts, torch.as_tensor(data.total_count, dtype=dtype, device=like.device)
        if not isinstance(data, torch.Tensor):
            raise wrong_type("data", "Observations or a tensor of counts", data)
        if total_count is None:
            raise out_of_range("total_count", "the number of rows when data are marginal counts")
        check_shape(data, (self.hypergraph.num_terms,), "data")
        total = torch.as_tensor(total_count, dtype=like.dtype, device=like.device)
        counts = data.to(like)
        check_finite(counts, "data")
        check_finite(total, "total_count")
        if bool((counts < 0).any()) or bool((total < 0).any()):
            raise out_of_range("data", "counts that are not negative")
        check_margins(self.hypergraph, counts, total, rounding(total), "data")
        total = torch.as_tensor(total_count, dtype=dtype, device=like.device)
        return data.to(dtype=dtype, device=like.device), total


# Minus the log posterior of theta with its gradient, without a trace of the Pyro program.

_LOG_ROOT = math.log(math.sqrt(2 * math.pi))


class NormalPotential:
    r"""Potential of the free coordinates under independent normal priors and marginal counts t of N rows.

    .. math:: U(\theta) = -\log p(\theta) - t \cdot \theta + N \log Z(\theta), \qquad
        \nabla U = \Sigma^{-1} (\theta - \mu) - P^\top (t - N \eta(\theta))

    with the balanced tables :math:`P \theta` in the inner product. It is what Pyro makes of
    :func:`~pyro_hoim.inference.posterior.log_linear_model`, bit for bit, at less than half the cost: no program is
    traced. The gradient is that of PyTorch.
    """

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        prior: Independent,
        counts: torch.Tensor,
        total: float,
        partition: PartitionBackend,
    ) -> None:
        self._hypergraph, self._counts, self._total, self._partition = hypergraph, counts, total, partition
        normal: Any = prior.base_dist
        self._mean, self._twice_variance = normal.loc, 2 * normal.scale.square()
        self._log_scale = normal.scale.log()
        self._codings = parametrization(hypergraph)
        self._largest = torch.finfo(counts.dtype).max ** 0.5

    def __call__(self, values: dict[str, torch.Tensor]) -> torch.Tensor:
        """Potential () of ``{"theta": (num_parameters,)}`` in nats, differentiable; NaN where theta diverged."""
        theta = values["theta"]
        if not bool((theta.detach().abs() < self._largest).all()):
            return theta.sum() * torch.nan
        tables = self._codings.tables_map(self._codings.coding)(theta)
        log_z = self._partition.log_partition(LogLinearEnergy._trusted(self._hypergraph, tables)).value
        log_likelihood = (tables * self._counts).sum(-1) - self._total * log_z
        away = -((theta - self._mean) ** 2) / self._twice_variance
        return -((away - self._log_scale - _LOG_ROOT).sum(-1) + log_likelihood)


def _conjugate_potential(posterior: DiaconisYlvisaker, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """Minus the log density of a conjugate posterior, up to its constant."""
    return -posterior.log_prob(values["theta"])


def known_potential(
    hypergraph: InteractionHypergraph, prior: Any, counts: torch.Tensor, total: float, partition: PartitionBackend
) -> Callable[[dict[str, torch.Tensor]], torch.Tensor] | None:
    """The potential of theta where it is written down here; None leaves it to Pyro, which also watches estimates."""
    if not is_exact_for(partition, hypergraph):
        return None
    if isinstance(prior, DiaconisYlvisaker):
        return partial(_conjugate_potential, prior.posterior(counts, total))
    if isinstance(prior, Independent) and isinstance(prior.base_dist, Normal):
        return NormalPotential(hypergraph, prior, counts, total, partition)
    return None
