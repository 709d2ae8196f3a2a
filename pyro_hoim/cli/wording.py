"""Exceptions and warnings of the library in the words of the command line. The one place that knows both."""

from collections.abc import Collection
from pathlib import Path

import click

from ..errors import ConvergenceWarning, HoimError
from .options import option_of

_ARGUMENTS = {"number": "-n", "clamped": "--given"}
_HINTS: dict[tuple[str, str | None], str | None] = {
    ("wrong-encoding", None): "give its encoding, such as --encoding cp1251 or cp850, or save the file as UTF-8",
    ("existing-file", "checkpoint"): "pass --resume to continue that run, or choose another name",
    ("over-budget", "trainer"): "use --trainer sampled",
    ("over-budget", "order"): "use a lower --order or fewer --columns",
    ("over-budget", "max_order"): "use a lower --max-order or fewer --columns",
    ("over-budget", "edges"): "name smaller interactions in --edges",
    ("over-budget", "variable"): "leave it out by --columns, or merge its levels (--bins for numbers)",
    ("over-budget", "formula"): "use a smaller power, or products of fewer columns, in --edges",
    ("over-budget", "num_chains"): "use fewer --num-chains",
    ("over-budget", "num_draws"): "use fewer --num-draws",
    ("over-budget", "num_imputations"): "use a smaller -n, or fewer rows at a time",
    ("over-budget", "--complete"): "give --complete fewer rows or smaller counts, or use a smaller -n",
    ("over-budget", "number"): "use a smaller -n: parts with a --seed of their own may be drawn one by one",
    ("over-budget", "hidden"): "use fewer --hidden units or --columns",
    ("over-budget", None): None,
    ("unknown-order", None): "say it by --levels FILE with the levels in the right order, as JSON: {received}",
}
"""By code and argument, or any argument: what to do here in the place of a hint about calls in Python."""
_SMALLER = {
    "fit": "use fewer --columns or a lower --order",
    **dict.fromkeys(("learn", "structures"), "use fewer --columns or a lower --max-order"),
    "sample": "use --method gibbs, or fix columns with --given",
    "predict": "use --method gibbs",
    "score": "use --method ais",
    "log-z": "use --method ais",
    "interactions": "leave it out with --no-information",
    "mode": "fix columns with --given or --evidence",
    "margins": "name fewer columns",
    "compare": "compare without --data",
}
"""What to do by command where a computation is beyond its budget and nothing more exact is known."""
_METHODS = {"AnnealedImportance", "RootAnnealed"}


def error_message(error: HoimError, command: click.Command | None = None, words: Collection[str] = ()) -> str:
    """An exception as one line, with the option of a command in the place of the argument.

    An argument that is no option stays, as does one among the words that were typed: a file may have such a name.
    """
    argument, hint = error.argument, hint_of(error, command, words)
    if argument is not None and command is not None:
        options = {str(p.name): option_of(p) for p in command.get_params(click.Context(command))}
        known = {**{name: option for name, option in _ARGUMENTS.items() if option in options.values()}, **options}
        name, space, rest = argument.partition(" ")
        argument = (name if name in words else known.get(name, name)) + space + rest
    return _one_line(str(error.replace(argument=argument, hint=hint)))


def hint_of(error: HoimError, command: click.Command | None, words: Collection[str] = ()) -> str | None:
    """What to do about an exception, in options of a command; a file that was typed and is too large stays so."""
    hint = error.hint
    if error.code == "over-budget" and error.argument is not None and Path(error.argument) in map(Path, words):
        return hint
    for key in ((error.code, (error.argument or "").partition(" ")[0]), (error.code, None)):
        if key in _HINTS and "--" not in (hint or ""):
            hint = _HINTS[key]
            hint = hint and hint.replace("{received}", str(error.received))
            break
    if error.code == "over-budget" and "--" not in f"{error.problem} {hint}" and command is not None:
        hint = _SMALLER.get(str(command.name), hint)
    return hint


def warning_message(warning: Warning | str) -> str:
    """A warning as one line; what to do about an estimate of log Z is said in options."""
    if isinstance(warning, ConvergenceWarning) and warning.argument in _METHODS:
        return f"--method ais: {_one_line(warning.problem)}; use more --num-temperatures or --num-chains"
    if isinstance(warning, ConvergenceWarning) and warning.argument == "BucketImportance":
        return f"--method bounds: {_one_line(warning.problem)}; use more --max-cells; the limits hold all the same"
    return _one_line(str(warning))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def usage_message(error: click.UsageError) -> str:
    """What click says about wrong usage, as the library writes its messages."""
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter) and error.param:
        return f"{option_of(error.param)}: {error.message}"
    return error.format_message()
