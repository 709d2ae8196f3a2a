"""``sample``, ``score`` and ``predict``: use a fitted model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch

from ...atomic import new_file
from ...budgets import LARGEST_SEED, check_cells
from ...core.command.reading import Pieces, read_cells
from ...core.family import Answer, Family, Question
from ...core.words import plural
from ...data.files.safe_cells import safe_frame, warn_of_formulas
from ...data.observations import Observations
from ...data.readers import labels_of
from ...errors import InputError, conflict, out_of_range, refused, unexpected
from ..asking import (
    DATA,
    MODEL,
    SAFE_CSV,
    ModelCommand,
    ask,
    beside,
    check_new_file,
    figures,
    show,
    show_csv,
    with_rows,
    write,
    write_csv,
)
from ..options import JSON, SEED, WholeNumber
from ..output import echo_json, say
from ..reading import KnownRows, UnseenLabels, file_options
from .probabilities import EVIDENCE, fixed_columns

# Rows that are read piece by piece and written piece by piece: completed, and with predictions beside them.


def complete_pieces(family: Family, question: Question, path: Path, out: Path | None, safe: bool) -> None:
    """Complete the rows of a folder or file in their order, in blocks of 65,536 with a seed of their own each."""
    if not family.has("complete"):
        raise conflict("--complete", f"a {family.name} completes no rows")
    missing = tuple(question.values.get("missing") or ())
    reading = question.stored.info.get("reading") or {}
    known = KnownRows.opened(question.stored.domain, path, Pieces.of(question.values), missing, (), reading)
    notes: dict[str, None] = {}
    unseen = 0.0

    # A block at a time is read, completed and written, so that no file is too large.
    def parts() -> Iterator[pd.DataFrame]:
        nonlocal unseen
        for number, rows in enumerate(known.blocks()):
            found, is_unseen = known.coded(rows)
            unseen += float(rows.counts[is_unseen].sum())
            if not found.total_count > 0:
                continue
            asked = {**question.values, "seed": _block_seed(question["seed"], number)}
            answer = family.complete(replace(question, values=asked, rows=repeated(found, question["number"])))
            notes.update(dict.fromkeys(answer.notes))
            yield pd.DataFrame() if answer.frame is None else answer.frame

    written = _write(parts(), out, safe)
    left_out = UnseenLabels(unseen, known.unseen_labels(), np.zeros(0, dtype=bool))
    for note in (*left_out.lines("they are not completed and not written"), *notes):
        say(f"pyro-hoim: note: {note}", err=True)
    if out is not None:
        say(f"{plural(written, 'row')} written to {out}")


def predict_pieces(family: Family, asked: Mapping[str, Question], known: KnownRows, out: Path, safe: bool) -> int:
    """The columns of the model as the rows have them, with predictions beside, block by block; how many were made."""
    predicted = 0

    # A block at a time, so that no file is too large.
    def parts() -> Iterator[pd.DataFrame]:
        nonlocal predicted
        for rows in known.blocks():
            coded, is_unseen = known.coded(rows)
            answers: dict[str, Answer] = {}
            for name, question in asked.items():
                answers[name] = family.predict(replace(question, rows=coded)) if coded.num_rows else Answer({}, [])
            predicted += max(answer.json.get("predicted_rows", 0) for answer in answers.values())
            frame = labels_of(rows.domain, rows.narrow.numpy()).astype(object).fillna("")
            if bool((rows.counts != 1).any()):
                is_whole = known.weight is None
                frame[known.weight or "count"] = rows.counts.long().numpy() if is_whole else rows.counts.numpy()
            yield beside(frame, answers, UnseenLabels(0.0, {}, is_unseen.numpy()), known.path, known.domain)

    _write(parts(), out, safe)
    return predicted


def repeated(rows: Observations, number: int = 1) -> Observations:
    """Rows to complete, each as often as its count says; refused where their copies would be too many cells."""
    from ...budgets import check_cells

    if not rows.has_whole_counts or not rows.total_count > 0:
        raise out_of_range("--complete", "whole counts, not all zero")
    hint = "give fewer rows, smaller counts or a smaller -n"
    check_cells(int(rows.total_count) * number, len(rows.domain), "--complete", hint, "rows")
    return Observations.from_tensor(torch.repeat_interleave(rows.narrow, rows.counts.long(), dim=0), rows.domain)


def _block_seed(seed: int, number: int) -> int:
    """The seed of a block: the one given of the first, so that few rows are completed as those of one file are."""
    if not number:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] % LARGEST_SEED)


def _write(parts: Iterator[pd.DataFrame], out: Path | None, safe: bool) -> int:
    """Data frames of the same columns as one CSV; the number of rows."""
    if safe:
        raise conflict("--safe-csv", "belongs to a file that is read whole")
    written, formulas = 0, list[str]()
    with nullcontext() if out is None else new_file(out) as file:
        for frame in parts:
            _, frame, risky = safe_frame(frame, safe)
            formulas = formulas or risky
            options: Any = {"index": False, "header": not written, "lineterminator": "\n"}
            written += len(frame)
            if file is None:
                show_csv(frame.to_csv(**options))
            else:
                frame.to_csv(file, **options)
    warn_of_formulas(formulas, "--safe-csv")
    return written


@click.command(cls=ModelCommand)
@MODEL
@click.option("-n", "--number", type=WholeNumber(1), metavar="N", help="How many rows; with --complete how often each.")
@click.option("--given", multiple=True, metavar="COL=VALUE", help="Fix a column; may be given several times.")
@EVIDENCE
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the draws.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.csv", help="Write here instead of printing.")
@SAFE_CSV
@file_options
@click.pass_context
def sample(
    ctx: click.Context,
    model: Path,
    given: tuple[str, ...],
    evidence: Path | None,
    out: Path | None,
    safe_csv: bool,
    **_: Any,
) -> None:
    """Draw independent rows from MODEL as CSV, also given some columns, or fill the gaps of the rows of a file.

    The draws are exact (no Markov chain) if the model allows it. Otherwise every row is the state of a Gibbs chain of
    its own, which goes to the model through a path of temperatures and is then burnt in. One line on standard error
    says so.

    With --complete FILE every row of FILE comes back N times, with its missing cells drawn given the others (multiple
    imputation). If N is above 1, a first column "imputation" numbers the completed tables. Rows with a label that MODEL
    does not know are counted and left out. --missing LABEL makes the label missing.
    """
    family, question = ask(ctx, model)
    if question.values.get("burn_in") is not None and question["method"] == "exact":
        raise conflict("--burn-in", "belongs to --method gibbs, received --method exact")
    file = question.values.get("complete")
    check_new_file(out)
    if question["number"] is None:
        if file is None:
            raise refused("-n", "how many rows to draw must be given, such as -n 100", code="missing-part")
        question = replace(question, values={**question.values, "number": 1})
    if file is None:
        check_cells(question["number"], len(question.stored.domain), "number", "draw fewer", "rows")
    # New rows, also given some columns.
    if file is None or not family.has("complete"):
        for name in ("most_probable", "missing"):
            if name in question.given:
                raise conflict(f"--{name.replace('_', '-')}", "belongs to --complete FILE")
        fixed = fixed_columns(family, question, given, evidence)
        try:
            answer = family.draw(replace(question, values={**question.values, "given": fixed}))
        except InputError as error:
            is_of_file = evidence is not None and not given and error.argument in ("given", "--given")
            raise error.replace(argument="--evidence" if is_of_file else error.argument) from error
        write(answer, out, safe_csv)
        return
    # Rows of a file with their gaps filled.
    if given or evidence is not None:
        argument = "--given" if given else "--evidence"
        raise conflict(argument, "cannot be combined with --complete", "write the value into the file")
    if Pieces.of(question.values).wanted(file) and Path(file).exists():
        complete_pieces(family, question, file, out, safe_csv)
        return
    question = with_rows(family, question, file)
    question = replace(question, rows=repeated(question.rows, question["number"]))
    answer = family.complete(question)
    notes = [*question.left_out("they are not completed and not written"), *answer.notes]
    write(replace(answer, notes=notes), out, safe_csv)


@click.command(cls=ModelCommand)
@MODEL
@DATA
@JSON
@click.pass_context
def score(ctx: click.Context, model: Path, file: Path, as_json: bool, **_: Any) -> None:
    """Gain of MODEL over independent columns on the rows of FILE, and mean negative log-likelihood, in nats a row.

    Independent columns have the frequencies of the rows that MODEL was fitted to. Missing cells are summed over. Rows
    with a label that MODEL does not know are counted and left out. If log Z is estimated, by the fit that wrote MODEL
    or by --method ais, both numbers carry its error, which is the same for every row. --json also has the KL divergence
    from the empirical distribution of the complete rows.

    A dependency network has the pseudo-likelihood, and the rest if its joint states can be listed (65,536). A
    generalized root model has the pseudo-likelihood, and the rest if log Z is exact or estimated by --method ais.
    """
    family, question = ask(ctx, model)
    question = with_rows(family, question, file)
    if not question.rows.total_count > 0:
        received = "none or counts that sum to zero"
        raise unexpected(file, "at least one observation", received=received, code="empty")
    show(family.score(question), question, as_json)


@click.command(cls=ModelCommand)
@MODEL
@DATA
@click.option(
    "--target", required=True, multiple=True, metavar="COL", help="The column to predict. May be given several times."
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE.csv", help="Write the rows with their predictions here."
)
@SAFE_CSV
@JSON
@click.pass_context
def predict(
    ctx: click.Context,
    model: Path,
    file: Path,
    target: tuple[str, ...],
    out: Path | None,
    safe_csv: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Predict column COL of FILE from its other columns and compare with what the file says.

    FILE may leave COL out, or some of its cells empty. Such rows are predicted but not scored. --out writes the columns
    of FILE with predictions and probabilities beside them. With several COL they stand under the name of each. A row
    with a label that the model does not know has no prediction and is counted. --missing LABEL makes the label missing.
    If all other cells are known, a prediction is exact for models of any size.

    For a generalized root model the prediction is the exact mean of the column given all others, with its errors.
    """
    check_new_file(out)
    family, question = ask(ctx, model)
    question = with_rows(family, question, file, target)
    asked = {name: replace(question, values={**question.values, "target": name}) for name in target}
    answers = {name: family.predict(its) for name, its in asked.items()}
    # Labels that are no level keep their lines, without a prediction.
    unseen = question.values.get("unseen")
    predicted = max(answer.json["predicted_rows"] for answer in answers.values())
    if out is not None and unseen is not None and unseen.reader is not None:
        predicted = predict_pieces(family, asked, unseen.reader, out, safe_csv)
    elif out is not None:
        write_csv(beside(_columns_of(question, file), answers, unseen, file, question.stored.domain), out, safe_csv)
    if as_json and len(target) > 1:
        echo_json({"targets": {name: figures(answer, asked[name]) for name, answer in answers.items()}})
    else:
        for number, (name, answer) in enumerate(answers.items()):
            click.echo("", nl=number > 0)
            show(answer, asked[name], as_json)
    if out is not None and not as_json:
        say(f"{plural(predicted, 'prediction')} written to {out}")


def _columns_of(question: Question, file: Path) -> pd.DataFrame:
    """The columns of a file as they are."""
    if file.suffix == ".npz":
        return question.rows.to_pandas()
    cells = read_cells(file, question.values.get("sep"), question.values.get("encoding"))
    return pd.DataFrame(dict(zip(cells.header, cells.columns, strict=True)))
