"""Rows held as bits, from which margins of a few cells are counted many times faster than row by row."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Sets = Sequence[Sequence[int]] | Longs
_PASSES = 128  # over the bits, that cost less than one over the codes
_LARGEST = 2.0**16  # counts with few binary digits


class LevelBits:
    """Which rows have a level, for every level but the first of every variable, and the binary digits of their counts.

    A cell of a margin costs one pass over the bits, or one for every digit of the largest count.

    Args:
        columns: complete codes (d, N).
        cards: numbers of levels (d,).
        counts: whole counts of the rows (N,), below 2^16; ones by default.

    Example:
        >>> bits = LevelBits(np.array([[0, 1, 1], [2, 0, 2]]), [2, 3], np.array([5.0, 1.0, 2.0]))
        >>> [table.tolist() for table in bits.margins([(0,), (0, 1)])]
        [[5.0, 3.0], [0.0, 0.0, 5.0, 1.0, 0.0, 2.0]]
    """

    def __init__(self, columns: NDArray[Any], cards: Sequence[int], counts: Floats | None = None) -> None:
        self._cards, num = np.array(cards, dtype=np.int64), columns.shape[1]
        self._planes = np.cumsum([0, *(self._cards - 1)])
        self._bits = _no_bits(int(self._planes[-1]), num)
        for column, levels, plane in zip(columns, cards, self._planes, strict=False):
            _set_bits(self._bits[plane : plane + levels - 1], column == np.arange(1, levels)[:, None])
        whole = np.ones(num, dtype=np.int64) if counts is None else counts.astype(np.int64)
        digits = max(1, int(whole.max(initial=1)).bit_length())
        self._counts = _no_bits(digits, num)
        _set_bits(self._counts, (whole >> np.arange(digits)[:, None]) & 1)

    @classmethod
    def serves(cls, counts: Floats) -> bool:
        """Whether counts are whole and small."""
        return bool((counts < _LARGEST).all() and (counts == np.floor(counts)).all())

    def is_fast(self, num_cells: int) -> bool:
        """Whether margins of so many cells are counted faster than row by row."""
        return num_cells * len(self._counts) <= _PASSES

    def margins(self, sets: Sets) -> list[Floats]:
        """Counts of the cells of sets of variables, by position; each table row-major and flat."""
        first = laid_out(self._cards, sets)[0]
        return np.split(self.cells(sets), first[1:-1]) if len(sets) else []

    def cells(self, sets: Sets) -> Floats:
        """The same, table after table."""
        from ..compute.lanes import run_threads
        from ._bit_kernels import count_bits

        first, ends, members = laid_out(self._cards, sets)
        total = np.zeros(int(first[-1]))

        def count(begin: int, step: int) -> None:
            places = self._planes, first[:-1], ends, members, self._cards
            count_bits(self._bits, self._counts, *places, begin, step, total)

        run_threads(count, len(sets))
        return total

    def margins_beside(self, sets: Sets, slow: Callable[[list[Any]], Iterable[Floats]]) -> Iterator[Floats]:
        """The same, set after set, where a function counts those sets that it counts faster."""
        is_fast = [self.is_fast(math.prod(int(self._cards[i]) for i in positions)) for positions in sets]
        few, many = ([one for one, fast in zip(sets, is_fast, strict=True) if fast is kind] for kind in (True, False))
        counted, others = iter(self.margins(few)), iter(slow(many))
        return (next(counted if fast else others) for fast in is_fast)


def laid_out(cards: Sequence[int] | Longs, sets: Sets) -> tuple[Longs, Longs, Longs]:
    """First cells and first members of sets whose tables lie one after the other, with the ends; and the members."""
    if isinstance(sets, np.ndarray):  # of one size
        ends = np.arange(0, sets.size + 1, max(1, sets.shape[1]))
        return np.append(0, np.asarray(cards)[sets].prod(1).cumsum()), ends, sets.ravel().astype(np.int64, copy=False)
    members = np.array([i for positions in sets for i in positions], dtype=np.int64)
    sizes = [math.prod(int(cards[i]) for i in positions) for positions in sets]
    return np.cumsum([0, *sizes]), np.cumsum([0, *map(len, sets)]), members


def _no_bits(planes: int, num: int) -> NDArray[np.uint64]:
    return np.zeros((planes, -(-num // 64)), dtype=np.uint64)


def _set_bits(planes: NDArray[np.uint64], is_set: NDArray[Any]) -> None:
    packed = np.packbits(is_set, axis=1, bitorder="little")
    planes.view(np.uint8)[:, : packed.shape[1]] = packed
