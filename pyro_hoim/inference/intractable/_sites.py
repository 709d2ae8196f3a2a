"""Observed sites of a program as exponential families: natural parameters, sums of statistics, draws."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from pyro.distributions import Independent, MaskedDistribution
from typing_extensions import override

from ...core.laws.expansion import list_states
from ...errors import out_of_range, refused, unexpected
from ...generalized_root.chains.gibbs import RootChains
from ...generalized_root.energy import GeneralizedRootEnergy
from ...generalized_root.law import GeneralizedRoot
from ...generalized_root.normalizability.check import check_normalizable
from ...log_linear.auto import Auto
from ...log_linear.chains.gibbs import GibbsChains
from ...log_linear.coding import parametrization
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.laws.law import HierarchicalLogLinear, acting_backend, exact_backend
from ...log_linear.laws.statistics import LogLinearStatistics
from ...log_linear.laws.support import LawSupport
from ...structure.hypergraph import InteractionHypergraph

# Observed sites of a program as exponential families: natural parameters, sums of statistics, numbers of rows.

Node = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class SiteData:
    """What is observed at a site, by the G vectors of parameters that its rows have.

    Attributes:
        statistics: sums of the statistics over the rows, (G, num_terms), float64.
        total: numbers of rows, (G,), float64.
        rows: rows where they are known, (G, most rows, d).
        is_row: which of them count, (G, most rows).
        counts: marginal counts where rows are not known, (G, num_cells).
    """

    statistics: torch.Tensor
    total: torch.Tensor
    rows: torch.Tensor | None = None
    is_row: torch.Tensor | None = None
    counts: torch.Tensor | None = None


def _grouped(values: torch.Tensor, width: int, shared: tuple[int, ...]) -> torch.Tensor:
    """Values (*batch, *event) as (G, rows of a group, *event), a group being what shares its parameters."""
    varied = [i for i in range(width) if i not in shared]
    groups = math.prod(values.shape[i] for i in varied)
    rows = math.prod(values.shape[i] for i in shared)
    return values.permute([*varied, *shared, *range(width, values.dim())]).reshape(groups, rows, *values.shape[width:])


class Particles(Protocol):
    """Gibbs chains whose states stand for the law of the parameters that they were last told."""

    def means(self, natural: torch.Tensor, num_sweeps: int) -> torch.Tensor:
        """Means of the statistics (chains, G, num_terms) over so many further sweeps at parameters of that shape."""
        ...


class IntractableSite(ABC):
    r"""An observed site whose log-probability is :math:`\eta \cdot t(x) - \log Z(\eta)` up to what is free of eta."""

    chains: ClassVar[Any]
    """Makes Gibbs chains of copies of the data set for each of (chains, G, num_terms), which start at the data."""
    particles: ClassVar[Any]
    """Makes :class:`Particles` for each of (chains, G, num_terms), which start at rows of the data and are kept."""

    def __init__(self, name: str, law: Any) -> None:
        self.name, self.law = name, law
        self._seen: tuple[Any, ...] = ()
        self._data: SiteData | None = None

    # What a family says

    @abstractmethod
    def parameters(self, law: Any) -> torch.Tensor:
        """Parameters (*batch, size), expanded and not copied where they are shared."""

    def natural(self, parameters: torch.Tensor) -> torch.Tensor:
        """Multipliers of the statistics from parameters."""
        return parameters

    @abstractmethod
    def summed(self, values: torch.Tensor, weights: torch.Tensor, total: torch.Tensor) -> SiteData:
        """Data of values (G, n, event) with weights (G, n), zero or one, that stand for so many rows each."""

    @abstractmethod
    def draws_perfectly(self, natural: torch.Tensor) -> bool:
        """Whether :meth:`draw` is exact and independent, for parameters such as these (groups, num_terms)."""

    @abstractmethod
    def draw(self, natural: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        """Sums of statistics (groups, num_terms) of fresh rows of the law, given natural and total (groups,)."""

    @abstractmethod
    def surrogate(self, law: Any, value: torch.Tensor) -> torch.Tensor | None:
        """Exact log-probability where it is cheap, else the log pseudo-likelihood; None where there is neither."""

    @abstractmethod
    def backend_means(self, natural: torch.Tensor) -> torch.Tensor | None:
        """Means of the statistics (groups, num_terms) by the backend of the law; None where that is out of reach."""

    def is_lawful(self, natural: torch.Tensor) -> torch.Tensor:
        """Which vectors (groups, num_terms) are those of a law, (groups,)."""
        return torch.isfinite(natural).all(-1)

    # What is read from a run

    def read(self, node: Node, num_chains: int | None, num_dims: int) -> tuple[torch.Tensor, SiteData]:
        """Natural parameters (chains, G, num_terms), float64, and the data, from one run of the program.

        The program has ``num_dims`` batch dimensions, behind one of ``num_chains`` if there is one.
        """
        law, masks, lacking = unwrapped(node["fn"])
        masks.append((node["mask"], 0))
        width = num_dims + lacking
        # Dimensions of size one or without a stride share their parameters: their rows are summed up.
        parameters = self.parameters(law)
        while parameters.dim() < width + 2:
            parameters = parameters.unsqueeze(0)
        lead, *sizes = parameters.shape[:-1]
        if lead not in (1, num_chains) or len(sizes) != width:
            raise refused(f"site {self.name!r}", f"parameters of the shape {tuple(parameters.shape)} were not expected")
        shared = tuple(i for i in range(width) if sizes[i] == 1 or parameters.stride(i + 1) == 0)
        for i in shared:
            parameters = parameters.narrow(i + 1, 0, min(1, sizes[i]))
        # One vector of natural parameters for every group, and chains side by side.
        natural = self.natural(parameters.double()).reshape(lead, -1, self.num_terms)
        natural = natural.expand(num_chains or 1, *natural.shape[1:])
        return natural, self._data_of(law, node["value"], masks, tuple(sizes), shared, lacking)

    @property
    @abstractmethod
    def num_terms(self) -> int:
        """Length of a vector of statistics."""

    def _data_of(
        self,
        law: Any,
        value: torch.Tensor,
        masks: list[tuple[Any, int]],
        sizes: tuple[int, ...],
        shared: tuple[int, ...],
        lacking: int,
    ) -> SiteData:
        """The data (*sizes, *event) of dimensions with shared parameters, read anew only where tensors are others."""
        total = self.totals(law, sizes)
        masks = [(mask, missing) for mask, missing in masks if mask is not None and mask is not True]
        seen = (value, value._version, [mask for mask, _ in masks], sizes, shared, total)
        if self._data is not None and _is_same(seen, self._seen):
            return self._data
        # A value counts where no mask hides it.
        event_dim = len(law.event_shape)
        try:
            value = value.expand(*sizes, *value.shape[value.dim() - event_dim :])
            weights = torch.ones(sizes, dtype=torch.float64)
            for mask, missing in masks:
                flag = torch.as_tensor(mask)
                flag = flag.reshape(*flag.shape, *(1,) * (lacking - missing)) if flag.dim() else flag
                while flag.dim() > len(sizes) and (len(flag) == 1 or flag.stride(0) == 0):
                    flag = flag[0]  # the law was expanded to chains, and its mask with it
                weights = weights * flag.double().expand(sizes)
        except RuntimeError:
            expected = f"values and masks that depend on no latent site, of a shape that broadcasts to {sizes}"
            raise out_of_range(f"site {self.name!r}", expected, received=f"shape {tuple(value.shape)}") from None
        if not bool(law.support.check(value).all()):
            raise out_of_range(f"site {self.name!r}", f"observed values in the support of {type(law).__name__}")
        grouped = [_grouped(part, len(sizes), shared) for part in (value, weights, total)]
        self._seen, self._data = seen, self.summed(*grouped)
        return self._data

    def totals(self, law: Any, sizes: tuple[int, ...]) -> torch.Tensor:  # noqa: ARG002
        """Rows that every value stands for, (*sizes)."""
        return torch.ones(sizes, dtype=torch.float64)


def unwrapped(fn: Any) -> tuple[Any, list[tuple[Any, int]], int]:
    """The law inside masks and ``to_event``; the masks, each with the event dimensions around it; how many in all."""
    masks: list[tuple[Any, int]] = []
    lacking = 0
    while isinstance(fn, MaskedDistribution | Independent):
        if isinstance(fn, MaskedDistribution):
            masks.append((fn._mask, lacking))
        else:
            lacking += fn.reinterpreted_batch_ndims
        fn = fn.base_dist
    return fn, masks, lacking


def _is_same(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether a run gave the values of an earlier one."""
    if left[3:5] != right[3:5] or len(left[2]) != len(right[2]) or right[0]._version != right[1]:
        return False
    if left[0] is not right[0] and not torch.equal(left[0], right[0]):
        return False
    return all(a is b for a, b in zip(left[2], right[2], strict=True)) and torch.equal(left[5], right[5])


# Sites of log-linear laws and of generalized root models: statistics of rows, perfect draws, Gibbs chains.

_MOST_ENTRIES = 2**22
_CHUNK = 2**23
_CHEAP_CELLS = 2**16


class LogLinearAuxiliaryChains:
    """Gibbs chains, one per row of every auxiliary data set, that are kept and told new tables."""

    def __init__(self, site: LogLinearSite, natural: torch.Tensor, data: SiteData, copies: int, seed: int) -> None:
        self._site = site
        self._shape = natural.shape[:2]
        rows, is_row = (site.independent_rows(data), None) if data.rows is None else (data.rows, data.is_row)
        if is_row is None:
            is_row = torch.arange(rows.shape[1]) < data.total.unsqueeze(-1)
        # Every row of every copy of the data set starts a chain of its own.
        self._copies, self._num_rows = copies, rows.shape[1]
        start = rows.unsqueeze(1).expand(-1, copies, -1, -1).reshape(len(rows), -1, rows.shape[-1])
        self._start = start.expand(self._shape[0], *start.shape).reshape(-1, *start.shape[1:])
        self._is_row = is_row.double()
        self._chains = GibbsChains(self._model(natural), copies * self._num_rows, init=self._start, seed=seed)
        self._generator = torch.Generator().manual_seed(seed % 2**63)

    def _model(self, natural: torch.Tensor) -> LogLinearEnergy:
        return self._site.model(natural.reshape(-1, natural.shape[-1]))

    def log_weights(self, start: torch.Tensor, end: torch.Tensor, num_sweeps: int, num_bridges: int) -> torch.Tensor:
        """Log weights (copies, chains) from laws at ``start`` to those at ``end``, both (chains, G, num_terms)."""
        first, last, chains = self._model(start), self._model(end), self._chains
        chains.set_model(first)
        chains.set_states(self._start)
        chains.sweep(num_sweeps)
        if num_bridges:
            chains.set_model(last)
            # A sweep in one order is undone by one in the other; the coin makes the pair of moves reversible.
            is_reversed = bool(torch.randint(2, (), generator=self._generator))
            path = torch.linspace(0, 1, num_bridges + 2, dtype=torch.float64)
            log_weights = chains.anneal(path, start=first, reverse_order=is_reversed)
        else:
            log_weights = chains.energy_of(first) - chains.energy_of(last)
        # Rows that pad a group do not count.
        log_weights = log_weights.reshape(*self._shape, self._copies, self._num_rows)
        return (log_weights * self._is_row.unsqueeze(1)).sum((1, 3)).T


class LogLinearParticles:
    """Gibbs chains that follow theta from step to step."""

    def __init__(self, site: LogLinearSite, natural: torch.Tensor, data: SiteData, number: int, seed: int) -> None:
        self._site, self._shape = site, natural.shape
        rows = site.independent_rows(data) if data.rows is None else data.rows
        init = _picked(rows, data, number).expand(len(natural), -1, -1, -1).flatten(0, 1) if rows.shape[1] else None
        self._chains = GibbsChains(site.model(natural.flatten(0, 1)), number, init=init, seed=seed)

    def means(self, natural: torch.Tensor, num_sweeps: int) -> torch.Tensor:
        """Means (chains, G, num_terms) over all states of so many sweeps."""
        self._chains.set_model(self._site.model(natural.flatten(0, 1)))
        record = self._chains.sweep(num_sweeps, thin=1, counts=True)
        assert record.counts is not None
        means = self._site.finite_terms(record.counts) / (record.num_records * self._chains.num_chains)
        return self._site._coded(means).reshape(self._shape)


def _picked(rows: torch.Tensor, data: SiteData, number: int) -> torch.Tensor:
    """Rows (G, number, d) drawn with replacement from those that count."""
    weights = torch.ones(rows.shape[:2], dtype=torch.float64) if data.is_row is None else data.is_row.double()
    weights = weights + 1e-300 * (weights.sum(-1, keepdim=True) == 0)
    index = torch.multinomial(weights, number, replacement=True)
    return rows.gather(1, index.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))


class LogLinearSite(IntractableSite):
    """A site of rows, or of their marginal counts: eta is theta in the coding of the law, t the counts in its terms."""

    chains, particles = LogLinearAuxiliaryChains, LogLinearParticles

    def __init__(self, name: str, law: HierarchicalLogLinear | LogLinearStatistics) -> None:
        super().__init__(name, law)
        self.hypergraph: InteractionHypergraph = law.hypergraph
        self._support: LawSupport | None = law._law.support
        if self._support is not None and self._support.zeros.batch_shape:
            expected = "the same impossible states in every element of its batch"
            raise unexpected(f"site {name!r}", expected, received="other ones", code="impossible")
        self._codings = parametrization(law.hypergraph)
        self._cells: torch.Tensor | None = None

    @property
    @override
    def num_terms(self) -> int:
        return self._codings.num(self.law.coding)

    @override
    def parameters(self, law: Any) -> torch.Tensor:
        return law.theta

    @override
    def totals(self, law: Any, sizes: tuple[int, ...]) -> torch.Tensor:
        if not isinstance(law, LogLinearStatistics):
            return super().totals(law, sizes)
        total = law.total_count.double()
        while total.dim() > len(sizes):
            total = total[0]
        return total.expand(sizes)

    @override
    def summed(self, values: torch.Tensor, weights: torch.Tensor, total: torch.Tensor) -> SiteData:
        if isinstance(self.law, LogLinearStatistics):
            counts = (values.double() * weights.unsqueeze(-1)).sum(1)
            return SiteData(self._coded(counts), (weights * total).sum(1), counts=counts)
        num_cells = self.hypergraph.num_terms
        rows, counts = values.long(), torch.zeros(len(values), num_cells, dtype=torch.float64)
        step = max(1, _CHUNK // max(1, len(values) * num_cells))
        for first in range(0, rows.shape[1], step):
            part = slice(first, first + step)
            counts += (self._codings.statistics(rows[:, part]) * weights[:, part].unsqueeze(-1)).sum(1)
        return SiteData(self._coded(counts), weights.sum(1), rows, weights > 0)

    def _coded(self, counts: torch.Tensor) -> torch.Tensor:
        """What theta (..., num_terms) multiplies, from marginal counts: the transpose of the map to tables."""
        with torch.enable_grad():
            theta = torch.zeros(*counts.shape[:-1], self.num_terms, dtype=torch.float64, requires_grad=True)
            tables = self._codings.to_tables(theta, self.law.coding, validate=False)
            (found,) = torch.autograd.grad((tables * counts).sum(), theta)
        return found

    def model(self, natural: torch.Tensor) -> LogLinearEnergy:
        """The energies of theta (*batch, num_terms), with the impossible states of the law."""
        model = LogLinearEnergy.from_theta(self.hypergraph, natural, self.law.coding, validate=False)
        return model if self._support is None else self._support.model(model.tables)

    def finite_terms(self, counts: torch.Tensor) -> torch.Tensor:
        """Of counts (..., terms of :meth:`model`) those of the law's own interactions."""
        return counts if self._support is None else self._support.finite_terms(counts)

    def independent_rows(self, data: SiteData) -> torch.Tensor:
        """Rows (G, most rows, d) for chains to begin at, where counts of their margins alone are known."""
        most = int(data.total.max()) if len(data.total) else 0
        if self._support is None:
            # The observed margins of single variables, independent of each other.
            columns: list[torch.Tensor] = []
            for variable in self.hypergraph.domain:
                position = self.hypergraph.term_slices.get((variable.name,))
                weights = torch.ones(len(data.total), variable.cardinality, dtype=torch.float64)
                if position is not None and data.counts is not None:
                    weights = data.counts[:, position].clamp(min=0) + 1e-3
                columns.append(torch.multinomial(weights, max(most, 1), replacement=True)[:, :most])
            return torch.stack(columns, -1)
        return Auto().sample(self._support.zeros, (len(data.total), most))

    # Perfect draws

    @property
    def _is_small(self) -> bool:
        """Whether the full table and its design matrix are small."""
        cells = self.hypergraph.domain.num_states
        return cells * max(1, self.hypergraph.num_terms) <= _MOST_ENTRIES

    @override
    def draws_perfectly(self, natural: torch.Tensor) -> bool:
        if self._is_small:
            return True
        # A law beyond the budget of its exact backend would draw exactly, if it could.
        return self.law.sample_is_exact and self.law.partition.plan(self.law._law.graph).feasible

    @override
    def draw(self, natural: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        if not self._is_small:
            options = {"impossible": self.law.impossible, "coding": self.law.coding, "partition": self.law.partition}
            law = LogLinearStatistics(self.hypergraph, natural, total, **options)
            return self._coded(law.sample())
        from ._table_kernels import draw_tables

        if self._cells is None:
            states = list_states(self.hypergraph.domain.cardinalities, torch.device("cpu"))
            states = states if self._support is None else states[self._support.possible_states()]
            self._cells = self._coded(self._codings.statistics(states))
        # One word of randomness a table: draws do not depend on how tables are cut into pieces.
        words = torch.randint(-(2**63), 2**63 - 1, (len(natural),), dtype=torch.int64).numpy().view(np.uint64)
        step = max(1, _CHUNK // len(self._cells))
        drawn: list[torch.Tensor] = []
        for first in range(0, len(natural), step):
            part = slice(first, first + step)
            logits = (natural[part] @ self._cells.T).numpy()
            counts = np.empty_like(logits)
            draw_tables(logits, np.ascontiguousarray(total[part].numpy()), words[part], counts)
            drawn.append(torch.from_numpy(counts) @ self._cells)
        return torch.cat([natural[:0], *drawn])

    # Everything else

    @override
    def surrogate(self, law: Any, value: torch.Tensor) -> torch.Tensor | None:
        has_rows = isinstance(law, HierarchicalLogLinear)
        # The exact log Z where it is cheap, or where there are no rows to take conditionals of.
        backend = exact_backend(self.law.partition)
        cost = backend.plan(law._law.graph)
        if cost.feasible and (cost.total_cells <= _CHEAP_CELLS or not has_rows):
            if backend is not self.law.partition:  # an estimate, whose noise has no place in a curvature
                arguments = (law.theta,) if has_rows else (law.theta, law.total_count)
                options = {"impossible": law.impossible, "coding": law.coding, "partition": backend}
                law = type(self.law)(self.hypergraph, *arguments, **options)
            return law.log_prob(value)
        return law.log_pseudo_prob(value) if has_rows else None

    @override
    def backend_means(self, natural: torch.Tensor) -> torch.Tensor | None:
        backend = acting_backend(self.law.partition, self.law._law.graph)
        if not backend.plan(self.law._law.graph).feasible:
            return None
        return self._coded(self.finite_terms(backend.expectations(self.model(natural))))


class RootAuxiliaryChains:
    """Gibbs chains of root models, as :class:`LogLinearAuxiliaryChains`; one set for every vector of parameters."""

    def __init__(self, site: RootSite, natural: torch.Tensor, data: SiteData, copies: int, seed: int) -> None:
        assert data.rows is not None  # of such a site rows are always known
        assert data.is_row is not None
        self._site, self._copies, self._shape = site, copies, natural.shape[:2]
        self._is_row = data.is_row.double().repeat(1, copies)
        self._start = data.rows.repeat(1, copies, 1)
        flat = natural.reshape(-1, natural.shape[-1])
        seeds = np.random.SeedSequence(seed).generate_state(len(flat) + 1, np.uint64) >> np.uint64(1)
        self._chains = [
            RootChains(
                site.energy(row),
                self._start.shape[1],
                init=self._start[i % self._shape[1]],
                seed=int(chain_seed),
                check=False,
            )
            for i, (row, chain_seed) in enumerate(zip(flat, seeds, strict=False))
        ]
        self._generator = torch.Generator().manual_seed(int(seeds[-1]))

    def log_weights(self, start: torch.Tensor, end: torch.Tensor, num_sweeps: int, num_bridges: int) -> torch.Tensor:
        """Log weights (copies, chains) from laws at ``start`` to those at ``end``, both (chains, G, num_terms)."""
        first, last = (values.reshape(-1, values.shape[-1]) for values in (start, end))
        is_reversed = bool(torch.randint(2, (), generator=self._generator))
        by_group: list[torch.Tensor] = []
        # Chains settle at the start of the path, then move at every bridge towards its end.
        for i, chains in enumerate(self._chains):
            group, way = i % self._shape[1], (last[i] - first[i]) / (num_bridges + 1)
            chains.set_model(self._site.energy(first[i]))
            chains.set_states(self._start[group])
            chains.sweep(num_sweeps)
            total = self._site.statistics(chains.states) @ way
            for k in range(1, num_bridges + 1):
                chains.set_model(self._site.energy(first[i] + k * way))
                chains.sweep(1, reverse_order=is_reversed)
                total = total + self._site.statistics(chains.states) @ way
            by_group.append((total * self._is_row[group]).reshape(self._copies, -1).sum(-1))
        return torch.stack(by_group).reshape(*self._shape, self._copies).sum(1).T


class RootParticles:
    """Gibbs chains of root models, as :class:`LogLinearParticles`; one set for every vector of parameters."""

    def __init__(self, site: RootSite, natural: torch.Tensor, data: SiteData, number: int, seed: int) -> None:
        self._site, self._shape = site, natural.shape
        flat = natural.flatten(0, 1)
        seeds = np.random.SeedSequence(seed).generate_state(len(flat), np.uint64) >> np.uint64(1)
        rows = data.rows if data.rows is not None and data.rows.shape[1] else None
        starts = [None] * len(flat) if rows is None else list(_picked(rows, data, number).repeat(len(natural), 1, 1))
        self._chains = [
            RootChains(site.energy(row), number, init=start, seed=int(own), check=False)
            for row, start, own in zip(flat, starts, seeds, strict=True)
        ]

    def means(self, natural: torch.Tensor, num_sweeps: int) -> torch.Tensor:
        """Means (chains, G, num_terms) over all states of so many sweeps."""
        means = torch.zeros_like(natural).flatten(0, 1)
        for row, chains, total in zip(natural.flatten(0, 1), self._chains, means, strict=True):
            chains.set_model(self._site.energy(row))
            for _ in range(num_sweeps):
                chains.sweep(1)
                total += self._site.statistics(chains.states).mean(0) / num_sweeps
        return means.reshape(self._shape)


class RootSite(IntractableSite):
    """A site of rows of a generalized root model: eta are coefficients, t the products of roots."""

    law: GeneralizedRoot
    chains, particles = RootAuxiliaryChains, RootParticles

    @property
    @override
    def num_terms(self) -> int:
        return self.law.structure.num_terms

    @override
    def parameters(self, law: Any) -> torch.Tensor:
        return law.psi

    @override
    def natural(self, parameters: torch.Tensor) -> torch.Tensor:
        return parameters * self.law.structure.multiplicity.to(parameters)

    def energy(self, natural: torch.Tensor) -> GeneralizedRootEnergy:
        """The model of coefficients (*batch, num_terms)."""
        return GeneralizedRootEnergy.from_coefficients(self.law.structure, natural, self.law.families, validate=False)

    def statistics(self, rows: torch.Tensor) -> torch.Tensor:
        """Products of roots (*sample, num_terms), float64."""
        nothing = torch.zeros(self.num_terms, dtype=torch.float64)
        return self.energy(nothing).statistics(rows.double(), validate=False)

    @override
    def summed(self, values: torch.Tensor, weights: torch.Tensor, total: torch.Tensor) -> SiteData:
        del total
        statistics = (self.statistics(values) * weights.unsqueeze(-1)).sum(1)
        return SiteData(statistics, weights.sum(1), values.double(), weights > 0)

    @override
    def is_lawful(self, natural: torch.Tensor) -> torch.Tensor:
        is_lawful = super().is_lawful(natural)
        if self.energy(natural).is_bounded:
            return is_lawful
        # Coefficients of reals may have no normalised law; what nobody can decide is refused.
        for g in is_lawful.nonzero().flatten().tolist():
            verdict = check_normalizable(self.energy(natural[g]))
            is_lawful[g] = verdict.verdict != "disproven"
            if verdict.verdict == "undecided" and not getattr(self.law.partition, "allow_undecided", False):
                verdict.check()
        return is_lawful

    @override
    def draws_perfectly(self, natural: torch.Tensor) -> bool:
        model = self.energy(natural)
        law = GeneralizedRoot(model.structure, model.psi, model.families, partition=self.law.partition)
        return law.sample_is_exact

    @override
    def draw(self, natural: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        most = int(total.max()) if len(total) else 0
        if not most:
            return torch.zeros_like(natural)
        model = self.energy(natural)
        states = self.law.partition.sample(model, (most,))
        is_row = torch.arange(most).unsqueeze(-1) < total
        return (self.statistics(states) * is_row.unsqueeze(-1)).sum(0)

    @override
    def surrogate(self, law: Any, value: torch.Tensor) -> torch.Tensor | None:
        return law.log_pseudo_prob(value)

    @override
    def backend_means(self, natural: torch.Tensor) -> torch.Tensor | None:
        energy = self.energy(natural)
        return self.law.partition.expectations(energy) if self.law.partition.plan_energy(energy).feasible else None
