"""Estimators with scikit-learn's contract over the models of every family; they need ``pyro-hoim[sklearn]``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
