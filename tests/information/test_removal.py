"""Models without some interactions, and the measured effect, against enumeration."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.errors import ConvergenceWarning
from pyro_hoim.information import removal
from pyro_hoim.information.removal import _bridge, log_z_difference, removal_effect, without
from pyro_hoim.log_linear import LogLinearEnergy, fit
from pyro_hoim.log_linear.given import synthesise
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_log_partition, exact_table, raises, random_tables

LIMIT = norm.isf(FALSE_ALARM_RATE / 2)
ROWS = load_table("ucb_admissions")
GRAPH = InteractionHypergraph.from_order(ROWS.domain, 2)


def fitted(graph):
    return fit(graph, ROWS).model


def law(model):
    return np.exp(exact_table(model.hypergraph, model.tables.numpy()))


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
def test_bad_arguments_are_refused(options, code, argument):
    with raises(code, argument):
        removal_effect(**{"model": fitted(GRAPH), "edges": [("Admit", "Dept")], "train": ROWS, **options})
