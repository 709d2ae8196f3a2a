"""HierarchicalLogLinear against brute force over all states."""

import copy
import itertools
import math
import pickle
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyro
import pytest
import torch
from hypothesis import given, settings, strategies as st
from law_models import CHAIN, CYCLE, GRAPHS, TRIPLES, WEAK, draw_theta, graph, law_of, theta_of
from torch.distributions import kl_divergence

from pyro_hoim import Domain, InputError, InteractionHypergraph, IntractableError, Variable
from pyro_hoim.core import StateSpace
from pyro_hoim.core.laws import shared
from pyro_hoim.errors import InputTypeError, UnknownNameError
from pyro_hoim.generalized_root import (
    GaussianFamily,
    GeneralizedRoot,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.log_linear import Auto, HierarchicalLogLinear, LogLinearEnergy, energy as model_module, parametrization
from pyro_hoim.testing import (
    assert_close,
    assert_exact_law,
    check_distribution,
    count_states,
    enumerate_codes,
    exact_log_partition,
    exact_statistics,
    exact_table,
    raises,
    required_draws,
)

from support.strategies import domains, hypergraphs


def oracle(law):
    """Log-probability of every cell by brute force, (*batch, *cardinalities)."""
    tables = parametrization(law.hypergraph).to_tables(law.theta.detach(), law.coding)
    return exact_table(law.hypergraph, tables)


def all_states(hypergraph):
    return torch.from_numpy(enumerate_codes(hypergraph.domain.cardinalities))


def _in_coding(hypergraph, coding, *batch):
    """The collection and a random theta in a coding."""
    hypergraph = hypergraph.in_coding("corner") if coding == "corner" else hypergraph
    theta, codings = draw_theta(hypergraph, *batch), parametrization(hypergraph)
    return hypergraph, codings.convert(theta, codings.coding, coding)


# Probabilities


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
def test_conformance(hypergraph, coding):
    hypergraph, theta = _in_coding(hypergraph, coding, 2)
    law = HierarchicalLogLinear(hypergraph, theta, coding=coding)
    assert law.sample_is_exact and law.has_enumerate_support and not law.has_rsample
    assert_close(law.log_prob_table, oracle(law), absolute=1e-10)
    check_distribution(
        partial(HierarchicalLogLinear, hypergraph, coding=coding),
        theta,
        log_probs=oracle(law),
        shape_arguments={"hypergraph": hypergraph},
        skip=["check_gradients"] if coding == "balanced" else [],  # steps of differences leave the balanced tables
    )


def test_oracle_comparison_notices_a_dropped_interaction_and_a_wrong_coding():
    theta = draw_theta(CYCLE)
    dropped = theta.clone()
    dropped[CYCLE.parameter_slices[("x0", "x3")]] = 0
    right = HierarchicalLogLinear(CYCLE, theta)
    for wrong in (
        HierarchicalLogLinear(CYCLE, dropped),
        HierarchicalLogLinear(CYCLE, theta, coding="corner"),
        HierarchicalLogLinear(CYCLE, 1.05 * theta),
    ):
        with pytest.raises(AssertionError):
            assert_close(wrong.log_prob_table, oracle(right), absolute=1e-10)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(data=st.data())
def test_random_models_agree_with_brute_force(data):
    cards = data.draw(st.lists(st.integers(1, 3), min_size=0, max_size=5))
    names = [f"x{i}" for i in range(len(cards))]
    edges = data.draw(st.lists(st.sets(st.sampled_from(names), min_size=1, max_size=3), max_size=5)) if names else []
    hypergraph = graph(cards, edges)
    law = HierarchicalLogLinear(
        hypergraph,
        draw_theta(hypergraph, seed=data.draw(st.integers(0, 99)), scale=data.draw(st.sampled_from([0, 1, 30]))),
    )
    table = oracle(law)
    assert_close(law.log_prob_table, table, absolute=1e-9, relative=1e-10)
    probs = np.exp(table)
    assert_close(law.entropy(), -(probs * table).sum(), absolute=1e-9)
    kept = sorted(data.draw(st.sets(st.sampled_from(names)))) if names else []
    axes = tuple(i for i, name in enumerate(names) if name not in kept)
    assert_close(law.marginal(kept).probs, probs.sum(axes), absolute=1e-10)
    evidence = {name: data.draw(st.integers(0, cards[names.index(name)] - 1)) for name in kept}
    part = probs[tuple(evidence.get(name, slice(None)) for name in names)]
    if part.sum() > 1e-200:
        assert_close(law.condition(evidence).probs, part / part.sum(), absolute=1e-9)


def test_large_theta_does_not_overflow():
    law = law_of(CYCLE, scale=1000.0)
    assert_close(law.log_prob_table, oracle(law), relative=1e-10, absolute=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_dtype_of_theta(hypergraph, dtype):
    law = HierarchicalLogLinear(hypergraph, draw_theta(hypergraph).to(dtype))
    value = law.sample((2,))
    assert value.dtype == torch.long
    for result in (
        law.log_prob(value),
        law.mean,
        law.variance,
        law.entropy(),
        law.eta,
        law.probs,
        law.log_partition.value,
    ):
        assert result.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10  # eight digits of single precision over a few additions
    assert_close(law.log_prob_table, oracle(law), absolute=tolerance)
    assert kl_divergence(law, law).dtype == dtype


def test_log_pseudo_prob_and_energy_need_no_normalising_constant(hypergraph):
    law = law_of(hypergraph, 2, partition=NoPartition())
    table = oracle(law)
    states = all_states(hypergraph)
    expected = np.zeros((2, len(states)))
    for axis in range(len(hypergraph.domain)):
        probs = np.exp(table)
        conditional = table - np.log(probs.sum(axis + 1, keepdims=True))
        expected += conditional.reshape(2, -1)
    assert_close(law.log_pseudo_prob(states.unsqueeze(1)), expected.T, absolute=1e-10)
    energy = law.energy(states.unsqueeze(1))
    assert_close(energy - energy[:1], (table.reshape(2, -1)[:, :1] - table.reshape(2, -1)).T, absolute=1e-10)
    with pytest.raises(IntractableError):
        law.log_prob(states.unsqueeze(1))


@dataclass(frozen=True)
class NoPartition:
    """A backend whose budget everything exceeds."""

    is_exact: bool = True

    def log_partition(self, model):
        raise IntractableError("no budget")


@dataclass(frozen=True)
class Counting:
    """A backend that counts the normalising constants it computes."""

    is_exact: bool = True
    calls: list[torch.Size] = field(default_factory=list)

    def log_partition(self, model):
        self.calls.append(model.batch_shape)
        return Auto().log_partition(model)

    def __getattr__(self, name):
        return getattr(Auto(), name)


# Shapes


@pytest.mark.parametrize(
    ("own", "wanted"), [((), (3,)), ((), (2, 3)), ((3,), (2, 3)), ((1,), (4,)), ((2, 1), (5, 2, 3)), ((1, 1), (2, 3))]
)
def test_expand_shares_one_normalising_constant(own, wanted):
    counting = Counting()
    law = law_of(CYCLE, *own, partition=counting)
    wide = law.expand(torch.Size(wanted))
    assert wide.theta.shape == (*wanted, CYCLE.num_parameters)
    states = all_states(CYCLE)
    value = states.reshape(len(states), *(1,) * len(wanted), -1)
    assert torch.equal(
        wide.log_prob(value),
        law.log_prob(value.reshape(len(states), *(1,) * len(own), -1))
        .reshape(len(states), *(1,) * (len(wanted) - len(own)), *own)
        .expand(len(states), *wanted),
    )
    assert counting.calls == [torch.Size(own)]
    assert wide.log_partition.value.shape == wide.entropy().shape == wanted
    assert wide.mean.shape == wide.mode.shape == (*wanted, 4)
    assert wide.energy_model.batch_shape == wanted
    assert wide.marginal(["x0"]).batch_shape == wide.condition({"x0": 1}).batch_shape == wanted
    assert wide.expand_by(torch.Size([7])).batch_shape == (7, *wanted)
    for wrong in ((*wanted[:-1], wanted[-1] + 1), ()):
        with pytest.raises(InputError, match="cannot be expanded"):
            wide.expand(torch.Size(wrong))


def test_a_subclass_expands_to_itself():
    class Named(HierarchicalLogLinear):
        pass

    law = Named(CYCLE, draw_theta(CYCLE))
    assert type(law.expand(torch.Size([3]))) is type(law.marginal(["x0"])) is type(law.condition({"x0": 0})) is Named


# Support


def test_enumerate_support_is_refused_past_its_budget():
    hypergraph = graph([2] * 20, [("x0", "x1")])
    law = law_of(hypergraph)
    with pytest.raises(IntractableError, match=r"max_enumerated_states=65536, received 1048576 states.*MixedGibbs"):
        law.enumerate_support()
    narrow = graph([2] * 25, [("x0", "x1")])
    with pytest.raises(IntractableError, match="max_table_cells"):
        _ = law_of(narrow).probs

    class Patient(HierarchicalLogLinear):
        max_enumerated_states = 2**20

    assert Patient(hypergraph, draw_theta(hypergraph)).enumerate_support().shape == (2**20, 20)


def test_support_constraint_and_repr():
    support = law_of(CHAIN).support
    assert support.is_discrete
    assert support.event_dim == 1
    assert HierarchicalLogLinear.support.event_dim == 1
    assert HierarchicalLogLinear.support.is_discrete
    inside = torch.tensor([[0, 0, 0, 0], [1, 2, 1, 1]])
    outside = torch.tensor([[0, 3, 0, 0], [-1, 0, 0, 0]])
    assert support.check(inside).tolist() == [True, True]
    assert support.check(outside).tolist() == [False, False]
    assert support.check(inside + 0.5).tolist() == [False, False]
    assert support.check(torch.full((4,), math.nan)).item() is False
    assert repr(StateSpace((2, 3))) == "StateSpace(cardinalities=(2, 3))"
    with pytest.raises(InputError, match="expected shape"):
        support.check(torch.zeros(3))
    text = repr(law_of(CHAIN, 2))
    assert text.startswith("HierarchicalLogLinear(InteractionHypergraph(4 variables")
    assert "batch_shape=(2,)" in text


# Samples


def test_batched_and_expanded_samples_follow_their_own_law():
    law = law_of(CHAIN, 2, 1, scale=0.5).expand(torch.Size([2, 2]))
    pyro.set_rng_seed(21)
    draws = law.sample(torch.Size([required_draws(24, 0.05)]))
    probs = np.exp(oracle(law))
    for i in range(2):
        for j in range(2):
            counts = count_states(draws[:, i, j], CHAIN.domain.cardinalities)
            assert_exact_law(counts, probs[i, j].reshape(-1))
            with pytest.raises(AssertionError):
                assert_exact_law(counts, probs[1 - i, j].reshape(-1))


# Moments


def test_moments_entropy_and_mode(hypergraph):
    law = law_of(hypergraph, 2)
    table = oracle(law).reshape(2, -1)
    probs, codes = np.exp(table), enumerate_codes(hypergraph.domain.cardinalities).astype(float)
    mean = probs @ codes
    assert_close(law.mean, mean, absolute=1e-10)
    assert_close(law.variance, probs @ codes**2 - mean**2, absolute=1e-10)
    assert_close(law.stddev, np.sqrt(np.maximum(probs @ codes**2 - mean**2, 0)), absolute=1e-7)
    assert_close(law.entropy(), -(probs * table).sum(-1), absolute=1e-10)
    assert_close(law.eta, exact_statistics(hypergraph, oracle(law)), absolute=1e-10)
    log_z = exact_log_partition(hypergraph, law.energy_model.tables)
    assert_close(law.log_partition.value, log_z, absolute=1e-10)
    assert (law.log_partition.kind, law.log_partition.coding) == ("exact", "balanced")
    assert torch.equal(law.mode, torch.from_numpy(codes[table.argmax(-1)]).long())
    assert law.mode.dtype == torch.long


# Gradients


def test_marginal_and_conditional_laws_are_differentiable():
    theta = draw_theta(CYCLE).requires_grad_()
    state = torch.tensor([1, 0])

    def table(theta):
        return HierarchicalLogLinear(CYCLE, theta).log_prob_table.logsumexp((1, 3))[1, 0]

    (expected,) = torch.autograd.grad(table(theta), theta)
    (actual,) = torch.autograd.grad(HierarchicalLogLinear(CYCLE, theta).marginal(["x0", "x2"]).log_prob(state), theta)
    assert_close(actual, expected, absolute=1e-10)
    conditional = HierarchicalLogLinear(CYCLE, theta).condition({"x1": 2, "x3": 0})
    (actual,) = torch.autograd.grad(conditional.log_prob(state), theta)
    slice_ = HierarchicalLogLinear(CYCLE, theta).log_prob_table[:, 2, :, 0]
    (expected,) = torch.autograd.grad(slice_[1, 0] - slice_.logsumexp((0, 1)), theta)
    assert_close(actual, expected, absolute=1e-10)


# Cache


def test_normalising_constant_is_computed_once_per_law_and_graph():
    counting = Counting()
    law = law_of(CYCLE, partition=counting)
    assert counting.calls == []  # lazily
    for _ in range(3):
        law.log_prob(torch.zeros(4))
    _ = law.log_partition, law.log_prob_table
    assert len(counting.calls) == 1
    theta = draw_theta(CYCLE).requires_grad_()
    law = HierarchicalLogLinear(CYCLE, theta, partition=counting)
    state = torch.zeros(4, dtype=torch.long)
    gradients = []
    for _ in range(3):
        law.log_prob(state).backward()
        gradients.append(theta.grad.clone())
        theta.grad = None
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])
    calls = len(counting.calls)
    with torch.no_grad():
        first = law.log_prob(state)
        law.log_prob(state)
    assert not first.requires_grad
    assert len(counting.calls) == calls + 1
    total = law.log_prob(state) + law.log_prob(state + 1)
    assert total.requires_grad
    assert len(counting.calls) == calls + 2


def test_cache_follows_theta_changed_in_place():
    theta = draw_theta(CYCLE)
    law = HierarchicalLogLinear(CYCLE, theta)
    before = law.log_prob_table.clone()
    theta.mul_(2)
    assert_close(law.log_prob_table, oracle(law), absolute=1e-10)
    assert not torch.allclose(law.log_prob_table, before)
    theta[0] = math.nan
    with pytest.raises(InputError, match="theta: expected finite"):
        law.log_prob(torch.zeros(4))


def test_balanced_theta_is_left_alone_by_the_cache():
    theta = parametrization(CYCLE).to_tables(draw_theta(CYCLE), "free").requires_grad_()
    for _ in range(2):
        HierarchicalLogLinear(CYCLE, theta, coding="balanced").log_prob(torch.zeros(4)).backward()
    assert not theta._backward_hooks


# Copies


def test_copies_are_independent_and_may_have_a_graph():
    theta = draw_theta(CYCLE)
    law = HierarchicalLogLinear(CYCLE, theta)
    other = copy.deepcopy(law)
    before = other.log_prob_table
    theta.mul_(2)
    assert torch.equal(other.log_prob_table, before)
    theta = draw_theta(CYCLE).requires_grad_()
    law = HierarchicalLogLinear(CYCLE, theta)
    value = law.log_prob(torch.zeros(4))
    assert torch.equal(pickle.loads(pickle.dumps(law)).log_prob(torch.zeros(4)), value)


@pytest.mark.cuda
def test_cuda():
    theta = draw_theta(CYCLE, 2)
    law = HierarchicalLogLinear(CYCLE, theta.cuda())
    assert law.sample(torch.Size([5])).is_cuda
    states = law.enumerate_support()
    assert_close(law.log_prob(states).cpu(), HierarchicalLogLinear(CYCLE, theta).log_prob(states.cpu()))
    for result in (
        law.mean,
        law.mode,
        law.entropy(),
        law.eta,
        law.marginal(["x0"]).probs,
        law.condition({"x0": 1}).probs,
    ):
        assert result.is_cuda


# Conditional and marginal laws


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
def test_derived_laws_keep_coding_backend_and_validation(coding):
    theta = parametrization(TRIPLES).convert(draw_theta(TRIPLES), "free", coding)
    counting = Auto()
    law = HierarchicalLogLinear(TRIPLES, theta, coding=coding, partition=counting, validate_args=False)
    for derived in (law.condition({"x1": 0}), law.marginal(["x0", "x3"])):
        assert derived.coding == coding
        assert derived.partition is counting
        assert derived._validate_args is False


def test_marginal_structure_is_induced_edges_and_boundary_simplices():
    cards = dict.fromkeys("abcdefg", 2)
    domain = Domain.from_cardinalities(cards)
    edges = [("a", "b"), ("b", "c"), ("b", "d"), ("d", "e"), ("e", "f")]
    hypergraph = InteractionHypergraph(domain, edges, closure=True)
    law = law_of(hypergraph)
    marginal = law.marginal(["g", "f", "c", "d", "a"])  # b has the boundary a, c, d; e has d, f; g is free
    assert marginal.hypergraph.maximal_edges == (("d", "f"), ("a", "c", "d"))
    assert marginal.domain.names == ("a", "c", "d", "f", "g")
    assert_close(marginal.probs, np.exp(oracle(law)).sum((1, 4)), absolute=1e-12)
    same = law.marginal(domain.names)
    assert same.hypergraph == hypergraph
    assert_close(same.theta, law.theta, absolute=1e-12)
    assert law.marginal([]).event_shape == (0,)


def test_marginals_of_a_long_chain_are_cheap_and_those_that_are_not_are_refused():
    hypergraph = graph([2] * 60, [(f"x{i}", f"x{i + 1}") for i in range(59)])
    law = law_of(hypergraph)
    marginal = law.marginal(["x0", "x59"])
    assert marginal.hypergraph.num_parameters == 3
    expected = law.partition.marginal(law.energy_model, ("x0", "x59"))
    assert_close(marginal.probs, expected, absolute=1e-10)
    star = graph([2] * 30, [("x0", f"x{i}") for i in range(1, 30)])
    law = law_of(star)
    with raises("over-budget", "marginal"):
        law.marginal([f"x{i}" for i in range(1, 30)])
    wrong = (
        (["y"], UnknownNameError, None),
        ("x0", InputTypeError, "received the string"),
        (["x0", "x0"], InputError, "unique"),
    )
    for names, error, message in wrong:
        with pytest.raises(error, match=message):
            law.marginal(names)


def test_weak_heredity_marginal_and_condition_keep_their_collection():
    law = law_of(WEAK, 2)
    probs = np.exp(oracle(law))
    marginal = law.marginal(["x0", "x1", "x2"])
    assert marginal.hypergraph.edges == (("x0",), ("x2",), ("x0", "x1", "x2"))
    assert_close(marginal.probs, probs.sum(4), absolute=1e-12)
    assert law.condition({"x1": 2}).hypergraph.edges == (("x0",), ("x0", "x2"), ("x2", "x3"))


# Divergence


def test_kl_divergence_over_the_union_of_edges():
    names = ["chain", "cycle", "weak heredity"]
    for first in names:
        for second in names:
            p = HierarchicalLogLinear(GRAPHS[first], draw_theta(GRAPHS[first], 2, 1, seed=1))
            q = HierarchicalLogLinear(GRAPHS[second], draw_theta(GRAPHS[second], 3, seed=2), coding="free")
            log_p, log_q = oracle(p).reshape(2, 1, -1), oracle(q).reshape(1, 3, -1)
            expected = (np.exp(log_p) * (log_p - log_q)).sum(-1)
            assert_close(kl_divergence(p, q), expected, absolute=1e-10)
            with pytest.raises(AssertionError):
                assert_close(kl_divergence(q, p), expected.T, absolute=1e-3)


def test_kl_divergence_is_differentiable_zero_at_equality_and_of_one_domain():
    theta = draw_theta(CYCLE).requires_grad_()
    p = HierarchicalLogLinear(CYCLE, theta)
    q = HierarchicalLogLinear(CYCLE, theta.detach())
    assert_close(kl_divergence(p, q), 0.0, absolute=1e-12)
    assert torch.autograd.gradcheck(
        lambda t: kl_divergence(HierarchicalLogLinear(CYCLE, t), q), draw_theta(CYCLE, seed=9).requires_grad_()
    )
    with pytest.raises(InputError, match="different domains"):
        kl_divergence(law_of(CHAIN), law_of(TRIPLES))


def test_kl_divergence_when_the_union_is_too_wide():
    p_graph = graph([2] * 6, [(f"x{i}", f"x{i + 1}") for i in range(5)])
    q_graph = graph([2] * 6, [("x0", "x5"), ("x0", "x3"), ("x2", "x5"), ("x1", "x4")])
    p, q = law_of(p_graph), law_of(q_graph)
    narrow = HierarchicalLogLinear(p_graph, p.theta, partition=RefusesMoreThan(len(p_graph)))
    assert_close(kl_divergence(narrow, q), kl_divergence(p, q), absolute=1e-12)


class RefusesMoreThan(Auto):
    """A backend whose budget a hypergraph with more edges exceeds."""

    def __init__(self, num_edges):
        super().__init__()
        object.__setattr__(self, "num_edges", num_edges)

    def plan(self, hypergraph, *args, **kwargs):
        return replace(super().plan(hypergraph, *args, **kwargs), feasible=len(hypergraph) <= self.num_edges)

    def expectations(self, model):
        assert len(model.hypergraph) <= self.num_edges
        return super().expectations(model)


# Other constructors and coordinates


def test_from_tables_drops_the_constant_and_fills_missing_tables():
    generator = torch.Generator().manual_seed(1)
    pair = torch.randn(5, 3, 2, generator=generator, dtype=torch.float64)
    single = torch.randn(2, generator=generator, dtype=torch.float64)
    law = HierarchicalLogLinear.from_tables(CYCLE, {("x1", "x2"): pair, "x3": single})
    assert law.batch_shape == (5,)
    logits = pair[:, None, :, :, None] + single
    expected = logits.expand(5, 2, 3, 2, 2)
    assert_close(law.probs, expected.flatten(1).softmax(-1).reshape(expected.shape), absolute=1e-12)
    flat = HierarchicalLogLinear.from_tables(CYCLE, torch.ones(CYCLE.num_terms, dtype=torch.float64))
    assert_close(flat.theta, torch.zeros(CYCLE.num_parameters), absolute=1e-12)
    corner = HierarchicalLogLinear.from_tables(CYCLE, {("x1", "x2"): pair}, coding="corner")
    assert corner.coding == "corner"
    for tables, text in [
        ({("x0", "x2"): torch.zeros(2, 2)}, "not an edge"),
        ({("x1", "x0"): torch.zeros(3, 2)}, "schema order"),
        ({("x0", "x1"): torch.zeros(3, 2)}, "expected shape"),
        ({"x0": torch.tensor([0.0, math.inf])}, "finite"),
        (torch.zeros(3), "expected shape"),
    ]:
        with pytest.raises(InputError, match=text):
            HierarchicalLogLinear.from_tables(CYCLE, tables)


# Errors


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("validate_args", [None, True, False])
def test_theta_that_is_not_finite_is_always_an_error(bad, validate_args):
    theta = draw_theta(CHAIN)
    theta[2] = bad
    with raises("not-finite", "theta"):
        HierarchicalLogLinear(CHAIN, theta, validate_args=validate_args)


def test_where_validation_is_off_globally_it_gives_nan_for_divergences():
    theta = draw_theta(CHAIN, 2)
    theta[1, 2] = math.inf
    with pyro.validation_enabled(False):
        theta.requires_grad_()
        law = HierarchicalLogLinear(CHAIN, theta)
        value = law.log_prob(torch.zeros(4))
        assert value.isnan().all()
        value.sum().backward()
        for action in (law.sample, lambda: law.mode, lambda: law.marginal(["x0"]), lambda: law.condition({"x0": 0})):
            with pytest.raises(InputError, match="theta: expected finite"):
                action()


def test_wrong_arguments_say_what_was_expected():
    good = draw_theta(CHAIN)
    for structure, theta, options, code, argument in (
        (CHAIN, good[:-1], {}, "wrong-shape", "theta"),
        (CHAIN, torch.tensor(1.0), {}, "wrong-shape", "theta"),
        (CHAIN, torch.zeros(10, dtype=torch.long), {}, "wrong-type", "theta"),
        (CHAIN, [0.0] * 10, {}, "wrong-type", "theta"),
        (CHAIN.domain, good, {}, "wrong-type", "hypergraph"),
        (CHAIN, good, {"coding": "effect"}, "unknown-choice", "coding"),
        (CHAIN, good, {"partition": "elimination"}, "wrong-type", "partition"),
        (WEAK.in_coding("corner"), draw_theta(WEAK), {"coding": "free"}, "no-method", None),
    ):
        with raises(code, argument):
            HierarchicalLogLinear(structure, theta, **options)
    with pytest.raises(InputError, match="balanced"):
        HierarchicalLogLinear(CHAIN, torch.ones(CHAIN.num_terms), coding="balanced")


def test_values_outside_the_support_raise_when_validating():
    law = law_of(CHAIN, 2, validate_args=True)
    for value, text in [
        (torch.tensor([0, 3, 0, 0]), "variable 'x1' has codes 0 to 2, received 3"),
        (torch.tensor([[0, 0, 0, 0], [0, 0, -1, 0]]), "variable 'x2'"),
        (torch.tensor([0.5, 0, 0, 0]), "received 0.5"),
        (torch.tensor([math.nan, 0, 0, 0]), "received nan"),
        (torch.zeros(3), "expected a shape that broadcasts"),
        (torch.zeros(()), "expected a shape that broadcasts"),
        (torch.zeros(3, 4), r"received \(3, 4\)"),
    ]:
        for score in (law.log_prob, law.log_pseudo_prob, law.energy):
            with pytest.raises(InputError, match=text):
                score(value)
    with pytest.raises(InputTypeError):
        law.log_prob([0, 0, 0, 0])
    assert law_of(CHAIN, validate_args=False)._validate_args is False
    assert law.expand(torch.Size([3, 2]))._validate_args is True


def test_codes_are_checked_once(monkeypatch):
    """By the distribution when it validates, else by the model; values that would be looked up wrongly always raise."""
    checks = []
    check_codes, is_code = model_module.check_codes, shared.is_code
    monkeypatch.setattr(model_module, "check_codes", lambda *a: checks.append("model") or check_codes(*a))
    monkeypatch.setattr(shared, "is_code", lambda *a: checks.append("support") or is_code(*a))
    for validate_args, expected in ((True, "support"), (False, "model")):
        law = law_of(CHAIN, 2, validate_args=validate_args)
        for score in (law.log_prob, law.energy):
            checks.clear()
            score(torch.zeros(4, dtype=torch.long))
            assert checks == [expected]
            for wrong in (torch.tensor([0, 3, 0, 0]), torch.tensor([0.5, 0, 0, 0])):
                with pytest.raises(InputError, match="variable"):
                    score(wrong)
            with pytest.raises(InputTypeError, match="bool"):
                score(torch.zeros(4, dtype=torch.bool))


# Evidence as tensors, one value per row and batch element: against the sliced joint table, 1e-10 relative.

GRAPH = InteractionHypergraph.from_order(Domain.from_labels({"a": "xy", "b": "uvw", "c": "pq", "d": "st"}), 3)
ROWS = torch.tensor([0, 2, 1, 1, 0])


def sliced(law, element, state):
    """Conditional table of one batch element by slicing and normalising its joint table."""
    table = np.exp(exact_table(law.hypergraph, law.energy_model.tables[element]))
    part = table[tuple(state.get(name, slice(None)) for name in law.domain.names)]
    return part / part.sum()


@given(hypergraphs(domain=domains(max_variables=4), hierarchical=False), st.data())
def test_every_row_and_batch_element_has_its_own_slice(graph, data):
    law = HierarchicalLogLinear(graph, theta_of(graph, 2))
    names = data.draw(st.lists(st.sampled_from(graph.domain.names), unique=True))
    rng, evidence = np.random.default_rng(data.draw(st.integers(0, 99))), {}
    for name in names:
        shape = data.draw(st.sampled_from([(), (2,), (3, 1), (3, 2)]))
        codes = rng.integers(graph.domain[name].cardinality, size=shape)
        evidence[name] = torch.from_numpy(codes) if shape else int(codes)
    found = law.condition(evidence)
    batch = torch.broadcast_shapes((2,), *(torch.as_tensor(codes).shape for codes in evidence.values()))
    assert found.batch_shape == batch and found.hypergraph == graph.restrict(names)
    rest, constant = law.energy_model.condition(evidence)
    assert rest.batch_shape == constant.shape == batch
    for element in itertools.product(*map(range, batch)):
        state = {name: int(torch.as_tensor(codes).expand(batch)[element]) for name, codes in evidence.items()}
        assert_close(found.probs[element], sliced(law, element[-1:], state), absolute=1e-10)
        alone, c = law.energy_model.condition(state)
        assert torch.equal(rest.tables[element], alone.tables[element[-1:]])
        assert_close(constant[element], c[element[-1:]], absolute=1e-12)


def test_labels_codes_and_tensors_together():
    law = HierarchicalLogLinear(GRAPH, theta_of(GRAPH))
    found = law.condition({"a": "y", "b": ROWS, "c": 1})
    assert found.batch_shape == (5,) and found.domain.names == ("d",)
    for row, b in enumerate(ROWS.tolist()):
        assert_close(found.probs[row], sliced(law, (), {"a": 1, "b": b, "c": 1}), absolute=1e-10)
    # Control: the evidence of another row is another law.
    assert float((found.probs[0] - found.probs[1]).abs().max()) > 0.01
    assert torch.equal(law.condition({"b": ROWS.double(), "a": 1, "c": 1}).probs, found.probs)
    assert_close(law.condition({}).probs, law.probs, absolute=1e-12)
    nothing_left = law.condition({"a": 1, "b": ROWS, "c": ROWS % 2, "d": 0})
    assert nothing_left.batch_shape == (5,) and nothing_left.event_shape == (0,)


def test_chain_rule_of_rows_holds_in_expanded_laws_both_precisions_and_gradients():
    x = torch.tensor([[0, 2, 1, 0], [1, 0, 0, 1], [1, 1, 1, 1]])
    for dtype in (torch.float32, torch.float64):
        theta = theta_of(GRAPH, 2).to(dtype).requires_grad_()
        law = HierarchicalLogLinear(GRAPH, theta).expand((3, 2))
        given_ab = law.condition({"a": x[:, :1], "b": x[:, 1:2]})
        assert given_ab.batch_shape == (3, 2) and given_ab.theta.dtype == dtype
        total = law.marginal(["a", "b"]).log_prob(x[:, None, :2]) + given_ab.log_prob(x[:, None, 2:])
        joint = law.log_prob(x[:, None])
        tolerance = 1e-10 if dtype == torch.float64 else 1e-5
        assert_close(total, joint, absolute=tolerance)
        gradients = [torch.autograd.grad(value.sum(), theta, retain_graph=True)[0] for value in (total, joint)]
        assert_close(*gradients, absolute=tolerance)


@pytest.mark.parametrize(
    ("evidence", "error", "message"),
    [
        ({"b": torch.tensor([0, 3])}, InputError, r"evidence of 'b': expected codes from 0 to 2 .*received 3"),
        ({"b": torch.tensor([0, -1])}, InputError, "evidence of 'b'.*received -1"),
        ({"b": torch.tensor([0.0, 0.5])}, InputError, "evidence of 'b'.*received 0.5"),
        ({"b": torch.tensor([True, False])}, InputTypeError, "evidence of 'b'.*torch.bool"),
        ({"bb": torch.tensor([0, 1])}, UnknownNameError, "did you mean 'b'"),
        ({"bb": "u"}, UnknownNameError, "did you mean 'b'"),
        ({"b": "uu"}, UnknownNameError, "label 'uu'"),
        ({"b": 3}, InputError, "code from 0 to 2"),
        ({"a": torch.zeros(2).long(), "b": torch.zeros(3).long()}, InputError, r"'b'.*broadcasts with \(2,\).*\(3,\)"),
    ],
)
def test_wrong_evidence(evidence, error, message):
    with pytest.raises(error, match=message):
        HierarchicalLogLinear(GRAPH, theta_of(GRAPH)).condition(evidence)


# Generalized root models


def energy_of(family, *batch):
    kind = "real" if family.name == "gaussian" else "count"
    domain = Domain([Variable(name, kind=kind) for name in "abc"])
    structure = RootStructure.complete(domain, 2 if family.name == "gaussian" else 3)
    psi = 0.1 * torch.from_numpy(np.random.default_rng(3).normal(size=(*batch, structure.num_terms)))
    if family.name == "gaussian":
        psi[..., structure.slices[1, 1]] = -1.0
    return GeneralizedRootEnergy(structure, psi, family)


@pytest.mark.parametrize(
    "family", [PoissonFamily(), TruncatedPoissonFamily(4), GaussianFamily()], ids=lambda family: family.name
)
def test_root_energies_of_rows_and_batches_are_those_of_single_values(family):
    energy = energy_of(family, 2)
    a, c = torch.tensor([[0.0], [3.0], [1.0]]), torch.tensor([1.0, 2.0])
    rest, constant = energy.condition({"c": c, "a": a})
    assert rest.batch_shape == constant.shape == (3, 2) and rest.domain.names == ("b",)
    b = torch.tensor([[2.0]])
    full = torch.stack(torch.broadcast_tensors(a, torch.tensor(2.0), c), -1)
    assert_close(constant - rest.energy(b), -energy.energy(full), absolute=1e-10)
    for row, k in itertools.product(range(3), range(2)):
        one, _ = energy.condition({"a": float(a[row]), "c": float(c[k])})
        assert one.structure == rest.structure
        assert_close(rest.psi[row, k], one.psi[k], absolute=1e-12)
    assert float((rest.psi[0] - rest.psi[1]).abs().max()) > 1e-3  # the control: rows differ


def test_root_laws_given_rows_are_ratios_of_the_joint_law():
    family = TruncatedPoissonFamily(3)
    law = GeneralizedRoot(energy_of(family).structure, energy_of(family, 2).psi, family).expand((3, 2))
    x = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 3.0], [1.0, 1.0, 1.0]])
    found = law.condition({"a": x[:, :1], "b": x[:, 1:2]})
    assert found.batch_shape == (3, 2)
    levels = torch.arange(4.0)[:, None, None, None].expand(4, 3, 1, 1)
    cells = torch.cat([x[:, None, :2].expand(4, 3, 1, 2), levels], -1)
    joint = law.log_prob(cells)
    assert_close(found.log_prob(levels), joint - joint.logsumexp(0), absolute=1e-10)


def test_root_evidence_carries_gradients_and_refuses_what_does_not_fit():
    energy = energy_of(GaussianFamily())
    a = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(energy.condition({"a": a})[0].psi.sum(), a)
    step = 1e-6
    for i in range(2):
        ends = [energy.condition({"a": float(a[i].detach()) + sign * step})[0].psi.sum() for sign in (1, -1)]
        assert float(gradient[i]) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-6)
    counts = energy_of(PoissonFamily(), 2)
    with pytest.raises(InputError, match=r"evidence\['a'\]"):
        counts.condition({"a": torch.tensor([1.0, -1.0])})
    with pytest.raises(InputError, match=r"broadcast with the batch shape \(2,\), received 'a' \(3,\)"):
        counts.condition({"a": torch.ones(3)})
    for bad in ("many", torch.tensor([True, False]), math):
        with raises("wrong-type", "evidence['a']"):
            counts.condition({"a": bad})


def test_models_of_one_element_and_of_no_row():
    model = LogLinearEnergy.from_theta(GRAPH, theta_of(GRAPH, 1))
    rest, constant = model.condition({"a": torch.zeros(0, 1).long()})
    assert rest.batch_shape == constant.shape == (0, 1)
    rest, constant = model.condition({name: torch.zeros(4, 1).long() for name in "abcd"})
    assert rest.tables.shape == (4, 1, 0) and constant.shape == (4, 1)
