"""From named columns of values to a domain, codes and counts, and what a column is by its name and its cells."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from ..budgets import MAX_COLUMNS, check_size
from ..checks import array_of, check_exact_shape
from ..errors import (
    DataWarning,
    InputError,
    caller_level,
    check_names,
    check_type,
    check_unique,
    conflict,
    none_received,
    out_of_range,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ..schema import Domain, Variable
from .counting import code_type
from .encoding import is_empty, odd_count, parse_counts, plain_numbers, select_columns
from .files.table_file import CsvColumns

# What a column is by its name and its cells: counts, weights, and words that mostly mean missing.

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
    """A column that seems to hold counts or weights."""

    name: str
    role: str  # ``count`` or ``weights``; counts with fractions are weights
    odd: str = ""  # the first cell that holds no count, in words
    remedy: str = ""  # what to do about that cell

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
    name: str, values: Any, others_differ: Callable[[], bool] = lambda: False, where: Callable[[int], str] | None = None
) -> Counting | None:
    """What a column is by its name and most of its cells, where that is counts or weights; None for a variable.

    Where the name is vague or the column categorical, the other columns have to differ in most rows. ``where`` gives
    words for the position of a row; without it the cells are labels, each of them once.

    Example:
        >>> seeming_counting("Freq", ["3", "1,020", "7"]).odd
        ", but it holds '1,020'"
        >>> seeming_counting("Freq", ["often", "never"]) is None
        True
    """
    # The name, the type, then the cells: most have to be numbers from 0.
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
    # What the first odd cell says: fractions are weights, others are to be mended.
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
    # The one column of whole numbers that are too large for levels.
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
    # All others together hold every combination once.
    columns = {i: values for i, (name, values) in enumerate(table.items()) if name != candidates[0]}
    others = pd.DataFrame(columns).astype(str)
    ways = others.nunique().prod()
    if len(others.columns) < 2 or ways != len(others) or others.duplicated().any():
        return None
    return Counting(candidates[0], "count", ", as the other columns hold every combination once")


def check_levels_told(variables: Iterable[Variable], source: str, say: Callable[[Counting], str | None]) -> None:
    """Refuse variables that seem to hold counts or weights by their names and levels; ``say`` tells how to go on.

    It gives None for a role that was spoken of.
    """
    for variable in variables:
        counting = seeming_counting(variable.name, pd.Series(variable.labels, dtype=object))
        if counting is not None and (way_on := say(counting)) is not None:
            raise counting.error(source, way_on)


def mostly_differ(frame: pd.DataFrame) -> bool:
    """Whether most rows differ from all above."""
    return len(frame.columns) > 0 and bool(frame.astype(str).duplicated().mean() <= 1 - _DIFFER)


def missing_sentence(variables: Sequence[Variable], remedy: Callable[[Sequence[str]], str]) -> str | None:
    """A sentence on words for missing that are levels, with what to say where they are missing cells."""
    # A dash beside a plus is a level.
    columns_of: dict[str, list[str]] = {}
    for variable in variables:
        for label in variable.labels:
            if _MISSING.fullmatch(label) and not (label in ("-", "–", "—") and "+" in variable.labels):
                columns_of.setdefault(label, []).append(variable.name)
    if not columns_of:
        return None
    names = list(dict.fromkeys(name for names in columns_of.values() for name in names))
    shown = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    words = ", ".join(map(repr, columns_of))
    first = [variable.name for variable in variables if variable.labels[0] in columns_of]
    is_first = f" (of {first[0]!r} the first, which others are compared with)" if first else ""
    return f"levels like others are {words} of {shown}{is_first}; {remedy(list(columns_of))}"


def warn_of_missing_words(variables: Sequence[Variable], remedy: Callable[[Sequence[str]], str] | None = None) -> None:
    """Warn of labels that mostly mean missing and are levels.

    Warns:
        DataWarning: with the labels, the columns, and what to say.
    """
    remedy = remedy or (lambda words: f"missing_values={('', *words)} makes them missing")
    if sentence := missing_sentence(variables, remedy):
        warnings.warn(DataWarning(sentence), stacklevel=caller_level())


# From named columns of values to a domain, codes and counts: what every reader of observations has in common.

_FRAME = "the frame"
_INTEGER_TYPES = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.int64)


def row_position(row: int) -> str:
    """Words for the position of a row that has no line number."""
    return f"row {row} (counted from 0)"


def row_counts(counts: Any, weights: Any, num_rows: int, name: str | None = None) -> torch.Tensor:
    """Validated counts (num_rows,) float64 from at most one of whole counts and weights; ones from neither."""
    if counts is not None and weights is not None:
        raise unexpected("counts, weights", "at most one of them", received="both", code="conflict")
    if counts is None and weights is None:
        return torch.ones(num_rows, dtype=torch.float64)
    name = name or ("counts" if weights is None else "weights")
    given = array_of(counts if weights is None else weights, name)
    check_exact_shape(given, (num_rows,), name)
    return torch.from_numpy(parse_counts(given, name=name, where=row_position, fractional=weights is not None))


class Source(NamedTuple):
    """A table to read: unique column names, a column by its name, and words for messages."""

    header: Sequence[str]
    column: Callable[[str], Any]
    name: str
    where: Callable[[int], str]
    num_rows: int

    @property
    def reader(self) -> str:
        """What reads it, for messages."""
        return "from_pandas(frame" if self.name == _FRAME else "from_csv(path"

    @classmethod
    def of_csv(cls, table: CsvColumns) -> Source:
        """A file that was read."""

        def column(name: str) -> Any:
            cells, dtype = table.column(name), table.categories.get(name)
            return cells if dtype is None else pd.Categorical([cell or None for cell in cells], dtype=dtype)

        return cls(table.header, column, table.path, table.where, len(table.lines))

    @classmethod
    def of_frame(cls, frame: Any) -> Source:
        """A data frame."""
        check_type(frame, pd.DataFrame, "from_pandas frame")
        header = list(map(str, frame.columns))
        check_unique(header, "from_pandas columns")
        position = dict(zip(header, range(len(header)), strict=True))
        return cls(header, lambda name: frame.iloc[:, position[name]], _FRAME, row_position, len(frame))


def check_counting(
    table: Source, chosen: Collection[str] = (), say: Callable[[Counting], str | None] | None = None
) -> None:
    """Refuse columns that seem to hold counts or weights and were neither ``chosen`` as variables nor named as such.

    ``say`` tells how to go on, by default by the reader of the table; None for a role that was spoken of.
    """
    for counting in seeming_columns(table, chosen):
        read = f"Observations.{table.reader}, {counting.role}={counting.name!r})"
        told = f"pass {read} if it does, with count=None if it does not" if say is None else say(counting)
        if told is not None:
            raise counting.error(table.name, told)


def seeming_columns(table: Source, chosen: Collection[str] = ()) -> Iterator[Counting]:
    """Columns that seem to hold counts or weights and were not ``chosen`` as variables."""
    # Columns whose names say counts or weights, then the one whose numbers do.
    for name in table.header:
        if name in chosen or not (is_counting_name(name) or name == "0"):  # "0" is what pandas calls sizes of groups
            continue
        others = [other for other in table.header if other != name]

        def others_differ(others: Sequence[str] = others) -> bool:
            return mostly_differ(pd.DataFrame({i: table.column(other) for i, other in enumerate(others)}))

        if name == "0" and any(map(str.isdigit, others)):
            continue
        if counting := seeming_counting(name, table.column(name), others_differ, table.where):
            yield counting
    if 2 < len(table.header) <= 1 + MOST_WAYS and table.num_rows <= MOST_CELLS:
        counting = counted_cells({name: table.column(name) for name in table.header})
        if counting is not None and counting.name not in chosen:
            yield counting


def asked_columns(
    header: Sequence[str],
    source: str,
    domain: Domain | None,
    columns: Sequence[str] | int | None,
    count: str | None,
    weights: str | None = None,
    exclude: Collection[str] = (),
) -> tuple[list[str], Domain | None, str | None, bool]:
    """Names of the variables to read of a table with a header, their domain if it is known, and the column of counts.

    Arguments as those of :meth:`Observations.from_csv`. Last comes whether it was said which columns hold what.
    """
    # Columns that are left out are as if they were not there.
    check_names(exclude, header, f"exclude of {source}", noun="column")
    asked = [*(columns if isinstance(columns, Iterable) else ()), *(n for n in (weights, count) if n != "count")]
    if both := [name for name in asked if name in exclude]:
        raise conflict("exclude", f"column {both[0]!r} is asked for and left out")
    header = [name for name in header if name not in exclude]
    # A default count column is one only where it is there and nothing else is said of it.
    is_told = (domain, weights, columns) != (None, None, None) or count != "count" or "count" in header
    is_variable = "count" not in header or weights == "count" or (domain is not None and "count" in domain)
    count = None if count == "count" and is_variable else count
    if count is not None and weights is not None:
        hint = "pass count=None to read it as a variable"
        received = f"columns {count!r} and {weights!r}"
        raise unexpected("count, weights", "at most one of them", hint=hint, received=received, code="conflict")
    counting = weights if count is None else count
    exclude = () if counting is None else (counting,)
    check_names(exclude, header, f"{'weights' if count is None else 'count'} of {source}", noun="column")
    # Without a domain all columns but the counts; with one, its variables.
    if domain is None:
        names = select_columns(header, columns, exclude=exclude, source=source)
    else:
        if columns is not None:
            domain = domain.project(select_columns(domain.names, columns, exclude=(), source="the domain"))
        names = list(domain.names)
        others = [name for name in header if name not in exclude]
        check_names(names, others, source, noun="column", problem="the table lacks")
    if not names:
        raise none_received(source, "at least one variable besides the counts")
    check_size(len(names), MAX_COLUMNS, "columns", source, "name those to read, as columns")
    return names, domain, counting, is_told


def tensor_of_codes(codes: Any) -> torch.Tensor:
    """Codes as a tensor, -1 where they are masked."""
    if not isinstance(codes, np.ma.MaskedArray):
        try:
            return torch.as_tensor(codes)
        except (TypeError, ValueError, RuntimeError):
            raise wrong_type("Observations codes", "integers", codes) from None
    tensor = torch.as_tensor(codes.data)
    is_hidden = torch.from_numpy(np.ma.getmaskarray(codes))
    return tensor.long().masked_fill(is_hidden, -1) if tensor.dtype in _INTEGER_TYPES else tensor


def checked_codes(codes: Any, domain: Domain) -> torch.Tensor:
    """Codes of whole rows (N, d) on the CPU, narrowed, refused unless integers from -1 to cardinality - 1."""
    codes = tensor_of_codes(codes)
    if codes.dtype not in _INTEGER_TYPES:
        raise wrong_type("Observations codes", "integers", received=codes.dtype)
    if codes.dim() != 2 or codes.shape[1] != len(domain):
        raise wrong_shape("Observations codes", f"(rows, {len(domain)})", codes)
    # The first code beyond its variable is named.
    codes = codes.detach().cpu()
    cells, cardinalities = codes.numpy(), np.array(domain.cardinalities)
    if cells.size and ((cells.min(0) < -1) | (cells.max(0) >= cardinalities)).any():
        row, column = np.argwhere((cells < -1) | (cells >= cardinalities))[0].tolist()
        variable = domain.variables[column]
        raise out_of_range(
            f"Observations codes: {row_position(row)}, variable {variable.name!r}",
            f"a code from 0 to {variable.cardinality - 1}, or -1 for missing",
            received=int(cells[row, column]),
        )
    return narrowed(codes, domain.cardinalities)


def narrowed(codes: torch.Tensor, cardinalities: Sequence[int]) -> torch.Tensor:
    """Codes in the smallest type of variables with so many levels."""
    return codes.to(getattr(torch, np.dtype(code_type(cardinalities)).name))


def missing_as_level(domain: Domain, codes: torch.Tensor, label: str) -> tuple[Domain, torch.Tensor]:
    """Domain and codes with the missing cells as a level of that name, behind the others where it is new."""
    if not isinstance(label, str) or not label:
        raise unexpected("missing_as_level label", "a non-empty string", label, code="empty")
    codes = codes.clone()
    variables: list[Variable] = []
    for i, variable in enumerate(domain):
        missing = codes[:, i] < 0
        if bool(missing.any()):
            if label not in variable.labels:
                variable = replace(variable, labels=(*variable.labels, label), kind="nominal")
            codes[missing, i] = variable.code(label)
        variables.append(variable)
    return Domain(variables), codes


def labels_of(domain: Domain, codes: np.ndarray) -> pd.DataFrame:
    """Data frame of labels as categorical columns, NaN where missing."""
    types = [pd.CategoricalDtype(list(variable.labels), ordered=variable.kind == "ordinal") for variable in domain]
    columns = {v.name: pd.Categorical.from_codes(codes[:, i], dtype=types[i]) for i, v in enumerate(domain)}
    return pd.DataFrame(columns, index=range(len(codes)))
