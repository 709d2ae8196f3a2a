from .chains.ergodicity import Ergodicity as Ergodicity, check_ergodic as check_ergodic
from .chains.pseudo_gibbs import PseudoGibbsChains as PseudoGibbsChains
from .conditionals import (
    ClampedConditional as ClampedConditional,
    DependencyConditionals as DependencyConditionals,
    ModelConditional as ModelConditional,
)
from .decision_graph import (
    CompiledGraph as CompiledGraph,
    DecisionGraph as DecisionGraph,
    Merge as Merge,
    Split as Split,
)
from .file import NetworkFile as NetworkFile, load_network as load_network, save_network as save_network
from .geometry import (
    ConditionalInferenceError as ConditionalInferenceError,
    FCLimit as FCLimit,
    conditional_inference_error as conditional_inference_error,
    fc_limit as fc_limit,
    full_conditional_divergence as full_conditional_divergence,
    full_conditionals as full_conditionals,
    m_projection as m_projection,
    node_divergence as node_divergence,
)
from .law import DependencyNetwork as DependencyNetwork
from .learn.network import (
    LearnedNetwork as LearnedNetwork,
    NodeReport as NodeReport,
    leaf_probs as leaf_probs,
    learn_network as learn_network,
    learn_node as learn_node,
)
from .learn.penalties import (
    AIC as AIC,
    EBIC as EBIC,
    MDL as MDL,
    SourcePenalty as SourcePenalty,
    TheoremConditions as TheoremConditions,
    check_theorem_conditions as check_theorem_conditions,
)
from .node_conditionals import (
    LeafConditional as LeafConditional,
    NodeConditional as NodeConditional,
    TableConditional as TableConditional,
)
from .scan import Scan as Scan
from .stationary import (
    CyclicLaws as CyclicLaws,
    StationaryLaw as StationaryLaw,
    cyclic_laws as cyclic_laws,
    stationary_law as stationary_law,
)
from .study.analysis import (
    NetworkAnalysis as NetworkAnalysis,
    NetworkPart as NetworkPart,
    analyse_network as analyse_network,
)
from .study.figures import (
    decision_graph_figure as decision_graph_figure,
    dependency_figure as dependency_figure,
    dependency_matrix_figure as dependency_matrix_figure,
)
from .study.scores import (
    DependencyEdge as DependencyEdge,
    GraphInformation as GraphInformation,
    NetworkDraws as NetworkDraws,
    NetworkLawFinding as NetworkLawFinding,
    NetworkScores as NetworkScores,
    draw_network as draw_network,
    edge_information as edge_information,
    find_law as find_law,
    impute_network as impute_network,
    predict_network as predict_network,
    score_network as score_network,
)
