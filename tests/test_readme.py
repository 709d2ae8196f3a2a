"""The README is kept true: its examples run, and the commands that it names exist."""

import contextlib
import io
import re
from pathlib import Path

import matplotlib as mpl
import pytest

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def _blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def _run(source):
    printed, scope = io.StringIO(), {}
    with mpl.rc_context({"backend": "Agg"}), contextlib.redirect_stdout(printed):
        exec(compile(source, "README.md", "exec"), scope)
    return printed.getvalue(), scope


def test_five_lines_lead_from_a_data_frame_to_an_answer():
    source, _ = _blocks("python")
    assert len([line for line in source.splitlines() if line and not line.startswith("import")]) == 5
    printed, scope = _run(source)
    assert "odds_ratio" in printed and "p(y)" in printed
    assert len(scope["result"].hypergraph.maximal_edges) == 15


@pytest.mark.slow  # `.ci/run` runs it beside the tutorials
def test_the_program_draws():
    _, source = _blocks("python")
    assert len(source.strip().splitlines()) <= 25
    _, scope = _run(source)
    assert scope["posterior"]["theta"].shape[:2] == (1, 500)


def test_commands_of_the_readme_exist():
    makefile = (Path(__file__).resolve().parents[1] / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    mentioned = set(re.findall(r"make ([a-z]+)", README))
    assert mentioned <= targets
    assert {"demo", "test"} <= mentioned
