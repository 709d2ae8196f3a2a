"""Brute force over every joint state, in plain NumPy: the oracle that exact backends and distributions are held to.

Nothing here shares code with :mod:`pyro_hoim.log_linear.exact` or :mod:`pyro_hoim.core`; of a hypergraph only domain
and edges are read. Keep the state space small (thousands of states, not millions).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import check_shape
from ..errors import out_of_range, unexpected

if TYPE_CHECKING:
    from ..structure.hypergraph import InteractionHypergraph

Tables = Mapping[tuple[str, ...], Any]


def as_array(values: Any, dtype: Any = np.float64) -> np.ndarray:
    """NumPy array of a tensor or array."""
    detach = getattr(values, "detach", None)
    return np.asarray(detach().cpu().numpy() if detach is not None else values, dtype=dtype)


def enumerate_codes(cardinalities: Sequence[int]) -> np.ndarray:
    """All joint states (num_states, d) int64 in row-major order (the last variable varies fastest).

    Example:
        >>> enumerate_codes([2, 3]).tolist()
        [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    """
    sizes = tuple(int(n) for n in cardinalities)
    return np.indices(sizes, dtype=np.int64).reshape(len(sizes), math.prod(sizes)).T.copy()


def count_states(states: Any, cardinalities: Sequence[int]) -> np.ndarray:
    """Number of draws (num_states,) in each joint state, of states (..., d); others are refused.

    Example:
        >>> count_states([[0, 1], [1, 1], [0, 1]], [2, 2]).tolist()
        [0, 2, 0, 1]
    """
    sizes = tuple(int(n) for n in cardinalities)
    codes = as_array(states)
    check_shape(codes, (len(sizes),), "states")
    rows = codes.reshape(math.prod(codes.shape[:-1]), len(sizes))
    flat = rows.astype(np.int64)
    if (flat != rows).any() or (flat < 0).any() or (flat >= np.array(sizes)).any():
        raise out_of_range("states", f"integer codes below the cardinalities {sizes}", received="others")
    if not sizes:
        return np.array([flat.shape[0]], dtype=np.int64)
    index = np.ravel_multi_index(tuple(flat.T), sizes)
    return np.bincount(index, minlength=math.prod(sizes)).astype(np.int64)


def split_tables(hypergraph: InteractionHypergraph, tables: Any) -> dict[tuple[str, ...], np.ndarray]:
    r"""Interaction tables (\*batch, \*edge shape) by hyperedge, from the flat layout or a mapping.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> split_tables(graph, np.arange(8.0))["a", "b"].tolist()
        [[4.0, 5.0], [6.0, 7.0]]
    """
    edges = [tuple(edge) for edge in hypergraph.edges]
    shapes = [tuple(shape) for shape in hypergraph.edge_shapes]
    # By edge as they are, or cut out of the flat layout.
    if isinstance(tables, Mapping):
        if set(map(tuple, tables)) != set(edges):
            raise unexpected("tables", f"one table for each of {edges}", received=list(tables), code="other-domain")
        result = {edge: as_array(tables[edge]) for edge in edges}
        for edge, shape in zip(edges, shapes, strict=True):
            received = result[edge].shape
            if received[len(received) - len(shape) :] != shape:
                raise unexpected(f"tables[{edge}]", f"shape (..., {shape})", received=received, code="wrong-shape")
        return result
    flat = as_array(tables)
    sizes = [math.prod(shape) for shape in shapes]
    check_shape(flat, (sum(sizes),), "tables")
    starts = np.cumsum([0, *sizes])
    return {
        edge: flat[..., start : start + size].reshape(flat.shape[:-1] + shape)
        for edge, shape, size, start in zip(edges, shapes, sizes, starts[:-1], strict=True)
    }


def random_tables(
    hypergraph: InteractionHypergraph,
    rng: np.random.Generator,
    *,
    scale: float = 1.0,
    batch_shape: Sequence[int] = (),
    balanced: bool = True,
) -> np.ndarray:
    r"""Normal interaction tables (\*batch_shape, num_terms), centred along every axis when ``balanced`` (paper 1, 21).

    ``scale`` is the standard deviation before centring, in nats.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> tables = split_tables(graph, random_tables(graph, np.random.default_rng(0)))
        >>> tables["a", "b"].sum(0).round(12).tolist()  # balanced
        [0.0, 0.0]
    """
    tables = [np.zeros((*batch_shape, 0))]
    for shape in hypergraph.edge_shapes:
        table = scale * rng.standard_normal((*batch_shape, *shape))
        if balanced:
            for axis in range(len(batch_shape), table.ndim):
                table = table - table.mean(axis=axis, keepdims=True)
        tables.append(table.reshape(*batch_shape, -1))
    return np.concatenate(tables, axis=-1)


def exact_table(hypergraph: InteractionHypergraph, tables: Any, *, normalised: bool = True) -> np.ndarray:
    r"""Log-probability of every joint state (\*batch, \*cardinalities), by broadcasting each table over the full array.

    .. math:: \log q(x) = \sum_S \theta^S[x_S] - \log \sum_{x'} \exp \sum_S \theta^S[x'_S]

    Of any tables in nats, flat or by hyperedge, balanced or not; not ``normalised`` it is minus the energy.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph(Domain.from_cardinalities([2]), [["x0"]])
        >>> np.exp(exact_table(graph, [np.log(3.0) / 2, -np.log(3.0) / 2])).round(6).tolist()
        [0.75, 0.25]
    """
    cardinalities = tuple(hypergraph.domain.cardinalities)
    d = len(cardinalities)
    # The batch of all tables together.
    parts = split_tables(hypergraph, tables)
    if parts:
        batch = np.broadcast_shapes(
            *(
                part.shape[: part.ndim - len(shape)]
                for part, shape in zip(parts.values(), hypergraph.edge_shapes, strict=True)
            )
        )
    else:
        batch = () if isinstance(tables, Mapping) else as_array(tables).shape[:-1]
    # Each table broadcast along the variables that it does not have.
    total = np.zeros(batch + cardinalities)
    for part, positions in zip(parts.values(), hypergraph.edge_indices, strict=True):
        lead = part.shape[: part.ndim - len(positions)]
        shape = [1] * d
        for position in positions:
            shape[position] = cardinalities[position]
        total = total + part.reshape(lead + tuple(shape))
    if not normalised:
        return total
    return total - log_sum_exp(total, d).reshape(batch + (1,) * d)


def exact_log_partition(hypergraph: InteractionHypergraph, tables: Any) -> np.ndarray:
    r"""Log of the sum over all joint states of exp(sum of the tables), in nats; shape (\*batch).

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> round(float(exact_log_partition(graph, np.zeros(8))), 6)  # log 4
        1.386294
    """
    return log_sum_exp(exact_table(hypergraph, tables, normalised=False), len(hypergraph.domain.cardinalities))


def exact_statistics(hypergraph: InteractionHypergraph, log_probs: Any) -> np.ndarray:
    r"""Mean coordinates eta (\*batch, num_terms) of normalised log-probabilities (\*batch, \*cardinalities).

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> exact_statistics(graph, np.log([[0.4, 0.1], [0.2, 0.3]])).round(3).tolist()
        [0.5, 0.5, 0.6, 0.4, 0.4, 0.1, 0.2, 0.3]
    """
    values = np.exp(as_array(log_probs))
    d = len(hypergraph.domain.cardinalities)
    batch = values.shape[: values.ndim - d]
    parts = []
    for positions in hypergraph.edge_indices:
        others = tuple(len(batch) + i for i in range(d) if i not in positions)
        parts.append(values.sum(axis=others).reshape((*batch, -1)))
    return np.concatenate(parts, axis=-1) if parts else np.zeros((*batch, 0))


def exact_covariance(hypergraph: InteractionHypergraph, log_probs: Any) -> np.ndarray:
    """Covariance of the one-hot statistics of all interactions: the Hessian of log Z in the tables; no batch.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph(Domain.from_cardinalities([2]), [["x0"]])
        >>> exact_covariance(graph, np.log([0.8, 0.2])).round(3).tolist()
        [[0.16, -0.16], [-0.16, 0.16]]
    """
    cardinalities = tuple(hypergraph.domain.cardinalities)
    probs = np.exp(as_array(log_probs)).reshape(-1)
    codes = enumerate_codes(cardinalities)
    columns = []
    for positions, shape in zip(hypergraph.edge_indices, hypergraph.edge_shapes, strict=True):
        index = np.ravel_multi_index(tuple(codes[:, list(positions)].T), tuple(shape))
        columns.append(np.eye(math.prod(shape))[index])
    features = np.concatenate(columns, axis=1) if columns else np.zeros((len(probs), 0))
    mean = probs @ features
    return (features - mean).T @ (probs[:, None] * (features - mean))


def log_sum_exp(values: np.ndarray, num_axes: int) -> np.ndarray:
    """Log-sum-exp over the last ``num_axes`` axes."""
    flat = values.reshape(*values.shape[: values.ndim - num_axes], -1)
    top = flat.max(axis=-1, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)  # no state is possible
    with np.errstate(divide="ignore"):
        return np.log(np.exp(flat - top).sum(axis=-1)) + top[..., 0]
