"""Messages of the library in the words of the command line. The one place that knows both."""

from __future__ import annotations

import re

import click

from .options import option_of

__all__ = ["ROOT_HINTS", "in_option_words", "usage_message"]

ROOT_HINTS = {
    "full": "--full",
    "l1": "--l1",
    "refit": "--refit-terms all",
    "log-z": "The command log-z --method ais",
}
"""How to do what the report of a root model advises."""

_ARGUMENTS = {
    "max_order": "--order",
    "number": "-n",
    "num_chains": "--chains",
    "num_temperatures": "--temperatures",
    "num_samples": "--samples",
    "num_draws": "--draws",
}
_BUDGET = r"(?:max_cells|max_operations|max_memory_bytes|max_states|max_slices)"
_PHRASES = [
    (r"pass delimiter=\S+ or convert the file", "convert the file to commas"),
    (r"\buse the trainer 'sampled' or the score 'J'", "use --trainer sampled"),
    (r"^AnnealedImportance: ", "--method ais: "),
    (r" \(see notes of log_partition\)", ""),
    (
        r"\buse more temperatures, block moves or resampling, or an exact backend with a larger budget",
        "use more --temperatures or --chains",
    ),
    (rf"; raise \w+\({_BUDGET}=\.\.\.\)(?: or \({_BUDGET}=\.\.\.\))?,? or use (?:fewer interactions|\w+)", ""),
    (rf"\bthe budget is {_BUDGET}=(\d+)", r"the budget is \1"),
    (rf"\bexceeds {_BUDGET}=(\d+)", r"exceeds the budget of \1"),
    (rf"\bwithin {_BUDGET}=(\d+)", r"within the budget of \1"),
    (r"; for an estimate with an error bar, ask for it with Auto\(annealed=AnnealedImportance\(\)\)", ""),
    (r"\bpass resume=True\b", "pass --resume"),
    (r"\b1 chains are too few", "1 chain is too few"),
]
_FOLLOWS = r": (?:expected|unknown|names must|received|'[^']*' (?:has|holds|is not))| of \S.*?: unknown"
_LEADING = re.compile(rf"^(\w+)(?={_FOLLOWS})")
_INSIDE = re.compile(r"\b(num_\w+|max_order|per_round)\b(?:=(\S+))?")


def in_option_words(message: str, command: click.Command | None = None) -> str:
    """A message that names an argument of the library, with the option that a person typed in its place.

    Args:
        message: of an error, a warning or a note.
        command: whose options there are; a name that is none of them stays.

    Returns:
        One line.
    """
    text = " ".join(message.split())
    for pattern, words in _PHRASES:
        text = re.sub(pattern, words, text)
    options = {} if command is None else {str(p.name): option_of(p) for p in command.get_params(click.Context(command))}
    known = {**{name: option for name, option in _ARGUMENTS.items() if option in options.values()}, **options}
    text = _LEADING.sub(lambda found: known.get(found[1], found[1]), text)

    def option(found: re.Match[str]) -> str:
        return found[0] if found[1] not in known else known[found[1]] + (f" {found[2]}" if found[2] else "")

    return _INSIDE.sub(option, text)


def usage_message(error: click.UsageError) -> str:
    """What click says about wrong usage, as the library writes its messages."""
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter) and error.param:
        return f"{option_of(error.param)}: {error.message}"
    return error.format_message()
