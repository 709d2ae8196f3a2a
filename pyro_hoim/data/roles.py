"""What a column is by its name and its cells: counts, weights, and words that mostly mean missing."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..errors import DataWarning, InputError, caller_level, conflict
from ..schema import Variable
from .encoding import is_empty, odd_count, plain_numbers

__all__ = [
    "MOST_CELLS",
    "MOST_WAYS",
    "Counting",
    "check_levels_told",
    "counted_cells",
    "is_count_name",
    "is_counting_name",
    "missing_sentence",
    "mostly_differ",
    "seeming_counting",
    "warn_of_missing_words",
    "words_for_missing",
]

_COUNTS = re.compile(r"counts?|freqs?|frequency|frequencies|nobs|countstar|anzahl|effectifs?")
_MAYBE_COUNTS = re.compile(
    r"nn?|num|numbers?|totals?|cases|obs|observations|size|len|h(ä|ae)ufigkeit(en)?"
    r"|(n|nr|no|num|numbers?|counts?|totals?)(of)?"
    r"(rows|records|cases|obs|observations|persons|people|individuals|respondents|subjects|participants|patients)"
)
_WEIGHTS = re.compile(
    r"([pfaiwdh]|pw|an|psp|sampl(e|ing)|survey|svy|design|analy(sis|tic)|person|population|pop|final|base|expansion|rak(ed|ing)"
    r"|calibrated|trimmed|scaled|norm(ed|ali[sz]ed)?|post(stratification)?|hh|household|stud(ent)?|tot(al)?|rep(licate)?)?"
    r"(weights?|we?ghts?|wts?|wgts?)(norm(ed|ali[sz]ed)?|final|var)?"
    r"|perwt|fnlwgt|gewichte?|poids|asecwt|earnwt|h?wtfinl|llcpwt\d?|wfstuwt|p?wgtp|wtss(all|nr|ps|comp)|wt(mec|int)\d?yr"
)
"""Names of weights, also those of the ESS, the GSS, IPUMS, BRFSS, NHANES, PISA and the ACS."""
_DIFFER = 0.9
MOST_CELLS, MOST_WAYS = 2**16, 12  # of a table in which counts are looked for whatever their name
_MISSING = re.compile(
    r"\s*(?:(?P<open>[(<\[])?(?:n/?a|n\.a\.?|nan|null|missing|not available|no data|blank)(?(open)[)>\]])"
    r"|#n/?a(?: n/a)?|#(?:div/0!|value!|ref!|name\?|null!|num!)|-nan|-?1\.#(?:ind|qnan)|nat|(?-i:None)|nil|unknown"
    r"|\.+|\.[a-z]|[-–—]+|\?+|\*+|\\n)?\s*",
    re.IGNORECASE,
)
"""Words that mostly mean missing."""


@dataclass(frozen=True)
class Counting:
    """A column that seems to hold counts or weights.

    Attributes:
        name: of the column.
        role: ``count`` or ``weights``, what it seems to hold; counts with fractions are weights.
        odd: the first cell that holds no count, in words; empty where all do.
        remedy: what to do about that cell.
    """

    name: str
    role: str
    odd: str = ""
    remedy: str = ""

    @property
    def problem(self) -> str:
        """What it seems to be."""
        what = "how often each row was seen" if self.role == "count" else "weights of the rows"
        return f"column {self.name!r} seems to hold {what}{self.odd}"

    def error(self, source: object, say: str) -> InputError:
        """An error, where ``say`` is the way on of a column without odd cells."""
        return conflict(source, self.problem, f"{self.remedy}; {say}" if self.remedy else say)


def is_count_name(name: str) -> bool:
    """Whether a column is named as counts are, also vaguely."""
    return bool(_COUNTS.fullmatch(_word(name)) or _MAYBE_COUNTS.fullmatch(_word(name)))


def is_counting_name(name: str) -> bool:
    """Whether a column is named as counts or weights are, also vaguely."""
    return is_count_name(name) or _WEIGHTS.fullmatch(_word(name)) is not None


def _word(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


def seeming_counting(
    name: str,
    values: Any,
    others_differ: Callable[[], bool] = lambda: False,
    where: Callable[[int], str] | None = None,
) -> Counting | None:
    """What a column is by its name and most of its cells, where that is counts or weights; None for a variable.

    Args:
        name: of the column.
        values: its cells (N,), numbers or their text.
        others_differ: whether the other columns tell most rows apart, which they have to where the name is vague or the
            column is categorical.
        where: words for the position of a row; None where the cells are labels, each of them once.

    Example:
        >>> seeming_counting("Freq", ["3", "1,020", "7"]).odd
        ", but it holds '1,020'"
        >>> seeming_counting("Freq", ["often", "never"]) is None
        True
    """
    word, dtype = _word(name), getattr(values, "dtype", None)
    is_weight = _WEIGHTS.fullmatch(word) is not None
    is_sure = is_weight or _COUNTS.fullmatch(word) is not None
    if not (is_sure or _MAYBE_COUNTS.fullmatch(word) or name == "0"):  # the name that pandas gives sizes of groups
        return None
    if pd.api.types.is_bool_dtype(dtype) or getattr(dtype, "kind", "") in ("m", "M"):
        return None
    cells = pd.Series(values).astype(object).reset_index(drop=True)
    numbers = plain_numbers(cells)
    if 2 * (np.isfinite(numbers) & (numbers >= 0)).sum() <= len(cells) - is_empty(cells).sum():
        return None
    if not (is_sure and not isinstance(dtype, pd.CategoricalDtype)) and not others_differ():
        return None
    odd = odd_count(cells, plain_numbers(cells, marked=False), fractional=is_weight)
    if odd is None:
        return Counting(name, "weights" if is_weight else "count")
    odd_cell = f"{'it' if where is None else where(odd.row)} holds {odd.shown}"
    if odd.is_fraction:
        return Counting(name, "weights", f" ({odd_cell})")
    return Counting(name, "weights" if is_weight else "count", f", but {odd_cell}", odd.remedy)


def counted_cells(table: Mapping[str, Any]) -> Counting | None:
    """The counts of a table of cells, whatever they are called: whole numbers beside every combination of levels once.

    Numbers that mostly differ, and of which some are larger than the number of cells, are no levels.

    Example:
        >>> counted_cells({"sex": list("ffmm"), "ward": list("ABAB"), "deaths": [20, 10, 10, 40]}).name
        'deaths'
        >>> counted_cells({"sex": list("ffmm"), "ward": list("ABAA"), "deaths": [20, 10, 10, 40]}) is None
        True
    """
    candidates = list[str]()
    sizes = list[int]()
    for name, values in table.items():
        dtype, cells = getattr(values, "dtype", None), pd.Series(values).astype(object)
        sizes.append(cells.astype(str).nunique())
        is_level = pd.api.types.is_bool_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype)
        if is_level or getattr(dtype, "kind", "") in ("m", "M") or 2 * sizes[-1] <= len(cells):
            continue
        numbers = plain_numbers(cells, marked=False)
        if np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all() and numbers.min() >= 0:
            candidates += [name] if numbers.max() > len(cells) else []
    if len(candidates) != 1 or min(sizes) < 2:
        return None
    others = pd.DataFrame(
        {i: values for i, (name, values) in enumerate(table.items()) if name != candidates[0]}
    ).astype(str)
    ways = others.nunique().prod()
    if len(others.columns) < 2 or ways != len(others) or others.duplicated().any():
        return None
    return Counting(candidates[0], "count", ", as the other columns hold every combination once")


def check_levels_told(variables: Iterable[Variable], source: str, say: Callable[[Counting], str | None]) -> None:
    """Refuse variables that seem to hold counts or weights by their names and levels; ``say`` tells how to go on.

    It gives None for a role that was spoken of.
    """
    for variable in variables:
        found = seeming_counting(variable.name, pd.Series(variable.labels, dtype=object))
        if found is not None and (told := say(found)) is not None:
            raise found.error(source, told)


def mostly_differ(frame: pd.DataFrame) -> bool:
    """Whether most rows differ from all above."""
    return len(frame.columns) > 0 and bool(frame.astype(str).duplicated().mean() <= 1 - _DIFFER)


def words_for_missing(variables: Iterable[Variable]) -> dict[str, list[str]]:
    """Labels that mostly mean missing and are levels, each with the names of its columns."""
    found: dict[str, list[str]] = {}
    for variable in variables:
        for label in variable.labels:
            if _MISSING.fullmatch(label) and not (label in ("-", "–", "—") and "+" in variable.labels):
                found.setdefault(label, []).append(variable.name)
    return found


def missing_sentence(variables: Sequence[Variable], remedy: Callable[[Sequence[str]], str]) -> str | None:
    """A sentence on words for missing that are levels, with what to say where they are missing cells."""
    found = words_for_missing(variables)
    if not found:
        return None
    names = list(dict.fromkeys(name for names in found.values() for name in names))
    shown = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    words = ", ".join(map(repr, found))
    first = [variable.name for variable in variables if variable.labels[0] in found]
    is_first = f" (of {first[0]!r} the first, which others are compared with)" if first else ""
    return f"levels like others are {words} of {shown}{is_first}; {remedy(list(found))}"


def warn_of_missing_words(variables: Sequence[Variable], remedy: Callable[[Sequence[str]], str] | None = None) -> None:
    """Warn of labels that mostly mean missing and are levels.

    Warns:
        DataWarning: with the labels, the columns, and what to say.
    """

    def missing_values(words: Sequence[str]) -> str:
        return f"missing_values={('', *words)} makes them missing"

    if told := missing_sentence(variables, remedy or missing_values):
        warnings.warn(DataWarning(told), stacklevel=caller_level())
