"""What interactions are worth: closed forms, projections by enumeration, and estimated bounds against them."""

import functools
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from pyro_hoim import information
from pyro_hoim.errors import ConvergenceWarning, InputTypeError
from pyro_hoim.information.removal import removal_values, with_supersets
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.log_linear.given import synthesise
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_table, raises, random_tables

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 3})
CHAIN = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c"), ("c", "d")], closure=True)
LIMIT = norm.isf(FALSE_ALARM_RATE / 2)


def model_of(graph, seed=0, scale=0.7):
    return LogLinearEnergy(graph, torch.from_numpy(random_tables(graph, np.random.default_rng(seed), scale=scale)))


def law(model):
    return np.exp(exact_table(model.hypergraph, model.tables.numpy()))


def divergence(p, q):
    return float((p * (np.log(p) - np.log(q))).sum())


def projection(p, edges):
    """Iterative proportional fitting of the margins of p, from the uniform law."""
    q = np.full_like(p, 1 / p.size)
    for _ in range(3000):
        for edge in edges:
            rest = tuple(i for i in range(p.ndim) if i not in edge)
            q = q * p.sum(rest, keepdims=True) / q.sum(rest, keepdims=True)
    return q


def mutual_information(p, i, j):
    pair = p.sum(tuple(k for k in range(p.ndim) if k not in (i, j)))
    return divergence(pair, np.outer(pair.sum(1), pair.sum(0)))


def test_pairs_of_a_chain_are_worth_their_mutual_information():
    model = model_of(CHAIN)
    pairs = [("a", "b"), ("c", "b"), ("c", "d")]
    for value, (i, j) in zip(removal_values(model, pairs), [(0, 1), (1, 2), (2, 3)], strict=True):
        assert value.kind == "exact" and value.std_error == 0
        assert value.value == pytest.approx(mutual_information(law(model), i, j), rel=1e-6, abs=1e-10)
    assert removal_values(model, pairs)[0].value != pytest.approx(mutual_information(law(model), 1, 2), rel=1e-2)


def test_exact_values_are_divergences_from_projections():
    graph = InteractionHypergraph.from_order(DOMAIN, 3)
    model = model_of(graph, 1)
    by_edge = {v.edge: v for v in removal_values(model)}
    assert list(by_edge) == list(graph.edges)
    for edge in [("a", "b", "c"), ("b", "d"), ("c",)]:
        kept = [DOMAIN.indices(e) for e in graph.edges if not set(edge) <= set(e)]
        expected = divergence(law(model), projection(law(model), kept))
        assert by_edge[edge].value == pytest.approx(expected, rel=1e-5, abs=1e-9)
        assert by_edge[edge].removed == tuple(e for e in graph.edges if set(edge) <= set(e))


def test_a_projection_that_does_not_converge_gives_a_bound_and_says_so(monkeypatch):
    model = model_of(InteractionHypergraph.from_order(DOMAIN, 3), 1)
    (exact,) = removal_values(model, [("a", "b", "c")])
    assert exact.kind == "exact"  # control: enough sweeps
    hurried = functools.partial(information.project, method="ipf", max_iterations=1)
    monkeypatch.setattr("pyro_hoim.information.removal.project", hurried)
    with pytest.warns(ConvergenceWarning, match="ipf stopped after 1 iterations"):
        (found,) = removal_values(model, [("a", "b", "c")])
    assert found.kind == "upper bound" and found.std_error == 0
    assert found.value > exact.value + 1e-4
    tied = removal_values(model_of(CHAIN), [("a", "b")])  # a closed form needs no sweeps
    assert tied[0].kind == "exact"


def assert_agrees(found, expected):
    assert found.kind == "estimated upper bound" and 0 < found.std_error < 0.05
    assert abs(found.value - expected) < LIMIT * found.std_error, (found, expected)


def test_bounds_are_sharp_where_refitting_inside_the_interaction_is_enough():
    """A pair of a chain, and the last interaction of a saturated model, need nothing refitted outside them."""
    model = model_of(CHAIN)
    pairs = [("a", "b"), ("b", "c"), ("c", "d")]
    for value, (i, j) in zip(removal_values(model, pairs, exact=False, seed=4), [(0, 1), (1, 2), (2, 3)], strict=True):
        assert_agrees(value, mutual_information(law(model), i, j))
    with pytest.raises(AssertionError):  # control: the value of another pair
        assert_agrees(removal_values(model, [("a", "b")], exact=False, seed=4)[0], mutual_information(law(model), 1, 2))
    triple = model_of(InteractionHypergraph.saturated(DOMAIN.project(["a", "b", "c"])), 2)
    (exact,) = removal_values(triple, [("a", "b", "c")])
    assert_agrees(removal_values(triple, [("a", "b", "c")], exact=False, seed=5)[0], exact.value)


def test_bounds_lie_above_exact_values_and_below_plain_zeroing():
    model = model_of(InteractionHypergraph.from_order(DOMAIN, 3), 3, scale=0.4)
    p = law(model)
    exact = removal_values(model)
    bounds = removal_values(model, exact=False, num_samples=8192, seed=1)
    cells = np.indices(DOMAIN.cardinalities)
    for truth, bound in zip(exact, bounds, strict=True):
        assert bound.value > truth.value - LIMIT * bound.std_error
        strength = np.zeros(p.shape)
        for edge in bound.removed:
            table = model.tables[model.hypergraph.term_slices[edge]].numpy()
            shape = [DOMAIN[n].cardinality for n in edge]
            strength += table.reshape(shape)[tuple(cells[i] for i in DOMAIN.indices(edge))]
        zeroed = p * np.exp(-strength)
        assert bound.value < divergence(p, zeroed / zeroed.sum()) + LIMIT * bound.std_error
    single = {v.edge: v for v in bounds}[("a",)]  # nothing to refit inside one variable: equal to zeroing
    strength = sum(
        model.tables[model.hypergraph.term_slices[e]]
        .numpy()
        .reshape([DOMAIN[n].cardinality for n in e])[tuple(cells[i] for i in DOMAIN.indices(e))]
        for e in single.removed
    )
    zeroed = p * np.exp(-strength)
    assert_agrees(single, divergence(p, zeroed / zeroed.sum()))


def test_no_interaction_no_value():
    graph = InteractionHypergraph.from_order(DOMAIN, 2)
    tables = random_tables(graph, np.random.default_rng(0))
    tables[graph.term_slices["b", "c"]] = 0
    model = LogLinearEnergy(graph, torch.from_numpy(tables))
    assert removal_values(model, [("b", "c")])[0].value == pytest.approx(0, abs=1e-9)
    assert removal_values(model, [("b", "c")], exact=False)[0].value == pytest.approx(0, abs=1e-9)


def test_large_models_and_given_samples():
    large = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
    theta = 0.05 * torch.randn(large.num_parameters, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model = LogLinearEnergy.from_theta(large, theta)
    samples = synthesise(model, 500, 7).codes
    found = removal_values(model, [("x3", "x9")], num_samples=500, seed=7)
    assert found == removal_values(model, [("x9", "x3")], samples=samples)
    assert found[0].kind == "estimated upper bound" and found[0].removed == (("x3", "x9"),)


def test_weights_that_support_no_error_say_so():
    """The hub of a strong star: without it the leaves are free, which aligned samples never show."""
    names = [f"x{i}" for i in range(21)]
    pairs = [("x0", n) for n in names[1:]]
    graph = InteractionHypergraph(Domain.from_cardinalities(dict.fromkeys(names, 2)), pairs, closure=True)
    singles, couplings = torch.zeros(42).double(), torch.tensor([1.0, -1.0, -1.0, 1.0]).double().repeat(20)
    model = LogLinearEnergy(graph, torch.cat([singles, couplings]))
    states = torch.zeros(400, 21, dtype=torch.long)
    assert math.isfinite(removal_values(model, [("x0",)], exact=False, samples=states)[0].std_error)
    states[0, 1:11] = 1
    (mixed,) = removal_values(model, [("x0",)], exact=False, samples=states)
    assert math.isinf(mixed.std_error) and mixed.value > 5


LOOSE = InteractionHypergraph(DOMAIN, [("a", "b")], hierarchical=False)


@pytest.mark.parametrize(
    ("ask", "code", "argument"),
    [
        (lambda m: removal_values(m, [("a", "d")]), "unknown-name", None),
        (lambda m: removal_values(m, [("a", "z")]), "unknown-name", None),
        (lambda m: with_supersets(CHAIN, []), "empty", "edges"),
        (lambda m: removal_values(m.expand([2])), "wrong-shape", "model"),
        (lambda m: removal_values(m, exact=False, samples=torch.zeros(5, 3).long()), "wrong-shape", "samples"),
        (lambda m: removal_values(model_of(LOOSE), exact=True), "no-method", "exact"),
    ],
)
def test_bad_arguments_are_refused(ask, code, argument):
    with raises(code, argument):
        ask(model_of(CHAIN))


def test_a_name_is_no_interaction():
    model = model_of(CHAIN)
    for take in (lambda: removal_values(model, ["ab"]), lambda: with_supersets(model.hypergraph, ["ab"])):
        with pytest.raises(InputTypeError, match="expected sets of names, received the string 'ab'"):
            take()  # and not the pair a:b
    assert removal_values(model_of(LOOSE))[0].kind == "estimated upper bound"
    assert removal_values(model, []) == []
