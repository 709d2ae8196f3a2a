"""What the possible states of a table determine of the parameters of its family."""

from collections.abc import Callable

import numpy as np
import torch

from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..coding import parametrization
from ..impossible import ImpossibleStates, on_support
from ..restricted.terms import Interactions, RestrictedInteractions, graph_of
from ..sandwich import backend_hessian
from .design import design_matrix
from .existence import cells_outside, identified_directions

_MAX_RANK_PARAMETERS, _MAX_RANK_FLOPS = 600, 2**29  # of a matrix that is made by as many backward passes
_RANK_TOLERANCE = 1e-9
_UNMOVED = 1e-9  # of functions of theta whose parts are random numbers of size one


def has_rank(graph: InteractionHypergraph, states: ImpossibleStates | None) -> bool:
    """Whether it is a matter of seconds what a table beside impossible states identifies."""
    cost = on_support(Auto(), states).plan(graph)
    size = graph.num_parameters
    return size <= _MAX_RANK_PARAMETERS and cost.feasible and cost.flops * size <= _MAX_RANK_FLOPS


def identified_outside(
    graph: InteractionHypergraph,
    states: ImpossibleStates | None,
    design: np.ndarray | None,
    restriction: RestrictedInteractions | None = None,
    is_countable: bool | None = None,
) -> torch.Tensor | None:
    """Basis (num_parameters, rank) of what tables without some states identify; None for all.

    Of a large table without a list of cells it is what the uniform law on the others identifies; with more than 600
    parameters, or where log Z of so many takes seconds, it is not computed, and all count.

    Args:
        graph: the collection.
        states: what is impossible; None for nothing.
        design: rows of the cells of a listed table (num_states, num_parameters).
        restriction: of theta to a subspace.
        is_countable: whether seconds suffice for a table that is not listed; found out when None.
    """
    space = None if restriction is None else restriction.basis
    if is_countable is None:
        is_countable = design is not None or has_rank(graph, states)
    if states is None or not (design is not None or is_countable):
        return None if space is None else torch.from_numpy(space)
    if design is not None:
        return torch.from_numpy(np.ascontiguousarray(identified_directions(design, cells_outside(states), space)))
    theta = torch.zeros(graph.num_parameters, dtype=torch.float64)
    gram = backend_hessian(graph, theta, on_support(Auto(), states))
    within = torch.eye(len(gram), dtype=torch.float64) if space is None else torch.from_numpy(space)
    values, vectors = torch.linalg.eigh(within.T @ gram @ within)
    return within @ vectors[:, values > _RANK_TOLERANCE * values.max()]


def num_identified(interactions: Interactions, states: ImpossibleStates | None, is_listed: bool) -> int:
    """Free parameters that tables with the possible cells identify, as fits count them that list their cells or not."""
    if states is None:
        return interactions.num_parameters
    restriction = interactions if isinstance(interactions, RestrictedInteractions) else None
    graph = graph_of(interactions)
    basis = identified_outside(graph, states, design_matrix(graph) if is_listed else None, restriction)
    return interactions.num_parameters if basis is None else basis.shape[1]


def allowed(directions: torch.Tensor, restriction: RestrictedInteractions | None) -> torch.Tensor:
    """Directions (*batch, num_parameters) without what a restriction keeps theta from, which needs no data."""
    if restriction is None:
        return directions
    space = torch.from_numpy(restriction.basis)
    return (directions @ space) @ space.T


def is_within(
    contrasts: torch.Tensor, basis: torch.Tensor | None, restriction: RestrictedInteractions | None
) -> torch.Tensor:
    """Which functions a basis (num_parameters, rank) holds, as far as theta can move; all where there is none."""
    if basis is None:
        return torch.ones(len(contrasts), dtype=torch.bool)
    scale = 1e-7 * contrasts.norm(dim=1).clamp(min=1e-300)
    contrasts = allowed(contrasts, restriction)
    return (contrasts - (contrasts @ basis) @ basis.T).norm(dim=1) <= scale


def are_possible_comparisons(
    graph: InteractionHypergraph,
    states: ImpossibleStates | None,
    design: np.ndarray | None,
    restriction: RestrictedInteractions | None,
    functions: Callable[[torch.Tensor], torch.Tensor],
    basis: Callable[[], torch.Tensor | None] | None = None,
    is_countable: bool | None = None,
) -> torch.Tensor:
    """Whether possible states determine linear functions of theta, (num_parameters,) to (k,) and batched; (k,).

    Others compare what is declared impossible: no rows can tell them, and what a penalty makes of them says nothing
    of the law. A large table is judged by its declared combinations alone: False is certain there.

    Args:
        graph: the collection.
        states: what is impossible; None for nothing.
        design: rows of the cells of a listed table (num_states, num_parameters).
        restriction: of theta to a subspace.
        functions: those in question.
        basis: gives what the possible states identify, where it is at hand; computed when None.
        is_countable: whether seconds suffice for what they identify; found out when None.
    """
    if states is not None and is_countable is None:
        is_countable = design is not None or has_rank(graph, states)
    if states is not None and is_countable:
        space = identified_outside(graph, states, design, restriction, True) if basis is None else basis()
        units = torch.eye(graph.num_parameters, dtype=torch.float64)
        return is_within(functions(units).T.contiguous(), space, restriction)
    # Entries of declared combinations are free; what moves with random ones of them is not determined.
    theta = torch.zeros(graph.num_parameters, dtype=torch.float64)
    if states is not None and graph.is_hierarchical:
        noise = torch.randn(graph.num_terms, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        theta = parametrization(graph).from_tables(noise * states.entries_of(graph))
    return functions(allowed(theta, restriction)).abs() <= _UNMOVED
