"""The ridge penalty by interaction: its value, derivatives, precedence and round trip; and tables carried over."""

import json
import pickle

import numpy as np
import pytest
import torch

from pyro_hoim.data import Observations
from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.learning import L2, fit
from pyro_hoim.learning.penalties import ProximalPenalty, SmoothPenalty
from pyro_hoim.learning.training import InteractionRidge
from pyro_hoim.learning.training._tables import restructured_tables
from pyro_hoim.models import parametrization
from pyro_hoim.partition import Enumeration
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, random_tables

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
RIDGE = InteractionRidge(1.0, by_order={1: 0.0, 2: 3.0}, by_edge={("b", "a"): 5.0, ("c",): 0.5})


def order(k):
    return InteractionHypergraph.from_order(DOMAIN, k)


def test_the_most_specific_strength_holds():
    strengths = {"a": 0.0, "b": 0.0, "c": 0.5, "ab": 5.0, "ac": 3.0, "bc": 3.0, "abc": 1.0}
    assert {name: RIDGE.strength(tuple(name)) for name in strengths} == strengths
    assert RIDGE.strength(("b", "a")) == RIDGE.strength(("a", "b"))
    assert not RIDGE.is_zero
    assert InteractionRidge().is_zero
    assert InteractionRidge(by_order={3: 0}).is_zero


def test_value_equals_the_sum_over_tables_and_free_coordinates():
    graph = order(3)
    tables = random_tables(graph, np.random.default_rng(0))
    theta = parametrization(graph).convert(torch.from_numpy(tables), "balanced", "free").numpy()
    expected = sum(0.5 * RIDGE.strength(e) * np.square(tables[w]).sum() for e, w in graph.term_slices.items())
    assert_close(RIDGE.value(tables, graph), expected, relative=1e-13)
    assert_close(RIDGE.value(theta, graph), expected, relative=1e-13)
    assert RIDGE.terms(graph).shape == (graph.num_terms,)
    # Negative control: tables that are not balanced have another norm than their free coordinates.
    shifted = tables + 1.0
    theta = parametrization(graph).free_statistics(torch.from_numpy(shifted)).numpy()
    assert abs(RIDGE.value(shifted, graph) - RIDGE.value(theta, graph)) > 1e-3


@pytest.mark.parametrize("coding", ["balanced", "free"])
def test_derivatives_and_prox(coding):
    graph = order(3)
    size = graph.num_terms if coding == "balanced" else graph.num_parameters
    theta = np.random.default_rng(1).standard_normal(size)
    step = 1e-4
    moves = step * np.eye(size)
    slopes = [(RIDGE.value(theta + m, graph) - RIDGE.value(theta - m, graph)) / (2 * step) for m in moves]
    assert_close(RIDGE.gradient(theta, graph), slopes, relative=1e-8, absolute=1e-9)
    assert_close(RIDGE.hessian_diagonal(theta, graph) * theta, RIDGE.gradient(theta, graph), relative=1e-14)
    near = RIDGE.prox(theta, 0.3, graph)
    assert_close(near - theta + 0.3 * RIDGE.gradient(near, graph), np.zeros(size), relative=0, absolute=1e-13)


def test_a_fit_takes_it_as_any_ridge():
    data = Observations.from_table(DOMAIN, np.random.default_rng(2).integers(1, 30, (2, 3, 2)))
    graph = order(2)
    assert isinstance(RIDGE, SmoothPenalty)
    assert isinstance(RIDGE, ProximalPenalty)
    plain, same = fit(graph, data, penalty=L2(4.0)), fit(graph, data, penalty=InteractionRidge(4.0))
    assert_close(same.theta, plain.theta, relative=1e-9, absolute=1e-11)
    # The optimality condition: N (model margins - observed margins) = - strengths * tables, in every table.
    result = fit(graph, data, penalty=RIDGE)
    eta = Enumeration().expectations(result.model)
    difference = data.total_count * eta - data.marginal_counts(graph.edges)
    gradient = parametrization(graph).free_statistics(difference)
    expected = -RIDGE.gradient(result.theta.numpy(), graph)
    assert_close(gradient, expected, relative=1e-6, absolute=1e-6)


def test_round_trips_and_scaling():
    text = json.dumps(RIDGE.to_json())
    assert InteractionRidge.from_json(json.loads(text)) == RIDGE
    assert pickle.loads(pickle.dumps(RIDGE)) == RIDGE
    assert hash(InteractionRidge(by_edge={("a", "b"): 1.0})) == hash(InteractionRidge(by_edge={("b", "a"): 1.0}))
    assert InteractionRidge(1.0) != InteractionRidge(2.0)
    graph = order(3)
    assert_close(RIDGE.scaled(2.5).terms(graph), 2.5 * RIDGE.terms(graph), relative=1e-15)
    assert RIDGE.scaled(0).is_zero


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), True, "1"])
def test_wrong_strengths_are_refused(bad):
    for arguments in ({"default": bad}, {"by_order": {2: bad}}, {"by_edge": {("a",): bad}}):
        with pytest.raises(InputError, match="expected a finite number from 0"):
            InteractionRidge(**arguments)
    with pytest.raises(InputError, match="factor"):
        RIDGE.scaled(bad)


def test_wrong_keys_are_refused():
    with pytest.raises(InputError, match="by_order"):
        InteractionRidge(by_order={0: 1.0})
    with pytest.raises(InputTypeError, match="by_order"):
        InteractionRidge(by_order={"2": 1.0})
    with pytest.raises(InputTypeError, match="by_edge"):
        InteractionRidge(by_edge={"ab": 1.0})
    for edges in ({(): 1.0}, {("a", "a"): 1.0}, {("a", "b"): 1.0, ("b", "a"): 2.0}):
        with pytest.raises(InputError, match="by_edge"):
            InteractionRidge(by_edge=edges)
    with pytest.raises(InputError, match="free coordinates"):
        RIDGE.value(np.zeros(3), order(2))
    with pytest.raises(InputError, match="ridge"):
        InteractionRidge.from_json({"default": 1.0})


def test_tables_carried_over_keep_what_is_common():
    small, large = order(1).add_edges([("a", "c")]), order(3)
    tables = torch.from_numpy(random_tables(small, np.random.default_rng(3), batch_shape=(2,)))
    carried = restructured_tables(tables, small, large)
    for edge, where in large.term_slices.items():
        expected = tables[:, small.term_slices[edge]] if edge in small.term_slices else 0 * carried[:, where]
        assert torch.equal(carried[:, where], expected)
    assert torch.equal(restructured_tables(carried, large, small), tables)
    assert torch.equal(restructured_tables(tables, small, small), tables)
    with pytest.raises(InputError, match="hypergraph"):
        restructured_tables(tables, small, InteractionHypergraph(Domain.from_cardinalities({"a": 2}), [("a",)]))
    with pytest.raises(InputError, match="tables"):
        restructured_tables(tables[:, :-1], small, large)
