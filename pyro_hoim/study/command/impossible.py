"""Combinations of levels to which the infinite estimate behind a model file gives probability zero."""

from __future__ import annotations

import torch

from ...core.family import Stored
from ...core.words import option, plural
from ...data.observations import Observations
from ...errors import refused
from ...log_linear.fitting.existence import Combination
from ...log_linear.scores import matches_any

__all__ = ["check_evidence", "impossible_rows", "num_impossible", "unnamed_combinations"]


def _combinations(stored: Stored) -> list[Combination]:
    return [Combination(tuple(c["edge"]), tuple(c["levels"])) for c in stored.info.get("infinite_combinations", [])]


def unnamed_combinations(stored: Stored) -> list[str]:
    """A sentence where the file does not name all combinations."""
    found = _combinations(stored)
    total = stored.info.get("num_infinite_combinations", len(found))
    if total <= len(found):
        return []
    told = (
        f"the model file names only {len(found)} of {total} combinations of probability zero; rows with one of the "
        "others get a very small probability instead"
    )
    return [told]


def num_impossible(stored: Stored, data: Observations) -> float:
    """Rows that hold one of the combinations."""
    return float(data.counts[matches_any(data.codes, data.domain, _combinations(stored))].sum())


def impossible_rows(stored: Stored, data: Observations, target: str | None = None) -> torch.Tensor:
    """Rows (N,) whose known cells, those of the target set aside, have probability zero together.

    They hold one of the combinations, or exclude every level of one of the missing columns.
    """
    found, domain = _combinations(stored), data.domain
    codes = data.codes.clone()
    if target is not None:
        codes[:, domain.index(target)] = -1
    excluded = matches_any(codes, domain, found)
    for name in {name for combination in found for name in combination.edge}:
        column = domain.index(name)
        is_left = torch.zeros(len(codes), dtype=torch.bool)
        for level in range(domain[name].cardinality):
            filled = codes.clone()
            filled[:, column] = level
            is_left |= ~matches_any(filled, domain, found)
        excluded |= (codes[:, column] < 0) & ~is_left
    return excluded


def check_evidence(stored: Stored, data: Observations, argument: str) -> None:
    """Refuse rows whose known cells have probability zero: there is no law given them."""
    excluded = impossible_rows(stored, data)
    if not bool(excluded.any()):
        return
    row = data.codes[int(excluded.nonzero()[0])].tolist()
    cells = ", ".join(f"{v.name}={v.labels[k]}" for v, k in zip(data.domain, row, strict=True) if k >= 0)
    rows = "" if len(row) and len(data.codes) == 1 else f" ({plural(int(excluded.sum()), 'such row')})"
    problem = (
        f"{cells} has probability zero in the model{rows}: a combination in it was never observed, and its estimate is "
        "infinite"
    )
    raise refused(argument, problem, f"give other values, or fit with {option('prior', 'unit')}", code="impossible")
