"""Rows that lie anywhere, brought into memory for the search: distinct rows with counts, or every row as bits."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from ...budgets import check_size
from ...data.observations import Observations
from ...data.sources import RowBatch, RowSource
from ...errors import IntractableError, none_received
from ...schema import Domain
from ._rows import _REFINEMENTS, PreparedRows, bit_keys, bit_planes, checked_rows, level_ranks

MAX_SOURCE_BYTES = 2**33
"""Bytes that the rows of a source may take as bits, with their keys and the row numbers of every search at a time."""

_PER_ROW = 32  # weights, keys and their order
_PER_SEARCH = 48  # row numbers and shares of a search, twice, and its own levels
_FEW = 16  # rows for each distinct one, from which on the distinct ones are searched


@dataclass(frozen=True, eq=False)
class SourceRows:
    """What learning needs of a source: the rows for the search, its variables, their number, and a digest."""

    prepared: PreparedRows
    domain: Domain
    total_count: float
    digest: str


def _count_levels(batch: RowBatch, cardinalities: Sequence[int]) -> np.ndarray:
    """Rows of a batch, those with a count other than one, and for every column its missing cells and levels."""
    counted = 0 if batch.counts is None else int((batch.counts != 1).sum())
    columns = zip(batch.codes, cardinalities, strict=True)
    parts = [np.bincount(column.astype(np.int64) + 1, minlength=size + 1) for column, size in columns]
    return np.concatenate([[batch.num_rows, counted], *parts])


def read_source(source: RowSource, *, lossless: bool, jobs: int) -> SourceRows | Observations:
    """The rows of a source: every row as bits, or the distinct ones.

    These are taken where cells are missing, rows have counts, few rows differ, the lossless source is asked for, or all
    rows do not fit.

    Raises:
        IntractableError: more distinct rows, or more bytes, than the budgets allow.
    """
    domain = source.domain
    sizes = np.array(domain.cardinalities, dtype=np.int64)
    # A first pass counts the levels: it says whether rows can be held as bits, and in which order.
    levels_seen = source.fold(partial(_count_levels, cardinalities=domain.cardinalities))
    num_rows, num_counted = int(levels_seen[0]), int(levels_seen[1])
    if not num_rows:
        raise none_received("rows", "at least one observation")
    by_column = np.split(levels_seen[2:], np.cumsum(sizes + 1)[:-1])
    planes, num_words = bit_planes(sizes)
    is_apart = not (num_counted or lossless or any(column[0] for column in by_column))
    if not is_apart or math.prod(domain.cardinalities) * _FEW <= num_rows:
        return checked_rows(source.distinct())
    # Every row as bits, in one budget with what the searches need.
    needed = num_rows * (8 * num_words + _PER_ROW + _PER_SEARCH * max(1, jobs))
    if needed > MAX_SOURCE_BYTES:
        with suppress(IntractableError):  # refused below, with the bytes
            return checked_rows(source.distinct())
    hint = "take fewer columns (project), a sample of the rows (sample), or fewer jobs"
    check_size(needed, MAX_SOURCE_BYTES, "bytes", "rows", hint, f"as bits, {num_rows:,} rows take")
    first = np.cumsum(sizes) - sizes
    none = [np.zeros(int(size), dtype=np.uint64) for size in sizes]
    ranks = [level_ranks(column[1:], colours_of) for column, colours_of in zip(by_column, none, strict=True)]
    bits = _packed(source, ranks, num_rows, planes, num_words)
    # Few distinct rows are searched with counts, which is quicker than bits.
    keys = bit_keys(bits, planes, sizes, first)
    _, at, number = np.unique(keys, return_index=True, return_counts=True)
    if len(at) * _FEW <= num_rows:
        return checked_rows(_observed(domain, ranks, bits[at], planes, number))
    # Levels of equal frequency are ordered by what the rows say of them, as in memory.
    if any(len(seen) > len(np.unique(seen)) for column in by_column for seen in [column[1:][column[1:] > 0]]):
        merged = _observed(domain, ranks, bits[at], planes, number)
        colours = _colours(merged, sizes)
        renewed = [level_ranks(column[1:], colours_of) for column, colours_of in zip(by_column, colours, strict=True)]
        if any((one != other).any() for one, other in zip(ranks, renewed, strict=True)):
            ranks = renewed
            bits = _packed(source, ranks, num_rows, planes, num_words)
            keys = bit_keys(bits, planes, sizes, first)
    ids = np.empty((0, len(sizes)), dtype=np.int32)
    missing = np.full(len(sizes), -1, dtype=np.int64)
    weights = np.ones(num_rows)
    prepared = PreparedRows(ids, weights, keys, first, sizes, missing, tuple(ranks), True, bits, planes)
    return SourceRows(prepared, domain, float(num_rows), _digest(domain, num_rows, keys))


def _packed(
    source: RowSource, ranks: list[np.ndarray], num_rows: int, planes: np.ndarray, num_words: int
) -> np.ndarray:
    """All rows as bits, in a pass."""
    from ._row_kernels import pack_bits

    bits = np.zeros((num_rows, num_words), dtype=np.uint64)
    flat = np.concatenate(ranks)
    first = np.cumsum([0, *(len(rank) for rank in ranks[:-1])])
    at = 0
    for batch in source.batches():
        pack_bits(np.ascontiguousarray(batch.codes), flat, first, planes, bits[at : at + batch.num_rows])
        at += batch.num_rows
    return bits


def _observed(
    domain: Domain, ranks: list[np.ndarray], bits: np.ndarray, planes: np.ndarray, number: np.ndarray
) -> Observations:
    """Rows held as bits with their counts, as observations."""
    from ._row_kernels import unpack_bits

    codes = np.empty((len(bits), len(ranks)), dtype=np.int64)
    own = np.empty(len(bits), dtype=np.int32)
    for j, rank in enumerate(ranks):
        unpack_bits(bits, planes[j], len(rank), own)
        codes[:, j] = np.argsort(rank)[own]
    return Observations(domain, torch.from_numpy(codes), torch.from_numpy(number.astype(np.float64)))


def _colours(merged: Observations, sizes: np.ndarray) -> list[np.ndarray]:
    """Colours of the levels of every column by the distinct rows, as in memory."""
    from ._row_kernels import level_colours

    starts = np.concatenate([[0], np.cumsum(sizes)])
    weights = merged.counts.numpy().view(np.uint64)
    return np.split(level_colours(merged.codes.numpy(), weights, starts, _REFINEMENTS), starts[1:-1])


def _digest(domain: Domain, num_rows: int, keys: np.ndarray) -> str:
    """Digest of the variables and the rows, whatever their order."""
    content = hashlib.sha256(json.dumps([domain.to_json(), num_rows]).encode())
    content.update(np.sort(keys).tobytes())
    return content.hexdigest()[:32]
