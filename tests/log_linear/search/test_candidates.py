"""Candidates under heredity: hand-made collections, brute force over the power set, sizes that forbid enumeration."""

import itertools
import time

import pytest
from hypothesis import given, strategies as st

from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.log_linear import CandidatePool
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

DOMAIN = Domain.from_cardinalities(dict.fromkeys("abcd", 2))
HEREDITIES = (0.3, 0.5, 2 / 3, 1.0, "semi-strong")


def sets(text):
    return tuple(tuple(word) for word in text.split())


def collection(text, domain=DOMAIN):
    return InteractionHypergraph(domain, sets(text), hierarchical=False)


def next_available(hypergraph, heredity, **options):
    pool = CandidatePool(hypergraph.domain, heredity, **options)
    pool.add(hypergraph.edges)
    return pool.available()


def by_power_set(hypergraph, heredity, max_order=None):
    """Algorithm 2, NEXTAVAILABLEINTERACTIONS, as printed but for >= in place of >; the empty set is selected."""
    selected = {frozenset(), *map(frozenset, hypergraph.edges)}
    found = []
    names = hypergraph.domain.names
    for size in range(1, (max_order or len(names)) + 1):
        for edge in itertools.combinations(names, size):
            present = sum(frozenset(edge) - {name} in selected for name in edge)
            passes = present >= size - 1 if heredity == "semi-strong" else present / size >= heredity - 1e-12
            if passes and frozenset(edge) not in selected:
                found.append(edge)
    return tuple(found)


@pytest.mark.parametrize(
    ("present", "heredity", "expected"),
    [
        ("", 1.0, "a b c d"),
        ("a", 0.3, "b c d ab ac ad"),
        ("a", 1.0, "b c d"),
        ("a", "semi-strong", "b c d ab ac ad"),
        ("a b c d", 1.0, "ab ac ad bc bd cd"),
        ("a b c d ab", 0.3, "ac ad bc bd cd abc abd"),  # one of three pairs passes 30 %
        ("a b c d ab", 0.5, "ac ad bc bd cd"),
        ("a b c d ab ac", 0.5, "ad bc bd cd abc"),  # two of three pass 50 % and semi-strong, not 100 %
        ("a b c d ab ac", "semi-strong", "ad bc bd cd abc"),
        ("a b c d ab ac", 1.0, "ad bc bd cd"),
        ("a b c d ab ac bc", 1.0, "ad bd cd abc"),
        ("a b c d ab abc", 0.3, "ac ad bc bd cd abd"),  # not downward closed; one of four triples is 25 %
        ("a b c d ab abc abd", 0.3, "ac ad bc bd cd abcd"),
        ("a b c d ab abc abd", "semi-strong", "ac ad bc bd cd"),
        ("a b c d ab abc abd acd", "semi-strong", "ac ad bc bd cd abcd"),
    ],
)
def test_hand_made_collections(present, heredity, expected):
    assert next_available(collection(present), heredity) == sets(expected)


@given(
    st.sets(st.sampled_from([e for k in range(1, 5) for e in itertools.combinations("abcd", k)])),
    st.sampled_from(HEREDITIES),
    st.sampled_from([None, 1, 2, 3]),
)
def test_equals_the_power_set(edges, heredity, max_order):
    hypergraph = InteractionHypergraph(DOMAIN, edges, hierarchical=False)
    assert next_available(hypergraph, heredity, max_order=max_order) == by_power_set(hypergraph, heredity, max_order)


@given(st.lists(st.sampled_from([e for k in range(1, 5) for e in itertools.combinations("abcd", k)]), max_size=12))
def test_growing_equals_starting_anew(added):
    pool = CandidatePool(DOMAIN, 0.5)
    for edge in added:
        pool.add([edge])
    assert pool.available() == next_available(InteractionHypergraph(DOMAIN, set(added), hierarchical=False), 0.5)


def test_variables_of_one_level_are_never_in_a_candidate():
    domain = Domain.from_cardinalities({"a": 2, "b": 1, "c": 3})
    hypergraph = InteractionHypergraph.from_order(domain, 1)
    assert next_available(hypergraph, 0.3) == (("a", "c"),)
    assert next_available(hypergraph, None, allowed=[("a", "b"), ("a", "c")]) == (("a", "c"),)


def test_given_sets_restrict_with_and_without_heredity():
    hypergraph = collection("a b c d ab")
    known = sets("abc bcd da")  # the order of names is of no account
    assert next_available(hypergraph, 0.3, allowed=known) == sets("ad abc")
    assert next_available(hypergraph, None, allowed=known) == sets("ad abc bcd")
    assert next_available(hypergraph, 0.3, allowed=[]) == ()


def test_five_hundred_variables_take_seconds():
    domain = Domain.from_cardinalities([2] * 500)
    start = time.process_time()
    pool = CandidatePool(domain, 0.3, max_order=3)
    pool.add((name,) for name in domain.names)
    pairs = pool.available()
    pool.add(pairs[:: len(pairs) // 300])
    triples = [edge for edge in pool.available() if len(edge) == 3]
    assert len(pairs) == 124_750
    assert 100_000 < len(triples) <= 301 * 498
    assert time.process_time() - start < 10


@pytest.mark.parametrize("heredity", [0, -0.1, 1.01, float("nan"), True, "strong", None])
def test_bad_heredity(heredity):
    with pytest.raises(InputError, match="heredity: expected"):
        CandidatePool(DOMAIN, heredity)


def test_bad_arguments():
    for options, code, argument in (
        ({"max_order": 0}, "out-of-range", "max_order"),
        ({"max_order": 2.0}, "wrong-type", "max_order"),
        ({"allowed": [("a", "z")]}, "unknown-name", None),
    ):
        with raises(code, argument):
            CandidatePool(DOMAIN, 0.3, **options)
    with pytest.raises(InputTypeError, match=r"received the string 'ab'; write \('ab',\)"):
        CandidatePool(DOMAIN, 0.3, allowed=["ab"])
    with pytest.raises(InputError, match="empty set"):
        CandidatePool(DOMAIN, 0.3, allowed=[()])
