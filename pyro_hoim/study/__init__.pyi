from .analysis import Analysis as Analysis, analyse as analyse
from .learned import LearnedAnalysis as LearnedAnalysis, analyse_learned as analyse_learned
from .model import ModelAnalysis as ModelAnalysis
from .posterior import (
    Posterior as Posterior,
    PosteriorSettings as PosteriorSettings,
    compare_models as compare_models,
    file_stem as file_stem,
    run_posterior as run_posterior,
)
from .structures import (
    StructureRecord as StructureRecord,
    find_structures as find_structures,
    record_structures as record_structures,
    structure_sections as structure_sections,
)
