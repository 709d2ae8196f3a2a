"""Families of models as records in a registry: the command line asks the registry and knows no family by name.

A family declares the options that it takes beside those of every family, fits, and answers questions about a model
from its file; what it found is a record. It neither parses a command line nor prints: that is done once, for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd

from ..errors import ModelFileError, check_choice, check_names, check_whole, refused
from ..schema import Domain
from .page import Page
from .partition import LogPartition
from .scores import Figures, RowLogLikelihood
from .words import option, plural, rows_text, with_options

__all__ = [
    "Answer",
    "Asked",
    "Family",
    "Option",
    "Plan",
    "Question",
    "Request",
    "Source",
    "Stored",
    "Study",
    "families",
    "family_named",
    "family_of",
    "register",
]


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

    Example:
        >>> asked = Asked({"order": (2,)}, frozenset({"order"}), None, None, None, seed=1)
        >>> asked["order"], asked.seed
        ((2,), 1)
    """

    values: Mapping[str, Any]
    given: frozenset[str]
    source: str | None
    columns: str | None
    split: tuple[float, float, float] | None
    seed: int

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

    Example:
        >>> from pyro_hoim import load_table
        >>> source = Source("ucb", load_table("ucb_admissions"), about=("Admissions to Berkeley in 1973.",))
        >>> source.name, source.rows.total_count
        ('ucb', 4526.0)
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
        >>> request.about
        ['Admissions to Berkeley in 1973.']
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


@dataclass(frozen=True)
class Study:
    """What a fit has found.

    Attributes:
        analysis: what the family saves and makes a page of.
        summary: keys of the JSON of ``fit`` and of ``fit.json``, besides those of every family.
        is_open: whether a time limit ended the work, so that its checkpoint stays and can be continued.

    Example:
        >>> from pyro_hoim import InteractionHypergraph, fit, load_table
        >>> rows = load_table("ucb_admissions")
        >>> result = fit(InteractionHypergraph.from_order(rows.domain, 2), rows)
        >>> study = Study(result, {"df": family_named("log-linear").figures(result).df})
        >>> study.summary["df"]
        5
    """

    analysis: Any
    summary: Mapping[str, Any]
    is_open: bool = False


class Plan(Protocol):
    """A fit whose options have been checked against each other.

    Example:
        >>> family = family_named("log-linear")
        >>> defaults = {option.name: option.unset for option in family.options["fit"]} | {"target": None}
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

    def run(self, request: Request) -> Study:
        """Fit, keeping checkpoints."""
        ...


@dataclass(frozen=True)
class Stored:
    """A model as its file holds it.

    Attributes:
        kind: of its family.
        model: what the file holds, as the family knows it.
        domain: its variables.
        info: the free-form information of the file.

    Example:
        >>> import pyro_hoim as hoim
        >>> from pyro_hoim.core.operations import stored_model
        >>> rows = hoim.load_table("ucb_admissions")
        >>> family, stored = stored_model(hoim.fit(hoim.InteractionHypergraph.from_order(rows.domain, 2), rows))
        >>> stored.kind, stored.domain.names
        ('hierarchical-log-linear', ('Admit', 'Gender', 'Dept'))
    """

    kind: str
    model: Any
    domain: Domain
    info: Mapping[str, Any]


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

    Example:
        >>> import pyro_hoim as hoim
        >>> from pyro_hoim.core.operations import stored_model
        >>> rows = hoim.load_table("ucb_admissions")
        >>> family, stored = stored_model(hoim.fit(hoim.InteractionHypergraph.from_order(rows.domain, 2), rows))
        >>> question = Question(stored, Path("model.safetensors"), {"seed": 1})
        >>> stored.kind, question["seed"]
        ('hierarchical-log-linear', 1)
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
class Answer:
    """What a family answers.

    Attributes:
        json: keys of the JSON object.
        lines: the same for a reader.
        notes: sentences on what the answer rests on.
        frame: rows, which are written as CSV.
        of_part: figures of other rows, for those parts of a file that a fit saw.
        shown: names of these figures that a reader sees.

    Example:
        >>> answer = Answer(json={"accuracy": 0.75}, lines=("accuracy: 0.75",), notes=("Of 4 rows.",))
        >>> answer.json["accuracy"], answer.frame
        (0.75, None)
    """

    json: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lines: Sequence[str] = ()
    notes: Sequence[str] = ()
    frame: pd.DataFrame | None = None
    of_part: Callable[[Any], dict[str, float | None]] | None = None
    shown: Sequence[str] = ()


def _save_model(analysis: Any, folder: Path) -> dict[str, str]:
    """Write the one file of an analysis."""
    analysis.save(folder / "model.safetensors")
    return {}


@dataclass(frozen=True)
class Family:
    """One kind of model.

    Attributes:
        kind: in model files, such as ``generalized-root``.
        name: in a sentence, such as ``generalized root model``.
        short: value of the option ``model``.
        data_type: what its columns hold; ``labels`` are :class:`~pyro_hoim.Observations`, ``numbers`` a
            :class:`~pyro_hoim.CountTable`.
        options: beside those of every family, by command.
        fit: checks options against each other.
        load: what a file holds.
        write: leaves that in a file.
        stored: what a file holds, as a record, of a model, of what a fit returned, or of what ``load`` did; None for
            those of other families.
        sections: the page on what a fit has found.
        draw: rows of the model, given some columns.
        score: how well it predicts rows.
        predict: one column of rows from the others.
        interactions: what ties its columns, strongest first.
        complete: fills the missing cells of rows; None where that is not possible.
        log_z: its log normalising constant; None where it has none.
        estimate: fits rows in memory, without files: rows (a data frame for a family of numbers), ``seed``, and options
            by keyword; what it returns ``stored`` knows. None where a model is fitted from files alone.
        row_log_likelihood: log-likelihood of every row: of a record, rows, and whether the log pseudo-likelihood is
            asked for; None where there is none.
        save: leaves the model of an analysis in a folder, as ``model.safetensors``, and what belongs to it; names of
            further files by what they hold. By default the method ``save`` of the analysis writes that one file.
        summary: table of what a model, or the result of a fit, consists of: columns ``term`` and mostly ``estimate``,
            sentences in ``attrs["notes"]``; takes ``level`` and options of its own. By default its interactions.
        figures: of a model, or of the result of a fit; by default the number of variables and interactions.
        nested: likelihood-ratio test of a result against a larger one: statistic, degrees of freedom, p-value, and in
            words how that was found, "" for a chi-square distribution that fits; InputError where the models are not
            nested or were not fitted to the same rows.
        term_tests: table of tests of every interaction of a result: ``term``, ``statistic``, ``df``, ``p_value``.
        instead: what to do instead of an option, of ``log-z`` or of a method of results that the family lacks; written
            as help is.

    Example:
        >>> family = family_named("log-linear")
        >>> family.name, family.data_type
        ('log-linear model', 'labels')
    """

    kind: str
    name: str
    short: str
    data_type: Literal["labels", "numbers"]
    options: Mapping[str, tuple[Option, ...]]
    fit: Callable[[Asked], Plan]
    load: Callable[[Path], Any]
    write: Callable[[Path, Any], None]
    stored: Callable[[Any], Stored | None]
    sections: Callable[[Any], Page]
    draw: Callable[[Question], Answer]
    score: Callable[[Question], Answer]
    predict: Callable[[Question], Answer]
    interactions: Callable[[Question], Answer]
    complete: Callable[[Question], Answer] | None = None
    log_z: Callable[[Question], LogPartition] | None = None
    estimate: Callable[..., Any] | None = None
    row_log_likelihood: Callable[..., RowLogLikelihood] | None = None
    save: Callable[[Any, Path], Mapping[str, str]] = _save_model
    summary: Callable[..., pd.DataFrame] | None = None
    figures: Callable[[Any], Figures] | None = None
    nested: Callable[[Any, Any], tuple[float, int, float, str]] | None = None
    term_tests: Callable[..., pd.DataFrame] | None = None
    instead: Mapping[str, str] = field(default_factory=dict[str, str])

    def read(self, path: Path) -> Stored:
        """The model of a file."""
        found = self.stored(self.load(path))
        assert found is not None
        return found

    def hint(self, lacking: str) -> str | None:
        """What to do instead of an option or a command that the family lacks, where there is anything."""
        words = self.instead.get(lacking)
        return None if words is None else with_options(words)


_REGISTRATIONS = "pyro_hoim.families"
_FAMILIES: dict[str, Family] = {}


def register(family: Family) -> None:
    """Add a family, which the command line then offers; InputError where another has its name or its kind.

    Example:
        >>> register(families()[0])
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: family: 'log-linear' of kind 'hierarchical-log-linear' is registered already
    """
    for other in _FAMILIES.values():
        if family.short == other.short or family.kind == other.kind:
            problem = f"{family.short!r} of kind {family.kind!r} is registered already"
            raise refused("family", problem, code="repeated-name")
    _FAMILIES[family.short] = family


def families() -> tuple[Family, ...]:
    """All families, in the order in which they were registered; those of the library register at first use.

    Example:
        >>> [family.short for family in families()][:3]
        ['log-linear', 'dependency-network', 'grm']
    """
    import_module(_REGISTRATIONS)
    return tuple(_FAMILIES.values())


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
    for family in families():
        if family.kind == kind:
            return family
    known = " or ".join(repr(family.kind) for family in families())
    raise ModelFileError(f"holds a model of kind {kind[:40]!r}, expected {known}", argument=where)
