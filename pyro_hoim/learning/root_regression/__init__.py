"""Learning of generalized root models: l1-penalised regressions of every node on all others."""

from .choice import L1Choice, RootStability, choose_l1, root_stability
from .fit import fit_root_path, fit_roots
from .refit import RootRefit, refit_roots
from .result import RootFit, RootNodeFit, RootTerm

__all__ = [
    "L1Choice",
    "RootFit",
    "RootNodeFit",
    "RootRefit",
    "RootStability",
    "RootTerm",
    "choose_l1",
    "fit_root_path",
    "fit_roots",
    "refit_roots",
    "root_stability",
]
