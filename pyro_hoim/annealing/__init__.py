"""Annealed importance sampling for every family that can be annealed: runs, weights, checks and verdict."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
