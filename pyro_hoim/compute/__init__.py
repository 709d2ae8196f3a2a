"""Compiled code and what it runs on: Numba's decorator, lanes, vectors of lanes, the contract of engines."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
