"""How names, counts and numbers are written for a reader: shortened, in the right number, never as minus zero."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..errors import rounded_power, visible

LABEL_WIDTH = 28
"""Characters of a name in a picture, a subtitle or a sentence."""

BASELINE = " than always guessing the most frequent level"
"""What an accuracy is compared with."""

PSEUDO = "log pseudo-likelihood (every cell given all others)"
"""What a gain is of where there is no log-likelihood."""

_SHOWN = 6
_SMALL = 5e-3
_LEVEL = 0.05  # of the test against always guessing one level


def shorten(words: str, width: int = LABEL_WIDTH) -> str:
    """Text of at most ``width`` visible characters; of longer text the ends, joined by an ellipsis."""
    words = visible(words)
    if len(words) <= width:
        return words
    tail = max(0, (width - 1) * 2 // 5)
    return words[: max(0, width - 1 - tail)].rstrip() + "…" + (words[-tail:].lstrip() if tail else "")


def short_labels(names: Sequence[str], width: int = LABEL_WIDTH) -> dict[str, str]:
    """A label for every name, no two alike: shortened, and numbered where shortening makes two the same."""
    labels = {name: name for name in names if len(name) <= width and visible(name) == name}
    used = set(labels.values())
    for name in names:
        if name in labels:
            continue
        label, number = shorten(name, width), 1
        while label in used:
            number += 1
            mark = f"~{number}"
            label = shorten(name, width)[: max(0, width - len(mark) - 1)].rstrip("…") + "…" + mark
        labels[name] = label
        used.add(label)
    return {name: labels[name] for name in names}


def short_edge(parts: Sequence[str], width: int, between: str = ":") -> str:
    """Several names joined, at most ``width`` characters: the longest are shortened first, each keeps four at least."""
    room = width - len(between) * (len(parts) - 1)
    share = max((len(part) for part in parts), default=0)
    while share > 4 and sum(min(len(part), share) for part in parts) > room:
        share -= 1
    return between.join(shorten(part, share) for part in parts)


def _as_argument(name: str, value: object) -> str:
    """An option as an argument of Python."""
    return name if value is None else f"{name}={value!r}"


_WRITTEN: ContextVar[Callable[[str, object], str]] = ContextVar("written", default=_as_argument)


def option(name: str, value: object = None) -> str:
    """An option in a sentence, with a value where one is meant: an argument of Python, or as a command writes it."""
    return _WRITTEN.get()(name, value)


def in_python(words: str, instead: str = "") -> str:
    """Words about what only Python takes; other words, or none, in what a command says."""
    return words if _WRITTEN.get() is _as_argument else instead


class _Options(dict[str, str]):
    """Every name as an option."""

    def __missing__(self, name: str) -> str:
        return option(name)


def with_options(text: str) -> str:
    """Text in which ``{name}`` stands for an option."""
    return text.format_map(_Options())


@contextmanager
def options_written(how: Callable[[str, object], str]) -> Generator[None]:
    """Inside, :func:`option` writes a name and a value (None for none) in this way."""
    token = _WRITTEN.set(how)
    try:
        yield
    finally:
        _WRITTEN.reset(token)


def whole(value: float) -> float:
    """A whole number as an int, so that JSON shows it without a decimal point."""
    return int(value) if float(value).is_integer() else value


def plural(count: float, noun: str, many: str = "") -> str:
    """A count with its noun: ``1 row``, ``2 rows``, ``1,200 rows``."""
    shown = f"{int(count):,}" if float(count).is_integer() else f"{count:g}"
    return f"{shown} {noun if count == 1 else many or noun + 's'}"


def amount_column(has_weights: bool) -> str:
    """The heading of a column of numbers of rows, or of what their weights add up to."""
    return "sum of weights" if has_weights else "rows"


def amount_text(total: float, has_weights: bool) -> str:
    """A number of rows, or what their weights add up to.

    Example:
        >>> amount_text(1200, False), amount_text(1200, True)
        ('1,200 rows', 'weights that add up to 1200')
    """
    return f"weights that add up to {total:g}" if has_weights else plural(total, "row")


def rows_text(rows: Any) -> str:
    """How many rows there are (those of a table of counts by their counts), and what weights of theirs add up to."""
    total: float = rows.total_count
    has_weights = not getattr(rows, "has_whole_counts", True)
    return f"{plural(rows.num_rows, 'row')} with " * has_weights + amount_text(total, has_weights)


def parameters_text(identified: int | None, family: int) -> str:
    """How many parameters of a family the rows identify, and of how many where these differ.

    Example:
        >>> parameters_text(17, 18), parameters_text(18, 18)
        ('17 parameters that the rows identify (18 of the family)', '18 parameters')
    """
    if identified == family:
        return plural(family, "parameter")
    if identified is None:
        return f"{plural(family, 'parameter')} of the family (not computed: how many of them the rows identify)"
    return f"{plural(identified, 'parameter')} that the rows identify ({family:,} of the family)"


def fixed(value: float, digits: int = 4, sign: bool = False) -> str:
    """A number with so many decimals; what rounds to zero has no minus sign."""
    rounded = round(value, digits) + 0.0 if abs(value) < 1 else value
    return f"{rounded:+.{digits}f}" if sign else f"{rounded:.{digits}f}"


def at_least(value: float) -> str:
    """A number that another one is at least, with two decimals, rounded downward."""
    return f"{math.floor(100 * value) / 100:.2f}" if math.isfinite(value) else str(value)


def coefficient(value: float) -> str:
    """A coefficient with its sign: four decimals, or two significant digits where these would show nothing."""
    return fixed(value, sign=True) if value == 0 or abs(value) >= _SMALL else f"{value:+.1e}"


def listed(names: Sequence[str], most: int = _SHOWN, width: int = LABEL_WIDTH) -> str:
    """Names in a sentence: shortened, and beyond ``most`` of them counted."""
    shown = ", ".join(shorten(name, width) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def against_majority(accuracy: Mapping[str, Any]) -> str:
    """What an accuracy is worth beside always guessing the most frequent level; empty where it is clearly better."""
    if not accuracy["accuracy"] > accuracy["majority_accuracy"]:
        return f"no better{BASELINE}"
    p = accuracy["majority_p_value"]
    return "" if p <= _LEVEL else f"not shown to be better{BASELINE} (p = {p:.2f})"


def elpd_sentence(names: Sequence[str], differences: Sequence[float], errors: Sequence[float]) -> str:
    """What leave-one-out cross-validation says of two models or more in falling order of elpd, in nats.

    A model is called best where every other is more than two standard errors of the difference behind; else the models
    within them are named. Differences are those of each model from the first, with their standard errors.
    """
    lowest = f"{shorten(names[1])} is {differences[1]:.3g} nats lower (standard error {errors[1]:.2g})"
    close = [n for n, d, e in zip(names[1:], differences[1:], errors[1:], strict=True) if not d > 2 * e]
    if not close:
        return (
            f"By leave-one-out cross-validation it predicts new observations best: the elpd of {lowest}; every "
            "difference is more than two standard errors."
        )
    return (
        f"By leave-one-out cross-validation its elpd is the highest; that of {lowest}. Within two standard errors, and "
        f"so not told apart by these rows: {listed(close)}."
    )


def literal(words: str) -> str:
    """Text of one line for a picture: dollar signs stand for themselves, not for a formula between two."""
    return visible(words).replace("$", r"\$")


def gain_sentence(part: str, model: str, gain: float | None, std_error: float | None, measure: str = "") -> str:
    """What a model gains over independent columns on the rows of one part, in nats per row.

    The gain is None where rows are impossible under both; ``measure`` says what it is of, if not the log-likelihood.
    """
    if gain is None or not math.isfinite(gain):
        whom = f"the {model} and independent columns" if gain is None else f"the {model}"
        whom = "independent columns" if gain == math.inf else whom
        return (
            f"On the {part} rows the {model} has no finite gain over independent columns: some row has probability 0 "
            f"under {whom}."
        )
    error = "" if std_error is None else f" (standard error {fixed(std_error, 3)})"
    ending = " These are the rows it was fitted to; new rows will gain less." if part == "train" else ""
    of = f" in {measure}" if measure else ""
    return (
        f"On the {part} rows the {model} gains {fixed(gain, 3)} nats per row{of} over independent columns{error}."
        f"{ending}"
    )


def distinct_sentence(parts: Sequence[str]) -> str:
    """What KL says on parts whose rows are all distinct.

    Example:
        >>> distinct_sentence(["test"])
        'All rows of test are distinct: KL is then NLL - log(rows) and says nothing about fit.'
    """
    return f"All rows of {listed(parts)} are distinct: KL is then NLL - log(rows) and says nothing about fit."


def number(value: Any) -> str:
    """A number as a person writes it: four significant digits, whole numbers whole, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace("-", "−")
    size = abs(value)
    if size >= 1000:
        shown = f"{value:,.1f}"
    elif size >= 100:
        shown = f"{value:.2f}"
    elif size >= 1e-4:
        shown = f"{value:.3f}" if size >= 0.1 else f"{value:.2g}"
    else:
        shown = f"{value:.1e}"
    return shown.replace("-", "−")


_PLAIN = str.maketrans({"−": "-", "–": "-", "±": "+-", "∞": "inf", "→": "->"})


def plain(words: str) -> str:
    """Words of a page for a terminal, whose output a script may read: minus signs and arrows of ASCII."""
    return visible(words).translate(_PLAIN)


def num_states_text(num_states: int) -> str:
    """Two significant digits, ``2.4e14``; whole numbers below a million are written out."""
    if num_states < 10**6:
        return str(num_states)
    mantissa, exponent = rounded_power(num_states, 1)
    return f"{mantissa}e{exponent}"


def possible_rows(num_states: int) -> str:
    """How many rows there may be, written out below a million: ``48,384 possible rows``, ``2.4e14 possible rows``."""
    if num_states < 10**6:
        return plural(num_states, "possible row")
    return f"{num_states_text(num_states)} possible rows"


def digits(value: float | None) -> str:
    """Four decimals, or a dash for nothing."""
    return number(value) if value is None or not math.isfinite(value) else fixed(value)


def times(ratio: float) -> str:
    """A ratio in a sentence with two significant digits, such as ``210 times``; of a huge one that it is."""
    return "more than 1,000 times" if ratio > 1000 else f"{float(f'{ratio:.2g}'):g} times"


def columns_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned lines: the first column to the left, the others to the right."""
    header, *rows = [[visible(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    return [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in [header, *rows]
    ]
