"""How options are written on a command line; nothing here imports torch."""

from __future__ import annotations

import shlex

__all__ = ["flag", "written"]

_ARGUMENTS = {"refit": "refit_terms"}  # arguments of functions whose option has another name


def flag(name: str) -> str:
    """How an option is written."""
    return f"--{name.replace('_', '-')}"


def written(name: str, value: object) -> str:
    """An option in a sentence, with a value that is not None; True is that of a switch; quoted as a shell needs it."""
    own = flag(_ARGUMENTS.get(name, name))
    return own if value is None or value is True else f"{own} {shlex.quote(str(value))}"
