"""The answer of a page: what interacts, in sentences with odds ratios, as a picture, and the table behind both."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..core.page import Block, Cell, Section
from ..core.words import listed, number, plural, shorten
from ..errors import visible
from ..plots.drawing import figure_of
from ..plots.intervals import plot_forest
from .contrasts import step_up

CAUTION = "These are associations given the other columns, not causes."
"""What limits every answer."""
_NO_ERRORS = "no standard errors: "
_ALONE = "These are associations of two columns at a time, which other columns may explain, not causes."

NONE = "A model without interactions does not show that the columns are independent."
_CHOSEN = "The pairs were chosen in these rows for being strong, so that new rows are likely to show weaker ones."
_STRONGEST = 3  # interactions with a sentence
_WIDE, _NARROW = 6, 3  # odds ratios in the picture
_HUGE = 1e6  # odds ratios from which on only their size is worth saying
_MOST_REFITS = 12  # tests that take a fit each
_REAL = 0.05  # adjusted p-value up to which an interaction is beyond chance
_SHOWN = 10  # in the table, before further ones
_NAME, _LEVEL = 26, 18  # characters of a column and of a level in a sentence
_ROOM = 50  # characters of a line of the picture, with the numbers at its right
_NUMBER = r"(-?\d[\d.]*(?:e[+-]?\d+)?)"
_RANGES = (
    (re.compile(rf"< ?{_NUMBER}"), "below {}"),
    (re.compile(rf">= ?{_NUMBER}"), "{} or more"),
    (re.compile(rf"\[{_NUMBER}, ?{_NUMBER}\)"), "{} to below {}"),
)  # levels that cutting a column of numbers makes


@dataclass(frozen=True)
class Ratio:
    """One odds ratio, as a row of ``odds_ratios()`` says it; limits and adjusted p may be NaN."""

    names: tuple[str, ...]
    levels: str
    value: float
    lower: float
    upper: float
    p_value: float = math.nan

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return not (math.isnan(self.lower) and math.isnan(self.upper))

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes a ratio of one, and the test too, which counts how many are made."""
        return (self.lower > 1 or self.upper < 1) and not self.p_value > _REAL

    @property
    def is_estimated(self) -> bool:
        """Whether the rows tell the ratio; of an infinite or zero one at least a limit."""
        if math.isinf(self.value) or self.value == 0:
            return math.isfinite(self.lower if self.value else self.upper)
        return not math.isnan(self.value)

    @property
    def steps(self) -> list[tuple[str, str]] | None:
        """Level and reference of every column; None where the words do not say them, as of terms of a formula."""
        rest, parts = self.levels, list[str]()
        for name, after in zip(self.names, [*self.names[1:], None], strict=True):
            if not rest.startswith(f"{name}="):
                return None
            rest = rest[len(name) + 1 :]
            part, _, rest = (rest, "", "") if after is None else rest.partition(f", {after}=")
            parts.append(part)
            rest = f"{after}={rest}"
        pairs = [part.split(" vs ") for part in parts]
        return [(pair[0], pair[1]) for pair in pairs] if all(len(pair) == 2 for pair in pairs) else None

    @property
    def interval(self) -> str:
        """The interval in words, behind the ratio; nothing where there is none."""
        return f" (95 % CI {ratio_text(self.lower)} to {ratio_text(self.upper)})" if self.has_interval else ""

    def sentence(self, where: str = "", outcome: str | None = None) -> str:
        """What it says, in the words of the levels.

        Args:
            where: at which levels of other columns.
            outcome: the column whose odds are compared, where it is one of these; else the last.
        """
        steps, order = self.steps, sorted(range(len(self.names)), key=lambda i: self.names[i] == outcome)
        names = [shorten(self.names[i], _NAME) for i in order]
        steps = None if steps is None else [steps[i] for i in order]
        if steps is None or len(steps) > 3:
            return f"{' and '.join(names)}: odds ratio {ratio_text(self.value)} for {self.levels}{self.interval}."
        levels = [(at_level(name, step[0]), level_words(step[1])) for name, step in zip(names, steps, strict=True)]
        compared = f"with {levels[-2][0]} as with {levels[-2][1]}"
        event = f"{levels[-1][0]} (not {levels[-1][1]})"
        if len(steps) == 3:
            return (
                f"{names[1]} and {names[2]} go together differently by {names[0]}: their odds ratio is "
                f"{ratio_text(self.value)} times as large with {levels[0][0]} as with {levels[0][1]}{self.interval}."
            )
        if math.isinf(self.value) or self.value == 0:
            end = f"from {ratio_text(self.lower)}" if self.value else f"up to {ratio_text(self.upper)}"
            known = f" (95 % CI {end})" if self.has_interval else ""
            many = "infinitely many" if self.value else "zero"
            return f"The odds of {event} are {many} times as high {compared}{where}{known}."
        return f"The odds of {event} are {ratio_text(self.value)} times as high {compared}{where}{self.interval}."

    @property
    def numbers(self) -> str:
        """The ratio and its interval, for a picture."""
        limits = f" ({ratio_text(self.lower)} to {ratio_text(self.upper)})" * self.has_interval
        return f"{ratio_text(self.value)}{limits}"

    def label(self, width: int) -> str:
        """What it compares, for a picture: in one line of so many characters, or a line for every column."""
        steps = self.steps
        if steps is None:
            return f"{':'.join(self.names)} ({self.levels})"
        parts = [visible(f"{n} {level} / {before}") for n, (level, before) in zip(self.names, steps, strict=True)]
        line = " and ".join(parts)
        return line if len(line) <= width else "\n".join(parts)


@dataclass(frozen=True)
class OddsAnswer:
    """What odds ratios say of a table.

    Attributes:
        sentences: at most five.
        picture: of the strongest interactions; None without any.
        section: the table of all; None without any.
        limits: what limits them.
    """

    sentences: tuple[str, ...]
    picture: Block | None
    section: Section | None
    limits: tuple[str, ...]


def ratio_text(value: float) -> str:
    """An odds ratio with the digits that count.

    Example:
        >>> [ratio_text(value) for value in (0.05234, 0.95, 1.2345, 11.42, 126.4, 2.3e9)]
        ['0.052', '0.95', '1.23', '11.4', '126', '2.3e9']
    """
    if not math.isfinite(value) or value == 0:
        return number(value)
    if value >= _HUGE:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:,.0f}" if value >= 99.5 else f"{value:#.3g}" if value >= 1 else f"{value:#.2g}"


def level_words(level: str) -> str:
    """A level in a sentence: one of a column that was cut is a range in words, another is as it is called.

    Example:
        >>> [level_words(level) for level in ("<31", ">=74", "[60, 74)", "primary school")]
        ['below 31', '74 or more', '60 to below 74', 'primary school']
    """
    for pattern, words in _RANGES:
        match = pattern.fullmatch(level)
        if match is not None:
            return words.format(*match.groups())
    return shorten(level, _LEVEL)


def at_level(name: str, level: str) -> str:
    """A column at a level, in a sentence: ``smoke = yes``, ``age 74 or more``."""
    words = level_words(level)
    return f"{name} {words}" if words != shorten(level, _LEVEL) else f"{name} = {words}"


def odds_answer(
    table: pd.DataFrame,
    where: str,
    most: int = 5,
    tests: pd.DataFrame | None = None,
    target: str | None = None,
    confirmed_at: float | None = None,
    effects: Sequence[str] = (),
) -> OddsAnswer:
    """Sentences, a picture and a section on the odds ratios of a result.

    Args:
        table: what ``odds_ratios()`` of a result gives, the strongest first, with its ``attrs``.
        where: the rows that they are of, such as ``"2,201 rows"``.
        most: sentences, at least two.
        tests: what ``test_terms()`` gives, which then says what is beyond chance. It looks at all levels of an
            interaction, where one odds ratio looks at two, and at the reference levels of what changes it.
        target: the column that a reader asks about; its interactions come first, and the odds are its own.
        confirmed_at: the false discovery rate of the tests that chose all interactions, if tests did. Without tests of
            any kind nothing is called real.
        effects: sentences on the clearest effects, which then stand for those with odds ratios: those of numbers
            compare two values where every other column has one value, too.
    """
    rows = table.to_dict("records")
    ratios = [Ratio(tuple(row["term"].split(":")), row["levels"], *_numbers(row)) for row in rows]
    if not ratios:
        return OddsAnswer((f"In {where}, the model has no interaction.",), None, None, (NONE,))
    where = f"rows with {where}" if where.startswith("weights") else where
    # The first odds ratio of an interaction that rows tell is its most certain one, else one that exists.
    absent, by_names = set(table.attrs.get("absent", ())), dict[tuple[str, ...], Ratio]()
    for ratio in sorted(ratios, key=lambda r: (not r.is_estimated, (":".join(r.names), r.levels) in absent)):
        by_names.setdefault(ratio.names, ratio)
    best = [by_names[names] for names in dict.fromkeys(ratio.names for ratio in ratios)]
    best.sort(key=lambda ratio: target is not None and target not in ratio.names)
    has_intervals = any(ratio.has_interval for ratio in best)
    unknown = [r for r in best if not r.is_estimated and (":".join(r.names), r.levels) not in absent]
    clear = [r for r in best if r.is_estimated and (r.is_clear or not has_intervals)]
    # Columns go together, too, whose larger interaction is real.
    adjusted = {} if tests is None else dict(zip(tests["term"], tests["p_value_adjusted"], strict=True))
    is_all = confirmed_at is not None
    counts = Counter(ratio.names for ratio in ratios)
    judged = [r for r in best if is_all or _is_real(r, adjusted.get(":".join(r.names), math.nan), counts[r.names])]
    real = [r for r in best if any(set(r.names) <= set(larger.names) for larger in judged)]
    if has_intervals:
        clear = [r for r in clear if r in real]
    others = [r for r in real if r not in clear]
    unclear = [r for r in best if has_intervals and r.is_estimated and r not in real]
    unknown = [r for r in unknown if r not in real]
    total = plural(len(best), "interaction")
    is_tested = is_all or bool(adjusted) or any(not math.isnan(ratio.p_value) for ratio in best)
    if confirmed_at is not None:
        wrong = f"at most {100 * confirmed_at:g} % of such findings are expected to be wrong"
        first = f"In {where}, tests confirm {total} ({wrong})."
    elif has_intervals and is_tested:
        verb = "is" if len(real) == 1 else "are"
        share = {1: "the only interaction", 2: "both interactions"}.get(len(best), f"all {total}")
        share = share if len(real) == len(best) else f"{len(real) or 'none'} of the {total}"
        first = f"In {where}, {share} in the model {verb} beyond chance (adjusted p at most {_REAL:g})."
    else:
        known = "clearest" if effects else "strongest"
        first = f"In {where}, the model has {total}. {'These are' if len(best) > 1 else 'This is'} the {known}."
    # The strongest one by one, those that cannot be told, and those of which the rows show nothing.
    references: dict[str, str] = {}
    for ratio in ratios:
        references |= {name: before for name, (_, before) in zip(ratio.names, ratio.steps or [], strict=False)}
    by = "a test of all levels" if confirmed_at is None else "their tests"
    endings = [f"Also beyond chance, by {by}: {_listed(others, 'and')}."] if others and is_tested else []
    endings += _absences(ratios, absent)
    endings += [f"The odds ratios of {_listed(unknown, 'and')} cannot be estimated."] if unknown else []
    endings += [f"These rows show no clear association of {_listed(unclear, 'or')}."] if unclear else []
    room = max(0, min(_STRONGEST, most - 1 - len(others[:1]) - len(unknown[:1]) - bool(absent)))
    strongest = [ratio.sentence(_modifiers(ratio, best, references), target) for ratio in clear[:room]]
    strongest = [f"{effect}." for effect in effects[: len(strongest)]] or strongest
    sentences = [first, *strongest, *endings]
    caution = _ALONE if table.attrs.get("is_crude") else CAUTION
    limits = (caution,) if has_intervals else (f"The odds ratios have no intervals.{_why(table)}", caution)
    limits = (f"An effect is that with {WHERE}.", *limits) if effects else limits
    limits += (_CHOSEN,) if table.attrs.get("is_searched") else ()
    # All odds ratios; those shown are never folded.
    section = Section("Odds ratios")
    heads = {"levels": "compared", "odds_ratio": "odds ratio", "lower": "lower", "upper": "upper", "p_value": "p"}
    heads |= {"p_value_adjusted": "adjusted p", "term": "interaction"}
    columns = [name for name in heads if name in table and table[name].notna().to_numpy().any()]
    rows = [[_cell(name, row[name]) for name in columns] for row in table.to_dict("records")]
    section.table([heads[name] for name in columns], rows, first=_SHOWN, further="Further odds ratios", brief=_SHOWN)
    notes = [f"{note[0].upper()}{note[1:].rstrip('.')}." for note in table.attrs.get("notes", ())]
    section.note(" ".join(notes))
    return OddsAnswer(tuple(sentences[:most]), _picture([*clear, *unclear]), section, limits)


def _absences(ratios: Sequence[Ratio], absent: Collection[tuple[str, str]]) -> list[str]:
    """A sentence on the odds ratios that compare what is declared impossible, and which of an interaction they are."""
    groups, total, num_lost = list[str](), len(ratios), 0
    for names in dict.fromkeys(ratio.names for ratio in ratios):
        of = [ratio for ratio in ratios if ratio.names == names]
        lost = [ratio for ratio in of if (":".join(names), ratio.levels) in absent]
        num_lost += len(lost)
        what = _listed(of[:1], "and")
        if lost and len(lost) < len(of):
            which = f" ({shorten(lost[0].levels, _ROOM)})" * (len(lost) == 1)
            groups.append(f"{len(lost)} of the {len(of)} of {what}{which}")
        elif lost:
            groups.append(f"{'that' if len(of) == 1 else f'all {len(of)}'} of {what}")
    if not groups:
        return []
    rest = "" if num_lost == total else "; the other one does" if num_lost == total - 1 else "; all others do"
    more = [f"some of {plural(len(groups) - 3, 'other interaction')}"] if len(groups) > 3 else []
    which = " and ".join(filter(None, [", ".join([*groups[:3], *more][:-1]), [*groups[:3], *more][-1]]))
    return [f"Odds ratios across declared impossible combinations do not exist, here {which}{rest}."]


def _why(table: pd.DataFrame) -> str:
    """A sentence on why there are no intervals, where a note of the table says so."""
    reasons = [note.removeprefix(_NO_ERRORS) for note in table.attrs.get("notes", ()) if note.startswith(_NO_ERRORS)]
    return f" The reason is that {reasons[0]}." if reasons else ""


def stored_tests(info: Mapping[str, Any]) -> pd.DataFrame | None:
    """The tests of interactions that a model file keeps, as :func:`odds_answer` takes them; None where it has none."""
    records = [record for record in info.get("uncertainty", ()) if record.get("p_value_adjusted") is not None]
    if not records:
        return None
    terms, p_values = [":".join(record["edge"]) for record in records], [r["p_value_adjusted"] for r in records]
    return pd.DataFrame({"term": terms, "p_value_adjusted": p_values})


def interaction_tests(result: Any, wald: pd.DataFrame) -> pd.DataFrame:
    """Wald's tests of the interactions of a fit, with likelihood ratios where an estimate is infinite.

    Args:
        result: the fit, which has ``test_terms``.
        wald: what it gives by ``method="wald"``.
    """
    is_open = wald["p_value"].isna().to_numpy()
    edges = {":".join(edge): edge for edge in result.hypergraph.edges}  # a name may hold a colon, too
    terms = [edges[term] for term in wald["term"][is_open] if term in edges]
    if not terms or len(terms) > _MOST_REFITS or len(terms) < is_open.sum():
        return wald
    ratios = result.test_terms(method="likelihood-ratio", terms=terms, p_value="chi-square", correction=None)
    p_values = wald["p_value"].to_numpy(dtype=float, copy=True)
    p_values[is_open] = ratios["p_value"].to_numpy(dtype=float)
    return wald.assign(p_value=p_values, p_value_adjusted=step_up(p_values))


def _is_real(ratio: Ratio, adjusted: float, number: int) -> bool:
    """Whether an interaction is beyond chance by its test, or without one by the best of a number of odds ratios."""
    if not math.isnan(adjusted):
        return adjusted <= _REAL
    # The best of several is small more often than one is (Bonferroni).
    return ratio.is_estimated and ratio.is_clear and not number * ratio.p_value > _REAL


def _listed(ratios: Sequence[Ratio], conjunction: str) -> str:
    """Columns of interactions in a sentence, beyond three of them counted."""
    names = [[shorten(name, _NAME) for name in ratio.names] for ratio in ratios]
    groups = [" with ".join(of) if len(of) == 2 else f"{', '.join(of[:-1])} and {of[-1]} together" for of in names]
    last = groups[-1] if len(groups) <= 3 else plural(len(groups) - 3, "other")
    groups = groups[:-1] if len(groups) <= 3 else groups[:3]
    return f"{', '.join(groups)} {conjunction} {last}" if groups else last


def _numbers(row: Mapping[Any, Any]) -> tuple[float, ...]:
    """Odds ratio, limits and adjusted p-value, NaN where there are none."""
    return tuple(float(row.get(name, math.nan)) for name in ("odds_ratio", "lower", "upper", "p_value_adjusted"))


def _modifiers(ratio: Ratio, best: Sequence[Ratio], references: Mapping[str, str]) -> str:
    """At which levels of the columns that change it an odds ratio is."""
    larger = [other for other in best if set(ratio.names) < set(other.names)]
    names = dict.fromkeys(name for other in larger for name in other.names if name not in ratio.names)
    if not names:
        return ""
    shown = [at_level(shorten(name, _NAME), references[name]) for name in names if name in references]
    return f", where {listed(shown, 2, 2 * _NAME)}"


def _picture(best: Sequence[Ratio]) -> Block | None:
    """Odds ratios with intervals, fewer on a small screen."""
    shown = [ratio for ratio in best if not math.isnan(ratio.value)]
    if not shown:
        return None
    about = "Odds ratios of the strongest interactions"
    narrow = _forest(shown[:_NARROW], legend=False)
    return Block("figure", about, drawing=_forest(shown[:_WIDE]), narrow=narrow)


def _forest(ratios: Sequence[Ratio], legend: bool = True) -> Any:
    """A forest of odds ratios."""
    centre, lower, upper = (np.array([getattr(r, name) for r in ratios]) for name in ("value", "lower", "upper"))
    beside = [ratio.numbers for ratio in ratios]
    room = _ROOM - max(map(len, beside))
    label = "odds ratio, 95 % interval" if any(r.has_interval for r in ratios) else "odds ratio"
    labels = [ratio.label(room) for ratio in ratios]
    options = {"reference": 1.0, "is_ratio": True, "beside": beside, "label": label, "legend": legend}
    return figure_of(plot_forest, labels, centre, lower, upper, **options)


def _cell(name: str, value: Any) -> Cell:
    """A cell of the table of odds ratios."""
    if name in ("term", "levels"):
        return Cell(str(value), str(value))
    shown = ratio_text(value) if name in ("odds_ratio", "lower", "upper") else number(value)
    return Cell(shown, None if math.isnan(value) else value)


# Effects of one column on another in sentences, of any family that has them.

DIFFERENCE = "mean difference"
"""What an effect is called that is no ratio."""
WHERE = "all others at their medians or most frequent values"
"""What holds of the other columns where nothing else is said."""


def clearest_effects(table: pd.DataFrame, level: float) -> list[str]:
    """A sentence on the clearest effect of every pair of columns, the clearest pair first.

    Args:
        table: what ``effects()`` gives.
        level: coverage of its intervals.

    Example:
        >>> line = {"response": "visits", "column": "smoke", "before": "no", "after": "yes", "effect": "rate ratio"}
        >>> table = pd.DataFrame([{**line, "estimate": 2.0, "std_error": 0.1, "lower": 1.64, "upper": 2.43}])
        >>> clearest_effects(table, 0.95)
        ['visits: rate ratio 2 (95% interval 1.640 to 2.430) for smoke from no to yes']
    """
    clearest: dict[frozenset[str], str] = {}
    for row in sorted(table.to_dict("records"), key=_clearness, reverse=True):
        pair = frozenset((row["response"], row["column"]))
        if pair not in clearest:
            response = " ".join(filter(None, [shorten(row["response"]), shorten(row.get("levels", ""))]))
            ends = f" ({level:.0%} interval {number(row['lower'])} to {number(row['upper'])})"
            interval = ends if row["std_error"] > 0 else ""
            change = f"{shorten(row['column'], 20)} from {row['before']} to {row['after']}"
            clearest[pair] = f"{response}: {row['effect']} {number(row['estimate'])}{interval} for {change}"
    return list(clearest.values())


def _clearness(row: Mapping[Any, Any]) -> float:
    """How far an effect is from none, in standard errors where there are such."""
    size = row["estimate"] if row["effect"] == DIFFERENCE else math.log(max(row["estimate"], 1e-300))
    return abs(size) / row["std_error"] if row["std_error"] > 0 else abs(size) * 1e-9
