"""Published contingency tables, typed in, and loaders for public data files with pinned checksums."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
