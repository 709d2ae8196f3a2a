from . import data as data, inference as inference, information as information, log_linear as log_linear, plots as plots
from ._version import __version__ as __version__
from .boltzmann import RestrictedBoltzmannMachine as RestrictedBoltzmannMachine
from .compilation import warm_up as warm_up
from .data import CountTable as CountTable, Observations as Observations
from .datasets import load_table as load_table
from .dependency_network import (
    DependencyConditionals as DependencyConditionals,
    DependencyNetwork as DependencyNetwork,
    learn_network as learn_network,
    stationary_law as stationary_law,
)
from .errors import (
    ConvergenceWarning as ConvergenceWarning,
    HoimError as HoimError,
    InputError as InputError,
    IntractableError as IntractableError,
    NonexistentEstimateWarning as NonexistentEstimateWarning,
)
from .families import impute as impute, load as load, predict as predict, sample as sample, save as save, score as score
from .front import fit as fit, learn as learn
from .generalized_root import (
    GeneralizedRoot as GeneralizedRoot,
    GeneralizedRootEnergy as GeneralizedRootEnergy,
    RootStructure as RootStructure,
    fit_roots as fit_roots,
)
from .inference import (
    BlockGibbs as BlockGibbs,
    MixedGibbs as MixedGibbs,
    PseudoGibbs as PseudoGibbs,
    RootGibbs as RootGibbs,
    run_mcmc as run_mcmc,
    sample_posterior as sample_posterior,
)
from .interop import read_uai as read_uai, to_arviz as to_arviz
from .log_linear import (
    AnnealedImportance as AnnealedImportance,
    Auto as Auto,
    DiaconisYlvisaker as DiaconisYlvisaker,
    GibbsChains as GibbsChains,
    HierarchicalLogLinear as HierarchicalLogLinear,
    LogLinearEnergy as LogLinearEnergy,
    LogLinearStatistics as LogLinearStatistics,
    goodness_of_fit as goodness_of_fit,
    normal_prior as normal_prior,
)
from .planning import plan as plan
from .results import compare as compare
from .runs import sample_chains as sample_chains
from .schema import Domain as Domain, Variable as Variable
from .structure import InteractionHypergraph as InteractionHypergraph
