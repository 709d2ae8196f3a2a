from .analysis import Analysis as Analysis, ModelAnalysis as ModelAnalysis, analyse as analyse
from .files import save_analysis as save_analysis, save_learned as save_learned
from .learned import LearnedAnalysis as LearnedAnalysis, analyse_learned as analyse_learned
from .learned_page import learned_page as learned_page
from .page import analysis_page as analysis_page
from .parts import PartScores as PartScores
from .posterior import (
    Posterior as Posterior,
    PosteriorSettings as PosteriorSettings,
    compare_models as compare_models,
    file_stem as file_stem,
    run_posterior as run_posterior,
)
from .structures.record import (
    StructureRecord as StructureRecord,
    find_structures as find_structures,
    record_structures as record_structures,
)
from .structures.sections import structure_sections as structure_sections
