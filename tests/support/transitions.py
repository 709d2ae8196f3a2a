"""Transition matrices of Gibbs sweeps by enumeration, in plain NumPy: the oracle that samplers are held to.

Nothing here shares code with :mod:`pyro_hoim.log_linear.chains`; of a hypergraph only the domain and the edges are
read, and tables are in nats, without a batch. A matrix has one row and one column per joint state, in the order of
:func:`~pyro_hoim.testing.enumerate_codes`, so keep to a few hundred states. Compare the law of a sampler after one
sweep from a fixed state with a row: a sampler can leave the target invariant and still be another one than was
asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyro_hoim.checks import check_exact_shape
from pyro_hoim.testing.oracles import Tables, as_array, enumerate_codes, exact_table, split_tables

if TYPE_CHECKING:
    from pyro_hoim.structure.hypergraph import InteractionHypergraph


def _log_weights(hypergraph: InteractionHypergraph, tables: Any, beta: float, reference: Any) -> np.ndarray:
    """Log of the unnormalised target at beta, one entry per joint state."""
    cardinalities = hypergraph.domain.cardinalities
    target = exact_table(hypergraph, tables, normalised=False).reshape(-1)
    if reference is None:
        return beta * target
    weights = as_array(reference)
    check_exact_shape(weights, (sum(cardinalities),), "reference")
    starts = np.concatenate([[0], np.cumsum(cardinalities)[:-1]]).astype(np.int64)[: len(cardinalities)]
    return beta * target + (1 - beta) * weights[enumerate_codes(cardinalities) + starts].sum(1)


def slice_states(hypergraph: InteractionHypergraph, clamped: Mapping[str, int]) -> np.ndarray:
    """Positions of the joint states in which the clamped variables, by name, have the given codes; int64, rising.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 3}))
        >>> slice_states(graph, {"b": 2}).tolist()  # (0, 2) and (1, 2)
        [2, 5]
    """
    codes = enumerate_codes(hypergraph.domain.cardinalities)
    agree = np.ones(len(codes), dtype=bool)
    for name, code in clamped.items():
        agree &= codes[:, hypergraph.domain.names.index(name)] == code
    return np.flatnonzero(agree)


def tempered_law(
    hypergraph: InteractionHypergraph,
    tables: Any,
    *,
    beta: float = 1.0,
    reference: Any = None,
    clamped: Mapping[str, int] | None = None,
) -> np.ndarray:
    r"""Probability of every joint state (num_states,) between a product law and the model, given the clamped variables.

    .. math:: \log p_\beta(x) = \beta \sum_S \theta^S[x_S] + (1 - \beta) \sum_v r^v[x_v] - \log Z_\beta

    ``reference`` holds the log weights r of the product law, one variable after the other; zeros when None. States that
    disagree with ``clamped``, codes by name, have probability zero.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2}))
        >>> [tempered_law(graph, np.log([0.8, 0.2]), beta=beta).round(4).tolist() for beta in (0.0, 0.5, 1.0)]
        [[0.5, 0.5], [0.6667, 0.3333], [0.8, 0.2]]
    """
    weights = _log_weights(hypergraph, tables, beta, reference)
    kept = slice_states(hypergraph, clamped or {})
    law = np.zeros(len(weights))
    law[kept] = np.exp(weights[kept] - weights[kept].max())
    return law / law.sum()


def block_update_matrix(
    hypergraph: InteractionHypergraph, tables: Any, block: Sequence[str], *, beta: float = 1.0, reference: Any = None
) -> np.ndarray:
    r"""Transition matrix (num_states, num_states) of drawing one block of names from its exact conditional law.

    .. math:: P(x, y) = p_\beta(y) \,/ \sum_{y' : y'_{-B} = x_{-B}} p_\beta(y') \quad \text{if } y_{-B} = x_{-B}

    and 0 otherwise. The empty block gives the identity. ``reference``: see :func:`tempered_law`.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.from_formula(Domain.from_cardinalities({"a": 2, "b": 2}), "a*b")
        >>> tables = np.r_[np.zeros(4), np.log([0.4, 0.1, 0.2, 0.3])]
        >>> block_update_matrix(graph, tables, ["b"]).round(3).tolist()  # of b given a
        [[0.8, 0.2, 0.0, 0.0], [0.8, 0.2, 0.0, 0.0], [0.0, 0.0, 0.4, 0.6], [0.0, 0.0, 0.4, 0.6]]
    """
    names = hypergraph.domain.names
    weights = _log_weights(hypergraph, tables, beta, reference)
    codes = enumerate_codes(hypergraph.domain.cardinalities)
    others = [i for i, name in enumerate(names) if name not in set(block)]
    reachable = (codes[:, None, others] == codes[None, :, others]).all(-1)
    logs = np.where(reachable, weights, -np.inf)
    matrix = np.exp(logs - logs.max(axis=1, keepdims=True))
    return matrix / matrix.sum(axis=1, keepdims=True)


def sweep_matrix(
    hypergraph: InteractionHypergraph,
    tables: Any,
    visits: Sequence[Sequence[str]],
    *,
    beta: float = 1.0,
    reference: Any = None,
) -> np.ndarray:
    """Transition matrix of visits to blocks of names, one after the other: the product of their matrices.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.from_formula(Domain.from_cardinalities({"a": 2, "b": 2}), "a*b")
        >>> law = np.array([0.4, 0.1, 0.2, 0.3])
        >>> matrix = sweep_matrix(graph, np.r_[np.zeros(4), np.log(law)], [["a"], ["b"]])
        >>> (law @ matrix).round(6).tolist()  # the model's probabilities stay
        [0.4, 0.1, 0.2, 0.3]
    """
    matrix = np.eye(int(np.prod(hypergraph.domain.cardinalities, dtype=np.int64)))
    known: dict[frozenset[str], np.ndarray] = {}
    for block in visits:
        key = frozenset(block)
        if key not in known:
            known[key] = block_update_matrix(hypergraph, tables, block, beta=beta, reference=reference)
        matrix = matrix @ known[key]
    return matrix


def random_scan_matrix(
    hypergraph: InteractionHypergraph,
    tables: Any,
    blocks: Sequence[Sequence[str]],
    *,
    probabilities: Sequence[float] | None = None,
    beta: float = 1.0,
    reference: Any = None,
) -> np.ndarray:
    """Transition matrix of as many visits as blocks, to blocks drawn independently, averaged over draws.

    ``probabilities`` are those of the blocks at each visit; equal when None.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> random_scan_matrix(graph, np.zeros(8), [["a"], ["b"]])[0].tolist()  # of four orders two visit both
        [0.375, 0.25, 0.25, 0.125]
    """
    shares = np.full(len(blocks), 1 / max(1, len(blocks))) if probabilities is None else np.asarray(probabilities)
    average = np.zeros((1, 1))
    for share, block in zip(shares, blocks, strict=True):
        average = average + share * block_update_matrix(hypergraph, tables, block, beta=beta, reference=reference)
    if not len(blocks):
        return sweep_matrix(hypergraph, tables, [])
    return np.linalg.matrix_power(average, len(blocks))


def recompute_energy(hypergraph: InteractionHypergraph, tables: Any, codes: Any) -> np.ndarray:
    """Energies (...,) in nats of states (..., d) by looking up every table: what a cached energy must equal.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> recompute_energy(graph, [0.1, -0.1, 0.2, -0.2, 0.5, -0.5, -0.5, 0.5], [[0, 0], [1, 0]]).round(3).tolist()
        [-0.8, 0.4]
    """
    states = as_array(codes, np.int64)
    energy = np.zeros(states.shape[:-1])
    for table, edge in zip(split_tables(hypergraph, tables).values(), hypergraph.edge_indices, strict=True):
        energy -= table[tuple(states[..., i] for i in edge)]
    return energy


def recompute_counts(hypergraph: InteractionHypergraph, codes: Any, weights: Any = None) -> np.ndarray:
    """Sum of the weights (1 when None) of the states (..., d) in every cell of every edge, in the flat layout.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> recompute_counts(graph, [[0, 1], [1, 1], [0, 1]]).tolist()  # of a, of b, of both
        [2.0, 1.0, 0.0, 3.0, 0.0, 2.0, 0.0, 1.0]
    """
    states = as_array(codes, np.int64)
    share = np.ones(states.shape[:-1]) if weights is None else np.asarray(weights, dtype=np.float64)
    total = np.zeros(hypergraph.num_terms)
    start = 0
    for edge, shape in zip(hypergraph.edge_indices, hypergraph.edge_shapes, strict=True):
        cells = np.ravel_multi_index(tuple(states[..., i].reshape(-1) for i in edge), shape)
        size = int(np.prod(shape))
        total[start : start + size] = np.bincount(cells, weights=share.reshape(-1), minlength=size)
        start += size
    return total


def join_tables(hypergraph: InteractionHypergraph, tables: Tables) -> np.ndarray:
    r"""Flat layout (\*batch, num_terms) of tables given by hyperedge, inverse of :func:`split_tables`.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> flat = np.arange(8.0)
        >>> join_tables(graph, split_tables(graph, flat)).tolist() == flat.tolist()
        True
    """
    parts = split_tables(hypergraph, tables)
    flat = [
        part.reshape((*part.shape[: part.ndim - len(shape)], -1))
        for part, shape in zip(parts.values(), hypergraph.edge_shapes, strict=True)
    ]
    return np.concatenate(flat, axis=-1) if flat else np.zeros(0)
