"""Rows of data that the search for probable states starts from."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import out_of_range, unexpected, wrong_shape, wrong_type

__all__ = ["Rows", "checked_rows", "chosen_rows", "fitting_rows"]

Rows = tuple[tuple[int, ...], ...]
_MOST = 256  # distinct rows
_LARGEST = 2**53  # count


def chosen_rows(rows: torch.Tensor, counts: torch.Tensor | None = None) -> torch.Tensor:
    """At most 256 distinct rows (n, d) of those given (N, d), in lexicographic order.

    Of more distinct rows half are the most frequent, the others are evenly spaced among the rest. ``counts`` (N,).
    """
    if not rows.shape[1]:
        return rows[:1]
    distinct, where = torch.unique(rows, dim=0, return_inverse=True)
    if len(distinct) <= _MOST:
        return distinct
    counts = torch.ones(len(rows), dtype=torch.float64) if counts is None else counts.double()
    total = torch.zeros(len(distinct), dtype=torch.float64).index_add_(0, where, counts)
    order, half = total.argsort(descending=True, stable=True), _MOST // 2
    rest = order[half:].sort().values
    places = torch.arange(_MOST - half) * len(rest) // (_MOST - half)
    return distinct[torch.cat([order[:half], rest[places]]).sort().values]


def checked_rows(value: object, owner: str) -> Rows:
    """Rows that a user gave for the option ``starts``, chosen, in a form that can be hashed."""
    argument = f"{owner} starts"
    try:
        rows = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        rows = torch.zeros(0, dtype=torch.bool)
    if rows.dtype == torch.bool or rows.is_complex():
        raise wrong_type(argument, "a matrix of level codes or counts", value)
    if rows.dim() != 2 or not len(rows):
        raise wrong_shape(argument, "(rows, variables) of at least one row", rows)
    cells = rows.double()
    is_bad = ~((cells >= 0) & (cells <= _LARGEST) & (cells == cells.floor()))
    if bool(is_bad.any()):
        wanted, hint = (
            "complete rows of level codes or counts, whole numbers from 0",
            "leave out rows with missing cells",
        )
        raise unexpected(argument, wanted, hint=hint, received=f"{float(cells[is_bad][0]):g}", code="missing-cells")
    return tuple(map(tuple, chosen_rows(rows.long()).tolist()))


def fitting_rows(rows: Rows, largest: Sequence[float], owner: str) -> torch.Tensor:
    """The rows of the option ``starts`` (n, d), checked for a model whose variables go up to ``largest``."""
    found = torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1)
    if found.shape[1] != len(largest):
        wanted = f"rows of {len(largest)} cells, one for every variable of the model"
        raise unexpected(f"{owner} starts", wanted, found.shape[1], code="wrong-shape")
    is_bad = found > torch.tensor(largest, dtype=torch.float64)
    if bool(is_bad.any()):
        row, column = (int(i) for i in is_bad.nonzero()[0])
        wanted = f"at most {largest[column]:g} for variable number {column}"
        raise out_of_range(f"{owner} starts", wanted, int(found[row, column]))
    return found
