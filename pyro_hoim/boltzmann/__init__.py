"""Boltzmann machines: binary variables of which some are hidden, their laws, log Z and learning."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
