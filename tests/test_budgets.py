"""What is asked for is counted before it is built: counts equal enumeration, refusals are quick, small and exact."""

import itertools
import math
import signal
import tracemalloc
from contextlib import contextmanager

import joblib
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyro_hoim import (
    Domain,
    GibbsChains,
    HierarchicalLogLinear,
    InteractionHypergraph,
    LogLinearEnergy,
    Observations,
    Variable,
    budgets,
    schema,
)
from pyro_hoim.boltzmann import MachineStructure, structure as machine
from pyro_hoim.budgets import num_entries, num_sets
from pyro_hoim.data import columns, readers
from pyro_hoim.dependency_network import learn_network
from pyro_hoim.errors import IntractableError
from pyro_hoim.generalized_root import RootStructure
from pyro_hoim.generalized_root.regress.options import search_space
from pyro_hoim.inference import NUTSSettings, posterior_predictive, prior_predictive
from pyro_hoim.log_linear import Enumeration, MatrixEnumeration, ModelFile, impute, normal_prior
from pyro_hoim.plots.hypergraph import circle_order
from pyro_hoim.runs.sampling import sample_chains
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
        (lambda: InteractionHypergraph.from_order(SIXTY, 60), ("order: there are about 1.15e+18 sets", "4,194,304")),
        (lambda: InteractionHypergraph.saturated(SIXTY), ("edges: the closure", "about 1.15e+18 sets", "4,194,304")),
        (lambda: InteractionHypergraph(SIXTY, [SIXTY.names]).closure(), ("edges: the closure",)),
        (
            lambda: InteractionHypergraph.from_formula(SIXTY, "*".join(SIXTY.names)),
            ("about 1.15e+18 sets", "1,048,576"),
        ),
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


def test_other_lists_are_counted_before_they_are_made():
    triples = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 30), 3)
    names = [f"x{i}" for i in range(501)]
    singles = InteractionHypergraph.from_order(Domain.from_cardinalities(dict.fromkeys(names, 2)), 1)
    counts = Domain(Variable(name, kind="count") for name in names)
    for make, says in (
        (lambda: Domain.from_cardinalities([10**12]), "cardinality of 'x0': it has 1,000,000,000,000 levels"),
        (triples.chain, "chain: the collections of the chain have 10,240,075 sets"),
        (lambda: circle_order(singles), "there are 501 variables on the circle"),
        (lambda: RootStructure.complete(counts, 60), "order: about"),
        (lambda: search_space(501, 6, {}, False, {}), "order: 2593739625 sets"),
        (lambda: MachineStructure.restricted(Domain.from_cardinalities([2] * 5), 10**6), "hidden: they have 5,000,000"),
        (lambda: MachineStructure.restricted(Domain.from_cardinalities([2] * 5), 10**12), "hidden: there are "),
        (lambda: MachineStructure.layered(Domain.from_cardinalities([2] * 2), 10**4, 10**4), "they have 100,020,000"),
    ):
        with refused(says):
            make()


def test_just_below_a_budget_other_lists_are_made(monkeypatch):
    monkeypatch.setattr(hypergraph, "MAX_SETS", 28)
    monkeypatch.setattr(machine, "MAX_SETS", 12)
    monkeypatch.setattr(schema, "MAX_LABELS", 5)
    domain = Domain.from_cardinalities([2] * 4)
    four = InteractionHypergraph.from_order(domain, 1)
    assert len(four.add_edges([("x0", "x1"), ("x0", "x2"), ("x0", "x3")]).chain()) == 8
    with refused("have 36 sets, more than the budget of 28"):
        four.add_edges([("x0", "x1"), ("x0", "x2"), ("x0", "x3"), ("x1", "x2")]).chain()
    assert MachineStructure.restricted(domain, 3).num_hidden == 3
    with refused("they have 16 edges, more than the budget of 12"):
        MachineStructure.restricted(domain, 4)
    assert len(Domain.from_cardinalities([5])["x0"].labels) == 5
    with refused("it has 6 levels, more than the budget of 5"):
        Domain.from_cardinalities([6])


def test_a_model_of_so_many_columns_that_python_prints_no_number_of_states_has_a_plan():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 20_000), 1)
    for backend in (MatrixEnumeration(), Enumeration()):
        assert not backend.plan(graph).feasible


def test_no_more_threads_than_columns_are_asked_for(monkeypatch):
    asked = []

    def parallel(n_jobs, **options):
        asked.append(n_jobs)
        return joblib.parallel.Parallel(n_jobs=1, **options)

    monkeypatch.setattr(joblib, "Parallel", parallel)
    rows = Observations.from_tensor(torch.arange(60).reshape(20, 3) % 7 % 2, Domain.from_cardinalities([2] * 3))
    learn_network(rows, jobs=250)
    assert asked == [3]


def test_draws_and_chains_are_counted_before_they_are_made():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 4), 2)
    law, energy = HierarchicalLogLinear(graph, torch.zeros(10)), LogLinearEnergy.from_theta(graph, torch.zeros(10))
    rows = Observations.from_tensor(torch.full((10, 4), -1), graph.domain)
    for make, says in (
        (lambda: law.sample((2 * 10**9,)), "sample_shape: 2,000,000,000 draws of 4 cells"),
        (lambda: law.sample((10**5, 10**5)), "sample_shape: 10,000,000,000 draws of 4 cells"),
        (lambda: law.sample((10**5000,)), "sample_shape: about 1.00e+5000 draws of 4 cells"),
        (lambda: RootStructure.complete(graph.domain, 10**9), "order: 14999999983 terms"),
        (lambda: posterior_predictive(graph, torch.zeros(1, 10).expand(10**9, -1), 9), "over 1000000000 draws"),
        (lambda: prior_predictive(graph, normal_prior(graph), 9, num_draws=10**400), "num_draws: about 1.00e+400"),
        (lambda: GibbsChains(energy, 10**8), "num_chains: 100,000,000 chains of 4 cells"),
        (lambda: impute(energy, rows, 10**8), "num_imputations: 100,000,000 draws of 40 cells"),
        (lambda: NUTSSettings(num_draws=10**9), "num_draws: there are 4,000,000,000 draws"),
        (
            lambda: sample_chains(GibbsChains(energy, 100), 10**8, record="draws"),
            "record: a trace of 100000000 records",
        ),
    ):
        with refused(says):
            make()


def test_products_of_equal_sets_have_a_budget_of_their_own(monkeypatch):
    monkeypatch.setattr(formula, "MAX_UNIONS", 27)
    domain = Domain.from_cardinalities([2] * 3)
    assert len(InteractionHypergraph.from_formula(domain, ".:.:.", hierarchical=False)) == 7
    with refused("its products take 48 unions of sets, more than the budget of 27"):
        InteractionHypergraph.from_formula(domain, ".:.:.:.")
    monkeypatch.setattr(formula, "MAX_UNIONS", 9)
    with refused("its products take 10 unions of sets of 8 variables, more than the budget of 9"):
        formula.parse_formula("(a:b:c:d:e):(f:g:h:i:j)", list("abcdefghij"))


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
        with refused("more than the budget of 15"):
            make()


def test_tables_are_counted_before_they_are_made():
    domain = Domain.from_cardinalities([2] * 34)
    graph = InteractionHypergraph(domain, [domain.names], hierarchical=False)
    for make in (LogLinearEnergy.from_theta, ModelFile):
        with refused("interaction tables have 17,179,869,184 entries", "134,217,728"):
            make(graph, torch.ones(1))
    levels = InteractionHypergraph.from_order(Domain.from_cardinalities([budgets.MAX_LEVELS + 1]), 1)
    with refused("variable 'x0': it has 8,193 levels, more than the budget of 8,192"):
        LogLinearEnergy.from_theta(levels, torch.ones(levels.num_parameters))


def test_columns_are_counted_before_they_are_read(tmp_path, monkeypatch):
    wide = tmp_path / "wide.csv"
    names = [f"v{i}" for i in range(2**16 + 1)]
    wide.write_text(f"{','.join(names)}\n{','.join('01'[i % 2] for i in range(len(names)))}\n", encoding="utf-8")
    monkeypatch.setattr(columns, "encode_column", pytest.fail)
    with refused("65,537 columns", megabytes=64):
        Observations.from_csv(wide)
    monkeypatch.undo()
    assert Observations.from_csv(wide, columns=["v3", "v65536"]).codes.tolist() == [[0, 0]]
    monkeypatch.setattr(readers, "MAX_COLUMNS", 3)
    few = pd.DataFrame({name: ["x", "y"] for name in "abcd"})
    assert Observations.from_pandas(few, columns=["d", "a", "b"]).domain.names == ("d", "a", "b")
    with refused("the frame: it has 4 columns"):
        Observations.from_pandas(few)
