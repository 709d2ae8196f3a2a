"""``fit``, ``learn`` and ``structures``: read a table, find a model, and leave a folder with report and model."""

import shlex
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource
from typing_extensions import override

from ...atomic import write_file
from ...core.command.options import LABELLED
from ...core.command.rows import Fractions, Missing
from ...core.family import Asked, Family, Plan, Question, Request, families, family_named, family_of
from ...core.page import Page, Section
from ...core.studies import Study
from ...data.counts import CountTable
from ...data.observations import Observations
from ...errors import IntractableError, check_names, check_unique, conflict, refused, unexpected
from ...families import DEFAULT
from ...planning import Route, advise, routes_of, size_of
from ...report import plain_text, provenance, write_page
from ...runs.container import read_kind
from ..asking import SAFE_CSV, FamilyCommand, own_options
from ..options import JSON, SEED
from ..output import (
    SUMMARY,
    Progress,
    echo_json,
    files_in,
    is_terminal,
    new_folder,
    peak_memory_mb,
    say,
    to_json_text,
    without_folder,
    written,
)
from ..reading import fit_file_options, keep_split, say_notes
from ..session import Session, command_line, session
from ..wording import hint_of
from .plan import READING, cells_of_file, command_of, counts_in, given_options

_ONCE = {"--select": "learn", "--structure-posterior": "structures"}


class _Verb(FamilyCommand):
    """A command that leaves a folder; an option of another such command is answered with its name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words."""
        for word in args:
            if word in _ONCE:
                problem, hint = "is a command of its own", f"write pyro-hoim {_ONCE[word]}"
                raise refused(word, problem, hint, code="unknown-name")
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            verbs = [
                f"pyro-hoim {verb.name}"
                for verb in (fit, learn, structures)
                if any(error.option_name in param.opts for param in verb.get_params(ctx))
            ]
            if not verbs:
                raise
            raise conflict(error.option_name, f"belongs to {' and '.join(verbs)}") from error


class _FitCommand(_Verb):
    """The command with the choice of a family."""

    choice = "--model"
    meaning = "Family of models; grm: generalized root models, of counts or real numbers."

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The argument, the choice of a family, the families' options, and those of every fit."""
        chosen = click.Option(
            [self.choice],
            type=click.Choice([word for family in families() if (word := self.word(family))]),
            default=self.word(family_named(DEFAULT)),
            show_default=True,
            help=self.meaning,
        )
        argument, *others = super().get_params(ctx)
        return [argument, chosen, *others]

    def chosen(self, ctx: click.Context) -> Family:
        """The family that was chosen."""
        word = ctx.params[self.choice.removeprefix("--")]
        return next(family for family in families() if self.word(family) == word)


class _LearnCommand(_FitCommand):
    """The command with the choice of what becomes of numbers."""

    choice = "--numbers"
    meaning = (
        "What becomes of numbers of many values: cut into levels (--bins), or kept, where every column has a family of "
        "its own, such as count or category, chosen by its values."
    )

    @override
    def word(self, family: Family) -> str:
        return family.numbers


def _fitting(split: str, *, needs_source: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The argument and the options of a command that leaves a model, its page and its figures in a folder."""
    split_help = f"Fractions of the rows, shuffled by the seed.  [default: {split}]"
    out_help = "Folder to write.  [default: a new one]"

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        metavar = "TABLE|FILE" if needs_source else "[TABLE|FILE]"
        for parameter in (
            click.pass_context,
            JSON,
            SAFE_CSV,
            click.option("--resume", is_flag=True, help="Continue an interrupted run in its folder."),
            click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help=out_help),
            click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of everything random."),
            click.option("--split", metavar="TRAIN,VALIDATION,TEST", help=split_help),
            fit_file_options,
            click.option(
                "--columns", metavar="NAMES|N", help="Columns to use: names separated by commas, or the first N."
            ),
            click.argument("source", required=needs_source, metavar=metavar),
        ):
            command = parameter(command)
        return command

    return decorate


@click.command(cls=_FitCommand)
@_fitting(
    "1,0,0; of rbm, a dependency network or grm 0.8,0,0.2, and 0.6,0.2,0.2 where several --l1 are compared",
    needs_source=False,
)
def fit(ctx: click.Context, **_: Any) -> None:
    """Fit a model to an embedded table or a file and write a folder with report, model and posterior.

    FILE has one row per observation, or one row per cell with a column of counts. It is text (CSV of any delimiter and
    encoding, also packed), or a file of Excel, Parquet, Feather, SPSS, SAS, Stata, R or ARFF. Without any argument the
    Czech autoworkers table is fitted with interactions of order 1, 2 and 3, each with its posterior, and compared.

    A dependency network (--model dependency-network) predicts every column from others by a decision graph.

    A generalized root model (--model grm) holds counts or real numbers, in a CSV file or a sparse matrix of SciPy
    (.npz with --vocab), and learns pairs and triples of columns that vary together.
    """
    _run(ctx, "fit", cast(_FitCommand, ctx.command).chosen(ctx))


@click.command(cls=_LearnCommand)
@_fitting(
    "0.35,0.15,0.5; of --numbers families 1,0,0, where without validation rows every fifth is left out in turn",
    needs_source=True,
)
def learn(ctx: click.Context, **_: Any) -> None:
    """Learn which interactions a table has, with their strengths, and write a folder with report and models.

    The model kept holds the interactions that the rows confirm; a richer one that predicts stands beside it where it
    is better. TABLE or FILE is as of fit.

    With --numbers families no number is cut. The model is a generalized root model that predicts, and that of the sets
    that the rows confirm stands beside it.
    """
    _run(ctx, "learn", cast(_FitCommand, ctx.command).chosen(ctx))


@click.command(cls=_Verb)
@_fitting("1,0,0", needs_source=True)
def structures(ctx: click.Context, **_: Any) -> None:
    """Find how probable every interaction of a table is, fit the most probable collection, and write a folder.

    Every collection of interactions is listed where that is possible, else collections are drawn. TABLE or FILE is as
    of fit.
    """
    _run(ctx, "structures", family_named(DEFAULT))


def _run(ctx: click.Context, verb: str, family: Family) -> None:
    """Plan, read, fit, and leave the folder."""
    started = time.perf_counter()
    source, columns, split = (ctx.params[name] for name in ("source", "columns", "split"))
    seed, out, resume = (ctx.params[name] for name in ("seed", "out", "resume"))
    # What was typed is checked before anything is read.
    given = own_options(family, ctx)
    targets: tuple[str, ...] = ctx.params["target"]
    values = {**ctx.params, "target": targets[0] if len(targets) == 1 else None}
    asked = Asked(values, given, source, columns, None if split is None else _parse_split(split), seed, verb)
    is_open = verb == "fit" and ctx.get_parameter_source("model") is not ParameterSource.COMMANDLINE
    plan = family.fit(asked)
    folder = None if out is None else new_folder(out, "", resume)  # before rows are read, which may take minutes
    # The rows as they are, by the route that the plan of the table advises, as they are fitted, and in their parts.
    plan, read = routed(plan, asked, ctx.params) if is_open else (plan, plan.read())
    with _naming_routes(ctx.params, verb, read.rows):
        table = plan.complete(read)
    if targets:
        check_names(targets, table.rows.domain.names, "target", noun="column")
        check_unique(targets, "target")
    fractions = plan.split(table) if asked.split is None else asked.split
    parts = dict(zip(["train", "validation", "test"], table.rows.split(fractions, seed), strict=True))
    for (part, rows), fraction in zip(parts.items(), fractions, strict=True):
        if fraction and not rows.total_count > 0:
            problem = f"no row of {table.rows.total_count:g} falls in the {part} part"
            raise refused("--split", problem, "use a larger fraction or more rows", code="empty")
    say_notes(read.notes)
    table.warn()
    # From here on an interrupted run can be continued.
    folder = folder or new_folder(None, table.name, resume)
    say: Progress = ctx.obj
    say.opening = table.size()
    with session(folder, started, read.rows, resume) as run, _naming_routes(ctx.params, verb, table.rows):
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
        say("writing the report")
        page, files = study.page(), study.save(run.folder)
        accuracies = _accuracies(run.folder, targets if len(targets) > 1 else (), parts)
        if accuracies:
            section = Section("Prediction of several columns")
            for of_parts in accuracies.values():
                section.accuracy_table(of_parts, page.has_weights)
            page = replace(page, sections=[*page.sections, section])
        # The page, and last fit.json, whose absence says that a run was not completed.
        made = provenance(
            table.rows,
            name=table.name,
            source=source,
            command=command_line(),
            split=dict(zip(parts, fractions, strict=True)),
            seed=seed,
        )
        write_page(page, run.folder, made, safe_csv=ctx.params["safe_csv"])
        keep_split(run.folder, table, fractions, seed)
        summary = {**_summary(study, table.facts(), run, seed), "has_weights": page.has_weights, "provenance": made}
        summary |= {"targets": accuracies} if accuracies else {}
        summary["files"] = files_in(run.folder)
        inside = to_json_text(without_folder(summary, run.folder), indent=2)
        write_file(run.folder / SUMMARY, inside + "\n")
        run.finish(is_open=study.is_open)
    if ctx.params["as_json"]:
        echo_json(summary)
        return
    _show(table.told(), page, files, run.folder)


def routed(plan: Plan, asked: Asked, values: Mapping[str, Any]) -> tuple[Plan, Any]:
    """The plan of the route that the table advises, and its rows, where nothing typed asks for given interactions.

    All pairs stay with the plan that came, also where they are trained by sampling because something typed needs them.
    What was typed is among ``values``, for the command that is named.
    """
    if asked.source is None or not asked.given <= {option.name for option in LABELLED}:
        return plan, plan.read()
    # A file that is read whole is read once, whatever becomes of it.
    family, cells = family_named(DEFAULT), cells_of_file(asked.source, asked.values)
    if cells is not None:
        asked = replace(asked, cells=cells)
        plan = family.fit(asked)
    # Counts are told from labels before they are read as such.
    size = None if cells is None else counts_in(cells, asked.columns, asked.values, asked.given)
    route, why = (None, "") if size is None else advise(routes_of(size))
    if route is not None and route.name == "roots":
        numbers = family_named("grm").fit(replace(asked, values={**asked.values, "order": (2,), "l1": ("0.1",)}))
        return _taken(numbers, numbers.read(), route, why, values)
    # Labels.
    read = plan.read()
    missing = Missing.parse(asked["missing"])
    rows = read.rows.drop_missing() if missing.policy == "drop" else read.rows
    route, why = advise(routes_of(size_of(rows)))
    if route is None or (route.name not in ("learn", "network")):
        return plan, read
    if route.name == "network":
        priced = replace(asked, values={**asked.values, "penalty": "ebic"})
        return _taken(family_named("dependency-network").fit(priced), read, route, why, values)
    # Options of learn have their own defaults, also where fit has one of the same name for another family.
    options = {option.name: option.unset for option in family.options("learn") if option not in LABELLED}
    learned = replace(asked, values={**asked.values, **options, "max_order": (2,)}, verb="learn")
    return _taken(family.fit(learned), read, route, why, values)


@contextmanager
def _naming_routes(values: Mapping[str, Any], verb: str, rows: Any) -> Generator[None]:
    """A refusal for size inside also names the route that is open for rows of labels, if any."""
    try:
        yield
    except IntractableError as error:
        if values["source"] is None or not all(variable.is_finite for variable in rows.domain):
            raise
        routes = routes_of(size_of(rows))
        by_name = {route.name: route for route in routes}
        # What was asked for is no way out of itself.
        is_pairs = verb == "fit" and values["order"] in ((), (2,))
        asked_for = {"fit": "pairs" if is_pairs else "", "learn": "learn", "structures": "structures"}[verb]
        ways = [
            f"{command_of(route, values['source'], values, {})} takes {route.words}"
            for route in (advise(routes)[0], by_name["learn"], by_name["network"])
            if route is not None and route.is_open and route.name != asked_for
        ]
        others, hint = f"{_plan_command(values)} shows all routes", hint_of(error, click.get_current_context().command)
        raise error.replace(hint="; ".join([*ways[:1], others, *([hint] if hint else [])])) from None


def _plan_command(values: Mapping[str, Any]) -> str:
    """The command that plans the rows of another."""
    words = (written(name, one) for name, one in given_options(values, READING))
    return " ".join(["pyro-hoim", "plan", shlex.quote(values["source"]), *words])


def _taken(plan: Plan, read: Any, route: Route, why: str, values: Mapping[str, Any]) -> tuple[Plan, Any]:
    """A plan and its rows, with one line on the route and how to ask for another."""
    source = values["source"]
    others = f"--order 2 alone asks for a log-linear model of all pairs, and {_plan_command(values)} shows all routes"
    words = f"{why}, so this is {command_of(route, source, values, {})}; {others}"
    say_notes([words])
    return plan, replace(read, about=(*read.about, f"{words[0].upper()}{words[1:]}."))


def _show(told: Sequence[str], page: Page, files: Mapping[str, str], folder: Path) -> None:
    """Print what is to be said of the rows, the page as text, and the files."""
    say(*told, *([""] if told else []), *plain_text(page).split("\n"), "")
    files = {"report": "report.html", "model": "model.safetensors", **files}
    width = max(map(len, files))
    for what, name in files.items():
        say(f"{what + ':':<{width + 1}} {folder / name}")


def _accuracies(
    folder: Path, targets: Sequence[str], parts: Mapping[str, Observations | CountTable]
) -> dict[str, dict[str, Any]]:
    """How well the model of a folder predicts columns of each part, by column and part; null for an empty part."""
    names = ("accuracy", "majority_accuracy", "majority_p_value", "rows")
    by_column: dict[str, dict[str, Any]] = {name: {} for name in targets}
    if not targets:
        return by_column
    # The model as it was saved, so that the figures are those of the file.
    path = folder / "model.safetensors"
    family = family_of(read_kind(path), path)
    stored = family.read(path)
    defaults = {option.name: option.unset for option in family.options("predict")}
    for name, (part, rows) in product(targets, parts.items()):
        if rows.total_count > 0:
            question = Question(stored, path, {**defaults, "target": name}, rows=rows)
            figures = family.predict(question).json
            by_column[name][part] = {"target": name, **{key: figures[key] for key in names}}
        else:
            by_column[name][part] = None
    return by_column


def _parse_split(text: str) -> Fractions:
    """``--split``: three non-negative fractions that sum to one."""
    try:
        parts = [float(word) for word in text.split(",")]
    except ValueError as error:
        raise unexpected("--split", "three fractions such as 0.35,0.15,0.5", text) from error
    if len(parts) != 3 or not all(0 <= p <= 1 for p in parts) or abs(sum(parts) - 1) > 1e-9 or parts[0] == 0:
        raise unexpected("--split", "three fractions from 0 to 1 that sum to 1, the first above 0", text)
    return parts[0], parts[1], parts[2]


def _summary(study: Study[Any], facts: Mapping[str, Any], run: Session, seed: int) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    return {
        "model": str(run.folder / "model.safetensors"),
        "report": str(run.folder / "report.html"),
        **study.to_json(run.folder),
        **facts,
        "seconds": run.seconds,
        "peak_memory_mb": peak_memory_mb(),
        "seed": seed,
    }
