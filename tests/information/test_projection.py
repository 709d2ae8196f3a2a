"""Laws and their projections: against closed forms, each other, and the conditions that define a projection."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyro_hoim import ConvergenceWarning, Domain, InteractionHypergraph, Observations, fit, load_table
from pyro_hoim.core import Law
from pyro_hoim.information import Projections, decompose, hierarchical_collections, project
from pyro_hoim.log_linear import parametrization
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


UNIFORM = torch.full((2, 3, 2), 1 / 12)


@pytest.mark.parametrize(
    ("domain", "probs", "code", "argument"),
    [
        (ABC, UNIFORM.reshape(-1), "wrong-shape", "Law probs"),
        (ABC, 2 * UNIFORM, "out-of-range", "Law probs"),
        (ABC, -UNIFORM, "out-of-range", "Law probs"),
        (ABC, UNIFORM * float("nan"), "out-of-range", "Law probs"),
        ((2, 3, 2), UNIFORM, "wrong-type", None),
        (ABC, "uniform", "wrong-type", "Law probs"),
    ],
)
def test_laws_are_checked(domain, probs, code, argument):
    assert Law(ABC, UNIFORM).probs.dtype == torch.float64  # control
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


PAIRS = InteractionHypergraph.from_order(ABC, 2)


@pytest.mark.parametrize(
    ("hypergraph", "options", "code", "argument"),
    [
        (InteractionHypergraph(ABC, [("a", "b")], hierarchical=False), {}, "missing-part", "hypergraph"),
        (InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2]), 2), {}, "other-domain", "hypergraph"),
        (PAIRS, {"law": torch.ones(2)}, "wrong-type", "law"),
        ([("a", "b")], {}, "wrong-type", "hypergraph"),
        (PAIRS, {"method": "gradient"}, "unknown-choice", "method"),
        (PAIRS, {"tolerance": 0.0}, "out-of-range", "tolerance"),
        (PAIRS, {"max_iterations": 0}, "out-of-range", "max_iterations"),
    ],
)
def test_arguments_of_projections_are_checked(hypergraph, options, code, argument):
    with raises(code, argument):
        project(**{"law": Law(ABC, UNIFORM), "hypergraph": hypergraph, **options})


def test_no_warning_escapes_where_the_projection_is_on_the_boundary():
    law = Law(Domain.from_cardinalities([2, 2, 2]), np.array([0.5, 0, 0, 0, 0, 0, 0, 0.5]).reshape(2, 2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
