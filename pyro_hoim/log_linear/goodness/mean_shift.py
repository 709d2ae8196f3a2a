r"""By how much small expected counts move the mean of a likelihood ratio away from its degrees of freedom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["mean_shift", "mean_shifts", "saturated_cost", "saturated_shift", "shift_cost"]

Floats = NDArray[np.float64]
_RANK = 1e-9


def shift_cost(num_cells: int, num_parameters: int, df: int) -> float:
    """Operations of :func:`mean_shift`."""
    return num_cells * float(num_parameters + 1) ** 2 * (df + 4)


def mean_shift(small: Floats, large: Floats, expected: Floats) -> float:
    r"""Mean of the likelihood ratio of two nested models less its degrees of freedom, to the order of one over counts.

    .. math:: \frac1{12} \sum_{x, y} m_x m_y \big(3 z_{xx} z_{xy} z_{yy} + 2 z_{xy}^3\big)
        - \frac14 \sum_x m_x z_{xx}^2, \qquad z = X (X^\top \operatorname{diag}(m) X)^{-1} X^\top

    of the larger model less the same of the smaller one. It is zero in the limit of many rows, and its ratio to the
    degrees of freedom is Bartlett's factor less one.

    Args:
        small: a design whose columns span what the smaller model can express, the constant among them, (num_cells, q).
        large: the same of the larger model, (num_cells, p).
        expected: expected counts under the smaller model, positive, (num_cells,).

    References:
        Derrick Lawley, A general method for approximating to the distribution of likelihood ratio criteria, 1956;
        Peter McCullagh and John Nelder, Generalized Linear Models, 1989, section 15.2; David Williams, Improved
        likelihood ratio tests for complete contingency tables, 1976, for two-way tables.

    Example:
        >>> rows, columns = np.array([20.0, 30.0]), np.array([10.0, 40.0])
        >>> small = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1.0]]).T
        >>> round(mean_shift(small, np.eye(4), np.outer(rows, columns).ravel() / 50), 6)
        0.055417
        >>> round(float(((50 / rows).sum() - 1) * ((50 / columns).sum() - 1)) / 300, 6)  # as Williams has it
        0.055417
    """
    root = np.sqrt(expected)[:, None]
    own = _basis(small * root)
    rest = large * root
    for _ in range(2):  # once more for what rounding leaves
        rest = rest - own @ (own.T @ rest)
    added = _basis(rest, float(np.linalg.norm(large * root)))
    return _difference(own / root, added / root, expected)


def mean_shifts(large: Floats, contrasts: Iterable[Floats], expected: Floats) -> Iterator[float]:
    """The same of one larger model and smaller ones, in which linear functions of its parameters are zero.

    Args:
        large: a design (num_cells, p), the constant among its columns.
        contrasts: of every smaller model the functions (df, p); their values are determined by the law on the cells.
        expected: expected counts, positive, (num_cells,).
    """
    root = np.sqrt(expected)[:, None]
    left, values, right = np.linalg.svd(large * root, full_matrices=False)
    kept = values > _RANK * float(values.max(initial=0.0))
    basis, coordinates = left[:, kept] / root, right[kept].T / values[kept]
    for functions in contrasts:
        turn = np.linalg.svd((functions @ coordinates).T)[0]
        yield _difference(basis @ turn[:, len(functions) :], basis @ turn[:, : len(functions)], expected)


def saturated_cost(num_cells: int, num_parameters: int) -> float:
    """Operations of :func:`saturated_shift`."""
    return num_cells * (num_parameters + 1.0) * min(num_cells, (num_parameters + 1) ** 2)


def saturated_shift(small: Floats, expected: Floats) -> float:
    r"""The same beside the saturated model: :math:`\tfrac16 \sum_x 1 / m_x` less Lawley's sums for the smaller model.

    Args:
        small: a design whose columns span what the smaller model can express, the constant among them, (num_cells, q).
        expected: expected counts under it, positive, (num_cells,).
    """
    root = np.sqrt(expected)[:, None]
    own = _basis(small * root) / root
    diagonal = np.square(own).sum(1)
    through = (expected * diagonal) @ own
    if len(own) <= own.shape[1] ** 2:
        cubes = sum(float(m * (expected @ (own @ row) ** 3)) for m, row in zip(expected, own, strict=True))
    else:
        cubes = sum(float(np.square((own * (expected * column)[:, None]).T @ own).sum()) for column in own.T)
    whole = 3 * float(through @ through) + 2 * cubes - 3 * float((expected * diagonal**2).sum())
    return float((1 / expected).sum()) / 6 - whole / 12


def _difference(small: Floats, added: Floats, expected: Floats) -> float:
    """Lawley's sums for both bases together, less those for the first alone; orthonormal with the counts as weights."""
    diagonal = np.square(small).sum(1)
    whole = diagonal + np.square(added).sum(1)
    squares = float((expected * (whole**2 - diagonal**2)).sum())
    through = np.concatenate([(expected * whole) @ small, (expected * whole) @ added])
    chains = float(through @ through) - float(np.square((expected * diagonal) @ small).sum())
    cubes = 0.0
    for column in added.T:  # the sums over cells of products of three columns, at least one of them added
        weighted = expected * column
        cubes += 3 * float(np.square((small * weighted[:, None]).T @ small).sum())
        pairs = added * weighted[:, None]
        cubes += 3 * float(np.square(small.T @ pairs).sum()) + float(np.square(added.T @ pairs).sum())
    return (3 * chains + 2 * cubes - 3 * squares) / 12


def _basis(columns: Floats, scale: float | None = None) -> Floats:
    """Orthonormal columns that span those given, without directions that are rounding alone."""
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, values > _RANK * (scale or float(values.max(initial=0.0)))]
