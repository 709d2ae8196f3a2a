"""The page of an analysis of given interactions. Nothing is computed here but formats."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.operations import signed_strengths
from ..core.page import Page, Section
from ..core.words import (
    distinct_sentence,
    elpd_sentence,
    gain_sentence,
    num_states_text,
    number,
    plural,
    short_edge,
)
from ..log_linear.goodness.goodness_of_fit import GoodnessOfFit
from ..plots.drawing import figure_of
from ..plots.fitted import plot_fitted, plot_residuals
from ..plots.hypergraph import plot_hypergraph
from ..plots.intervals import plot_comparison, plot_forest
from .analysis import Analysis, ModelAnalysis, add_interactions, coefficient_rows
from .constrained.sections import constrained_section, constrained_sentences, constrained_warnings
from .figures import rank_figure, trace_figure
from .parts import KL_EXPLAINED, SCORES_EXPLAINED, distinct_parts, num_rows, score_section, split_section
from .structures.sections import structure_sections, structure_sentences, structure_warnings
from .uncertainty import uncertainty_section

__all__ = ["analysis_page"]

_SHOWN_INTERACTIONS = 15
_SHOWN_TRACES = 6
_SHOWN_CELLS = 20
_MIN_ESS = 400
_LABEL = 56  # characters of an interaction in a sentence


def _label(edge: Sequence[str]) -> str:
    return short_edge(edge, _LABEL)


def _whole(value: float) -> str:
    """A number rounded to a whole one; a dash where there is none."""
    return number(round(value) if math.isfinite(value) else None)


def _states(count: int) -> str:
    return number(count) if count < 10**6 else num_states_text(count)


def analysis_page(analysis: Analysis, title: str | None = None) -> Page:
    """The page of an analysis; by default its title is made from the data's name.

    Example:
        >>> from pyro_hoim import InteractionHypergraph, load_table
        >>> from pyro_hoim.study import analyse
        >>> rows = load_table("ucb_admissions")
        >>> pairs = InteractionHypergraph.from_order(rows.domain, 2)
        >>> page = analysis_page(analyse({"train": rows}, {"pairs": pairs}, title="Berkeley"))
        >>> page.title, page.rows
        ('Log-linear analysis of Berkeley', {'train': 4526.0, 'validation': 0.0, 'test': 0.0})
    """
    model = analysis.chosen
    structures = analysis.structures
    sections = [
        *([] if structures is None else structure_sections(structures, model.fit)),
        None if analysis.constrained is None else constrained_section(analysis.constrained),
        _comparison(analysis),
        _structure(model),
        _interactions(model),
        uncertainty_section(model.uncertainty),
        _cells(model),
        _posterior(model),
        _prediction(analysis),
        split_section({model.name: model.parts for model in analysis.models}, analysis.chosen_index),
    ]
    return Page(
        title=title or f"Log-linear analysis of {analysis.title.replace('_', ' ')}",
        rows=num_rows(analysis.parts),
        names=analysis.train.domain.names,
        summary=_summary(analysis),
        warnings=_warnings(analysis),
        about=analysis.about,
        sections=[section for section in sections if section is not None],
        seed=analysis.seed,
        has_weights=analysis.has_weights,
    )


def _summary(analysis: Analysis) -> list[str]:
    """A few sentences that answer the reader's question."""
    model = analysis.chosen
    sentences: list[str] = [] if analysis.structures is None else structure_sentences(analysis.structures)
    sentences += [] if analysis.constrained is None else constrained_sentences(analysis.constrained)
    where, judged = analysis.judged_on, analysis.held[analysis.judged_on]
    if len(analysis.held) > 1:
        sentences.append(gain_sentence(where, "model kept", judged.gain, judged.gain_std_error))
    sentences.append(
        f"The model kept is {model.name}: {plural(model.hypergraph.num_interactions, 'interaction')} with "
        f"{plural(model.fit.num_parameters_fitted, 'free parameter')}"
        f"{' of the family' if model.fit.is_counted_by_family else ''} over "
        f"{_states(model.hypergraph.domain.num_states)} possible cells."
    )
    if analysis.comparison is not None and len(analysis.comparison) > 1:
        table_of_elpd = analysis.comparison[["elpd_diff", "dse"]].to_numpy(float)
        sentences.append(elpd_sentence(list(map(str, analysis.comparison.index)), *table_of_elpd.T.tolist()))
    if analysis.prior is not None and not analysis.prior.is_flat:
        sentences.append(
            f"The estimates are the mode of the posterior under {analysis.prior.describe()} (prior {analysis.prior}): "
            "they are finite, and pulled towards zero."
        )
    if model.goodness is not None:
        sentences += _goodness_sentences(model.goodness)
    elif model.fit.objective == "likelihood":
        sentences.append(f"G\N{SUPERSCRIPT TWO} against the saturated model is not given: {analysis.no_goodness}.")
    strong = [row for row in model.interactions if len(row["edge"]) > 1][:3]
    if strong:
        listed = ", ".join(
            f"{_label(row['edge'])} ({'infinite' if row['is_infinite'] else number(row['value'])})" for row in strong
        )
        sentences.append(f"Strongest interactions (root mean square of their coefficients, in nats): {listed}.")
    if model.posterior is not None:
        run = model.posterior
        sentences.append(
            f"Posterior: {plural(run.num_chains, 'chain')} of {plural(run.num_draws, 'draw')}; largest R-hat "
            f"{number(run.max_r_hat)}, smallest bulk effective sample size {_whole(run.min_ess_bulk)}, "
            f"{plural(run.num_divergences, 'divergent transition')}."
        )
    return sentences


def _goodness_sentences(test: GoodnessOfFit) -> list[str]:
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
    statistics = (
        f"Against the saturated model: G{square} = {number(test.deviance)} and X{square} = {number(test.pearson)} on "
        f"{plural(test.df_adjusted, 'degree')} of freedom"
    )
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
    if test.p_value <= (1 + 1e-9) / (test.num_tables + 1):
        p_value = f"{symbol}{square} is not as large in any of {tables}, hence p < {number(test.p_value)} ({name})"
    else:
        error = number(test.p_value_std_error)
        rests = f"{name}, Monte Carlo standard error {error}"
        p_value = f"p = {number(test.p_value)} for {symbol}{square}, from {tables} ({rests})"
    return [f"{statistics}; {p_value}.", f"The chi-square distribution is not used, because {test.p_value_note}."]


def _warnings(analysis: Analysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    warnings: list[str] = [] if analysis.structures is None else structure_warnings(analysis.structures)
    warnings += [] if analysis.constrained is None else constrained_warnings(analysis.constrained)
    for model in analysis.models:
        existence = model.fit.existence
        if existence is not None and existence.exists is False:
            sentence = f"{model.name}: {existence.describe()}."
            if model.fit.status == "infinite":
                sentence += (
                    " The fit is the limit: coefficients marked infinite grow without bound, rows with such a "
                    "combination have probability zero, and tests use adjusted degrees of freedom."
                )
            elif model.fit.status == "early_stopped":
                sentence += " Early stopping on the validation rows keeps this fit finite."
            warnings.append(sentence)
        if model.fit.is_counted_by_family:
            warnings.append(
                f"{model.name}: the parameters are those of the family; how many of them the rows identify was not "
                "counted. df, AIC and BIC use the former."
            )
        if model.fit.status in ("max_iterations", "stalled"):
            warnings.append(f"{model.name}: the fit stopped before it had converged.")
        run = model.posterior
        if run is not None:
            if run.num_chains == 1:
                warnings.append(f"{model.name}: one chain cannot show whether chains agree (no R-hat); draw several.")
            elif not run.is_converged or run.min_ess_bulk < _MIN_ESS:
                warnings.append(
                    f"{model.name}: the chains have not mixed well (largest R-hat {run.max_r_hat:.3f}, smallest bulk "
                    f"effective sample size {_whole(run.min_ess_bulk)}, "
                    f"{plural(run.num_divergences, 'divergent transition')}); intervals may be wrong, run longer "
                    "chains."
                )
            if run.max_pareto_k > 0.7:
                warnings.append(
                    f"{model.name}: leave-one-out is unreliable for some cells (largest Pareto k "
                    f"{run.max_pareto_k:.2f})."
                )
    return warnings


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
    section = Section("Models compared" if len(analysis.models) > 1 else "The model")
    records = analysis.comparison_records()
    for record in records:
        if math.isfinite(record.get("min_ess_bulk", math.nan)):
            record["min_ess_bulk"] = round(record["min_ess_bulk"])
    present = [key for key in _COLUMNS if any(key in r for r in records)]
    section.table(
        [_COLUMNS[k] for k in present],
        [[r.get(k) for k in present] for r in records],
        chosen=analysis.chosen_index,
        brief=len(records),
    )
    if len(analysis.models) > 1 and analysis.nested_tests:
        columns = {"small": "model", "big": "against", "statistic": "likelihood ratio", "df": "df", "p_value": "p"}
        tests = [[test[key] for key in [*columns, "p_value_method"]] for test in analysis.nested_tests]
        section.table([*columns.values(), "p by"], tests, brief=len(tests))
        for note in dict.fromkeys(t["note"] for t in analysis.nested_tests if t["p_value_method"] != "chi-square"):
            section.note(f"Likelihood ratio: {note}.", brief=True)
    _compare_elpd(analysis, section)
    if "g2" in present:
        section.note(
            "G² and X² test a model against the saturated one; p is that of G². Cells that "
            "the model is forced to fit as zero, and parameters lost with them, are not counted, neither in df nor in "
            "AIC and BIC. All logarithms are natural (nats)."
        )
    if "elpd_loo" in present:
        section.note(
            "elpd is the expected log predictive density by leave-one-out cross-validation, p (LOO) the effective "
            "number of parameters."
        )
    return section


def _compare_elpd(analysis: Analysis, section: Section) -> None:
    """Add what leave-one-out cross-validation says of several models."""
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


def _structure(model: ModelAnalysis) -> Section:
    section = Section(f"Structure of {model.name}")
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


def _interactions(model: ModelAnalysis) -> Section:
    section = Section("Strongest interactions")
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
    several, terms = model.hypergraph.num_interactions, len(model.interactions)
    singles = f" and {plural(terms - several, 'single variable')}" if terms > several else ""
    folded = f"All {plural(several, 'interaction')}{singles}" if rows or terms > 20 else ""
    add_interactions(section, model, folded)
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


def _cells(model: ModelAnalysis) -> Section | None:
    if model.cells is None:
        return None
    frame = model.cells
    section = Section("Observed against fitted cells")
    observed, expected, residual = (frame[c].to_numpy(float) for c in ("observed", "expected", "adjusted_residual"))
    fitted = figure_of(plot_fitted, observed, expected, residuals=residual)
    section.figure(fitted, "Observed against expected counts")
    residuals = figure_of(plot_residuals, expected, residual, label="adjusted residual")
    section.figure(residuals, "Adjusted residuals against expected counts")
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


def _posterior(model: ModelAnalysis) -> Section | None:
    run = model.posterior
    if run is None:
        return None
    section = Section("Posterior")
    section.text(run.description)
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


def _prediction(analysis: Analysis) -> Section | None:
    parts = analysis.held
    if len(parts) < 2 and all(part.accuracy is None for part in parts.values()):
        return None
    names = distinct_parts(parts)
    return score_section(
        "Prediction",
        analysis,
        {"KL": "model", "KL independent": "independent"},
        f"{SCORES_EXPLAINED} {KL_EXPLAINED}",
        [distinct_sentence(names)] if names else [],
    )
