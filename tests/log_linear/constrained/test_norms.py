"""Norms, duals, vertices and projections: enumeration, full decompositions, dense tensors and a convex solver."""

import itertools
from unittest.mock import Mock

import cvxpy
import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations
from pyro_hoim.errors import InputTypeError
from pyro_hoim.log_linear import (
    Ball,
    GroupL2,
    GroupNorm,
    InteractionScreeningLoss,
    L1Norm,
    LogLinearPseudoLikelihood,
    NormPenalty,
    NuclearNorm,
    OverlappedNorm,
    PseudoLikelihoodLoss,
    SymmetricInteractionTensor,
    parametrization,
)
from pyro_hoim.log_linear.constrained import losses, norms
from pyro_hoim.log_linear.constrained.losses import Loss, Restriction
from pyro_hoim.log_linear.constrained.norms import (
    Unfolding,
    interaction_matrix,
    leading_eigenvectors,
    project_magnitudes,
    spectrum,
)
from pyro_hoim.testing import raises


def pairs(num: int, levels: int = 2) -> InteractionHypergraph:
    return InteractionHypergraph.from_order(Domain.from_cardinalities({f"x{i}": levels for i in range(num)}), 2)


NORMS = {"l1": L1Norm(), "nuclear": NuclearNorm(), "group": GroupNorm(pairs(3, 3))}


def gradient(name: str, seed: int) -> np.ndarray:
    size = {"l1": 14, "nuclear": 15, "group": NORMS["group"].hypergraph.num_parameters}[name]  # pyright: ignore[reportAttributeAccessIssue]
    return np.random.default_rng(seed).standard_normal(size)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("seed", range(3))
def test_a_vertex_has_norm_one_and_the_smallest_inner_product_of_the_ball(name: str, seed: int) -> None:
    norm, slope = NORMS[name], gradient(name, seed)
    vertex = norm.vertex(slope)
    assert norm.value(vertex) == pytest.approx(1, rel=1e-12)
    assert slope @ vertex == pytest.approx(-norm.dual(slope), rel=1e-12)
    rng = np.random.default_rng(9)
    for _ in range(200):
        point = rng.standard_normal(len(slope))
        assert slope @ point / norm.value(point) >= slope @ vertex * (1 + 1e-12)
    near = vertex + 1e-3 * rng.standard_normal(len(slope))  # control: a point outside is lower
    assert slope @ (2 * near) < slope @ vertex
    assert Ball(norm, 2.0).contains(2 * vertex) and not Ball(norm, 1.9).contains(2 * vertex)


def test_vertices_of_the_tensor_ball_are_those_of_lemma_4_1() -> None:
    """The six symmetric matrices of the paper's example, in some order, and +-1/#j for a tensor of order 3."""
    found = set()
    for index, sign in itertools.product(range(3), (1, -1)):
        slope = np.zeros(3)
        slope[index] = sign
        found.add(tuple(interaction_matrix(L1Norm().vertex(slope)).ravel() + 0.0))
    units = {(1, 0, 0, 0), (0, 0.5, 0.5, 0), (0, 0, 0, 1)}
    assert found == units | {tuple(-x + 0.0 for x in unit) for unit in units}
    hypergraph = InteractionHypergraph.from_order(pairs(3).domain, 3)
    vertex = np.zeros(7)
    vertex[3] = 1.0  # the pair of the first two variables, which six entries represent
    dense = SymmetricInteractionTensor(torch.from_numpy(vertex), 3, 3).dense.numpy()
    assert hypergraph.edges[3] == ("x0", "x1")
    assert sorted(np.unique(dense)) == [0, pytest.approx(1 / 6)]
    assert np.abs(dense).sum() == pytest.approx(1)


def test_the_group_norm_is_that_of_the_penalty_and_l1_for_binary_variables() -> None:
    hypergraph = pairs(3, 3)
    theta = gradient("group", 1)
    assert GroupNorm(hypergraph).value(theta) == pytest.approx(GroupL2(1.0).value(theta, hypergraph), rel=1e-14)
    binary = GroupNorm(pairs(4))
    assert binary.value(np.arange(10.0)) == pytest.approx(L1Norm().value(np.arange(10.0)))


def test_lanczos_finds_what_a_full_decomposition_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    slope = np.random.default_rng(4).standard_normal(60 * 61 // 2)
    values = np.linalg.eigvalsh(interaction_matrix(slope, is_gradient=True))

    monkeypatch.setattr(np.linalg, "eigh", Mock(side_effect=AssertionError("a full decomposition")))
    found, vectors = leading_eigenvectors(interaction_matrix(slope, is_gradient=True), 3)
    np.testing.assert_allclose(found, values[np.argsort(-np.abs(values))[:3]], rtol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-12)
    assert NuclearNorm().dual(slope) == pytest.approx(np.abs(values).max(), rel=1e-12)
    assert norms._is_bound(interaction_matrix(slope, is_gradient=True), float(np.abs(values).max()))
    assert not norms._is_bound(interaction_matrix(slope, is_gradient=True), 0.999 * float(np.abs(values).max()))


@pytest.mark.parametrize("num", [6, 60])
def test_the_tie_set_has_all_eigenvalues_of_largest_modulus(num: int) -> None:
    rng = np.random.default_rng(0)
    turned, _ = np.linalg.qr(rng.standard_normal((num, num)))
    spectrum = np.concatenate([[2.0, -2.0, 2.0], rng.uniform(-1.9, 1.9, num - 3)])
    matrix = (turned * spectrum) @ turned.T
    slope = np.concatenate([np.diag(matrix), matrix[np.triu_indices(num, 1)]])
    ties = NuclearNorm().tie_set(slope)
    assert sorted(np.round(ties.values, 9)) == [-2, 2, 2]
    for value, vector in zip(ties.values, ties.vectors.T, strict=True):
        vertex = -np.sign(value) * np.outer(vector, vector)
        assert np.sum(matrix * vertex) == pytest.approx(-2, rel=1e-9)
    assert len(NuclearNorm().tie_set(slope + 1e-3 * rng.standard_normal(len(slope))).values) == 1


def test_projections_are_those_of_a_convex_solver() -> None:
    rng = np.random.default_rng(2)
    weights, magnitudes = rng.uniform(0.5, 2, 6), np.abs(rng.standard_normal(6))
    x = cvxpy.Variable(6)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(x - magnitudes)), [x >= 0, weights @ x <= 1.3])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12)
    found = project_magnitudes(magnitudes, 1.3, weights)
    np.testing.assert_allclose(found, x.value, atol=1e-6)
    assert weights @ found == pytest.approx(1.3)
    np.testing.assert_array_equal(project_magnitudes(magnitudes, 100.0, weights), magnitudes)


@pytest.mark.parametrize("name", NORMS)
def test_faces_hold_the_same_part_in_orthonormal_coordinates(name: str) -> None:
    norm, slope = NORMS[name], gradient(name, 5)
    part = norm.vertex(slope) + 0.5 * norm.vertex(-gradient(name, 6))
    face, coordinates = norm.face(part)
    np.testing.assert_allclose(face.embed(coordinates), part, atol=1e-13)
    np.testing.assert_allclose(face.basis() @ coordinates, part, atol=1e-13)
    np.testing.assert_allclose(face.basis().T @ slope, face.pull(slope), atol=1e-13)
    assert face.norm(coordinates) == pytest.approx(norm.value(part), rel=1e-12)
    wider, same = face.widened(coordinates, slope, 0.0)
    assert wider.size > face.size
    np.testing.assert_allclose(wider.embed(same), part, atol=1e-13)
    assert wider.dual(wider.pull(slope)) == pytest.approx(norm.dual(slope), rel=1e-12)
    near = wider.project(same, 0.4)
    assert wider.norm(near) == pytest.approx(0.4)
    shrunk = wider.shrink(same, 0.1)  # the optimality condition of the proximal map
    assert wider.dual(same - shrunk) == pytest.approx(0.1)
    assert (same - shrunk) @ shrunk == pytest.approx(0.1 * wider.norm(shrunk), rel=1e-9)


def test_radii_strengths_and_norms_that_have_no_meaning_are_refused() -> None:
    for radius in (0, -1.0, float("inf"), float("nan"), True):
        with raises("out-of-range", "radius"):
            Ball(L1Norm(), radius)
        with raises("out-of-range", "strength"):
            NormPenalty(L1Norm(), radius)
    with raises("wrong-type", "norm"):
        Ball("l1", 1.0)  # pyright: ignore[reportArgumentType]
    for code, argument, call in (
        ("other-domain", "norm", lambda: NuclearNorm().check(InteractionHypergraph.from_order(pairs(3).domain, 3))),
        ("other-domain", "norm", lambda: NuclearNorm().check(pairs(3, 3))),
        ("other-domain", "norm", lambda: GroupNorm(pairs(3)).check(pairs(4))),
        ("wrong-shape", "theta", lambda: NuclearNorm().value(np.zeros(4))),
        ("wrong-shape", "theta", lambda: GroupNorm(pairs(3)).value(np.zeros(4))),
    ):
        with raises(code, argument):
            call()


# One unfolding with few columns


CASES = [(2, 2), (6, 2), (3, 3), (5, 3), (5, 4), (5, 5)]


def interactions(num: int, order: int) -> InteractionHypergraph:
    return InteractionHypergraph.from_order(Domain.from_cardinalities({f"x{i}": 2 for i in range(num)}), order)


@pytest.mark.parametrize(("num", "order"), CASES)
def test_few_columns_have_the_geometry_of_the_dense_unfolding(num: int, order: int) -> None:
    graph, rng = interactions(num, order), np.random.default_rng(0)
    unfolding, norm = Unfolding(graph), OverlappedNorm(graph)
    theta, other = rng.standard_normal((2, graph.num_parameters))
    dense, beside = (
        SymmetricInteractionTensor(torch.from_numpy(t), num, order).unfolding().numpy() for t in (theta, other)
    )
    few, matrix = unfolding.matrix(theta), rng.standard_normal(unfolding.shape)
    assert few.shape[1] <= dense.shape[1]
    np.testing.assert_allclose(few @ unfolding.matrix(other).T, dense @ beside.T, rtol=0, atol=1e-12)
    singular = np.linalg.svd(dense, compute_uv=False)
    np.testing.assert_allclose(unfolding.nuclear(theta), singular.sum(), rtol=1e-13)
    oracle = SymmetricInteractionTensor(torch.from_numpy(theta), num, order).overlapped_norm()
    np.testing.assert_allclose(norm.value(theta), float(oracle), rtol=1e-13)
    np.testing.assert_allclose(unfolding.adjoint(matrix) @ theta, (matrix * few).sum(), rtol=1e-10)
    np.testing.assert_allclose(unfolding.nearest(few), theta, rtol=1e-13)
    np.testing.assert_allclose(unfolding.adjoint(unfolding.with_adjoint(matrix, other)), other, rtol=0, atol=1e-12)
    move = unfolding.with_adjoint(matrix, other) - matrix  # the nearest such matrix differs by a symmetric one
    np.testing.assert_allclose(unfolding.matrix(unfolding.nearest(move)), move, rtol=0, atol=1e-12)


def test_proximal_maps_are_those_of_the_singular_values() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((5, 40)) * np.geomspace(1, 1e-3, 5)[:, None]
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    for level in (1e-9, 1e-4, 0.1, 2.0, 100.0):
        oracle = (left * np.maximum(values - level, 0)) @ right
        found, rank = Unfolding.shrink(matrix, level)
        np.testing.assert_allclose(found, oracle, rtol=0, atol=1e-10 * values[0])
        assert rank == int((values > level).sum())
    for radius in (0.5, 3.0, float(values.sum()) + 1):
        found, _ = Unfolding.project(matrix, radius)
        scale = np.linalg.svd(found, compute_uv=False)
        np.testing.assert_allclose(scale.sum(), min(radius, values.sum()), rtol=1e-12)
        slope = np.linalg.svd(matrix - found, compute_uv=False)  # of the normal cone: largest where not zero
        np.testing.assert_allclose(((matrix - found) * found).sum(), slope[0] * scale.sum(), rtol=0, atol=1e-10)


def test_the_gram_matrix_is_as_accurate_as_stated() -> None:
    rng = np.random.default_rng(2)
    left, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    right, _ = np.linalg.qr(rng.standard_normal((50, 6)))
    values = np.geomspace(1e-8, 1, 6)
    matrix = (left * values) @ right.T
    found = spectrum(matrix, 1e-5).values
    above = values >= 1e-5
    assert np.abs(found - values)[above].max() < 1e-11
    assert np.abs(found - values).max() > 1e-10  # control: small ones are lost in the Gram matrix
    np.testing.assert_allclose(spectrum(matrix, 1e-8).values, values, rtol=0, atol=1e-15)


def test_from_order_three_rank_one_is_one_value_on_a_set_of_variables() -> None:
    num, order = 5, 3
    graph = interactions(num, order)
    inside = [set(edge) <= {0, 2, 3} for edge in graph.edge_indices]
    block = np.where(inside, Unfolding(graph).multiplicity, 0.0)
    assert np.linalg.matrix_rank(Unfolding(graph).matrix(block)) == 1
    np.testing.assert_allclose(OverlappedNorm(graph).value(block), 3 * 27**0.5, rtol=1e-13)
    vector = np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    tensor = SymmetricInteractionTensor(torch.from_numpy(block), num, order).dense.numpy()
    np.testing.assert_array_equal(tensor, np.einsum("i,j,k->ijk", vector, vector, vector))
    vector[2] = 2.0  # control: with two values the cube of a vector is not strongly symmetric
    cube = torch.from_numpy(np.einsum("i,j,k->ijk", vector, vector, vector))
    with raises("invalid-value", "dense"):
        SymmetricInteractionTensor.from_dense(cube)


def test_bad_norms_are_refused_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("wrong-type", "hypergraph"):
        OverlappedNorm(3)  # type: ignore[arg-type]
    ternary = Domain.from_cardinalities({"a": 2, "b": 3})
    for graph in (interactions(3, 1), InteractionHypergraph.from_order(ternary, 2)):
        with raises("other-domain", "hypergraph"):
            OverlappedNorm(graph)
    pairs = InteractionHypergraph(interactions(3, 2).domain, [("x0", "x1")], closure=True)
    with raises("other-domain", "hypergraph"):
        OverlappedNorm(pairs)
    norm = OverlappedNorm(interactions(4, 3))
    with raises("other-domain", "norm"):
        norm.check(interactions(5, 3))
    for call in (norm.dual, norm.vertex):
        with raises("conflict", "norm"):
            call(np.zeros(14))
    with raises("conflict", "norm"):
        norm.face(np.zeros(14))
    monkeypatch.setattr(norms, "_MOST_ENTRIES", 10)
    with raises("over-budget", "hypergraph"):
        norm.value(np.zeros(14))


# Losses


LOSSES = [(3, 2), (5, 2), (4, 3), (5, 4), (4, 4)]


def rows(num: int, count: int = 60, seed: int = 0) -> Observations:
    rng = np.random.default_rng(seed)
    codes = (rng.random((count, num)) < rng.uniform(0.3, 0.7, num)).astype(int)
    domain = Domain.from_cardinalities({f"x{i}": 2 for i in range(num)})
    return Observations.from_tensor(torch.from_numpy(codes), domain)


def by_table(data: Observations, order: int, theta: np.ndarray) -> float:
    """The loss from the joint table, whose log probabilities are summed over one variable at a time."""
    num = len(data.domain)
    sets = [edge for k in range(1, order + 1) for edge in itertools.combinations(range(num), k)]
    logits = np.zeros((2,) * num)
    for cell in itertools.product((0, 1), repeat=num):
        logits[cell] = sum(t for t, edge in zip(theta, sets, strict=True) if all(cell[i] for i in edge))
    conditionals = sum(logits - np.logaddexp.reduce(logits, i, keepdims=True) for i in range(num))
    table = data.table().numpy()
    return -float((table * conditionals).sum() / table.sum())


@pytest.mark.parametrize(("num", "order"), LOSSES)
def test_value_is_that_of_the_joint_table_and_of_the_free_coding(num: int, order: int) -> None:
    data = rows(num)
    loss = PseudoLikelihoodLoss(data, order)
    theta = np.random.default_rng(1).standard_normal(loss.num_parameters)
    np.testing.assert_allclose(loss.value(theta), by_table(data, order, theta), rtol=1e-12)
    free = parametrization(loss.hypergraph).convert(torch.from_numpy(theta), "corner", "free").numpy()
    other = LogLinearPseudoLikelihood(loss.hypergraph, data)
    np.testing.assert_allclose(loss.value(theta), -other.log_prob(free) / loss.num_rows, rtol=1e-12)
    matrix = parametrization(loss.hypergraph).matrix("corner", "free").numpy()
    value, gradient = loss.value_and_gradient(theta)
    np.testing.assert_allclose(value, loss.value(theta), rtol=1e-14)
    np.testing.assert_allclose(gradient, -matrix.T @ other.gradient(free) / loss.num_rows, rtol=1e-10, atol=1e-13)
    hessian = -matrix.T @ other.hessian(free) @ matrix / loss.num_rows
    direction = np.random.default_rng(2).standard_normal(loss.num_parameters)
    np.testing.assert_allclose(loss.product(theta, direction), hessian @ direction, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("num", "order"), [(5, 2), (5, 3)])
def test_restrictions_are_the_loss_along_directions(num: int, order: int) -> None:
    loss = PseudoLikelihoodLoss(rows(num), order)
    rng = np.random.default_rng(3)
    theta, moves = rng.standard_normal(loss.num_parameters), rng.standard_normal((2, loss.num_parameters))
    plane, steps = loss.restrict(theta, moves), np.array([0.3, -0.7])
    assert isinstance(loss, Loss)
    assert isinstance(plane, Restriction)
    found = plane.derivatives(steps)
    at = theta + steps @ moves
    np.testing.assert_allclose([found.value, plane.value(steps)], loss.value(at), rtol=1e-13)
    np.testing.assert_allclose(found.gradient, moves @ loss.value_and_gradient(at)[1], rtol=1e-10)
    products = [[a @ loss.product(at, b) for b in moves] for a in moves]
    np.testing.assert_allclose(found.hessian, products, rtol=1e-10)


def test_rows_in_blocks_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    data = rows(5)
    whole = PseudoLikelihoodLoss(data, 3)
    monkeypatch.setattr(losses, "_KEPT_ENTRIES", 0)
    monkeypatch.setattr(losses, "_BLOCK_ENTRIES", 100)
    parts = PseudoLikelihoodLoss(data, 3)
    assert parts._kept is None and len(list(parts._blocks())) > 3
    theta = np.random.default_rng(1).standard_normal(whole.num_parameters)
    for a, b in zip(whole.value_and_gradient(theta), parts.value_and_gradient(theta), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def test_large_logits_neither_overflow_nor_lose_their_value() -> None:
    data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[0, 0], [0, 1]])
    value, gradient = PseudoLikelihoodLoss(data, 2).value_and_gradient(np.array([-1000.0, 40.0, 0.0]))
    assert value == pytest.approx(1000 + np.exp(-40.0), rel=1e-15)
    np.testing.assert_allclose(gradient, [-1, -np.exp(-40.0), -1])


def test_paper_3_table_1_2_minimises_the_loss() -> None:
    """Table 1.2; the exact optimum differs from the printed theta in the fourth digit."""
    domain = Domain.from_cardinalities({"x": 2, "y": 2, "z": 2})
    data = Observations.from_table(domain, [[[983, 2105], [4172, 1849]], [[11, 612], [60, 208]]])
    loss = PseudoLikelihoodLoss(data, 2)
    optimum = np.array([-3.6612, 1.4631, 0.7823, -0.4238, 1.1981, -0.8035]) * [1, 1, 1, 2, 2, 2]
    printed = np.array([-3.6605, 1.4626, 0.7821, -0.4238, 1.1982, -0.8032]) * [1, 1, 1, 2, 2, 2]
    assert abs(loss.value_and_gradient(optimum)[1]).max() < 5e-5  # half a unit of the last digit, by the Hessian
    assert 0 < loss.value(printed) - loss.value(optimum) < 1e-6
    control = loss.value_and_gradient(optimum * [1, 1, 1, 0.5, 0.5, 0.5])[1]
    assert abs(control).max() > 1e-2


def test_what_cannot_be_a_loss_is_refused_by_name() -> None:
    data = rows(3)
    with pytest.raises(InputError, match="expected binary variables, received 'b' with 3 levels"):
        PseudoLikelihoodLoss(Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 3}), [[1, 2, 3]] * 2), 2)
    for levels in (3, 1):
        domain = Domain.from_cardinalities({"a": 2, "b": levels})
        with raises("other-domain", "data"):
            PseudoLikelihoodLoss(Observations.from_table(domain, [[1] * levels] * 2), 2)
    for order in (1, 4, 2.0):
        with raises("out-of-range", "order"):
            PseudoLikelihoodLoss(data, order)  # pyright: ignore[reportArgumentType]
    with raises("out-of-range", "data"):
        PseudoLikelihoodLoss(rows(1), 2)
    with raises("empty", "data"):
        PseudoLikelihoodLoss(data.rows(torch.zeros(0, dtype=torch.int64)), 2)
    with raises("missing-cells", "data"):
        PseudoLikelihoodLoss(Observations.from_tensor(torch.tensor([[0, -1, 1]]), data.domain), 2)
    with raises("wrong-shape", "theta"):
        PseudoLikelihoodLoss(data, 2).value(np.zeros(5))
    with pytest.raises(InputTypeError, match="data: expected Observations"):
        PseudoLikelihoodLoss([[0, 1]], 2)  # pyright: ignore[reportArgumentType]


# Interaction screening


def cells(num: int) -> np.ndarray:
    return np.array(list(itertools.product((0, 1), repeat=num)))


def sets(num: int, order: int) -> list[tuple[int, ...]]:
    return [edge for k in range(1, order + 1) for edge in itertools.combinations(range(num), k)]


def table(weights: np.ndarray) -> Observations:
    num = int(np.log2(len(weights)))
    domain = Domain.from_cardinalities({f"x{i}": 2 for i in range(num)})
    return Observations.from_table(domain, weights=weights.reshape((2,) * num))


def by_signs(weights: np.ndarray, order: int, couplings: np.ndarray) -> float:
    """The published objective: for every node the mean of exp(-sum of its couplings times products of signs)."""
    num = int(np.log2(len(weights)))
    signs = 2 * cells(num) - 1
    total = 0.0
    for node in range(num):
        terms = [
            c * signs[:, edge].prod(1) for c, edge in zip(couplings, sets(num, order), strict=True) if node in edge
        ]
        total += float(weights @ np.exp(-np.sum(terms, 0)))
    return total / float(weights.sum())


def corner(couplings: np.ndarray, num: int, order: int) -> np.ndarray:
    """Corner theta of couplings of signs, by expanding the products of 2 x - 1."""
    edges = sets(num, order)
    theta = dict.fromkeys(edges, 0.0)
    for c, edge in zip(couplings, edges, strict=True):
        for k in range(1, len(edge) + 1):
            for part in itertools.combinations(edge, k):
                theta[part] += c * 2**k * (-1) ** (len(edge) - k)
    return np.array(list(theta.values()))


@pytest.mark.parametrize(("num", "order"), LOSSES)
def test_screening_is_the_published_objective_of_products_of_signs(num: int, order: int) -> None:
    rng = np.random.default_rng(0)
    weights = rng.random(2**num)
    loss = InteractionScreeningLoss(table(weights), order)
    assert isinstance(loss, Loss)
    couplings = rng.standard_normal(loss.num_parameters)
    theta = corner(couplings, num, order)
    oracle = by_signs(weights, order, couplings)
    np.testing.assert_allclose(loss.value(theta), oracle, rtol=1e-12)
    value, gradient = loss.value_and_gradient(theta)
    np.testing.assert_allclose(value, oracle, rtol=1e-12)
    direction, width = rng.standard_normal(loss.num_parameters), 1e-5
    ahead, behind = (loss.value_and_gradient(theta + sign * width * direction) for sign in (1, -1))
    np.testing.assert_allclose(gradient @ direction, (ahead[0] - behind[0]) / (2 * width), rtol=1e-7)
    product = loss.product(theta, direction)
    np.testing.assert_allclose(product, (ahead[1] - behind[1]) / (2 * width), rtol=1e-6, atol=1e-6 * abs(product).max())
    halved = by_signs(weights, order, couplings / 2)
    assert abs(halved / oracle - 1) > 1e-2  # control: monomials without centring have half the logit


@pytest.mark.parametrize(("num", "order"), LOSSES)
def test_the_expected_gradient_vanishes_at_the_law_of_theta(num: int, order: int) -> None:
    rng = np.random.default_rng(1)
    theta = rng.standard_normal(len(sets(num, order)))
    logits = sum(t * cells(num)[:, edge].prod(1) for t, edge in zip(theta, sets(num, order), strict=True))
    data = table(np.exp(logits - np.max(logits)))
    for kind in (InteractionScreeningLoss, PseudoLikelihoodLoss):
        loss = kind(data, order)
        assert np.abs(loss.value_and_gradient(theta)[1]).max() < 1e-13
        assert np.abs(loss.value_and_gradient(1.05 * theta)[1]).max() > 1e-3  # control: another temperature
    # At the law of theta every term is the sum over both levels of the square roots of their probabilities' product.
    probs = np.exp(logits) / np.exp(logits).sum()
    joint = probs.reshape((2,) * num)
    oracle = sum(2 * np.sqrt(joint.take(0, i) * joint.take(1, i)).sum() for i in range(num))
    np.testing.assert_allclose(InteractionScreeningLoss(data, order).value(theta), oracle, rtol=1e-12)


def test_screening_of_extreme_theta_is_infinite_and_restrictions_are_convex() -> None:
    loss = InteractionScreeningLoss(table(np.ones(8)), 3)
    assert loss.value(np.zeros(7)) == 3.0
    assert loss.value(np.full(7, 1e4)) == np.inf
    plane = loss.restrict(np.zeros(7), torch.eye(7).numpy()[:2].astype(float))
    assert np.linalg.eigvalsh(plane.derivatives(np.array([0.3, -0.2])).hessian).min() > 0
