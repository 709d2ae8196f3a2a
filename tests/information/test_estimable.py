"""Parts of a divergence: estimable and inestimable (paper 1, C.4), bias and variance."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from pyro_hoim import (
    Domain,
    GeneralizedRoot,
    HierarchicalLogLinear,
    InputError,
    InteractionHypergraph,
    Observations,
    RootStructure,
    fit,
    load_table,
)
from pyro_hoim.boltzmann import RestrictedBoltzmannMachine
from pyro_hoim.core import Law
from pyro_hoim.generalized_root import TruncatedPoissonFamily
from pyro_hoim.information import Projections, bias_variance, project, split_divergence
from pyro_hoim.information.projection import split_of_rows
from pyro_hoim.log_linear import L2, LogLinearEnergy, learn, restricted_interactions
from pyro_hoim.study import analyse, analyse_learned
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, raises

from studies.random_laws import random_dirichlet_law, random_uniform_law
from support.projections import divergence, proportional_fit
from support.root_models import domain_of

pytestmark = pytest.mark.usefixtures("words_alone")

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
    (section,) = [s for s in found.page().sections if s.title.startswith("What limits the fit")]
    (table,) = [block for block in section.blocks if block.kind == "table"]
    assert [[c.shown for c in row[:3]] for row in table.rows] == [["order 1", "test", "7"], ["order 2", "test", "18"]]
    assert table.chosen == 1
    alone = analyse({"train": train}, graphs).page()
    assert not [s for s in alone.sections if s.title.startswith("What limits the fit")]  # control: none held out
    learned = analyse_learned(learn(train, held), {"train": train, "validation": held}).page()
    assert [s for s in learned.sections if s.title.startswith("What limits the fit")]


def test_a_projection_that_has_not_converged_is_left_out_of_pages():
    p = a_law(0.2, 1)
    model = random_model(graph_of(COLLECTIONS[4]), 0)
    assert split_of_rows(Projections(p, method="ipf", max_iterations=1), model) is None
    assert split_of_rows(Projections(p), model) is not None  # control


# Bias plus variance is the total error in every exponential family, and in no mixture


BINARY = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2, "d": 2})
MIXED = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})


def truth_of(domain, seed=1):
    return random_uniform_law(domain, generator=torch.Generator().manual_seed(seed))


def resampled(law, num_rows, num_sets, seed=2):
    """Empirical laws of data sets, (num_sets, cells)."""
    counts = np.random.default_rng(seed).multinomial(num_rows, law.probs.numpy().ravel(), size=num_sets)
    return counts / num_rows


def matched(features, target, base=None, steps=200):
    """Member of the family exp(features theta) whose means are the target's, by damped Newton; shares no code."""
    base = np.zeros(len(features)) if base is None else base
    theta = np.zeros(features.shape[1])

    def evaluated(theta):
        logits = features @ theta + base
        log_z = np.logaddexp.reduce(logits)
        return logits - log_z, log_z - target @ theta

    log_p, value = evaluated(theta)
    for _ in range(steps):
        p = np.exp(log_p)
        mean = p @ features
        gradient = mean - target
        if np.abs(gradient).max() < 1e-13:
            break
        step = np.linalg.lstsq((features * p[:, None]).T @ features - np.outer(mean, mean), gradient, rcond=None)[0]
        size = 1.0
        while (new := evaluated(theta - size * step))[1] > value - 1e-4 * size * (gradient @ step) and size > 1e-9:
            size /= 2
        theta, (log_p, value) = theta - size * step, new
    return theta


def log_weights(law):
    """Unnormalised log-probabilities of all states, (*batch, states)."""
    states = law.enumerate_support(expand=False)
    return -law.energy(states).double().movedim(0, -1)


class Family:
    """Features and base of an exponential family, by differences of energies, and its laws of theta."""

    def __init__(self, size, law):
        self.law = law
        none, each = log_weights(law(torch.zeros(size, dtype=torch.float64))), torch.eye(size, dtype=torch.float64)
        self.base = none.numpy()
        self.features = (log_weights(law(each)) - none).numpy().T

    def fit(self, p):
        """Law of the largest expected log-probability under p (cells,), and its table of log-probabilities."""
        theta = torch.tensor(matched(self.features, self.features.T @ p, self.base))
        law = self.law(theta)
        return law, law.log_prob(law.enumerate_support())


def log_linear(domain, edges, coding):
    hypergraph = InteractionHypergraph(domain, edges, hierarchical=False)
    size = hypergraph.num_parameters
    return Family(size, lambda theta: HierarchicalLogLinear(hypergraph, theta, coding=coding))


def truncated_root():
    family = TruncatedPoissonFamily(2)
    structure = RootStructure.complete(domain_of(3, family), 2)
    return Family(structure.num_terms, lambda psi: GeneralizedRoot(structure, psi, family))


PAIRS = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "c")]
FAMILIES = {
    "free": log_linear(MIXED, PAIRS, "free"),
    "free, not hierarchical": log_linear(MIXED, [("a",), ("a", "b"), ("a", "b", "c")], "free"),
    "corner": log_linear(MIXED, PAIRS, "corner"),
    "corner, not hierarchical": log_linear(MIXED, [("a",), ("a", "b"), ("a", "b", "c")], "corner"),
    "corner, binary": log_linear(BINARY, [*PAIRS, ("d",), ("a", "d")], "corner"),
    "truncated root": truncated_root(),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_total_is_bias_plus_variance_in(name):
    family = FAMILIES[name]
    truth = np.random.default_rng(3).random(len(family.base))
    truth /= truth.sum()
    _, log_q = family.fit(truth)
    data = 0.9 * np.random.default_rng(4).multinomial(200, truth, size=5) / 200 + 0.1 * truth  # no zero margins
    fitted = [family.fit(p) for p in data]
    result = bias_variance(torch.tensor(truth).log(), log_q, [log_fit for _, log_fit in fitted])
    assert result.total.shape == (5,) and result.bias.shape == () and result.note is None
    assert float(result.bias) > 1e-3 and float(result.variance.min()) > 1e-4
    assert_close(result.total, result.bias + result.variance, relative=1e-8, absolute=0.0)
    assert float(result.remainder.abs().max()) < 1e-8
    # control: another member in the place of the projection leaves a remainder
    wrong = bias_variance(torch.tensor(truth).log(), fitted[0][1], [log_fit for _, log_fit in fitted[1:]])
    assert float(wrong.remainder.abs().max()) > 1e-4
    assert_close(wrong.total, wrong.bias + wrong.variance + wrong.remainder, relative=1e-10)


def test_estimates_after_finitely_many_steps_are_members_as_well():
    """The identity holds at every member of the family, not at maximum-likelihood estimates only."""
    family = FAMILIES["corner, binary"]
    truth = truth_of(BINARY).probs.numpy().ravel()
    _, log_q = family.fit(truth)
    law = family.law(torch.randn(7, family.features.shape[1], generator=torch.Generator().manual_seed(5)).double())
    result = bias_variance(torch.tensor(truth).log().reshape(2, 2, 2, 2), log_q.reshape(2, 2, 2, 2), law)
    assert result.total.shape == (7,)
    assert float(result.remainder.abs().max()) < 1e-8


def test_a_mixture_has_a_remainder():
    """Mixtures of two independent laws are no exponential family; both fits have converged."""

    def mixture(p, steps=4000):
        cells = np.array(np.unravel_index(np.arange(16), (2,) * 4)).T
        rng = np.random.default_rng(6)
        share, means = np.array([0.4, 0.6]), rng.uniform(0.2, 0.8, (2, 4))
        for _ in range(steps):
            parts = share[:, None] * np.prod(np.where(cells, means[:, None], 1 - means[:, None]), -1)
            weights = p * parts / parts.sum(0)
            share = weights.sum(1)
            means = weights @ cells / share[:, None]
        return torch.tensor(parts.sum(0)).log()

    truth = truth_of(BINARY, 11).probs.numpy().ravel()
    data = [0.8 * truth + 0.2 * p for p in resampled(truth_of(BINARY, 11), 100, 3)]
    result = bias_variance(torch.tensor(truth).log(), mixture(truth), [mixture(p) for p in data])
    assert float(result.remainder.abs().min()) > 1e-5
    assert_close(result.remainder, result.total - result.bias - result.variance, relative=0.0, absolute=1e-12)


def test_a_machine_with_hidden_units_has_a_remainder():
    """Projection and estimates are optima of L-BFGS; without hidden units the same code leaves nothing."""

    def fitted(p, num_hidden, seed=13):
        start = torch.randn(4 * num_hidden + 4 + num_hidden, generator=torch.Generator().manual_seed(seed)).double()
        parameters = (0.5 * start).requires_grad_()
        sizes = [4, num_hidden, 4 * num_hidden]

        def law():
            bias, hidden, weights = parameters.split(sizes)
            return RestrictedBoltzmannMachine(BINARY, bias, hidden, weights.reshape(4, num_hidden))

        optimiser = torch.optim.LBFGS([parameters], max_iter=100, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

        def loss():
            optimiser.zero_grad()
            found = law()
            value = -(p * found.log_prob(found.enumerate_support(expand=False))).sum()
            value.backward()
            return value

        optimiser.step(loss)
        with torch.no_grad():
            found = law()
            return found.log_prob(found.enumerate_support(expand=False))

    truth = truth_of(BINARY, 11)
    p = truth.probs.reshape(-1)
    data = 0.4 * p + 0.6 * torch.tensor(resampled(truth, 100, 2)[1:])
    projection = fitted(p, 1)
    result = bias_variance(p.log(), projection, [fitted(q, 1) for q in data])
    assert float(result.remainder.abs()) > 1e-2
    assert_close(result.total, result.bias + result.variance + result.remainder)
    alone = bias_variance(p.log(), fitted(p, 0), [fitted(q, 0) for q in data])
    assert float(alone.remainder.abs().max()) < 1e-7


def test_laws_by_expectations_agree_with_laws_by_cells():
    graph = InteractionHypergraph.from_order(BINARY, 2)
    generator = torch.Generator().manual_seed(7)
    theta = torch.randn(5, graph.num_parameters, generator=generator, dtype=torch.float64)
    full = InteractionHypergraph.saturated(BINARY)
    truth = HierarchicalLogLinear(full, torch.randn(15, generator=generator, dtype=torch.float64))
    projection, fits = HierarchicalLogLinear(graph, theta[0]), HierarchicalLogLinear(graph, theta[1:])
    by_cells = bias_variance(Law(BINARY, truth.probs), projection, fits)
    for given in (fits, [HierarchicalLogLinear(graph, row) for row in theta[1:]]):
        result = bias_variance(truth, projection, given)
        for part in ("total", "bias", "variance", "remainder"):
            assert_close(getattr(result, part), getattr(by_cells, part), what=part)


def test_laws_of_sixty_variables_need_no_cells():
    """A chain of sixty variables; its projection on independent columns has the same margins."""
    domain = Domain.from_cardinalities([2] * 60)
    names = domain.names
    chain = InteractionHypergraph(domain, list(itertools.pairwise(names)), closure=True)
    theta = torch.randn(chain.num_parameters, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    truth = HierarchicalLogLinear(chain, theta)
    alone = InteractionHypergraph.from_order(domain, 1)
    logits = torch.special.logit(truth.mean)
    projection = HierarchicalLogLinear(alone, logits, coding="corner")
    fits = HierarchicalLogLinear(alone, logits + torch.linspace(-0.1, 0.1, 3)[:, None].double(), coding="corner")
    result = bias_variance(truth, projection, fits)
    assert float(result.remainder.abs().max()) < 1e-8 < float(result.bias)
    assert result.variance[1] == pytest.approx(0.0, abs=1e-10) and float(result.variance[0]) > 1e-3


def test_mean_variance_is_parameters_over_twice_the_rows():
    """Where the family holds the truth; 4 standard errors of the mean over 2,000 data sets, and a control."""
    truth = project(truth_of(BINARY), InteractionHypergraph.from_order(BINARY, 1)).probs
    p, num_rows = truth.numpy(), 5_000
    data = np.random.default_rng(9).multinomial(num_rows, p.ravel(), size=2_000).reshape(-1, 2, 2, 2, 2) / num_rows
    margins = [data.sum(tuple(j + 1 for j in range(4) if j != i)) for i in range(4)]
    fits = np.einsum("na,nb,nc,nd->nabcd", *margins)
    result = bias_variance(torch.tensor(p).log(), torch.tensor(p).log(), torch.tensor(fits).log())
    mean, error = result.average("variance")
    assert abs(mean - 4 / (2 * num_rows)) < 4 * error
    assert abs(mean - 5 / (2 * num_rows)) > 4 * error  # control: one parameter more
    assert (result.average("bias"), result.average("total").mean) == ((0.0, 0.0), pytest.approx(mean, abs=1e-12))


def test_zero_margins_give_an_infinite_variance_and_finite_steps_do_not():
    truth = torch.full((2, 2), 0.25, dtype=torch.float64)
    never = torch.tensor([[0.5, 0.0], [0.5, 0.0]], dtype=torch.float64)  # the second variable was never 1
    nearly = torch.tensor([[0.5 - 1e-9, 1e-9], [0.5 - 1e-9, 1e-9]], dtype=torch.float64)
    result = bias_variance(truth.log(), truth.log(), torch.stack((never, nearly)).log())
    assert result.variance.isinf().tolist() == result.total.isinf().tolist() == [True, False]
    assert result.remainder.tolist() == [0, 0]  # truth and projection agree
    other = bias_variance(nearly.log(), truth.log(), never.log())
    assert math.isnan(other.remainder) and math.isinf(other.total) and math.isfinite(other.bias)
    assert result.num_infinite == 1 and result.note.startswith("1 of 2 estimates give probability zero")
    assert result.average("variance").mean == math.inf
    # a state that the truth and the projection exclude as well costs nothing
    both = bias_variance(never.log(), never.log(), never.log())
    assert (both.total, both.bias, both.variance, both.remainder) == (0, 0, 0, 0) and both.note is None


def test_one_data_set_has_no_standard_error_and_other_laws_are_tables():
    law = truth_of(MIXED)
    uniform = Law(MIXED, torch.full((2, 3, 2), 1 / 12))
    result = bias_variance(law, uniform, uniform)
    assert float(result.total) == pytest.approx(law.divergence(), abs=1e-12)
    assert result.average("total").std_error == math.inf
    table = Categorical(probs=law.probs.ravel())
    other = bias_variance(table, Categorical(logits=torch.zeros(12)), [Categorical(logits=torch.zeros(12))])
    assert float(other.bias) == pytest.approx(law.divergence(), abs=1e-7)


def test_errors_of_an_estimated_log_z_are_total_and_variance_and_no_remainder():
    truth = truth_of(BINARY).probs.log()
    fitted = random_uniform_law(BINARY, generator=torch.Generator().manual_seed(12)).probs.log()
    exact = bias_variance(truth, truth, fitted)
    shifted = bias_variance(truth, truth, fitted - 0.3, validate=False)
    assert_close(shifted.total - exact.total, 0.3)
    assert_close(shifted.variance - exact.variance, 0.3)
    assert_close(shifted.remainder, exact.remainder)
    with raises("out-of-range", "fits"):
        bias_variance(truth, truth, fitted - 0.3)


def test_refusals():
    law = truth_of(BINARY).probs.log()
    with raises("wrong-shape", "projection"):
        bias_variance(law, law[0], law)
    with raises("wrong-shape", "fits"):
        bias_variance(law, law, law[0])
    with raises("wrong-shape", "fits"):
        bias_variance(law, law, [law, law[0]])
    for none in ([], law.new_zeros((0, 2, 2, 2, 2))):
        with raises("empty", "fits"):
            bias_variance(law, law, none)
    names = ("a", "b")
    near, far = (Law(Domain.from_cardinalities(dict.fromkeys(n, 2)), torch.eye(2) / 2) for n in (names, names[::-1]))
    assert float(bias_variance(near, near, near).total) == 0
    with raises("other-domain", "projection"):
        bias_variance(near, far, near)
    with raises("other-domain", "fits"):
        bias_variance(near, near, [near, far])
    with raises("out-of-range", "truth"):
        bias_variance(law.exp(), law, law)
    with raises("out-of-range", "fits"):
        bias_variance(law, law, law * math.nan)
    with raises("wrong-type", "fits"):
        bias_variance(law, law, 3)
    with raises("unknown-choice", "part"):
        bias_variance(law, law, law).average("error")
