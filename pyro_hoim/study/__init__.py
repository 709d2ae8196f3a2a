"""Studies of one table that need everything below: fits, tests, scores and posteriors of several models together."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
