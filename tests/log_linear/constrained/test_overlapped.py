"""One unfolding with few columns against the dense tensor, and its proximal maps against full decompositions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_hoim.log_linear.constrained import norms as overlapped
from pyro_hoim.log_linear.constrained.norms import OverlappedNorm, Unfolding, spectrum
from pyro_hoim.log_linear.tensors.tensor import SymmetricInteractionTensor
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

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
    monkeypatch.setattr(overlapped, "_MOST_ENTRIES", 10)
    with raises("over-budget", "hypergraph"):
        norm.value(np.zeros(14))
