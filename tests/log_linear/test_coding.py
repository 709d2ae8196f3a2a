"""Codings against literal definitions and the enumerated law; identities to a relative 1e-10 in float64."""

import itertools
import math
import pickle
from functools import reduce

import numpy as np
import pyro
import pytest
import torch
from hypothesis import given, strategies as st

import pyro_hoim as hoim
from pyro_hoim import (
    Domain,
    InputError,
    InteractionHypergraph,
    NonexistentEstimateWarning,
    Observations,
    fit,
    load_table,
)
from pyro_hoim.errors import InputTypeError, UnknownNameError
from pyro_hoim.interop import choose_backend, to_arviz
from pyro_hoim.log_linear import (
    L2,
    DiaconisYlvisaker,
    HierarchicalLogLinear,
    LogLinearEnergy,
    Parametrization,
    coefficient_table,
    from_reference,
    log_partition,
    parametrization,
    reference_matrix,
    theta_coords,
    to_reference,
)
from pyro_hoim.testing import assert_close, enumerate_codes, exact_statistics, exact_table, random_tables, split_tables

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
CODINGS = ("free", "corner", "balanced")
PAIR = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 3]))


# Literal definitions, one entry at a time


def contrast(n, level, j):
    """Entry of the contrast of level j + 1: column of the reflection that takes the constant to minus level 0."""
    normal = np.full(n, 1 / math.sqrt(n))
    normal[0] += 1
    return float((level == j + 1) - 2 * normal[level] * normal[j + 1] / (normal @ normal))


def literal_tables(graph, theta, coding):
    """Whole tables of one parameter vector, by the definition of its coding."""
    if coding == "balanced":
        return split_tables(graph, theta)
    start, tables = 0, {}
    for edge, shape in zip(graph.edges, graph.edge_shapes, strict=True):
        table = np.zeros(shape)
        free = list(itertools.product(*(range(n - 1) for n in shape)))
        for cell in itertools.product(*map(range, shape)):
            if coding == "corner":
                if min(cell) > 0:
                    table[cell] = theta[start + free.index(tuple(level - 1 for level in cell))]
            else:
                table[cell] = sum(
                    theta[start + m]
                    * math.prod(contrast(n, level, j) for n, level, j in zip(shape, cell, index, strict=True))
                    for m, index in enumerate(free)
                )
        tables[edge] = table
        start += len(free)
    assert start == len(theta)
    return tables


def literal_log_probs(graph, theta, coding):
    """Log probabilities of all joint states."""
    return exact_table(graph, literal_tables(graph, theta.detach().numpy(), coding))


def literal_pi(graph, probs, sign=-1):
    """Equation 22, the alternating sum over all subsets, from the joint probabilities."""
    d, flat = probs.ndim, []
    for members, shape in zip(graph.edge_indices, graph.edge_shapes, strict=True):
        pi = np.zeros(shape)
        for size in range(len(members) + 1):
            for subset in itertools.combinations(members, size):
                eta = probs.sum(axis=tuple(i for i in range(d) if i not in subset), keepdims=True)
                eta = eta.reshape([eta.shape[i] for i in members])
                uniform = math.prod(1 / graph.domain.cardinalities[i] for i in members if i not in subset)
                pi = pi + sign ** (len(members) - size) * eta * uniform
        flat.append(pi.ravel())
    return np.concatenate([np.zeros(0), *flat])


def features(graph):
    """Indicator statistics (num_states, num_terms) of all joint states."""
    codes = enumerate_codes(graph.domain.cardinalities)
    columns = [np.zeros((len(codes), 0))]
    for members, shape in zip(graph.edge_indices, graph.edge_shapes, strict=True):
        columns.append(np.eye(math.prod(shape))[np.ravel_multi_index(tuple(codes[:, members].T), shape)])
    return torch.from_numpy(np.concatenate(columns, axis=1))


def draw(graph, coding, seed=0, batch=()):
    """Normal parameters in a coding."""
    rng = np.random.default_rng(seed)
    if coding == "balanced":
        return torch.from_numpy(random_tables(graph, rng, batch_shape=batch))
    return torch.from_numpy(rng.standard_normal((*batch, graph.num_parameters)))


def close(left, right):
    np.testing.assert_allclose(
        np.asarray(left.detach() if isinstance(left, torch.Tensor) else left),
        np.asarray(right.detach() if isinstance(right, torch.Tensor) else right),
        **TOLERANCE,
    )


@st.composite
def hypergraphs(draw_from, *, hierarchical=True):
    """Random collections over at most four variables, down to no variable, no edge and one level."""
    cardinalities = draw_from(st.lists(st.integers(1, 3), max_size=4))
    domain = Domain.from_cardinalities(cardinalities)
    sets = [s for k in range(1, len(domain) + 1) for s in itertools.combinations(domain.names, k)]
    edges = draw_from(st.lists(st.sampled_from(sets), max_size=5)) if sets else []
    return InteractionHypergraph(domain, edges, closure=hierarchical, hierarchical=hierarchical)


# Theta


@given(hypergraphs(), st.sampled_from(CODINGS), st.sampled_from(CODINGS), st.integers(0, 9))
def test_conversion_keeps_the_law(graph, source, target, seed):
    codings = parametrization(graph)
    theta = draw(graph, source, seed)
    converted = codings.convert(theta, source, target)
    assert converted.shape == (codings.num(target),)
    close(literal_log_probs(graph, converted, target), literal_log_probs(graph, theta, source))
    close(codings.convert(converted, target, source), theta)
    close(codings.matrix(source, target) @ theta, converted)
    close(codings.from_tables(codings.to_tables(theta, source), target), converted)


@given(hypergraphs(hierarchical=False), st.integers(0, 9))
def test_free_and_balanced_agree_without_hierarchy(graph, seed):
    codings = parametrization(graph)
    theta = draw(graph, "free", seed)
    tables = codings.to_tables(theta)
    close(literal_log_probs(graph, tables, "balanced"), literal_log_probs(graph, theta, "free"))
    close(codings.from_tables(tables), theta)
    close(codings.convert(tables, "balanced", "free"), theta)
    close(tables.norm(), theta.norm())
    for edge, table in codings.split(tables).items():
        for axis in range(len(edge)):
            close(table.sum(axis), torch.zeros_like(table.sum(axis)))


def test_controls_see_a_wrong_reference_and_transposed_axes():
    graph = InteractionHypergraph.saturated(Domain.from_cardinalities([3, 3]))
    theta = draw(graph, "corner")
    truth = literal_log_probs(graph, parametrization(graph).convert(theta, "corner", "balanced"), "balanced")
    tables = literal_tables(graph, theta.numpy(), "corner")
    last_is_reference = {e: np.roll(t, -1, axis=tuple(range(t.ndim))) for e, t in tables.items()}
    transposed = {e: t.T for e, t in tables.items()}
    np.testing.assert_allclose(exact_table(graph, tables), truth, **TOLERANCE)
    for wrong in (last_is_reference, transposed):
        assert np.abs(exact_table(graph, wrong) - truth).max() > 0.1


@given(hypergraphs(), st.integers(0, 9))
def test_purify_moves_means_and_returns_the_constant(graph, seed):
    rng = np.random.default_rng(seed)
    tables = torch.from_numpy(random_tables(graph, rng, balanced=False, batch_shape=(2,)))
    balanced, constant = parametrization(graph).purify(tables)
    dims = (2, *([1] * len(graph.domain)))
    before = exact_table(graph, tables, normalised=False)
    close(exact_table(graph, balanced, normalised=False) + constant.reshape(dims).numpy(), before)
    # The constant is the mean of the sum over all joint states.
    close(constant, before.reshape(2, -1).mean(1))
    for edge, table in parametrization(graph).split(balanced).items():
        for axis in range(1, 1 + len(edge)):
            close(table.sum(axis), torch.zeros_like(table.sum(axis)))


def test_corner_tables_vanish_at_level_zero(hierarchical):
    codings = parametrization(hierarchical)
    theta = draw(hierarchical, "corner")
    tables = codings.corner_tables(theta)
    literal = literal_tables(hierarchical, theta.numpy(), "corner")
    for edge, table in codings.split(tables).items():
        close(table, literal[edge])
    balanced, constant = codings.purify(tables)
    close(balanced, codings.to_tables(theta, "corner"))
    full = exact_table(hierarchical, literal, normalised=False)
    close(full - exact_table(hierarchical, balanced, normalised=False), np.full(full.shape, float(constant)))


def test_columns_of_two_and_four_levels():
    graph = InteractionHypergraph(Domain.from_cardinalities([2, 4]), [["x0"], ["x1"]])
    matrix = parametrization(graph).matrix("free", "balanced")
    close(matrix[:2, 0], np.array([-1, 1]) / math.sqrt(2))
    close(matrix[2:, 2], np.array([-3, -1, 5, -1]) / 6)
    close(matrix.T @ matrix, np.eye(4))


def test_gradients_in_balanced_tables_are_projected():
    graph, codings = PAIR, parametrization(PAIR)
    theta = draw(graph, "balanced").requires_grad_()
    (gradient,) = torch.autograd.grad((features(graph) @ codings.to_tables(theta, "balanced")).logsumexp(0), theta)
    eta = exact_statistics(graph, exact_table(graph, theta))
    close(gradient, codings.eta_to_pi(torch.from_numpy(eta)))
    assert np.abs(gradient.numpy() - eta).max() > 0.1


# Eta and pi


@given(hypergraphs(hierarchical=False), st.integers(0, 9))
def test_pi_is_equation_22(graph, seed):
    probs = np.random.default_rng(seed).dirichlet(np.ones(graph.domain.num_states))
    probs = probs.reshape(graph.domain.cardinalities)
    codings = parametrization(graph)
    eta = torch.from_numpy(exact_statistics(graph, np.log(probs)))
    pi = codings.eta_to_pi(eta)
    close(pi, literal_pi(graph, probs))
    if graph.is_hierarchical:
        close(codings.pi_to_eta(pi), eta)
    # Counts instead of probabilities scale pi.
    close(codings.eta_to_pi(7 * eta), 7 * pi)


def test_control_of_equation_22_sees_a_wrong_sign():
    graph = PAIR
    probs = np.random.default_rng(0).dirichlet(np.ones(6)).reshape(2, 3)
    pi = parametrization(graph).eta_to_pi(torch.from_numpy(exact_statistics(graph, np.log(probs))))
    close(pi, literal_pi(graph, probs))
    assert np.abs(pi.numpy() - literal_pi(graph, probs, sign=1)).max() > 0.1


def test_statistics_are_gradients_of_the_enumerated_log_partition(hierarchical):
    codings, indicators = parametrization(hierarchical), features(hierarchical)
    theta = draw(hierarchical, "free").requires_grad_()
    tables = codings.to_tables(theta)
    (gradient,) = torch.autograd.grad((indicators @ tables).logsumexp(0), theta)
    eta = torch.from_numpy(exact_statistics(hierarchical, exact_table(hierarchical, tables)))
    close(codings.free_statistics(eta), gradient)
    corner = codings.convert(theta.detach(), "free", "corner").requires_grad_()
    (gradient,) = torch.autograd.grad((indicators @ codings.corner_tables(corner)).logsumexp(0), corner)
    close(codings.corner_statistics(eta), gradient)


def test_purified_gradient_is_the_projected_gradient_of_the_divergence(hypergraph):
    codings, indicators = parametrization(hypergraph), features(hypergraph)
    probs = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(len(indicators))))
    tables = draw(hypergraph, "balanced").requires_grad_()
    log_q = (indicators @ tables).log_softmax(0)
    (gradient,) = torch.autograd.grad((probs * (probs.log() - log_q)).sum(), tables)
    # Equation 9 and its expansion, entry by entry from joint probabilities.
    cards = hypergraph.domain.cardinalities
    eta_data, eta_model = probs @ indicators, log_q.detach().exp() @ indicators
    found = codings.eta_to_pi(eta_model - eta_data)
    q = log_q.detach().exp().numpy().reshape(cards)
    close(found, literal_pi(hypergraph, q) - literal_pi(hypergraph, probs.numpy().reshape(cards)))
    # The orthogonal projection of the gradient in unconstrained tables.
    for edge, table in codings.split(gradient).items():
        for axis in range(len(edge)):
            table = table - table.mean(axis, keepdim=True)
        close(codings.split(found)[edge], table)


def test_statistics_of_states(hypergraph):
    codes = torch.from_numpy(enumerate_codes(hypergraph.domain.cardinalities))
    found = parametrization(hypergraph).statistics(codes)
    assert torch.equal(found, features(hypergraph))
    assert parametrization(hypergraph).statistics(codes[0], dtype=torch.float32).dtype == torch.float32


# Batches, precision, size, derivatives


def test_batches_equal_singles_and_float32_differs_by_rounding_alone(hierarchical):
    codings = parametrization(hierarchical)
    for source, target in itertools.product(CODINGS, CODINGS):
        theta = draw(hierarchical, source, batch=(2, 3))
        found = codings.convert(theta, source, target)
        singles = [codings.convert(row, source, target) for row in theta.reshape(6, -1)]
        close(found, torch.stack(singles).reshape(2, 3, -1))
    assert codings.to_tables(torch.zeros(0, hierarchical.num_parameters)).shape == (0, hierarchical.num_terms)
    theta = draw(hierarchical, "free")
    for coding in CODINGS:
        found = codings.convert(theta.float(), "free", coding)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), codings.convert(theta, "free", coding), rtol=1e-5, atol=1e-5)


def test_structured_maps_equal_dense_ones(hierarchical, monkeypatch):
    dense = Parametrization(hierarchical)
    monkeypatch.setattr("pyro_hoim.log_linear.coding._DENSE_ENTRIES", -1)
    for entries in (2**16, 0):
        monkeypatch.setattr("pyro_hoim.log_linear.coding._KRONECKER_ENTRIES", entries)
        structured = Parametrization(hierarchical)
        for source, target in itertools.product(CODINGS, CODINGS):
            theta = draw(hierarchical, source, batch=(2,))
            assert not structured._conversion(source, target).is_dense
            close(structured.convert(theta, source, target), dense.convert(theta, source, target))
        eta = dense.statistics(torch.from_numpy(enumerate_codes(hierarchical.domain.cardinalities))).mean(0)
        close(structured.pi_to_eta(structured.eta_to_pi(eta)), eta)
        close(structured.purify(eta)[1], dense.purify(eta)[1])


def test_large_collections_and_one_huge_table_are_handled_axis_by_axis():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([6, 4, 10, 2, 9, 2, 2, 2, 12, 2]), 3)
    codings = parametrization(graph)
    theta = draw(graph, "free")
    tables = codings.to_tables(theta)
    state = torch.tensor([[5, 0, 7, 1, 8, 0, 1, 1, 11, 0]])
    corner = codings.convert(tables, "balanced", "corner")
    shifted, constant = codings.purify(codings.corner_tables(corner))
    close(shifted, tables)
    statistics = codings.statistics(state)[0]
    close(statistics @ codings.corner_tables(corner), statistics @ tables + constant)
    close(tables.norm(), theta.norm())
    graph = InteractionHypergraph(Domain.from_cardinalities([40, 30, 20]), [["x0", "x1", "x2"]], hierarchical=False)
    codings = parametrization(graph)
    theta = draw(graph, "free")
    tables = codings.to_tables(theta)
    close(tables.norm(), theta.norm())
    close(codings.from_tables(tables), theta)


def test_derivatives_and_function_transforms():
    graph, codings = PAIR, parametrization(PAIR)
    for source, target in itertools.product(CODINGS, CODINGS):
        theta = draw(graph, source, batch=(2,)).requires_grad_()
        assert torch.autograd.gradcheck(lambda t, s=source, k=target: codings.convert(t, s, k, validate=False), theta)
        assert torch.autograd.gradgradcheck(
            lambda t, s=source, k=target: codings.convert(t, s, k, validate=False).sin().sum(), theta
        )
    tables = draw(graph, "balanced").requires_grad_()
    assert torch.autograd.gradcheck(codings.purify, tables)
    assert torch.autograd.gradcheck(codings.pi_to_eta, tables)
    theta = draw(graph, "free", batch=(4,))
    close(torch.func.vmap(codings.to_tables)(theta), codings.to_tables(theta))
    close(torch.func.jacrev(codings.to_tables)(theta[0]), codings.matrix("free", "balanced"))
    structured = Parametrization(InteractionHypergraph.from_order(Domain.from_cardinalities([5] * 6), 3))
    wide = torch.ones(2, structured.hypergraph.num_parameters, dtype=torch.float64)
    assert not structured._conversion("free", "balanced").is_dense
    close(torch.func.vmap(structured.to_tables)(wide), structured.to_tables(wide))


def test_equal_hypergraphs_share_one_object_also_after_pickling():
    build = lambda: InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)  # noqa: E731
    codings = parametrization(build())
    assert parametrization(build()) is codings
    assert pickle.loads(pickle.dumps(codings)) is codings


def test_tables_split_join_and_lift(hypergraph):
    codings = parametrization(hypergraph)
    tables = draw(hypergraph, "balanced", batch=(2,))
    parts = codings.split(tables)
    assert [tuple(t.shape[1:]) for t in parts.values()] == list(hypergraph.edge_shapes)
    assert list(parts) == list(hypergraph.edges)
    if parts:
        assert torch.equal(codings.join(parts), tables)
        literal = split_tables(hypergraph, tables)
        assert all(np.array_equal(parts[e].numpy(), literal[e]) for e in parts)
    larger = InteractionHypergraph.saturated(hypergraph.domain)
    lifted = codings.lift(tables, larger)
    close(exact_table(larger, lifted), exact_table(hypergraph, tables))
    closure = hypergraph.closure()
    corner = parametrization(closure).from_tables(codings.lift(tables, closure), "corner")
    close(literal_log_probs(closure, corner[0], "corner"), exact_table(hypergraph, tables[0]))
    if hypergraph.edges:
        with pytest.raises(InputError, match="absent"):
            codings.lift(tables, InteractionHypergraph(hypergraph.domain))
        with pytest.raises(InputError, match="domain"):
            codings.lift(tables, InteractionHypergraph(Domain()))


# Refusals


def test_non_hierarchical_collections_refuse_what_lives_on_the_closure():
    graph = InteractionHypergraph(Domain.from_cardinalities([2, 2]), [["x0", "x1"]], hierarchical=False)
    codings = parametrization(graph)
    theta, eta = torch.zeros(1), torch.full((4,), 0.25)
    for call in (
        lambda: codings.to_tables(theta, "corner"),
        lambda: codings.convert(theta, "free", "corner"),
        lambda: codings.num("corner"),
        lambda: codings.corner_statistics(eta),
        lambda: codings.pi_to_eta(eta),
    ):
        with pytest.raises(InputError, match=r"closure"):
            call()
    for function in (codings.purify, codings.from_tables):
        with pytest.raises(InputError, match="balanced"):
            function(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    balanced = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    tables, constant = codings.purify(balanced)
    close(tables, balanced)
    assert float(constant) == 0


@pytest.mark.parametrize(
    ("bad", "code"), [(-math.inf, "impossible"), (math.inf, "not-finite"), (math.nan, "not-finite")]
)
@pytest.mark.parametrize("coding", [None, "free", "corner", "balanced", "purify"])
def test_tables_without_a_theta_are_refused(coding, bad, code):
    """No finite theta has an impossible combination, whatever the coding; the other element of a batch is fine."""
    graph = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 3]))
    codings, tables = parametrization(graph), torch.ones(2, graph.num_terms, dtype=torch.float64)
    call = codings.purify if coding == "purify" else lambda tables: codings.from_tables(tables, coding)
    call(tables)
    tables[1, 3] = bad
    with pytest.raises(InputError, match="tables: expected finite tables") as told:
        call(tables)
    assert told.value.code == code
    assert ("HierarchicalLogLinear.from_tables" in str(told.value)) is (code == "impossible")


def test_refusals_name_what_was_received():
    codings = parametrization(PAIR)
    parts = codings.split(torch.zeros(11))
    for call, error, text in (
        (lambda: codings.to_tables(torch.zeros(4)), InputError, r"\(\.\.\., 5\), received \(4,\)"),
        (lambda: codings.to_tables(torch.zeros(5), "effects"), InputError, r"'effects'"),
        (lambda: codings.to_tables(torch.zeros(5, dtype=torch.long)), InputTypeError, r"int64"),
        (lambda: codings.to_tables([0.0] * 5), InputTypeError, r"list"),
        (lambda: codings.to_tables(torch.ones(11), "balanced"), InputError, r"every fibre sums to zero"),
        (lambda: codings.convert(torch.ones(11), "balanced", "corner"), InputError, r"every fibre"),
        (lambda: codings.statistics(torch.tensor([[0, 0], [1, 3]])), InputError, r"variable 'x1'.*received 3"),
        (lambda: codings.join({("x1",): parts["x1",]}), InputError, r"\('x0',\).*missing"),
        (lambda: codings.join({**parts, ("x0", "x9"): torch.zeros(2)}), InputError, r"not a hyperedge"),
        (lambda: codings.join({**parts, ("x0", "x1"): torch.zeros(3, 2)}), InputError, r"received \(3, 2\)"),
        (lambda: Parametrization("ab"), InputTypeError, r"InteractionHypergraph"),
    ):
        with pytest.raises(error, match=text):
            call()


# Reference levels


DOMAIN = Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["0", "1", "2", "3"], "one": ["only"]})
GRAPH = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c"), ("one",)], closure=True)
REFERENCES = [{}, {"a": "yes"}, {"b": "z", "c": 1}, {"a": 1, "b": "y", "c": "3"}]


def random_theta(seed=0, batch=()):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, GRAPH.num_parameters, dtype=torch.float64, generator=generator)


def log_probs(model):
    """Log-probabilities of all states, by enumeration."""
    states = torch.tensor(list(np.ndindex(*DOMAIN.cardinalities)))
    logits = -model.energy(states)
    return (logits - logits.logsumexp(0)).reshape(DOMAIN.cardinalities).numpy()


def ratios(table, reference):
    """Corner coefficients as alternating sums of log-probabilities, all other variables at the reference."""
    code = {name: reference.get(name, 0) for name in DOMAIN.names}
    code = {n: c if isinstance(c, int) else DOMAIN[n].labels.index(c) for n, c in code.items()}
    found = []
    for edge in GRAPH.edges:
        levels = [[c for c in range(DOMAIN[n].cardinality) if c != code[n]] for n in edge]
        for combination in itertools.product(*levels):
            total = 0.0
            for kept in itertools.product((0, 1), repeat=len(edge)):
                state = dict(code)
                state |= {n: c for n, c, keep in zip(edge, combination, kept, strict=True) if keep}
                total += (-1) ** (len(edge) - sum(kept)) * table[tuple(state[n] for n in DOMAIN.names)]
            found.append(total)
    return np.array(found)


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
@pytest.mark.parametrize("source", ["corner", "free", "balanced"])
def test_coefficients_are_log_ratios_of_probabilities(reference, source):
    model = LogLinearEnergy.from_theta(GRAPH, random_theta())
    theta = parametrization(GRAPH).from_tables(model.tables, source)
    found = to_reference(GRAPH, theta, reference, source)
    wanted = ratios(log_probs(model), reference)
    assert_close(found, torch.from_numpy(wanted), relative=1e-12)
    if reference:  # control: against the first levels they are others
        assert np.abs(ratios(log_probs(model), {}) - wanted).max() > 0.1


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_the_map_is_exact_and_so_is_its_inverse(reference):
    theta = torch.randint(-50, 50, (3, GRAPH.num_parameters), generator=torch.Generator().manual_seed(1)).double()
    moved = to_reference(GRAPH, theta, reference)
    assert torch.equal(from_reference(GRAPH, moved, reference), theta)
    matrix = reference_matrix(GRAPH, "corner", reference)
    assert set(matrix.unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert torch.equal(theta @ matrix.T, moved)
    assert round(abs(float(torch.linalg.det(matrix)))) == 1
    free = from_reference(GRAPH, moved, reference, "free")
    assert_close(free, parametrization(GRAPH).convert(theta, "corner", "free"), relative=1e-12)


def test_nothing_changes_without_a_reference():
    theta = random_theta()
    for same in (None, {}, {"a": "no"}, {"a": 0, "b": 0, "c": "0"}):
        assert to_reference(GRAPH, theta, same) is theta
    rows = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(rows.domain, 2), rows)
    first = {name: rows.domain[name].labels[0] for name in rows.domain.names}
    assert torch.equal(result.coefficients("corner"), result.coefficients("corner", first))
    assert coefficient_table(result).equals(coefficient_table(result, reference=first))


def test_a_model_of_such_theta_and_its_log_z():
    reference = {"b": "z", "c": 1}
    theta = random_theta(2, (2,))
    model = LogLinearEnergy.from_theta(GRAPH, theta, "corner", reference=reference)
    plain = LogLinearEnergy.from_theta(GRAPH, from_reference(GRAPH, theta, reference), "corner")
    assert_close(model.tables, plain.tables, relative=1e-12)
    one = LogLinearEnergy.from_theta(GRAPH, theta[0], reference=reference)
    assert_close(torch.from_numpy(ratios(log_probs(one), reference)), theta[0], relative=1e-12)
    found = log_partition(one, reference=reference)
    assert (found.coding, float(found.value)) == ("corner", pytest.approx(-log_probs(one)[0, 2, 1, 0], abs=1e-12))
    assert abs(float(log_partition(one, "corner").value) - float(found.value)) > 0.1  # control: the first levels


def relabelled(rows, reference):
    """The rows with the reference levels first, as a program that knows only the first level needs them."""
    labels = {}
    for variable in rows.domain:
        chosen = reference.get(variable.name, variable.labels[0])
        labels[variable.name] = [chosen, *(label for label in variable.labels if label != chosen)]
    axes = [[rows.domain[n].labels.index(label) for label in names] for n, names in labels.items()]
    return Observations.from_table(Domain.from_labels(labels), rows.table().numpy()[np.ix_(*axes)])


@pytest.mark.parametrize("penalty", [None, L2(2.0, coding="free")])
def test_a_fit_says_what_the_fit_of_relabelled_rows_says(penalty):
    rows, reference = load_table("hair_eye_color"), {"Hair": "Brown", "Eye": "Green", "Sex": "Female"}
    own = fit(InteractionHypergraph.from_order(rows.domain, 2), rows, penalty=penalty)
    other = relabelled(rows, reference)
    twin = fit(InteractionHypergraph.from_order(other.domain, 2), other, penalty=penalty)
    columns = ["interaction", "levels", "estimate", "std_error", "lower", "upper"]
    found, wanted = coefficient_table(own, reference=reference)[columns], coefficient_table(twin)[columns]
    assert found[columns[:2]].equals(wanted[columns[:2]])
    numbers = [torch.tensor(frame[columns[2:]].to_numpy(float)) for frame in (found, wanted)]
    assert_close(*numbers, relative=1e-6)
    robust = own.standard_errors("corner", "robust", reference)
    assert_close(robust, twin.standard_errors("corner", "robust"), relative=1e-6)
    plain = coefficient_table(own)[columns]
    assert not np.allclose(plain["estimate"], found["estimate"], atol=0.05)  # control


def test_infinite_coefficients_against_another_level():
    domain = Domain.from_labels({"a": ["p", "q"], "b": ["x", "y", "z"]})
    rows = Observations.from_table(domain, [[10, 20, 0], [5, 8, 9]])
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(InteractionHypergraph.saturated(domain), rows)
    found = result.summary(reference={"b": "y"}).set_index(["term", "levels"])["estimate"]
    assert found["a:b", "q, z"] == math.inf
    assert found["a:b", "q, x"] == pytest.approx(math.log(5 * 20 / (10 * 8)), abs=1e-6)
    against = result.summary(reference={"a": "q", "b": "z"}).set_index(["term", "levels"])["estimate"]
    assert against["a:b", "p, x"] == against["a:b", "p, y"] == math.inf
    assert math.isfinite(against["b", "x"])


def test_summaries_of_results_and_files(tmp_path):
    rows = load_table("ucb_admissions")
    result = fit(InteractionHypergraph.from_order(rows.domain, 2), rows)
    reference = {"Dept": "F"}
    found = result.summary(reference=reference)
    assert "F" not in set(found.loc[found["term"] == "Dept", "levels"])
    assert "Dept F" in found.attrs["notes"][0]
    probs = result.probs.reshape(rows.domain.cardinalities)  # Admit, Gender, Dept
    ratio = float(probs[1, 0, 0] * probs[0, 0, 5] / (probs[0, 0, 0] * probs[1, 0, 5]))
    told = found.set_index(["term", "levels"]).loc[("Admit:Dept", "Rejected, A"), "odds_ratio"]
    assert told == pytest.approx(ratio, rel=1e-9)
    path = tmp_path / "model.safetensors"
    hoim.save(result, path)
    # A file has no intervals against other levels, so that its order is by size.
    names = ["term", "levels"]
    tables = hoim.load(path).summary(reference=reference), found
    estimates = [torch.tensor(table.sort_values(names)["estimate"].to_numpy()) for table in tables]
    assert_close(*estimates, relative=1e-9)
    assert theta_coords(result.hypergraph, "corner", reference)["interaction_level"][2] == "Dept[A]"


@pytest.mark.parametrize(
    ("reference", "error", "words"),
    [
        ({"one": "only"}, InputError, "'one' has one level"),
        ({"q": "x"}, UnknownNameError, "'q'"),
        ({"b": "w"}, UnknownNameError, "'w'"),
        ({"b": 3}, InputError, "a code from 0 to 2"),
        ({"b": True}, InputError, "a code from 0 to 2"),
        ("b", TypeError, "a level for every variable"),
    ],
)
def test_refused_references(reference, error, words):
    with pytest.raises(error, match=words):
        to_reference(GRAPH, random_theta(), reference)


def test_refused_codings_and_families():
    rows = load_table("ucb_admissions")
    result = fit(InteractionHypergraph.from_order(rows.domain, 1), rows)
    for call in (
        lambda: result.coefficients("free", {"Dept": "F"}),
        lambda: result.standard_errors("balanced", reference={"Dept": "F"}),
        lambda: coefficient_table(result, coding="free", reference={"Dept": "F"}),
        lambda: result.summary(coding="balanced", reference={"Dept": "F"}),
        lambda: log_partition(result.model, "balanced", reference={"Dept": "F"}),
        lambda: theta_coords(result.hypergraph, reference={"Dept": "F"}),
        lambda: LogLinearEnergy.from_theta(result.hypergraph, result.theta, "free", reference={"Dept": "F"}),
    ):
        with pytest.raises(InputError, match="compares with no level"):
            call()
    lacking = InteractionHypergraph(DOMAIN, [("a", "b")], hierarchical=False, coding="corner")
    theta = torch.zeros(2, dtype=torch.float64)
    assert to_reference(lacking, theta, {"a": "no"}) is theta
    with pytest.raises(InputError, match="another family"):
        to_reference(lacking, theta, {"a": "yes"})


# Coordinates


SHAPES = st.lists(st.integers(2, 6), min_size=1, max_size=3).map(tuple)


def labelled(shape):
    """All interactions of variables whose labels begin with their name: a0, a1, ..., b0, ..."""
    return InteractionHypergraph.saturated(
        Domain.from_labels({name: [f"{name}{i}" for i in range(n)] for name, n in zip("abc", shape, strict=False)})
    )


def helmert(n):
    """Another orthonormal basis: column j is j ones, then -j; a positive coordinate lowers level j. The control."""
    columns = [[1.0] * j + [-float(j)] + [0.0] * (n - j - 1) for j in range(1, n)]
    return np.array(columns).T / [math.sqrt(j * (j + 1)) for j in range(1, n)]


def balanced_tables(graph, theta, is_control):
    """Tables of free coordinates (*batch, num_parameters), in the library's basis or in that of the control."""
    if not is_control:
        return parametrization(graph).to_tables(theta)
    bases = [torch.from_numpy(reduce(np.kron, map(helmert, shape))) for shape in graph.edge_shapes]
    pieces = [theta[..., where] for where in graph.parameter_slices.values()]
    return torch.cat([piece @ basis.T for piece, basis in zip(pieces, bases, strict=True)], -1)


def named_probs(graph, tables):
    """Probability of the levels that each coordinate is named by (*batch, num_parameters); levels found by label."""
    table = HierarchicalLogLinear(graph, tables, coding="balanced").probs
    names, found = graph.domain.names, []
    for interaction, level in zip(*(theta_coords(graph)[key] for key in ("interaction", "level")), strict=True):
        state = graph.domain.encode_state(dict(zip(interaction.split(":"), level.split(","), strict=True)))
        found.append(table[(..., *(state.get(name, slice(None)) for name in names))])
        found[-1] = found[-1].reshape(len(tables), -1).sum(-1)
    return torch.stack(found, -1)


def rises(shape, seed, step, is_control):
    """Of every coordinate of a random model, whether raising it raises what its name says (num_parameters,)."""
    graph = labelled(shape)
    theta = torch.from_numpy(np.random.default_rng(seed).standard_normal(graph.num_parameters))
    moved = torch.cat([theta[None], theta + step * torch.eye(len(theta), dtype=torch.float64)])
    probs = named_probs(graph, balanced_tables(graph, moved, is_control))
    return probs[1:].diagonal() > probs[0]


@given(SHAPES, st.integers(0, 2**32 - 1), st.floats(0.05, 3))
def test_raising_a_coordinate_raises_the_probability_of_its_levels(shape, seed, step):
    assert bool(rises(shape, seed, step, is_control=False).all())
    lowered = rises(shape, seed, -step, is_control=False)
    assert not bool(lowered.any())


@given(SHAPES, st.integers(0, 2**32 - 1), st.floats(0.05, 3))
def test_control_the_basis_turned_round_fails(shape, seed, step):
    graph = labelled(shape)
    found = dict(zip(theta_coords(graph)["interaction"], rises(shape, seed, step, is_control=True), strict=True))
    assert not any(bool(found[name]) for name in graph.domain.names)


@pytest.mark.parametrize("n", range(2, 7))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_of_a_coordinate_of_one_variable(n, dtype):
    """Log-probability of the level less a weighted mean of all; differences are log ratios."""
    law = HierarchicalLogLinear(
        labelled((n,)), torch.randn(7, n - 1, dtype=dtype, generator=torch.Generator().manual_seed(n))
    )
    logits = law.probs.log()
    weights = torch.tensor([1 / math.sqrt(n)] + [1 / (n + math.sqrt(n))] * (n - 1), dtype=dtype)
    tight = {"rtol": 0.0, "atol": 64 * torch.finfo(dtype).eps}
    torch.testing.assert_close(weights.sum(), torch.ones((), dtype=dtype), **tight)
    torch.testing.assert_close(law.theta, logits[:, 1:] - (logits * weights).sum(-1, keepdim=True), **tight)
    for i, j in itertools.combinations(range(n - 1), 2):
        torch.testing.assert_close(law.theta[:, i] - law.theta[:, j], logits[:, i + 1] - logits[:, j + 1], **tight)


def test_levels_from_the_second_on_are_treated_alike():
    """Permuting them permutes the coordinates: independent priors of one scale favour none of them."""
    graph = labelled((4, 3))
    maps = parametrization(graph)
    theta = torch.arange(1.0, graph.num_parameters + 1, dtype=torch.float64)
    tables = maps.split(maps.to_tables(theta))
    swapped = {e: t[[0, 3, 1, 2]] if e[0] == "a" else t for e, t in tables.items()}
    found = maps.from_tables(maps.join(swapped))
    for edge, where in graph.parameter_slices.items():
        expected = theta[where].reshape([graph.domain[name].cardinality - 1 for name in edge])
        expected = expected[[2, 0, 1]] if edge[0] == "a" else expected
        torch.testing.assert_close(found[where].reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


def test_summary_of_a_posterior_points_to_the_level_that_the_data_prefer():
    domain = Domain.from_labels({"smoke": ["no", "yes"], "age": ["old", "mid", "new"]})
    graph = InteractionHypergraph(domain, [["smoke"], ["age"]])
    shares = torch.tensor([0.2, 0.8, 0.1, 0.1, 0.8], dtype=torch.float64)
    pyro.set_rng_seed(0)
    theta = DiaconisYlvisaker(graph, mean_statistics=shares, prior_sample_size=100).sample((1, 100))
    draws = to_arviz({"theta": theta.numpy()}, hypergraph=graph, backend="arviz")
    means = choose_backend("arviz").stats.summary(draws)["mean"]
    assert means["theta[smoke[yes]]"] > 0.5
    assert means["theta[age[new]]"] > 0.5 > 0 > means["theta[age[mid]]"]
