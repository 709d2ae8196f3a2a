"""What the commands on a model share: its family is asked with the rows of a file, and the answer is printed."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click
import pandas as pd
from click.core import ParameterSource

from ..atomic import new_file
from ..core.family import Answer, Family, FrameEncoder, Option, Question, Stored, families, family_of
from ..core.words import listed, plural
from ..data.files.safe_cells import safe_frame, warn_of_formulas
from ..data.files.uai import is_uai
from ..errors import (
    HoimError,
    InputError,
    check_names,
    check_unique,
    conflict,
    out_of_range,
    refused,
    unexpected,
    visible,
)
from ..runs.container import read_kind
from ..schema import Domain
from .options import Command, click_option
from .output import echo_json, flag, is_terminal, model_in, say
from .reading import UnseenLabels, file_options, read_counts, read_encoded, read_known, score_seen, seen_lines

MODEL = click.argument("model", type=click.Path(path_type=Path))
SAFE_CSV = click.option(
    "--safe-csv", is_flag=True, help="Write an apostrophe before cells that a spreadsheet would run; files say so."
)


def DATA(command: Callable[..., Any]) -> Callable[..., Any]:  # noqa: N802 (a decorator beside MODEL and JSON)
    """The rows that a command takes, a file or an embedded table, with options on how it is read."""
    return click.argument("file", type=click.Path(path_type=Path))(file_options(command))


def options_of(command: str | None, among: Sequence[Family] | None = None) -> list[Option]:
    """The options of some families, by default of all, for a command."""
    return list(dict.fromkeys(o for family in among or families() for o in family.options(str(command))))


_SEVERAL = "Options of several families"
_OWNER = f"{__name__}.owner"
_UAI_COMMANDS = ("log-z", "mode", "margins", "sample", "score", "predict")


class FamilyCommand(Command):
    """A command with the options of all families, also of those that were registered after it was made.

    The context of a run may name one of them, whose options are enough.
    """

    choice = ""  # the option that chooses the family, where one does

    def word(self, family: Family) -> str:
        """How that option chooses a family; empty where it cannot."""
        return family.short

    def not_for(self, option: Option, family: Family) -> str:
        """Why an option of other families is refused."""
        if not self.choice:
            return f"not for a {family.name}"
        owners = " or ".join(map(self.word, self._owners(option.name)))
        return f"belongs to {self.choice} {owners}, received {self.choice} {self.word(family)}"

    def _owners(self, name: str) -> list[Family]:
        """The families that have an option of this name."""
        return [f for f in families() if any(o.name == name for o in f.options(str(self.name)))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options: those of the command, those of several families, and those of each."""
        groups: dict[str, list[tuple[str, str]]] = {"Options": [], _SEVERAL: []}
        for family in families():
            groups[self._heading(family)] = []
        takers = [family for family in families() if family.options(str(self.name))]
        for param in self.get_params(ctx):
            record, owners = param.get_help_record(ctx), self._owners(str(param.name))
            if record is None or isinstance(param, click.Argument):
                continue
            if len(owners) == 1 and len(takers) > 1:
                groups[self._heading(owners[0])].append(record)
            elif owners and len(takers) > 1 and len(owners) < len(families()):
                names = ", ".join(map(self.word, owners))
                groups[_SEVERAL].append((record[0], f"{record[1]}  [{names}]"))
            else:
                groups["Options"].append(record)
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def _heading(self, family: Family) -> str:
        """Heading of the options of one family."""
        chosen = f" ({self.choice} {self.word(family)})" if self.choice else ""
        return f"{family.name[0].upper()}{family.name[1:]}{chosen}"

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The arguments, the families' options, and those of the command."""
        common = super().get_params(ctx)
        first = sum(isinstance(param, click.Argument) for param in common)
        return [*common[:first], *map(click_option, options_of(self.name, ctx.meta.get(_OWNER))), *common[first:]]


class ModelCommand(FamilyCommand):
    """A command on one model, for which no other family is imported than the model's, unless its options are typed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words, by the options of the family of the model among them where these are enough."""
        for word in args:
            if (family := _family_at(word)) is not None:
                ctx.meta[_OWNER] = (family,)
                if self._is_read(ctx, args, word):
                    break
                del ctx.meta[_OWNER]
        return super().parse_args(ctx, args)

    def _is_read(self, ctx: click.Context, args: list[str], model: str) -> bool:
        """Whether the options at hand are all that the words hold, one of which is the model; help shows them all."""
        try:
            values, _, _ = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError:
            return False
        return values.get("model") == model and not values.get("help")


def _family_at(word: str) -> Family | None:
    """The family of a model file, or of that in a folder; None of what is none, of which reading says why."""
    file = os.path.join(word, "model.safetensors") if os.path.isdir(word) else word
    if not os.path.isfile(file) or is_uai(file):
        return None
    try:
        return family_of(read_kind(file), file)
    except (HoimError, OSError):
        return None


def own_options(family: Family, ctx: click.Context) -> frozenset[str]:
    """Names of the families' options that were typed; one of other families is refused."""
    given: set[str] = set()
    for option in options_of(ctx.command.name, ctx.meta.get(_OWNER)):
        if ctx.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE:
            continue
        given.add(option.name)
        if option not in family.options(str(ctx.command.name)):
            words = cast(FamilyCommand, ctx.command).not_for(option, family)
            raise conflict(flag(option.name), words, family.hint(option.name))
    return frozenset(given)


def ask(ctx: click.Context, model: Path) -> tuple[Family, Question]:
    """The family of a model file, or of the one in the folder of a fit, and the question that a command asks."""
    path = model_in(model) if model.is_dir() else model
    if is_uai(path):
        # The same about a file in the UAI format, for the commands that need no file of our own.
        if ctx.command.name not in _UAI_COMMANDS:
            names = listed(_UAI_COMMANDS)
            raise unexpected(path, "a model file", hint=f"{names} take it", received="a UAI file", code="wrong-type")
        from ..interop.uai import stored_uai  # which few commands need

        stored = stored_uai(path)
        family = family_of(stored.kind, path)
        return family, Question(stored, path, dict(ctx.params), own_options(family, ctx), is_terminal())
    family = family_of(read_kind(path), path)
    given = own_options(family, ctx)
    return family, Question(family.read(path), model, dict(ctx.params), given, is_terminal())


def with_rows(family: Family, question: Question, file: Path, targets: Sequence[str] = ()) -> Question:
    """The question about the rows of a file, which may leave the targets out; numbers are known of all others."""
    domain, encoder = question.stored.domain, question.stored.encoder
    check_names(targets, domain.names if encoder is None else encoder.names, "--target")
    check_unique(targets, "--target")
    if family.data_type == "numbers":
        if encoder is None:
            rows, absent = read_counts(domain, file, question.values.get("vocab"), targets, question.values)
        else:
            rows, absent = read_encoded(question.stored, encoder, file, question.values, targets)
        if absent and len(targets) > 1:
            problem = f"the file lacks {listed(sorted(absent))}, and every other column must be known"
            raise conflict("--target", problem, "predict one column at a time")
        return replace(question, rows=rows, has_target=not absent)
    reading = question.stored.info.get("reading")
    rows, unseen = read_known(domain, file, question.values, optional=targets, reading=reading)
    values = {**question.values, "unseen": unseen}
    return replace(question, values=values, rows=rows, left_out=unseen.lines)


def parse_given(given: tuple[str, ...], stored: Stored, data_type: str) -> Mapping[str, Any]:
    """Codes, or numbers of the variables of the model, at which ``--given`` holds columns."""
    domain, encoder = stored.domain, stored.encoder
    names = domain.names if encoder is None else encoder.names
    words: dict[str, str] = {}
    for text in given:
        if "=" not in text:
            raise unexpected("--given", "COL=VALUE", text)
        fitting = [name for name in names if text.startswith(f"{name}=")]
        name = max(fitting, key=len, default=text.partition("=")[0])
        word = text[len(name) + 1 :]
        check_names([name], names, "--given")
        if name in words:
            raise refused("--given", f"column {name!r} is fixed twice", code="repeated-name")
        words[name] = word
    if data_type == "labels":
        return domain.encode_state(words)
    if encoder is not None:
        return _encoded(words, encoder)
    numbers: dict[str, float] = {}
    for name, word in words.items():
        try:
            numbers[name] = float(word)
        except ValueError:
            raise out_of_range("--given", f"a number for {name!r}", word) from None
    return numbers


def _encoded(words: Mapping[str, str], encoder: FrameEncoder) -> dict[str, float]:
    """Values of the variables of some columns, from one label or number of each."""
    values = dict[str, float]()
    for name, word in words.items():
        try:
            values |= encoder.encode_values({name: word})
        except InputError as error:
            where = f"--given {name}={word}"
            raise error.replace(argument=where) from None
    return values


def show(answer: Answer, question: Question, as_json: bool) -> None:
    """Print an answer about the rows of a file, with the parts of the file that the fit saw."""
    found = figures(answer, question)
    if as_json:
        echo_json(found)
    else:
        say(*answer.lines, *seen_lines(found["parts"], *answer.shown))


def figures(answer: Answer, question: Question) -> dict[str, Any]:
    """The JSON object of an answer about the rows of a file, whose notes are said."""
    _note(answer)
    parts = None
    if answer.of_part is not None:
        parts = score_seen(question.stored.info, question.rows, answer.of_part)
    unseen = question.values.get("unseen")
    return {**answer.json, "parts": parts, **({} if unseen is None else unseen.to_json())}


def _note(answer: Answer) -> None:
    for line in answer.notes:
        say(f"pyro-hoim: note: {line}", err=True)


def check_new_file(out: Path | None) -> None:
    """Refuse a file that exists or cannot be made."""
    if out is not None and out.exists():
        raise refused("--out", f"{out} exists", "choose another file", code="existing-file")
    if out is not None and not out.absolute().parent.is_dir():
        raise refused("--out", f"the folder {out.absolute().parent} does not exist", code="no-file")


def write(answer: Answer, out: Path | None, safe: bool) -> None:
    """The rows of an answer as CSV, to a file or to standard output."""
    _note(answer)
    frame = pd.DataFrame() if answer.frame is None else answer.frame
    write_csv(frame, out, safe)
    if out is not None:
        say(f"{plural(len(frame), 'row')} written to {out}")


def write_csv(frame: pd.DataFrame, out: Path | None, safe: bool) -> None:
    """A data frame as CSV, to a file or to standard output, its cells made safe for a spreadsheet where asked."""
    head, frame, found = safe_frame(frame, safe)
    if out is None:
        show_csv(head + frame.to_csv(index=False, lineterminator="\n"))
    else:
        with new_file(out) as file:
            file.write(head.encode())
            frame.to_csv(file, index=False, lineterminator="\n")
    warn_of_formulas(found, "--safe-csv")


def show_csv(text: str) -> None:
    """Print CSV as it is, or to a terminal with what that would obey escaped."""
    if sys.stdout.isatty():
        text = "\n".join(map(visible, text.split("\n")))
    click.echo(text, nl=False)


def beside(
    rows: pd.DataFrame, answers: Mapping[str, Answer], unseen: UnseenLabels | None, file: Path, domain: Domain
) -> pd.DataFrame:
    """Columns of rows with the predictions of every row beside them.

    These have the name of their column before their own where there are several, or where a column of the model is
    called as they are.
    """
    for name, answer in answers.items():
        found = pd.DataFrame() if answer.frame is None else answer.frame
        found = found.drop(columns=list(found.attrs.get("columns", {}).values()))
        found = found if unseen is None else unseen.spread(found)
        if len(answers) > 1 or {*found.columns} & {*domain.names}:
            found = found.add_prefix(f"{name}: ")
        if twice := [column for column in found.columns if column in rows.columns]:
            raise refused("--out", f"{file} has a column {twice[0]!r} already", "rename it", code="repeated-name")
        rows = pd.concat([rows, found.reset_index(drop=True)], axis=1)
    return rows
