"""The command ``pyro-hoim``: plan, fit, learn, inspect and use a model of a table from the shell.

Everything a person reads goes to standard output as text, or with ``--json`` as exactly one JSON object; progress and
warnings go to standard error. The exit status is 0, or 2 with one line on standard error for anything wrong with the
input or refused by the system, 130 after Ctrl-C, 143 after SIGTERM, 141 where the reader of a pipe has gone.
"""

import contextlib
import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from ..core.words import options_written
from ..errors import ConvergenceWarning, DataWarning, FamilyWarning, HoimError, NonexistentEstimateWarning, visible
from .output import written
from .system import close_streams, open_streams, reason, signals_received

__all__ = ["cli", "main"]

GARBAGE = 100_000
"""New objects after which the process of a command looks for garbage."""

# Module and first sentence of each command: the list of commands is shown without importing torch.
_COMMANDS = {
    "plan": ("commands.plan", "Which models a table allows, at what cost, and which is advised."),
    "fit": ("commands.fit", "Fit a model to a table and write a report."),
    "learn": ("commands.fit", "Learn which interactions a table has."),
    "structures": ("commands.fit", "Find how probable every interaction of a table is."),
    "sample": ("commands.use", "Draw rows from a model."),
    "score": ("commands.use", "Log-likelihood of the rows of a file."),
    "predict": ("commands.use", "Predict one column from the others."),
    "log-z": ("commands.use", "Normalising constant of a model."),
    "mode": ("commands.use", "Most probable state of a model, also given some columns."),
    "interactions": ("commands.inspect", "Interactions of a model, and what it loses without each."),
    "margins": ("commands.use", "Probabilities of some columns, also given others."),
    "compare": ("commands.inspect", "Several models beside each other."),
    "report": ("commands.inspect", "Write a page on a model."),
    "tables": ("commands.tables", "The embedded tables and the public data sets."),
    "data": ("commands.data", "Print one of them as CSV."),
}


class _LazyGroup(click.Group):
    """Imports a command's module (and with it torch) only when the command is run or described."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what the library says is told in the words of its options."""
        words = frozenset(ctx.args)
        try:
            return super().invoke(ctx)
        except HoimError as error:
            from .wording import error_message

            name, command = ctx.invoked_subcommand, None
            if name is not None and isinstance(ctx.command, click.Group):
                command = ctx.command.get_command(ctx, name)
            raise click.ClickException(error_message(error, command, words)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        from importlib import import_module

        return getattr(import_module(f".{_COMMANDS[cmd_name][0]}", __name__), cmd_name.replace("-", "_"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands with what each does."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="pyro-hoim", prog_name="pyro-hoim")
def cli() -> None:
    """Higher-order interaction models of tables of categories, counts and real numbers."""


class _Warned:
    """One line on standard error for each text, without the source line; stands in for ``warnings.showwarning``."""

    def __init__(self) -> None:
        self._texts = set[str]()

    def __call__(self, message: Warning | str, *_: Any, **__: Any) -> None:
        from .wording import warning_message

        if (text := visible(warning_message(message))) not in self._texts:  # pieces of rows warn one by one
            self._texts.add(text)
            click.echo(f"pyro-hoim: warning: {text}", err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command; ends the process with the exit status."""
    # Imports make objects that stay. Looked through as often as Python does by itself, they cost a seventh more.
    gc.set_threshold(GARBAGE, *gc.get_threshold()[1:])
    open_streams()
    # Processes that a signal ends leave locks behind; what clears them away need not say so.
    shown = [os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker"]
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, shown))
    status = run(arguments)
    if status > 128:  # finalizers may find objects that the signal left half made
        sys.unraisablehook = lambda _: None
    close_streams()
    gc.freeze()  # else Python looks through all that torch and Numba made for garbage, for a second
    sys.exit(status)


def run(arguments: Sequence[str] | None = None, **options: Any) -> int:
    """Run one command line, by default that of the process, with options of click; its exit status.

    That is 0, or 2 for wrong input and what the system refuses (one line on standard error), 128 and the number of a
    signal that ended it, such as 130 after Ctrl-C, or 141 where the reader of a pipe has gone.
    """
    # A person at the shell can act on our warnings only.
    with warnings.catch_warnings(action="ignore"), options_written(written), signals_received() as received:
        for category in (ConvergenceWarning, DataWarning, FamilyWarning, NonexistentEstimateWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = _Warned()
        # Whatever goes wrong ends in one line and an exit status.
        try:
            words = None if arguments is None else list(arguments)
            return cli.main(args=words, standalone_mode=False, **options) or 0
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
        except click.exceptions.Exit as error:
            return error.exit_code
        except click.UsageError as error:
            from .wording import usage_message

            return _fail(usage_message(error))
        except click.ClickException as error:
            return _fail(error.format_message())
        except HoimError as error:
            return _fail(str(error))
        except OSError as error:
            return _fail(reason(error))
        except (click.Abort, KeyboardInterrupt):
            _say("interrupted")
            return 128 + (received[-1] if received else signal.SIGINT)
    return 0


def _fail(message: str) -> int:
    _say(f"error: {visible(' '.join(message.split()))}")
    return 2


def _say(message: str) -> None:
    """One line on standard error, whose reader may have gone: then the exit status says it alone."""
    with contextlib.suppress(OSError):
        click.echo(f"pyro-hoim: {message}", err=True)
