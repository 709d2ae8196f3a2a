"""Reports: an analysis as one self-contained HTML page, as plain text and as files."""

from .blocks import num_states_text
from .hypergraph_figure import hypergraph_figure
from .page import render_report, write_report
from .pair_matrix_figure import pair_matrix_figure
from .plain import plain_report
from .removal_figure import removal_figure
from .selection_figures import capacity_figure

__all__ = [
    "capacity_figure",
    "hypergraph_figure",
    "num_states_text",
    "pair_matrix_figure",
    "plain_report",
    "removal_figure",
    "render_report",
    "write_report",
]
