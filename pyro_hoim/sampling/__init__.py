"""Gibbs sampling of log-linear models: states, kernels and schedules; no normalising constant and no Pyro."""

from .chains import GibbsChains
from .engine import Engine, Record
from .ladder import ParallelTempering
from .run import ChainRun, sample_chains
from .schedule import GibbsSchedule
from .tempering import TemperedRun, sample_tempered

__all__ = [
    "ChainRun",
    "Engine",
    "GibbsChains",
    "GibbsSchedule",
    "ParallelTempering",
    "Record",
    "TemperedRun",
    "sample_chains",
    "sample_tempered",
]
