"""Families of models as records in a registry: the command line asks the registry and knows no family by name.

A family declares the options of ``fit``, checks them against each other, and fits; what it found is a record. It
neither parses a command line nor prints: that is done once, for all families.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from ..errors import check_names, refused

__all__ = [
    "Asked",
    "Family",
    "Option",
    "Plan",
    "Request",
    "Source",
    "Study",
    "families",
    "family_named",
    "register",
]


@dataclass(frozen=True)
class Option:
    """An option of ``fit`` that a family takes; equal options of several families are one option.

    Attributes:
        name: of the Python argument; the option is written with hyphens.
        help: one or two sentences.
        kind: what the words are turned into; a switch has an opposite, ``no-name``, and may be left open.
        choices: the words allowed, of a choice.
        low: smallest number allowed, None for no bound; of a number above 0 it is 0 and ``is_open``.
        high: largest number allowed.
        is_open: whether ``low`` itself is refused.
        default: value where the option is not given.
        is_shown: whether the help shows the default.
        multiple: whether it may be given several times; the value is a tuple.
        metavar: how the help writes the value.
    """

    name: str
    help: str
    kind: Literal["text", "choice", "whole", "number", "path", "flag", "switch"] = "text"
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    is_open: bool = False
    default: Any = None
    is_shown: bool = False
    multiple: bool = False
    metavar: str | None = None


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


class Source(Protocol):
    """Rows with their name and what is to be said of them."""

    @property
    def name(self) -> str:
        """Short name."""
        ...

    @property
    def rows(self) -> Any:
        """What is fitted: an :class:`~pyro_hoim.data.Observations` or a :class:`~pyro_hoim.data.CountTable`."""
        ...

    @property
    def about(self) -> tuple[str, ...]:
        """Sentences on where the rows come from."""
        ...

    def told(self) -> tuple[str, ...]:
        """Sentences on what a reader may not expect of the rows."""
        ...

    def facts(self) -> dict[str, Any]:
        """What a program may want to know of the rows: keys of the summary."""
        ...


@dataclass(frozen=True)
class Request:
    """What a plan is given to work with.

    Attributes:
        source: the rows.
        parts: rows of train, validation and test.
        fractions: of these parts; a part of fraction zero is empty.
        seed: of everything random.
        folder: to leave model files, report and posterior in; it exists.
        checkpoint: folder of what an interrupted run is continued from; it exists.
        resume: whether to continue from there.
        earlier_seconds: time of the sessions before.
        announce: says one line on the progress of the run.
        progress: whether somebody may look at progress bars.
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


@dataclass(frozen=True)
class Study:
    """What a fit has found, as the command line shows it.

    Attributes:
        summary: keys of the JSON of ``fit`` and of ``fit.json``, besides those of every family.
        text: the report for a terminal.
        files: what was left in the folder beside ``report.html`` and ``model.safetensors``: file names by what they
            hold.
    """

    summary: Mapping[str, Any]
    text: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])


class Plan(Protocol):
    """A fit whose options have been checked against each other."""

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
        """Fit, and leave model files and the report in the folder."""
        ...


@dataclass(frozen=True)
class Family:
    """One kind of model.

    Attributes:
        kind: in model files, such as ``generalized-root``.
        name: in a sentence, such as ``generalized root model``.
        short: value of the option ``model``.
        options: of ``fit``.
        plan: checks options against each other.
        instead: what to do instead of an option that the family lacks, by the option's name.
    """

    kind: str
    name: str
    short: str
    options: tuple[Option, ...]
    plan: Callable[[Asked], Plan]
    instead: Mapping[str, str] = field(default_factory=dict[str, str])


_FAMILIES: dict[str, Family] = {}


def register(family: Family) -> None:
    """Add a family, which the command line then offers.

    Raises:
        InputError: another family has its name or its kind.
    """
    for other in _FAMILIES.values():
        if family.short == other.short or family.kind == other.kind:
            problem = f"{family.short!r} of kind {family.kind!r} is registered already"
            raise refused("family", problem, code="repeated-name")
    _FAMILIES[family.short] = family


def families() -> tuple[Family, ...]:
    """All families, in the order in which they were registered."""
    return tuple(_FAMILIES.values())


def family_named(short: str) -> Family:
    """The family of a value of the option ``model``.

    Raises:
        UnknownNameError: no such family.
    """
    check_names([short], list(_FAMILIES), "family", noun="family")
    return _FAMILIES[short]
