"""The page of a root model of several kinds of columns. Nothing is computed here but formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from ...core.page import Block, Section
from ...core.words import coefficient, plural
from ...plots.drawing import figure_of
from ...plots.intervals import plot_forest
from ...results.confirmation import InteractionTest
from ..dispersion import dispersion_caveats
from ..nodes.families import IndicatorFamily, NodeFamily
from ..regress.result import RootFitResult
from .fitted import FittedColumn, fitted_figure
from .sets import ColumnSet, levels_of, sets_by_strength

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
        _levels_table(section, fit, one)
    return section


def _levels_table(section: Section, fit: RootFitResult, one: ColumnSet) -> None:
    """Coefficients of a set by the levels of its categories."""
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
