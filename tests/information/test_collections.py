"""The lattice of hierarchical collections: against enumeration of all sets of sets, and known counts."""

import itertools

import pytest

from pyro_hoim import Domain, InteractionHypergraph, IntractableError
from pyro_hoim.information import addable_edges, hierarchical_collections
from pyro_hoim.testing import raises


def binary(number):
    return Domain.from_cardinalities([2] * number)


def brute_force(number):
    """All families of non-empty subsets of a small set that hold every non-empty subset of their members."""
    sets = [s for k in range(1, number + 1) for s in itertools.combinations(range(number), k)]
    place = {s: i for i, s in enumerate(sets)}
    below = [sum(1 << place[f] for f in itertools.combinations(s, len(s) - 1) if f) for s in sets]
    found = set()
    for family in range(2 ** len(sets)):
        members = [i for i in range(len(sets)) if family >> i & 1]
        if all(below[i] & ~family == 0 for i in members):
            found.add(frozenset(sets[i] for i in members))
    return found


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_collections_are_those_of_brute_force(number):
    found = hierarchical_collections(binary(number))
    assert {frozenset(h.edge_indices) for h in found} == brute_force(number)
    assert len(set(found)) == len(found)
    assert [len(h) for h in found] == sorted(len(h) for h in found)
    assert all(h.is_hierarchical for h in found)


def test_counts_are_the_dedekind_numbers_less_one():
    dedekind = [2, 3, 6, 20, 168, 7581]  # monotone Boolean functions of 0 ... 5 variables
    assert [len(hierarchical_collections(binary(d))) for d in range(6)] == [n - 1 for n in dedekind]


@pytest.mark.parametrize(("number", "arrows"), [(1, 1), (2, 5), (3, 31), (4, 453)])
def test_addable_edges_lead_from_collection_to_collection(number, arrows):
    everything = brute_force(number)
    expected = sum(
        len(larger) == len(smaller) + 1 and smaller < larger for smaller in everything for larger in everything
    )
    found = hierarchical_collections(binary(number))
    assert sum(len(addable_edges(h)) for h in found) == expected == arrows
    for hypergraph in found:
        for edge in addable_edges(hypergraph):
            assert hypergraph.add_edges([edge]) in found
        for edge in set(InteractionHypergraph.saturated(hypergraph.domain).edges) - set(addable_edges(hypergraph)):
            enlarged = hypergraph.add_edges([edge], hierarchical=False)
            assert enlarged == hypergraph or not enlarged.is_hierarchical


def test_number_of_chains_of_four_variables_by_counting_paths():
    paths = {}
    for hypergraph in reversed(hierarchical_collections(binary(4))):
        added = addable_edges(hypergraph)
        paths[hypergraph] = sum(paths[hypergraph.add_edges([edge])] for edge in added) if added else 1
    assert paths[InteractionHypergraph(binary(4))] == 1_680_384


def test_bad_input_is_refused():
    with pytest.raises(IntractableError, match="7,828,353"):
        hierarchical_collections(binary(6))
    with raises("wrong-type", "domain"):
        hierarchical_collections(3)
    with raises("wrong-type", "hypergraph"):
        addable_edges(binary(2))
