"""Statistics of draws from what kernels say of their chains; nothing here imports Pyro."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def draw_statistics(diagnostics: Sequence[Mapping[str, Any]], num_draws: int) -> dict[str, np.ndarray]:
    """Statistics of every draw that all chains tell of, (num_chains, num_draws), from the diagnostics of each."""
    result: dict[str, np.ndarray] = {}
    if diagnostics and all("divergences" in chain for chain in diagnostics):
        diverging = result["diverging"] = np.zeros((len(diagnostics), num_draws), dtype=bool)
        for row, chain in zip(diverging, diagnostics, strict=True):
            where = np.asarray(chain["divergences"], dtype=np.int64)
            row[where[(where >= 0) & (where < num_draws)]] = True
    records = [record for chain in diagnostics if isinstance(record := chain.get("sample_stats"), Mapping)]
    if records and len(records) == len(diagnostics):
        for name in records[0]:
            rows = [np.asarray(record.get(name, ()), dtype=np.float64) for record in records]
            if all(row.shape == (num_draws,) for row in rows):
                result[name] = np.stack(rows)
    return result
