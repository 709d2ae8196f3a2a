from .projection import (
    Average as Average,
    BiasVariance as BiasVariance,
    DivergenceSplit as DivergenceSplit,
    Projection as Projection,
    Projections as Projections,
    bias_variance as bias_variance,
    project as project,
    split_divergence as split_divergence,
)
from .refined import (
    RefinedInformation as RefinedInformation,
    RefinedInformationTable as RefinedInformationTable,
    addable_edges as addable_edges,
    all_refined_information as all_refined_information,
    conditional_refined_information as conditional_refined_information,
    decompose as decompose,
    hierarchical_collections as hierarchical_collections,
    marginal_refined_information as marginal_refined_information,
    refined_information as refined_information,
)
from .removal import (
    RemovalEffect as RemovalEffect,
    RemovalValue as RemovalValue,
    log_z_difference as log_z_difference,
    removal_effect as removal_effect,
    removal_values as removal_values,
    without as without,
)
