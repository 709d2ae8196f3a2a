"""Observations and their readers: encoded rows of finite variables, and rows of counts or real numbers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
