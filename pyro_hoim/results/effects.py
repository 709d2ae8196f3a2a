"""Effects of one column on another in sentences, of any family that has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..core.words import number, shorten

DIFFERENCE = "mean difference"
"""What an effect is called that is no ratio."""
WHERE = "all others at their medians or most frequent values"
"""What holds of the other columns where nothing else is said."""


def clearest_effects(table: pd.DataFrame, level: float) -> list[str]:
    """A sentence on the clearest effect of every pair of columns, the clearest pair first.

    Args:
        table: what ``effects()`` gives.
        level: coverage of its intervals.

    Example:
        >>> line = {"response": "visits", "column": "smoke", "before": "no", "after": "yes", "effect": "rate ratio"}
        >>> table = pd.DataFrame([{**line, "estimate": 2.0, "std_error": 0.1, "lower": 1.64, "upper": 2.43}])
        >>> clearest_effects(table, 0.95)
        ['visits: rate ratio 2 (95% interval 1.640 to 2.430) for smoke from no to yes']
    """
    clearest: dict[frozenset[str], str] = {}
    for row in sorted(table.to_dict("records"), key=_clearness, reverse=True):
        pair = frozenset((row["response"], row["column"]))
        if pair not in clearest:
            clearest[pair] = _sentence(row, level)
    return list(clearest.values())


def _clearness(row: Mapping[Any, Any]) -> float:
    """How far an effect is from none, in standard errors where there are such."""
    size = row["estimate"] if row["effect"] == DIFFERENCE else math.log(max(row["estimate"], 1e-300))
    return abs(size) / row["std_error"] if row["std_error"] > 0 else abs(size) * 1e-9


def _sentence(row: Mapping[Any, Any], level: float) -> str:
    """An effect in words."""
    response = " ".join(filter(None, [shorten(row["response"]), shorten(row.get("levels", ""))]))
    interval = (
        f" ({level:.0%} interval {number(row['lower'])} to {number(row['upper'])})" if row["std_error"] > 0 else ""
    )
    change = f"{shorten(row['column'], 20)} from {row['before']} to {row['after']}"
    return f"{response}: {row['effect']} {number(row['estimate'])}{interval} for {change}"
