r"""Exact integer coefficients of strongly symmetric tensors: tau, psi and pi of paper 3, chapter 2.

========================  ==================================  ======================================================
function                  symbol                              what it counts
========================  ==================================  ======================================================
multiplicity              :math:`\tau_{K,m}`                  entries of a tensor of order K with the same m indices
subtensor_coefficient     :math:`\psi_{K,m} = \tau_{K,m}/m`   those of them whose first index is a given one
slice_coefficient         :math:`\pi_{K,m}`                   factor of a subtensor of order m - 1 in a conditional
========================  ==================================  ======================================================

All three are Python integers, exact for every order.
"""

from __future__ import annotations

import math

from ...errors import check_whole


def _check(order: int, size: int) -> None:
    check_whole(size, "size", 1, check_whole(order, "order"))


def multiplicity(order: int, size: int) -> int:
    r"""Number of entries of a tensor of order K whose indices are exactly m given ones.

    .. math:: \tau_{K,m} = m!\, {K \brace m} = \sum_{j=0}^{m} (-1)^{m-j} \binom{m}{j} j^K
        = m\,(\tau_{K-1,m-1} + \tau_{K-1,m})

    Args:
        order: K, from 1.
        size: m, from 1 to ``order``.

    Returns:
        The number, exact.

    Raises:
        InputError: an argument is out of its range.

    References:
        Paper 3, lemma 2.5, propositions 2.6 and 2.7, figure 2.4. They are the numbers of maps from K things onto m.

    Example:
        >>> [multiplicity(4, m) for m in (1, 2, 3, 4)]
        [1, 14, 36, 24]
    """
    _check(order, size)
    return sum((-1) ** (size - j) * math.comb(size, j) * j**order for j in range(1, size + 1))


def subtensor_coefficient(order: int, size: int) -> int:
    r"""Number of entries of a first subtensor of order K - 1 whose indices, with the fixed one, are m given ones.

    .. math:: \psi_{K,m} = \tau_{K,m} / m = (m-1)\,\psi_{K-1,m-1} + m\,\psi_{K-1,m}

    Arguments, result and errors are those of :func:`multiplicity`. Of the subtensor with l fixed indices it is
    :math:`\psi_{K-l+1,m}`.

    References:
        Paper 3, propositions 2.8 to 2.11, figure 2.5 (which prints 32 for psi(6, 2); it is 31).

    Example:
        >>> [subtensor_coefficient(6, m) for m in (1, 2, 3, 4, 5, 6)]
        [1, 31, 180, 390, 360, 120]
    """
    return multiplicity(order, size) // size


def slice_coefficient(order: int, size: int) -> int:
    r"""Factor of the subtensor of order m - 1 in the slice representation of a node conditional.

    .. math:: \pi_{K,m} = (-1)^{K-m} \binom{K}{m-1}

    It is what inclusion and exclusion of the K positions of an index give: the entries that hold r at
    :math:`k = K - m + 1` given positions are one subtensor of order :math:`m - 1`, of which there are
    :math:`\binom{K}{k} = \binom{K}{m-1}`, with sign :math:`(-1)^{k-1}`.

    Args:
        order: K, from 1.
        size: m, from 1 to ``order``.

    Returns:
        The coefficient, exact.

    Raises:
        InputError: an argument is out of its range.

    References:
        Paper 3, proposition 2.12 and figure 2.6.

    Example:
        >>> [slice_coefficient(4, m) for m in (1, 2, 3, 4)]
        [-1, 4, -6, 4]
    """
    _check(order, size)
    return (-1) ** (order - size) * math.comb(order, size - 1)


def num_interactions(num_variables: int, order: int) -> int:
    r"""Parameters of a model of order K over n binary variables.

    .. math:: |\theta| = \sum_{m=1}^{K} \binom{n}{m}

    Args:
        num_variables: n, from 1.
        order: K, from 1 to ``num_variables``.

    Returns:
        The number, exact.

    Raises:
        InputError: an argument is out of its range.

    References:
        Paper 3, lemma 1.1, conclusion 1.2 and table 1.1.

    Example:
        >>> [num_interactions(6, order) for order in (2, 3, 4, 5, 6)]
        [21, 41, 56, 62, 63]
    """
    check_whole(order, "order", 1, check_whole(num_variables, "num_variables"))
    return sum(math.comb(num_variables, m) for m in range(1, order + 1))
