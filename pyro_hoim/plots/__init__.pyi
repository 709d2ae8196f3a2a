from .drawing import figure_of as figure_of
from .fitted import pearson_residuals as pearson_residuals, plot_fitted as plot_fitted, plot_residuals as plot_residuals
from .hypergraph import circle_order as circle_order, plot_hypergraph as plot_hypergraph
from .intervals import (
    plot_comparison as plot_comparison,
    plot_forest as plot_forest,
    plot_interactions as plot_interactions,
)
from .mosaic import (
    independent_counts as independent_counts,
    mosaic_tiles as mosaic_tiles,
    plot_association as plot_association,
    plot_mosaic as plot_mosaic,
)
from .pairs import pair_matrix as pair_matrix, plot_pairs as plot_pairs
from .predictions import (
    calibration_table as calibration_table,
    plot_calibration as plot_calibration,
    plot_roc as plot_roc,
    roc_points as roc_points,
)
