from .gibbs import (
    BlockGibbs as BlockGibbs,
    GibbsKernel as GibbsKernel,
    PseudoGibbs as PseudoGibbs,
    RootGibbs as RootGibbs,
)
from .intractable.exchange import Exchange as Exchange, NoisyExchange as NoisyExchange, SweepCheck as SweepCheck
from .intractable.langevin import Langevin as Langevin
from .kernels import (
    R_HAT_LIMIT as R_HAT_LIMIT,
    NUTSSettings as NUTSSettings,
    PosteriorDraws as PosteriorDraws,
    RecordingNUTS as RecordingNUTS,
    r_hat_limit as r_hat_limit,
)
from .mixed.kernel import MixedGibbs as MixedGibbs
from .network_posterior import (
    NetworkPosterior as NetworkPosterior,
    sample_network_posterior as sample_network_posterior,
)
from .posterior import (
    Metric as Metric,
    PosteriorSamples as PosteriorSamples,
    PseudoPosterior as PseudoPosterior,
    log_linear_model as log_linear_model,
    pseudo_model as pseudo_model,
    sample_posterior as sample_posterior,
    sample_pseudo_posterior as sample_pseudo_posterior,
)
from .predictive_checks import (
    PredictiveCheck as PredictiveCheck,
    Replicates as Replicates,
    posterior_predictive as posterior_predictive,
    predictive_check as predictive_check,
    prior_predictive as prior_predictive,
)
from .reparam import StateIndexReparam as StateIndexReparam
from .root_posterior import (
    RootPosterior as RootPosterior,
    root_pseudo_model as root_pseudo_model,
    sample_root_posterior as sample_root_posterior,
)
from .runner import (
    MCMCRun as MCMCRun,
    VectorizedKernel as VectorizedKernel,
    log_joint as log_joint,
    pointwise_log_likelihood as pointwise_log_likelihood,
    run_mcmc as run_mcmc,
)
from .structure.average import average_decomposable as average_decomposable
from .structure.birth_death import BirthDeath as BirthDeath
from .structure.chains import ChainSettings as ChainSettings, sample_structures as sample_structures
from .structure.evidence import (
    LogEvidence as LogEvidence,
    StructureEvidence as StructureEvidence,
    log_evidence as log_evidence,
)
from .structure.guide import AutoStructure as AutoStructure, StructureELBO as StructureELBO
from .structure.posterior import (
    StructurePosterior as StructurePosterior,
    enumerate_structures as enumerate_structures,
    load_structure_posterior as load_structure_posterior,
    save_structure_posterior as save_structure_posterior,
)
from .structure.prior import StructurePrior as StructurePrior
from .structure.program import StructureProgram as StructureProgram, structure_model as structure_model
