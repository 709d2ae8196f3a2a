"""Laws of candidates under the present model that the data are held against."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ...core.trainer import Trainer
from ...structure.hypergraph import Edge, InteractionHypergraph

_PSEUDO_COUNT = 0.5
_MAX_CYCLES = 50
_TOLERANCE = 1e-6


def reference_laws(
    sets: Sequence[Edge], num_candidates: int, trainer: Trainer, counts: np.ndarray, total: float
) -> tuple[np.ndarray, np.ndarray]:
    """Laws of the candidates and of further sets after them, flat, and their sizes."""
    domain = trainer.rows.domain
    present = set(trainer.hypergraph.edge_indices)
    margins = trainer.margins(sets)
    flat = margins.probs.numpy().astype(np.float64, copy=True)
    indices = [tuple(sorted(domain.indices(edge))) for edge in sets]
    shapes = [tuple(domain.cardinalities[i] for i in edge) for edge in indices]
    sizes = np.array([math.prod(shape) for shape in shapes], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    is_estimated = math.isfinite(margins.sample_size)
    groups: dict[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], list[int]] = defaultdict(list)
    for number, (edge, shape) in enumerate(zip(indices, shapes, strict=True)):
        facets = _facets(edge, present) if number < num_candidates else ()
        if facets or is_estimated:
            groups[shape, facets].append(number)
    for (shape, facets), members in groups.items():
        cells = starts[members][:, None] + np.arange(math.prod(shape))
        data = counts[cells].reshape(-1, *shape) / total
        laws = flat[cells].reshape(-1, *shape)
        if is_estimated:
            laws = _smoothed(laws, data, margins.sample_size)
        flat[cells] = _fitted(laws, data, facets).reshape(len(members), -1)
    return flat, sizes


def closed_supersets(candidates: Sequence[Edge], hypergraph: InteractionHypergraph) -> list[tuple[int, Edge]]:
    """Pairs of a candidate, by number, and a set of the collection of which it is the only subset that is missing."""
    names = hypergraph.domain.names
    present = set(hypergraph.edge_indices)
    closed: dict[tuple[int, ...], list[Edge]] = defaultdict(list)
    for edge in hypergraph.edge_indices:
        parts = itertools.chain.from_iterable(itertools.combinations(edge, size) for size in range(1, len(edge)))
        missing = list(itertools.islice((part for part in parts if part not in present), 2))
        if len(missing) == 1:
            closed[missing[0]].append(tuple(names[i] for i in edge))
    sets = [tuple(sorted(hypergraph.domain.indices(edge))) for edge in candidates]
    return [(number, larger) for number, edge in enumerate(sets) for larger in closed.get(edge, ())]


def _facets(edge: tuple[int, ...], present: set[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Axes of the facets of an edge if one of its non-empty proper subsets is not present, else nothing."""
    sizes = range(1, len(edge))
    if all(part in present for size in sizes for part in itertools.combinations(edge, size)):
        return ()
    return tuple(itertools.combinations(range(len(edge)), len(edge) - 1))


def _sum_to(tables: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """Margins over some axes of tables (B, *shape), with axes of length one for the others."""
    gone = tuple(i + 1 for i in range(tables.ndim - 1) if i not in axes)
    return tables.sum(gone, keepdims=True)


def _smoothed(laws: np.ndarray, data: np.ndarray, sample_size: float) -> np.ndarray:
    """Estimated laws with half a pseudo-count like the mean of the data and the product of one-variable margins."""
    product = np.ones_like(laws)
    for axis in range(laws.ndim - 1):
        product = product * _sum_to(laws, (axis,))
    return (sample_size * laws + _PSEUDO_COUNT * (data + product) / 2) / (sample_size + _PSEUDO_COUNT)


def _fitted(laws: np.ndarray, data: np.ndarray, facets: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Laws fitted to the data's margins over the given axes by iterative proportional fitting."""
    targets = [(axes, _sum_to(data, axes)) for axes in facets]
    for _ in range(_MAX_CYCLES if facets else 0):
        change = 0.0
        for axes, target in targets:
            margin = _sum_to(laws, axes)
            change = max(change, float(np.abs(margin - target).max()))
            laws = laws * np.divide(target, margin, out=np.zeros_like(target), where=margin > 0)
        if change < _TOLERANCE:
            break
    return laws
