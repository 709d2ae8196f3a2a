"""Unnormalised models: energies, conditionals and the coordinates of their parameters."""

from .base import ConditionalModel, EnergyModel
from .log_linear import LogLinearEnergy
from .parametrization import Coding, Parametrization, parametrization

__all__ = ["Coding", "ConditionalModel", "EnergyModel", "LogLinearEnergy", "Parametrization", "parametrization"]
