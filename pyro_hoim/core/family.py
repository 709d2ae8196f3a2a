"""Families of models: a model names the kind of its own, and the registry finds the family of a kind or of a word.

A family declares the options that it takes beside those of every family, fits, and answers questions about a model
from its file; what it found is a record. It neither parses a command line nor prints: that is done once, for all.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._kinds import ENTRY_POINTS, KINDS
from ..data.files.table_file import CsvColumns
from ..data.joined import JoinedColumns
from ..errors import (
    FamilyWarning,
    HoimError,
    IntractableError,
    ModelFileError,
    check_choice,
    check_names,
    check_type,
    check_whole,
    out_of_reach,
    refused,
    wrong_type,
)
from ..schema import Domain
from .partition import LogPartition
from .scores import Figures, RowLogLikelihood
from .studies import Study
from .words import option, plural, rows_text, with_options


@dataclass(frozen=True)
class Option:
    """An option of a command that a family takes; equal options of several families are one option.

    Attributes:
        name: of the Python argument; the option is written with hyphens.
        help: one or two sentences; ``{name}`` stands for the option of that name.
        kind: what the words are turned into; a switch has an opposite, ``no-name``, and may be left open.
        choices: the only words allowed, where there are any.
        low: smallest number allowed, None for no bound; of a number above 0 it is 0 and ``is_open``.
        high: largest number allowed.
        is_open: whether ``low`` itself is refused.
        default: value where the option is not given; the help shows it.
        multiple: whether it may be given several times; the value is a tuple.
        metavar: how the help writes the value.
        of_files: whether it says how a file is read, so that calls with rows in memory do not take it.

    Example:
        >>> option = Option("jobs", "Processes at a time.", "whole", low=1, default=1)
        >>> option.check(0)
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: jobs: expected a whole number from 1, received 0
    """

    name: str
    help: str
    kind: Literal["text", "whole", "number", "path", "flag", "switch"] = "text"
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    is_open: bool = False
    default: Any = None
    multiple: bool = False
    metavar: str | None = None
    of_files: bool = False

    @property
    def unset(self) -> Any:
        """The value where the option is not given."""
        return () if self.multiple else False if self.kind == "flag" else self.default

    def check(self, value: Any) -> None:
        """Raise :class:`InputError` for a value that is none of the choices, or a number outside the bounds."""
        if self.choices:
            check_choice(value, self.choices, self.name)
        elif self.kind == "whole" and value is not None:
            low, high = (None if bound is None else int(bound) for bound in (self.low, self.high))
            check_whole(value, self.name, 0 if low is None else low, high)


@dataclass(frozen=True)
class Asked:
    """What ``fit`` was asked, before anything is read.

    Attributes:
        values: of the family's options, by name, defaults included.
        given: names of the options that were typed.
        source: table or file; None for none.
        columns: text of the option ``columns``.
        split: fractions of training, validation and test rows, where they were given.
        seed: of everything random.
        verb: the command: ``fit``, ``learn`` or ``structures``.
        cells: of ``source``, where that is a file that was read already.
    """

    values: Mapping[str, Any]
    given: frozenset[str]
    source: str | None
    columns: str | None
    split: tuple[float, float, float] | None
    seed: int
    verb: str = "fit"
    cells: CsvColumns | None = None

    def __getitem__(self, name: str) -> Any:
        """Value of an option."""
        return self.values[name]


@dataclass(frozen=True)
class Source:
    """Rows with their name and what is to be said of them.

    Attributes:
        name: short name.
        rows: what is fitted: an :class:`~pyro_hoim.data.Observations` or a :class:`~pyro_hoim.data.CountTable`.
        about: sentences on where the rows come from.
        notes: sentences on how a file was read, said once.
        kept: what a model file keeps of that, to read other files in the same way.
    """

    name: str
    rows: Any
    about: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def told(self) -> tuple[str, ...]:
        """Sentences on what a reader may not expect of the rows."""
        return ()

    def size(self) -> str:
        """How large the rows are."""
        return f"{rows_text(self.rows)}, {plural(len(self.rows.domain), 'column')}"

    def warn(self) -> None:
        """Warn of what a reader may not expect of the rows, once."""

    def facts(self) -> dict[str, Any]:
        """What a program may want to know of the rows: keys of the summary."""
        return {}


@dataclass(frozen=True)
class Request:
    """What a plan is given to work with.

    Attributes:
        source: the rows.
        parts: rows of train, validation and test.
        fractions: of these parts; a part of fraction zero is empty.
        seed: of everything random.
        folder: where models and page will be left.
        checkpoint: folder of what an interrupted run is continued from; it exists.
        resume: whether to continue from there.
        earlier_seconds: time of the sessions before.
        announce: says one line on the progress of the run.
        progress: whether somebody may look at progress bars.

    Example:
        >>> from pyro_hoim import load_table
        >>> rows, here = load_table("ucb_admissions"), Path("fitted")
        >>> source = Source("ucb", rows, about=("Admissions to Berkeley in 1973.",))
        >>> parts, fractions = {"train": rows}, (1.0, 0.0, 0.0)
        >>> request = Request(source, parts, fractions, 0, here, here / "kept", False, 0.0, print, progress=False)
        >>> request.begin("fitting pairs")
        fitting pairs; an interrupted run is continued by resume from fitted/kept
    """

    source: Source
    parts: Mapping[str, Any]
    fractions: tuple[float, float, float]
    seed: int
    folder: Path
    checkpoint: Path
    resume: bool
    earlier_seconds: float
    announce: Callable[[str], None]
    progress: bool

    @property
    def about(self) -> list[str]:
        """Sentences on the rows, for the report."""
        return [*self.source.about, *self.source.told()]

    def begin(self, stage: str) -> None:
        """Say what begins, and how to continue it."""
        self.announce(f"{stage}; an interrupted run is continued by {option('resume')} from {self.checkpoint}")


class Plan(Protocol):
    """A fit whose options have been checked against each other.

    Example:
        >>> family = family_named("log-linear")
        >>> defaults = {option.name: option.unset for option in family.options("fit")} | {"target": None}
        >>> plan: Plan = family.fit(Asked(defaults, frozenset(), "ucb_admissions", None, None, seed=0))
        >>> table = plan.complete(plan.read())
        >>> table.rows.total_count, plan.split(table)
        (4526.0, (1.0, 0.0, 0.0))
    """

    def read(self) -> Source:
        """The rows as they are, missing cells and all."""
        ...

    def complete(self, source: Any) -> Source:
        """The rows that are fitted: missing cells are dealt with, and options checked against the columns."""
        ...

    def split(self, source: Any) -> tuple[float, float, float]:
        """Fractions of training, validation and test rows where none were asked for."""
        ...

    def run(self, request: Request) -> Study[Any]:
        """Fit, keeping checkpoints."""
        ...


class FrameEncoder(Protocol):
    """How the columns of data frames are other variables in a model: a category one for each of its levels."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        ...

    def encode(self, frame: Any, absent: Collection[str] = ()) -> NDArray[np.float64]:
        """Values (n, d) of the variables in the rows of a data frame, of which some columns may be absent."""
        ...

    def encode_values(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Values of the variables of some columns, from one value of each column."""
        ...

    def labels_of(self, name: str, labels: Sequence[str]) -> pd.Series:
        """Labels of a column as the data frame wrote them."""
        ...

    def set_of(self, variables: Collection[str]) -> tuple[str, ...]:
        """The columns of some variables."""
        ...

    def is_continuous(self, name: str) -> bool:
        """Whether the values of a column have a density."""
        ...


@dataclass(frozen=True)
class Stored:
    """A model as its file holds it.

    Attributes:
        kind: of its family.
        model: what the file holds, as the family knows it.
        domain: its variables.
        info: the free-form information of the file.
    """

    kind: str
    model: Any
    domain: Domain
    info: Mapping[str, Any]

    @cached_property
    def joined(self) -> JoinedColumns | None:
        """The columns that the model has joined; None where it has not."""
        entry = self.info.get("joined")
        return None if entry is None else JoinedColumns.from_json(entry)

    @property
    def encoder(self) -> FrameEncoder | None:
        """What turns rows of a data frame into values of the variables and back, where columns are none of these."""
        return getattr(self.model, "columns", None)

    @property
    def variables(self) -> Domain:
        """What the interactions are of: joined variables where there are any, and categories in place of indicators."""
        return getattr(self.model, "units", self.domain) if self.joined is None else self.joined.joined_domain


@dataclass(frozen=True)
class Question:
    """What a command asks of a model.

    Attributes:
        stored: the model.
        path: of its file, as it was typed.
        values: of all options, by name.
        given: names of the options that were typed.
        progress: whether somebody may look at progress bars.
        rows: of the file that the command is about, over the model's variables.
        left_out: sentences on rows of that file with unknown labels, from what follows of leaving them out.
        has_target: whether the file holds the column to predict; where it does not, ``rows`` have a missing column or
            zeros.
    """

    stored: Stored
    path: Path
    values: Mapping[str, Any]
    given: frozenset[str] = frozenset()
    progress: bool = False
    rows: Any = None
    left_out: Callable[[str], list[str]] = lambda _: []
    has_target: bool = True

    def __getitem__(self, name: str) -> Any:
        """Value of an option."""
        return self.values[name]


@dataclass(frozen=True)
class Mode:
    """A most probable state.

    Attributes:
        codes: of every variable.
        log_weight: sum of the tables there, in nats.
        log_prob: log of its probability, in nats.
        method: how it was found.
    """

    codes: Mapping[str, int]
    log_weight: float
    log_prob: float
    method: str


@dataclass(frozen=True)
class Answer:
    """What a family answers.

    Attributes:
        json: keys of the JSON object.
        lines: the same for a reader.
        notes: sentences on what the answer rests on.
        frame: rows, which are written as CSV.
        of_part: figures of other rows, for those parts of a file that a fit saw.
        shown: names of these figures that a reader sees.
    """

    json: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lines: Sequence[str] = ()
    notes: Sequence[str] = ()
    frame: pd.DataFrame | None = None
    of_part: Callable[[Any], dict[str, float | None]] | None = None
    shown: Sequence[str] = ()


class Family(ABC):
    """One kind of model, and what is asked of it.

    A subclass has one instance, ``FAMILY``, which imports what it needs in its methods, so that it costs little to
    know it. Methods that are not abstract say that the family cannot do this, or do it in the way of every family.

    Attributes:
        kind: in model files, such as ``generalized-root``; classes of models and results name it as ``model_kind``.
        name: in a sentence, such as ``generalized root model``.
        short: value of the option ``model``.
        numbers: value of the option ``numbers`` of ``learn``, what becomes of numbers there; empty where the family
            does not learn.
        plan: class of plans of its fits.
        record: what a file of one model holds, a :class:`~pyro_hoim.runs.container.ModelRecord`.
        data_type: what its columns hold; ``labels`` are :class:`~pyro_hoim.Observations`, ``numbers`` a
            :class:`~pyro_hoim.CountTable`.
        commands: options beside those of every family, by command.
        instead: what to do instead of an option, of ``log-z`` or of a method of results that the family lacks; written
            as help is.

    Example:
        >>> family = family_named("log-linear")
        >>> family.name, family.data_type, family.has("log_z")
        ('log-linear model', 'labels', True)
    """

    kind: str
    name: str
    short: str
    numbers: str = ""
    record: type[Any]
    plan: Callable[[Asked], Plan]
    data_type: Literal["labels", "numbers"] = "labels"
    commands: ClassVar[Mapping[str, tuple[Option, ...]]] = MappingProxyType({})
    instead: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def options(self, command: str) -> tuple[Option, ...]:
        """The options of a command beside those of every family."""
        return self.commands.get(command, ())

    def fit(self, asked: Asked) -> Plan:
        """A fit whose options have been checked against each other."""
        return self.plan(asked)

    def record_of(self, model: Any) -> Any:
        """What a file holds of a model that names the kind and is no record, such as what a fit returned."""
        raise wrong_type("model", f"a {self.record.__name__}", model)

    def complete_record(self, model: Any, record: Any) -> Any:  # noqa: ARG002
        """The record of a model with what takes some time and is worth keeping in a file."""
        return record

    def file_of(self, model: Any) -> Any:
        """What a file holds of a model or a result, as a file is read."""
        if isinstance(model, Stored):
            return model.model
        return model if isinstance(model, self.record) else self.record_of(model)

    def stored(self, model: Any) -> Stored:
        """What a file holds of a model or a result, with what every family reads of it."""
        record = self.file_of(model)
        return Stored(self.kind, record, record.domain, record.info)

    @abstractmethod
    def draw(self, question: Question) -> Answer:
        """Rows of the model, given some columns."""

    @abstractmethod
    def score(self, question: Question) -> Answer:
        """How well the model predicts rows."""

    @abstractmethod
    def predict(self, question: Question) -> Answer:
        """One column of rows from the others."""

    @abstractmethod
    def interactions(self, question: Question) -> Answer:
        """What ties the columns, strongest first."""

    def complete(self, question: Question) -> Answer:  # noqa: ARG002
        """Rows with their missing cells filled."""
        raise self.lack("complete", "completes no rows", "predict the columns with missing cells, one by one", "impute")

    def log_z(self, question: Question) -> LogPartition:  # noqa: ARG002
        """Log of the normalising constant."""
        raise self.lack("log-z", "has no log Z")

    def condition(self, stored: Stored, codes: Mapping[str, int]) -> tuple[Stored, float]:  # noqa: ARG002
        """The model of the other variables where some are fixed, and what their tables say alone, in nats."""
        raise self.lack("condition", "is not conditioned on columns")

    def mode(self, stored: Stored) -> Mode:  # noqa: ARG002
        """A most probable state."""
        raise self.lack("mode", "has no search for its most probable state", "draw rows, and count them")

    def column_probabilities(self, stored: Stored) -> list[list[float]]:  # noqa: ARG002
        """Probabilities of the levels of every variable, exact."""
        raise self.lack("column_probabilities", "does not give exact probabilities of all its columns")

    def estimate(self, rows: Any, *, seed: int, **options: Any) -> Any:  # noqa: ARG002
        """A fit of rows in memory, a data frame for a family of numbers, without files."""
        raise self.lack("estimate", "is fitted from files alone", argument="family")

    def row_log_likelihood(self, stored: Stored, rows: Any, pseudo: bool = False) -> RowLogLikelihood:  # noqa: ARG002
        """Log-likelihood, or log pseudo-likelihood, of every row."""
        problem = "does not give the likelihood of single rows"
        raise self.lack("row_log_likelihood", problem, "score(rows) tells the mean")

    def summary(self, model: Any, *, level: float) -> pd.DataFrame:  # noqa: ARG002
        """Columns ``term`` and mostly ``estimate``, sentences in ``attrs["notes"]``; a family adds options of its own.

        Where a family has none, its interactions are shown.
        """
        raise self.lack("summary", "has no table of coefficients")

    def odds_ratios(self, model: Any, *, level: float) -> pd.DataFrame:  # noqa: ARG002
        """Odds ratios of the interactions, strongest first: ``term``, ``levels``, ``odds_ratio``; options as above."""
        problem, hint = "has no odds ratios", "interactions() lists what ties its columns, the strongest first"
        raise self.lack("odds_ratios", problem, hint)

    def effects(
        self,
        model: Any,  # noqa: ARG002
        *,
        response: str | None,  # noqa: ARG002
        given: Mapping[str, Any] | None,  # noqa: ARG002
        change: Mapping[str, Any] | None,  # noqa: ARG002
        level: float,  # noqa: ARG002
    ) -> pd.DataFrame:
        """Effects of the columns on each other, at values of the others: ``response``, ``column``, ``estimate``."""
        problem, hint = "has no effects at values of the other columns", "odds_ratios() has those of its interactions"
        raise self.lack("effects", problem, hint)

    def caveats(self, model: Any) -> list[str]:  # noqa: ARG002
        """What limits the answer of a model beside what limits every model: sentences for its page."""
        return []

    def figures(self, model: Any) -> Figures:  # noqa: ARG002
        """Size of a model and how well it fits; where a family has none, variables and interactions are counted."""
        raise self.lack("figures", "has no figures")

    def nested(self, small: Any, big: Any) -> tuple[float, int, float, str]:  # noqa: ARG002
        """Likelihood-ratio test: statistic, degrees of freedom, p-value, and how that was found.

        The last is empty for a chi-square distribution that fits.

        Raises:
            InputError: the models are not nested, or were not fitted to the same rows.
        """
        raise self.lack("nested", "has no test of nested models")

    def term_tests(self, model: Any, **options: Any) -> pd.DataFrame:  # noqa: ARG002
        """A test of every interaction of a result: ``term``, ``statistic``, ``df``, ``p_value``."""
        problem, hint = (
            "has no tests of single interactions",
            "compare models with and without them on other rows, by compare(data=)",
        )
        raise self.lack("test_terms", problem, hint)

    def has(self, method: str) -> bool:
        """Whether the family has a method of its own where it need not."""
        return getattr(type(self), method) is not getattr(Family, method)

    def read(self, path: Path) -> Stored:
        """The model of a file."""
        return self.stored(self.record.load_single(path))

    def hint(self, lacking: str) -> str | None:
        """What to do instead of an option or a command that the family lacks, where there is anything."""
        words = self.instead.get(lacking)
        return None if words is None else with_options(words)

    def lack(self, what: str, problem: str, hint: str | None = None, argument: str | None = None) -> IntractableError:
        """The error that says what the family cannot do, and what to do instead."""
        return out_of_reach(argument or what, f"a {self.name} {problem}", self.hint(what) or hint, code="no-method")


def top_interactions(edges: Sequence[Sequence[str]], top: int | None) -> tuple[list[int], int]:
    """Which entries of a model are shown: those of interactions before those of single columns, each in their order.

    Args:
        edges: the columns of every entry, the strongest first; several entries may belong to one interaction.
        top: show the entries of so many interactions, and no single columns; all when None.

    Returns:
        Positions of the entries, and the number of interactions that are left out.

    Example:
        >>> top_interactions([("a",), ("a", "b"), ("a", "c"), ("b", "a")], 1)
        ([1, 3], 1)
    """
    names = [frozenset(edge) for edge in edges]
    several = [number for number, edge in enumerate(names) if len(edge) > 1]
    if top is None:
        return [*several, *(number for number, edge in enumerate(names) if len(edge) < 2)], 0
    ranks = {edge: rank for rank, edge in enumerate(dict.fromkeys(names[number] for number in several))}
    return [number for number in several if ranks[names[number]] < top], max(0, len(ranks) - top)


def more_interactions(left_out: int) -> list[str]:
    """The line below a list that is cut."""
    return [f"... {plural(left_out, 'more interaction')}"] if left_out else []


# The registry: a family is imported when its kind is met in a model or a file, or its name in a command.

_FAMILIES: dict[str, Family] = {}
"""By kind, those that were imported or registered."""
_HAS_INSTALLED: list[bool] = []


def register(family: Family) -> None:
    """Add a family, which the command line then offers; InputError where another has its name or its kind.

    Example:
        >>> register(families()[0])
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: family: 'log-linear' of kind 'hierarchical-log-linear' is registered already
    """
    shorts = [other.short for other in _FAMILIES.values()] + [short for short, _ in KINDS.values()]
    if family.short in shorts or family.kind in {*_FAMILIES, *KINDS}:
        problem = f"{family.short!r} of kind {family.kind!r} is registered already"
        raise refused("family", problem, code="repeated-name")
    _FAMILIES[family.kind] = family


def register_installed() -> None:
    """Register the families of installed packages; one that cannot be is left out.

    Warns:
        FamilyWarning: an entry point that cannot be loaded, is no :class:`Family`, or has the name of another.
    """
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            family = entry.load()
            check_type(family, Family, entry.value)
            register(family)
        except Exception as error:  # noqa: BLE001 (a module of somebody else's)
            package = "" if entry.dist is None else f" of the package {entry.dist.name}"
            problem = str(error) if isinstance(error, HoimError) else f"{type(error).__name__}: {error}"
            sentence = f"the family {entry.name!r}{package} is left out, for it cannot be registered: {problem}"
            warnings.warn(FamilyWarning(sentence), stacklevel=2)


def _known(kind: str | None) -> Family | None:
    """The family of a kind, imported where it is one of the library."""
    if kind in KINDS and kind not in _FAMILIES:
        _FAMILIES[kind] = import_module(KINDS[kind][1]).FAMILY
    if kind not in _FAMILIES and not _HAS_INSTALLED:
        _HAS_INSTALLED.append(True)
        register_installed()
    return _FAMILIES.get(str(kind))


def families() -> tuple[Family, ...]:
    """All families: those of the library, those of installed packages, and those that were registered.

    Example:
        >>> [family.short for family in families()][:3]
        ['log-linear', 'dependency-network', 'grm']
    """
    _known(None)
    found = map(_known, dict.fromkeys([*KINDS, *_FAMILIES]))
    return tuple(family for family in found if family is not None)


def family_named(short: str) -> Family:
    """The family of a value of the option ``model``; UnknownNameError lists the closest names.

    Example:
        >>> family_named("grm").kind, family_named("grm").data_type
        ('generalized-root', 'numbers')
    """
    known = {family.short: family for family in families()}
    check_names([short], list(known), "family", noun="family")
    return known[short]


def family_of(kind: str, where: object) -> Family:
    """The family of a kind of model file, as found in a place; ModelFileError for no such kind."""
    family = _known(kind)
    if family is None:
        known = " or ".join(repr(family.kind) for family in families())
        raise ModelFileError(f"holds a model of kind {kind[:40]!r}, expected {known}", argument=where)
    return family


def family_of_model(model: object) -> Family:
    """The family that a model, a law or the result of a fit names as its own; InputTypeError for other objects."""
    family = _known(model.kind if isinstance(model, Stored) else getattr(type(model), "model_kind", None))
    if family is None:
        raise wrong_type("model", "a model, a law or the result of a fit of a registered family", model)
    return family
