"""Gibbs sampling of log-linear models: states, kernels and schedules; no normalising constant and no Pyro."""

from .chains import GibbsChains
from .engine import Engine, Record
from .schedule import GibbsSchedule

__all__ = ["Engine", "GibbsChains", "GibbsSchedule", "Record"]
