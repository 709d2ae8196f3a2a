"""The parameters of a log-linear law with everything that is computed from them once, and work on its flat tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch

from ...checks import check_finite, checked_floating, is_hidden
from ...core.laws.parameter_cache import ParameterCache
from ...core.partition import LogPartition, PartitionBackend
from ...errors import out_of_reach, refused, size_text, wrong_shape, wrong_type
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..coding import Coding, Parametrization, family_of, parametrization
from ..energy import LogLinearEnergy
from .backends import acting_backend, check_estimate, exact_backend, is_exact_for

_Names = tuple[str, ...]
_MAX_TERMS = 2**22


class Law(ParameterCache):
    """Hypergraph, theta, coding and backend, with a cache of tables, log Z and eta, estimates where it is not exact."""

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        theta: torch.Tensor,
        coding: Coding | None,
        partition: PartitionBackend | None,
        *,
        is_lenient: bool = False,
    ) -> None:
        self.hypergraph, chosen = family_of(hypergraph, coding)
        self.coding: Coding = chosen
        checked_floating(theta, "theta")
        if partition is not None and not (hasattr(partition, "log_partition") and hasattr(partition, "is_exact")):
            expected = "a backend such as Auto(), VariableElimination() or AnnealedImportance()"
            raise wrong_type("partition", expected, received=repr(partition))
        self.theta, self._divergence = theta, None
        if is_hidden(theta) or (is_lenient and torch.jit.is_tracing()):
            self.theta, self._divergence = _screened(theta)
        self.partition = Auto() if partition is None else partition
        self.parametrization: Parametrization = parametrization(self.hypergraph)
        size = self.parametrization.num(self.coding)
        if theta.dim() == 0 or theta.shape[-1] != size:
            expected = f"(..., {size}), the size of the {self.coding!r} coding of {len(hypergraph)} edges"
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
        """Balanced tables (*batch, num_terms); corner tables of a family that has them alone."""
        return self._cached("tables", self._compute_tables)

    def _compute_tables(self) -> torch.Tensor:
        tables = self.parametrization.to_tables(self.theta, self.coding)
        return self._watched(tables) if tables.requires_grad and not torch.jit.is_tracing() else tables

    @property
    def model(self) -> LogLinearEnergy:
        """The unnormalised model with the tables."""
        return self._cached("model", lambda: LogLinearEnergy(self.hypergraph, self.tables, validate=False))

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant of the tables, value (*batch)."""
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


def log_prob_cells(law: Law) -> torch.Tensor:
    """Log-probability of every cell (*law batch, *cardinalities); where log Z is not exact, by the sum of the cells."""
    cards, batch = law.hypergraph.domain.cardinalities, law.batch_shape
    ones = (*batch, *(1,) * len(cards))
    total = (-law.log_partition.value if law.draws_exactly else law.tables.new_zeros(batch)).reshape(ones)
    for where, members in zip(law.hypergraph.term_slices.values(), law.hypergraph.edge_indices, strict=True):
        shape = [n if i in members else 1 for i, n in enumerate(cards)]
        total = total + law.tables[..., where].reshape((*batch, *shape))
    if not law.draws_exactly:
        flat = total.expand((*batch, *cards)).reshape((*batch, -1)) if cards else total.unsqueeze(-1)
        total = total - flat.logsumexp(-1).reshape(ones)
    return total.expand((*batch, *cards))


def extended_expectations(law: Law, edges: Iterable[tuple[str, ...]]) -> tuple[torch.Tensor, Mapping[_Names, slice]]:
    """Eta (*law batch, num_terms) of the hypergraph with more edges (zero tables there), and its slices."""
    source = law.hypergraph
    extended = source.add_edges(edges, hierarchical=False)
    check_estimate(law.partition, extended)
    tables = parametrization(source).lift(law.tables, extended)
    return law.partition.expectations(LogLinearEnergy(extended, tables)), extended.term_slices


def flatten_tables(hypergraph: InteractionHypergraph, tables: Mapping[Sequence[str] | str, Any]) -> torch.Tensor:
    """Flat tables from ``{edge: table}``; edges left out are zero."""
    given: dict[tuple[str, ...], torch.Tensor] = {}
    for key, table in tables.items():
        names = (key,) if isinstance(key, str) else tuple(key)
        positions = hypergraph.domain.indices(names)
        if list(positions) != sorted(positions):
            raise refused("tables", f"edge {names!r} is not in schema order, which is the order of its table's axes")
        if names not in hypergraph.term_slices:
            problem = f"{':'.join(names)} is not an edge of the hypergraph"
            raise refused("tables", problem, "add it or leave it out", code="unknown-name")
        given[names] = torch.as_tensor(table)
    floating = [t.dtype for t in given.values() if t.is_floating_point()]
    dtype = reduce(torch.promote_types, floating) if floating else torch.get_default_dtype()
    device = next((t.device for t in given.values()), torch.device("cpu"))
    shapes = zip(hypergraph.edges, hypergraph.edge_shapes, strict=True)
    zeros = {edge: torch.zeros(shape, dtype=dtype, device=device) for edge, shape in shapes if edge not in given}
    return parametrization(hypergraph).join({**zeros, **{edge: table.to(dtype) for edge, table in given.items()}})


def marginal_tables(law: Law, names: Iterable[str]) -> tuple[InteractionHypergraph, torch.Tensor]:
    """Structure and tables (*law batch, num_terms), of the kind of the law's, of the law of some variables."""
    source = law.hypergraph
    kept = source.domain.project(names)
    parts = _eliminated_components(source, kept)
    boundaries = [boundary for _, boundary in parts if boundary]
    terms = sum(math.prod(1 + source.domain[n].cardinality for n in boundary) for boundary in boundaries)
    if terms > _MAX_TERMS:
        problem = f"its tables on the boundaries have {size_text(terms, 'cells')}, the limit is {_MAX_TERMS}"
        raise out_of_reach("marginal", problem, "keep more variables")
    simplices = {s for b in boundaries for k in range(1, len(b) + 1) for s in itertools.combinations(b, k)}
    edges = {*source.project(kept.names).edges, *simplices}
    target = InteractionHypergraph(kept, edges, hierarchical=source.is_hierarchical, coding=source.coding)
    tables, slices = law.tables, source.term_slices
    pieces = {e: tables[..., slices[e]] for e in target.edges if e in slices}
    for component, boundary in parts:
        if boundary:
            for edge, table in _boundary_tables(law, component, boundary).items():
                pieces[edge] = pieces[edge] + table if edge in pieces else table
    return target, torch.cat([pieces[e] for e in target.edges], -1) if target.edges else tables[..., :0]


def _boundary_tables(law: Law, component: _Names, boundary: _Names) -> dict[_Names, torch.Tensor]:
    """Tables of the law's kind on all subsets of a boundary that summing out a component leaves, {edge: flat}."""
    source = law.hypergraph
    domain = source.domain.project((*component, *boundary))
    touched = [e for e in source.edges if not set(e).isdisjoint(component)]
    part = InteractionHypergraph(domain, touched, hierarchical=False)
    backend = exact_backend(law.partition)  # a law of its own: no error bar could be passed on
    cost = backend.plan(part, keep=boundary)
    if not cost.feasible:
        problem = f"summing out {', '.join(map(repr, component[:6]))}: {cost.reason}"
        raise out_of_reach("marginal", problem, cost.hint)
    tables = torch.cat([law.tables[..., source.term_slices[e]] for e in part.edges], -1)
    table = backend.log_marginal(LogLinearEnergy(part, tables), boundary)
    simplex = InteractionHypergraph.saturated(source.domain.project(boundary))
    full = table.reshape((*law.batch_shape, -1))
    flat = torch.cat([full.new_zeros((*law.batch_shape, simplex.num_terms - full.shape[-1])), full], -1)
    codings = parametrization(simplex)
    if source.coding == "corner":
        left = codings.corner_tables(codings.from_tables(flat, "corner"))
    else:
        left, _ = codings.purify(flat)
    return {edge: left[..., where] for edge, where in simplex.term_slices.items()}


def _eliminated_components(hypergraph: InteractionHypergraph, kept: Domain) -> list[tuple[_Names, _Names]]:
    """Connected components of the variables that are not kept, each with its neighbours among the kept ones."""
    parts: list[tuple[_Names, _Names]] = []
    for component in hypergraph.restrict(kept.names).components():
        near = {other for name in component for other in hypergraph.neighbours(name) if other in kept}
        parts.append((component, tuple(name for name in kept.names if name in near)))
    return parts
