r"""Unfoldings and norms of dense tensors of any symmetry: Schatten p, overlapped, Tucker rank.

All take a dense tensor with its order, so that leading dimensions may be a batch, and are differentiable where the
singular values are.
"""

from __future__ import annotations

from numbers import Real

import torch

from ...checks import check_finite, checked_floating
from ...errors import check_whole, out_of_range, wrong_shape

__all__ = ["fold", "overlapped_norm", "schatten_norm", "unfold"]


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
