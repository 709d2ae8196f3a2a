"""Structures that every test of the models runs over."""

import pytest

from pyro_hoim import Domain, InteractionHypergraph

CASES = {
    "empty domain": ([], [], True),
    "no edges": ([2, 3], [], True),
    "one variable": ([4], [[0]], True),
    "one state": ([1, 3, 2], [[0, 1], [1, 2], [0, 2]], True),
    "only one state": ([1, 1], [[0, 1]], True),
    "variable in no edge": ([2, 3, 2], [[0, 2]], True),
    "saturated": ([2, 3, 4], [[0, 1, 2]], True),
    "cycle": ([2, 3, 2, 3], [[0, 1], [1, 2], [2, 3], [0, 3]], True),
    "disconnected": ([3, 2, 2, 3], [[0, 1], [2, 3]], True),
    "binary pairs": ([2] * 5, [[i, j] for j in range(5) for i in range(j)], True),
    "triples": ([3, 2, 3, 2], [[0, 1, 2], [1, 2, 3]], True),
    "weak heredity": ([2, 3, 2], [[0], [0, 1], [0, 1, 2]], False),
}


def _build(case):
    cardinalities, edges, hierarchical = CASES[case]
    names = [[f"x{i}" for i in edge] for edge in edges]
    domain = Domain.from_cardinalities(cardinalities)
    return InteractionHypergraph(domain, names, closure=hierarchical, hierarchical=hierarchical)


@pytest.fixture(params=CASES)
def hypergraph(request):
    """Every structure, the last of which is not hierarchical."""
    return _build(request.param)


@pytest.fixture(params=[c for c in CASES if CASES[c][2]])
def hierarchical(request):
    """Every hierarchical structure."""
    return _build(request.param)
