from .analysis import Analysis as Analysis, ModelAnalysis as ModelAnalysis, PartScores as PartScores, analyse as analyse
from .complexity import (
    Recovery as Recovery,
    draw_rows as draw_rows,
    law_divergence as law_divergence,
    normalised_errors as normalised_errors,
    sample_complexity as sample_complexity,
    structure_recovery as structure_recovery,
)
from .posterior import (
    Posterior as Posterior,
    compare_models as compare_models,
    file_stem as file_stem,
    run_posterior as run_posterior,
)
from .posterior_settings import PosteriorSettings as PosteriorSettings
from .recovery import (
    RocCurve as RocCurve,
    coefficient_errors as coefficient_errors,
    draw_root_rows as draw_root_rows,
    plant_roots as plant_roots,
    roc_curve as roc_curve,
    root_recovery as root_recovery,
    tuple_scores as tuple_scores,
)
