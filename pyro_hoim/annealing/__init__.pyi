from .runs import AnnealingOptions as AnnealingOptions
from .weights import (
    WeightEstimate as WeightEstimate,
    acceptance_ratio as acceptance_ratio,
    log_mean_weight as log_mean_weight,
    one_sided_limits as one_sided_limits,
)
