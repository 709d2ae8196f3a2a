"""The code of the pages runs: the blocks of a page one after the other, in one scope; the README has its own test."""

import contextlib
import io
import re
from pathlib import Path

import matplotlib as mpl
import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def _blocks(path):
    """Python blocks of a page; those that show what cannot run alone are written ``{code-block} python``."""
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


PAGES = [path for path in sorted(DOCS.rglob("*.md")) if _blocks(path)]


@pytest.mark.fixed_seed  # the numbers of a page
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_code_of_a_page_runs(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    scope = {}
    with mpl.rc_context({"backend": "Agg"}), contextlib.redirect_stdout(io.StringIO()):
        for source in _blocks(path):
            exec(compile(source, path.name, "exec"), scope)


def test_control_a_block_that_fails_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n```\nx / 0\n```\n```python\nx / 0\n```\n")
    first, second = _blocks(page)
    scope = {}
    exec(first, scope)
    with pytest.raises(ZeroDivisionError):
        exec(second, scope)
