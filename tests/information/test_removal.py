"""What interactions are worth, and what removing them changes: closed forms, enumeration, and estimated bounds."""

import functools
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from pyro_hoim import Domain, InteractionHypergraph, Observations, information, load_table
from pyro_hoim.errors import ConvergenceWarning, InputTypeError
from pyro_hoim.information import removal
from pyro_hoim.information.removal import (
    _bridge,
    log_z_difference,
    removal_effect,
    removal_values,
    with_supersets,
    without,
)
from pyro_hoim.log_linear import LogLinearEnergy, fit, synthesise
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_log_partition, exact_table, raises, random_tables

from support.projections import divergence, proportional_fit

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 3})
CHAIN = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c"), ("c", "d")], closure=True)
LIMIT = norm.isf(FALSE_ALARM_RATE / 2)


def model_of(graph, seed=0, scale=0.7):
    return LogLinearEnergy(graph, torch.from_numpy(random_tables(graph, np.random.default_rng(seed), scale=scale)))


def law(model):
    return np.exp(exact_table(model.hypergraph, model.tables.numpy()))


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
        expected = divergence(law(model), proportional_fit(law(model), kept))
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

    def zeroing(removed):
        strength = np.zeros(p.shape)
        for edge in removed:
            table = model.tables[model.hypergraph.term_slices[edge]].numpy()
            shape = [DOMAIN[n].cardinality for n in edge]
            strength += table.reshape(shape)[tuple(cells[i] for i in DOMAIN.indices(edge))]
        zeroed = p * np.exp(-strength)
        return divergence(p, zeroed / zeroed.sum())

    for truth, bound in zip(exact, bounds, strict=True):
        assert bound.value > truth.value - LIMIT * bound.std_error
        assert bound.value < zeroing(bound.removed) + LIMIT * bound.std_error
    single = {v.edge: v for v in bounds}[("a",)]  # nothing to refit inside one variable: equal to zeroing
    assert_agrees(single, zeroing(single.removed))


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


# Models without some interactions


ROWS = load_table("ucb_admissions")
GRAPH = InteractionHypergraph.from_order(ROWS.domain, 2)


def fitted(graph):
    return fit(graph, ROWS).model


def test_without_takes_out_the_tables_of_an_edge_and_its_supersets():
    graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2, "c": 3}))
    model = LogLinearEnergy(graph, torch.from_numpy(random_tables(graph, np.random.default_rng(0), batch_shape=(2,))))
    rest = without(model, [("b", "a")])
    assert set(graph.edges) - set(rest.hypergraph.edges) == {("a", "b"), ("a", "b", "c")}
    assert rest.batch_shape == (2,) and rest.hypergraph.is_hierarchical
    for edge, where in rest.hypergraph.term_slices.items():
        assert torch.equal(rest.tables[..., where], model.tables[..., graph.term_slices[edge]])
    loose = InteractionHypergraph(graph.domain, [("a",), ("a", "b", "c")], hierarchical=False)
    single = LogLinearEnergy(loose, torch.zeros(14))
    assert without(single, [("a",)]).hypergraph.edges == ()
    for edges, code in (([("a", "b")], "unknown-name"), ([], "empty"), ([("z",)], "unknown-name")):
        with raises(code):
            without(single, edges)


def test_log_z_differences_are_exact_within_reach_and_estimated_beyond():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2, 2]), 2)
    first, second = (
        LogLinearEnergy(graph, torch.from_numpy(random_tables(graph, np.random.default_rng(s), scale=0.6)))
        for s in (0, 1)
    )
    truth = float(exact_log_partition(graph, second.tables) - exact_log_partition(graph, first.tables))
    assert log_z_difference(first, second) == (pytest.approx(truth, rel=1e-10), 0.0)
    ratios = [(first.energy(x) - second.energy(x)) for x in (synthesise(m, 4000, 3).codes for m in (first, second))]
    value, error = _bridge(*ratios)
    assert 0 < error < 0.05 and abs(value - truth) < LIMIT * error
    assert abs(_bridge(ratios[0], ratios[0])[0] - truth) > LIMIT * error  # control: samples of the wrong law
    assert math.isinf(_bridge(torch.tensor([-50.0] * 99 + [0.0]), torch.tensor([50.0] * 99 + [0.0]))[1])


def test_a_bridge_that_does_not_converge_has_no_error_bar(monkeypatch):
    """Log ratios of normal laws with a difference of 3: E[exp(r)] = exp(3) under the first law."""
    draws = torch.randn(2, 2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ratios = (3.0 - 0.5 + draws[0], 3.0 + 0.5 + draws[1])
    value, error = _bridge(*ratios)  # control: enough steps, no warning
    assert 0 < error < 0.05 and abs(value - 3.0) < LIMIT * error
    monkeypatch.setattr(removal, "_BRIDGE_STEPS", 2)
    with pytest.warns(ConvergenceWarning, match="the acceptance ratio still moved after 2 steps"):
        assert math.isinf(_bridge(*ratios)[1])


def test_a_large_model_with_a_known_difference():
    """Two variables apart from sixty others: their interaction changes log Z by a closed form."""
    domain = Domain.from_cardinalities([2] * 62)
    names = domain.names
    core = InteractionHypergraph.from_order(domain.project(names[:60]), 2)
    graph = InteractionHypergraph(domain, [*core.edges, names[60:61], names[61:], names[60:]])
    theta = 0.05 * torch.randn(graph.num_parameters, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    theta[graph.parameter_slices[names[60:]]] = 2.0
    model = LogLinearEnergy.from_theta(graph, theta)
    tables = {e: model.tables[graph.term_slices[e]] for e in (names[60:61], names[61:], names[60:])}
    plain = tables[names[60:61]][:, None] + tables[names[61:]]
    full = plain + tables[names[60:]].reshape(2, 2)
    truth = float(plain.logsumexp((0, 1)) - full.logsumexp((0, 1)))
    value, error = log_z_difference(model, without(model, [names[60:]]), num_samples=2000, seed=1)
    assert 0 < error < 0.1 and abs(value - truth) < LIMIT * error
    assert abs(value) > LIMIT * error  # control: no difference would be seen


def test_effect_by_enumeration():
    model = fitted(GRAPH)
    test = Observations.from_table(ROWS.domain, counts=np.ones(ROWS.domain.cardinalities, dtype=int))
    effect = removal_effect(
        model,
        [("Gender", "Admit")],
        ROWS,
        test,
        target="Admit",
        level="Admitted",
        sensitive="Gender",
        refit=lambda rest: fitted(rest.hypergraph),
    )
    assert effect.removed == (("Admit", "Gender"),) and list(effect.models) == ["before", "zeroed", "refitted"]
    counts, admit, gender = ROWS.table().numpy(), ROWS.domain.index("Admit"), ROWS.domain.index("Gender")
    before = law(model)
    assert effect.groups is not None and effect.prediction is not None
    changes = effect.log_likelihood.set_index(["part", "model"])["change"]
    for name, other in effect.models.items():
        q = law(other)
        if name != "before":
            gain = np.log(q) - np.log(before)
            assert changes["train", name] == pytest.approx((counts * gain).sum() / counts.sum(), rel=1e-8)
            assert changes["test", name] == pytest.approx(gain.mean(), rel=1e-8)
        probs = np.moveaxis(q / q.sum(admit, keepdims=True), admit, 0)[ROWS.domain["Admit"].code("Admitted")]
        axis = gender - (gender > admit)
        means = probs.mean(1 - axis)
        np.testing.assert_allclose(effect.groups[name], means, rtol=1e-8)
        assert effect.parity_difference[name] == pytest.approx(np.ptp(means), rel=1e-8)
    assert changes["train", "refitted"] > changes["train", "zeroed"]  # the refit is the best of its family
    assert changes["train", "refitted"] < 0
    errors = effect.log_likelihood
    assert (errors["log_z_error"] == 0).all() and (errors["row_error"] > 0).all()
    assert "refitted, test: log-likelihood" in effect.text and "P(Admit = Admitted) differs by" in effect.text


def test_effect_without_target():
    effect = removal_effect(fitted(GRAPH), [("Admit", "Dept")], ROWS)
    assert effect.prediction is None and effect.groups is None and effect.parity_difference == {}
    assert effect.text.count("\n") == 1 and effect.log_likelihood["part"].tolist() == ["train"]


HOLED = Observations.from_tensor(torch.tensor([[0, -1, 0]]), ROWS.domain)
SMALL = LogLinearEnergy(InteractionHypergraph.saturated(Domain.from_cardinalities([2])), torch.zeros(2))


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"target": "Admission"}, "unknown-name", "target"),
        ({"sensitive": "Gender"}, "conflict", "sensitive"),
        ({"sensitive": "Admit", "target": "Admit"}, "conflict", "sensitive"),
        ({"level": "Admitted"}, "conflict", "level"),
        ({"test": ROWS.project(["Admit"])}, "other-domain", "test"),
        ({"train": HOLED}, "missing-cells", "train"),
        ({"refit": lambda _: SMALL}, "other-domain", "refit"),
    ],
)
def test_effects_of_bad_arguments_are_refused(options, code, argument):
    with raises(code, argument):
        removal_effect(**{"model": fitted(GRAPH), "edges": [("Admit", "Dept")], "train": ROWS, **options})
