"""Hypothesis strategies for random domains, hypergraphs, parameters and models, edge cases included."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.testing import SCALES, random_tables

_SHAPES = ("any", "empty", "main effects", "pairs", "saturated", "disconnected", "chain", "cycle")


@dataclass(frozen=True)
class RandomModel:
    r"""A hypergraph with tables and the scale they were drawn at.

    Attributes:
        hypergraph: the interactions.
        tables: balanced tables (\*batch, num_terms), float64.
        scale: standard deviation of the entries before centring, in nats.
    """

    hypergraph: InteractionHypergraph
    tables: torch.Tensor
    scale: float


def domains(
    *, min_variables: int = 1, max_variables: int = 5, max_cardinality: int = 4, max_states: int = 256
) -> SearchStrategy[Domain]:
    """Domains of nominal variables named a, b, c, ...; later variables are cut to fit ``max_states`` joint states."""

    def build(sizes: list[int]) -> Domain:
        room, kept = max_states, {}
        for name, size in zip("abcdefghijklmnopqrstuvwxyz", sizes, strict=False):
            kept[name] = max(1, min(size, room))
            room //= kept[name]
        return Domain.from_cardinalities(kept)

    return st.lists(st.integers(1, max_cardinality), min_size=min_variables, max_size=max_variables).map(build)


def hypergraphs(
    *, domain: SearchStrategy[Domain] | None = None, hierarchical: bool = True
) -> SearchStrategy[InteractionHypergraph]:
    """Hypergraphs of many shapes: empty, main effects, pairs, saturated, disconnected, chain, cycle and arbitrary.

    Closed if ``hierarchical``, else they may have holes; arbitrary ones have up to 5 sets of up to 4 names.

    Example:
        >>> from hypothesis import given, settings
        >>> @settings(max_examples=5, derandomize=True, database=None)
        ... @given(hypergraphs())
        ... def keeps_subsets(graph):
        ...     assert all(edge[1:] in graph.edges for edge in graph.edges if len(edge) > 1)
        >>> keeps_subsets()
    """

    @st.composite
    def build(draw: Any) -> InteractionHypergraph:
        schema = draw(domains() if domain is None else domain)
        names = list(schema.names)
        shape = draw(st.sampled_from(_SHAPES))
        if not names or shape == "empty":
            edges: list[Sequence[str]] = []
        elif shape == "main effects":
            edges = [[name] for name in names]
        elif shape == "pairs":
            edges = [[a, b] for i, a in enumerate(names) for b in names[i + 1 :]] or [names]
        elif shape == "saturated":
            edges = [names]
        elif shape == "disconnected":
            cut = draw(st.integers(0, len(names)))
            edges = [part for part in (names[:cut], names[cut:]) if part]
        elif shape in ("chain", "cycle"):
            edges = [list(pair) for pair in pairwise(names)] or [names]
            if shape == "cycle" and len(names) > 2:
                edges.append([names[0], names[-1]])
        else:
            members = st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True)
            edges = draw(st.lists(members, max_size=5))
        closure = hierarchical or draw(st.booleans())
        return InteractionHypergraph(schema, edges, closure=closure, hierarchical=closure)

    return build()


def models(
    *,
    hypergraph: SearchStrategy[InteractionHypergraph] | None = None,
    scales: Sequence[float] = SCALES,
    batch_shape: Sequence[int] = (),
) -> SearchStrategy[RandomModel]:
    r"""Hypergraphs with normal balanced tables (\*batch_shape, num_terms) at one of the ``scales``, in nats."""

    @st.composite
    def build(draw: Any) -> RandomModel:
        graph = draw(hypergraphs() if hypergraph is None else hypergraph)
        scale = draw(st.sampled_from(tuple(scales)))
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        return RandomModel(
            graph, torch.as_tensor(random_tables(graph, rng, scale=scale, batch_shape=batch_shape)), scale
        )

    return build()


@st.composite
def coded_rows(
    draw: Any, *, missing: bool = False, min_rows: int = 0
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Codes of up to twelve rows of up to four variables, with whole counts and the numbers of levels."""
    cardinalities = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    row = st.tuples(*(st.integers(-1 if missing else 0, n - 1) for n in cardinalities))
    rows = draw(st.lists(row, min_size=min_rows, max_size=12))
    counts = draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    codes = np.array(rows, dtype=np.int64).reshape(len(rows), len(cardinalities))
    return codes, np.array(counts, dtype=float), tuple(cardinalities)


def counted(codes: np.ndarray, counts: np.ndarray) -> Counter[tuple[int, ...]]:
    """Total count of each distinct row, by a dictionary."""
    total = Counter[tuple[int, ...]]()
    for row, count in zip(codes.tolist(), counts.tolist(), strict=True):
        total[tuple(row)] += count
    return +total
