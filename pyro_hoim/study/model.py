"""One fitted model of a study: its figures, and the sections of a page about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..core.law import Law
from ..core.operations import signed_strengths
from ..core.page import Section, cell
from ..core.partition import LogPartition
from ..core.scores import Scores
from ..core.studies import Part
from ..core.words import fixed, listed, literal, number, plural, short_edge, shorten
from ..data.observations import Observations
from ..errors import IntractableError
from ..information.projection import DivergenceSplit, Projections, split_of_rows
from ..log_linear.coding import parametrization
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.file import ModelFile
from ..log_linear.fitting.existence import UNDECIDED
from ..log_linear.fitting.result import FitResult
from ..log_linear.goodness.goodness_of_fit import GoodnessOfFit, goodness_of_fit, term_tests
from ..log_linear.goodness.p_values import SMALLER
from ..log_linear.goodness.summary import fit_summary
from ..log_linear.infinite import DECLARED, covariance_problem
from ..log_linear.scores import CoefficientInterval
from ..plots.drawing import FONT, INK, KINDS, WIDTH, figure_of, plain_axes
from ..plots.fitted import LARGE
from ..plots.hypergraph import plot_hypergraph
from ..plots.intervals import plot_gaps
from ..structure.hypergraph import InteractionHypergraph
from .posterior import Posterior

# How well the rows determine a fit: standard errors and intervals of coefficients, and a test of every interaction.

TestMethod = Literal["wald", "likelihood-ratio"]

_BRIEF_TESTS = 12
_TESTS = ("term", "removal", "df", "statistic", "p_value", "p_value_adjusted", "p_value_method", "note")


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What the rows say of the precision of a fit.

    Attributes:
        level: coverage of the intervals.
        coefficients: :func:`~pyro_hoim.log_linear.goodness.summary.fit_summary`, with standard errors.
        tests: :func:`~pyro_hoim.log_linear.term_tests`, None of a fit that has none.
        method: of the tests.
        kept: what a model file keeps: of the entry that stands for each interaction the standard error, None where it
            is infinite, and of an interaction the test.
    """

    level: float
    coefficients: pd.DataFrame
    tests: pd.DataFrame | None
    method: TestMethod
    kept: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """The keys of ``fit.json``."""
        tests = None if self.tests is None else self.tests.filter(_TESTS).to_dict("records")
        return {
            "level": self.level,
            "coefficients": self.coefficients.to_dict("records"),
            "coefficients_notes": self.coefficients.attrs["notes"],
            "tests": tests,
            "tests_method": None if tests is None else self.method,
        }


def uncertainty(
    fit: FitResult, interactions: Sequence[dict[str, Any]], level: float, method: TestMethod
) -> Uncertainty | None:
    """Standard errors, intervals and tests of a fit; None where it has none, or they would take minutes."""
    if covariance_problem(fit):
        return None
    frame = fit_summary(fit, level=level)
    if "std_error" not in frame:  # a penalty that is not smooth, singular information
        return None
    tests = None
    if fit.penalty is None and fit.data is not None and not fit.data.has_missing:
        try:
            tests = term_tests(fit, method=method)
        except IntractableError:  # the rows do not tell some coefficients apart
            tests = None
    return Uncertainty(level, frame, tests, method, _kept(fit, interactions, tests))


def _kept(
    fit: FitResult, interactions: Sequence[dict[str, Any]], tests: pd.DataFrame | None
) -> tuple[dict[str, Any], ...]:
    """Standard error and test of every interaction."""
    slices = fit.hypergraph.term_slices
    index = [slices[tuple(row["edge"])].start + row["position"] for row in interactions]
    units = torch.eye(fit.hypergraph.num_parameters, dtype=torch.float64)
    errors = fit.contrast_errors(parametrization(fit.hypergraph).to_tables(units).T[index], None).tolist()
    by_term = {} if tests is None else {row["term"]: row for row in tests.to_dict("records")}
    records = list[dict[str, Any]]()
    for row, error in zip(interactions, errors, strict=True):
        test = by_term.get(":".join(row["edge"]), {})
        figures = {name: test.get(name) for name in ("df", "statistic", "p_value", "p_value_adjusted")}
        figures = {"std_error": error, **figures}
        known = {n: v if v is not None and math.isfinite(v) else None for n, v in figures.items()}
        records.append({"edge": list(row["edge"]), **known})
    return tuple(records)


def uncertainty_section(uncertainty: Uncertainty | None) -> Section | None:
    """The table of coefficients."""
    if uncertainty is None:
        return None
    section = Section("All coefficients", is_folded=True)
    frame, percent = uncertainty.coefficients, f"{100 * uncertainty.level:g} %"
    # Columns that this estimate has.
    names = {"term": "term", "levels": "levels", "estimate": "estimate", "std_error": "SE", "lower": "lower"}
    names |= {"upper": "upper", "z": "z", "p_value": "p", "odds_ratio": "odds ratio"}
    columns = [name for name in names if name in frame]
    rows = frame[columns].astype(object).to_numpy().tolist()
    section.table([names[name] for name in columns], rows, first=4 * _BRIEF_TESTS, further="Further coefficients")
    section.note(f"Intervals: {percent}. {'. '.join(n[0].upper() + n[1:] for n in frame.attrs['notes'])}.")
    return section


def add_term_tests(section: Section, uncertainty: Uncertainty | None) -> None:
    """Add a test of every interaction, and what the p-values rest on."""
    if uncertainty is None or uncertainty.tests is None or not len(uncertainty.tests):
        return
    frame = uncertainty.tests
    label = "Wald" if uncertainty.method == "wald" else "likelihood ratio"
    heads = {"term": "interaction", "removal": "removed", "df": "df", "statistic": label, "p_value": "p"}
    heads |= {"p_value_adjusted": "adjusted p", "p_value_method": "p by"}
    # What is the same in all lines, or known of none, is a sentence.
    is_alone = bool((frame["removal"] == "alone").all())
    has_p = bool(frame["p_value"].notna().any())
    words = ["Each interaction is removed alone."] if is_alone else ["Each is removed with those that contain it."]
    words += [] if has_p else ["p-values could not be computed; see the note below."]
    left_out = [*["removal"] * is_alone, *["p_value", "p_value_adjusted", "p_value_method"] * (not has_p)]
    columns = [name for name in heads if name not in left_out]
    section.heading("Is every interaction needed?", brief=True)
    section.note(" ".join(words), brief=True)
    rows = frame[columns].astype(object).to_numpy().tolist()
    section.table([heads[name] for name in columns], rows, first=_BRIEF_TESTS, further="Further", brief=_BRIEF_TESTS)
    if has_p:
        section.note(
            "If every interaction with an adjusted p of at most 0.05 is called real, at most 5 % of these calls are "
            "expected to be wrong (Benjamini and Hochberg)."
        )
    why = dict.fromkeys(frame.loc[frame["p_value_method"].isna(), "note"])
    if why:
        section.note(f"There is no p-value where {' or '.join(map(str, why))}.", brief=True)
    if num := int(frame["note"].astype(str).str.endswith(SMALLER).sum()):
        section.note(f"In {plural(num, 'test')} no simulated table is as extreme, so p is smaller than shown.")
    if num := int(frame["note"].astype(str).str.startswith("rough").sum()):
        section.note(f"In {plural(num, 'test')} p is rough, because the expected counts are small.", brief=True)


@dataclass(frozen=True)
class ModelAnalysis:
    """One fitted model with everything that was computed for it.

    Attributes:
        name: as given to :func:`analyse`.
        fit: the fit.
        log_partition: normalising constant of the fit.
        goodness: test against the saturated model; None where the table is too large or cells are missing.
        cells: observed and expected counts with residuals, likewise.
        parts: scores of ``train``, ``validation`` and ``test``, of predicting a target too; None for empty ones.
        interactions: :func:`interaction_table` of the fit; those that are infinite come first, with their finite
            contrasts, see :func:`~pyro_hoim.log_linear.infinite.mark_infinite`.
        intervals: :func:`coefficient_intervals`, from the posterior where there is one.
        posterior: posterior draws with diagnostics, if asked for.
        uncertainty: standard errors, intervals and tests, if asked for.
    """

    name: str
    fit: FitResult
    log_partition: LogPartition
    goodness: GoodnessOfFit | None
    cells: pd.DataFrame | None
    parts: dict[str, TablePart | None]
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


def goodness_json(test: GoodnessOfFit | None) -> dict[str, Any] | None:
    """The keys of a test against the saturated model, None where the table is too large or cells are missing."""
    if test is None:
        return None
    names = ("method", "statistic", "pearson", "note")
    return {
        **{name: getattr(test, name) for name in ("deviance", "pearson", "p_value", "num_tables")},
        **{f"p_value_{name}": getattr(test, f"p_value_{name}") for name in names},
        "df": test.df_adjusted,
        "p_value_std_error": test.p_value_std_error if test.num_tables else None,
    }


_EDGE = 48  # characters


_INTERVAL = 1.959963984540054


_SHOWN, _BRIEF = 10, 12


_OF_ONE = 3


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


def add_interactions(section: Section, model: ModelAnalysis) -> None:
    """Add all interactions, and the finite contrasts of infinite ones."""
    some = any(row["is_infinite"] for row in model.interactions)
    section.table(
        ["interaction", "strength", "coefficient", *(["finite directions"] if some else []), "levels"],
        [[":".join(r["edge"]), *_coefficients(r, some), ", ".join(r["levels"])] for r in model.interactions],
        first=_SHOWN_CELLS,
        further="Further interactions",
    )
    section.note(
        "Strength: root mean square of the coefficients of an interaction, in nats. Coefficient: the largest of them, "
        "at the levels named; where it is positive this combination is more frequent than smaller interactions imply, "
        "where it is negative less frequent."
    )
    if any(row["is_declared"] for row in model.interactions):
        section.note(f"{DECLARED[0].upper()}{DECLARED[1:]}.")
    # Directions in which infinite interactions stay finite.
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


_SHOWN_TRACES, _SHOWN_CELLS, _WORST = 4, 20, 6
_MOST_COLUMNS = 40
_BEYOND = 0.0455  # share of standard normal numbers beyond two


_LABEL = 56  # characters of an interaction in a sentence


def label_of(edge: Sequence[str]) -> str:
    """An interaction in a sentence."""
    return short_edge(edge, _LABEL)


_LEAST_P = 1e-16  # below which a p-value is no more than small
LEAST_FIT = 0.05
"""P-value from which on a model is said to describe a table."""
_RARE = {
    "exact": "an exact conditional test",
    "conditional": "a conditional test",
    "bootstrap": "a parametric bootstrap",
    "bartlett": "a chi-square test corrected for small counts",
}


def goodness_sentences(test: GoodnessOfFit) -> list[str]:
    """A test against the saturated model: the verdict with its numbers, and what these rest on."""
    if test.df_adjusted <= 0:
        if not test.num_cells_zero:
            return ["The model is saturated: it reproduces the table exactly, so there is nothing to test."]
        cells = plural(test.num_cells_zero, "cell")
        return [f"The model reproduces the table, with {cells} forced to zero, so there is nothing to test."]
    figures = goodness_figures(test)
    if test.p_value_method is None:
        return [f"The model cannot be tested against the table ({figures}), because {test.p_value_note}."]
    verdict = "The model describes the table: it departs from the counts no more than chance does"
    if test.p_value < LEAST_FIT:
        verdict = "The model misses something: the table departs from it by more than chance"
    sentences = [f"{verdict} ({figures})."]
    # How p was found, where that is not the first thing that comes to mind.
    how = _RARE.get(test.p_value_method)
    if test.num_tables:
        error = "" if _is_least(test) else f", Monte Carlo standard error {number(test.p_value_std_error)}"
        sentences.append(
            "The table is too sparse for a chi-square test of the whole model, so p comes from "
            f"{plural(test.num_tables, 'simulated table')} ({how}{error})."
        )
    elif how is not None:
        sentences.append(f"The table is sparse, so p comes from {how}.")
    return sentences


def misfit_sentences(test: GoodnessOfFit, graph: InteractionHypergraph) -> list[str]:
    """That a model misses something, where a test against the saturated model says so."""
    if test.p_value_method is None or test.df_adjusted <= 0 or not test.p_value < LEAST_FIT:
        return []
    missed = ", so its odds ratios are averages over what it leaves out" if graph.order > 1 else ""
    return [f"The model misses something ({goodness_figures(test)}){missed}."]


def infinite_sentence(fit: FitResult) -> str:
    """Why an estimate is infinite, and what follows."""
    existence = fit.existence
    assert existence is not None
    shown = [str(combination) for combination in existence.offending[:2]]
    if fit.status == "early_stopped":
        whose = _no_row(shown, existence.num_offending, existence.kind == "zero margin")
        return f"{whose}. Only early stopping on the validation rows keeps this fit finite."
    return _excluded(shown, existence.num_offending, existence.kind == "zero margin", fit.hypergraph.order)


def _no_row(shown: Sequence[str], number: int, is_observed: bool) -> str:
    """That no row has some combinations, of which two are shown, or can have what the margins force to zero."""
    more = f" or {plural(number - 2, 'other combination')}" if number > 2 else ""
    return f"No row {'has' if is_observed else 'can have'} {' or '.join(shown)}{more}"


def _excluded(shown: Sequence[str], number: int, is_observed: bool, order: int) -> str:
    ratios = "odds ratios there are infinite or 0 and " if order > 1 else ""
    return f"{_no_row(shown, number, is_observed)}, so {ratios}such rows have probability zero."


_WEAK = (
    "The estimates maximise a lower bound of the likelihood, so that strong interactions come out too weak; larger "
    "mini-buckets (partition=MiniBuckets(max_cells=...)) make this less."
)


def file_caveats(file: ModelFile) -> list[str]:
    """What limits the answer of a model file: a bound in place of the likelihood, combinations that are excluded."""
    caveats = [_WEAK] if "log_likelihood_bound" in file.info else []
    if file.info.get("status") != "infinite" or file.impossible is None:
        return caveats
    declared = [] if file.structural_zeros is None else list(file.structural_zeros.combinations)
    found = [part for part in file.impossible.combinations if part not in declared]
    is_observed = all(any({*part} <= {*edge} for edge in file.hypergraph.maximal_edges) for part in found)
    shown = [", ".join(f"{name}={level}" for name, level in part.items()) for part in found[:2]]
    return [*caveats, *([_excluded(shown, len(found), is_observed, file.hypergraph.order)] if found else [])]


def zero_sentences(fit: FitResult) -> list[str]:
    """What the zeros of an estimate mean, and whether all are known."""
    sentences = [infinite_sentence(fit)] if fit.existence is not None and fit.existence.exists is False else []
    return sentences if fit.is_support_known else [*sentences, f"{UNDECIDED}."]


def is_testable(fit: FitResult, rows: Observations) -> bool:
    """Whether a fit can be tested against the counts of all cells."""
    is_small = fit.hypergraph.domain.num_states <= MAX_TABLE_CELLS
    return is_small and not rows.has_missing and fit.objective == "likelihood"


def fit_caveats(fit: FitResult) -> list[str]:
    """What limits the answer of a fit: infinite estimates, a bound for a likelihood, and what the model misses."""
    caveats = zero_sentences(fit) + ([] if fit.log_likelihood_bound is None else [_WEAK])
    if isinstance(fit.data, Observations) and fit.restriction is None and is_testable(fit, fit.data):
        caveats += misfit_sentences(goodness_of_fit(fit), fit.hypergraph)
    return caveats


def goodness_figures(test: GoodnessOfFit) -> str:
    """Statistic, degrees of freedom and, where there is one, p-value of a test against the saturated model."""
    figures = f"G\N{SUPERSCRIPT TWO} = {number(test.deviance)} on {plural(test.df_adjusted, 'degree')} of freedom"
    if test.p_value_method is None:
        return figures
    is_least = _is_least(test) or test.p_value < _LEAST_P
    return f"{figures}, p {'<' if is_least else '='} {number(max(test.p_value, _LEAST_P))}"


def _is_least(test: GoodnessOfFit) -> bool:
    """Whether no table drawn is as extreme, so that their number bounds the p-value."""
    return bool(test.num_tables) and test.p_value <= (1 + 1e-9) / (test.num_tables + 1)


def glance_section(model: ModelAnalysis) -> Section:
    """All interactions as a picture beside the tests of each."""
    section = Section("All interactions at a glance")
    strength, signs = signed_strengths(model.hypergraph.domain, model.interactions)
    if any(len(edge) > 1 and value for edge, value in strength.items()):
        drawing = figure_of(plot_hypergraph, model.hypergraph, strength, unit="nats", signs=signs)
        about = "Columns on a circle; the wider an arc, the stronger the pair; larger sets are regions or stars"
        section.figure(drawing, about)
    add_term_tests(section, model.uncertainty)
    return section


def structure_section(model: ModelAnalysis) -> Section:
    """What the interactions imply, and how strong each is."""
    section = Section(f"Strengths and independences of {model.name}", is_folded=True)
    # The class of the model, and what it implies.
    graph, impossible = model.hypergraph, model.fit.impossible
    kind = "not graphical: some variables interact in pairs but not all together"
    if graph.is_decomposable and model.fit.structural_zeros is None:
        kind = "decomposable: its estimates have a closed form"
    elif graph.is_graphical:
        kind = "graphical: the pairs that interact determine it"
    largest = ", ".join(f"[{short_edge(e, _LABEL, ' ')}]" for e in graph.maximal_edges[:30])
    more = ", ..." if len(graph.maximal_edges) > 30 else ""
    where = "The" if model.fit.structural_zeros is None else "Outside the impossible combinations the"
    section.text(f"The largest interactions imply all smaller ones: {largest}{more}. {where} model is {kind}.")
    add_interactions(section, model)
    # Independences are listed where they can be read.
    if len(graph.domain) > _MOST_COLUMNS:
        section.note(f"With more than {_MOST_COLUMNS} columns the implied independences are not listed.")
        return section
    # Columns with impossible combinations depend on each other without an interaction, too.
    if impossible is not None:
        tied = [of for of in impossible.structure.edges if not any(set(of) <= set(e) for e in graph.maximal_edges)]
        if tied:
            sets = listed([label_of(edge) for edge in tied], _WORST)
            section.note(f"Some combinations of {sets} are impossible, so that these columns depend on each other.")
        graph = impossible.added_to(graph)
    statements = graph.conditional_independences()
    if statements:
        section.heading(f"Implied conditional independences ({len(statements)})")
        rows = [[f"{a} ⫫ {b}", ", ".join(c) or "nothing"] for a, b, c in statements]
        section.table(["independent pair", "given"], rows, first=_SHOWN_CELLS, further="Further pairs")
    else:
        shared = "an interaction" if impossible is None else "an interaction or impossible combinations"
        section.note(f"Every two variables share {shared}, so no conditional independence is implied.")
    return section


def add_cells(section: Section, model: ModelAnalysis) -> None:
    """Add the cells that the model describes worst as a picture, where chance does not explain them."""
    if model.cells is None:
        return
    frame = model.cells
    observed, expected, residual = (frame[c].to_numpy(float) for c in ("observed", "expected", "adjusted_residual"))
    finite = np.abs(residual[np.isfinite(residual)])
    if not len(finite):  # of a saturated model there is nothing to compare
        return
    outside, by_chance = int((finite > LARGE).sum()), _BEYOND * len(finite)
    section.text(
        f"{plural(outside, 'cell')} of {len(finite)} {'differs' if outside == 1 else 'differ'} from the model by more "
        f"than two standard errors; chance alone makes about {by_chance:.1f}."
    )
    names = list(frame.attrs["columns"].values())
    sizes = np.where(np.isfinite(residual), np.abs(residual), 0.0)
    order = np.argsort(-sizes, kind="stable")[:_WORST]
    order = order[sizes[order] > LARGE]
    if outside > by_chance + LARGE * math.sqrt(by_chance) and len(order):  # more than chance, itself a chance, explains
        labels = [", ".join(f"{n} {frame[n].iloc[i]}" for n in names) for i in order]
        drawing = figure_of(plot_gaps, labels, observed[order], expected[order])
        section.figure(drawing, "The cells that fit worst: rows observed against rows expected by the model")


def cell_section(model: ModelAnalysis) -> Section | None:
    """Observed beside expected counts, where cells are listed."""
    if model.cells is None:
        return None
    frame = model.cells
    section = Section("Observed and expected counts of all cells", is_folded=True)
    names = [*frame.attrs["columns"].values(), "observed", "expected", "adjusted_residual"]
    frame = frame.iloc[np.argsort(-np.abs(np.nan_to_num(frame["adjusted_residual"].to_numpy(float))), kind="stable")]
    section.table(
        [name.replace("adjusted_residual", "adjusted residual") for name in names],
        [[*map(str, row[:-3]), *map(float, row[-3:])] for row in frame[names].to_numpy()],
        first=_SHOWN_CELLS,
        further="Further cells",
    )
    section.note("An adjusted residual is the difference of a count from its expectation, in standard errors.")
    return section


def posterior_section(model: ModelAnalysis) -> Section | None:
    """Draws of the posterior, where there are any."""
    run = model.posterior
    if run is None:
        return None
    section = Section("Posterior draws", is_folded=True)
    section.text(run.description)
    section.text(
        f"{plural(run.num_chains, 'chain')} of {plural(run.num_draws, 'draw')}: the largest R-hat is "
        f"{number(run.max_r_hat)} (1 where chains agree), the smallest bulk effective sample size "
        f"{number(round(run.min_ess_bulk) if math.isfinite(run.min_ess_bulk) else None)}, with "
        f"{plural(run.num_divergences, 'divergent transition')}.",
        brief=True,
    )
    # Pictures of the strongest, a table of all.
    shown = dict(list(model.traces.items())[:_SHOWN_TRACES])
    section.figure(trace_figure(shown), "Density and trace of each chain for the strongest interactions")
    section.figure(rank_figure(shown), "Rank histogram of each chain for the strongest interactions")
    section.note("Chains that agree have level bars, at the dashed line.")
    frame = run.summary
    section.table(
        ["parameter", *(str(c).replace("_", " ") for c in frame.columns)],
        [[str(name), *map(float, row)] for name, row in zip(frame.index, frame.to_numpy(), strict=True)],
        first=_SHOWN_CELLS,
        further="Further parameters",
    )
    return section


_BINS = 20


def trace_figure(draws: Mapping[str, np.ndarray]) -> Figure:
    """Density and trace of each quantity (num_chains, num_draws), one colour a chain."""
    figure = Figure(figsize=(WIDTH, 1.2 * max(len(draws), 1) + 0.3), layout="constrained")
    grid = figure.subplots(max(len(draws), 1), 2, squeeze=False, width_ratios=[1, 1.8])
    for axes in grid.ravel() if not draws else ():
        axes.set_axis_off()
    # One colour a chain: its density on the left, its draws in their order on the right.
    for (left, right), (name, values) in zip(grid, draws.items(), strict=False):
        low, high = float(values.min()), float(values.max())
        bins = np.linspace(low, high if high > low else low + 1.0, 31)
        for index, chain in enumerate(values):
            colour = KINDS[index % len(KINDS)]
            height, _ = np.histogram(chain, bins=bins, density=True)
            left.stairs(height, bins, color=colour, linewidth=1.2, alpha=0.9)
            right.plot(chain, color=colour, linewidth=0.5, alpha=0.75)
        left.set_yticks([])
        left.xaxis.set_major_locator(MaxNLocator(2))
        right.xaxis.set_major_locator(MaxNLocator(3))
        left.set_title(literal(shorten(name, 50)), fontsize=FONT, color=INK, loc="left")
        right.set_xlim(0, values.shape[1] - 1)
        for axes in (left, right):
            plain_axes(axes)
    # One legend for all panels.
    if draws:
        lines = grid[0, 1].get_lines()
        figure.legend(
            [Line2D([], [], color=line.get_color()) for line in lines],
            [f"chain {index}" for index in range(len(lines))],
            loc="outside lower center", ncols=min(len(lines), 4), frameon=False, fontsize=FONT, labelcolor=INK,
        )  # fmt: skip
    return figure


def rank_figure(draws: Mapping[str, np.ndarray]) -> Figure:
    """Rank histograms of every chain of each quantity (num_chains, num_draws); level bars mean that chains agree."""
    columns = min(2, max(len(draws), 1))
    rows = -(-max(len(draws), 1) // columns)
    figure = Figure(figsize=(WIDTH, 1.7 * rows + 0.2), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(draws) :]:
        axes.set_axis_off()
    # Ranks among the draws of all chains; where chains agree, the bars of each are level.
    for axes, (name, values) in zip(grid, draws.items(), strict=False):
        num_chains, num_draws = values.shape
        from scipy.stats import rankdata  # takes a second to import

        ranks = rankdata(values).reshape(values.shape)
        edges = np.linspace(0.5, values.size + 0.5, _BINS + 1)
        level = num_draws / _BINS
        # One band a chain, its own height as unit.
        for index, chain in enumerate(ranks):
            height, _ = np.histogram(chain, bins=edges)
            base = index * 2.0
            axes.bar(
                edges[:-1],
                height / level,
                width=np.diff(edges),
                bottom=base,
                align="edge",
                color=KINDS[index % len(KINDS)],
                edgecolor="white",
                linewidth=0.4,
                alpha=0.85,
            )
            axes.axhline(base + 1, color=INK, linewidth=0.7, linestyle=(0, (3, 3)))
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 2.0 * num_chains)
        axes.set_yticks(np.arange(num_chains) * 2.0 + 1, [str(c) for c in range(num_chains)])
        axes.set_xticks([])
        axes.set_title(literal(shorten(name, 26)), fontsize=FONT, color=INK, loc="left")
        plain_axes(axes)
    return figure


# Scores of the parts of a table of labels, and what held-out rows say of interactions and of parameters.

MAX_TABLE_CELLS = 2**16
"""Cells of the largest table of which a study lists every cell."""
_MAX_SWEEPS = 1000


@dataclass(frozen=True)
class PredictivePart:
    """Scores of the richer model on one part of the rows.

    Attributes:
        model: its scores.
        accuracy: of the prediction of the target, where one was named.
        advantage: NLL of the structure less that of the richer model, in nats a row.
        advantage_std_error: its sampling error over rows; errors of log Z are not part of it.
    """

    model: Scores
    accuracy: dict[str, Any] | None
    advantage: float
    advantage_std_error: float


@dataclass(frozen=True, eq=False)
class TablePart(Part):
    """Scores of one part of the rows of a table of labels, with the attributes of every part.

    Attributes:
        predictive: scores of the richer model that predicts; None where there is no other.
        split: of rows held out, the divergence of the model from them in its two parts; None where the table is
            too large, cells are missing or interactions are restricted.
    """

    predictive: PredictivePart | None = None
    split: DivergenceSplit | None = None


def held_out(parts: Mapping[str, Observations | None]) -> dict[str, Projections]:
    """Projections of the parts that no parameter is fitted to, where their cells can be listed."""
    found = {name: rows for name, rows in parts.items() if name != "train" and rows is not None}
    return {
        name: Projections(Law.from_observations(rows), tolerance=1e-9, max_iterations=_MAX_SWEEPS)
        for name, rows in found.items()
        if rows.total_count > 0 and not rows.has_missing and rows.domain.num_states <= MAX_TABLE_CELLS
    }


def split_of_part(law: Projections | None, model: LogLinearEnergy | FitResult) -> DivergenceSplit | None:
    """The divergence of a model from held-out rows in two parts, where it has them."""
    is_restricted = isinstance(model, FitResult) and model.restriction is not None
    if law is None or is_restricted or not model.hypergraph.is_hierarchical:
        return None
    return split_of_rows(law, model)


def split_section(models: Mapping[str, Mapping[str, TablePart | None]], chosen: int = -1) -> Section | None:
    """What of the divergence from held-out rows is for want of interactions, and what of well-estimated parameters."""
    rows: list[list[object]] = []
    marked = -1
    for position, (name, parts) in enumerate(models.items()):
        for part, entry in parts.items():
            if entry is not None and entry.split is not None:
                marked = len(rows) if position == chosen and marked < 0 else marked
                split, size = entry.split, entry.split.projection.hypergraph.num_parameters
                rows.append([name, part, size, *map(cell, (split.total, split.inestimable, split.estimable))])
    # Of rows that were fitted there is nothing to divide.
    if not rows:
        return None
    section = Section("What limits the fit: missing interactions or too few rows?", is_folded=True)
    section.table(["model", "part", "parameters", "KL", "inestimable", "estimable"], rows, chosen=marked)
    section.note(
        "KL says how far the model is from the frequencies of rows that it was not fitted to, in nats a row. Its "
        "parts are two. The inestimable one would be left with the best parameters for those very rows, and only more "
        "interactions lower it. The estimable one would be saved by better parameters: it grows with their number and "
        "shrinks with more rows. The scatter of the held-out rows themselves is in both."
    )
    return section
