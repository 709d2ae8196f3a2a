"""Rows of which some cells are known, under one model: those that miss the same variables are treated as one batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch

from .._modes import plain_mode
from ..core.rows import METHODS, ClampedGibbs, RowMethod, row_patterns
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import IntractableError, check_choice, other_domain, out_of_reach, unexpected, wrong_type
from ..schema import Domain
from ..structure.cells import row_strides
from ..structure.hypergraph import InteractionHypergraph
from .auto import Auto
from .chains.gibbs import GibbsChains
from .energy import LogLinearEnergy
from .impossible import ImpossibleStates, walled

__all__ = [
    "condition_rows",
    "impossible_rows",
    "is_exactly_feasible",
    "row_chains",
    "row_log_weights",
]


_MAX_OPERATIONS = 2 * 10**9
_MAX_ROW_OPERATIONS = 2 * 10**7
_MAX_BYTES = 2**28
_LOOK_UPS_PER_CALL = 2**22
_MAX_SCORE_OPERATIONS = 5e9
_EXCLUDED = -1e6  # more than the log of any number of states that could be summed
_TRIES = 50


def check_energy(model: object, argument: str = "model") -> None:
    """Raise :class:`InputTypeError` unless a log-linear energy; where a result holds one, the message says how."""
    if isinstance(model, LogLinearEnergy):
        return
    hint = ""
    for name in ("energy", "model"):
        if isinstance(getattr(model, name, None), LogLinearEnergy):
            hint = f"; pass its .{name}"
    if not hint and callable(getattr(model, "log_linear", None)):
        hint = "; pass its .log_linear()"
    raise wrong_type(argument, "a LogLinearEnergy", received=f"{type(model).__name__}{hint}")


def check_model(model: LogLinearEnergy, domain: Domain, method: str) -> None:
    """Raise :class:`InputError` unless the model is a single one whose domain is ``domain`` and the method exists."""
    check_energy(model)
    if domain != model.domain:
        expected = "the variables and labels of the model's domain"
        raise other_domain("data", expected, hint="read the file with domain=...")
    check_single(model)
    check_choice(method, METHODS, "method")


def check_single(model: LogLinearEnergy, argument: str = "model") -> None:
    """Raise :class:`InputError` for a batch of models."""
    if model.batch_shape:
        found = f"a batch of shape {tuple(model.batch_shape)}"
        raise unexpected(argument, "one model", received=found, code="wrong-shape")


def condition_rows(
    model: LogLinearEnergy, missing: Sequence[str], codes: torch.Tensor
) -> tuple[LogLinearEnergy, torch.Tensor]:
    """:meth:`~pyro_hoim.log_linear.LogLinearEnergy.condition` for many rows, codes (R, d): models (R,), constants (R,).

    .. math:: -E(x_{r, O}, x_M) = c_r - E'_r(x_M)
    """
    graph = model.hypergraph
    rest = _left(graph, tuple(missing))
    stay = set(graph.domain.indices(missing))
    start = {key: piece.start for key, piece in rest.term_slices.items()}
    axes_of, first, weights = _strides(graph)
    names = graph.domain.names
    known = codes.clone()
    known[:, list(stay)] = 0
    # (R, edges): the cell of every table with the missing variables at level 0; whole numbers, so exact in float64
    base = first + (known.double() @ weights).long()
    offsets: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
    edges, steps, columns, inside = list[np.ndarray](), list[np.ndarray](), list[np.ndarray](), list[int]()
    for number, axes in enumerate(axes_of):
        kept = [axis for axis in axes if axis[0] in stay]
        if not kept:
            inside.append(number)
            continue
        shape = tuple((stride, levels) for _, stride, levels in kept)
        if shape not in offsets:
            offset = np.zeros(1, dtype=np.int64)
            for stride, levels in shape:
                offset = (offset[:, None] + stride * np.arange(levels)).ravel()
            offsets[shape] = offset
        step = offsets[shape]
        edges.append(np.full(len(step), number))
        steps.append(step)
        columns.append(start[tuple(names[i] for i, _, _ in kept)] + np.arange(len(step)))
    tables = model.tables.new_zeros(len(codes), rest.num_terms)
    if edges:
        source = base[:, torch.from_numpy(np.concatenate(edges))] + torch.from_numpy(np.concatenate(steps))
        tables.index_add_(1, torch.from_numpy(np.concatenate(columns)), model.tables[source])
    constant = model.tables[base[:, inside]].sum(1)
    return LogLinearEnergy(rest, tables, validate=False), constant


@lru_cache(maxsize=8)
def _left(hypergraph: InteractionHypergraph, missing: tuple[str, ...]) -> InteractionHypergraph:
    """The interactions between missing variables when all others are known."""
    gone = set(missing)
    return hypergraph.restrict([n for n in hypergraph.domain.names if n not in gone])


@lru_cache(maxsize=8)
@plain_mode()
def _strides(hypergraph: InteractionHypergraph) -> tuple[list[list[tuple[int, int, int]]], torch.Tensor, torch.Tensor]:
    """(variable, stride, levels) of every axis of every table, first cells (edges,), strides by variable (d, edges)."""
    axes_of = [
        list(zip(members, row_strides(shape), shape, strict=True))
        for members, shape in zip(hypergraph.edge_indices, hypergraph.edge_shapes, strict=True)
    ]
    first = torch.tensor([piece.start for piece in hypergraph.term_slices.values()], dtype=torch.long)
    weights = torch.zeros(len(hypergraph.domain), len(axes_of), dtype=torch.float64)
    for number, axes in enumerate(axes_of):
        for i, stride, _ in axes:
            weights[i, number] = stride
    return axes_of, first, weights


def is_exactly_feasible(
    model: LogLinearEnergy, missing: Sequence[str], num_rows: int, method: RowMethod, keep: Sequence[str] = ()
) -> bool:
    """Whether rows with these missing variables are to be treated exactly.

    ``auto`` allows exact work where a backend accepts it and a row needs at most 2e7 operations (about as long as
    chains would take), or all ``num_rows`` of the call together at most 2e9; ``exact`` allows it wherever a backend
    accepts it.
    """
    if method == "gibbs":
        return False
    cost = Auto().plan(_left(model.hypergraph, tuple(missing)), keep=keep)
    if method == "exact":
        if not cost.feasible:
            problem = f"{cost.reason}. Predictions and completions have an approximate method, gibbs"
            raise out_of_reach(f"rows that miss {', '.join(missing)}", problem)
        return True
    return cost.feasible and (cost.flops <= _MAX_ROW_OPERATIONS or cost.flops * num_rows <= _MAX_OPERATIONS)


def exact_portions(model: LogLinearEnergy, missing: Sequence[str], rows: torch.Tensor) -> Sequence[torch.Tensor]:
    """Rows in portions whose conditional models fit into memory together."""
    rest = _left(model.hypergraph, tuple(missing))
    look_ups = len(model.hypergraph) + model.hypergraph.num_terms
    return rows.split(max(1, _MAX_BYTES // max(1, Auto().plan(rest).memory_bytes + 16 * look_ups)))


def row_log_weights(
    model: LogLinearEnergy, data: DataLike, *, max_operations: float = _MAX_SCORE_OPERATIONS
) -> torch.Tensor:
    r"""Log of the unnormalised probability of every row, summed over what it misses, (N,) in nats; exact.

    .. math:: \log \sum_{x_M} \exp(-E(x_O, x_M))

    Memory does not grow with the number of completions. ``max_operations`` bounds the floating-point operations for all
    rows together, by default about ten seconds; beyond it, or where no backend accepts what a row misses,
    :class:`~pyro_hoim.errors.IntractableError` is raised before anything is computed. Minus infinity for rows whose
    known cells have probability zero.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 3}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.zeros(5, dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, 1], [0, -1], [-1, -1]]), graph.domain)
        >>> row_log_weights(model, rows).exp().round(decimals=6).tolist()  # completions of the rows
        [1.0, 3.0, 6.0]
    """
    check_energy(model)
    data = as_observations(data, domain=model.domain)
    check_model(model, data.domain, "exact")
    if not len(data.codes):
        return model.tables.new_zeros(0)
    codes, inverse = torch.unique(data.codes, dim=0, return_inverse=True)
    values = model.tables.new_full((len(codes),), -math.inf)
    patterns = possible_patterns(Observations.from_tensor(codes, data.domain), impossible_rows(model, codes))
    needed = 0.0
    for missing, rows in patterns:
        if missing:
            is_exactly_feasible(model, missing, len(rows), "exact")
            needed += float(Auto().plan(_left(model.hypergraph, missing)).flops) * len(rows)
    if needed > max_operations:
        problem = f"summing them over needs {needed:.3g} operations, the limit is {max_operations:.3g}"
        hint = "leave out the rows that miss most, or complete the rows first"
        raise out_of_reach("rows with missing cells", problem, hint)
    for missing, rows in patterns:
        if not missing:
            for part in rows.split(max(1, _LOOK_UPS_PER_CALL // max(1, len(model.hypergraph)))):
                values[part] = -model.energy(codes[part])
            continue
        for part in exact_portions(model, missing, rows):
            laws, constant = condition_rows(model, missing, codes[part])
            values[part] = Auto().log_partition(laws).value + constant
    return values[inverse]


def possible_patterns(data: Observations, excluded: torch.Tensor) -> list[tuple[tuple[str, ...], torch.Tensor]]:
    """:func:`~pyro_hoim.core.rows.row_patterns` of the rows that are not ``excluded``, (N,)."""
    found = [(missing, rows[~excluded[rows]]) for missing, rows in row_patterns(data)]
    return [(missing, rows) for missing, rows in found if len(rows)]


def impossible_rows(model: LogLinearEnergy, codes: torch.Tensor) -> torch.Tensor:
    """Which rows (N, d) have known cells of probability zero together under one model, (N,) booleans.

    Exact, also where the missing cells have no possible completion; where that would take too many operations to find
    out, a row of which no excluded combination is known counts as possible.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> tables = torch.tensor([0, 0, 0, 0, -math.inf, 0, -math.inf, 0])  # no row has b = 0
        >>> model = LogLinearEnergy(graph, tables, validate=False)
        >>> impossible_rows(model, torch.tensor([[0, 0], [0, 1], [-1, 0], [0, -1]])).tolist()
        [True, False, True, False]
    """
    states = ImpossibleStates.of_energy(model)
    if states is None or not len(codes):
        return torch.zeros(len(codes), dtype=torch.bool)
    structure, excluded = states.structure, states.excluded.cpu()
    columns = sorted({i for members in structure.edge_indices for i in members})
    unique, inverse = torch.unique(codes[:, columns], dim=0, return_inverse=True)
    found = torch.zeros(len(unique), dtype=torch.bool)
    place = {column: number for number, column in enumerate(columns)}
    pieces = zip(structure.edge_indices, structure.edge_shapes, structure.term_slices.values(), strict=True)
    for members, shape, where in pieces:
        own = unique[:, [place[i] for i in members]]
        cell = (own.clamp(min=0) * torch.tensor(row_strides(shape))).sum(1)
        found |= (own >= 0).all(1) & excluded[where][cell]
    left = (~found & (unique < 0).any(1)).nonzero().squeeze(1)
    if len(left):
        domain = model.domain.project([model.domain.names[i] for i in columns])
        graph = InteractionHypergraph(domain, structure.edges, hierarchical=False)
        walls = LogLinearEnergy(graph, torch.where(excluded, _EXCLUDED, torch.zeros((), dtype=torch.float64)))
        try:
            logs = row_log_weights(walls, Observations.from_tensor(unique[left], domain))
        except IntractableError:
            return found[inverse]
        found[left] = logs < _EXCLUDED / 2
    return found[inverse]


def possible_draws(
    model: LogLinearEnergy, number: int, draw: Callable[[LogLinearEnergy, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """States (number, d) by chains, which need finite tables; those that are impossible are drawn again.

    ``draw`` is given the model with such tables, and which of the draws are asked for, (n,).
    """
    finite = walled(model)
    wanted = torch.arange(number)
    states = draw(finite, wanted)
    for _ in range(_TRIES):
        wanted = wanted[impossible_rows(model, states[wanted])]
        if not len(wanted):
            return states
        states[wanted] = draw(finite, wanted)
    problem = f"{len(wanted)} of {number} chains found no possible state in {_TRIES} attempts"
    raise out_of_reach("method 'gibbs'", problem, "'exact' draws from possible states alone")


def row_chains(
    model: LogLinearEnergy, missing: Sequence[str], codes: torch.Tensor, num_chains: int, gibbs: ClampedGibbs, seed: int
) -> GibbsChains:
    """Chains (R * num_chains) of what rows, codes (R, d), miss, annealed and burnt in; those of a row side by side."""
    gone = set(missing)
    clamped = {
        name: codes[:, i].repeat_interleave(num_chains) for i, name in enumerate(model.domain.names) if name not in gone
    }
    chains = GibbsChains(model, len(codes) * num_chains, clamped=clamped, seed=seed)
    chains.anneal(torch.linspace(0, 1, gibbs.num_temperatures + 1, dtype=torch.float64))
    chains.sweep(gibbs.burn_in)
    return chains
