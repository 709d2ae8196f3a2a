"""The README is kept true: its examples run and print what it says, and the commands that it names exist."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def _blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.fixed_seed  # the numbers printed
@pytest.mark.slow  # `.ci/run` runs it beside the tutorials
def test_example_prints_what_the_readme_says():
    (source,) = _blocks("python")
    (expected,) = _blocks("text")
    assert len(source.strip().splitlines()) <= 25
    printed = io.StringIO()
    scope = {}
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "README.md", "exec"), scope)
    assert printed.getvalue() == expected
    posterior = scope["posterior"]
    assert posterior["theta"].shape[:2] == (1, 500)


def test_commands_of_the_readme_exist():
    makefile = (Path(__file__).resolve().parents[1] / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    mentioned = set(re.findall(r"make ([a-z]+)", README))
    assert mentioned <= targets
    assert {"demo", "test"} <= mentioned
