"""Plots as functions: data and axes in, axes out; nothing is kept between calls.

Every function takes ``ax``: axes to draw into, an empty :class:`~matplotlib.figure.Figure`, which takes the size that
the picture needs, or None (default), which makes a new figure of pyplot as pandas and ArviZ do, so that notebooks show
it. Pyplot is imported in that case only. Functions take plain things (data frames, arrays, hypergraphs), so that they
draw results of every family and of other programs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
