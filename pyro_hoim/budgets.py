"""How large a request may be: sizes are counted in whole numbers of any length before anything of that size is built.

The budgets are numbers of their own and not what a machine has left, so that the same request is answered everywhere
alike; each leaves a machine of 8 GiB room for what is made of it. Budgets of one method stay with that method.
"""

from collections.abc import Iterable

from .errors import out_of_reach, size_text

__all__ = [
    "HELD_CELLS",
    "LARGEST_SEED",
    "MAX_BYTES",
    "MAX_CELLS",
    "MAX_COLUMNS",
    "MAX_ENTRIES",
    "MAX_FORMULA_SETS",
    "MAX_LABELS",
    "MAX_LEVELS",
    "MAX_NETWORK_WORK",
    "MAX_SAMPLED_ENTRIES",
    "MAX_SETS",
    "MAX_SWEEPS",
    "MAX_UNIONS",
    "NETWORK_BITS_AT_ONCE",
    "check_cells",
    "check_draws",
    "check_size",
    "num_entries",
    "num_sets",
]

MAX_SETS = 2**22
"""Sets of one collection of interactions: about 400 bytes each, so 1.6 GB."""
MAX_FORMULA_SETS = 2**20
"""Sets that a formula stands for: about 700 bytes each while it is read, so 0.7 GB."""
MAX_UNIONS = 2**22
"""Unions of two sets that the products of a formula are made of, equal ones too: about five seconds."""
MAX_ENTRIES = 2**27
"""Entries of all interaction tables of one model: 1 GiB, of which a fit holds several at once."""
MAX_COLUMNS = 2**16
"""Columns of labels that are read at once: about 0.2 ms each, and as much again for the variable made of it."""
MAX_LABELS = 2**24
"""Labels of one variable: about 100 bytes each, so 1.6 GB."""
MAX_LEVELS = 2**13
"""Levels of one variable with interactions: the contrasts of its levels are a square matrix, of 512 MiB."""
MAX_SAMPLED_ENTRIES = 2**23
"""Entries of the interaction tables of a model whose gradients are estimated from chains."""
MAX_CELLS = 2**27
"""Cells of rows that are drawn or completed at once, of the states of chains and of draws that are kept: 1 GiB, of
which commands make up to four copies."""
MAX_NETWORK_WORK = 2**37
"""Cells that all nodes of a dependency network look at for one step of depth: about an hour on two cores for a few."""
NETWORK_BITS_AT_ONCE = 16
"""Cells that they count in the time of one where rows are held as bits."""
HELD_CELLS = 2**25
"""Cells of the different rows of a source that estimates work on; with more they take margins and a sample."""
MAX_BYTES = 2**32
"""Bytes of the draws that a run of chains keeps."""
LARGEST_SEED = 2**31 - 1
"""Largest seed that a command takes."""
MAX_SWEEPS = 10**7
"""Sweeps or transitions of a chain that a command takes: days of work, where more is a slip of the hand."""

_MAX_BITS = 1024  # of a count, from which on it is a lower bound: what is refused needs no more digits


def num_sets(num: int, largest: int, least: int = 1) -> int:
    """Number of sets of ``least`` to ``largest`` of ``num`` things; from 2^1024 on a lower bound."""
    total, sets = 0, 1
    for size in range(min(num, largest) + 1):
        total += sets if size >= least else 0
        sets = sets * (num - size) // (size + 1)
        if total.bit_length() > _MAX_BITS:
            break
    return total


def num_entries(sizes: Iterable[int], largest: int, least: int = 1) -> int:
    r"""Sum over the sets S of ``least`` to ``largest`` things of the product of their sizes.

    .. math:: \sum_{|S|} \prod_{k \in S} n_k

    With the numbers of levels these are the entries of the interaction tables of all sets up to an order, with one less
    each their free parameters: elementary symmetric polynomials.
    """
    sums = [1]
    for size in sizes:
        if len(sums) <= largest:
            sums.append(0)
        for k in range(len(sums) - 1, 0, -1):
            sums[k] += size * sums[k - 1]
    return sum(sums[least:])


def check_size(number: int, budget: int, unit: str, argument: object, hint: str, what: str = "it has") -> None:
    """Raise :class:`~pyro_hoim.errors.IntractableError` where a number of units is above a budget.

    Example:
        >>> check_size(2**60, MAX_SETS, "sets", "order", "lower it", "there are")
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.IntractableError: order: there are about 1.15e+18 sets, more than the budget of 4,194,304; ...
    """
    if number > budget:
        raise out_of_reach(argument, f"{what} {_shown(number)} {unit}, more than the budget of {budget:,}", hint)


def _shown(number: int) -> str:
    return f"{number:,}" if number < 10**18 else size_text(number)


def check_cells(
    number: int, width: int, argument: object, hint: str = "take fewer at a time", noun: str = "draws"
) -> None:
    """As :func:`check_size`, of so many rows, draws or chains of ``width`` cells each, against :data:`MAX_CELLS`.

    Example:
        >>> check_cells(2 * 10**9, 3, "number", "draw fewer", "rows")
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.IntractableError: number: 2,000,000,000 rows of 3 cells are 6,000,000,000 cells, more than ...
    """
    what = f"{_shown(number)} {noun} of {width:,} cells are"
    check_size(number * width, MAX_CELLS, "cells", argument, hint, what)


def check_draws(number: int) -> None:
    """As :func:`check_size`, of the draws of all chains of a run, each of one cell or more.

    Example:
        >>> check_draws(4 * 1000)
    """
    check_size(number, MAX_CELLS, "draws of all chains", "num_draws", "keep fewer draws", "there are")
