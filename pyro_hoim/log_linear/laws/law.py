"""Hierarchical log-linear models as Pyro distributions over vectors of level codes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar

import torch
from pyro.distributions import constraints

from ...checks import check_below_infinity, check_finite, check_shape, checked_floating, is_hidden
from ...core.laws.expansion import check_cells
from ...core.laws.parameter_cache import ParameterCache
from ...core.laws.shared import EnergyLaw, FiniteLaw
from ...core.laws.traces import check_seed, refuse_traced
from ...core.partition import LogPartition, PartitionBackend, check_any_possible
from ...errors import conflict, out_of_reach, refused, size_text, wrong_shape, wrong_type
from ...runs.container import LOG_LINEAR
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto, in_coding
from ..coding import Coding, Parametrization, family_of, parametrization
from ..energy import LogLinearEnergy
from ..impossible import PossibleStates
from .support import Impossible, LawSupport, filled_tables, support_of_tables

# What a law may do with a backend that is not exact: where an estimate may stand in, and where it must not.


def acting_backend(partition: PartitionBackend, hypergraph: InteractionHypergraph) -> PartitionBackend:
    """The backend that does the work for a structure: the choice of :class:`Auto`, or else the backend itself."""
    if isinstance(partition, Auto) and not partition.is_exact:
        return partition.select(hypergraph)
    return partition


def is_exact_for(partition: PartitionBackend, hypergraph: InteractionHypergraph) -> bool:
    """Whether log Z, eta and samples of a structure are exact with this backend."""
    return acting_backend(partition, hypergraph).is_exact


def exact_backend(partition: PartitionBackend) -> PartitionBackend:
    """The backend itself when it is exact, otherwise its exact rows (``Auto``), otherwise ``Auto()``."""
    if partition.is_exact:
        return partition
    return replace(partition, annealed=None, buckets=None) if isinstance(partition, Auto) else Auto()


def check_estimate(partition: PartitionBackend, hypergraph: InteractionHypergraph) -> PartitionBackend:
    """The backend, refused where a random log Z would spoil the answer: inside HMC, importance sampling, in traces.

    Costs nothing when the backend is exact; the stack is looked at only before an estimate.
    """
    if partition.is_exact:
        return partition
    backend = acting_backend(partition, hypergraph)
    if not backend.is_exact:
        refuse_traced("log_prob", f"the estimate of {type(backend).__name__}", ", or an exact backend")
        check_seed(backend, "Auto()", "theta", "or infer by SVI or inference.Langevin")
    return partition


# The parameters of a log-linear law with everything that is computed from them once, and work on its flat tables.

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
        impossible: Impossible | None = None,
        *,
        is_lenient: bool = False,
    ) -> None:
        self.hypergraph, chosen = family_of(hypergraph, coding)
        self.coding: Coding = chosen
        checked_floating(theta, "theta")
        is_backend = hasattr(partition, "log_partition") and hasattr(partition, "is_exact")
        if partition is not None and (isinstance(partition, type) or not is_backend):  # a class has both, too
            expected = "a backend such as Auto(), VariableElimination() or AnnealedImportance()"
            raise wrong_type("partition", expected, received=repr(partition))
        if isinstance(partition, PossibleStates):  # its states are those of the law
            if impossible is not None:
                raise conflict(
                    "impossible, partition", "one of them says the impossible states", "leave out impossible"
                )
            partition, impossible = partition.partition, partition.impossible
        self.theta, self._divergence = theta, None
        if is_hidden(theta) or (is_lenient and torch.jit.is_tracing()):
            # Theta with zeros for rows that are not finite, and NaN for these rows, 0 for others,
            # (*batch): traceable
            is_kept = _is_small(theta).all(-1)
            zero = torch.zeros((), dtype=theta.dtype, device=theta.device)
            self.theta, self._divergence = (
                torch.where(is_kept.unsqueeze(-1), theta, zero),
                torch.where(is_kept, zero, zero + torch.nan),
            )
        self.partition = Auto() if partition is None else partition
        self.parametrization: Parametrization = parametrization(self.hypergraph)
        size = self.parametrization.num(self.coding)
        if theta.dim() == 0 or theta.shape[-1] != size:
            expected = f"(..., {size}), the size of the {self.coding!r} coding of {len(hypergraph)} edges"
            raise wrong_shape("theta", expected, theta)
        self.batch_shape = torch.Size(theta.shape[:-1])
        self.domain = self.hypergraph.domain
        self.support = None if impossible is None else LawSupport.of(self.hypergraph, impossible, self.batch_shape)
        self.graph = self.hypergraph if self.support is None else self.support.graph
        self._is_lenient = is_lenient
        self._forget()

    @property
    def parameters(self) -> torch.Tensor:
        """Theta."""
        return self.theta

    def _examine(self, values: torch.Tensor) -> None:
        self._is_finite = True
        if torch.jit.is_tracing() or is_hidden(values):
            return
        if self._is_lenient:  # a divergence; past the root of the largest number sums and products overflow
            self._is_finite = bool(_is_small(values).all())
        else:
            self._is_finite = bool(torch.isfinite(values).all())
            if not self._is_finite:
                check_finite(values, "theta")
        if self._is_finite and self.coding == "balanced":
            self.parametrization.check_balanced(values, "theta")

    @property
    def is_finite(self) -> bool:
        """Whether theta is finite, and small enough for sums where a divergence may be."""
        self.look()
        return self._is_finite

    @property
    def tables(self) -> torch.Tensor:
        """Balanced tables (*batch, num_terms); corner tables of a family that has them alone. Always finite."""
        return self.model.tables if self.support is None else self._cached("tables", self._compute_tables)

    def _compute_tables(self) -> torch.Tensor:
        tables = self.parametrization.tables_map(self.coding)(self.theta)
        if tables.requires_grad and not torch.jit.is_tracing():
            tables = self._watched(tables)
        return tables

    @property
    def model(self) -> LogLinearEnergy:
        """The unnormalised model: the tables, with minus infinity where states are impossible, on ``graph``."""
        return self._cached("model", self._compute_model)

    def _compute_model(self) -> LogLinearEnergy:
        if self.support is None:
            return LogLinearEnergy._trusted(self.hypergraph, self._compute_tables())
        return self.support.model(self.tables)

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant of the tables, value (*batch)."""
        return self._cached("log_partition", self._compute_log_partition)

    def _compute_log_partition(self) -> LogPartition:
        log_z = check_estimate(self.partition, self.graph).log_partition(self.model)
        if self.support is not None:
            check_any_possible(log_z.value, "impossible")
        return log_z

    @property
    def eta(self) -> torch.Tensor:
        """Marginal probabilities of every edge (*batch, num_terms)."""
        return self._cached("eta", self._compute_eta)

    def _compute_eta(self) -> torch.Tensor:
        eta = check_estimate(self.partition, self.graph).expectations(self.model)
        return eta if self.support is None else self.support.finite_terms(eta)

    def diverging(self, log_probs: torch.Tensor) -> torch.Tensor:
        """The same numbers, NaN in a traced program where theta is not :attr:`is_finite`, (*sample, *batch)."""
        return log_probs if self._divergence is None else log_probs + self._divergence

    @property
    def draws_exactly(self) -> bool:
        """Whether log Z, eta and samples of this law are exact."""
        return is_exact_for(self.partition, self.graph)

    @property
    def num_sweeps(self) -> int:
        """Gibbs sweeps at the model itself before a state is a draw, after the run that leads chains there."""
        return int(getattr(acting_backend(self.partition, self.graph), "burn_in", 0))

    @property
    def device(self) -> torch.device:
        """Where theta is."""
        return self.theta.device


def _is_small(theta: torch.Tensor) -> torch.Tensor:
    """Where theta is below the root of the largest number, past which sums and products overflow."""
    return theta.abs() < torch.finfo(theta.dtype).max ** 0.5


def extended_expectations(law: Law, edges: Iterable[tuple[str, ...]]) -> tuple[torch.Tensor, Mapping[_Names, slice]]:
    """Eta (*law batch, num_terms) of the hypergraph with more edges (zero tables there), and its slices."""
    extended = law.graph.add_edges(edges, hierarchical=False)
    backend = check_estimate(law.partition, extended)
    tables = parametrization(law.graph).lift(law.model.tables, extended)
    return backend.expectations(LogLinearEnergy._trusted(extended, tables)), extended.term_slices


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


def marginal_tables(
    law: Law, names: Iterable[str]
) -> tuple[InteractionHypergraph, torch.Tensor, LogLinearEnergy | None]:
    """Structure, tables (*law batch, num_terms), of the kind of the law's, and support of the law of some variables."""
    source = law.hypergraph
    domain = source.domain.project(names)
    # Every component that goes leaves one table on its boundary.
    parts: list[tuple[_Names, _Names]] = []
    for component in law.graph.restrict(domain.names).components():
        near = {other for name in component for other in law.graph.neighbours(name) if other in domain}
        parts.append((component, tuple(name for name in domain.names if name in near)))
    boundaries = [boundary for _, boundary in parts if boundary]
    terms = sum(math.prod(1 + source.domain[n].cardinality for n in boundary) for boundary in boundaries)
    if terms > _MAX_TERMS:
        problem = f"its tables on the boundaries have {size_text(terms, 'cells')}, the limit is {_MAX_TERMS}"
        raise out_of_reach("marginal", problem, "keep more variables")
    # Its subsets join the edges that stay.
    simplices = {s for b in boundaries for k in range(1, len(b) + 1) for s in itertools.combinations(b, k)}
    edges = {*source.project(domain.names).edges, *simplices}
    target = InteractionHypergraph(domain, edges, hierarchical=source.is_hierarchical, coding=source.coding)
    tables, slices = law.tables, source.term_slices
    pieces = {e: tables[..., slices[e]] for e in target.edges if e in slices}
    zeros: dict[_Names, torch.Tensor] = {}
    if law.support is not None:
        excluded = law.support.zeros
        inside = [edge for edge in excluded.hypergraph.edges if set(edge) <= set(domain.names)]
        zeros = {edge: excluded.tables[..., excluded.hypergraph.term_slices[edge]] for edge in inside}
    for component, boundary in parts:
        if boundary:
            full = _boundary_table(law, component, boundary)
            if law.support is not None:
                lost = torch.zeros_like(full).masked_fill(torch.isneginf(full.detach()), -math.inf)
                zeros[boundary] = zeros[boundary] + lost if boundary in zeros else lost
                full = filled_tables(full, [slice(None)])
            # The table becomes tables of the law's kind on all subsets of the boundary.
            simplex = InteractionHypergraph.saturated(source.domain.project(boundary))
            flat = torch.cat([full.new_zeros((*full.shape[:-1], simplex.num_terms - full.shape[-1])), full], -1)
            codings = parametrization(simplex)
            if source.coding == "corner":
                left = codings.corner_tables(codings.from_tables(flat, "corner"))
            else:
                left, _ = codings.purify(flat)
            for edge, where in simplex.term_slices.items():
                pieces[edge] = pieces[edge] + left[..., where] if edge in pieces else left[..., where]
    flat = torch.cat([pieces[e] for e in target.edges], -1) if target.edges else tables[..., :0]
    return target, flat, support_of_tables(domain, zeros)


def _boundary_table(law: Law, component: _Names, boundary: _Names) -> torch.Tensor:
    """Log table (*law batch, cells) on a boundary that summing out a component leaves."""
    source = law.graph
    domain = source.domain.project((*component, *boundary))
    # The part of the model that the component touches, summed over it.
    touched = [e for e in source.edges if not set(e).isdisjoint(component)]
    part = InteractionHypergraph(domain, touched, hierarchical=False)
    backend = exact_backend(law.partition)  # a law of its own: no error bar could be passed on
    cost = backend.plan(part, keep=boundary)
    if not cost.feasible:
        problem = f"summing out {', '.join(map(repr, component[:6]))}: {cost.reason}"
        raise out_of_reach("marginal", problem, cost.hint)
    tables = torch.cat([law.model.tables[..., source.term_slices[e]] for e in part.edges], -1)
    table = backend.log_marginal(LogLinearEnergy._trusted(part, tables), boundary)
    return table.reshape((*law.batch_shape, -1))


_BATCH = 1024  # draws whose cells are evaluated at once


class HierarchicalLogLinear(FiniteLaw, EnergyLaw):  # pyright: ignore[reportIncompatibleMethodOverride]
    r"""The law of d finite variables whose log-probability is a sum of interaction tables.

    .. math:: \log p(x) = \sum_{S \in \mathcal I} \theta^S_{x_S} - \log Z(\theta)

    A value is a vector of level codes in schema order, so the event shape is (d,). The law is an ordinary Pyro site:
    put a prior on ``theta``, use it in plates and mixtures, observe it, or leave it latent and let Pyro enumerate it
    (``infer_discrete`` and ``compute_marginals`` need :class:`~pyro_hoim.inference.StateIndexReparam`). All is exact
    unless an annealed backend was asked for, and costs what
    :meth:`partition.plan <pyro_hoim.core.PartitionBackend.plan>` says. For N observed rows use
    :class:`~pyro_hoim.log_linear.LogLinearStatistics`, whose cost does not depend on N.

    With ``partition=AnnealedImportance(...)`` (or ``Auto(annealed=...)`` beyond the exact budget) the law serves models
    of any size by estimates, and :doc:`/exact_or_approximate` says what each rests on: ``log_prob``, moments and
    divergences are estimates, samples states of Gibbs chains; energies, conditioning and the table of a small model
    need no log Z and stay exact. One law makes one estimate of log Z and keeps it (one for gradients in every
    thread, one without), so all its log-probabilities share one error, that of :attr:`log_partition`. HMC, NUTS,
    random-walk kernels and importance weights need one function of theta: inside them a ``log_prob`` with fresh
    randomness raises :class:`~pyro_hoim.errors.InputError`. Give the backend a ``seed`` to accept one biased estimate
    per theta, or use SVI or :class:`~pyro_hoim.inference.Langevin`, for which fresh randomness is right.

    Args:
        hypergraph: the interactions :math:`\mathcal I`.
        theta: natural parameters (nats) in the given coding.
        impossible: states of probability zero, whatever theta is: combinations of levels by name, such as
            ``[{"sex": "m", "pregnant": "yes"}]``, a mask of the table's shape, an
            :class:`~pyro_hoim.log_linear.ImpossibleStates`, or a :class:`~pyro_hoim.log_linear.LogLinearEnergy`, whose
            entries of minus infinity are meant (of a batch, other ones for every element). Theta parametrises the
            finite part.
        coding: "free" (default; orthonormal coordinates of the balanced tables, the natural space of symmetric
            priors and of NUTS), "corner" (level 0 is the reference) or "balanced" (full tables, fibres sum to 0). A
            collection that lacks subsets has another family in the corner coding: that of the tables that vanish at
            level 0, on its sets alone. It is the default for a collection that says so.
        partition: backend; ``Auto()``, which is exact, when None. A :class:`~pyro_hoim.log_linear.PossibleStates` says
            ``impossible`` too.
        validate_args: check values given to :meth:`log_prob`; default is Pyro's global setting. Only where validation
            is switched off globally, as inside Pyro's MCMC, a theta that is not finite is kept and its log-probability
            is NaN, which HMC treats as a divergence.

    Shape:
        theta (*batch, num_parameters), or (*batch, num_terms) for "balanced"; samples (*sample, *batch, d) of dtype
        ``torch.long``; :meth:`log_prob` takes integer or floating codes and returns (*sample, *batch).

    Raises:
        InputError: theta of the wrong shape or not finite; an unknown coding; the free or balanced coding for a
            collection of corner coding that lacks subsets; impossible states of other variables; on use, impossible
            states that leave none. :meth:`log_prob` raises it for values outside the support
            when validating, and where an estimate with fresh randomness is wanted inside HMC, NUTS, importance sampling
            or a trace.
        IntractableError: on use, when an exact computation exceeds the backend's budget, or an estimated log Z would
            give a state, which is named, more than probability one, beyond the error.

    Randomness:
        :meth:`sample`, and with an annealed backend without a seed every estimate, uses PyTorch's global generator, so
        ``pyro.set_rng_seed`` makes them reproducible.

    References:
        Paper 1, section 3 and equations (21, 22).

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 1)
        >>> law = HierarchicalLogLinear(hypergraph, torch.zeros(3))
        >>> law.event_shape, law.log_prob(torch.tensor([1, 2])).exp()
        (torch.Size([2]), tensor(0.1667))
    """

    model_kind: ClassVar[str] = LOG_LINEAR

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {  # type: ignore[override]
        "theta": constraints.real_vector,
    }
    _arguments = "hypergraph", "theta"
    _if_missing = (
        "; where -1 stands for a missing cell, row_log_likelihood(law.energy_model, observations) of pyro_hoim sums "
        "over what is missing, and pyro.factor puts it into a program"
    )
    _law: Law

    max_enumerated_states: int = 2**16
    """Most states that :meth:`enumerate_support` lists, and so Pyro's sums over a latent site; may be raised."""

    max_table_cells: int = 2**24
    """Most cells (batch included) of :attr:`log_prob_table` and :attr:`probs`; a subclass may raise it."""

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        theta: torch.Tensor,
        *,
        impossible: Impossible | None = None,
        coding: Coding | None = None,
        partition: PartitionBackend | None = None,
        validate_args: bool | None = None,
    ) -> None:
        is_validation_off = validate_args is None and not torch.distributions.Distribution._validate_args
        self._law = Law(hypergraph, theta, coding, partition, impossible, is_lenient=is_validation_off)
        self._settle(self._law.batch_shape, len(hypergraph.domain), validate_args)

    @classmethod
    def from_tables(
        cls,
        hypergraph: InteractionHypergraph,
        tables: Mapping[Sequence[str] | str, Any] | torch.Tensor,
        *,
        coding: Coding | None = None,
        partition: PartitionBackend | None = None,
        validate_args: bool | None = None,
    ) -> HierarchicalLogLinear:
        """The law whose log-probability is the sum of arbitrary tables, up to its normalising constant.

        The tables of a hierarchical collection need not be balanced; their constant is dropped. One that lacks subsets
        takes balanced tables, or in the corner coding tables that vanish where a level is 0.

        Args:
            hypergraph: the interactions.
            tables: ``{edge: table}``, every table with axes in schema order (edges left out have zero tables; an edge
                of one variable may be given by its name), or flat tables. Combinations with an entry of minus infinity
                are impossible; theta is that of tables with the mean of the others in their place.
            coding: coding of the theta of the result.
            partition: as in the class.
            validate_args: as in the class.

        Shape:
            each table (*batch, *cardinalities of its edge); flat (*batch, num_terms).

        Example:
            >>> from pyro_hoim import Domain
            >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
            >>> law = HierarchicalLogLinear.from_tables(hypergraph, {("a", "b"): torch.eye(2)})
            >>> law.probs
            tensor([[0.3655, 0.1345],
                    [0.1345, 0.3655]])
        """
        hypergraph, coding = family_of(hypergraph, coding)
        flat = tables if isinstance(tables, torch.Tensor) else flatten_tables(hypergraph, tables)
        check_shape(flat, (hypergraph.num_terms,), "tables")
        check_below_infinity(flat.detach(), "tables")
        options: dict[str, Any] = {"partition": partition, "validate_args": validate_args}
        if not is_hidden(flat) and bool(torch.isneginf(flat.detach()).any()):
            options["impossible"] = LogLinearEnergy._trusted(hypergraph, flat)
            flat = filled_tables(flat, hypergraph.term_slices.values())
        return cls(hypergraph, parametrization(hypergraph).from_tables(flat, coding), coding=coding, **options)

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The interactions."""
        return self._law.hypergraph

    @property
    def coding(self) -> Coding:
        """The coding of :attr:`theta`."""
        return self._law.coding

    @property
    def theta(self) -> torch.Tensor:
        """Natural parameters in :attr:`coding`, (*batch, size)."""
        return self._expanded(self._law.theta, 1)

    @property
    def impossible(self) -> LogLinearEnergy | None:
        """A model of zeros and minus infinities, which exclude the impossible states; None where all are possible."""
        support = self._law.support
        return None if support is None else support.zeros

    def __repr__(self) -> str:
        zeros = self.impossible
        words = [] if zeros is None else [f"impossible={int(torch.isneginf(zeros.tables).sum())} combinations"]
        return self._repr(repr(self.hypergraph), f"coding={self.coding!r}", *words)

    def log_partition_in(self, coding: Coding) -> LogPartition:
        """Log Z in a coding, as :func:`~pyro_hoim.log_linear.log_partition` defines it, from the one found by the law.

        :attr:`log_partition` itself is that of :attr:`energy_model`: balanced, or corner in a family of corner tables.
        """
        model = LogLinearEnergy._trusted(self.hypergraph, self._expanded(self._law.tables, 1))
        return in_coding(model, self.log_partition, coding)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-probability in nats, differentiable in theta; an estimate with an annealed backend (see the class).

        Minus infinity, with a finite gradient, of a value that is impossible.

        Shape:
            value broadcasts with (*sample, *batch, d); the result is (*sample, *batch).
        """
        if self._validate_args:
            self._validate_sample(value)
        if not self._law.is_finite:
            return self._undefined(value)
        log_z, energy = self._law.log_partition, self._law.model.energy(value, validate=not self._validate_args)
        return self._normalised(self._law.diverging(-energy - log_z.value), log_z, value)

    def _energy(self, value: torch.Tensor) -> torch.Tensor:
        return self._law.model.energy(value, validate=not self._validate_args)  # the codes are checked once

    def log_pseudo_prob(self, value: torch.Tensor) -> torch.Tensor:
        r"""Log pseudo-likelihood :math:`\sum_k \log p(x_k \mid x_{-k})`, (*sample, *batch), which needs no log Z."""
        if self._validate_args:
            self._validate_sample(value)
        return self._law.model.log_pseudo_prob(value).expand(self._sample_batch(value))

    @property
    def log_prob_table(self) -> torch.Tensor:
        """Log-probability of every cell, (*batch, *cardinalities); normalised by its own sum if log Z is estimated."""
        return self._expanded(self._log_prob_table(), len(self.domain))

    def _log_prob_table(self) -> torch.Tensor:
        num_cells = self.domain.num_states * max(self._law.batch_shape.numel(), 1)
        check_cells(num_cells, self.max_table_cells, "log_prob_table")
        # Log-probability of every cell (*law batch, *cardinalities); where log Z is not exact, by the sum of the cells.
        cards, batch, model = self._law.domain.cardinalities, self._law.batch_shape, self._law.model
        ones = (*batch, *(1,) * len(cards))
        total = (
            -self._law.log_partition.value if self._law.draws_exactly else self._law.tables.new_zeros(batch)
        ).reshape(ones)
        for where, members in zip(model.hypergraph.term_slices.values(), model.hypergraph.edge_indices, strict=True):
            shape = [n if i in members else 1 for i, n in enumerate(cards)]
            total = total + model.tables[..., where].reshape((*batch, *shape))
        if not self._law.draws_exactly:
            flat = total.expand((*batch, *cards)).reshape((*batch, -1)) if cards else total.unsqueeze(-1)
            total = total - flat.logsumexp(-1).reshape(ones)
        return total.expand((*batch, *cards))

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Draws (*sample, *batch, d) of dtype ``torch.long``: perfect and independent where :attr:`sample_is_exact`.

        Otherwise they are states of Gibbs chains, annealed and then burnt in by :attr:`sample_burn_in` sweeps; nothing
        here can tell how near their law is, so compare energies and statistics for shorter and longer burn-in.
        """
        self._require_finite()
        codes = torch.zeros((), dtype=torch.long, device=self._law.theta.device)
        return self._drawn(sample_shape, lambda shape: self.partition.sample(self._law.model, shape), codes)

    def _require_finite(self) -> None:
        if not self._law.is_finite:
            check_finite(self._law.theta.detach(), "theta")

    def _require_enumerable(self) -> None:
        if (num_states := self.domain.num_states) > self.max_enumerated_states:
            limit = f"expected at most max_enumerated_states={self.max_enumerated_states}"
            problem = f"a latent site is summed over its states, {limit}, received {size_text(num_states, 'states')}"
            hint = "draw it with pyro_hoim.MixedGibbs(model), or raise HierarchicalLogLinear.max_enumerated_states"
            raise out_of_reach("enumerate_support", problem, hint)

    def enumerate_support(self, expand: bool = True) -> torch.Tensor:
        """Every state that is possible (in any element of the batch) once, the last variable fastest.

        (num_states, *batch, d); a batch of ones unless expanded.
        """
        states, support = super().enumerate_support(expand), self._law.support
        return states if support is None else states[support.possible_states().to(states.device)]

    @property
    def eta(self) -> torch.Tensor:
        """Marginal probabilities of every edge, flat (*batch, num_terms), and the gradient of log Z in the tables.

        Exact where the backend is, otherwise an estimate, biased in O(1 / chains).
        """
        return self._expanded(self._law.eta, 1)

    def _moments(self, what: str) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG002
        law, names = self._law, self.domain.names
        eta, slices = law.eta, law.hypergraph.term_slices  # eta of the interactions, not of further impossible sets
        if missing := [name for name in names if (name,) not in slices]:
            eta, slices = extended_expectations(law, [(name,) for name in missing])
        if not names:
            empty = eta.new_zeros((*law.batch_shape, 0))
            return empty, empty
        levels = [(slices[(v.name,)], torch.arange(v.cardinality, device=eta.device).to(eta)) for v in self.domain]
        first, second = (
            torch.stack([(eta[..., where] * code**power).sum(-1) for where, code in levels], -1) for power in (1, 2)
        )
        return first, (second - first**2).clamp(min=0)

    @property
    def mode(self) -> torch.Tensor:
        """A most probable state, (*batch, d) of dtype ``torch.long``, by max-product elimination; always exact."""
        self._require_finite()
        with torch.no_grad():
            states, _ = exact_backend(self.partition).mode(self._law.model)
        return self._expanded(states, 1)

    def entropy(self) -> torch.Tensor:
        """Shannon entropy in nats, (*batch): exact where the backend is, else from estimates of log Z and eta."""
        law = self._law
        return self._expanded(law.log_partition.value - (law.eta * law.tables).sum(-1))

    def condition(self, evidence: Mapping[str, str | int | torch.Tensor]) -> HierarchicalLogLinear:
        """The law of the remaining variables given the values of some, in the coding of this one; cost O(num_terms).

        In a family of corner tables its sets are those of this law less the variables that are given.

        Args:
            evidence: ``{name: label or code}``, or a tensor of codes: one for every row and batch element.

        Shape:
            tensors broadcast with each other and with the batch shape; the batch shape of the result is the common one.
            For N rows given other values each, with a batch of parameters, pass tensors (N, 1, ..., 1).

        Raises:
            UnknownNameError: an unknown name or label; the closest ones are listed.
            InputError: a code out of range, tensors whose shapes do not broadcast, or values that are impossible
                together.

        Example:
            >>> from pyro_hoim import Domain
            >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
            >>> law = HierarchicalLogLinear.from_tables(hypergraph, {("a", "b"): torch.eye(2)})
            >>> law.condition({"a": torch.tensor([1, 0])}).probs  # one value for every row
            tensor([[0.2689, 0.7311],
                    [0.7311, 0.2689]])
        """
        self._require_finite()
        model, _ = LogLinearEnergy._trusted(self.hypergraph, self._law.tables).condition(evidence)
        support = self._law.support
        return self._derived(model.hypergraph, model.tables, None if support is None else support.condition(evidence))

    def _derived(
        self, hypergraph: InteractionHypergraph, tables: torch.Tensor, support: LogLinearEnergy | None
    ) -> HierarchicalLogLinear:
        """A law of this one's settings from tables of the kind of its own, of their batch shape and of this law's."""
        codings = parametrization(hypergraph)
        if self.hypergraph.coding == "corner":  # tables that vanish at level 0, whatever sets are left
            theta = codings.corner_statistics(tables)
        else:
            theta = codings.convert(tables, "balanced", self.coding, validate=False)
        options: dict[str, Any] = {"partition": self.partition, "validate_args": self._own_validation}
        if support is not None:
            options["impossible"] = support
        return self._in_batch(type(self)(hypergraph, theta, coding=self.coding, **options))

    def marginal(self, names: Iterable[str]) -> HierarchicalLogLinear:
        """The law of some of the variables, the others summed out exactly (whatever the backend of the law).

        The variables that go fall into connected components; each leaves one table on its boundary, so the result has
        the edges inside ``names`` and all subsets of the boundaries. The cost is that of eliminating the components.

        Raises:
            UnknownNameError: an unknown name.
            IntractableError: eliminating a component, or the result, exceeds the budget.

        Example:
            >>> from pyro_hoim import Domain
            >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
            >>> hypergraph = InteractionHypergraph(domain, [("a", "b"), ("b", "c")], closure=True)
            >>> HierarchicalLogLinear(hypergraph, torch.ones(5)).marginal(["c", "a"]).hypergraph.edges
            (('a',), ('c',), ('a', 'c'))
        """
        self._require_finite()
        if isinstance(names, str):
            raise wrong_type("names", "a collection of variable names", received=f"the string {names!r}")
        return self._derived(*marginal_tables(self._law, names))


def cell_log_likelihood(
    hypergraph: InteractionHypergraph,
    theta: torch.Tensor,
    states: torch.Tensor,
    partition: PartitionBackend | None = None,
) -> torch.Tensor:
    r"""Log-probability of each observed cell under each draw of theta: one term per cell, not per row.

    .. math:: \ell_{sc} = \theta_s \cdot A_{x_c} - \log Z(\theta_s)

    Rows in one cell share their term; :func:`pyro_hoim.interop.loo_by_cell` weights it by the cell's count.

    Args:
        hypergraph: the interactions.
        theta: posterior draws in the free coding.
        states: codes of the distinct observed cells, for instance ``observations.unique().codes``.
        partition: exact backend; ``Auto()`` when None.

    Shape:
        ``theta`` (\*sample, num_parameters), ``states`` (num_cells, d); returns (\*sample, num_cells), nats.

    Raises:
        InputError: wrong shapes or codes.
        IntractableError: log Z exceeds the budget of :class:`~pyro_hoim.log_linear.Auto`.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> draws = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> cell_log_likelihood(graph, draws, torch.tensor([[0, 0], [0, 1]])).exp().round(decimals=4).tolist()
        [[0.25, 0.25], [0.3655, 0.1345]]
    """
    check_shape(states, (len(hypergraph.domain),), "states")
    if states.dim() != 2:
        raise wrong_shape("states", f"(num_cells, {len(hypergraph.domain)})", states)
    flat = theta.detach().reshape(-1, theta.shape[-1])
    with torch.no_grad():
        laws = (HierarchicalLogLinear(hypergraph, chunk, partition=partition) for chunk in flat.split(_BATCH))
        parts = [law.log_prob(states[:, None]).T for law in laws]
    return torch.cat(parts).reshape(*theta.shape[:-1], states.shape[0])
