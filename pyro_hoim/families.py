"""Models of any family: load, save and use them through the registry.

The registry holds the families of the library and those of installed packages, which name theirs by an entry point of
the group ``pyro_hoim.families``; see :doc:`/add_a_family`. A model is what :func:`load` returns, or an energy, a law or
the result of a fit that a family knows.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pandas as pd

from .boltzmann.command.family import FAMILY as MACHINES
from .core.family import Answer, Family, Question, Stored, families, family_of, register
from .core.prediction import extend_rows
from .core.rows import check_rows
from .data.counts import CountTable
from .data.observations import Observations
from .dependency_network.command import FAMILY as NETWORKS
from .errors import (
    FamilyWarning,
    HoimError,
    check_names,
    check_type,
    check_whole,
    none_received,
    other_domain,
    out_of_reach,
    wrong_type,
)
from .generalized_root.command.family import FAMILY as ROOTS
from .runs.container import read_kind
from .study.command.family import FAMILY as LOG_LINEAR

__all__ = ["DEFAULT", "families", "impute", "load", "predict", "register_installed", "sample", "save", "score"]

GROUP = "pyro_hoim.families"

DEFAULT = LOG_LINEAR.short
"""The family that is fitted where none is named."""


def register_installed() -> None:
    """Register the families of installed packages; one that cannot be is left out.

    Warns:
        FamilyWarning: an entry point that cannot be loaded, is no :class:`~pyro_hoim.core.Family`, or has the name of
            another.
    """
    for entry in entry_points(group=GROUP):
        try:
            family = entry.load()
            check_type(family, Family, entry.value)
            register(family)
        except Exception as error:  # noqa: BLE001 (a module of somebody else's)
            package = "" if entry.dist is None else f" of the package {entry.dist.name}"
            problem = str(error) if isinstance(error, HoimError) else f"{type(error).__name__}: {error}"
            told = f"the family {entry.name!r}{package} is left out, for it cannot be registered: {problem}"
            warnings.warn(FamilyWarning(told), stacklevel=2)


for known in (LOG_LINEAR, NETWORKS, ROOTS, MACHINES):
    register(known)
register_installed()


def load(path: str | os.PathLike[str]) -> Stored:
    """The model of a file of any family, or of the file ``model.safetensors`` in a folder that ``fit`` left.

    Raises:
        ModelFileError: no such file, damaged, or of a kind that is not registered.
    """
    file = Path(path)
    file = file / "model.safetensors" if file.is_dir() else file
    return family_of(read_kind(file), file).read(file)


def save(model: object, path: str | os.PathLike[str]) -> None:
    """Write a model into a file, in a folder that exists, replacing an existing file in one step.

    Raises:
        InputTypeError: no model that a family knows.
        ModelFileError: the file cannot be written.
    """
    family, stored = _known(model)
    family.write(Path(path), stored.model)


def score(model: object, rows: Observations | CountTable, **options: Any) -> dict[str, Any]:
    """How well a model predicts rows, in nats a row.

    Args:
        model: of any family.
        rows: :class:`~pyro_hoim.Observations`, or a :class:`~pyro_hoim.CountTable` for a family of numbers.
        options: of the command ``score`` of its family, such as ``method="ais"``.

    Returns:
        Figures by name, as the command prints them with its option for JSON; ``notes`` says what they rest on.

    Raises:
        InputError, InputTypeError: rows of another domain or type, none, or an option that the family lacks.
        IntractableError: log Z is out of reach.
    """
    family, question = _question("score", model, options, rows)
    answer = family.score(question)
    return {**answer.json, "notes": list(answer.notes)}


def predict(model: object, rows: Observations | CountTable, target: str, **options: Any) -> pd.DataFrame:
    """One column of rows from the others.

    Args:
        model: of any family.
        rows: as of :func:`score`; what they say of the target is not used.
        target: the column.
        options: of the command ``predict`` of its family.

    Returns:
        One line a row. Of labels: the most probable one, the probability of each, and whether these are exact; of
        numbers: mean and standard deviation, and the value of the row.

    Raises:
        UnknownNameError: no such column.
        InputError, InputTypeError, IntractableError: as :func:`score`.
    """
    family, question = _question("predict", model, options, rows)
    check_names([target], question.stored.domain.names, "target")
    return _frame(family.predict(replace(question, values={**question.values, "target": target})))


def impute(model: object, rows: Observations, number: int = 1, **options: Any) -> pd.DataFrame:
    """Rows with their missing cells drawn given the others, each ``number`` times.

    Args:
        model: of any family.
        rows: some cells of which are missing.
        number: completions of every row; a first column ``imputation`` numbers them where there are several.
        options: of the command ``sample`` of its family, such as ``seed``.

    Raises:
        IntractableError: the family does not complete rows, or not in this way.
        InputError, InputTypeError: as :func:`score`, or a number below 1.
    """
    check_whole(number, "number")
    family, question = _question("sample", model, options, rows, number=number)
    if family.complete is None:
        problem = f"a {family.name} completes no rows"
        raise out_of_reach("impute", problem, family.hint("complete"), code="no-method")
    return _frame(family.complete(question))


def sample(model: object, number: int, given: Mapping[str, Any] | None = None, **options: Any) -> pd.DataFrame:
    """Independent rows of a model, also given some columns.

    Args:
        model: of any family.
        number: of rows.
        given: labels, or numbers, at which columns are held.
        options: of the command ``sample`` of its family, such as ``seed``, ``method`` and ``burn_in``.

    Returns:
        The rows; ``attrs["notes"]`` of the frame says where they are approximate.

    Raises:
        UnknownNameError: an unknown column or label.
        InputError: a number below 1, a value that is impossible, or an option that the family lacks.
        IntractableError: exact draws were asked for and are out of reach.
    """
    check_whole(number, "number")
    family, question = _question("sample", model, options, number=number)
    held = dict(given or {})
    check_names(held, question.stored.domain.names, "given")
    fixed = question.stored.domain.encode_state(held) if family.data_type == "labels" else held
    return _frame(family.draw(replace(question, values={**question.values, "given": fixed})))


def _known(model: object) -> tuple[Family, Stored]:
    """The family of a model, and what a file holds of it."""
    if isinstance(model, Stored):
        return family_of(model.kind, "model"), model
    for family in families():
        stored = family.stored(model)
        if stored is not None:
            return family, stored
    raise wrong_type("model", "a model, a law or the result of a fit of a registered family", model)


def _question(
    command: str, model: object, options: Mapping[str, Any], rows: Any = None, **values: Any
) -> tuple[Family, Question]:
    """The family of a model, and a question with checked options and rows."""
    family, stored = _known(model)
    known = {option.name: option for option in family.options.get(command, ())}
    if command == "sample":
        values["seed"] = options.get("seed", 0)
        options = {name: value for name, value in options.items() if name != "seed"}
    check_names(options, list(known), "options", noun=f"option of {command}")
    for name, value in options.items():
        known[name].check(value)
    values |= {name: option.unset for name, option in known.items()} | dict(options)
    if rows is not None:
        rows = _checked_rows(family, stored, rows)
    return family, Question(stored, Path("model"), values, frozenset(options), rows=rows)


def _checked_rows(family: Family, stored: Stored, rows: Any) -> Any:
    """Rows over the variables of a model, one at least."""
    if family.data_type == "labels":
        check_rows(rows, "rows")
        rows = extend_rows(rows, stored.domain)
    else:
        check_type(rows, CountTable, "rows")
        if rows.domain.names != stored.domain.names:
            raise other_domain("rows", f"columns {', '.join(stored.domain.names)}", ", ".join(rows.domain.names))
    if not rows.total_count > 0:
        raise none_received("rows", "at least one observation")
    return rows


def _frame(answer: Answer) -> pd.DataFrame:
    """The rows of an answer, with its notes."""
    frame = pd.DataFrame() if answer.frame is None else answer.frame
    frame.attrs["notes"] = list(answer.notes)
    return frame
