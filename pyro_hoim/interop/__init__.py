"""Bridges to other libraries: ArviZ of both generations, imported when first used."""

from __future__ import annotations

from .arviz import CELL_GROUP, ArvizNames, to_arviz
from .backend import choose_backend, get_group
from .chains import diagnose_chains
from .coordinates import interaction_name, theta_coords
from .loo import compare_by_cell, loo_by_cell, loo_figures, summarise

__all__ = [
    "CELL_GROUP",
    "ArvizNames",
    "choose_backend",
    "compare_by_cell",
    "diagnose_chains",
    "get_group",
    "interaction_name",
    "loo_by_cell",
    "loo_figures",
    "summarise",
    "theta_coords",
    "to_arviz",
]
