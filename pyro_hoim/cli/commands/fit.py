"""``pyro-hoim fit``: read a table, fit, diagnose, draw, and leave a folder with report, model and posterior."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...core.family import Asked, Family, Request, Study, family_named
from ...errors import InputError
from ..families import DEFAULT, families
from ..methods import is_terminal
from ..options import SEED, click_option
from ..output import echo_json, new_folder, peak_memory_mb, to_json_text
from ..reading import parse_split, split_rows
from ..seen import keep_split
from ..session import Session, announce, session

__all__ = ["fit"]


class _FitCommand(click.Command):
    """The command with the options of all families, also of those that were registered after it was made."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The argument, the choice of a family, the families' options, and those of every fit."""
        known = families()
        model = click.Option(
            ["--model"],
            type=click.Choice([family.short for family in known]),
            default=DEFAULT,
            show_default=True,
            help="Family of models; grm: generalized root models, of counts or real numbers.",
        )
        own = dict.fromkeys(option for family in known for option in family.options)
        argument, *common = super().get_params(ctx)
        return [argument, model, *map(click_option, own), *common]


def _asked(family: Family, ctx: click.Context, source: str | None, columns: str | None, split: str | None) -> Asked:
    """The options of a family; those of others are refused where they were given."""
    given: set[str] = set()
    for option in dict.fromkeys(option for other in families() for option in other.options):
        if ctx.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE:
            continue
        given.add(option.name)
        if option not in family.options:
            owners = [other.short for other in families() if option in other.options]
            instead = family.instead.get(option.name)
            raise InputError(
                f"--{option.name.replace('_', '-')}: belongs to --model {' or '.join(owners)}, received --model "
                f"{family.short}" + (f"; {instead}" if instead else "")
            )
    values = {option.name: ctx.params[option.name] for option in family.options}
    fractions = None if split is None else parse_split(split)
    return Asked(values, frozenset(given), source, columns, fractions, ctx.params["seed"])


@click.command(cls=_FitCommand)
@click.argument("source", required=False, metavar="[TABLE|FILE]")
@click.option("--columns", metavar="NAMES|N", help="Columns to use: names separated by commas, or the first N.")
@click.option(
    "--split",
    metavar="TRAIN,VALIDATION,TEST",
    help="Fractions of the rows, shuffled by the seed.  [default: 1,0,0; with --select 0.35,0.15,0.5; of "
    "a dependency network or grm 0.8,0,0.2, and 0.6,0.2,0.2 where several --l1 are compared]",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of everything random.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.  [default: a new one]")
@click.option("--resume", is_flag=True, help="Continue an interrupted run in its folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_context
def fit(
    ctx: click.Context,
    source: str | None,
    model: str,
    columns: str | None,
    split: str | None,
    seed: int,
    out: Path | None,
    resume: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Fit a model to an embedded table or a CSV file and write a folder with report, model and posterior.

    FILE has one row per observation, or one row per cell with a column named count. Without any argument the Czech
    autoworkers table is fitted with interactions of order 1, 2 and 3, each with its posterior, and compared.

    A dependency network (--model dependency-network) predicts every column from others by a decision graph.

    A generalized root model (--model grm) holds counts or real numbers, in a CSV file or a sparse matrix of SciPy
    (.npz with --vocab), and learns pairs and triples of columns that vary together.
    """
    started = time.perf_counter()
    family = family_named(model)
    asked = _asked(family, ctx, source, columns, split)
    plan = family.plan(asked)
    read = plan.read()
    table = plan.complete(read)
    fractions = plan.split(table) if asked.split is None else asked.split
    parts = split_rows(table.rows, fractions, seed)
    with session(new_folder(out, table.name, resume), started, read.rows) as run:
        say = partial(announce, begin=started)
        study = plan.run(
            Request(
                table,
                parts,
                fractions,
                seed,
                run.folder,
                run.checkpoint,
                resume,
                run.earlier_seconds,
                say,
                is_terminal(),
            )
        )
        keep_split(run.folder, table.rows, fractions, seed)
        summary = _summary(study, table.facts(), run, seed)
        (run.folder / "fit.json").write_text(to_json_text(summary, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(run.checkpoint)
    if as_json:
        echo_json(summary)
        return
    told = table.told()
    click.echo("\n".join([*told, *([""] if told else []), study.text, ""]))
    files = {"report": "report.html", "model": "model.safetensors", **study.files}
    width = max(map(len, files))
    for what, name in files.items():
        click.echo(f"{what + ':':<{width + 1}} {run.folder / name}")


def _summary(study: Study, facts: Mapping[str, Any], run: Session, seed: int) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    return {
        "model": str(run.folder / "model.safetensors"),
        "report": str(run.folder / "report.html"),
        **study.summary,
        **facts,
        "seconds": run.seconds,
        "peak_memory_mb": peak_memory_mb(),
        "seed": seed,
    }
