"""The page of a generalized root model. Nothing is computed here but formats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from ...core.page import Cell, Page, Section, cell
from ...core.scores import Scores, rows_are_distinct
from ...core.words import (
    PSEUDO,
    coefficient,
    digits,
    distinct_sentence,
    gain_sentence,
    listed,
    option,
    plural,
)
from ...errors import none_received, unexpected
from ...plots.drawing import BLUE, FAINT, FONT, INK, ORANGE, figure_of, plain_axes, wrapped
from ...plots.hypergraph import plot_hypergraph
from ...results.confirmation_page import add_tests, kept_sentence
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..regress.result import RootFitResult, RootTerm
from .analysis import PathStep, RootAnalysis, standardise_term

__all__ = ["penalty_path_figure", "root_network_figure", "root_page", "root_scores_figure"]


# Pictures of a generalized root model: who varies with whom, scores and penalties.

_LIGHT = "#7db4d6"


def root_network_figure(
    terms: Sequence[RootTerm], *, max_variables: int = 40, max_pairs: int = 60, max_sets: int = 12
) -> Figure:
    """The strongest tuples on a circle: pairs as arcs, larger sets as hulls or stars, coloured by their signs.

    Args:
        terms: tuples of two and more variables, strongest first; the coefficients of several roots of a set add up.
        max_variables: most variables, those of the strongest tuples, that are drawn.
        max_pairs: most pairs that are drawn.
        max_sets: most sets of three and more that are drawn.

    Raises:
        InputError: no tuple of two or more variables.

    Example:
        >>> figure = root_network_figure([RootTerm((2, 2), ("skin", "friction"), 2.87)])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['skin', 'friction']
    """
    shown = [term for term in terms if len(term.names) > 1]
    if not shown:
        raise none_received("terms", "at least one tuple of two or more variables")
    names: dict[str, None] = {}
    weights: dict[tuple[str, ...], float] = {}
    for term in shown:
        wider = dict.fromkeys([*names, *term.names])
        if len(wider) <= max_variables:
            names = wider
            weights[term.names] = weights.get(term.names, 0.0) + term.coefficient
    edges = [*((name,) for name in names), *weights]
    domain = Domain.from_cardinalities(dict.fromkeys(names, 2))
    graph = InteractionHypergraph(domain, edges, hierarchical=False)
    strengths = {domain.project(edge).names: value for edge, value in weights.items()}
    signs = ("rise together", "avoid each other")
    return figure_of(plot_hypergraph, graph, strengths, top=max_pairs, max_sets=max_sets, signs=signs)


def root_scores_figure(scores: Mapping[str, Mapping[str, Scores]]) -> Figure:
    """Pseudo-NLL of several laws as bars, one panel a part, with one standard error over the rows.

    Args:
        scores: by part, then by law.

    Raises:
        InputError: no part, or none with a finite score.

    Example:
        >>> from pyro_hoim.core import Scores
        >>> made = {"independent": 3.1, "model": 2.7}
        >>> scores = {k: Scores(rows=50, pseudo_nll=v, pseudo_nll_std_error=0.2) for k, v in made.items()}
        >>> figure = root_scores_figure({"train": scores, "test": scores})
        >>> [axes.get_title() for axes in figure.axes]
        ['train', 'test']
    """
    if not scores or not any(math.isfinite(s.pseudo_nll) for part in scores.values() for s in part.values()):
        raise none_received("scores", "at least one part with a finite pseudo-NLL")
    laws = list(next(iter(scores.values())))
    figure = Figure(figsize=(2.6 + 2.6 * len(scores), 1.2 + 0.42 * len(laws)), layout="constrained")
    grid = figure.subplots(1, len(scores), squeeze=False, sharex=True, sharey=True)[0]
    for axes, (part, scores_of) in zip(grid, scores.items(), strict=True):
        values = np.array([scores_of[law].pseudo_nll for law in laws])
        errors = np.array([scores_of[law].pseudo_nll_std_error for law in laws])
        finite = np.isfinite(values)
        heights = np.arange(len(laws))[::-1]
        colours = [ORANGE if law == laws[-1] else BLUE for law in laws]
        axes.barh(
            heights[finite],
            values[finite],
            color=[c for c, keep in zip(colours, finite, strict=True) if keep],
            xerr=np.nan_to_num(errors[finite]),
            error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2},
            height=0.62,
        )
        for at, value in zip(heights[~finite], values[~finite], strict=True):
            words = "infinite" if value > 0 else "–"
            axes.text(0.02, at, words, va="center", fontsize=9, color=INK, transform=axes.get_yaxis_transform())
        axes.set_yticks(heights, [wrapped(law, 24) for law in laws])
        axes.set_title(part, color=INK, fontsize=10)
        axes.set_xlabel("pseudo-NLL, nats per row", color=INK, fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        plain_axes(axes)
    handles: list[Any] = [Patch(facecolor=ORANGE, label="this model"), Patch(facecolor=BLUE, label="simpler models")]
    handles.append(Line2D([], [], color=INK, linewidth=1.0, label="one standard error"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=FONT, labelcolor=INK)
    return figure


def penalty_path_figure(path: Sequence[PathStep], chosen: float) -> Figure:
    """Pseudo-NLL and number of tuples against the penalty.

    Args:
        path: penalties that were tried.
        chosen: the one that was kept, marked.

    Raises:
        InputError: fewer than two penalties above zero.

    Example:
        >>> path = [PathStep(0.1, 2, 3.0, 3.2, 1e-7), PathStep(0.01, 5, 2.8, 3.1, 1e-7)]
        >>> figure = penalty_path_figure(path, 0.01)
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['pseudo-NLL, nats per row', 'tuples of two and more']
    """
    steps = sorted((step for step in path if step.l1 > 0), key=lambda step: step.l1)
    if len(steps) < 2:
        raise unexpected("path", "at least two penalties above 0", received=len(steps), code="empty")
    l1 = [step.l1 for step in steps]
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(l1, [step.train for step in steps], "o-", color=_LIGHT, markersize=4, label="training")
    if all(step.validation is not None for step in steps):
        left.plot(l1, [step.validation or 0.0 for step in steps], "o-", color=BLUE, markersize=4, label="validation")
    right.plot(l1, [step.num_terms for step in steps], "o-", color=BLUE, markersize=4)
    left.set_ylabel("pseudo-NLL, nats per row", color=INK, fontsize=9)
    right.set_ylabel("tuples of two and more", color=INK, fontsize=9)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(l1))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("penalty, nats per row", color=INK, fontsize=9)
        if chosen > 0:
            axes.axvline(chosen, color=ORANGE, linestyle=(0, (4, 3)), linewidth=1.2, label="kept")
        axes.grid(axis="y", color=FAINT, alpha=0.25)
        plain_axes(axes)
    left.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    return figure


_FIRST, _BRIEF = 15, 10
_DRAWN = 40  # columns
_NODES = 20
_LAWS = {
    "poisson": "independent Poisson",
    "truncated-poisson": "independent truncated Poisson",
    "negative-binomial": "independent negative binomial",
    "exponential": "independent exponential",
    "normal": "independent normal",
    "pairwise": "pairs only",
}
_SIGNS = ((1, "Rise together"), (-1, "Avoid each other"))
_SIZES = {2: "Pairs", 3: "Triples"}
_ROOTS = {2: "of its square root", 3: "of its cube root"}


def root_page(analysis: RootAnalysis) -> Page:
    """The page of a generalized root model.

    Example:
        >>> from pyro_hoim import CountTable
        >>> from pyro_hoim.generalized_root import PoissonFamily, analyse_roots
        >>> table = CountTable.from_matrix([[0, 1], [2, 2], [5, 4], [0, 0], [1, 1]], ["a", "b"])
        >>> page = root_page(analyse_roots({"train": table}, PoissonFamily(), order=2, title="two_counts"))
        >>> page.title, page.rows["train"], page.sections[0].title
        ('Generalized root model of two counts', 5.0, 'How well it predicts rows')
    """
    sections = [_scores(analysis), _network(analysis)]
    sections += [_tuples(analysis, size) for size in _sizes(analysis)]
    sections += [_confirmed(record) for record in [analysis.fit.confirmed] if record is not None]
    sections.append(_singles(analysis))
    if analysis.l1 is not None and len([step for step in analysis.path if step.l1 > 0]) > 1:
        sections.append(_path(analysis))
    return Page(
        title=f"Generalized root model of {analysis.title.replace('_', ' ')}",
        rows={name: 0.0 if part is None else float(part.scores.rows) for name, part in analysis.parts.items()},
        names=analysis.domain.names,
        summary=_summary(analysis),
        warnings=_warnings(analysis),
        about=analysis.about,
        sections=[*sections, _trust(analysis)],
        seed=analysis.seed,
    )


def _law_names(analysis: RootAnalysis) -> dict[str, str]:
    """How the report calls each baseline, and last the model itself under an empty key."""
    names = {name: _LAWS[name] for name in analysis.held[analysis.judged_on].baselines}
    return {**names, "": f"root model of order {analysis.fit.order}"}


def _terms_of(analysis: RootAnalysis, size: int, sign: int) -> list[RootTerm]:
    """Tuples of one size with coefficients of one sign, strongest first."""
    found = [term for term in analysis.fit.terms(sign=sign) if term.key[1] == size and term.key != (1, 1)]
    return sorted(found, key=lambda term: -abs(standardise_term(term, analysis.scales).coefficient))


def _sizes(analysis: RootAnalysis) -> list[int]:
    return sorted({size for _, size in analysis.fit.num_terms if size > 1})


def _counted(analysis: RootAnalysis) -> str:
    counts = {size: sum(n for (_, s), n in analysis.fit.num_terms.items() if s == size) for size in _sizes(analysis)}
    words = {2: "pair", 3: "triple"}
    return " and ".join(
        plural(n, words.get(size, f"set of {size}"), f"sets of {size}" if size > 3 else "")
        for size, n in counts.items()
    )


def _summary(analysis: RootAnalysis) -> list[str]:
    fit, where = analysis.fit, analysis.judged_on
    learned = _counted(analysis) or "no interactions"
    judged, names = analysis.held[where], _law_names(analysis)
    tests = None if fit.confirmed is None else fit.confirmed.confirmation
    gain = None if math.isnan(judged.gain) else judged.gain
    penalty = "" if analysis.l1 is None else f", penalty {analysis.l1:g} nats a row"
    others = ", ".join(f"{names[name]} {digits(scores.pseudo_nll)}" for name, scores in judged.baselines.items())
    sentences = [
        gain_sentence(where, "model", gain, judged.gain_std_error, PSEUDO),
        (
            f"A generalized root model of order {fit.order} ({fit.family.name} family{penalty}) with {learned}, "
            f"estimated from {plural(fit.num_rows, 'row')} of {plural(len(analysis.domain), 'column')}."
        ),
        (
            f"On the {where} rows, predicting each cell of a row from all others leaves a pseudo-NLL (sum of minus the "
            f"log-probabilities) of {digits(judged.scores.pseudo_nll)} nats a row; {others}."
        ),
    ]
    if tests is not None and tests.tests:
        sentences.append(kept_sentence(tests.tests, tests.false_discovery_rate, "training", "set"))
    spread = judged.baselines.get("negative-binomial")
    gap = 0.0 if spread is None or analysis.fit.is_full else judged.scores.pseudo_nll - spread.pseudo_nll
    if gap * judged.scores.rows > len(analysis.domain):  # more than their further parameters gain on Poisson counts
        sentences.append(
            "Independent negative binomial counts predict better: these counts vary more than Poisson ones, which the "
            f"model partly takes for dependence; {option('full', True)} adds roots of single columns, which absorb "
            "overdispersion."
        )
    net = _net_pairs(analysis)
    for sign, word in ((1, "rise together"), (-1, "avoid each other")):
        strongest = [names for names, value in net if value * sign > 0][:3]
        if strongest:
            pairs = "; ".join(" + ".join(names) for names in strongest)
            sentences.append(f"The pairs that {word} most: {pairs}.")
    return sentences


def _net_pairs(analysis: RootAnalysis) -> list[tuple[tuple[str, ...], float]]:
    """Pairs with the sum of their coefficients over all roots, their effect at values of one, largest first."""
    net: dict[tuple[str, ...], float] = {}
    for term in analysis.fit.terms():
        if term.key[1] == 2:
            net[term.names] = net.get(term.names, 0.0) + standardise_term(term, analysis.scales).coefficient
    return sorted(net.items(), key=lambda item: -abs(item[1]))


def _warnings(analysis: RootAnalysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    fit = analysis.fit
    warnings: list[str] = []
    if not fit.is_converged:
        worst = float(fit.kkt_residual.max())
        warnings.append(
            f"Not every regression has converged: the largest residual is {worst:.1e}, the tolerance "
            f"{fit.tolerance:.1e}."
        )
    if fit.fixed_columns:
        columns = list(fit.fixed_columns)
        verb = "holds" if len(columns) == 1 else "hold"
        warnings.append(
            f"{plural(len(columns), 'column')} {verb} one value in all training rows, at the edge of the family's "
            f"range ({listed(columns)}): no finite coefficient fits best (for zeros it is minus infinity). Any other "
            "value is impossible under this model, and no interaction can contain these columns."
        )
    for name, part in analysis.held.items():
        rows = part.scores.impossible_rows
        if rows:
            verb = "holds" if rows == 1 else "hold"
            warnings.append(
                f"{plural(rows, 'row')} of {name} {verb} other values in columns that held one value in all training "
                "rows, so that scores are infinite; leave these columns out, or train on more rows."
            )
    judged = analysis.held[analysis.judged_on]
    if judged.gain < 0 and analysis.fit.num_interactions:
        warnings.append(
            f"On the {analysis.judged_on} rows the model predicts worse than independent columns, by "
            f"{digits(-judged.gain)} nats a row: {_loss(analysis)} Do not interpret the interactions; try "
            f"{option('full', True)}, or a larger {option('l1')}."
        )
    if fit.refit is not None and fit.refit.status == "shortened":
        warnings.append(
            "The best coefficients do not define a distribution (its integral is infinite), so they stop "
            f"{100 * fit.refit.way:.3g} % of the way there."
        )
    if fit.family.name == "gaussian" and not analysis.fit.is_full:
        warnings.append(
            f"Without {option('full', True)} every column of a Gaussian root model has mean zero: unless the columns "
            "were centred, their means are mistaken for variance and dependence."
        )
    if "cannot be normalised" in analysis.no_log_partition or "undecided" in analysis.no_log_partition:
        warnings.append(f"The regressions need not define one joint distribution: {analysis.no_log_partition}.")
    return warnings


def _loss(analysis: RootAnalysis) -> str:
    """Why a model predicts worse than independent columns."""
    refit = analysis.fit.refit
    if refit is not None and refit.method == "all":
        return "what it learned from the training rows does not hold on these."
    remedy = option("refit", "all")
    return f"averaging the columns' regressions lost more than their interactions gain ({remedy} mends that)."


def _scores(analysis: RootAnalysis) -> Section:
    section = Section("How well it predicts rows")
    names = _law_names(analysis)
    rows: list[list[object]] = []
    drawn: dict[str, dict[str, Scores]] = {}
    for name, entry in analysis.held.items():
        drawn[name] = {names[law]: scores for law, scores in {**entry.baselines, "": entry.scores}.items()}
        for law, law_scores in drawn[name].items():
            pseudo, gain = cell(law_scores.pseudo_nll), cell(entry.independent.pseudo_nll - law_scores.pseudo_nll)
            error = law_scores.pseudo_nll_std_error
            rows.append([name, law, law_scores.rows, pseudo, error, gain, cell(law_scores.nll), cell(law_scores.kl)])
    columns = ["part", "model", "rows", "pseudo-NLL", "SE", "gain", "NLL", "KL"]
    section.table(columns, rows, brief=len(rows))
    if any(math.isfinite(s.pseudo_nll) for entry in analysis.held.values() for s in entry.baselines.values()):
        section.figure(root_scores_figure(drawn), "Pseudo-NLL of the model and of simpler ones; shorter is better")
    section.note(
        "In nats a row. Pseudo-NLL: sum over the columns of minus the log-probability of a cell given the rest of its "
        "row, with its standard error (SE); for independent columns it is the NLL itself. Gain: by how much it is "
        "lower than that of independent columns of the family. NLL (minus the log-probability of a row) and KL "
        "(Kullback-Leibler divergence from the observed frequencies) need the normalising constant, and are given "
        "where it is exact."
    )
    known = {name: part.independent for name, part in analysis.held.items()}
    distinct = [
        name for name, law_scores in known.items() if rows_are_distinct(law_scores.rows, law_scores.nll, law_scores.kl)
    ]
    if distinct:
        section.note(distinct_sentence(distinct), brief=True)
    return section


def _network(analysis: RootAnalysis) -> Section:
    section = Section("What varies together")
    terms = [term for size in _sizes(analysis) for sign, _ in _SIGNS for term in _terms_of(analysis, size, sign)]
    terms = sorted((standardise_term(term, analysis.scales) for term in terms), key=lambda term: -abs(term.coefficient))
    if terms:
        about = "The strongest interactions: columns on a circle, pairs as arcs, larger sets as regions or stars"
        section.figure(root_network_figure(terms, max_variables=_DRAWN), about)
        num = len({name for term in terms for name in term.names})
        if num > _DRAWN:
            section.note(f"Drawn are {_DRAWN} of {num} columns with interactions, those of the strongest ones.")
    if not section.blocks:
        section.text("No interaction gains more than its penalty: the columns are independent.")
        return section
    section.note(
        "Columns rise together where the coefficient of their interaction is positive, and avoid each other where it "
        "is negative. Wider is stronger, relative to the strongest interaction of the same size. A missing "
        "interaction does not mean independence, and an interaction does not mean cause."
    )
    return section


def _cells(analysis: RootAnalysis, terms: Sequence[RootTerm], sign: int, has_roots: bool) -> list[list[object]]:
    between = " + " if sign > 0 else " − "
    cells: list[list[object]] = []
    for term in terms:
        values = [term.coefficient, term.coefficient / math.factorial(term.key[1])]
        if analysis.scales:
            values.append(standardise_term(term, analysis.scales).coefficient)
        cells.append([between.join(term.names), *map(_signed, values), *([term.key[0]] if has_roots else [])])
    return cells


def _signed(value: float | None) -> Cell:
    return cell(value, coefficient)


def _tuples(analysis: RootAnalysis, size: int) -> Section:
    section = Section(_SIZES.get(size, f"Sets of {size}"))
    for sign, words in _SIGNS:
        terms = _terms_of(analysis, size, sign)
        if not terms:
            continue
        columns = ["columns", "coefficient", "tensor entry"]
        if analysis.scales:
            columns.append("per standard deviation")
        has_roots = len({term.key[0] for term in terms}) > 1
        if has_roots:
            columns.append("root")
        cells = _cells(analysis, terms, sign, has_roots)
        shown = f", the {_FIRST} strongest first" if len(terms) > _FIRST else ""
        section.heading(f"{words} ({plural(len(terms), 'set')}{shown})", brief=True)
        section.table(columns, cells, first=_FIRST, further="Further sets", brief=_BRIEF)
    root = {2: "square roots", 3: "cube roots"}.get(size, f"{size}-th roots")
    units = ""
    if analysis.scales:  # Gaussian, whose statistic is the square: x itself for pairs
        root = "values" if size == 2 else f"absolute values to the power 2/{size}"
        units = (
            " It is in units of the columns; per standard deviation, it is that of columns divided by their standard "
            "deviations among the training rows. The penalty acts in units of the columns, so that a column of small "
            "numbers is shrunk more: rescale columns to similar spread before the fit."
        )
    way = f"the columns' own regressions were joined by '{analysis.fit.symmetrize}'"
    if analysis.fit.refit is not None and analysis.fit.refit.method == "all":
        way = "it was fitted together with all others"
    elif analysis.fit.symmetrize == "mean":
        way = "it is the mean over the columns' own regressions, with absent ones as zero (mean)"
    section.note(
        f"The coefficient multiplies the product of the columns' {root} in the log-density of a row (of a higher "
        f"root where one is named); {way}. The entry of the symmetric tensor is the coefficient over {size}!." + units
    )
    return section


def _confirmed(record: RootFitResult) -> Section:
    """The tests of all sets that the regressions found."""
    section = Section("Which interactions the rows confirm")
    if record.confirmation is None or not record.confirmation.tests:
        section.text("The regressions found no sets to test.")
        return section
    tests, rate = record.confirmation.tests, record.confirmation.false_discovery_rate
    section.text(kept_sentence(tests, rate, "training", "set"))
    add_tests(section, tests)
    section.note(
        "A penalty that predicts well keeps sets that are absent. p is two-sided, of all training rows, beside the "
        "other sets that are kept: of the sum of the products of roots, given how often each value of a column occurs "
        "and the statistics of the other sets (a saddle-point tail, good to the smallest counts), so that columns may "
        "vary as they like by themselves. It is the largest of the p-values of its columns. The Benjamini-Hochberg "
        "procedure over all sets keeps the expected share of absent ones among the kept below the rate. Replaced: "
        "confirmed alone, but not beside the sets named. The model above keeps all sets for prediction."
    )
    return section


def _singles(analysis: RootAnalysis) -> Section:
    section = Section("Single columns")
    lower = [key for key in sorted(analysis.fit.num_terms) if key[1] == 1 and key[0] > 1]
    of_roots = {key: {term.names: term.coefficient for term in analysis.fit.terms(key)} for key in lower}

    columns = ["column", "coefficient", *(_ROOTS.get(j, f"{j}-th root") for j, _ in lower)]
    singles = sorted(analysis.fit.terms((1, 1)), key=lambda term: -term.coefficient)
    rows: list[list[object]] = []
    for term in singles:
        values = [term.coefficient, *(of_roots[key].get(term.names) for key in lower)]
        rows.append(["".join(term.names), *map(_signed, values)])
    section.table(columns, rows, first=_FIRST, further="Further columns", brief=_BRIEF)
    sentence = "Coefficient of the column itself, largest first; no penalty shrinks it."
    if lower:
        sentence += " Those of its roots let it vary more (or less) than the family allows for independent columns."
    section.note(sentence)
    return section


def _path(analysis: RootAnalysis) -> Section:
    section = Section("The penalty")
    section.table(
        ["penalty", "interactions", "pseudo-NLL train", "pseudo-NLL validation", "largest residual"],
        [
            [
                cell(s.l1, "{:g}".format),
                s.num_terms,
                cell(s.train),
                cell(s.validation),
                cell(s.kkt_residual, "{:.1e}".format),
            ]
            for s in analysis.path
        ],
        chosen=next(i for i, s in enumerate(analysis.path) if s.l1 == analysis.l1),
    )
    if all(math.isfinite(s.train) and math.isfinite(s.validation or 0.0) for s in analysis.path):
        drawing = penalty_path_figure(analysis.path, analysis.l1 or 0.0)
        section.figure(drawing, "Pseudo-NLL and number of interactions against the penalty")
    section.note("The penalty with the lowest pseudo-NLL on the validation rows was kept.")
    return section


def _trust(analysis: RootAnalysis) -> Section:
    section = Section("How it was estimated")
    fit = analysis.fit
    state = "all converged" if fit.is_converged else "not all of them converged"
    section.text(
        f"Learning: one l1-penalised regression a column, {state}; the largest violation of the optimality conditions, "
        f"over all possible interactions, is {float(fit.kkt_residual.max()):.1e} (tolerance "
        f"{fit.tolerance:.1e}). The regressions were learned one by one and then joined. {_refitted(analysis)}"
    )
    log_z = analysis.log_partition
    remedy = f"annealed importance sampling ({option('method', 'ais')})"
    words = (
        "The normalising constant is not known exactly here, so there are pseudo-likelihoods but no likelihoods "
        f"({analysis.no_log_partition.split('; for an estimate')[0]}). {remedy} estimates it with an error bar."
    )
    if log_z is not None:
        words = f"Log normalising constant: {float(log_z.value):.8g} ({log_z.method}, exact)."
    section.text(words)
    slowest = sorted(fit.nodes, key=lambda node: -node.kkt_residual)[:_NODES]
    rows = [
        [n.variable, len(n.terms), cell(n.objective), cell(n.kkt_residual, "{:.1e}".format), n.num_steps, n.status]
        for n in slowest
    ]
    columns = ["column", "interactions", "objective", "residual", "steps", "state"]
    section.table(columns, rows, folded=f"Regressions with the largest residuals ({len(slowest)})")
    section.note("Time: " + ", ".join(f"{s} {value:.1f} s" for s, value in analysis.seconds.items()) + ".")
    return section


def _refitted(analysis: RootAnalysis) -> str:
    """What was done after joining, and what it brought on the training rows."""
    refit = analysis.fit.refit
    if refit is None:
        return "The joint model fits a little worse than each regression by itself."
    what = "all coefficients" if refit.method == "all" else "the coefficients of single columns"
    penalty = f" under {100 * refit.share:g} % of the penalties" if refit.method == "all" else ""
    return (
        f"Then {what} were fitted again, together{penalty}: pseudo-NLL of the training rows "
        f"{digits(refit.joined_pseudo_nll)} before, {digits(refit.pseudo_nll)} after, "
        f"{digits(refit.independent_pseudo_nll)} of independent columns ({refit.status.replace('_', ' ')}, residual "
        f"{refit.kkt_residual:.1e})."
    )
