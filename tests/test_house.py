"""Rules of the house that no linter knows, each with a control that breaks it."""

import ast
import re
import shutil
import subprocess

import pytest

from pyro_hoim.families import families

from support import sources
from support.sources import PACKAGE

_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_OWN_FLAGS = {("compilation.py", "--parts")}
"""Options of a process that a module starts of itself."""


@pytest.fixture(scope="module")
def trees():
    return sources.trees()


def _parsed(*parts):
    return ast.parse(PACKAGE.joinpath(*parts).read_text(encoding="utf-8"))


def _options(tree):
    """Options of a command line in the strings of a module, docstrings and pieces of f-strings included."""
    for node in sources.nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _OPTION.findall(node.value)


def test_the_library_does_not_speak_in_options_of_the_command_line(trees):
    modules = {name: tree for name, tree in trees.items() if not name.startswith("cli/")}
    assert {(name, option) for name, tree in modules.items() for option in _options(tree)} == _OWN_FLAGS


def test_control_options_are_found_in_every_kind_of_string():
    source = '"""Use --full."""\nf"--resume: {path}, try --l1"\na = "x -- y, e--f, ---, a - -b"\n'
    assert list(_options(ast.parse(source))) == ["--full", "--resume", "--l1"]
    assert list(_options(_parsed("cli", "wording.py")))


_FAMILIES = {"log_linear", "generalized_root", "dependency_network", "study"}
_READ_BY_ALL = re.compile(r"cli/commands/\w+\.py|cli/asking\.py|report/render\.py")


def _family_knowledge(tree):
    """Imports of a family, and questions of what something is."""
    found = []
    for node in sources.nodes(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            module = getattr(node, "module", None) or ""
            names = [*module.split("."), *(part for alias in node.names for part in alias.name.split("."))]
            found += sorted(_FAMILIES & set(names))
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if re.fullmatch(r"is_roots|is_network|is_log_linear", name):
            found.append(name)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            what = ast.unparse(node.args[1])
            found += [] if what in ("str", "click.Argument") else [f"isinstance of {what}"]
    return found


def test_commands_and_the_page_know_no_family(trees):
    modules = {name: tree for name, tree in trees.items() if _READ_BY_ALL.fullmatch(name)}
    assert len(modules) >= 5
    assert {name: found for name, tree in modules.items() if (found := _family_knowledge(tree))} == {}


def test_the_command_line_and_what_families_share_import_no_family(trees):
    modules = {name: tree for name, tree in trees.items() if name.split("/")[0] in ("cli", "core", "report")}
    assert len(modules) > 25
    for module, tree in modules.items():
        assert not _FAMILIES & {part for name in _imports(tree) for part in name.split(".")}, module


def test_options_in_sentences_are_options(trees):
    known = {"model", "numbers", "columns", "split", "resume", "given", "refit", "log_z"}
    known |= {"count", "weights", "bins", "allow", "exclude", "safe_csv"}  # of every fit
    commands = ("fit", "learn", "structures", "sample", "score", "predict", "log-z", "interactions")
    known |= {option.name for family in families() for name in commands for option in family.options(name)}
    told = {
        node.args[0].value
        for tree in trees.values()
        for node in sources.nodes(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "option"
        if _is_text(node.args[0])
    }
    assert len(told) > 20 and told <= known


def test_control_every_way_to_know_a_family_is_found():
    for line, found in (
        ("from ...log_linear.file import load_model", "log_linear"),
        ("from .. import dependency_network", "dependency_network"),
        ("import pyro_hoim.generalized_root.file", "generalized_root"),
        ("if model.is_roots(path): pass", "is_roots"),
        ("a = isinstance(analysis, RootAnalysis)", "isinstance of RootAnalysis"),
    ):
        assert _family_knowledge(ast.parse(line)) == [found]
    assert _family_knowledge(ast.parse("from ..core.family import Family\na = isinstance(b, str)")) == []
    assert _family_knowledge(_parsed("study", "command", "family.py"))


_EXCEPTIONS = re.compile("(Input|InputType|Intractable|MissingData|ModelFile|UnknownName)Error")


def _prose(tree):
    """Lines where an exception is made of a text that names its argument, or what was expected and received."""
    for node in sources.nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _EXCEPTIONS.fullmatch(node.func.id):
            text = "".join(piece.value for value in node.args for piece in ast.walk(value) if _is_text(piece))
            if re.search(r"^\w+: |: expected |expected .*, received ", text):
                yield node.lineno


def _is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_exceptions_are_raised_with_their_parts(trees):
    assert {name: lines for name, tree in trees.items() if (lines := list(_prose(tree)))} == {}


def test_control_exceptions_made_of_prose_are_found():
    source = 'InputError(f"{name}: expected {x}, received {y!r}")\nInputError("l1: is given twice")\n'
    source += 'InputError("is given twice", argument="l1")\nf("l1: expected 3")\n'
    assert list(_prose(ast.parse(source))) == [1, 2]


def _imports(tree):
    nodes = [node for node in sources.nodes(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {alias.name for node in nodes for alias in node.names} | {str(getattr(node, "module", "")) for node in nodes}


def test_the_command_line_does_not_parse_messages():
    assert "re" not in _imports(_parsed("cli", "wording.py"))
    assert all("re" in _imports(ast.parse(source)) for source in ("import re\n", "from re import sub\n"))


def _absent_tests(commands):
    """Test files and folders that commands name and that are not there."""
    named = set(re.findall(r"(?<=\s)tests/[\w/.]+", commands))
    return sorted(path for path in named if not (PACKAGE.parent / path).exists())


def test_targets_of_the_makefile_name_test_files_that_exist():
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make here: which files its targets name is not known")
    for target in ("newest", "offline", "peers"):
        printed = subprocess.run([make, "--dry-run", target], cwd=PACKAGE.parent, capture_output=True, text=True)
        assert "tests/" in printed.stdout
        assert _absent_tests(printed.stdout) == []
    assert _absent_tests("pytest tests/data tests/data/test_gone.py") == ["tests/data/test_gone.py"]
