"""Gibbs sampling of log-linear and root models, pseudo-Gibbs sampling of dependency networks; no log Z, no Pyro."""

from .chains import GibbsChains
from .engine import Engine, Record
from .ergodicity import Ergodicity, check_ergodic
from .ladder import ParallelTempering
from .pseudo_gibbs import PseudoGibbsChains
from .pseudo_gibbs_run import PseudoGibbsRun, sample_pseudo_gibbs
from .root_draws import draw_from_nodes, independent_log_partition
from .root_gibbs import RootChains, independent_samples
from .root_gibbs_run import RootRun, sample_root_chains
from .run import ChainRun, sample_chains
from .schedule import GibbsSchedule
from .tempering import TemperedRun, sample_tempered

__all__ = [
    "ChainRun",
    "Engine",
    "Ergodicity",
    "GibbsChains",
    "GibbsSchedule",
    "ParallelTempering",
    "PseudoGibbsChains",
    "PseudoGibbsRun",
    "Record",
    "RootChains",
    "RootRun",
    "TemperedRun",
    "check_ergodic",
    "draw_from_nodes",
    "independent_log_partition",
    "independent_samples",
    "sample_chains",
    "sample_pseudo_gibbs",
    "sample_root_chains",
    "sample_tempered",
]
