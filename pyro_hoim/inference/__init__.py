"""Pyro inference: kernels for discrete laws, posterior draws, predictive checks, and tools for any other program."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
