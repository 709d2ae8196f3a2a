"""``interactions``, ``compare`` and ``report``: look at a model."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ...core.family import more_interactions, top_interactions
from ...errors import IntractableError, refused
from ...families import load
from ...results.comparison import compare as compare_models
from ...results.fitted import LoadedModel
from ..asking import MODEL, SAFE_CSV, FamilyCommand, ModelCommand, ask, with_rows
from ..options import JSON, Command, WholeNumber
from ..output import echo_json, new_folder, say
from ..reading import file_options, say_notes

# ``compare`` and ``report``: models of any family beside each other, and the page of one.


@click.command(cls=FamilyCommand)
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL...")
@click.option("--data", type=click.Path(path_type=Path), metavar="FILE", help="Rows to compare the models on.")
@file_options
@JSON
@click.pass_context
def compare(ctx: click.Context, models: tuple[Path, ...], data: Path | None, as_json: bool, **_: Any) -> None:
    """Compare models of the same columns, of one family or of several.

    Each model has its number of parameters and its log-likelihood on the rows that it was estimated from. If the files
    show that these are maximum-likelihood estimates, there are also AIC, BIC and likelihood-ratio tests. With --data
    FILE there are also the mean log-likelihood of the rows of FILE and the gain over the first model. Take rows that no
    model has seen.
    """
    for model in models:
        if models.count(model) > 1:
            raise refused("MODEL", f"{model} is given twice", "name every model once", code="repeated-name")
    loaded = dict(zip(_names(models), map(load, models), strict=True))
    # Rows to compare on are read once, in the way of the first model.
    rows = None
    if data is not None:
        family, question = ask(ctx, models[0])
        question = with_rows(family, question, data)
        say_notes(question.left_out("they are not compared"))
        rows = question.rows
    table = compare_models(loaded, rows)
    if as_json:
        records = table.reset_index().to_dict("records")
        echo_json({"models": records, "notes": table.attrs.get("notes", [])})
    else:
        say_notes(table.attrs.pop("notes", []))
        say(*str(table).split("\n"))


def _names(models: Sequence[Path]) -> list[str]:
    """Paths without the folders that all share, and without their ending where that leaves them different."""
    shared = len(Path(os.path.commonpath([model.absolute().parent for model in models])).parts)
    paths = [Path(*model.absolute().parts[shared:]) for model in models]
    short = [str(path.with_suffix("")) if path.suffix == ".safetensors" else str(path) for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


@click.command(cls=Command)
@MODEL
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.  [default: a new one]")
@SAFE_CSV
def report(model: Path, out: Path | None, safe_csv: bool) -> None:
    """Write a page on MODEL from what its file holds, without the rows that it was estimated from."""
    if out is not None and out.is_dir() and any(out.iterdir()):
        raise refused("--out", f"folder {out} exists and is not empty", "choose another", code="existing-file")
    loaded = load(model)
    folder = new_folder(out, f"report-{model.stem if model.is_file() else model.name}", resume=False)
    say(f"report: {loaded.report(folder, safe_csv=safe_csv)}")


@click.command(cls=ModelCommand)
@MODEL
@click.option("--top", type=WholeNumber(1), metavar="N", help="Only the N strongest interactions.")
@JSON
@click.pass_context
def interactions(ctx: click.Context, model: Path, as_json: bool, **_: Any) -> None:
    """Interactions of MODEL by strength: the root mean square of the balanced table, in nats.

    The coefficient is the entry of largest size, with the levels it stands for. Interactions of a fit without a finite
    maximum-likelihood estimate that are infinite come first, as do those that compare what is declared impossible;
    below are the contrasts of levels that are finite.

    The refined information is what the model loses, in nats a row, without the interaction and those that contain it,
    all others fitted again. It is exact for small models. For large ones it is an upper bound (only the interactions
    inside it are fitted again), estimated from rows drawn from the model, with its standard error. Such numbers are
    marked <=.

    For a dependency network this shows which column is predicted from which, with the information gained in nats a row.
    For a generalized root model it shows the tuples by coefficient, with the entry of the tensor.

    Below stand the odds ratios with their intervals, as odds_ratios() gives them in Python, the most certain first.
    """
    family, question = ask(ctx, model)
    answer = family.interactions(question)
    # Of a list that is cut, odds ratios of as many interactions, in an order of their own.
    ratios, lines = _odds_ratios(load(model), question.values.get("level", 0.95), question["top"])
    if as_json:
        echo_json({**answer.json, "odds_ratios": ratios})
    else:
        say(*([*answer.lines, "", *lines] if answer.json["interactions"] else ["no interactions"]))


def _odds_ratios(model: LoadedModel, level: float, top: int | None) -> tuple[dict[str, Any] | None, list[str]]:
    """What ``odds_ratios()`` of a model says in Python, for a program and as lines; or why it has none."""
    try:
        table = model.odds_ratios(level)
    except IntractableError as refusal:
        return None, [f"(no odds ratios: {refusal.problem or refusal})"]
    positions, left_out = top_interactions([term.split(":") for term in table["term"]], top)
    table, notes = table.iloc[positions].reset_index(drop=True), table.attrs.pop("notes")
    # JSON has null for what is not known, and for what is infinite.
    rows = [
        {"edge": row.pop("term").split(":"), **row, "is_infinite": math.isinf(row["odds_ratio"])}
        for row in table.to_dict("records")
    ]
    table.attrs.pop("notes", None)
    lines = ["Odds ratios, the most certain first", *str(table).split("\n"), *more_interactions(left_out)]
    json = {"level": level, "rows": rows, "left_out": left_out, "notes": notes}
    return json, [*lines, *(f"({note})" for note in notes)]
