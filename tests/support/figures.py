"""Figures that are made, and neither laid out nor drawn: half of the time of a page whose words are tested."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox

from pyro_hoim.plots.drawing import figure_of

PIXEL = b'<svg width="1pt" height="1pt" />'
_MADE = figure_of.__code__


def _save(_: Figure, file: Any, **__: Any) -> None:
    file.write(PIXEL)


@contextmanager
def figures_of_one_pixel() -> Generator[None]:
    """Leave figures undrawn; tests of plots and of pictures in reports draw them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", _save)
        patch.setattr(Figure, "findobj", lambda *_: [])  # which makes every tick of every axis
        patch.setattr(Axes, "get_tightbbox", lambda self, *_, **__: self.bbox)
        patch.setattr(Legend, "get_window_extent", lambda *_, **__: Bbox.unit())
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda *_: None)
        yield


@contextmanager
def no_figures() -> Generator[None]:
    """Let one empty figure stand for every picture of a page, whose making takes a tenth of the time of a command."""

    def empty(plot: Any, *_: Any, **__: Any) -> Figure:
        return figure_of.__dict__["empty"]

    figure = Figure()
    figure.add_subplot()
    with figures_of_one_pixel(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure_of, "empty", figure, raising=False)
        patch.setattr(figure_of, "__code__", empty.__code__)  # whoever has imported it by name
        yield


@contextmanager
def made_figures() -> Generator[None]:
    """Make the figures of a page after all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure_of, "__code__", _MADE)
        yield
