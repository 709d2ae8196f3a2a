"""Tables of results that hold columns of the data beside figures about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["beside_figures", "numbered"]


def beside_figures(columns: Mapping[str, Any], figures: Mapping[str, Any]) -> pd.DataFrame:
    """A table of columns of data, then of figures about them; a column with the name of a figure is ``name (column)``.

    The attribute ``columns`` of the table says what each column of data is called in it.

    Example:
        >>> table = beside_figures({"a": ["x"], "z": ["y"]}, {"estimate": [0.5], "z": [1.2]})
        >>> list(table), table.attrs
        (['a', 'z (column)', 'estimate', 'z'], {'columns': {'a': 'a', 'z': 'z (column)'}})
    """
    called: dict[str, str] = {}
    for name in sorted(columns, key=lambda name: name in figures):  # those that keep their names come first
        new = name
        while new in figures or new in called.values():
            new += " (column)"
        called[name] = new
    table = pd.DataFrame({**{called[name]: columns[name] for name in columns}, **figures})
    table.attrs["columns"] = {name: called[name] for name in columns}
    return table


def numbered(rows: pd.DataFrame, number: int) -> pd.DataFrame:
    """Several completions of rows, one below the other, with a first column ``imputation`` that counts from 1."""
    if number == 1:
        return rows
    numbers = np.repeat(np.arange(1, number + 1), len(rows) // number)
    table = beside_figures({str(name): values for name, values in rows.items()}, {"imputation": numbers})
    table.insert(0, "imputation", table.pop("imputation"))
    return table
