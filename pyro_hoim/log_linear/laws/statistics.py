"""The law of the sufficient statistics of N rows, as Multinomial is to Categorical."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pyro.distributions import constraints
from pyro.distributions.util import broadcast_shape
from torch.distributions import kl_divergence, register_kl

from ...checks import broadcast_shapes, check_dense, check_finite, checked_sample_shape
from ...core.laws.shared import MarginalCounts, SharedLaw, StateSpace
from ...core.laws.traces import refuse_traced
from ...core.partition import LogPartition, PartitionBackend
from ...data.encoding import LARGEST_COUNT
from ...data.frames import DataLike, as_observations
from ...errors import (
    check_type,
    is_real,
    other_domain,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    wrong_shape,
    wrong_type,
)
from ...structure.hypergraph import InteractionHypergraph
from ..coding import Coding, margin_fault
from ..energy import LogLinearEnergy
from .law import HierarchicalLogLinear, exact_backend, extended_expectations
from .support import Impossible

_MAX_CELLS = 2**20
_CHUNK = 2**22
_MOST_ROWS = 2**30


class LogLinearStatistics(SharedLaw):
    r"""The marginal counts of N independent rows of a hierarchical log-linear law.

    .. math:: \log p(x_1, \dots, x_N) = \sum_{S \in \mathcal I} \sum_{x_S} \theta^S_{x_S} t^S_{x_S} - N \log Z(\theta),
        \qquad t^S_{x_S} = \#\{n : x_{n,S} = x_S\}

    A value is the flat vector t of the count tables of all edges (the layout of eta). :meth:`log_prob` is the
    log-likelihood of N *ordered* rows with these counts; the number of such data sets does not depend on theta and is
    left out, so posteriors and gradients are those of the rows. One evaluation costs one log Z whatever N is. With an
    annealed backend :class:`~pyro_hoim.log_linear.HierarchicalLogLinear` says what holds, and the error of log Z counts
    N times: it must be small against 1 / N, or be left to stochastic-gradient methods, which average it out. Use double
    precision for large N: the rounding error of single precision is about 1e-7 N.

    Args:
        hypergraph, theta, impossible, coding, partition: as of :class:`~pyro_hoim.log_linear.HierarchicalLogLinear`.
        total_count: number of rows N, whole and non-negative; a number or a tensor that broadcasts with the batch.
        validate_args: check values given to :meth:`log_prob` (signs, sums, agreement of overlapping margins); default
            is Pyro's global setting.

    Shape:
        theta (*batch, size of the coding), total_count (*batch); values (*sample, *batch, num_terms), integer or
        floating (weights are allowed); samples have the dtype of theta.

    Raises:
        InputError: theta or total_count of the wrong shape or value; inconsistent counts when validating; on use, a
            random estimate of log Z inside HMC, NUTS or a traced function.
        IntractableError: on use, when log Z exceeds the backend's budget, or its estimate would give counts more than
            probability one, beyond the error.

    Randomness:
        :meth:`sample` uses PyTorch's global generator.

    References:
        Paper 1, section 3.1.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> rows = torch.tensor([[0, 1], [1, 1], [1, 0]])
        >>> law = LogLinearStatistics(hypergraph, torch.tensor([0.3, -0.2], dtype=torch.float64), 3)
        >>> bool((law.log_prob(statistics_of(rows, hypergraph)) - law.rows.log_prob(rows).sum()).abs() < 1e-12)
        True
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {  # type: ignore[override]
        "theta": constraints.real_vector,
        "total_count": constraints.nonnegative_integer,
    }
    _shared = ("_law", "_rows", "_total")

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        theta: torch.Tensor,
        total_count: torch.Tensor | float,
        *,
        impossible: Impossible | None = None,
        coding: Coding | None = None,
        partition: PartitionBackend | None = None,
        validate_args: bool | None = None,
    ) -> None:
        options: dict[str, Any] = {"coding": coding, "partition": partition, "validate_args": validate_args}
        rows = HierarchicalLogLinear(hypergraph, theta, impossible=impossible, **options)
        self._total: float | torch.Tensor = _checked_count(total_count)
        shape = rows.batch_shape
        if isinstance(self._total, torch.Tensor):
            try:
                shape = torch.Size(broadcast_shape(shape, self._total.shape))
            except ValueError:
                expected = f"that broadcasts with the batch {tuple(shape)}"
                raise wrong_shape("total_count", expected, self._total) from None
        self._rows, self._law = rows, rows._law
        self._settle(shape, rows.hypergraph.num_terms, validate_args)

    @property
    def rows(self) -> HierarchicalLogLinear:
        """The law of one row, with the batch shape of this distribution."""
        return self._rows if self._rows.batch_shape == self.batch_shape else self._rows.expand(self.batch_shape)

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The interactions."""
        return self._rows.hypergraph

    @property
    def impossible(self) -> LogLinearEnergy | None:
        """As of the law of one row."""
        return self._rows.impossible

    @property
    def coding(self) -> Coding:
        """The coding of :attr:`theta`."""
        return self._rows.coding

    @property
    def partition(self) -> PartitionBackend:
        """The backend that normalises and draws."""
        return self._rows.partition

    @property
    def theta(self) -> torch.Tensor:
        """Natural parameters in :attr:`coding`, (*batch, size)."""
        return self.rows.theta

    @property
    def total_count(self) -> torch.Tensor:
        """Number of rows, (*batch), in the dtype of theta."""
        return self._count_like(self._law.theta).expand(self.batch_shape)

    def _count_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self._total, dtype=tensor.dtype, device=tensor.device)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> MarginalCounts:  # type: ignore[override]
        """Consistent marginal counts."""
        return MarginalCounts(self.hypergraph, self._total)

    @classmethod
    def infer_shapes(  # type: ignore[override]
        cls,
        *,
        hypergraph: InteractionHypergraph,
        theta: Sequence[int],
        total_count: Sequence[int] = (),
        **other: Any,  # noqa: ARG003
    ) -> tuple[torch.Size, torch.Size]:
        """Batch and event shape from the shapes of theta and total_count."""
        batch = torch.Size(broadcast_shape(torch.Size(tuple(theta)[:-1]), torch.Size(tuple(total_count))))
        return batch, torch.Size((hypergraph.num_terms,))

    def __repr__(self) -> str:
        total = self._total if not isinstance(self._total, torch.Tensor) else f"shape {tuple(self._total.shape)}"
        return self._repr(repr(self.hypergraph), f"total_count={total}", f"coding={self.coding!r}")

    def _validate_sample(self, value: torch.Tensor) -> None:
        value = self._check_value(value, "counts", only_numbers=False)
        if not bool(self.support.check(value).all()):
            expected = "non-negative counts of every edge that sum to total_count and agree on shared margins"
            hint = "build them with statistics_of"
            raise out_of_range("value", expected, hint=hint, received=_first_fault(value, self))

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-likelihood of N ordered rows with these counts, in nats; the cost does not depend on N.

        Minus infinity of counts with a row in an impossible combination of one of the interactions. Of combinations
        of other sets of variables the counts do not tell.

        Shape:
            value broadcasts with (*sample, *batch, num_terms); the result is (*sample, *batch).
        """
        if self._validate_args:
            self._validate_sample(value)
        law = self._law
        if not law.is_finite:
            return self._undefined(value)
        log_z = law.log_partition
        count = self._total if not isinstance(self._total, torch.Tensor) else self._count_like(log_z.value)
        result = law.diverging((law.tables * value).sum(-1) - count * log_z.value)
        if law.support is not None:
            lost = law.support.finite_terms(law.support.lost).to(value.device)
            result = result.masked_fill((value * lost).sum(-1) > 0, -math.inf)
        log_z.check_log_probs(result, lambda place: f"the table of counts at place {place}", count)
        return result if not self.batch_shape else result.expand(self._sample_batch(value))

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant log Z of one row."""
        return self.rows.log_partition

    @property
    def mean(self) -> torch.Tensor:
        """Expected counts N eta, (*batch, num_terms)."""
        return self.rows.eta * self.total_count.unsqueeze(-1)

    @property
    def variance(self) -> torch.Tensor:
        """Variance N eta (1 - eta) of every count, (*batch, num_terms)."""
        eta = self.rows.eta
        return self.total_count.unsqueeze(-1) * eta * (1 - eta)

    @property
    def sample_is_exact(self) -> bool:
        """Whether :meth:`sample` draws from this very law: where the backend is exact or the full table is small."""
        return self._has_small_table or self._rows.sample_is_exact

    @property
    def sample_burn_in(self) -> int:
        """Gibbs sweeps before a row is drawn; 0 where draws are exact."""
        return 0 if self._has_small_table else self._rows.sample_burn_in

    @property
    def _has_small_table(self) -> bool:
        """Whether samples go by way of the full table."""
        num_cells = self.domain.num_states
        return num_cells <= _MAX_CELLS and num_cells * self._law.batch_shape.numel() <= _CHUNK

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Counts of N fresh rows, (*sample_shape, *batch, num_terms), in the dtype of theta.

        Up to 2**20 cells (2**22 with the batch) the cell counts are drawn by repeated binomial halving, in a time free
        of N and exactly with every backend. Beyond that up to 2**30 rows are drawn by the backend and counted;
        IntractableError for more.
        """
        refuse_traced("sample", "the draws")
        law = self._law
        if not law.is_finite:
            check_finite(law.theta.detach(), "theta")
        sample_shape = checked_sample_shape(sample_shape, self.shape().numel())
        with torch.no_grad():
            count = self.total_count.to(torch.float64)
            draw = self._sample_cells if self._has_small_table else self._sample_rows
            return draw(sample_shape, count).to(law.theta.dtype)

    def _sample_cells(self, sample_shape: torch.Size, count: torch.Tensor) -> torch.Tensor:
        """Counts by way of the full table."""
        probs = self._rows._log_prob_table().exp().to(torch.float64).reshape(-1, self.domain.num_states)
        shape = sample_shape + self.batch_shape
        which = torch.arange(len(probs), device=probs.device).reshape(self._law.batch_shape).expand(shape).reshape(-1)
        flat_count = count.expand(shape).reshape(-1)
        # Cells drawn portion by portion, and added up to margins.
        step = max(1, _CHUNK // probs.shape[-1])
        pieces = []
        for start in range(0, len(flat_count), step):
            cells = multinomial_counts(flat_count[start : start + step], probs[which[start : start + step]])
            table = cells.reshape((len(cells), *self.domain.cardinalities))
            others = [set(range(len(self.domain))).difference(edge) for edge in self.hypergraph.edge_indices]
            margins = [table.sum([1 + i for i in gone]) if gone else table for gone in others]
            pieces.append(torch.cat([cells[:, :0], *(margin.flatten(1) for margin in margins)], -1))
        result = torch.cat([probs.new_zeros((0, self.hypergraph.num_terms)), *pieces])
        return result.reshape((*shape, self.hypergraph.num_terms))

    def _sample_rows(self, sample_shape: torch.Size, count: torch.Tensor) -> torch.Tensor:
        """Counts by drawing and counting rows in portions."""
        shape = sample_shape + self.batch_shape
        total = int(count.max()) if shape.numel() else 0
        if (rows := total * shape.numel()) > _MOST_ROWS:
            problem = f"{size_text(rows, 'rows')} would be drawn and counted, more than {_MOST_ROWS}"
            raise out_of_reach("sample", problem, f"of up to {_MAX_CELLS} cells counts of any size are drawn at once")
        result = count.new_zeros((*shape, self.hypergraph.num_terms))
        step = max(1, _CHUNK // max(1, shape.numel() * max(len(self.domain), len(self.hypergraph))))
        for start in range(0, total, step):
            size = min(step, total - start)
            states = self.rows.sample(torch.Size((size, *sample_shape))).movedim(0, -2)
            is_wanted = start + torch.arange(size, device=count.device) < count.unsqueeze(-1)
            result += _count_states(states, self.hypergraph, is_wanted.expand((*shape, size)).to(result))
        return result


def statistics_of(observations: DataLike | torch.Tensor, hypergraph: InteractionHypergraph) -> torch.Tensor:
    """Marginal counts of every edge: the sufficient statistics of a log-linear law.

    Args:
        observations: encoded data over the hypergraph's variables, or a tensor of level codes.
        hypergraph: the edges.

    Shape:
        codes (*batch, N, d) -> (*batch, num_terms); Observations -> (num_terms,); float64.

    Raises:
        MissingDataError: the observations have missing cells.
        InputError: another domain, or codes outside it.
        InputTypeError: ``hypergraph`` is none, as where the arguments are swapped.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> statistics_of(torch.tensor([[0, 1], [1, 1], [1, 1]]), graph).tolist()  # of a, b and both
        [1.0, 2.0, 0.0, 3.0, 0.0, 1.0, 0.0, 2.0]
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph, the second argument")
    if isinstance(observations, torch.Tensor):
        d = len(hypergraph.domain)
        if observations.dim() < 2 or observations.shape[-1] != d:
            raise wrong_shape("observations", f"(..., N, {d})", observations)
        if not bool(StateSpace(hypergraph.domain.cardinalities).check(observations).all()):
            raise out_of_range("observations", "level codes of the hypergraph's domain (-1 for missing is not one)")
        codes = observations.long()
        return _count_states(codes, hypergraph, torch.ones(codes.shape[:-1], dtype=torch.float64, device=codes.device))
    observations = as_observations(observations, domain=hypergraph.domain, argument="observations")
    if observations.domain != hypergraph.domain:
        expected = f"the names, labels and order of the hypergraph's domain {hypergraph.domain.names}"
        raise other_domain("observations", expected, observations.domain.names, "use observations.project")
    return observations.marginal_counts(hypergraph.edges)


def multinomial_counts(total: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    r"""Multinomial counts by repeated binomial halving; time independent of the totals.

    The total is split between the two halves of the cells by one binomial draw, then every half again, in
    :math:`\lceil \log_2 K \rceil` vectorised rounds.
    """
    num_cells = probs.shape[-1]
    depth = max(0, math.ceil(math.log2(num_cells)))
    weights = [torch.nn.functional.pad(probs, (0, 2**depth - num_cells))]
    for _ in range(depth):
        weights.append(weights[-1].unflatten(-1, (-1, 2)).sum(-1))
    counts = total.unsqueeze(-1)
    for level in reversed(weights[:-1]):
        pairs = level.unflatten(-1, (-1, 2))
        share = (pairs[..., 0] / pairs.sum(-1)).nan_to_num(nan=0.5).clamp(0, 1)
        left = torch.binomial(counts, share)
        counts = torch.stack([left, counts - left], -1).flatten(-2)
    return counts[..., :num_cells]


def _count_states(states: torch.Tensor, hypergraph: InteractionHypergraph, weights: torch.Tensor) -> torch.Tensor:
    """Weighted counts (*batch, num_terms) of states (*batch, N, d) with weights (*batch, N)."""
    batch = states.shape[:-2]
    result = weights.new_zeros((*batch, hypergraph.num_terms))
    starts = [where.start for where in hypergraph.term_slices.values()]
    for start, members, shape in zip(starts, hypergraph.edge_indices, hypergraph.edge_shapes, strict=True):
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        index = sum((states[..., i] * s for i, s in zip(members, strides, strict=True)), start=states.new_tensor(start))
        result.scatter_add_(-1, index, weights)
    return result


def _checked_count(total_count: torch.Tensor | float) -> float | torch.Tensor:
    """A finite, whole, non-negative number or tensor."""
    if isinstance(total_count, torch.Tensor):
        check_dense(total_count, "total_count")
        if total_count.is_complex() or total_count.dtype == torch.bool:
            raise wrong_type("total_count", "numbers", received=total_count.dtype)
        valid = (total_count >= 0) & (total_count == total_count.floor()) & (total_count <= LARGEST_COUNT)
        if not torch.jit.is_tracing() and not bool(valid.all()):
            received = total_count[~valid].flatten()[0].item()
            raise out_of_range("total_count", f"whole numbers from 0 to {LARGEST_COUNT}", received=received)
        return total_count
    if not is_real(total_count):
        raise wrong_type("total_count", "a number or a tensor", total_count)
    if not (0 <= total_count <= LARGEST_COUNT and float(total_count).is_integer()):
        raise out_of_range("total_count", f"a whole number from 0 to {LARGEST_COUNT}", total_count)
    return float(total_count)


def _first_fault(value: torch.Tensor, law: LogLinearStatistics) -> str:
    """Describe the first inconsistency of the first bad vector."""
    bad = ~law.support.check(value)
    bad = bad.expand(broadcast_shapes(bad.shape, law.batch_shape))
    where = tuple(bad.nonzero()[0].tolist())
    total = float(law.total_count.expand(bad.shape)[where])
    table = value.expand((*bad.shape, value.shape[-1]))[where].to(torch.float64)
    if not bool((table >= 0).all()):
        worst = int((~(table >= 0)).nonzero()[0])
        return f"the count {table[worst].item()} at position {worst}"
    size = torch.tensor(total, dtype=torch.float64)
    fault = margin_fault(law.hypergraph, table, size, 1e-6 * size.clamp(min=1))
    return fault or "tables that differ by more than rounding"


# Kullback-Leibler divergences, for torch.distributions.kl_divergence.


@register_kl(HierarchicalLogLinear, HierarchicalLogLinear)
def _kl_log_linear(p: HierarchicalLogLinear, q: HierarchicalLogLinear) -> torch.Tensor:
    r"""D(p, q) in nats, (*broadcast batch).

    .. math:: D(p, q) = \sum_{S \in \mathcal I_p \cup \mathcal I_q} \eta_p^S \cdot (\theta_p^S - \theta_q^S)
        - \log Z_p + \log Z_q

    Exact where the backends of both laws are. With an annealed backend the estimates of log Z and eta are put in: the
    result is biased in O(1 / chains), has the errors of ``log_partition`` of both laws, and may be a little below zero.
    Infinite where a state that is possible in p is impossible in q.
    """
    # Both must be laws of the same states.
    if p.domain != q.domain:
        names = f"{p.domain.names} and {q.domain.names}"
        problem = f"the laws have different domains, {names} (names, labels and order must agree)"
        raise refused("kl_divergence", problem, code="other-domain")
    if not (p._law.is_finite and q._law.is_finite):
        raise refused("kl_divergence", "theta holds NaN or an infinity", code="not-finite")
    common = (p._law.eta * p._law.tables).sum(-1) - p._law.log_partition.value
    # Expectation under p of the sum of q's tables
    slices, edges = p.hypergraph.term_slices, q.hypergraph.edges
    missing = [edge for edge in edges if edge not in slices]
    eta = {edge: p._law.eta[..., slices[edge]] for edge in edges if edge in slices}
    if missing:
        backend = exact_backend(p.partition) if p._law.draws_exactly else p.partition
        if backend.plan(p._law.graph.add_edges(missing, hierarchical=False)).feasible:
            flat, where = extended_expectations(p._law, missing)
            eta = {edge: flat[..., where[edge]] for edge in edges}
        else:
            eta |= {edge: backend.marginal(p._law.model, edge).flatten(-len(edge)) for edge in missing}
    # Sum over q's edges, and its log Z.
    total = p._law.theta.new_zeros(())
    for edge, where in q.hypergraph.term_slices.items():
        total = total + (eta[edge] * q._law.tables[..., where]).sum(-1)
    cross = total - q._law.log_partition.value
    shape = broadcast_shapes(p.batch_shape, q.batch_shape)
    divergence = common - cross
    if q._law.support is not None:
        is_inside = q._law.support.holds(p._law.support).to(divergence.device)
        divergence = divergence.masked_fill(~is_inside, math.inf)
    return divergence.expand(shape)


@register_kl(LogLinearStatistics, LogLinearStatistics)
def _kl_statistics(p: LogLinearStatistics, q: LogLinearStatistics) -> torch.Tensor:
    """N times the divergence of one row; the statistic must be the same (hypergraph and total_count)."""
    if p.hypergraph != q.hypergraph:
        raise refused("kl_divergence", "the statistics belong to different hypergraphs", code="other-domain")
    if not bool((p.total_count == q.total_count).all()):
        raise refused("kl_divergence", "the numbers of rows differ", code="other-domain")
    return torch.where(p.total_count == 0, 0.0, p.total_count * kl_divergence(p.rows, q.rows))
