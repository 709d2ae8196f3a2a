"""Backends that sum over possible states alone, against enumeration, and posteriors of theta against a grid."""

import warnings

import numpy as np
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, LogLinearEnergy, Observations
from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.inference import NUTSSettings, sample_posterior
from pyro_hoim.log_linear import (
    Auto,
    Enumeration,
    ImpossibleStates,
    LogLinearStatistics,
    PossibleStates,
    VariableElimination,
    normal_prior,
    statistics_of,
)
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.log_linear.named_priors import Prior
from pyro_hoim.study import PosteriorSettings, run_posterior

from support.supports import log_weights, random_model


@pytest.mark.parametrize("partition", [Auto(), Enumeration(), VariableElimination()], ids=lambda p: type(p).__name__)
def test_sums_over_possible_states_equal_enumeration(partition):
    random, number = np.random.default_rng(0), 0
    for trial in range(80):
        model = random_model(random)
        states, (cells, logs) = ImpossibleStates.of_energy(model), log_weights(model)
        lost, domain = logs.isneginf(), model.domain
        if states is None or lost.all():
            continue
        number += 1
        assert sum(count for _, count in states.tally(Observations.from_tensor(cells, domain))) == lost.sum()
        # Finite tables of the sets of variables that have such states, or of others.
        graph = model.hypergraph if trial % 2 else InteractionHypergraph.from_order(domain, min(2, len(domain)))
        tables = torch.from_numpy(random.normal(size=graph.num_terms)).requires_grad_()
        finite, backend = LogLinearEnergy(graph, tables), PossibleStates(partition, states)
        logits = -finite.energy(cells)[~lost]
        value = backend.log_partition(finite).value
        torch.testing.assert_close(value, logits.logsumexp(0))
        (gradient,) = torch.autograd.grad(value, tables)
        (wanted,) = torch.autograd.grad(logits.logsumexp(0), tables)
        torch.testing.assert_close(gradient, wanted)
        torch.testing.assert_close(backend.expectations(finite).detach(), wanted)
        law = torch.zeros(len(cells), dtype=torch.float64)
        law[~lost] = logits.detach().softmax(0)
        torch.testing.assert_close(backend.marginal(finite, domain.names).detach().flatten(), law)
        drawn = backend.sample(LogLinearEnergy(graph, tables.detach()), (200,), torch.Generator().manual_seed(1))
        assert not states.tally(Observations.from_tensor(drawn, domain))
        assert not bool(lost[(cells == backend.mode(finite)[0]).all(1)])
        assert backend.plan(graph).feasible and backend.is_exact
    assert number > 40


DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3})
ROWS = Observations.from_table(DOMAIN, [[5, 3, 9], [4, 2, 0]])
GRAPH = InteractionHypergraph.from_formula(DOMAIN, "a + b")
STATES = ImpossibleStates.of_combinations(DOMAIN, [{"a": 1, "b": 2}])


def grid_posterior(possible):
    """Means and standard deviations of theta under a standard normal prior."""
    axis = torch.linspace(-4, 4, 61, dtype=torch.float64)
    theta = torch.cartesian_prod(axis, axis, axis)
    logits = theta @ torch.from_numpy(design_matrix(GRAPH).copy()).T
    logits, counts = logits[:, possible], ROWS.table().flatten()[possible]
    weights = (logits @ counts - 23 * logits.logsumexp(1) - theta.square().sum(1) / 2).softmax(0)
    mean = weights @ theta
    return mean, (weights @ (theta - mean).square()).sqrt()


def test_a_posterior_is_that_of_the_law_on_possible_states():
    settings = NUTSSettings(num_chains=2, num_draws=150, burn_in=40)
    backend = PossibleStates(Auto(), STATES)
    draws = sample_posterior(GRAPH, ROWS, normal_prior(GRAPH, 1.0), settings, partition=backend, seed=0)
    theta = draws.theta.reshape(-1, 3)
    mean, spread = grid_posterior(torch.arange(6) != 5)
    error = spread / 100**0.5  # fewer draws than there are, for these depend on each other
    assert ((theta.mean(0) - mean).abs() < 4 * error).all() and ((theta.std(0) / spread - 1).abs() < 0.25).all()
    forgot, _ = grid_posterior(torch.arange(6) >= 0)  # the control
    assert ((theta.mean(0) - forgot).abs() > 6 * error).any()


def test_a_law_has_the_states_of_its_backend_as_its_own():
    backend = PossibleStates(VariableElimination(), STATES)
    theta = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    law = HierarchicalLogLinear(GRAPH, theta, partition=backend)
    cells = torch.cartesian_prod(torch.arange(2), torch.arange(3))
    logits = torch.from_numpy(design_matrix(GRAPH).copy()) @ theta
    logits[5] = -torch.inf
    table = logits.softmax(0)
    torch.testing.assert_close(law.log_prob(cells), table.log())
    torch.testing.assert_close(law.marginal(["b"]).probs, table.reshape(2, 3).sum(0))
    torch.testing.assert_close(law.condition({"a": 1}).probs, table[3:] / table[3:].sum())
    assert law.partition == VariableElimination()
    counts = LogLinearStatistics(GRAPH, theta, 3, partition=backend).sample((4,))
    assert law.expand((2,)).condition({"b": 2}).probs[:, 1].eq(0).all() and counts.sum(-1).eq(6).all()
    with pytest.raises(InputError, match="one of them says the impossible states"):
        HierarchicalLogLinear(GRAPH, theta, impossible=STATES, partition=backend)
    with pytest.raises(InputError, match="give its states as structural_zeros"):
        hoim.fit("a + b", ROWS, partition=backend)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((3, STATES), "partition: expected a partition backend, received int"),
        ((Auto(), None), "impossible: expected ImpossibleStates, received None"),
        ((Auto(), STATES.excluded), "impossible: expected ImpossibleStates, received"),
    ],
)
def test_a_backend_of_anything_else_is_refused(arguments, match):
    with pytest.raises(InputTypeError, match=match):
        PossibleStates(*arguments)


def test_a_posterior_refuses_rows_that_its_backend_excludes():
    rows = Observations.from_table(DOMAIN, [[5, 3, 9], [4, 2, 1]])
    backend = PossibleStates(Auto(), STATES)
    with pytest.raises(InputError, match=r"^partition: 1 row of data holds what is marked as impossible: \(a=1, b=2\)"):
        sample_posterior(GRAPH, rows, partition=backend, progress=False)
    pairs = InteractionHypergraph.from_formula(DOMAIN, "a*b")
    with pytest.raises(InputError, match=r"^partition: margins of a, b count rows in cells"):
        sample_posterior(pairs, statistics_of(rows, pairs), total_count=24, partition=backend, progress=False)


def test_posteriors_of_a_study_draw_no_impossible_cell():
    settings = PosteriorSettings(num_chains=2, num_draws=20, burn_in=20, jobs=1, impossible=STATES)
    with warnings.catch_warnings(action="ignore"):  # short chains
        found = run_posterior(GRAPH, ROWS, settings, seed=1)
        plain = run_posterior(GRAPH, ROWS, PosteriorSettings(2, 20, 20, jobs=1), seed=1)
    tables = found.data["posterior_predictive"]["table"].to_numpy()
    assert (tables[..., 1, 2] == 0).all() and (tables.sum((2, 3)) == 23).all()
    assert (plain.data["posterior_predictive"]["table"].to_numpy()[..., 1, 2] > 0).any()  # the control
    more = Observations.from_table(DOMAIN, [[5, 3, 9], [4, 2, 1]])
    with pytest.raises(InputError, match=r"1 row of data holds what is marked as impossible: \(a=1, b=2\)"):
        run_posterior(GRAPH, more, settings, seed=1)
    with pytest.raises(InputError, match="conjugate spreads rows over all cells"):
        PosteriorSettings(prior=Prior.parse("conjugate:4"), impossible=STATES)
