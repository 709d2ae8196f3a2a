"""Bridges to other libraries and their files: ArviZ, pgmpy and mbi, imported when first used, and UAI."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
