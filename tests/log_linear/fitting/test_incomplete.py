"""Rows with missing cells against sums over the enumerated table."""

import itertools

import pytest
import torch

from pyro_hoim.data import Observations
from pyro_hoim.errors import ConvergenceWarning, InputError, IntractableError
from pyro_hoim.log_linear import HierarchicalLogLinear, LogLinearEnergy, fit, fit_incomplete, row_log_likelihood
from pyro_hoim.log_linear.fitting import incomplete
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
RELATIVE = 1e-10


def random_model(seed, formula="a*b + b*c"):
    """A model with standard normal free parameters."""
    graph = InteractionHypergraph.from_formula(DOMAIN, formula)
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(graph.num_parameters, generator=generator, dtype=torch.float64)
    return LogLinearEnergy.from_theta(graph, theta)


def probabilities(model):
    """Joint table of a small model by enumeration."""
    states = torch.tensor(list(itertools.product(*(range(n) for n in DOMAIN.cardinalities))))
    return torch.softmax(-model.energy(states), 0).reshape(DOMAIN.cardinalities)


ALL_ROWS = torch.tensor(list(itertools.product(range(-1, 2), range(-1, 3), range(-1, 2))))


def expected_rows(table):
    """Log marginal of the known cells of every row of ALL_ROWS."""
    values = []
    for row in ALL_ROWS.tolist():
        part = table
        for axis in reversed(range(3)):
            part = part.sum(axis) if row[axis] < 0 else part.select(axis, row[axis])
        values.append(part.log())
    return torch.stack(values)


@pytest.mark.parametrize("limit", [2**22, 3])
def test_every_pattern_of_missing_cells(limit, monkeypatch):
    """With the limit at 3 the rows that miss more go through the conditioned model instead."""
    monkeypatch.setattr(incomplete, "_MAX_COMPLETIONS", limit)
    model = random_model(0)
    values = row_log_likelihood(model, Observations.from_tensor(ALL_ROWS, DOMAIN))
    assert torch.allclose(values, expected_rows(probabilities(model)), rtol=RELATIVE, atol=1e-12)


@pytest.mark.parametrize("limit", [2**22, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_of_models_and_gradients(limit, dtype, monkeypatch):
    monkeypatch.setattr(incomplete, "_MAX_COMPLETIONS", limit)
    models = [random_model(seed) for seed in range(6)]
    tables = torch.stack([m.tables for m in models]).reshape(2, 3, -1).to(dtype).requires_grad_()
    data = Observations.from_tensor(ALL_ROWS, DOMAIN)
    values = row_log_likelihood(LogLinearEnergy(models[0].hypergraph, tables), data)
    assert values.shape == (len(ALL_ROWS), 2, 3) and values.dtype == dtype
    singles = [m.tables.clone().requires_grad_() for m in models]
    expected = [expected_rows(probabilities(LogLinearEnergy(models[0].hypergraph, t))) for t in singles]
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    assert torch.allclose(values.double(), torch.stack(expected, -1).reshape(-1, 2, 3), atol=tolerance, rtol=0)
    (found,) = torch.autograd.grad(values.sum(), tables)
    gradients = torch.autograd.grad(torch.stack(expected).sum(), singles)
    assert torch.allclose(found.double(), torch.stack(gradients).reshape(2, 3, -1), atol=1e3 * tolerance, rtol=0)
    empty = LogLinearEnergy(models[0].hypergraph, tables[:0])
    assert row_log_likelihood(empty, data).shape == (len(ALL_ROWS), 0, 3)


def test_the_marginal_law_and_an_observed_hole():
    """Without missing cells it is log_prob; a hole in an observed value names what sums over it."""
    law = HierarchicalLogLinear.from_tables(random_model(0).hypergraph, random_model(0).tables, validate_args=True)
    rows = ALL_ROWS[(ALL_ROWS >= 0).all(1)]
    assert torch.allclose(
        row_log_likelihood(law.energy_model, Observations.from_tensor(rows, DOMAIN)), law.log_prob(rows)
    )
    with pytest.raises(InputError, match=r"received -1 at index \(0, 0\).*row_log_likelihood\(law.energy_model"):
        law.log_prob(ALL_ROWS)
    with pytest.raises(InputError, match=r"outside the support$"):
        law.log_prob(ALL_ROWS - 1)


def test_control_a_dropped_interaction_is_seen():
    model = random_model(0)
    other = LogLinearEnergy(model.hypergraph, model.tables.clone())
    other.tables[model.hypergraph.term_slices["a", "b"]] = 0
    values = row_log_likelihood(other, Observations.from_tensor(ALL_ROWS, DOMAIN))
    assert (values - expected_rows(probabilities(model))).abs().max() > 1e-3


def mixed_data(model, total):
    """Exact expected counts of every row of ALL_ROWS when each cell goes missing with probability 0.3."""
    gone = (ALL_ROWS < 0).sum(1).double()
    weights = expected_rows(probabilities(model)).exp() * 0.3**gone * 0.7 ** (3 - gone) * total
    return Observations.from_tensor(ALL_ROWS, DOMAIN, weights=weights)


def test_em_finds_the_law_behind_cells_missing_at_random():
    truth = random_model(3)
    result = fit_incomplete(truth.hypergraph, mixed_data(truth, 1000.0), tolerance=1e-13, max_iterations=2000)
    fitted = LogLinearEnergy(result.hypergraph, result.tables)
    assert torch.allclose(probabilities(fitted), probabilities(truth), atol=1e-5)


def test_control_filling_in_a_level_is_biased():
    truth = random_model(3)
    data = mixed_data(truth, 1000.0)
    filled = data.codes.clone()
    filled[filled < 0] = 0
    wrong = fit(truth.hypergraph, Observations.from_tensor(filled, DOMAIN, weights=data.counts))
    assert (probabilities(LogLinearEnergy(wrong.hypergraph, wrong.tables)) - probabilities(truth)).abs().max() > 0.02


def test_em_likelihood_is_that_of_the_observed_cells_and_is_stationary():
    truth = random_model(5)
    data = mixed_data(random_model(6, "a*b*c"), 200.0)
    result = fit_incomplete(truth.hypergraph, data, tolerance=1e-13, max_iterations=2000)
    theta = result.theta.clone().requires_grad_()
    model = LogLinearEnergy.from_theta(truth.hypergraph, theta)
    value = (data.counts * row_log_likelihood(LogLinearEnergy(model.hypergraph, model.tables.detach()), data)).sum()
    assert float(value) == pytest.approx(result.log_likelihood, rel=1e-8)
    for step in torch.eye(len(theta), dtype=torch.float64) * 1e-3:
        moved = LogLinearEnergy.from_theta(truth.hypergraph, theta.detach() + step)
        assert float((data.counts * row_log_likelihood(moved, data)).sum()) <= float(value) + 1e-7


def test_complete_rows_need_no_em():
    data = Observations.from_table(DOMAIN, torch.arange(1, 13).reshape(2, 3, 2).numpy())
    graph = InteractionHypergraph.from_order(DOMAIN, 2)
    assert torch.equal(fit_incomplete(graph, data).theta, fit(graph, data).theta)


def test_refusals_and_status(monkeypatch):
    model = random_model(0)
    data = mixed_data(model, 100.0)
    with pytest.raises(InputError, match="domain"):
        row_log_likelihood(model, Observations.from_tensor(torch.zeros(1, 2).long(), Domain.from_cardinalities([2, 2])))
    with pytest.warns(ConvergenceWarning, match="EM stopped after 1 steps"):
        assert fit_incomplete(model.hypergraph, data, max_iterations=1).status == "max_iterations"
    monkeypatch.setattr(incomplete, "_MAX_COMPLETIONS", 10)
    with pytest.raises(IntractableError, match="completed rows"):
        fit_incomplete(model.hypergraph, data)


def test_standard_errors_grow_with_what_is_missing():
    """b is known for 40 of 100 rows: the error of its log odds is that of 40 rows, not of 100."""
    graph = InteractionHypergraph.from_order(DOMAIN.project(["a", "c"]), 1)
    codes = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [0, -1], [1, -1]])
    data = Observations.from_tensor(codes, graph.domain, counts=torch.tensor([10, 10, 10, 10, 30, 30]))
    errors = fit_incomplete(graph, data).standard_errors("corner")
    assert errors.tolist() == pytest.approx([(1 / 50 + 1 / 50) ** 0.5, (1 / 20 + 1 / 20) ** 0.5], rel=1e-6)
