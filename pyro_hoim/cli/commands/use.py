"""``sample``, ``score`` and ``predict``: use a fitted model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pandas as pd

from ...budgets import check_cells
from ...core.command.pieces import Pieces
from ...core.command.reading import read_cells
from ...core.family import Question
from ...core.words import plural
from ...errors import conflict, refused, unexpected
from ..asking import (
    DATA,
    JSON,
    MODEL,
    SAFE_CSV,
    FamilyCommand,
    ask,
    beside,
    check_new_file,
    figures,
    parse_given,
    show,
    with_rows,
    write,
    write_csv,
)
from ..options import SEED, WholeNumber
from ..output import echo_json, say
from ..reading import file_options
from ..streams import complete_pieces, predict_pieces, repeated

__all__ = ["predict", "sample", "score"]


@click.command(cls=FamilyCommand)
@MODEL
@click.option("-n", "number", type=WholeNumber(1), metavar="N", help="How many rows; with --complete how often each.")
@click.option("--given", multiple=True, metavar="COL=VALUE", help="Fix a column; may be given several times.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the draws.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.csv", help="Write here instead of printing.")
@SAFE_CSV
@file_options
@click.pass_context
def sample(ctx: click.Context, model: Path, given: tuple[str, ...], out: Path | None, safe_csv: bool, **_: Any) -> None:
    """Draw independent rows from MODEL as CSV, also given some columns, or fill the gaps of the rows of a file.

    The draws are exact (no Markov chain) where the model allows. Otherwise every row is the state of a Gibbs chain of
    its own, led to the model through a path of temperatures and then burnt in; one line on standard error says so.

    With --complete FILE every row of FILE comes back N times with its missing cells drawn given the others (multiple
    imputation; a first column "imputation" numbers the completed tables where N is above 1). Rows with a label that
    MODEL does not know are counted and left out; --missing LABEL makes the label missing.
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
    if file is None or family.complete is None:
        for name in ("most_probable", "missing"):
            if name in question.given:
                raise conflict(f"--{name.replace('_', '-')}", "belongs to --complete FILE")
        fixed = parse_given(given, question.stored.domain, family.data_type)
        write(family.draw(replace(question, values={**question.values, "given": fixed})), out, safe_csv)
        return
    if given:
        raise conflict("--given", "cannot be combined with --complete", "write the value into the file")
    if Pieces.of(question.values).wanted(file) and Path(file).exists():
        complete_pieces(family, question, file, out, safe_csv)
        return
    question = with_rows(family, question, file)
    question = replace(question, rows=repeated(question.rows, question["number"]))
    answer = family.complete(question)
    notes = [*question.left_out("they are not completed and not written"), *answer.notes]
    write(replace(answer, notes=notes), out, safe_csv)


@click.command(cls=FamilyCommand)
@MODEL
@DATA
@JSON
@click.pass_context
def score(ctx: click.Context, model: Path, file: Path, as_json: bool, **_: Any) -> None:
    """Gain of MODEL over independent columns on the rows of FILE, and mean negative log-likelihood, in nats a row.

    Independent columns have the frequencies of the rows that MODEL was fitted to. Missing cells are summed over. Rows
    with a label that MODEL does not know are counted and left out. Where log Z is estimated, by the fit that wrote
    MODEL or by --method ais, both carry its error, which is the same for every row. --json has the KL divergence from
    the rows' empirical law too, of complete rows.

    Of a dependency network: the pseudo-likelihood, and the rest where its law can be enumerated (65,536 states). Of a
    generalized root model: the pseudo-likelihood, and the rest where log Z is exact, or estimated by --method ais.
    """
    family, question = ask(ctx, model)
    question = with_rows(family, question, file)
    if not question.rows.total_count > 0:
        received = "none or counts that sum to zero"
        raise unexpected(file, "at least one observation", received=received, code="empty")
    show(family.score(question), question, as_json)


@click.command(cls=FamilyCommand)
@MODEL
@DATA
@click.option(
    "--target", required=True, multiple=True, metavar="COL", help="The column to predict; several one by one."
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

    FILE may leave COL out, or some of its cells empty: those rows are predicted but not scored. --out writes the
    columns of FILE with predictions and probabilities beside them, with several COL under the name of each. A row with
    a label that the model does not know has no prediction and is counted; --missing LABEL makes the label missing.
    With all other cells known a prediction is exact for models of any size.

    Of a generalized root model: the mean of the column given all others, exact, and its errors.
    """
    check_new_file(out)
    family, question = ask(ctx, model)
    question = with_rows(family, question, file, target)
    asked = {name: replace(question, values={**question.values, "target": name}) for name in target}
    answers = {name: family.predict(its) for name, its in asked.items()}
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
