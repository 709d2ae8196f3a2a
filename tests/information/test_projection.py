"""Laws and their projections: against closed forms, each other, and the conditions that define a projection."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyro_hoim import (
    ConvergenceWarning,
    Domain,
    InputError,
    InteractionHypergraph,
    IntractableError,
    Observations,
    fit,
    load_table,
)
from pyro_hoim.core import Law
from pyro_hoim.information import (
    Projections,
    addable_edges,
    all_refined_information,
    conditional_refined_information,
    decompose,
    hierarchical_collections,
    marginal_refined_information,
    project,
    refined_information,
)
from pyro_hoim.log_linear import HierarchicalLogLinear, log_partition, parametrization
from pyro_hoim.testing import assert_close, raises

from studies.random_laws import random_dirichlet_law, random_law
from support.projections import divergence, proportional_fit
from support.strategies import hypergraphs

ABC = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})


def assert_is_projection(law, hypergraph, probs, tolerance):
    """Margins are kept, and log q of a positive q lies in the span of the family."""
    p, q = law.probs.numpy(), np.asarray(probs)
    for edge in hypergraph.edges:
        axes = law.domain.indices(edge)
        rest = tuple(i for i in range(p.ndim) if i not in axes)
        assert_close(q.sum(rest), p.sum(rest), relative=tolerance)
    if (q > 0).all():
        saturated = InteractionHypergraph.saturated(law.domain)
        logs = np.log(q)
        for edge in saturated.edges:  # pure part of log q for every set, by centring along its axes
            if edge in hypergraph:
                continue
            part, axes = logs, law.domain.indices(edge)
            for i in range(p.ndim):
                mean = part.mean(i, keepdims=True)
                part = part - mean if i in axes else mean
            assert np.abs(part).max() < 1e-6


# Laws


EVEN = torch.full((2, 3, 2), 1 / 12)


@pytest.mark.parametrize(
    ("domain", "probs", "code", "argument"),
    [
        (ABC, EVEN.reshape(-1), "wrong-shape", "Law probs"),
        (ABC, 2 * EVEN, "out-of-range", "Law probs"),
        (ABC, -EVEN, "out-of-range", "Law probs"),
        (ABC, EVEN * float("nan"), "out-of-range", "Law probs"),
        ((2, 3, 2), EVEN, "wrong-type", None),
        (ABC, "uniform", "wrong-type", "Law probs"),
    ],
)
def test_laws_are_checked(domain, probs, code, argument):
    assert Law(ABC, EVEN).probs.dtype == torch.float64  # control
    with raises(code, argument):
        Law(domain, probs)


def test_empirical_law_of_observations():
    data = Observations.from_tensor(torch.tensor([[0, 1, 1], [0, 1, 1], [1, 2, 0], [0, 0, 0]]), ABC)
    law = Law.from_observations(data)
    assert float(law.probs[0, 1, 1]) == 0.5
    assert_close(law.divergence(), math.log(12) - data.entropy())
    assert_close(law.marginal(["c", "a"]).probs, [[0.25, 0.5], [0.25, 0.0]])
    assert law.marginal("b").domain.names == ("b",)
    assert "zero" in repr(law)
    for wrong, code in (
        (Observations(ABC, torch.tensor([[0, 1, -1]])), "missing-cells"),
        (Observations(ABC, torch.zeros((0, 3), dtype=torch.long)), "empty"),
        (law, "wrong-type"),
    ):
        with raises(code):
            Law.from_observations(wrong)
    with raises("over-budget"):
        Law.from_observations(data, max_cells=4)


# Projections


@settings(max_examples=60)
@given(hypergraphs(), st.integers(0, 10**6), st.sampled_from([0.3, 1.0]))
def test_newton_and_proportional_fitting_meet_the_conditions_of_a_projection(hypergraph, seed, scale):
    law = random_law(hypergraph.domain, scale=scale, generator=torch.Generator().manual_seed(seed))
    newton, ipf = (project(law, hypergraph, method=method) for method in ("newton", "ipf"))
    for result in (newton, ipf):
        assert result.is_converged
        assert_is_projection(law, hypergraph, result.probs, 1e-8)
    assert_close(newton.probs, ipf.probs, relative=1e-8)
    assert_close(newton.divergence, ipf.divergence, relative=1e-10)
    expected = proportional_fit(law.probs.numpy(), [law.domain.indices(e) for e in hypergraph.maximal_edges])
    assert_close(ipf.probs, expected)
    assert_close(ipf.divergence, divergence(law.probs.numpy(), expected))


@settings(max_examples=40)
@given(hypergraphs(), st.integers(0, 10**6), st.floats(0.1, 0.9))
def test_laws_with_zeros_are_projected_to_the_limit(hypergraph, seed, share):
    rng = np.random.default_rng(seed)
    weights = rng.random(hypergraph.domain.cardinalities) * (rng.random(hypergraph.domain.cardinalities) < share)
    if weights.sum() == 0:
        weights.flat[0] = 1.0
    law = Law(hypergraph.domain, weights / weights.sum())
    result = project(law, hypergraph)
    assert result.is_converged
    assert result.margin_error < 1e-8
    assert math.isfinite(result.divergence)
    # The limit of the laws mixed with a little of the uniform one.
    near = Law(hypergraph.domain, (1 - 1e-9) * law.probs + 1e-9 / law.domain.num_states)
    assert_close(project(near, hypergraph).divergence, result.divergence, absolute=1e-6)


def test_facial_zeros_are_found_where_no_margin_is_empty():
    """Two opposite empty corners of a 2 x 2 x 2 table: all pairs are positive, yet the projection is p itself."""
    probs = np.full((2, 2, 2), 1 / 6)
    probs[0, 0, 0] = probs[1, 1, 1] = 0.0
    law = Law(Domain.from_cardinalities([2, 2, 2]), probs)
    result = project(law, InteractionHypergraph.from_order(law.domain, 2))
    assert result.method == "newton"
    assert_close(result.probs, probs)
    assert result.divergence < 1e-12
    with pytest.warns(ConvergenceWarning, match="ipf stopped after 50"):
        slow = project(law, InteractionHypergraph.from_order(law.domain, 2), method="ipf", max_iterations=50)
    assert not slow.is_converged
    assert slow.divergence > 1e-3


@pytest.mark.parametrize(
    ("edges", "method"),
    [
        ([], "closed form"),
        ([("a",), ("b",), ("c",)], "closed form"),
        ([("a", "b"), ("b", "c")], "closed form"),
        ([("a", "b", "c")], "closed form"),
        ([("a", "b"), ("b", "c"), ("a", "c")], "newton"),
    ],
)
def test_decomposable_collections_have_a_closed_form(edges, method, generator):
    law = random_law(ABC, generator=generator)
    hypergraph = InteractionHypergraph(ABC, edges, closure=True)
    result = project(law, hypergraph, method="auto")
    assert result.method == method
    expected = proportional_fit(law.probs.numpy(), [ABC.indices(e) for e in hypergraph.maximal_edges])
    assert_close(result.probs, expected)


def test_large_tables_use_proportional_fitting(generator):
    domain = Domain.from_cardinalities([5] * 5)
    law = random_dirichlet_law(domain, generator=generator)
    hypergraph = InteractionHypergraph.from_order(domain, 4)
    result = project(law, hypergraph)
    assert result.method == "ipf"
    assert result.is_converged
    assert result.margin_error < 1e-11
    top = Projections(law).project(InteractionHypergraph.saturated(domain))
    assert top.divergence == 0


def test_projection_is_the_closest_member_and_a_fit_to_data():
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    result = project(data, hypergraph)
    assert_close(result.divergence, -fit(hypergraph, data).log_likelihood / data.total_count - data.entropy())
    rng = np.random.default_rng(0)
    codings = parametrization(hypergraph)
    free = torch.from_numpy(0.01 * rng.standard_normal((20, hypergraph.num_parameters)))
    for tables in codings.to_tables(free):
        logs = np.log(result.probs.numpy())
        for edge, table in codings.split(tables).items():
            axes = data.domain.indices(edge)
            logs = logs + table.numpy().reshape([n if i in axes else 1 for i, n in enumerate(logs.shape)])
        q = np.exp(logs)
        assert divergence(Law.from_observations(data).probs.numpy(), q / q.sum()) > result.divergence


def test_projections_are_computed_once(generator):
    projections = Projections(random_law(ABC, generator=generator))
    pairs = InteractionHypergraph.from_order(ABC, 2)
    assert projections.project(pairs) is projections.project(InteractionHypergraph.from_order(ABC, 2))
    assert len(projections) == 1
    assert projections.marginal(("a", "b")) is projections.marginal(("b", "a"))
    assert "1 known" in repr(projections)


ALL_PAIRS = InteractionHypergraph.from_order(ABC, 2)


@pytest.mark.parametrize(
    ("hypergraph", "options", "code", "argument"),
    [
        (InteractionHypergraph(ABC, [("a", "b")], hierarchical=False), {}, "missing-part", "hypergraph"),
        (InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2]), 2), {}, "other-domain", "hypergraph"),
        (ALL_PAIRS, {"law": torch.ones(2)}, "wrong-type", "law"),
        ([("a", "b")], {}, "wrong-type", "hypergraph"),
        (ALL_PAIRS, {"method": "gradient"}, "unknown-choice", "method"),
        (ALL_PAIRS, {"tolerance": 0.0}, "out-of-range", "tolerance"),
        (ALL_PAIRS, {"max_iterations": 0}, "out-of-range", "max_iterations"),
    ],
)
def test_arguments_of_projections_are_checked(hypergraph, options, code, argument):
    with raises(code, argument):
        project(**{"law": Law(ABC, EVEN), "hypergraph": hypergraph, **options})


def test_no_warning_escapes_where_the_projection_is_on_the_boundary():
    law = Law(Domain.from_cardinalities([2, 2, 2]), np.array([0.5, 0, 0, 0, 0, 0, 0, 0.5]).reshape(2, 2, 2))
    with warnings.catch_warnings(action="error"):
        for k in (1, 2, 3):
            result = project(law, InteractionHypergraph.from_order(law.domain, k))
            assert_close(result.divergence, {1: 2 * math.log(2), 2: 0.0, 3: 0.0}[k])


@pytest.mark.parametrize("method", ["newton", "ipf"])
def test_cells_below_the_normal_range_of_numbers_do_not_spoil_a_projection(method):
    probs = np.full((2, 2, 2), 0.25)
    probs[1] = 0
    probs[1, 0, 0] = 1e-310
    law = Law(Domain.from_cardinalities([2, 2, 2]), probs)
    result = project(law, InteractionHypergraph.from_order(law.domain, 2), method=method)
    assert result.is_converged
    assert_close(result.divergence, 0.0, absolute=1e-8)
    total = decompose(Projections(law, method=method)).total
    assert_close(total, law.divergence(), absolute=1e-8)


def test_every_hierarchical_collection_of_four_variables(generator):
    law = random_law(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2}), generator=generator)
    for hypergraph in itertools.islice(hierarchical_collections(law.domain), 0, None, 3):
        result = project(law, hypergraph)
        expected = proportional_fit(law.probs.numpy(), [law.domain.indices(e) for e in hypergraph.maximal_edges])
        assert_close(result.probs, expected, relative=1e-9)


# Refined information


BINARY = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
LOG2 = math.log(2)


# Closed forms


def test_exclusive_or_has_third_order_information_only():
    probs = np.zeros((2, 2, 2))
    for a, b in itertools.product(range(2), repeat=2):
        probs[a, b, a ^ b] = 0.25
    law = Law(BINARY, probs)
    assert_close(law.divergence(), LOG2)
    for step in all_refined_information(law):
        assert_close(step.value, LOG2 if len(step.edge) == 3 else 0.0)
    assert_close(marginal_refined_information(law, tuple("abc")).value, LOG2)
    assert_close(conditional_refined_information(law, tuple("abc")).value, LOG2)
    # From the independent law to pairs there is nothing, although a and b determine c.
    independent, pairs = (InteractionHypergraph.from_order(BINARY, k) for k in (1, 2))
    assert_close(refined_information(law, independent, pairs).value, 0.0)
    assert_close(law.information.interaction_information([("a", "b", "c")]), [LOG2])


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6))
def test_two_variables_have_their_mutual_information(first, second, seed):
    domain = Domain.from_cardinalities({"a": first, "b": second})
    law = random_dirichlet_law(domain, generator=torch.Generator().manual_seed(seed))
    p = law.probs.numpy()
    outer = np.outer(p.sum(1), p.sum(0))
    expected = math.fsum((p[p > 0] * np.log(p[p > 0] / outer[p > 0])).tolist())
    independent = InteractionHypergraph.from_order(domain, 1)
    assert_close(refined_information(law, independent, ("b", "a")).value, expected)
    assert_close(marginal_refined_information(law, ("a", "b")).value, expected)
    assert_close(law.information.interaction_information([("a", "b")]), [expected])


def test_causal_fork_of_figure_10():
    """A drives B and C: B and C share information, but none given A."""
    domain = Domain.from_cardinalities({"A": 2, "B": 2, "C": 2})
    a, b, c = np.array([0.4, 0.6]), np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.7, 0.3], [0.1, 0.9]])
    law = Law(domain, np.einsum("i,ij,ik->ijk", a, b, c))
    projections = Projections(law)
    assert marginal_refined_information(projections, ("B", "C")).value > 0.05
    assert_close(conditional_refined_information(projections, ("B", "C")).value, 0.0)
    assert_close(marginal_refined_information(projections, tuple("ABC")).value, 0.0)
    # Conditional mutual information in closed form: I(A; B | C).
    p = law.probs.numpy()
    ab = p.sum((0, 1)) * p / (p.sum(1, keepdims=True) * p.sum(0, keepdims=True))
    expected = float((p * np.log(ab)).sum())
    assert_close(conditional_refined_information(projections, ("A", "B")).value, expected)
    # Negative control: with an arrow from B to C the value is far from zero.
    arrow = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.1, 0.9], [0.6, 0.4]]])
    assert (
        conditional_refined_information(Law(domain, np.einsum("i,ij,ijk->ijk", a, b, arrow)), ("B", "C")).value > 0.01
    )


def test_markov_chain_of_four_variables_has_no_conditional_information_across(generator):
    law = random_law(
        Domain.from_cardinalities(dict.fromkeys("abcd", 3)), [*map(tuple, ("a", "ab", "bc", "cd"))], generator=generator
    )
    projections = Projections(law)
    for pair in itertools.combinations("abcd", 2):
        value = conditional_refined_information(projections, pair).value
        assert (value > 1e-3) if "".join(pair) in ("ab", "bc", "cd") else (value < 1e-12)


def test_marginal_and_conditional_values_are_those_of_their_collections(generator):
    law = random_law(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2}), generator=generator)
    saturated = InteractionHypergraph.saturated(law.domain)
    for edge in saturated.edges:
        below = [s for k in range(1, len(edge)) for s in itertools.combinations(edge, k)]
        smallest = InteractionHypergraph(law.domain, below)
        marginal = marginal_refined_information(law, edge)
        assert (marginal.collection, marginal.edge) == (smallest, edge)
        assert_close(marginal.value, refined_information(law, smallest, edge).value, relative=1e-9)
        largest = InteractionHypergraph(law.domain, [s for s in saturated.edges if not set(s) >= set(edge)])
        conditional = conditional_refined_information(law, edge[::-1])
        assert (conditional.collection, conditional.edge) == (largest, edge)
        assert_close(conditional.value, refined_information(law, largest, edge).value)
    top = law.domain.names
    assert_close(marginal_refined_information(law, top).value, conditional_refined_information(law, top).value)


# Identities


def chains_from(hypergraph):
    """Every order in which the other sets can be added one at a time, subsets first (figure 11)."""
    added = addable_edges(hypergraph)
    if not added:
        yield ()
    for edge in added:
        yield from ((edge, *rest) for rest in chains_from(hypergraph.add_edges([edge])))


@pytest.mark.parametrize("sparse", [False, True])
def test_every_chain_of_three_variables_sums_to_the_divergence(generator, sparse):
    law = random_law(ABC, generator=generator)
    if sparse:
        probs = law.probs.clone()
        probs[0, 1, 0] = probs[1, 2, 1] = probs[1, 1, 1] = 0
        law = Law(ABC, probs / probs.sum())
    projections = Projections(law)
    p = law.probs[law.probs > 0]
    expected = float((p * (p * 12).log()).sum())
    chains = list(chains_from(InteractionHypergraph(ABC)))
    assert len(chains) == 48
    for chain in chains:
        table = decompose(projections, chain)
        assert_close(table.total, expected, relative=1e-9)
        assert all(step.value >= 0 for step in table)
        assert [step.edge for step in table.steps] == list(chain)
    assert len(projections) == 19


def test_chains_of_four_variables_sum_to_the_divergence(generator):
    law = random_law(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 3}), generator=generator)
    projections = Projections(law)
    rng = np.random.default_rng(3)
    for _ in range(20):
        hypergraph, chain = InteractionHypergraph(law.domain), []
        while added := addable_edges(hypergraph):
            chain.append(added[rng.integers(len(added))])
            hypergraph = hypergraph.add_edges([chain[-1]])
        assert len(chain) == 15
        assert_close(decompose(projections, chain).total, law.divergence(), relative=1e-9)


def test_wrong_conventions_do_not_sum_to_the_divergence(generator):
    """Negative controls of the test above: another sign, another direction, values of another collection."""
    law = random_law(ABC, generator=generator)
    table = decompose(law)
    signed = sum((-1) ** len(step.edge) * step.value for step in table)
    uniform = torch.full_like(law.probs, 1 / 12)
    marginal = sum(marginal_refined_information(law, step.edge).value for step in table)
    for wrong in (signed, divergence(uniform, law.probs), marginal):
        with pytest.raises(AssertionError):
            assert_close(wrong, law.divergence(), relative=1e-9)


def test_coarser_chains_add_up_to_the_same(generator):
    law = random_law(ABC, generator=generator)
    orders = [InteractionHypergraph(ABC), *(InteractionHypergraph.from_order(ABC, k) for k in (1, 2, 3))]
    coarse, fine = decompose(law, orders), decompose(law)
    assert_close(coarse.total, law.divergence(), relative=1e-9)
    for k, step in enumerate(coarse.steps, start=1):
        assert step.added == tuple(s.edge for s in fine if len(s.edge) == k)
        assert_close(step.value, math.fsum(s.value for s in fine if len(s.edge) == k), relative=1e-9)
    with pytest.raises(InputError, match="one added set, received 3"):
        _ = coarse.steps[0].edge
    assert coarse.to_pandas()["edge"].tolist() == ["a + b + c", "a:b + a:c + b:c", "a:b:c"]


@settings(max_examples=60)
@given(hypergraphs(), hypergraphs(), st.integers(0, 10**6))
def test_pythagorean_identity(hypergraph, other, seed):
    law = random_law(hypergraph.domain, scale=0.7, generator=torch.Generator().manual_seed(seed))
    extra = [e for e in other.edges if set(e) <= set(law.domain.names)]
    larger = hypergraph.add_edges(extra, closure=True)
    near, far = project(law, larger), project(law, hypergraph)
    value = refined_information(law, hypergraph, larger).value
    assert_close(divergence(near.probs, far.probs), value, relative=1e-8)
    assert_close(near.divergence + value, far.divergence, relative=1e-9)
    assert value >= 0
    # The same holds with any member of the smaller family in the place of the uniform law.
    member = project(random_law(law.domain, generator=torch.Generator().manual_seed(seed + 1)), hypergraph).probs
    assert_close(divergence(law.probs, member), far.divergence + divergence(far.probs, member), relative=1e-7)


def test_projecting_twice_is_projecting_once(generator):
    law = random_law(ABC, generator=generator)
    pairs, singles = (InteractionHypergraph.from_order(ABC, k) for k in (2, 1))
    twice = project(Law(ABC, project(law, pairs).probs), singles)
    assert_close(twice.probs, project(law, singles).probs, relative=1e-9)


def test_pairs_agree_with_j_in_sign_and_higher_sets_do_not_have_to(generator):
    law = random_law(Domain.from_cardinalities(dict.fromkeys("abc", 3)), generator=generator)
    for pair in itertools.combinations("abc", 2):
        j = float(law.information.interaction_information([pair]))
        assert_close(marginal_refined_information(law, pair).value, j)
    total = law.information.interaction_information(InteractionHypergraph.saturated(law.domain).edges).sum()
    assert_close(total, law.divergence())  # J is a decomposition as well, with negative terms
    laws = [random_law(law.domain, generator=generator) for _ in range(10)]
    signs = [float(p.information.interaction_information([tuple("abc")])) for p in laws]
    assert min(signs) < 0 < max(signs)
    assert all(marginal_refined_information(p, tuple("abc")).value > 0 for p in laws)


def test_relabelling_and_reordering_change_nothing(generator):
    law = random_law(ABC, generator=generator)
    turned = Law(ABC, law.probs.flip(0)[:, [2, 0, 1]])
    swapped = Law(Domain.from_cardinalities({"c": 2, "a": 2, "b": 3}), law.probs.permute(2, 0, 1))
    expected = {(s.collection.edges, s.edge): s.value for s in all_refined_information(law)}
    for other in (turned, swapped):
        for step in all_refined_information(other):
            edges = InteractionHypergraph(ABC, step.collection.edges).edges
            edge = InteractionHypergraph(ABC, [step.edge], hierarchical=False).edges[0]
            assert_close(step.value, expected[edges, edge], relative=1e-9)


def test_all_values_of_four_variables_take_one_projection_a_collection(generator):
    law = random_law(Domain.from_cardinalities([2, 2, 2, 2]), generator=generator)
    projections = Projections(law)
    table = all_refined_information(projections)
    assert (len(table), len(projections)) == (453, 167)
    assert len(hierarchical_collections(law.domain)) == 167
    assert min(step.value for step in table) >= 0
    frame = table.to_pandas()
    assert frame["order"].is_monotonic_increasing
    assert frame["step"].nunique() == 453
    for edge in (("x0",), ("x1", "x3"), law.domain.names):
        values = frame[frame["edge"] == ":".join(edge)]["value"]
        for bound in (marginal_refined_information(law, edge), conditional_refined_information(law, edge)):
            assert (values - bound.value).abs().min() < 1e-9
    assert "453 values" in repr(table)


def test_values_come_in_schema_order(generator):
    law = random_law(ABC, generator=generator)
    table = decompose(law, [tuple(e) for e in ("c", "b", "bc", "a", "ab", "ac", "abc")])
    assert [step.edge for step in table] == list(InteractionHypergraph.saturated(ABC).edges)
    assert [step.edge for step in table.steps[:3]] == [("c",), ("b",), ("b", "c")]
    frame = table.to_pandas()
    assert frame["edge"].tolist() == ["a", "b", "c", "a:b", "a:c", "b:c", "a:b:c"]
    assert frame["step"].tolist() == [3, 1, 0, 4, 5, 2, 6]
    assert frame["collection"].tolist()[:3] == ["b:c", "c", "1"]


def test_observations_stand_for_their_empirical_law():
    data = load_table("czech_autoworkers")
    names = data.domain.names
    value = marginal_refined_information(data, names[:2]).value
    assert_close(value, data.entropy(names[:1]) + data.entropy(names[1:2]) - data.entropy(names[:2]))


# Arguments

UNIFORM = Law(ABC, np.full((2, 3, 2), 1 / 12))
SINGLES, PAIRS = (InteractionHypergraph.from_order(ABC, k) for k in (1, 2))
LOOSE = InteractionHypergraph(ABC, [("a", "b")], hierarchical=False)


@pytest.mark.parametrize(
    ("ask", "code", "argument"),
    [
        (lambda: refined_information(UNIFORM, PAIRS, tuple("ab")), "repeated-name", "edge"),
        (lambda: refined_information(UNIFORM, PAIRS, SINGLES), "conflict", "target"),
        (lambda: refined_information(UNIFORM, SINGLES, ("a", "z")), "unknown-name", None),
        (lambda: refined_information(UNIFORM, SINGLES, ("a", "a")), "repeated-name", None),
        (lambda: refined_information(UNIFORM, SINGLES, ()), "empty", "edge"),
        (lambda: refined_information(UNIFORM, LOOSE, "a"), "missing-part", "collection"),
        (lambda: refined_information(UNIFORM, InteractionHypergraph.from_order(BINARY, 1), "a"), "other-domain", None),
        (lambda: refined_information(UNIFORM.probs, SINGLES, tuple("ab")), "wrong-type", "law"),
        (lambda: marginal_refined_information(UNIFORM, ()), "empty", "edge"),
        (lambda: conditional_refined_information(UNIFORM, tuple("az")), "unknown-name", None),
        (lambda: decompose(UNIFORM, [SINGLES]), "missing-part", "chain"),
        (lambda: decompose(UNIFORM, [SINGLES, SINGLES]), "conflict", "chain"),
        (lambda: decompose(UNIFORM, [("a",), ("a", "b")]), "missing-part", "edge"),
        (
            lambda: all_refined_information(Law(Domain.from_cardinalities([1] * 6), np.ones((1,) * 6))),
            "over-budget",
            "domain",
        ),
    ],
)
def test_wrong_arguments_are_refused(ask, code, argument):
    with raises(code, argument):
        ask()


def test_a_missing_subset_is_named():
    with pytest.raises(InputError, match="subset a:b is not in the collection"):
        refined_information(UNIFORM, SINGLES, tuple("abc"))


# The lattice of hierarchical collections


def binary(number):
    return Domain.from_cardinalities([2] * number)


def brute_force(number):
    """All families of non-empty subsets of a small set that hold every non-empty subset of their members."""
    sets = [s for k in range(1, number + 1) for s in itertools.combinations(range(number), k)]
    place = {s: i for i, s in enumerate(sets)}
    below = [sum(1 << place[f] for f in itertools.combinations(s, len(s) - 1) if f) for s in sets]
    found = set()
    for family in range(2 ** len(sets)):
        members = [i for i in range(len(sets)) if family >> i & 1]
        if all(below[i] & ~family == 0 for i in members):
            found.add(frozenset(sets[i] for i in members))
    return found


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_collections_are_those_of_brute_force(number):
    found = hierarchical_collections(binary(number))
    assert {frozenset(h.edge_indices) for h in found} == brute_force(number)
    assert len(set(found)) == len(found)
    assert [len(h) for h in found] == sorted(len(h) for h in found)
    assert all(h.is_hierarchical for h in found)


def test_counts_are_the_dedekind_numbers_less_one():
    dedekind = [2, 3, 6, 20, 168, 7581]  # monotone Boolean functions of 0 ... 5 variables
    assert [len(hierarchical_collections(binary(d))) for d in range(6)] == [n - 1 for n in dedekind]


@pytest.mark.parametrize(("number", "arrows"), [(1, 1), (2, 5), (3, 31), (4, 453)])
def test_addable_edges_lead_from_collection_to_collection(number, arrows):
    everything = brute_force(number)
    expected = sum(
        len(larger) == len(smaller) + 1 and smaller < larger for smaller in everything for larger in everything
    )
    found = hierarchical_collections(binary(number))
    assert sum(len(addable_edges(h)) for h in found) == expected == arrows
    for hypergraph in found:
        for edge in addable_edges(hypergraph):
            assert hypergraph.add_edges([edge]) in found
        for edge in set(InteractionHypergraph.saturated(hypergraph.domain).edges) - set(addable_edges(hypergraph)):
            enlarged = hypergraph.add_edges([edge], hierarchical=False)
            assert enlarged == hypergraph or not enlarged.is_hierarchical


def test_number_of_chains_of_four_variables_by_counting_paths():
    paths = {}
    for hypergraph in reversed(hierarchical_collections(binary(4))):
        added = addable_edges(hypergraph)
        paths[hypergraph] = sum(paths[hypergraph.add_edges([edge])] for edge in added) if added else 1
    assert paths[InteractionHypergraph(binary(4))] == 1_680_384


def test_bad_input_is_refused():
    with pytest.raises(IntractableError, match="7,828,353"):
        hierarchical_collections(binary(6))
    with raises("wrong-type", "domain"):
        hierarchical_collections(3)
    with raises("wrong-type", "hypergraph"):
        addable_edges(binary(2))


# Equation 12 of paper 1, D(p; q) = phi(p) + psi(q) - eta(p) . theta(q), with the sign of phi that makes it true.

MIXED = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
FAMILIES = [InteractionHypergraph.from_order(MIXED, 2), InteractionHypergraph.saturated(MIXED)]


def both_sides(graph, coding, seed):
    """D(p; q) cell by cell, phi(p) = sum p log p, and psi(q) - eta(p) . theta(q) in a coding."""
    rng = torch.Generator().manual_seed(seed)
    law = random_dirichlet_law(MIXED, generator=rng)
    codings = parametrization(graph)
    theta = torch.randn(codings.num(coding), generator=rng, dtype=torch.float64)
    if coding == "balanced":
        theta = codings.purify(theta)[0]
    model = HierarchicalLogLinear(graph, theta, coding=coding)
    p = law.probs.numpy()
    q = model.log_prob(torch.tensor(list(np.ndindex(*p.shape)))).reshape(p.shape).numpy()
    eta = torch.cat([law.marginal(edge).probs.ravel() for edge in graph.edges])
    psi = float(log_partition(model.energy_model, coding).value)
    inner = float(codings.mean_statistics(eta, coding) @ theta)
    return float((p * (np.log(p) - q)).sum()), float((p * np.log(p)).sum()), psi - inner


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
@pytest.mark.parametrize("graph", FAMILIES, ids=["pairs", "saturated"])
def test_divergence_is_the_sum_of_two_potentials_less_a_product(graph, coding):
    divergence, phi, rest = both_sides(graph, coding, seed=7)
    assert divergence > 0.1
    assert_close(phi + rest, divergence)
    # As printed phi is "negative entropy", but with the formula of the entropy, - sum p log p.
    assert abs(-phi + rest - divergence) > 1


def test_potentials_of_one_distribution_are_conjugate():
    """phi(q) + psi(q) = eta(q) . theta(q), with theta the gradient of phi: by differences of cell probabilities."""
    q = random_dirichlet_law(MIXED, 5.0, generator=torch.Generator().manual_seed(8)).probs.ravel()
    theta = (q / q[0]).log()[1:]  # one-hot basis without the first cell, equation 10
    psi = -q[0].log()
    phi = (q * q.log()).sum()
    assert_close(phi + psi, (q[1:] * theta).sum())
    eta = q[1:].clone().requires_grad_(True)
    cells = torch.cat([1 - eta.sum()[None], eta])
    (slope,) = torch.autograd.grad((cells * cells.log()).sum(), eta)
    assert_close(slope, theta)
    (printed,) = torch.autograd.grad(-(cells * cells.log()).sum(), eta)
    assert float((printed - theta).abs().max()) > 1  # the control: the printed sign turns theta round
