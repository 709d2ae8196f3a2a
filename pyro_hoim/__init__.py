"""Higher-order interaction models of discrete data as ordinary Pyro distributions.

The public names of the packages are re-exported here, at this one level, and imported on first use, so that
``import pyro_hoim`` costs little and has no side effects. Packages for special purposes (``testing``, ``analysis``,
``report``) are imported by their own names.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
