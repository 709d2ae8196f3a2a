"""``--resume`` where there is nothing to resume is refused in one line, whatever is fitted, and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine

TABLE = "a,b\n" + "x,0\ny,1\nx,1\ny,0\n" * 6
COUNTS = "a,b\n" + "0,1\n3,2\n1,0\n2,2\n" * 6
KINDS = {
    "log-linear": (TABLE, ["--order", "1"]),
    "posterior": (TABLE, ["--order", "1", "--posterior"]),
    "select": (TABLE, ["--select"]),
    "dependency-network": (TABLE, ["--model", "dependency-network"]),
    "grm": (COUNTS, ["--model", "grm"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_is_new_empty_or_of_something_else(kind: str, shell: CommandLine) -> None:
    content, options = KINDS[kind]
    Path("rows.csv").write_text(content)
    for state in ("does not exist", "is empty"):
        lines = shell.refused("fit", "rows.csv", *options, "--resume", "--out", "new").strip().splitlines()
        assert len(lines) == 1
        assert f"--resume: new {state}, so there is nothing to resume; leave out --resume" in lines[0]
        assert Path("new").exists() is (state == "is empty")
        Path("new").mkdir(exist_ok=True)
    (Path("new") / "precious.txt").write_text("mine")
    assert "--resume: new holds no checkpoint" in shell.refused("fit", "rows.csv", *options, "--resume", "--out", "new")
    assert [path.name for path in Path("new").iterdir()] == ["precious.txt"]


def test_a_run_stopped_before_its_first_checkpoint_starts_anew_and_says_so(shell: CommandLine) -> None:
    Path("rows.csv").write_text(TABLE)
    Path("new/checkpoint").mkdir(parents=True)
    (Path("new/checkpoint") / "run.json").write_text(json.dumps({"options": {}, "rows": "", "seconds": 1.0}))
    told = shell("fit", "rows.csv", "--order", "1", "--resume", "--out", "new").err
    assert "was stopped before its first checkpoint; it starts anew" in told
    assert Path("new/fit.json").exists()
