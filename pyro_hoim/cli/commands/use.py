"""``sample``, ``score`` and ``predict``, and ``log-z``, ``mode`` and ``margins``: use a fitted model."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch

from ...atomic import new_file
from ...budgets import LARGEST_SEED, MAX_SWEEPS, check_cells
from ...core.command.answers import (
    check_possible,
    column_margins,
    describe_log_z,
    log_z_of_nothing,
    margins as margins_of,
    number_text,
    possible_given,
)
from ...core.command.reading import Pieces, read_cells
from ...core.family import Answer, Family, Question
from ...core.words import columns_of, plural
from ...data.files.safe_cells import safe_frame, warn_of_formulas
from ...data.observations import Observations
from ...data.readers import labels_of
from ...errors import InputError, IntractableError, conflict, out_of_range, refused, unexpected
from ...interop.uai import UaiResult, read_uai_evidence, write_uai_result
from ..asking import (
    DATA,
    MODEL,
    SAFE_CSV,
    ModelCommand,
    ask,
    beside,
    check_new_file,
    figures,
    parse_given,
    show,
    show_csv,
    with_rows,
    write,
    write_csv,
)
from ..options import JSON, SEED, WholeNumber
from ..output import echo_json, say
from ..reading import KnownRows, UnseenLabels, file_options, say_notes

GIVEN = click.option("--given", multiple=True, metavar="COL=VALUE", help="Fix a column; may be given several times.")
EVIDENCE = click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fix columns as a file of evidence in the UAI format says; they are numbered from 0 in the order of MODEL.",
)
_NO_STATE = "no state is possible: Z is zero"


def _out(task: str) -> Callable[..., Any]:
    """The option of a result file."""
    what = f"Also write the result as a file {task} in the UAI format."
    return click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help=what)


def fixed_columns(family: Family, question: Question, given: tuple[str, ...], evidence: Path | None) -> dict[str, Any]:
    """Codes, or numbers, of the columns that are fixed by words or by a file."""
    domain = question.stored.domain
    fixed = dict(parse_given(given, question.stored, family.data_type))
    if evidence is None:
        return fixed
    if family.data_type != "labels":
        raise conflict("--evidence", f"a {family.name} has numbers, and the file has levels", "fix them by --given")
    observed = read_uai_evidence(evidence, domain)
    for name, code in observed.items():
        if fixed.setdefault(name, code) != code:
            raise conflict("--evidence", f"fixes {name!r}, which --given holds at another level")
    return fixed


def _shown(domain: Any, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Fixed columns as labels, or as numbers where there are none."""
    return {name: domain[name].labels[code] if domain[name].labels else code for name, code in fixed.items()}


def _conditioned(family: Family, question: Question, fixed: Mapping[str, int]) -> tuple[Question, float]:
    """The question about the other columns, and what the tables of the fixed ones add to log Z."""
    if not fixed:
        return question, 0.0
    stored, constant = family.condition(question.stored, fixed)
    return replace(question, stored=stored), constant


@click.command("log-z", cls=ModelCommand)
@MODEL
@EVIDENCE
@_out("PR")
@JSON
@click.pass_context
def log_z(ctx: click.Context, model: Path, evidence: Path | None, out: Path | None, as_json: bool, **_: Any) -> None:
    """Logarithm of the normalising constant of MODEL (balanced coding, or the roots of a grm; in nats).

    For a model of corner tables without all subsets this is log Z in the corner coding, and the JSON says so. An
    estimate comes with its standard error, limits, the effective sample size, and the verdict on them; that of --method
    bounds also with a lower and an upper bound that are certain. --time-limit leaves the bounds so far, and Ctrl-C
    does once there are any.

    MODEL may be a file in the UAI format, of which it is the log of Z, in nats. With --evidence FILE the sum is over
    the states that agree with it.
    """
    check_new_file(out)
    family, question = ask(ctx, model)
    if not family.has("log_z"):
        why = family.hint("log-z")
        problem = f"{model} holds a {family.name}, which has no normalising constant" + (f": {why}" if why else "")
        raise InputError(problem, code="not-normalizable")
    fixed = fixed_columns(family, question, (), evidence)
    question, constant = _conditioned(family, question, fixed)
    if constant == -np.inf:
        result = log_z_of_nothing("the fixed columns are impossible together")
    else:
        result = family.log_z(question)
    if fixed:
        result = result.moved(torch.tensor(constant, dtype=result.value.dtype), result.coding)
    value = float(result.value)
    if out is not None:
        write_uai_result(out, UaiResult("PR", log_partition=value))
    is_zero = float(result.upper) == -np.inf  # an estimate that met no possible state says nothing of the kind
    if as_json:
        json = {name: value for name, value in result.to_json().items() if name != "coding" or value == "corner"}
        echo_json({**json, **({"is_zero": True} if is_zero else {})})
    else:
        say(*describe_log_z(result), *([_NO_STATE] if is_zero else []))


@click.command(cls=ModelCommand)
@MODEL
@GIVEN
@EVIDENCE
@_out("MAP")
@JSON
@click.pass_context
def mode(
    ctx: click.Context,
    model: Path,
    given: tuple[str, ...],
    evidence: Path | None,
    out: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    """A most probable state of MODEL, also given some columns; of several one is taken.

    It is exact, and refused where the other columns cannot be summed over. MODEL may be a file in the UAI format. The
    log weight is the sum of the tables there, the log probability that of the state given the fixed columns (nats).
    """
    check_new_file(out)
    family, question = ask(ctx, model)
    if not family.has("mode"):
        family.mode(question.stored)  # refuses
    domain, fixed = question.stored.domain, fixed_columns(family, question, given, evidence)
    question, constant = _conditioned(family, question, fixed)
    check_possible(constant, domain, fixed)
    with possible_given(domain, fixed):
        best = family.mode(question.stored)
    codes = {**best.codes, **fixed}
    state = {name: domain[name].labels[codes[name]] for name in domain.names}
    if out is not None:
        write_uai_result(out, UaiResult("MAP", state=tuple(codes[name] for name in domain.names)))
    weight = best.log_weight + constant
    if as_json:
        numbers = {"log_weight": weight, "log_prob": best.log_prob, "kind": "exact", "method": best.method}
        echo_json({"state": state, **numbers, "given": _shown(domain, fixed)})
        return
    about = " given the fixed columns" if fixed else ""
    say(
        *columns_of(["column", "level"], [[name, label] for name, label in state.items()]),
        f"log weight       {number_text(weight)} nats (exact, {best.method})",
        f"log probability  {number_text(best.log_prob)} nats{about}",
    )


@click.command(cls=ModelCommand)
@MODEL
@click.argument("names", nargs=-1)
@GIVEN
@EVIDENCE
@click.option(
    "--num-draws",
    type=WholeNumber(100, MAX_SWEEPS),
    default=20_000,
    show_default=True,
    help="Draws, where they are needed.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the draws.")
@_out("MAR")
@JSON
@click.pass_context
def margins(
    ctx: click.Context,
    model: Path,
    names: tuple[str, ...],
    given: tuple[str, ...],
    evidence: Path | None,
    out: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Probabilities of all combinations of the columns NAMES under MODEL, also given others.

    Without NAMES these are the probabilities of every column by itself. MODEL may be a file in the UAI format.

    They are exact if the other columns can be summed over. Otherwise they are shares of draws, with standard errors.
    """
    check_new_file(out)
    if out is not None and names:
        raise conflict("--out", "the file has the probabilities of every column", "leave out NAMES")
    family, question = ask(ctx, model)
    domain, fixed = question.stored.domain, fixed_columns(family, question, given, evidence)
    typed = dict(text.split("=", 1) for text in given)
    shown = typed if evidence is None else _shown(domain, fixed)
    if by_file := next((name for name in names if name in fixed and name not in typed), None):
        raise conflict("--evidence", f"fixes {by_file!r}, whose distribution is asked for")
    if names:
        # Columns that a file fixes make the sum over the others smaller.
        inner, left = question, fixed
        if evidence is not None and family.has("condition") and not {*names} & {*fixed} and {*names} <= {*domain.names}:
            with suppress(IntractableError):  # joined columns are not conditioned on: the rows say what is fixed
                inner, constant = _conditioned(family, question, fixed)
                check_possible(constant, domain, fixed)
                left = {}
        answer = margins_of(family, inner, names, left)
    else:
        answer = column_margins(family, question, fixed)
        if out is not None:
            parts = tuple(np.array(column["probabilities"]) for column in answer.json["columns"])
            write_uai_result(out, UaiResult("MAR", margins=parts))
    say_notes(answer.notes)
    if as_json:
        echo_json({**answer.json, "given": shown})
    else:
        say(*answer.lines)


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
