"""The documentation names what exists: layers, modules, pages and tutorials."""

import ast
import dataclasses
import importlib
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import pyro_hoim

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))


def _layers():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    lines = settings["contracts"][0]["layers"]
    return {name for line in lines for name in re.findall(r"pyro_hoim\.(\w+)", line)}


def _packages():
    folder = ROOT / "pyro_hoim"
    modules = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    return {name for name in modules if not name.startswith("_")}


def test_every_package_has_its_layer():
    assert _packages() <= _layers()


def test_picture_of_the_layers_shows_the_packages():
    picture = (DOCS / "_static" / "layers.svg").read_text(encoding="utf-8")
    shown = set(re.findall(r'font-weight="bold"[^>]*>(\w+)<', picture))
    assert shown == _packages()


def test_every_package_has_an_api_page_in_the_index():
    pages = {path.stem for path in (DOCS / "api").glob("*.md")}
    assert pages == _packages()
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^api/(\w+)$", index, flags=re.MULTILINE)) == pages


def test_modules_named_in_the_architecture_exist():
    paths = [f"/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "pyro_hoim").rglob("*.py")]
    folders = {f"{Path(path).parent.as_posix()}/" for path in paths}
    for page in ("architecture", "from_papers_to_modules", "contracts"):
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        named = re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", text)
        assert len(named) > 3
        assert [n for n in named if not any(known.endswith(f"/{n}") for known in (*paths, *folders))] == [], page
    assert (DOCS / "architecture.md").read_text(encoding="utf-8").count("\n") <= 120


def test_names_in_the_notation_exist_in_the_sources():
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "pyro_hoim").rglob("*.py"))
    text = (DOCS / "notation.md").read_text(encoding="utf-8")
    called = set(re.findall(r"`(?:\w+\.)*(\w+)\(", text)) | set(re.findall(r"`\w+\.(\w+)", text))
    missing = sorted(called - set(re.findall(r"\w+", sources)))
    assert len(called) > 15
    assert missing == ["len"] or missing == []


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_end_with_their_claim_and_are_listed(path):
    source = path.read_text(encoding="utf-8")
    last_cell = source.split("# %%")[-1]
    assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(last_cell)))
    assert "seed" in source
    assert f"tutorials/{path.stem}\n" in (DOCS / "index.md").read_text(encoding="utf-8")


def _used(source):
    """Names that a tutorial imports from the library, and uses."""
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imports = [node for node in nodes if (node.module or "").split(".")[0] == "pyro_hoim"]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {alias.name for node in imports for alias in node.names} & names


def test_every_name_at_the_top_is_used_in_a_tutorial():
    used = set[str]().union(*(_used(path.read_text(encoding="utf-8")) for path in TUTORIALS))
    packages = {name for name in pyro_hoim.__all__ if isinstance(getattr(pyro_hoim, name), ModuleType)}
    assert set(pyro_hoim.__all__) - packages - used == {"__version__"}


def test_control_a_name_that_is_only_imported_is_not_used():
    assert _used("from pyro_hoim import fit, Domain\nfit()\nAuto\n") == {"fit"}


def test_there_are_tutorials():
    assert len(TUTORIALS) >= 2


def test_the_page_on_families_shows_what_the_tests_run():
    page = (DOCS / "add_a_family.md").read_text(encoding="utf-8")
    (file,) = set(re.findall(r"literalinclude} \.\./(\S+)", page))
    source = (ROOT / file).read_text(encoding="utf-8")
    shown = [name or words for name, words in re.findall(r':pyobject: (\w+)|:(?:start-at|end-before): "(.+)"', page)]
    assert len(shown) >= 4
    assert [words for words in shown if not re.search(rf"^(class |def )?{re.escape(words)}", source, re.M)] == []


def _without_example():
    """Public functions and classes, by their home, whose docstring shows none at work; records and protocols aside."""
    found = set[str]()
    for stub in (ROOT / "pyro_hoim").rglob("__init__.pyi"):
        package = importlib.import_module(".".join(stub.parent.relative_to(ROOT).parts))
        for name in package.__all__:
            value = getattr(package, name)
            is_ours = callable(value) and (getattr(value, "__module__", None) or "").startswith("pyro_hoim.")
            is_record = dataclasses.is_dataclass(value) or hasattr(value, "_fields")
            is_ours &= not (is_record or getattr(value, "_is_protocol", False))
            if is_ours and "Example:" not in (value.__doc__ or ""):
                found.add(f"{value.__module__}.{value.__qualname__}")
    return found


def test_what_is_public_has_an_example():
    assert _without_example() == set()


def test_control_a_public_name_without_an_example_is_found(monkeypatch):
    monkeypatch.setattr(importlib.import_module("pyro_hoim.front").fit, "__doc__", "Fit a model.")
    assert _without_example() == {"pyro_hoim.front.fit"}
