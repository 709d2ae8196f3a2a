"""Bridges to other libraries: ArviZ of both generations, imported when first used."""

from .arviz import CELL_GROUP, ArvizNames, to_arviz
from .backend import choose_backend, get_group
from .chains import diagnose_chains
from .loo import compare_by_cell, loo_by_cell, loo_figures, summarise

__all__ = [
    "CELL_GROUP",
    "ArvizNames",
    "choose_backend",
    "compare_by_cell",
    "diagnose_chains",
    "get_group",
    "loo_by_cell",
    "loo_figures",
    "summarise",
    "to_arviz",
]
