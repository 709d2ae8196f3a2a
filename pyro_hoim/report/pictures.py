"""Pictures of a page as SVG: sharp at every size, readable without fonts, the same bytes for the same picture."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import Collection
from matplotlib.figure import Figure

_MOST_POINTS = 500  # of a cloud that stays a drawing; larger ones are pixels
_STYLE: dict[Any, Any] = {"svg.hashsalt": "pyro_hoim", "svg.fonttype": "path"}


@dataclass(frozen=True)
class Picture:
    """A picture as SVG with its size in pixels of a page."""

    svg: bytes
    width: int
    height: int

    @property
    def address(self) -> str:
        """A ``data:`` address that holds the whole picture."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode("ascii")


def picture(figure: Figure) -> Picture:
    """SVG of a figure, which loads nothing and names no machine or time."""
    # Many points as an image, else the page grows by megabytes.
    for cloud in figure.findobj(Collection):
        if len(np.asarray(cloud.get_offsets())) > _MOST_POINTS:
            cloud.set_rasterized(True)
    buffer = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(
            buffer,
            format="svg",
            dpi=150,
            bbox_inches="tight",
            pad_inches=0.02,
            facecolor="white",
            metadata={"Date": None, "Creator": None},
        )
    # Points of the file as pixels of the page.
    svg = buffer.getvalue()
    width, height = (float(size) * 4 / 3 for size in re.findall(rb'(?:width|height)="([\d.]+)pt"', svg)[:2])
    return Picture(svg, round(width), round(height))
