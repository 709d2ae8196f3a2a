r"""Unfoldings and norms of dense tensors of any symmetry: Schatten p, overlapped, Tucker rank.

All take a dense tensor with its order, so that leading dimensions may be a batch, and are differentiable where the
singular values are.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Real

import torch

from ...checks import check_finite, checked_floating
from ...errors import (
    ConvergenceWarning,
    check_positive,
    check_whole,
    out_of_range,
    out_of_reach,
    size_text,
    wrong_shape,
)
from .layout import MAX_TENSOR_ENTRIES


def unfold(dense: torch.Tensor, mode: int, order: int | None = None) -> torch.Tensor:
    """The mode-m unfolding: rows are the m-th index, columns the others in their order.

    Args:
        dense: a tensor.
        mode: m, from 1 to the order.
        order: number of trailing dimensions that are the tensor's; all of them when None.

    Shape:
        dense (*batch, n_1, ..., n_K); result (*batch, n_m, product of the others).

    Raises:
        InputError: fewer than two dimensions, a mode or order out of range.

    References:
        Paper 3, section 3.1.2.

    Example:
        >>> unfold(torch.arange(8.0).reshape(2, 2, 2), mode=2)
        tensor([[0., 1., 4., 5.],
                [2., 3., 6., 7.]])
    """
    order = _checked_order(dense, order)
    axis = dense.ndim - order + check_whole(mode, "mode", 1, order) - 1
    return dense.movedim(axis, dense.ndim - order).flatten(dense.ndim - order + 1)


def _checked_order(dense: torch.Tensor, order: int | None) -> int:
    """Number of trailing dimensions that are the tensor's, two or more."""
    if checked_floating(dense, "dense").ndim < 2:
        raise wrong_shape("dense", "(*batch, n_1, ..., n_K) with two or more dimensions", dense)
    return dense.ndim if order is None else check_whole(order, "order", 2, dense.ndim)


def fold(matrix: torch.Tensor, mode: int, shape: torch.Size) -> torch.Tensor:
    """Inverse of :func:`unfold` of a tensor of a shape, without batch."""
    axis = mode - 1
    others = shape[:axis] + shape[axis + 1 :]
    return matrix.reshape(shape[axis], *others).movedim(0, axis)


def schatten_norm(matrix: torch.Tensor, p: float = 1.0) -> torch.Tensor:
    r"""Schatten p norm, the p norm of the singular values: 1 nuclear, 2 Frobenius, infinity spectral.

    .. math:: \|M\|_{S_p} = \Big(\sum_i \sigma_i(M)^p\Big)^{1/p}

    The dual of :math:`S_p` is :math:`S_q` with :math:`1/p + 1/q = 1`; that of the nuclear norm is the spectral one.

    Args:
        matrix: one or more matrices.
        p: from 1, or ``math.inf``.

    Shape:
        matrix (*batch, rows, columns); result (*batch,).

    Raises:
        InputError: a p below 1, fewer than two dimensions, or entries that are not finite.

    References:
        Paper 3, section 3.1.2.

    Example:
        >>> schatten_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]), 1)
        tensor(7.)
    """
    checked_floating(matrix, "matrix")
    if matrix.ndim < 2:
        raise wrong_shape("matrix", "(..., rows, columns)", matrix)
    if isinstance(p, bool) or not isinstance(p, Real) or not p >= 1:
        raise out_of_range("p", "a number from 1, or infinity", p)
    check_finite(matrix, "matrix")
    return torch.linalg.vector_norm(torch.linalg.svdvals(matrix), p, -1)


def overlapped_norm(dense: torch.Tensor, p: float = 1.0, order: int | None = None) -> torch.Tensor:
    r"""Overlapped Schatten p norm: the sum of the Schatten p norms of all unfoldings.

    .. math:: \|Q\|_{\underline{S_p/1}} = \sum_{m=1}^{K} \|Q_{(m)}\|_{S_p}

    Arguments, shapes and errors are those of :func:`unfold` and :func:`schatten_norm`; the result is (*batch,).

    References:
        Paper 3, section 3.1.2; Ryota Tomioka and Taiji Suzuki, Convex tensor decomposition via structured Schatten
        norm regularization, 2013.

    Example:
        >>> round(float(overlapped_norm(torch.ones(2, 2, 2))), 4)  # of three unfoldings, each of norm sqrt(8)
        8.4853
    """
    order = _checked_order(dense, order)
    return torch.stack([schatten_norm(unfold(dense, mode, order), p) for mode in range(1, order + 1)]).sum(0)


# The latent Schatten 1 norm of a tensor, between a decomposition from above and a dual tensor from below.


@dataclass(frozen=True)
class LatentNorm:
    """The latent norm of a tensor with its certificate; it lies between ``lower`` and ``upper``.

    Attributes:
        upper: sum of the nuclear norms of ``parts``.
        lower: inner product of ``dual`` with the tensor.
        parts: tensors that sum to the tensor up to rounding, (K, *shape), the m-th of low rank in mode m.
        dual: a tensor all of whose unfoldings have spectral norms of at most one, of the tensor's shape.
        num_iterations: steps taken.
        status: "converged" where ``upper - lower`` is within the tolerance, else "max_iterations".
    """

    upper: float
    lower: float
    parts: torch.Tensor
    dual: torch.Tensor
    num_iterations: int
    status: str

    @property
    def gap(self) -> float:
        """The most by which ``upper`` exceeds the norm."""
        return self.upper - self.lower


def latent_dual_norm(dense: torch.Tensor) -> torch.Tensor:
    r"""Dual of the latent Schatten 1 norm: the largest spectral norm of an unfolding.

    .. math:: \max_m \|Y_{(m)}\|_{S_\infty}
        = \max \{\langle Y, Q \rangle : \|Q\|_{\overline{S_1/1}} \le 1\}

    Shape:
        dense (n_1, ..., n_K); result ().

    References:
        Ryota Tomioka and Taiji Suzuki, Convex tensor decomposition via structured Schatten norm regularization, 2013.

    Example:
        >>> round(float(latent_dual_norm(torch.diag(torch.tensor([3.0, 4.0])))), 6)  # the largest singular value
        4.0
    """
    return torch.stack(
        [schatten_norm(unfold(dense, mode), torch.inf) for mode in range(1, max(dense.ndim, 1) + 1)]
    ).amax()


def latent_norm(dense: torch.Tensor, *, tolerance: float = 1e-6, max_iterations: int = 5_000) -> LatentNorm:
    r"""Latent Schatten 1 norm: the least sum of nuclear norms over decompositions, each part in a mode of its own.

    .. math:: \|Q\|_{\overline{S_1/1}} = \min_{Q = Q^{(1)} + \dots + Q^{(K)}} \sum_m \|Q^{(m)}_{(m)}\|_{S_1}
        = \max_Y \{\langle Y, Q \rangle : \|Y_{(m)}\|_{S_\infty} \le 1 \text{ for all } m\}

    By the alternating direction method of multipliers on the right side, whose multipliers are a decomposition: every
    step has one singular value decomposition per mode. Exact up to the gap of the certificate. Of a strongly symmetric
    tensor it is at most the nuclear norm of one unfolding, and often less: parts need no symmetry of their own.

    Args:
        dense: a tensor of two or more dimensions, of any sizes.
        tolerance: largest gap, relative to the upper value.
        max_iterations: steps after which the search ends.

    Shape:
        dense (n_1, ..., n_K), K from 2.

    Returns:
        :class:`LatentNorm`, in double precision, on the device of the tensor.

    Raises:
        InputError: fewer than two dimensions, entries that are not finite, arguments out of range.
        InputTypeError: no floating-point tensor.
        IntractableError: too many entries.

    Warns:
        ConvergenceWarning: the gap is larger than the tolerance after ``max_iterations``.

    References:
        Paper 3, section 3.1.2; Tomioka and Suzuki, 2013.

    Example:
        >>> norm = latent_norm(torch.eye(3))
        >>> round(norm.upper, 5), round(norm.lower, 5)
        (3.0, 3.0)
    """
    check_finite(checked_floating(dense, "dense"), "dense")
    check_positive(tolerance, "tolerance")
    check_whole(max_iterations, "max_iterations")
    if dense.ndim < 2 or not dense.numel():
        raise wrong_shape("dense", "(n_1, ..., n_K) with two or more dimensions and entries", dense)
    if dense.ndim * dense.numel() > MAX_TENSOR_ENTRIES:
        problem = f"needs {size_text(dense.ndim * dense.numel(), 'entries')}, the limit is {MAX_TENSOR_ENTRIES}"
        raise out_of_reach("the latent norm", problem)
    # Scaled, so that small entries have squares.
    q = dense.detach().double()
    largest = float(q.abs().max())
    if not largest:
        zeros = q.new_zeros(q.ndim, *q.shape)
        return LatentNorm(0.0, 0.0, zeros, torch.zeros_like(q), 0, "converged")
    scale = largest * float((q / largest).norm())  # the squares of small numbers would be zero
    unit = _search(q / scale, tolerance, max_iterations)
    norm = replace(unit, upper=scale * unit.upper, lower=scale * unit.lower, parts=scale * unit.parts)
    if norm.status != "converged":
        problem = f"the gap is {norm.gap / norm.upper:.2g} of the norm after {max_iterations} iterations"
        warnings.warn(ConvergenceWarning(problem, argument="latent_norm", hint="raise max_iterations"), stacklevel=2)
    return norm


def _search(q: torch.Tensor, tolerance: float, max_iterations: int) -> LatentNorm:
    """The method of multipliers on a tensor of unit Frobenius norm."""
    modes = range(1, q.ndim + 1)
    spectral = float(latent_dual_norm(q))
    y = q / spectral
    u = torch.zeros(q.ndim, *q.shape, dtype=q.dtype, device=q.device)
    z = torch.zeros_like(u)
    rho = spectral / q.ndim
    upper, lower = torch.inf, 0.0
    parts, dual = u, y
    # Copies of the dual tensor, one clipped in every mode, are pulled together by the multipliers u.
    for number in range(1, max_iterations + 1):
        before = z
        z = torch.stack([_clipped(y + part, mode) for part, mode in zip(u, modes, strict=True)])
        y = (z - u).mean(0) + q / (rho * q.ndim)
        u = u + y - z  # sums to q / rho
        if number % 10 == 0 or number == max_iterations:
            # The multipliers are a decomposition, from above; the dual tensor made feasible bounds from below.
            value = rho * sum(float(schatten_norm(unfold(part, mode))) for part, mode in zip(u, modes, strict=True))
            feasible = y / max(float(latent_dual_norm(y)), 1.0)
            bound = float((feasible * q).sum())
            if value < upper:
                upper, parts = value, rho * u
            if bound > lower:
                lower, dual = bound, feasible
            if upper - lower <= tolerance * upper:
                return LatentNorm(upper, lower, parts, dual, number, "converged")
            # The step is balanced where one residual is far above the other.
            primal, change = float((y - z).norm()), float((z - before).norm())
            factor = 2.0 if primal > 5 * change else 0.5 if change > 5 * primal else 1.0
            rho, u = rho * factor, u / factor
    return LatentNorm(upper, lower, parts, dual, max_iterations, "max_iterations")


def _clipped(tensor: torch.Tensor, mode: int) -> torch.Tensor:
    """The nearest tensor whose unfolding in a mode has singular values of at most one."""
    matrix = unfold(tensor, mode)
    values, vectors = torch.linalg.eigh(matrix @ matrix.mT)
    factors = values.clamp(min=1.0).rsqrt()
    return fold((vectors * factors) @ (vectors.mT @ matrix), mode, tensor.shape)
