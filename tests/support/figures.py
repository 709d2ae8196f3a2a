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

from pyro_hoim.boltzmann.command import curve_figure, weights_figure
from pyro_hoim.dependency_network.study.figures import decision_graph_figure, dependency_figure
from pyro_hoim.generalized_root.study.analysis import penalty_path_figure, root_network_figure, root_scores_figure
from pyro_hoim.generalized_root.study.mixed_page import fitted_figure
from pyro_hoim.log_linear.search.figures import capacity_figure
from pyro_hoim.plots.drawing import figure_of
from pyro_hoim.study.model import rank_figure, trace_figure
from pyro_hoim.study.structures import dots_figure

PIXEL = b'<svg width="1pt" height="1pt" />'
_MAKERS = (
    *(curve_figure, weights_figure, decision_graph_figure, dependency_figure, penalty_path_figure, dots_figure),
    *(root_network_figure, root_scores_figure, fitted_figure, capacity_figure, figure_of, rank_figure, trace_figure),
)
_MADE = {make: (make.__code__, make.__defaults__, make.__kwdefaults__) for make in _MAKERS}
_EMPTY: list[Figure] = []


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

    def empty(*_: Any, **__: Any) -> Figure:
        from support.figures import _EMPTY

        return _EMPTY[0]

    if not _EMPTY:
        _EMPTY.append(Figure())
        _EMPTY[0].add_subplot()
    with figures_of_one_pixel(), _as(dict.fromkeys(_MAKERS, (empty.__code__, None, None))):
        yield


@contextmanager
def _as(parts: dict[Any, tuple[Any, ...]]) -> Generator[None]:
    """Let functions be others, also for those that have imported them by name."""
    with pytest.MonkeyPatch.context() as patch:
        for make, values in parts.items():
            for name, value in zip(("__code__", "__defaults__", "__kwdefaults__"), values, strict=True):
                patch.setattr(make, name, value)
        yield


@contextmanager
def made_figures() -> Generator[None]:
    """Make the figures of a page after all."""
    with _as(_MADE):
        yield
