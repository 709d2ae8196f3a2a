"""Bridges to other libraries: ArviZ of both generations, imported when first used."""

from __future__ import annotations

from .arviz import CELL_GROUP, to_arviz
from .backend import choose_backend, get_group
from .coordinates import interaction_name, theta_coords
from .discrete_chains import ChainDiagnostics, StatisticDiagnostics, diagnose_discrete_chains, discrete_chains_to_arviz
from .loo import compare_by_cell, loo_by_cell, loo_figures, summarise
from .root_chains import diagnose_root_chains, root_chains_to_arviz

__all__ = [
    "CELL_GROUP",
    "ChainDiagnostics",
    "StatisticDiagnostics",
    "choose_backend",
    "compare_by_cell",
    "diagnose_discrete_chains",
    "diagnose_root_chains",
    "discrete_chains_to_arviz",
    "get_group",
    "interaction_name",
    "loo_by_cell",
    "loo_figures",
    "root_chains_to_arviz",
    "summarise",
    "theta_coords",
    "to_arviz",
]
