"""One analysis of a table: several models fitted, diagnosed, compared and, if asked, given a posterior."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..core.page import Section, cell
from ..core.partition import LogPartition
from ..core.scores import PARTS, StudyRecord, check_part_names
from ..core.words import fixed, number, short_edge
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import IntractableError, NonexistentEstimateWarning, conflict, none_received, refused, wrong_type
from ..information.projection import Projections
from ..log_linear.auto import Auto
from ..log_linear.coding import check_balanced_family, parametrization
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.fitting.fit import fit
from ..log_linear.fitting.incomplete import fit_incomplete
from ..log_linear.fitting.result import FitResult
from ..log_linear.fitting.solvers import Stopping
from ..log_linear.fitting.tables import cell_table, odds_ratio_table
from ..log_linear.goodness.goodness_of_fit import GoodnessOfFit, goodness_of_fit, likelihood_ratio_test
from ..log_linear.infinite import mark_infinite
from ..log_linear.named_priors import Prior
from ..log_linear.restricted.interactions import Interactions, graph_of, is_within
from ..log_linear.scores import (
    CoefficientInterval,
    coefficient_intervals,
    interaction_table,
    num_impossible,
    prediction_accuracy,
    score_rows,
)
from ..runs.arguments import checked_seed
from ..runs.checkpoint import RunOptions, checked_run
from ..structure.hypergraph import InteractionHypergraph
from .constrained.record import ConstrainedRecord
from .parts import MAX_TABLE_CELLS, PartScores, held_out, split_of_part
from .posterior import Posterior, PosteriorSettings, compare_models, file_stem, run_posterior
from .structures.record import StructureRecord
from .uncertainty import TestMethod, Uncertainty, uncertainty

__all__ = ["Analysis", "ModelAnalysis", "add_interactions", "analyse", "coefficient_rows", "finite_contrast_lines"]


_MAX_PAIRS = 120
_MAX_DENSE_PARAMETERS = 1000


@dataclass(frozen=True)
class ModelAnalysis:
    """One fitted model with everything that was computed for it.

    Attributes:
        name: as given to :func:`analyse`.
        fit: the fit.
        log_partition: normalising constant of the fit.
        goodness: test against the saturated model; None where the table is too large or cells are missing.
        cells: observed and expected counts with residuals, likewise.
        odds_ratios: conditional odds ratios of every pair given all other variables, likewise.
        parts: scores of ``train``, ``validation`` and ``test``, of predicting a target too; None for empty ones.
        interactions: :func:`interaction_table` of the fit; those that are infinite come first, with their finite
            contrasts, see :func:`~pyro_hoim.log_linear.infinite.mark_infinite`.
        intervals: :func:`coefficient_intervals`, from the posterior where there is one.
        posterior: posterior draws with diagnostics, if asked for.
        uncertainty: standard errors, intervals and tests, if asked for.

    Example:
        >>> from pyro_hoim import load_table
        >>> rows = load_table("ucb_admissions")
        >>> model = analyse({"train": rows}, {"pairs": InteractionHypergraph.from_order(rows.domain, 2)}).chosen
        >>> model.goodness.df, model.log_partition.kind
        (5, 'exact')
    """

    name: str
    fit: FitResult
    log_partition: LogPartition
    goodness: GoodnessOfFit | None
    cells: pd.DataFrame | None
    odds_ratios: pd.DataFrame | None
    parts: dict[str, PartScores | None]
    interactions: list[dict[str, Any]]
    intervals: list[CoefficientInterval]
    posterior: Posterior | None
    uncertainty: Uncertainty | None = None

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The interactions."""
        return self.fit.hypergraph

    @property
    def criteria(self) -> tuple[float, float]:
        """AIC and BIC, of the known cells where some are missing; NaN unless the fit is one of maximum likelihood."""
        fit = self.fit
        if self.goodness is not None:
            return self.goodness.aic, self.goodness.bic
        is_known = fit.objective == "likelihood" and fit.penalty is None and fit.is_converged
        if not is_known or fit.log_likelihood is None:
            return math.nan, math.nan
        loss, number = -2 * fit.log_likelihood, fit.num_parameters_fitted
        return loss + 2 * number, loss + number * math.log(fit.num_rows)

    @property
    def infinite_json(self) -> dict[str, Any]:
        """Combinations of levels that force infinite parameters, at most 1,000 of them, and how many there are."""
        existence = self.fit.existence if self.fit.status == "infinite" else None
        listed = [] if existence is None else existence.offending
        return {
            "infinite_combinations": [{"edge": list(c.edge), "levels": list(c.levels)} for c in listed],
            "num_infinite_combinations": 0 if existence is None else existence.num_offending,
        }

    @property
    def traces(self) -> dict[str, np.ndarray]:
        """Posterior draws (chain, draw) of the largest coefficient of each of the strongest interactions."""
        if self.posterior is None:
            return {}
        theta = torch.as_tensor(self.posterior.theta)
        rows = [i for i in self.intervals if len(i.edge) > 1] or self.intervals
        tables = parametrization(self.hypergraph).to_tables(theta, "free")
        return {f"{':'.join(i.edge)} ({', '.join(i.levels)})": tables[..., i.index].numpy() for i in rows}


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis(StudyRecord[PartScores]):
    """Everything one report shows, with the attributes of every study; parts are those of the model kept.

    Attributes:
        train: the rows fitted.
        models: the fitted models in the order given.
        chosen_index: position of the model kept: the best by leave-one-out, otherwise by AIC, otherwise the last.
        comparison: leave-one-out comparison, best first; None without posteriors.
        prior: of the fits; None for maximum likelihood.
        structures: the posterior over structure of which the model kept is the most probable collection, if any.
        constrained: the fit within norm balls that the model kept is, if any.

    Example:
        >>> from pyro_hoim import load_table
        >>> rows = load_table("ucb_admissions")
        >>> graphs = {name: InteractionHypergraph.from_order(rows.domain, k) for name, k in (("one", 1), ("two", 2))}
        >>> found = analyse({"train": rows}, graphs)
        >>> found.chosen_index, found.comparison is None
        (1, True)
    """

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
        fits = {m.name: m.fit for m in self.models if m.goodness is not None and m.fit.penalty is None}
        structures = {
            name: records.restriction or records.hypergraph for name, records in fits.items() if records.is_converged
        }
        nested = [(a, b) for a in structures for b in structures if a != b and is_within(structures[a], structures[b])]
        records: list[dict[str, Any]] = []
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


def _scored(
    result: FitResult,
    alone: FitResult,
    part: Observations | None,
    target: str | None,
    law: Projections | None = None,
) -> PartScores | None:
    """Scores of a part that holds rows; infinite where a row is impossible under an infinite estimate."""
    if part is None or not part.total_count > 0:
        return None
    model_scores, other = score_rows(result.model, part, reference=alone.model), score_rows(alone.model, part)
    impossible = num_impossible(result, part)
    accuracy = None if target is None else prediction_accuracy(result.model, part, target)
    return PartScores(
        model_scores,
        other,
        accuracy,
        impossible,
        split=split_of_part(law, result),
    )


def analyse(
    parts: Mapping[str, Observations],
    structures: Mapping[str, Interactions],
    *,
    prior: Prior | None = None,
    posterior: PosteriorSettings | None = None,
    target: str | None = None,
    seed: int = 0,
    title: str = "table",
    about: Sequence[str] = (),
    run: RunOptions | None = None,
    estimate: Callable[[InteractionHypergraph, Observations], FitResult] | None = None,
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
        about: sentences on the data that the report shows.
        run: the folder for finished chains and unfinished fits, so that an interrupted run can be resumed, made if
            missing inside an existing folder; whether to use what it holds (chains of other data or settings are
            refused); and progress.
        estimate: how a structure is fitted to the rows of ``train``; by
            :func:`~pyro_hoim.log_linear.fit` when None.

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
    run = checked_run(run)
    run.folder()
    train = parts["train"]
    every = {name: parts.get(name) for name in PARTS}
    independent, laws = _independent(train), held_out(parts)
    models: list[ModelAnalysis] = []
    for index, (name, structure) in enumerate(structures.items()):
        result = _fitted(structure, parts, name, prior, run, estimate)
        draws = None
        if posterior is not None:
            draws = run_posterior(graph_of(structure), train, posterior, seed=seed + 1000 * index, name=name, run=run)
        is_tested = not train.has_missing and every["validation"] is None and _is_small(result)
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
                odds_ratios=_odds_ratios(result) if is_tested else None,
                parts=scores,
                interactions=mark_infinite(
                    result, interaction_table(LogLinearEnergy(result.hypergraph, result.tables))
                ),
                intervals=coefficient_intervals(result, rows),
                posterior=draws,
            )
        )
    comparison = compare_models({m.name: m.posterior for m in models if m.posterior is not None})
    chosen = _choose(models, comparison)
    return Analysis(
        title=title,
        about=tuple(about),
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
    parts: Mapping[str, DataLike],
    structures: Mapping[str, Interactions],
    posterior: PosteriorSettings | None,
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
    domain = as_observations(parts["train"], argument="train").domain
    read = {part: as_observations(rows, domain=domain, argument=part) for part, rows in parts.items()}
    for part, rows in read.items():
        if not rows.total_count > 0:
            raise none_received(part, "at least one row")
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
) -> FitResult:
    """The fit of one structure; KeyboardInterrupt where it was interrupted."""
    penalty = None if prior is None else prior.penalty(graph_of(structure))
    train, validation = parts["train"], parts.get("validation")
    if run.checkpoint is not None:
        run = replace(run, checkpoint=Path(run.checkpoint) / f"{file_stem(name)}-fit.safetensors")
    if estimate is not None:
        result = estimate(graph_of(structure), train)
    elif train.has_missing:
        result = fit_incomplete(structure, train, progress=run.progress, penalty=penalty)
    else:
        stopping = Stopping(patience=None if validation is None else 20)
        result = fit(structure, train, penalty=penalty, validation=validation, stopping=stopping, run=run)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def _is_small(result: FitResult) -> bool:
    """Whether the table is small enough for tests and tables of cells."""
    return result.hypergraph.domain.num_states <= MAX_TABLE_CELLS and result.objective == "likelihood"


def _independent(train: Observations) -> FitResult:
    """The model of independent variables."""
    structure = InteractionHypergraph(train.domain, [(name,) for name in train.domain.names])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonexistentEstimateWarning)  # said of the model itself
        result = fit_incomplete(structure, train) if train.has_missing else fit(structure, train)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def _odds_ratios(result: FitResult) -> pd.DataFrame | None:
    """Conditional odds ratios of every pair that has an interaction of its own, one row a pair, contrast and context.

    Columns: ``pair``, ``contrast``, ``given``, ``odds_ratio``, ``lower``, ``upper`` (95 %, large-sample); NaN where the
    data do not identify the ratio.
    """
    domain = result.hypergraph.domain
    pairs = [e for e in result.hypergraph.edges if len(e) == 2 and all(domain[n].cardinality > 1 for n in e)]
    if not pairs or len(pairs) > _MAX_PAIRS or result.hypergraph.num_parameters > _MAX_DENSE_PARAMETERS:
        return None
    frames: list[pd.DataFrame] = []
    for a, b in pairs:
        try:
            table = odds_ratio_table(result, a, b)
        except IntractableError:  # an infinite estimate of a large table, of which nobody can tell what is identified
            return None
        called = table.attrs["columns"]
        modifiers = {name: column for name, column in called.items() if name not in (a, b)}
        known = np.isfinite(table["std_error"].to_numpy(float))
        ratios = {
            name: np.where(known, table[name].to_numpy(float), np.nan) for name in ("odds_ratio", "lower", "upper")
        }
        frames.append(
            pd.DataFrame(
                {
                    "pair": f"{a} × {b}",
                    "contrast": table[called[a]] + ", " + table[called[b]],
                    "given": [", ".join(f"{m}={row[c]}" for m, c in modifiers.items()) for _, row in table.iterrows()],
                    **ratios,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def _choose(models: list[ModelAnalysis], comparison: pd.DataFrame | None) -> int:
    """Best by leave-one-out, otherwise by AIC, otherwise the last."""
    names = [m.name for m in models]
    if comparison is not None:
        return names.index(str(comparison.index[0]))
    criteria = [m.criteria[0] for m in models]
    if len(models) > 1 and not any(map(math.isnan, criteria)):
        return min(range(len(models)), key=criteria.__getitem__)
    return len(models) - 1


# Tables of interactions, with what is finite of those that are infinite.

_EDGE = 48  # characters
_INTERVAL = 1.959963984540054
_SHOWN, _BRIEF = 10, 12
_OF_ONE = 3


def coefficient_rows(model: ModelAnalysis) -> list[CoefficientInterval]:
    """Largest coefficients with intervals, of interactions of two variables or more where there are any.

    Infinite ones come first, unless there is a posterior, whose coefficients are finite.
    """
    joint = [row for row in model.intervals if len(row.edge) > 1]
    infinite: list[CoefficientInterval] = []
    if model.posterior is None:
        for row in model.interactions:
            if row["is_infinite"] and len(row["edge"]) > 1:
                end = row["coefficient"]
                infinite.append(
                    CoefficientInterval(
                        tuple(row["edge"]), tuple(row["levels"]), row["position"], end, end, end, level=0.9
                    )
                )
    unbounded = {row.edge for row in infinite}
    return [*infinite, *(row for row in joint if row.edge not in unbounded)] or model.intervals


def finite_contrast_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The largest finite contrasts of infinite interactions of two variables or more, for a terminal."""
    lines = [
        f"{short_edge(edge, _EDGE)}  {_words(edge, found)}: {fixed(found['estimate'], sign=True)}"
        + ("" if found["std_error"] is None else f" +- {fixed(found['std_error'])}")
        for edge, found in _contrasts(rows, _OF_ONE)
    ]
    return ["", "largest finite contrasts of the infinite interactions, in nats:", *lines[:_SHOWN]] if lines else []


def _contrasts(rows: Sequence[Mapping[str, Any]], most: int) -> list[tuple[list[str], dict[str, Any]]]:
    """The first finite contrasts of every infinite interaction of two variables or more."""
    joint = [row for row in rows if row["is_infinite"] and len(row["edge"]) > 1]
    return [(row["edge"], found) for row in joint for found in row["finite_contrasts"][:most]]


def _words(edge: Sequence[str], contrast: Mapping[str, Any]) -> str:
    """The levels that a contrast compares: ``Class 3rd to 1st, Age Child to Adult``."""
    steps = zip(edge, contrast["before"], contrast["after"], strict=True)
    return ", ".join(f"{name} {before} to {after}" for name, before, after in steps)


def _coefficients(row: dict[str, Any], some_infinite: bool) -> list[Any]:
    """Strength and coefficient of a row, and where the table has that column the directions in which it is finite."""
    shown: list[Any] = ["infinite" if row["is_infinite"] else row["value"], cell(row["coefficient"], _signed)]
    if some_infinite:
        known = row["num_identified"]
        shown.append("not computed" if known is None else f"{known} of {row['num_parameters']}")
    return shown


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def add_interactions(section: Section, model: ModelAnalysis, folded: str) -> None:
    """Add all interactions, behind a label where there is one, and the finite contrasts of infinite ones."""
    some = any(row["is_infinite"] for row in model.interactions)
    section.table(
        ["interaction", "strength", "coefficient", *(["finite directions"] if some else []), "levels"],
        [[":".join(r["edge"]), *_coefficients(r, some), ", ".join(r["levels"])] for r in model.interactions],
        folded=folded,
        brief=_BRIEF,
    )
    section.note(
        "Strength: root mean square of the coefficients of an interaction, in nats. Coefficient: the largest of them, "
        "at the levels named; where it is positive this combination is more frequent than smaller interactions imply, "
        "where it is negative less frequent."
    )
    contrasts = [
        [":".join(edge), _words(edge, contrast), contrast["estimate"], *_interval(contrast)]
        for edge, contrast in _contrasts(model.interactions, _SHOWN)
    ]
    if contrasts:
        section.heading("Finite contrasts of infinite interactions", brief=True)
        section.table(["interaction", "levels", "contrast", "lower", "upper"], contrasts, brief=_BRIEF)
        section.note(
            "Differences of infinite coefficients that stay finite, in nats, with 95 % large-sample intervals. For a "
            "pair in no larger interaction such a contrast is the log odds ratio given all other variables; otherwise "
            "it is averaged over the levels of the variables that modify it."
        )


def _interval(contrast: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Limits of a contrast, None without a standard error."""
    if contrast["std_error"] is None:
        return None, None
    width = _INTERVAL * contrast["std_error"]
    return contrast["estimate"] - width, contrast["estimate"] + width
