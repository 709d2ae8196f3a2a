"""What a Boltzmann machine says of its columns, and how likely rows are under it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...core.scores import Figures
from ..file import MachineFile
from .use import strongest

__all__ = ["machine_figures", "machine_summary"]


def machine_summary(file: MachineFile, level: float = 0.95) -> pd.DataFrame:
    """Interactions of the visible columns, the hidden units summed out, strongest first; ``level`` plays no role.

    Returns:
        ``term``; ``estimate``, its value in corner coding, in nats; and of pairs the ``odds_ratio`` where all other
        columns are at their first level.
    """
    _ = level
    order, values = strongest(file.law())
    found = pd.DataFrame(
        {"term": [":".join(edge) for edge, _ in values], "estimate": np.array([value for _, value in values])}
    )
    is_pair = np.array([len(edge) == 2 for edge, _ in values], dtype=bool)
    with np.errstate(over="ignore"):
        found["odds_ratio"] = np.where(is_pair, np.exp(found["estimate"]), np.nan)
    notes = [f"interactions of up to {order} columns, the hidden units summed out (corner coding), in nats"]
    found.attrs["notes"] = [*notes, "no standard errors: the likelihood of a machine has many optima"]
    return found


def machine_figures(file: MachineFile, status: str) -> Figures:
    """Its size; an interaction is a weight between two units."""
    return Figures(
        num_variables=len(file.structure.domain),
        num_interactions=len(file.structure.edges),
        num_parameters=file.structure.num_parameters,
        num_rows=file.info.get("rows"),
        status=status,
        method=f"method {file.info['method']!r}" if "method" in file.info else "",
    )
