"""Norms of tensors against singular values, their duals and a generic convex solver."""

import math
import warnings

import cvxpy
import pytest
import torch

from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError, IntractableError
from pyro_hoim.log_linear import SymmetricInteractionTensor, overlapped_norm, schatten_norm, tensor_layout, unfold
from pyro_hoim.log_linear.tensors.norms import latent_dual_norm, latent_norm


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def symmetric(num, order, seed=0):
    """A strongly symmetric tensor with standard normal entries."""
    layout = tensor_layout(num, order)
    theta = normal(layout.num_parameters, seed=seed) * torch.from_numpy(layout.multiplicity.copy())
    return SymmetricInteractionTensor(theta, num, order)


def diagonal(num, order, seed=0):
    """A strongly symmetric tensor with nothing off the diagonal."""
    theta = torch.zeros(tensor_layout(num, order).num_parameters, dtype=torch.float64)
    theta[:num] = normal(num, seed=seed)
    return SymmetricInteractionTensor(theta, num, order)


def test_schatten_norms_of_known_singular_values():
    u, v = torch.linalg.qr(normal(4, 4))[0], torch.linalg.qr(normal(6, 6, seed=1))[0]
    values = torch.tensor([3.0, 2.0, 0.5, 0.0], dtype=torch.float64)
    matrix = (u * values) @ v[:4]
    for p in (1, 1.5, 2, 7):
        assert float(schatten_norm(matrix, p)) == pytest.approx(float((values**p).sum() ** (1 / p)), rel=1e-12)
    assert float(schatten_norm(matrix, math.inf)) == pytest.approx(3, rel=1e-12)
    assert float(schatten_norm(matrix, 2)) == pytest.approx(float(matrix.norm()), rel=1e-12)
    assert schatten_norm(torch.stack([matrix, 2 * matrix]).float()).shape == (2,)


def test_the_dual_of_the_nuclear_norm_is_the_spectral_norm():
    x = normal(3, 9)
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    best = u @ v  # attains it
    assert float(schatten_norm(best, math.inf)) == pytest.approx(1, rel=1e-12)
    assert float((best * x).sum()) == pytest.approx(float(schatten_norm(x, 1)), rel=1e-12)
    for seed in range(20):  # nothing in the ball attains more
        y = normal(3, 9, seed=seed)
        assert float((y * x).sum()) <= float(schatten_norm(y, math.inf) * schatten_norm(x, 1)) * (1 + 1e-12)
        assert float((y * x).sum()) <= float(schatten_norm(y, 3) * schatten_norm(x, 1.5)) * (1 + 1e-12)


def test_unfoldings_entry_by_entry():
    dense = normal(2, 3, 4)
    for mode in (1, 2, 3):
        others = [m for m in (0, 1, 2) if m != mode - 1]
        literal = [
            [
                dense[tuple(i if m == mode - 1 else (a if m == others[0] else b) for m in range(3))]
                for a in range(dense.shape[others[0]])
                for b in range(dense.shape[others[1]])
            ]
            for i in range(dense.shape[mode - 1])
        ]
        assert torch.equal(unfold(dense, mode), torch.tensor(literal, dtype=torch.float64))
    assert torch.equal(unfold(normal(5, 2, 3, 4), 2, order=3)[2], unfold(normal(5, 2, 3, 4)[2], 2))


def test_overlapped_norm_and_tucker_rank():
    dense = normal(2, 3, 4)
    total = sum(float(torch.linalg.matrix_norm(unfold(dense, mode), "nuc")) for mode in (1, 2, 3))
    assert float(overlapped_norm(dense)) == pytest.approx(total, rel=1e-12)
    tensor = symmetric(4, 3)
    assert float(tensor.overlapped_norm()) == pytest.approx(float(overlapped_norm(tensor.dense)), rel=1e-12)
    assert float(tensor.overlapped_norm(2)) == pytest.approx(3 * float(tensor.dense.norm()), rel=1e-12)
    assert float(tensor.l1_norm()) == pytest.approx(float(tensor.dense.abs().sum()), rel=1e-12)
    assert tensor.tucker_rank() == (4, 4, 4)
    assert diagonal(4, 3).tucker_rank() == (4, 4, 4)
    assert diagonal(4, 3).tucker_rank(tolerance=float(diagonal(4, 3).theta[:4].abs().max())) == (0, 0, 0)
    ones = SymmetricInteractionTensor.from_dense(torch.ones(5, 5, 5))
    assert ones.tucker_rank() == (1, 1, 1)


def solved(dense):
    """The latent norm of a tensor of order 3 by a generic convex solver."""
    n = dense.shape[0]
    parts = [cvxpy.Variable((n, n * n)) for _ in range(3)]
    constraints = []
    for i in range(n):
        for j in range(n):
            for k in range(n):
                columns = [(i, j * n + k), (j, i * n + k), (k, i * n + j)]
                constraints.append(
                    sum(part[at] for part, at in zip(parts, columns, strict=True)) == float(dense[i, j, k])
                )
    problem = cvxpy.Problem(cvxpy.Minimize(sum(cvxpy.normNuc(part) for part in parts)), constraints)
    return problem.solve(solver=cvxpy.CLARABEL)


@pytest.mark.parametrize("dense", [symmetric(3, 3).dense, normal(3, 3, 3)], ids=["symmetric", "any"])
def test_latent_norm_by_a_generic_solver(dense):
    norm = latent_norm(dense, tolerance=1e-8)
    value = solved(dense)
    assert norm.lower * (1 - 1e-6) <= value <= norm.upper * (1 + 1e-6)
    assert norm.gap <= 1e-8 * norm.upper


def check_certificate(norm, dense):
    """Both values from what is given alone."""
    modes = range(1, dense.ndim + 1)
    torch.testing.assert_close(norm.parts.sum(0), dense, rtol=1e-12, atol=1e-12)
    upper = sum(float(schatten_norm(unfold(part, mode))) for part, mode in zip(norm.parts, modes, strict=True))
    assert upper == pytest.approx(norm.upper, rel=1e-10)
    assert float(latent_dual_norm(norm.dual)) <= 1 + 1e-12
    assert float((norm.dual * dense).sum()) == pytest.approx(norm.lower, rel=1e-10)
    assert norm.lower <= norm.upper * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 3, 2, 3)])
def test_certificates_of_any_tensor(shape):
    dense = normal(*shape)
    norm = latent_norm(dense)
    assert norm.status == "converged"
    assert norm.gap <= 1e-6 * norm.upper
    check_certificate(norm, dense)
    if len(shape) == 2:
        assert norm.upper == pytest.approx(float(schatten_norm(dense)), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_lemma_3_2_fails_for_random_strongly_symmetric_tensors(seed):
    tensor = symmetric(4, 3, seed)
    norm = tensor.latent_norm()
    check_certificate(norm, tensor.dense)
    assert 3 * norm.upper < 0.99 * float(tensor.overlapped_norm())  # a decomposition that the lemma rules out
    part = norm.parts[0]
    assert not torch.allclose(part, part.movedim(0, 1), atol=1e-3)  # its parts are not symmetric


@pytest.mark.parametrize("seed", range(5))
def test_lemma_3_2_holds_for_diagonal_tensors(seed):
    tensor = diagonal(4, 3, seed)
    norm = tensor.latent_norm()
    check_certificate(norm, tensor.dense)
    assert 3 * norm.lower >= float(tensor.overlapped_norm()) * (1 - 1e-6)  # no decomposition does better
    assert 3 * norm.upper == pytest.approx(float(tensor.overlapped_norm()), rel=1e-6)


def test_lemma_3_2_holds_for_matrices_and_is_an_upper_bound_otherwise():
    for num, order in [(5, 2), (3, 3), (4, 4)]:
        tensor = symmetric(num, order)
        bound = float(tensor.overlapped_norm()) / order
        norm = tensor.latent_norm()
        assert norm.lower <= bound * (1 + 1e-12)
        assert (norm.lower >= bound * (1 - 1e-6)) == (order == 2)


def test_zero_one_step_and_bad_input():
    zero = latent_norm(torch.zeros(2, 2, 2))
    assert (zero.upper, zero.lower, zero.status) == (0.0, 0.0, "converged")
    with pytest.warns(ConvergenceWarning, match="latent_norm: the gap is"):
        rough = latent_norm(symmetric(4, 3).dense, max_iterations=1)
    assert rough.status == "max_iterations"
    check_certificate(rough, symmetric(4, 3).dense)
    tiny = latent_norm(1e-200 * symmetric(4, 3).dense)  # whose squares are zero
    assert tiny.upper == pytest.approx(1e-200 * latent_norm(symmetric(4, 3).dense).upper, rel=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        latent_norm(symmetric(4, 3).dense)
    for call, text in [
        (lambda: latent_norm(torch.zeros(3)), "dense: expected shape"),
        (lambda: latent_norm(torch.full((2, 2), math.inf)), "dense: expected finite numbers"),
        (lambda: latent_norm(torch.eye(2), tolerance=0), "tolerance: expected a positive finite number"),
        (lambda: schatten_norm(torch.eye(2), 0.5), "p: expected a number from 1"),
        (lambda: schatten_norm(torch.ones(2)), "matrix: expected shape"),
        (lambda: schatten_norm(torch.eye(2), "1"), "p: expected a number from 1"),
        (lambda: unfold(torch.ones(3), 1), "dense: expected shape"),
        (lambda: overlapped_norm(torch.ones(3)), "dense: expected shape"),
        (lambda: overlapped_norm(torch.eye(2), order=0), "order: expected a whole number from 2 to 2"),
        (lambda: latent_dual_norm(torch.tensor(1.0)), "dense: expected shape"),
        (lambda: symmetric(4, 3).tucker_rank(-1.0), "tolerance: expected a finite number from 0"),
        (lambda: unfold(torch.eye(2), 3), "mode: expected a whole number from 1 to 2"),
    ]:
        with pytest.raises(InputError, match=text):
            call()
    with pytest.raises(InputTypeError, match="dense: expected a floating-point tensor"):
        latent_norm(torch.zeros(2, 2, dtype=torch.long))
    with pytest.raises(IntractableError, match="the latent norm: needs 40000000 entries"):
        latent_norm(torch.zeros(1, dtype=torch.float32).expand(2000, 10000))


@pytest.mark.parametrize("entry", [math.nan, math.inf])
def test_entries_that_are_not_finite_are_refused(entry):
    with pytest.raises(InputError, match="matrix: expected finite numbers"):
        schatten_norm(torch.tensor([[1.0, entry], [0.0, 1.0]]))
