"""Pages on what a fit has found: one renderer for HTML and one for a terminal, whatever the family."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
