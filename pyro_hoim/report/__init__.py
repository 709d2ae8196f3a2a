"""Reports: an analysis as one self-contained HTML page, as plain text and as files."""

from .blocks import num_states_text
from .decision_graph_figure import decision_graph_figure
from .hypergraph_figure import hypergraph_figure
from .network_figure import dependency_figure, dependency_matrix_figure
from .network_page import network_plain_report, render_network_report, write_network_report
from .node_bounds_figure import node_bounds_figure
from .page import render_report, write_report
from .pair_matrix_figure import pair_matrix_figure
from .plain import plain_report
from .removal_figure import removal_figure
from .root_figures import penalty_path_figure, root_network_figure, root_scores_figure
from .root_page import render_root_report, root_plain_report, write_root_report
from .selection_figures import capacity_figure

__all__ = [
    "capacity_figure",
    "decision_graph_figure",
    "dependency_figure",
    "dependency_matrix_figure",
    "hypergraph_figure",
    "network_plain_report",
    "node_bounds_figure",
    "num_states_text",
    "pair_matrix_figure",
    "penalty_path_figure",
    "plain_report",
    "removal_figure",
    "render_network_report",
    "render_report",
    "render_root_report",
    "root_network_figure",
    "root_plain_report",
    "root_scores_figure",
    "write_network_report",
    "write_report",
    "write_root_report",
]
