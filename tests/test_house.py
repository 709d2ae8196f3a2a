"""Rules of the house that no linter knows, each with a control that breaks it."""

import ast
import re
from pathlib import Path

from pyro_hoim.families import families

PACKAGE = Path(__file__).resolve().parents[1] / "pyro_hoim"
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_OWN_FLAGS = {("compilation.py", "--parts")}
"""Options of a process that a module starts of itself."""


def _options(source):
    """Options of a command line in the strings of a module, docstrings and pieces of f-strings included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _OPTION.findall(node.value)


def test_the_library_does_not_speak_in_options_of_the_command_line():
    modules = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "cli"]
    assert len(modules) > 200
    found = {
        (path.relative_to(PACKAGE).as_posix(), option)
        for path in modules
        for option in _options(path.read_text(encoding="utf-8"))
    }
    assert found == _OWN_FLAGS


def test_control_options_are_found_in_every_kind_of_string():
    source = '"""Use --full."""\nf"--resume: {path}, try --l1"\na = "x -- y, e--f, ---, a - -b"\n'
    assert list(_options(source)) == ["--full", "--resume", "--l1"]
    assert list(_options((PACKAGE / "cli" / "wording.py").read_text(encoding="utf-8")))


_FAMILIES = {"log_linear", "generalized_root", "dependency_network", "study"}
_READ_BY_ALL = [
    *(PACKAGE / "cli" / "commands").glob("*.py"),
    PACKAGE / "cli" / "asking.py",
    PACKAGE / "report" / "render.py",
]


def _family_knowledge(source):
    """Imports of a family, and questions of what something is."""
    found = []
    for node in ast.walk(ast.parse(source)):
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


def test_commands_and_the_page_know_no_family():
    assert len(_READ_BY_ALL) >= 5
    assert {path.name: found for path in _READ_BY_ALL if (found := _family_knowledge(path.read_text("utf-8")))} == {}


def test_the_command_line_and_what_families_share_import_no_family():
    modules = [path for folder in ("cli", "core", "report") for path in (PACKAGE / folder).rglob("*.py")]
    assert len(modules) > 30
    for path in modules:
        assert not _FAMILIES & {part for name in _imports(path.read_text(encoding="utf-8")) for part in name.split(".")}


def test_options_in_sentences_are_options():
    known = {"model", "columns", "split", "resume", "given", "refit", "log_z"}
    known |= {"count", "weights", "bins", "allow", "safe_csv"}  # of every fit
    commands = ("fit", "learn", "structures", "sample", "score", "predict", "log-z", "interactions")
    known |= {option.name for family in families() for name in commands for option in family.options(name)}
    told = {
        node.args[0].value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "option"
        if _is_text(node.args[0])
    }
    assert len(told) > 20
    assert told <= known


def test_control_every_way_to_know_a_family_is_found():
    for line, found in (
        ("from ...log_linear.file import load_model", "log_linear"),
        ("from .. import dependency_network", "dependency_network"),
        ("import pyro_hoim.generalized_root.file", "generalized_root"),
        ("if model.is_roots(path): pass", "is_roots"),
        ("a = isinstance(analysis, RootAnalysis)", "isinstance of RootAnalysis"),
    ):
        assert _family_knowledge(line) == [found]
    assert _family_knowledge("from ..core.family import Family\na = isinstance(b, str)") == []
    assert _family_knowledge((PACKAGE / "study" / "command" / "family.py").read_text(encoding="utf-8"))


_EXCEPTIONS = {
    "InputError",
    "InputTypeError",
    "IntractableError",
    "MissingDataError",
    "ModelFileError",
    "UnknownNameError",
}


def _prose(source):
    """Lines where an exception is made of a text that names its argument, or what was expected and received."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _EXCEPTIONS:
            text = "".join(piece.value for value in node.args for piece in ast.walk(value) if _is_text(piece))
            if re.search(r"^\w+: |: expected |expected .*, received ", text):
                yield node.lineno


def _is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_exceptions_are_raised_with_their_parts():
    modules = list(PACKAGE.rglob("*.py"))
    assert len(modules) > 200
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}:{line}"
        for path in modules
        for line in _prose(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_control_exceptions_made_of_prose_are_found():
    source = 'InputError(f"{name}: expected {x}, received {y!r}")\nInputError("l1: is given twice")\n'
    assert list(_prose(source + 'InputError("is given twice", argument="l1")\nf("l1: expected 3")\n')) == [1, 2]


def _imports(source):
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {alias.name for node in nodes for alias in node.names} | {str(getattr(node, "module", "")) for node in nodes}


def test_the_command_line_does_not_parse_messages():
    assert "re" not in _imports((PACKAGE / "cli" / "wording.py").read_text(encoding="utf-8"))
    assert "re" in _imports("import re\n") and "re" in _imports("from re import sub\n")
