"""Generalized root models of counts and positive data: energy, law, log Z, chains and regressions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
