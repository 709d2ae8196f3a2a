"""Numbers on the command line: ranges that are named in the message when a value lies outside."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..budgets import LARGEST_SEED
from ..core.words import options_written, with_options
from ..errors import InputError, out_of_range, refused
from .output import Progress, flag, written
from .system import one_line

if TYPE_CHECKING:
    from ..core.family import Option


class Command(click.Command):
    """A command that is never silent for long, and refuses an option given twice unless it may be repeated."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its progress is the object of the context."""
        with Progress(time.perf_counter()) as ctx.obj, one_line(self.name, ctx.obj):
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words, of which each can be the name of a file."""
        for word in args:
            try:
                is_name = b"\0" not in os.fsencode(word)
            except UnicodeEncodeError:
                is_name = False
            if not is_name:
                problem = "it holds a null character or half of a surrogate pair, as no file name does"
                raise refused(repr(word), problem, code="wrong-encoding")
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param, times in Counter(order).items():
            if times > 1 and isinstance(param, click.Option) and not param.multiple:
                raise refused(option_of(param), "given more than once", "give it once", code="repeated-name")
        return super().parse_args(ctx, args)


def option_of(param: click.Parameter | None) -> str:
    """How a parameter is written on the command line."""
    if param is None:
        return "value"
    return param.human_readable_name if isinstance(param, click.Argument) else param.opts[0]


def _refused(param: click.Parameter | None, expected: str, value: Any) -> InputError:
    shown = str(value) if re.fullmatch(r"[-+.\d]+", str(value)) else repr(value)
    return out_of_range(option_of(param), expected, received=shown)


class WholeNumber(click.IntRange):
    """A whole number, by default any; bounds are included."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            low, high = self.min, self.max
            bounds = "" if low is None else f" of at least {low:g}" if high is None else f" from {low:g} to {high:.0f}"
            raise _refused(param, f"a whole number{bounds}", value) from None

    def _describe_range(self) -> str:
        """What the help says of the bounds."""
        if self.min is None:
            return ""
        return f"at least {self.min:g}" if self.max is None else f"{self.min:g} to {self.max:.0f}"


class Number(click.FloatRange):
    """A number above 0, or with ``zero`` from 0, up to a bound."""

    name = "number"

    def __init__(self, high: float | None, zero: bool = False) -> None:
        super().__init__(0, high, min_open=not zero)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        try:
            found = super().convert(value, param, ctx)
        except click.BadParameter:
            found = None
        if found is None or found != found:
            least = "above" if self.min_open else "from"
            raise _refused(param, f"a number {least} 0, up to {self.max:g}", value) from None
        return found

    def _describe_range(self) -> str:
        """What the help says of the bounds."""
        return f"{'above' if self.min_open else 'from'} 0, up to {self.max:g}"


SEED = WholeNumber(0, LARGEST_SEED)
"""Type of every ``--seed``."""


JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


@lru_cache(maxsize=1024)  # click looks for translations of the name of every type that it makes
def click_option(option: Option) -> click.Option:
    """An option of a family as click knows it."""
    name = flag(option.name)
    low, high = (None if bound is None else int(bound) for bound in (option.low, option.high))
    # What words are turned into, with the bounds that the help shows.
    types: dict[str, Any] = {
        "text": click.Choice(option.choices) if option.choices else str,
        "whole": WholeNumber(low, high),
        "number": Number(option.high, zero=not option.is_open),
        "path": click.Path(path_type=Path),
    }
    is_flag = option.kind in ("flag", "switch")
    with options_written(written):
        help_text = with_options(option.help)
    return click.Option(
        [f"{name}/--no-{name[2:]}" if option.kind == "switch" else name, option.name],
        type=None if is_flag else types[option.kind],
        is_flag=is_flag,
        default=option.unset,
        multiple=option.multiple,
        metavar=option.metavar,
        show_default=option.default is not None,
        help=help_text,
    )
