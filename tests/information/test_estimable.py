"""Estimable and inestimable parts of a divergence (paper 1, C.4): by enumeration, with zeros, and what they say."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations, fit, load_table
from pyro_hoim.core import Law
from pyro_hoim.information import Projections, split_divergence
from pyro_hoim.information.projection import split_of_rows
from pyro_hoim.log_linear import L2, LogLinearEnergy, learn, restricted_interactions
from pyro_hoim.study import analyse, analyse_learned
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close

from studies.random_laws import random_dirichlet_law
from support.projections import divergence, proportional_fit

ABC = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
COLLECTIONS = ([], [(0,), (1,), (2,)], [(0, 1), (2,)], [(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)], [(0, 1, 2)])


def a_law(concentration, seed):
    return random_dirichlet_law(ABC, concentration, generator=torch.Generator().manual_seed(seed))


def table_of(model):
    """Probabilities of all states, from energies."""
    states = torch.tensor(list(np.ndindex(*model.domain.cardinalities)))
    weights = torch.exp(-model.energy(states)).numpy()
    return (weights / weights.sum()).reshape(model.domain.cardinalities)


def graph_of(cliques):
    names = [[ABC.names[i] for i in clique] for clique in cliques]
    return InteractionHypergraph(ABC, names, closure=True) if names else InteractionHypergraph(ABC, [])


def random_model(graph, seed):
    theta = torch.randn(graph.num_parameters, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return LogLinearEnergy.from_theta(graph, theta)


@pytest.mark.parametrize("cliques", COLLECTIONS, ids=str)
@pytest.mark.parametrize("zeros", [0, 3])
def test_both_parts_agree_with_enumeration(cliques, zeros):
    p = a_law(1.0, 3).probs.numpy().copy()
    p.ravel()[[1, 6, 8][:zeros]] = 0
    p /= p.sum()
    model = random_model(graph_of(cliques), 4)
    split = split_divergence(Law(ABC, torch.from_numpy(p)), model)
    projected, q = proportional_fit(p, cliques), table_of(model)
    assert_close(split.inestimable, divergence(p, projected), relative=1e-8, absolute=1e-9)
    assert_close(split.estimable, divergence(projected, q), relative=1e-8, absolute=1e-9)
    assert_close(split.total, divergence(p, q), relative=1e-10)
    assert abs(split.gap) < 1e-9


def test_control_a_model_outside_the_family_has_a_remainder():
    law, wide = a_law(1.0, 3), random_model(graph_of(COLLECTIONS[-1]), 4)
    narrow = Projections(law).project(graph_of(COLLECTIONS[1])).probs.numpy()
    q = table_of(wide)
    parts = divergence(law.probs.numpy(), narrow) + divergence(narrow, q)
    assert abs(parts - divergence(law.probs.numpy(), q)) > 0.01


def test_more_interactions_lower_the_inestimable_part_alone():
    law = a_law(1.0, 5)
    known = Projections(law)
    values = [split_divergence(known, random_model(graph_of(cliques), 1)).inestimable for cliques in COLLECTIONS]
    assert all(after < before for before, after in itertools.pairwise(values))
    assert values[-1] < 1e-12


def test_what_was_fitted_to_the_rows_is_all_inestimable_and_a_prior_is_not():
    rows = load_table("ucb_admissions")
    graph = InteractionHypergraph.from_order(rows.domain, 2)
    free, drawn = fit(graph, rows), fit(graph, rows, penalty=L2(50.0))
    assert split_divergence(rows, free).estimable < 1e-10
    assert split_divergence(rows, drawn).estimable > 1e-4
    assert split_divergence(rows, drawn).inestimable == split_divergence(rows, free).inestimable


def test_limits_of_infinite_estimates():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    graph = InteractionHypergraph.saturated(domain)
    with pytest.warns(Warning, match="finite"):
        limit = fit(graph, Observations.from_table(domain, [[5, 0], [3, 2]]))
    assert split_divergence(Law(domain, [[0.5, 0.0], [0.3, 0.2]]), limit).total == pytest.approx(0, abs=1e-9)
    other = split_divergence(Law(domain, [[0.4, 0.1], [0.3, 0.2]]), limit)
    assert other.estimable == other.total == math.inf
    assert other.inestimable < 1e-12
    assert math.isnan(other.gap)


def test_the_scatter_of_rows_goes_where_the_docstring_says():
    """Both parts of independent columns over samples of a law of that family: chi-square means of their numbers."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    graph = InteractionHypergraph.from_order(domain, 1)
    model = random_model(graph, 2)
    number, repeats = 20_000, 200
    counts = np.random.default_rng(0).multinomial(number, table_of(model).ravel(), size=repeats)
    splits = [split_divergence(Law(domain, c.reshape(2, 2, 2) / number), model) for c in counts]
    z = NormalDist().inv_cdf(1 - FALSE_ALARM_RATE / 2)
    for part, degrees in (("inestimable", 8 - 1 - 3), ("estimable", 3)):
        mean = np.mean([2 * number * getattr(split, part) for split in splits])
        assert abs(mean - degrees) < 1.2 * z * math.sqrt(2 * degrees / repeats)
        assert abs(mean - degrees) < abs(mean - 7)  # control: neither is the whole


def test_refused():
    law = a_law(1.0, 3)
    with pytest.raises(InputError, match="collection"):
        split_divergence(law, random_model(InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2}), 1), 0))
    with pytest.raises(InputError, match="closed under subsets"):
        split_divergence(law, random_model(InteractionHypergraph(ABC, [("a", "b")], hierarchical=False), 0))
    with pytest.raises(TypeError, match="LogLinearEnergy"):
        split_divergence(law, law)
    rows = Observations.from_table(ABC, np.arange(1, 13).reshape(2, 3, 2))
    with pytest.raises(TypeError, match="restricted"):
        split_divergence(rows, fit(restricted_interactions(ABC, "a + linear(b)"), rows))
    batch = LogLinearEnergy.from_theta(graph_of([(0,)]), torch.zeros(2, 1, dtype=torch.float64))
    with pytest.raises(InputError, match="one model"):
        split_divergence(law, batch)


def test_pages_show_the_parts_of_held_out_rows():
    train, held = load_table("ucb_admissions").split([0.6, 0.4], seed=0)
    graphs = {f"order {k}": InteractionHypergraph.from_order(train.domain, k) for k in (1, 2)}
    found = analyse({"train": train, "test": held}, graphs)
    for model in found.models:
        split = model.parts["test"].split
        assert model.parts["train"].split is None
        assert_close(split.total, model.parts["test"].scores.kl, relative=1e-9)
        assert_close(split.total, split.inestimable + split.estimable, relative=1e-9)
    (section,) = [s for s in found.page().sections if s.title.startswith("Interactions that lack")]
    (table,) = [block for block in section.blocks if block.kind == "table"]
    assert [[c.shown for c in row[:3]] for row in table.rows] == [["order 1", "test", "7"], ["order 2", "test", "18"]]
    assert table.chosen == 1
    alone = analyse({"train": train}, graphs).page()
    assert not [s for s in alone.sections if s.title.startswith("Interactions that lack")]  # control: none held out
    learned = analyse_learned(learn(train, held), {"train": train, "validation": held}).page()
    assert [s for s in learned.sections if s.title.startswith("Interactions that lack")]


def test_a_projection_that_has_not_converged_is_left_out_of_pages():
    p = a_law(0.2, 1)
    model = random_model(graph_of(COLLECTIONS[4]), 0)
    assert split_of_rows(Projections(p, method="ipf", max_iterations=1), model) is None
    assert split_of_rows(Projections(p), model) is not None  # control
