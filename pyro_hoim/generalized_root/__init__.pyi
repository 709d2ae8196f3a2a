from .annealed import RootAnnealed as RootAnnealed
from .auto import RootAuto as RootAuto
from .chains.draws import draw_from_nodes as draw_from_nodes, independent_log_partition as independent_log_partition
from .chains.gibbs import RootChains as RootChains, independent_samples as independent_samples
from .dispersion import dispersions as dispersions
from .energy import GeneralizedRootEnergy as GeneralizedRootEnergy, RootPseudoLikelihood as RootPseudoLikelihood
from .exact.base import RootBackend as RootBackend
from .exact.closed_form import (
    ConditionalGaussianClosedForm as ConditionalGaussianClosedForm,
    GaussianClosedForm as GaussianClosedForm,
    IndependentClosedForm as IndependentClosedForm,
)
from .exact.enumeration import RootEnumeration as RootEnumeration
from .file import RootFile as RootFile, load_roots as load_roots, save_roots as save_roots
from .frames import RootColumn as RootColumn, RootColumns as RootColumns, choose_families as choose_families
from .law import GeneralizedRoot as GeneralizedRoot
from .nodes.bounds import NodeBounds as NodeBounds, node_bounds as node_bounds
from .nodes.columns import Families as Families, NodeFamilies as NodeFamilies
from .nodes.families import (
    ExponentialFamily as ExponentialFamily,
    GaussianFamily as GaussianFamily,
    IndicatorFamily as IndicatorFamily,
    NodeFamily as NodeFamily,
    PoissonFamily as PoissonFamily,
    TruncatedPoissonFamily as TruncatedPoissonFamily,
    node_family as node_family,
)
from .nodes.log_partition import (
    NodeMoments as NodeMoments,
    node_log_partition as node_log_partition,
    node_moments as node_moments,
)
from .nodes.user_family import UserFamily as UserFamily
from .normalizability.check import Normalizability as Normalizability, check_normalizable as check_normalizable
from .regress.choice import L1ChoiceResult as L1ChoiceResult, choose_l1 as choose_l1
from .regress.confirm import confirm_roots as confirm_roots
from .regress.errors import RootErrors as RootErrors, sandwich_errors as sandwich_errors
from .regress.fit import fit_root_path as fit_root_path, fit_roots as fit_roots
from .regress.options import L1Rule as L1Rule, RootSettings as RootSettings
from .regress.refit import refit_roots as refit_roots
from .regress.result import (
    RootConfirmation as RootConfirmation,
    RootFitResult as RootFitResult,
    RootNodeResult as RootNodeResult,
    RootRefitResult as RootRefitResult,
    RootTerm as RootTerm,
)
from .structure import RootStructure as RootStructure
from .study.analysis import (
    PathStep as PathStep,
    RootAnalysis as RootAnalysis,
    analyse_roots as analyse_roots,
    penalty_path_figure as penalty_path_figure,
    root_network_figure as root_network_figure,
    root_scores_figure as root_scores_figure,
    standardise_term as standardise_term,
)
from .study.baselines import (
    IndependentColumns as IndependentColumns,
    IndependentLaw as IndependentLaw,
    fit_independent as fit_independent,
)
from .study.dependence import PairMoments as PairMoments, log_odds_ratio as log_odds_ratio, pair_moments as pair_moments
from .study.prediction import RootPrediction as RootPrediction, predict_roots as predict_roots
from .study.scores import RootDraws as RootDraws, RootModel as RootModel, draw_roots as draw_roots
