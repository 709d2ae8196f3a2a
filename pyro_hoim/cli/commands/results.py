"""``compare`` and ``report``: models of any family beside each other, and the page of one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ...errors import refused
from ...families import load
from ...results.comparison import compare as compare_models
from ..asking import JSON, MODEL, SAFE_CSV, FamilyCommand, ask, with_rows
from ..options import Command
from ..output import echo_json, new_folder, say
from ..reading import file_options, say_notes

__all__ = ["compare", "report"]


@click.command(cls=FamilyCommand)
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL...")
@click.option("--on", type=click.Path(path_type=Path), metavar="FILE", help="Rows to compare the models on.")
@file_options
@JSON
@click.pass_context
def compare(ctx: click.Context, models: tuple[Path, ...], on: Path | None, as_json: bool, **_: Any) -> None:
    """Compare models of the same columns, of one family or of several.

    Each has its number of parameters and its log-likelihood on the rows that it was estimated from, and AIC, BIC and
    likelihood-ratio tests where the files tell that these are maximum-likelihood estimates. With --on FILE also the
    mean log-likelihood of the rows of FILE, best such as no model has seen, and the gain over the first model.
    """
    for model in models:
        if models.count(model) > 1:
            raise refused("MODEL", f"{model} is given twice", "name every model once", code="repeated-name")
    loaded = dict(zip(_names(models), map(load, models), strict=True))
    rows = None
    if on is not None:
        family, question = ask(ctx, models[0])
        question = with_rows(family, question, on)
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
