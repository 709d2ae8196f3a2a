"""What tests of pictures measure on the canvas."""

import itertools

import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text


def _unseen(axes, axis):
    """Labels of ticks beyond the limits, or of an axis that is switched off: they are not drawn."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
        if not axes.axison or not low - slack <= tick.get_loc() <= high + slack:
            yield from (tick.label1, tick.label2)


def _boxes(figure):
    """Boxes on the canvas of all texts that are seen, and that of the figure."""
    figure.draw_without_rendering()
    hidden = {
        text for axes in figure.findobj(Axes) for axis in (axes.xaxis, axes.yaxis) for text in _unseen(axes, axis)
    }
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text not in hidden]
    return [(text, text.get_window_extent()) for text in texts if text.get_text().strip()], figure.bbox


def _misplaced(figure):
    """Texts that stick out of the figure, and pairs of straight ones that share more than a pixel both ways."""
    boxes, whole = _boxes(figure)
    clipped = [
        text.get_text()
        for text, box in boxes
        if box.x0 < whole.x0 - 1 or box.x1 > whole.x1 + 1 or box.y0 < whole.y0 - 1 or box.y1 > whole.y1 + 1
    ]
    straight = [(text, box) for text, box in boxes if text.get_rotation() % 90 == 0]
    overlapping = [
        (one.get_text(), two.get_text())
        for (one, a), (two, b) in itertools.combinations(straight, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
    return clipped, overlapping


@pytest.fixture(scope="session")
def misplaced():
    return _misplaced
