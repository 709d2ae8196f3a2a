"""Undirected, higher-order models of discrete data as ordinary Pyro distributions.

The public names of the packages are re-exported here, at this one level, and imported on first use, so that
``import pyro_hoim`` costs little and has no side effects. Packages for special purposes (``testing``, ``analysis``,
``report``) are imported by their own names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data import InformationTable as InformationTable, Observations as Observations
    from .datasets import (
        FileInfo as FileInfo,
        TableInfo as TableInfo,
        adult_domain as adult_domain,
        data_file as data_file,
        dataset_files as dataset_files,
        load_adult as load_adult,
        load_breast_cancer as load_breast_cancer,
        load_mushroom as load_mushroom,
        load_table as load_table,
        table_info as table_info,
        tables as tables,
    )
    from .distributions import (
        DiaconisYlvisaker as DiaconisYlvisaker,
        HierarchicalLogLinear as HierarchicalLogLinear,
        LogLinearStatistics as LogLinearStatistics,
        MarginalCounts as MarginalCounts,
        StateIndexReparam as StateIndexReparam,
        StateSpace as StateSpace,
        normal_prior as normal_prior,
        statistics_of as statistics_of,
    )
    from .errors import (
        ConvergenceWarning as ConvergenceWarning,
        HoimError as HoimError,
        InputError as InputError,
        InputTypeError as InputTypeError,
        IntractableError as IntractableError,
        MissingDataError as MissingDataError,
        ModelFileError as ModelFileError,
        NonexistentEstimateWarning as NonexistentEstimateWarning,
        UnknownNameError as UnknownNameError,
    )
    from .inference import (
        R_HAT_LIMIT as R_HAT_LIMIT,
        BlockGibbs as BlockGibbs,
        Discrepancy as Discrepancy,
        IntervalCoverage as IntervalCoverage,
        MCMCRun as MCMCRun,
        Metric as Metric,
        MixedGibbs as MixedGibbs,
        PosteriorSamples as PosteriorSamples,
        PredictiveCheck as PredictiveCheck,
        RecordingNUTS as RecordingNUTS,
        Replicates as Replicates,
        VectorizedKernel as VectorizedKernel,
        cell_log_likelihood as cell_log_likelihood,
        deviance_discrepancy as deviance_discrepancy,
        interval_coverage as interval_coverage,
        log_joint as log_joint,
        log_linear_model as log_linear_model,
        pearson_discrepancy as pearson_discrepancy,
        pointwise_log_likelihood as pointwise_log_likelihood,
        posterior_predictive as posterior_predictive,
        predictive_check as predictive_check,
        prior_predictive as prior_predictive,
        r_hat_limit as r_hat_limit,
        run_mcmc as run_mcmc,
        sample_posterior as sample_posterior,
    )
    from .information import (
        Law as Law,
        Projection as Projection,
        Projections as Projections,
        RefinedInformation as RefinedInformation,
        RefinedInformationTable as RefinedInformationTable,
        addable_edges as addable_edges,
        all_refined_information as all_refined_information,
        conditional_refined_information as conditional_refined_information,
        decompose as decompose,
        hierarchical_collections as hierarchical_collections,
        marginal_refined_information as marginal_refined_information,
        maximal_chains as maximal_chains,
        project as project,
        random_dirichlet_law as random_dirichlet_law,
        random_law as random_law,
        refined_information as refined_information,
    )
    from .interop import (
        ChainDiagnostics as ChainDiagnostics,
        StatisticDiagnostics as StatisticDiagnostics,
        compare_by_cell as compare_by_cell,
        diagnose_discrete_chains as diagnose_discrete_chains,
        discrete_chains_to_arviz as discrete_chains_to_arviz,
        loo_by_cell as loo_by_cell,
        loo_figures as loo_figures,
        to_arviz as to_arviz,
    )
    from .learning import (
        L1 as L1,
        L2 as L2,
        ClampedGibbs as ClampedGibbs,
        Combination as Combination,
        FitResult as FitResult,
        GoodnessOfFit as GoodnessOfFit,
        GroupL2 as GroupL2,
        HistoryEntry as HistoryEntry,
        LikelihoodRatioTest as LikelihoodRatioTest,
        MLEExistence as MLEExistence,
        Prediction as Prediction,
        cell_table as cell_table,
        coefficient_table as coefficient_table,
        extend_rows as extend_rows,
        fit as fit,
        fit_incomplete as fit_incomplete,
        goodness_of_fit as goodness_of_fit,
        likelihood_ratio_test as likelihood_ratio_test,
        mle_existence as mle_existence,
        odds_ratio_table as odds_ratio_table,
        predict as predict,
        row_log_likelihood as row_log_likelihood,
        row_log_weights as row_log_weights,
    )
    from .learning.selection import (
        Selection as Selection,
        SelectionRound as SelectionRound,
        StopRule as StopRule,
        loss_of_refit as loss_of_refit,
        prune as prune,
        select as select,
    )
    from .learning.training import (
        Evidence as Evidence,
        ExactTrainer as ExactTrainer,
        InteractionRidge as InteractionRidge,
        Loss as Loss,
        Margins as Margins,
        PseudoTrainer as PseudoTrainer,
        SampledTrainer as SampledTrainer,
        SampledTraining as SampledTraining,
        Trainer as Trainer,
        TrainingReport as TrainingReport,
        updated_ridge as updated_ridge,
    )
    from .model_file import ModelFile as ModelFile, load_model as load_model, save_model as save_model
    from .models import (
        Coding as Coding,
        ConditionalModel as ConditionalModel,
        EnergyModel as EnergyModel,
        LogLinearEnergy as LogLinearEnergy,
        Parametrization as Parametrization,
        parametrization as parametrization,
    )
    from .partition import (
        AnnealedImportance as AnnealedImportance,
        Auto as Auto,
        Cost as Cost,
        Enumeration as Enumeration,
        LogPartition as LogPartition,
        MatrixEnumeration as MatrixEnumeration,
        PartitionBackend as PartitionBackend,
        Sandwich as Sandwich,
        VariableElimination as VariableElimination,
        log_frequencies as log_frequencies,
    )
    from .sampling import (
        ChainRun as ChainRun,
        GibbsChains as GibbsChains,
        GibbsSchedule as GibbsSchedule,
        ParallelTempering as ParallelTempering,
        TemperedRun as TemperedRun,
        sample_chains as sample_chains,
        sample_tempered as sample_tempered,
    )
    from .schema import Domain as Domain, Variable as Variable
    from .structure import (
        EliminationOrder as EliminationOrder,
        InteractionHypergraph as InteractionHypergraph,
        elimination_order as elimination_order,
    )

__version__ = "0.1.0"

_EXPORTS: dict[str, tuple[str, ...]] = {
    "errors": (
        "ConvergenceWarning",
        "HoimError",
        "InputError",
        "InputTypeError",
        "IntractableError",
        "MissingDataError",
        "ModelFileError",
        "NonexistentEstimateWarning",
        "UnknownNameError",
    ),
    "schema": (
        "Domain",
        "Variable",
    ),
    "data": ("InformationTable", "Observations"),
    "datasets": (
        "FileInfo",
        "TableInfo",
        "adult_domain",
        "data_file",
        "dataset_files",
        "load_adult",
        "load_breast_cancer",
        "load_mushroom",
        "load_table",
        "table_info",
        "tables",
    ),
    "structure": (
        "EliminationOrder",
        "InteractionHypergraph",
        "elimination_order",
    ),
    "models": (
        "Coding",
        "ConditionalModel",
        "EnergyModel",
        "LogLinearEnergy",
        "Parametrization",
        "parametrization",
    ),
    "sampling": (
        "ChainRun",
        "GibbsChains",
        "GibbsSchedule",
        "ParallelTempering",
        "TemperedRun",
        "sample_chains",
        "sample_tempered",
    ),
    "partition": (
        "AnnealedImportance",
        "Auto",
        "Cost",
        "Enumeration",
        "LogPartition",
        "MatrixEnumeration",
        "PartitionBackend",
        "Sandwich",
        "VariableElimination",
        "log_frequencies",
    ),
    "model_file": (
        "ModelFile",
        "load_model",
        "save_model",
    ),
    "distributions": (
        "DiaconisYlvisaker",
        "HierarchicalLogLinear",
        "LogLinearStatistics",
        "MarginalCounts",
        "StateIndexReparam",
        "StateSpace",
        "normal_prior",
        "statistics_of",
    ),
    "learning": (
        "ClampedGibbs",
        "Prediction",
        "extend_rows",
        "predict",
        "row_log_weights",
        "Combination",
        "FitResult",
        "GoodnessOfFit",
        "GroupL2",
        "HistoryEntry",
        "L1",
        "L2",
        "LikelihoodRatioTest",
        "MLEExistence",
        "cell_table",
        "coefficient_table",
        "fit",
        "fit_incomplete",
        "goodness_of_fit",
        "likelihood_ratio_test",
        "mle_existence",
        "odds_ratio_table",
        "row_log_likelihood",
    ),
    "learning.selection": (
        "Selection",
        "SelectionRound",
        "StopRule",
        "loss_of_refit",
        "prune",
        "select",
    ),
    "learning.training": (
        "Evidence",
        "updated_ridge",
        "ExactTrainer",
        "InteractionRidge",
        "Loss",
        "Margins",
        "PseudoTrainer",
        "SampledTrainer",
        "SampledTraining",
        "Trainer",
        "TrainingReport",
    ),
    "information": (
        "Law",
        "Projection",
        "Projections",
        "RefinedInformation",
        "RefinedInformationTable",
        "addable_edges",
        "all_refined_information",
        "conditional_refined_information",
        "decompose",
        "hierarchical_collections",
        "marginal_refined_information",
        "maximal_chains",
        "project",
        "random_dirichlet_law",
        "random_law",
        "refined_information",
    ),
    "inference": (
        "BlockGibbs",
        "Discrepancy",
        "IntervalCoverage",
        "MCMCRun",
        "Metric",
        "MixedGibbs",
        "PosteriorSamples",
        "PredictiveCheck",
        "R_HAT_LIMIT",
        "RecordingNUTS",
        "Replicates",
        "VectorizedKernel",
        "cell_log_likelihood",
        "deviance_discrepancy",
        "interval_coverage",
        "log_joint",
        "log_linear_model",
        "pearson_discrepancy",
        "pointwise_log_likelihood",
        "posterior_predictive",
        "predictive_check",
        "prior_predictive",
        "r_hat_limit",
        "run_mcmc",
        "sample_posterior",
    ),
    "interop": (
        "ChainDiagnostics",
        "StatisticDiagnostics",
        "compare_by_cell",
        "diagnose_discrete_chains",
        "discrete_chains_to_arviz",
        "loo_by_cell",
        "loo_figures",
        "to_arviz",
    ),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
