"""One analysis of a table: several models fitted, diagnosed, compared and, if asked, given a posterior."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from typing_extensions import override

from ..atomic import draft_of
from ..core.command.answers import log_partition_json
from ..core.family import family_of_model
from ..core.page import Section
from ..core.studies import INDEPENDENT, PARTS, Content, Study, check_part_names
from ..core.words import amount_text, elpd_sentence, number, plural, possible_rows
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import NonexistentEstimateWarning, conflict, none_received, refused, wrong_type
from ..inference.structure.posterior import save_structure_posterior
from ..information.projection import Projections
from ..log_linear.auto import Auto
from ..log_linear.coding import check_balanced_family
from ..log_linear.file import ModelFile
from ..log_linear.fitting.fit import fit
from ..log_linear.fitting.incomplete import fit_incomplete
from ..log_linear.fitting.result import FitResult
from ..log_linear.fitting.solvers import Stopping
from ..log_linear.fitting.tables import cell_table
from ..log_linear.goodness.goodness_of_fit import goodness_of_fit, likelihood_ratio_test
from ..log_linear.impossible import ImpossibleStates, StructuralZeros, structural_states
from ..log_linear.named_priors import Prior
from ..log_linear.restricted.terms import Interactions, graph_of, is_within
from ..log_linear.scores import coefficient_intervals, interactions_of_fit, prediction_accuracy, score_rows
from ..plots.drawing import figure_of
from ..plots.intervals import plot_comparison
from ..results.answer import interaction_tests, odds_answer
from ..runs.arguments import checked_seed
from ..runs.checkpoint import RunOptions, checked_run
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .constrained import ConstrainedRecord, constrained_section, constrained_warnings
from .model import (
    MAX_TABLE_CELLS,
    ModelAnalysis,
    TablePart,
    TestMethod,
    add_cells,
    cell_section,
    glance_section,
    goodness_json,
    goodness_sentences,
    held_out,
    is_testable,
    misfit_sentences,
    posterior_section,
    split_of_part,
    split_section,
    structure_section,
    uncertainty,
    uncertainty_section,
    zero_sentences,
)
from .posterior import PosteriorSettings, compare_models, file_stem, run_posterior
from .structures import STRUCTURE_FILE, StructureRecord, structure_sections, structure_sentence, structure_warnings

_ROOM = 2**18  # bytes for names, labels and the tables of HDF5


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis(Study[TablePart]):
    """Everything one report shows, with the attributes of every study; parts are those of the model kept.

    Attributes:
        train: the rows fitted.
        models: the fitted models in the order given.
        chosen_index: position of the model kept: the best by leave-one-out, otherwise by AIC, otherwise the last.
        comparison: leave-one-out comparison, best first; None without posteriors.
        prior: of the fits; None for maximum likelihood.
        structures: the posterior over structure of which the model kept is the most probable collection, if any.
        constrained: the fit within norm balls that the model kept is, if any.
    """

    heading: ClassVar[str] = "Log-linear analysis of"
    noun: ClassVar[str] = "model kept"

    train: Observations
    models: tuple[ModelAnalysis, ...]
    chosen_index: int
    comparison: pd.DataFrame | None
    prior: Prior | None = None
    structures: StructureRecord | None = None
    constrained: ConstrainedRecord | None = None

    @property
    def chosen(self) -> ModelAnalysis:
        """The model kept."""
        return self.models[self.chosen_index]

    @cached_property
    def nested_tests(self) -> tuple[dict[str, Any], ...]:
        """Likelihood-ratio tests of models against larger ones that contain them, those with none between.

        Only models that have a test against the saturated one are compared, and that maximise the likelihood.
        """
        # Only maxima of the likelihood have a likelihood-ratio test.
        fits = {m.name: m.fit for m in self.models if m.goodness is not None and m.fit.penalty is None}
        structures = {
            name: records.restriction or records.hypergraph for name, records in fits.items() if records.is_converged
        }
        nested = [(a, b) for a in structures for b in structures if a != b and is_within(structures[a], structures[b])]
        records: list[dict[str, Any]] = []
        # Neighbours alone: what lies between two models would be tested twice.
        for small, big in nested:
            if any((small, between) in nested and (between, big) in nested for between in structures):
                continue
            test = likelihood_ratio_test(fits[small], fits[big])  # drawn as in tests of terms
            figures = {"statistic": test.statistic, "df": test.df_adjusted, "p_value": test.p_value}
            records.append(
                {
                    "small": small,
                    "big": big,
                    **figures,
                    "p_value_method": test.p_value_method,
                    "note": test.p_value_note,
                }
            )
        return tuple(records)

    @property
    def no_goodness(self) -> str | None:
        """Why the model kept has no test against the saturated one; None where it has."""
        if self.chosen.goodness is not None:
            return None
        if self.train.has_missing:
            return "with missing cells there is no table of counts to compare with"
        if self.parts["validation"] is not None:
            return "the fit was stopped early on validation rows"
        return f"a table of more than {MAX_TABLE_CELLS:,} cells is too sparse for it"

    @override
    def odds_ratios(self, level: float = 0.95) -> pd.DataFrame:
        return self.chosen.fit.odds_ratios(level)

    @property
    @override
    def domain(self) -> Domain:
        """The variables."""
        return self.train.domain

    @property
    @override
    def shows_scores(self) -> bool:
        """Where rows were held out, or a column is predicted: on the rows fitted there is a test against saturation."""
        return len(self.held) > 1 or any(part.accuracy is not None for part in self.held.values())

    @override
    def content(self) -> Content:
        """Goodness of fit, interactions, tests, cells and posteriors."""
        model, structures = self.chosen, self.structures
        first = _first(self)
        tests = None if model.uncertainty is None else model.uncertainty.tests
        tests = None if tests is None else interaction_tests(model.fit, tests)
        accuracy = self.held[self.judged_on].accuracy
        target = None if accuracy is None else accuracy["target"]
        rows = amount_text(self.train.total_count, self.has_weights)
        answer = odds_answer(self.odds_ratios(), rows, 5 - len(first), tests, target)
        # In the order in which a reader asks: what was found, whether it fits, and how sure it is.
        return Content(
            [*first, *answer.sentences],
            [*_warnings(self), *answer.limits],
            [
                answer.section,
                *([] if structures is None else structure_sections(structures, model.fit)),
                None if self.constrained is None else constrained_section(self.constrained),
                glance_section(model),
                _comparison(self),
                structure_section(model),
                uncertainty_section(model.uncertainty),
                cell_section(model),
                posterior_section(model),
                split_section({model.name: model.parts for model in self.models}, self.chosen_index),
            ],
            answer.picture,
        )

    def _endings(self, model: ModelAnalysis) -> list[str]:
        """The model kept has a name without an ending, and its own where there are several."""
        return [""] * (model is self.chosen) + [f"-{file_stem(model.name)}"] * (len(self.models) > 1)

    @override
    def records(self) -> dict[str, ModelFile]:
        """The model kept; of several, also every one as ``model-<name>``.

        Example:
            >>> from pyro_hoim import load_table
            >>> rows = load_table("ucb_admissions")
            >>> found = analyse({"train": rows}, {"pairs": InteractionHypergraph.from_order(rows.domain, 2)})
            >>> list(found.records())
            ['model']
        """
        records = dict[str, ModelFile]()
        for model in self.models:
            # The file tells tests and intervals without the rows, which it does not hold.
            family = family_of_model(model.fit)
            stored: ModelFile = family.complete_record(model.fit, family.record_of(model.fit))
            stored.info.update(name=model.name, data=self.title, prior=str(self.prior or "none"), seed=self.seed)
            if model.uncertainty is not None:
                stored.info["uncertainty"] = list(model.uncertainty.kept)
            if self.constrained is not None:
                record = self.constrained
                parts = {f"part_{name}": part for name, part in record.result.parts.items()}
                info = {**stored.info, "penalty": record.constraint.text, "gap": record.result.gap}
                stored = ModelFile(model.hypergraph, record.result.theta, "corner", info, parts)
            records |= {f"model{ending}": stored for ending in self._endings(model)}
        return records

    @override
    def save_further(self, folder: Path) -> dict[str, str]:
        """Posteriors as ``posterior.nc`` and ``posterior-<name>.nc``, and that over structures."""
        for model in self.models:
            if model.posterior is not None:
                # Take the time of its making out of a posterior of ArviZ, so that equal runs are equal
                for group in _groups(model.posterior.data):
                    group.attrs.pop("created_at", None)
                for ending in self._endings(model):
                    with draft_of(folder / f"posterior{ending}.nc") as draft:
                        _reserve(draft, model.posterior.data)
                        model.posterior.data.to_netcdf(str(draft))
        record = {} if self.chosen.posterior is None else {"posterior": "posterior.nc"}
        if self.structures is not None:
            about = {"data": self.title, "seed": self.seed, "method": self.structures.route}
            save_structure_posterior(folder / STRUCTURE_FILE, self.structures.posterior, about)
            record["structure posterior"] = STRUCTURE_FILE
        return record

    @override
    def figures(self, folder: Path) -> dict[str, Any]:
        """Of the model kept, and of the comparison."""
        chosen = self.chosen
        structure = chosen.hypergraph
        keys: dict[str, Any] = {
            "num_interactions": structure.num_interactions,
            "num_parameters": chosen.fit.num_parameters_fitted,
            "edges": [list(edge) for edge in structure.edges],
            "log_partition": log_partition_json(chosen.log_partition),
            "goodness_of_fit": goodness_json(chosen.goodness),
            "goodness_of_fit_reason": self.no_goodness,
            "prior": str(self.prior or "none"),
            "status": chosen.fit.status,
            "mle_exists": None if chosen.fit.existence is None else chosen.fit.existence.exists,
            **chosen.infinite_json,
        }
        # What was asked for besides: tests, comparisons, posteriors.
        if chosen.uncertainty is not None:
            keys |= chosen.uncertainty.to_json()
        if len(self.models) > 1 or chosen.goodness is not None:
            keys["models"] = self.comparison_records()
        if len(self.models) > 1:
            keys["nested_tests"] = list(self.nested_tests)
        if chosen.posterior is not None:
            keys["posterior"] = {
                "file": str(folder / "posterior.nc"),
                "prior": str(chosen.posterior.prior),
                "max_r_hat": chosen.posterior.max_r_hat,
                "min_ess_bulk": chosen.posterior.min_ess_bulk,
                "divergences": chosen.posterior.num_divergences,
            }
        if self.structures is not None:
            keys["structure_posterior"] = self.structures.to_json(str(folder / STRUCTURE_FILE))
        if self.constrained is not None:
            keys["penalty"] = self.constrained.to_json()
        return keys

    def with_uncertainty(self, level: float, method: TestMethod) -> Analysis:
        """The same with standard errors, intervals of this coverage and tests of every model that has them."""
        return replace(
            self,
            models=tuple(
                replace(m, uncertainty=uncertainty(m.fit, m.interactions, level, method)) for m in self.models
            ),
        )

    def comparison_records(self) -> list[dict[str, Any]]:
        """One record a model: size, goodness of fit, information criteria, leave-one-out."""
        records: list[dict[str, Any]] = []
        for model in self.models:
            record: dict[str, Any] = {
                "name": model.name,
                "num_parameters": model.fit.num_parameters_fitted,
                "log_likelihood": model.fit.log_likelihood,
            }
            # A test against saturation, or where the table is too sparse for it criteria alone.
            if model.goodness is not None:
                test = model.goodness
                record |= {"g2": test.deviance, "x2": test.pearson, "df": test.df_adjusted}
                record |= {name: getattr(test, name) for name in ("p_value", "p_value_method", "aic", "bic")}
            elif not math.isnan(model.criteria[0]):
                record |= dict(zip(("aic", "bic"), model.criteria, strict=True))
            if model.posterior is not None:
                names = ("elpd_loo", "elpd_se", "p_loo", "max_r_hat", "min_ess_bulk")
                record |= {name: getattr(model.posterior, name) for name in names}
            records.append(record)
        return records


def _groups(data: Any) -> list[Any]:
    """Groups of a posterior of ArviZ, of either generation."""
    names: Any = data.groups() if callable(data.groups) else data.groups
    return [data[name] for name in names]


def _reserve(place: Path, data: Any) -> None:
    """OSError where a file has no room for a posterior; HDF5 would say so in many lines, and hold the file open."""
    if hasattr(os, "posix_fallocate"):
        with place.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, sum(group.nbytes for group in _groups(data)) + _ROOM)


def _scored(
    result: FitResult, alone: FitResult, part: Observations | None, target: str | None, law: Projections | None = None
) -> TablePart | None:
    """Scores of a part that holds rows; infinite where a row is impossible under an infinite estimate."""
    if part is None or not part.total_count > 0:
        return None
    scores = score_rows(result.model, part, reference=alone.model)
    accuracy = None if target is None else prediction_accuracy(result.model, part, target)
    baselines = {INDEPENDENT: score_rows(alone.model, part)}
    return TablePart(scores, baselines, accuracy, split=split_of_part(law, result))


def analyse(
    parts: Mapping[str, Observations],
    structures: Mapping[str, Interactions],
    *,
    prior: Prior | None = None,
    posterior: PosteriorSettings | None = None,
    target: str | None = None,
    seed: int = 0,
    title: str = "table",
    run: RunOptions | None = None,
    estimate: Callable[[InteractionHypergraph, Observations], FitResult] | None = None,
    structural_zeros: StructuralZeros = None,
) -> Analysis:
    """Fit every structure to a table and collect fits, tests, scores, predictions and posteriors.

    With a validation part the fit is stopped early on it (paper 1, section 4.1). Rows with missing cells are
    marginalised (EM).

    Args:
        parts: rows of ``train`` and, where there are any, of ``validation``, for early stopping, and of ``test``, which
            are only scored.
        structures: interactions to fit, by name; restricted ones have no posterior.
        prior: of the fits, which are posterior modes under it; maximum likelihood when None.
        posterior: sample posteriors with these settings, which name a prior of their own.
        target: also measure how well this variable is predicted.
        seed: seed of everything random.
        title: name of the data.
        run: the folder for finished chains and unfinished fits, so that an interrupted run can be resumed, made if
            missing inside an existing folder; whether to use what it holds (chains of other data or settings are
            refused); and progress.
        estimate: how a structure is fitted to the rows of ``train``; by
            :func:`~pyro_hoim.log_linear.fit` when None.
        structural_zeros: what is impossible in every model, as :func:`~pyro_hoim.log_linear.fit` takes it.

    Raises:
        InputError: a part without rows, a seed out of range, or missing cells together with validation or a posterior.
        InputTypeError: parts, structures or a seed of another type.
        IntractableError: an exact cost is beyond the budget.
        KeyboardInterrupt: a fit was interrupted; its last iterate is in the folder of ``run``.

    Example:
        >>> from pyro_hoim import load_table
        >>> rows = load_table("ucb_admissions")
        >>> orders = {name: InteractionHypergraph.from_order(rows.domain, k) for name, k in (("one", 1), ("two", 2))}
        >>> found = analyse({"train": rows}, orders)
        >>> found.chosen.name, [model.goodness.df for model in found.models]
        ('two', [16, 5])
    """
    seed = checked_seed(seed)
    parts = _checked(parts, structures, posterior)
    zeros = structural_states(parts["train"].domain, structural_zeros)
    if posterior is not None and zeros is not None:
        posterior = replace(posterior, impossible=zeros)
    run = checked_run(run)
    run.folder()
    train = parts["train"]
    every = {name: parts.get(name) for name in PARTS}
    # What every model is set beside: independent columns, and the best of its family on rows held out.
    independent, laws = _independent(train), held_out(parts)
    # Every structure: fit, posterior, tests against the saturated model, and scores of all parts.
    models: list[ModelAnalysis] = []
    for index, (name, structure) in enumerate(structures.items()):
        result = _fitted(structure, parts, name, prior, run, estimate, zeros)
        draws = None
        if posterior is not None:
            draws = run_posterior(graph_of(structure), train, posterior, seed=seed + 1000 * index, name=name, run=run)
        is_tested = every["validation"] is None and is_testable(result, train)
        rows = None if draws is None else draws.theta.reshape(-1, draws.theta.shape[-1])
        scores = {
            part: _scored(result, independent, rows_of, target, laws.get(part)) for part, rows_of in every.items()
        }
        models.append(
            ModelAnalysis(
                name=name,
                fit=result,
                log_partition=Auto().log_partition(result.model),
                goodness=goodness_of_fit(result, seed=seed) if is_tested else None,
                cells=cell_table(result) if is_tested and result.is_listed and result.penalty is None else None,
                parts=scores,
                interactions=interactions_of_fit(result),
                intervals=coefficient_intervals(result, rows),
                posterior=draws,
            )
        )
    # Kept is the best by leave-one-out, else by AIC, else the last.
    comparison = compare_models({m.name: m.posterior for m in models if m.posterior is not None})
    chosen = _choose(models, comparison)
    return Analysis(
        title=title,
        about=(),
        parts=models[chosen].parts,
        seed=seed,
        train=train,
        models=tuple(models),
        chosen_index=chosen,
        comparison=comparison,
        prior=prior,
        has_weights=not train.has_whole_counts,
    )


def _checked(
    parts: Mapping[str, DataLike], structures: Mapping[str, Interactions], posterior: PosteriorSettings | None
) -> dict[str, Observations]:
    """The parts, if they go together with structures and a posterior."""
    check_part_names(parts)
    if "train" not in parts:
        raise none_received("parts", "rows of 'train'")
    for name, structure in structures.items():
        if not isinstance(structure, Interactions):
            raise wrong_type("structures", f"an InteractionHypergraph for {name!r}", structure)
        if posterior is not None and not isinstance(structure, InteractionHypergraph):
            raise conflict("structures", f"{name!r} is restricted, and has no posterior")
        check_balanced_family(graph_of(structure), f"the study of {name!r}")
    # All parts are over the levels of the training rows.
    domain = as_observations(parts["train"], argument="train").domain
    read = {part: as_observations(rows, domain=domain, argument=part) for part, rows in parts.items()}
    for part, rows in read.items():
        if not rows.total_count > 0:
            raise none_received(part, "at least one row")
    # Missing cells are summed over in exact fits alone.
    if read["train"].has_missing and ("validation" in read or posterior is not None):
        problem = "rows with missing cells can be marginalised only without validation and posterior"
        raise refused("train", problem, code="missing-part")
    if "validation" in read and read["validation"].has_missing:
        raise conflict("validation", "early stopping needs complete rows, received missing cells")
    return read


def _fitted(
    structure: Interactions,
    parts: Mapping[str, Observations],
    name: str,
    prior: Prior | None,
    run: RunOptions,
    estimate: Callable[[InteractionHypergraph, Observations], FitResult] | None,
    zeros: ImpossibleStates | None,
) -> FitResult:
    """The fit of one structure; KeyboardInterrupt where it was interrupted."""
    penalty = None if prior is None else prior.penalty(graph_of(structure))
    train, validation = parts["train"], parts.get("validation")
    if run.checkpoint is not None:
        run = replace(run, checkpoint=Path(run.checkpoint) / f"{file_stem(name)}-fit.safetensors")
    if estimate is not None:
        result = estimate(graph_of(structure), train)
    elif train.has_missing:
        result = fit_incomplete(structure, train, progress=run.progress, penalty=penalty, structural_zeros=zeros)
    else:
        stopping = Stopping(patience=None if validation is None else 20)
        options: dict[str, Any] = {"penalty": penalty, "structural_zeros": zeros}
        result = fit(structure, train, validation=validation, stopping=stopping, run=run, **options)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def _independent(train: Observations) -> FitResult:
    """The model of independent variables."""
    structure = InteractionHypergraph(train.domain, [(name,) for name in train.domain.names])
    with warnings.catch_warnings(action="ignore", category=NonexistentEstimateWarning):  # said of the model itself
        result = fit_incomplete(structure, train) if train.has_missing else fit(structure, train)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def _choose(models: list[ModelAnalysis], comparison: pd.DataFrame | None) -> int:
    """Best by leave-one-out, otherwise by AIC, otherwise the last."""
    names = [m.name for m in models]
    if comparison is not None:
        return names.index(str(comparison.index[0]))
    criteria = [m.criteria[0] for m in models]
    if len(models) > 1 and not any(map(math.isnan, criteria)):
        return min(range(len(models)), key=criteria.__getitem__)
    return len(models) - 1


_MIN_ESS = 400


def _whole(value: float) -> str:
    """A number rounded to a whole one; a dash where there is none."""
    return number(round(value) if math.isfinite(value) else None)


def _first(analysis: Analysis) -> list[str]:
    """What was asked for before odds ratios: probable collections, one of many models."""
    if analysis.structures is not None:
        return [structure_sentence(analysis.structures)]
    if len(analysis.models) == 1:
        return []
    table, name = analysis.comparison, analysis.chosen.name
    if table is None:
        reason = "it is the last" if math.isnan(analysis.chosen.criteria[0]) else "its AIC is the lowest"
        return [f"Of {len(analysis.models)} models {name} is kept, because {reason}."]
    figures = table[["elpd_diff", "dse"]].to_numpy(float).T.tolist()
    return [f"{name[0].upper()}{name[1:]} is kept. {elpd_sentence(list(map(str, table.index)), *figures)}"]


def _warnings(analysis: Analysis) -> list[str]:
    """What limits the answer, the gravest first."""
    zeros = analysis.chosen.fit.structural_zeros  # of all models
    warnings: list[str] = [] if zeros is None else [f"Declared impossible: {zeros.words()}."]
    warnings += [] if analysis.structures is None else structure_warnings(analysis.structures)
    warnings += [] if analysis.constrained is None else constrained_warnings(analysis.constrained)
    # Fits and chains that did not converge, and what the model kept cannot say.
    for model in analysis.models:
        warnings += _model_warnings(model, f"{model.name}: " * (len(analysis.models) > 1))
    test = analysis.chosen.goodness
    if test is not None and test.p_value_method is not None and test.df_adjusted > 0:
        warnings += misfit_sentences(test, analysis.chosen.hypergraph)
    elif analysis.no_goodness is not None and analysis.chosen.fit.objective == "likelihood":
        warnings.append(f"Whether the model misses something was not tested: {analysis.no_goodness}.")
    if analysis.prior is not None and not analysis.prior.is_flat:
        warnings.append(f"Estimates are pulled towards no association by {analysis.prior.describe()}.")
    if analysis.has_weights:
        warnings.append("The rows have weights, so that intervals use robust errors and G² has no p-value.")
    return warnings


def _model_warnings(model: ModelAnalysis, whose: str) -> list[str]:
    """What limits one fit."""
    warnings, run = list[str](), model.posterior
    if model.fit.status in ("max_iterations", "stalled"):
        warnings.append(f"{whose}The fit stopped before it had converged.")
    if run is not None:
        if run.num_chains == 1:
            warnings.append(f"{whose}One chain cannot show whether chains agree; draw several.")
        elif not run.is_converged or run.min_ess_bulk < _MIN_ESS:
            warnings.append(
                f"{whose}The chains have not mixed well (largest R-hat {run.max_r_hat:.3f}, smallest bulk effective "
                f"sample size {_whole(run.min_ess_bulk)}, {plural(run.num_divergences, 'divergent transition')}). "
                "Intervals may be wrong; run longer chains."
            )
        if run.max_pareto_k > 0.7:
            warnings.append(
                f"{whose}Leave-one-out is unreliable for some cells (largest Pareto k {run.max_pareto_k:.2f})."
            )
    return [*warnings, *(f"{whose}{sentence}" for sentence in zero_sentences(model.fit))]


_COLUMNS = {
    "name": "model",
    "num_parameters": "parameters",
    "g2": "G²",
    "x2": "X²",
    "df": "df",
    "p_value": "p",
    "aic": "AIC",
    "bic": "BIC",
    "elpd_loo": "elpd (LOO)",
    "elpd_se": "SE",
    "max_r_hat": "R-hat",
    "min_ess_bulk": "ESS",
    "p_loo": "p (LOO)",
    "p_value_method": "p by",
}


def _comparison(analysis: Analysis) -> Section:
    # What the test of the model kept says, then a line for every model.
    model = analysis.chosen
    section = Section("Does the model fit?")
    if model.goodness is not None:
        for sentence in goodness_sentences(model.goodness):
            section.text(sentence, brief=True)
        if model.goodness.p_value_method is not None and model.goodness.p_value_note:
            section.note(f"How p was found: {model.goodness.p_value_note}.")
    records = analysis.comparison_records()
    for record in records:
        if math.isfinite(record.get("min_ess_bulk", math.nan)):
            record["min_ess_bulk"] = round(record["min_ess_bulk"])
    present = [key for key in _COLUMNS if any(_is_known(record.get(key)) for record in records)]
    section.table(
        [_COLUMNS[k] for k in present],
        [[r.get(k) for k in present] for r in records],
        chosen=analysis.chosen_index if len(records) > 1 else -1,
        brief=len(records),
    )
    graph, which = model.hypergraph, "model kept" if len(records) > 1 else "model"
    size = plural(graph.num_interactions, "interaction")
    over = f" over {possible_rows(graph.domain.num_states)}" if model.fit.structural_zeros is None else ""
    section.note(f"The {which} has {size}{over}.")
    if any(m.fit.is_counted_by_family for m in analysis.models):
        section.note(
            "It was not counted how many parameters the rows identify, so df, AIC and BIC count all of them.",
            brief=True,
        )
    # Nested models are tested against each other, too.
    if len(analysis.models) > 1 and analysis.nested_tests:
        columns = {"small": "model", "big": "against", "statistic": "likelihood ratio", "df": "df", "p_value": "p"}
        tests = [[test[key] for key in [*columns, "p_value_method"]] for test in analysis.nested_tests]
        section.table([*columns.values(), "p by"], tests, brief=len(tests))
        for note in dict.fromkeys(t["note"] for t in analysis.nested_tests if t["p_value_method"] != "chi-square"):
            section.note(f"Likelihood ratio: {note}.", brief=True)
    _compare_elpd(analysis, section)
    add_cells(section, model)
    # What the columns that are there mean.
    if "g2" in present:
        section.note(
            "G² and X² measure how far the counts are from the model; p is that of G². AIC and BIC weigh fit against "
            "the number of parameters, and smaller is better. Cells that are forced to zero are not counted."
        )
    if "elpd_loo" in present:
        section.note(
            "elpd is the expected log predictive density by leave-one-out cross-validation, p (LOO) the effective "
            "number of parameters."
        )
    return section


def _is_known(value: object) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _compare_elpd(analysis: Analysis, section: Section) -> None:
    """Add what leave-one-out cross-validation says of several models."""
    # Each by itself first, then what can be told apart.
    runs = {m.name: m.posterior for m in analysis.models if m.posterior is not None}
    if len(runs) < 2:
        return
    elpd, errors = (np.array([getattr(r, name) for r in runs.values()]) for name in ("elpd_loo", "elpd_se"))
    label = "expected log predictive density (nats)"
    drawing = figure_of(plot_comparison, list(runs), elpd, errors, label=label)
    section.figure(drawing, "Expected log predictive density of each model with one standard error")
    section.note(
        "The standard error of one model is large because observations differ; the difference between two models, "
        "taken observation by observation, is known far better."
    )
    if analysis.comparison is not None:
        frame = analysis.comparison[["rank", "elpd_diff", "dse", "weight"]]
        columns = ["model", "rank", "elpd difference", "SE of difference", "weight"]
        rows = [[str(name), *values] for name, values in zip(frame.index, frame.to_numpy(float), strict=True)]
        section.table(columns, rows, chosen=int(np.argmin(frame["rank"])))
