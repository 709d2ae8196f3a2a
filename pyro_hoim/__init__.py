"""Higher-order interaction models of discrete data as ordinary Pyro distributions.

The public names of the packages are re-exported here, at this one level, and imported on first use, so that
``import pyro_hoim`` costs little and has no side effects. Packages for special purposes (``testing``, ``plots``,
``report``) are imported by their own names.
"""

import lazy_loader

from . import _kinds

# One line registers a family. Nothing below names them, and none is imported before its kind or its word is met.
_kinds.KINDS.update(
    {
        "hierarchical-log-linear": ("log-linear", "pyro_hoim.study.command.family"),
        "dependency-network": ("dependency-network", "pyro_hoim.dependency_network.command"),
        "generalized-root": ("grm", "pyro_hoim.generalized_root.command"),
        "boltzmann-machine": ("rbm", "pyro_hoim.boltzmann.command"),
    }
)

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
