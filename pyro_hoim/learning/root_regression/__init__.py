"""Learning of generalized root models: l1-penalised regressions of every node on all others."""

from .fit import fit_root_path, fit_roots
from .result import RootFit, RootNodeFit, RootTerm

__all__ = ["RootFit", "RootNodeFit", "RootTerm", "fit_root_path", "fit_roots"]
