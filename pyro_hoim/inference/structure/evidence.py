"""The evidence of a collection, or of many of one space: the probability of the rows with theta integrated out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Unpack, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln

from ..._modes import plain_mode
from ...core.partition import PartitionBackend
from ...data.columns import FrameOptions
from ...data.counting import merge_rows
from ...data.frames import DataLike, as_observations, rows_of_frame
from ...data.observations import check_complete
from ...errors import check_choice, check_type, conflict, other_domain, out_of_reach, refused
from ...log_linear.auto import Auto
from ...log_linear.coding import check_balanced_family, parametrization
from ...log_linear.laws.law import HierarchicalLogLinear
from ...log_linear.laws.natural_parameters import MAX_DENSE_PARAMETERS
from ...log_linear.laws.priors import DiaconisYlvisaker
from ...log_linear.laws.statistics import statistics_of
from ...log_linear.named_priors import Prior
from ...runs.arguments import checked_seed
from ...structure.hypergraph import InteractionHypergraph
from .kernel import MAX_CELLS, Floats, LogKernel, anneal, bridge, is_dense, newton_batch
from .prior import StructureSpace, bits_of
from .program import ThetaPrior, checked_prior, normal_parts, resolved_prior

EvidenceMethod = Literal["auto", "exact", "laplace", "bridge", "path"]


@dataclass(frozen=True)
class LogEvidence:
    """The log-probability of the rows in their order under a collection, nats.

    Attributes:
        value: the logarithm.
        std_error: of the value: 0 where exact, that of the draws for ``bridge`` and ``path``, and None for ``laplace``,
            whose error is not random and not known.
        method: "exact", "laplace", "bridge" or "path".
    """

    value: float
    std_error: float | None
    method: Literal["exact", "laplace", "bridge", "path"]

    @property
    def is_exact(self) -> bool:
        """Whether the value is exact up to rounding."""
        return self.method == "exact"


def log_evidence(
    hypergraph: InteractionHypergraph,
    data: DataLike,
    prior: ThetaPrior = "unit",
    *,
    method: EvidenceMethod = "auto",
    partition: PartitionBackend | None = None,
    seed: int = 0,
    **options: Unpack[FrameOptions],
) -> LogEvidence:
    r"""The evidence of a collection of interactions: the likelihood of the rows averaged over the prior of theta.

    .. math:: \log p(x_1, \dots, x_N \mid \mathcal I) =
        \log \int p(\theta \mid \mathcal I) \, e^{t \cdot \theta - N \log Z(\theta)} \, d\theta

    Differences between collections are log Bayes factors. The rows are ordered ones; the number of orders of a table of
    counts is the same for every collection.

    ===========  ==========================================================  ==========================================
    method       how                                                         for
    ===========  ==========================================================  ==========================================
    ``exact``    closed form of the hyper-Dirichlet law                      conjugate prior, decomposable collection
    ``laplace``  a normal law at the mode; for the conjugate prior, whose    every prior twice differentiable
                 constant is an integral of the same kind, twice
    ``bridge``   the optimal bridge from draws to a Student law              every other prior twice differentiable
    ``path``     annealing in the number of rows, real and fictive           conjugate prior
    ===========  ==========================================================  ==========================================

    ``auto`` is ``exact`` where there is a closed form, ``path`` for the conjugate prior of other collections, and
    ``laplace`` otherwise. With few fictive rows the law of the conjugate prior is far from normal: on six binary
    variables and one row ``laplace`` makes its constant too small by 1.4 nats at 6 parameters and by 7.0 at 14, and
    so the evidence too large. The posterior of theta is closer to normal, the more the more rows there are.

    The modes of tables of up to 4,096 cells are found by compiled code in some 50 microseconds; larger ones cost a few
    evaluations of log Z and its Hessian. ``bridge`` and ``path`` move some thousand draws and take seconds;
    paths are followed again, up to eight times, while the standard error of a constant exceeds 0.014 nats.

    ``bridge`` is refused for the conjugate prior: at empty cells the tails of its posterior are longer than draws tell,
    and one of 50 comparisons with closed forms was off by 0.24 nats with a stated error of 0.03.

    Args:
        hypergraph: the interactions.
        data: complete rows over the same domain; weights are allowed, and no rows at all (the value is then 0).
        prior: prior of theta in the free coordinates: a distribution, such as ``unit_information_prior(hypergraph)`` or
            :class:`~pyro_hoim.log_linear.DiaconisYlvisaker`, a function that makes one for a hypergraph, the text of
            a :class:`~pyro_hoim.log_linear.Prior`, or the scale of normals.
        method: see above.
        partition: exact backend for tables that are not small; ``Auto()`` when None.
        seed: of ``bridge`` and ``path``; the global generators are left as they are.
        options: of a data frame ``weights``, ``count``, ``missing`` (``"drop"``), ``missing_values``, ``bins``,
            ``exclude`` and ``allow``, as :func:`pyro_hoim.fit` has them.

    Raises:
        InputError: another domain, a prior that is flat, without its constant or of the wrong shape, or a method that
            does not fit.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.
        IntractableError: log Z exceeds the backend's budget, or more than 2,000 parameters without a closed form.

    References:
        Adrian Dobra and Hélène Massam, The mode oriented stochastic search (MOSS) algorithm for log-linear models with
        conjugate priors, Statistical Methodology 7, 2010, for ``laplace`` with this prior; for the others see
        Meng and Wong (1996), Gelman and Meng (1998).

    Example:
        >>> from pyro_hoim import load_table
        >>> table = load_table("czech_autoworkers")
        >>> pairs = InteractionHypergraph.from_order(table.domain, 2)
        >>> single = InteractionHypergraph.from_order(table.domain, 1)
        >>> round(log_evidence(pairs, table).value - log_evidence(single, table).value, 2)
        345.11
        >>> log_evidence(single, table, "conjugate:1").method
        'exact'
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    check_balanced_family(hypergraph, "the evidence")
    check_choice(method, get_args(EvidenceMethod), "method")
    check_type(partition, PartitionBackend | None, "partition", "a backend")
    rows = rows_of_frame(data, options, domain=hypergraph.domain)
    data = as_observations(rows, domain=hypergraph.domain)
    checked_seed(seed)
    # A conjugate prior on a decomposable collection has its evidence in closed form.
    law = resolved_prior(checked_prior(prior), hypergraph)
    statistics = statistics_of(data, hypergraph)
    if isinstance(law, DiaconisYlvisaker):
        chosen = _method_of_conjugate(law, method)
        if chosen == "exact":
            return LogEvidence(float(law.log_marginal_likelihood(data)), 0.0, chosen)
    else:
        # Other priors have no closed form: a normal law at the mode, or a bridge.
        if getattr(law, "unnormalised", False):
            raise refused(
                "prior", "its log_prob leaves out a constant, without which there is no evidence", code="no-method"
            )
        if method in ("exact", "path"):
            raise conflict("method", f"{method!r} is for the conjugate prior", "use 'laplace' or 'bridge'")
        chosen = "bridge" if method == "bridge" else "laplace"
    if hypergraph.num_parameters > MAX_DENSE_PARAMETERS:
        problem = f"{hypergraph.num_parameters} parameters, the limit of a dense Hessian is {MAX_DENSE_PARAMETERS}"
        raise out_of_reach("hypergraph", problem, "take fewer interactions")
    # Otherwise it is an integral, or the difference of two, of functions with one mode each.
    kernels, constant = kernels_of(hypergraph, statistics, data.total_count, law, partition)
    for kernel in kernels if not kernels[0].is_dense else ():
        kernel.partition.plan(hypergraph).check()
    if not data.total_count:
        return LogEvidence(0.0, 0.0, "exact")
    if chosen == "laplace":
        value = kernels[0].mode.log_integral - sum(kernel.mode.log_integral for kernel in kernels[1:])
        return LogEvidence(value + constant, None, chosen)
    rng = np.random.default_rng(seed)
    integral = anneal if chosen == "path" else bridge
    values, errors = zip(*(integral(kernel, rng) for kernel in kernels), strict=True)
    return LogEvidence(values[0] - sum(values[1:]) + constant, math.sqrt(sum(error**2 for error in errors)), chosen)


def kernels_of(
    hypergraph: InteractionHypergraph,
    statistics: torch.Tensor,
    total: float,
    law: Any,
    partition: PartitionBackend | None,
) -> tuple[list[LogKernel], float]:
    """Kernels whose log-integrals make the log evidence, the second taken from the first, and what is added to it."""
    codings = parametrization(hypergraph)
    target = codings.free_statistics(statistics).numpy()
    if isinstance(law, DiaconisYlvisaker):
        rows = float(law.prior_sample_size)
        fictive = rows * codings.free_statistics(law.mean_statistics).numpy()
        backend = law.partition if partition is None else partition
        whole = LogKernel(hypergraph, target + fictive, total + rows, partition=backend)
        return [whole, LogKernel(hypergraph, fictive, rows, partition=backend)], 0.0
    backend = Auto() if partition is None else partition
    parts = normal_parts(law)
    if parts is None:
        return [LogKernel(hypergraph, target, total, log_prior=law.log_prob, partition=backend)], 0.0
    precision, centre = parts
    kernel = LogKernel(hypergraph, target, total, precision=precision, centre=centre, partition=backend)
    return [kernel], _log_top(precision)


def _method_of_conjugate(law: DiaconisYlvisaker, method: EvidenceMethod) -> Literal["exact", "laplace", "path"]:
    """What ``auto`` is, and a refusal of what does not fit."""
    if method == "exact" and law.unnormalised:
        problem = f"the conjugate prior has no closed form on {law.hypergraph!r}, which is not decomposable"
        raise refused("method", problem, "use 'path' or 'laplace'", "no-method")
    if method == "bridge":
        problem = "the posterior of the conjugate prior has longer tails than the draws of a bridge tell"
        raise conflict("method", problem, "use 'path' or 'laplace'")
    if method == "auto":
        return "path" if law.unnormalised else "exact"
    return method


# The evidence of many collections of one space, and the posterior of theta in each: what lists and chains ask.

_BATCH, _MAX_ENTRIES = 2048, 2**20
_CHOICE = "its constant has no closed form beyond decomposable collections"


class StructureEvidence:
    r"""Log evidence of the members of a space for the same rows and prior, each found once.

    A member is its mask (:class:`~.space.StructureSpace`). Three routes: sums of terms of cliques and separators
    (conjugate prior, ``space="decomposable"``, exact); Newton's method compiled over the table of all candidates, some
    ten thousand collections a second on 64 cells (priors by name, tables of up to 4,096 cells); and
    :func:`~pyro_hoim.inference.log_evidence` one by one.

    Args:
        data: complete rows over the domain of the space.
        space: the collections.
        prior: prior of theta, as in :func:`~pyro_hoim.inference.log_evidence`; a distribution has one collection only
            and is refused.
        method: as there; one method for all, so ``auto`` is ``exact`` in the space of decomposable collections and
            refused in other spaces for the conjugate prior, and ``laplace`` for other priors.
        partition: exact backend for tables that are not small.
        seed: of ``bridge`` and ``path``.

    Attributes:
        method: the method, never ``auto``.

    Raises:
        InputError: another domain, a flat prior, a method that does not fit.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.inference import StructurePrior
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[90, 10], [10, 90]])
        >>> prior = StructurePrior(rows.domain)
        >>> evidence = StructureEvidence(rows, prior.space)
        >>> evidence.method, evidence(1) > evidence(0)
        ('laplace', True)
    """

    def __init__(
        self,
        data: DataLike,
        space: StructureSpace,
        prior: ThetaPrior = "unit",
        *,
        method: EvidenceMethod = "auto",
        partition: PartitionBackend | None = None,
        seed: int = 0,
    ) -> None:
        check_type(space, StructureSpace, "space")
        data = as_observations(data, domain=space.domain)
        if data.domain != space.domain:
            raise other_domain("data", "rows over the domain of the structure prior", received="another domain")
        check_complete(data, "the evidence")
        self.prior = checked_prior(prior)
        if isinstance(self.prior, torch.distributions.Distribution):
            raise conflict("prior", "a distribution fits one collection only", "use a function of the hypergraph")
        check_choice(method, get_args(EvidenceMethod), "method")
        check_type(partition, PartitionBackend | None, "partition", "a backend")
        # Distinct rows, whose evidence of each member and of each margin is found once.
        self.data = data.in_effective_rows().unique()
        self.space, self.partition, self.seed = space, partition, checked_seed(seed)
        self.method: EvidenceMethod = self._chosen(method)
        self._found: dict[int, float] = {}
        self._terms: dict[int, float] = {}
        self._margins: dict[int, Floats] = {}

    def _chosen(self, method: EvidenceMethod) -> EvidenceMethod:
        """The method in the place of ``auto``."""
        is_closed = self._is_conjugate and self.space.name == "decomposable"
        if method == "exact" and not is_closed:
            problem = "a closed form needs the conjugate prior and space='decomposable'"
            raise conflict("method", problem, "use 'laplace', or 'path' for the conjugate prior")
        if method != "auto":
            return method
        if is_closed:
            return "exact"
        if self._is_conjugate:
            hint = "say 'laplace' (too large by nats where fictive rows are few) or 'path', or take the prior 'unit'"
            raise conflict("method", f"the conjugate prior: {_CHOICE}", hint)
        return "laplace"

    @property
    def _is_conjugate(self) -> bool:
        return isinstance(self.prior, Prior) and self.prior.kind == "conjugate"

    @property
    def is_exact(self) -> bool:
        """Whether every value is exact up to rounding."""
        return self.method == "exact" or not self.data.total_count

    # Values

    def __call__(self, mask: int) -> float:
        """Log evidence of one member, nats."""
        value = self._found.get(mask)
        return float(self.many([mask])[0]) if value is None else value

    def many(self, masks: Sequence[int]) -> Floats:
        """Log evidence of members (M,), nats; what was found before is not found again."""
        new = [mask for mask in dict.fromkeys(masks) if mask not in self._found]
        for start in range(0, len(new), _BATCH):
            part = new[start : start + _BATCH]
            self._found.update(zip(part, self._values(part).tolist(), strict=True))
        return np.array([self._found[mask] for mask in masks])

    def _values(self, masks: list[int]) -> Floats:
        if not self.data.total_count:
            return np.zeros(len(masks))
        if self.method == "exact":
            # Sums over eliminated variables of the term of the variable with its neighbours less that
            # of these
            _, closed = self.space.eliminate(self.space.unpacked(masks))
            rest = closed ^ (np.int64(1) << np.arange(closed.shape[1], dtype=np.int64))
            both = np.stack([closed, rest])
            sets, inverse = np.unique(both, return_inverse=True)
            terms = np.array([self.term(int(bits)) for bits in sets])[inverse.reshape(both.shape)]
            return (terms[0] - terms[1]).sum(1)
        if self.method == "laplace" and self._kernels is not None:
            kernels, columns = self._kernels, self.columns(masks)
            values = newton_batch(kernels[0], columns)[1]
            for kernel in kernels[1:]:
                values = values - newton_batch(kernel, columns)[1]
            if not self._is_conjugate:
                values = values + columns @ (0.5 * np.log(kernels[0].precision / (2 * np.pi)))
            # What the compiled route leaves open is found in smaller steps, or its error is told.
            for k in np.flatnonzero(np.isnan(values)):  # says what is wrong, or finds it in smaller steps
                graph = self.space.hypergraph_of(masks[k])
                values[k] = log_evidence(graph, self.data, self.prior, method="laplace").value
            return values
        graphs = map(self.space.hypergraph_of, masks)
        options: dict[str, Any] = {"method": self.method, "partition": self.partition, "seed": self.seed}
        return np.array([log_evidence(graph, self.data, self.prior, **options).value for graph in graphs])

    def term(self, bits: int) -> float:
        """Log of the Dirichlet-multinomial probability of the margin of a set of variables, up to its own constant."""
        if bits not in self._terms:
            members = bits_of(bits)
            cards = [self.space.domain.cardinalities[i] for i in members]
            _, counts = merge_rows(self.data.narrow.numpy()[:, members], self.data.counts.numpy(), cards)
            share = self.prior.number / float(np.prod(cards, dtype=np.float64))
            self._terms[bits] = float((gammaln(counts + share) - gammaln(share)).sum())
        return self._terms[bits]

    @cached_property
    @plain_mode()
    def _kernels(self) -> list[LogKernel] | None:
        """Kernels over all candidates, where the compiled route serves all members."""
        if not (isinstance(self.prior, Prior) and is_dense(self.space.largest)):
            return None
        largest = self.space.largest
        law = resolved_prior(self.prior, largest)
        return kernels_of(largest, statistics_of(self.data, largest), self.data.total_count, law, None)[0]

    def columns(self, masks: Sequence[int]) -> NDArray[np.bool_]:
        """Which parameters of the largest collection members have, (M, P)."""
        flags = self.space.flags_of(masks)
        whole = np.concatenate([np.ones((len(flags), len(self.space.domain)), dtype=bool), flags], 1)
        sizes = [where.stop - where.start for where in self.space.largest.parameter_slices.values()]
        return np.repeat(whole, sizes, 1)

    # Theta given a member

    def posterior(self, mask: int) -> tuple[Any, LogKernel, float]:
        """The prior of theta given a member, the kernel of its posterior, and the constant of a normal prior."""
        hypergraph = self.space.hypergraph_of(mask)
        law = resolved_prior(self.prior, hypergraph)
        statistics = statistics_of(self.data, hypergraph)
        kernels, constant = kernels_of(hypergraph, statistics, self.data.total_count, law, self.partition)
        return law, kernels[0], constant

    def joint(self, mask: int) -> tuple[LogKernel, float]:
        """The kernel of theta given a member, and what is added to it for the log joint density of rows and theta.

        With a prior whose ``log_prob`` is normalised.
        """
        # The conjugate prior has its own constant; normal ones that of their density at the centre.
        if self._kernels is None or self._is_conjugate:
            law, kernel, constant = self.posterior(mask)
            return kernel, -float(law.log_normaliser) if isinstance(law, DiaconisYlvisaker) else constant
        kernel = self._kernels[0].restricted(self.columns([mask])[0])
        return kernel, _log_top(kernel.precision)

    def sample_theta(self, mask: int, num: int, generator: torch.Generator) -> torch.Tensor:
        """Draws of theta given a member, (num, largest.num_parameters), zero where absent, float64.

        Exact with the conjugate prior on decomposable collections, otherwise from the normal law at the mode.
        """
        law, kernel, _ = self.posterior(mask)
        if isinstance(law, DiaconisYlvisaker) and not law.unnormalised:
            # The law draws from the global generator, which is given back as it was.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
                draws = law.posterior(self.data).sample((num,))
        else:
            mode = kernel.mode
            noise = torch.randn(num, kernel.size, generator=generator, dtype=torch.float64)
            factor = torch.from_numpy(mode.factor)
            draws = torch.from_numpy(mode.theta) + torch.linalg.solve_triangular(factor.mT, noise.mT, upper=True).mT
        theta = draws.new_zeros(num, self.space.largest.num_parameters)
        theta[:, torch.from_numpy(self.columns([mask])[0])] = draws
        return theta

    # Cells

    def cell_probabilities(self, masks: Sequence[int], weights: Floats) -> Floats:
        """Weighted sum over members of the posterior mean of the probability of every cell, row-major (cells,).

        Exact with the conjugate prior on decomposable collections, else of second order (:mod:`.kernel`).
        """
        cells = self._num_cells
        if self.method == "exact":
            # Products of the means of independent conditional tables, p(v | later(v)).
            rest = np.int64(1) << np.arange(len(self.space.domain), dtype=np.int64)
            total = np.zeros(self.space.domain.num_states)
            for start in range(0, len(masks), _BATCH):
                _, closed = self.space.eliminate(self.space.unpacked(masks[start : start + _BATCH]))
                for row, weight in zip(closed, weights[start:], strict=False):
                    logs = sum(
                        self._log_margin(int(c)) - self._log_margin(int(c ^ v)) for c, v in zip(row, rest, strict=True)
                    )
                    total += weight * np.exp(logs)
            return total
        # One by one where tables are not small, else in batches over the table of all candidates.
        total = np.zeros(cells)
        if self._kernels is None:
            for mask, weight in zip(masks, weights, strict=True):
                kernel = self.posterior(mask)[1]
                total += weight * kernel.mean_cells(kernel.mode.theta)
            return total
        for start in range(0, len(masks), _BATCH):
            columns = self.columns(masks[start : start + _BATCH])
            thetas = newton_batch(self._kernels[0], columns)[2]
            for theta, column, weight in zip(thetas, columns, weights[start:], strict=False):
                total += weight * self._kernels[0].restricted(column).mean_cells(theta[column])
        return total

    @property
    def _num_cells(self) -> int:
        """Number of cells, where they may be listed."""
        cells = self.space.domain.num_states
        if cells > MAX_CELLS:
            problem = f"{cells} cells, the limit is {MAX_CELLS}"
            raise out_of_reach("cell_probabilities", problem, "draw theta with sample() instead")
        return cells

    def mean_cells_at(self, theta: torch.Tensor) -> torch.Tensor:
        """Mean over draws of theta (R, parameters of the largest collection) of the probabilities of cells (*cards)."""
        cells, total = self._num_cells, torch.zeros(self.space.domain.cardinalities, dtype=torch.float64)
        for part in theta.split(max(1, _MAX_ENTRIES // cells)):
            total += HierarchicalLogLinear(self.space.largest, part, validate_args=False).probs.sum(0)
        return total / len(theta)

    def _log_margin(self, bits: int) -> Floats:
        """Log of the real and fictive rows in the margin of a set of variables, at every cell of the table."""
        if bits not in self._margins:
            cards = self.space.domain.cardinalities
            rest = tuple(i for i in range(len(cards)) if not bits >> i & 1)
            counts = self.data.table().numpy() + self.prior.number / self.space.domain.num_states
            whole = np.broadcast_to(np.log(counts.sum(rest, keepdims=True)), cards)
            self._margins[bits] = whole.reshape(-1)
        return self._margins[bits]


def _log_top(precision: Floats) -> float:
    """Log-density of independent normals at their centre."""
    return 0.5 * float(np.log(precision / (2 * np.pi)).sum())
