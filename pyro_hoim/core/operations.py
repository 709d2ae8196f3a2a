"""What every family does with a model: score, predict, impute, sample and save.

A model is what :func:`~pyro_hoim.load` returns, or an energy, a distribution or the result of a fit that a family
knows. Rows are data frames of pandas or polars, :class:`~pyro_hoim.Observations`, or a :class:`~pyro_hoim.CountTable`
for a family of numbers. Of a data frame the columns of the model are read, in any order, and results have its index.
"""

import math
import os
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd

from ..data.columns import RowOptions
from ..data.counts import CountTable, kind_of_table
from ..data.encoding import parse_counts
from ..data.frames import (
    DataLike,
    as_counts,
    as_frame,
    as_observations,
    codes_of,
    column_named,
    drop_missing,
    is_frame,
    is_source,
    labels_like,
    long_table,
)
from ..data.observations import Observations
from ..data.readers import row_position
from ..errors import (
    DataWarning,
    caller_level,
    check_choice,
    check_names,
    check_type,
    check_whole,
    conflict,
    is_whole,
    none_received,
    other_domain,
    refused,
)
from ..schema import Domain, Variable
from .family import Answer, Family, FrameEncoder, Question, Stored, family_of_model, more_interactions
from .prediction import extend_rows
from .scores import RowLogLikelihood
from .words import plural

_SHOWN = 5  # rows that a warning names

READING = "_reading"
"""Attribute of a result that says how its rows were read, as model files keep it: the cuts of its columns."""


def save(model: object, path: str | os.PathLike[str]) -> None:
    """Write a model into a file, in a folder that exists, replacing an existing file in one step.

    Raises:
        InputTypeError: no model that a family knows.
        ModelFileError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> import pyro_hoim as hoim
        >>> rows = hoim.load_table("ucb_admissions")
        >>> model = hoim.fit(hoim.InteractionHypergraph.from_order(rows.domain, 2), rows)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, f"{folder}/admissions.safetensors")
        ...     kept = hoim.load(f"{folder}/admissions.safetensors")
        >>> kept.domain.names
        ('Admit', 'Gender', 'Dept')
    """
    family, stored = stored_model(model)
    family.complete_record(model, stored.model).save(path)


def score(
    model: object,
    rows: DataLike | CountTable,
    *,
    count: str | None = "count",
    weights: str | None = None,
    missing: str | None = None,
    missing_values: Collection[str] = ("",),
    **options: Any,
) -> dict[str, Any]:
    """How well a model predicts rows, in nats a row.

    Args:
        model: of any family.
        rows: a data frame, :class:`~pyro_hoim.Observations`, or a :class:`~pyro_hoim.CountTable` of numbers.
        count: column of whole counts of a data frame, which may be absent.
        weights: column of weights of a data frame, in place of counts; not of numbers.
        missing: ``"drop"`` leaves rows of a data frame with missing cells out, which are else summed over; not of
            numbers.
        missing_values: labels of a data frame that mean "missing", besides None and NaN; not of numbers.
        options: of the command ``score`` of its family, such as ``method="ais"``.

    Returns:
        Figures by name, as the command prints them with its option for JSON; ``notes`` says what they rest on.

    Raises:
        UnknownNameError: a data frame without a column of the model, or with an unknown label.
        InputError, InputTypeError: rows of another domain or type, none, or an option that the family lacks.
        IntractableError: log Z is out of reach.

    Example:
        >>> import pyro_hoim as hoim
        >>> rows = hoim.load_table("ucb_admissions")
        >>> model = hoim.fit(hoim.InteractionHypergraph.from_order(rows.domain, 2), rows)
        >>> figures = score(model, rows)
        >>> round(figures["nll"], 4), round(figures["gain"], 4), figures["log_z_kind"]
        (2.8875, 0.2295, 'exact')
    """
    family, question = _question("score", model, options)
    said = {"count": count, "weights": weights, "missing": missing, "missing_values": missing_values}
    unsaid = {"count": "count", "weights": None, "missing": None, "missing_values": ("",)}
    given: Any = {name: value for name, value in said.items() if value != unsaid[name]}
    rows = _checked_rows(family, question.stored, rows, each=False, **given)
    answer = family.score(replace(question, rows=rows))
    return {**answer.json, "notes": list(answer.notes)}


def predict(
    model: object, rows: DataLike | CountTable, target: str, *, missing_values: Collection[str] = ("",), **options: Any
) -> pd.DataFrame:
    """One column of rows from the others.

    Args:
        model: of any family.
        rows: as of :func:`score`; what they say of the target is not used, and its column may be absent.
        target: the column.
        missing_values: as of :func:`score`.
        options: of the command ``predict`` of its family.

    Returns:
        One line a row, with the index of a data frame. Of labels: the most probable one, as a value of the column of
        the data frame where it has one, the probability of each, and whether these are exact; of numbers: mean and
        standard deviation, and the value of the row. A row whose other cells have probability zero together has no
        prediction: it is NaN, and ``attrs["notes"]`` count such rows.

    Warns:
        DataWarning: rows without a prediction, and which.

    Raises:
        UnknownNameError: no such column; or as :func:`score`.
        InputError, InputTypeError, IntractableError: as :func:`score`.

    Example:
        >>> import pyro_hoim as hoim
        >>> rows = hoim.load_table("ucb_admissions")
        >>> model = hoim.fit(hoim.InteractionHypergraph.from_order(rows.domain, 2), rows)
        >>> predict(model, pd.DataFrame({"Gender": ["Male", "Female"], "Dept": ["A", "F"]}), "Admit").round(3)
          predicted  p(Admitted)  p(Rejected)  is_exact
        0  Admitted        0.642        0.358      True
        1  Rejected        0.068        0.932      True
    """
    check_type(target, str, "target", "the name of a column")
    family, question = _question("predict", model, options)
    domain, encoder = question.stored.domain, question.stored.encoder
    check_names([target], domain.names if encoder is None else encoder.names, "target")
    read, column, has_target = rows, None, True
    if is_frame(rows):
        rows = as_frame(rows, "rows")
        column = column_named(rows, target)
        has_target = column is not None and (family.data_type == "labels" or not bool(column.isna().any()))
        read = rows if has_target or column is None else rows.drop(columns=column.name)
    absent = () if has_target and encoder is not None else (target,)
    read = _checked_rows(family, question.stored, read, absent=absent, **_by_row(rows, missing_values))
    values = {**question.values, "target": target}
    answer = family.predict(replace(question, rows=read, values=values, has_target=has_target))
    frame = _frame(answer)
    if answer.json.get("impossible_rows"):
        is_lost = frame.filter(like="p(").isna().any(axis=1)
        note = _warn_of_lost("not predicted", "other", is_lost, rows)
        frame.attrs["notes"] = [*answer.notes, note]
    if isinstance(rows, pd.DataFrame):
        if family.data_type == "labels" and column is not None:
            variable = domain[target]
            frame["predicted"] = labels_like(_codes(frame["predicted"], variable), variable, column)
        elif encoder is not None and "predicted" in frame:
            frame["predicted"] = encoder.labels_of(target, list(frame["predicted"]))
        frame.index = rows.index
    return frame


def impute(
    model: object, rows: DataLike, number: int = 1, *, missing_values: Collection[str] = ("",), **options: Any
) -> pd.DataFrame:
    """Rows with their missing cells drawn given the others, each ``number`` times.

    Args:
        model: of any family.
        rows: some cells of which are missing.
        number: completions of every row; a first column ``imputation`` numbers them where there are several.
        missing_values: as of :func:`score`; cells that hold such a label are drawn, too.
        options: of the command ``sample`` of its family, such as ``seed``.

    Returns:
        Labels; of a data frame all its columns, with its index, in their order and with their types. A row whose known
        cells have probability zero together stays as it is, and ``attrs["notes"]`` count such rows.

    Warns:
        DataWarning: rows that stay as they are, and which.

    Raises:
        IntractableError: the family does not complete rows, or not in this way.
        UnknownNameError, InputError, InputTypeError: as :func:`score`, or a number below 1.

    Example:
        >>> import pyro_hoim as hoim
        >>> rows = hoim.load_table("ucb_admissions")
        >>> model = hoim.fit(hoim.InteractionHypergraph.from_order(rows.domain, 2), rows)
        >>> frame = pd.DataFrame({"Admit": [None, "Rejected"], "Gender": ["Male", None], "Dept": ["A", "B"]})
        >>> found = impute(model, frame, number=3, seed=1)
        >>> found["imputation"].tolist(), int(found.isna().sum().sum())
        ([1, 1, 2, 2, 3, 3], 0)
    """
    check_whole(number, "number")
    family, question = _question("sample", model, options, number=number)
    if not family.has("complete"):
        family.complete(question)  # refuses, before any work
    if not is_frame(rows):
        read = _checked_rows(family, question.stored, rows, **_by_row(rows, missing_values))
        return _filled(family.complete(replace(question, rows=read)), rows, number)
    frame = as_frame(rows, "rows")
    if number > 1 and "imputation" in frame:
        problem = "the data frame has a column 'imputation'"
        raise refused("rows", problem, "rename it", code="repeated-name")
    read = _checked_rows(family, question.stored, frame, **_by_row(frame, missing_values))
    answer = family.complete(replace(question, rows=read))
    filled = _filled(answer, frame, number)
    whole = pd.concat([frame] * number)
    for variable in question.stored.domain:
        codes = _codes(filled[variable.name], variable)
        column = column_named(frame, variable.name)
        assert column is not None
        whole[column.name] = labels_like(codes, variable, column).set_axis(whole.index)
    if number > 1:
        whole.insert(0, "imputation", filled["imputation"].to_numpy())
    whole.attrs["notes"] = filled.attrs["notes"]
    return whole


def _filled(answer: Answer, rows: object, number: int) -> pd.DataFrame:
    """Completed rows, with a warning of those that stay as they were."""
    frame = _frame(answer)
    is_lost = frame.isna().any(axis=1).iloc[: len(frame) // number]
    if is_lost.any():
        _warn_of_lost("not filled", "known", is_lost, rows)
    return frame


def _warn_of_lost(what: str, which: str, is_lost: pd.Series, rows: object) -> str:
    """Warn of rows without an answer by their labels in the index, or by their numbers from 0; the sentence."""
    index = rows.index if isinstance(rows, pd.DataFrame) else is_lost.index
    lost = index[is_lost.to_numpy()].tolist()
    shown = ", ".join(map(str, lost[:_SHOWN])) + (", ..." if len(lost) > _SHOWN else "")
    sentence = f"{what}: {plural(len(lost), 'row')} whose {which} cells have probability zero together"
    noun = "row" if len(lost) == 1 else "rows"
    warnings.warn(DataWarning(f"{sentence}: {noun} {shown}"), stacklevel=caller_level())
    return sentence


def _codes(labels: Iterable[object], variable: Variable) -> list[int]:
    """Codes of labels, -1 for what is none."""
    place: dict[object, int] = {label: code for code, label in enumerate(variable.labels)}
    return [place.get(label, -1) for label in labels]


def sample(model: object, number: int, given: Mapping[str, Any] | None = None, **options: Any) -> pd.DataFrame:
    """Independent rows of a model, also given some columns.

    Args:
        model: of any family.
        number: of rows.
        given: labels, or numbers, at which columns are held; 1 and True are read as the label ``"1"`` or ``"True"``.
        options: of the command ``sample`` of its family, such as ``seed``, ``method`` and ``burn_in``.

    Returns:
        The rows; ``attrs["notes"]`` of the frame says where they are approximate.

    Raises:
        UnknownNameError: an unknown column or label.
        InputError: a number below 1, values that are impossible together, or an option that the family lacks.
        IntractableError: exact draws were asked for and are out of reach.

    Example:
        >>> import pyro_hoim as hoim
        >>> rows = hoim.load_table("ucb_admissions")
        >>> model = hoim.fit(hoim.InteractionHypergraph.from_order(rows.domain, 2), rows)
        >>> sample(model, 4, given={"Dept": "A"}, seed=1)["Dept"].tolist()
        ['A', 'A', 'A', 'A']
    """
    check_whole(number, "number")
    family, question = _question("sample", model, options, number=number)
    check_type(given, Mapping | None, "given", "values by column, such as {'a': 1}, or None")
    held, domain = dict(given or {}), question.stored.domain
    encoder = question.stored.encoder
    check_names(held, domain.names if encoder is None else encoder.names, "given")
    if encoder is not None:
        held = encoder.encode_values(held)
    fixed = codes_of(held, domain, "given") if family.data_type == "labels" else held
    return _frame(family.draw(replace(question, values={**question.values, "given": fixed})))


def interactions(model: object, top: int | None = None, **options: Any) -> pd.DataFrame:
    """What ties the columns of a model, strongest first; single columns, where the family has them, come last.

    Args:
        model: of any family.
        top: the strongest so many interactions, without single columns; an interaction may have several rows, such as
            both directions of a network or the roots of a tuple. Everything when None.
        options: of the command ``interactions`` of its family; what it finds besides is left out unless asked for, as
            by ``information=True``.

    Returns:
        A table whose notes say how many are left out: ``term``, the names joined by colons; ``order``, how many;
        ``value``, the strength; and what else the command says of every interaction.

    Raises:
        InputError: a number below 1, or an option that the family lacks.
    """
    found = _ties(model, top, options)
    rows = [
        {"term": ":".join(row["edge"]), "order": len(row["edge"]), "value": row["value"]}
        | {name: value for name, value in row.items() if name not in ("edge", "order", "value")}
        for row in found["interactions"]
    ]
    frame = pd.DataFrame(rows, columns=None if rows else ["term", "order", "value"])
    frame["value"] = frame["value"].astype(float)
    frame.attrs["notes"] = more_interactions(found.get("left_out", 0))
    return frame


def _ties(model: object, top: int | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the family says of its interactions, switches off."""
    if top is not None:
        check_whole(top, "top")
    family, question = _question("interactions", model, options, top=top)
    off = {option.name: False for option in family.options("interactions") if option.kind == "switch"}
    return family.interactions(replace(question, values={**question.values, **off, **options})).json


def strengths(model: object) -> tuple[dict[tuple[str, ...], float], tuple[str, str] | None]:
    """Strengths of the interactions of a model as :func:`signed_strengths` gives them."""
    return signed_strengths(stored_model(model)[1].variables, _ties(model, None, {})["interactions"])


def signed_strengths(
    domain: Domain, rows: Iterable[Mapping[str, Any]]
) -> tuple[dict[tuple[str, ...], float], tuple[str, str] | None]:
    """The largest strength of every interaction, and what its sign means.

    Where every variable has two levels and coefficients are known, the sign is that of the coefficient of the second
    levels; else there is none.

    Args:
        domain: of the model.
        rows: what the family says of every interaction: ``edge``, ``value`` and perhaps ``standardised`` without units,
            ``coefficient`` with its ``position`` in the table of the interaction, and ``is_infinite``.
    """
    is_binary = all(variable.is_finite and variable.cardinality == 2 for variable in domain)
    strengths: dict[tuple[str, ...], float] = {}
    is_signed = False
    for row in rows:
        edge = tuple(sorted(set(row["edge"]), key=domain.index))
        size = math.inf if row.get("is_infinite") else abs(row.get("standardised", row["value"]) or 0.0)
        if size < abs(strengths.get(edge, 0.0)):
            continue
        strengths[edge] = size
        if is_binary and len(edge) > 1 and {"coefficient", "position"} <= row.keys():
            is_signed = True
            is_odd = (len(edge) - int(row["position"]).bit_count()) % 2 == 1
            strengths[edge] = math.copysign(size, -row["coefficient"] if is_odd else row["coefficient"])
    return strengths, ("second levels together: more frequent", "less frequent") if is_signed else None


def row_log_likelihood(
    model: object, rows: DataLike | CountTable, *, pseudo: bool = False, missing_values: Collection[str] = ("",)
) -> pd.Series:
    """Log-likelihood of every row, missing cells summed over, in nats.

    Args:
        model: of any family.
        rows: as of :func:`score`; counts and weights play no role.
        pseudo: whether the log pseudo-likelihood is wanted, the sum over the cells of a row of the log probability of
            each given the others.
        missing_values: as of :func:`score`.

    Returns:
        The values, with the index of a data frame; ``attrs`` say the ``kind``, ``likelihood``, or where that is out of
        reach ``pseudo-likelihood``, and whether it ``is_exact``.

    Raises:
        IntractableError: the family has none.
        UnknownNameError, InputError, InputTypeError: as :func:`score`.
    """
    found, _ = scored_rows(model, rows, pseudo=pseudo, **_by_row(rows, missing_values))
    index = as_frame(rows, "rows").index if is_frame(rows) else None
    series = pd.Series(found.values.numpy(), index=index, name="log_likelihood")
    series.attrs = {"kind": found.kind, "is_exact": found.is_exact}
    return series


def scored_rows(
    model: object, rows: DataLike | CountTable, *, pseudo: bool = False, **options: Unpack[RowOptions]
) -> tuple[RowLogLikelihood, Observations | CountTable]:
    """Log-likelihoods as of :func:`row_log_likelihood`, and the rows as they were read, as options say."""
    family, stored = stored_model(model)
    if not family.has("row_log_likelihood"):
        family.row_log_likelihood(stored, rows, pseudo)  # refuses, before any work
    read = _checked_rows(family, stored, rows, **options)
    return family.row_log_likelihood(stored, read, pseudo), read


def read_rows(model: object, rows: DataLike | CountTable, **options: Unpack[RowOptions]) -> Observations | CountTable:
    """Rows over the variables of a model, as :func:`score` reads them."""
    family, stored = stored_model(model)
    return _checked_rows(family, stored, rows, each=False, **options)


def stored_model(model: object) -> tuple[Family, Stored]:
    """The family of a model, and what a file holds of it; InputTypeError for what names no family.

    Of a model of joined columns both answer about the columns.
    """
    family = family_of_model(model)
    if isinstance(model, Stored):
        return family, model
    # A result does not change, so it keeps what was made of it; the parameters of other models may move.
    known: Any = model
    return family, known.as_stored if hasattr(type(known), "as_stored") else stored_record(known)


def stored_record(model: Any) -> Stored:
    """What a file would hold of a model, with how its columns were read."""
    stored = family_of_model(model).stored(model)
    if reading := getattr(model, READING, None):
        info = {**stored.info, "reading": reading}
        stored = replace(stored, info=info, model=replace(stored.model, info=info))
    return stored


def _question(command: str, model: object, options: Mapping[str, Any], **values: Any) -> tuple[Family, Question]:
    """The family of a model, and a question with checked options."""
    family, stored = stored_model(model)
    known = {option.name: option for option in family.options(command)}
    if command == "sample":
        values["seed"] = options.get("seed", 0)
        options = {name: value for name, value in options.items() if name != "seed"}
    taken = [name for name, option in known.items() if not option.of_files]
    check_names(options, taken, "options", noun=f"option of {command}")
    for name, value in options.items():
        known[name].check(value)
    given = {name: int(value) if is_whole(value) else value for name, value in options.items()}
    values = {name: int(value) if is_whole(value) else value for name, value in values.items()}
    values |= {name: option.unset for name, option in known.items()} | given
    return family, Question(stored, Path("model"), values, frozenset(options))


def _by_row(rows: Any, missing_values: Collection[str]) -> RowOptions:
    """How a data frame is read for an answer about every row: counts and weights of the rows play no role."""
    options: RowOptions = {"count": None} if is_frame(rows) else {}
    return options if missing_values == ("",) else {**options, "missing_values": missing_values}


def _checked_rows(
    family: Family,
    stored: Stored,
    rows: Any,
    absent: Collection[str] = (),
    each: bool = True,
    **options: Unpack[RowOptions],
) -> Observations | CountTable:
    """Rows over the variables of a model, one at least; columns of a data frame that are ``absent`` may be.

    Of rows that need not be in memory, ``each`` in its place or else the distinct ones with their counts.
    """
    check_names(options, list(RowOptions.__annotations__), "rows", noun="option of rows")
    domain, frame = stored.domain, long_table(rows, argument="rows") if isinstance(rows, pd.Series) else rows
    if options and not is_frame(frame):
        problem = f"{', '.join(options)} can only be said of a data frame"
        raise conflict("rows", problem, "other rows hold their own counts, weights and missing cells")
    if family.data_type == "labels":
        if each and is_source(frame):
            frame = frame.observations()
        check_choice(options.get("missing"), (None, "drop", "marginalise"), "missing")
        how: Any = {name: value for name, value in options.items() if name != "missing"}
        read = extend_rows(as_observations(frame, domain=domain, absent=absent, argument="rows", **how), domain)
        if options.get("missing") == "drop" and read.has_missing:
            read = drop_missing(read, "rows")
    else:
        if others := [name for name, value in options.items() if name != "count" and value is not None]:
            raise refused(others[0], f"a {family.name} takes rows of numbers, each in full", code="conflict")
        count = options.get("count", "count")
        if stored.encoder is None or not is_frame(frame):
            read = as_counts(frame, domain=domain, absent=absent, argument="rows", count=count)
        else:
            read = _encoded(stored.encoder, as_frame(frame, "rows"), domain, absent, count)
        if read.domain.names != domain.names:
            raise other_domain("rows", f"columns {', '.join(domain.names)}", ", ".join(read.domain.names))
    if not read.total_count > 0:
        raise none_received("rows", "at least one observation")
    return read


def _encoded(
    encoder: FrameEncoder, frame: pd.DataFrame, domain: Domain, absent: Collection[str], count: str | None
) -> CountTable:
    """Rows of a data frame as values of the variables of a model, each as often as a column of counts says."""
    values = encoder.encode(frame, absent)
    times = None if count is None or count in encoder.names else column_named(frame, count)
    if times is not None:
        seen = parse_counts(times, name=f"column {count!r}", where=row_position, fractional=False)
        values = np.repeat(values, seen.astype(np.int64), axis=0)
    return CountTable.from_matrix(values, domain.names, kind=kind_of_table(domain), source="rows")


def _frame(answer: Answer) -> pd.DataFrame:
    """The rows of an answer, with its notes."""
    frame = pd.DataFrame() if answer.frame is None else answer.frame
    frame.attrs["notes"] = list(answer.notes)
    return frame
