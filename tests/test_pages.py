"""The code of the pages and of the README runs, the blocks of a page one after the other, in one scope."""

import contextlib
import io
import re
from pathlib import Path

import matplotlib as mpl
import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS, README = ROOT / "docs", ROOT / "README.md"


def _blocks(path):
    """Python blocks of a page; those that show what cannot run alone are written ``{code-block} python``."""
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def _run(sources, name):
    """What blocks print, and their scope."""
    printed, scope = io.StringIO(), {}
    with mpl.rc_context({"backend": "Agg"}), contextlib.redirect_stdout(printed):
        for source in sources:
            exec(compile(source, name, "exec"), scope)
    return printed.getvalue(), scope


PAGES = [path for path in sorted(DOCS.rglob("*.md")) if _blocks(path)]


@pytest.mark.fixed_seed  # the numbers of a page
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_code_of_a_page_runs(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    _run(_blocks(path), path.name)


def test_control_a_block_that_fails_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n```\nx / 0\n```\n```python\nx / 0\n```\n")
    first, second = _blocks(page)
    scope = {}
    exec(first, scope)
    with pytest.raises(ZeroDivisionError):
        exec(second, scope)


def test_five_lines_lead_from_a_data_frame_to_an_answer():
    source, _ = _blocks(README)
    assert len([line for line in source.splitlines() if line and not line.startswith("import")]) == 5
    printed, scope = _run([source], "README.md")
    assert "odds_ratio" in printed and "p(y)" in printed
    assert len(scope["result"].hypergraph.maximal_edges) == 15


@pytest.mark.slow  # `make docs` runs it
def test_the_program_draws():
    _, source = _blocks(README)
    assert len(source.strip().splitlines()) <= 25
    _, scope = _run([source], "README.md")
    assert scope["posterior"]["theta"].shape[:2] == (1, 500)


def test_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    mentioned = set(re.findall(r"make ([a-z]+)", README.read_text(encoding="utf-8")))
    assert mentioned <= targets
    assert {"demo", "test"} <= mentioned
