"""What is asked for is counted before it is built: counts equal enumeration, refusals are quick, small and exact."""

import itertools
import math
import signal
import tracemalloc
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy, budgets
from pyro_hoim.budgets import num_entries, num_sets
from pyro_hoim.errors import IntractableError
from pyro_hoim.log_linear import ModelFile
from pyro_hoim.structure import formula, hypergraph

SIXTY = Domain.from_cardinalities([2] * 60)


@contextmanager
def refused(*says, megabytes=8):
    """An error with words, for which nothing large was made; the alarm is a net and no measurement."""
    signal.alarm(60)
    tracemalloc.start()
    try:
        with pytest.raises(IntractableError) as found:
            yield found
        assert tracemalloc.get_traced_memory()[1] < megabytes * 2**20
    finally:
        tracemalloc.stop()
        signal.alarm(0)
    assert all(word in str(found.value) for word in says), str(found.value)
    assert found.value.code == "over-budget" and found.value.hint


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), max_size=7), st.integers(0, 8), st.integers(0, 3))
def test_counts_are_those_of_a_list(sizes, largest, least):
    sets = [s for k in range(least, largest + 1) for s in itertools.combinations(sizes, k)]
    assert num_sets(len(sizes), largest, least) == len(sets)
    assert num_entries(sizes, largest, least) == sum(map(math.prod, sets))


def test_counts_of_a_collection_without_the_collection():
    cards = [2, 3, 2, 4, 5]
    for order in range(1, 6):
        graph = InteractionHypergraph.from_order(Domain.from_cardinalities(cards), order)
        assert num_sets(5, order) == len(graph)
        assert num_entries(cards, order) == graph.num_terms
        assert num_entries([n - 1 for n in cards], order) == graph.num_parameters


def test_counts_have_any_length():
    assert num_sets(60, 60) == 2**60 - 1 and num_entries([2] * 60, 60) == 3**60 - 1
    assert num_sets(10**6, 10**6) > 2**1023  # a lower bound, at once


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: InteractionHypergraph.from_order(SIXTY, 60), ("order: there are about 1.15e+18 sets", "4194304")),
        (lambda: InteractionHypergraph.saturated(SIXTY), ("edges: the closure", "about 1.15e+18 sets", "4194304")),
        (lambda: InteractionHypergraph(SIXTY, [SIXTY.names]).closure(), ("edges: the closure",)),
        (lambda: InteractionHypergraph.from_formula(SIXTY, "*".join(SIXTY.names)), ("about 1.15e+18 sets", "1048576")),
        (
            lambda: InteractionHypergraph.from_formula(SIXTY, f"({' + '.join(SIXTY.names)})^60"),
            ("about 1.15e+18 sets",),
        ),
        (lambda: InteractionHypergraph.from_formula(SIXTY, ".^60"), ("about 1.15e+18 sets",)),
    ],
)
def test_a_collection_is_refused_before_it_is_made(make, says):
    with refused(*says):
        make()


def test_products_of_equal_sets_have_a_budget_of_their_own(monkeypatch):
    monkeypatch.setattr(formula, "MAX_UNIONS", 27)
    domain = Domain.from_cardinalities([2] * 3)
    assert len(InteractionHypergraph.from_formula(domain, ".:.:.", hierarchical=False)) == 7
    with refused("its products take 48 unions of sets, the budget is 27"):
        InteractionHypergraph.from_formula(domain, ".:.:.:.")


def test_just_below_a_budget_collections_are_made(monkeypatch):
    domain = Domain.from_cardinalities([2] * 5)
    for module in (hypergraph, formula):
        for name in ("MAX_SETS", "MAX_FORMULA_SETS"):
            monkeypatch.setattr(module, name, 15, raising=False)
    assert len(InteractionHypergraph.from_order(domain, 2)) == 15
    assert len(InteractionHypergraph.saturated(domain.project(["x0", "x1", "x2", "x3"]))) == 15
    assert len(InteractionHypergraph.from_formula(domain, "x0*x1*x2*x3")) == 15
    assert len(InteractionHypergraph.from_formula(domain, ".^2")) == 15
    assert len(InteractionHypergraph.from_formula(domain, "x0*x1*x1*x2*x3")) == 15  # not by the product of lengths
    for make in (
        lambda: InteractionHypergraph.from_order(domain, 3),
        lambda: InteractionHypergraph.saturated(domain),
        lambda: InteractionHypergraph.from_formula(domain, ".^3"),
        lambda: InteractionHypergraph.from_formula(domain, "x0*x1*x2*x3*x4"),
        lambda: InteractionHypergraph.from_formula(domain, "x0*x1*x1*x2*x3*x4"),
        lambda: InteractionHypergraph(
            domain, itertools.chain(*(itertools.combinations(domain.names, k) for k in (2, 3)))
        ),
    ):
        with refused("the budget is 15"):
            make()


def test_tables_are_counted_before_they_are_made():
    domain = Domain.from_cardinalities([2] * 34)
    graph = InteractionHypergraph(domain, [domain.names], hierarchical=False)
    for make in (LogLinearEnergy.from_theta, ModelFile):
        with refused("interaction tables have 17179869184 entries", "134217728"):
            make(graph, torch.ones(1))
    levels = InteractionHypergraph.from_order(Domain.from_cardinalities([budgets.MAX_LEVELS + 1]), 1)
    with refused("variable 'x0': it has 8193 levels, the budget is 8192"):
        LogLinearEnergy.from_theta(levels, torch.ones(levels.num_parameters))
