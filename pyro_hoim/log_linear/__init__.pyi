from .annealed.importance import AnnealedImportance as AnnealedImportance, log_frequencies as log_frequencies
from .auto import Auto as Auto, log_partition as log_partition
from .bounds.importance import BucketImportance as BucketImportance
from .bounds.mini_buckets import MiniBuckets as MiniBuckets
from .chains.choice import BlockCandidate as BlockCandidate, BlockChoice as BlockChoice
from .chains.gibbs import GibbsChains as GibbsChains
from .coding import (
    Coding as Coding,
    Parametrization as Parametrization,
    from_reference as from_reference,
    parametrization as parametrization,
    reference_matrix as reference_matrix,
    theta_coords as theta_coords,
    to_reference as to_reference,
)
from .constrained.frank_wolfe import fit_penalised as fit_penalised, frank_wolfe as frank_wolfe
from .constrained.losses import (
    CategoricalLoss as CategoricalLoss,
    InteractionScreeningLoss as InteractionScreeningLoss,
    PseudoLikelihoodLoss as PseudoLikelihoodLoss,
)
from .constrained.norms import (
    Ball as Ball,
    GroupNorm as GroupNorm,
    L1Norm as L1Norm,
    NormPenalty as NormPenalty,
    NuclearNorm as NuclearNorm,
    OverlappedNorm as OverlappedNorm,
)
from .constrained.paths import (
    SolutionPath as SolutionPath,
    penalty_grid as penalty_grid,
    solution_path as solution_path,
)
from .constrained.result import ConstrainedResult as ConstrainedResult
from .constrained.splitting import SplittingResult as SplittingResult, douglas_rachford as douglas_rachford
from .energy import LogLinearEnergy as LogLinearEnergy
from .exact.elimination import VariableElimination as VariableElimination
from .exact.enumeration import Enumeration as Enumeration, MatrixEnumeration as MatrixEnumeration
from .file import ModelFile as ModelFile, load_model as load_model, save_model as save_model
from .fitting.existence import Combination as Combination, MLEExistence as MLEExistence, mle_existence as mle_existence
from .fitting.fit import fit as fit
from .fitting.incomplete import fit_incomplete as fit_incomplete, row_log_likelihood as row_log_likelihood
from .fitting.penalties import L1 as L1, L2 as L2, Conjugate as Conjugate, GroupL2 as GroupL2
from .fitting.pseudo_likelihood import LogLinearPseudoLikelihood as LogLinearPseudoLikelihood
from .fitting.result import FitResult as FitResult
from .fitting.solvers import Stopping as Stopping
from .fitting.tables import (
    cell_table as cell_table,
    coefficient_table as coefficient_table,
    odds_ratio_table as odds_ratio_table,
)
from .given import impute as impute, predict as predict, row_log_weights as row_log_weights, synthesise as synthesise
from .goodness.goodness_of_fit import (
    GoodnessOfFit as GoodnessOfFit,
    LikelihoodRatioTest as LikelihoodRatioTest,
    adjust_p_values as adjust_p_values,
    goodness_of_fit as goodness_of_fit,
    likelihood_ratio_test as likelihood_ratio_test,
    term_tests as term_tests,
)
from .impossible import ImpossibleStates as ImpossibleStates, PossibleStates as PossibleStates
from .joined import JoinedLaw as JoinedLaw
from .laws.law import HierarchicalLogLinear as HierarchicalLogLinear, cell_log_likelihood as cell_log_likelihood
from .laws.normal import (
    HorseshoePrior as HorseshoePrior,
    horseshoe_prior as horseshoe_prior,
    normal_prior as normal_prior,
    unit_information_prior as unit_information_prior,
)
from .laws.priors import DiaconisYlvisaker as DiaconisYlvisaker
from .laws.statistics import LogLinearStatistics as LogLinearStatistics, statistics_of as statistics_of
from .learning.learn import Regularisation as Regularisation, fit_collection as fit_collection, learn as learn
from .learning.model import LearnResult as LearnResult
from .named_priors import Prior as Prior
from .posets.figures import hasse_figure as hasse_figure
from .posets.law import (
    PosetLaw as PosetLaw,
    PosetProjection as PosetProjection,
    e_projection as e_projection,
    m_projection as m_projection,
)
from .posets.machine import (
    MachineResult as MachineResult,
    MachineTraining as MachineTraining,
    gradient_steps as gradient_steps,
    train_machine as train_machine,
)
from .posets.poset import Poset as Poset
from .restricted.terms import (
    RestrictedInteractions as RestrictedInteractions,
    interactions_of as interactions_of,
    midranks as midranks,
    restricted_interactions as restricted_interactions,
)
from .scores import (
    CoefficientInterval as CoefficientInterval,
    coefficient_intervals as coefficient_intervals,
    interaction_table as interaction_table,
    prediction_accuracy as prediction_accuracy,
    score_rows as score_rows,
)
from .search.candidates import CandidatePool as CandidatePool, Heredity as Heredity
from .search.confirmation import Confirmation as Confirmation, InteractionTest as InteractionTest, confirm as confirm
from .search.edge_tests import EdgeTest as EdgeTest, EdgeTester as EdgeTester
from .search.figures import capacity_figure as capacity_figure
from .search.greedy import prune as prune, select as select
from .search.rounds import (
    SelectionOptions as SelectionOptions,
    SelectionResult as SelectionResult,
    SelectionRound as SelectionRound,
    StopRule as StopRule,
)
from .search.scores import (
    Gain as Gain,
    GainEstimate as GainEstimate,
    InteractionInformation as InteractionInformation,
    Refined as Refined,
    Score as Score,
    ScoreContext as ScoreContext,
    Screened as Screened,
)
from .tensors.layout import (
    TensorLayout as TensorLayout,
    multiplicity as multiplicity,
    num_interactions as num_interactions,
    slice_coefficient as slice_coefficient,
    subtensor_coefficient as subtensor_coefficient,
    tensor_layout as tensor_layout,
)
from .tensors.tensor import (
    LatentNorm as LatentNorm,
    SymmetricInteractionTensor as SymmetricInteractionTensor,
    latent_dual_norm as latent_dual_norm,
    latent_norm as latent_norm,
    overlapped_norm as overlapped_norm,
    schatten_norm as schatten_norm,
    unfold as unfold,
)
from .training.exact import ExactTrainer as ExactTrainer
from .training.pseudo import PseudoTrainer as PseudoTrainer
from .training.ridge import (
    EvidenceRounds as EvidenceRounds,
    InteractionRidge as InteractionRidge,
    updated_ridge as updated_ridge,
)
from .training.sampled.trainer import SampledTrainer as SampledTrainer, SampledTraining as SampledTraining
