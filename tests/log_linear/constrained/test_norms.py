"""Norms, duals, vertices, tie sets and projections against enumeration, full decompositions and a convex solver."""

from __future__ import annotations

import itertools

import cvxpy
import numpy as np
import pytest
import torch

from pyro_hoim.log_linear import GroupL2, SymmetricInteractionTensor
from pyro_hoim.log_linear.constrained import norms
from pyro_hoim.log_linear.constrained.norms import (
    Ball,
    GroupNorm,
    L1Norm,
    NormPenalty,
    NuclearNorm,
    interaction_matrix,
    leading_eigenvectors,
    project_magnitudes,
)
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
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

    def refused(*_: object) -> None:
        raise AssertionError("a full decomposition")

    monkeypatch.setattr(np.linalg, "eigh", refused)
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
    with raises("other-domain", "norm"):
        NuclearNorm().check(InteractionHypergraph.from_order(pairs(3).domain, 3))
    with raises("other-domain", "norm"):
        NuclearNorm().check(pairs(3, 3))
    with raises("other-domain", "norm"):
        GroupNorm(pairs(3)).check(pairs(4))
    with raises("wrong-shape", "theta"):
        NuclearNorm().value(np.zeros(4))
    with raises("wrong-shape", "theta"):
        GroupNorm(pairs(3)).value(np.zeros(4))
