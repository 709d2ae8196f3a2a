"""Rules of the house that no linter knows, each with a control that breaks it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "pyro_hoim"
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_OWN_FLAGS = {("compilation.py", "--parts")}
"""Options of a process that a module starts of itself."""


def _options(source: str) -> Iterator[str]:
    """Options of a command line in the strings of a module, docstrings and pieces of f-strings included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _OPTION.findall(node.value)


def test_the_library_does_not_speak_in_options_of_the_command_line() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "cli"]
    assert len(modules) > 200
    found = {
        (path.relative_to(PACKAGE).as_posix(), option)
        for path in modules
        for option in _options(path.read_text(encoding="utf-8"))
    }
    assert found == _OWN_FLAGS


def test_control_options_are_found_in_every_kind_of_string() -> None:
    source = '"""Use --full."""\nf"--resume: {path}, try --l1"\na = "x -- y, e--f, ---, a - -b"\n'
    assert list(_options(source)) == ["--full", "--resume", "--l1"]
    assert list(_options((PACKAGE / "cli" / "wording.py").read_text(encoding="utf-8")))
