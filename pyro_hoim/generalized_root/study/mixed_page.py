"""The page of a root model of several kinds of columns. Nothing is computed here but formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ...core.page import Block, Section
from ...core.prediction import Prediction
from ...core.words import coefficient, plural
from ...data.counts import CountTable
from ...plots.drawing import BLUE, FAINT, FONT, INK, KINDS, SLATE, WIDTH, figure_of, plain_axes, wrapped
from ...plots.intervals import plot_forest
from ...results.confirmation import InteractionTest
from ..dispersion import dispersion_caveats
from ..nodes.families import IndicatorFamily, NodeFamily
from ..regress.result import RootFitResult
from .prediction import RootPrediction, conditional_law, predict_roots
from .scores import ColumnSet, RootModel, levels_of, sets_by_strength

_FIRST, _BRIEF = 8, 6
_WIDE, _NARROW = 8, 5  # sets in the first picture
_NAMED = 3  # sets in the summary
_DRAWN = 6  # columns on a small screen
_LEVELLED = 6  # sets whose levels have a table of their own
_WORDS = {"poisson": "count", "exponential": "positive number", "gaussian": "real number"}


def joined(names: Sequence[str]) -> str:
    """Names in a sentence, all of them."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def effects_section(sentences: Sequence[str]) -> Section | None:
    """What a change of one column does to another, in words."""
    shown = [sentence for sentence in sentences[1:] if not sentence.startswith("effects()")]
    if not shown:
        return None
    section = Section("In words")
    for sentence in shown:
        section.text(f"{sentence.rstrip('.')}.")
    section.note(
        "The clearest effect of every pair of columns, where all others are at their medians or most frequent values. "
        "Intervals are conditional on the selection of the sets, which they do not account for."
    )
    return section


def column_sets(fit: RootFitResult) -> list[ColumnSet]:
    """The sets of columns that vary together, the strongest first."""
    terms = [term for term in fit.terms() if term.key[1] > 1]
    return sets_by_strength(terms, fit.scales, fit.domain, set_namer(fit))


def set_namer(fit: RootFitResult) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """What names the columns of some variables."""
    named = fit_namer(fit)
    return lambda names: tuple(dict.fromkeys(map(named, names)))


def fit_namer(fit: RootFitResult) -> Callable[[str], str]:
    """What names the column of a variable, a category as one; other names stay."""
    if fit.columns is not None:
        columns = fit.columns.column_of
    else:
        pairs = zip(fit.domain.names, fit.families, strict=True)
        columns = {name: one.category if isinstance(one, IndicatorFamily) else name for name, one in pairs}
    return lambda name: columns.get(name, name)


def tests_by_set(fit: RootFitResult, tests: Sequence[InteractionTest]) -> dict[tuple[str, ...], InteractionTest]:
    """The tests by sets of columns."""
    named = set_namer(fit)
    return {named(test.edge): test for test in tests}


def direction(one: ColumnSet) -> str:
    """How the columns of a set go together, in words."""
    value = one.coefficient
    if value is None:
        return "differ by level"
    return "rise together" if value > 0 else "avoid each other"


def columns_section(fit: RootFitResult) -> Section:
    """The family of every column, and why it has it."""
    section = Section("The columns")
    if fit.columns is not None:
        rows = [[c.name, c.family_words, c.values_words, c.reason] for c in fit.columns.columns]
        rows += [[name, "left out", "", reason] for name, reason in fit.columns.left_out.items()]
        section.table(["column", "kind", "values", "because"], rows, first=_FIRST + 4, further="Further columns")
    else:
        named = set_namer(fit)
        pairs = zip(fit.domain.names, fit.families, strict=True)
        kinds = {named([name])[0]: _kind_words(family) for name, family in pairs}
        section.table(["column", "kind"], list(kinds.items()), first=_FIRST + 4, further="Further columns")
    section.note(
        "Given all other columns, a count has a Poisson distribution, a positive number an exponential one, a real "
        "number a normal one, and a 0/1 column or a category has probabilities of its levels."
    )
    return section


def _kind_words(family: NodeFamily) -> str:
    if isinstance(family, IndicatorFamily):
        return "category"
    if family.name == "truncated-poisson":
        largest = int(family.largest_value)
        return "0/1" if largest == 1 else f"count from 0 to {largest}"
    return _WORDS.get(family.name, family.name)


def kinds_sentence(fit: RootFitResult) -> str:
    """How many columns of each kind there are."""
    named, seen = set_namer(fit), dict[str, str]()
    for name, family in zip(fit.domain.names, fit.families, strict=True):
        words = _kind_words(family)
        seen[named([name])[0]] = "0/1 column" if words == "0/1" else "count" if words.startswith("count") else words
    many = {"category": "categories"}
    return joined([plural(number, kind, many.get(kind, "")) for kind, number in Counter(seen.values()).items()])


def summary_sentences(fit: RootFitResult, tests: Sequence[InteractionTest], p_text: Callable[..., str]) -> list[str]:
    """What varies together and which sets are strongest."""
    sets, by_set = column_sets(fit), tests_by_set(fit, tests)
    number = plural(len(sets), "set") + " of columns that vary together"
    begin = f"In {plural(fit.num_rows, 'row')} of {kinds_sentence(fit)}, "
    if not sets:
        return [f"{begin}no columns vary together."]
    is_kept = sum(test.is_kept for test in tests)
    known = f", and tests confirm {is_kept or 'none'} of them" if tests else ", which nothing has tested"
    sentences = [f"{begin}regressions find {number}{known}."]
    # The strongest of those that rows confirm, where any are.
    shown = [one for one in sets if one.names in by_set and by_set[one.names].is_kept] or sets
    words = [f"{joined(one.names)} {direction(one)}{_p_of(one, by_set, p_text)}" for one in shown[:_NAMED]]
    sentences.append(f"The strongest, given all other columns: {'; '.join(words)}.")
    return sentences


def _p_of(one: ColumnSet, tests: dict[tuple[str, ...], InteractionTest], p_text: Callable[..., str]) -> str:
    text = p_text(tests[one.names].p_value) if one.names in tests else ""
    return f" ({text.removeprefix(', ')})" if text else ""


def sets_picture(fit: RootFitResult) -> Block | None:
    """Strengths of the strongest sets, fewer on a small screen."""
    sets = column_sets(fit)
    if not sets:
        return None

    def drawn(most: int, legend: bool = True) -> Figure:
        labels = [f"{joined(one.names)} ({direction(one)})" for one in sets[:most]]
        values = np.array([one.strength for one in sets[:most]])
        none = np.full(len(values), np.nan)
        beside = [f"{value:.2g}" for value in values]
        options = {"reference": None, "beside": beside, "label": "strength, per standard deviation", "legend": legend}
        return figure_of(plot_forest, labels, values, none, none, **options)

    about = "Strongest sets: coefficients per standard deviation, so that columns of all kinds and units compare"
    return Block("figure", about, drawing=drawn(_WIDE), narrow=drawn(_NARROW, legend=False))


def sets_section(fit: RootFitResult, tests: Sequence[InteractionTest]) -> Section:
    """Every set of columns, then the levels of those with a category."""
    section = Section("What varies together")
    sets, by_set = column_sets(fit), tests_by_set(fit, tests)
    if not sets:
        section.text("No columns vary together.")
        return section
    rows = list[list[object]]()
    for one in sets:
        test = by_set.get(one.names)
        value = one.coefficient
        row: list[object] = [" + ".join(one.names), direction(one), one.strength]
        row.append("by level" if value is None else coefficient(value))
        row.append("" if test is None else "yes" if test.is_kept else "no")
        rows.append(row)
    columns = ["columns", "how", "strength", "coefficient", "confirmed"]
    if not tests:
        rows, columns = [row[:-1] for row in rows], columns[:-1]
    section.table(columns, rows, first=_FIRST, further="Further sets", brief=_BRIEF)
    section.note(
        "The coefficient multiplies the product of the roots of the columns in the log-density of a row: the square "
        "roots of two counts or positive numbers, a real number as it is (measured from the origin in the table of "
        "columns), and 1 for a level that a row has. The strength is its size where every root is divided by its "
        "standard deviation among the training rows. Of levels only differences between coefficients have a meaning."
    )
    for one in [one for one in sets if one.coefficient is None][:_LEVELLED]:
        # Coefficients of a set by the levels of its categories.
        values = [levels_of(fit.columns, term.names) for term in one.terms]
        names = [name for name in one.names if any(name in level for level in values)]
        section.heading(f"{joined(one.names)}, by level of {joined(names)}" if names else joined(one.names))
        if names:
            rows = [
                [*(level.get(name, "") for name in names), coefficient(term.coefficient)]
                for level, term in zip(values, one.terms, strict=True)
            ]
            section.table([*names, "coefficient"], rows, first=_FIRST, further="Further levels")
        else:
            rows = [[" + ".join(term.names), coefficient(term.coefficient)] for term in one.terms]
            section.table(["variables", "coefficient"], rows, first=_FIRST, further="Further levels")
    return section


def fitted_section(fitted: Sequence[FittedColumn], part: str) -> Section | None:
    """Observed beside fitted values of every column."""
    if not fitted:
        return None
    section = Section("Observed and fitted")
    about = f"The {part} rows beside what the model expects of every column given all others"
    wide, narrow = fitted_figure(fitted), fitted_figure(fitted[:_DRAWN], across=1)
    section.figure(wide, about, narrow=narrow)
    section.note(
        "Of labels: groups of rows by the fitted probability of a level, against the share that has it. On the line "
        "the probabilities are right. Of counts and numbers: how often each value occurs, and the mean of the fitted "
        "distributions; a column that the model describes well has points at the tops of the bars."
    )
    return section


def limits(fit: RootFitResult) -> list[str]:
    """What limits the page of columns of several kinds, beside what limits every page."""
    sentences = list[str]()
    families = {family.name for family in fit.families}
    if "exponential" in families:
        sentences.append(
            "A positive number is taken to be exponential given the other columns, that is with a standard deviation "
            "as large as its mean; see the picture of observed and fitted values."
        )
    sentences += dispersion_caveats(fit.dispersion)
    has_roots = fit.order > 2 or any(one.kind != "real" and one.largest_value > 1 for one in fit.families)
    if fit.columns is not None and any(column.origin for column in fit.columns.columns) and has_roots:
        sentences.append(
            "Real numbers are measured from a rounded mean; how they act on counts and positive numbers depends on it."
        )
    return sentences


# What rows hold beside what a mixed root model expects of every column given all others: pictures of a page.

Floats = NDArray[np.float64]

_MOST_ROWS = 1000
_MOST_COLUMNS = 10
_GROUPS = 8  # of rows by their fitted shares
_FLAT = 0.05  # fitted shares that hardly differ
_BARS = 15  # of counts
_CELLS = 24  # of a histogram
_LEVELS = 5  # of a category, in one panel


@dataclass(frozen=True, eq=False)
class FittedColumn:
    """One column of some rows beside its conditional laws given all others.

    Attributes:
        name: of the column.
        kind: ``labels``; ``counts`` of a few values; ``numbers`` in cells of equal width.
        at: of labels the mean fitted share of every group of rows; of counts the values, of numbers the edges of cells.
        observed: share of the rows.
        expected: mean share over the conditional laws; of labels the same as ``at``.
        level: of labels, the level of every group.
    """

    name: str
    kind: Literal["labels", "counts", "numbers"]
    at: Floats
    observed: Floats
    expected: Floats
    level: tuple[str, ...] = ()


def fitted_columns(model: RootModel, table: CountTable, names: Sequence[str]) -> tuple[FittedColumn, ...]:
    """Columns of at most 1,000 rows, evenly spaced, beside what the model expects of them; at most 10 columns."""
    places = np.arange(min(_MOST_ROWS, table.num_rows)) * table.num_rows // max(min(_MOST_ROWS, table.num_rows), 1)
    rows, fitted = table.rows(places), list[FittedColumn]()
    for name in [name for name in names if name not in model.fixed][:_MOST_COLUMNS]:
        prediction = predict_roots(model, rows, name)
        if isinstance(prediction, Prediction):
            fitted.append(_labels(prediction))
        elif prediction.family is not None and float(prediction.std.max(initial=0.0)) > 0:
            fitted.append(_numbers(prediction))
    return tuple(fitted)


def _labels(prediction: Prediction) -> FittedColumn:
    """Observed shares of levels in groups of rows with about the same fitted share; of two levels the second alone."""
    probs, truth = prediction.probs.numpy(), prediction.truth.numpy()
    shares = probs.mean(0)
    levels = [1] if len(prediction.labels) == 2 else np.argsort(-shares, kind="stable")[:_LEVELS].tolist()
    at, observed, level = list[float](), list[float](), list[str]()
    for code in levels:
        spread = float(np.ptp(np.quantile(probs[:, code], [0.05, 0.95])))
        groups = min(_GROUPS, len(truth)) if spread > _FLAT else 1  # groups of equal probabilities differ by chance
        for group in np.array_split(np.argsort(probs[:, code], kind="stable"), groups):
            at.append(float(probs[group, code].mean()))
            observed.append(float((truth[group] == code).mean()))
            level.append(prediction.labels[code])
    return FittedColumn(prediction.target, "labels", np.array(at), np.array(observed), np.array(at), tuple(level))


def _numbers(prediction: RootPrediction) -> FittedColumn:
    """Shares of values, or of cells, among the rows and in the mean of their conditional laws."""
    assert prediction.family is not None
    assert prediction.natural is not None
    assert prediction.values is not None
    points, probs = conditional_law(
        prediction.family, prediction.natural, prediction.mean - prediction.origin, prediction.std
    )
    values, points = prediction.values, points + prediction.origin
    top = float(values.max())
    if prediction.family.is_discrete and top < _BARS:
        at = np.arange(top + 1)
        observed = np.array([(values == value).mean() for value in at])
        expected = np.array([probs[points == value].sum() / len(values) for value in at])
        return FittedColumn(prediction.target, "counts", at, observed, expected)
    # Cells that hold nearly all rows; of counts their edges are between whole numbers.
    low, high = np.quantile(values, [0.005, 0.995])
    edges = np.linspace(low, max(high, low + 1e-12), _CELLS + 1)
    if prediction.family.is_discrete:
        edges = np.unique(np.round(edges)) - 0.5
        edges = np.append(edges, edges[-1] + 1)
    observed = np.histogram(values, edges)[0] / len(values)
    expected = np.histogram(points, edges, weights=probs)[0] / len(values)
    return FittedColumn(prediction.target, "numbers", edges, observed, expected)


def fitted_figure(columns: Sequence[FittedColumn], *, across: int = 2) -> Figure:
    """A panel for every column: shares of labels along a diagonal, counts as bars, numbers as a histogram.

    Args:
        columns: what is drawn.
        across: panels in a row.

    Example:
        >>> half = np.array([0.5, 0.5])
        >>> figure = fitted_figure([FittedColumn("visits", "counts", np.arange(2.0), half, half)])
        >>> figure.axes[0].get_title()
        'visits'
    """
    across = min(across, len(columns))
    down = -(-len(columns) // across)
    figure = Figure(figsize=(WIDTH, 0.55 + 2.05 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes in grid[len(columns) :]:
        axes.set_visible(False)
    draw = {"labels": _draw_labels, "counts": _draw_counts, "numbers": _draw_numbers}
    handles: dict[str, Any] = {}
    for axes, column in zip(grid, columns, strict=False):
        draw[column.kind](axes, column)
        axes.set_title(wrapped(column.name, 26), color=INK, fontsize=FONT + 0.5)
        if column.kind != "labels":
            axes.set_ylim(bottom=0)
            handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=column.kind == "counts"))
        axes.yaxis.set_major_locator(MaxNLocator(3))
    if handles:
        options = {"frameon": False, "fontsize": FONT, "labelcolor": INK, "ncols": 2}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", **options)
    return figure


def _draw_labels(axes: Any, column: FittedColumn) -> None:
    """Observed against fitted shares."""
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.0, zorder=1)
    levels = list(dict.fromkeys(column.level))
    for number, level in enumerate(levels):
        inside = np.array([one == level for one in column.level])
        colour = SLATE if len(levels) == 1 else KINDS[number % len(KINDS)]
        axes.plot(column.at[inside], column.observed[inside], "o", color=colour, markersize=4, label=wrapped(level, 14))
    most = min(1.0, 1.08 * float(max(column.at.max(), column.observed.max(), 0.05)))
    least = max(0.0, float(min(column.at.min(), column.observed.min())) - 0.05)
    axes.set_xlim(least, most)
    axes.set_ylim(least, most)
    plain_axes(axes, f"fitted share of {levels[0]}" if len(levels) == 1 else "fitted share", "observed share")
    if len(levels) > 1:
        axes.legend(frameon=False, fontsize=FONT - 1.5, labelcolor=INK, handletextpad=0.1, loc="upper left")


def _draw_counts(axes: Any, column: FittedColumn) -> None:
    """Bars of the rows, and points of the model."""
    axes.bar(column.at, column.observed, color=FAINT, width=0.8, label="observed")
    axes.plot(column.at, column.expected, "o", color=BLUE, markersize=4, label="fitted")
    plain_axes(axes, "value", "share of rows")


def _draw_numbers(axes: Any, column: FittedColumn) -> None:
    """A histogram of the rows, and the mean density of the model."""
    width = np.diff(column.at)
    middle = column.at[:-1] + width / 2
    axes.bar(middle, column.observed / width, color=FAINT, width=width, label="observed")
    axes.plot(middle, column.expected / width, "o-", color=BLUE, markersize=2.5, linewidth=1.2, label="fitted")
    axes.ticklabel_format(axis="both", style="plain", useOffset=False)
    plain_axes(axes, "value", "density")
