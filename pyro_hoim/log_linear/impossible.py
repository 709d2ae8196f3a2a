"""States of probability zero: structural zeros, and the combinations that an infinite estimate excludes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, compress, islice, pairwise
from typing import Any, Self

import numpy as np
import torch
from typing_extensions import override

from .._modes import plain_mode
from ..checks import broadcast_shapes, check_exact_shape, is_hidden
from ..core.model import LogLinearModel
from ..core.partition import Cost, LogPartition, PartitionBackend, check_any_possible, check_hypergraph, check_model
from ..core.words import num_states_text, plural, shorten
from ..data.frames import codes_of
from ..data.observations import Observations
from ..errors import (
    UnknownNameError,
    check_names,
    check_type,
    none_received,
    other_domain,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_type,
)
from ..schema import Domain
from ..structure.hypergraph import Edge, InteractionHypergraph, row_strides
from .coding import parametrization
from .energy import LogLinearEnergy
from .exact.elimination import VariableElimination
from .exact.enumeration import Enumeration

_BYTES = 2**28  # of models that are worked on at once
_UNDERFLOW = 800.0  # nats beyond which a weight is zero in float64
_MAX_CELLS = 2**22  # of the table of a combination
_MOST_KEPT = 2**16  # cells of a mask that is remembered
_SUCH = "such as [{name: level, ...}]"
_SHOWN, _WIDTH = 3, 80  # combinations in a sentence, and characters of one
_QUICK_FLOPS = 2**24  # of a sum that a sentence waits for

Levels = Mapping[str, Any]
"""Labels of some variables by name, as text, numbers or booleans; several of one stand for as many combinations."""


@dataclass(frozen=True, eq=False)
class ImpossibleStates:
    r"""Combinations of levels that no state may hold; a state that holds one of them has probability zero.

    In an energy these are entries of minus infinity, see :meth:`applied`, which no sum, chain or estimate enters.

    Attributes:
        structure: the sets of variables that have such combinations.
        excluded: which entries of their tables these are, booleans (num_terms,) in the layout of
            ``structure.term_slices``.

    Raises:
        InputError: another shape of ``excluded``.
        InputTypeError: ``structure`` is no hypergraph, or ``excluded`` no tensor of booleans.
    """

    structure: InteractionHypergraph
    excluded: torch.Tensor

    def __post_init__(self) -> None:
        check_type(self.structure, InteractionHypergraph, "structure")
        if not isinstance(self.excluded, torch.Tensor) or self.excluded.dtype != torch.bool:
            raise wrong_type("excluded", "a tensor of booleans", self.excluded)
        check_exact_shape(self.excluded, (self.structure.num_terms,), "excluded")

    @classmethod
    def _of_tables(cls, domain: Domain, tables: Mapping[Edge, np.ndarray]) -> ImpossibleStates | None:
        """From a mask for every set of variables; None where nothing is excluded."""
        if not tables:
            return None
        structure = InteractionHypergraph(domain, tables, hierarchical=False)
        return cls(structure, torch.from_numpy(np.concatenate([tables[edge].ravel() for edge in structure.edges])))

    @classmethod
    def of_cells(
        cls, hypergraph: InteractionHypergraph, cells: np.ndarray, further: Iterable[Edge] = ()
    ) -> ImpossibleStates | None:
        """From a mask of impossible cells, (num_states,) or of the table's shape; None where all are possible.

        The mask is taken apart into combinations of the model's interactions, so that these stay all that it has, then
        of ``further`` sets, and what is left into combinations of as few variables as hold it.

        Raises:
            InputError: a mask of another shape.
            InputTypeError: no hypergraph, or no array of booleans.
        """
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        domain = hypergraph.domain
        if not isinstance(cells, np.ndarray) or cells.dtype != np.bool_:
            received = f"dtype {cells.dtype}" if hasattr(cells, "dtype") else repr(cells)
            raise wrong_type("cells", "a NumPy array of booleans", received=received)
        if cells.shape != (domain.num_states,):
            check_exact_shape(cells, domain.cardinalities, "cells")
        cells = cells.reshape(domain.cardinalities)
        left, tables = cells.copy(), dict[Edge, np.ndarray]()

        def empty(members: Iterable[int]) -> np.ndarray:
            """Combinations of some variables all of whose cells are impossible; axes of length 1 for the others."""
            others = tuple(set(range(cells.ndim)) - set(members))
            return np.asarray(cells.all(axis=others, keepdims=True))

        # Combinations of interactions, the small ones first.
        for edge in dict.fromkeys([*hypergraph.edges, *further]):
            empty_cells = empty(domain.indices(edge))
            if (left & empty_cells).any():
                tables[edge] = empty_cells
                left &= ~empty_cells
        # What is left, by as few variables as hold it.
        if left.any():
            members = list(range(cells.ndim))
            for variable in range(cells.ndim):
                fewer = [other for other in members if other != variable]
                if not (left & ~empty(fewer)).any():
                    members = fewer
            tables[tuple(domain.names[i] for i in members)] = empty(members)
        return cls._of_tables(domain, tables)

    @classmethod
    def of_combinations(
        cls, domain: Domain, combinations: Iterable[Levels], argument: str = "combinations"
    ) -> ImpossibleStates | None:
        """From levels of some variables by name; None where there is no combination.

        Args:
            domain: the variables.
            combinations: of every one the level of some variables, as the values of a data frame. A number is a label,
                never the position of one. Several levels of a variable, as a list, array or column, stand for as many
                combinations.
            argument: what errors call them.

        Raises:
            UnknownNameError: no such variable or label.
            InputError: a variable without a level, or a level that is missing.
            InputTypeError: no domain, no collection of combinations, or a combination of no variable.
            IntractableError: a combination of so many variables that their table has more than 2^22 cells.

        Example:
            >>> domain = Domain.from_labels({"sex": ["f", "m"], "pregnant": ["no", "yes"]})
            >>> states = ImpossibleStates.of_combinations(domain, [{"sex": "m", "pregnant": "yes"}])
            >>> states.structure.edges, states.excluded.tolist()
            ((('sex', 'pregnant'),), [False, False, False, True])
        """
        check_type(domain, Domain, "domain")
        if isinstance(combinations, str | Mapping) or not isinstance(combinations, Iterable):
            raise wrong_type(argument, f"a list {_SUCH}", received=repr(combinations))
        tables = dict[Edge, np.ndarray]()
        for combination in combinations:
            if not isinstance(combination, Mapping) or not combination:
                hint = _as_mapping(combination) if isinstance(combination, str) else None
                raise wrong_type(argument, f"levels by name, {_SUCH}", received=repr(combination), hint=hint)
            check_names(combination, domain.names, argument)
            edge = tuple(sorted(combination, key=domain.index))
            if edge not in tables:
                shape = [domain[name].cardinality for name in edge]
                if math.prod(shape) > _MAX_CELLS:
                    problem = f"the table of {', '.join(edge)} has {size_text(math.prod(shape), 'cells')}"
                    raise out_of_reach(argument, problem, f"name fewer variables, of at most {_MAX_CELLS} cells")
                tables[edge] = np.zeros(shape, dtype=bool)
            levels = [_levels(domain, name, combination[name], argument) for name in edge]
            tables[edge][np.ix_(*levels)] = True
        return cls._of_tables(domain, tables)

    @classmethod
    def union(cls, *states: ImpossibleStates | None) -> ImpossibleStates | None:
        """What any of some excludes, over the same variables; None where none excludes anything.

        Raises:
            InputError: states of other variables.
            InputTypeError: anything else than states and None.
        """
        tables = dict[Edge, np.ndarray]()
        for part in states:
            check_type(part, ImpossibleStates | None, "states")
        several = [part for part in states if part is not None]
        for part in several:
            _check_domain(part, several[0].structure.domain, "states")
            for edge, where in part.structure.term_slices.items():
                shape = [part.structure.domain[name].cardinality for name in edge]
                excluded = part.excluded[where].reshape(shape).numpy()
                tables[edge] = tables[edge] | excluded if edge in tables else excluded
        return cls._of_tables(several[0].structure.domain, tables) if several else None

    def without(self, other: ImpossibleStates | None) -> ImpossibleStates | None:
        """What is excluded here and not by the tables of another collection; None where nothing is left."""
        check_type(other, ImpossibleStates | None, "other")
        if other is None:
            return self
        _check_domain(other, self.structure.domain, "other")
        excluded = self.excluded.clone()
        for edge, where in other.structure.term_slices.items():
            if edge in self.structure:
                excluded[self.structure.term_slices[edge]] &= ~other.excluded[where]
        tables = {edge: excluded[where].numpy() for edge, where in self.structure.term_slices.items()}
        return self._of_tables(self.structure.domain, {edge: table for edge, table in tables.items() if table.any()})

    def holders(self, codes: torch.Tensor) -> Iterator[tuple[Edge, torch.Tensor, torch.Tensor]]:
        """For every set of variables, which rows (N, d) hold one of its combinations in known cells, and the cells."""
        graph = self.structure
        pieces = zip(graph.edge_indices, graph.edge_shapes, graph.term_slices.items(), strict=True)
        for members, shape, (edge, where) in pieces:
            levels = codes[:, list(members)]
            cells = (levels.clamp(min=0) * torch.tensor(row_strides(shape))).sum(1)
            yield edge, (levels >= 0).all(1) & self.excluded[where].cpu()[cells], cells

    def tally(self, rows: Observations) -> list[tuple[dict[str, str], float]]:
        """Excluded combinations that rows hold in known cells, as labels by name, with the total count of these rows.

        A row that holds several counts for the first of them.
        """
        left, tallied = rows.counts > 0, list[tuple[dict[str, str], float]]()
        for edge, is_held, cells in self.holders(rows.narrow):
            variables = [self.structure.domain[name] for name in edge]
            is_held = is_held & left
            left = left & ~is_held
            for cell in cells[is_held].unique().tolist():
                codes = np.unravel_index(cell, [v.cardinality for v in variables])
                labels = {v.name: v.labels[int(code)] for v, code in zip(variables, codes, strict=True)}
                tallied.append((labels, float(rows.counts[is_held & (cells == cell)].sum())))
        return tallied

    @classmethod
    def of_energy(cls, energy: LogLinearEnergy) -> ImpossibleStates | None:
        """The entries of minus infinity of one model's tables; None where there is none, and of a batch.

        Raises:
            InputTypeError: no energy, such as a law, whose ``energy_model`` is meant.
        """
        check_type(energy, LogLinearEnergy, "energy")
        if energy.batch_shape or is_hidden(energy.tables):
            return None
        support = support_of(energy)
        return None if support is None else cls(support.hypergraph, torch.isneginf(support.tables))

    @classmethod
    def common_to(cls, energy: LogLinearEnergy) -> ImpossibleStates | None:
        """As :meth:`of_energy`, and of a batch where all models have the same; InputError where they have not."""
        first = energy.tables.reshape(-1, energy.hypergraph.num_terms)[:1]
        if bool((torch.isneginf(energy.tables) != torch.isneginf(first)).any()):
            problem = f"the models of the batch {tuple(energy.batch_shape)} have different impossible states"
            raise refused("model", problem, "take one model of the batch", code="impossible")
        tables = first.sum(0) if len(first) else energy.tables.new_zeros(energy.hypergraph.num_terms)
        return cls.of_energy(LogLinearEnergy._trusted(energy.hypergraph, tables))

    @property
    def combinations(self) -> Iterator[dict[str, str]]:
        """The excluded combinations, as labels by name."""
        for edge, where in self.structure.term_slices.items():
            variables = [self.structure.domain[name] for name in edge]
            table = self.excluded[where].cpu().reshape([variable.cardinality for variable in variables])
            for codes in table.nonzero().tolist():
                yield {v.name: v.labels[code] for v, code in zip(variables, codes, strict=True)}

    @property
    def num_possible(self) -> int:
        """Number of states that hold none of the combinations, by a sum over these; beyond 1e12 rounded.

        InputError where there is none, IntractableError where no exact method is within reach.
        """
        share = math.exp(float(self._evenly.log_normaliser) - math.log(self.structure.domain.num_states))
        return round(Fraction(share) * self.structure.domain.num_states)

    @property
    def _evenly(self) -> ProductInside:
        """The uniform law on what is possible."""
        levels = torch.zeros(sum(self.structure.domain.cardinalities), dtype=torch.float64)
        return ProductInside(support_of_states(self.structure, self).zeros, levels)

    def entries_of(self, graph: InteractionHypergraph) -> torch.Tensor:
        """Which entries of a model's tables hold one of the combinations, booleans (num_terms,)."""
        masks = [torch.zeros(0, dtype=torch.bool)]
        for edge, shape in zip(graph.edges, graph.edge_shapes, strict=True):
            mask = torch.zeros(shape, dtype=torch.bool)
            for part, where in self.structure.term_slices.items():
                if set(part) <= set(edge):
                    sizes = [size if name in part else 1 for name, size in zip(edge, shape, strict=True)]
                    mask |= self.excluded[where].cpu().reshape(sizes)
            masks.append(mask.flatten())
        return torch.cat(masks)

    def words(self) -> str:
        """The first combinations, how many others there are, and how many rows stay possible where that is quick."""
        number, domain = int(self.excluded.sum()), self.structure.domain
        shown = [", ".join(f"{n}={of}" for n, of in part.items()) for part in islice(self.combinations, _SHOWN)]
        more = [f"{plural(number - _SHOWN, 'other combination')}"] if number > _SHOWN else []
        words = " or ".join([*(shorten(part, _WIDTH) for part in shown), *more])
        if not self._evenly.is_exact or self._evenly.cost.flops > _QUICK_FLOPS:
            return words
        return (
            f"{words}; {num_states_text(self.num_possible)} of {num_states_text(domain.num_states)} rows are possible"
        )

    def added_to(self, graph: InteractionHypergraph) -> InteractionHypergraph:
        """The interactions of a model with these states: its own, and further sets of variables where it has none."""
        added = [edge for edge in self.structure.edges if edge not in graph]
        return graph.add_edges(added, hierarchical=False) if added else graph

    def applied(self, energy: LogLinearEnergy) -> LogLinearEnergy:
        """The model without these states: entries of minus infinity, in tables of their own where it has none.

        Raises:
            InputError: a model of other variables.
            InputTypeError: no energy.
        """
        check_type(energy, LogLinearEnergy, "energy")
        return support_of_states(energy.hypergraph, self).model(energy.tables)


# Impossible states, said in one of three ways.

StructuralZeros = np.ndarray | torch.Tensor | ImpossibleStates | Iterable[Levels] | None
"""A mask of the table's shape, combinations of levels by name, or the states themselves."""


def structural_states(
    domain: Domain, states: StructuralZeros | Any, argument: str = "structural_zeros"
) -> ImpossibleStates | None:
    """The impossible states that a user gives, None for none; refused where these are all, or of other variables."""
    if states is None:
        return None
    if isinstance(states, ImpossibleStates):
        _check_domain(states, domain, argument)
        return states if bool(states.excluded.any()) else None
    expected = f"a mask of booleans, combinations {_SUCH}, or ImpossibleStates"
    if not isinstance(states, np.ndarray | torch.Tensor):
        if not isinstance(states, Iterable):
            raise wrong_type(argument, expected, received=repr(states))
        several: list[Any] = [states] if isinstance(states, str | Mapping) else list(states)
        if not several or any(isinstance(combination, str | Mapping) for combination in several):
            return ImpossibleStates.of_combinations(domain, several, argument)
        try:
            states = np.asarray(several)
        except ValueError:
            raise wrong_type(argument, expected, received="rows of several lengths") from None
    mask = np.asarray(states.detach().cpu() if isinstance(states, torch.Tensor) else states)
    if mask.dtype != np.bool_:
        raise wrong_type(argument, expected, received=f"dtype {mask.dtype}")
    check_exact_shape(mask, domain.cardinalities, argument)
    if mask.all():
        raise none_received(argument, "at least one possible cell")
    if not mask.any():
        return None
    made = _states_of_mask if mask.size <= _MOST_KEPT else _states_of_mask.__wrapped__
    return made(domain, mask.tobytes())


@lru_cache(maxsize=64)
@plain_mode()
def _states_of_mask(domain: Domain, mask: bytes) -> ImpossibleStates | None:
    """One object for one mask, which programs give anew in every run and whose support is known by the object."""
    cells = np.frombuffer(mask, dtype=bool).reshape(domain.cardinalities)
    return ImpossibleStates.of_cells(InteractionHypergraph.from_order(domain, min(2, len(domain))), cells)


def _check_domain(states: ImpossibleStates, domain: Domain, argument: str) -> None:
    """Refuse states of other variables."""
    if states.structure.domain != domain:
        raise other_domain(argument, f"states of the variables {domain.names}", states.structure.domain.names)


@dataclass(frozen=True, eq=False)
class Support:
    """Which combinations are impossible, one set or a batch of sets, and where they stand beside finite tables.

    Attributes:
        source: the interactions of the finite tables.
        zeros: a model of zeros and minus infinities, which excludes the impossible states.
        graph: the interactions with those of ``zeros``.
        lost: which terms of ``graph`` are impossible, booleans (*batch, num_terms of ``graph``).
    """

    source: InteractionHypergraph
    zeros: LogLinearEnergy
    graph: InteractionHypergraph
    lost: torch.Tensor

    @classmethod
    def beside(cls, source: InteractionHypergraph, zeros: LogLinearEnergy) -> Self:
        """The support of a model of zeros and minus infinities beside finite tables of some interactions."""
        added = [edge for edge in zeros.hypergraph.edges if edge not in source]
        graph = source.add_edges(added, hierarchical=False) if added else source
        return cls(source, zeros, graph, torch.isneginf(parametrization(zeros.hypergraph).lift(zeros.tables, graph)))

    def model(self, tables: torch.Tensor) -> LogLinearEnergy:
        """The model of finite tables (*batch, num_terms), differentiable in them, and of the impossible states."""
        lifted = tables if self.graph is self.source else parametrization(self.source).lift(tables, self.graph)
        return LogLinearEnergy._trusted(self.graph, lifted.masked_fill(self.lost.to(tables.device), -math.inf))

    def finite_terms(self, terms: torch.Tensor) -> torch.Tensor:
        """Of numbers (..., num_terms of ``graph``) those of the finite tables' interactions."""
        return terms if self.graph is self.source else terms[..., self._places.to(terms.device)]

    @cached_property
    @plain_mode()
    def _places(self) -> torch.Tensor:
        where = self.graph.term_slices
        parts = [torch.arange(where[edge].start, where[edge].stop) for edge in self.source.edges]
        return torch.cat([torch.zeros(0, dtype=torch.long), *parts])


@lru_cache(maxsize=64)
@plain_mode()
def support_of_states(source: InteractionHypergraph, states: ImpossibleStates) -> Support:
    """The support of one set of states beside finite tables, which fits and posteriors ask for again and again."""
    _check_domain(states, source.domain, "impossible")
    zeros = torch.zeros(states.structure.num_terms, dtype=torch.float64)
    zeros = zeros.masked_fill(states.excluded.to(zeros.device), -math.inf)
    return Support.beside(source, LogLinearEnergy._trusted(states.structure, zeros))


def _levels(domain: Domain, name: str, value: Any, argument: str) -> list[int]:
    """Codes of one level or several levels of a variable."""
    value = value.tolist() if isinstance(value, torch.Tensor) else value
    is_one = isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection)
    several = [value] if is_one or getattr(value, "ndim", 1) == 0 else list(value)
    if not several:
        raise none_received(f"{argument}, column {name!r}", "at least one level")
    try:
        return [codes_of({name: level}, domain, argument)[name] for level in several]
    except UnknownNameError as error:
        raise error.replace(hint=f"{error.hint}; levels that no row has are known where categories name them") from None


def _as_mapping(text: str) -> str | None:
    """How a combination that is written as at the command line is written in Python."""
    parts = [part.partition("=") for part in text.split(",")]
    levels = {name.strip(): level.strip() for name, _, level in parts}
    return f"write [{levels}]" if all(sign for _, sign, _ in parts) else None


def check_all_possible(energy: LogLinearEnergy, argument: str) -> None:
    """Raise :class:`InputError` for a model with impossible states, where these cannot be dealt with."""
    if bool(torch.isneginf(energy.tables).any()):
        hint = "LogLinearEnergy(result.hypergraph, result.tables) has finite tables, in which they are improbable"
        raise unexpected(argument, "a model without impossible states", hint=hint, received="-inf", code="impossible")


# The support of a model, and product laws that are restricted to it.


def support_of(energy: LogLinearModel) -> LogLinearEnergy | None:
    """The model of zeros and minus infinities on the sets of variables that hold any, of any element of a batch.

    None where there is none. It has the batch of the model, float64, and stands for the set of its possible states.
    """
    lost = torch.isneginf(energy.tables.detach())
    if not bool(lost.any()):
        return None
    graph = energy.hypergraph
    parts = [lost[..., where] for where in graph.term_slices.values()]
    has_any = [bool(part.any()) for part in parts]
    structure = InteractionHypergraph(graph.domain, compress(graph.edges, has_any), hierarchical=False)
    excluded = torch.cat(list(compress(parts, has_any)), -1)
    return LogLinearEnergy._trusted(
        structure, torch.zeros_like(excluded, dtype=torch.float64).where(~excluded, -math.inf)
    )


def walled(energy: LogLinearEnergy, height: float | None = None) -> LogLinearEnergy:
    """The same with finite tables, in which impossible states are so improbable that their weights are zero.

    An entry of minus infinity falls below the others of its table by the ``height``, else by the sum of the ranges of
    all tables and 800 nats: then a state that selects one is less probable than every possible state, whatever the
    other tables say.
    """
    lost = torch.isneginf(energy.tables)
    if not bool(lost.any()):
        return energy
    low = energy.tables.masked_fill(lost, math.inf)
    below, lowest = torch.full_like(energy.tables[..., 0], _UNDERFLOW), torch.zeros_like(energy.tables)
    for where in energy.hypergraph.term_slices.values():
        least = low[..., where].amin(-1)
        least = least.where(least.isfinite(), torch.zeros_like(least))  # a table may exclude every cell
        most = energy.tables[..., where].amax(-1)
        below = below + (most - least).where(most.isfinite(), torch.zeros_like(most))
        lowest[..., where] = least[..., None]
    below = below if height is None else torch.full_like(below, height)
    tables = energy.tables.where(~lost, lowest - below[..., None])
    return LogLinearEnergy._trusted(energy.hypergraph, tables)


@dataclass(frozen=True)
class ProductInside:
    """Product laws restricted to the support of models.

    Attributes:
        support: models of zeros and minus infinities, batch (*batch).
        log_weights: finite log weights of all levels, one variable after the other, that broadcast to (*batch, levels).
    """

    support: LogLinearEnergy
    log_weights: torch.Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """The variables of which combinations are impossible; the others are independent of these and one another."""
        names = {name for edge in self.support.hypergraph.edges for name in edge}
        return tuple(name for name in self.support.domain.names if name in names)

    @cached_property
    def _levels(self) -> dict[str, slice]:
        """Where the log weights of every variable are."""
        ends = list(accumulate(self.support.domain.cardinalities, initial=0))
        return {name: slice(*where) for name, where in zip(self.support.domain.names, pairwise(ends), strict=True)}

    @cached_property
    @plain_mode()
    def model(self) -> LogLinearEnergy:
        """The laws of these variables as models of their support."""
        given = self.support.hypergraph
        singles = [(name,) for name in self.names]
        domain = self.support.domain.project(self.names)
        graph = InteractionHypergraph(domain, {*given.edges, *singles}, hierarchical=False)
        batch = broadcast_shapes(self.support.batch_shape, self.log_weights.shape[:-1])
        tables = self.support.tables.new_zeros(*batch, graph.num_terms)
        for edge, where in given.term_slices.items():
            tables[..., graph.term_slices[edge]] = self.support.tables[..., where]
        for (name,) in singles:
            tables[..., graph.term_slices[name,]] += self.log_weights[..., self._levels[name]]
        return LogLinearEnergy._trusted(graph, tables)

    @cached_property
    def _backend(self) -> VariableElimination | Enumeration | None:
        """The exact method for these, if any."""
        plans = ((backend, backend.plan(self.model.hypergraph)) for backend in (VariableElimination(), Enumeration()))
        return next((backend for backend, plan in plans if plan.feasible), None)

    @classmethod
    def is_reached(cls, model: LogLinearModel) -> bool:
        """Whether product laws over the possible states of a model can be summed, as annealed estimates need it."""
        support = support_of(model)
        sizes = model.hypergraph.domain.cardinalities
        return support is None or cls(support, support.tables.new_zeros(sum(sizes))).is_exact

    def at(self, rows: torch.Tensor) -> ProductInside:
        """The laws of some elements of a batch of one dimension."""
        support = LogLinearEnergy._trusted(self.support.hypergraph, self.support.tables[rows])
        return ProductInside(support, self.log_weights[rows])

    @property
    def is_exact(self) -> bool:
        """Whether an exact method is within reach, so that there are normalisers and draws."""
        return self._backend is not None

    @cached_property
    def cost(self) -> Cost:
        """That of one normaliser, of which there are as many as elements of the batch."""
        return (self._backend or VariableElimination()).plan(self.model.hypergraph)

    @property
    def num_at_once(self) -> int:
        """Elements of a batch that are worked on together, so that they fit into memory."""
        return max(1, _BYTES // max(1, self.cost.memory_bytes + 16 * self.model.hypergraph.num_terms))

    def _reached(self) -> VariableElimination | Enumeration:
        """The exact method, or IntractableError."""
        if self._backend is None:
            names, reason = self.names, self.cost.reason
            problem = f"summing over the possible states of {len(names)} variables is out of reach: {reason}"
            raise out_of_reach("model", problem, "draw with GibbsChains, or condition on some variables")
        return self._backend

    @cached_property
    @plain_mode()
    def _log_sums(self) -> torch.Tensor:
        """Log of the sum over the possible states of the variables ``names``, float64 (*batch)."""
        graph, tables = self.model.hypergraph, self.model.tables
        parts = tables.reshape(tables.shape[:-1].numel(), graph.num_terms).split(self.num_at_once)
        models = (LogLinearEnergy._trusted(graph, part) for part in parts)
        return torch.cat([self._reached().log_partition(model).value for model in models]).reshape(tables.shape[:-1])

    @property
    def are_possible(self) -> torch.Tensor:
        """Which elements of the batch have a possible state, bool (*batch); errors as of the normaliser."""
        return self._log_sums > -math.inf

    @cached_property
    @plain_mode()
    def log_normaliser(self) -> torch.Tensor:
        """Log of the sum of the weights of the possible states, float64 (*batch).

        Raises:
            InputError: no state of an element of the batch is possible.
            IntractableError: no exact method is within reach.
        """
        value = self._log_sums
        check_any_possible(value)
        free = [where for name, where in self._levels.items() if name not in self.names]
        return value + sum(self.log_weights[..., where].logsumexp(-1) for where in free)

    def sample(self, number: int, random: torch.Generator) -> torch.Tensor:
        """Independent states of the variables ``names``, long (*batch, number, names); errors as of the normaliser."""
        return self._reached().sample(self.model, (number,), random).movedim(0, -2)

    def condition(self, codes: Mapping[str, int | torch.Tensor]) -> ProductInside | None:
        """The law of the other variables given codes, which broadcast with the batch; None where all are possible.

        Combinations of the known variables alone must be possible: InputError where they are not.
        """
        rest, constant = self.support.condition(codes)
        if bool(torch.isneginf(constant).any()):
            raise refused("clamped", "has values that are impossible together", code="impossible")
        weights = torch.cat([self.log_weights[..., self._levels[name]] for name in rest.domain.names], -1)
        left = support_of(rest)
        return None if left is None else ProductInside(left, weights)


# A partition backend that sums over possible states alone.


@dataclass(frozen=True)
class PossibleStates(PartitionBackend):
    """What another backend makes of models in which some states are impossible.

    It takes the finite part: fits and posteriors of theta need not know the impossible states, and differentiate log Z
    of the law on the others.

    Attributes:
        partition: the other backend.
        impossible: the states. A law that is given this backend has them as its own, as by its ``impossible=``.

    Raises:
        InputTypeError: no backend, or states that are no :class:`~pyro_hoim.log_linear.ImpossibleStates`.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import Auto
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> graph = InteractionHypergraph.from_order(domain, 1)
        >>> backend = PossibleStates(Auto(), ImpossibleStates.of_combinations(domain, [{"a": 1, "b": 1}]))
        >>> uniform = LogLinearEnergy(graph, torch.zeros(4, dtype=torch.float64))
        >>> backend.expectations(uniform).round(decimals=4).tolist()  # of three cells
        [0.6667, 0.3333, 0.6667, 0.3333]
    """

    partition: PartitionBackend
    impossible: ImpossibleStates

    def __post_init__(self) -> None:
        check_type(self.partition, PartitionBackend, "partition", "a partition backend")
        check_type(self.impossible, ImpossibleStates, "impossible", "ImpossibleStates")

    def _model(self, model: LogLinearModel) -> LogLinearEnergy:
        check_model(model)
        return self.impossible.applied(LogLinearEnergy(model.hypergraph, model.tables, validate=False))

    @property
    @override
    def is_exact(self) -> bool:
        return self.partition.is_exact

    @override
    def plan(
        self, hypergraph: InteractionHypergraph, evidence_names: Sequence[str] = (), keep: Sequence[str] = ()
    ) -> Cost:
        check_hypergraph(hypergraph)
        return self.partition.plan(self.impossible.added_to(hypergraph), evidence_names, keep)

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        return self.partition.log_partition(self._model(model))

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        eta = self.partition.expectations(self._model(model))
        return support_of_states(model.hypergraph, self.impossible).finite_terms(eta)

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.partition.marginal(self._model(model), names)

    @override
    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.partition.log_marginal(self._model(model), names)

    @override
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        return self.partition.sample(self._model(model), sample_shape, generator)

    @override
    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:
        return self.partition.mode(self._model(model))


def on_support(partition: PartitionBackend, impossible: ImpossibleStates | None) -> PartitionBackend:
    """The backend itself where no state is impossible, else one that sums over the others."""
    return partition if impossible is None else PossibleStates(partition, impossible)
