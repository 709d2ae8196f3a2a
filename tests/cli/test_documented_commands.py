"""Every command that the README and the pages show runs, in the order of its page, in one folder.

So does the Python that writes a file of rows for them.
"""

import re
import shlex
from pathlib import Path

import pytest

from pyro_hoim.datasets import data_file, dataset_files
from pyro_hoim.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
SHELLS = ("", "sh", "bash", "shell", "console")
LONG = re.compile(
    r"learn (?!.*--numbers families)|structures |margins survey|--posterior|--method ais|--order \d --order|"
    r"mushroom|adult|breast_cancer|fit( --seed \d+)?$"
)
PUBLIC = re.compile("|".join(info.name for info in dataset_files()))


def commands(page):
    """Words of the commands that a page shows, and the file that each is written into."""
    return [step for step in steps(page) if isinstance(step, tuple)]


def steps(page):
    """The commands, and the code that writes files for them, in their order."""
    found = []
    for language, block in FENCE.findall(page):
        if language == "python" and ".to_csv(" in block:
            found.append(block)
        lines = [line.strip().removeprefix("$ ") for line in block.splitlines()] if language in SHELLS else []
        for line in [line for line in lines if line.startswith("pyro-hoim ")]:
            words = shlex.split(line, comments=True)[1:]
            into = words[words.index(">") + 1] if ">" in words else None
            found.append((words[: words.index(">")] if ">" in words else words, into))
    return found


def execute(page, shell, is_long):
    """Run the commands of a page; those that take long only where asked for."""
    number = 0
    for step in steps(page):
        if isinstance(step, str):
            exec(compile(step, "page", "exec"), {})
            continue
        words, into = step
        line = " ".join(words)
        if LONG.search(line) and not is_long:
            continue
        for name in PUBLIC.findall(line):
            try:
                data_file(name)
            except InputError as error:
                pytest.skip(f"{line}: {error}")
        shown = shell(*words)
        number += 1
        if into is not None:
            Path(into).write_text(shown.out, encoding="utf-8")
    return number


def is_runnable(page):
    """Whether a page shows commands, and none of them stands for others by a word such as MODEL."""
    lines = [" ".join(words) for words, _ in commands(page)]
    return bool(lines) and not any(re.search(r"\bMODEL\b", line) for line in lines)


PAGES = sorted(p for p in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if is_runnable(p.read_text("utf-8")))


def test_pages_show_commands():
    assert {ROOT / "README.md", ROOT / "docs" / "command_line.md"} <= set(PAGES)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_of_pages_run(path, shell):
    assert execute(path.read_text(encoding="utf-8"), shell, is_long=False)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_long_commands_of_pages_run(path, shell):
    assert execute(path.read_text(encoding="utf-8"), shell, is_long=True)


def test_control_a_wrong_command_and_a_redirection_are_seen(shell):
    page = "```python\nx = 1\n```\n"
    page += "```sh\npyro-hoim data titanic > t.csv  # comment\n$ pyro-hoim tables\n```\n```python\npyro-hoim no\n```\n"
    assert commands(page) == [(["data", "titanic"], "t.csv"), (["tables"], None)]
    assert execute(page, shell, is_long=False) == 2 and Path("t.csv").read_text(encoding="utf-8").startswith("Class,")
    with pytest.raises(AssertionError):
        execute(page.replace("tables", "tabels"), shell, is_long=False)


def test_control_code_that_writes_no_file_is_left_alone(shell):
    page = "```python\nfrom pathlib import Path\nPath('t.csv').write_text('a,b\\nx,y\\n')  # {}\n```\n"
    assert execute(page.format("frame.to_csv()"), shell, is_long=False) == 0 and Path("t.csv").exists()
    Path("t.csv").unlink()
    assert execute(page.format(""), shell, is_long=False) == 0 and not Path("t.csv").exists()


def test_command_line_page_shows_every_command():
    from pyro_hoim.cli import _COMMANDS

    shown = {words[0] for words, _ in commands((ROOT / "docs" / "command_line.md").read_text(encoding="utf-8"))}
    assert shown == set(_COMMANDS)
