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


def _clipped(figure):
    """Texts that stick out of the figure."""
    boxes, whole = _boxes(figure)
    inside = [
        whole.x0 - 1 <= box.x0 and box.x1 <= whole.x1 + 1 and whole.y0 - 1 <= box.y0 and box.y1 <= whole.y1 + 1
        for _, box in boxes
    ]
    return [text.get_text() for (text, _), fits in zip(boxes, inside, strict=True) if not fits]


def _overlapping(figure):
    """Pairs of texts of straight angles whose boxes share more than a pixel in both directions."""
    boxes = [(text, box) for text, box in _boxes(figure)[0] if text.get_rotation() % 90 == 0]
    return [
        (one.get_text(), two.get_text())
        for (one, a), (two, b) in itertools.combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


@pytest.fixture(scope="session")
def clipped():
    return _clipped


@pytest.fixture(scope="session")
def overlapping_texts():
    return _overlapping
