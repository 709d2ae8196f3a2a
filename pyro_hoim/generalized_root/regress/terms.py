"""Terms of joint models over the columns of rows, and those over contrasts of categories in place of indicators."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .categories import Floats
from .rows import RootRows


class JointTerm(NamedTuple):
    """One term of a joint model: its key (j, l) and the sorted positions of its columns in the rows."""

    key: tuple[int, int]
    positions: tuple[int, ...]


Values = Mapping[JointTerm, float]


def to_contrasts(rows: RootRows, values: Values) -> dict[JointTerm, float]:
    """Terms of contrasts from those of indicators; what a category's mean over its levels holds is left out."""
    return _converted(rows, values, is_inverse=False) if rows.categories else dict(values)


def to_levels(rows: RootRows, values: Values) -> dict[JointTerm, float]:
    """Terms of indicators, of all levels that were seen, from those of contrasts: their means over levels are zero."""
    return _converted(rows, values, is_inverse=True) if rows.categories else dict(values)


def _converted(rows: RootRows, values: Values, is_inverse: bool) -> dict[JointTerm, float]:
    """Terms over levels (inverse) or contrasts, from those of the other."""
    # Tables of all terms of the same nodes, one axis for each.
    tables: dict[tuple[tuple[int, int], tuple[int, ...]], Floats] = {}
    for (key, positions), value in values.items():
        pairs = sorted((rows.nodes[rows.unit_of[s]], s) for s in positions)
        nodes, cell = tuple(node for node, _ in pairs), list[int]()
        for node, s in pairs:
            cell.append(int(np.searchsorted(rows.category_of[s].places, s)) if node in rows.category_of else 0)
        if (key, nodes) not in tables:
            categories = [rows.category_of.get(node) for node in nodes]
            sizes = [1 if c is None else c.num_contrasts if is_inverse else len(c.places) for c in categories]
            tables[key, nodes] = np.zeros(sizes)
        tables[key, nodes][tuple(cell)] = value
    # Every axis of a category is changed alone.
    converted: dict[JointTerm, float] = {}
    for (key, nodes), before in tables.items():
        table, places = before, list[list[int]]()
        for axis, node in enumerate(nodes):
            category = rows.category_of.get(node)
            if category is None:
                places.append([node])
                continue
            seen = category.shares > 0
            matrix = category.contrasts[seen] if is_inverse else category.weighted
            table = np.moveaxis(np.tensordot(matrix, table, (1, axis)), 0, axis)
            places.append((category.places[seen] if is_inverse else category.columns).tolist())
        for inside, value in zip(itertools.product(*places), table.reshape(-1).tolist(), strict=True):
            converted[JointTerm(key, tuple(sorted(inside)))] = value
    return converted
