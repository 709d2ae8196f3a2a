from .blocks import num_states_text as num_states_text
from .figures.decision_graph_figure import decision_graph_figure as decision_graph_figure
from .figures.hypergraph_figure import hypergraph_figure as hypergraph_figure
from .figures.network_figure import (
    dependency_figure as dependency_figure,
    dependency_matrix_figure as dependency_matrix_figure,
)
from .figures.node_bounds_figure import node_bounds_figure as node_bounds_figure
from .figures.pair_matrix_figure import pair_matrix_figure as pair_matrix_figure
from .figures.removal_figure import removal_figure as removal_figure
from .figures.root_figures import (
    penalty_path_figure as penalty_path_figure,
    root_network_figure as root_network_figure,
    root_scores_figure as root_scores_figure,
)
from .figures.selection_figures import capacity_figure as capacity_figure
from .network_page import (
    network_plain_report as network_plain_report,
    render_network_report as render_network_report,
    write_network_report as write_network_report,
)
from .page import render_report as render_report, write_report as write_report
from .plain import plain_report as plain_report
from .root_page import (
    render_root_report as render_root_report,
    root_plain_report as root_plain_report,
    write_root_report as write_root_report,
)
