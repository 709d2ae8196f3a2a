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

from ..core.operations import signed_strengths
from ..core.page import Section, cell
from ..core.partition import LogPartition
from ..core.words import (
    fixed,
    literal,
    number,
    plural,
    short_edge,
)
from ..errors import IntractableError
from ..log_linear.coding import parametrization
from ..log_linear.fitting.result import FitResult
from ..log_linear.goodness.goodness_of_fit import GoodnessOfFit, term_tests
from ..log_linear.goodness.p_values import SMALLER
from ..log_linear.goodness.summary import fit_summary
from ..log_linear.infinite import has_cheap_covariance
from ..log_linear.scores import (
    CoefficientInterval,
)
from ..plots.drawing import CHAINS, FONT, INK, figure_of, plain_axes
from ..plots.fitted import plot_fitted, plot_residuals
from ..plots.hypergraph import plot_hypergraph
from ..plots.intervals import plot_forest
from ..structure.hypergraph import InteractionHypergraph
from .parts import TablePart
from .posterior import Posterior

__all__ = [
    "ModelAnalysis",
    "TestMethod",
    "cell_section",
    "finite_contrast_lines",
    "goodness_json",
    "goodness_sentences",
    "label_of",
    "posterior_section",
    "rank_figure",
    "strength_section",
    "structure_section",
    "trace_figure",
    "uncertainty",
    "uncertainty_section",
]


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
    if not has_cheap_covariance(fit):
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
    """The tables of coefficients and tests."""
    if uncertainty is None:
        return None
    section = Section("Coefficients and tests")
    frame, percent = uncertainty.coefficients, f"{100 * uncertainty.level:g} %"
    # Columns that this estimate has, and the first rows of them.
    names = {"term": "term", "levels": "levels", "estimate": "estimate", "std_error": "SE", "lower": "lower"}
    names |= {"upper": "upper", "z": "z", "p_value": "p", "odds_ratio": "odds ratio"}
    columns = [name for name in names if name in frame]
    rows = frame[columns].astype(object).to_numpy().tolist()
    folded = f"All {len(frame)} coefficients" if len(frame) > 2 * _BRIEF_TESTS else ""
    section.table([names[name] for name in columns], rows, folded=folded, brief=_BRIEF_TESTS)
    section.note(f"Intervals: {percent}. {'. '.join(n[0].upper() + n[1:] for n in frame.attrs['notes'])}.")
    # Tests of interactions, and what their p-values rest on.
    if uncertainty.tests is not None and len(uncertainty.tests):
        section.heading("Tests of interactions", brief=True)
        columns = ["term", "removal", "df", "statistic", "p_value", "p_value_adjusted", "p_value_method"]
        rows = uncertainty.tests[columns].astype(object).to_numpy().tolist()
        label = "Wald" if uncertainty.method == "wald" else "likelihood ratio"
        section.table(["interaction", "removed", "df", label, "p", "adjusted p", "p by"], rows, brief=_BRIEF_TESTS)
        section.note(
            "Each interaction against the model without it and without those that contain it. Adjusted p: by "
            "Benjamini and Hochberg, rejecting those of at most 0.05 keeps the expected share of false rejections at "
            "most 0.05."
        )
        why = dict.fromkeys(uncertainty.tests.loc[uncertainty.tests["p_value_method"].isna(), "note"])
        if why:
            section.note(f"No p-value where {'; '.join(map(str, why))}.", brief=True)
        if num := int(uncertainty.tests["note"].astype(str).str.endswith(SMALLER).sum()):
            section.note(f"Of {plural(num, 'test')} the p-values are smaller than shown: no table drawn is as extreme.")
        if num := int(uncertainty.tests["note"].astype(str).str.startswith("rough").sum()):
            section.note(f"Of {plural(num, 'test')} the p-values are rough: the expected counts are small.", brief=True)
    return section


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
    """

    name: str
    fit: FitResult
    log_partition: LogPartition
    goodness: GoodnessOfFit | None
    cells: pd.DataFrame | None
    odds_ratios: pd.DataFrame | None
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


_SHOWN_INTERACTIONS = 15


_SHOWN_TRACES = 6


_SHOWN_CELLS = 20


_LABEL = 56  # characters of an interaction in a sentence


def label_of(edge: Sequence[str]) -> str:
    """An interaction in a sentence."""
    return short_edge(edge, _LABEL)


def goodness_sentences(test: GoodnessOfFit) -> list[str]:
    """A test against the saturated model in one or two sentences: the numbers and what they rest on."""
    square = "\N{SUPERSCRIPT TWO}"
    if test.df_adjusted <= 0:
        if not test.num_cells_zero:
            return ["The model is saturated: it reproduces the observed table and leaves nothing to test."]
        reproduced = (
            f"No degrees of freedom are left: the margins force {plural(test.num_cells_zero, 'cell')} to zero, and on "
            "the other cells the model reproduces the observed table."
        )
        return [reproduced]
    # The statistics, then by which method their p-value was found.
    statistics = (
        f"Against the saturated model: G{square} = {number(test.deviance)} and X{square} = {number(test.pearson)} on "
        f"{plural(test.df_adjusted, 'degree')} of freedom"
    )
    # No p-value, one by a limit law, one that is exact, or one from tables drawn.
    if test.p_value_method is None:
        return [f"{statistics}; there is no p-value, because {test.p_value_note}."]
    if test.p_value_method in ("chi-square", "bartlett"):
        corrected = ", corrected," if test.p_value_method == "bartlett" else ""
        rests = f"by the chi-square distribution{corrected}: {test.p_value_note}"
        return [f"{statistics}; p = {number(test.p_value)} for G{square} {rests}."]
    symbol = "G" if test.p_value_statistic == "deviance" else "X"
    if test.p_value_method == "conditional" and not test.num_tables:
        return [
            f"{statistics}; p = {number(test.p_value)} for G{square} (exact conditional test: {test.p_value_note})."
        ]
    is_given = test.p_value_method in ("exact", "conditional")
    source = "with the same margins" if is_given else "drawn from the fitted model and refitted"
    name = "exact conditional test" if is_given else "parametric bootstrap"
    tables = f"{plural(test.num_tables, 'table')} {source}"
    # None as extreme: the number of tables bounds the p-value.
    if test.p_value <= (1 + 1e-9) / (test.num_tables + 1):
        p_value = f"{symbol}{square} is not as large in any of {tables}, hence p < {number(test.p_value)} ({name})"
    else:
        error = number(test.p_value_std_error)
        rests = f"{name}, Monte Carlo standard error {error}"
        p_value = f"p = {number(test.p_value)} for {symbol}{square}, from {tables} ({rests})"
    return [f"{statistics}; {p_value}.", f"The chi-square distribution is not used, because {test.p_value_note}."]


def structure_section(model: ModelAnalysis) -> Section:
    """The interactions as a picture, and the independences that they imply."""
    section = Section(f"Structure of {model.name}")
    # A circle of more variables is a black disc.
    strength, signs = signed_strengths(model.hypergraph.domain, model.interactions)
    if len(model.hypergraph.domain) <= 40:
        section.figure(
            figure_of(plot_hypergraph, model.hypergraph, strength, unit="nats", signs=signs),
            "Variables on a circle; the wider an arc, the stronger the pair; larger sets are regions or stars",
        )
        if signs is not None:
            section.note(
                "Blue: the second levels of these variables occur together more often than smaller interactions imply; "
                "orange: less often."
            )
        if any(row["is_infinite"] for row in model.interactions):
            section.note(
                "Dashed, wider than all others and marked ∞: interactions that are infinite in some direction."
            )
    # The class of the model, and what it implies.
    kind = (
        "decomposable: its estimates have a closed form"
        if model.hypergraph.is_decomposable
        else "graphical: the pairs that interact determine it"
        if model.hypergraph.is_graphical
        else "not graphical: some variables interact in pairs but not all together"
    )
    listed = ", ".join(f"[{short_edge(e, _LABEL, ' ')}]" for e in model.hypergraph.maximal_edges[:30])
    more = ", ..." if len(model.hypergraph.maximal_edges) > 30 else ""
    section.text(f"Largest interactions, which imply all smaller ones: {listed}{more}. The model is {kind}.")
    if len(model.hypergraph.domain) > 40:
        section.note("With more than 40 variables the picture and the implied independences are left out.")
        return section
    # Independences are listed where they can be read.
    statements = model.hypergraph.conditional_independences()
    if statements:
        section.table(
            ["independent pair", "given"],
            [[f"{a} ⫫ {b}", ", ".join(c) or "nothing"] for a, b, c in statements],
            folded=f"Implied conditional independences ({len(statements)})",
        )
    else:
        section.note("Every two variables share an interaction, so no conditional independence is implied.")
    return section


def strength_section(model: ModelAnalysis) -> Section:
    """The largest coefficients with intervals, all interactions, and odds ratios of pairs."""
    section = Section("Strongest interactions")
    # The largest as intervals.
    rows = coefficient_rows(model)[:_SHOWN_INTERACTIONS]
    if rows:
        source = "posterior" if model.posterior is not None else "large-sample"
        level = f"{100 * rows[-1].level:.0f} %"
        section.figure(
            figure_of(
                plot_forest,
                [f"{':'.join(r.edge)}  ({', '.join(r.levels)})" for r in rows],
                np.array([r.estimate for r in rows]),
                np.array([r.lower for r in rows]),
                np.array([r.upper for r in rows]),
                label=f"balanced coefficient (nats), {level} {source} interval",
            ),
            "Largest coefficient of each of the strongest interactions with its interval",
        )
        infinite = " An arrow is an infinite entry." if math.isinf(rows[0].estimate) else ""
        section.note(
            "Each line is the largest coefficient of an interaction, at the levels in parentheses: by how much this "
            "combination raises the log-probability beyond what smaller interactions do. Coefficients are balanced: "
            "they sum to zero over the levels of each variable. Grey intervals include zero." + infinite
        )
    # All interactions, folded where the picture shows the largest.
    several, terms = model.hypergraph.num_interactions, len(model.interactions)
    singles = f" and {plural(terms - several, 'single variable')}" if terms > several else ""
    folded = f"All {plural(several, 'interaction')}{singles}" if rows or terms > 20 else ""
    add_interactions(section, model, folded)
    # Odds ratios, which more readers know than coefficients.
    if model.odds_ratios is not None:
        frame = model.odds_ratios
        section.heading("Conditional odds ratios")
        section.table(
            ["pair", "levels", "given", "odds ratio", "lower", "upper"],
            [[*map(str, row[:3]), *map(float, row[3:])] for row in frame.to_numpy()],
            folded=f"Odds ratios of pairs given all other variables ({len(frame)})",
        )
        section.note(
            "With 95 % large-sample intervals. Where a pair is part of a larger interaction its odds ratio is that at "
            "the levels named under given; other variables do not change it."
        )
    return section


def cell_section(model: ModelAnalysis) -> Section | None:
    """Observed beside expected counts, where cells are listed."""
    if model.cells is None:
        return None
    frame = model.cells
    section = Section("Observed against fitted cells")
    observed, expected, residual = (frame[c].to_numpy(float) for c in ("observed", "expected", "adjusted_residual"))
    fitted = figure_of(plot_fitted, observed, expected, residuals=residual)
    section.figure(fitted, "Observed against expected counts")
    residuals = figure_of(plot_residuals, expected, residual, label="adjusted residual")
    section.figure(residuals, "Adjusted residuals against expected counts")
    # How many residuals are larger than chance makes them.
    finite = residual[np.isfinite(residual)]
    outside = int((np.abs(finite) > 2).sum())
    section.text(
        f"{outside} of {len(finite)} adjusted residuals lie beyond ±2; if the model held, about "
        f"{0.0455 * len(finite):.1f} would by chance. An adjusted residual is the difference of a count from its "
        "expectation in standard errors."
    )
    names = list(frame.attrs["columns"].values())
    order = np.argsort(-np.abs(np.nan_to_num(residual)), kind="stable")
    section.table(
        [*names, "observed", "expected", "adjusted residual"],
        [[*(str(frame[n].iloc[i]) for n in names), observed[i], expected[i], residual[i]] for i in order],
        folded=f"The {min(len(order), _SHOWN_CELLS)} cells that fit worst",
        first=_SHOWN_CELLS,
        further="Further cells",
    )
    return section


def posterior_section(model: ModelAnalysis) -> Section | None:
    """Draws of the posterior, where there are any."""
    run = model.posterior
    if run is None:
        return None
    section = Section("Posterior")
    section.text(run.description)
    # Pictures of the strongest, a table of all.
    shown = dict(list(model.traces.items())[:_SHOWN_TRACES])
    section.heading("Densities and traces")
    section.figure(trace_figure(shown), "Density and trace of each chain for the strongest interactions")
    section.heading("Ranks")
    section.figure(rank_figure(shown), "Rank histogram of each chain for the strongest interactions")
    section.note("Chains that agree have level bars, at the dashed line.")
    frame = run.summary
    section.table(
        ["parameter", *(str(c).replace("_", " ") for c in frame.columns)],
        [[str(name), *map(float, row)] for name, row in zip(frame.index, frame.to_numpy(), strict=True)],
        folded=f"All parameters ({len(frame)})",
    )
    return section


_BINS = 20


def trace_figure(draws: Mapping[str, np.ndarray]) -> Figure:
    """Density and trace of each quantity (num_chains, num_draws), one colour a chain."""
    figure = Figure(figsize=(9.0, 1.5 * max(len(draws), 1) + 0.3), layout="constrained")
    grid = figure.subplots(max(len(draws), 1), 2, squeeze=False, width_ratios=[1, 2.4])
    for axes in grid.ravel() if not draws else ():
        axes.set_axis_off()
    # One colour a chain: its density on the left, its draws in their order on the right.
    for (left, right), (name, values) in zip(grid, draws.items(), strict=False):
        low, high = float(values.min()), float(values.max())
        bins = np.linspace(low, high if high > low else low + 1.0, 31)
        for index, chain in enumerate(values):
            colour = CHAINS[index % len(CHAINS)]
            height, _ = np.histogram(chain, bins=bins, density=True)
            left.stairs(height, bins, color=colour, linewidth=1.2, alpha=0.9)
            right.plot(chain, color=colour, linewidth=0.5, alpha=0.75)
        left.set_yticks([])
        left.xaxis.set_major_locator(MaxNLocator(4))
        left.set_title(literal(name), fontsize=9, color=INK, loc="left")
        right.set_xlim(0, values.shape[1] - 1)
        for axes in (left, right):
            plain_axes(axes)
            axes.tick_params(labelsize=7)
    # One legend for all panels.
    if draws:
        lines = grid[0, 1].get_lines()
        figure.legend(
            [Line2D([], [], color=line.get_color()) for line in lines],
            [f"chain {index}" for index in range(len(lines))],
            loc="outside lower center", ncols=min(len(lines), 8), frameon=False, fontsize=FONT, labelcolor=INK,
        )  # fmt: skip
    return figure


def rank_figure(draws: Mapping[str, np.ndarray]) -> Figure:
    """Rank histograms of every chain of each quantity (num_chains, num_draws); level bars mean that chains agree."""
    columns = min(3, max(len(draws), 1))
    rows = -(-max(len(draws), 1) // columns)
    figure = Figure(figsize=(9.0, 1.9 * rows + 0.2), layout="constrained")
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
                color=CHAINS[index % len(CHAINS)],
                edgecolor="white",
                linewidth=0.4,
                alpha=0.85,
            )
            axes.axhline(base + 1, color=INK, linewidth=0.7, linestyle=(0, (3, 3)))
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 2.0 * num_chains)
        axes.set_yticks(np.arange(num_chains) * 2.0 + 1, [f"chain {c}" for c in range(num_chains)])
        axes.set_xticks([])
        axes.set_title(literal(name), fontsize=9, color=INK, loc="left")
        plain_axes(axes)
        axes.tick_params(labelsize=7)
    return figure
