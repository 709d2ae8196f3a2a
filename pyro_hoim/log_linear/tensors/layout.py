"""Where the entries of a strongly symmetric tensor stand in corner theta, and the maps between the two."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch

from ...checks import check_shape, checked_floating
from ...errors import check_whole, other_domain, out_of_reach, size_text
from ...schema import Domain

MAX_TENSOR_ENTRIES = 2**25
"""Largest number of dense entries of a tensor (256 MiB in double precision, and as much for their positions)."""


def check_binary(domain: Domain, argument: str) -> None:
    """Refuse a domain with a variable that has not two levels."""
    for name, levels in zip(domain.names, domain.cardinalities, strict=True):
        if levels != 2:
            hint = "leave the column out, or merge its levels into two"
            received = f"{name!r} with {levels} level{'s' * (levels != 1)}"
            raise other_domain(argument, "binary variables", hint=hint, received=received)


@dataclass(frozen=True, eq=False, repr=False)
class TensorLayout:
    r"""Dense entries of strongly symmetric tensors of order K over n variables, and corner theta that stands for them.

    .. math:: \theta_S = \tau_{K,|S|}\, q_S, \qquad q_{i_1 \dots i_K} = q_S \text{ where } \{i_1, \dots, i_K\} = S

    Both maps are linear, differentiable and vectorised over leading dimensions; dtype and device are the argument's.
    Prefer :func:`tensor_layout`, which shares the positions.

    Args:
        num_variables: n.
        order: K.
        index: position in corner theta of every dense entry, integers (n, ..., n) with K axes; read-only.
        sizes: number of variables of every interaction, integers (num_parameters,); read-only.
        multiplicity: dense entries tau of every interaction, integers (num_parameters,); read-only.

    References:
        Paper 3, section 2.2.1.

    Example:
        >>> layout = tensor_layout(2, 2)
        >>> layout.dense(torch.tensor([1.0, 2.0, 6.0])).tolist()  # a, b, and their pair in two entries
        [[1.0, 3.0], [3.0, 2.0]]
        >>> layout.project(torch.tensor([[1.0, 4.0], [2.0, 2.0]])).tolist()
        [1.0, 2.0, 6.0]
    """

    num_variables: int
    order: int
    index: np.ndarray
    sizes: np.ndarray
    multiplicity: np.ndarray

    @property
    def num_parameters(self) -> int:
        """Length of corner theta, the number of sets of 1 to K variables."""
        return len(self.sizes)

    @cached_property
    def first(self) -> np.ndarray:
        """Flat position of the first dense entry of every interaction, integers (num_parameters,)."""
        return _frozen(np.unique(self.index, return_index=True)[1])

    @cached_property
    def members(self) -> np.ndarray:
        """Variables of every interaction in ascending order, (num_parameters, K), with n where there are fewer."""
        n, parts = self.num_variables, []
        for size in range(1, self.order + 1):
            sets = np.array(list(itertools.combinations(range(n), size)))
            parts.append(np.concatenate([sets, np.full((len(sets), self.order - size), n)], 1))
        return _frozen(np.concatenate(parts))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a dense tensor, n along each of K axes."""
        return (self.num_variables,) * self.order

    def __repr__(self) -> str:
        return f"TensorLayout(num_variables={self.num_variables}, order={self.order})"

    def __reduce__(self) -> tuple[object, ...]:
        return tensor_layout, (self.num_variables, self.order)

    def entries(self, theta: torch.Tensor) -> torch.Tensor:
        """Entries q, one for every interaction, of corner theta: divided by their multiplicities.

        Shape:
            theta and result (*batch, num_parameters).
        """
        check_shape(checked_floating(theta, "theta"), (self.num_parameters,), "theta")
        return theta / on_device(self.multiplicity, theta).to(theta.dtype)

    def dense(self, theta: torch.Tensor) -> torch.Tensor:
        """The tensor of corner theta, strongly symmetric to the last bit.

        Shape:
            theta (*batch, num_parameters); result (*batch, n, ..., n) with K axes.
        """
        q = self.entries(theta)
        return q[..., on_device(self.index, q)]

    def project(self, dense: torch.Tensor) -> torch.Tensor:
        """Corner theta of the strongly symmetric tensor nearest to any tensor, in the norm of all entries.

        Theta of an interaction is the sum of the entries with its indices, so the projection takes their mean; of a
        strongly symmetric tensor it is the inverse of :meth:`dense` up to rounding.

        Shape:
            dense (*batch, n, ..., n) with K axes; result (*batch, num_parameters).
        """
        check_shape(checked_floating(dense, "dense"), self.shape, "dense")
        batch = dense.shape[: dense.ndim - self.order]
        flat = dense.reshape(*batch, self.num_variables**self.order)
        zeros = flat.new_zeros(*batch, self.num_parameters)
        return zeros.index_add(-1, on_device(self.index, flat).reshape(-1), flat)


def on_device(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """A layout's array as a tensor on the device of another; on the CPU they share memory, not to be written to."""
    return torch.from_numpy(array.base).to(like.device)


def tensor_layout(num_variables: int, order: int) -> TensorLayout:
    """The layout of tensors of order K over n variables; the one asked for last is shared.

    Time and memory grow as n to the power K, 8 bytes an entry.

    Args:
        num_variables: n, from 2.
        order: K, from 2 to n. Theta of order 1 is its own tensor, and has no interactions.

    Returns:
        The layout; its theta is in the order of ``InteractionHypergraph.from_order(domain, order)``, by size and then
        by positions.

    Raises:
        InputError: an argument is out of its range.
        IntractableError: n to the power K exceeds :data:`MAX_TENSOR_ENTRIES`.

    Example:
        >>> layout = tensor_layout(3, 2)
        >>> layout.index.tolist(), layout.multiplicity.tolist()
        ([[0, 3, 4], [3, 1, 5], [4, 5, 2]], [1, 1, 1, 2, 2, 2])
    """
    num = check_whole(num_variables, "num_variables", 2)
    order = check_whole(order, "order", 2, num)
    if num**order > MAX_TENSOR_ENTRIES:
        problem = f"a tensor has {size_text(num**order, 'entries')}, the limit is {MAX_TENSOR_ENTRIES}"
        raise out_of_reach(f"order {order} over {num} variables", problem, "take a lower order or fewer variables")
    return _large(num, order) if num**order > _SMALL else _small(num, order)


def _build(num: int, order: int) -> TensorLayout:
    numbers = np.arange(num)
    index, start = numbers, 0
    joins: list[np.ndarray] = []  # positions of every set joined with one more variable
    for size in range(1, order):
        sets = np.array(list(itertools.combinations(range(num), size)))
        is_member = (sets[:, None, :] == numbers[:, None]).any(-1)
        grown = np.concatenate([np.repeat(sets[:, None, :], num, 1), np.tile(numbers[:, None], (len(sets), 1, 1))], -1)
        above = start + len(sets) + _ranks(np.sort(grown, -1), num)
        joins.append(np.where(is_member, start + np.arange(len(sets))[:, None], above))
        index = np.concatenate(joins)[index]
        start += len(sets)
    sizes = np.repeat(np.arange(1, order + 1), [math.comb(num, size) for size in range(1, order + 1)])
    counts = np.array([multiplicity(order, size) for size in range(1, order + 1)])[sizes - 1]
    return TensorLayout(num, order, _frozen(index), _frozen(sizes), _frozen(counts))


def _ranks(sets: np.ndarray, num: int) -> np.ndarray:
    """Positions among all sets of their size, in lexicographic order, of ascending sets along the last axis."""
    size = sets.shape[-1]
    after = np.array([[math.comb(rest, left) for left in range(size + 1)] for rest in range(num)])
    return math.comb(num, size) - 1 - after[num - 1 - sets, size - np.arange(size)].sum(-1)


def _frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view of an array that owns its numbers."""
    view = (array if array.base is None and array.flags.c_contiguous else array.copy()).view()
    view.flags.writeable = False
    return view


_SMALL = 2**20  # entries of layouts of which the last sixteen are kept, and the last one
_small, _large = lru_cache(maxsize=16)(_build), lru_cache(maxsize=1)(_build)


# Exact integer coefficients of strongly symmetric tensors: tau, psi and pi of paper 3, chapter 2.


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
