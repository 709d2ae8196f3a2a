"""How the columns of a data frame become variables of a root model, which family each has and why, and the way back."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Literal, NamedTuple, Self, cast, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from ..checks import check_exact_shape
from ..core.words import in_python, listed, option, times
from ..data.columns import left_out_of_numbers
from ..data.encoding import (
    encode_column,
    factorise,
    is_empty,
    labels_of_values,
    level_order,
    meaning_of,
    parse_counts,
    to_numbers,
)
from ..data.frames import FrameLike, as_frame, is_frame
from ..data.readers import Source, row_position
from ..errors import (
    InputError,
    MissingDataError,
    check_names,
    check_type,
    check_unique,
    conflict,
    none_received,
    other_domain,
    out_of_range,
    refused,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ..results.table import SummaryTable, html_of
from ..runs.rules import FLAG, NAME, NUMBER, POSITIVE, TEXT, WHOLE, Fields, Items, Leaf, MapOf, one_of, optional
from ..schema import Domain, Variable
from .nodes.columns import NodeFamilies
from .nodes.families import (
    ExponentialFamily,
    GaussianFamily,
    IndicatorFamily,
    NodeFamily,
    PoissonFamily,
    TruncatedPoissonFamily,
    family_from_json,
    family_to_json,
    node_family,
)

LevelType = Literal["text", "bool", "whole", "number"]
FamilyWord = str | NodeFamily
"""A family of a column of a data frame: a word such as ``count``, ``bounded:5`` or ``category``, or a node family."""

_WORDS: Mapping[str, str] = {
    "bernoulli": "binary",
    "binary": "binary",
    "category": "category",
    "count": "poisson",
    "poisson": "poisson",
    "exponential": "exponential",
    "positive": "exponential",
    "gaussian": "gaussian",
    "real": "gaussian",
}
_SAY = "binary, category, count (poisson), bounded:M, positive (exponential) or real (gaussian)"
_BOUNDED = re.compile(r"bounded:([1-9]\d*)")
_DTYPES = re.compile(
    r"bool(ean)?|object|str(ing)?|category|u?int(8|16|32|64)|UInt(8|16|32|64)|Int(8|16|32|64)|[fF]loat(32|64)"
)
EVERY = "*"
_FEW = 12  # whole numbers of so many values may be codes
_MOST_LEVELS = 30  # of a category that nobody asked for
_MOST_COUNT = 10_000  # whole numbers beyond may be amounts
_FEW_REALS = 4
_WIDE = 3.0  # variance over mean from which on Poisson intervals are much too narrow
_EXPONENTIAL = math.sqrt(math.e / (2 * math.pi))  # std / mean above which an exponential law is likelier than a normal
_CODE = re.compile(r"(.*[\W_])?(zip|zip ?code|post(al)?[ _]?code|plz|code|fips|sic|naics|icd\d*)", re.IGNORECASE)
_NUMBERS_FIRST = re.compile(r"\((.*?)\) (.*)")  # of a reason that goes on after the name of its column
_SHOWN = 8


@dataclass(frozen=True)
class RootColumn:
    """One column of a data frame in a root model.

    Attributes:
        name: of the column.
        family: of its variable; of a category the :class:`~pyro_hoim.generalized_root.IndicatorFamily` of all its
            indicators.
        reason: why it has this family, one sentence.
        levels: labels of a category in their order, or those of the values 0 and 1; none of numbers.
        dtype: type of the column in pandas.
        level_type: what the labels are in the frame: ``text``, ``bool``, ``whole`` or ``number``.
        is_ordered: whether the type of the column declares an order of the levels, which the model does not use.
        origin: of a Gaussian column what is subtracted, so that its variable is the distance from there; else 0.
        spread: of a real or positive number its standard deviation among the rows; else 1.
    """

    name: str
    family: NodeFamily
    reason: str
    levels: tuple[str, ...] = ()
    dtype: str = "float64"
    level_type: LevelType = "text"
    is_ordered: bool = False
    origin: float = 0.0
    spread: float = 1.0

    @property
    def step(self) -> float:
        """What effects and odds ratios change it by: the spread, rounded to one digit."""
        return float(f"{self.spread:.0e}")

    @property
    def is_category(self) -> bool:
        """Whether it has one indicator for every level."""
        return isinstance(self.family, IndicatorFamily)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of its variables: ``column=level`` of a category, else its own."""
        return tuple(f"{self.name}={level}" for level in self.levels) if self.is_category else (self.name,)

    @property
    def family_words(self) -> str:
        """The family as a reader calls it."""
        if self.is_category:
            return f"category of {len(self.levels)} levels"
        if self.levels:
            return "0/1"
        if isinstance(self.family, TruncatedPoissonFamily):
            return f"count from 0 to {self.family.maximum}"
        known = {"poisson": "count", "exponential": "positive number", "gaussian": "real number"}
        return known.get(self.family.name, self.family.name)

    @property
    def values_words(self) -> str:
        """Its levels, or what the values are measured from."""
        if self.is_category:
            return ", ".join(self.levels)
        if self.levels:
            return f"0 = {self.levels[0]}, 1 = {self.levels[1]}"
        return f"distance from {self.origin:g}" if self.origin else ""

    def encoded(self, cells: pd.Series) -> NDArray[np.float64]:
        """Values (n, m) of its variables in rows without missing cells."""
        if self.levels:
            variable = Variable(self.name, self.levels)
            codes = encode_column(self.name, cells, variable=variable, missing_values=(), where=row_position)[1]
            return np.eye(len(self.levels))[codes] if self.is_category else codes[:, None].astype(np.float64)
        # Numbers of a column without missing cells; text is refused with its row
        numbers = to_numbers(cells.reset_index(drop=True)).to_numpy(dtype=float, na_value=np.nan)
        if (unknown := np.isnan(numbers)).any():
            row = int(np.argmax(unknown))
            raise out_of_range(f"{row_position(row)}, column {self.name!r}", "a number", cells.iloc[row])
        _check_support(self.name, self.family, numbers)
        return numbers[:, None] - self.origin

    def decoded(self, values: NDArray[np.float64]) -> pd.Series:
        """Labels or numbers of the values (n, m) of its variables, in the type of the column where it can hold them."""
        if not self.levels:
            numbers = pd.Series(values[:, 0] + self.origin, dtype="float64")
            is_whole = self.family.is_discrete and self.dtype.lower().startswith(("int", "uint"))
            if not is_whole:
                return numbers
            # Draws may be larger than any number of the frame, and its type would wrap them.
            fits = not len(numbers) or numbers.max() <= np.iinfo(self.dtype.lower()).max
            return numbers.astype(self.dtype if fits else "int64")  # type: ignore[arg-type]
        # Codes of levels, then the levels as the frame writes them.
        codes = values.argmax(1) if self.is_category else values[:, 0].astype(np.int64)
        labels = [_value_of(label, self.level_type) for label in self.levels]
        if self.dtype == "category":
            return pd.Series(pd.Categorical.from_codes(codes, labels, ordered=self.is_ordered))
        return pd.Series([labels[code] for code in codes.tolist()], dtype=self.dtype)  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description, inverse of :meth:`from_json`."""
        return {
            "name": self.name,
            "family": family_to_json(self.family),
            "reason": self.reason,
            "levels": list(self.levels),
            "dtype": self.dtype,
            "level_type": self.level_type,
            "ordered": self.is_ordered,
            "origin": self.origin,
            "spread": self.spread,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Rebuild a column; an :class:`InputError` for anything else."""
        _COLUMN.check(value, "column")
        family = family_from_json(value["family"])
        levels, name = tuple(value["levels"]), value["name"]
        # Levels that the family has.
        is_category, is_binary = isinstance(family, IndicatorFamily), family == TruncatedPoissonFamily(1)
        is_right = len(levels) >= 2 if is_category else not levels or (is_binary and len(levels) == 2)
        if not is_right or (is_category and cast("IndicatorFamily", family).category != name):
            raise refused(f"column {name!r}", f"levels {levels} do not go with the {family.name} family")
        check_unique(levels, f"levels of {name!r}")
        numbers = float(value["origin"]), float(value.get("spread", 1.0))
        parts = (value["dtype"], value["level_type"], value["ordered"], *numbers)
        column = cls(name, family, value["reason"], levels, *parts)
        if levels and not column._can_decode():
            raise refused(f"column {name!r}", f"levels {levels} are no {column.level_type} of type {column.dtype}")
        return column

    def _can_decode(self) -> bool:
        """Whether its type holds its levels, each as another value."""
        if self.level_type != "text" and any(meaning_of(label) is None for label in self.levels):
            return False
        each = np.eye(len(self.levels)) if self.is_category else np.arange(2.0)[:, None]
        try:
            return self.decoded(each).nunique() == len(self.levels)
        except (TypeError, ValueError, OverflowError):
            return False


_FAMILY = Fields({"name": NAME, "maximum": optional(WHOLE)}, {"category": NAME})
_COLUMN = Fields(
    {
        "name": NAME,
        "family": _FAMILY,
        "reason": TEXT,
        "levels": Items(NAME),
        "dtype": Leaf("a type of columns", (str,), lambda value: _DTYPES.fullmatch(value) is not None),
        "level_type": one_of(*get_args(LevelType)),
        "ordered": FLAG,
        "origin": NUMBER,
    },
    {"spread": POSITIVE},
)
FRAME_RULE = Fields({"columns": Items(_COLUMN, 1), "left_out": MapOf(TEXT)})
"""What :class:`RootColumns` are in a model file."""


@dataclass(frozen=True, repr=False)
class RootColumns:
    """How every column of a data frame becomes variables of a root model, and how their values are read back.

    A column of two values becomes one variable of 0 and 1, a category one indicator for every level, named
    ``column=level``, of which exactly one is 1, and every other column one variable of its own name. Made by
    :func:`choose_families`; printed, it says the family of every column and why.

    Attributes:
        columns: those that the model has, in the order of the frame.
        left_out: those that it has not, each with the reason.

    Raises:
        InputError: no column, or names of columns or variables that are not unique.

    Example:
        >>> frame = pd.DataFrame({"region": ["north", "south", "west"] * 8, "ill": ["no", "yes"] * 12})
        >>> columns = choose_families(frame)
        >>> columns.domain.names
        ('region=north', 'region=south', 'region=west', 'ill')
        >>> columns.encode(frame.head(2)).tolist()
        [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]
        >>> columns.decode([[0, 0, 1, 1]]).values.tolist()
        [['west', 'yes']]
    """

    columns: tuple[RootColumn, ...]
    left_out: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.columns:
            raise none_received("columns", "at least one column")
        check_unique(self.names, "columns")
        check_unique([name for column in self.columns for name in column.variables], "variables of columns")
        object.__setattr__(self, "left_out", dict(self.left_out))

    def __hash__(self) -> int:
        return hash(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: str) -> RootColumn:
        """The column of a name; UnknownNameError lists the closest."""
        check_names([name], self.names, "columns", noun="column")
        return self.columns[self.names.index(name)]

    @cached_property
    def domain(self) -> Domain:
        """The variables of the model, (d,)."""
        return Domain(Variable(name, kind=c.family.kind) for c in self.columns for name in c.variables)

    @cached_property
    def families(self) -> NodeFamilies:
        """The family of every variable."""
        return NodeFamilies.of([c.family for c in self.columns for _ in c.variables], self.domain)

    @cached_property
    def units(self) -> dict[str, tuple[int, ...]]:
        """Positions of the variables of every column."""
        units, start = dict[str, tuple[int, ...]](), 0
        for column in self.columns:
            stop = start + len(column.variables)
            units[column.name], start = tuple(range(start, stop)), stop
        return units

    @cached_property
    def column_of(self) -> dict[str, str]:
        """The column of every variable."""
        return {name: column.name for column in self.columns for name in column.variables}

    def set_of(self, variables: Collection[str]) -> tuple[str, ...]:
        """The columns of some variables, in the order of the frame; UnknownNameError for other names."""
        check_names(variables, self.domain.names, "variables")
        wanted = {self.column_of[name] for name in variables}
        return tuple(name for name in self.names if name in wanted)

    def encode(self, frame: FrameLike, absent: Collection[str] = ()) -> NDArray[np.float64]:
        """Values (n, d) of the variables in the rows of a data frame, float64; other columns are ignored.

        Args:
            frame: of pandas or polars, with the columns of the model in any order.
            absent: columns of which nothing need be known; where the frame lacks them, or cells of them are missing,
                they have their first level, or 0, as a prediction of the column does not read it.

        Raises:
            UnknownNameError: a column that is not there, or a label that is not known; its column and row are named.
            InputError: a value outside the support of the family of its column, likewise.
            MissingDataError: missing cells; every column that has some is named.
        """
        if not is_frame(frame):
            raise wrong_type("data", "a data frame", frame)
        given = as_frame(frame)
        header = [str(name) for name in given.columns]
        check_names(absent, self.names, "absent", noun="column")
        needed = [name for name in self.names if name not in absent]
        check_names(needed, header, "data", noun="column", problem="the data frame lacks")
        cells = {name: given.iloc[:, header.index(name)] for name in self.names if name in header}
        _check_complete({name: cells[name] for name in needed})
        # Every column in the place of its variables, missing cells of those that need none as 0.
        values = np.zeros((len(given), len(self.domain)))
        for column in self.columns:
            places = list(self.units[column.name])
            is_known = np.zeros(len(given), dtype=bool)
            if column.name in cells:
                is_known = ~is_empty(cells[column.name])
                try:
                    known = column.encoded(cells[column.name][is_known])
                    values[np.flatnonzero(is_known)[:, None], places] = known
                except InputError:
                    if column.name not in absent:
                        raise
                    is_known[:] = False
            if column.is_category:
                values[~is_known, places[0]] = 1.0
        return values

    def encode_values(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Values of the variables of some columns, from one label or number of each.

        Raises:
            UnknownNameError: an unknown column or label.
            InputError: a value outside the support, or a missing one.

        Example:
            >>> columns = choose_families(pd.DataFrame({"region": ["north", "south", "west"] * 8}))
            >>> columns.encode_values({"region": "south"})
            {'region=north': 0.0, 'region=south': 1.0, 'region=west': 0.0}
        """
        states = dict[str, float]()
        for name, value in values.items():
            # Text of an undecodable argument has no type of text in pandas.
            column = self[name]
            cells = pd.Series([value], name=name, dtype=object if isinstance(value, str) else None)
            _check_complete({name: cells})
            states |= dict(zip(column.variables, column.encoded(cells)[0].tolist(), strict=True))
        return states

    def is_continuous(self, name: str) -> bool:
        """Whether the values of a column have a density."""
        return not self[name].family.is_discrete

    def labels_of(self, name: str, labels: Sequence[str]) -> pd.Series:
        """Labels of a column, given as text, as its data frame wrote them, in its type."""
        column = self[name]
        codes = np.array([column.levels.index(label) for label in labels], dtype=np.int64)
        return column.decoded(np.eye(len(column.levels))[codes] if column.is_category else codes[:, None].astype(float))

    def decode(self, values: Any) -> pd.DataFrame:
        """A data frame with the labels, units and, where they can hold the values, types of the columns.

        Args:
            values: (n, d) values of the variables, such as draws.

        Raises:
            InputError: another shape, or values outside the supports of the families.
        """
        given = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
        if given.ndim != 2 or given.shape[1] != len(self.domain):
            raise wrong_shape("values", f"(rows, {len(self.domain)})", given)
        numbers = given.astype(np.float64)
        self.families.check_values(torch.from_numpy(numbers), "values")
        return pd.DataFrame({c.name: c.decoded(numbers[:, list(self.units[c.name])]) for c in self.columns})

    @property
    def overview(self) -> str:
        """The families in one line, such as ``0/1: ill; counts: visits, falls; left out: id``."""
        names: dict[str, list[str]] = {}
        for column in self.columns:
            words = column.family_words if column.levels else _plural_of(column.family_words)
            words = "categories" if column.is_category else words
            names.setdefault(words, []).append(column.name)
        names |= {"left out": list(self.left_out)} if self.left_out else {}
        return "; ".join(f"{words}: {listed(some)}" for words, some in names.items())

    def table(self) -> SummaryTable:
        """The choice: a line for every column with its family, levels and the reason; then those that are left out."""
        lines = [(c.name, c.family_words, c.values_words, c.reason) for c in self.columns]
        lines += [(name, "left out", "", reason) for name, reason in self.left_out.items()]
        return SummaryTable(lines, columns=["column", "family", "values", "reason"])

    @override
    def __repr__(self) -> str:
        lines = [f"RootColumns: {len(self.columns)} columns, {len(self.domain)} variables"]
        for column in self.columns:
            values = f" ({column.values_words})" if column.values_words else ""
            lines.append(f"{column.name}: {column.family_words}{values}, as {column.reason}")
        lines += [f"{name}: left out, as it {reason}" for name, reason in self.left_out.items()]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        return html_of(self.table())

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description for model files, inverse of :meth:`from_json`."""
        return {"columns": [column.to_json() for column in self.columns], "left_out": dict(self.left_out)}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Rebuild the record; nothing in the value is executed.

        Raises:
            InputError: a value that :meth:`to_json` does not give.
        """
        FRAME_RULE.check(value, "columns")
        return cls(tuple(map(RootColumn.from_json, value["columns"])), value["left_out"])

    def check_domain(self, domain: Domain, argument: str) -> None:
        """Refuse a model of other variables."""
        if domain.names != self.domain.names:
            raise other_domain(argument, "the variables of the model", received=f"{', '.join(domain.names[:6])}, ...")


def choose_families(
    frame: FrameLike,
    families: Mapping[str, FamilyWord] | None = None,
    *,
    exclude: Collection[str] = (),
    centre: bool = True,
    counts: ArrayLike | None = None,
) -> RootColumns:
    r"""Choose the family of every column of a data frame, or refuse where its values do not say it.

    Identifiers, dates, free text and empty columns are left out as :func:`~pyro_hoim.data.read_columns` does, and so
    are columns of one value. Of the others:

    * a column of two values, whatever its type, is 0/1; 1 is the second in order.
    * text and categories of pandas are categories, of at most 30 levels; levels that no row has are none.
    * numbers with a fraction are *positive* (exponential) if none is negative, their standard deviation is more than
      0.66 of the mean, where an exponential law is more probable than a normal one
      (:math:`\sigma/\mu > \sqrt{e / 2\pi}`), and their skewness is more than 1, half that of an exponential law; else
      *real* (Gaussian).
    * whole numbers of more than 12 values are *real* where some are negative, or where the mean is far from 0 (at least
      five standard deviations, or two without skewness beyond 1/2), *counts* (Poisson) where the variance is that of
      counts (between 2/3 and 3/2 of a mean below 100) or they are skewed beyond 1 with a standard deviation of at least
      half the mean, and no value is above 10,000.
    * all else may be codes, counts or amounts: whole numbers of 3 to 12 values, such as 1 to 5; other whole numbers;
      numbers with fractions of 3 or 4 values; columns that are called codes, such as ``zip``; and categories of more
      levels. It has to be said, and one error names all such columns.

    Args:
        frame: of pandas or polars, a row per observation, without missing cells.
        families: family of some columns, by name: ``binary`` (``bernoulli``), ``category``, ``count`` (``poisson``),
            ``bounded:M`` for a count from 0 to M, ``positive`` (``exponential``), ``real`` (``gaussian``) or a node
            family, also a user's; ``"*"`` stands for all columns whose values do not say it. Bounds of counts are
            never guessed.
        exclude: columns that are left out.
        centre: measure Gaussian columns from their rounded mean. Their interactions with counts and positive numbers,
            and in sets of three, depend on where 0 is (:math:`\lvert x\rvert^{2/3}`); the density of a row does not
            depend on a shift. Without it from 0.
        counts: how often each row was seen, whole numbers (n,): all is as for the rows repeated so often.

    Raises:
        InputError: columns whose family has to be said; a family that a column cannot have, or no column left.
        InputTypeError: no data frame, or something else than a family.
        UnknownNameError: a column that is not there.
        MissingDataError: missing cells; every column that has some is named.

    Example:
        >>> frame = pd.DataFrame({"region": [1, 2, 3, 1, 2, 3], "cost": [0.5, 12.5, 1.5, 2.25, 0.75, 1.25]})
        >>> try:
        ...     choose_families(frame)
        ... except ValueError as error:
        ...     print(error.code)
        missing-part
        >>> choose_families(frame, {"region": "category"})
        RootColumns: 2 columns, 4 variables
          region: category of 3 levels (1, 2, 3), as it was said to be one
          cost: positive number, as its numbers are positive and skewed (standard deviation 1.4 times the mean)
    """
    # The door: a frame with the columns that are spoken of.
    if not is_frame(frame):
        raise wrong_type("data", "a data frame", frame)
    source = Source.of_frame(as_frame(frame))
    if isinstance(exclude, str):
        raise wrong_type("exclude", "a collection of names of columns", received=repr(exclude))
    check_type(families or {}, Mapping, "families", "a mapping from columns to families")
    stated = dict(families or {})
    others = stated.pop(EVERY, None)
    check_names(exclude, source.header, "exclude", noun="column")
    check_names(stated, source.header, "families", noun="column")
    if both := [name for name in stated if name in exclude]:
        raise conflict("exclude", f"column {both[0]!r} has a family and is left out")
    if not source.num_rows:
        raise none_received("data", "at least one row")
    weights: NDArray[np.float64] | None = None
    if counts is not None:
        given = np.asarray(counts).ravel()
        weights = parse_counts(given, name="counts", where="row {} of counts".format, fractional=False)
        check_exact_shape(weights, (source.num_rows,), "counts")
        weights = weights if weights.any() else None
    # Columns that hold nothing for a model, then missing cells of the others.
    left_out = dict.fromkeys(exclude, "was excluded")
    names = [name for name in source.header if name not in left_out]
    unsaid = [name for name in names if name not in stated]
    useless = left_out_of_numbers(source, unsaid)
    left_out |= {name: _NUMBERS_FIRST.sub(r"\2 (\1)", reading.reason) for name, reading in useless.items()}
    cells = {name: pd.Series(source.column(name)) for name in names if name not in left_out}
    _check_complete(cells)
    left_out |= {name: "has one value" for name in cells if name not in stated and _factors(cells[name])[0].max() < 1}
    # The family of each, and one error for all that have to be said.
    looks = {name: _Look.of(name, cells[name], weights) for name in cells if name not in left_out}
    chosen = [_said(look, stated[n], centre) if n in stated else _chosen(look, centre) for n, look in looks.items()]
    if others is not None:
        chosen = [_said(looks[one.name], others, centre) if isinstance(one, _Question) else one for one in chosen]
    _ask([one for one in chosen if isinstance(one, _Question)])
    if not chosen:
        reasons = ", ".join(f"{name!r} {reason}" for name, reason in list(left_out.items())[:_SHOWN])
        raise refused("data", f"no column is left to learn from: {reasons}", code="empty")
    ordered = {name: left_out[name] for name in source.header if name in left_out}
    return RootColumns(tuple(cast("list[RootColumn]", chosen)), ordered)


# What a column looks like, which family goes with it, and what has to be asked.


class _Question(NamedTuple):
    """A column whose family has to be said: what its values are, and the word that is most likely."""

    name: str
    problem: str
    example: str


class _Look(NamedTuple):
    """A column: its labels in order, their type and, where they are numbers, the numbers of all rows with weights."""

    name: str
    dtype: str
    level_type: LevelType
    labels: tuple[str, ...]
    is_declared: bool
    is_ordered: bool
    numbers: NDArray[np.float64] | None
    num_rows: int
    weights: NDArray[np.float64] | None

    @classmethod
    def of(cls, name: str, cells: pd.Series, weights: NDArray[np.float64] | None) -> _Look:
        """Look at a column without missing cells."""
        positions, distinct, dtype = _factors(cells)
        labels = labels_of_values(f"column {name!r}", distinct)
        present = np.unique(positions)
        by_label = {labels[i]: distinct[i] for i in present.tolist()}
        # Categories have an order of their own, all else that of numbers, then text.
        ordered = tuple(by_label) if dtype is not None else tuple(sorted(by_label, key=level_order))
        level_type = _level_type(list(by_label.values()))
        numbers = to_numbers(cells).to_numpy(dtype=float) if level_type in ("whole", "number") else None
        is_text = dtype is None and level_type == "text"
        if is_text and len(ordered) > _FEW and all(meaning_of(label) is not None for label in ordered):
            numbers = to_numbers(cells).to_numpy(dtype=float)  # numbers of a file that was read as text
        is_declared = dtype is not None
        kind = _dtype_of(cells.dtype)
        is_ordered = is_declared and bool(dtype.ordered)
        return cls(name, kind, level_type, ordered, is_declared, is_ordered, numbers, len(cells), weights)

    @property
    def moments(self) -> tuple[float, float, float]:
        """Mean, standard deviation and skewness of the numbers."""
        assert self.numbers is not None
        mean = float(np.average(self.numbers, weights=self.weights))
        second, third = (float(np.average((self.numbers - mean) ** k, weights=self.weights)) for k in (2, 3))
        spread = math.sqrt(second)
        return mean, spread, third / spread**3 if spread > 0 else math.nan

    def binary(self, reason: str) -> RootColumn:
        """The column as a variable of 0 and 1."""
        how = (self.labels, self.dtype, self.level_type, self.is_ordered)
        return RootColumn(self.name, TruncatedPoissonFamily(1), reason, *how)

    def category(self, reason: str) -> RootColumn:
        """The column as a category."""
        how = (self.labels, self.dtype, self.level_type, self.is_ordered)
        return RootColumn(self.name, IndicatorFamily(self.name), reason, *how)

    def number(self, family: NodeFamily, reason: str, centre: bool) -> RootColumn:
        """The column as a number of a family."""
        numbers = self.numbers
        assert numbers is not None
        _check_support(self.name, family, numbers)
        mean, spread, _ = (0.0, 1.0, 0.0) if family.is_discrete else self.moments
        origin = _rounded(mean, spread) if centre and isinstance(family, GaussianFamily) else 0.0
        # Of numbers that are all equal, or too far apart for their squares, nothing is known.
        spread = spread if 0 < spread < math.inf else 1.0
        return RootColumn(self.name, family, reason, (), self.dtype, self.level_type, False, origin, spread)


def _said(look: _Look, word: object, centre: bool) -> RootColumn:
    """The column with a family that was said."""
    where, reason = f"family of {look.name!r}", "it was said to be one"
    check_type(word, str | NodeFamily, where, "a word or a node family")
    family: object = word
    if isinstance(word, str):
        bounded = _BOUNDED.fullmatch(word)
        family = TruncatedPoissonFamily(int(bounded[1])) if bounded else _WORDS.get(word)
        if family is None:
            raise unexpected(where, _SAY + in_python(", or a node family"), word, code="unknown-choice")
    # Labels, where the family is one of labels.
    is_one = isinstance(family, TruncatedPoissonFamily) and family.maximum == 1
    if family == "binary" or (is_one and set(look.labels) != {"0", "1"}):
        if len(look.labels) != 2:
            raise unexpected(where, "a column of two values", received=f"{len(look.labels)} values")
        return look.binary(reason)
    if is_one:
        return look.binary(reason)
    if family == "category" or isinstance(family, IndicatorFamily):
        if len(look.labels) < 2:
            raise unexpected(where, "a column of at least two values", received="one value")
        if len(look.labels) > max(_MOST_LEVELS, look.num_rows / 2):
            expected, received = "a category of at most half as many levels as rows", f"{len(look.labels)} levels"
            raise unexpected(where, expected, received=f"{received} in {look.num_rows} rows")
        return look.category(reason)
    family = node_family(family) if isinstance(family, str) else family
    assert isinstance(family, NodeFamily)
    if look.numbers is None:
        shown = next(label for label in look.labels if meaning_of(label) is None or look.level_type == "bool")
        raise unexpected(f"column {look.name!r}", f"numbers for the {family.name} family", received=repr(shown))
    return look.number(family, reason, centre)


def _chosen(look: _Look, centre: bool) -> RootColumn | _Question:
    """The column with the family that its type and values say, or what has to be asked."""
    size, numbers = len(look.labels), look.numbers
    if size == 2:
        return look.binary("it has two values")
    if look.is_declared or numbers is None:
        what = "its type declares categories" if look.is_declared else f"it is text of {size} values"
        many = f"has {size} levels, more than the {_MOST_LEVELS} of a category that is not asked for"
        return look.category(what) if size <= _MOST_LEVELS else _Question(look.name, many, "category")
    # Numbers: names of codes first, then few values, then their distribution.
    whole = bool((numbers == np.floor(numbers)).all())
    span = f"from {numbers.min():g} to {numbers.max():g}"
    if _CODE.fullmatch(look.name):
        return _Question(look.name, f"is called a code and holds {size} numbers {span}", "category")
    if size <= (_FEW if whole else _FEW_REALS):
        kind = "whole numbers" if whole else "numbers"
        return _Question(look.name, f"holds {size} different {kind} {span}", "category")
    return _whole(look, numbers, span, centre) if whole else _real(look, numbers, centre)


def _real(look: _Look, numbers: NDArray[np.float64], centre: bool) -> RootColumn:
    """A column of numbers with fractions."""
    mean, spread, skewness = look.moments
    if numbers.min() >= 0 and spread > _EXPONENTIAL * mean and skewness > 1:
        words = f"its numbers are positive and skewed (standard deviation {times(spread / mean)} the mean)"
        return look.number(ExponentialFamily(), words, centre)
    return look.number(GaussianFamily(), "its numbers have fractions", centre)


def _whole(look: _Look, numbers: NDArray[np.float64], span: str, centre: bool) -> RootColumn | _Question:
    """A column of whole numbers of many values."""
    mean, spread, skewness = look.moments
    if numbers.min() < 0:
        return look.number(GaussianFamily(), "some of its whole numbers are negative", centre)
    if mean < 100 and 2 / 3 <= spread**2 / mean <= 3 / 2 and skewness > -0.25:
        words = f"its whole numbers vary as counts do (variance {times(spread**2 / mean)} the mean)"
        return look.number(PoissonFamily(), words, centre)
    if mean >= 5 * spread or (mean >= 2 * spread and abs(skewness) <= 0.5):
        words = f"its whole numbers are far from 0 (mean {mean:.3g}, standard deviation {spread:.3g})"
        return look.number(GaussianFamily(), words, centre)
    if skewness > 1 and spread >= mean / 2 and numbers.max() <= _MOST_COUNT:
        words = f"its whole numbers are many and skewed (mean {mean:.3g}, largest {numbers.max():g})"
        if (ratio := spread**2 / mean) > _WIDE:
            words += f"; their variance is {times(ratio)} the mean, wider than intervals and draws of the model allow"
        return look.number(PoissonFamily(), words, centre)
    # Counts begin near 0; amounts and ages that do not, are real, and amounts over several powers of ten positive.
    is_near_zero = spread >= mean / 2 and skewness > 0.5
    example = "positive" if numbers.max() > _MOST_COUNT else "count" if is_near_zero else "real"
    return _Question(look.name, f"holds {len(look.labels)} different whole numbers {span}", example)


def _plural_of(words: str) -> str:
    """Several columns of a family, such as ``counts from 0 to 7``."""
    head, between, rest = words.partition(" from ")
    return f"{head}s{between}{rest}"


def _ask(questions: Sequence[_Question]) -> None:
    """One error for all columns whose family has to be said."""
    if not questions:
        return
    shown = ", ".join(f"{name!r} {problem}" for name, problem, _ in questions[:_SHOWN])
    if len(questions) > _SHOWN:
        shown += f", and likewise {', '.join(repr(one.name) for one in questions[_SHOWN:])}"
    example = {one.name: one.example for one in questions[:_SHOWN]}
    node = in_python(", or a node family")
    for_all = option("family", f"{EVERY}=real")
    every = in_python(f", and {EVERY!r} stands for all of them", f"; {for_all} is said of all of them")
    typed = " ".join(option("family", f"{name}={word}") for name, word in example.items())
    hint = (
        f"say what {'it is' if len(questions) == 1 else 'they are'}, such as "
        f"{in_python(f'{example!r}', typed)}, where a family is {_SAY}{node}{every}; or leave columns out by "
        f"{option('exclude', [questions[0].name])}"
    )
    problem = f"columns may be codes of categories, counts or amounts, and their values do not say which: {shown}"
    raise refused("families", problem, hint, code="missing-part")


def _factors(cells: pd.Series) -> tuple[NDArray[np.int64], list[Any], pd.CategoricalDtype | None]:
    """Positions of the cells among distinct values; cells that are no values are refused."""
    return factorise(cells, f"column {cells.name!r}")


def _check_complete(cells: Mapping[str, pd.Series]) -> None:
    """Refuse missing cells, of all columns at once."""
    missing = {name: int(is_empty(column).sum()) for name, column in cells.items()}
    named = [f"{name!r} ({number})" for name, number in missing.items() if number]
    if named:
        shown = ", ".join(named[:_SHOWN]) + (f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else "")
        hint = "fill them, leave these rows out, such as frame.dropna(), or leave the columns out by exclude="
        raise MissingDataError(f"missing cells in {shown}", argument="data", hint=hint)


def _check_support(name: str, family: NodeFamily, numbers: NDArray[np.float64]) -> None:
    """Refuse numbers outside the support of a family; the first one is named with its row."""
    values = torch.tensor(numbers, dtype=torch.float64)
    try:
        family.check_values(values, f"column {name!r}")
    except InputError as error:
        # The first row whose value is refused, by halves.
        row, stop = 0, len(values)
        while stop - row > 1:
            middle = (row + stop) // 2
            try:
                family.check_values(values[row:middle], "values")
                row = middle
            except InputError:
                stop = middle
        received = f"{numbers[row]:g}"
        raise error.replace(argument=f"{row_position(row)}, column {name!r}", received=received) from None


def _rounded(mean: float, spread: float) -> float:
    """The mean, rounded by at most a tenth of the standard deviation, so that a reader can quote it."""
    if not spread > 0:
        return mean
    digits = -math.floor(math.log10(spread / 5))
    return round(mean, digits) + 0.0


def _level_type(values: Sequence[Any]) -> LevelType:
    """What distinct values are."""
    if all(isinstance(value, bool | np.bool_) for value in values):
        return "bool"
    if not all(isinstance(value, Real) and not isinstance(value, bool | np.bool_) for value in values):
        return "text"
    return "whole" if all(isinstance(value, int | np.integer) for value in values) else "number"


def _value_of(label: str, level_type: LevelType) -> Any:
    """A label as the frame writes it."""
    if level_type == "text":
        return label
    if level_type == "whole":
        return int(label)  # exact where a float is not
    number = meaning_of(label)
    assert number is not None
    return bool(number) if level_type == "bool" else number


def _dtype_of(dtype: Any) -> str:
    """The type of a column that :meth:`RootColumns.decode` gives back; others become one that holds the same values."""
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    name = str(getattr(dtype, "numpy_dtype", dtype)) if isinstance(dtype, pd.ArrowDtype) else str(dtype)
    return name if _DTYPES.fullmatch(name) else "object"
